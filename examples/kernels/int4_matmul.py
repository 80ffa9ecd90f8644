"""bf16 activations times packed 4-bit weights, with one scale for each group of 32 rows and each column.

A byte holds two weights of one column: the low nibble row k of the group, the high nibble row k + 16.

    python examples/kernels/int4_matmul.py
"""

import numpy as np

import tessera as ts
from gallery import check

BM, BN = 16, 32


@ts.func
def unpack(nibble):
    """0..15 to -8..7 in bf16, which holds them exactly."""
    return ts.tile.cast((nibble ^ 8) - 8, ts.bf16)


@ts.kernel
def int4_matmul(
    A: ts.Tensor["M", "G*32", ts.bf16],
    packed: ts.Tensor["G*16", "N", ts.uint8],
    scales: ts.Tensor["G", "N", ts.f32],
    C: ts.Out["M", "N", ts.f32],
):
    m0 = ts.tile.program_id(0) * BM
    n0 = ts.tile.program_id(1) * BN
    acc = ts.tile.zeros((BM, BN), ts.f32)
    for g in range(G):
        pairs = packed[g * 16:g * 16 + 16, n0:n0 + BN]
        k = g * 32
        low = ts.tile.mma(A[m0:m0 + BM, k:k + 16], unpack(pairs & 15))
        both = ts.tile.mma(A[m0:m0 + BM, k + 16:k + 32], unpack(pairs >> 4), accumulator=low)
        acc += both * scales[g:g + 1, n0:n0 + BN]
    C[m0:m0 + BM, n0:n0 + BN] = acc
    return C


TOLERANCE = 5e-5  # sums of up to 320 products in f32


def pack(weights):
    nibbles = (weights & 15).astype(np.uint8).reshape(-1, 2, 16, weights.shape[1])
    return (nibbles[:, 0] | nibbles[:, 1] << 4).reshape(-1, weights.shape[1])


def run(A, weights, scales):
    return int4_matmul(A, pack(weights), scales)


def reference(A, weights, scales):
    return A.astype(np.float64) @ (weights * np.repeat(scales.astype(np.float64), 32, axis=0))


def cases():
    rng = np.random.default_rng(0)
    for m, n, k in ((1, 1, 32), (31, 17, 64), (16, 65, 32), (33, 40, 320)):
        A, weights = ts.array(rng.standard_normal((m, k)), "bf16"), rng.integers(-8, 8, (k, n))
        yield A, weights, rng.random((k // 32, n), dtype=np.float32)


def main():
    check("int4_matmul", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
