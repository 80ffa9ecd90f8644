"""The upper triangle of a matrix, and the solution of U X = B by back substitution.

    python examples/kernels/triangular.py
"""

import numpy as np

import tessera as ts
from gallery import check

T = 32


@ts.kernel
def upper(A: ts.Tensor["M", "N", ts.f32], U: ts.Out["M", "N", ts.f32]):
    i = ts.tile.program_id(0) * T
    j = ts.tile.program_id(1) * T
    rows = i + ts.tile.arange(T)
    columns = j + ts.tile.arange(T)
    U[i:i + T, j:j + T] = ts.tile.where(rows[:, None] <= columns[None, :], A[i:i + T, j:j + T], 0.0)
    return U


@ts.kernel
def solve(U: ts.Tensor["N", "N", ts.f32], B: ts.Tensor["N", "R", ts.f32], X: ts.Out["N", "R", ts.f32]):
    r = ts.tile.program_id(0) * 8  # a group solves for 8 right sides and keeps their solution in registers
    x = ts.tile.zeros((N, 8), ts.f32)
    for step in range(N):
        i = N - 1 - step
        u = U[i, :]
        known = ts.tile.sum(u[:, None] * x, axis=0)  # rows not solved yet are still zero
        xi = (B[i, r:r + 8] - known) / U[i, i]
        x = ts.tile.where(ts.tile.arange(N)[:, None] == i, xi[None, :], x)
    X[:, r:r + 8] = x
    return X


TOLERANCE = 1e-5


def run(A, B):
    U = upper(A)
    return U, solve(U, B)


def reference(A, B):
    U = np.triu(A.astype(np.float64))
    return U, np.linalg.solve(U, B.astype(np.float64))


def cases():
    rng = np.random.default_rng(0)
    for n, r in ((1, 1), (31, 3), (64, 8), (65, 9), (100, 1)):
        A = rng.standard_normal((n, n), dtype=np.float32) / n + np.eye(n, dtype=np.float32)
        yield A, rng.standard_normal((n, r), dtype=np.float32)


def main():
    check("triangular", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
