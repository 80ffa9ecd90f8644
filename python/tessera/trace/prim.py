"""The primitives of Graph IR on tracers: axes may be negative, operands are broadcast and promoted."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from .._core import real_functions
from ..base.dtypes import dtype as as_dtype
from ..base.promotion import Weak, is_float, kind, promote_pair
from .dims import Dim
from .operands import check
from .saved_values import saveable
from .tracer import Tracer, as_tracer, aval, emit, fail, known, one, splat

#: Integers are converted to floats first.
_FLOAT_ONLY = {"div", "sqrt", "recip", *(name for name, _, _ in real_functions())}
_COMPARE = {"eq", "ne", "lt", "le", "gt", "ge"}


def name_of(dtype: Any) -> str:
    if type(dtype) is Weak:
        return dtype
    return str(as_dtype(float if dtype is float else dtype))


def cast(x: Any, dtype: Any) -> Tracer:
    """Converts; nothing is added where the dtype is the same."""
    wanted = name_of(dtype)
    if not isinstance(x, Tracer) and isinstance(x, (bool, int, float)):
        return splat(x, (), wanted)
    x = as_tracer(x)
    weak = type(wanted) is Weak
    if x._dtype == wanted:
        return x if not x._weak or weak else Tracer(x._frame, x._value, x.shape, x._dtype, False, x._place)
    return one("cast", [x], results=[(list(x.shape), wanted)], weak=weak)


def broadcast_shapes(*shapes: tuple) -> tuple:
    """The shape that arrays of these shapes are stretched to."""
    rank = max((len(s) for s in shapes), default=0)
    out = []
    for axis in range(rank):
        dims = {s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0} - {1}
        if len(dims) > 1:
            shown = " and ".join(show(s) for s in shapes)
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected shapes that agree from the last axis on, got {shown}",
                "axes must be equal or 1; insert axes with `x[:, None]` or change the order with `.transpose`",
            )
        out.append(dims.pop() if dims else 1)
    return tuple(out)


def show(shape: Sequence) -> str:
    return f"[{', '.join(map(str, shape))}]"


def broadcast_to(x: Any, shape: Sequence) -> Tracer:
    x = as_tracer(x)
    shape = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    known(*shape)
    if x.shape == shape:
        return x
    lead = len(shape) - x.ndim
    if lead < 0 or any(d not in (1, s) for d, s in zip(x.shape, shape[lead:], strict=True)):
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected a shape that stretches to {show(shape)}, got {show(x.shape)}",
            "axes must be equal or 1: insert axes with `x[:, None]`",
        )
    dims = list(range(lead, len(shape)))
    return one("broadcast", [x], {"dims": dims}, results=[(list(shape), x._dtype)], weak=x._weak)


def together(*values: Any, floats: bool = False) -> tuple[list[Tracer], bool]:
    """Values in one shape and dtype, and whether they all are weak."""
    types = [aval(v) for v in values]
    dtype, weak = types[0][1], types[0][2]
    for _, other, other_weak in types[1:]:
        dtype, weak = promote_pair((dtype, weak), (other, other_weak))
    if floats and not is_float(dtype):
        dtype = "f64" if weak else "f32"
    shape = broadcast_shapes(*(t[0] for t in types))
    return [broadcast_to(cast_weak(v, dtype, weak), shape) for v in values], weak


def cast_weak(x: Any, dtype: str, weak: bool) -> Tracer:
    if not isinstance(x, Tracer) and isinstance(x, (bool, int, float)):
        return splat(x, (), dtype, weak)
    x = as_tracer(x)
    return x if x._dtype == dtype else one("cast", [x], results=[(list(x.shape), dtype)], weak=weak)


def ew(fn: str, *values: Any) -> Tracer:
    """A scalar function of each element."""
    operands, weak = together(*values, floats=fn in _FLOAT_ONLY)
    check(fn, operands[0]._dtype)
    return one(fn, operands, weak=weak and fn not in _COMPARE)


def select(cond: Any, a: Any, b: Any) -> Tracer:
    (a, b), weak = together(a, b)
    cond = cast(cond, "bool")
    shape = broadcast_shapes(cond.shape, a.shape)
    if cond.shape != ():
        cond = broadcast_to(cond, shape)
    return one("select", [cond, broadcast_to(a, shape), broadcast_to(b, shape)], weak=weak)


def axis_of(axis: int, rank: int, what: str = "axis") -> int:
    if not isinstance(axis, int):
        axis = _index(axis, what)
    if not -rank <= axis < rank:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected `{what}` between {-rank} and {rank - 1}, got {axis}",
            "axes count from 0, or from -1 at the end",
        )
    return axis % rank


def _index(axis: Any, what: str) -> int:
    """An axis that NumPy counted; nothing else is one."""
    if not isinstance(axis, Tracer) and (not hasattr(axis, "ndim") or axis.ndim == 0):
        try:
            return operator.index(axis)
        except TypeError:
            pass
    got = f"an array of shape {show(axis.shape)}" if hasattr(axis, "shape") else repr(axis)
    raise fail("E_TYPE", f"expected `{what}` to be an integer that is known while tracing, got {got}",
               "arrays to be joined go into one list: `xp.concat([a, b], axis=0)`" if hasattr(axis, "shape") else f"write such as `{what}=0`")  # fmt: skip


def axes_of(axis: Any, rank: int) -> list[int]:
    """Axes as a sorted list; ``None`` is all."""
    if axis is None:
        return list(range(rank))
    given = list(axis) if isinstance(axis, (list, tuple)) else [axis]
    out = sorted(axis_of(a, rank) for a in given)
    if len(set(out)) != len(out):
        raise fail("E_ARGUMENT", f"expected each axis once, got {tuple(given)}", "leave out the repeated axis")
    return out


def reshape(x: Any, shape: Any) -> Tracer:
    x = as_tracer(x)
    dims = list(shape) if isinstance(shape, (list, tuple)) else [shape]
    known(*dims)
    if -1 in dims:
        rest = math.prod(d for d in dims if d != -1)
        if dims.count(-1) > 1 or (x.size % rest if rest else x.size):
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected a shape of {x.size} elements, got {show(x.shape)} to {show(dims)}",
                "a reshape keeps the number of elements; `-1` stands for what is left",
            )
        dims[dims.index(-1)] = x.size // rest if rest else 0
    if tuple(dims) == x.shape:
        return x
    if math.prod(dims) != x.size:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected a shape of {x.size} elements, got {show(x.shape)} to {show(dims)} with {math.prod(dims)}",
            "a reshape keeps the number of elements; `-1` stands for what is left",
        )
    return one("reshape", [x], results=[(dims, x._dtype)], weak=x._weak)


def transpose(x: Any, perm: Sequence[int] | None = None) -> Tracer:
    x = as_tracer(x)
    order = list(range(x.ndim))[::-1] if perm is None else [axis_of(a, x.ndim) for a in perm]
    if order == list(range(x.ndim)):
        return x
    return one("transpose", [x], {"perm": order})


def expand_dims(x: Any, axis: Any) -> Tracer:
    x = as_tracer(x)
    axes = list(axis) if isinstance(axis, (list, tuple)) else [axis]
    rank = x.ndim + len(axes)
    at = {axis_of(a, rank) for a in axes}
    rest = iter(x.shape)
    return reshape(x, [1 if i in at else next(rest) for i in range(rank)])


def slice_(x: Tracer, start: list, limit: list, stride: list) -> Tracer:
    if all(s == 0 for s in start) and tuple(limit) == x.shape and all(s == 1 for s in stride):
        return x
    return one("slice", [x], {"start": start, "limit": limit, "stride": stride})


def pad(x: Any, lo: list, hi: list, interior: list | None = None, value: Any = 0) -> Tracer:
    x = as_tracer(x)
    value = cast(value, x._dtype)
    return one("pad", [x, value], {"lo": lo, "hi": hi, "interior": interior or [0] * x.ndim})


def concat(parts: Sequence[Any], axis: int) -> Tracer:
    if not parts:
        raise fail("E_ARGUMENT", "expected at least one array", "give one or more arrays in a list")
    types = [aval(p) for p in parts]
    dtype, weak = types[0][1], types[0][2]
    for _, d, w in types[1:]:
        dtype, weak = promote_pair((dtype, weak), (d, w))
    made = [cast_weak(p, dtype, weak) for p in parts]
    if not made[0].ndim:
        raise fail("E_SHAPE_MISMATCH", "concat: expected arrays with axes, got a number", "join numbers with `xp.stack`")
    at = axis_of(axis, made[0].ndim)
    for i, v in enumerate(made[1:], 1):
        if v.ndim != made[0].ndim or any(d != e for k, (d, e) in enumerate(zip(v.shape, made[0].shape, strict=True)) if k != at):
            raise fail("E_SHAPE_MISMATCH",
                       f"concat: expected shapes that differ along axis {at} only, got {show(made[0].shape)} and, for array {i}, {show(v.shape)}",
                       "insert axes with `x[None]` or `x[:, None]`" if v.ndim != made[0].ndim else "choose another `axis`, or make the other axes equal")  # fmt: skip
    return one("concat", [], {"axis": at}, groups={"values": made})


def stack(parts: Sequence[Any], axis: int = 0) -> Tracer:
    """Arrays of one shape, joined along a new axis."""
    made = [as_tracer(a) for a in parts]
    shapes = {a.shape for a in made}
    if len(shapes) != 1:
        shown = " and ".join(show(s) for s in sorted(shapes))
        raise fail("E_SHAPE_MISMATCH", f"expected arrays of one shape, got {shown}", "broadcast or reshape them first")
    at = axis_of(axis, made[0].ndim + 1)
    return concat([expand_dims(a, at) for a in made], at)


def reverse(x: Tracer, axes: list[int]) -> Tracer:
    return one("reverse", [x], {"axes": axes}) if axes else x


def reduce(op: str, x: Any, axis: Any = None, keepdims: bool = False) -> Tracer:
    x = as_tracer(x)
    axes = axes_of(axis, x.ndim)
    made = one("reduce", [x], {"op": op, "axes": axes}, weak=x._weak) if axes else x
    return reshape(made, [1 if i in axes else d for i, d in enumerate(x.shape)]) if keepdims else made


def argreduce(op: str, x: Any, axis: int | None, keepdims: bool = False) -> Tracer:
    x = as_tracer(x)
    if axis is None:
        made = one("argreduce", [reshape(x, [-1])], {"op": op, "axis": 0})
        return reshape(made, [1] * x.ndim) if keepdims else made
    at = axis_of(axis, x.ndim)
    made = one("argreduce", [x], {"op": op, "axis": at})
    return expand_dims(made, at) if keepdims else made


def scan(op: str, x: Any, axis: int, exclusive: bool = False, reverse: bool = False) -> Tracer:
    x = as_tracer(x)
    return one("scan", [x], {"op": op, "axis": axis_of(axis, x.ndim), "exclusive": exclusive, "reverse": reverse})


def sort(values: list[Tracer], axis: int, descending: bool = False, keys: int = 1) -> list[Tracer]:
    attrs = {"axis": axis_of(axis, values[0].ndim), "descending": descending, "keys": keys}
    return emit("sort", [], attrs, groups={"values": values})


def zeros_like(x: Any) -> Tracer:
    """Zeros of the shape and dtype of a value."""
    shape, dtype, _ = aval(x)
    return splat(0, shape, dtype)


def iota(shape: Sequence[int], axis: int, dtype: Any = "i64") -> Tracer:
    return one("iota", [], {"axis": axis}, results=[(list(shape), name_of(dtype))])


def gather(x: Tracer, indices: Tracer, axes: list[int], batch: int = 0, oob: str = "clamp", other: Any = None) -> Tracer:
    groups = {"other": [cast(other, x._dtype)]} if other is not None else None
    return one("gather", [x, indices], {"axes": axes, "batch": batch, "oob": oob}, groups=groups)


def scatter(op: str, x: Tracer, indices: Tracer, updates: Tracer, axes: list[int], batch: int = 0, oob: str = "drop") -> Tracer:
    return one("scatter", [x, indices, updates], {"op": op, "axes": axes, "batch": batch, "oob": oob})


def dynamic_slice(x: Any, at: Sequence[Any], extent: Sequence[int]) -> Tracer:
    x = as_tracer(x)
    starts = [cast(a, "i64") for a in at]
    return one("dynamic_slice", [x], {"extent": list(extent)}, groups={"at": starts})


def dynamic_update_slice(x: Any, update: Any, at: Sequence[Any]) -> Tracer:
    x = as_tracer(x)
    starts = [cast(a, "i64") for a in at]
    return one("dynamic_update_slice", [x, cast(update, x._dtype)], groups={"at": starts})


def dot(a: Any, b: Any, contract: tuple, batch: tuple = ((), ()), out: Any = None, accum: Any = None) -> Tracer:
    (da, wa), (db, wb) = aval(a)[1:], aval(b)[1:]
    dtype, _ = promote_pair((da, wa), (db, wb))
    if kind(dtype) == 0:
        # Whether any product holds, as in NumPy and JAX: of bools there are sums in no dtype of theirs.
        made = dot(cast(a, "i32"), cast(b, "i32"), contract, batch, out, accum)
        return made if out is not None else ew("ne", made, 0)
    attrs = {
        "batch_a": list(batch[0]), "batch_b": list(batch[1]), "contract_a": list(contract[0]), "contract_b": list(contract[1]),
        "out": None if out is None else name_of(out), "accum": None if accum is None else name_of(accum),
    }  # fmt: skip
    return saveable(one("dot", [cast(a, dtype), cast(b, dtype)], attrs), "dots")
