"""The discrete Fourier transform of rows of 64 complex numbers: radix 2 in shared memory, a lane for each butterfly.

    python examples/kernels/fft.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check

N, HALF = 64, 32


@ts.kernel(lanes=HALF)
def fft(x: ts.Tensor["M", N, 2, ts.f32], y: ts.Out["M", N, 2, ts.f32]):
    i = ts.tile.linear_id()
    row = i // HALF  # one group transforms one row
    j = ts.tile.local_id()
    re = ts.tile.alloc_shared((2, N), ts.f32)  # what a stage reads, and what it writes
    im = ts.tile.alloc_shared((2, N), ts.f32)
    if i < M * HALF:
        re[0, j] = x[row, j, 0]
        im[0, j] = x[row, j, 1]
        re[0, j + HALF] = x[row, j + HALF, 0]
        im[0, j + HALF] = x[row, j + HALF, 1]
    side = 0
    span = 1
    while span < N:  # Stockham's algorithm: the result is in natural order
        ts.tile.barrier()
        k = j % span
        angle = -math.pi / span * k
        c = ts.tile.cos(angle)
        s = ts.tile.sin(angle)
        a_re, a_im = re[side, j], im[side, j]
        b_re, b_im = re[side, j + HALF], im[side, j + HALF]
        t_re = b_re * c - b_im * s
        t_im = b_re * s + b_im * c
        side = 1 - side
        to = 2 * j - k
        re[side, to] = a_re + t_re
        im[side, to] = a_im + t_im
        re[side, to + span] = a_re - t_re
        im[side, to + span] = a_im - t_im
        span *= 2
    ts.tile.barrier()
    if i < M * HALF:
        y[row, j, 0] = re[side, j]
        y[row, j, 1] = im[side, j]
        y[row, j + HALF, 0] = re[side, j + HALF]
        y[row, j + HALF, 1] = im[side, j + HALF]
    return y


TOLERANCE = 1e-5  # of sums of 64 products


def run(x):
    return fft(x.view(np.float32).reshape(-1, N, 2))


def reference(x):
    y = np.fft.fft(x.astype(np.complex128), axis=1)
    return np.stack([y.real, y.imag], axis=-1)


def cases():
    rng = np.random.default_rng(0)
    for m in (0, 1, 3, 31):
        yield (rng.standard_normal((m, 2 * N), dtype=np.float32).view(np.complex64),)


def main():
    check("fft", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
