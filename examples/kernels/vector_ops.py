"""Elementwise work on vectors, by lanes and by tiles.

    python examples/kernels/vector_ops.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def axpby(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], a: ts.f32, b: ts.f32, out: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()  # one lane for each element
    out[i] = a * x[i] + b * y[i]
    return out


@ts.kernel
def clipped_hypot(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], limit: ts.f32, out: ts.Out["n", ts.f32]):
    start = ts.tile.program_id(0) * 128  # one group for each 128 elements
    s = x[start:start + 128]
    t = y[start:start + 128]
    out[start:start + 128] = ts.tile.minimum(ts.tile.sqrt(s * s + t * t), limit)
    return out


TOLERANCE = 1e-6  # a few roundings to f32


def run(x, y, a, b):
    return axpby(x, y, a, b), clipped_hypot(x, y, a)


def reference(x, y, a, b):
    x, y = x.astype(np.float64), y.astype(np.float64)
    return a * x + b * y, np.minimum(np.hypot(x, y), a)


def cases():
    rng = np.random.default_rng(0)
    for n in (0, 1, 31, 64, 65, 1000):
        x, y = rng.standard_normal((2, n), dtype=np.float32)
        yield x, y, 1.5, -0.25
    x = rng.standard_normal(300, dtype=np.float32)
    yield x[::3], x[::-3], 1.5, 2.0  # arrays of any stride


def main():
    check("vector_ops", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
