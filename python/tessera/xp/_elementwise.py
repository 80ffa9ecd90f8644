"""Functions of each element."""

from __future__ import annotations

import math
from typing import Any

import numpy

from ..base.promotion import is_float, promote_pair
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import as_tracer, aval, current, fail, one
from ._maps import binary, unary
from ._real import *  # noqa: F403


add = binary("add", "add", "Sum.")
subtract = binary("sub", "subtract", "Difference.")
multiply = binary("mul", "multiply", "Product.")
divide = binary("div", "divide", "Quotient, a float.")
floor_divide = binary("floordiv", "floor_divide", "Quotient rounded down.")
remainder = binary("mod", "remainder", "Remainder with the sign of the divisor.")
maximum = binary("maximum", "maximum", "The larger of two; NaN where either is.")
minimum = binary("minimum", "minimum", "The smaller of two; NaN where either is.")
equal = binary("eq", "equal", "Whether equal.")
not_equal = binary("ne", "not_equal", "Whether not equal.")
less = binary("lt", "less", "Whether less.")
less_equal = binary("le", "less_equal", "Whether less or equal.")
greater = binary("gt", "greater", "Whether greater.")
greater_equal = binary("ge", "greater_equal", "Whether greater or equal.")
bitwise_and = binary("and", "bitwise_and", "And, bit by bit.")
bitwise_or = binary("or", "bitwise_or", "Or, bit by bit.")
bitwise_xor = binary("xor", "bitwise_xor", "Exclusive or, bit by bit.")
bitwise_left_shift = binary("shl", "bitwise_left_shift", "Bits moved up.")
bitwise_right_shift = binary("shr", "bitwise_right_shift", "Bits moved down.")
bitwise_invert = unary("not", "bitwise_invert", "Every bit turned.")
abs = unary("abs", "abs", "Magnitude.")
negative = unary("neg", "negative", "Negation.")
sqrt = unary("sqrt", "sqrt", "Square root.")
reciprocal = unary("recip", "reciprocal", "1 / x.")


def _predicate(fn: str, name: str, otherwise: bool, doc: str) -> Any:
    def call(x: Any) -> Any:
        shape, dtype, _ = aval(x)
        if not is_float(dtype):
            return p.splat(otherwise, shape, "bool")
        return p.ew(fn, x)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return eager(call)


isnan = _predicate("isnan", "isnan", False, "Whether NaN.")
isinf = _predicate("isinf", "isinf", False, "Whether infinite.")
isfinite = _predicate("isfinite", "isfinite", True, "Whether neither infinite nor NaN.")


def _whole(fn: str, name: str, doc: str) -> Any:
    def call(x: Any) -> Any:
        x = as_tracer(x)
        return p.ew(fn, x) if is_float(x._dtype) else x

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return eager(call)


floor = _whole("floor", "floor", "Rounded down.")
ceil = _whole("ceil", "ceil", "Rounded up.")
_nearest = _whole("round", "round", "Rounded to the nearest integer, ties to even.")


trunc = _whole("trunc", "trunc", "Rounded towards zero.")


@eager
def sign(x: Any) -> Any:
    """-1, 0 or 1; NaN of NaN. The zero is positive, also that of a negative one."""
    x = as_tracer(x)
    made = p.ew("sign", x)
    return p.select(p.ew("eq", x, 0), 0, made) if is_float(x._dtype) else made


@eager
def positive(x: Any) -> Any:
    """The same value."""
    return as_tracer(x)


@eager
def square(x: Any) -> Any:
    """x * x."""
    return p.ew("mul", x, x)


@eager
def pow(x1: Any, x2: Any) -> Any:
    """x1 to the power x2. Small whole Python exponents are products. Integers to negative powers are refused where the exponent is
    one Python number; with arrays of exponents the result is truncated: 1 and -1 are unchanged, all else is 0."""
    if isinstance(x2, (int, float)) and not isinstance(x2, (bool, numpy.generic)):
        # The rest is computed in the promoted dtype: a bool to a whole power is an integer, an integer to a float a float.
        promoted, weak = promote_pair(aval(x1)[1:], aval(x2)[1:])
        x1 = p.cast_weak(x1, promoted, weak)
    if isinstance(x2, int) and not isinstance(x2, bool):
        whole = not is_float(aval(x1)[1])
        if whole and x2 < 0:
            raise fail(
                "E_ARGUMENT",
                f"expected an exponent of at least 0 for integers, got {x2}",
                "make the base a float: `x.astype(ts.f32) ** -1`",
            )
        if 0 <= x2 <= 8 or whole:
            return _power(as_tracer(x1), x2)
    if isinstance(x2, float) and x2 in (1.0, 2.0, 3.0, 4.0):
        return _power(as_tracer(x1), int(x2))
    if isinstance(x2, float) and x2 == 0.5:
        return p.ew("sqrt", x1)
    if isinstance(x2, float) and x2 == -0.5:
        return p.ew("rsqrt", x1)
    dtypes = [aval(v)[1] for v in (x1, x2)]
    if not any(is_float(d) for d in dtypes):
        return _int_pow(x1, x2)
    return p.ew("pow", x1, x2)


def _power(x: Any, n: int) -> Any:
    if n == 0:
        return p.splat(1, x.shape, x._dtype)
    out = None
    while n:
        if n & 1:
            out = x if out is None else p.ew("mul", out, x)
        n >>= 1
        if n:
            x = p.ew("mul", x, x)
    return out


def _int_pow(x: Any, n: Any) -> Any:
    """By squaring, for every bit that an exponent can have; they wrap around as products do."""
    (base, n), _ = p.together(x, n)
    if base._dtype == "bool":
        return p.ew("or", base, p.ew("not", n))
    signed = base._dtype.startswith("i")
    bits = int(base._dtype[1:]) - signed
    out, x = p.splat(1, base.shape, base._dtype), base
    for bit in range(bits):
        odd = p.ew("ne", p.ew("and", p.ew("shr", n, bit), 1), 0)
        out = p.select(odd, p.ew("mul", out, x), out)
        if bit + 1 < bits:
            x = p.ew("mul", x, x)
    if not signed:
        return out
    odd = p.ew("ne", p.ew("and", n, 1), 0)
    unit = p.select(p.ew("eq", base, -1), p.select(odd, -1, 1), p.select(p.ew("eq", base, 1), 1, 0))
    return p.select(p.ew("lt", n, 0), p.cast(unit, base._dtype), out)


@eager
def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c with one rounding."""
    return p.ew("fma", a, b, c)


#: From here on the inverse hyperbolic functions are log(x) + log(2) in the dtype, whose squares overflow later.
_LARGE = {"f64": 2.0**28, "f32": 2.0**13}


def _log_of_twice(x: Any, otherwise: Any) -> Any:
    """log(2 x) where x is so large that it is the result; elsewhere ``otherwise`` of x. Neither is computed, nor differentiated, of
    numbers that the other is for."""
    large = p.ew("gt", x, _LARGE.get(x._dtype, 2.0**7))
    far = p.ew("add", p.ew("log", p.select(large, x, 1.0)), math.log(2.0))
    return p.select(large, far, otherwise(p.select(large, 1.0, x)))


@eager
def asinh(x: Any) -> Any:
    """Inverse hyperbolic sine."""
    (x,), _ = p.together(x, floats=True)

    def near(m: Any) -> Any:
        square = p.ew("mul", m, m)
        return p.ew("log1p", p.ew("add", m, p.ew("div", square, p.ew("add", 1.0, p.ew("sqrt", p.ew("add", square, 1.0))))))

    out = _log_of_twice(p.ew("abs", x), near)
    out = p.select(p.ew("lt", x, 0.0), p.ew("neg", out), out)
    # Near 0 it is x, whose derivative the magnitude has not.
    return p.select(p.ew("eq", x, 0.0), x, out)


@eager
def acosh(x: Any) -> Any:
    """Inverse hyperbolic cosine."""
    (x,), _ = p.together(x, floats=True)

    def near(x: Any) -> Any:
        return p.ew("log", p.ew("add", x, p.ew("mul", p.ew("sqrt", p.ew("sub", x, 1.0)), p.ew("sqrt", p.ew("add", x, 1.0)))))

    return _log_of_twice(x, near)


@eager
def atanh(x: Any) -> Any:
    """Inverse hyperbolic tangent."""
    return p.ew("mul", 0.5, p.ew("sub", p.ew("log1p", x), p.ew("log1p", p.ew("neg", x))))


@eager
def hypot(x1: Any, x2: Any) -> Any:
    """sqrt(x1 * x1 + x2 * x2), without intermediate overflow. Infinite where one of the two is, also with NaN."""
    (a, b), _ = p.together(x1, x2, floats=True)
    a, b = p.ew("abs", a), p.ew("abs", b)
    big, small = p.ew("maximum", a, b), p.ew("minimum", a, b)
    endless = p.ew("or", p.ew("isinf", a), p.ew("isinf", b))
    whole = p.ew("or", p.ew("eq", big, 0.0), endless)
    ratio = p.select(endless, 0.0, p.ew("div", small, p.select(whole, 1.0, big)))
    out = p.ew("mul", big, p.ew("sqrt", p.ew("add", 1.0, p.ew("mul", ratio, ratio))))
    return p.select(endless, math.inf, out)


@eager
def logaddexp(x1: Any, x2: Any) -> Any:
    """log(exp(x1) + exp(x2)), without intermediate overflow."""
    (a, b), _ = p.together(x1, x2, floats=True)
    # Sides are chosen, not compared by a maximum, which at ties has the first derivatives and not the second.
    more = p.ew("gt", a, b)
    endless = p.ew("and", p.ew("isinf", a), p.ew("eq", a, b))
    gap = p.select(endless, 0.0, p.select(more, p.ew("sub", b, a), p.ew("sub", a, b)))
    return p.ew("add", p.select(more, a, b), p.ew("log1p", p.ew("exp", gap)))


def signbit(x: Any) -> Any:
    """Whether the sign bit is set, also that of a zero, and that of a NaN in an array of the host; a NaN that is computed has no
    sign, and inside a trace none has."""
    if current() is None and isinstance(x, (numpy.ndarray, numpy.generic)) and _BITS.get(aval(x)[1]) is not None:
        # Before it is loaded: what is loaded is a number, and all NaNs are one.
        x = numpy.asarray(x)
        x = x.view(f"i{x.itemsize}")
    return _signbit(x)


#: Integers of the width of floats.
_BITS = {"f64": "i64", "f32": "i32", "f16": "i16", "bf16": "i16"}


@eager
def _signbit(x: Any) -> Any:
    x = as_tracer(x)
    if not is_float(x._dtype):
        return p.ew("lt", x, 0)
    if x._dtype not in _BITS:
        x = p.cast(x, "f32")
    return p.ew("lt", one("bitcast", [x], results=[(list(x.shape), _BITS[x._dtype])]), 0)


@eager
def copysign(x1: Any, x2: Any) -> Any:
    """The magnitude of one with the sign of the other."""
    (a, b), _ = p.together(x1, x2, floats=True)
    return p.select(p.ew("ne", _signbit(a), _signbit(b)), p.ew("neg", a), a)


def _truth(x: Any) -> Any:
    x = as_tracer(x)
    return x if x._dtype == "bool" else p.ew("ne", x, 0)


@eager
def logical_and(x1: Any, x2: Any) -> Any:
    """Logical and."""
    return p.ew("and", _truth(x1), _truth(x2))


@eager
def logical_or(x1: Any, x2: Any) -> Any:
    """Logical or."""
    return p.ew("or", _truth(x1), _truth(x2))


@eager
def logical_xor(x1: Any, x2: Any) -> Any:
    """Logical exclusive or."""
    return p.ew("xor", _truth(x1), _truth(x2))


@eager
def logical_not(x: Any) -> Any:
    """Logical not."""
    return p.ew("not", _truth(x))


@eager
def clip(x: Any, min: Any = None, max: Any = None, *, a_min: Any = None, a_max: Any = None) -> Any:
    """The nearest value between two bounds; ``a_min`` and ``a_max`` are NumPy's names for them."""
    if (min is not None and a_min is not None) or (max is not None and a_max is not None):
        raise fail("E_ARGUMENT", "clip: expected each bound once, got `min` and `a_min`, or `max` and `a_max`", "leave out `a_min` and `a_max`")
    out, min, max = as_tracer(x), a_min if min is None else min, a_max if max is None else max
    if min is not None:
        out = p.ew("maximum", out, min)
    if max is not None:
        out = p.ew("minimum", out, max)
    return out


@eager
def _where(condition: Any, x1: Any, x2: Any) -> Any:
    return p.select(condition if aval(condition)[1] == "bool" else p.ew("ne", condition, 0), x1, x2)
