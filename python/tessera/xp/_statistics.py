"""Order statistics, averages, counts, and reductions of segments."""

from __future__ import annotations

import math
from typing import Any

import numpy

from ..base.promotion import is_float, kind
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import Tracer, as_tracer, fail, one
from . import _elementwise as e, _index as ix, _manipulate as m, _reduce as r, _select
from ._arguments import arr, extent, flat, floats, known, whole
from ._diagonals import diagonal
from ._numbers import _limits
from ._reduce import expect_elements

# Without NaN


def _holes(x: Any) -> tuple[Tracer, Tracer]:
    """An array, and where it is NaN."""
    x = arr(x)
    return x, p.ew("isnan", x) if is_float(x._dtype) else p.splat(False, x.shape, "bool")


@eager
def nansum(x: Any, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
    """Sum along axes, NaN counted as 0."""
    x, gone = _holes(x)
    return r.sum(p.select(gone, 0, x), axis, dtype=dtype, keepdims=keepdims)


@eager
def nanprod(x: Any, axis: Any = None, *, dtype: Any = None, keepdims: bool = False) -> Any:
    """Product along axes, NaN counted as 1."""
    x, gone = _holes(x)
    return r.prod(p.select(gone, 1, x), axis, dtype=dtype, keepdims=keepdims)


@eager
def nancumsum(x: Any, axis: int | None = None, *, dtype: Any = None) -> Any:
    """Sums up to each element, NaN counted as 0."""
    x, gone = _holes(x)
    x = p.select(gone, 0, x)
    return r.cumulative_sum(flat(x) if axis is None else x, 0 if axis is None else axis, dtype=dtype)


@eager
def nancumprod(x: Any, axis: int | None = None, *, dtype: Any = None) -> Any:
    """Products up to each element, NaN counted as 1."""
    x, gone = _holes(x)
    x = p.select(gone, 1, x)
    return r.cumulative_prod(flat(x) if axis is None else x, 0 if axis is None else axis, dtype=dtype)


def _extreme(op: str, x: Any, axis: Any, keepdims: bool) -> Tracer:
    x, gone = _holes(x)
    if not is_float(x._dtype):
        return p.reduce(op, x, axis, keepdims)
    made = p.reduce(op, p.select(gone, -math.inf if op == "max" else math.inf, x), axis, keepdims)
    return p.select(p.reduce("and", gone, axis, keepdims), math.nan, made)


@eager
def nanmax(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Greatest along axes, NaN left out; NaN where nothing is left."""
    expect_elements("nanmax", x, axis)
    return _extreme("max", x, axis, keepdims)


@eager
def nanmin(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Least along axes, NaN left out; NaN where nothing is left."""
    expect_elements("nanmin", x, axis)
    return _extreme("min", x, axis, keepdims)


@eager
def nanmean(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Average along axes, NaN left out."""
    x, gone = _holes(floats(x))
    count = p.reduce("sum", p.cast(p.ew("not", gone), x._dtype), axis, keepdims)
    return p.ew("div", p.reduce("sum", p.select(gone, 0.0, x), axis, keepdims), count)


@eager
def nanvar(x: Any, axis: Any = None, *, ddof: float = 0.0, keepdims: bool = False) -> Any:
    """Variance along axes, NaN left out, over ``n - ddof``; NaN where that is not above 0."""
    x, gone = _holes(floats(x))
    far = p.select(gone, 0.0, p.ew("sub", x, nanmean(x, axis, keepdims=True)))
    count = p.ew("sub", p.reduce("sum", p.cast(p.ew("not", gone), x._dtype), axis, keepdims), float(ddof))
    enough = p.ew("gt", count, 0.0)
    made = p.ew("div", p.reduce("sum", p.ew("mul", far, far), axis, keepdims), p.select(enough, count, 1.0))
    return p.select(enough, made, math.nan)


@eager
def nanstd(x: Any, axis: Any = None, *, ddof: float = 0.0, keepdims: bool = False) -> Any:
    """Square root of `nanvar`."""
    return p.ew("sqrt", nanvar(x, axis, ddof=ddof, keepdims=keepdims))


@eager
def nanargmax(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the greatest is, NaN left out; -1 where nothing is left."""
    x, gone = _holes(x)
    at = p.argreduce("max", p.select(gone, -math.inf, x) if is_float(x._dtype) else x, axis, keepdims)
    return p.select(p.reduce("and", gone, axis, keepdims), -1, at)


@eager
def nanargmin(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    """Where the least is, NaN left out; -1 where nothing is left."""
    x, gone = _holes(x)
    at = p.argreduce("min", p.select(gone, math.inf, x) if is_float(x._dtype) else x, axis, keepdims)
    return p.select(p.reduce("and", gone, axis, keepdims), -1, at)


# Averages


@eager
def ptp(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Greatest less least along axes."""
    x = arr(x)
    expect_elements("ptp", x, axis)
    return p.ew("sub", p.reduce("max", x, axis, keepdims), p.reduce("min", x, axis, keepdims))


@eager
def average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """Weighted mean along axes; with ``returned`` also the sums of the weights."""
    x = floats(x)
    if weights is None:
        made = r.mean(x, axis, keepdims=keepdims)
        count = p.splat(x.size / max(made.size, 1), made.shape, made._dtype)
        return (made, count) if returned else made
    w = floats(weights)
    if w.shape != x.shape:
        axes = [p.axis_of(a, x.ndim) for a in ([axis] if isinstance(axis, int) else list(axis or ()))]
        if w.shape != tuple(x.shape[a] for a in axes):
            raise fail(
                "E_SHAPE_MISMATCH",
                f"average: expected weights of shape {p.show(x.shape)} or of the axes that are averaged, got {p.show(w.shape)}",
                "give `axis=` with weights for its elements",
            )
        order = sorted(range(len(axes)), key=lambda i: axes[i])
        w = p.reshape(p.transpose(w, order), [d if i in axes else 1 for i, d in enumerate(x.shape)])
        w = p.broadcast_to(w, x.shape)
    (x, w), _ = p.together(x, w)
    total = p.reduce("sum", w, axis, keepdims)
    made = p.ew("div", p.reduce("sum", p.ew("mul", x, w), axis, keepdims), total)
    return (made, total) if returned else made


def _lined_up(x: Tracer, axis: Any) -> tuple[Tracer, list[int]]:
    """The axes that are reduced as one, last."""
    axes = p.axes_of(axis, x.ndim)
    rest = [i for i in range(x.ndim) if i not in axes]
    turned = p.transpose(x, [*rest, *axes])
    return p.reshape(turned, [*(x.shape[i] for i in rest), math.prod(x.shape[i] for i in axes)]), axes


def _parts(q: Any, of: float = 1.0) -> Tracer:
    """Quantiles; Python's numbers keep their digits until they are converted to the dtype of the array."""
    if isinstance(q, (int, float, list, tuple)) and not any(isinstance(v, Tracer) for v in (q if isinstance(q, (list, tuple)) else ())):
        return as_tracer(numpy.asarray(q, numpy.float64) / of)
    q = floats(q)
    return q if of == 1.0 else p.ew("div", q, of)


_METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


def _ranked(x: Tracer, low: Tracer, high: Tracer) -> list[Tracer]:
    """The elements of each row of these ranks, [..., quantiles]; ``high`` is ``low`` or the next."""
    count = low.shape[-1]
    if not _select.selects(x, count):
        s = p.sort([x], -1)[0]
        return [ix.take_along_axis(s, v, -1, "promise_in_bounds") for v in (low, high)]
    axis = low.ndim - 1

    def column(v: Tracer, i: int) -> Tracer:
        return p.reshape(p.slice_(v, [0] * axis + [i], [*v.shape[:-1], i + 1], [1] * v.ndim), v.shape[:-1])

    pairs = [_select.pair(x, column(low, i), column(high, i)) for i in range(count)]
    return [p.concat([p.expand_dims(v[side], axis) for v in pairs], axis) for side in (0, 1)]


def _quantile(x: Any, q: Any, axis: Any, method: str, keepdims: bool, skip: bool) -> Tracer:
    if method not in _METHODS:
        raise fail("E_ARGUMENT", f"expected `method` to be one of {', '.join(_METHODS)}, got {method!r}", 'leave it out for "linear"')
    given = floats(x)
    given = p.cast(given, given.dtype)
    rank = given.ndim
    x, axes = _lined_up(given, axis)
    q = p.cast(_parts(q), x._dtype)
    if q.ndim > 1:
        raise fail("E_SHAPE_MISMATCH", f"expected a number or a vector of quantiles, got {p.show(q.shape)}", "flatten it")
    n = x.shape[-1]
    if n == 0:
        out = p.splat(math.nan, (*q.shape, *x.shape[:-1]), x._dtype)
    else:
        gone = p.ew("isnan", x)
        lead = x.shape[:-1]
        count = p.reduce("sum", p.cast(p.ew("not", gone), "i64"), -1) if skip else p.splat(n, lead, "i64")
        last = p.cast(p.ew("maximum", p.ew("sub", count, 1), 0), x._dtype)
        # Positions [..., quantiles] between the first and the last that counts.
        at = p.ew("mul", p.expand_dims(last, last.ndim), p.reshape(q, [-1]))
        low, high = p.ew("floor", at), p.ew("ceil", at)
        if method == "nearest":
            low = high = p.ew("round", at)
        elif method == "lower":
            high = low
        elif method == "higher":
            low = high
        picks = _ranked(x, *(p.cast(e.clip(v, 0.0, float(n - 1)), "i64") for v in (low, high)))
        part = 0.5 if method == "midpoint" else p.ew("sub", at, low)
        if method == "midpoint":
            part = p.select(p.ew("eq", low, high), 0.0, p.splat(0.5, at.shape, x._dtype))
        same = p.ew("and", p.ew("eq", picks[0], picks[1]), p.ew("isinf", picks[0]))
        gap = p.select(same, 0.0, p.ew("sub", picks[1], picks[0]))
        out = p.ew("add", picks[0], p.ew("mul", gap, one("stop_gradient", [part])))
        bad = p.ew("or", p.ew("lt", q, 0.0), p.ew("gt", q, 1.0))
        none = p.ew("eq", count, 0) if skip else p.reduce("or", gone, -1)
        out = p.select(p.ew("or", p.expand_dims(none, none.ndim), p.reshape(bad, [-1])), math.nan, out)
        out = m.moveaxis(out, -1, 0) if q.ndim else p.reshape(out, lead)
    if keepdims:
        kept = [1 if i in axes else d for i, d in enumerate(given.shape)]
        out = p.reshape(out, [*q.shape, *kept])
    assert out.ndim == q.ndim + (rank if keepdims else rank - len(axes))
    return out


@eager
def quantile(x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """The values below which a fraction ``q`` of the elements is. A vector of fractions gives the first axis."""
    return _quantile(x, q, axis, method, keepdims, False)


@eager
def percentile(x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """`quantile` with ``q`` in percent."""
    return _quantile(x, _parts(q, 100.0), axis, method, keepdims, False)


@eager
def median(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The middle element, or the mean of both middle ones; NaN where there is one."""
    return _quantile(x, 0.5, axis, "linear", keepdims, False)


@eager
def nanquantile(x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """`quantile` with NaN left out."""
    return _quantile(x, q, axis, method, keepdims, True)


@eager
def nanpercentile(x: Any, q: Any, axis: Any = None, *, method: str = "linear", keepdims: bool = False) -> Any:
    """`percentile` with NaN left out."""
    return _quantile(x, _parts(q, 100.0), axis, method, keepdims, True)


@eager
def nanmedian(x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """`median` with NaN left out."""
    return _quantile(x, 0.5, axis, "linear", keepdims, True)


def _observations(x: Any, y: Any, rowvar: bool) -> Tracer:
    x = floats(x)
    x = p.reshape(x, [1, -1]) if x.ndim < 2 else x if rowvar else p.transpose(x)
    if y is None:
        return x
    y = floats(y)
    y = p.reshape(y, [1, -1]) if y.ndim < 2 else y if rowvar else p.transpose(y)
    return p.concat([x, y], 0)


@eager
def cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights: Any = None,
        aweights: Any = None) -> Any:  # fmt: skip
    """Covariances of variables, which are rows (columns with ``rowvar=False``), over ``n - ddof``."""
    x = _observations(m, y, rowvar)
    ddof = (0 if bias else 1) if ddof is None else ddof
    weights = None
    for w in (fweights, aweights):
        if w is not None:
            weights = p.cast(arr(w), x._dtype) if weights is None else p.ew("mul", weights, p.cast(arr(w), x._dtype))
    if weights is None:
        total: Any = float(x.shape[1])
        mean = p.reduce("sum", x, 1, True) / total if x.shape[1] else p.reduce("sum", x, 1, True)
        norm: Any = total - ddof
        norm = norm if norm > 0 else math.nan
    else:
        total = p.reduce("sum", weights)
        mean = p.ew("div", p.reduce("sum", p.ew("mul", x, weights), 1, True), total)
        if aweights is None or ddof == 0:
            norm = p.ew("sub", total, float(ddof)) if ddof else total
        else:
            square = p.reduce("sum", p.ew("mul", weights, p.cast(arr(aweights), x._dtype)))
            norm = p.ew("sub", total, p.ew("div", p.ew("mul", square, float(ddof)), total))
    far = p.ew("sub", x, mean)
    scaled = far if weights is None else p.ew("mul", far, weights)
    made = p.ew("div", p.dot(far, scaled, ([1], [1])), norm)
    return p.reshape(made, []) if made.shape == (1, 1) else made


@eager
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    """Correlations of variables, between -1 and 1."""
    made = cov(x, y, rowvar)
    if made.ndim == 0:
        return p.ew("div", made, made)
    spread = p.ew("sqrt", diagonal(made))
    made = p.ew("div", p.ew("div", made, p.expand_dims(spread, 1)), p.expand_dims(spread, 0))
    return e.clip(made, -1.0, 1.0)


# Counts


@eager
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    """Which of the intervals between ``bins``, a vector in rising or falling order, holds each element."""
    x, bins = arr(x), arr(bins)
    if bins.ndim != 1:
        raise fail("E_SHAPE_MISMATCH", f"digitize: expected `bins` to be a vector, got {p.show(bins.shape)}", "flatten it")
    if not bins.shape[0]:
        return p.splat(0, x.shape, "i64")
    side = "left" if right else "right"
    up = r.searchsorted(bins, x, side=side)
    turned = p.reverse(bins, [0])
    down = p.ew("sub", bins.shape[0], r.searchsorted(turned, x, side=side))
    rising = p.ew("le", ix.getitem(bins, 0), ix.getitem(bins, -1))
    return p.select(rising, up, down)


def bincount(x: Any, weights: Any = None, minlength: int = 0, *, length: int | None = None) -> Any:
    """How often each integer occurs, or the sum of its weights. Traced functions need ``length=``; larger integers are left out,
    negative ones count as 0."""
    if length is None:
        values = known(x, "bincount", "length")
        length = max(int(values.max()) + 1 if values.size else 0, int(minlength))
    return _bincount(x, weights, extent(length, "bincount", "length"))


@eager
def _bincount(x: Any, weights: Any, length: int) -> Any:
    x = flat(whole(x, "bincount"))
    w = p.splat(1, x.shape, "i64") if weights is None else flat(weights)
    return _scattered("sum", w, p.ew("maximum", x, 0), length, 0)


def _scattered(op: str, data: Tracer, at: Tracer, count: int, start: Any) -> Tracer:
    """Rows of ``data`` folded into the positions ``at``; those outside are left out."""
    at = p.cast(at, "i64")
    lead = at.ndim
    if data.shape[:lead] != at.shape:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected one segment for each row of {p.show(data.shape)}, got {p.show(at.shape)}",
            "give as many segments as the first axis has elements",
        )
    into = p.splat(start, (count, *data.shape[lead:]), data._dtype)
    return p.scatter(op, into, p.expand_dims(at, lead), data, [0])


@eager
def _edges(low: Any, high: Any, bins: int, dtype: str) -> Tracer:
    same = p.ew("eq", low, high)
    low, high = p.select(same, p.ew("sub", low, 0.5), low), p.select(same, p.ew("add", high, 0.5), high)
    at = p.ew("div", p.iota((bins + 1,), 0, dtype), float(bins))
    inner = p.ew("add", p.ew("mul", at, p.ew("sub", high, low)), low)
    return p.select(p.ew("eq", p.iota((bins + 1,), 0), bins), high, inner)


@eager
def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges that `histogram` uses: ``bins`` intervals of one width, or those that are given."""
    if not isinstance(bins, int):
        given = arr(bins)
        if given.ndim != 1:
            raise fail("E_ARGUMENT", "expected `bins` to be an int or a vector of edges", "write `bins=10`")
        return given
    x = flat(floats(a))
    if range is not None:
        low, high = (p.cast(v, x._dtype) for v in range)
    elif x.size:
        low, high = p.reduce("min", x), p.reduce("max", x)
    else:
        low, high = p.splat(0.0, (), x._dtype), p.splat(1.0, (), x._dtype)
    return _edges(low, high, bins, x._dtype)


def _placed(x: Tracer, edges: Tracer) -> Tracer:
    """Which interval; the last one holds its upper edge, values outside all of them are in none."""
    bins = edges.shape[0] - 1
    at = p.ew("sub", r.searchsorted(edges, x, side="right"), 1)
    at = p.select(p.ew("eq", x, ix.getitem(edges, -1)), bins - 1, at)
    out = p.ew("or", p.ew("gt", x, ix.getitem(edges, -1)), p.ew("isnan", x)) if is_float(x._dtype) else p.ew("gt", x, ix.getitem(edges, -1))
    return p.select(out, bins, at)


@eager
def histogram(a: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None) -> tuple:
    """How many elements are in each interval, or the sums of their weights, and the edges of the intervals."""
    edges = histogram_bin_edges(a, bins, range)
    x = flat(a)
    count = edges.shape[0] - 1
    w = p.splat(1, x.shape, "i64") if weights is None else flat(weights)
    made = _scattered("sum", w, _placed(x, edges), count, 0)
    if density:
        made = p.cast(made, edges._dtype if is_float(edges._dtype) else "f32")
        widths = p.ew("sub", ix.getitem(edges, slice(1, None)), ix.getitem(edges, slice(None, -1)))
        made = p.ew("div", p.ew("div", made, widths), p.reduce("sum", made))
    return made, edges


@eager
def histogram2d(x: Any, y: Any, bins: Any = 10, range: Any = None, weights: Any = None, density: bool | None = None) -> tuple:
    """How many points are in each cell of a grid, and the edges along both axes."""
    # Two entries are one for each axis; a longer vector is the edges of both.
    pair = list(bins) if isinstance(bins, (list, tuple)) and len(bins) == 2 else [bins, bins]
    given = [flat(x), flat(y)]
    bounds = [None, None] if range is None else list(range)
    edges = [histogram_bin_edges(v, b, s) for v, b, s in zip(given, pair, bounds, strict=True)]
    rows, columns = (v.shape[0] - 1 for v in edges)
    i, j = (_placed(v, s) for v, s in zip(given, edges, strict=True))
    inside = p.ew("and", p.ew("and", p.ew("ge", i, 0), p.ew("lt", i, rows)), p.ew("and", p.ew("ge", j, 0), p.ew("lt", j, columns)))
    at = p.select(inside, p.ew("add", p.ew("mul", i, columns), j), rows * columns)
    w = p.splat(1, i.shape, "i64") if weights is None else flat(weights)
    made = p.reshape(_scattered("sum", w, at, rows * columns, 0), [rows, columns])
    if density:
        made = floats(made)
        widths = [p.ew("sub", ix.getitem(v, slice(1, None)), ix.getitem(v, slice(None, -1))) for v in edges]
        made = p.ew("div", p.ew("div", p.ew("div", made, p.expand_dims(widths[0], 1)), widths[1]), p.reduce("sum", made))
    return made, edges[0], edges[1]


# Segments


def _segments(op: str, name: str, start: Any, doc: str) -> Any:
    def call(data: Any, segment_ids: Any, num_segments: int | None = None, indices_are_sorted: bool = False,
             unique_indices: bool = False) -> Any:  # fmt: skip
        if num_segments is None:
            ids = known(segment_ids, name, "num_segments")
            num_segments = max(int(ids.max()) + 1 if ids.size else 0, 0)
        return fold(data, segment_ids, extent(num_segments, name, "num_segments"))

    def inner(data: Any, segment_ids: Any, count: int) -> Any:
        data = arr(data)
        return _scattered(op, data, whole(segment_ids, name), count, start(data._dtype))

    inner.__name__ = call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    fold = eager(inner)
    return call


def _lowest(dtype: str) -> Any:
    return -math.inf if kind(dtype) == 2 else 0 if dtype == "bool" else int(_limits(dtype).min)


def _highest(dtype: str) -> Any:
    return math.inf if kind(dtype) == 2 else 1 if dtype == "bool" else int(_limits(dtype).max)


_REST = "Rows of ``data`` whose segment is outside 0 to ``num_segments - 1`` are left out; traced functions need ``num_segments=``."
segment_sum = _segments("sum", "segment_sum", lambda d: 0, f"The sum of each segment. {_REST}")
segment_prod = _segments("prod", "segment_prod", lambda d: 1, f"The product of each segment. {_REST}")
segment_max = _segments("max", "segment_max", _lowest, f"The greatest of each segment, the least number where it is empty. {_REST}")
segment_min = _segments("min", "segment_min", _highest, f"The least of each segment, the greatest number where it is empty. {_REST}")
