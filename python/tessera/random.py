"""Random arrays by Philox4x32-10: the same key gives the same values on every backend. A key is one i64; new keys are made
with `split` and `fold_in`, never by using one twice."""

from __future__ import annotations

import math
from typing import Any

from . import _prim as p, xp
from ._dims import Dim
from ._jit import eager
from ._promote import is_float
from ._trace import Tracer, fail, one

__all__ = ["bernoulli", "bits", "categorical", "fold_in", "key", "normal", "permutation", "randint", "split", "truncated_normal",
           "uniform"]  # fmt: skip


def key(seed: int) -> Any:
    """A key from a seed."""
    import numpy

    return numpy.asarray(seed, numpy.int64)


def _shape(shape: Any) -> tuple:
    return (shape,) if isinstance(shape, (int, Dim)) else tuple(shape)


def _counter(shape: tuple) -> Tracer:
    n = math.prod(shape)
    return p.reshape(p.iota((n,), 0), shape)


def _word(k: Any, counter: Tracer, word: int) -> Tracer:
    k = p.cast(k, "i64")
    if k.shape != ():
        raise fail("E_SHAPE_MISMATCH", f"expected one key, got keys of shape {p.show(k.shape)}", "take one of them: `keys[0]`")
    return one("philox", [k, counter], {"word": word})


@eager
def bits(key: Any, shape: Any = ()) -> Any:
    """Random u32."""
    return _word(key, _counter(_shape(shape)), 0)


def _join(low: Tracer, high: Tracer) -> Tracer:
    return p.ew("or", p.cast(low, "i64"), p.ew("shl", p.cast(high, "i64"), 32))


#: Keys are made from other counters than values are.
_KEYS = 1 << 62


@eager
def split(key: Any, count: int = 2) -> Any:
    """Keys that have nothing to do with each other or with ``key``."""
    at = p.ew("add", p.iota((count,), 0), _KEYS)
    return _join(_word(key, at, 0), _word(key, at, 1))


@eager
def fold_in(key: Any, data: Any) -> Any:
    """A key from a key and a number, such as a step or a layer."""
    at = p.ew("add", p.cast(data, "i64"), _KEYS + (1 << 61))
    return _join(_word(key, at, 2), _word(key, at, 3))


def _unit(key: Any, shape: tuple, dtype: str, words: tuple[int, int] = (0, 1)) -> Tracer:
    """Floats in [0, 1) with as many random bits as the dtype holds."""
    counter = _counter(shape)
    if dtype == "f64":
        high = p.cast(p.ew("shr", _word(key, counter, words[0]), 5), "f64")
        low = p.cast(p.ew("shr", _word(key, counter, words[1]), 6), "f64")
        return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0)
    top = p.cast(p.ew("shr", _word(key, counter, words[0]), 8), "f32")
    return top * (1.0 / 16777216.0)


def _float_name(dtype: Any) -> str:
    name = p.name_of(dtype)
    if not is_float(name):
        raise fail("E_TYPE", f"expected a float dtype, got {name}", "write `ts.f32`, and cast the result")
    return name


@eager
def uniform(key: Any, shape: Any = (), dtype: Any = "f32", low: Any = 0.0, high: Any = 1.0) -> Any:
    """Floats from ``low`` up to ``high``."""
    name = _float_name(dtype)
    x = _unit(key, _shape(shape), "f64" if name == "f64" else "f32")
    if low != 0.0 or high != 1.0:
        x = x * (high - low) + low
    return p.cast(x, name)


@eager
def normal(key: Any, shape: Any = (), dtype: Any = "f32", mean: Any = 0.0, std: Any = 1.0) -> Any:
    """Floats of the normal distribution, by Box and Muller."""
    name = _float_name(dtype)
    wide = "f64" if name == "f64" else "f32"
    # 1 - u is in (0, 1], so that its logarithm is finite.
    radius = xp.sqrt(xp.log(1.0 - _unit(key, _shape(shape), wide, (0, 1))) * -2.0)
    angle = _unit(key, _shape(shape), wide, (2, 3)) * (2.0 * math.pi)
    x = radius * xp.cos(angle)
    return p.cast(x * std + mean, name)


@eager
def lognormal(key: Any, shape: Any = (), dtype: Any = "f32", mean: Any = 0.0, std: Any = 1.0) -> Any:
    """Floats whose logarithms are of the normal distribution with this mean and deviation."""
    name = _float_name(dtype)
    return p.cast(xp.exp(normal(key, shape, "f64" if name == "f64" else "f32", mean, std)), name)


@eager
def truncated_normal(key: Any, shape: Any = (), dtype: Any = "f32", limit: float = 2.0, tries: int = 8) -> Any:
    """Normal values within ``limit`` deviations: drawn again up to ``tries`` times, then clamped."""
    x = normal(key, shape, dtype)
    for i in range(1, tries):
        again = normal(fold_in(key, i), shape, dtype)
        x = xp.where(xp.abs(x) > limit, again, x)
    return xp.clip(x, -limit, limit)


@eager
def bernoulli(key: Any, probability: Any = 0.5, shape: Any = ()) -> Any:
    """True with a probability."""
    return _unit(key, _shape(shape), "f32") < probability


@eager
def randint(key: Any, shape: Any, low: int, high: int, dtype: Any = "i64") -> Any:
    """Integers from ``low`` up to but not including ``high``."""
    if not 0 < high - low <= 1 << 32:
        raise fail("E_ARGUMENT", f"expected a range of 1 to 2**32 integers, got {low} to {high}", "write `low < high`")
    word = p.cast(_word(key, _counter(_shape(shape)), 0), "u64")
    scaled = p.ew("shr", p.ew("mul", word, high - low), 32)
    return p.cast(p.cast(scaled, "i64") + low, dtype)


@eager
def permutation(key: Any, n: int) -> Any:
    """The integers below ``n`` in a random order."""
    counter = _counter((n,))
    order = p.sort([_word(key, counter, 0), _word(key, counter, 1), p.iota((n,), 0)], 0, keys=2)
    return order[2]


@eager
def categorical(key: Any, logits: Any, axis: int = -1) -> Any:
    """A class for each row, with the probabilities of ``softmax(logits)``."""
    x = p.as_tracer(logits)
    u = _unit(key, x.shape, "f32")
    gumbel = -xp.log(-xp.log(xp.clip(u, 1e-20, 1.0 - 6e-8)))
    return xp.argmax(p.cast(x, "f32") + gumbel, axis)
