"""Running sums of a long vector by lanes: a scan in each group, then the sums of the groups before it are added.

    python examples/kernels/group_scan.py
"""

import numpy as np

import tessera as ts
from gallery import check

L = 128


@ts.kernel(lanes=L)
def scan_groups(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], totals: ts.Tensor["g", ts.f32]):
    i = ts.tile.linear_id()
    group = ts.tile.group  # the lanes of one group
    running = group.scan(x[i], "sum")
    y[i] = running
    if group.rank == group.size - 1 or i == n - 1:  # the last lane of the group
        totals[i // L] = running
    return y, totals


@ts.kernel(lanes=L)
def add_totals(y: ts.Tensor["n", ts.f32], totals: ts.Tensor["g", ts.f32]):
    i = ts.tile.linear_id()
    if i >= L and i < n:
        y[i] += totals[i // L - 1]
    return y


TOLERANCE = 5e-5  # sums of up to 20000 values in f32


def cumsum(x):
    y, totals = scan_groups(x, totals=np.zeros(-(-x.size // L), np.float32))
    if x.size <= L:
        return y
    return add_totals(y, cumsum(totals))  # the same kernel scans the totals


def run(x):
    return cumsum(x)


def reference(x):
    return x.astype(np.float64).cumsum()


def cases():
    rng = np.random.default_rng(0)
    for n in (0, 1, 31, 128, 129, 1000, 20000):
        yield (rng.standard_normal(n, dtype=np.float32),)


def main():
    check("group_scan", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
