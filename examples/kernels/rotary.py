"""Rotary embedding: pairs (j, j + D/2) of each vector are rotated by an angle that grows with the position.

    python examples/kernels/rotary.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.func
def rotate(a, b, c, s):
    return a * c - b * s, a * s + b * c


@ts.kernel
def rotary(
    x: ts.Tensor["BH", "S", "2*half", ts.f32],
    cos: ts.Tensor["S", "half", ts.f32],
    sin: ts.Tensor["S", "half", ts.f32],
    y: ts.Out["BH", "S", "2*half", ts.f32],
):
    bh, block = ts.tile.grid(BH, ts.cdiv(S, 16))
    s = block * 16
    a, b = rotate(x[bh, s:s + 16, 0:half], x[bh, s:s + 16, half:2 * half], cos[s:s + 16, :], sin[s:s + 16, :])
    y[bh, s:s + 16, 0:half] = a
    y[bh, s:s + 16, half:2 * half] = b
    return y


TOLERANCE = 1e-6


def tables(length, half):
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(half) / half)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def run(x):
    return rotary(x, *tables(x.shape[1], x.shape[2] // 2))


def reference(x):
    cos, sin = (t.astype(np.float64) for t in tables(x.shape[1], x.shape[2] // 2))
    a, b = np.split(x.astype(np.float64), 2, axis=-1)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def cases():
    rng = np.random.default_rng(0)
    for shape in ((1, 0, 4), (1, 1, 2), (2, 31, 64), (3, 65, 10), (1, 1000, 6)):
        yield (rng.standard_normal(shape, dtype=np.float32),)


def main():
    check("rotary", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
