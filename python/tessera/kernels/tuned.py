"""Autotuned library kernels: ``tile="tune"`` of an operation.

The bodies are those of `gemm` and `attention`, with tile extents that the autotuner chooses. The first call for each kind of
arrays measures the candidates and stores the best (see ``docs/tuning.md``). Later calls, also in other processes, use it.
"""

from __future__ import annotations

import functools

import tessera as ts

from ..kernel.kernel_fn import KernelFn
from .attention import Heads, Options, Span, attended
from .functions import Function
from .gemm import Epilogue, finished, summed

#: Time limit of a first search in milliseconds, compilation included.
BUDGET_MS = 10_000
#: ``(BM, BN)``: the tile of the result. ``BK`` is the step along ``K`` of an iteration. The cost model's usual choices come first.
TILES = ((128, 256), (256, 128), (128, 192), (128, 128), (64, 256), (64, 128), (64, 64), (64, 32), (64, 16))
PRODUCTS = [dict(BM=bm, BN=bn, BK=bk) for bk in (64, 32, 128) for bm, bn in TILES]
#: Queries and keys of a block, and whether the online softmax rescales lazily (see `op.flash_attention`).
BLOCKS = [
    dict(BM=bm, BN=bn, lazy_rescale=free)
    for bm, bn in ((128, 128), (64, 128), (128, 64), (64, 64), (64, 32), (32, 32), (128, 96), (128, 160))
    for free in (True, False)
]


@ts.kernel.autotune(configs=PRODUCTS, budget_ms=BUDGET_MS)
def product(
    A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"], epilogue: Epilogue, C: ts.Tensor["M", "N"], zero, precision: str = "default"
):  # fmt: skip
    t = ts.tile.context()
    m = ts.tile.program_id(0) * t.BM
    n = ts.tile.program_id(1) * t.BN
    acc = summed(A, B, (0, m, n), (0, K), zero, (t.BM, t.BN, t.BK), precision)
    C[m:m + t.BM, n:n + t.BN] = finished(acc, epilogue, 0, m, n, t.BM, t.BN)


@ts.kernel.autotune(configs=PRODUCTS, budget_ms=BUDGET_MS)
def products(
    A: ts.Tensor["P", "M", "K"],
    B: ts.Tensor["P", "K", "N"],
    epilogue: Epilogue,
    C: ts.Tensor["P", "M", "N"],
    zero,
    precision: str = "default",
):
    t = ts.tile.context()
    m = ts.tile.program_id(0) * t.BM
    n = ts.tile.program_id(1) * t.BN
    p = ts.tile.program_id(2)
    acc = summed(A, B, (p, m, n), (0, K), zero, (t.BM, t.BN, t.BK), precision)
    C[p, m:m + t.BM, n:n + t.BN] = finished(acc, epilogue, p, m, n, t.BM, t.BN)


@ts.kernel.autotune(configs=BLOCKS, budget_ms=BUDGET_MS)
def attention(x: Heads, score: Function, mask: Function, scale: ts.f32, seen: Span, how: Options):
    t = ts.tile.context()
    attended(x, score, mask, scale, seen, how, t.BM, t.BN)


@functools.cache
def attention_of(free: bool | None) -> KernelFn:
    """`attention`, with ``lazy_rescale`` fixed in all candidates where the caller gives it."""
    return attention if free is None else attention.scheduled(lazy_rescale=free)
