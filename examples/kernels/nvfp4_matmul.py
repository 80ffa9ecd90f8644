"""A matmul in nvfp4: 16 elements of fp4, two a byte, share a scale in fp8, and each matrix has one in f32.

    python examples/kernels/nvfp4_matmul.py
"""

import numpy as np

import tessera as ts
from gallery import check

BM, BN, BK, BLOCK = 16, 32, 64, 16
LARGEST = 6.0 * 448.0  # of fp4, and of fp8 as the scale of a block


@ts.kernel
def to_nvfp4(
    x: ts.Tensor["M", "K", ts.f32],
    tensor_scale: ts.f32,
    q: ts.Out["M", "K", "fp4 @packed"],
    scales: ts.Out["M", "cdiv(K, 16)", ts.fp8_e4m3],
):
    m = ts.tile.program_id(0) * BM
    k = ts.tile.program_id(1) * BK
    block = ts.tile.program_id(1) * (BK // BLOCK)
    data, shared = ts.tile.quantize(x[m:m + BM, k:k + BK], "nvfp4", tensor_scale=tensor_scale)
    q[m:m + BM, k:k + BK] = data
    scales[m:m + BM, block:block + BK // BLOCK] = shared
    return q, scales


@ts.kernel
def nvfp4_matmul(
    A: ts.Tensor["M", "K", "fp4 @packed"],
    scales_a: ts.Tensor["M", "KB", ts.fp8_e4m3],
    B: ts.Tensor["N", "K", "fp4 @packed"],
    scales_b: ts.Tensor["N", "KB", ts.fp8_e4m3],
    tensor_scale: ts.f32,
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
    C[m:m + BM, n:n + BN] = acc * tensor_scale
    return C


TOLERANCE = 5e-6  # sums of up to 300 products in f32


def run(A, B):
    a, b = (np.abs(x).max() / np.float32(LARGEST) for x in (A, B))
    (qa, sa), (qb, sb) = to_nvfp4(A, a), to_nvfp4(B, b)
    return nvfp4_matmul(qa, sa, qb, sb, a * b)


def reference(A, B):
    a, b = (ts.numerics.dequantize(ts.numerics.quantize(x, "nvfp4")).astype(np.float64) for x in (A, B))
    return a @ b.T


def cases():
    rng = np.random.default_rng(0)
    for m, n, k in ((1, 1, 16), (17, 33, 64), (16, 32, 100), (40, 5, 301)):  # an odd K: the last byte of a row has one element
        yield rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((n, k), dtype=np.float32)


def main():
    check("nvfp4_matmul", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
