"""argmax and argmin: the index of the largest or smallest element.

As in NumPy, the first of equal elements wins, and NaN counts as both the largest and the smallest.
"""

from __future__ import annotations

from typing import Any

import tessera as ts

from . import arrays, checks, machine, schedule
from .layout import along, strides_with


@ts.kernel
def rows_whole(x: ts.Tensor["P", "M", "N"], y: ts.Tensor["P", "M"], R: int = 1, largest: bool = True, floats: bool = True):
    m = ts.tile.program_id(0) * R
    p = ts.tile.program_id(1)
    t = x[p, m:m + R, :]
    if largest:
        top = ts.tile.max(t, axis=1)
    else:
        top = ts.tile.min(t, axis=1)
    # A NaN is the maximum of its row, and no element equals it.
    hit = t == top[:, None]
    if floats:
        hit = hit | ts.tile.isnan(t)
    y[p, m:m + R] = ts.tile.min(ts.tile.where(hit, ts.tile.arange(N)[None, :], N), axis=1)


@ts.func
def better(t, best, largest, floats):
    if largest:
        wins = t > best
    else:
        wins = t < best
    if floats:
        wins = wins | (ts.tile.isnan(t) & ~ts.tile.isnan(best))
    return wins


@ts.kernel
def rows_pieces(
    x: ts.Tensor["P", "M", "N"],
    value: ts.Tensor["P", "M", "C"],
    y: ts.Tensor["P", "M", "C"],
    worst,
    pieces: ts.i64,
    T: int = 4096,
    largest: bool = True,
    floats: bool = True,
):
    """Each element of the tile keeps the best of its own column; the first among equals is found once, after the loop. Chunks of
    ``pieces`` tiles start at multiples of ``T``, so that loads are wide."""
    m, c, p = ts.tile.grid(M, C, P)
    first = c * pieces * T
    best = ts.tile.broadcast(worst, (T,))
    step = ts.tile.zeros((T,), ts.i32)
    for n in ts.tile.range(first, min(N, first + pieces * T), T):
        t = ts.tile.bounds_mask(ts.tile.cast(x[p, m, n:n + T], worst.dtype), cols=N - n, value=worst)
        wins = better(t, best, largest, floats)
        best = ts.tile.where(wins, t, best)
        step = ts.tile.where(wins, ts.tile.cast(n - first, ts.i32), step)
    if largest:
        top = ts.tile.max(best)
    else:
        top = ts.tile.min(best)
    hit = best == top
    if floats:
        hit = hit | ts.tile.isnan(best)
    value[p, m, c] = top
    y[p, m, c] = first + ts.tile.min(ts.tile.where(hit, step + ts.tile.arange(T), 2147483647))


@ts.kernel
def pick(
    value: ts.Tensor["P", "M", "C"],
    at: ts.Tensor["P", "M", "C"],
    y: ts.Tensor["P", "M"],
    worst,
    T: int = 1024,
    largest: bool = True,
):
    """The index of the best of the parts of a row."""
    m = ts.tile.program_id(0)
    p = ts.tile.program_id(1)
    t = ts.tile.bounds_mask(value[p, m, 0:T], cols=C, value=worst)
    if largest:
        c = ts.tile.argmax(t)
    else:
        c = ts.tile.argmin(t)
    y[p, m] = at[p, m, c]


@ts.kernel
def columns(
    x: ts.Tensor["P", "N", "B"], y: ts.Tensor["P", "B"], worst, T: int = 32, W: int = 128, largest: bool = True, floats: bool = True
):
    b = ts.tile.program_id(0) * W
    p = ts.tile.program_id(1)
    best = ts.tile.broadcast(worst, (T, W))
    step = ts.tile.zeros((T, W), ts.i64)
    for n in ts.tile.range(0, N, T):
        t = ts.tile.bounds_mask(ts.tile.cast(x[p, n:n + T, b:b + W], worst.dtype), rows=N - n, value=worst)
        wins = better(t, best, largest, floats)
        best = ts.tile.where(wins, t, best)
        step = ts.tile.where(wins, n, step)
    if largest:
        top = ts.tile.max(best, axis=0)
    else:
        top = ts.tile.min(best, axis=0)
    hit = best == top[None, :]
    if floats:
        hit = hit | ts.tile.isnan(best)
    y[p, b:b + W] = ts.tile.min(ts.tile.where(hit, step + ts.tile.arange(T)[:, None], N), axis=0)


def forward(x: Any, axis: Any, largest: bool, keepdims: bool, rows: Any, block: Any) -> Any:
    x = arrays.given(x, "x")
    rows, block = checks.extents(rows, block)
    shape = tuple(x.shape)
    if axis is None:
        # Indices count in row-major order; an array with another layout is copied once.
        x, at, kept, left = x.reshape(-1), 0, (1,) * x.ndim, ()
    else:
        at = checks.one_axis(axis, x)
        kept, left = (*shape[:at], 1, *shape[at + 1 :]), (*shape[:at], *shape[at + 1 :])
    if not x.shape[at]:
        raise checks.nothing("argmax" if largest else "argmin", axis, x)
    y = arrays.empty((*x.shape[:at], *x.shape[at + 1 :]), ts.i64, x)
    if arrays.size(x):
        layout = along(tuple(x.shape), (arrays.strides(x), strides_with(y, at)), at)
        xs, ys = layout.view(x), layout.view_without(y)
        for index in layout.launches:
            _launch(xs[index], ys[index], layout.columns, largest, rows, block)
    return y.reshape(kept if keepdims else left)


def _launch(x: Any, y: Any, columns_: bool, largest: bool, rows: Any, block: Any) -> None:
    of = arrays.dtype_of(x)
    floats = checks.is_float(of)
    wide = checks.accumulator(of) if floats else of if of.itemsize >= 4 else ts.i32
    worst = arrays.scalar(arrays.limits(wide)[not largest], wide)
    if columns_:
        tile = schedule.strip(*x.shape, arrays.itemsize(x))
        columns(x, y, worst, block or tile.block, tile.columns, largest, floats)
        return
    P, M, N = x.shape
    if rows is not None or (block is None and N * arrays.itemsize(x) <= schedule.ROW):
        rows_whole(x, y, schedule.rows(P, M, N, arrays.itemsize(x), 1, rows, groups=machine.groups(x)).rows, largest, floats)
        return
    T = block or 4096
    C, chunk = schedule.chunks(P * M, N, T, groups=machine.groups(x))
    value = arrays.empty((P, M, C), wide, x)
    at = y.reshape(P, M, 1) if C == 1 else arrays.empty((P, M, C), ts.i64, x)
    rows_pieces(x, value, at, worst, chunk // T, T, largest, floats)
    if C > 1:
        pick(value, at, y, worst, schedule.PARTS[-1], largest)
