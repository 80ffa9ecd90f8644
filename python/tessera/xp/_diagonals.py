"""Diagonals, triangles, grids of positions, and ranges that NumPy has beyond the array API."""

from __future__ import annotations

import math
from typing import Any

import numpy

from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import Tracer, as_tracer, aval, fail
from . import _creation as c, _elementwise as e, _manipulate as m
from ._arguments import arr, extent, whole
from ._reduce import sum as _sum
from ._sets import nonzero
from ._special import i0


def _diagonal(x: Tracer, offset: int) -> Tracer:
    """Of the last two axes: a slice of the rows that are taken, and of those one element each."""
    rows, columns = x.shape[-2:]
    first_row, first_column = max(-offset, 0), max(offset, 0)
    n = max(min(rows - first_row, columns - first_column), 0)
    start = [0] * (x.ndim - 2) + [first_row if n else 0, first_column if n else 0]
    limit = [*x.shape[:-2], start[-2] + n, start[-1] + n]
    square = p.slice_(x, start, limit, [1] * x.ndim)
    if n == 0:
        return p.reshape(square, [*x.shape[:-2], 0])
    # Rows joined to one line with n more elements: every (n + 1)-th is on the diagonal.
    lead = x.shape[:-2]
    line = p.reshape(square, [*lead, n * n])
    return p.slice_(line, [0] * line.ndim, [*lead, n * n], [1] * len(lead) + [n + 1])


@eager
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """The elements on a diagonal of two axes, which become the last axis."""
    x = arr(x)
    if x.ndim < 2:
        raise fail("E_SHAPE_MISMATCH", f"diagonal: expected two axes or more, got {p.show(x.shape)}", "make a matrix with `xp.diag`")
    a, b = p.axis_of(axis1, x.ndim, "axis1"), p.axis_of(axis2, x.ndim, "axis2")
    if a == b:
        raise fail("E_ARGUMENT", f"diagonal: expected two axes, got {axis1} and {axis2}", "choose different axes")
    return _diagonal(p.transpose(x, [*(i for i in range(x.ndim) if i not in (a, b)), a, b]), offset)


@eager
def diag(x: Any, k: int = 0) -> Any:
    """A matrix with a vector on its diagonal, or the diagonal of a matrix."""
    x = arr(x)
    if x.ndim == 2:
        return _diagonal(x, k)
    if x.ndim != 1:
        raise fail("E_SHAPE_MISMATCH", f"diag: expected a vector or a matrix, got {p.show(x.shape)}", "use `xp.diagonal` for more axes")
    n = x.shape[0]
    side = n + abs(k)
    # Each element followed by n zeros: rows of n + 1 that are cut again in rows of n.
    spread = p.pad(p.expand_dims(x, 1), [0, 0], [0, n])
    square = p.reshape(p.slice_(p.reshape(spread, [n * (n + 1)]), [0], [n * n], [1]), [n, n])
    low, left = max(-k, 0), max(k, 0)
    return p.pad(square, [low, left], [side - n - low, side - n - left])


@eager
def diagflat(x: Any, k: int = 0) -> Any:
    """A matrix with the elements, row by row, on its diagonal."""
    return diag(p.reshape(arr(x), [-1]), k)


@eager
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    """The sum of a diagonal."""
    return _sum(diagonal(x, offset, axis1, axis2), -1, dtype=dtype)


@eager
def fill_diagonal(x: Any, val: Any, wrap: bool = False, *, inplace: bool = False) -> Any:
    """A new array with ``val`` on the diagonal."""
    x = arr(x)
    if inplace:
        raise fail("E_UNSUPPORTED", "fill_diagonal: expected `inplace=False`: arrays are not written over", "use the result")
    if x.ndim < 2 or x.ndim > 2 and len(set(x.shape)) > 1:
        raise fail("E_SHAPE_MISMATCH", f"fill_diagonal: expected a matrix, or axes of one extent, got {p.show(x.shape)}", "index it first")
    on = p.splat(True, x.shape, "bool")
    row = p.iota(x.shape, 0)
    for axis in range(1, x.ndim):
        column = p.iota(x.shape, axis)
        same = p.ew("eq", p.ew("mod", row, x.shape[1] + 1) if wrap and x.ndim == 2 else row, column)
        on = p.ew("and", on, same)
    v = p.cast(val if isinstance(val, (bool, int, float)) else arr(val), x._dtype)
    if v.ndim:
        n = min(x.shape)
        line = p.reshape(v, [-1])
        reps = -(-n // line.shape[0])
        line = p.slice_(m.tile(line, [reps]), [0], [n], [1])
        line = p.pad(line, [0], [x.shape[0] - n])
        v = p.broadcast_to(p.reshape(line, [x.shape[0], *[1] * (x.ndim - 1)]), x.shape)
    return p.select(on, v, x)


# Triangles and positions


@eager
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:
    """Ones at and below a diagonal."""
    shape = (N, N if M is None else M)
    return p.cast(p.ew("ge", p.ew("add", p.iota(shape, 0), k), p.iota(shape, 1)), dtype or "f32")


def _constants(arrays: Any) -> tuple:
    return tuple(as_tracer(numpy.asarray(a, numpy.int64)) for a in arrays)


@eager
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """Rows and columns of the lower triangle."""
    return _constants(numpy.tril_indices(extent(n, "tril_indices", "n"), k, m))


@eager
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple:
    """Rows and columns of the upper triangle."""
    return _constants(numpy.triu_indices(extent(n, "triu_indices", "n"), k, m))


def tril_indices_from(x: Any, k: int = 0) -> tuple:
    """`tril_indices` for the shape of a matrix."""
    return tril_indices(aval(x)[0][-2], k, aval(x)[0][-1])


def triu_indices_from(x: Any, k: int = 0) -> tuple:
    """`triu_indices` for the shape of a matrix."""
    return triu_indices(aval(x)[0][-2], k, aval(x)[0][-1])


@eager
def diag_indices(n: int, ndim: int = 2) -> tuple:
    """The positions of a diagonal, an array for each axis."""
    return tuple(p.iota((n,), 0) for _ in range(ndim))


def diag_indices_from(x: Any) -> tuple:
    """`diag_indices` for the shape of an array."""
    return diag_indices(aval(x)[0][0], len(aval(x)[0]))


@eager
def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """The positions of a grid, one array for each axis."""
    shape = tuple(dimensions)
    wanted = dtype or "i64"
    if sparse:
        return tuple(p.reshape(p.iota((d,), 0, wanted), [d if j == i else 1 for j in range(len(shape))]) for i, d in enumerate(shape))
    if not shape:
        return p.splat(0, (0,), p.name_of(wanted))
    return p.concat([p.expand_dims(p.iota(shape, i, wanted), 0) for i in range(len(shape))], 0)


@eager
def ix_(*args: Any) -> tuple:
    """Vectors of positions as an open grid: ``x[ix_(rows, columns)]``."""
    parts = [arr(a) for a in args]
    for a in parts:
        if a.ndim != 1 or a._dtype == "bool":
            raise fail("E_SHAPE_MISMATCH", f"ix_: expected vectors of positions, got {a!r}", "flatten it, and use `flatnonzero` of masks")
    return tuple(p.reshape(a, [a.shape[0] if j == i else 1 for j in range(len(parts))]) for i, a in enumerate(parts))


@eager
def unravel_index(indices: Any, shape: Any) -> tuple:
    """Positions in row-major order as positions along each axis. Those outside are clamped."""
    at = whole(indices, "unravel_index")
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    total = math.prod(extents)
    at = p.ew("minimum", p.ew("maximum", p.select(p.ew("lt", at, 0), p.ew("add", at, total), at), 0), max(total - 1, 0))
    out: list = []
    for d in reversed(extents):
        out.append(p.ew("mod", at, max(d, 1)))
        at = p.ew("floordiv", at, max(d, 1))
    return tuple(reversed(out))


@eager
def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise") -> Any:
    """Positions along each axis as positions in row-major order. Those outside are clamped, or counted around with ``"wrap"``."""
    if mode not in ("raise", "wrap", "clip"):
        raise fail("E_ARGUMENT", f'expected `mode` to be "raise", "wrap" or "clip", got {mode!r}', 'leave it out')
    extents = (dims,) if isinstance(dims, int) else tuple(dims)
    parts = [whole(v, "ravel_multi_index") for v in multi_index]
    if len(parts) != len(extents):
        raise fail("E_ARGUMENT", f"expected {len(extents)} arrays of positions, got {len(parts)}", "give one for each axis")
    out: Any = 0
    for v, d in zip(parts, extents, strict=True):
        v = p.ew("mod", v, d) if mode == "wrap" else e.clip(v, 0, max(d - 1, 0))
        out = p.ew("add", p.ew("mul", out, d), v)
    return p.cast(out, "i64")


def mask_indices(n: int, mask_func: Any, k: int = 0, *, size: int | None = None) -> tuple:
    """Where a function such as `triu` keeps elements of an n x n matrix."""
    return nonzero(mask_func(c.ones((n, n)), k=k), size=size)


class _Grid:
    """``mgrid[0:2, 0:3]`` and ``ogrid[...]``; an imaginary step is a number of points."""

    def __init__(self, dense: bool) -> None:
        self._dense = dense

    def __getitem__(self, key: Any) -> Any:
        made = numpy.mgrid[key] if self._dense else numpy.ogrid[key]
        return _grid(*made) if isinstance(made, tuple) else _grid(made)[0]


@eager
def _grid(*arrays: Any) -> tuple:
    return tuple(p.cast(as_tracer(a), "f32") if aval(a)[1] == "f64" else as_tracer(a) for a in arrays)


mgrid, ogrid = _Grid(True), _Grid(False)


# Ranges


def identity(n: int, dtype: Any = None) -> Any:
    """Ones on the diagonal of a square matrix."""
    return c.eye(n, dtype=dtype)


def array(object: Any, dtype: Any = None, copy: bool = True, ndmin: int = 0) -> Any:
    """`asarray`, with at least ``ndmin`` axes."""
    return _array(object, dtype, ndmin)


@eager
def _array(x: Any, dtype: Any, ndmin: int) -> Any:
    x = arr(x)
    x = p.cast(x, x.dtype if dtype is None else dtype)
    return p.reshape(x, [1] * (ndmin - x.ndim) + list(x.shape)) if ndmin > x.ndim else x


def copy(x: Any) -> Any:
    """A copy of the elements."""
    return _copy(x)


@eager
def _copy(x: Any) -> Any:
    return arr(x)


@eager
def logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None) -> Any:
    """Powers of ``base`` with exponents at even distances."""
    made = c.linspace(start, stop, num, endpoint=endpoint, dtype="f64")
    return p.cast(p.ew("pow", base, made), dtype or "f32")


@eager
def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None) -> Any:
    """Numbers with a constant ratio, from ``start`` to ``stop``."""
    a, b = (p.cast(v, "f64") for v in (start, stop))
    steps = max(num - 1 if endpoint else num, 1)
    at = p.ew("div", p.iota((num,), 0, "f64"), float(steps))
    made = p.ew("mul", a, p.ew("exp", p.ew("mul", at, p.ew("log", p.ew("div", b, a)))))
    made = p.select(p.ew("eq", p.iota((num,), 0), 0), a, made)
    if endpoint and num > 1:
        made = p.select(p.ew("eq", p.iota((num,), 0), num - 1), b, made)
    return p.cast(made, dtype or "f32")


def fromfunction(function: Any, shape: Any, *, dtype: Any = "f32") -> Any:
    """A function of the positions of a grid."""
    return _fromfunction(function, tuple(shape), dtype)


@eager
def _fromfunction(function: Any, shape: tuple, dtype: Any) -> Any:
    return function(*(p.iota(shape, i, dtype) for i in range(len(shape))))


def _window(name: str, terms: tuple, doc: str) -> Any:
    """A sum of cosines; one point alone is 1."""

    def call(M: int) -> Any:
        n = p.ew("div", p.ew("mul", p.iota((max(M, 0),), 0, "f64"), 2.0 * math.pi), float(max(M - 1, 1)))
        out: Any = terms[0]
        for k, a in enumerate(terms[1:], 1):
            out = p.ew("add", out, p.ew("mul", p.ew("cos", p.ew("mul", n, float(k))), a))
        return p.cast(p.splat(1.0, (1,), "f64") if M == 1 else out, "f32")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return eager(call)


hanning = _window("hanning", (0.5, -0.5), "The Hann window of M points.")
hamming = _window("hamming", (0.54, -0.46), "The Hamming window of M points.")
blackman = _window("blackman", (0.42, -0.5, 0.08), "The Blackman window of M points.")


@eager
def bartlett(M: int) -> Any:
    """The triangular window of M points."""
    n = p.iota((max(M, 0),), 0, "f64")
    half = float(M - 1) / 2.0
    return p.cast(p.splat(1.0, (1,), "f64") if M == 1 else p.ew("sub", 1.0, p.ew("abs", p.ew("sub", p.ew("div", n, half), 1.0))), "f32")


@eager
def kaiser(M: int, beta: Any) -> Any:
    """The Kaiser window of M points."""
    n = p.iota((max(M, 0),), 0, "f64")
    half = float(max(M - 1, 1)) / 2.0
    at = p.ew("sub", p.ew("div", n, half), 1.0)
    beta = p.cast(beta, "f64")
    root = p.ew("sqrt", p.ew("maximum", p.ew("sub", 1.0, p.ew("mul", at, at)), 0.0))
    made = p.ew("div", i0(p.ew("mul", root, beta)), i0(beta))
    return p.cast(p.splat(1.0, (1,), "f64") if M == 1 else made, "f32")


