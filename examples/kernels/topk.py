"""The k largest elements of each row and where they are, by taking the largest k times.

    python examples/kernels/topk.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def topk(x: ts.Tensor["M", "N", ts.f32], values: ts.Tensor["M", "k", ts.f32], indices: ts.Tensor["M", "k", ts.int32]):
    row = ts.tile.program_id(0)
    left = x[row, :]
    for j in range(k):
        at = ts.tile.argmax(left)
        values[row, j] = ts.tile.max(left)
        indices[row, j] = at
        left = ts.tile.where(ts.tile.arange(N) == at, -math.inf, left)  # taken
    return values, indices


TOLERANCE = 0.0


def run(x, k):
    return topk(x, np.zeros((len(x), k), np.float32), np.zeros((len(x), k), np.int32))


def reference(x, k):
    indices = np.argsort(-x, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(x, indices, axis=1), indices


def cases():
    rng = np.random.default_rng(0)
    for m, n, k in ((0, 3, 2), (1, 1, 1), (31, 64, 5), (4, 65, 8), (2, 1000, 3)):
        yield rng.standard_normal((m, n), dtype=np.float32), k
    yield rng.integers(0, 4, (5, 33)).astype(np.float32), 6  # equal elements: the first one first


def main():
    check("topk", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
