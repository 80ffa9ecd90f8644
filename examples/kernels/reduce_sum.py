"""Reductions to one number: a dot product and a largest magnitude, with every group adding its share.

    python examples/kernels/reduce_sum.py
"""

import numpy as np

import tessera as ts
from gallery import check

T = 128


@ts.kernel
def dot(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], out: ts.Region[ts.reduce_sum, ts.Tensor[1, ts.f32]]):
    start = ts.tile.grid(ts.cdiv(n, T)) * T
    out[0] += ts.tile.sum(x[start:start + T] * y[start:start + T])
    return out


@ts.kernel
def largest(x: ts.Tensor["n", ts.f32], out: ts.Region[ts.reduce_max, ts.Tensor[1, ts.f32]]):
    start = ts.tile.grid(ts.cdiv(n, T)) * T
    t = ts.tile.abs(x[start:start + T])
    ts.tile.accumulate(out[0], ts.tile.max(ts.tile.bounds_mask(t, cols=n - start)))
    return out


TOLERANCE = 1e-5


def run(x, y):
    return dot(x, y, np.zeros(1, np.float32)), largest(x, np.zeros(1, np.float32))


def reference(x, y):
    return np.array([x.astype(np.float64) @ y.astype(np.float64)]), np.array([np.abs(x).max(initial=0.0)])


def cases():
    rng = np.random.default_rng(0)
    for n in (0, 1, 31, 128, 129, 5000):
        x, y = rng.standard_normal((2, n), dtype=np.float32)
        yield x, y


def main():
    check("reduce_sum", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
