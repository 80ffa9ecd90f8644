"""Scans of associative functions in logarithmic depth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.caller import fail
from ..tree import pytree
from . import prim as p
from .jit import eager
from .tracer import Tracer, as_tracer


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
