"""Gather along rows: y[m, j] = x[m, index[m, j]], and 0 where an index is outside.

    python examples/kernels/gather.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def gather(x: ts.Tensor["M", "N", ts.f32], index: ts.Tensor["M", "J", ts.int32], y: ts.Out["M", "J", ts.f32]):
    m, j = ts.tile.grid(ts.cdiv(M, 8), ts.cdiv(J, 32))
    m0 = m * 8
    j0 = j * 32
    rows = m0 + ts.tile.arange(8)
    columns = index[m0:m0 + 8, j0:j0 + 32]
    y[m0:m0 + 8, j0:j0 + 32] = ts.tile.load(x, (rows[:, None], columns), other=0.0)  # the indices broadcast
    return y


TOLERANCE = 0.0

run = gather


def reference(x, index):
    inside = (index >= 0) & (index < x.shape[1])
    return np.where(inside, np.take_along_axis(x, np.where(inside, index, 0), axis=1), 0.0)


def cases():
    rng = np.random.default_rng(0)
    for m, n, j in ((0, 3, 3), (1, 1, 1), (8, 31, 32), (9, 65, 64), (20, 1000, 33)):
        yield rng.standard_normal((m, n), dtype=np.float32), rng.integers(-2, n + 2, (m, j), dtype=np.int32)


def main():
    check("gather", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
