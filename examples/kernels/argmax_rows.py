"""Argmax of each row (the first of equal elements); the row is read in blocks of 128.

    python examples/kernels/argmax_rows.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check

BM, BN = 8, 128


@ts.kernel
def argmax_rows(x: ts.Tensor["M", "N", ts.f32], at: ts.Out["M", ts.int64], value: ts.Out["M", ts.f32]):
    m0 = ts.tile.program_id(0) * BM
    best = ts.tile.full((BM,), -math.inf, ts.f32)
    where = ts.tile.zeros((BM,), ts.int64)  # positions are int64
    for n in ts.tile.range(0, N, BN):
        t = ts.tile.bounds_mask(x[m0:m0 + BM, n:n + BN], cols=N - n)
        new = ts.tile.row_max(t)
        where = ts.tile.where(new > best, n + ts.tile.argmax(t, axis=1), where)
        best = ts.tile.maximum(best, new)
    at[m0:m0 + BM] = where
    value[m0:m0 + BM] = best
    return at, value


TOLERANCE = 0.0

run = argmax_rows


def reference(x):
    return x.argmax(axis=1), x.max(axis=1)


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 3), (1, 1), (31, 64), (9, 129), (3, 1000)):
        yield (rng.standard_normal((m, n), dtype=np.float32),)
    yield (rng.integers(-3, 0, (20, 300)).astype(np.float32),)  # many equal elements, all below the padding's zero


def main():
    check("argmax_rows", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
