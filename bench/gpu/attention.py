"""Attention benchmark: ours and the faster of PyTorch's cuDNN and FlashAttention backends. See docs/perf/attention.md.

    PYTHONPATH=build/gpu python3 -m bench.gpu.attention --rounds 30
    PYTHONPATH=build/gpu python3 -m bench.gpu.attention --only "hd128 causal" --lazy-rescale off

All variants run in one process. First, single launches in random order, with the L2 cache flushed before each. The host enqueues
a launch while the device sleeps, so host time is not measured. The output is the median of the ratios over the rounds and its 95%
confidence interval. Then each variant runs back to back for some milliseconds ("burst", medians). Results are compared with
float64 before anything is timed. Where PyTorch has no such variant, the name of the row says what it is compared with.
"""

import argparse
import contextlib
import os
import random
import re
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import tessera as ts
from gpurun.commit import commit
from gpurun.device import Cuda
from gpurun.stats import median
from gpurun.stats import ratio as paired
from ledger import kernels, op_rows, op_workloads

from . import document_mask

#: Clock cycles that the device sleeps before each launch: longer than the host needs to enqueue it.
LEAD = 300_000
#: Bursts of each variant.
BURSTS = 5


def works():
    """Name, (batch, heads, heads of keys, queries, keys, head dim), causal, options, and the speedup that is required."""
    for d in (128, 64):
        for causal in (False, True):
            for s in (1024, 4096, 16384):
                if d == 128 or s > 1024:
                    name = f"hd{d} {'causal' if causal else 'full'} {s // 1024}k"
                    yield name, (16384 // s, 2048 // d, 2048 // d, s, s, d), causal, {}, 1.15 if causal and d == 128 else 1.1
    yield "hd256 full 4k", (4, 8, 8, 4096, 4096, 256), False, {}, 1.0
    yield "hd96 full 4k", (4, 16, 16, 4096, 4096, 96), False, {}, 1.0
    yield "GQA 8:1 causal 4k", (4, 32, 4, 4096, 4096, 128), True, {}, 1.0
    yield "Sq 1k Sk 8k", (4, 16, 16, 1024, 8192, 128), False, {}, 1.0
    yield "window 1024 at 16k (peer: dense causal)", (1, 16, 16, 16384, 16384, 128), True, {"window": 1024}, 2.0
    yield "soft cap 4k (peer: our plain kernel)", (4, 16, 16, 4096, 4096, 128), False, {"score_mod": kernels.soft_cap}, 0.85
    yield "10 documents in 16k (peer: FlexAttention compiled)", (1, 16, 16, 16384, 16384, 128), False, {"documents": 10}, 2.0
    # Scores of standard deviation 16, and of 256: inputs of 4 and of 16.
    yield "inputs of std 4, hd128 full 8k", (2, 16, 16, 8192, 8192, 128), False, {"std": 4.0}, 0.85
    yield "inputs of std 16, hd128 full 8k", (2, 16, 16, 8192, 8192, 128), False, {"std": 16.0}, 0.85
    yield "ramp hd128 full 8k", (2, 16, 16, 8192, 8192, 128), False, {"ramp": True}, 0.85


def inputs(shape, more):
    b, h, hk, sq, sk, d = shape
    made = [torch.randn(*s, device="cuda", dtype=torch.bfloat16) for s in ((b, h, sq, d), (b, hk, sk, d), (b, hk, sk, d))]
    if std := more.get("std"):
        made[0], made[1] = made[0] * std, made[1] * std
    if more.get("ramp"):
        # Scores that grow by 2**41 with each block of 128 keys, the same for all queries.
        step = 41 * 0.6931 * d**0.5 / 4
        made[0][..., 0] = 4.0
        made[1][..., 0] = (torch.arange(sk, device="cuda") // 128 * step).to(torch.bfloat16)
    return made


def reference(q, k, v, causal, more):
    """The first head in float64."""
    q, k, v = (x[:1, :1].double() for x in (q, k, v))
    s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if "score_mod" in more:
        s = 30 * torch.tanh(s / 30)
    at = torch.arange(k.shape[2], device="cuda")[None] - torch.arange(q.shape[2], device="cuda")[:, None] - (k.shape[2] - q.shape[2])
    if causal:
        s = s.masked_fill(at > 0, float("-inf"))
    if "window" in more:
        s = s.masked_fill(at <= -more["window"], float("-inf"))
    if "documents" in more:
        of = document_mask.places(k.shape[2], more["documents"])
        s = s.masked_fill(of[:, None] != of[None], float("-inf"))
    return s.softmax(-1) @ v


@contextlib.contextmanager
def without(off):
    """Kernels compile without these passes."""
    before = os.environ.pop("TESSERA_OFF", None)
    if off:
        os.environ["TESSERA_OFF"] = off
    try:
        yield
    finally:
        os.environ.pop("TESSERA_OFF", None)
        if before is not None:
            os.environ["TESSERA_OFF"] = before


def set_off(call, off):
    """The call with these passes switched off: `TESSERA_OFF` is set while it runs."""

    def run():
        with without(off):
            return call()

    return run


def library(kind, q, k, v, causal):
    def call():
        with sdpa_kernel(kind):
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])

    return call


def burst_of(call, alone):
    """Seconds per call when calls follow each other for 20 ms. `alone` is the time of a single call."""
    count = max(1, int(20e-3 / alone))
    begin, end = torch.cuda.Event(True), torch.cuda.Event(True)
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e-3 / count


def run(name, shape, causal, more, required, options, timer):
    q, k, v = inputs(shape, more)
    keywords = {n: more[n] for n in ("window", "score_mod") if n in more}
    calls = {}
    for choice in options.lazy_rescale:
        given = None if choice == "auto" else choice == "on"
        calls["ours" if choice == options.lazy_rescale[0] else f"ours ({choice})"] = lambda g=given: ts.op.flash_attention(
            q, k, v, causal=causal, lazy_rescale=g, **keywords
        )
    if "documents" in more:
        of = document_mask.places(k.shape[2], more["documents"])
        calls = {n: document_mask.ours(q, k, v, of, False if "(off)" in n else None) for n in calls}
    for off in options.off:
        calls[f"ours (without {off})"] = set_off(calls["ours"], off)
    if "documents" in more:
        calls["flex"] = document_mask.flex(q, k, v, of)
    elif "score_mod" in more:
        calls["plain"] = lambda: ts.op.flash_attention(q, k, v, causal=causal)
    else:
        for peer, kind in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
            calls[peer] = library(kind, q, k, v, causal)
    right = reference(q, k, v, causal, more)
    errors = {}
    for what in list(calls):
        try:
            out = calls[what]()[:1, :1].double()
            errors[what] = ((out - right).norm() / right.norm()).item()
        except Exception as error:  # a backend that does not take the shape
            if what.startswith("ours") and "without" not in what:
                raise
            print(f"  {what}: {str(error).splitlines()[0][:100]}")
            del calls[what]
    del right
    if not errors["ours"] < 6e-3 and "score_mod" not in more:
        print(f"{name}: WRONG, relative error {errors['ours']:.2e}")
        return
    times = dict(zip(calls, timer.samples([lambda _, call=call: call() for call in calls.values()], options.rounds)))
    alone = {what: median(t) for what, t in times.items()}
    bursts = {what: [] for what in calls}
    for _ in range(BURSTS):
        for what in random.sample(list(calls), len(calls)):
            bursts[what].append(burst_of(calls[what], alone[what]))
    burst = {what: median(t) for what, t in bursts.items()}
    peers = [what for what in calls if not what.startswith("ours")]
    best = min(peers, key=alone.__getitem__)
    flushed = paired(times["ours"], times[best])
    b, h, _, sq, sk, d = shape
    flops = 4 * b * h * sq * sk * d * (0.5 if causal else 1.0)
    if "documents" in more:
        flops = 4 * b * h * document_mask.pairs(of) * d
    together = min(burst[p] for p in peers) / burst["ours"]
    shown = "  ".join(f"{what} {flops / alone[what] / 1e12:.0f}/{flops / burst[what] / 1e12:.0f}" for what in calls)
    if options.ledger and "ours" in times:
        row = {**flushed, "clock": "events"}
        row |= {f"{who}_us": [round(1e6 * t, 2) for t in times[what]] for who, what in (("ours", "ours"), ("peer", best))}
        said = {"causal": causal, "window": more.get("window"), "cap": "score_mod" in more}
        said |= {"std": int(more.get("std", 1)), "ramp": bool(more.get("ramp")), "documents": more.get("documents", 0)}
        if reason := options.keeper.try_to_keep(options.ledger, op_workloads.attention(*shape, "bf16", **said), {best: row}):
            print(f"  no row for the ledger: {reason}")
    seen = "{ratio:.3f} [{low:.3f}, {high:.3f}]".format(**flushed)
    print(f"{name:40s} {seen} burst {together:.3f} required {required}  TFLOP/s {shown}  err {errors['ours']:.1e}", flush=True)
    for off in options.off:
        left = f"ours (without {off})"
        if left not in times:
            continue
        gain = paired(times["ours"], times[left])
        wrong = "" if errors[left] < 6e-3 or "score_mod" in more else f"  WRONG, relative error {errors[left]:.2e}"
        print(f"  {off:24s} gives {gain['ratio']:.3f} [{gain['low']:.3f}, {gain['high']:.3f}]{wrong}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--lazy-rescale", default="auto", help="auto, on, off, separated by commas: lazy rescaling of the softmax")
    parser.add_argument("--ledger", type=Path, metavar="FILE", help="also add rows of the ledger to this file")
    parser.add_argument("--commit", default="", help="the commit that the ledger records (default: from git)")
    parser.add_argument("--off", action="append", default=[], metavar="PASS,…", help="also time without these compiler passes")
    options = parser.parse_args()
    options.lazy_rescale = options.lazy_rescale.split(",")
    random.seed(1)
    torch.manual_seed(1)
    device = Cuda()
    options.keeper = op_rows.Keeper(device, 1, {**device.describe(), "commit": options.commit or commit()})
    timer = device.timer(rng=np.random.default_rng(1), write=True, lead=LEAD)
    print(torch.cuda.get_device_name())
    for work in works():
        if re.search(options.only, work[0]):
            run(*work, options, timer)


if __name__ == "__main__":
    main()
