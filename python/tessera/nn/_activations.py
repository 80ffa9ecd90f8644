"""Activations that are a line each, by the names of `jax.nn`."""

from __future__ import annotations

from typing import Any

from .. import _functional as F, xp
from .._jit import eager
from .._trace import as_tracer, fail


@eager
def relu6(x: Any) -> Any:
    """x between 0 and 6."""
    return xp.minimum(xp.maximum(x, 0), 6)


@eager
def hard_sigmoid(x: Any) -> Any:
    """`relu6(x + 3) / 6`: a sigmoid of straight lines."""
    return relu6(as_tracer(x) + 3.0) / 6.0


@eager
def hard_silu(x: Any) -> Any:
    """`x * hard_sigmoid(x)`."""
    return as_tracer(x) * hard_sigmoid(x)


@eager
def hard_tanh(x: Any) -> Any:
    """x between -1 and 1."""
    x = as_tracer(x)
    return xp.where(x > 1, 1, xp.where(x < -1, -1, x))


@eager
def log_sigmoid(x: Any) -> Any:
    """log(sigmoid(x)), without a sigmoid that is rounded to zero."""
    return -F.softplus(-as_tracer(x))


@eager
def soft_sign(x: Any) -> Any:
    """x / (abs(x) + 1)."""
    x = as_tracer(x)
    return x / (xp.abs(x) + 1)


@eager
def squareplus(x: Any, b: float = 4.0) -> Any:
    """(x + sqrt(x * x + b)) / 2: a softplus without exponentials."""
    x = as_tracer(x)
    return 0.5 * (x + xp.sqrt(x * x + b))


@eager
def mish(x: Any) -> Any:
    """x * tanh(softplus(x))."""
    return as_tracer(x) * xp.tanh(F.softplus(x))


@eager
def celu(x: Any, alpha: float = 1.0) -> Any:
    """x above zero, alpha * (exp(x / alpha) - 1) below."""
    return xp.maximum(x, 0.0) + alpha * xp.expm1(xp.minimum(x, 0.0) / alpha)


@eager
def selu(x: Any) -> Any:
    """`elu` with the scale and the slope that keep a mean of 0 and a variance of 1."""
    return 1.0507009873554805 * F.elu(x, 1.6732632423543772)


@eager
def glu(x: Any, axis: int = -1) -> Any:
    """The first half along an axis times the sigmoid of the second."""
    x = as_tracer(x)
    if x.shape[axis] % 2:
        raise fail("E_SHAPE_MISMATCH", f"glu: expected an even extent along axis {axis}, got {x.shape[axis]}", "it is divided into halves")
    a, b = xp.split(x, 2, axis)
    return a * xp.sigmoid(b)


@eager
def standardize(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    """(x - mean) / sqrt(variance + epsilon) along axes."""
    x = as_tracer(x)
    return (x - xp.mean(x, axis, keepdims=True)) * xp.rsqrt(xp.var(x, axis, keepdims=True) + epsilon)


hard_swish = hard_silu
