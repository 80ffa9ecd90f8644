"""The Mandelbrot set: each lane iterates its own point until it escapes.

    python examples/kernels/mandelbrot.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def mandelbrot(
    re: ts.Tensor["W", ts.f64], im: ts.Tensor["H", ts.f64], limit: ts.int32, count: ts.Out["H", "W", ts.int32]
):
    i = ts.tile.linear_id()
    if i < H * W:
        cx = re[i % W]
        cy = im[i // W]
        x = 0.0
        y = 0.0
        steps = 0
        while x * x + y * y <= 4.0 and steps < limit:  # lanes leave the loop one by one
            x, y = x * x - y * y + cx, 2.0 * x * y + cy
            steps += 1
        count[i // W, i % W] = steps
    return count


TOLERANCE = 0.0  # counts; the arithmetic is the same f64 arithmetic

run = mandelbrot


def reference(re, im, limit):
    cx, cy = np.broadcast_arrays(re[None, :], im[:, None])
    x, y, count = np.zeros(cx.shape), np.zeros(cx.shape), np.zeros(cx.shape, np.int32)
    for _ in range(limit):
        inside = x * x + y * y <= 4.0
        x, y = np.where(inside, x * x - y * y + cx, x), np.where(inside, 2.0 * x * y + cy, y)
        count += inside
    return count


def cases():
    for w, h, limit in ((1, 1, 10), (31, 17, 50), (64, 65, 30), (0, 4, 10)):
        yield np.linspace(-2.0, 0.6, w), np.linspace(-1.2, 1.2, h), limit


def main():
    check("mandelbrot", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
