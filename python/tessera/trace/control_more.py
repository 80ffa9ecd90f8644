"""Control beyond `cond`, `scan` and the loops, made of them: branches by number, maps in batches, scans of associative functions in
logarithmic depth; and what a function would give without running it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import xp
from ..base.dtypes import DType, dtype as as_dtype
from ..transforms.derivatives import _unwrap, vjp, vmap
from ..tree import pytree
from . import prim as p
from .control import cond, scan
from .jit import _name, _names, eager
from .tracer import Tracer, as_tracer, aval, fail, is_array, one, tracing


@eager
def switch(index: Any, branches: Any, *operands: Any) -> Any:
    """``branches[index](*operands)``, one of them computed; an index outside is clamped."""
    branches = list(branches)
    if not branches:
        raise fail("E_ARGUMENT", "switch: expected at least one branch", "give a list of functions")
    if isinstance(index, int):
        return branches[min(max(index, 0), len(branches) - 1)](*operands)
    at = as_tracer(index)
    if at.shape != () or not _whole(at._dtype):
        raise fail("E_TYPE", f"switch: expected `index` to be one integer, got {at!r}", "cast it: `i.astype(ts.i32)`")

    def choose(low: int, high: int) -> Callable:
        if high - low == 1:
            return branches[low]
        middle = (low + high) // 2
        return lambda *given: cond(p.ew("lt", at, middle), choose(low, middle), choose(middle, high), *given)

    return choose(0, len(branches))(*operands)


def _whole(dtype: str) -> bool:
    from ..base.promotion import kind

    return kind(dtype) == 1


def map(f: Callable, xs: Any, *, batch_size: int | None = None) -> Any:  # noqa: A001
    """``f`` of each part of ``xs`` along the first axis, one after the other, or ``batch_size`` at once, and the results joined."""
    return _map(f, xs, batch_size)


@eager
def _map(f: Callable, xs: Any, batch_size: int | None) -> Any:
    xs = pytree.map(as_tracer, xs)
    leaves = pytree.leaves(xs)
    if not leaves or any(not v.shape for v in leaves):
        raise fail("E_SHAPE_MISMATCH", "map: expected arrays with a first axis", "give arrays with one part for each call")
    n = leaves[0].shape[0]
    if batch_size is None or isinstance(n, int) and n == 0:
        return scan(lambda c, x: (c, f(x)), (), xs)[1]
    if batch_size < 1:
        raise fail("E_ARGUMENT", f"map: expected `batch_size` of 1 or more, got {batch_size}", "leave it out for one at a time")
    whole, rest = divmod(n, batch_size)

    def part(a: int, b: int) -> Any:
        return pytree.map(lambda v: p.slice_(v, [a] + [0] * (v.ndim - 1), [b, *v.shape[1:]], [1] * v.ndim), xs)

    made = []
    if whole:
        first = pytree.map(lambda v: p.reshape(v, [whole, batch_size, *v.shape[1:]]), part(0, whole * batch_size))
        rows = scan(lambda c, x: (c, vmap(f)(x)), (), first)[1]
        made.append(pytree.map(lambda v: p.reshape(v, [whole * batch_size, *v.shape[2:]]), rows))
    if rest:
        made.append(vmap(f)(part(whole * batch_size, n)))
    return made[0] if len(made) == 1 else pytree.map(lambda *v: p.concat(list(v), 0), *made)


@eager
def associative_scan(fn: Callable, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """``fn`` of all elements up to each, along an axis, for an associative function of two trees of arrays: in twice the logarithm
    of the extent many steps, each of whole arrays."""
    leaves, form = pytree.flatten(elems)
    arrays = [as_tracer(v) for v in leaves]
    if not arrays:
        return elems
    at = p.axis_of(axis, arrays[0].ndim)
    if len({v.shape[at] for v in arrays}) > 1:
        raise fail("E_SHAPE_MISMATCH", f"associative_scan: expected one extent along axis {axis}", "give arrays of one length")
    arrays = [p.reverse(v, [at]) for v in arrays] if reverse else arrays

    def join(a: list, b: list) -> list:
        made, got = pytree.flatten(fn(pytree.unflatten(form, a), pytree.unflatten(form, b)))
        if got != form:
            raise fail("E_ARGUMENT", f"associative_scan: expected a value of the form {form}, got {got}", "return a tree like the arguments")
        return [p.cast(v, x._dtype) for v, x in zip(made, arrays, strict=True)]

    out = _prefixes(join, arrays, at)
    return pytree.unflatten(form, [p.reverse(v, [at]) for v in out] if reverse else out)


def _strided(values: list, axis: int, start: int, stop: int, step: int = 1) -> list:
    out = []
    for v in values:
        low, high, by = [0] * v.ndim, list(v.shape), [1] * v.ndim
        low[axis], high[axis], by[axis] = start, max(stop, start), step
        out.append(p.slice_(v, low, high, by))
    return out


def _prefixes(join: Callable, values: list, axis: int) -> list:
    """Pairs are joined and scanned, which gives the odd places; the even ones are one join further."""
    n = values[0].shape[axis]
    if n < 2:
        return values
    pairs = join(_strided(values, axis, 0, n - 1, 2), _strided(values, axis, 1, n, 2))
    odd = _prefixes(join, pairs, axis)
    count = odd[0].shape[axis]
    first = _strided(values, axis, 0, 1)
    even = first
    if n > 2:
        later = join(_strided(odd, axis, 0, count if n % 2 else count - 1), _strided(values, axis, 2, n, 2))
        even = [p.concat([a, b], axis) for a, b in zip(first, later, strict=True)]
    return [_woven(a, b, axis) for a, b in zip(even, odd, strict=True)]


def _woven(even: Tracer, odd: Tracer, axis: int) -> Tracer:
    """Elements of two arrays in turn; the first may have one more."""
    n, k = even.shape[axis], odd.shape[axis]
    hi = [0] * odd.ndim
    hi[axis] = n - k
    pair = p.concat([p.expand_dims(even, axis + 1), p.expand_dims(p.pad(odd, [0] * odd.ndim, hi) if n > k else odd, axis + 1)], axis + 1)
    shape = list(even.shape)
    shape[axis] = 2 * n
    flat = p.reshape(pair, shape)
    return _strided([flat], axis, 0, n + k)[0]


class ShapeDtypeStruct:
    """The shape and dtype of an array without elements: what `eval_shape` gives, and takes."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.shape: tuple = tuple(shape)
        self.dtype: DType = as_dtype(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, str(self.dtype)) == (other.shape, str(other.dtype))

    def __hash__(self) -> int:
        return hash((self.shape, str(self.dtype)))


def eval_shape(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of what ``fn`` gives for arguments of these shapes and dtypes; nothing runs. Arguments may be arrays or
    `ShapeDtypeStruct`."""
    fn = _unwrap(fn)
    leaves, form = pytree.flatten((args, kwargs))
    names = _names(fn, args, kwargs)
    with tracing(_name(fn)) as frame:
        given = []
        for leaf, name in zip(leaves, names, strict=True):
            if isinstance(leaf, ShapeDtypeStruct):
                given.append(frame.param(name, leaf.shape, str(leaf.dtype)))
            else:
                given.append(frame.param(name, *aval(leaf)) if is_array(leaf) else leaf)
        inner_args, inner_kwargs = pytree.unflatten(form, given)
        out, out_form = pytree.flatten(fn(*inner_args, **inner_kwargs))
        types = [aval(as_tracer(v)) for v in out]
    return pytree.unflatten(out_form, [ShapeDtypeStruct(s, "f32" if w and d == "f64" else d) for s, d, w in types])


def linearize(fn: Callable, *primals: Any) -> tuple:
    """``(y, push)``: the result, and the derivative at ``primals`` as a function of tangents. What it needs of ``fn`` is computed once."""
    y, pull = vjp(fn, *primals)
    y_leaves, y_form = pytree.flatten(y)
    _, form = pytree.flatten(tuple(primals))
    # The transpose of the pullback: linear in the cotangent, so that its own pullback needs no point.
    start = [ShapeDtypeStruct(aval(v)[0], aval(v)[1]) for v in y_leaves]

    def push(*tangents: Any) -> Any:
        given, got = pytree.flatten(tuple(tangents))
        if got != form:
            raise fail("E_ARGUMENT", f"linearize: expected tangents of the form {form}, got {got}", "give one for each argument")
        zeros = [xp.zeros(s.shape, dtype=s.dtype) for s in start]
        _, back = vjp(lambda *cts: pytree.leaves(pull(pytree.unflatten(y_form, list(cts)))), *zeros)
        return pytree.unflatten(y_form, pytree.leaves(back(given)))

    return y, push


_FOLDS = ("sum", "max", "min", "prod")


@eager
def reduce_window(operand: Any, init_value: Any, computation: Any, window_dimensions: Any, window_strides: Any = None,
                  padding: Any = "VALID", base_dilation: Any = None, window_dilation: Any = None) -> Any:  # fmt: skip
    """A reduction of each window that moves over all axes. ``computation`` is ``"sum"``, ``"max"``, ``"min"``, ``"prod"``, or the function
    of `xp` of two values; ``padding`` is ``"VALID"``, ``"SAME"`` or ``(before, after)`` for each axis; elements that it adds do not
    count, ``init_value`` counts once in each window."""
    x = as_tracer(operand)
    op = _fold_of(computation)
    sizes = _per_axis(window_dimensions, x.ndim, "window_dimensions")
    strides = _per_axis(1 if window_strides is None else window_strides, x.ndim, "window_strides")
    spread = _per_axis(1 if window_dilation is None else window_dilation, x.ndim, "window_dilation")
    holes = _per_axis(1 if base_dilation is None else base_dilation, x.ndim, "base_dilation")
    extents = [(d - 1) * h + 1 if d else 0 for d, h in zip(x.shape, holes, strict=True)]
    reach = [(s - 1) * w + 1 for s, w in zip(sizes, spread, strict=True)]
    if isinstance(padding, str):
        if padding.upper() not in ("VALID", "SAME"):
            raise fail("E_ARGUMENT", f'reduce_window: expected `padding` to be "VALID", "SAME" or pairs, got {padding!r}', "write such as `[(0, 0), (1, 1)]`")
        wanted = [max((-(-n // s) - 1) * s + r - n, 0) if padding.upper() == "SAME" else 0 for n, s, r in zip(extents, strides, reach, strict=True)]
        pairs = [(w // 2, w - w // 2) for w in wanted]
    else:
        pairs = [(int(a), int(b)) for a, b in padding]
    lo, hi = [a for a, _ in pairs], [b for _, b in pairs]
    plain = isinstance(init_value, (int, float)) and _is_identity(op, init_value, x._dtype)
    if any(h > 1 for h in holes) or any(v < 0 for v in (*lo, *hi)):
        # The window's own padding stands around only.
        x = p.pad(x, lo, hi, [h - 1 for h in holes], value=_start(op, x._dtype))
        lo, hi = [0] * x.ndim, [0] * x.ndim
    attrs = {"op": op, "window": sizes, "strides": strides, "dilate": spread, "lo": lo, "hi": hi}
    made = one("window_reduce", [x], attrs)
    if plain:
        return made
    return p.ew({"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[op], made, p.cast(init_value, x._dtype))


def _start(op: str, dtype: str) -> Any:
    from ..xp._statistics import _highest, _lowest

    return {"sum": 0, "prod": 1, "max": _lowest(dtype), "min": _highest(dtype)}[op]


def _is_identity(op: str, value: Any, dtype: str) -> bool:
    return bool(value == _start(op, dtype))


def _fold_of(computation: Any) -> str:
    known = {xp.add: "sum", xp.multiply: "prod", xp.maximum: "max", xp.minimum: "min"}
    found = computation if isinstance(computation, str) else known.get(computation)
    found = {"add": "sum", "mul": "prod", "multiply": "prod", "maximum": "max", "minimum": "min"}.get(found, found)  # type: ignore[arg-type]
    if found not in _FOLDS:
        raise fail(
            "E_UNSUPPORTED",
            f"reduce_window: expected a sum, product, maximum or minimum, got {getattr(computation, '__name__', computation)!r}",
            'write `"sum"`, `"max"`, `"min"` or `"prod"`, or `xp.add`, `xp.maximum`, `xp.minimum` or `xp.multiply`',
        )
    return found


def _per_axis(value: Any, rank: int, name: str) -> list[int]:
    out = [value] * rank if isinstance(value, int) else [int(v) for v in value]
    if len(out) != rank:
        raise fail("E_SHAPE_MISMATCH", f"reduce_window: expected {rank} numbers in `{name}`, got {len(out)}", "give one for each axis")
    return out
