"""Order statistics without sorting: the bits of the element are found one after another, by counting how many elements are below.

An element of f32 takes 32 such counts, each one pass over the array that runs in vectors; sorting a row takes many more."""

from __future__ import annotations

from typing import Any

from ..trace import prim as p
from ..trace.control import fori_loop
from ..trace.tracer import Tracer, one
from . import _index as ix

#: Integers of the width of floats.
_BITS = {"f64": ("i64", 64), "f32": ("i32", 32), "f16": ("i16", 16), "bf16": ("i16", 16)}
#: Shorter rows are sorted, and so are rows of which more elements are requested.
_SHORT, _MANY = 16, 8


def selects(x: Tracer, count: int) -> bool:
    """Whether this many elements of each row are selected, rather than taken from the sorted row."""
    n = x.shape[-1]
    return x._dtype in _BITS and isinstance(n, int) and n >= _SHORT and 0 < count <= _MANY


def _keys(x: Tracer) -> tuple[Tracer, int]:
    """Integers in the order of the elements, NaN last, and how many bits they have."""
    dtype, bits = _BITS[x._dtype]
    held = one("stop_gradient", [x])
    raw = p.cast(one("bitcast", [held], results=[(list(x.shape), dtype)]), "i64" if bits == 64 else "i32")
    # Negative floats grow downwards.
    return p.select(p.ew("lt", raw, 0), p.ew("xor", raw, (1 << bits - 1) - 1), raw), bits


def pair(x: Tracer, low: Tracer, high: Tracer) -> tuple[Tracer, Tracer]:
    """The elements of each row (the last axis) of these ranks, of which ``high`` is ``low`` or the next; ranks are [...] of i64."""
    keys, bits = _keys(x)
    at = keys.ndim - 1
    first, last = (p.reduce(op, keys, -1) for op in ("min", "max"))

    def halve(_: Any, bounds: tuple) -> tuple:
        a, b = bounds
        # Between the two, without overflow.
        middle = p.ew("add", p.ew("and", a, b), p.ew("shr", p.ew("xor", a, b), 1))
        enough = p.ew("gt", _count(p.ew("le", keys, p.expand_dims(middle, at))), low)
        return p.select(enough, a, p.ew("add", middle, 1)), p.select(enough, middle, b)

    found, _ = fori_loop(0, bits, halve, (first, last))
    above = p.ew("gt", keys, p.expand_dims(found, at))
    follows = p.reduce("min", p.select(above, keys, p.expand_dims(last, at)), -1)
    inside = p.ew("gt", _count(p.ew("not", above)), high)
    return _element(x, keys, found, low), _element(x, keys, p.select(inside, found, follows), high)


def _count(mask: Tracer) -> Tracer:
    return p.cast(p.reduce("sum", p.cast(mask, "i32"), -1), "i64")


def _element(x: Tracer, keys: Tracer, key: Tracer, rank: Tracer) -> Tracer:
    """The element with this key and rank, among equal ones in their order: it has the derivative that the sorted row would have."""
    key = p.expand_dims(key, keys.ndim - 1)
    same = p.ew("eq", keys, key)
    nth = p.ew("sub", rank, _count(p.ew("lt", keys, key)))
    seen = p.scan("sum", p.cast(same, "i32"), -1)
    hit = p.ew("and", same, p.ew("gt", p.cast(seen, "i64"), p.expand_dims(nth, keys.ndim - 1)))
    place = p.argreduce("max", p.cast(hit, "i32"), -1)
    taken = ix.take_along_axis(x, p.expand_dims(place, keys.ndim - 1), -1, "promise_in_bounds")
    return p.reshape(taken, place.shape)
