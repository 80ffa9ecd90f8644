"""Reductions, scans and sorting."""

from __future__ import annotations

import math
from typing import Any

from ..base.promotion import is_float, kind
from ..trace import prim as p
from ..trace.associative_scan import associative_scan
from ..trace.control import scan
from ..trace.dims import Dim
from ..trace.jit import eager
from ..trace.tracer import as_tracer, aval, fail
from ..transforms.derivatives import stop_gradient
from . import _elementwise
from ._index import take, take_along_axis


def _count(x: Any, axis: Any) -> int:
    return math.prod(x.shape[a] for a in p.axes_of(axis, x.ndim))


def _floats(x: Any) -> Any:
    x = as_tracer(x)
    return x if is_float(x._dtype) else p.cast(x, "f32")


def _computed(x: Any) -> Any:
    """The dtype that averages are computed in: a sum of f16 may overflow f16."""
    return x if x._dtype in ("f32", "f64") else p.cast(x, "f32")


def _given(made: Any, dtype: str) -> Any:
    return made if made._dtype == dtype else p.cast(made, dtype)


def _wide(x: Any, dtype: Any) -> Any:
    """The dtype that sums and products of integers are computed in."""
    x = as_tracer(x)
    if dtype is not None:
        return p.cast(x, dtype)
    if kind(x._dtype) == 2:
        return x
    return p.cast(x, "u64" if x._dtype.startswith("u") else "i64")


_JOINED = {
    "sum": ("add", 0),
    "prod": ("mul", 1),
    "max": ("maximum", None),
    "min": ("minimum", None),
    "and": ("and", True),
    "or": ("or", False),
}


def _reduced(op: str, x: Any, axis: Any, keepdims: bool, initial: Any = None, where: Any = None) -> Any:
    """A reduction of the elements where ``where`` holds, joined with ``initial``."""
    join, neutral = _JOINED[op]
    if where is not None:
        if neutral is None and initial is None:
            raise fail("E_ARGUMENT", f"{op}: expected `initial` beside `where`: what the {op} of no elements is", "write `initial=`")
        x = as_tracer(x)
        x = p.select(_truth(where), x, p.cast(initial if neutral is None else neutral, x._dtype))
    made = p.reduce(op, x, axis, keepdims)
    return made if initial is None else p.cast(p.ew(join, made, initial), made._dtype)


def expect_elements(what: str, x: Any, axis: Any, initial: Any = None) -> None:
    """Refuses axes without elements where a reduction has no value for them."""
    shape = tuple(aval(x)[0])
    if initial is None and [a for a in p.axes_of(axis, len(shape)) if isinstance(shape[a], int) and shape[a] == 0]:
        raise fail("E_SHAPE_MISMATCH", f"xp.{what}: expected elements along the axes, got {p.show(shape)}: the {what} of none is no number",
                   "write `initial=`, which is the result for none")  # fmt: skip


@eager
def sum(x: Any, axis: Any = None, *, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """Sum along axes, of the elements where ``where`` holds, and of ``initial``. Integers are summed in 64 bits."""
    return _reduced("sum", _wide(x, dtype), axis, keepdims, initial, where)


@eager
def prod(x: Any, axis: Any = None, *, dtype: Any = None, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """Product along axes."""
    return _reduced("prod", _wide(x, dtype), axis, keepdims, initial, where)


@eager
def max(x: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """Greatest along axes and of ``initial``; NaN where there is one. Of bools: whether any holds. Without ``initial``, axes without
    elements are refused."""
    expect_elements("max", x, axis, initial)
    return _reduced("or" if aval(x)[1] == "bool" else "max", x, axis, keepdims, initial, where)


@eager
def min(x: Any, axis: Any = None, *, keepdims: bool = False, initial: Any = None, where: Any = None) -> Any:
    """Least along axes and of ``initial``; NaN where there is one. Of bools: whether all hold. Without ``initial``, axes without elements
    are refused."""
    expect_elements("min", x, axis, initial)
    return _reduced("and" if aval(x)[1] == "bool" else "min", x, axis, keepdims, initial, where)


@eager
def mean(x: Any, axis: Any = None, *, dtype: Any = None, keepdims: bool = False, where: Any = None) -> Any:
    """Average along axes, of the elements where ``where`` holds. ``dtype`` is that of the result, and what narrower numbers are cast to
    before they are added."""
    x, dtype = _averaged("mean", x, dtype)
    if where is not None:
        return _given(p.ew("div", _reduced("sum", x, axis, keepdims, None, where), _counted(where, x, axis, keepdims)), dtype)
    n = _count(x, axis)
    # Nothing over nothing is no number.
    made = p.ew("div", p.reduce("sum", x, axis, keepdims), n if isinstance(n, Dim) else float(n) if n else math.nan)
    return _given(made, dtype)


def _counted(where: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """How many elements count."""
    return p.reduce("sum", p.cast(p.broadcast_to(_truth(where), x.shape), x._dtype), axis, keepdims)


def _averaged(what: str, x: Any, dtype: Any) -> tuple:
    """The dtype that an average is computed in, and the dtype of the result."""
    if dtype is None:
        x = _floats(x)
        return _computed(x), x._dtype
    dtype = p.name_of(dtype)
    x = as_tracer(x)
    if not is_float(dtype):
        raise fail("E_TYPE", f"xp.{what}: expected `dtype` to be a float, got {dtype}", f"cast the result: `xp.{what}(x).astype(dtype)`")
    return (x if x._dtype in ("f32", "f64") and dtype != "f64" else p.cast(x, "f64" if dtype == "f64" else "f32")), dtype


@eager
def var(x: Any, axis: Any = None, *, dtype: Any = None, correction: float = 0.0, ddof: float | None = None, keepdims: bool = False,
        where: Any = None) -> Any:  # fmt: skip
    """Mean square distance from the mean, over ``n - correction``, of the elements where ``where`` holds; ``ddof`` is NumPy's name for
    ``correction``."""
    correction = correction if ddof is None else ddof
    x, dtype = _averaged("var", x, dtype)
    if where is not None:
        far = p.ew("sub", x, mean(x, axis, keepdims=True, where=where))
        n = p.ew("sub", _counted(where, x, axis, keepdims), float(correction))
        # As for no elements: nothing over nothing is no number.
        made = p.ew("div", _reduced("sum", p.ew("mul", far, far), axis, keepdims, None, where), p.select(p.ew("gt", n, 0), n, math.nan))
        return _given(made, dtype)
    n = _count(x, axis)
    if isinstance(n, Dim) and correction != int(correction):
        raise fail(
            "E_UNSUPPORTED",
            f"expected a whole `correction` for a named extent, got {correction}",
            "write `correction=0` or `correction=1`",
        )
    n = n - (int(correction) if isinstance(n, Dim) else correction)
    far = p.ew("sub", x, mean(x, axis, keepdims=True))
    made = p.ew("div", p.reduce("sum", p.ew("mul", far, far), axis, keepdims), n if isinstance(n, Dim) else float(n) if n > 0 else math.nan)
    return _given(made, dtype)


@eager
def std(x: Any, axis: Any = None, *, dtype: Any = None, correction: float = 0.0, ddof: float | None = None, keepdims: bool = False,
        where: Any = None) -> Any:  # fmt: skip
    """Square root of `var`."""
    return p.ew("sqrt", var(x, axis, dtype=dtype, correction=correction, ddof=ddof, keepdims=keepdims, where=where))


def _truth(x: Any) -> Any:
    x = as_tracer(x)
    return x if x._dtype == "bool" else p.ew("ne", x, 0)


@eager
def all(x: Any, axis: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    """Whether all hold."""
    return _reduced("and", _truth(x), axis, keepdims, None, where)


@eager
def any(x: Any, axis: Any = None, *, keepdims: bool = False, where: Any = None) -> Any:
    """Whether any holds."""
    return _reduced("or", _truth(x), axis, keepdims, None, where)


@eager
def count_nonzero(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many are not zero."""
    return p.reduce("sum", p.cast(_truth(x), "i64"), axis, keepdims)


def _ranked(x: Any) -> Any:
    x = as_tracer(x)
    return p.cast(x, "i32") if x._dtype == "bool" else x


@eager
def argmax(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the greatest is: the first of equals."""
    return p.argreduce("max", _ranked(x), axis, keepdims)


@eager
def argmin(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the least is: the first of equals."""
    return p.argreduce("min", _ranked(x), axis, keepdims)


def _scanned(op: str, x: Any, axis: int | None, dtype: Any, include_initial: bool) -> Any:
    x = _wide(x, dtype)
    if axis is None:
        if x.ndim > 1:
            raise fail(
                "E_ARGUMENT",
                f"expected `axis` for an array of {x.ndim} axes",
                "write `axis=-1`, or flatten it with `x.reshape(-1)`",
            )
        axis = 0
    at = p.axis_of(axis, x.ndim)
    out = p.scan(op, x, at)
    if include_initial:
        shape = [1 if i == at else d for i, d in enumerate(x.shape)]
        out = p.concat([p.splat(0 if op == "sum" else 1, tuple(shape), x._dtype), out], at)
    return out


@eager
def cumulative_sum(x: Any, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False) -> Any:
    """Sums up to each element."""
    return _scanned("sum", x, axis, dtype, include_initial)


@eager
def cumulative_prod(x: Any, axis: int | None = None, *, dtype: Any = None, include_initial: bool = False) -> Any:
    """Products up to each element."""
    return _scanned("prod", x, axis, dtype, include_initial)


@eager
def cumsum(x: Any, axis: int | None = None, *, dtype: Any = None) -> Any:
    """Sums up to each element along an axis; without one, of all elements in a row."""
    return _scanned("sum", p.reshape(x, (-1,)) if axis is None and len(aval(x)[0]) != 1 else x, axis, dtype, False)


@eager
def cumprod(x: Any, axis: int | None = None, *, dtype: Any = None) -> Any:
    """Products up to each element along an axis; without one, of all elements in a row."""
    return _scanned("prod", p.reshape(x, (-1,)) if axis is None and len(aval(x)[0]) != 1 else x, axis, dtype, False)


@eager
def cummax(x: Any, axis: int = 0, reverse: bool = False) -> Any:
    """The greatest up to each element along an axis, or from each on with ``reverse``; NaN from the first one on."""
    return _joined("maximum", x, axis, reverse)


@eager
def cummin(x: Any, axis: int = 0, reverse: bool = False) -> Any:
    """The least up to each element along an axis, or from each on with ``reverse``; NaN from the first one on."""
    return _joined("minimum", x, axis, reverse)


@eager
def cumlogsumexp(x: Any, axis: int = 0, reverse: bool = False) -> Any:
    """log(sum(exp(x))) of the elements up to each along an axis, or from each on with ``reverse``."""
    return _joined("logaddexp", x, axis, reverse)


def _joined(name: str, x: Any, axis: int, reverse: bool) -> Any:
    x = as_tracer(x)
    return associative_scan(getattr(_elementwise, name), _floats(x) if name == "logaddexp" else x, reverse, p.axis_of(axis, x.ndim))


@eager
def lexsort(keys: Any, axis: int = -1) -> Any:
    """The positions that put the elements in order by the last key, those that are equal by the one before it, and so on. ``keys`` are arrays
    of one shape, or one array of them along its first axis."""
    arrays = [as_tracer(k) for k in keys] if isinstance(keys, (list, tuple)) else list(as_tracer(keys))
    if not arrays or len({k.shape for k in arrays}) != 1:
        raise fail("E_SHAPE_MISMATCH", f"lexsort: expected keys of one shape, got {', '.join(p.show(k.shape) for k in arrays) or 'none'}",
                   "write `lexsort((second, first))`")  # fmt: skip
    if not arrays[0].ndim:
        return p.splat(0, (), "i64")
    at = p.axis_of(axis, arrays[0].ndim)
    return p.sort([*reversed(arrays), p.iota(arrays[0].shape, at)], at, keys=len(arrays))[-1]


def _kth(kth: Any, x: Any, axis: int | None) -> None:
    n = math.prod(aval(x)[0]) if axis is None else aval(x)[0][p.axis_of(axis, len(aval(x)[0]))]
    for k in kth if isinstance(kth, (list, tuple)) else (kth,):
        if not isinstance(k, int) or not -n <= k < n:
            raise fail("E_ARGUMENT", f"expected `kth` between {-n} and {n - 1}, got {k!r}", "it is a place along the axis")


@eager
def partition(x: Any, kth: Any, axis: int | None = -1) -> Any:
    """The element at ``kth`` is the one that sorting would put there, with no greater elements before it and no smaller ones after. The
    whole axis is sorted."""
    _kth(kth, x, axis)
    return sort(p.reshape(x, (-1,)) if axis is None else x, -1 if axis is None else axis)


@eager
def argpartition(x: Any, kth: Any, axis: int | None = -1) -> Any:
    """The positions that `partition` takes its elements from."""
    _kth(kth, x, axis)
    return argsort(p.reshape(x, (-1,)) if axis is None else x, -1 if axis is None else axis)


@eager
def sort(x: Any, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """In order along an axis, or of all elements in a row with ``None``; NaN is greatest."""
    return p.sort([as_tracer(x) if axis is not None else p.reshape(x, [-1])], -1 if axis is None else axis, descending)[0]


@eager
def argsort(x: Any, axis: int | None = -1, *, descending: bool = False, stable: bool = True) -> Any:
    """The positions that put the elements in order, along an axis or with ``None`` of all in a row."""
    x, axis = (p.reshape(x, [-1]), 0) if axis is None else (as_tracer(x), axis)
    at = p.axis_of(axis, x.ndim)
    return p.sort([x, p.iota(x.shape, at)], at, descending)[1]


#: Up to this many elements are picked one after another, each by two passes over the array; more are sorted. Passes of one function
#: are joined into kernels, so that few are written out and more are a loop.
_PASSES, _WRITTEN_OUT = 32, 8
_NUMBERS = ("f16", "bf16", "f32", "f64")


def _picked(x: Any, k: int, at: int) -> tuple:
    """`top_k` of a small ``k``: the greatest that is left and its first position, ``k`` times."""
    fixed, places, least = stop_gradient(x), p.iota(x.shape, at), -math.inf
    if kind(x._dtype) == 1:
        least = 0 if x._dtype.startswith("u") else -(1 << int(x._dtype[1:]) - 1)

    def pick(taken: Any) -> tuple:
        greatest = p.reduce("max", p.select(taken, p.splat(least, x.shape, x._dtype), fixed), at, True)
        same = p.ew("eq", fixed, greatest)
        if kind(x._dtype) == 2:
            same = p.ew("or", same, p.ew("ne", fixed, fixed))
        found = p.reduce("min", p.select(p.ew("and", same, p.ew("not", taken)), places, x.shape[at]), at, True)
        return p.ew("or", taken, p.ew("eq", places, found)), found

    taken, found = p.splat(False, x.shape, "bool"), []
    if k <= _WRITTEN_OUT:
        for _ in range(k):
            taken, place = pick(taken)
            found.append(place)
        order = p.concat(found, at) if k > 1 else found[0]
    else:
        _, each = scan(lambda taken, _: pick(taken), taken, None, length=k)
        order = p.transpose(p.reshape(each, [k, *(d for i, d in enumerate(x.shape) if i != at)]),
                            [*range(1, at + 1), 0, *range(at + 1, x.ndim)])  # fmt: skip
    return take_along_axis(x, order, at), order


@eager
def top_k(x: Any, k: int, axis: int = -1) -> tuple:
    """The greatest ``k`` along an axis, greatest first, and where they are."""
    x = as_tracer(x)
    at = p.axis_of(axis, x.ndim)
    if not 0 <= k <= x.shape[at]:
        raise fail("E_SHAPE_MISMATCH", f"expected `k` up to {x.shape[at]}, got {k}", "choose a smaller `k`")
    known = not [d for d in x.shape if isinstance(d, Dim)]
    if known and 0 < k <= _PASSES and (x._dtype in _NUMBERS or kind(x._dtype) == 1):
        return _picked(x, k, at)
    both = p.sort([x, p.iota(x.shape, at)], at, True)
    limit = [k if i == at else d for i, d in enumerate(x.shape)]
    return tuple(p.slice_(v, [0] * x.ndim, limit, [1] * x.ndim) for v in both)


@eager
def searchsorted(x1: Any, x2: Any, *, side: str = "left", sorter: Any = None) -> Any:
    """Where elements of ``x2`` go into the sorted vector ``x1``: how many of its elements come before."""
    if side not in ("left", "right"):
        raise fail("E_ARGUMENT", f'expected `side` to be "left" or "right", got {side!r}', 'leave it out for "left"')
    x1 = as_tracer(x1) if sorter is None else take(x1, sorter, 0)
    x2 = as_tracer(x2)
    if x1.ndim == 1 and not isinstance(x1.shape[0], Dim) and x1.shape[0] > _FEW:
        return _bisected(x1, x2, side)
    before = _before(x1, p.expand_dims(x2, x2.ndim), side)
    return p.reduce("sum", p.cast(before, "i64"), -1)


#: Up to this many elements are counted; more are bisected.
_FEW = 64


def _before(a: Any, b: Any, side: str) -> Any:
    """Whether sorted elements come before others; NaN is greatest."""
    out = p.ew("lt" if side == "left" else "le", a, b)
    if not is_float(aval(a)[1]) and not is_float(aval(b)[1]):
        return out
    b_nan = p.ew("isnan", _floats(b))
    if side == "right":
        return p.ew("or", out, b_nan)
    return p.ew("or", out, p.ew("and", b_nan, p.ew("not", p.ew("isnan", _floats(a)))))


def _bisected(x1: Any, x2: Any, side: str) -> Any:
    """How many come before, by bisection: one bit after another from the highest."""
    n = x1.shape[0]
    count = p.splat(0, x2.shape, "i64")
    step = 1 << (n.bit_length() - 1)
    while step:
        further = p.ew("add", count, step)
        inside = p.ew("le", further, n)
        at = p.ew("sub", p.ew("minimum", further, n), 1)
        count = p.select(p.ew("and", inside, _before(take(x1, at, 0), x2, side)), further, count)
        step //= 2
    return count
