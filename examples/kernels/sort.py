"""Bitonic sort of rows of up to 256 elements in shared memory: a lane for each element, with barriers.

    python examples/kernels/sort.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check

L = 256


@ts.kernel(lanes=L)
def sort_rows(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    i = ts.tile.linear_id()
    row = i // L  # one group sorts one row
    j = ts.tile.local_id()
    buffer = ts.tile.alloc_shared((L,), ts.f32)
    if i < M * L:
        buffer[j] = ts.tile.load(x, (row, j), other=math.inf)  # a short row is filled up with infinities
    ts.tile.barrier()
    size = 2
    while size <= L:
        stride = size // 2
        while stride > 0:
            other = j ^ stride
            if other > j:  # one lane of each pair puts the two in order
                a = buffer[j]
                b = buffer[other]
                ascending = j & size == 0
                if (a > b) == ascending:
                    buffer[j] = b
                    buffer[other] = a
            ts.tile.barrier()
            stride = stride // 2
        size = size * 2
    if i < M * L:
        if j < N:
            y[row, j] = buffer[j]
    return y


TOLERANCE = 0.0

run = sort_rows


def reference(x):
    return np.sort(x, axis=-1)


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 3), (1, 1), (3, 31), (2, 64), (5, 65), (2, 256)):
        yield (rng.standard_normal((m, n), dtype=np.float32),)
    yield (rng.integers(0, 5, (2, 100)).astype(np.float32),)  # many equal elements


def main():
    check("sort", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
