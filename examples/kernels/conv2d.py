"""2-D convolution of an image with several channels: one MMA for each tap of the filter.

    python examples/kernels/conv2d.py
"""

import numpy as np

import tessera as ts
from gallery import check

BF, BC, BX = 16, 16, 32  # filters, channels and pixels of a row in one tile


@ts.kernel
def conv2d(
    image: ts.Tensor["C", "H", "W", ts.f32],
    filters: ts.Tensor["F", "C", "R", "S", ts.f32],
    out: ts.Out["F", "H", "W", ts.f32],
):
    f, y, x = ts.tile.grid(ts.cdiv(F, BF), H, ts.cdiv(W, BX))
    f0 = f * BF
    x0 = x * BX
    acc = ts.tile.zeros((BF, BX), ts.f32)
    for r in range(R):
        row = y + r - R // 2
        if 0 <= row < H:  # rows outside the image add nothing
            for s in range(S):
                left = x0 + s - S // 2  # pixels outside the row read as zeros
                for c in ts.tile.range(0, C, BC):
                    taps = filters[f0:f0 + BF, c:c + BC, r, s]
                    acc = ts.tile.mma(taps, image[c:c + BC, row, left:left + BX], accumulator=acc)
    out[f0:f0 + BF, y, x0:x0 + BX] = acc
    return out


TOLERANCE = 5e-5  # sums of up to 20*25 products in f32

run = conv2d


def reference(image, filters):
    (_, height, width), (count, _, rows, columns) = image.shape, filters.shape
    image, filters = image.astype(np.float64), filters.astype(np.float64)
    pad = [(0, 0)] + [(k // 2, k - 1 - k // 2) for k in (rows, columns)]
    padded = np.pad(image, pad)
    out = np.zeros((count, height, width))
    for r in range(rows):
        for s in range(columns):
            out += np.einsum("fc,chw->fhw", filters[:, :, r, s], padded[:, r:r + height, s:s + width])
    return out


def cases():
    rng = np.random.default_rng(0)
    for c, h, w, f, r, s in ((1, 1, 1, 1, 1, 1), (3, 5, 7, 2, 3, 3), (17, 9, 33, 18, 3, 2), (20, 6, 65, 3, 5, 5)):
        yield rng.standard_normal((c, h, w), dtype=np.float32), rng.standard_normal((f, c, r, s), dtype=np.float32)


def main():
    check("conv2d", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
