"""Running sums of long rows, in blocks of 256: each block adds what came before it.

    python examples/kernels/cumsum.py
"""

import numpy as np

import tessera as ts
from gallery import check

B = 256


@ts.kernel
def cumsum_rows(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    before = 0.0
    for start in ts.tile.range(0, N, B):
        t = x[row, start:start + B]
        y[row, start:start + B] = before + ts.tile.cumsum(t)
        before += ts.tile.sum(t)
    return y


@ts.kernel
def cummax_rows(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    before = -float("inf")
    for start in ts.tile.range(0, N, B):
        t = ts.tile.bounds_mask(x[row, start:start + B], cols=N - start)  # -inf beyond the end of the row
        y[row, start:start + B] = ts.tile.maximum(before, ts.tile.scan(t, "max"))
        before = ts.tile.maximum(before, ts.tile.max(t))
    return y


TOLERANCE = 1e-5  # sums of up to 5000 values in f32


def run(x):
    return cumsum_rows(x), cummax_rows(x)


def reference(x):
    x = x.astype(np.float64)
    return x.cumsum(axis=1), np.maximum.accumulate(x, axis=1)


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 3), (2, 0), (1, 1), (31, 64), (3, 257), (2, 5000)):
        yield (rng.standard_normal((m, n), dtype=np.float32),)


def main():
    check("cumsum", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
