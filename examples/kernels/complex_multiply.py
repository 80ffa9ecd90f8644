"""Products of complex numbers, held as pairs of f32.

    python examples/kernels/complex_multiply.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def multiply(x: ts.Tensor["n", 2, ts.f32], y: ts.Tensor["n", 2, ts.f32], z: ts.Out["n", 2, ts.f32]):
    i = ts.tile.program_id(0) * 64
    a, b = x[i:i + 64, 0], x[i:i + 64, 1]
    c, d = y[i:i + 64, 0], y[i:i + 64, 1]
    z[i:i + 64, 0] = a * c - b * d
    z[i:i + 64, 1] = a * d + b * c
    return z


TOLERANCE = 1e-6


def pairs(x):
    return x.view(np.float32).reshape(-1, 2)


def run(x, y):
    return multiply(pairs(x), pairs(y))


def reference(x, y):
    z = x.astype(np.complex128) * y.astype(np.complex128)
    return np.stack([z.real, z.imag], axis=-1)


def cases():
    rng = np.random.default_rng(0)
    for n in (0, 1, 31, 64, 65, 1000):
        x, y = rng.standard_normal((2, 2 * n), dtype=np.float32).view(np.complex64)
        yield x, y


def main():
    check("complex_multiply", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
