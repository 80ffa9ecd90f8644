"""Softmax, log-softmax and logsumexp, for `xp`, `ts.nn` and `ts.random`."""

from __future__ import annotations

import math
from typing import Any

from ..base.promotion import is_float
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import Tracer, as_tracer, aval, one
from . import _elementwise as e
from ._elementwise import _where

LOW = {"f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1"}


def up(x: Any) -> tuple[Tracer, str]:
    """The value in the dtype that it is computed in, and its original dtype."""
    x = as_tracer(x)
    if not is_float(x._dtype):
        x = p.cast(x, "f32")
    return (p.cast(x, "f32") if x._dtype in LOW else x), x._dtype


def down(x: Tracer, dtype: str, out_dtype: Any = None) -> Tracer:
    return p.cast(x, out_dtype if out_dtype is not None else dtype)


def _max_for_shift(x: Tracer, axis: Any) -> Tracer:
    """The maximum, which has no part in the derivative."""
    return one("stop_gradient", [p.reduce("max", x, axis, True)])


@eager
def softmax(x: Any, axis: Any = -1, *, where: Any = None, safe: bool = False, out_dtype: Any = None) -> Any:
    """exp(x) / sum(exp(x)) along an axis, with the maximum subtracted first; with ``safe`` rows of -inf give zeros. Elements where
    ``where`` does not hold do not count and give 0."""
    x, dtype = up(x)
    if where is not None:
        x = _where(where, x, -math.inf)
    top = _max_for_shift(x, axis)
    if safe:
        top = _where(top == -math.inf, 0.0, top)
    powers = e.exp(x - top)
    total = p.reduce("sum", powers, axis, True)
    if safe:
        total = _where(total == 0.0, 1.0, total)
    y = powers / total
    return down(y if where is None else _where(where, y, 0.0), dtype, out_dtype)


@eager
def log_softmax(x: Any, axis: Any = -1, *, where: Any = None, out_dtype: Any = None) -> Any:
    """log(softmax(x)). Elements where ``where`` does not hold do not count and give -inf."""
    x, dtype = up(x)
    if where is not None:
        x = _where(where, x, -math.inf)
    shifted = x - _max_for_shift(x, axis)
    y = shifted - e.log(p.reduce("sum", e.exp(shifted), axis, True))
    return down(y if where is None else _where(where, y, -math.inf), dtype, out_dtype)


@eager
def log_sum_exp(x: Any, axis: Any = None, keepdims: bool = False, b: Any = None, return_sign: bool = False, where: Any = None) -> Any:
    """log(sum(b * exp(x))) along axes; see `logsumexp`."""
    x, dtype = up(x)
    if b is not None:
        wide = p.broadcast_shapes(x.shape, tuple(aval(b)[0]))
        x, b = p.broadcast_to(x, wide), p.broadcast_to(p.cast(b, x._dtype), wide)
        # Elements of weight 0 are not part of the maximum.
        x = _where(b != 0.0, x, -math.inf)
    if where is not None:
        x = _where(where, x, -math.inf)
    top = _max_for_shift(x, axis)
    top = _where(e.isfinite(top), top, 0.0)
    powers = e.exp(x - top)
    total = p.reduce("sum", powers if b is None else powers * b, axis, True)
    sign = e.sign(total)
    out = e.log(e.abs(total) if return_sign else total) + top
    axes = p.axes_of(axis, x.ndim)
    if not keepdims:
        shape = [d for i, d in enumerate(x.shape) if i not in axes]
        out, sign = p.reshape(out, shape), p.reshape(sign, shape)
    return (down(out, dtype), down(sign, dtype)) if return_sign else down(out, dtype)


@eager
def logsumexp(x: Any, axis: Any = None, *, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None) -> Any:
    """log(sum(b * exp(x))), with the maximum subtracted first; ``b`` is 1 unless given. With ``return_sign`` the logarithm of the magnitude
    and the sign, else NaN where the sum is negative. Elements where ``where`` does not hold do not count."""
    return log_sum_exp(x, axis, keepdims, b, return_sign, where)
