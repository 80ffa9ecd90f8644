"""Joining, splitting, rotating and replacing parts of arrays, with NumPy's names."""

from __future__ import annotations

import math
from typing import Any

import numpy

from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import Tracer, as_tracer, fail
from ..transforms.batching import vmap
from ..tree import pytree
from . import _index as ix, _manipulate as m
from ._arguments import arr, flat, known
from ._numbers import ndim


@eager
def ravel(x: Any, order: str = "C") -> Any:
    """All elements as a vector, in row-major order, or by columns with ``order="F"``."""
    x = arr(x)
    if order not in ("C", "F", "A", "K"):
        raise fail("E_ARGUMENT", f'expected `order` to be "C" or "F", got {order!r}', 'leave it out for "C"')
    return p.reshape(p.transpose(x) if order == "F" else x, [-1])


def _at_least(rank: int, place: Any) -> Any:
    def call(*arrays: Any) -> Any:
        made = [p.reshape(x, place(x.shape)) if x.ndim < rank else x for x in map(arr, arrays)]
        return made[0] if len(made) == 1 else made

    call.__name__ = call.__qualname__ = f"atleast_{rank}d"
    call.__doc__ = f"Arrays with at least {rank} ax{'is' if rank == 1 else 'es'}."
    return eager(call)


def _three(shape: tuple) -> list:
    return [1, 1, 1] if not shape else [1, shape[0], 1] if len(shape) == 1 else [*shape, 1]


atleast_1d = _at_least(1, lambda s: [1])
atleast_2d = _at_least(2, lambda s: [1] * (2 - len(s)) + list(s))
atleast_3d = _at_least(3, _three)


def _list(arrays: Any) -> list[Tracer]:
    parts = [arr(a) for a in arrays]
    if not parts:
        raise fail("E_ARGUMENT", "expected at least one array", "give one or more arrays in a list")
    return parts


@eager
def hstack(arrays: Any) -> Any:
    """Joined along the second axis; vectors along the first."""
    parts = [p.reshape(a, [1]) if not a.ndim else a for a in _list(arrays)]
    return p.concat(parts, 0 if parts[0].ndim == 1 else 1)


@eager
def vstack(arrays: Any) -> Any:
    """Joined along the first axis; vectors are rows."""
    return p.concat([p.reshape(a, [1] * (2 - a.ndim) + list(a.shape)) for a in _list(arrays)], 0)


@eager
def dstack(arrays: Any) -> Any:
    """Joined along the third axis."""
    return p.concat([p.reshape(a, _three(a.shape)) if a.ndim < 3 else a for a in _list(arrays)], 2)


@eager
def column_stack(arrays: Any) -> Any:
    """Joined as columns of a matrix."""
    return p.concat([p.reshape(a, [-1, 1]) if a.ndim < 2 else a for a in _list(arrays)], 1)


@eager
def block(arrays: Any) -> Any:
    """A matrix from nested lists of its parts: the innermost lists join the last axis."""

    def depth(x: Any) -> int:
        return 1 + max(depth(v) for v in x) if isinstance(x, list) and x else 0

    def rank(x: Any) -> int:
        return max(rank(v) for v in x) if isinstance(x, list) else arr(x).ndim

    levels = depth(arrays)
    most = max(levels, rank(arrays))

    def join(x: Any, level: int) -> Tracer:
        if not isinstance(x, list):
            a = arr(x)
            return p.reshape(a, [1] * (most - a.ndim) + list(a.shape))
        return p.concat([join(v, level + 1) for v in x], most - levels + level)

    return join(arrays, 0)


@eager
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> list:
    """Parts along an axis whose extents differ by at most one, or that begin at positions."""
    x = arr(x)
    at = p.axis_of(axis, x.ndim)
    if not isinstance(indices_or_sections, int):
        return m.split(x, list(indices_or_sections), at)
    n, parts = x.shape[at], indices_or_sections
    if parts < 1:
        raise fail("E_ARGUMENT", f"array_split: expected one part or more, got {parts}", "give a positive number")
    ends = [n // parts * i + min(i, n % parts) for i in range(1, parts)]
    return m.split(x, ends, at)


def _splits(name: str, axis: int, least: int) -> Any:
    def call(x: Any, indices_or_sections: Any) -> list:
        x = arr(x)
        if x.ndim < least:
            raise fail("E_SHAPE_MISMATCH", f"{name}: expected {least} axes or more, got {p.show(x.shape)}", "use `xp.split`")
        parts = indices_or_sections
        return m.split(x, parts if isinstance(parts, int) else list(parts), 0 if name == "hsplit" and x.ndim == 1 else axis)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`split` along axis {axis}."
    return eager(call)


hsplit, vsplit, dsplit = _splits("hsplit", 1, 1), _splits("vsplit", 0, 2), _splits("dsplit", 2, 3)


@eager
def append(x: Any, values: Any, axis: int | None = None) -> Any:
    """Values joined at the end of an axis; flat without one."""
    x, values = arr(x), arr(values)
    return p.concat([p.reshape(x, [-1]), p.reshape(values, [-1])], 0) if axis is None else p.concat([x, values], axis)


def _places(obj: Any, n: int, name: str) -> numpy.ndarray:
    """The positions that a slice, an int or known positions name."""
    if isinstance(obj, slice):
        return numpy.arange(n)[obj]
    values = known(obj, name, "obj")
    if values.dtype == bool:
        values = numpy.flatnonzero(values)
    at = numpy.where(values < 0, values + n, values)
    if ((at < 0) | (at > (n if name == "insert" else n - 1))).any():
        raise fail("E_SHAPE_MISMATCH", f"{name}: expected positions inside an axis of {n}, got {values.tolist()}", "positions count from 0")
    return at


def delete(x: Any, obj: Any, axis: int | None = None) -> Any:
    """Without the parts at positions, which are known while tracing."""
    return _delete(x, _fixed(obj, "delete"), axis)


def _fixed(obj: Any, name: str) -> Any:
    """Positions as Python's, so that a shape may depend on them."""
    if isinstance(obj, (slice, int)):
        return ("slice", obj.start, obj.stop, obj.step) if isinstance(obj, slice) else obj
    values = known(obj, name, "obj")
    return ("positions", values.dtype == bool, *numpy.atleast_1d(values).tolist()) if values.ndim else int(values)


def _unfixed(obj: Any) -> Any:
    if isinstance(obj, int):
        return obj
    kind, *rest = obj
    return slice(*rest) if kind == "slice" else numpy.asarray(rest[1:], bool if rest[0] else numpy.int64)


@eager
def _delete(x: Any, obj: Any, axis: int | None) -> Any:
    x = arr(x)
    if axis is None:
        x, axis = p.reshape(x, [-1]), 0
    at = p.axis_of(axis, x.ndim)
    gone = numpy.atleast_1d(_places(_unfixed(obj), x.shape[at], "delete"))
    return _runs(x, at, numpy.setdiff1d(numpy.arange(x.shape[at]), gone))


def _runs(x: Tracer, axis: int, keep: numpy.ndarray) -> Tracer:
    """The parts at rising positions: slices joined where few, gathered where many."""
    cuts = numpy.flatnonzero(numpy.diff(keep) != 1) + 1
    if len(cuts) > 8:
        return ix.take(x, as_tracer(keep), axis)
    parts = []
    for run in numpy.split(keep, cuts):
        start, limit = [0] * x.ndim, list(x.shape)
        start[axis], limit[axis] = (int(run[0]), int(run[-1]) + 1) if run.size else (0, 0)
        parts.append(p.slice_(x, start, limit, [1] * x.ndim))
    return p.concat(parts, axis) if len(parts) > 1 else parts[0]


def insert(x: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """With values put before positions, which are known while tracing."""
    return _insert(x, _fixed(obj, "insert"), values, axis)


@eager
def _insert(x: Any, obj: Any, values: Any, axis: int | None) -> Any:
    x = arr(x)
    if axis is None:
        x, axis = p.reshape(x, [-1]), 0
    at = p.axis_of(axis, x.ndim)
    n = x.shape[at]
    places = _places(_unfixed(obj), n, "insert")
    values = p.cast(values if isinstance(values, (bool, int, float)) else arr(values), x._dtype)
    if places.ndim == 0 and values.ndim:
        # One place for all of them: NumPy moves their first axis there.
        values = m.moveaxis(values, 0, at) if values.ndim == x.ndim else values
        count = values.shape[at] if values.ndim == x.ndim else (values.shape[-1] if x.ndim == 1 else 1)
        places = numpy.full(count, places)
    places = numpy.atleast_1d(places)
    shape = [len(places) if i == at else d for i, d in enumerate(x.shape)]
    if values.ndim and values.ndim < x.ndim and at != x.ndim - 1 and values.ndim == x.ndim - 1:
        values = p.expand_dims(values, at)
    values = p.broadcast_to(values, shape)
    order = numpy.argsort(places, kind="stable")
    # Both joined, and taken in the order of the result.
    source = numpy.insert(numpy.arange(n), places[order], n + order)
    return ix.take(p.concat([x, values], at), as_tracer(source), at)


@eager
def rot90(x: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """Rotated by 90 degrees ``k`` times, from the first of two axes to the second."""
    x = arr(x)
    a, b = (p.axis_of(v, x.ndim) for v in axes)
    k %= 4
    if k == 0:
        return x
    if k == 2:
        return p.reverse(x, sorted((a, b)))
    return m.swapaxes(p.reverse(x, [b]), a, b) if k == 1 else p.reverse(m.swapaxes(x, a, b), [b])


@eager
def fliplr(x: Any) -> Any:
    """Columns in the other order."""
    return m.flip(arr(x), 1)


@eager
def flipud(x: Any) -> Any:
    """Rows in the other order."""
    return m.flip(arr(x), 0)


@eager
def rollaxis(x: Any, axis: int, start: int = 0) -> Any:
    """An axis moved before another."""
    x = arr(x)
    at = p.axis_of(axis, x.ndim)
    start = start + x.ndim if start < 0 else start
    return m.moveaxis(x, at, start - 1 if at < start else start)


@eager
def resize(x: Any, new_shape: Any) -> Any:
    """The elements in another shape, repeated as needed."""
    x = flat(x)
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    count = math.prod(shape)
    if not x.size or not count:
        return p.splat(0, shape, x._dtype)
    return p.reshape(p.slice_(m.tile(x, [-(-count // x.size)]), [0], [count], [1]), shape)


def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """A function of vectors on every vector along an axis."""
    return _apply_along_axis(func1d, axis, arr, args, kwargs)


@eager
def _apply_along_axis(function: Any, axis: int, x: Any, args: tuple, kwargs: dict) -> Any:
    x = arr(x)
    at = p.axis_of(axis, x.ndim)
    rest = [d for i, d in enumerate(x.shape) if i != at]
    rows = p.reshape(m.moveaxis(x, at, -1), [math.prod(rest), x.shape[at]])
    made = vmap(lambda row: function(row, *args, **kwargs))(rows)

    def back(y: Any) -> Any:
        y = p.reshape(y, [*rest, *y.shape[1:]])
        inner = y.ndim - len(rest)
        return m.moveaxis(y, list(range(len(rest), y.ndim)), list(range(at, at + inner))) if inner else y

    return pytree.map(back, made)


def apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    """A reduction of one axis after another; the axes stay, of extent 1."""
    for axis in (axes,) if isinstance(axes, int) else axes:
        axis = axis + ndim(a) if axis < 0 else axis
        made = func(a, axis)
        a = made if ndim(made) == ndim(a) else m.expand_dims(made, axis)
    return a


@eager
def packbits(x: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    """Bools as the bits of u8, eight to a byte; zeros fill the last one."""
    x = arr(x)
    bits = p.cast(x if x._dtype == "bool" else p.ew("ne", x, 0), "u8")
    if axis is None:
        bits, axis = p.reshape(bits, [-1]), 0
    at = p.axis_of(axis, bits.ndim)
    bits = m.moveaxis(bits, at, -1)
    n = bits.shape[-1]
    bits = p.pad(bits, [0] * bits.ndim, [0] * (bits.ndim - 1) + [-n % 8])
    bits = p.reshape(bits, [*bits.shape[:-1], bits.shape[-1] // 8, 8])
    place = p.iota((8,), 0, "u8")
    shift = p.ew("sub", 7, place) if bitorder == "big" else place
    made = p.cast(p.reduce("sum", p.cast(p.ew("shl", bits, p.cast(shift, "u8")), "i32"), -1), "u8")
    return m.moveaxis(made, -1, at)


@eager
def unpackbits(x: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Any:
    """The bits of u8, eight for each byte."""
    x = arr(x)
    if x._dtype != "u8":
        raise fail("E_TYPE", f"unpackbits: expected u8, got {x._dtype}", "convert it with `.astype(ts.u8)`")
    if axis is None:
        x, axis = p.reshape(x, [-1]), 0
    at = p.axis_of(axis, x.ndim)
    x = m.moveaxis(x, at, -1)
    place = p.iota((8,), 0, "u8")
    shift = p.cast(p.ew("sub", 7, place), "u8") if bitorder == "big" else place
    bits = p.ew("and", p.ew("shr", p.expand_dims(x, x.ndim), shift), 1)
    bits = p.reshape(bits, [*x.shape[:-1], x.shape[-1] * 8])
    if count is not None:
        n = bits.shape[-1]
        keep = count if count >= 0 else n + count
        bits = p.pad(bits, [0] * bits.ndim, [0] * (bits.ndim - 1) + [keep - n]) if keep > n else p.slice_(
            bits, [0] * bits.ndim, [*bits.shape[:-1], keep], [1] * bits.ndim)  # fmt: skip
    return m.moveaxis(bits, -1, at)
