"""Transpose of a matrix, tile by tile through shared memory.

    python examples/kernels/transpose.py
"""

import numpy as np

import tessera as ts
from gallery import check

T = 32


@ts.kernel
def transpose(A: ts.Tensor["M", "N", ts.f32], B: ts.Out["N", "M", ts.f32]):
    m, n = ts.tile.grid(ts.cdiv(M, T), ts.cdiv(N, T))
    m0 = m * T
    n0 = n * T
    buffer = ts.tile.alloc_shared((T, T), ts.f32, swizzle="xor")
    ts.tile.cp_async(buffer, A[m0:m0 + T, n0:n0 + T])
    ts.tile.barrier()
    B[n0:n0 + T, m0:m0 + T] = buffer.T
    return B


TOLERANCE = 0.0

run = transpose


def reference(A):
    return A.T


def cases():
    rng = np.random.default_rng(0)
    for shape in ((0, 5), (1, 1), (1, 31), (64, 65), (100, 33)):
        yield (rng.standard_normal(shape, dtype=np.float32),)
    yield (rng.standard_normal((40, 90), dtype=np.float32)[::-2, 1::2],)


def main():
    check("transpose", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
