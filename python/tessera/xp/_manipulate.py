"""The same elements in other shapes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy

from ..trace import prim as p
from ..trace.dims import Dim
from ..trace.jit import eager
from ..trace.tracer import Tracer, as_tracer, aval, fail, is_array, known, to_numpy
from ._index import take
from ._reduce import searchsorted


@eager
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    """Converts the elements."""
    return p.cast(x, dtype)


@eager
def reshape(x: Any, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    """The same elements in row-major order under another shape, or by columns with ``order="F"``; one extent may be -1."""
    if order not in ("C", "F", "A"):
        raise fail("E_ARGUMENT", f'reshape: expected `order` to be "C" or "F", got {order!r}', 'leave it out for "C"')
    if order == "F":
        shape = list(shape) if isinstance(shape, (list, tuple)) else [shape]
        return p.transpose(p.reshape(p.transpose(x), shape[::-1]))
    return p.reshape(x, shape)


@eager
def permute_dims(x: Any, axes: Sequence[int] | None = None) -> Any:
    """Result axis ``i`` is axis ``axes[i]``; in reverse order by default."""
    return p.transpose(x, axes)


@eager
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Two axes exchanged."""
    x = as_tracer(x)
    order = list(range(x.ndim))
    a, b = p.axis_of(axis1, x.ndim), p.axis_of(axis2, x.ndim)
    order[a], order[b] = order[b], order[a]
    return p.transpose(x, order)


@eager
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """Axes moved to other places."""
    x = as_tracer(x)
    src = [p.axis_of(a, x.ndim) for a in ([source] if isinstance(source, int) else source)]
    dst = [p.axis_of(a, x.ndim) for a in ([destination] if isinstance(destination, int) else destination)]
    order = [a for a in range(x.ndim) if a not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return p.transpose(x, order)


@eager
def expand_dims(x: Any, axis: Any = 0) -> Any:
    """New axes of extent 1."""
    return p.expand_dims(x, axis)


@eager
def squeeze(x: Any, axis: Any = None) -> Any:
    """Axes of extent 1 removed."""
    x = as_tracer(x)
    axes = [i for i, d in enumerate(x.shape) if d == 1] if axis is None else p.axes_of(axis, x.ndim)
    for a in axes:
        if x.shape[a] != 1:
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected axis {a} to have extent 1, got {p.show(x.shape)}",
                "only axes of extent 1 can be removed: index the others",
            )
    return p.reshape(x, [d for i, d in enumerate(x.shape) if i not in axes])


@eager
def broadcast_to(x: Any, shape: Sequence[int]) -> Any:
    """Broadcast to a shape."""
    return p.broadcast_to(x, shape)


@eager
def broadcast_arrays(*arrays: Any) -> list:
    """Broadcast to one shape."""
    lists = [as_tracer(a) for a in arrays]
    shape = p.broadcast_shapes(*(a.shape for a in lists))
    return [p.broadcast_to(a, shape) for a in lists]


def _listed(arrays: Any, name: str, dtype: Any = None) -> list:
    """The arrays to be joined: a list, or one array, whose parts along the first axis they are."""
    if is_array(arrays):
        if not aval(arrays)[0]:
            raise fail("E_TYPE", f"{name}: expected a list of arrays, got a number", f"write `xp.{name}([a, b])`")
        arrays = as_tracer(arrays)
    elif isinstance(arrays, (dict, set, str)) or not hasattr(arrays, "__iter__"):
        raise fail("E_TYPE", f"{name}: expected a list of arrays, got {type(arrays).__name__}", f"write `xp.{name}([a, b])`")
    made = [as_tracer(a) for a in arrays]
    if not made:
        raise fail("E_ARGUMENT", f"{name}: expected at least one array, got none", "give one or more arrays in a list")
    return made if dtype is None else [p.cast(a, dtype) for a in made]


@eager
def concat(arrays: Sequence[Any], axis: int | None = 0, *, dtype: Any = None) -> Any:
    """Joined along an axis; ``None`` joins them flat."""
    made = _listed(arrays, "concat", dtype)
    return p.concat([p.reshape(a, [-1]) for a in made], 0) if axis is None else p.concat(made, axis)


@eager
def stack(arrays: Sequence[Any], axis: int = 0, *, dtype: Any = None) -> Any:
    """Joined along a new axis."""
    return p.stack(_listed(arrays, "stack", dtype), axis)


@eager
def unstack(x: Any, /, *, axis: int = 0) -> tuple:
    """The parts along an axis."""
    x = as_tracer(x)
    at = p.axis_of(axis, x.ndim)
    return tuple(squeeze(part, at) for part in split(x, x.shape[at], at)) if x.shape[at] else ()


@eager
def split(x: Any, parts: int | Sequence[int], axis: int = 0) -> list:
    """Even parts by their number, or parts that begin at positions."""
    x = as_tracer(x)
    at = p.axis_of(axis, x.ndim)
    n = x.shape[at]
    if isinstance(parts, int):
        if n % parts:
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected {parts} parts to divide axis {at} of {p.show(x.shape)}",
                "give the places to split at: `xp.split(x, [3, 5])`",
            )
        bounds = list(range(0, n + 1, n // parts)) if n else [0] * (parts + 1)
    else:
        bounds = [0, *parts, n]
    out = []
    for a, b in zip(bounds, bounds[1:], strict=False):
        start, limit = [0] * x.ndim, list(x.shape)
        start[at], limit[at] = a, b
        out.append(p.slice_(x, start, limit, [1] * x.ndim))
    return out


@eager
def flip(x: Any, axis: Any = None) -> Any:
    """Elements in the other order along axes."""
    x = as_tracer(x)
    return p.reverse(x, p.axes_of(axis, x.ndim))


@eager
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """Elements shifted along axes, wrapping around."""
    x = as_tracer(x)
    if axis is None:
        return p.reshape(roll(p.reshape(x, [-1]), shift, 0), x.shape)
    pairs = [(shift, axis)] if isinstance(axis, int) else list(zip(
        [shift] * len(axis) if is_array(shift) and not aval(shift)[0] else list(shift), axis, strict=True))  # fmt: skip
    for by, at in pairs:
        at = p.axis_of(at, x.ndim)
        n = x.shape[at]
        if isinstance(by, Tracer):
            places = p.ew("mod", p.ew("sub", p.iota((n,), 0, "i64"), p.cast(by, "i64")), n)
            x = p.gather(p.transpose(x, [at, *(k for k in range(x.ndim) if k != at)]), p.expand_dims(places, 1), [0])
            x = p.transpose(x, [*range(1, at + 1), 0, *range(at + 1, x.ndim)])
        elif n and by % n:
            head, tail = split(x, [n - by % n], at)
            x = p.concat([tail, head], at)
    return x


@eager
def tile(x: Any, repetitions: Sequence[int]) -> Any:
    """The whole repeated along each axis."""
    x = as_tracer(x)
    reps = list(repetitions) if isinstance(repetitions, (list, tuple)) else [repetitions]
    known(*reps)
    rank = max(len(reps), x.ndim)
    reps = [1] * (rank - len(reps)) + reps
    shape = [1] * (rank - x.ndim) + list(x.shape)
    inner = p.reshape(x, [v for d in shape for v in (1, d)])
    wide = p.broadcast_to(inner, [v for r, d in zip(reps, shape, strict=True) for v in (r, d)])
    return p.reshape(wide, [r * d for r, d in zip(reps, shape, strict=True)])


def repeat(x: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None) -> Any:
    """Each element repeated along an axis: one number of times, or a number for each. Where the numbers are traced,
    ``total_repeat_length`` says how many there are in all: more are left out, fewer are filled with the last element."""
    if isinstance(repeats, (int, Dim)) and total_repeat_length is None:
        return _repeat(x, repeats, axis)
    shape = aval(x)[0]
    n = math.prod(shape) if axis is None else shape[p.axis_of(axis, len(shape))]
    if isinstance(repeats, Tracer):
        if total_repeat_length is None:
            raise fail(
                "E_DYNAMIC_EXTENT",
                "expected `total_repeat_length` with traced numbers of repetitions: how many elements there will be is not known while tracing",
                "write such as `xp.repeat(x, repeats, total_repeat_length=8)`, or make `repeats` a constant of NumPy",
            )
        return _repeat_traced(x, repeats, axis, total_repeat_length)
    counts = numpy.asarray(to_numpy(repeats) if is_array(repeats) else repeats)
    if counts.dtype.kind not in "iu" and counts.size:
        raise fail("E_TYPE", f"expected `repeats` to be integers, got {counts.dtype}", "cast them: `repeats.astype(ts.i32)`")
    if counts.ndim > 1 or counts.size not in (1, n):
        raise fail("E_SHAPE_MISMATCH", f"expected one number of repetitions, or one for each of {n}, got {p.show(counts.shape)}",
                   "give a vector as long as the axis")  # fmt: skip
    if (counts < 0).any():
        raise fail("E_ARGUMENT", f"expected numbers of repetitions of at least 0, got {counts.min()}", "leave elements out with 0")
    places = numpy.repeat(numpy.arange(n), counts.astype(numpy.int64).reshape(-1) if counts.size != 1 else int(counts.reshape(-1)[0]))
    if total_repeat_length is not None:
        more = max(total_repeat_length - len(places), 0)
        places = numpy.concatenate([places, numpy.full(more, places[-1] if len(places) else 0)])[:total_repeat_length]
    return _placed(x, places, axis)


@eager
def _repeat(x: Any, repeats: int, axis: int | None) -> Any:
    x = as_tracer(x)
    if axis is None:
        x, axis = p.reshape(x, [-1]), 0
    at = p.axis_of(axis, x.ndim)
    wide = p.broadcast_to(p.expand_dims(x, at + 1), [*x.shape[: at + 1], repeats, *x.shape[at + 1 :]])
    return p.reshape(wide, [d * repeats if i == at else d for i, d in enumerate(x.shape)])


def _pairs(given: Any, rank: int, what: str) -> list[tuple]:
    """One number, a pair, or a pair for each axis, as NumPy reads them: a pair for each axis."""
    if not isinstance(given, (tuple, list, numpy.ndarray)):
        return [(given, given)] * rank
    items = list(given)
    if not any(isinstance(v, (tuple, list, numpy.ndarray)) for v in items):
        items = [items]
    pairs = [tuple(v) * 2 if len(v) == 1 else tuple(v) for v in items]
    pairs = pairs * rank if len(pairs) == 1 else pairs
    if len(pairs) != rank or any(len(v) != 2 for v in pairs):
        raise fail("E_SHAPE_MISMATCH", f"pad: expected `{what}` to be a number, (before, after), or that for each of {rank} axes, "
                   f"got {given!r}", "write a pair for each axis: `[(0, 0), (1, 2)]`")  # fmt: skip
    return pairs


def _along(x: Tracer, axis: int, order: numpy.ndarray) -> Tracer:
    """The elements at these positions along an axis, as runs: up, down, or one element again and again."""
    parts, at = [], 0
    while at < len(order):
        step = int(order[at + 1] - order[at]) if at + 1 < len(order) else 1
        end = at + 1
        while end < len(order) and order[end] - order[end - 1] == step and step in (-1, 0, 1):
            end += 1
        first, last = sorted((int(order[at]), int(order[end - 1])))
        run = p.slice_(x, [first if i == axis else 0 for i in range(x.ndim)],
                       [last + 1 if i == axis else d for i, d in enumerate(x.shape)], [1] * x.ndim)  # fmt: skip
        if step == 0:
            run = p.broadcast_to(run, [end - at if i == axis else d for i, d in enumerate(x.shape)])
        parts.append(p.reverse(run, [axis]) if step == -1 and end > at + 1 else run)
        at = end
    return p.concat(parts, axis) if len(parts) > 1 else parts[0]


_MODES = ("constant", "edge", "reflect", "symmetric", "wrap", "empty")


@eager
def _placed(x: Any, places: Any, axis: int | None) -> Any:
    return take(x, places, axis, mode="promise_in_bounds")


@eager
def _repeat_traced(x: Any, repeats: Any, axis: int | None, total: int) -> Any:
    x = as_tracer(x)
    if axis is None:
        x, axis = p.reshape(x, [-1]), 0
    n = x.shape[p.axis_of(axis, x.ndim)]
    ends = p.scan("sum", p.broadcast_to(p.cast(repeats, "i64"), [n]), 0)
    # Element i is at the places from the end of the one before to its own.
    places = searchsorted(ends, p.iota((total,), 0), side="right")
    # Beyond the last place that counts: the last element that is there at all.
    last = searchsorted(ends, p.slice_(ends, [n - 1], [n], [1]), side="left")
    return _placed(x, p.ew("minimum", places, last), axis)


@eager
def pad(x: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    """Padding: one number, (before, after), or a pair for each axis. The new elements are ``constant_values``, or with
    ``mode`` taken from ``x``: ``"edge"``, ``"reflect"``, ``"symmetric"`` or ``"wrap"``."""
    x = as_tracer(x)
    if mode not in _MODES:
        raise fail("E_ARGUMENT", f"pad: expected `mode` to be one of {', '.join(_MODES)}, got {mode!r}", 'leave it out for "constant"')
    widths = _pairs(pad_width, x.ndim, "pad_width")
    if mode in ("constant", "empty"):
        if not isinstance(constant_values, (tuple, list, numpy.ndarray)):
            return p.pad(x, [a for a, _ in widths], [b for _, b in widths], value=constant_values)
        for axis, (width, pair) in enumerate(zip(widths, _pairs(constant_values, x.ndim, "constant_values"), strict=True)):
            for side in (0, 1):
                around = [[w if i == axis and side == s else 0 for i in range(x.ndim)] for s, w in enumerate(width)]
                x = p.pad(x, *around, value=pair[side])
        return x
    for axis, (before, after) in enumerate(widths):
        n = x.shape[axis]
        if isinstance(n, Dim):
            raise fail("E_DYNAMIC_EXTENT", f'pad: expected a known extent along axis {axis} for mode "{mode}", got {n}',
                       'use mode "constant", or `roll` and `concatenate`')  # fmt: skip
        if not n and (before or after):
            raise fail("E_SHAPE_MISMATCH", f'pad: expected elements along axis {axis} for mode "{mode}", got none', 'use mode "constant"')
        if before or after:
            x = _along(x, axis, numpy.pad(numpy.arange(n), (before, after), mode=mode))
    return x
