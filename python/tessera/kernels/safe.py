"""Row kernels whose intermediate numbers stay finite wherever the inputs and the result are.

Each group handles one row, held whole. Arithmetic is done in f32 (f64 for f64 arrays) and rounded once to
the array's dtype.
"""

import math

import tessera as ts


@ts.kernel
def softmax_rows(x: ts.Tensor["M", "N"], y: ts.Tensor["M", "N"]):
    r = ts.tile.program_id(0)
    t = x[r, :]
    m = ts.tile.max(t)
    # A row of -inf alone has no maximum to subtract: it gives zeros.
    e = ts.tile.exp(t - ts.tile.where(m == -math.inf, 0.0, m))
    s = ts.tile.sum(e)
    y[r, :] = e / ts.tile.where(s == 0.0, 1.0, s)


@ts.kernel
def logsumexp_rows(x: ts.Tensor["M", "N"], y: ts.Tensor["M"]):
    r = ts.tile.program_id(0)
    t = x[r, :]
    m = ts.tile.max(t)
    base = ts.tile.where(m == -math.inf, 0.0, m)
    y[r] = base + ts.tile.log(ts.tile.sum(ts.tile.exp(t - base)))


@ts.kernel
def layernorm_rows(x: ts.Tensor["M", "N"], w: ts.Tensor["N"], b: ts.Tensor["N"], y: ts.Tensor["M", "N"], eps: ts.f64):
    r = ts.tile.program_id(0)
    # Scaled to at most 1, neither the sum nor the squares can overflow.
    scale = ts.tile.maximum(ts.tile.max(ts.tile.abs(x[r, :])), 1.0)
    t = x[r, :] / scale
    centred = t - ts.tile.mean(t)
    spread = ts.tile.sqrt(ts.tile.mean(centred * centred) + eps / scale / scale)
    # Equal elements of a huge row: the spread is 0, and so is what it divides.
    unit = centred / ts.tile.where(spread == 0.0, 1.0, spread)
    y[r, :] = unit * w[:] + b[:]


@ts.kernel
def rmsnorm_rows(x: ts.Tensor["M", "N"], w: ts.Tensor["N"], y: ts.Tensor["M", "N"], eps: ts.f64):
    r = ts.tile.program_id(0)
    scale = ts.tile.maximum(ts.tile.max(ts.tile.abs(x[r, :])), 1.0)
    t = x[r, :] / scale
    size = ts.tile.sqrt(ts.tile.mean(t * t) + eps / scale / scale)
    y[r, :] = t / ts.tile.where(size == 0.0, 1.0, size) * w[:]


@ts.kernel
def gelu_elements(x: ts.Tensor["n"], y: ts.Tensor["n"]):
    i = ts.tile.linear_id()
    if i < n:
        # Halved first: the largest number times 1 + erf would overflow.
        half = x[i] * 0.5
        y[i] = half + half * ts.tile.erf(x[i] * math.sqrt(0.5))
