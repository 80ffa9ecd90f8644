"""Reductions along axes: sum, mean, max, min, prod, argmax and argmin.

Floats are added and multiplied in f32 (f64 for f64 arrays), integers in 64 bits. A loop combines tiles
element by element, and reduces across the elements of the last one once, at the end. Where there are too few rows for all
groups, several groups share a row: each writes a partial result, and a second launch combines them, always in the same order,
with no atomics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tessera as ts

from . import arrays, checks, machine, schedule
from .layout import along, reduction, strides_with


@ts.func
def combine(a, b, op):
    if op == "sum":
        both = a + b
    elif op == "prod":
        both = a * b
    elif op == "max":
        both = ts.tile.maximum(a, b)
    else:
        both = ts.tile.minimum(a, b)
    return both


@ts.kernel
def rows_whole(
    x: ts.Tensor["P", "M", "N"], y: ts.Tensor["P", "M"], identity, count: ts.i64, R: int = 1, op: str = "sum", mean: bool = False
):
    m = ts.tile.program_id(0) * R
    p = ts.tile.program_id(1)
    t = ts.tile.reduce(ts.tile.cast(x[p, m:m + R, :], identity.dtype), op, axis=1)
    if mean:
        t = t / ts.tile.cast(count, identity.dtype)
    y[p, m:m + R] = t


@ts.kernel
def rows_pieces(
    x: ts.Tensor["P", "M", "N"],
    y: ts.Tensor["P", "M", "C"],
    identity,
    count: ts.i64,
    pieces: ts.i64,
    T: int = 4096,
    op: str = "sum",
    mean: bool = False,
):
    """Each of ``C`` groups takes ``pieces`` pieces of ``T``: chunks start at multiples of ``T``, so that loads are wide."""
    m, c, p = ts.tile.grid(M, C, P)
    first = c * pieces * T
    if op == "sum":
        acc = ts.tile.zeros((T,), identity.dtype)
    else:
        acc = ts.tile.broadcast(identity, (T,))
    for n in ts.tile.range(first, min(N, first + pieces * T), T):
        t = ts.tile.cast(x[p, m, n:n + T], identity.dtype)
        if op != "sum":
            t = ts.tile.bounds_mask(t, cols=N - n, value=identity)
        acc = combine(acc, t, op)
    all = ts.tile.reduce(acc, op)
    if mean:
        all = all / ts.tile.cast(count, identity.dtype)
    y[p, m, c] = all


@ts.struct
class Strip:
    """Rows and columns of a tile, and the warps of a group."""

    T: int = 32
    W: int = 128
    num_warps: int = 0


@ts.kernel
def columns(
    x: ts.Tensor["P", "N", "B"],
    y: ts.Tensor["P", "C", "B"],
    identity,
    count: ts.i64,
    pieces: ts.i64,
    tile: Strip,
    op: str = "sum",
    mean: bool = False,
):
    T, W = tile.T, tile.W
    w, c, p = ts.tile.grid(ts.cdiv(B, W), C, P)
    b = w * W
    first = c * pieces * T
    if op == "sum":
        acc = ts.tile.zeros((T, W), identity.dtype)
    else:
        acc = ts.tile.broadcast(identity, (T, W))
    for n in ts.tile.range(first, min(N, first + pieces * T), T):
        t = ts.tile.cast(x[p, n:n + T, b:b + W], identity.dtype)
        if op != "sum":
            t = ts.tile.bounds_mask(t, rows=N - n, value=identity)
        acc = combine(acc, t, op)
    all = ts.tile.reduce(acc, op, axis=0)
    if mean:
        all = all / ts.tile.cast(count, identity.dtype)
    y[p, c, b:b + W] = all


def forward(x: Any, axis: Any, op: str, keepdims: bool, out_dtype: Any, rows: Any, block: Any, mean: bool = False) -> Any:
    x = arrays.given(x, "x")
    axes = checks.some_axes(axis, x)
    rows, block = checks.extents(rows, block)
    wide, default = _dtypes(arrays.dtype_of(x), op, mean)
    of = checks.out_dtype(out_dtype, default, floats=mean)
    count = math.prod(x.shape[a] for a in axes)
    kept = [1 if a in axes else n for a, n in enumerate(x.shape)]
    if not count and op in ("max", "min"):
        raise checks.nothing(op, axis, x)
    if not arrays.size(x):
        y = arrays.full(kept, math.nan if mean else {"sum": 0, "prod": 1}.get(op, 0), of, x)
    else:
        order, sizes, reduced = reduction(tuple(x.shape), arrays.strides(x), axes)
        part = arrays.permuted(x, order).reshape(sizes)
        steps = [i for i, gone in enumerate(reduced) if gone]
        identity = arrays.scalar(_identity(op, wide), wide)
        for i in reversed(steps):
            last = i == steps[0]
            y = arrays.empty(part.shape[:i] + part.shape[i + 1 :], of if last else wide, x)
            _one_axis(part, i, y, Reduction(op, identity, wide, count if mean and last else None, rows, block))
            part = y
        # The remaining axes are in memory order.
        left = [a for a in order if a not in axes]
        whole = part.reshape([x.shape[a] for a in left])
        y = arrays.permuted(whole, [left.index(a) for a in sorted(left)]).reshape(kept)
    return y if keepdims else y.reshape([n for a, n in enumerate(x.shape) if a not in axes])


def _dtypes(of: Any, op: str, mean: bool) -> tuple[Any, Any]:
    """What a reduction of this dtype is computed in, and what it gives."""
    if checks.is_float(of):
        return checks.accumulator(of), of
    if mean:
        return ts.f64, ts.f64
    if op in ("max", "min"):
        return of if of.itemsize >= 4 else ts.i32, of
    return (ts.u64 if of.name == "u64" else ts.i64,) * 2


def _identity(op: str, of: Any) -> Any:
    low, high = arrays.limits(of)
    return {"sum": 0, "prod": 1, "max": low, "min": high}[op]


@dataclass(frozen=True)
class Reduction:
    """What is computed of an axis: ``op`` from ``identity``, in the dtype ``wide``, divided by ``count`` where that is given. Tile
    extents are the caller's where they are given."""

    op: str
    identity: Any
    wide: Any
    count: int | None = None
    rows: int | None = None
    block: int | None = None

    @property
    def last(self) -> tuple[int, bool]:
        """The divisor of the last launch, and whether there is one."""
        return self.count or 1, self.count is not None


def _one_axis(x: Any, axis: int, y: Any, what: Reduction) -> None:
    """Reduces an axis of ``x`` into ``y``."""
    layout = along(tuple(x.shape), (arrays.strides(x), strides_with(y, axis)), axis)
    xs, ys = layout.view(x), layout.view_without(y)
    for at in layout.launches:
        launch = _down if layout.columns else _across
        launch(xs[at], ys[at], what)


def _across(x: Any, y: Any, what: Reduction) -> None:
    """Reduces the last axis of ``[P, M, N]`` into ``[P, M]``."""
    P, M, N = x.shape
    op, identity, (last, mean) = what.op, what.identity, what.last
    # Rows are read only once either way, so only short ones are held whole.
    if what.rows is not None or (what.block is None and N * arrays.itemsize(x) <= schedule.ROW):
        tile = schedule.rows(P, M, N, arrays.itemsize(x), 1, what.rows, groups=machine.groups(x))
        rows_whole(x, y, identity, last, tile.rows, op, mean)
        return
    T = what.block or schedule.piece(arrays.itemsize(x))
    C, chunk = schedule.chunks(P * M, N, T, groups=machine.groups(x))
    if C == 1:
        rows_pieces(x, y.reshape(P, M, 1), identity, last, chunk // T, T, op, mean)
        return
    # Groups beyond the last chunk write the identity. The number of parts is then one of a few sizes, and the kernel that
    # combines them needs no masks; it should be short, since it runs alone.
    C = schedule.parts(C)
    parts = arrays.empty((P, M, C), what.wide, x)
    rows_pieces(x, parts, identity, 1, chunk // T, T, op, False)
    rows_whole(parts, y, identity, last, 1, op, mean)


def _down(x: Any, y: Any, what: Reduction, least: int = schedule.FOLDED) -> None:
    """Reduces the middle axis of ``[P, N, B]`` into ``[P, B]``."""
    P, N, B = x.shape
    q = 1
    free = checks.free(x)
    if P == 1 and what.block is None and free and arrays.lies_in_rows(x):
        q = schedule.folded(N, B, arrays.itemsize(x), least)
    if q > 1:
        _down(_folded(x, q, what), y, what, schedule.FOLDED_PARTS)
        return
    if free and what.block is None:
        _strips(x, y, what)
        return
    op, identity, (last, mean) = what.op, what.identity, what.last
    tile = schedule.strip(P, N, B, arrays.itemsize(x))
    T = what.block or tile.block
    C, chunk = schedule.chunks(P * -(-B // tile.columns), N, T, groups=machine.groups(x))
    if C == 1:
        columns(x, y.reshape(P, 1, B), identity, last, chunk // T, Strip(T, tile.columns), op, mean)
        return
    parts = arrays.empty((P, C, B), what.wide, x)
    columns(x, parts, identity, 1, chunk // T, Strip(T, tile.columns), op, False)
    tile = schedule.strip(P, C, B, arrays.itemsize(parts))
    columns(parts, y.reshape(P, 1, B), identity, last, -(-C // tile.block), Strip(tile.block, tile.columns), op, mean)


def _strips(x: Any, y: Any, what: Reduction) -> None:
    """`_down` on a GPU."""
    P, N, B = x.shape
    tile = schedule.gpu_strip(P, N, B, arrays.itemsize(x), groups=machine.groups(x))
    C, chunk = schedule.strips(P * -(-B // tile.columns), N, tile, groups=machine.groups(x))
    parts = y.reshape(P, 1, B) if C == 1 else arrays.empty((P, C, B), what.wide, x)
    last, mean = what.last if C == 1 else (1, False)
    columns(x, parts, what.identity, last, chunk // tile.block, _strip(tile), what.op, mean)
    if C > 1:
        _strips(parts, y, what)


def _strip(tile: schedule.Tile) -> Strip:
    return Strip(tile.block, tile.columns, tile.warps)


def _folded(x: Any, q: int, what: Reduction) -> Any:
    """Rows of which ``[1, N, B]`` is the reduction too, and far fewer: ``q`` neighbouring rows at a time are one row of ``q * B``."""
    _, N, B = x.shape
    n, left = divmod(N, q)
    tile = schedule.gpu_strip(1, n, q * B, arrays.itemsize(x), groups=machine.groups(x))
    C, chunk = schedule.strips(-(-q * B // tile.columns), n, tile, groups=machine.groups(x))
    parts = arrays.empty((1, C * q + (left > 0), B), what.wide, x)
    first = x[:, : n * q].reshape(1, n, q * B), parts[:, : C * q].reshape(1, C, q * B)
    columns(*first, what.identity, 1, chunk // tile.block, _strip(tile), what.op, False)
    if left:
        tile = schedule.gpu_strip(1, left, B, arrays.itemsize(x), groups=machine.groups(x))
        rest = x[:, n * q :], parts[:, C * q :]
        columns(*rest, what.identity, 1, -(-left // tile.block), _strip(tile), what.op, False)
    return parts
