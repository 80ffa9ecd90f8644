"""Softmax of rows: several short rows in one tile, and long rows in pieces.

    python examples/kernels/softmax.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def softmax_short(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    m0 = ts.tile.program_id(0) * 4
    t = x[m0:m0 + 4, :]
    weights = ts.tile.exp(t - ts.tile.row_max(t)[:, None])
    y[m0:m0 + 4, :] = weights / ts.tile.row_sum(weights)[:, None]
    return y


@ts.kernel
def softmax_long(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    largest = -math.inf
    total = 0.0
    for start in ts.tile.range(0, N, 128):
        t = ts.tile.bounds_mask(x[row, start:start + 128], cols=N - start)  # -inf beyond the end of the row
        new = ts.tile.maximum(largest, ts.tile.max(t))
        total = total * ts.tile.exp(largest - new) + ts.tile.sum(ts.tile.exp(t - new))
        largest = new
    for start in ts.tile.range(0, N, 128):
        y[row, start:start + 128] = ts.tile.exp(x[row, start:start + 128] - largest) / total
    return y


TOLERANCE = 1e-6


def run(x):
    return softmax_short(x), softmax_long(x)


def reference(x):
    x = x.astype(np.float64)
    weights = np.exp(x - x.max(-1, keepdims=True))
    y = weights / weights.sum(-1, keepdims=True)
    return y, y


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 5), (1, 1), (4, 31), (5, 64), (3, 65), (2, 1000)):
        yield (rng.standard_normal((m, n), dtype=np.float32),)
    yield (np.array([[1000.0, 999.0, -1000.0], [-500.0, -500.0, -500.0]], np.float32),)  # exp alone would overflow


def main():
    check("softmax", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
