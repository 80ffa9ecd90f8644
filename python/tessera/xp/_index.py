"""Indexing: slices, new axes, integers, arrays of integers and masks, as in NumPy. Positions below zero count from the end.

A Python integer must be in bounds. An array of positions is not known while tracing: where one is out of bounds, reading takes the
nearest element (``mode="clip"``) or a fill value (``mode="fill"``), and writing skips it (``mode="drop"``) or goes to the nearest
element (``mode="clip"``). ``mode="promise_in_bounds"`` promises that this does not happen."""

from __future__ import annotations

import math
from typing import Any

import numpy

from ..base.promotion import kind
from ..trace import prim as p
from ..trace.control import fori_loop
from ..trace.dims import Dim, bounds
from ..trace.jit import eager, run_once
from ..trace.tracer import Tracer, as_tracer, aval, current, fail, is_array, to_numpy
from ..tree import pytree
from . import _elementwise

#: What happens to positions outside, by what a user may write.
_READS = {"clip": "clamp", "promise_in_bounds": "clamp", "fill": "fill", "drop": "fill"}
_WRITES = {"clip": "clamp", "promise_in_bounds": "drop", "fill": "drop", "drop": "drop"}


def _outside(mode: Any, known: dict[str, str], default: str) -> str:
    if mode is None:
        return known[default]
    if mode not in known:
        raise fail(
            "E_ARGUMENT",
            f"expected `mode` to say what happens outside ({', '.join(known)}), got {mode!r}",
            f"leave it out for {default!r}",
        )
    return known[mode]


def _fill_of(dtype: str) -> Any:
    """The default fill value: NaN, the least signed or the greatest unsigned integer, or true."""
    if kind(dtype) == 2:
        return float("nan")
    if dtype == "bool":
        return True
    bits = int(dtype[1:])
    return (1 << bits) - 1 if dtype.startswith("u") else -(1 << bits - 1)


def _known_mask(i: Any) -> numpy.ndarray | None:
    """A mask whose elements are known while tracing."""
    if isinstance(i, (Tracer, int, slice)) or i is None or i is Ellipsis:
        return None
    if isinstance(i, list):
        try:
            i = numpy.asarray(i)
        except Exception:  # it holds traced values
            return None
    elif not (is_array(i) or pytree.is_opened(i)) or aval(i)[1] != "bool":
        return None
    array = to_numpy(i)
    return array if array.dtype == bool and array.ndim else None


def _truth(i: Any) -> bool | None:
    """A single bool that is known while tracing: a mask without axes."""
    if isinstance(i, (bool, numpy.bool_)):
        return bool(i)
    if isinstance(i, (Tracer, int, slice, list)) or i is None or i is Ellipsis or not is_array(i):
        return None
    shape, dtype, _ = aval(i)
    return bool(to_numpy(i)) if dtype == "bool" and not shape else None


def _without_truths(items: list) -> list:
    """Replaces single bools: one selects all of the array, along a new axis, or nothing of it."""
    truths = [_truth(i) for i in items]
    if all(t is None for t in truths):
        return items
    if False in truths or truths.count(True) > 1 or any(t is None and _is_index_array(i) for i, t in zip(items, truths, strict=True)):
        raise fail("E_UNSUPPORTED", "expected positions, slices or a mask, got a single truth",
                   "`x[True]` is `x[None]`; for nothing write `xp.zeros((0, *x.shape), x.dtype)`, for a choice `xp.where(truth, x, other)`")  # fmt: skip
    return [None if t else i for i, t in zip(items, truths, strict=True)]


def _unmasked(index: Any, shape: tuple) -> Any:
    """The index with the positions of known masks in their places."""
    items = list(index) if isinstance(index, tuple) else [index]
    whole = _without_truths(items)
    if whole is not items:
        items, index = whole, tuple(whole)
    masks = [_known_mask(i) for i in items]
    if all(m is None for m in masks):
        return index
    used = sum(m.ndim if m is not None else i is not None and i is not Ellipsis for i, m in zip(items, masks, strict=True))
    out: list = []
    axis = 0
    for i, m in zip(items, masks, strict=True):
        if m is None:
            out.append(i)
            axis += len(shape) - used if i is Ellipsis else i is not None
            continue
        have = tuple(shape[axis : axis + m.ndim])
        if have != m.shape:
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected a mask of the shape of the axes it is for, {p.show(have)}, got {p.show(m.shape)}",
                "a mask has one truth for each element of its axes",
            )
        out += list(m.nonzero())
        axis += m.ndim
    return tuple(out)


def _is_index_array(i: Any) -> bool:
    return isinstance(i, (Tracer, numpy.ndarray, list)) or (is_array(i) and not isinstance(i, (bool, int, numpy.integer)))


def _expanded(x: Tracer, index: Any) -> list:
    """One entry for each axis, and None for new ones."""
    items = [list(i) if isinstance(i, tuple) else i for i in index] if isinstance(index, tuple) else [index]
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


#: Integers of which all values are i32.
_SHORT = ("i8", "i16", "i32", "u8", "u16")


def _positions(i: Any, extent: Any) -> Tracer:
    """Positions, those below zero counted from the end: as i32 where they are given in 32 bits and the
    array is small enough, which halves the bytes to read and write; else as i64."""
    i = _integers(i)
    if i._dtype == "u64":
        # Those beyond i64 are outside any array, and none is below zero.
        return p.cast(p.ew("minimum", i, 2**63 - 1), "i64")
    i = p.cast(i, "i32" if i._dtype in _SHORT and isinstance(extent, int) and extent < 2**31 else "i64")
    return p.select(p.ew("lt", i, 0), p.ew("add", i, extent), i)


def _integers(i: Any) -> Tracer:
    """What is given as positions: integers."""
    if isinstance(i, numpy.ndarray) and i.dtype == bool or aval(numpy.asarray(i) if isinstance(i, list) else i)[1] == "bool":
        raise fail(
            "E_DYNAMIC_EXTENT",
            "expected positions, got a mask: how many elements it selects is not known while tracing",
            "write `xp.where(mask, x, other)`, or make the mask a constant of NumPy",
        )
    if isinstance(i, list) and not numpy.size(i):
        i = numpy.zeros(numpy.shape(i), numpy.int64)  # of no numbers NumPy makes floats
    i = as_tracer(i)
    if kind(i._dtype) != 1:
        raise fail("E_TYPE", f"expected integers as an index, got {i._dtype}", "cast it: `i.astype(ts.i32)`")
    return i


class _Plan:
    """An index taken apart: a strided slice, then positions along some axes, then new axes."""

    def __init__(self, x: Tracer, index: Any, lenient: bool = False) -> None:
        """With ``lenient`` known integers may be outside: they are positions like others."""
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
                    if lenient:
                        self._add(0, n, 1)
                        self.arrays.append((axis, numpy.asarray(at)))
                        self.layout.append(("array", axis))
                        axis += 1
                        continue
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


def getitem(x: Any, index: Any, mode: str | None = None, fill_value: Any = None) -> Any:
    """``x[index]``. Where arrays of positions reach outside: the nearest element, or with ``mode="fill"`` the ``fill_value``
    (NaN, the least integer, the greatest unsigned one)."""
    return _getitem(x, _unmasked(index, aval(x)[0]), mode, fill_value)


@eager
def _getitem(x: Any, index: Any, mode: str | None = None, fill_value: Any = None) -> Any:
    x = as_tracer(x)
    outside = _outside(mode, _READS, "clip")
    plan = _Plan(x, index, lenient=mode is not None)
    y = p.slice_(x, plan.start, plan.limit, plan.stride)
    y = p.reverse(y, plan.flip)
    if not plan.arrays:
        shape = [1 if e == "new" else y.shape[e] for e in plan.layout if not isinstance(e, tuple)]
        return p.reshape(y, shape)
    other = None
    if outside == "fill":
        other = _fill_of(x._dtype) if fill_value is None else fill_value
    axes = [a for a, _ in plan.arrays]
    indices, lead = _columns(plan, y)
    made = p.gather(y, indices, axes, oob=outside, other=other)
    order = _order(plan, y.ndim, len(lead))
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


def _columns(plan: _Plan, x: Tracer) -> tuple[Tracer, tuple]:
    """The positions along the indexed axes, stacked along a last axis, and the shape that they all have."""
    places = [_positions(i, x.shape[a]) for a, i in plan.arrays]
    if len({i._dtype for i in places}) > 1:
        places = [p.cast(i, "i64") for i in places]
    lead = p.broadcast_shapes(*(i.shape for i in places))
    columns = [p.expand_dims(p.broadcast_to(i, lead), len(lead)) for i in places]
    return p.concat(columns, len(lead)) if len(columns) > 1 else columns[0], lead


def _order(plan: _Plan, rank: int, lead: int) -> list:
    """Where the axes of the result come from among those that are gathered: those of the indices, then the ones that are left."""
    axes = [a for a, _ in plan.arrays]
    rest = [a for a in range(rank) if a not in axes]
    where = {a: lead + k for k, a in enumerate(rest)}
    order: list[Any] = []
    placed = not _adjacent(plan.layout)
    if placed:
        order += [("lead", k) for k in range(lead)]
    for e in plan.layout:
        if isinstance(e, tuple) and e[0] == "array":
            if not placed:
                order += [("lead", k) for k in range(lead)]
                placed = True
        elif e == "new":
            order.append("new")
        elif isinstance(e, tuple):
            order.append(("gone", where[e[1]]))
        else:
            order.append(("axis", where[e]))
    return order


def _adjacent(layout: list) -> bool:
    """Whether the indices that are arrays or integers are adjacent: then the axes of the arrays take their place. An integer is an array
    without axes, as in NumPy: the axes of ``i`` in ``x[0, :, i]`` go first."""
    marks = [isinstance(e, tuple) for e in layout]
    first, last = marks.index(True), len(marks) - 1 - marks[::-1].index(True)
    return all(isinstance(e, tuple) for e in layout[first : last + 1])


class _At:
    """``x.at[index]`` with `get set add subtract multiply divide power min max apply`: the elements there, or a new array with some of
    them changed. ``mode`` says what happens where an array of positions reaches outside (see above)."""

    def __init__(self, x: Any, index: Any = None) -> None:
        self._x, self._index = x, index

    def __getitem__(self, index: Any) -> _At:
        return _At(self._x, index)

    def get(self, *, mode: str | None = None, fill_value: Any = None) -> Any:
        return getitem(self._x, self._index, mode, fill_value)

    def _update(self, op: str, value: Any, mode: str | None) -> Any:
        have, given = aval(self._x)[1], aval(numpy.asarray(value) if isinstance(value, (list, tuple)) else value)[1]
        if kind(given) > max(kind(have), 1):
            raise fail("E_TYPE", f"expected {have} for an array of {have}, got {given}: what is behind the point would be lost",
                       f"cast one of them: `value.astype(ts.{have})`, or `x.astype(ts.f32)` before")  # fmt: skip
        return _scatter(self._x, _unmasked(self._index, aval(self._x)[0]), value, op, mode)

    def set(self, value: Any, *, mode: str | None = None) -> Any:
        return self._update("set", value, mode)

    def add(self, value: Any, *, mode: str | None = None) -> Any:
        return self._update("sum", value, mode)

    def subtract(self, value: Any, *, mode: str | None = None) -> Any:
        return self._update("sum", _negative(value), mode)

    def multiply(self, value: Any, *, mode: str | None = None) -> Any:
        return self._update("prod", value, mode)

    def divide(self, value: Any, *, mode: str | None = None) -> Any:
        return self._update("prod", _reciprocal(value), mode)

    mul = multiply

    def apply(self, fn: Any, *, mode: str | None = None) -> Any:
        """A new array with ``fn`` applied to the elements there. ``fn`` is elementwise. A position that is given twice gets
        ``fn(fn(element))``, as in JAX."""
        return self._each(lambda v, _: fn(v), None, mode)

    def power(self, value: Any, *, mode: str | None = None) -> Any:
        """The elements there to the power ``value``; for a position that is given twice, to both powers in turn."""
        return self._each(_elementwise.pow, value, mode)

    def _each(self, fn: Any, value: Any, mode: str | None) -> Any:
        index = _unmasked(self._index, aval(self._x)[0])
        if not may_repeat(aval(self._x)[0], index):
            return self.set(fn(self.get(mode="clip" if mode is None else mode), value), mode=mode)
        items = list(index) if isinstance(index, tuple) else [index]
        arrays = [numpy.asarray(i) if isinstance(i, list) else i for i in items if _is_index_array(i)]

        def call(x: Any, value: Any, arrays: list) -> Any:
            given = iter(arrays)
            return _one_by_one(as_tracer(x), [next(given) if _is_index_array(i) else i for i in items], fn, value, mode)

        given = (self._x, value, arrays)
        return call(*given) if current() is not None else run_once(call, given, name="apply")

    def min(self, value: Any, *, mode: str | None = None) -> Any:
        return self._update("min", value, mode)

    def max(self, value: Any, *, mode: str | None = None) -> Any:
        return self._update("max", value, mode)


def may_repeat(shape: tuple, index: Any) -> bool:
    """Whether arrays of positions may name an element twice: known ones where they do, traced ones of more than one position."""
    items = list(index) if isinstance(index, tuple) else [index]
    arrays = [numpy.asarray(i) if isinstance(i, list) else i for i in items if _is_index_array(i)]
    lead = p.broadcast_shapes(*(tuple(aval(i)[0]) for i in arrays))
    if math.prod(lead) < 2:
        return False
    if any(isinstance(i, Tracer) for i in arrays):
        return not any(aval(i)[1] == "bool" for i in arrays)
    used = sum(i is not None and i is not Ellipsis for i in items)
    axes, axis = [], 0
    for i in items:
        if _is_index_array(i):
            axes.append(axis)
        axis += len(shape) - used if i is Ellipsis else i is not None
    rows = [numpy.broadcast_to(to_numpy(i), lead).reshape(-1) % max(shape[a], 1) for i, a in zip(arrays, axes, strict=True)]
    return len({*zip(*(r.tolist() for r in rows), strict=True)}) < math.prod(lead)


def _one_by_one(x: Tracer, items: list, fn: Any, value: Any, mode: str | None) -> Tracer:
    """Applies ``fn`` to the element at each position, one position after another."""
    plan = _Plan(x, tuple(items), lenient=mode is not None)
    lead = p.broadcast_shapes(*(tuple(aval(i)[0]) for _, i in plan.arrays))
    count = math.prod(lead)
    rows = iter([p.reshape(p.broadcast_to(_integers(i), lead), [count]) for i in items if _is_index_array(i)])
    items = [next(rows) if _is_index_array(i) else i for i in items]
    values = None
    if value is not None and aval(value)[0]:
        # The axes of the positions come first.
        shape = _getitem(x, tuple(items), mode).shape
        first = next(k for k, e in enumerate(plan.layout) if isinstance(e, tuple) and e[0] == "array")
        before = sum(not isinstance(e, tuple) for e in plan.layout[:first]) if _adjacent(plan.layout) else 0
        full = p.broadcast_to(value, (*shape[:before], *lead, *shape[before + 1 :]))
        own = list(range(before, before + len(lead)))
        full = p.transpose(full, [*own, *(a for a in range(full.ndim) if a not in own)])
        values = p.reshape(full, [count, *full.shape[len(lead) :]])

    def step(k: Any, held: Any) -> Any:
        place = _At(held, tuple(_getitem(i, (k,)) if isinstance(i, Tracer) else i for i in items))
        return place.set(fn(place.get(mode="clip" if mode is None else mode), value if values is None else _getitem(values, (k,))), mode=mode)

    return fori_loop(0, count, step, x)


_negative = eager(lambda v: p.ew("neg", v))
_reciprocal = eager(lambda v: p.ew("recip", v))
_JOIN = {"sum": "add", "prod": "mul", "min": "minimum", "max": "maximum"}


def _masked(x: Tracer, index: Any, value: Tracer, op: str) -> Tracer | None:
    """One number for all elements that a traced mask chooses."""
    mask = index[0] if isinstance(index, tuple) and len(index) == 1 else index
    if not isinstance(mask, Tracer) or mask._dtype != "bool" or not mask.shape or value.shape:
        return None
    if mask.shape != x.shape[: mask.ndim]:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected a mask of the shape of the axes it is for, {p.show(x.shape[: mask.ndim])}, got {p.show(mask.shape)}",
            "a mask has one truth for each element of its axes",
        )
    chosen = p.reshape(mask, [*mask.shape, *[1] * (x.ndim - mask.ndim)])
    return p.select(chosen, value if op == "set" else p.ew(_JOIN[op], x, value), x)


def _boxed(x: Tracer, plan: _Plan, value: Tracer, op: str) -> Tracer:
    """Updates a box: slices and integers that are known while tracing need no gather or scatter."""
    sides = list(zip(plan.start, plan.limit, plan.stride, strict=True))
    shape = [len(range(*side)) for side in sides]
    shown = [1 if e == "new" else shape[e] for e in plan.layout if not isinstance(e, tuple)]
    part = p.reverse(p.reshape(p.broadcast_to(value, shown), shape), plan.flip)
    if op != "set":
        part = p.ew(_JOIN[op], p.slice_(x, plan.start, plan.limit, plan.stride), part)
    if not part.size:
        return x
    if any(step > 1 for *_, step in sides):
        # The elements between are those of `x`.
        inside = None
        for axis, (start, limit, step) in enumerate(sides):
            at = p.iota(x.shape, axis)
            tests = [p.ew("ge", at, start)] * (start > 0) + [p.ew("lt", at, limit)] * (limit < x.shape[axis])
            tests += [p.ew("eq", p.ew("mod", at, step), start % step)] * (step > 1)
            for test in tests:
                inside = test if inside is None else p.ew("and", inside, test)
        last = [start + (n - 1) * step for (start, _, step), n in zip(sides, shape, strict=True)]
        high = [n - 1 - at for n, at in zip(x.shape, last, strict=True)]
        return p.select(inside, p.pad(part, plan.start, high, [step - 1 for *_, step in sides]), x)
    if 2 * part.size < x.size:
        return p.dynamic_update_slice(x, part, plan.start)
    # Most of the array is new: it is written once, together with the elements around the box.
    start, limit = list(plan.start), list(plan.limit)
    for axis in reversed(range(x.ndim)):
        begin, end, start[axis], limit[axis] = start[axis], limit[axis], 0, x.shape[axis]
        before = p.slice_(x, start, [*limit[:axis], begin, *limit[axis + 1 :]], [1] * x.ndim)
        behind = p.slice_(x, [*start[:axis], end, *start[axis + 1 :]], limit, [1] * x.ndim)
        around = [v for v in (before, part, behind) if v.size]
        part = p.concat(around, axis) if len(around) > 1 else part
    return part


@eager
def _scatter(x: Any, index: Any, value: Any, op: str, mode: str | None = None) -> Any:
    """Scatters to the positions that reading would gather: the positions of all elements, indexed in the same way."""
    x = as_tracer(x)
    outside = _outside(mode, _WRITES, "drop")
    value = p.cast(value, x._dtype)
    if (chosen := _masked(x, index, value, op)) is not None:
        return chosen
    plan = _Plan(x, index, lenient=mode is not None)
    if not plan.arrays and not any(isinstance(n, Dim) for n in (*plan.start, *plan.limit, *x.shape)):
        return _boxed(x, plan, value, op)
    whole = not plan.arrays and not plan.flip and all(s == 1 for s in plan.stride)
    if whole and op == "set":
        shape = [b - a for a, b in zip(plan.start, plan.limit, strict=True)]
        shown = [1 if e == "new" else shape[e] for e in plan.layout if not isinstance(e, tuple)]
        part = p.reshape(p.broadcast_to(value, shown), shape)
        if tuple(shape) == x.shape:
            return part
        return p.dynamic_update_slice(x, part, plan.start)
    uncut = not plan.flip and tuple(plan.limit) == x.shape and all(s == 0 for s in plan.start) and all(s == 1 for s in plan.stride)
    if plan.arrays and uncut and not any(e == "new" or isinstance(e, tuple) and e[0] == "drop" for e in plan.layout):
        indices, lead = _columns(plan, x)
        perm = [e[1] for e in _order(plan, x.ndim, len(lead))]
        rest = [n for a, n in enumerate(x.shape) if a not in [b for b, _ in plan.arrays]]
        shape = [(*lead, *rest)[k] for k in perm]
        updates = p.transpose(p.broadcast_to(value, shape), [perm.index(k) for k in range(len(perm))])
        return p.scatter(op, x, indices, updates, [a for a, _ in plan.arrays], oob=outside)
    flat = p.reshape(p.iota((x.size,), 0), x.shape)
    # A position outside an axis becomes one outside the whole array.
    at = _getitem(flat, index, "clip") if outside == "clamp" else _getitem(flat, index, "fill", x.size)
    updates = p.broadcast_to(value, at.shape)
    made = p.scatter(op, p.reshape(x, [-1]), p.reshape(at, [-1, 1]), p.reshape(updates, [-1]), [0])
    return p.reshape(made, x.shape)


def at(x: Any) -> _At:
    """``at(x)[index].set(value)``."""
    return _At(x)


def _taken(indices: Any, n: Any, mode: str | None) -> tuple[Tracer, str]:
    """Positions along an axis of ``n`` as the functions that take them mean them, and what happens outside."""
    if mode not in (None, "fill", "clip", "wrap", "promise_in_bounds"):
        raise fail("E_ARGUMENT", f"expected `mode` to be fill, clip, wrap or promise_in_bounds, got {mode!r}", "leave it out for 'fill'")
    if mode == "wrap":
        given = _integers(indices)
        return p.cast(p.ew("mod", given if given._dtype == "u64" else p.cast(given, "i64"), n), "i64"), "clamp"
    return _positions(indices, n), "fill" if mode in (None, "fill") else "clamp"


def _filled(outside: str, dtype: str, fill_value: Any) -> Any:
    if outside != "fill":
        return None
    return _fill_of(dtype) if fill_value is None else fill_value


@eager
def take(x: Any, indices: Any, axis: int | None = None, *, mode: str | None = None, fill_value: Any = None) -> Any:
    """The parts at these positions along an axis. Positions below zero count from the end. Outside, ``mode="fill"``, the
    default, gives ``fill_value`` (NaN, the least integer, the greatest unsigned one); ``"clip"`` takes the nearest element, the
    first for positions below zero; ``"wrap"`` wraps around; ``"promise_in_bounds"`` promises that there is none."""
    x = as_tracer(x)
    if axis is None:
        x, axis = p.reshape(x, [-1]), 0
    at = p.axis_of(axis, x.ndim)
    if mode == "clip":
        # As NumPy's: nothing counts from the end.
        given = _integers(indices)
        indices = given if given._dtype == "u64" else p.ew("maximum", p.cast(given, "i64"), 0)
    ix, outside = _taken(indices, x.shape[at], mode)
    made = p.gather(x, p.expand_dims(ix, ix.ndim), [at], oob=outside, other=_filled(outside, x._dtype, fill_value))
    # The axes of the positions come first: they go where the axis was.
    lead = list(range(ix.ndim))
    rest = [i + ix.ndim for i in range(x.ndim - 1)]
    return p.transpose(made, [*rest[:at], *lead, *rest[at:]])


@eager
def take_along_axis(x: Any, indices: Any, axis: int | None = -1, mode: str | None = None, fill_value: Any = None) -> Any:
    """For each position of ``indices`` the element of the same row along an axis; of the flat array with ``axis=None``. Outside it is
    as in `take`, but positions below zero count from the end with ``"clip"`` too."""
    x, indices = as_tracer(x), as_tracer(indices)
    if axis is None:
        x, axis = p.reshape(x, [-1]), 0
    if indices.ndim != x.ndim:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected positions with the {x.ndim} axes of the array, got {p.show(indices.shape)}",
            "insert the axis that they go along: `i[:, None]`; `xp.take` is for the same positions in every row",
        )
    at = p.axis_of(axis, x.ndim)
    lead = p.broadcast_shapes(
        *((*a.shape[:at], 1, *a.shape[at + 1 :]) for a in (x, indices)),
    )
    x = p.broadcast_to(x, [x.shape[at] if i == at else d for i, d in enumerate(lead)])
    indices = p.broadcast_to(indices, [indices.shape[at] if i == at else d for i, d in enumerate(lead)])
    order = [i for i in range(x.ndim) if i != at] + [at]
    back = [order.index(i) for i in range(x.ndim)]
    ix, outside = _taken(p.transpose(indices, order), x.shape[at], mode)
    other = _filled(outside, x._dtype, fill_value)
    made = p.gather(p.transpose(x, order), p.expand_dims(ix, ix.ndim), [x.ndim - 1], x.ndim - 1, outside, other)
    return p.transpose(made, back)


@eager
def put_along_axis(x: Any, indices: Any, values: Any, axis: int = -1, op: str = "set", *, mode: str | None = None) -> Any:
    """The scatter to the gather of `take_along_axis`: a new array with these elements changed. Outside nothing is written, or with
    ``mode="clip"`` the nearest element."""
    x, indices = as_tracer(x), as_tracer(indices)
    at = p.axis_of(axis, x.ndim)
    order = [i for i in range(x.ndim) if i != at] + [at]
    back = [order.index(i) for i in range(x.ndim)]
    ix = _positions(p.transpose(indices, order), x.shape[at])
    new = p.broadcast_to(p.transpose(p.broadcast_to(p.cast(values, x._dtype), indices.shape), order), ix.shape)
    outside = _outside(mode, _WRITES, "drop")
    made = p.scatter(op, p.transpose(x, order), p.expand_dims(ix, ix.ndim), new, [x.ndim - 1], x.ndim - 1, outside)
    return p.transpose(made, back)
