"""Arguments of the functions beyond the array API: what NumPy takes as an array, and shapes that values decide."""

from __future__ import annotations

from typing import Any

import numpy

from ..base.promotion import is_float, kind, promote_pair
from ..trace import prim as p
from ..trace.tracer import Tracer, as_tracer, fail, is_array, to_numpy


def arr(x: Any) -> Tracer:
    """An array, a number, or nested lists of them; Python's floats in lists are f32."""
    if isinstance(x, (list, tuple)):
        if not any(is_array(v) and not isinstance(v, (bool, int, float)) for v in _leaves(x)):
            made = numpy.asarray(x)
            return as_tracer(made.astype(numpy.float32) if made.dtype == numpy.float64 else made)
        return _stacked(x)
    return as_tracer(x)


def _leaves(x: Any) -> Any:
    for v in x:
        if isinstance(v, (list, tuple)):
            yield from _leaves(v)
        else:
            yield v


def _stacked(x: Any) -> Tracer:
    parts = [_stacked(v) if isinstance(v, (list, tuple)) else as_tracer(v) for v in x]
    return p.concat([p.expand_dims(v, 0) for v in parts], 0)


def floats(x: Any) -> Tracer:
    """As `arr`, with integers and bools converted to f32."""
    x = arr(x)
    return x if is_float(x._dtype) else p.cast(x, "f32")


def whole(x: Any, name: str) -> Tracer:
    """As `arr`, of integers."""
    x = arr(x)
    if kind(x._dtype) != 1:
        raise fail("E_TYPE", f"{name}: expected integers, got {x._dtype}", "convert it with `.astype(ts.i64)`")
    return x


def flat(x: Any) -> Tracer:
    return p.reshape(arr(x), [-1])


def truth(x: Any) -> Tracer:
    x = arr(x)
    return x if x._dtype == "bool" else p.ew("ne", x, 0)


def known(x: Any, name: str, parameter: str) -> numpy.ndarray:
    """The values of an array that a shape depends on; traced arrays are refused."""
    if isinstance(x, Tracer):
        raise fail(
            "E_DYNAMIC_EXTENT",
            f"{name}: expected `{parameter}=` in a traced function: the shape of the result depends on values",
            f"write `{parameter}=` with the largest extent that you expect",
        )
    return to_numpy(x)


def extent(value: Any, name: str, parameter: str) -> int:
    """An extent that Python knows."""
    if isinstance(value, Tracer):
        raise fail(
            "E_DYNAMIC_EXTENT",
            f"{name}: expected `{parameter}` to be known while tracing, got {value!r}",
            "write a Python int, or name the argument in `static_argnums`",
        )
    return int(value)


def promoted(a: Any, b: Any) -> tuple[list[Tracer], bool]:
    """Two arrays, converted to their promoted dtype."""
    a, b = arr(a), arr(b)
    dtype, weak = promote_pair((a._dtype, a._weak), (b._dtype, b._weak))
    return [p.cast_weak(a, dtype, weak), p.cast_weak(b, dtype, weak)], weak
