"""Rows to fp8 (e4m3) with one scale each, and back.

    python examples/kernels/quantize_fp8.py
"""

import ml_dtypes
import numpy as np

import tessera as ts
from gallery import check

LARGEST = 448.0  # of e4m3


@ts.kernel
def quantize(x: ts.Tensor["M", "N", ts.f32], q: ts.Out["M", "N", ts.fp8_e4m3], scale: ts.Out["M", ts.f32]):
    row = ts.tile.program_id(0)
    amax = 0.0
    for n in ts.tile.range(0, N, 128):
        t = ts.tile.bounds_mask(ts.tile.abs(x[row, n:n + 128]), cols=N - n, value=0.0)
        amax = ts.tile.maximum(amax, ts.tile.max(t))
    s = amax / LARGEST if amax > 0.0 else 1.0
    for n in ts.tile.range(0, N, 128):
        q[row, n:n + 128] = ts.tile.cast(x[row, n:n + 128] / s, ts.fp8_e4m3)
    scale[row] = s
    return q, scale


@ts.kernel
def dequantize(q: ts.Tensor["M", "N", ts.fp8_e4m3], scale: ts.Tensor["M", ts.f32], x: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    for n in ts.tile.range(0, N, 128):
        x[row, n:n + 128] = q[row, n:n + 128] * scale[row]
    return x


TOLERANCE = 0.0  # the same roundings as NumPy


def run(x):
    q, scale = quantize(x)
    return q, scale, dequantize(q, scale)


def reference(x):
    amax = np.abs(x).max(-1, initial=0.0)
    scale = np.where(amax > 0, amax / np.float32(LARGEST), np.float32(1))
    q = (x / scale[:, None]).astype(ml_dtypes.float8_e4m3fn)
    return q, scale, q.astype(np.float32) * scale[:, None]


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 4), (1, 1), (31, 64), (5, 65), (3, 1000)):
        yield (10 * rng.standard_normal((m, n), dtype=np.float32),)
    yield (np.zeros((2, 3), np.float32),)


def main():
    check("quantize_fp8", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
