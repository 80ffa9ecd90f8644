"""Layer norm of rows, forward and backward.

    python examples/kernels/layernorm.py
"""

import numpy as np

import tessera as ts
from gallery import check

EPS = 1e-5


@ts.kernel
def layernorm(
    x: ts.Tensor["M", "N", ts.f32],
    scale: ts.Tensor["N", ts.f32],
    shift: ts.Tensor["N", ts.f32],
    y: ts.Out["M", "N", ts.f32],
    mean: ts.Out["M", ts.f32],
    rstd: ts.Out["M", ts.f32],
):
    row = ts.tile.program_id(0)
    t = x[row, :]
    mu = ts.tile.mean(t)
    centred = t - mu
    r = ts.tile.rsqrt(ts.tile.mean(centred * centred) + EPS)
    y[row, :] = centred * r * scale[:] + shift[:]
    mean[row] = mu
    rstd[row] = r
    return y, mean, rstd


@ts.kernel
def layernorm_backward(
    dy: ts.Tensor["M", "N", ts.f32],
    x: ts.Tensor["M", "N", ts.f32],
    scale: ts.Tensor["N", ts.f32],
    mean: ts.Tensor["M", ts.f32],
    rstd: ts.Tensor["M", ts.f32],
    dx: ts.Out["M", "N", ts.f32],
    dscale: ts.Region[ts.reduce_sum, ts.Tensor["N", ts.f32]],  # every row adds to these two
    dshift: ts.Region[ts.reduce_sum, ts.Tensor["N", ts.f32]],
):
    row = ts.tile.program_id(0)
    g = dy[row, :]
    normal = (x[row, :] - mean[row]) * rstd[row]
    dn = g * scale[:]
    dx[row, :] = rstd[row] * (dn - ts.tile.mean(dn) - normal * ts.tile.mean(dn * normal))
    dscale[:] += g * normal
    dshift[:] += g
    return dx, dscale, dshift


TOLERANCE = 1e-5


def run(x, scale, shift, dy):
    y, mean, rstd = layernorm(x, scale, shift)
    zero = np.zeros_like(scale)
    return y, *layernorm_backward(dy, x, scale, mean, rstd, dscale=zero, dshift=zero.copy())


def reference(x, scale, shift, dy):
    x, scale, shift, dy = (a.astype(np.float64) for a in (x, scale, shift, dy))
    centred = x - x.mean(-1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + EPS)
    normal = centred * rstd
    dn = dy * scale
    dx = rstd * (dn - dn.mean(-1, keepdims=True) - normal * (dn * normal).mean(-1, keepdims=True))
    return normal * scale + shift, dx, (dy * normal).sum(0), dy.sum(0)


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 5), (1, 2), (31, 64), (5, 65), (3, 1000)):
        x, dy = rng.standard_normal((2, m, n), dtype=np.float32)
        yield (x + 3, *rng.standard_normal((2, n), dtype=np.float32), dy)


def main():
    check("layernorm", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
