"""Functions with results whose size depends on values. Outside traced functions they give exactly those. Inside, those of the array
API are refused, and NumPy's take ``size=``: that many results, the rest filled."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy

from ..arrays.host import ours
from ..base.promotion import is_float
from ..trace import on_mesh, prim as p
from ..trace.jit import eager
from ..trace.tracer import Tracer, fail, to_numpy
from . import _elementwise as e, _index as ix, _reduce as r
from ._arguments import arr, extent, flat, known, promoted, truth

UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


def _sized(x: Any, name: str) -> numpy.ndarray:
    return known(x, name, "size")


def _packed(values: Tracer, keep: Tracer, size: int, fill: Any) -> Tracer:
    """The elements that are kept, in order, in a vector of ``size``, padded with ``fill``. Elements that do not fit are left out."""
    at = p.ew("sub", p.scan("sum", p.cast(keep, "i64"), 0), 1)
    at = p.select(keep, at, size)
    into = p.broadcast_to(p.cast(fill, values._dtype), (size,))
    return p.scatter("set", into, p.expand_dims(at, 1), values, [0])


@eager
def _nonzero(x: Any, size: int, fill: Any) -> tuple:
    x = truth(x)
    if not x.ndim:
        raise fail("E_SHAPE_MISMATCH", "nonzero: expected an array with axes", "write `x.reshape(1)`")
    keep = p.reshape(x, [-1])
    fills = list(fill) if isinstance(fill, (tuple, list)) else [0 if fill is None else fill] * x.ndim
    return tuple(_packed(p.reshape(p.iota(x.shape, i), [-1]), keep, size, f) for i, f in zip(range(x.ndim), fills, strict=True))


def _values(x: Any, name: str) -> numpy.ndarray:
    if isinstance(x, Tracer):
        raise fail(
            "E_UNSUPPORTED",
            f"expected `{name}` outside a traced function: how large its result is depends on the values of its argument",
            "call it on arrays, before `ts.jit`; inside, use `where`, `sort` or a mask, whose shapes are known",
        )
    return to_numpy(x)


@on_mesh.gathered
def nonzero(x: Any, /, *, size: int | None = None, fill_value: Any = None) -> tuple:
    """The positions of elements that are not zero, an array for each axis. With ``size`` that many, padded with ``fill_value`` (0)."""
    if size is None:
        return ours(numpy.nonzero(_sized(x, "nonzero")))
    return _nonzero(x, extent(size, "nonzero", "size"), fill_value)


def where(condition: Any, x1: Any = None, x2: Any = None, *, size: int | None = None, fill_value: Any = None) -> Any:
    """``x1`` where the condition holds, or is not zero, and ``x2`` elsewhere. Of a condition alone: its positions, as `nonzero` gives them."""
    if x1 is None and x2 is None:
        return nonzero(condition, size=size, fill_value=fill_value)
    if x1 is None or x2 is None or size is not None or fill_value is not None:
        raise fail("E_ARGUMENT", "where: expected a condition and both values, or a condition alone with `size` and `fill_value`",
                   "write `xp.where(condition, x1, x2)`")  # fmt: skip
    return e._where(condition, x1, x2)


@on_mesh.gathered
def unique_all(x: Any, /) -> UniqueAll:
    """Each value once, its first position, which of them each element is, and how often each occurs."""
    x = _values(x, "unique_all")
    values, first, inverse, counts = numpy.unique(x, True, True, True, equal_nan=False)
    return ours(UniqueAll(values, first, inverse.reshape(x.shape), counts))


@on_mesh.gathered
def unique_counts(x: Any, /) -> UniqueCounts:
    """Each value once, and how often it occurs."""
    return ours(UniqueCounts(*numpy.unique(_values(x, "unique_counts"), return_counts=True, equal_nan=False)))


@on_mesh.gathered
def unique_inverse(x: Any, /) -> UniqueInverse:
    """Each value once, and which of them each element is."""
    x = _values(x, "unique_inverse")
    values, inverse = numpy.unique(x, return_inverse=True, equal_nan=False)
    return ours(UniqueInverse(values, inverse.reshape(x.shape)))


@on_mesh.gathered
def unique_values(x: Any, /) -> Any:
    """Each value once."""
    return ours(numpy.unique(_values(x, "unique_values"), equal_nan=False))


@on_mesh.gathered
def flatnonzero(x: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of elements that are not zero, in row-major order."""
    if size is None:
        return ours(numpy.flatnonzero(_sized(x, "flatnonzero")))
    return _flatnonzero(x, extent(size, "flatnonzero", "size"), fill_value)


@eager
def _flatnonzero(x: Any, size: int, fill: Any) -> Any:
    return _nonzero(flat(x), size, fill)[0]


@on_mesh.gathered
def argwhere(x: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The positions of elements that are not zero, a row for each."""
    if size is None:
        return ours(numpy.argwhere(_sized(x, "argwhere")))
    return _argwhere(x, extent(size, "argwhere", "size"), fill_value)


@eager
def _argwhere(x: Any, size: int, fill: Any) -> Any:
    return p.concat([p.expand_dims(v, 1) for v in _nonzero(x, size, fill)], 1)


def extract(condition: Any, x: Any, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The elements where a condition holds, as a vector."""
    return compress(condition, x, size=size, fill_value=fill_value)


def compress(condition: Any, x: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0) -> Any:
    """The parts along an axis where a condition holds."""
    if size is None:
        size = int(numpy.count_nonzero(_sized(condition, "compress")))
    return _compress(condition, x, axis, extent(size, "compress", "size"), fill_value)


@eager
def _compress(condition: Any, x: Any, axis: int | None, size: int, fill: Any) -> Any:
    keep, x = flat(truth(condition)), arr(x)
    if axis is None:
        x, axis = p.reshape(x, [-1]), 0
    at = p.axis_of(axis, x.ndim)
    n = x.shape[at]
    if keep.shape[0] > n:
        raise fail("E_SHAPE_MISMATCH", f"compress: expected up to {n} conditions, got {keep.shape[0]}", "give one for each part")
    where = _packed(p.iota(keep.shape, 0), keep, size, n)
    if not n:
        return p.broadcast_to(p.cast(fill, x._dtype), [size if i == at else d for i, d in enumerate(x.shape)])
    made = ix.take(x, p.ew("minimum", where, n - 1), at)
    good = p.reshape(p.ew("lt", where, n), [size if i == at else 1 for i in range(x.ndim)])
    return p.select(good, made, p.cast(fill, x._dtype))


@on_mesh.gathered
def unique(x: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None,
           *, equal_nan: bool = True, size: int | None = None, fill_value: Any = None) -> Any:  # fmt: skip
    """Each value once, in order. With ``size`` that many, padded with ``fill_value`` (the least value)."""
    if size is None:
        return ours(numpy.unique(_sized(x, "unique"), return_index, return_inverse, return_counts, axis, equal_nan=equal_nan))
    if axis is not None:
        raise fail("E_UNSUPPORTED", "unique: expected no `axis` beside `size=`", "flatten the array")
    made = _unique(x, extent(size, "unique", "size"), fill_value, equal_nan)
    chosen = [made[0], *(v for v, wanted in zip(made[1:], (return_index, return_inverse, return_counts), strict=True) if wanted)]
    return chosen[0] if len(chosen) == 1 else tuple(chosen)


@eager
def _unique(x: Any, size: int, fill: Any, equal_nan: bool) -> tuple:
    given = arr(x)
    x = p.reshape(given, [-1])
    n = x.shape[0]
    if not n:
        none = p.splat(0, (size,), "i64")
        return p.broadcast_to(p.cast(0 if fill is None else fill, x._dtype), (size,)), none, p.splat(0, given.shape, "i64"), none
    s, order = p.sort([x, p.iota((n,), 0)], 0)
    first = _first(s, equal_nan)
    least = ix.getitem(s, 0)
    values = _packed(s, first, size, least if fill is None else fill)
    at = p.ew("sub", p.scan("sum", p.cast(first, "i64"), 0), 1)
    inverse = p.scatter("set", p.splat(0, (n,), "i64"), p.expand_dims(order, 1), at, [0])
    counts = p.scatter("sum", p.splat(0, (size,), "i64"), p.expand_dims(at, 1), p.splat(1, (n,), "i64"), [0])
    places = _packed(order, first, size, ix.getitem(order, 0))
    return values, places, p.reshape(inverse, given.shape), counts


def _first(s: Tracer, equal_nan: bool = True) -> Tracer:
    """Where a sorted vector has a value that differs from the one before."""
    n = s.shape[0]
    a, b = p.slice_(s, [1], [n], [1]), p.slice_(s, [0], [n - 1], [1])
    differs = p.ew("ne", a, b)
    if equal_nan and is_float(s._dtype):
        differs = p.ew("and", differs, p.ew("not", p.ew("and", p.ew("isnan", a), p.ew("isnan", b))))
    return p.concat([p.splat(True, (1,), "bool"), differs], 0)


@on_mesh.gathered
def union1d(x1: Any, x2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The values of two arrays, each once, in order."""
    if size is None:
        return ours(numpy.union1d(_sized(x1, "union1d"), _sized(x2, "union1d")))
    return _union1d(x1, x2, extent(size, "union1d", "size"), fill_value)


@eager
def _union1d(x1: Any, x2: Any, size: int, fill: Any) -> Any:
    return _unique(p.concat([flat(x1), flat(x2)], 0), size, fill, True)[0]


def _chosen(x: Tracer, keep_of: Any, size: int, fill: Any) -> Tracer:
    """The values of a vector, each once, for which something holds of them; ``fill=None`` repeats the least of them."""
    s = p.sort([x], 0)[0]
    if not s.shape[0]:
        return p.broadcast_to(p.cast(0 if fill is None else fill, s._dtype), (size,))
    keep = p.ew("and", _first(s), keep_of(s))
    if fill is None:
        least = ix.take(s, p.argreduce("max", p.cast(keep, "i32"), 0), 0)
        fill = p.select(p.reduce("or", keep), least, p.splat(0, (), s._dtype))
    return _packed(s, keep, size, fill)


@on_mesh.gathered
def intersect1d(x1: Any, x2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The values that are in both arrays, in order."""
    if size is None:
        return ours(numpy.intersect1d(_sized(x1, "intersect1d"), _sized(x2, "intersect1d")))
    return _intersect1d(x1, x2, extent(size, "intersect1d", "size"), fill_value)


@eager
def _intersect1d(x1: Any, x2: Any, size: int, fill: Any) -> Any:
    return _chosen(flat(x1), lambda s: isin(s, x2), size, fill)


@on_mesh.gathered
def setdiff1d(x1: Any, x2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The values of one array that are not in the other, in order."""
    if size is None:
        return ours(numpy.setdiff1d(_sized(x1, "setdiff1d"), _sized(x2, "setdiff1d")))
    return _setdiff1d(x1, x2, extent(size, "setdiff1d", "size"), fill_value)


@eager
def _setdiff1d(x1: Any, x2: Any, size: int, fill: Any) -> Any:
    return _chosen(flat(x1), lambda s: isin(s, x2, invert=True), size, 0 if fill is None else fill)


@on_mesh.gathered
def setxor1d(x1: Any, x2: Any, *, size: int | None = None, fill_value: Any = None) -> Any:
    """The values that are in one array only, in order."""
    if size is None:
        return ours(numpy.setxor1d(_sized(x1, "setxor1d"), _sized(x2, "setxor1d")))
    return _setxor1d(x1, x2, extent(size, "setxor1d", "size"), fill_value)


@eager
def _setxor1d(x1: Any, x2: Any, size: int, fill: Any) -> Any:
    a, b = flat(x1), flat(x2)
    return _chosen(p.concat([a, b], 0), lambda s: e.not_equal(isin(s, a), isin(s, b)), size, fill)


@eager
def isin(element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element is among others."""
    x, others = arr(element), flat(test_elements)
    n = others.shape[0]
    if not n:
        return p.splat(invert, x.shape, "bool")
    (x, others), _ = promoted(x, others)
    s = p.sort([others], 0)[0]
    at = p.ew("minimum", r.searchsorted(s, x), n - 1)
    return p.ew("ne" if invert else "eq", ix.take(s, at, 0), x)
