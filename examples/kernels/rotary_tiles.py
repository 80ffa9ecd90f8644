"""Rotary embedding of whole vectors, which are loaded once and taken apart as tiles.

    python examples/kernels/rotary_tiles.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.func
def turned(t):
    """The second half, negated, before the first."""
    a, b = ts.tile.split(t, 2, axis=1)
    return ts.tile.concat((-b, a), axis=1)


@ts.kernel
def rotary(
    x: ts.Tensor["BH", "S", "D", ts.f32],
    cos: ts.Tensor["S", "D", ts.f32],
    sin: ts.Tensor["S", "D", ts.f32],
    y: ts.Out["BH", "S", "D", ts.f32],
):
    bh, block = ts.tile.grid(BH, ts.cdiv(S, 16))
    s = block * 16
    t = x[bh, s:s + 16, :]
    y[bh, s:s + 16, :] = t * cos[s:s + 16, :] + turned(t) * sin[s:s + 16, :]
    return y


TOLERANCE = 1e-6


def tables(length, size):
    angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(size // 2) / (size // 2))
    angles = np.concatenate([angles, angles], axis=1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def run(x):
    return rotary(x, *tables(x.shape[1], x.shape[2]))


def reference(x):
    cos, sin = (t.astype(np.float64) for t in tables(x.shape[1], x.shape[2]))
    a, b = np.split(x.astype(np.float64), 2, axis=-1)
    return x * cos + np.concatenate([-b, a], axis=-1) * sin


def cases():
    rng = np.random.default_rng(0)
    for shape in ((1, 0, 4), (1, 1, 2), (2, 31, 64), (3, 65, 10)):
        yield (rng.standard_normal(shape, dtype=np.float32),)


def main():
    check("rotary_tiles", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
