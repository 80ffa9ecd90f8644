"""A matmul in mxfp8: 32 elements of fp8 (e4m3) share a power of two as their scale.

Both operands are quantized by a kernel, with blocks along K; `mma_scaled` multiplies them.

    python examples/kernels/mxfp8_matmul.py
"""

import numpy as np

import tessera as ts
from gallery import check

BM, BN, BK, BLOCK = 16, 32, 64, 32


@ts.kernel
def to_mxfp8(x: ts.Tensor["M", "K", ts.f32], q: ts.Out["M", "K", ts.fp8_e4m3], scales: ts.Out["M", "cdiv(K, 32)", ts.e8m0]):
    m = ts.tile.program_id(0) * BM
    k = ts.tile.program_id(1) * BK
    block = ts.tile.program_id(1) * (BK // BLOCK)
    data, shared = ts.tile.quantize(x[m:m + BM, k:k + BK], "mxfp8_e4m3")
    q[m:m + BM, k:k + BK] = data
    scales[m:m + BM, block:block + BK // BLOCK] = shared
    return q, scales


@ts.kernel
def mxfp8_matmul(
    A: ts.Tensor["M", "K", ts.fp8_e4m3],
    scales_a: ts.Tensor["M", "KB", ts.e8m0],
    B: ts.Tensor["N", "K", ts.fp8_e4m3],
    scales_b: ts.Tensor["N", "KB", ts.e8m0],
    C: ts.Out["M", "N", ts.f32],
):
    m = ts.tile.program_id(0) * BM
    n = ts.tile.program_id(1) * BN
    acc = ts.tile.zeros((BM, BN), ts.f32)
    for k in ts.tile.range(0, K, BK):
        s = k // BLOCK
        a, sa = A[m:m + BM, k:k + BK], scales_a[m:m + BM, s:s + BK // BLOCK]
        b, sb = B[n:n + BN, k:k + BK], scales_b[n:n + BN, s:s + BK // BLOCK]
        acc = ts.tile.mma_scaled(a, sa, ts.tile.transpose(b), ts.tile.transpose(sb), accumulator=acc)
    C[m:m + BM, n:n + BN] = acc
    return C


TOLERANCE = 5e-6  # sums of up to 300 products in f32


def run(A, B):
    (qa, sa), (qb, sb) = to_mxfp8(A), to_mxfp8(B)
    return mxfp8_matmul(qa, sa, qb, sb)


def reference(A, B):
    a, b = (ts.numerics.dequantize(ts.numerics.quantize(x, "mxfp8_e4m3")).astype(np.float64) for x in (A, B))
    return a @ b.T


def cases():
    rng = np.random.default_rng(0)
    for m, n, k in ((1, 1, 32), (17, 33, 64), (16, 32, 100), (40, 5, 300)):
        yield rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((n, k), dtype=np.float32)


def main():
    check("mxfp8_matmul", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
