"""Squared distances between two sets of points, by |x|^2 + |y|^2 - 2 x.y and a matmul.

    python examples/kernels/pairwise.py
"""

import numpy as np

import tessera as ts
from gallery import check

BM, BN, BD = 32, 32, 16


@ts.kernel
def squared_distances(X: ts.Tensor["M", "D", ts.f32], Y: ts.Tensor["N", "D", ts.f32], out: ts.Out["M", "N", ts.f32]):
    m0 = ts.tile.program_id(0) * BM
    n0 = ts.tile.program_id(1) * BN
    xx = ts.tile.zeros((BM,), ts.f32)
    yy = ts.tile.zeros((BN,), ts.f32)
    xy = ts.tile.zeros((BM, BN), ts.f32)
    for d in ts.tile.range(0, D, BD):
        x = X[m0:m0 + BM, d:d + BD]
        y = Y[n0:n0 + BN, d:d + BD]
        xx += ts.tile.row_sum(x * x)
        yy += ts.tile.row_sum(y * y)
        xy = ts.tile.mma(x, y, accumulator=xy, transpose_b=True)
    total = xx[:, None] + yy[None, :] - 2.0 * xy
    out[m0:m0 + BM, n0:n0 + BN] = ts.tile.maximum(total, 0.0)  # rounding may take it below zero
    return out


TOLERANCE = 2e-5  # near zero, the rounding of terms of the size of |x|^2

run = squared_distances


def reference(X, Y):
    difference = X.astype(np.float64)[:, None, :] - Y.astype(np.float64)[None, :, :]
    return (difference**2).sum(-1)


def cases():
    rng = np.random.default_rng(0)
    for m, n, d in ((0, 3, 2), (1, 1, 1), (31, 64, 3), (65, 33, 17), (20, 20, 100)):
        X = rng.standard_normal((m, d), dtype=np.float32)
        Y = rng.standard_normal((n, d), dtype=np.float32)
        Y[:m // 4] = X[:m // 4]  # some points are the same
        yield X, Y


def main():
    check("pairwise", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
