"""Differences, integrals, interpolation, convolutions, polynomials and products of vectors."""

from __future__ import annotations

import math
from typing import Any

from ..base.promotion import is_float
from ..trace import prim as p
from ..trace.control import scan
from ..trace.dims import Dim
from ..trace.jit import eager
from ..trace.tracer import Tracer, fail, one
from . import _elementwise as e, _index as ix, _linalg as la, _manipulate as m, _reduce as r
from ._arguments import arr, flat, floats, promoted


def _part(x: Tracer, axis: int, start: int, stop: int) -> Tracer:
    """Positions along one axis, negative ones counted from the end."""
    n = x.shape[axis]
    low, high = [0] * x.ndim, list(x.shape)
    first = start + n if start < 0 else start
    low[axis], high[axis] = first, max(stop + n if stop <= 0 else stop, first)
    return p.slice_(x, low, high, [1] * x.ndim)


@eager
def diff(x: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Each element less the one before, along an axis, ``n`` times."""
    x = arr(x)
    if x.ndim == 0:
        raise fail("E_SHAPE_MISMATCH", "diff: expected an array with axes", "give a vector or more")
    if n < 0:
        raise fail("E_ARGUMENT", f"diff: expected `n` of 0 or more, got {n}", "write `n=1`")
    at = p.axis_of(axis, x.ndim)

    def side(v: Any) -> Tracer:
        v = arr(v)
        return p.broadcast_to(v, [1 if i == at else d for i, d in enumerate(x.shape)]) if not v.ndim else v

    parts = [*([side(prepend)] if prepend is not None else []), x, *([side(append)] if append is not None else [])]
    x = p.concat(parts, at) if len(parts) > 1 else x
    for _ in range(n):
        if x.shape[at] < 2:
            return _empty(x, at)
        a, b = _part(x, at, 1, 0), _part(x, at, 0, -1)
        x = p.ew("ne" if x._dtype == "bool" else "sub", a, b)
    return x


def _empty(x: Tracer, axis: int) -> Tracer:
    limit = [0 if i == axis else d for i, d in enumerate(x.shape)]
    return p.slice_(x, [0] * x.ndim, limit, [1] * x.ndim)


@eager
def ediff1d(x: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of the elements as a vector, with others before and behind."""
    made = diff(flat(x))
    parts = [*([flat(to_begin)] if to_begin is not None else []), made, *([flat(to_end)] if to_end is not None else [])]
    return p.concat([p.cast(v, made._dtype) for v in parts], 0) if len(parts) > 1 else made


@eager
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Slopes by central differences, at the ends by those of one side; distances are numbers or positions along the axis. A list
    for several axes."""
    f = floats(f)
    if edge_order not in (1, 2):
        raise fail("E_ARGUMENT", f"gradient: expected `edge_order` of 1 or 2, got {edge_order}", "leave it out")
    axes = p.axes_of(axis, f.ndim) if axis is None or isinstance(axis, int) else [p.axis_of(a, f.ndim) for a in axis]
    if len(varargs) not in (0, 1, len(axes)):
        raise fail("E_ARGUMENT", f"gradient: expected one distance, or {len(axes)}, got {len(varargs)}", "give one for each axis")
    steps = list(varargs) * len(axes) if len(varargs) == 1 else list(varargs) or [1.0] * len(axes)
    made = [_slope(f, at, step, edge_order) for at, step in zip(axes, steps, strict=True)]
    return made[0] if len(made) == 1 else made


def _slope(f: Tracer, at: int, step: Any, order: int) -> Tracer:
    n = f.shape[at]
    if n < order + 1:
        raise fail("E_SHAPE_MISMATCH", f"gradient: expected {order + 1} elements or more along axis {at}, got {n}", "give more elements")
    h = step if isinstance(step, (int, float)) else arr(step)

    def gap(i: int, j: int) -> Any:
        """Distances of neighbours, as a column along the axis."""
        if isinstance(h, (int, float)) or not h.ndim:
            return h
        d = p.ew("sub", _part(h, 0, 1, 0), _part(h, 0, 0, -1))
        return p.reshape(_part(d, 0, i, j), [-1 if k == at else 1 for k in range(f.ndim)])

    up = p.ew("sub", _part(f, at, 1, 0), _part(f, at, 0, -1))
    slopes = p.ew("div", up, gap(0, 0))
    parts = []
    if n > 2:
        left, right = gap(0, -1), gap(1, 0)
        a, b = _part(slopes, at, 0, -1), _part(slopes, at, 1, 0)
        if isinstance(h, (int, float)) or not h.ndim:
            inner = p.ew("mul", p.ew("add", a, b), 0.5)
        else:
            inner = p.ew("div", p.ew("add", p.ew("mul", a, right), p.ew("mul", b, left)), p.ew("add", left, right))
    first, last = _part(slopes, at, 0, 1), _part(slopes, at, -1, 0)
    if order == 2:
        near, far = _part(slopes, at, 1, 2), _part(slopes, at, -2, -1)
        h1, h2 = (gap(0, 1), gap(1, 2)) if n > 2 else (1.0, 1.0)
        g1, g2 = (gap(-1, 0), gap(-2, -1)) if n > 2 else (1.0, 1.0)
        first = p.ew("sub", first, p.ew("mul", p.ew("sub", near, first), p.ew("div", h1, p.ew("add", h1, h2))))
        last = p.ew("add", last, p.ew("mul", p.ew("sub", last, far), p.ew("div", g1, p.ew("add", g1, g2))))
    parts = [first, inner, last] if n > 2 else [first, last]
    return p.cast(p.concat(parts, at), f._dtype)


@eager
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral along an axis by trapezoids, at positions ``x`` or distances ``dx``."""
    y = floats(y)
    at = p.axis_of(axis, y.ndim)
    if x is not None:
        x = arr(x)
        dx = diff(x, axis=at if x.ndim > 1 else 0)
        dx = p.reshape(dx, [-1 if i == at else 1 for i in range(y.ndim)]) if x.ndim == 1 else dx
    both = p.ew("mul", p.ew("add", _part(y, at, 1, 0), _part(y, at, 0, -1)), 0.5) if y.shape[at] > 1 else _empty(y, at)
    return p.reduce("sum", p.ew("mul", both, dx), at)


@eager
def unwrap(x: Any, discont: Any = None, axis: int = -1, period: Any = 2.0 * math.pi) -> Any:
    """Angles without jumps of more than half a period along an axis."""
    x = floats(x)
    at = p.axis_of(axis, x.ndim)
    if x.shape[at] < 2:
        return x
    step = diff(x, axis=at)
    half = period / 2 if isinstance(period, (int, float)) else p.ew("mul", period, 0.5)
    wrapped = p.ew("sub", p.ew("mod", p.ew("add", step, half), period), half)
    edge = p.ew("and", p.ew("eq", wrapped, -half if isinstance(half, (int, float)) else p.ew("neg", half)), p.ew("gt", step, 0.0))
    wrapped = p.select(edge, half, wrapped)
    fix = p.ew("sub", wrapped, step)
    limit = half if discont is None else e.maximum(discont, half)
    fix = p.select(p.ew("lt", p.ew("abs", step), limit), 0.0, fix)
    total = p.scan("sum", one("stop_gradient", [fix]), at)
    return p.concat([_part(x, at, 0, 1), p.ew("add", _part(x, at, 1, 0), total)], at)


@eager
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Linear interpolation at ``x`` between points ``(xp, fp)`` with rising ``xp``; beyond the ends ``left`` and ``right``."""
    x, xs, fs = floats(x), floats(xp), floats(fp)
    if xs.ndim != 1 or fs.shape != xs.shape or not xs.shape[0]:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"interp: expected `xp` and `fp` to be vectors of one length, got {p.show(xs.shape)} and {p.show(fs.shape)}",
            "use `ts.vmap` for more of them",
        )
    if period is not None:
        x, xs = p.ew("mod", x, period), p.ew("mod", xs, period)
        xs, fs = p.sort([xs, fs], 0)
        xs = p.concat([p.ew("sub", _part(xs, 0, -1, 0), period), xs, p.ew("add", _part(xs, 0, 0, 1), period)], 0)
        fs = p.concat([_part(fs, 0, -1, 0), fs, _part(fs, 0, 0, 1)], 0)
        left = right = None
    n = xs.shape[0]
    at = e.clip(r.searchsorted(xs, x, side="right"), 1, max(n - 1, 1))
    low = p.ew("sub", at, 1)
    high = p.ew("minimum", at, n - 1)
    x0, x1, y0, y1 = (ix.take(v, i, 0) for v, i in ((xs, low), (xs, high), (fs, low), (fs, high)))
    width = p.ew("sub", x1, x0)
    flat_ = p.ew("eq", width, 0.0)
    part = p.ew("div", p.ew("sub", x, x0), p.select(flat_, 1.0, width))
    made = p.select(flat_, y0, p.ew("add", y0, p.ew("mul", part, p.ew("sub", y1, y0))))
    first, last = ix.getitem(xs, 0), ix.getitem(xs, -1)
    made = p.select(p.ew("lt", x, first), ix.getitem(fs, 0) if left is None else left, made)
    made = p.select(p.ew("gt", x, last), ix.getitem(fs, -1) if right is None else right, made)
    # There exactly the last point, from its side; the slope is that of the last piece.
    made = p.select(p.ew("eq", x, last), p.select(flat_, y1, p.ew("add", y1, p.ew("mul", p.ew("sub", part, 1.0), p.ew("sub", y1, y0)))), made)
    return p.select(p.ew("isnan", x), math.nan, made)


# Convolutions


#: How many shifted vectors one kernel adds.
_SHIFTS = 16


def _summed(a: Tracer, v: Tracer, n: Any, k: int) -> Tracer:
    """The long vector, shifted by each position of the short one and scaled, added up: some shifts at a time where there are many."""
    dtype = a._dtype
    if dtype in ("f16", "bf16"):
        a, v = p.cast(a, "f32"), p.cast(v, "f32")
    m, each = n + k - 1, min(k, _SHIFTS)
    chunks, rest = k // each, k % each
    wide = p.pad(a, [k - 1], [k - 1])

    def added(total: Any, part: Tracer, factors: Tracer, count: int) -> Tracer:
        for c in range(count):
            factor = p.reshape(p.slice_(factors, [c], [c + 1], [1]), [])
            term = p.ew("mul", factor, p.slice_(part, [count - 1 - c], [count - 1 - c + m], [1]))
            total = term if total is None else p.ew("add", total, term)
        return total

    # Shift j begins at k - 1 - j; the last ones are not as many.
    end = p.slice_(v, [k - rest], [k], [1])
    made = added(None, p.slice_(wide, [0], [rest + m - 1], [1]), end, rest) if rest else None
    if chunks == 1:
        made = added(made, p.slice_(wide, [rest], [k + m - 1], [1]), p.slice_(v, [0], [each], [1]), each)
        return p.cast(made, dtype)
    def chunk(total: Tracer, given: tuple) -> tuple:
        start, factors = given
        return added(total, p.dynamic_slice(wide, [start], [m + each - 1]), factors, each), None

    factors = p.reshape(p.slice_(v, [0], [chunks * each], [1]), [chunks, each])
    starts = p.ew("sub", k - each, p.ew("mul", p.iota((chunks,), 0), each))
    made = p.splat(0, (m,), a._dtype) if made is None else made
    return p.cast(scan(chunk, made, (starts, factors))[0], dtype)


def _skewed(a: Tracer, v: Tracer, n: Any, k: Any) -> Tracer:
    """The outer product with each row shifted by one: rows of n + k, whose sum is the result. For open extents."""
    rows = p.pad(p.ew("mul", p.expand_dims(v, 1), p.expand_dims(a, 0)), [0, 0], [0, k])
    line = p.slice_(p.reshape(rows, [k * (n + k)]), [0], [k * (n + k - 1)], [1])
    return p.reduce("sum", p.reshape(line, [k, n + k - 1]), 0)


def _convolved(a: Tracer, v: Tracer, mode: str, name: str) -> Tracer:
    if mode not in ("full", "same", "valid"):
        raise fail("E_ARGUMENT", f'{name}: expected `mode` to be "full", "same" or "valid", got {mode!r}', "leave it out")
    if a.ndim != 1 or v.ndim != 1 or not a.shape[0] or not v.shape[0]:
        raise fail("E_SHAPE_MISMATCH", f"{name}: expected two vectors with elements, got {p.show(a.shape)} and {p.show(v.shape)}", "flatten them")
    n, k = a.shape[0], v.shape[0]
    made = _summed(a, v, n, k) if isinstance(k, int) else _skewed(a, v, n, k)
    if mode == "full":
        return made
    if mode == "valid":
        return _part(made, 0, k - 1, n)
    low = (k - 1) // 2
    return _part(made, 0, low, low + n)


@eager
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    """The convolution of two vectors. An infinity in the shorter one gives NaN where it is multiplied by the zeros beyond the ends."""
    (a, v), _ = promoted(a, v)
    a, v = (v, a) if v.size > a.size else (a, v)
    return _convolved(a, v, mode, "convolve")


@eager
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    """The cross-correlation of two vectors."""
    (a, v), _ = promoted(a, v)
    if v.size > a.size:
        return p.reverse(_convolved(v, p.reverse(a, [0]), mode, "correlate"), [0])
    return _convolved(a, p.reverse(v, [0]), mode, "correlate")


# Polynomials: vectors of coefficients, highest power first


@eager
def polyval(p_: Any, /, x: Any) -> Any:
    """A polynomial at ``x``, by Horner's rule."""
    c, x = arr(p_), arr(x)
    (c, x), _ = promoted(c, x)
    out = p.splat(0, x.shape, x._dtype)
    if not c.shape[0]:
        return out
    if c.shape[0] > 64:
            return scan(lambda y, v: (p.ew("add", p.ew("mul", y, x), v), 0.0), out, c)[0]
    out = p.broadcast_to(ix.getitem(c, 0), x.shape)
    for i in range(1, c.shape[0]):
        out = p.ew("add", p.ew("mul", out, x), ix.getitem(c, i))
    return out


def _level(a: Any, b: Any) -> list[Tracer]:
    """Two polynomials with as many coefficients."""
    parts, _ = promoted(m.reshape(arr(a), [-1]), m.reshape(arr(b), [-1]))
    n = max(v.shape[0] for v in parts)
    return [p.pad(v, [n - v.shape[0]], [0]) for v in parts]


@eager
def polyadd(a1: Any, a2: Any) -> Any:
    """The sum of two polynomials."""
    return p.ew("add", *_level(a1, a2))


@eager
def polysub(a1: Any, a2: Any) -> Any:
    """The difference of two polynomials."""
    return p.ew("sub", *_level(a1, a2))


@eager
def polymul(a1: Any, a2: Any) -> Any:
    """The product of two polynomials."""
    return convolve(flat(a1), flat(a2))


@eager
def polyder(p_: Any, /, m: int = 1) -> Any:
    """The ``m``-th derivative of a polynomial."""
    c = flat(p_)
    for _ in range(m):
        n = c.shape[0]
        if n < 2:
            return _empty(c, 0)
        powers = p.ew("sub", n - 1, p.iota((n - 1,), 0, c._dtype))
        c = p.ew("mul", _part(c, 0, 0, -1), powers)
    return c


@eager
def polyint(p_: Any, /, m: int = 1, k: Any = None) -> Any:
    """The ``m``-th integral of a polynomial, with constants ``k``, the first integral's first."""
    c = floats(flat(p_))
    fixed = p.splat(0.0, (m,), c._dtype) if k is None else p.cast(flat(k), c._dtype)
    fixed = p.broadcast_to(fixed, (m,)) if fixed.shape[0] == 1 else fixed
    for i in range(m):
        n = c.shape[0]
        powers = p.ew("sub", n, p.iota((n,), 0, c._dtype))
        c = p.concat([p.ew("div", c, powers), _part(fixed, 0, i, i + 1)], 0)
    return c


@eager
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:
    """Powers of a vector as columns, highest first unless ``increasing``."""
    x = arr(x)
    if x.ndim != 1:
        raise fail("E_SHAPE_MISMATCH", f"vander: expected a vector, got {p.show(x.shape)}", "flatten it")
    count = x.shape[0] if N is None else N
    columns = [p.splat(1, x.shape, x._dtype)]
    while len(columns) < count:
        columns.append(p.ew("mul", columns[-1], x))
    columns = columns[:count] if increasing else columns[:count][::-1]
    if not count:
        return p.splat(0, (x.shape[0], 0), x._dtype)
    return p.concat([p.expand_dims(v, 1) for v in columns], 1)


# Products


@eager
def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Product of numbers, dot product of vectors or matmul; with more axes, over the last axis of ``a`` and the second to last of ``b``."""
    a, b = arr(a), arr(b)
    if not a.ndim or not b.ndim:
        return p.ew("mul", a, b)
    at = b.ndim - 2 if b.ndim > 1 else 0
    if a.shape[-1] != b.shape[at]:
        raise fail("E_SHAPE_MISMATCH", f"dot: expected extents that agree, got {p.show(a.shape)} and {p.show(b.shape)}", "transpose one of them")
    return p.dot(a, b, ([a.ndim - 1], [at]), out=preferred_element_type)


@eager
def inner(a: Any, b: Any) -> Any:
    """Sums of products over the last axes of both."""
    a, b = arr(a), arr(b)
    if not a.ndim or not b.ndim:
        return p.ew("mul", a, b)
    if a.shape[-1] != b.shape[-1]:
        raise fail("E_SHAPE_MISMATCH", f"inner: expected last axes that agree, got {p.show(a.shape)} and {p.show(b.shape)}", "transpose one")
    return p.dot(a, b, ([a.ndim - 1], [b.ndim - 1]))


@eager
def vdot(a: Any, b: Any) -> Any:
    """Sum of the products of all elements."""
    return dot(flat(a), flat(b))


@eager
def matvec(x1: Any, x2: Any) -> Any:
    """Matrices times vectors; the leading axes are broadcast."""
    made = la.matmul(arr(x1), p.expand_dims(arr(x2), -1))
    return p.reshape(made, made.shape[:-1])


@eager
def vecmat(x1: Any, x2: Any) -> Any:
    """Vectors times matrices; the leading axes are broadcast."""
    made = la.matmul(p.expand_dims(arr(x1), -2), arr(x2))
    return p.reshape(made, [*made.shape[:-2], made.shape[-1]])


@eager
def kron(a: Any, b: Any) -> Any:
    """The Kronecker product: every element of one times the whole of the other."""
    a, b = arr(a), arr(b)
    rank = max(a.ndim, b.ndim)
    sa, sb = ([1] * (rank - v.ndim) + list(v.shape) for v in (a, b))
    wide = p.ew("mul", p.reshape(a, [d for s in sa for d in (s, 1)]), p.reshape(b, [d for s in sb for d in (1, s)]))
    return p.reshape(wide, [x * y for x, y in zip(sa, sb, strict=True)])


@eager
def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    """The cross product of vectors of 3 elements along an axis, or of 2: then one number each."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = m.moveaxis(arr(a), axisa, -1), m.moveaxis(arr(b), axisb, -1)
    if a.shape[-1] not in (2, 3) or b.shape[-1] not in (2, 3):
        raise fail("E_SHAPE_MISMATCH", f"cross: expected vectors of 2 or 3 elements, got {p.show(a.shape)} and {p.show(b.shape)}", "choose `axis=`")

    def part(v: Tracer, i: int) -> Any:
        return ix.getitem(v, (..., i)) if i < v.shape[-1] else p.splat(0, v.shape[:-1], v._dtype)

    def minor(i: int, j: int) -> Tracer:
        return p.ew("sub", p.ew("mul", part(a, i), part(b, j)), p.ew("mul", part(a, j), part(b, i)))

    if a.shape[-1] == b.shape[-1] == 2:
        return minor(0, 1)
    made = [minor(1, 2), minor(2, 0), minor(0, 1)]
    return m.moveaxis(p.concat([p.expand_dims(v, v.ndim) for v in made], made[0].ndim), -1, axisc)
