"""The min-plus product C[i, j] = min over k of A[i, k] + B[k, j]: a step of all shortest paths.

    python examples/kernels/min_plus.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check

BM, BN, BK = 16, 16, 8


@ts.kernel
def min_plus(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Out["M", "N", ts.f32]):
    m0 = ts.tile.program_id(0) * BM
    n0 = ts.tile.program_id(1) * BN
    best = ts.tile.full((BM, BN), math.inf, ts.f32)
    for k0 in ts.tile.range(0, K, BK):
        a = A[m0:m0 + BM, k0:k0 + BK]
        b = B[k0:k0 + BK, n0:n0 + BN]
        sums = a[:, :, None] + b[None, :, :]
        sums = ts.tile.bounds_mask(sums, rows=K - k0, value=math.inf)  # k is the last axis but one
        best = ts.tile.minimum(best, ts.tile.min(sums, axis=1))
    C[m0:m0 + BM, n0:n0 + BN] = best
    return C


TOLERANCE = 1e-6

run = min_plus


def reference(A, B):
    sums = A.astype(np.float64)[:, :, None] + B.astype(np.float64)[None, :, :]
    return sums.min(axis=1, initial=np.inf)


def cases():
    rng = np.random.default_rng(0)
    for m, n, k in ((1, 1, 1), (3, 4, 0), (31, 17, 8), (16, 65, 33), (40, 5, 100)):
        A, B = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
        A[rng.random(A.shape) < 0.2] = np.inf  # no road
        yield A, B


def main():
    check("min_plus", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
