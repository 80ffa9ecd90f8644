"""Row kernels: softmax, layer norm and RMS norm with one row for each group, and softmax of long rows in pieces.

    python examples/softmax_rows.py
"""

import math

import numpy as np

import tessera as ts


@ts.kernel
def softmax(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    t = x[row, :]  # the whole row: N is a compile-time size, and nothing is ragged
    weights = ts.tile.exp(t - ts.tile.max(t))
    y[row, :] = weights / ts.tile.sum(weights)
    return y


@ts.kernel
def layernorm(
    x: ts.Tensor["M", "N", ts.f32],
    scale: ts.Tensor["N", ts.f32],
    shift: ts.Tensor["N", ts.f32],
    y: ts.Out["M", "N", ts.f32],
    eps: float = 1e-5,
):
    row = ts.tile.program_id(0)
    t = x[row, :]
    centred = t - ts.tile.mean(t)
    variance = ts.tile.mean(centred * centred)
    y[row, :] = centred * ts.tile.rsqrt(variance + eps) * scale[:] + shift[:]
    return y


@ts.kernel
def rmsnorm(x: ts.Tensor["M", "N", ts.f32], scale: ts.Tensor["N", ts.f32], y: ts.Out["M", "N", ts.f32], eps: float = 1e-6):
    row = ts.tile.program_id(0)
    t = x[row, :]
    y[row, :] = t * ts.tile.rsqrt(ts.tile.mean(t * t) + eps) * scale[:]
    return y


@ts.kernel
def softmax_in_pieces(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    """The same for rows of any length, with one compilation: the last piece is ragged and masked."""
    row = ts.tile.program_id(0)
    largest = -math.inf
    total = 0.0
    for start in ts.tile.range(0, N, 256):
        t = ts.tile.bounds_mask(x[row, start:start + 256], cols=N - start)
        new = ts.tile.maximum(largest, ts.tile.max(t))
        total = total * ts.tile.exp(largest - new) + ts.tile.sum(ts.tile.exp(t - new))
        largest = new
    for start in ts.tile.range(0, N, 256):
        y[row, start:start + 256] = ts.tile.exp(x[row, start:start + 256] - largest) / total
    return y


def softmax_reference(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def main():
    rng = np.random.default_rng(0)
    for rows, columns in ((3, 1), (4, 100), (2, 777)):
        x = rng.standard_normal((rows, columns), dtype=np.float32)
        scale, shift = rng.standard_normal((2, columns), dtype=np.float32)
        wide = x.astype(np.float64)
        centred = wide - wide.mean(-1, keepdims=True)
        cases = {
            "softmax": (softmax(x), softmax_reference(wide)),
            "softmax_in_pieces": (softmax_in_pieces(x), softmax_reference(wide)),
            "layernorm": (
                layernorm(x, scale, shift),
                centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift,
            ),
            "rmsnorm": (rmsnorm(x, scale), wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * scale),
        }
        for name, (result, expected) in cases.items():
            error = np.abs(result - expected).max()
            assert error < 1e-5, (name, error)
            print(f"{name:<18} {f'{rows}x{columns}':<7} largest error {error:.1e}")


if __name__ == "__main__":
    main()
