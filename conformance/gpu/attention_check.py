"""Compares every element of attention's results with float64, at odd sizes. Every launch must give the same bits.

    PYTHONPATH=build/gpu python3 -m conformance.gpu.attention_check
"""

import torch

import tessera as ts

SHAPES = [
    (1, 1, 1, 1, 1, 128), (2, 3, 3, 100, 100, 128), (1, 2, 2, 129, 257, 128), (1, 3, 1, 1111, 1111, 128), (2, 7, 7, 640, 384, 128),
    (1, 2, 2, 200, 2000, 128), (3, 16, 16, 1024, 1024, 128), (1, 16, 4, 4096, 4096, 128), (2, 5, 5, 777, 777, 64), (2, 3, 3, 513, 300, 256),
]  # fmt: skip


def reference(q, k, v, causal, window):
    q, k, v = (x.double() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    at = torch.arange(k.shape[2], device="cuda")[None] - torch.arange(q.shape[2], device="cuda")[:, None] - (k.shape[2] - q.shape[2])
    seen = torch.ones_like(at, dtype=torch.bool)
    if causal:
        seen &= at <= 0
    if window:
        seen &= at > -window
    s = s.masked_fill(~seen, float("-inf"))
    top = s.amax(-1, keepdim=True).clamp(min=-1e300)
    p = (s - top).exp()
    total = p.sum(-1, keepdim=True)
    out = torch.where(total > 0, p @ v / total, 0)
    return out, (top + total.log()).squeeze(-1)


def main(dims=(128, 64, 256), rows=True):
    torch.manual_seed(1)
    bad = 0
    for b, h, hk, sq, sk, d in SHAPES:
        if d not in dims:
            continue
        q, k, v = (torch.randn(b, n, s, d, device="cuda", dtype=torch.bfloat16) for n, s in ((h, sq), (hk, sk), (hk, sk)))
        for scale in (1.0, 16.0):
            for causal, window in ((False, 0), (True, 0), (True, 300)):
                if window and sq > 2000:
                    continue
                args = (q * scale, k, v)
                wanted, total = reference(*args, causal, window)
                more = {"window": window} if window else {}
                outs = [ts.op.flash_attention(*args, causal=causal, **more)]
                off = 0.0
                if rows:
                    out, lse = ts.op.flash_attention(*args, causal=causal, return_lse=True, **more)
                    live = total > -1e290
                    off = (lse.double() - total)[live].abs().max().item() if live.any() else 0.0
                    outs.append(out)
                error = max(((x.double() - wanted).norm(dim=-1) / wanted.norm(dim=-1).clamp(min=1e-3)).max().item() for x in outs)
                if not (error < 3e-2 and off < 2e-2 * scale):
                    bad += 1
                    print(f"WRONG {b, h, hk, sq, sk, d} scale {scale} causal {causal} window {window}: row error {error:.2e}, lse {off:.2e}")
    for causal in (False, True):
        q, k, v = (torch.randn(2, 8, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        first = ts.op.flash_attention(q, k, v, causal=causal)
        same = all(torch.equal(first, ts.op.flash_attention(q, k, v, causal=causal)) for _ in range(30))
        bad += not same
        print(f"30 launches, causal {causal}: {'equal bits' if same else 'NOT THE SAME'}")
    print("all right" if not bad else f"{bad} wrong", flush=True)


if __name__ == "__main__":
    main()
