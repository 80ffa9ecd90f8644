"""Histogram: every lane adds one to the bin of its element.

    python examples/kernels/histogram.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def histogram(x: ts.Tensor["n", ts.f32], low: ts.f32, high: ts.f32, bins: ts.Region[ts.reduce_sum, ts.Tensor["b", ts.int32]]):
    i = ts.tile.linear_id()
    if i < n:
        at = ts.tile.floor((x[i] - low) / (high - low) * b)
        if at >= 0.0 and at < b:
            bins[int(at)] += 1  # any number of lanes may add to one bin
    return bins


TOLERANCE = 0.0  # counts


def run(x, low, high, count):
    return histogram(x, low, high, np.zeros(count, np.int32))


def reference(x, low, high, count):
    low, high = np.float32(low), np.float32(high)
    at = np.floor((x - low) / (high - low) * np.float32(count)).astype(np.int64)  # f32: a bin is a rounding matter
    return np.bincount(at[(at >= 0) & (at < count)], minlength=count)


def cases():
    rng = np.random.default_rng(0)
    for n, count in ((0, 4), (1, 1), (31, 10), (1000, 7), (5000, 300)):
        yield rng.standard_normal(n, dtype=np.float32), -2.0, 2.0, count


def main():
    check("histogram", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
