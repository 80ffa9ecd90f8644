"""Layer norm in one pass: mean and variance by Welford's merge, a combiner of three tiles.

    python examples/kernels/welford.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.func
def merge(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    count = count_a + count_b
    apart = mean_b - mean_a
    share = ts.tile.where(count > 0.0, count_b / ts.tile.maximum(count, 1.0), 0.0)
    return mean_a + apart * share, squares_a + squares_b + apart * apart * count_a * share, count


@ts.kernel
def layer_norm(
    x: ts.Tensor["M", "N", ts.f32],
    scale: ts.Tensor["N", ts.f32],
    y: ts.Out["M", "N", ts.f32],
    eps: float = 1e-5,
    BN: int = 128,
):
    row = ts.tile.program_id(0)
    state = (0.0, 0.0, 0.0)
    for k in ts.tile.range(0, N, BN):
        there = ts.tile.cast(ts.tile.arange(BN) + k < N, ts.f32)  # columns outside count as none
        t = ts.tile.bounds_mask(x[row, k:k + BN], cols=N - k, value=0.0)
        block = ts.tile.reduce((t, ts.tile.fill(t, 0.0), there), merge)
        state = merge(state[0], state[1], state[2], block[0], block[1], block[2])
    mean, squares, count = state
    inverse = ts.tile.rsqrt(squares / count + eps)
    for k in ts.tile.range(0, N, BN):
        y[row, k:k + BN] = (x[row, k:k + BN] - mean) * inverse * scale[k:k + BN]
    return y


TOLERANCE = 1e-4

run = layer_norm


def reference(x, scale):
    x = x.astype(np.float64)
    apart = x - x.mean(1, keepdims=True)
    return apart / np.sqrt((apart**2).mean(1, keepdims=True) + 1e-5) * scale


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 3), (1, 1), (5, 64), (3, 129), (2, 1000)):
        x = rng.standard_normal((m, n), dtype=np.float32) + 100  # a sum of squares would lose the variance
        yield x, rng.standard_normal(n, dtype=np.float32)


def main():
    check("welford", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
