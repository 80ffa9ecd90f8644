"""Layer norm and RMS norm over the last axis, and their gradients.

With ``centre`` (layer norm) the mean is subtracted first. Means and variances are computed in f32 (f64 for f64 arrays), with
the variance about the mean; ``eps`` is added under the root. The gradients of scale and shift are sums over rows: each group
sums those of its rows and writes them once, and a second launch adds the partial sums, always in the same order.
"""

from __future__ import annotations

import tessera as ts


@ts.struct
class Rows:
    """Rows to normalise, and the scale and shift of the result where they are given; with ``centre`` about their means."""

    x: ts.Tensor["P", "M", "N"]
    scale: ts.Tensor["N"]
    shift: ts.Tensor["N"]
    centre: bool = True
    scaled: bool = False
    shifted: bool = False


@ts.struct
class Saved:
    """What gradients are made of: that of the result, the rows, and their statistics."""

    dy: ts.Tensor["P", "M", "N"]
    x: ts.Tensor["P", "M", "N"]
    scale: ts.Tensor["N"]
    mean: ts.Tensor["P", "M"]
    rstd: ts.Tensor["P", "M"]
    centre: bool = True
    scaled: bool = False


@ts.func
def affine(t, a, n, T):
    """Normalised elements from ``n`` on, scaled and shifted."""
    if a.scaled:
        t = t * a.scale[n:n + T]
    if a.shifted:
        t = t + a.shift[n:n + T]
    return t


@ts.func
def gathered(mu, squares, t, n, T, first, eps, centre):
    """The mean and the sum of squares about it with the piece ``t`` at ``n`` of a row that begins at ``first`` (Chan's formula);
    without ``centre`` the sum of squares."""
    if centre:
        count = min(T, N - n)
        local = ts.tile.sum(t) / ts.tile.cast(count, eps.dtype)
        about = ts.tile.bounds_mask(t - local, cols=N - n, value=0.0)
        delta = local - mu
        part = ts.tile.cast(count, eps.dtype) / ts.tile.cast(n - first + count, eps.dtype)
        mu = mu + delta * part
        squares = squares + ts.tile.sum(about * about) + delta * delta * part * ts.tile.cast(n - first, eps.dtype)
    else:
        squares = squares + ts.tile.sum(t * t)
    return mu, squares


@ts.kernel
def whole(
    a: Rows,
    y: ts.Tensor["P", "M", "N"],
    mean: ts.Tensor["P", "M"],
    rstd: ts.Tensor["P", "M"],
    eps,
    R: int = 1,
    keep: bool = False,
):
    m = ts.tile.program_id(0) * R
    p = ts.tile.program_id(1)
    t = a.x[p, m:m + R, :]
    if a.centre:
        mu = ts.tile.mean(t, axis=1)
        t = t - mu[:, None]
        if keep:
            mean[p, m:m + R] = mu
    r = ts.tile.rsqrt(ts.tile.mean(t * t, axis=1) + eps)
    if keep:
        rstd[p, m:m + R] = r
    t = t * r[:, None]
    if a.scaled:
        t = t * a.scale[:][None, :]
    if a.shifted:
        t = t + a.shift[:][None, :]
    y[p, m:m + R, :] = t


@ts.kernel
def pieces(
    a: Rows,
    y: ts.Tensor["P", "M", "N"],
    mean: ts.Tensor["P", "M"],
    rstd: ts.Tensor["P", "M"],
    eps,
    T: int = 4096,
    keep: bool = False,
):
    m = ts.tile.program_id(0)
    p = ts.tile.program_id(1)
    mu = 0.0
    squares = 0.0
    for n in ts.tile.range(0, N, T):
        mu, squares = gathered(mu, squares, a.x[p, m, n:n + T], n, T, 0, eps, a.centre)
    r = ts.tile.rsqrt(squares / ts.tile.cast(N, eps.dtype) + eps)
    if keep:
        rstd[p, m] = r
        if a.centre:
            mean[p, m] = mu
    for n in ts.tile.range(0, N, T):
        y[p, m, n:n + T] = affine((a.x[p, m, n:n + T] - mu) * r, a, n, T)


@ts.kernel
def statistics(
    x: ts.Tensor["P", "M", "N"],
    means: ts.Tensor["P", "M", "C"],
    squares: ts.Tensor["P", "M", "C"],
    pieces: ts.i64,
    eps,
    T: int = 4096,
    centre: bool = True,
):
    """The mean of each of ``C`` chunks of a row, and the sum of squares about it; without ``centre``, about zero."""
    m, c, p = ts.tile.grid(M, C, P)
    first = c * pieces * T
    mu = 0.0
    total = 0.0
    for n in ts.tile.range(first, min(N, first + pieces * T), T):
        mu, total = gathered(mu, total, x[p, m, n:n + T], n, T, first, eps, centre)
    squares[p, m, c] = total
    if centre:
        means[p, m, c] = mu


@ts.kernel
def from_statistics(
    a: Rows,
    means: ts.Tensor["P", "M", "C"],
    squares: ts.Tensor["P", "M", "C"],
    y: ts.Tensor["P", "M", "N"],
    pieces: ts.i64,
    eps,
    T: int = 4096,
):
    """Each of ``C`` groups writes a chunk of a row."""
    m, c, p = ts.tile.grid(M, C, P)
    first = c * pieces * T
    count = ts.tile.cast(N, eps.dtype)
    mu = 0.0
    about = squares[p, m, :]
    if a.centre:
        # Chunks beyond the last have no elements.
        left = N - ts.tile.arange(C) * (pieces * T)
        counts = ts.tile.cast(ts.tile.minimum(ts.tile.maximum(left, 0), pieces * T), eps.dtype)
        mu = ts.tile.sum(means[p, m, :] * counts) / count
        delta = means[p, m, :] - mu
        about = about + counts * delta * delta
    r = ts.tile.rsqrt(ts.tile.sum(about) / count + eps)
    for n in ts.tile.range(first, min(N, first + pieces * T), T):
        y[p, m, n:n + T] = affine((a.x[p, m, n:n + T] - mu) * r, a, n, T)


@ts.kernel
def whole_backward(
    a: Saved,
    dx: ts.Tensor["P", "M", "N"],
    dscale: ts.Tensor["P", "G", "N"],
    dshift: ts.Tensor["P", "G", "N"],
    chunk: ts.i64,
    R: int = 1,
    sums: bool = False,
):
    """Each group takes ``chunk`` rows, ``R`` at a time; with ``sums`` it also computes their partial sums of dscale and dshift."""
    g, p = ts.tile.grid(G, P)
    if sums:
        ds = ts.tile.zeros((R, N), dscale.dtype)
        dh = ts.tile.zeros((R, N), dscale.dtype)
    for m in ts.tile.range(g * chunk, min(M, g * chunk + chunk), R):
        d = a.dy[p, m:m + R, :]
        r = a.rstd[p, m:m + R][:, None]
        if a.centre:
            normal = (a.x[p, m:m + R, :] - a.mean[p, m:m + R][:, None]) * r
        else:
            normal = a.x[p, m:m + R, :] * r
        if sums:
            ds = ds + d * normal
            if a.centre:
                dh = dh + d
        if a.scaled:
            dn = d * a.scale[:][None, :]
        else:
            dn = d * 1.0
        t = dn - normal * ts.tile.mean(dn * normal, axis=1)[:, None]
        if a.centre:
            t = t - ts.tile.mean(dn, axis=1)[:, None]
        dx[p, m:m + R, :] = t * r
    if sums:
        dscale[p, g, :] = ts.tile.sum(ds, axis=0)
        if a.centre:
            dshift[p, g, :] = ts.tile.sum(dh, axis=0)


@ts.func
def weighted(a, p, m, n, T):
    """The gradient of normalised elements."""
    if a.scaled:
        t = a.dy[p, m, n:n + T] * a.scale[n:n + T]
    else:
        t = a.dy[p, m, n:n + T] * 1.0
    return t


@ts.kernel
def pieces_backward(a: Saved, dx: ts.Tensor["P", "M", "N"], zero, T: int = 4096):
    m = ts.tile.program_id(0)
    p = ts.tile.program_id(1)
    r = a.rstd[p, m]
    mu = zero
    if a.centre:
        mu = zero + a.mean[p, m]
    plain = zero
    along = zero
    for n in ts.tile.range(0, N, T):
        d = weighted(a, p, m, n, T)
        about = ts.tile.bounds_mask(a.x[p, m, n:n + T] - mu, cols=N - n, value=0.0)
        along = along + ts.tile.sum(d * about)
        if a.centre:
            plain = plain + ts.tile.sum(d)
    along = along * r / ts.tile.cast(N, zero.dtype)
    plain = plain / ts.tile.cast(N, zero.dtype)
    for n in ts.tile.range(0, N, T):
        dn = weighted(a, p, m, n, T)
        dx[p, m, n:n + T] = (dn - plain - (a.x[p, m, n:n + T] - mu) * r * along) * r


@ts.struct
class Statistics:
    mean: ts.Tensor["P", "M"]
    rstd: ts.Tensor["P", "M"]
    centre: bool = True


@ts.kernel
def parameters(
    dy: ts.Tensor["P", "M", "N"],
    x: ts.Tensor["P", "M", "N"],
    of: Statistics,
    dscale: ts.Tensor["P", "G", "N"],
    dshift: ts.Tensor["P", "G", "N"],
    chunk: ts.i64,
    T: int = 32,
    C: int = 128,
):
    """The partial sums of dscale and dshift for rows that are too long for `whole_backward`: each group takes a strip of columns."""
    b, g, p = ts.tile.grid(ts.cdiv(N, C), G, P)
    n = b * C
    ds = ts.tile.zeros((T, C), dscale.dtype)
    dh = ts.tile.zeros((T, C), dscale.dtype)
    for m in ts.tile.range(g * chunk, min(M, g * chunk + chunk), T):
        d = dy[p, m:m + T, n:n + C]
        r = of.rstd[p, m:m + T][:, None]
        if of.centre:
            ds = ds + d * ((x[p, m:m + T, n:n + C] - of.mean[p, m:m + T][:, None]) * r)
            dh = dh + d
        else:
            ds = ds + d * (x[p, m:m + T, n:n + C] * r)
    dscale[p, g, n:n + C] = ts.tile.sum(ds, axis=0)
    if of.centre:
        dshift[p, g, n:n + C] = ts.tile.sum(dh, axis=0)
