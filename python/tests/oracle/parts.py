"""Tiles in parts over NumPy: subscripts, concatenation and splitting, turning around, elements by position.

A position that is known when the kernel is compiled is a Python number and lies inside the tile (negative ones count from
the end). A position of run time is a `Val`; one outside, a negative one too, gives zero.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .memory import value_of
from .values import Lacks, NUMPY, OracleError, Val, carrier

INTS = ("i32", "i64", "u32", "u64")


def _tile(x: Any) -> Val:
    x = value_of(x)
    if not isinstance(x, Val) or not np.ndim(x.a):
        raise OracleError("E_TYPE", f"a tile is wanted, got {x!r}")
    return x


def of(dt: str, a: Any) -> Val:
    """A result: a scalar where no axis is left."""
    a = np.asarray(a)
    return Val(dt, a.copy() if a.ndim else a[()])


def axis_of(axis: Any, rank: int) -> int:
    if not isinstance(axis, (int, np.integer)) or isinstance(axis, bool) or not -rank <= axis < rank:
        raise OracleError("E_SHAPE_MISMATCH", f"axis {axis} of rank {rank}")
    return int(axis) % rank


def wide(a: Any) -> np.ndarray:
    """Positions in 64 bits."""
    a = np.asarray(a)
    if a.dtype == np.uint64:
        return np.where(a >= 2**63, np.int64(-1), a.astype(np.int64))
    return a.astype(np.int64)


def take(a: np.ndarray, positions: np.ndarray, axis: int) -> np.ndarray:
    """Elements by positions of the rank of `a`; zero where one is outside."""
    inside = (positions >= 0) & (positions < a.shape[axis])
    if not a.shape[axis]:
        return np.zeros(positions.shape, a.dtype)
    found = np.take_along_axis(a, np.where(inside, positions, 0), axis)
    return np.where(inside, found, a.dtype.type(0)).astype(a.dtype)


def rows(a: np.ndarray, positions: np.ndarray, axis: int) -> np.ndarray:
    """Whole rows by positions of any rank, which take the place of the axis."""
    flat = positions.reshape(-1)
    shape = [-1 if k == axis else 1 for k in range(a.ndim)]
    index = np.broadcast_to(flat.reshape(shape), (*a.shape[:axis], len(flat), *a.shape[axis + 1 :]))
    out = take(a, index, axis)
    return out.reshape((*a.shape[:axis], *positions.shape, *a.shape[axis + 1 :]))


def _known(v: Any) -> bool:
    return v is None or isinstance(v, (int, np.integer))


def _span(item: slice, extent: int) -> np.ndarray:
    """The positions of a slice."""
    step = 1 if item.step is None else item.step
    if isinstance(step, Val) or step == 0:
        raise OracleError("E_ARGUMENT", "a step that is 0 or not known")
    if _known(item.start) and _known(item.stop):
        first, last = (0, extent) if step > 0 else (extent - 1, -1)
        start = first if item.start is None else item.start + extent * (item.start < 0)
        stop = last if item.stop is None else item.stop + extent * (item.stop < 0)
        count = math.ceil((stop - start) / step)
        if count < 0:
            raise OracleError("E_SHAPE_MISMATCH", "a slice that ends before its start")
        positions = start + step * np.arange(count, dtype=np.int64)
        if count and (positions.min() < 0 or positions.max() >= extent):
            raise OracleError("E_SHAPE_MISMATCH", f"a slice beyond {extent} elements")
        return positions
    if step < 0:
        raise OracleError("E_ARGUMENT", "a step below 0 from a position of run time")
    start = 0 if item.start is None else int(item.start)
    stop = extent if item.stop is None else int(item.stop)
    far = stop - start
    if isinstance(item.start, Val) and isinstance(item.stop, Val) and {item.start.dt, item.stop.dt} <= {"i32", "u32"}:
        far = (far + 2**31) % 2**32 - 2**31  # `v + 8` may have wrapped; the extent is known before that
    far = (far + 2**63) % 2**64 - 2**63
    return np.int64(start) + np.int64(step) * np.arange(max(-(-far // step), 0), dtype=np.int64)


def subscript(x: Val, index: Any) -> Val:
    """``t[…]``."""
    items = list(index) if isinstance(index, tuple) else [index]
    rank = np.ndim(x.a)
    if sum(item is Ellipsis for item in items) > 1:
        raise OracleError("E_SYNTAX", "`...` twice")
    written = sum(item is not None and item is not Ellipsis for item in items)
    if written > rank:
        raise OracleError("E_SHAPE_MISMATCH", f"{written} items for rank {rank}")
    full: list[Any] = []
    for item in items:
        full += [slice(None)] * (rank - written) if item is Ellipsis else [item]
    full += [slice(None)] * (rank - sum(item is not None for item in full))
    index_tiles = [item for item in full if isinstance(item, Val) and np.ndim(item.a)]
    for item in full:
        _checked(item)
    points = [item for item in full if item is not None and not isinstance(item, slice) and not any(item is t for t in index_tiles)]
    if len(index_tiles) > 1 or (index_tiles and points):
        return _by_tiles(x, full)
    a, axis = np.asarray(x.a), 0
    for item in full:
        if item is None:
            a = np.expand_dims(a, axis)
            axis += 1
        elif isinstance(item, slice):
            if item != slice(None):
                a = rows(a, _span(item, a.shape[axis]), axis)
            axis += 1
        elif isinstance(item, Val):
            positions = wide(item.a)
            a = rows(a, positions, axis)
            axis += positions.ndim
        else:
            a = rows(a, np.int64(_inside(item, a.shape[axis])).reshape(()), axis)
    return of(x.dt, a)


def _checked(item: Any) -> None:
    if isinstance(item, Val):
        if item.dt == "bool" and np.ndim(item.a):
            raise OracleError("E_UNSUPPORTED", "a mask as a subscript")
        if carrier(item.dt) not in INTS:
            raise OracleError("E_TYPE", f"an index of {item.dt}")
    elif item is not None and not isinstance(item, slice) and (isinstance(item, bool) or not isinstance(item, (int, np.integer))):
        raise OracleError("E_TYPE", f"an index {item!r}")


def _inside(at: int, extent: int) -> int:
    if not -extent <= at < extent:
        raise OracleError("E_SHAPE_MISMATCH", f"position {at} of {extent}")
    return at % extent


def _by_tiles(x: Val, items: list[Any]) -> Val:
    """Index tiles and positions for every axis: element by element, in the shape that they broadcast to."""
    if any(item is None or isinstance(item, slice) for item in items):
        raise OracleError("E_UNSUPPORTED", "index tiles beside slices")
    positions = [wide(item.a) if isinstance(item, Val) else np.int64(_inside(item, n)) for item, n in zip(items, x.a.shape)]
    ranks = {p.ndim for p in positions if p.ndim}
    if len(ranks) > 1:
        raise OracleError("E_SHAPE_MISMATCH", "index tiles of several ranks")
    together = np.broadcast_arrays(*positions)
    inside = np.ones(together[0].shape, bool)
    for p, n in zip(together, x.a.shape):
        inside &= (p >= 0) & (p < n)
    found = x.a[tuple(np.where(inside, p, 0) for p in together)]
    return of(x.dt, np.where(inside, found, NUMPY[carrier(x.dt)].type(0)).astype(NUMPY[carrier(x.dt)]))


def _several(tiles: Any) -> list[Val]:
    if not isinstance(tiles, tuple) or not tiles:
        raise OracleError("E_TYPE", "a tuple of tiles is wanted")
    out = [_tile(t) for t in tiles]
    if len({t.dt for t in out}) > 1:
        raise OracleError("E_TYPE", "tiles of several dtypes")
    return out


def concat(tiles: Any, axis: int = 0) -> Val:
    found = _several(tiles)
    axis = axis_of(axis, found[0].a.ndim)
    shapes = {(*t.a.shape[:axis], *t.a.shape[axis + 1 :]) for t in found}
    if len(shapes) > 1:
        raise OracleError("E_SHAPE_MISMATCH", "tiles that do not agree")
    return of(found[0].dt, np.concatenate([t.a for t in found], axis))


def stack(tiles: Any, axis: int = 0) -> Val:
    found = _several(tiles)
    axis = axis_of(axis, found[0].a.ndim + 1)
    if len({t.a.shape for t in found}) > 1:
        raise OracleError("E_SHAPE_MISMATCH", "tiles of several shapes")
    return of(found[0].dt, np.stack([t.a for t in found], axis))


def split(x: Any, sections: Any, axis: int = 0) -> tuple:
    x = _tile(x)
    axis = axis_of(axis, x.a.ndim)
    extent = x.a.shape[axis]
    if isinstance(sections, tuple):
        bounds = [0, *sections, extent]
        if any(b < a for a, b in zip(bounds, bounds[1:])):
            raise OracleError("E_SHAPE_MISMATCH", f"positions {sections} in {extent}")
    elif not isinstance(sections, int) or sections < 1:
        raise OracleError("E_ARGUMENT", f"{sections!r} parts")
    elif extent % sections:
        raise OracleError("E_SHAPE_MISMATCH", f"{extent} in {sections} equal parts")
    return tuple(of(x.dt, part) for part in np.split(x.a, list(sections) if isinstance(sections, tuple) else sections, axis))


def flip(x: Any, axis: Any = None) -> Val:
    x = _tile(x)
    axes = range(x.a.ndim) if axis is None else [axis_of(a, x.a.ndim) for a in (axis if isinstance(axis, tuple) else (axis,))]
    return of(x.dt, np.flip(x.a, tuple(axes)))


def roll(x: Any, shift: Any, axis: Any = None) -> Val:
    x = _tile(x)
    axis = None if axis is None else axis_of(axis, x.a.ndim)
    extent = x.a.size if axis is None else x.a.shape[axis]
    return of(x.dt, np.roll(x.a, int(shift) % max(extent, 1), axis))


def take_along_axis(x: Any, indices: Any, axis: int) -> Val:
    x, at = _tile(x), _tile(indices)
    axis = axis_of(axis, x.a.ndim)
    if carrier(at.dt) not in INTS:
        raise OracleError("E_TYPE", f"positions of {at.dt}")
    if at.a.ndim != x.a.ndim or any(k != axis and n not in (1, x.a.shape[k]) for k, n in enumerate(at.a.shape)):
        raise OracleError("E_SHAPE_MISMATCH", f"positions of shape {at.a.shape} for {x.a.shape}")
    shape = [at.a.shape[k] if k == axis else n for k, n in enumerate(x.a.shape)]
    return of(x.dt, take(x.a, np.broadcast_to(wide(at.a), shape), axis))


def transpose(x: Any, axes: Any = None) -> Val:
    x = value_of(x)
    if axes is None:
        return of(x.dt, x.a.T)
    axes = [axis_of(a, x.a.ndim) for a in (axes if isinstance(axes, tuple) else (axes,))]
    if sorted(axes) != list(range(x.a.ndim)):
        raise OracleError("E_SHAPE_MISMATCH", f"axes {axes}")
    return of(x.dt, np.transpose(x.a, axes))


def reshape(x: Any, shape: Any) -> Val:
    x = _tile(x)
    extents = tuple(int(n) for n in (shape if isinstance(shape, tuple) else (shape,)))
    if extents.count(-1) > 1:
        raise OracleError("E_SHAPE_MISMATCH", "-1 twice")
    others = math.prod(n for n in extents if n != -1)
    if (-1 in extents and (not others or x.a.size % others)) or (-1 not in extents and others != x.a.size):
        raise OracleError("E_SHAPE_MISMATCH", f"{x.a.shape} as {extents}")
    return of(x.dt, x.a.reshape(extents))


__all__ = ["concat", "stack", "split", "flip", "roll", "take_along_axis", "transpose", "reshape", "subscript", "Lacks"]
