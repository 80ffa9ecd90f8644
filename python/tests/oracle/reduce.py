"""Reductions and scans over NumPy: by name in the canonical order of LANGUAGE 14, and by a function of the program's."""

from __future__ import annotations

import builtins
import inspect
from typing import Any, Callable

import numpy as np

from .memory import value_of
from .parts import _tile, axis_of, of
from .values import Lacks, NUMPY, OracleError, Val, carrier, const, convert, maximum as greater, minimum as lesser, ranks, strong

_IDENTITY = {"sum": (0, -0.0), "prod": (1, 1.0)}


def identity(op: str, kind: str) -> Any:
    t = NUMPY[kind]
    if op in _IDENTITY:
        return t.type(_IDENTITY[op][kind[0] == "f"])
    if op in ("or", "xor"):
        return t.type(0)
    if op == "and":
        return t.type(True) if kind == "bool" else t.type(-1) if kind[0] == "i" else t.type(np.iinfo(t).max)
    if kind == "bool":
        return t.type(op == "min")
    if kind[0] == "f":
        return t.type(-np.inf if op == "max" else np.inf)
    return t.type(np.iinfo(t).min if op == "max" else np.iinfo(t).max)


def _combine(op: str, dt: str) -> Callable:
    if op in ("max", "min"):
        f = greater if op == "max" else lesser
        return lambda a, b: f(dt, a, b)
    return {"sum": np.add, "prod": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}[op]


def _canonical(a: np.ndarray, op: str, dt: str) -> np.ndarray:
    """CR along axis 0."""
    n = a.shape[0]
    if n > 65536:
        parts = [_canonical(a[k : k + 65536], op, dt) for k in builtins.range(0, n, 65536)]
        return _canonical(np.stack(parts), op, dt)
    f = _combine(op, dt)
    lanes = np.full((64, *a.shape[1:]), identity(op, dt), NUMPY[dt])
    for k in builtins.range(0, n, 64):
        part = a[k : k + 64]
        lanes[: len(part)] = f(lanes[: len(part)], part)
    h = 32
    while h:
        lanes[:h] = f(lanes[:h], lanes[h : 2 * h])
        h //= 2
    return lanes[0]


def _axes(axis: Any, rank: int) -> list[int]:
    """The axes to reduce, the last first."""
    if axis is None:
        return list(builtins.range(rank))[::-1]
    found = [axis_of(a, rank) for a in (axis if isinstance(axis, tuple) else (axis,))]
    if len(set(found)) < len(found):
        raise OracleError("E_ARGUMENT", "an axis twice")
    return sorted(found, reverse=True)


def _kept(a: Any, axes: list[int], keepdims: bool) -> np.ndarray:
    a = np.asarray(a)
    for axis in sorted(axes) if keepdims else ():
        a = np.expand_dims(a, axis)
    return a


def _in(x: Val, op: str) -> str:
    """The dtype that a reduction is done in."""
    dt = carrier(x.dt)
    return "i32" if dt == "bool" and op not in ("and", "or", "xor") else dt


def reduce(x: Any, op: Any, axis: Any = None, keepdims: bool = False) -> Any:
    if not isinstance(op, str):
        return _tree(x, op, axis, keepdims)
    x = strong(value_of(x))
    op = "sum" if op == "add" else op
    dt = _in(x, op)
    a = np.asarray(convert(x, dt))
    axes = _axes(axis, a.ndim)
    for k in axes:
        a = np.asarray(_canonical(np.moveaxis(a, k, 0), op, dt))
    return of(dt, _kept(a, axes, keepdims))


def _named(op: str) -> tuple[Callable, Callable]:
    def whole(x: Any, axis: Any = None, keepdims: bool = False) -> Val:
        return reduce(x, op, axis, keepdims)

    def row(x: Any) -> Val:
        return reduce(x, op, -1)

    return whole, row


sum, row_sum = _named("sum")
prod, row_prod = _named("prod")
_max, row_max = _named("max")
_min, row_min = _named("min")


def _extremum(op: str, whole: Callable) -> Callable:
    def call(x: Any, axis: Any = None, keepdims: bool = False, return_indices: bool = False) -> Any:
        value = whole(x, axis, keepdims)
        if not return_indices:
            return value
        rank = np.ndim(value_of(x).a)
        if isinstance(axis, tuple) or (axis is None and rank > 1):
            raise OracleError("E_ARGUMENT", "several axes with `return_indices`")
        place = _place_of(x, axis, op)
        return value, of("i32", _kept(place.a, _axes(axis, rank), keepdims))

    return call


max, min = _extremum("max", _max), _extremum("min", _min)


def any(x: Any, axis: Any = None, keepdims: bool = False) -> Val:
    return _truth(x, "or", axis, keepdims)


def all(x: Any, axis: Any = None, keepdims: bool = False) -> Val:
    return _truth(x, "and", axis, keepdims)


def _truth(x: Any, op: str, axis: Any, keepdims: bool) -> Val:
    x = strong(value_of(x))
    return reduce(Val("bool", convert(x, "bool")), op, axis, keepdims)


def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Val:
    x = value_of(x)
    kind = "f64" if carrier(x.dt) in ("i64", "u64", "f64") else "f32"
    total = reduce(Val(kind, convert(x, kind)), "sum", axis, keepdims)
    count = x.a.size if axis is None else int(np.prod([x.a.shape[k] for k in _axes(axis, x.a.ndim)]))
    return Val(kind, total.a / NUMPY[kind].type(count))


def row_mean(x: Any) -> Val:
    return mean(x, -1)


def _place_of(x: Any, axis: Any, best: str) -> Val:
    x = value_of(x)
    a = x.a.reshape(-1) if axis is None else x.a
    moved = np.moveaxis(a, 0 if axis is None else axis_of(axis, a.ndim), -1)
    out = np.empty(moved.shape[:-1], np.int32)
    for where in np.ndindex(*moved.shape[:-1]):
        row = [_order(v, best) for v in moved[where]]
        out[where] = row.index(builtins.max(row))
    return of("i32", out)


def _order(v: Any, best: str) -> tuple:
    """Zeros of both signs are equal, and the first of equal numbers counts; a NaN is the best of all."""
    if v != v:
        return (1, 0)
    return (0, v.item() if best == "max" else -v.item())


def argmax(x: Any, axis: Any = None) -> Val:
    return _place_of(x, axis, "max")


def argmin(x: Any, axis: Any = None) -> Val:
    return _place_of(x, axis, "min")


def scan(x: Any, op: Any, axis: Any = None, exclusive: bool = False, reverse: bool = False) -> Any:
    if not isinstance(op, str):
        if exclusive:
            raise OracleError("E_UNSUPPORTED", "an exclusive scan by a function")
        return associative_scan(x, op, axis, reverse)
    x = value_of(x)
    op = "sum" if op == "add" else op
    dt = _in(x, op)
    axis = _scanned(axis, np.ndim(x.a))
    a = np.moveaxis(convert(x, dt), axis, 0)
    a = a[::-1] if reverse else a
    f = _combine(op, dt)
    out = np.empty_like(a)
    running = np.full(a.shape[1:], identity(op, dt), NUMPY[dt])
    for k in builtins.range(a.shape[0]):
        if exclusive:
            out[k] = running
        running = f(running, a[k])
        if not exclusive:
            out[k] = running
    return of(dt, np.moveaxis(out[::-1] if reverse else out, 0, axis))


def cumsum(x: Any, axis: Any = None, exclusive: bool = False, reverse: bool = False) -> Val:
    return scan(x, "sum", axis, exclusive, reverse)


def cumprod(x: Any, axis: Any = None, exclusive: bool = False, reverse: bool = False) -> Val:
    return scan(x, "prod", axis, exclusive, reverse)


def _scanned(axis: Any, rank: int) -> int:
    if axis is None and rank > 1:
        raise OracleError("E_ARGUMENT", f"a scan of rank {rank} without an axis")
    return axis_of(0 if axis is None else axis, rank)


# Functions of the program's.
class Combiner:
    """A function of two tuples of elements, given flat: all of the left, then all of the right."""

    def __init__(self, f: Any, dtypes: list[str]) -> None:
        if not callable(f):
            raise OracleError("E_TYPE", f"{f!r} combines nothing")
        self.f = f
        self.dtypes = dtypes

    def __call__(self, left: tuple, right: tuple) -> tuple:
        given = [Val(dt, a) for dt, a in zip(self.dtypes * 2, (*left, *right))]
        out = getattr(self.f, "call", self.f)(*given)
        if inspect.isgenerator(out):  # in a kernel whose lanes synchronise
            try:
                next(out)
                raise Lacks("a combiner in which lanes synchronise")
            except StopIteration as end:
                out = end.value
        values = out if isinstance(out, tuple) else (out,)
        if len(values) != len(self.dtypes):
            raise OracleError("E_TYPE", f"a combiner of {len(self.dtypes)} that returns {len(values)}")
        return tuple(self._element(v, dt) for v, dt in zip(values, self.dtypes))

    @staticmethod
    def _element(v: Any, dt: str) -> Any:
        if not isinstance(v, Val):
            return const(dt, v)
        if v.dt != dt:
            raise OracleError("E_TYPE", f"a combiner of {dt} that returns {v.dt}")
        return v.a


def _given(x: Any) -> tuple[list[Val], bool]:
    """One tile or several, in the shape that they broadcast to."""
    items = list(x) if isinstance(x, tuple) else [x]
    tiles = [_tile(t) for t in items]
    ranks([t.a for t in tiles])
    shape = np.broadcast_shapes(*[t.a.shape for t in tiles])
    return [Val(t.dt, np.broadcast_to(t.a, shape)) for t in tiles], isinstance(x, tuple)


def _columns(tiles: list[Val], axis: int) -> Any:
    """For each position of the other axes the elements along the axis, as tuples."""
    moved = [np.moveaxis(t.a, axis, -1) for t in tiles]
    for where in np.ndindex(*moved[0].shape[:-1]):
        yield where, [tuple(m[where][k] for m in moved) for k in builtins.range(moved[0].shape[-1])]


def _tree(x: Any, f: Any, axis: Any, keepdims: bool) -> Any:
    """The balanced tree over neighbours, level by level; a lone last element goes up unchanged."""
    tiles, several = _given(x)
    rank = tiles[0].a.ndim
    axes = _axes(axis, rank)
    if axis is None:
        tiles, along = [Val(t.dt, t.a.reshape(-1)) for t in tiles], 0
    else:
        along = axis_of(axis, rank)
    step = Combiner(f, [t.dt for t in tiles])
    shape = tuple(n for k, n in enumerate(tiles[0].a.shape) if k != along)
    out = [np.empty(shape, t.a.dtype) for t in tiles]
    for where, level in _columns(tiles, along):
        while len(level) > 1:
            level = [step(*level[k : k + 2]) if k + 1 < len(level) else level[k] for k in builtins.range(0, len(level), 2)]
        for o, v in zip(out, level[0]):
            o[where] = v
    results = tuple(of(t.dt, _kept(o, axes, keepdims)) for t, o in zip(tiles, out))
    return results if several else results[0]


def associative_scan(x: Any, f: Any, axis: Any = None, reverse: bool = False) -> Any:
    """The left fold, every step kept; with `reverse` from the end, what has been combined on the left."""
    if isinstance(f, str):
        raise OracleError("E_TYPE", "a name where a function is wanted")
    tiles, several = _given(x)
    along = _scanned(axis, tiles[0].a.ndim)
    step = Combiner(f, [t.dt for t in tiles])
    moved = [np.empty(np.moveaxis(t.a, along, -1).shape, t.a.dtype) for t in tiles]
    for where, elements in _columns(tiles, along):
        order = builtins.range(len(elements))
        before = None
        for k in reversed(order) if reverse else order:
            before = elements[k] if before is None else step(before, elements[k])
            for m, v in zip(moved, before):
                m[where][k] = v
    results = tuple(of(t.dt, np.moveaxis(m, -1, along)) for t, m in zip(tiles, moved))
    return results if several else results[0]
