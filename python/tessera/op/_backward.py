"""The gradients of `tessera.op` and its grouped matmul inside a trace: compositions of primitives. Arithmetic is in f32, in f64 for f64 arrays,
and is rounded once, as in the kernels."""

from __future__ import annotations

from typing import Any

from .. import xp
from ..base.promotion import is_float
from ..trace import prim as p
from ..trace.tracer import Tracer, as_tracer, fail
from ._products import _activation, _wide as sums_of


def _given(x: Any, name: str) -> tuple[Tracer, Tracer]:
    """An array of floats, and the same wide enough for arithmetic."""
    x = as_tracer(x)
    if not is_float(x._dtype):
        raise fail("E_TYPE", f"expected floats for `{name}`, got {x._dtype}", f"convert them first: `{name}.astype(ts.f32)`")
    return x, p.cast(x, "f64" if x._dtype == "f64" else "f32")


def _of_shape(x: Tracer, shape: tuple, name: str, whose: str) -> None:
    if x.shape != shape:
        raise fail("E_SHAPE_MISMATCH", f"expected `{name}` of shape {p.show(shape)}, which {whose}, got {p.show(x.shape)}", "give the array that the forward form gave")


def softmax_backward(dy: Any, y: Any, axis: int = -1, *, out_dtype: Any = None) -> Tracer:
    (y, t), (_, d) = _given(y, "y"), _given(dy, "dy")
    _of_shape(d, y.shape, "dy", "`y` has")
    product = d * t
    return p.cast(product - t * xp.sum(product, axis, keepdims=True), out_dtype or y._dtype)


def log_softmax_backward(dy: Any, y: Any, axis: int = -1, *, out_dtype: Any = None) -> Tracer:
    (y, t), (_, d) = _given(y, "y"), _given(dy, "dy")
    _of_shape(d, y.shape, "dy", "`y` has")
    return p.cast(d - xp.exp(t) * xp.sum(d, axis, keepdims=True), out_dtype or y._dtype)


def _norm(dy: Any, x: Any, mean: Any, rstd: Any, scale: Any, parameters: bool | None, out_dtype: Any) -> tuple[Any, Any, Any]:
    (x, t), (_, d), (_, r) = _given(x, "x"), _given(dy, "dy"), _given(rstd, "rstd")
    _of_shape(d, x.shape, "dy", "`x` has")
    _of_shape(r, x.shape[:-1], "rstd", "the rows of `x` have")
    if mean is not None:
        _, m = _given(mean, "mean")
        _of_shape(m, x.shape[:-1], "mean", "the rows of `x` have")
        t = t - p.expand_dims(m, -1)
    r = p.expand_dims(r, -1)
    unit, g = t * r, d
    if scale is not None:
        scale, wide = _given(scale, "scale")
        _of_shape(scale, x.shape[-1:], "scale", "the last axis of `x` has")
        g = d * wide
    slope = g - unit * xp.mean(g * unit, -1, keepdims=True)
    if mean is not None:
        slope = slope - xp.mean(g, -1, keepdims=True)
    rows, of = list(range(x.ndim - 1)), x._dtype if scale is None else scale._dtype
    wanted = scale is not None if parameters is None else parameters
    dscale = p.cast(p.reduce("sum", d * unit, rows) if rows else d * unit, of) if wanted else None
    dshift = p.cast(p.reduce("sum", d, rows) if rows else d, of) if wanted and mean is not None else None
    return p.cast(slope * r, out_dtype or x._dtype), dscale, dshift


def layernorm_backward(dy: Any, x: Any, mean: Any, rstd: Any, scale: Any = None, *, parameters: bool | None = None,
                       out_dtype: Any = None) -> tuple[Any, Any, Any]:  # fmt: skip
    return _norm(dy, x, as_tracer(mean), rstd, scale, parameters, out_dtype)


def rmsnorm_backward(dy: Any, x: Any, rstd: Any, scale: Any = None, *, parameters: bool | None = None, out_dtype: Any = None) -> tuple[Any, Any]:
    return _norm(dy, x, None, rstd, scale, parameters, out_dtype)[:2]


def cross_entropy_backward(dloss: Any, logits: Any, labels: Any, lse: Any, *, ignore_index: int = -100, reduction: str = "mean",
                           out_dtype: Any = None) -> Tracer:  # fmt: skip
    (x, t), (_, norm), labels = _given(logits, "logits"), _given(lse, "lse"), as_tracer(labels)
    if is_float(labels._dtype) or labels._dtype in ("bool", "u64"):
        raise fail("E_TYPE", f"expected integers for `labels`, got {labels._dtype}", "labels count classes from 0: pass int32 or int64")
    for name, array in (("labels", labels), ("lse", norm)):
        _of_shape(array, x.shape[:-1], name, "the rows of `logits` have")
    if reduction not in ("mean", "sum", "none"):
        raise fail("E_ARGUMENT", f'expected `reduction` to be "mean", "sum" or "none", got {reduction!r}', 'leave it out for "mean"')
    g = p.cast(dloss, t._dtype)
    if g.shape:
        _of_shape(g, labels.shape if reduction == "none" else (), "dloss", "the loss has")
    counted = p.ew("ne", labels, ignore_index)
    if reduction == "mean":
        g = g / xp.maximum(p.cast(xp.sum(p.cast(counted, "i64")), t._dtype), 1.0)
    hit = p.ew("eq", p.iota(x.shape, x.ndim - 1), p.expand_dims(p.cast(labels, "i64"), -1))
    slope = xp.exp(t - p.expand_dims(norm, -1)) - p.cast(hit, t._dtype)
    weight = p.broadcast_to(p.select(counted, g, p.splat(0, (), t._dtype)), labels.shape)
    return p.cast(slope * p.expand_dims(weight, -1), out_dtype or x._dtype)


def grouped_gemm(a: Any, b: Any, sizes: Any, *, activation: Any = "identity", out_dtype: Any = None, tile: Any = None) -> Tracer:
    """By one product with each matrix of the rows of its group, zeros for the others: the compiler knows no groups of rows."""
    a, b, sizes = as_tracer(a), as_tracer(b), as_tracer(sizes)
    if a.ndim != 2 or b.ndim != 3 or a.shape[1] != b.shape[1]:
        raise fail("E_SHAPE_MISMATCH", f"expected `a` of shape [rows, K] and `b` of [groups, K, N], got {p.show(a.shape)} and {p.show(b.shape)}",
                   "the K of both must be equal")  # fmt: skip
    _of_shape(sizes, b.shape[:1], "sizes", "has an entry for each group")
    ends = p.expand_dims(p.scan("sum", p.cast(sizes, "i64"), 0), 1)
    row = p.iota((b.shape[0], a.shape[0]), 1)
    inside = p.ew("lt", row, ends)
    inside = p.ew("and", inside, p.ew("ge", row, ends - p.expand_dims(p.cast(sizes, "i64"), 1)))
    mine = p.select(p.expand_dims(inside, 2), a, p.splat(0, (), a._dtype))
    y = p.dot(mine, b, ((0, 2), (0, 1)), out=sums_of(a, b))
    made = _activation(activation)(y)
    if activation != "identity":
        made = p.select(p.expand_dims(p.reduce("or", inside, 0), 1), made, p.splat(0, (), made._dtype))
    return p.cast(made, out_dtype or (a._dtype if is_float(a._dtype) else made._dtype))
