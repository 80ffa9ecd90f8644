"""Functions of each element that NumPy has beyond the array API, and comparisons of whole arrays."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy

from ..arrays.create import numpy_dtype
from ..base.dtypes import dtype as as_dtype
from ..base.promotion import is_float
from ..trace import prim as p
from ..trace.control import while_loop
from ..trace.jit import eager
from ..trace.tracer import Tracer, as_tracer, aval, fail, is_array, one, splat
from ..transforms.batching import vmap
from ..tree import pytree
from . import _elementwise as e
from ._arguments import arr, floats, whole
from ._types import isdtype, result_type

_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16}


def _limits(dtype: str) -> Any:
    import ml_dtypes

    wanted = numpy_dtype(dtype)
    return numpy.iinfo(wanted) if wanted.kind in "iu" else numpy.finfo(wanted) if wanted.kind == "f" else ml_dtypes.finfo(wanted)


def _scaled(name: str, by: float, doc: str) -> Any:
    def call(x: Any) -> Any:
        return p.ew("mul", floats(x), by)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return eager(call)


deg2rad = _scaled("deg2rad", math.pi / 180.0, "Degrees as radians.")
rad2deg = _scaled("rad2deg", 180.0 / math.pi, "Radians as degrees.")


@eager
def fabs(x: Any) -> Any:
    """Magnitude, a float."""
    return p.ew("abs", floats(x))


@eager
def cbrt(x: Any) -> Any:
    """Cube root, also of negative numbers."""
    x = floats(x)
    size = p.ew("abs", x)
    plain = p.ew("or", p.ew("eq", size, 0.0), p.ew("not", p.ew("isfinite", size)))
    safe = p.select(plain, 1.0, size)
    root = p.ew("pow", safe, 1.0 / 3.0)
    # One step of Newton's: the power of a third that is rounded is off by log(x) / 3 ulp.
    root = p.ew("sub", root, p.ew("div", p.ew("sub", root, p.ew("div", safe, p.ew("mul", root, root))), 3.0))
    # Zeros and infinities are their own square roots too, and there the derivatives are the same: infinite and 0.
    below = e.signbit(x)
    end = p.ew("sqrt", p.select(plain, p.select(below, p.ew("neg", x), x), 1.0))
    root = p.select(plain, end, root)
    return p.select(below, p.ew("neg", root), root)


@eager
def float_power(x1: Any, x2: Any) -> Any:
    """``x1`` to the power ``x2``, of floats."""
    return e.pow(floats(x1), x2 if isinstance(x2, (int, float)) else floats(x2))


@eager
def fmod(x1: Any, x2: Any) -> Any:
    """Remainder with the sign of the dividend."""
    (a, b), _ = p.together(arr(x1), arr(x2))
    if a._dtype.startswith("u"):
        return p.ew("mod", a, b)
    # Sides are chosen: a magnitude has no derivative at 0.
    below = e.signbit(a) if is_float(a._dtype) else p.ew("lt", a, 0)
    r = p.ew("mod", p.select(below, p.ew("neg", a), a), p.select(p.ew("lt", b, 0), p.ew("neg", b), b))
    return p.select(below, p.ew("neg", r), r)


@eager
def divmod(x1: Any, x2: Any) -> tuple:
    """Quotient rounded down, and remainder with the sign of the divisor."""
    return p.ew("floordiv", arr(x1), arr(x2)), p.ew("mod", arr(x1), arr(x2))


@eager
def modf(x: Any) -> tuple:
    """Fraction and whole part, both with the sign of ``x``."""
    x = floats(x)
    part = p.ew("trunc", x)
    rest = p.select(p.ew("isinf", x), 0.0, p.ew("sub", x, p.select(p.ew("isinf", x), 0.0, part)))
    return e.copysign(rest, x), part


def _bits_of(x: Tracer) -> Tracer:
    """The bits of floats as integers; without derivative."""
    return one("bitcast", [one("stop_gradient", [x])], results=[(list(x.shape), f"i{_BITS[x._dtype]}")])


def _floats_of(bits: Tracer, dtype: str) -> Tracer:
    return one("bitcast", [bits], results=[(list(bits.shape), dtype)])


def view(x: Tracer, dtype: Any) -> Tracer:
    """The same bits as elements of another dtype of the same size; without derivative."""
    x = p.cast(x, x.dtype)  # a Python float has the bits of the dtype that it shows
    wanted, bits = p.name_of(dtype), as_dtype(x._dtype).bits
    if "bool" in (wanted, x._dtype) or as_dtype(wanted).bits != bits:
        raise fail("E_TYPE", f"view: expected a dtype of {bits} bits, as {x._dtype} has, got {wanted}",
                   "convert values with `.astype`; outside traced functions NumPy's `.view` takes other sizes")  # fmt: skip
    return x if x._dtype == wanted else one("bitcast", [one("stop_gradient", [x])], results=[(list(x.shape), wanted)], weak=False)


def _layout(dtype: str, name: str) -> tuple[int, int]:
    """Fraction bits and bias."""
    known = {"f64": (52, 1023), "f32": (23, 127), "f16": (10, 15), "bf16": (7, 127)}
    if dtype not in known:
        raise fail("E_TYPE", f"{name}: expected f16, bf16, f32 or f64, got {dtype}", "convert it with `.astype(ts.f32)`")
    return known[dtype]


def _integer(value: int, like: Tracer) -> Tracer:
    return splat(value, (), like._dtype)


@eager
def frexp(x: Any) -> tuple:
    """Fraction of magnitude 0.5 to 1, and exponent of two (i32): ``x == fraction * 2 ** exponent``."""
    x = floats(x)
    fraction, bias = _layout(x._dtype, "frexp")
    exponents = (1 << (_BITS[x._dtype] - 1 - fraction)) - 1

    def exponent_of(v: Tracer) -> Tracer:
        bits = _bits_of(v)
        return p.cast(p.ew("and", p.ew("shr", bits, _integer(fraction, bits)), _integer(exponents, bits)), "i32")

    # Subnormal numbers are brought up first.
    low = p.ew("eq", exponent_of(x), 0)
    up = 2.0 ** (fraction + 2)
    normal = p.select(low, p.ew("mul", x, up), x)
    at = p.ew("sub", exponent_of(normal), bias - 1)
    at = p.select(low, p.ew("sub", at, fraction + 2), at)
    plain = p.ew("or", p.ew("eq", x, 0.0), p.ew("not", p.ew("isfinite", x)))
    at = p.select(plain, 0, at)
    return p.select(plain, x, ldexp(x, p.ew("neg", at))), p.cast(at, "i32")


@eager
def ldexp(x: Any, exponent: Any) -> Any:
    """``x * 2 ** exponent``, exact where it is representable."""
    x, n = floats(x), p.cast(whole(exponent, "ldexp"), "i32")
    fraction, bias = _layout(x._dtype, "ldexp")
    wide = f"i{_BITS[x._dtype]}"
    shape = p.broadcast_shapes(x.shape, n.shape)
    x, n = p.broadcast_to(x, shape), p.broadcast_to(n, shape)
    # In four steps, each a normal power of two; the larger ones first, so that only the last can round.
    most = bias - 1
    for _ in range(4):
        step = p.ew("minimum", p.ew("maximum", n, -most), most)
        bits = p.cast(p.ew("add", step, bias), wide)
        x = p.ew("mul", x, _floats_of(p.ew("shl", bits, _integer(fraction, bits)), x._dtype))
        n = p.ew("sub", n, step)
    return x


@eager
def nextafter(x1: Any, x2: Any) -> Any:
    """The float next to ``x1`` in the direction of ``x2``."""
    (a, b), _ = p.together(floats(x1), floats(x2), floats=True)
    _layout(a._dtype, "nextafter")
    bits = _bits_of(a)
    away = p.ew("eq", p.ew("lt", a, b), p.ew("gt", a, 0.0))
    moved = p.select(away, p.ew("add", bits, 1), p.ew("sub", bits, 1))
    least = _floats_of(p.broadcast_to(_integer(1, bits), a.shape), a._dtype)
    from_zero = p.select(p.ew("lt", b, 0.0), p.ew("neg", least), least)
    out = p.select(p.ew("eq", a, 0.0), from_zero, _floats_of(moved, a._dtype))
    out = p.select(p.ew("eq", a, b), b, out)
    return p.select(p.ew("or", p.ew("isnan", a), p.ew("isnan", b)), math.nan, out)


@eager
def spacing(x: Any) -> Any:
    """The distance from ``x`` to the next float away from zero, with the sign of ``x``."""
    x = floats(x)
    return p.ew("sub", nextafter(x, e.copysign(p.splat(math.inf, x.shape, x._dtype), x)), x)


@eager
def heaviside(x1: Any, x2: Any) -> Any:
    """0 below zero, 1 above, ``x2`` at zero; NaN for NaN."""
    (x, h), _ = p.together(floats(x1), floats(x2), floats=True)
    out = p.select(p.ew("lt", x, 0.0), 0.0, p.select(p.ew("eq", x, 0.0), h, 1.0))
    return p.select(p.ew("isnan", x), x, out)


@eager
def logaddexp2(x1: Any, x2: Any) -> Any:
    """log2(2**x1 + 2**x2), without intermediate overflow."""
    by = math.log(2.0)
    return p.ew("div", e.logaddexp(p.ew("mul", floats(x1), by), p.ew("mul", floats(x2), by)), by)


def _without_nan(x1: Any, x2: Any, function: str, wins: str) -> Tracer:
    (a, b), _ = p.together(arr(x1), arr(x2))
    if not is_float(a._dtype):
        return p.ew(function, a, b)
    return p.select(p.ew("or", p.ew(wins, a, b), p.ew("isnan", b)), a, b)


@eager
def fmax(x1: Any, x2: Any) -> Any:
    """The larger of two, NaN left out. At ties the derivative is by ``x2`` alone."""
    return _without_nan(x1, x2, "maximum", "gt")


@eager
def fmin(x1: Any, x2: Any) -> Any:
    """The smaller of two, NaN left out. At ties the derivative is by ``x2`` alone."""
    return _without_nan(x1, x2, "minimum", "lt")


def _euclid(a: Tracer, b: Tracer) -> Tracer:
    """The greatest common divisor, by as many divisions as the bits allow."""
    def more(pair: tuple) -> Any:
        return p.reduce("or", p.ew("ne", pair[1], 0))

    def divide(pair: tuple) -> tuple:
        x, y = pair
        none = p.ew("eq", y, 0)
        return p.select(none, x, y), p.select(none, 0, p.ew("mod", x, p.select(none, 1, y)))

    return while_loop(more, divide, (a, b))[0]


@eager
def gcd(x1: Any, x2: Any) -> Any:
    """Greatest common divisor of integers."""
    (a, b), _ = p.together(whole(x1, "gcd"), whole(x2, "gcd"))
    if a._dtype.startswith("u"):
        return _euclid(a, b)
    return _euclid(p.ew("abs", a), p.ew("abs", b))


@eager
def lcm(x1: Any, x2: Any) -> Any:
    """Least common multiple of integers."""
    (a, b), _ = p.together(whole(x1, "lcm"), whole(x2, "lcm"))
    if not a._dtype.startswith("u"):
        a, b = p.ew("abs", a), p.ew("abs", b)
    by = _euclid(a, b)
    none = p.ew("eq", by, 0)
    return p.select(none, 0, p.ew("mul", p.ew("floordiv", a, p.select(none, 1, by)), b))


@eager
def bitwise_count(x: Any) -> Any:
    """How many bits of the magnitude are set, as u8."""
    x = whole(x, "bitwise_count")
    size = x if x._dtype.startswith("u") else p.ew("abs", x)
    bits = _limits(x._dtype).bits
    v = p.cast(size, "u64")
    if bits < 64:
        v = p.ew("and", v, (1 << bits) - 1)

    def masked(value: Tracer, pattern: int) -> Tracer:
        return p.ew("and", value, as_tracer(numpy.uint64(pattern)))

    v = p.ew("sub", v, masked(p.ew("shr", v, 1), 0x5555555555555555))
    v = p.ew("add", masked(v, 0x3333333333333333), masked(p.ew("shr", v, 2), 0x3333333333333333))
    v = masked(p.ew("add", v, p.ew("shr", v, 4)), 0x0F0F0F0F0F0F0F0F)
    return p.cast(p.ew("shr", p.ew("mul", v, as_tracer(numpy.uint64(0x0101010101010101))), 56), "u8")


@eager
def isneginf(x: Any) -> Any:
    """Whether minus infinity."""
    return p.ew("eq", floats(x), -math.inf)


@eager
def isposinf(x: Any) -> Any:
    """Whether plus infinity."""
    return p.ew("eq", floats(x), math.inf)


@eager
def isreal(x: Any) -> Any:
    """Whether without imaginary part: all are."""
    return p.splat(True, arr(x).shape, "bool")


@eager
def iscomplex(x: Any) -> Any:
    """Whether with imaginary part: none is."""
    return p.splat(False, arr(x).shape, "bool")


def isrealobj(x: Any) -> bool:
    """Whether the dtype is a real one: all are."""
    return True


def iscomplexobj(x: Any) -> bool:
    """Whether the dtype is a complex one: none is."""
    return False


def isscalar(x: Any) -> bool:
    """Whether it is a number of Python or NumPy."""
    return isinstance(x, (bool, int, float, numpy.generic))


@eager
def fix(x: Any) -> Any:
    """Rounded towards zero."""
    return e.trunc(arr(x))


@eager
def around(x: Any, decimals: int = 0) -> Any:
    """Rounded to a number of decimals, ties to even."""
    x = arr(x)
    if decimals == 0 or not is_float(x._dtype) and decimals > 0:
        return e._nearest(x)
    if not is_float(x._dtype):
        by = 10 ** -decimals
        down = p.ew("floordiv", x, by)
        rest = p.ew("sub", p.ew("mul", p.ew("sub", x, p.ew("mul", down, by)), 2), by)
        up = p.ew("or", p.ew("gt", rest, 0), p.ew("and", p.ew("eq", rest, 0), p.ew("ne", p.ew("mod", down, 2), 0)))
        return p.ew("mul", p.ew("add", down, p.cast(up, x._dtype)), by)
    by = 10.0 ** abs(decimals)
    if decimals > 0:
        return p.ew("div", p.ew("round", p.ew("mul", x, by)), by)
    return p.ew("mul", p.ew("round", p.ew("div", x, by)), by)


@eager
def round(x: Any, decimals: int = 0) -> Any:
    """Rounded to the nearest integer, or to a number of decimals, ties to even."""
    return e._nearest(x) if decimals == 0 else around(x, decimals)


@eager
def rint(x: Any) -> Any:
    """The nearest integer as a float, ties to even."""
    return p.ew("round", floats(x))


@eager
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """NaN and infinities replaced: by ``nan``, ``posinf`` and ``neginf``, by default 0 and the extreme numbers of the dtype."""
    x = arr(x)
    if not is_float(x._dtype):
        return x
    limits = _limits(x._dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    out = p.select(p.ew("isnan", x), nan, x)
    out = p.select(p.ew("eq", x, math.inf), high, out)
    return p.cast(p.select(p.ew("eq", x, -math.inf), low, out), x._dtype)


@eager
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether ``abs(a - b) <= atol + rtol * abs(b)``; infinities are close to themselves."""
    (x, y), _ = p.together(arr(a), arr(b))
    if not is_float(x._dtype):
        x, y = p.cast(x, "f64"), p.cast(y, "f64")
    finite = p.ew("and", p.ew("isfinite", x), p.ew("isfinite", y))
    near = p.ew("le", p.ew("abs", p.ew("sub", x, y)), p.ew("add", p.ew("mul", p.ew("abs", y), rtol), atol))
    out = p.ew("or", p.ew("eq", x, y), p.ew("and", finite, near))
    return p.ew("or", out, p.ew("and", p.ew("isnan", x), p.ew("isnan", y))) if equal_nan else out


@eager
def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether all are close, as `isclose` says."""
    return p.reduce("and", isclose(a, b, rtol, atol, equal_nan))


@eager
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether two arrays have one shape and equal elements."""
    a, b = arr(a1), arr(a2)
    if a.shape != b.shape:
        return p.splat(False, (), "bool")
    same = p.ew("eq", a, b)
    if equal_nan and is_float(a._dtype) and is_float(b._dtype):
        same = p.ew("or", same, p.ew("and", p.ew("isnan", a), p.ew("isnan", b)))
    return p.reduce("and", same)


@eager
def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether two arrays are equal after broadcasting."""
    a, b = arr(a1), arr(a2)
    try:
        p.broadcast_shapes(a.shape, b.shape)
    except ValueError:
        return p.splat(False, (), "bool")
    return p.reduce("and", p.ew("eq", a, b))


def broadcast_shapes(*shapes: Any) -> tuple:
    """The shape that arrays of these shapes broadcast to."""
    return p.broadcast_shapes(*((s,) if isinstance(s, int) else tuple(s) for s in shapes))


def promote_types(a: Any, b: Any) -> Any:
    """The dtype that two dtypes promote to."""
    return result_type(a, b)


def ndim(x: Any) -> int:
    """How many axes."""
    return len(shape(x))


def shape(x: Any) -> tuple:
    """The extents."""
    return tuple(aval(x)[0]) if is_array(x) else numpy.shape(x)


def size(x: Any, axis: Any = None) -> int:
    """How many elements, or how many along an axis."""
    extents = shape(x)
    return math.prod(extents) if axis is None else math.prod(extents[a] for a in p.axes_of(axis, len(extents)))


def iterable(x: Any) -> bool:
    """Whether it can be iterated over."""
    try:
        iter(x)
    except TypeError:
        return False
    return True


def issubdtype(a: Any, b: Any) -> bool:
    """Whether a dtype is another, or of a kind: one of `isdtype`'s words, or NumPy's class."""
    kinds = {
        numpy.floating: "real floating", numpy.inexact: "real floating", numpy.integer: "integral", numpy.number: "numeric",
        numpy.signedinteger: "signed integer", numpy.unsignedinteger: "unsigned integer", numpy.bool_: "bool",
    }  # fmt: skip
    if isinstance(b, type) and b in (numpy.generic, object):
        return True
    return bool(isdtype(a, kinds.get(b, b) if isinstance(b, type) else b))


@eager
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """For each element the choice of the first condition that holds."""
    if len(condlist) != len(choicelist) or not len(condlist):
        raise fail(
            "E_ARGUMENT",
            f"select: expected as many choices as conditions, and at least one, got {len(condlist)} and {len(choicelist)}",
            "give one choice for each condition",
        )
    (*choices, out), _ = p.together(*(arr(c) for c in choicelist), default if isinstance(default, (bool, int, float)) else arr(default))
    for cond, choice in zip(reversed(list(condlist)), reversed(choices), strict=True):
        cond = arr(cond)
        if cond._dtype != "bool":
            raise fail("E_TYPE", f"select: expected conditions of bools, got {cond._dtype}", "write `x != 0`")
        out = p.select(cond, choice, out)
    return out


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """For each element the function, or number, of the last condition that holds; one more is the default."""
    return _piecewise(x, list(condlist) if isinstance(condlist, (list, tuple)) else [condlist], list(funclist), args, kw)


@eager
def _piecewise(x: Any, conditions: list, functions: list, args: tuple, kw: dict) -> Any:
    x = arr(x)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise fail(
            "E_ARGUMENT",
            f"piecewise: expected {len(conditions)} or {len(conditions) + 1} functions, got {len(functions)}",
            "give one for each condition, and one more where none holds",
        )

    def value(f: Any) -> Any:
        return f(x, *args, **kw) if callable(f) else f

    out = p.cast(value(functions[-1]), x._dtype) if len(functions) > len(conditions) else p.splat(0, x.shape, x._dtype)
    for cond, f in zip(conditions, functions, strict=False):
        out = p.select(arr(cond), p.cast(value(f), x._dtype), out)
    return p.broadcast_to(out, x.shape)


@eager
def choose(a: Any, choices: Any, mode: str = "raise") -> Any:
    """For each element the one of ``choices`` whose number it is. ``"wrap"`` counts around; else numbers outside are clamped."""
    at, count = whole(a, "choose"), len(choices)
    at = p.ew("mod", at, count) if mode == "wrap" else e.clip(at, 0, count - 1)
    options, _ = p.together(*(arr(c) for c in choices))
    out = options[-1]
    for k in range(count - 2, -1, -1):
        out = p.select(p.ew("eq", at, k), options[k], out)
    return out


def vectorize(pyfunc: Any, *, excluded: Any = (), signature: Any = None) -> Any:
    """A function of numbers as one of arrays that broadcast: `ts.vmap` over every axis. With a ``signature`` such as ``"(n),(n)->()"`` a
    function of arrays, which has the last axes that it names."""
    fixed = set(excluded)
    ranks = None if signature is None else _core_ranks(signature)

    def call(*args: Any) -> Any:
        moving = [i for i in range(len(args)) if i not in fixed]
        if ranks is not None and len(ranks) != len(moving):
            raise fail("E_ARGUMENT", f"vectorize: expected {len(ranks)} arrays for `{signature}`, got {len(moving)}", "give one for each part before `->`")
        arrays = [arr(args[i]) for i in moving]
        own = [x.ndim - r for x, r in zip(arrays, ranks or [0] * len(arrays), strict=True)]
        if min(own, default=0) < 0:
            raise fail("E_SHAPE_MISMATCH", f"vectorize: expected arrays with the axes of `{signature}`, got {', '.join(p.show(x.shape) for x in arrays)}",
                       "an array has at least the axes that its part of the signature names")  # fmt: skip
        shape = p.broadcast_shapes(*(x.shape[:k] for x, k in zip(arrays, own, strict=True)))
        if not shape:
            return pyfunc(*args)
        flat = [p.reshape(p.broadcast_to(x, (*shape, *x.shape[k:])), [-1, *x.shape[k:]]) for x, k in zip(arrays, own, strict=True)]

        def one_of(*elements: Any) -> Any:
            full = list(args)
            for i, v in zip(moving, elements, strict=True):
                full[i] = v
            return pyfunc(*full)

        made = vmap(one_of)(*flat)
        return _mapped(lambda y: p.reshape(y, (*shape, *y.shape[1:])), made)

    return eager(call)


def _core_ranks(signature: str) -> list[int]:
    """How many axes each argument has in ``"(n,m),(m)->(n)"``."""
    given, arrow, _ = signature.replace(" ", "").partition("->")
    parts = re.findall(r"\(([\w,]*)\)", given)
    if not arrow or ",".join(f"({v})" for v in parts) != given:
        raise fail("E_ARGUMENT", f"vectorize: expected a signature such as `(n,m),(m)->(n)`, got {signature!r}", "name the axes of each array in parentheses")
    return [len([v for v in part.split(",") if v]) for part in parts]


def _mapped(fn: Any, tree: Any) -> Any:
    return pytree.map(fn, tree)


