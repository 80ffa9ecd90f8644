"""Permutations, choices and categorical draws."""

from __future__ import annotations

import math
from typing import Any

from .. import xp
from ..base.promotion import kind
from ..trace import prim as p
from ..trace.tracer import Tracer, as_tracer, aval, fail
from ._basic import counter, open_unit, unit
from ._keys import drawn, shape_of, word


def _order(key: Any, n: Any) -> Tracer:
    at = counter((n,))
    return p.sort([word(key, at, 0), word(key, at, 1), p.iota((n,), 0)], 0, keys=2)[2]


@drawn
def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """The integers below ``x`` in a random order; of an array its parts along an axis, or with ``independent`` each row along
    the axis in an order of its own."""
    if not aval(x)[0]:
        if isinstance(x, Tracer) or kind(aval(x)[1]) != 1 or int(x) < 0:
            raise fail("E_TYPE", "expected a whole number that is known while tracing, or an array",
                       "write `permutation(key, 10)`; under jit mark the argument with static_argnums")  # fmt: skip
        return _order(key, int(x))
    x = as_tracer(x)
    axis = p.axis_of(axis, x.ndim)
    if not independent:
        return xp.take(x, _order(key, x.shape[axis]), axis, mode="promise_in_bounds")
    at = counter(x.shape)
    order = p.sort([word(key, at, 0), word(key, at, 1), p.iota(x.shape, axis)], axis, keys=2)[2]
    return xp.take_along_axis(x, order, axis, "promise_in_bounds")


def shuffle(key: Any, x: Any, axis: int = 0) -> Any:
    """The parts of an array along an axis in a random order."""
    return permutation(key, x, axis)


def _gumbel(key: Any, shape: tuple) -> Tracer:
    return -xp.log(-xp.log(xp.clip(unit(key, shape, "f32"), 1e-20, 1.0 - 6e-8)))


@drawn
def categorical(key: Any, logits: Any, axis: int = -1, shape: Any = None, replace: bool = True) -> Any:
    """A class for each row, with the probabilities of ``softmax(logits)``. ``shape`` ends with that of the rows; the axes
    before it count the draws of each row, which differ with ``replace=False``."""
    x = p.cast(logits, "f32")
    axis = p.axis_of(axis, x.ndim)
    rows = tuple(d for i, d in enumerate(x.shape) if i != axis)
    shape = rows if shape is None else shape_of(shape)
    lead = shape[: len(shape) - len(rows)]
    if len(shape) < len(rows) or any(d not in (1, s) for d, s in zip(rows, shape[len(lead):], strict=True)):
        raise fail("E_SHAPE_MISMATCH", f"expected a shape that ends with that of the rows, {p.show(rows)}, got {p.show(shape)}",
                   "write `shape=(draws, *rows)`")  # fmt: skip
    if replace:
        full = (*lead, *shape[len(lead):][:axis], x.shape[axis], *shape[len(lead):][axis:])
        return xp.argmax(x + _gumbel(key, full), axis + len(lead))
    count = math.prod(lead)
    if count > x.shape[axis]:
        raise fail("E_ARGUMENT", f"expected at most {x.shape[axis]} different classes, got {count}", "draw with `replace=True`")
    last = xp.moveaxis(x + _gumbel(key, x.shape), axis, -1)
    picked = xp.moveaxis(xp.top_k(last, count)[1], -1, 0)
    return p.broadcast_to(p.reshape(picked, [*lead, *rows]), shape)


@drawn
def choice(key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0) -> Any:
    """Picks among the integers below ``a``, or among the parts of an array along an axis; with the probabilities ``p``, or evenly."""
    return _choice(key, a, shape_of(shape), replace, p, axis)


def _choice(key: Any, a: Any, shape: tuple, replace: bool, weights: Any, axis: int) -> Tracer:
    whole = not aval(a)[0]
    if whole and (isinstance(a, Tracer) or kind(aval(a)[1]) != 1):
        raise fail("E_TYPE", "expected a whole number that is known while tracing, or an array",
                   "write `choice(key, 10, (3,))`; under jit mark the argument with static_argnums")  # fmt: skip
    n = int(a) if whole else aval(a)[0][p.axis_of(axis, len(aval(a)[0]))]
    count = math.prod(shape)
    if n < 1:
        raise fail("E_ARGUMENT", f"expected something to choose from, got {n} elements", "give one element or more")
    if not replace and count > n:
        raise fail("E_ARGUMENT", f"expected at most {n} different picks, got {count}", "choose with `replace=True`")
    if weights is not None and tuple(aval(weights)[0]) != (n,):
        raise fail("E_SHAPE_MISMATCH", f"expected one probability for each of {n} elements, got shape {p.show(aval(weights)[0])}",
                   "give `p` of shape [n]")  # fmt: skip
    at = _picks(key, n, shape, count, replace, weights)
    return at if whole else xp.take(as_tracer(a), at, axis=axis) if shape else _part(as_tracer(a), at, axis)


def _picks(key: Any, n: Any, shape: tuple, count: int, replace: bool, weights: Any) -> Tracer:
    if weights is None and replace:
        scaled = p.ew("shr", p.ew("mul", p.cast(word(key, counter(shape), 0), "u64"), n), 32)
        return p.cast(scaled, "i64")
    if weights is None:
        return p.reshape(p.slice_(_order(key, n), [0], [count], [1]), shape)
    weights = p.cast(weights, "f32")
    if replace:
        sums = xp.cumulative_sum(weights)
        place = (1.0 - unit(key, (count,), "f32")) * sums[-1]
        return p.reshape(p.cast(xp.minimum(xp.searchsorted(sums, place), n - 1), "i64"), shape)
    # The largest of log p + Gumbel noise, as many as are requested.
    noise = -xp.log(-xp.log(open_unit(key, (n,), "f32")))
    return p.reshape(p.cast(xp.top_k(xp.log(weights) + noise, count)[1], "i64"), shape)


def _part(x: Tracer, at: Tracer, axis: int) -> Tracer:
    axis = p.axis_of(axis, x.ndim)
    made = xp.take(x, p.reshape(at, [1]), axis=axis)
    return p.reshape(made, [d for i, d in enumerate(x.shape) if i != axis])
