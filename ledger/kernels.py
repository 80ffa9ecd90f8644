"""Kernels of the ledger's workloads that the library does not have in this form."""

import math

import tessera as ts

TUNABLES = ("BM", "BN", "BK", "num_warps", "num_stages")
#: Tile sizes, warps and stages of the GEMM. The benchmark tries them all and keeps the fastest.
CANDIDATES = [
    dict(zip(TUNABLES, values))
    for values in (
        (128, 128, 32, 4, 3), (128, 256, 32, 8, 3), (256, 128, 32, 8, 3), (128, 128, 64, 4, 3), (128, 128, 64, 8, 4),
        (128, 256, 64, 8, 3), (64, 256, 32, 4, 4),
    )
]  # fmt: skip
GEMM = CANDIDATES[0]


@ts.kernel.autotune(space={name: [value] for name, value in GEMM.items()})
def gemm(A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"], C: ts.Tensor["M", "N"]):
    t = ts.tile.context()
    m = ts.tile.program_id(0) * t.BM
    n = ts.tile.program_id(1) * t.BN
    acc = ts.tile.zeros((t.BM, t.BN), ts.f32)
    for k in ts.tile.range(0, K, t.BK):
        acc = ts.tile.mma(A[m:m + t.BM, k:k + t.BK], B[k:k + t.BK, n:n + t.BN], accumulator=acc)
    C[m:m + t.BM, n:n + t.BN] = acc


@ts.func
def gelu_times(x, w):
    """`gelu(x + w) * x` in the tanh form."""
    t = x + w
    return 0.5 * t * (1.0 + ts.tile.tanh(math.sqrt(2.0 / math.pi) * (t + 0.044715 * t * t * t))) * x


@ts.func
def scaled_sum(x, y):
    return 1.5 * x + y


@ts.func
def soft_cap(s, b, h, q, k):
    return 30.0 * ts.tile.tanh(s / 30.0)


@ts.func
def same_document(b, h, q, k, documents):
    return documents[q] == documents[k]
