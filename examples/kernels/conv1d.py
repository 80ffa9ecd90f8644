"""1-D convolution without a flip (cross-correlation), with zeros beyond the ends.

    python examples/kernels/conv1d.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def conv1d(x: ts.Tensor["n", ts.f32], w: ts.Tensor["taps", ts.f32], y: ts.Out["n", ts.f32]):
    start = ts.tile.program_id(0) * 64
    acc = ts.tile.zeros((64,), ts.f32)
    for k in range(taps):
        at = start + k - taps // 2
        acc += w[k] * x[at:at + 64]  # a slice reads zeros before the first element and after the last
    y[start:start + 64] = acc
    return y


TOLERANCE = 1e-5  # sums of up to 101 products in f32

run = conv1d


def reference(x, w):
    taps = w.size
    padded = np.pad(x.astype(np.float64), (taps // 2, taps - 1 - taps // 2))
    return sum(w[k] * padded[k:k + x.size] for k in range(taps))


def cases():
    rng = np.random.default_rng(0)
    for n, taps in ((1, 1), (1, 7), (31, 3), (64, 4), (65, 5), (1000, 101)):
        yield rng.standard_normal(n, dtype=np.float32), rng.standard_normal(taps, dtype=np.float32)


def main():
    check("conv1d", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
