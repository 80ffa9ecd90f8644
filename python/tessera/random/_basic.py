"""Uniform and normal values, and distributions that are formulas of them. Element i is made of (key, i) alone, whatever the shape."""

from __future__ import annotations

import math
from typing import Any

from .. import xp
from ..base.promotion import is_float, kind
from ..trace import prim as p
from ..trace.tracer import Tracer, aval, fail, is_array
from ._keys import drawn, shape_of, word

#: How many bits after the binary point floats below 1 have, for dtypes narrower than f32. In the last two dtypes, all numbers
#: below 1 are subnormal.
_BITS = {"f16": 11, "bf16": 8, "fp8_e4m3": 4, "fp8_e5m2": 3, "fp6_e3m2": 3, "fp6_e2m3": 3, "fp4_e2m1": 1}


def counter(shape: tuple) -> Tracer:
    n = math.prod(shape)
    return p.reshape(p.iota((n,), 0), shape)


def float_name(dtype: Any) -> str:
    name = p.name_of(dtype)
    if not is_float(name):
        raise fail("E_TYPE", f"expected a float dtype, got {name}", "write `ts.f32`, and cast the result")
    return name


def int_name(dtype: Any) -> str:
    name = p.name_of(dtype)
    if kind(name) != 1:
        raise fail("E_TYPE", f"expected an integer dtype, got {name}", "write `ts.i32`, and cast the result")
    return name


def wide(name: str) -> str:
    """The dtype that a distribution is computed in."""
    return "f64" if name == "f64" else "f32"


def unit(key: Any, shape: tuple, dtype: str, words: tuple[int, int] = (0, 1)) -> Tracer:
    """Floats in [0, 1) with as many random bits as the dtype holds."""
    at = counter(shape)
    if dtype == "f64":
        high = p.cast(p.ew("shr", word(key, at, words[0]), 5), "f64")
        low = p.cast(p.ew("shr", word(key, at, words[1]), 6), "f64")
        return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0)
    top = p.cast(p.ew("shr", word(key, at, words[0]), 8), "f32")
    return top * (1.0 / 16777216.0)


def open_unit(key: Any, shape: tuple, dtype: str, words: tuple[int, int] = (0, 1)) -> Tracer:
    """Floats in (0, 1): the middles of the steps of `unit`, and none is 1."""
    u = unit(key, shape, dtype, words)
    return u + 2.0**-54 if dtype == "f64" else xp.minimum(u + 2.0**-25, 1.0 - 2.0**-24)


def parameters(shape: Any, dtype: str, *values: Any) -> tuple[tuple, list[Tracer]]:
    """The requested shape (`None`: that of the parameters, broadcast), and parameters of that shape."""
    own = p.broadcast_shapes(*(tuple(aval(v)[0]) for v in values)) if values else ()
    wanted = own if shape is None else shape_of(shape)
    if p.broadcast_shapes(own, wanted) != wanted:
        raise fail("E_SHAPE_MISMATCH", f"expected parameters that stretch to the shape {p.show(wanted)}, got {p.show(own)}",
                   "leave out `shape` for that of the parameters")  # fmt: skip
    return wanted, [p.broadcast_to(p.cast(v, dtype), wanted) for v in values]


def _is(value: Any, number: float) -> bool:
    return isinstance(value, (int, float)) and value == number


@drawn
def bits(key: Any, shape: Any = (), dtype: Any = "u32") -> Any:
    """Random bits: u32, or another unsigned dtype."""
    name = p.name_of(dtype)
    if name not in ("u8", "u16", "u32", "u64"):
        raise fail("E_TYPE", f"expected an unsigned dtype, got {name}", "write `ts.u32`")
    at = counter(shape_of(shape))
    low = word(key, at, 0)
    if name == "u64":
        return p.ew("or", p.cast(low, "u64"), p.ew("shl", p.cast(word(key, at, 1), "u64"), 32))
    return low if name == "u32" else p.cast(p.ew("shr", low, 24 if name == "u8" else 16), name)


@drawn
def uniform(key: Any, shape: Any = (), dtype: Any = "f32", low: Any = 0.0, high: Any = 1.0, *, minval: Any = None,
            maxval: Any = None) -> Any:  # fmt: skip
    """Floats from ``low`` up to ``high`` (also called ``minval`` and ``maxval``), which may be arrays."""
    name = float_name(dtype)
    low, high = low if minval is None else minval, high if maxval is None else maxval
    if _is(low, 0.0) and _is(high, 1.0):
        if name in _BITS:  # no rounding up to 1
            top = p.cast(p.ew("shr", word(key, counter(shape_of(shape)), 0), 32 - _BITS[name]), "f32")
            return p.cast(top * 2.0 ** -_BITS[name], name)
        return unit(key, shape_of(shape), wide(name))
    shape, (a, b) = parameters(shape, wide(name), low, high)
    return p.cast(unit(key, shape, wide(name)) * (b - a) + a, name)


def gauss(key: Any, shape: tuple, dtype: str) -> Tracer:
    """Normal values by Box and Muller."""
    # 1 - u is in (0, 1], so that its logarithm is finite.
    radius = xp.sqrt(xp.log(1.0 - unit(key, shape, dtype, (0, 1))) * -2.0)
    angle = unit(key, shape, dtype, (2, 3)) * (2.0 * math.pi)
    return radius * xp.cos(angle)


@drawn
def normal(key: Any, shape: Any = (), dtype: Any = "f32", mean: Any = 0.0, std: Any = 1.0) -> Any:
    """Floats of the normal distribution, by Box and Muller."""
    name = float_name(dtype)
    x = gauss(key, shape_of(shape), wide(name))
    return p.cast(x * std + mean, name)


@drawn
def lognormal(key: Any, shape: Any = (), dtype: Any = "f32", mean: Any = 0.0, std: Any = 1.0) -> Any:
    """Floats whose logarithms are of the normal distribution with this mean and deviation."""
    name = float_name(dtype)
    return p.cast(xp.exp(gauss(key, shape_of(shape), wide(name)) * std + mean), name)


@drawn
def bernoulli(key: Any, p: Any = 0.5, shape: Any = None) -> Any:
    """True with a probability; one draw for each element of ``p``, or of ``shape``."""
    shape, (chance,) = parameters(shape, "f32", p)
    return unit(key, shape, "f32") < chance


@drawn
def rademacher(key: Any, shape: Any = (), dtype: Any = "i64") -> Any:
    """-1 or 1, each with probability one half."""
    top = p.cast(p.ew("shr", word(key, counter(shape_of(shape)), 0), 31), "i32")
    return p.cast(top * 2 - 1, dtype)


@drawn
def randint(key: Any, shape: Any, low: Any = None, high: Any = None, dtype: Any = "i64", *, minval: Any = None,
            maxval: Any = None) -> Any:  # fmt: skip
    """Integers from ``low`` up to but not including ``high``, which may be arrays. An empty range gives ``low``."""
    low, high = low if minval is None else minval, high if maxval is None else maxval
    for bound in (low, high):
        if not is_array(bound) or kind(aval(bound)[1]) != 1:
            got = aval(bound)[1] if is_array(bound) else type(bound).__name__
            raise fail("E_TYPE", f"expected whole numbers for the ends of the range, got {got}",
                       "write `randint(key, shape, 0, 10)`")  # fmt: skip
    name = int_name(dtype)
    at = counter(shape_of(shape))
    if isinstance(low, int) and isinstance(high, int):
        if high <= low:
            raise fail("E_ARGUMENT", f"expected a range of one integer or more, got {low} to {high}", "write `low < high`")
        bits = int(name[1:])
        least, most = (0, 2**bits - 1) if name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        if low < least or high - 1 > most:
            raise fail("E_ARGUMENT", f"expected a range within {name}, which is {least} to {most}, got {low} to {high - 1}",
                       "draw in a wider dtype, and cast the result")  # fmt: skip
        if high - low <= 1 << 32:
            scaled = p.ew("shr", p.ew("mul", p.cast(word(key, at, 0), "u64"), high - low), 32)
            return p.cast(p.cast(scaled, "i64") + low, name)
        scaled = _scaled(key, at, None if high - low == 1 << 64 else p.splat(high - low, (), "u64"))
        return p.cast(p.ew("add", scaled, p.splat(low % (1 << 64), (), "u64")), name)
    shape, (a, b) = parameters(shape, "i64", low, high)
    # Modulo 2**64, where the longest ranges fit.
    span = p.select(b > a, p.ew("sub", p.cast(b, "u64"), p.cast(a, "u64")), 1)
    short = span <= 1 << 32
    scaled = p.ew("shr", p.ew("mul", p.cast(word(key, at, 0), "u64"), p.select(short, span, 1)), 32)
    return p.cast(p.ew("add", p.select(short, scaled, _scaled(key, at, span)), p.cast(a, "u64")), name)


def _scaled(key: Any, at: Tracer, span: Tracer | None) -> Tracer:
    """128 random bits times ``span`` over 2**128, as u64: of 2**64 where there is no span. A remainder would draw some numbers twice as
    often as others where the span is near 2**64."""
    words = [p.cast(word(key, at, i), "u64") for i in range(4)]
    if span is None:
        return p.ew("or", words[0], p.ew("shl", words[1], 32))
    low, high = p.ew("and", span, 0xFFFFFFFF), p.ew("shr", span, 32)
    sum_: Any = p.splat(0, (), "u64")
    for w in words:
        # (sum + w * span) >> 32, in halves.
        below = p.ew("mul", w, low)
        carry = p.ew("shr", p.ew("add", p.ew("and", sum_, 0xFFFFFFFF), p.ew("and", below, 0xFFFFFFFF)), 32)
        sum_ = p.ew("add", p.ew("add", p.ew("shr", sum_, 32), p.ew("shr", below, 32)), p.ew("add", carry, p.ew("mul", w, high)))
    return sum_


def erfinv(y: Tracer, dtype: str) -> Tracer:
    """The inverse of erf for -1 < y < 1: Winitzki's formula, then steps of Halley's method."""
    a = 0.147
    log = xp.log1p(-(y * y))
    half = log * 0.5 + 2.0 / (math.pi * a)
    x = xp.sign(y) * xp.sqrt(xp.sqrt(half * half - log * (1.0 / a)) - half)
    for _ in range(4 if dtype == "f64" else 2):
        slope = xp.exp(-(x * x)) * (2.0 / math.sqrt(math.pi))
        step = (xp.erf(x) - y) / xp.maximum(slope, 1e-30)
        x = x - step / (1.0 + x * step)
    return x


@drawn
def truncated_normal(key: Any, lower: Any = -2.0, upper: Any = 2.0, shape: Any = None, dtype: Any = "f32") -> Any:
    """Normal values between two bounds, by the inverse of the distribution."""
    if isinstance(lower, (tuple, list)):
        raise fail("E_TYPE", f"expected a number for the lower bound, got {type(lower).__name__}",
                   "write `truncated_normal(key, -2.0, 2.0, shape)`, or `shape=`")  # fmt: skip
    name = float_name(dtype)
    kind_ = wide(name)
    shape, (a, b) = parameters(shape, kind_, lower, upper)
    root = math.sqrt(0.5)
    low, high = xp.erf(a * root), xp.erf(b * root)
    u = open_unit(key, shape, kind_)
    edge = 1.0 - (2.0**-53 if kind_ == "f64" else 2.0**-24)
    y = xp.clip(low + (high - low) * u, -edge, edge)
    return p.cast(xp.clip(erfinv(y, kind_) * math.sqrt(2.0), a, b), name)
