"""Histogram: lanes add to the bins of the array, or first to bins of their group in shared memory.

    python examples/kernels/histogram.py
"""

import numpy as np

import tessera as ts
from gallery import check

L, MOST = 256, 512  # lanes of a group, and the most bins that fit in shared memory here


@ts.func
def bin_of(v, low, high, count):
    return int(ts.tile.floor((v - low) / (high - low) * count))


@ts.kernel
def histogram(
    x: ts.Tensor["n", ts.f32], low: ts.f32, high: ts.f32, bins: ts.Region[ts.reduce_sum, ts.Tensor["b", ts.int32]]
):
    i = ts.tile.linear_id()
    if i < n:
        at = bin_of(x[i], low, high, b)
        if 0 <= at < b:
            bins[at] += 1  # any number of lanes may add to one element of a `reduce_sum` parameter
    return bins


@ts.kernel(lanes=L)
def histogram_shared(x: ts.Tensor["n", ts.f32], low: ts.f32, high: ts.f32, bins: ts.Tensor["b", ts.int32]):
    ts.require(ts.constraint.Range("b", 1, MOST))
    i = ts.tile.linear_id()
    counts = ts.tile.alloc_shared((MOST,), ts.int32)
    for k in range(ts.tile.local_id(), b, L):
        counts[k] = 0
    ts.tile.barrier()
    if i < n:
        at = bin_of(x[i], low, high, b)
        if 0 <= at < b:
            ts.tile.atomic_add(counts[at], 1)
    ts.tile.barrier()
    for k in range(ts.tile.local_id(), b, L):
        ts.tile.atomic_add(bins[k], counts[k])
    return bins


TOLERANCE = 0.0  # counts


def run(x, low, high, count):
    groups = ts.cdiv(x.size, L)  # whole groups, for every lane helps to clear the bins
    return (
        histogram(x, low, high, np.zeros(count, np.int32)),
        histogram_shared[groups * L](x, low, high, np.zeros(count, np.int32)),
    )


def reference(x, low, high, count):
    low, high = np.float32(low), np.float32(high)
    # In f32 as well: into which of two bins an element falls is a matter of rounding.
    at = np.floor((x - low) / (high - low) * np.float32(count)).astype(np.int64)
    counts = np.bincount(at[(at >= 0) & (at < count)], minlength=count)
    return counts, counts


def cases():
    rng = np.random.default_rng(0)
    for n, count in ((0, 4), (1, 1), (31, 10), (1000, 7), (5000, 300)):
        yield rng.standard_normal(n, dtype=np.float32), -2.0, 2.0, count


def main():
    check("histogram", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
