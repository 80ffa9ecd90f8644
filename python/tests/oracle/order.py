"""Sorting and counting over NumPy: ascending and stable, a NaN above every number, -0 and +0 equal."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any

import numpy as np

from .parts import _tile, axis_of, of
from .values import OracleError, Val, carrier, convert


def _compare(a: Any, b: Any) -> int:
    if a != a or b != b:
        return int(a != a) - int(b != b)
    return int(a > b) - int(a < b)


def _places(a: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Where the elements of the sorted tile were."""
    moved = np.moveaxis(a, axis, -1)
    out = np.empty(moved.shape, np.int32)
    for where in np.ndindex(*moved.shape[:-1]):
        row = moved[where]
        key = cmp_to_key(lambda i, j, row=row: _compare(row[j], row[i]) if descending else _compare(row[i], row[j]))
        out[where] = sorted(range(len(row)), key=key)  # Python's own sort is stable
    return np.moveaxis(out, -1, axis)


def sort(x: Any, axis: int = -1, descending: bool = False) -> Val:
    x = _tile(x)
    axis = axis_of(axis, x.a.ndim)
    return of(x.dt, np.take_along_axis(x.a, _places(x.a, axis, descending), axis))


def argsort(x: Any, axis: int = -1, descending: bool = False) -> Val:
    x = _tile(x)
    return of("i32", _places(x.a, axis_of(axis, x.a.ndim), descending))


def topk(x: Any, k: Any, axis: int = -1) -> tuple[Val, Val]:
    x = _tile(x)
    axis = axis_of(axis, x.a.ndim)
    if k > x.a.shape[axis]:
        raise OracleError("E_SHAPE_MISMATCH", f"the {k} largest of {x.a.shape[axis]}")
    places = np.take(_places(x.a, axis, True), range(k), axis)
    return of(x.dt, np.take_along_axis(x.a, places, axis)), of("i32", places)


def histogram(x: Any, bins: Any, mask: Any = None) -> Val:
    x = _tile(x)
    if carrier(x.dt) not in ("i32", "i64", "u32", "u64"):
        raise OracleError("E_TYPE", f"a histogram of {x.dt}")
    held = np.broadcast_to(True if mask is None else convert(mask, "bool"), x.a.shape)
    out = np.zeros(int(bins), np.int32)
    for value in x.a[held].reshape(-1):
        if 0 <= int(value) < len(out):
            out[int(value)] += 1
    return Val("i32", out)


def unique_count(x: Any) -> Val:
    x = _tile(x)
    flat = x.a.reshape(-1).tolist()
    numbers = {v for v in flat if v == v}
    return Val("i32", np.int32(len(numbers) + any(v != v for v in flat)))
