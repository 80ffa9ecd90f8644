"""A step of the heat equation by lanes of two axes, with a halo in shared memory.

    python examples/kernels/stencil_2d_lanes.py

`stencil.py` is the same by tiles, where the compiler moves the data.
"""

import numpy as np

import tessera as ts
from gallery import check

BM, BN = 8, 32


@ts.kernel(lanes=(BM, BN))
def heat_step(u: ts.Tensor["M", "N", ts.f32], rate: ts.f32, out: ts.Out["M", "N", ts.f32]):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    r, c = ts.tile.local_id(0) + 1, ts.tile.local_id(1) + 1
    block = ts.tile.alloc_shared((BM + 2, BN + 2), ts.f32)
    block[r, c] = u[i, j]
    # The lanes at the edges of the group, or of the plate, also load its halo: zeros outside the plate.
    if r == 1:
        block[0, c] = u[i - 1, j] if i > 0 else 0.0
    if r == BM or i == M - 1:
        block[r + 1, c] = u[i + 1, j] if i < M - 1 else 0.0
    if c == 1:
        block[r, 0] = u[i, j - 1] if j > 0 else 0.0
    if c == BN or j == N - 1:
        block[r, c + 1] = u[i, j + 1] if j < N - 1 else 0.0
    ts.tile.barrier()
    around = block[r - 1, c] + block[r + 1, c] + block[r, c - 1] + block[r, c + 1]
    out[i, j] = block[r, c] + rate * (around - 4.0 * block[r, c])
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
    for shape in ((0, 3), (1, 1), (8, 32), (31, 64), (65, 33), (1, 100), (100, 1)):
        yield rng.standard_normal(shape, dtype=np.float32), 0.2


def main():
    check("stencil_2d_lanes", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
