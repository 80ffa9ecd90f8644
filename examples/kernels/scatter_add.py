"""Scatter-add of rows: out[index[i], :] += x[i, :], where an index may occur many times.

    python examples/kernels/scatter_add.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def scatter_add(
    x: ts.Tensor["n", "D", ts.f32],
    index: ts.Tensor["n", ts.int32],
    out: ts.Region[ts.reduce_sum, ts.Tensor["m", "D", ts.f32]],  # any number of groups may add to a row
):
    i, j = ts.tile.grid(n, ts.cdiv(D, 64))
    d = j * 64
    out[index[i], d:d + 64] += x[i, d:d + 64]
    return out


TOLERANCE = 1e-5  # sums of a few hundred f32 values in any order

run = scatter_add


def reference(x, index, out):
    out = out.astype(np.float64)
    np.add.at(out, index, x.astype(np.float64))
    return out


def cases():
    rng = np.random.default_rng(0)
    for n, d, m in ((0, 3, 2), (1, 1, 1), (31, 64, 5), (65, 65, 3), (1000, 7, 4)):
        x, out = rng.standard_normal((n, d), dtype=np.float32), rng.standard_normal((m, d), dtype=np.float32)
        yield x, rng.integers(0, m, n, dtype=np.int32), out


def main():
    check("scatter_add", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
