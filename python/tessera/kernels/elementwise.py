"""Elementwise functions of the caller, on up to four arrays that broadcast against each other.

Contiguous arrays are cut into one-dimensional tiles. Others are cut into two-dimensional tiles; an array that broadcasts along
one of the axes is read once for the tile, for example a bias as one row.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy

import tessera as ts

from .. import _core
from . import arrays, checks, machine, schedule
from .functions import Function, spans
from .layout import four, pointwise

#: The most arrays that a function takes.
MOST = 4


@ts.struct
class Line(Function):
    """Of kind "1" an array has one element, broadcast to the whole tile."""

    arrays: tuple[ts.Tensor["?"], ...]


@ts.struct
class Area(Function):
    arrays: tuple[ts.Tensor["P", "Q", "?", "?"], ...]


@ts.struct
class Rows(Function):
    """An array that broadcasts has stride 0 along that axis."""

    arrays: tuple[ts.Tensor["P", "Q", "M", "N"], ...]


@ts.kernel
def line(f: Line, y: ts.Tensor["n"], T: int = 1024):
    i = ts.tile.program_id(0) * T
    tiles = ()
    for x, kind in zip(f.arrays, f.kinds):
        tiles = (*tiles, x[0:1] if kind == "1" else x[i:i + T])
    y[i:i + T] = f.of(*tiles)


@ts.kernel
def area(f: Area, y: ts.Tensor["P", "Q", "M", "N"], R: int = 4, C: int = 1024, num_warps: int = 0):
    across, down, pq = ts.tile.grid(ts.cdiv(N, C), ts.cdiv(M, R), P * Q)
    p = pq // Q
    q = pq % Q
    m = down * R
    n = across * C
    tiles = ()
    for x, kind in zip(f.arrays, f.kinds):
        i, rows, j, columns = spans(kind, m, R, n, C)
        tiles = (*tiles, x[p, q, i:i + rows, j:j + columns])
    y[p, q, m:m + R, n:n + C] = f.of(*tiles)


@ts.kernel
def whole(f: Rows, y: ts.Tensor["P", "Q", "M", "N"], R: int = 1, num_warps: int = 0):
    """As `area`, with whole rows: no read is masked, and all are wide."""
    down, pq = ts.tile.grid(ts.cdiv(M, R), P * Q)
    p = pq // Q
    q = pq % Q
    m = down * R
    tiles = ()
    for x, kind in zip(f.arrays, f.kinds):
        i, rows, j, columns = spans(kind, m, R, 0, N)
        tiles = (*tiles, x[p, q, i:i + rows, j:j + columns])
    y[p, q, m:m + R, :] = f.of(*tiles)


@ts.func
def gelu(x):
    h = 0.5 * x
    return ts.tile.fma(h, ts.tile.erf(x * math.sqrt(0.5)), h)


@ts.func
def gelu_tanh(x):
    return 0.5 * x * (1.0 + ts.tile.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


@ts.func
def silu(x):
    return x * ts.tile.sigmoid(x)


@ts.func
def relu(x):
    return ts.tile.maximum(x, 0.0)


@ts.func
def scaled_sum(alpha, x, y):
    return alpha * x + y


ACTIVATIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh, "silu": silu, "relu": relu, "identity": ts.identity}


def activation(wanted: Any) -> Any:
    """The function that an activation names, or is."""
    if isinstance(wanted, str):
        return ACTIVATIONS[checks.word(wanted, tuple(ACTIVATIONS), "activation")]
    return wanted


@functools.lru_cache(maxsize=256)
def after_bias(activation: Any) -> Any:
    """``activation(x + bias)`` as one function."""

    @ts.func
    def biased(x, bias):
        return activation(x + bias)

    return biased


def forward(function: Any, operands: tuple, out_dtype: Any, rows: Any, block: Any) -> Any:
    if not 1 <= len(operands) <= MOST:
        raise _core.error("E_ARGUMENT", f"expected one to four arrays, got {len(operands)}", "combine some of them first")
    rows, block = checks.extents(rows, block)
    first = next((arrays.given(x, "arrays") for x in operands if not arrays.is_number(x)), None)
    if first is None:
        raise _core.error("E_ARGUMENT", "expected an array among the arguments, got numbers only", "pass a NumPy array")
    of = arrays.dtype_of(first)
    wide = checks.accumulator(of) if checks.is_float(of) else of
    given = [arrays.full((), x, wide, first) if arrays.is_number(x) else arrays.given(x, "arrays") for x in operands]
    shape = _broadcast([tuple(x.shape) for x in given])
    of = checks.out_dtype(out_dtype, of, floats=False)
    y = arrays.empty_like(first, of) if tuple(first.shape) == shape else arrays.empty(shape, of, first)
    if arrays.size(y):
        _launch(function, [x if tuple(x.shape) == shape else arrays.expand(x, shape) for x in given], y, rows, block)
    return y


def copy(x: Any, y: Any) -> None:
    """Copies ``x`` into ``y``, which has other strides."""
    if arrays.movable(x):
        x, y = arrays.bits(x), arrays.bits(y)
    _launch(ts.identity, [x], y, None, None)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    try:
        return numpy.broadcast_shapes(*shapes)
    except ValueError:
        got = ", ".join(map(str, shapes))
        help = "sizes must be equal or 1, counted from the last axis"
        raise _core.error("E_SHAPE_MISMATCH", f"expected shapes that broadcast together, got {got}", help) from None


def _launch(function: Any, operands: list, y: Any, rows: Any, block: Any) -> None:
    layout = pointwise(tuple(y.shape), (arrays.strides(y), *(arrays.strides(x) for x in operands)))
    y, *operands = (layout.view(x) for x in (y, *operands))
    if y.ndim == 1:
        kinds = "".join(["1" if not arrays.strides(x)[0] and x.shape[0] > 1 else "-" for x in operands])
        lines = [x[:1] if kind == "1" else x for x, kind in zip(operands, kinds)]
        line(Line.filled(function, lines, MOST, lines[0], kinds), y, schedule.line(y.shape[0], arrays.itemsize(y), block, groups=machine.groups(y)))
        return
    _, layout = four(tuple(y.shape), arrays.strides(y))
    y, *operands = (layout.view(x) for x in (y, *operands))
    kinds = "".join(map(_kind, operands))
    P, Q, M, N = layout.sizes
    contiguous = all(kind in "1c" or arrays.lies_along(x, -1) for x, kind in zip((y, *operands), "-" + kinds))
    given = rows is not None or block is not None
    if arrays.on_device(y) and contiguous and not given and schedule.fits_whole(N, arrays.itemsize(y)):
        R = schedule.rows(P * Q, M, N, arrays.itemsize(y), groups=machine.groups(y)).rows
        for at in layout.launches:
            tiles = [x[at] for x in operands]
            whole(Rows.filled(function, tiles, MOST, tiles[0], kinds), y[at], R, schedule.LINE_WARPS)
        return
    long = arrays.on_device(y) and contiguous and N > 1024
    R, C = schedule.long_area(M) if long else schedule.area(M, N)
    warps = schedule.LINE_WARPS if long and not given else 0
    for at in layout.launches:
        tiles = [_cut(x[at], kind) for x, kind in zip(operands, kinds)]
        area(Area.filled(function, tiles, MOST, tiles[0], kinds), y[at], rows or R, block or C, warps)


def _kind(x: Any) -> str:
    """How an array broadcasts along the last two axes."""
    down, across = (not arrays.strides(x)[a] and x.shape[a] > 1 for a in (-2, -1))
    return "1" if down and across else "r" if down else "c" if across else "-"


def _cut(x: Any, kind: str) -> Any:
    return x[:, :, : 1 if kind in "1r" else None, : 1 if kind in "1c" else None]
