"""Further activations. At kinks they have JAX's derivatives: `docs/op-derivatives.md` has a table."""

from __future__ import annotations

from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import as_tracer, fail
from . import _functional as F

#: With these a stack of layers keeps mean 0 and variance 1.
_SELU = 1.6732632423543772, 1.0507009873554805


@eager
def relu6(x: Any) -> Any:
    """min(max(x, 0), 6). The derivatives at 0 and 6 are 0."""
    x = as_tracer(x)
    return p.select(p.ew("le", x, 0), 0, p.select(p.ew("ge", x, 6), 6, x))


@eager
def selu(x: Any) -> Any:
    """`elu` with the factors of self-normalising networks."""
    alpha, scale = _SELU
    return xp.multiply(F.elu(x, alpha), scale)


@eager
def celu(x: Any, alpha: float = 1.0) -> Any:
    """x, or alpha * (exp(x / alpha) - 1) below zero, which is smooth for every alpha."""
    x = as_tracer(x)
    above = x > 0
    return xp.where(above, x, xp.expm1(xp.where(above, 0.0, x) / alpha) * alpha)


@eager
def hard_tanh(x: Any) -> Any:
    """x between -1 and 1, which it does not leave. The derivatives at both are 1."""
    x = as_tracer(x)
    return p.select(p.ew("gt", x, 1), 1, p.select(p.ew("lt", x, -1), -1, x))


@eager
def hard_sigmoid(x: Any) -> Any:
    """relu6(x + 3) / 6."""
    return xp.divide(relu6(xp.add(x, 3.0)), 6.0)


@eager
def hard_silu(x: Any) -> Any:
    """x * hard_sigmoid(x)."""
    return xp.multiply(x, hard_sigmoid(x))


@eager
def soft_sign(x: Any) -> Any:
    """x / (1 + abs(x))."""
    x = as_tracer(x)
    return p.ew("div", x, p.ew("add", p.select(p.ew("lt", x, 0), p.ew("neg", x), x), 1.0))


@eager
def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), without overflow."""
    return xp.negative(F.softplus(xp.negative(x)))


@eager
def mish(x: Any) -> Any:
    """x * tanh(softplus(x))."""
    x, dtype = F._up(x)
    return F._down(x * xp.tanh(F.softplus(x)), dtype)


@eager
def squareplus(x: Any, b: float = 4.0) -> Any:
    """(x + sqrt(x * x + b)) / 2."""
    x, dtype = F._up(x)
    return F._down((x + xp.sqrt(x * x + b)) * 0.5, dtype)


@eager
def glu(x: Any, axis: int = -1) -> Any:
    """The first half along an axis times the sigmoid of the second."""
    x = as_tracer(x)
    at = p.axis_of(axis, x.ndim)
    if x.shape[at] % 2:
        raise fail("E_SHAPE_MISMATCH", f"glu: expected an even extent along axis {axis}, got {p.show(x.shape)}", "it is divided into halves")
    index = [slice(None)] * at
    return x[(*index, slice(0, x.shape[at] // 2))] * xp.sigmoid(x[(*index, slice(x.shape[at] // 2, None))])


@eager
def standardize(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    """(x - mean) / sqrt(variance + epsilon) along axes."""
    x = as_tracer(x)
    return (x - xp.mean(x, axis, keepdims=True)) * xp.rsqrt(xp.var(x, axis, keepdims=True) + epsilon)


hard_swish = hard_silu
