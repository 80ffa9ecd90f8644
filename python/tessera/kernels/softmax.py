"""Softmax and log-softmax along an axis, and their gradients.

Arithmetic is done in f32 (f64 for f64 arrays) and rounded once, when the result is stored. Rows that a group can hold are
read once; longer ones twice, with an online softmax over pieces in the first pass. On a GPU, several groups share each of a few
long rows.
"""

from __future__ import annotations

import math
from typing import Any

import tessera as ts

from . import arrays, checks, machine, schedule
from .layout import along


@ts.func
def online(top, total, t):
    """The maximum of a row and the sum of exponentials beside it, with the elements of one more piece."""
    new = ts.tile.maximum(top, ts.tile.max(t))
    # A piece of -inf alone has no maximum to subtract, and adds nothing.
    base = ts.tile.where(new == -math.inf, 0.0, new)
    return new, total * ts.tile.exp(top - base) + ts.tile.sum(ts.tile.exp(t - base))


@ts.func
def result(t, top, last, log):
    """Elements of the result. ``last`` is the logarithm of the sum of exponentials, or its reciprocal."""
    return t - top - last if log else ts.tile.exp(t - top) * last


@ts.kernel
def rows_whole(x: ts.Tensor["P", "M", "N"], y: ts.Tensor["P", "M", "N"], R: int = 1, log: bool = False):
    m = ts.tile.program_id(0) * R
    p = ts.tile.program_id(1)
    t = x[p, m:m + R, :]
    shifted = t - ts.tile.max(t, axis=1)[:, None]
    weights = ts.tile.exp(shifted)
    total = ts.tile.sum(weights, axis=1)
    if log:
        y[p, m:m + R, :] = shifted - ts.tile.log(total)[:, None]
    else:
        y[p, m:m + R, :] = weights * (1.0 / total)[:, None]


@ts.kernel
def rows_pieces(x: ts.Tensor["P", "M", "N"], y: ts.Tensor["P", "M", "N"], T: int = 4096, log: bool = False):
    m = ts.tile.program_id(0)
    p = ts.tile.program_id(1)
    top = -math.inf
    total = 0.0
    for n in ts.tile.range(0, N, T):
        top, total = online(top, total, ts.tile.bounds_mask(x[p, m, n:n + T], cols=N - n))
    last = ts.tile.log(total) if log else 1.0 / total
    for n in ts.tile.range(0, N, T):
        y[p, m, n:n + T] = result(x[p, m, n:n + T], top, last, log)


@ts.kernel
def rows_statistics(
    x: ts.Tensor["P", "M", "N"], tops: ts.Tensor["P", "M", "C"], totals: ts.Tensor["P", "M", "C"], pieces: ts.i64, T: int = 4096
):
    """The maximum of each of ``C`` chunks of a row, and the sum of exponentials beside it; -inf and 0 beyond the last chunk."""
    m, c, p = ts.tile.grid(M, C, P)
    first = c * pieces * T
    top = -math.inf
    total = 0.0
    for n in ts.tile.range(first, min(N, first + pieces * T), T):
        top, total = online(top, total, ts.tile.bounds_mask(x[p, m, n:n + T], cols=N - n))
    tops[p, m, c] = top
    totals[p, m, c] = total


@ts.kernel
def rows_from_statistics(
    x: ts.Tensor["P", "M", "N"],
    tops: ts.Tensor["P", "M", "C"],
    totals: ts.Tensor["P", "M", "C"],
    y: ts.Tensor["P", "M", "N"],
    pieces: ts.i64,
    T: int = 4096,
    log: bool = False,
):
    """Each of ``C`` groups writes a chunk of a row."""
    m, c, p = ts.tile.grid(M, C, P)
    first = c * pieces * T
    every = tops[p, m, :]
    top = ts.tile.max(every)
    base = ts.tile.where(top == -math.inf, 0.0, top)
    total = ts.tile.sum(totals[p, m, :] * ts.tile.exp(every - base))
    last = ts.tile.log(total) if log else 1.0 / total
    for n in ts.tile.range(first, min(N, first + pieces * T), T):
        y[p, m, n:n + T] = result(x[p, m, n:n + T], top, last, log)


@ts.kernel
def columns_whole(x: ts.Tensor["P", "N", "B"], y: ts.Tensor["P", "N", "B"], C: int = 32, log: bool = False):
    b = ts.tile.program_id(0) * C
    p = ts.tile.program_id(1)
    t = x[p, :, b:b + C]
    shifted = t - ts.tile.max(t, axis=0)[None, :]
    weights = ts.tile.exp(shifted)
    total = ts.tile.sum(weights, axis=0)
    if log:
        y[p, :, b:b + C] = shifted - ts.tile.log(total)[None, :]
    else:
        y[p, :, b:b + C] = weights * (1.0 / total)[None, :]


@ts.kernel
def columns_pieces(
    x: ts.Tensor["P", "N", "B"], y: ts.Tensor["P", "N", "B"], lowest, T: int = 32, C: int = 128, log: bool = False
):
    b = ts.tile.program_id(0) * C
    p = ts.tile.program_id(1)
    top = ts.tile.broadcast(lowest, (C,))
    total = ts.tile.zeros((C,), lowest.dtype)
    for n in ts.tile.range(0, N, T):
        t = ts.tile.bounds_mask(x[p, n:n + T, b:b + C], rows=N - n)
        new = ts.tile.maximum(top, ts.tile.max(t, axis=0))
        base = ts.tile.where(new == -math.inf, 0.0, new)
        total = total * ts.tile.exp(top - base) + ts.tile.sum(ts.tile.exp(t - base[None, :]), axis=0)
        top = new
    last = ts.tile.log(total) if log else 1.0 / total
    for n in ts.tile.range(0, N, T):
        y[p, n:n + T, b:b + C] = result(x[p, n:n + T, b:b + C], top[None, :], last[None, :], log)


@ts.kernel
def rows_whole_backward(
    y: ts.Tensor["P", "M", "N"], dy: ts.Tensor["P", "M", "N"], dx: ts.Tensor["P", "M", "N"], R: int = 1, log: bool = False
):
    m = ts.tile.program_id(0) * R
    p = ts.tile.program_id(1)
    t = y[p, m:m + R, :]
    g = dy[p, m:m + R, :]
    if log:
        dx[p, m:m + R, :] = g - ts.tile.exp(t) * ts.tile.sum(g, axis=1)[:, None]
    else:
        dx[p, m:m + R, :] = t * (g - ts.tile.sum(g * t, axis=1)[:, None])


@ts.kernel
def rows_pieces_backward(
    y: ts.Tensor["P", "M", "N"], dy: ts.Tensor["P", "M", "N"], dx: ts.Tensor["P", "M", "N"], T: int = 4096, log: bool = False
):
    m = ts.tile.program_id(0)
    p = ts.tile.program_id(1)
    total = 0.0
    for n in ts.tile.range(0, N, T):
        if log:
            total += ts.tile.sum(dy[p, m, n:n + T])
        else:
            total += ts.tile.sum(dy[p, m, n:n + T] * y[p, m, n:n + T])
    for n in ts.tile.range(0, N, T):
        t = y[p, m, n:n + T]
        g = dy[p, m, n:n + T]
        if log:
            dx[p, m, n:n + T] = g - ts.tile.exp(t) * total
        else:
            dx[p, m, n:n + T] = t * (g - total)


@ts.kernel
def columns_whole_backward(
    y: ts.Tensor["P", "N", "B"], dy: ts.Tensor["P", "N", "B"], dx: ts.Tensor["P", "N", "B"], C: int = 32, log: bool = False
):
    b = ts.tile.program_id(0) * C
    p = ts.tile.program_id(1)
    t = y[p, :, b:b + C]
    g = dy[p, :, b:b + C]
    if log:
        dx[p, :, b:b + C] = g - ts.tile.exp(t) * ts.tile.sum(g, axis=0)[None, :]
    else:
        dx[p, :, b:b + C] = t * (g - ts.tile.sum(g * t, axis=0)[None, :])


@ts.kernel
def columns_pieces_backward(
    y: ts.Tensor["P", "N", "B"],
    dy: ts.Tensor["P", "N", "B"],
    dx: ts.Tensor["P", "N", "B"],
    lowest,
    T: int = 32,
    C: int = 128,
    log: bool = False,
):
    b = ts.tile.program_id(0) * C
    p = ts.tile.program_id(1)
    total = ts.tile.zeros((C,), lowest.dtype)
    for n in ts.tile.range(0, N, T):
        if log:
            total = total + ts.tile.sum(dy[p, n:n + T, b:b + C], axis=0)
        else:
            total = total + ts.tile.sum(dy[p, n:n + T, b:b + C] * y[p, n:n + T, b:b + C], axis=0)
    for n in ts.tile.range(0, N, T):
        t = y[p, n:n + T, b:b + C]
        g = dy[p, n:n + T, b:b + C]
        if log:
            dx[p, n:n + T, b:b + C] = g - ts.tile.exp(t) * total[None, :]
        else:
            dx[p, n:n + T, b:b + C] = t * (g - total[None, :])


FORWARD = (rows_whole, rows_pieces, columns_whole, columns_pieces)
BACKWARD = (rows_whole_backward, rows_pieces_backward, columns_whole_backward, columns_pieces_backward)


def forward(x: Any, axis: int, log: bool, out_dtype: Any, rows: Any, block: Any) -> Any:
    x = checks.floating(x, "x")
    axis = checks.one_axis(axis, x)
    y = arrays.empty_like(x, checks.out_dtype(out_dtype, arrays.dtype_of(x)))
    _run(FORWARD, (x, y), axis, log, 1, rows, block)
    return y


def backward(dy: Any, y: Any, axis: int, log: bool, out_dtype: Any, rows: Any, block: Any) -> Any:
    y, dy = checks.floating(y, "y"), checks.floating(dy, "dy")
    axis = checks.one_axis(axis, y)
    checks.shape(dy, y.shape, "dy", "`y` has")
    dx = arrays.empty_like(y, checks.out_dtype(out_dtype, arrays.dtype_of(y)))
    _run(BACKWARD, (y, dy, dx), axis, log, 2, rows, block)
    return dx


def _run(kernels: tuple, operands: tuple, axis: int, log: bool, held: int, rows: Any, block: Any) -> None:
    rows, block = checks.extents(rows, block)
    first = operands[0]
    if not arrays.size(first):
        return
    rows_whole, rows_pieces, columns_whole, columns_pieces = kernels
    layout = along(tuple(first.shape), tuple(arrays.strides(x) for x in operands), axis)
    choose = schedule.columns if layout.columns else schedule.rows
    tile = choose(*layout.sizes, arrays.itemsize(first), held, rows, block, groups=machine.groups(first))
    is_shared = not (layout.columns or tile.whole or block) and checks.free(first)
    P, M, N = layout.sizes
    shares = schedule.shared(P * M, N, arrays.itemsize(first), groups=machine.groups(first)) if is_shared else None
    views = [layout.view(x) for x in operands]
    for at in layout.launches:
        part = [v[at] for v in views] if at else views
        if not layout.columns:
            if tile.whole:
                rows_whole(*part, tile.rows, log)
            elif shares and kernels is FORWARD:
                rows_shared(*part, log, shares)
            else:
                rows_pieces(*part, tile.block, log)
        elif tile.whole:
            columns_whole(*part, tile.columns, log)
        else:
            lowest = arrays.scalar(-math.inf, checks.accumulator(arrays.dtype_of(first)))
            columns_pieces(*part, lowest, tile.block, tile.columns, log)


def rows_shared(x: Any, y: Any, log: bool, shares: schedule.Shares) -> None:
    """Few long rows ``[P, M, N]``: several groups share each, in two launches."""
    P, M, _ = x.shape
    # One of a few numbers, so that most new shapes need no new compilation.
    C, wide = schedule.parts(shares.chunks), checks.accumulator(arrays.dtype_of(x))
    tops, totals = (arrays.empty((P, M, C), wide, x) for _ in range(2))
    rows_statistics(x, tops, totals, shares.pieces, shares.block)
    rows_from_statistics(x, tops, totals, y, shares.pieces, shares.block, log)
