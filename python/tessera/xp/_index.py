"""Indexing: slices, new axes, integers and arrays of integers, as in NumPy. Where an array of positions reaches outside,
reading clamps it and writing leaves it out; negative positions count from the end."""

from __future__ import annotations

from typing import Any

import numpy

from .. import _prim as p
from .._dims import Dim, bounds
from .._jit import eager
from .._promote import kind
from .._trace import Tracer, as_tracer, aval, fail, is_array


def _is_index_array(i: Any) -> bool:
    return isinstance(i, (Tracer, numpy.ndarray, list)) or (is_array(i) and not isinstance(i, (bool, int, numpy.integer)))


def _expanded(x: Tracer, index: Any) -> list:
    """One entry for each axis, and None for new ones."""
    items = list(index) if isinstance(index, tuple) else [index]
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    if sum(1 for i in items if i is Ellipsis) > 1:
        raise fail("E_ARGUMENT", "expected at most one `...` in an index", "write `:` for the other axes")
    if used > x.ndim:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected at most {x.ndim} indices for {p.show(x.shape)}, got {used}",
            "give one index or slice for each axis; `None` inserts one",
        )
    if Ellipsis not in [i for i in items if not _is_index_array(i)]:
        items.append(Ellipsis)
    at = next(k for k, i in enumerate(items) if i is Ellipsis)
    return items[:at] + [slice(None)] * (x.ndim - used) + items[at + 1 :]


def _positions(i: Any, extent: int) -> Tracer:
    """Positions as i64, those below zero counted from the end."""
    if isinstance(i, numpy.ndarray) and i.dtype == bool or aval(numpy.asarray(i) if isinstance(i, list) else i)[1] == "bool":
        raise fail(
            "E_DYNAMIC_EXTENT",
            "expected positions, got a mask: how many elements it selects is not known while tracing",
            "use `ts.where(mask, x, other)`",
        )
    i = as_tracer(i)
    if kind(i._dtype) != 1:
        raise fail("E_TYPE", f"expected integers as an index, got {i._dtype}", "cast it: `i.astype(ts.i32)`")
    i = p.cast(i, "i64")
    return p.select(p.ew("lt", i, 0), p.ew("add", i, extent), i)


class _Plan:
    """An index taken apart: a strided slice, then positions along some axes, then new axes."""

    def __init__(self, x: Tracer, index: Any) -> None:
        self.start, self.limit, self.stride, self.flip = [], [], [], []
        self.arrays: list[tuple[int, Any]] = []
        self.layout: list[Any] = []  # for each axis of the result before reordering: "new", "drop", axis
        axis = 0
        for item in _expanded(x, index):
            if item is None:
                self.layout.append("new")
                continue
            n = x.shape[axis]
            if isinstance(item, slice):
                for bound in (item.start, item.stop, item.step):
                    if isinstance(bound, Tracer):
                        raise fail("E_DYNAMIC_EXTENT", "expected bounds of a slice that are known while tracing",
                                   "use `ts.dynamic_slice(x, at, extent)`")  # fmt: skip
                if (open_ := bounds(item, n)) is not None:
                    self._add(*open_)
                    if item.step is not None and item.step < 0:
                        self.flip.append(axis)
                    self.layout.append(axis)
                    axis += 1
                    continue
                first, last, step = item.indices(n)
                count = len(range(first, last, step))
                if step > 0:
                    self._add(first, first + (count - 1) * step + 1 if count else first, step)
                else:
                    low = first + (count - 1) * step if count else 0
                    self._add(low, first + 1 if count else 0, -step)
                    self.flip.append(axis)
                self.layout.append(axis)
            elif _is_index_array(item):
                self._add(0, n, 1)
                self.arrays.append((axis, item))
                self.layout.append(("array", axis))
            else:
                try:
                    at = item if isinstance(item, Dim) else int(item)
                except TypeError:
                    raise fail(
                        "E_TYPE",
                        f"expected an integer, a slice or an array as an index, got {item!r}",
                        "write an integer, `a:b`, `...`, `None` or an array of integers or bools",
                    ) from None
                if not -n <= at < n:
                    raise fail(
                        "E_SHAPE_MISMATCH",
                        f"expected an index between {-n} and {n - 1} for axis {axis}, got {at}",
                        "indices count from 0, or from -1 at the end",
                    )
                at = at + n if at < 0 else at
                self._add(at, at + 1, 1)
                self.layout.append(("drop", axis))
            axis += 1

    def _add(self, start: int, limit: int, stride: int) -> None:
        self.start.append(start)
        self.limit.append(limit)
        self.stride.append(stride)


@eager
def getitem(x: Any, index: Any) -> Any:
    """``x[index]``."""
    x = as_tracer(x)
    plan = _Plan(x, index)
    y = p.slice_(x, plan.start, plan.limit, plan.stride)
    y = p.reverse(y, plan.flip)
    if not plan.arrays:
        shape = [1 if e == "new" else y.shape[e] for e in plan.layout if not isinstance(e, tuple)]
        return p.reshape(y, shape)
    axes = [a for a, _ in plan.arrays]
    places = [_positions(i, y.shape[a]) for a, i in plan.arrays]
    lead = p.broadcast_shapes(*(i.shape for i in places))
    columns = [p.expand_dims(p.broadcast_to(i, lead), len(lead)) for i in places]
    indices = p.concat(columns, len(lead)) if len(columns) > 1 else columns[0]
    made = p.gather(y, indices, axes)
    # `made` is: the axes of the indices, then those of `y` that are left.
    rest = [a for a in range(y.ndim) if a not in axes]
    where = {a: len(lead) + k for k, a in enumerate(rest)}
    together = _adjacent(plan.layout)
    order: list[Any] = []
    placed = False
    if not together:
        order += [("lead", k) for k in range(len(lead))]
        placed = True
    for e in plan.layout:
        if isinstance(e, tuple) and e[0] == "array":
            if not placed:
                order += [("lead", k) for k in range(len(lead))]
                placed = True
        elif e == "new":
            order.append("new")
        elif isinstance(e, tuple):
            order.append(("gone", where[e[1]]))
        else:
            order.append(("axis", where[e]))
    perm = [e[1] for e in order if e != "new"]
    made = p.transpose(made, perm)
    dims = iter(made.shape)
    shape = []
    for e in order:
        if e == "new":
            shape.append(1)
            continue
        d = next(dims)
        if e[0] != "gone":
            shape.append(d)
    return p.reshape(made, shape)


def _adjacent(layout: list) -> bool:
    """Whether the arrays (and integers beside them) stand together: then their axes go where they stood."""
    marks = [isinstance(e, tuple) and e[0] == "array" for e in layout]
    first, last = marks.index(True), len(marks) - 1 - marks[::-1].index(True)
    return all(isinstance(e, tuple) for e in layout[first : last + 1])


class _At:
    """``x.at[index]`` with `set add multiply min max`: a new array with some elements changed."""

    def __init__(self, x: Any, index: Any = None) -> None:
        self._x, self._index = x, index

    def __getitem__(self, index: Any) -> _At:
        return _At(self._x, index)

    def _update(self, op: str, value: Any) -> Any:
        return _scatter(self._x, self._index, value, op)

    def set(self, value: Any) -> Any:
        return self._update("set", value)

    def add(self, value: Any) -> Any:
        return self._update("sum", value)

    def multiply(self, value: Any) -> Any:
        return self._update("prod", value)

    def min(self, value: Any) -> Any:
        return self._update("min", value)

    def max(self, value: Any) -> Any:
        return self._update("max", value)


@eager
def _scatter(x: Any, index: Any, value: Any, op: str) -> Any:
    """By the positions that reading would take: those of all elements, indexed in the same way."""
    x = as_tracer(x)
    plan = _Plan(x, index)
    value = p.cast(value, x._dtype)
    whole = not plan.arrays and not plan.flip and all(s == 1 for s in plan.stride)
    if whole and op == "set":
        shape = [b - a for a, b in zip(plan.start, plan.limit, strict=True)]
        shown = [1 if e == "new" else shape[e] for e in plan.layout if not isinstance(e, tuple)]
        part = p.reshape(p.broadcast_to(value, shown), shape)
        if tuple(shape) == x.shape:
            return part
        return p.dynamic_update_slice(x, part, plan.start)
    flat = p.iota((x.size,), 0)
    at = getitem(p.reshape(flat, x.shape), index)
    updates = p.broadcast_to(value, at.shape)
    made = p.scatter(op, p.reshape(x, [-1]), p.reshape(at, [-1, 1]), p.reshape(updates, [-1]), [0])
    return p.reshape(made, x.shape)


def at(x: Any) -> _At:
    """``at(x)[index].set(value)``."""
    return _At(x)


@eager
def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """The parts at these positions along an axis."""
    x = as_tracer(x)
    if axis is None:
        x, axis = p.reshape(x, [-1]), 0
    at = p.axis_of(axis, x.ndim)
    return getitem(x, (*[slice(None)] * at, as_tracer(indices)))


@eager
def take_along_axis(x: Any, indices: Any, axis: int = -1) -> Any:
    """For each position of ``indices`` the element of the same row along an axis."""
    x, indices = as_tracer(x), as_tracer(indices)
    at = p.axis_of(axis, x.ndim)
    lead = p.broadcast_shapes(
        *((*a.shape[:at], 1, *a.shape[at + 1 :]) for a in (x, indices)),
    )
    x = p.broadcast_to(x, [x.shape[at] if i == at else d for i, d in enumerate(lead)])
    indices = p.broadcast_to(indices, [indices.shape[at] if i == at else d for i, d in enumerate(lead)])
    order = [i for i in range(x.ndim) if i != at] + [at]
    back = [order.index(i) for i in range(x.ndim)]
    xs, ix = p.transpose(x, order), _positions(p.transpose(indices, order), x.shape[at])
    made = p.gather(xs, p.expand_dims(ix, ix.ndim), [x.ndim - 1], x.ndim - 1)
    return p.transpose(made, back)


@eager
def put_along_axis(x: Any, indices: Any, values: Any, axis: int = -1, op: str = "set") -> Any:
    """`take_along_axis` the other way: a new array with these elements changed."""
    x, indices = as_tracer(x), as_tracer(indices)
    at = p.axis_of(axis, x.ndim)
    order = [i for i in range(x.ndim) if i != at] + [at]
    back = [order.index(i) for i in range(x.ndim)]
    ix = _positions(p.transpose(indices, order), x.shape[at])
    new = p.broadcast_to(p.transpose(p.broadcast_to(p.cast(values, x._dtype), indices.shape), order), ix.shape)
    made = p.scatter(op, p.transpose(x, order), p.expand_dims(ix, ix.ndim), new, [x.ndim - 1], x.ndim - 1)
    return p.transpose(made, back)
