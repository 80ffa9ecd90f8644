"""A step of the heat equation: the 5-point stencil, with zeros around the plate.

    python examples/kernels/stencil.py
"""

import numpy as np

import tessera as ts
from gallery import check

T = 32


@ts.kernel
def heat_step(u: ts.Tensor["M", "N", ts.f32], rate: ts.f32, out: ts.Out["M", "N", ts.f32]):
    m, n = ts.tile.grid(ts.cdiv(M, T), ts.cdiv(N, T))
    i = m * T
    j = n * T
    centre = u[i:i + T, j:j + T]
    above = u[i - 1:i - 1 + T, j:j + T]  # a slice that leaves the array reads zeros there
    below = u[i + 1:i + 1 + T, j:j + T]
    left = u[i:i + T, j - 1:j - 1 + T]
    right = u[i:i + T, j + 1:j + 1 + T]
    out[i:i + T, j:j + T] = centre + rate * (above + below + left + right - 4.0 * centre)
    return out


TOLERANCE = 2e-6
STEPS = 3


def run(u, rate):
    for _ in range(STEPS):
        u = heat_step(u, rate)
    return u


def reference(u, rate):
    u = u.astype(np.float64)
    for _ in range(STEPS):
        p = np.pad(u, 1)
        u = u + rate * (p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:] - 4 * u)
    return u


def cases():
    rng = np.random.default_rng(0)
    for shape in ((0, 3), (1, 1), (31, 64), (65, 33), (1, 100)):
        yield rng.standard_normal(shape, dtype=np.float32), 0.2


def main():
    check("stencil", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
