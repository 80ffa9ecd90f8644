"""Special functions. They are computed in f64 and rounded once to the dtype of the argument, so that f32, f16 and bf16 results
are within 1 ulp. Bounds for f64 arguments are in each docstring; `python/tests/test_xp_special.py` measures them.

The elementary functions that they need are those of f64 for f64 arguments. For narrower ones they are series (`_Quick`), within some
ulp of f64 where they are used: CPUs compute those in vectors, and the functions of f64 one element at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import Tracer, fail, one
from ..transforms.custom_rules import custom_jvp
from . import _special_tables as t
from ._arguments import floats


def _wide(x: Any) -> tuple[Tracer, str]:
    x = floats(x)
    return p.cast(x, "f64"), "f32" if x._weak else x._dtype


def _horner(coefficients: tuple, x: Tracer) -> Tracer:
    out = p.splat(coefficients[-1], x.shape, "f64")
    for c in coefficients[-2::-1]:
        out = p.ew("fma", out, x, c)
    return out


class _Whole:
    """Elementary functions as f64 has them."""

    @staticmethod
    def log(x: Tracer) -> Tracer:
        return p.ew("log", x)

    @staticmethod
    def log1p(x: Tracer) -> Tracer:
        return p.ew("log1p", x)

    @staticmethod
    def sinpi(r: Tracer) -> Tracer:
        return p.ew("sin", p.ew("mul", r, math.pi))

    @staticmethod
    def cotpi(r: Tracer) -> Tracer:
        return p.ew("div", 1.0, p.ew("tan", p.ew("mul", r, math.pi)))


class _Quick:
    """The same by series that arithmetic alone computes, for results that are rounded to f32 or less."""

    @staticmethod
    def log(x: Tracer) -> Tracer:
        """Of positive normal numbers: the exponent, and twice the inverse hyperbolic tangent of (m - 1) / (m + 1)."""
        shape = list(x.shape)
        bits = one("bitcast", [x], results=[(shape, "i64")])
        # m is between the roots of 1/2 and of 2.
        exponent = p.ew("shr", p.ew("sub", bits, t.ROOT_HALF_BITS), 52)
        m = one("bitcast", [p.ew("sub", bits, p.ew("shl", exponent, 52))], results=[(shape, "f64")])
        return p.ew("fma", p.cast(exponent, "f64"), math.log(2.0), _twice_atanh(p.ew("sub", m, 1.0), t.ATANH[:11]))

    @staticmethod
    def log1p(x: Tracer) -> Tracer:
        """Between -0.5 and 0.5."""
        return _twice_atanh(x, t.ATANH)

    @staticmethod
    def sinpi(r: Tracer) -> Tracer:
        """Between -0.5 and 0.5."""
        return p.ew("mul", _horner(t.SINPI, p.ew("mul", r, r)), r)

    @staticmethod
    def cotpi(r: Tracer) -> Tracer:
        """Between -0.5 and 0.5: the cosine is the sine of the distance from there."""
        rest = p.ew("sub", 0.5, p.ew("abs", r))
        return p.ew("div", _Quick.sinpi(rest), _Quick.sinpi(r))


def _twice_atanh(f: Tracer, terms: tuple) -> Tracer:
    """log(1 + f) as the series of s = f / (2 + f)."""
    s = p.ew("div", f, p.ew("add", f, 2.0))
    return p.ew("mul", _horner(terms, p.ew("mul", s, s)), s)


def _functions(dtype: str) -> type[_Whole] | type[_Quick]:
    return _Whole if dtype == "f64" else _Quick


def _between(x: Tracer, low: float, high: float) -> Tracer:
    """The argument of one branch: elsewhere a bound, where every derivative is finite. The bounds themselves belong to the branch:
    `maximum` would halve its derivative there."""
    return p.select(p.ew("lt", x, low), low, p.select(p.ew("gt", x, high), high, x))


def _ruled(value: Callable, slope: Callable) -> Callable:
    """A function of one array whose derivative is another: ``slope(x, y)``."""
    def call(x: Any) -> Any:
        return value(x)

    call.__name__ = value.__name__.strip("_")
    ruled = custom_jvp(call)
    ruled.defjvp(lambda primals, tangents: _moved(primals[0], tangents[0]))

    def _moved(x: Any, dx: Any) -> tuple:
        y = value(x)
        return y, p.ew("mul", slope(x, y), dx)

    return ruled


# Gamma and its derivatives


def _lgamma_series(z: Tracer) -> Tracer:
    """log(gamma(2 + z)) for |z| <= 0.5."""
    return p.ew("mul", _horner(t.LGAMMA, z), z)


def _to_whole(x: Tracer) -> Tracer:
    """The distance from the nearest integer, with its sign; exact."""
    return p.ew("sub", x, one("stop_gradient", [p.ew("round", x)]))


def _lgamma(x: Any) -> Tracer:
    """One series and one logarithm serve all ranges of the magnitude: below 0.5, 1.5 and 8, and from there Stirling's."""
    x, dtype = _wide(x)
    f = _functions(dtype)
    size = p.ew("abs", x)
    small, low, far = p.ew("lt", size, 0.5), p.ew("lt", size, 1.5), p.ew("ge", size, 8.0)
    low = p.ew("and", low, p.ew("not", small))
    zero = p.ew("eq", x, 0.0)
    # Below 8: down to [1.5, 2.5], with the product of the steps.
    y = _between(size, 1.5, 8.0)
    product = p.splat(1.0, x.shape, "f64")
    for _ in range(6):
        high = p.ew("gt", y, 2.5)
        y = p.select(high, p.ew("sub", y, 1.0), y)
        product = p.select(high, p.ew("mul", product, y), product)
    # Below 1.5 from one above, without the difference of logarithms near 1. Around zero: gamma(2 + x) / (x (1 + x)).
    z = p.select(small, x, p.select(low, p.ew("sub", size, 1.0), p.ew("sub", y, 2.0)))
    series = _lgamma_series(z)
    around = p.select(small, p.ew("mul", size, p.ew("add", x, 1.0)), 1.0)
    of = p.select(small, p.select(zero, 1.0, around), p.select(low, 1.0, p.select(far, size, product)))
    logarithm = f.log(of)
    taken = p.select(low, f.log1p(p.select(low, z, 0.0)), p.select(small, logarithm, p.ew("neg", logarithm)))
    beyond = _between(size, 8.0, math.inf)
    inverse = p.ew("div", 1.0, beyond)
    tail = p.ew("mul", _horner(t.STIRLING, p.ew("mul", inverse, inverse)), inverse)
    stirling = p.ew("mul", p.ew("sub", beyond, 0.5), p.ew("sub", logarithm, 1.0))
    stirling = p.ew("add", stirling, p.ew("add", tail, 0.5 * math.log(2.0 * math.pi) - 0.5))
    positive = p.select(far, stirling, p.ew("sub", series, taken))
    r = _to_whole(x)
    pole = p.ew("eq", r, 0.0)
    sine = p.ew("abs", f.sinpi(p.select(pole, 0.5, r)))
    mirrored = p.ew("sub", f.log(p.ew("div", math.pi, p.ew("mul", _between(size, 0.5, math.inf), sine))), positive)
    below = p.ew("and", p.ew("lt", x, 0.0), p.ew("not", small))
    out = p.select(below, p.select(pole, math.inf, mirrored), p.select(zero, math.inf, positive))
    # Infinities of both signs, and NaN.
    out = p.select(p.ew("isinf", x), math.inf, p.select(p.ew("isnan", x), x, out))
    return p.cast(out, dtype)


def _digamma_one_two(x: Tracer, above: float) -> Tracer:
    """Of ``x + above`` between 1 and 2; relative to its zero."""
    d = p.ew("sub", p.ew("sub", x, t.ROOT[0] - above), t.ROOT[1])
    return p.ew("mul", _horner(t.DIGAMMA, d), d)


def _digamma_positive(x: Tracer, log: Callable) -> Tracer:
    small = _between(x, 1e-300, 1.0)
    at_small = p.ew("sub", _digamma_one_two(small, 1.0), p.ew("div", 1.0, small))
    y = _between(x, 1.0, 10.0)
    steps = p.splat(0.0, x.shape, "f64")
    for _ in range(8):
        high = p.ew("gt", y, 2.0)
        y = p.select(high, p.ew("sub", y, 1.0), y)
        steps = p.select(high, p.ew("add", steps, p.ew("div", 1.0, y)), steps)
    at_middle = p.ew("add", _digamma_one_two(y, 0.0), steps)
    far = _between(x, 10.0, math.inf)
    inverse = p.ew("div", 1.0, far)
    square = p.ew("mul", inverse, inverse)
    tail = p.ew("add", p.ew("mul", inverse, 0.5), p.ew("mul", _horner(t.BERNOULLI, square), square))
    at_far = p.ew("sub", log(far), tail)
    return p.select(p.ew("lt", x, 1.0), at_small, p.select(p.ew("lt", x, 10.0), at_middle, at_far))


def _digamma(x: Any) -> Tracer:
    x, dtype = _wide(x)
    f = _functions(dtype)
    negative = p.ew("lt", x, 0.0)
    above = _digamma_positive(p.select(negative, p.ew("sub", 1.0, x), x), f.log)
    r = _to_whole(x)
    pole = p.ew("eq", r, 0.0)
    reflected = p.ew("mul", f.cotpi(p.select(pole, 0.25, r)), math.pi)
    out = p.select(negative, p.select(pole, math.nan, p.ew("sub", above, reflected)), above)
    # Zero is a pole from both sides; there is no limit at minus infinity.
    zero = p.ew("eq", x, 0.0)
    out = p.select(zero, p.ew("div", -1.0, p.select(zero, x, 1.0)), out)
    out = p.select(p.ew("isnan", x), x, p.select(p.ew("isinf", x), p.select(negative, math.nan, x), out))
    return p.cast(out, dtype)


def _integer_power(x: Tracer, n: int) -> Tracer:
    out = x
    for _ in range(n - 1):
        out = p.ew("mul", out, x)
    return out


def _polygamma(n: int) -> Callable:
    """The n-th derivative of digamma: sums of inverse powers up to a point, Euler-Maclaurin's from there."""
    start = 10.0 + n

    def positive(x: Tracer) -> Tracer:
        y = _between(x, -math.inf, start)
        total = p.splat(0.0, x.shape, "f64")
        for _ in range(int(start)):
            low = p.ew("lt", y, start)
            term = _integer_power(p.ew("div", 1.0, y), n + 1)
            total = p.select(low, p.ew("add", total, term), total)
            y = p.select(low, p.ew("add", y, 1.0), y)
        far = p.select(p.ew("lt", x, start), y, x)
        inverse = p.ew("div", 1.0, far)
        # (n - 1)! / x^n + n! / (2 x^(n + 1)) + sum of B(2k) (2k + n - 1)! / (2k)! / x^(2k + n), over n!
        series = tuple(
            b * 2 * k * math.factorial(2 * k + n - 1) / math.factorial(2 * k) / math.factorial(n)
            for k, b in enumerate(t.BERNOULLI, 1)
        )
        square = p.ew("mul", inverse, inverse)
        tail = p.ew("mul", _horner(series, square), square)
        tail = p.ew("add", tail, p.ew("add", p.ew("mul", inverse, 0.5), 1.0 / n))
        total = p.ew("add", total, p.ew("mul", tail, _integer_power(inverse, n)))
        return p.ew("mul", total, float((-1) ** (n + 1) * math.factorial(n)))

    def value(x: Any) -> Tracer:
        x, dtype = _wide(x)
        negative = p.ew("lt", x, 0.0)
        out = positive(p.select(negative, p.ew("sub", 1.0, x), x))
        if n == 1:
            r = _to_whole(x)
            pole = p.ew("eq", r, 0.0)
            sine = _functions(dtype).sinpi(p.select(pole, 0.5, r))
            turned = p.ew("div", math.pi * math.pi, p.ew("mul", sine, sine))
            out = p.select(negative, p.select(pole, math.inf, p.ew("sub", turned, out)), out)
        else:
            out = p.select(negative, math.nan, out)
        out = p.select(p.ew("isnan", x), x, p.select(p.ew("isinf", x), p.select(negative, math.nan, 0.0), out))
        return p.cast(out, dtype)

    value.__name__ = f"polygamma_{n}"
    return value


@eager
def lgamma(x: Any) -> Any:
    """log(abs(gamma(x))). f64: within 4 ulp for x > 0, within 1e-15 of max(1, abs(result)) below, where it has zeros."""
    return _ruled(_lgamma, lambda x, y: digamma(x))(x)


@eager
def digamma(x: Any) -> Any:
    """The derivative of `lgamma`. f64: within 4 ulp for x > 0, within 4e-15 of max(1, abs(result)) times the distance to the
    nearest pole below; NaN at negative integers."""
    return _ruled(_digamma, lambda x, y: polygamma(1, x))(x)


@eager
def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of `digamma`, ``n`` a Python int. For n > 1 of x > 0 only, NaN below. f64: within 8 ulp."""
    if not isinstance(n, int) or n < 0:
        raise fail("E_ARGUMENT", f"polygamma: expected `n` to be a Python int of 0 or more, got {n!r}", "write such as `polygamma(1, x)`")
    # Its terms are powers: they have the right derivatives by themselves.
    return digamma(x) if n == 0 else _polygamma(n)(x)


# Error function


def _erfinv(x: Any) -> Tracer:
    x, dtype = _wide(x)
    size = p.ew("abs", x)
    middle = _between(x, -0.75, 0.75)
    at_middle = p.ew("mul", _horner(t.ERFINV, p.ew("mul", middle, middle)), middle)
    # 1 - |x| is exact from 0.5 on.
    rest = _between(p.ew("sub", 1.0, size), 2.0**-54, 0.25)
    s = p.ew("sqrt", p.ew("neg", _functions(dtype).log(rest)))
    if dtype == "f64":
        near = _horner(t.ERFINV_NEAR, p.ew("div", p.ew("sub", _between(s, 0.0, 2.4), 1.775), 0.625))
        far = _horner(t.ERFINV_FAR, p.ew("div", p.ew("sub", _between(s, 2.4, math.inf), 4.25), 1.85))
        tail = p.select(p.ew("lt", s, 2.4), near, far)
    else:
        tail = _horner(t.ERFINV_TAIL, p.ew("mul", p.ew("sub", _between(s, 1.15, 4.1), 2.625), 1.0 / 1.475))
    tail = p.select(p.ew("lt", x, 0.0), p.ew("neg", tail), tail)
    out = p.select(p.ew("le", size, 0.75), at_middle, tail)
    out = p.select(p.ew("eq", size, 1.0), p.ew("mul", x, math.inf), out)
    out = p.select(p.ew("le", size, 1.0), out, math.nan)
    return p.cast(out, dtype)


def _erfinv_slope(x: Any, y: Any) -> Tracer:
    wide = p.cast(y, "f64")
    return p.cast(p.ew("mul", p.ew("exp", p.ew("mul", wide, wide)), math.sqrt(math.pi) / 2.0), y._dtype)


@eager
def erfinv(x: Any) -> Any:
    """The inverse of `erf`: infinite at -1 and 1, NaN beyond. f64: within 4 ulp."""
    return _ruled(_erfinv, _erfinv_slope)(x)


# Bessel and sinc


def _i0e(size: Tracer) -> Tracer:
    """exp(-x) i0(x) of x >= 0."""
    low = _between(size, 0.0, 8.0)
    small = _horner(t.I0_SMALL, p.ew("sub", p.ew("mul", low, 0.25), 1.0))
    high = _between(size, 8.0, math.inf)
    large = p.ew("div", _horner(t.I0_LARGE, p.ew("sub", p.ew("div", 16.0, high), 1.0)), p.ew("sqrt", high))
    return p.select(p.ew("le", size, 8.0), small, large)


@eager
def i0(x: Any) -> Any:
    """The modified Bessel function of order 0. f64: within 8 ulp, and ``abs(x) / 2`` ulp beyond, of the exponential."""
    x, dtype = _wide(x)
    size = p.ew("abs", x)
    # In two factors: the exponential alone would overflow before the function does.
    half = p.ew("exp", p.ew("mul", size, 0.5))
    out = p.ew("mul", p.ew("mul", _i0e(size), half), half)
    return p.cast(p.select(p.ew("isinf", x), math.inf, out), dtype)


@eager
def sinc(x: Any) -> Any:
    """sin(pi x) / (pi x), and 1 at 0; zero at other integers."""
    x = floats(x)
    small = p.ew("lt", p.ew("abs", x), 3e-3)
    safe = p.select(small, 1.0, x)
    # Of the distance from the nearest integer, which is exact.
    r = _to_whole(safe)
    odd = p.ew("ne", p.ew("mod", p.ew("sub", safe, r), 2.0), 0.0)
    sine = p.ew("sin", p.ew("mul", r, math.pi))
    away = p.ew("div", p.select(odd, p.ew("neg", sine), sine), p.ew("mul", safe, math.pi))
    angle = p.ew("mul", p.select(small, x, 0.0), math.pi)
    return p.select(small, _taylor(p.ew("mul", angle, angle), (1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040)), away)


def _taylor(x: Tracer, coefficients: tuple) -> Tracer:
    out: Any = coefficients[-1]
    for c in coefficients[-2::-1]:
        out = p.ew("add", p.ew("mul", x, out), c)
    return out
