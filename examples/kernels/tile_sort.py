"""Rows sorted, their k largest, and how often each number is there: `sort`, `argsort`, `topk` and `histogram` of tiles.

    python examples/kernels/tile_sort.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def order(
    x: ts.Tensor["M", "N", ts.f32],
    ascending: ts.Out["M", "N", ts.f32],
    places: ts.Out["M", "N", ts.i32],
    best: ts.Out["M", 3, ts.f32],
    where: ts.Out["M", 3, ts.i32],
    counts: ts.Out["M", 8, ts.i32],
    BN: int = 64,
):
    ts.static_assert(BN >= 3, "three elements are taken")
    row = ts.tile.program_id(0)
    there = ts.tile.arange(BN) < N
    t = x[row, 0:BN]
    up = ts.tile.where(there, t, math.inf)
    ascending[row, 0:BN] = ts.tile.sort(up)
    places[row, 0:BN] = ts.tile.argsort(up)
    best[row, :], where[row, :] = ts.tile.topk(ts.tile.where(there, t, -math.inf), 3)
    counts[row, :] = ts.tile.histogram(ts.tile.cast(t, ts.i32), 8, mask=there)
    return ascending, places, best, where, counts


TOLERANCE = 0.0


def run(x):
    return order(x, BN=max(3, x.shape[1]) if x.shape[1] != 40 else 64)


def reference(x):
    places = np.argsort(x, axis=1, kind="stable")
    padded = np.pad(x, ((0, 0), (0, max(0, 3 - x.shape[1]))), constant_values=-np.inf)
    largest = np.argsort(-padded, axis=1, kind="stable")[:, :3]
    bins = x.astype(np.int32)
    counts = np.stack([(bins == b).sum(1) for b in range(8)], 1) if len(x) else np.zeros((0, 8))
    return np.take_along_axis(x, places, 1), places, np.take_along_axis(padded, largest, 1), largest, counts


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 5), (1, 3), (4, 17), (3, 40), (2, 64)):
        yield (rng.integers(-3, 10, (m, n)).astype(np.float32),)


def main():
    check("tile_sort", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
