"""Control flow inside a trace: branches and loops."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from .. import _core
from ..base.caller import here, returns
from ..base.errors import TesseraError
from ..base.promotion import kind, promote_pair
from ..tree import pytree
from . import prim as p
from .dims import Dim
from .jit import eager
from .tracer import Frame, Tracer, as_tracer, aval, current, fail, is_array, known, tracing


def _frame() -> Frame:
    frame = current()
    if frame is None:
        raise fail("E_ARGUMENT", "expected a function that is being traced", "call it under `ts.jit`")
    return frame


def _wrap(frame: Frame, made: list, weak: list[bool] | None = None) -> list[Tracer]:
    place = here()
    return [Tracer(frame, v, s, d, w, place) for (v, s, d), w in zip(made, weak or [False] * len(made), strict=True)]


def _values(frame: Frame, leaves: list) -> list[Tracer]:
    return [frame.lift(as_tracer(v)) for v in leaves]


class _Opened:
    """An op with regions; left out again where tracing its body fails."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            self.frame.builder.abandon()


def _place_of(value: Any) -> Any:
    return value._place if isinstance(value, Tracer) and value._place is not None else here()


def _flat_result(tree: Any, form: Any, types: list, what: str, name: str, by: Callable) -> list[Tracer]:
    """Leaves of a carried value that ``by`` gave, in the types they began with. ``name`` is what the user calls it."""
    leaves, got = pytree.opened(tree)
    if form is not None and got != form and pytree.closed(got) != pytree.closed(form):
        if name == "result":
            wanted, whose = "branches that give one form", "from both branches"
        else:
            wanted, whose = f"the {name} to keep its form", f"as the {name} that the body is given"
        raise _core.error(
            "E_ARGUMENT",
            f"{what}: expected {wanted}, {pytree.difference(form, got, name)}",
            f"return a tree of the same containers, keys and lengths {whose}",
            None, None, returns(by),
        )  # fmt: skip
    out = []
    for leaf, (shape, dtype, _), path in zip(leaves, types, pytree.paths(tree, name), strict=True):
        if not is_array(leaf):
            raise _core.error("E_TYPE", f"{what}: expected arrays and numbers, got {type(leaf).__name__} for {path}",
                              "carry arrays and numbers, in dicts, lists, tuples or dataclasses", None, None, returns(by))  # fmt: skip
        have = aval(leaf)
        if have[0] != shape or (have[1] != dtype and not (have[2] and kind(have[1]) <= kind(dtype))):
            shown = [f"{'f32' if w and d == 'f64' else d} of shape {list(s)}" for s, d, w in ((shape, dtype, False), have)]
            raise _core.error(
                "E_SHAPE_MISMATCH",
                f"{what}: expected {path} to be {shown[0]} in both branches, got {shown[1]} in the second" if name == "result" else
                f"{what}: expected {path} to stay {shown[0]}, got {shown[1]}",
                "cast or reshape what one of the branches returns" if name == "result" else
                f"cast or reshape what the body returns, or what it starts with: {path} keeps its dtype and shape",
                None, None, _place_of(leaf),
            )  # fmt: skip
        out.append(p.cast(leaf, dtype))
    return out


def _condition(value: Any, what: str) -> Any:
    shape = aval(value)[0]
    if shape:
        raise fail(
            "E_TYPE",
            f"{what}: expected a condition that is one value, got an array of shape {list(shape)}",
            "choose element by element with `xp.where`, or decide by `xp.any` or `xp.all` of it",
        )
    return p.cast(value, "bool")


@eager
def cond(pred: Any, true_fun: Callable, false_fun: Callable, *operands: Any) -> Any:
    """``true_fun(*operands)`` where the condition holds, else ``false_fun(*operands)``; one of the two is computed."""
    frame = _frame()
    pred = frame.lift(_condition(pred, "cond"))
    operands = pytree.map(as_tracer, operands)
    frame.builder.open("cond", [pred._value], None, None, here())
    with _Opened(frame):
        first, form = pytree.opened(true_fun(*operands))
        made = _values(frame, first)
        types = [aval(v) for v in made]
        if any(weak for _, _, weak in types):
            # Numbers of the first branch take the dtype that the second one gives.
            types = _promoted_types(types, _types_of(false_fun, operands))
            made = [p.cast_weak(v, dtype, weak) for v, (_, dtype, weak) in zip(made, types, strict=True)]
        frame.builder.next_region([v._value for v in made])
        other = _flat_result(false_fun(*operands), form, types, "cond", "result", false_fun)
        results = frame.builder.close([v._value for v in _values(frame, other)])
    return pytree.unflatten(form, _wrap(frame, results, [weak for _, _, weak in types]))


def _types_of(fn: Callable, operands: tuple) -> list:
    """Shapes, dtypes and weakness of what a function gives, without a trace of it."""
    with tracing("branch"):
        out = pytree.opened(fn(*operands))[0]
        return [aval(v) for v in out] if all(map(is_array, out)) else []


def _promoted_types(types: list, others: list) -> list:
    """The types of a branch, with weak ones promoted by those of the other branch; `_flat_result` refuses types that do not fit."""
    if len(types) != len(others):
        return types
    return [(shape, *promote_pair((dtype, weak), other[1:])) if weak and kind(other[1]) >= kind(dtype) else (shape, dtype, weak)
            for (shape, dtype, weak), other in zip(types, others, strict=True)]  # fmt: skip


@eager
def while_loop(cond_fun: Callable, body_fun: Callable, init_val: Any) -> Any:
    """``body_fun`` of the value again and again while ``cond_fun`` of it holds."""
    frame = _frame()
    leaves, form = pytree.opened(init_val)
    start = _values(frame, _begin(leaves, form, body_fun))
    types = [aval(v) for v in start]
    args = frame.builder.open("while", [], {"init": [v._value for v in start]}, None, here())
    with _Opened(frame):
        ok = _condition(cond_fun(pytree.unflatten(form, _wrap(frame, args))), "while_loop")
        args = frame.builder.next_region([frame.lift(ok)._value])
        out = _flat_result(body_fun(pytree.unflatten(form, _wrap(frame, args))), form, types, "while_loop", "value", body_fun)
        results = frame.builder.close([v._value for v in _values(frame, out)])
    return pytree.unflatten(form, _wrap(frame, results))


def _begin(leaves: list, form: Any, body: Callable) -> list:
    """Carried values as a loop begins with them. Python's numbers take the dtype that ``body`` makes of them, as in JAX; where it
    leaves that open they are f32 and i64."""
    if not any(aval(v)[2] for v in leaves if is_array(v)):
        return leaves
    with tracing("carry"):
        made = pytree.leaves(body(pytree.unflatten(form, [as_tracer(v) if is_array(v) else v for v in leaves])))
        types = [aval(v) if is_array(v) else None for v in made]
    if len(types) != len(leaves):
        return [_strong(v) for v in leaves]  # another form, which is reported below

    def one(v: Any, got: Any) -> Any:
        dtype, weak = aval(v)[1:]
        if not weak or got is None or kind(got[1]) < kind(dtype) or (got[2] and kind(got[1]) == kind(dtype)):
            return _strong(v)
        return p.cast(v, {"f64": "f32"}.get(got[1], got[1]) if got[2] else got[1])

    return [one(v, got) for v, got in zip(leaves, types, strict=True)]


def _strong(v: Any) -> Any:
    """A carried value keeps one dtype: Python's floats are f32, as arrays are."""
    shape, dtype, weak = aval(v)
    if weak:
        return p.cast(v, {"f64": "f32"}.get(dtype, dtype))
    return v


def _no_steps(xs: Any, steps: list[Tracer], length: int | None) -> Exception:
    """Why the number of steps is not known."""
    paths = pytree.paths(xs, "xs")
    if not steps and length is None:
        return fail("E_SHAPE_MISMATCH", "scan: expected arrays in `xs`, or `length`, got neither", "write `scan(f, init, None, length=n)`")
    bare = next((path for v, path in zip(steps, paths, strict=True) if not v.shape), None)
    if bare is not None:
        listed = isinstance(xs, (list, tuple))
        return fail("E_SHAPE_MISMATCH", f"scan: expected arrays with a first axis in `xs`, got one number at {bare}",
                    f"a {type(xs).__name__} is a tree of arrays that are scanned together: make it one array, `xp.asarray(xs)`" if listed else
                    "what is the same in every step is used in the function without being passed")  # fmt: skip
    extents = [f"{v.shape[0]} at {path}" for v, path in zip(steps, paths, strict=True)] + ([f"`length={length}`"] if length is not None else [])
    more = f" and {len(extents) - 4} more" if len(extents) > 4 else ""
    return fail("E_SHAPE_MISMATCH", f"scan: expected one extent for the first axis of all `xs`, got {', '.join(extents[:4])}{more}",
                "every array of `xs` has a part for each step along its first axis")  # fmt: skip


def _explain_lists(f: Callable, xs: Any) -> Callable:
    """The function of a scan over a list. It gets lists; where it fails on them, a note explains how `ts.scan` takes a list."""
    if not isinstance(xs, list):
        return f

    @functools.wraps(f)
    def call(carry: Any, x: Any) -> Any:
        try:
            return f(carry, x)
        except (TesseraError, TypeError) as error:
            if hasattr(error, "add_note"):
                error.add_note("`xs` of `ts.scan` is a list: it is a tree of arrays, each scanned along its own first axis, and the function gets a list. "
                               "To scan over its elements, make it one array: `xp.stack(xs)`.")  # fmt: skip
            raise

    return call


def _step(f: Callable, carry: Any, x: Any) -> tuple:
    got = f(carry, x)
    if not isinstance(got, tuple) or len(got) != 2:
        raise _core.error(
            "E_ARGUMENT",
            f"scan: expected the function to give (carry, y), got {f'a tuple of {len(got)}' if isinstance(got, tuple) else type(got).__name__}",
            "end the function with `return carry, y`; `None` stands for no y",
            None, None, returns(f),
        )  # fmt: skip
    return got


def _unrolled(f: Callable, init: Any, xs: Any, length: int, reverse: bool, width: int) -> tuple:
    """A scan that takes ``width`` steps in an iteration, and the steps that are left after it."""
    whole = length - length % width

    def several(carry: Any, chunk: Any) -> tuple:
        ys: list = [None] * width
        for k in range(width)[:: -1 if reverse else 1]:
            carry, ys[k] = _step(f, carry, pytree.map(lambda a, k=k: a[k], chunk))
        return carry, pytree.map(lambda *steps: p.stack(steps), *ys)

    def chunks(carry: Any) -> tuple:
        parts = pytree.map(lambda a: p.reshape(a[:whole], (whole // width, width, *a.shape[1:])), xs)
        carry, ys = scan(several, carry, parts, whole // width, reverse)
        return carry, pytree.map(lambda a: p.reshape(a, (whole, *a.shape[2:])), ys)

    def rest(carry: Any) -> tuple:
        return scan(f, carry, pytree.map(lambda a: a[whole:], xs), length - whole, reverse)

    if whole == length:
        return chunks(init)
    carry, first = (rest if reverse else chunks)(init)
    carry, last = (chunks if reverse else rest)(carry)
    low, high = (last, first) if reverse else (first, last)
    return carry, pytree.map(lambda a, b: p.concat([a, b], 0), low, high)


@eager
def scan(
    f: Callable, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1
) -> tuple:
    """``carry, y = f(carry, x)`` for each step of ``xs`` along the first axis; gives the last carry and all ``y``.

    An iteration takes ``unroll`` steps (``True``: all of them). Loops with small bodies are one kernel as they are; more steps in an
    iteration make larger code."""
    frame = _frame()
    f = _explain_lists(f, xs)
    leaves, form = pytree.opened(init)
    steps, steps_form = pytree.opened(xs)
    steps = _values(frame, steps)
    sizes = {v.shape[0] if v.shape else None for v in steps} | ({length} if length is not None else set())
    if len(sizes) != 1 or None in sizes:
        raise _no_steps(xs, steps, length)
    trip = sizes.pop()
    width = trip if unroll is True else int(unroll)
    if isinstance(trip, int) and trip and min(width, trip) > 1:
        return _unrolled(f, init, xs, trip, reverse, min(width, trip))

    def first(carry: Any) -> Any:
        # Of a row, which an array of no rows has not.
        rows = [p.splat(0, v.shape[1:], v._dtype) for v in steps]
        return _step(f, carry, pytree.unflatten(steps_form, rows))[0]

    start = _values(frame, _begin(leaves, form, first))
    types = [aval(v) for v in start]
    groups = {"init": [v._value for v in start], "xs": [v._value for v in steps]}
    args = frame.builder.open("loop", [], groups, {"trip": trip, "reverse": reverse}, here())
    with _Opened(frame):
        inner = _wrap(frame, args)
        carry = pytree.unflatten(form, inner[1 : 1 + len(start)])
        x = pytree.unflatten(steps_form, inner[1 + len(start) :])
        got = _step(f, carry, x)
        out = _flat_result(got[0], form, types, "scan", "carry", f)
        ys, ys_form = pytree.opened(got[1])
        yields = _values(frame, [*out, *(_strong(v) if is_array(v) else v for v in ys)])
        results = _wrap(frame, frame.builder.close([v._value for v in yields]))
    return pytree.unflatten(form, results[: len(start)]), pytree.unflatten(ys_form, results[len(start) :])


def _bound(v: Any, name: str) -> Any:
    """A bound of a loop: an integer, known or traced."""
    shape, dtype, _ = aval(v) if is_array(v) else ((), "", False)
    if shape or not dtype or kind(dtype) != 1:
        shown = f"{dtype}{list(shape)}" if dtype else repr(v)
        help = "take one element: `n[0]`" if shape else "cast it: `int(n)`, or `n.astype(ts.i64)` where it is traced"
        raise fail("E_TYPE", f"fori_loop: expected one integer for `{name}`, got {shown}", help)
    return v if isinstance(v, Tracer) else int(v)


@eager
def fori_loop(lower: Any, upper: Any, body_fun: Callable, init_val: Any) -> Any:
    """``value = body_fun(i, value)`` for every i from ``lower`` to ``upper``."""
    lower, upper = _bound(lower, "lower"), _bound(upper, "upper")
    if isinstance(lower, Tracer) or isinstance(upper, Tracer):
        return _fori_traced(lower, upper, body_fun, init_val)
    frame = _frame()
    leaves, form = pytree.opened(init_val)
    start = _values(frame, _begin(leaves, form, lambda value: body_fun(p.cast(lower, "i64"), value)))
    types = [aval(v) for v in start]
    args = frame.builder.open("loop", [], {"init": [v._value for v in start]}, {"trip": max(upper - lower, 0)}, here())
    with _Opened(frame):
        inner = _wrap(frame, args)
        i = inner[0] + lower if lower else inner[0]
        out = _flat_result(body_fun(i, pytree.unflatten(form, inner[1:])), form, types, "fori_loop", "value", body_fun)
        results = frame.builder.close([v._value for v in _values(frame, out)])
    return pytree.unflatten(form, _wrap(frame, results))


def _fori_traced(lower: Any, upper: Any, body_fun: Callable, init_val: Any) -> Any:
    """A loop whose number of iterations is a value of the trace."""
    frame = _frame()
    leaves, form = pytree.opened(init_val)
    first = p.cast(lower, "i64")
    start = _values(frame, [first, *_begin(leaves, form, lambda value: body_fun(first, value))])
    types = [aval(v) for v in start]
    args = frame.builder.open("while", [], {"init": [v._value for v in start]}, None, here())
    with _Opened(frame):
        more = p.ew("lt", _wrap(frame, args)[0], upper)
        args = frame.builder.next_region([frame.lift(more)._value])
        i, *inner = _wrap(frame, args)
        out = _flat_result(body_fun(i, pytree.unflatten(form, inner)), form, types[1:], "fori_loop", "value", body_fun)
        results = frame.builder.close([v._value for v in _values(frame, [p.ew("add", i, 1), *out])])
    return pytree.unflatten(form, _wrap(frame, results)[1:])


@eager
def dynamic_slice(x: Any, start_indices: Any, slice_sizes: Any) -> Any:
    """The part of these extents that begins at traced positions; negative ones count from the end. Moved back inside where it
    would leave the array."""
    shape = aval(x)[0]
    starts, sizes = _starts("dynamic_slice", start_indices, x), list(_each(slice_sizes, "slice_sizes", x))
    known(*sizes)
    for axis, (size, extent) in enumerate(zip(sizes, shape, strict=True)):
        if not isinstance(size, Dim):
            sizes[axis] = size = _size(size)
            if isinstance(extent, int) and not 0 <= size <= extent:
                raise fail("E_SHAPE_MISMATCH", f"dynamic_slice: expected a size of 0 to {extent} along axis {axis} of {p.show(shape)}, got {size}",
                           "a part is no larger than the array; `xp.pad` makes the array larger")  # fmt: skip
    return p.dynamic_slice(x, _from_the_end(x, starts), sizes)


def _size(size: Any) -> int:
    try:
        return operator.index(size)
    except TypeError:
        raise fail("E_TYPE", f"dynamic_slice: expected integers in `slice_sizes`, got {size!r}", "extents are Python's integers") from None


def _starts(what: str, given: Any, x: Any) -> Any:
    """Positions: integers, one for each axis."""
    starts = _each(given, "start_indices", x)
    for v in starts:
        shape, dtype, _ = aval(v)
        if shape or kind(dtype) != 1:
            raise fail("E_TYPE", f"{what}: expected one integer for each axis in `start_indices`, got {dtype}{list(shape)}",
                       "cast positions to integers: `i.astype(ts.i64)`" if not shape else "write a tuple of numbers: `(i, 0)`")  # fmt: skip
    return starts


def _from_the_end(x: Any, at: Any) -> list:
    def one(start: Any, extent: Any) -> Any:
        if isinstance(start, int):
            return start + extent if start < 0 else start
        start = p.cast(start, "i64")
        return p.select(p.ew("lt", start, 0), p.ew("add", start, extent), start)

    return [one(start, extent) for start, extent in zip(at, aval(x)[0])]


@eager
def dynamic_update_slice(x: Any, update: Any, start_indices: Any) -> Any:
    """A new array with the part at traced positions replaced; negative ones count from the end."""
    if is_array(update) and kind(aval(update)[1]) > max(kind(aval(x)[1]), 1):
        raise fail("E_TYPE", f"dynamic_update_slice: expected an update of {aval(x)[1]}, got {aval(update)[1]}",
                   f"what is cut off would be lost: cast one of them, `update.astype(ts.{aval(x)[1]})`")  # fmt: skip
    shape, part = aval(x)[0], aval(update)[0]
    if len(part) != len(shape) or any(isinstance(a, int) and isinstance(b, int) and a > b for a, b in zip(part, shape, strict=False)):
        raise fail("E_SHAPE_MISMATCH", f"dynamic_update_slice: expected an update of {len(shape)} axes that fits into {p.show(shape)}, got {p.show(part)}",
                   "insert axes of extent 1 with `update[None]`" if len(part) < len(shape) else "the update is no larger than the array")  # fmt: skip
    return p.dynamic_update_slice(x, update, _from_the_end(x, _starts("dynamic_update_slice", start_indices, x)))


def _each(given: Any, name: str, x: Any) -> Any:
    """One number for each axis."""
    count = len(aval(x)[0])
    if isinstance(given, (list, tuple)) and len(given) == count:
        return given
    if is_array(given) and len(aval(given)[0]) == 1 and aval(given)[0][0] == count:
        return [given[k] for k in range(count)]
    got = f"{len(given)}" if isinstance(given, (list, tuple)) else f"{given!r}"
    raise fail("E_ARGUMENT", f"expected {count} numbers in `{name}`, one for each axis, got {got}",
               f"write `{name}=({', '.join('0' for _ in range(count))}{',' if count == 1 else ''})`")  # fmt: skip


def _along(x: Any, axis: int, start: Any) -> tuple[int, list]:
    """The axis counted from the start, and positions that begin at ``start`` along it and at 0 elsewhere."""
    shape = aval(x)[0]
    place = p.axis_of(axis, len(shape))
    return place, [start if i == place else 0 for i in range(len(shape))]


@eager
def dynamic_slice_in_dim(x: Any, start_index: Any, slice_size: int, axis: int = 0) -> Any:
    """`dynamic_slice` along one axis: ``slice_size`` elements from ``start_index`` on, and all of the other axes."""
    place, at = _along(x, axis, start_index)
    extents = [slice_size if i == place else n for i, n in enumerate(aval(x)[0])]
    return p.dynamic_slice(x, _from_the_end(x, at), extents)


@eager
def dynamic_update_slice_in_dim(x: Any, update: Any, start_index: Any, axis: int) -> Any:
    """`dynamic_update_slice` along one axis: a new array with ``update`` from ``start_index`` on."""
    return dynamic_update_slice(x, update, _along(x, axis, start_index)[1])


@eager
def switch(index: Any, branches: Any, *operands: Any) -> Any:
    """``branches[index](*operands)``, one of them computed; an index outside is clamped."""
    branches = list(branches)
    if not branches:
        raise fail("E_ARGUMENT", "switch: expected at least one branch", "give a list of functions")
    if isinstance(index, int):
        return branches[min(max(index, 0), len(branches) - 1)](*operands)
    at = as_tracer(index)
    if at.shape != () or not kind(at._dtype) == 1:
        raise fail("E_TYPE", f"switch: expected `index` to be one integer, got {at!r}", "cast it: `i.astype(ts.i32)`")

    def choose(low: int, high: int) -> Callable:
        if high - low == 1:
            return branches[low]
        middle = (low + high) // 2
        return lambda *given: cond(p.ew("lt", at, middle), choose(low, middle), choose(middle, high), *given)

    return choose(0, len(branches))(*operands)
