"""LU factorisation with partial pivoting, one matrix per group; rows are swapped with a tuple assignment.

    python examples/kernels/lu_pivot.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def lu(A: ts.Tensor["batch", "N", "N", ts.f32], pivots: ts.Out["batch", "N", ts.int32]):
    b = ts.tile.program_id(0)
    i = ts.tile.arange(N)
    for k in range(N):
        p = ts.tile.argmax(ts.tile.where(i >= k, ts.tile.abs(A[b, :, k]), -1.0))
        pivots[b, k] = p
        if p != k:
            A[b, k, :], A[b, p, :] = A[b, p, :], A[b, k, :]
        if A[b, k, k] != 0.0:
            below = i > k
            factor = ts.tile.where(below, A[b, :, k] / A[b, k, k], 0.0)
            right = ts.tile.where(below, A[b, k, :], 0.0)
            A[b, :, :] -= factor[:, None] * right[None, :]
            A[b, :, k] = ts.tile.where(below, factor, A[b, :, k])
    return A, pivots


TOLERANCE = 1e-4


def run(A):
    return lu(A)


def reference(A):
    A = A.astype(np.float64)
    pivots = np.zeros(A.shape[:2], np.int32)
    for matrix, swaps in zip(A, pivots):
        for k in range(len(matrix)):
            p = swaps[k] = k + np.argmax(abs(matrix[k:, k]))
            matrix[[k, p]] = matrix[[p, k]]
            if matrix[k, k] != 0.0:
                matrix[k + 1 :, k] /= matrix[k, k]
                matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    return A, pivots


def cases():
    rng = np.random.default_rng(0)
    for batch, N in ((0, 3), (1, 1), (3, 2), (2, 7), (4, 16), (2, 33)):
        yield (rng.standard_normal((batch, N, N), dtype=np.float32),)
    yield (np.array([[[0, 2, 1], [0, 0, 3], [4, 1, 1]], [[1, 2, 3], [2, 4, 6], [1, 0, 1]]], np.float32),)


def main():
    check("lu_pivot", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
