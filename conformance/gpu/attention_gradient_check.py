"""Gradients of attention inside compiled functions, compared with float64: windows, score functions, masks, grouped-query heads,
narrow floats. Every launch must give the same bits.

    PYTHONPATH=build/gpu python3 -m conformance.gpu.attention_gradient_check [PART/PARTS]

Most of the time is compilation. PART/PARTS runs a share of the combinations.
"""

import sys

import torch

import tessera as ts


@ts.func
def soft_cap(s, b, h, q, k):
    return 20.0 * ts.tile.tanh(s / 20.0)


@ts.func
def sloped(s, b, h, q, k, slopes):
    return s + slopes[h] * ts.tile.cast(k - q, ts.f32)


@ts.func
def documents(b, h, q, k, of):
    return of[q] == of[k]


#: Options of attention, by name.
CASES = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"causal": True, "window": 100},
    "two sides": {"window": (70, 30)},
    "top left": {"causal": "top_left"},
    "soft cap": {"score_mod": soft_cap, "causal": True},
    "sloped": {"score_mod": sloped, "causal": True, "window": 200},
    "documents": {"mask_mod": documents, "causal": True},
    "cap, documents, window": {"score_mod": soft_cap, "mask_mod": documents, "window": (90, 20)},
}
SHAPES = [(1, 2, 2, 129, 257, 64), (2, 4, 2, 300, 300, 128), (1, 4, 1, 520, 333, 64), (1, 2, 2, 200, 200, 256)]
#: Of the largest element of a gradient, for each dtype: a few units of its last place.
BOUNDS = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 1e-4}


def reference(q, k, v, do, name, slopes, of):
    """The gradients in float64, from other ops."""
    options = CASES[name]
    q, k, v, do = (x.detach().double() for x in (q, k, v, do))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    share = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(share, 1) for x in (k, v))
    n, m = q.shape[2], k.shape[2]
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    gap = torch.arange(m, device="cuda")[None] - torch.arange(n, device="cuda")[:, None]
    if options.get("score_mod") is soft_cap:
        s = 20.0 * torch.tanh(s / 20.0)
    elif "score_mod" in options:
        s = s + slopes.double()[:, None, None] * gap
    seen = torch.ones_like(gap, dtype=torch.bool)
    if "mask_mod" in options:
        seen &= of[:n, None] == of[None, :m]
    gap = gap - (0 if options.get("causal") == "top_left" else m - n)
    window = options.get("window")
    left, right = (None, None) if window is None else window if isinstance(window, tuple) else (window - 1, window - 1)
    right = 0 if options.get("causal") else right
    seen &= gap <= right if right is not None else seen
    seen &= gap >= -left if left is not None else seen
    s = s.masked_fill(~seen, float("-inf"))
    top = s.detach().amax(-1, keepdim=True).clamp(min=-1e300)
    p = (s - top).exp()
    total = p.sum(-1, keepdim=True)
    out = p @ v / torch.where(total > 0, total, 1.0)
    return torch.autograd.grad((out * do).sum(), leaves)


def wrong(dtype, bound, shape, name) -> bool:
    b, h, hk, n, m, d = shape
    options = CASES[name]
    q, k, v, do = (torch.randn(b, x, y, d, device="cuda").to(dtype) for x, y in ((h, n), (hk, m), (hk, m), (h, n)))
    slopes = torch.linspace(0.0, 0.05, h, device="cuda")
    of = (torch.arange(max(n, m), device="cuda") // 60).int()
    reads = {soft_cap: {}, sloped: {"slopes": slopes}, documents: {"of": of}}
    given = {a: ts.bind(f, **reads[f]) if a.endswith("_mod") and reads[f] else f for a, f in options.items()}

    @ts.jit
    def step(q, k, v, do):
        def loss(q, k, v):
            return (ts.op.flash_attention(q, k, v, **given).astype("f32") * do.astype("f32")).sum()

        return ts.grad(loss, argnums=(0, 1, 2))(q, k, v)

    first, again = step(q, k, v, do), step(q, k, v, do)
    plan = step.compiled(q, k, v, do).plan
    errors = []
    for got, more, right in zip(first, again, reference(q, k, v, do, name, slopes, of)):
        errors.append(((got.double() - right).abs().max() / right.abs().max().clamp(min=1e-3)).item())
        if not torch.equal(got, more):
            errors.append(float("inf"))
    bad = not max(errors) <= bound or "keys" not in plan or "queries" not in plan
    shown = " ".join(f"{e:.1e}" for e in errors)
    print(f"{'WRONG' if bad else 'right'} {str(dtype)[6:]} {shape} {name}: {shown}", flush=True)
    return bad


def main() -> int:
    torch.manual_seed(1)
    part, parts = (int(x) for x in (sys.argv[1] if len(sys.argv) > 1 else "0/1").split("/"))
    # Neighbours differ in as much as possible, so that each part has some of every kind.
    work = []
    for i, name in enumerate(CASES):
        for j, (dtype, bound) in enumerate(BOUNDS.items()):
            shapes = [s for s in SHAPES if dtype != torch.float32 or s[-1] <= 128]
            for shift in range(len(shapes)):
                work.append((shift, i, dtype, bound, shapes[(shift + i + j) % len(shapes)], name))
    work.sort(key=lambda w: w[0])
    bad = sum(wrong(*w[2:]) for w in work[part::parts])
    print(f"{bad} wrong of {len(work[part::parts])}", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(min(main(), 1))
