"""Composites of models: activations, norms and the loss of labels. Decompositions are what `_functional` says; backward passes keep the
arguments and one number for each row.

On a GPU such functions are limited by memory, not arithmetic: the kernels of backward passes recompute what they need where it is read.
Elsewhere the decomposition of a backward pass is the derivative of the forward one, whose values are there already."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.tracer import Tracer, emit
from ..transforms.composites import composite
from ..transforms.derivatives import vjp
from ..xp._softmax import down, log_softmax, log_sum_exp, up

#: Machines whose kernels recompute.
GPUS = {"processors": lambda count: count > 0}


def _wide(x: Tracer) -> Tracer:
    return x if x._dtype == "f64" else p.cast(x, "f32")


def _again(x: Tracer) -> Tracer:
    """The same value behind a barrier to common subexpression elimination: otherwise the values to recompute would be kept."""
    return emit("opt_barrier", [], groups={"values": [x]})[0]


# Activations


@composite
def silu(x: Tracer) -> Tracer:
    x, dtype = up(x)
    return down(x * xp.sigmoid(x), dtype)


@composite
def silu_backward(x: Tracer, dy: Tracer) -> Tracer:
    return vjp(silu._fn, x)[1](dy)[0]


@silu_backward.kernel(when=GPUS)
def _silu_backward(x: Tracer, dy: Tracer) -> Tracer:
    s = xp.sigmoid(_wide(_again(x)))
    return p.cast(_wide(dy) * (s * (1.0 + _wide(_again(x)) * (1.0 - s))), x._dtype)


@composite
def gelu(x: Tracer, *, approximate: bool) -> Tracer:
    x, dtype = up(x)
    if approximate:
        # 1 + tanh(u) = 2 sigmoid(2u), which does not cancel where u is negative.
        twice = math.sqrt(8.0 / math.pi)
        out = x * xp.sigmoid(x * xp.fma(x * x, 0.044715 * twice, twice))
    else:
        out = x * 0.5 * (xp.erf(x * math.sqrt(0.5)) + 1.0)
    return down(out, dtype)


@composite
def gelu_backward(x: Tracer, dy: Tracer, *, approximate: bool) -> Tracer:
    return vjp(lambda v: gelu._fn(v, approximate=approximate), x)[1](dy)[0]


@gelu_backward.kernel(when=GPUS)
def _gelu_backward(x: Tracer, dy: Tracer, *, approximate: bool) -> Tracer:
    wide = _wide(_again(x))
    if approximate:
        c = math.sqrt(2.0 / math.pi)
        t = xp.tanh((wide + wide * wide * wide * 0.044715) * c)
        slope = (t + 1.0) * 0.5 + wide * 0.5 * (1.0 - t * t) * (c + wide * wide * (3 * 0.044715 * c))
    else:
        slope = (xp.erf(wide * math.sqrt(0.5)) + 1.0) * 0.5 + wide * xp.exp(wide * wide * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))
    return p.cast(_wide(dy) * slope, x._dtype)


silu.defvjp(lambda x: (silu(x), x), lambda x, dy: (silu_backward(x, dy),))
gelu.defvjp(lambda x, **how: (gelu(x, **how), x), lambda x, dy, **how: (gelu_backward(x, dy, **how),))


# Norms over the last axis


def _normalised(x: Tracer, scale: Tracer | None, shift: Tracer | None, eps: float, out: str, centred: bool) -> tuple[Tracer, Tracer | None, Tracer]:
    """The result, the mean of each row where it is taken off, and the factor of each row."""
    x, dtype = up(x)
    mean = xp.mean(x, -1, keepdims=True) if centred else None
    far = x - mean if centred else x
    factor = xp.rsqrt(xp.mean(far * far, -1, keepdims=True) + eps)
    y = far * factor
    weight, more = (None if w is None else p.cast(w, x._dtype) for w in (scale, shift))
    if weight is not None and more is not None:
        y = xp.fma(y, weight, more)
    elif weight is not None:
        y = y * weight
    elif more is not None:
        y = y + more
    return down(y, dtype, out), mean, factor


def _norm_backward(x: Tracer, scale: Tracer | None, shift: Tracer | None, mean: Tracer | None, factor: Tracer, dy: Tracer) -> tuple:
    wide, dy = _again(x), _wide(dy)

    def units(x: Tracer) -> Tracer:
        return (_wide(x) if mean is None else _wide(x) - mean) * factor

    unit = units(wide)
    g = dy if scale is None else dy * p.cast(scale, dy._dtype)
    inner = g - unit * xp.mean(g * unit, -1, keepdims=True)
    dx = factor * (inner if mean is None else inner - xp.mean(g, -1, keepdims=True))
    rows = tuple(range(x.ndim - 1))
    # The weights' are summed by columns, in another kernel: it computes the rows again too.
    return (
        p.cast(dx, x._dtype),
        None if scale is None else p.cast(xp.sum(dy * units(_again(x)), rows), scale._dtype),
        None if shift is None else p.cast(xp.sum(dy, rows), shift._dtype),
    )


def _norm(name: str, centred: bool) -> Callable:
    """The composite of a norm, with its forward pass that keeps numbers of rows, and its backward pass."""

    def whole(x: Tracer, scale: Tracer | None, shift: Tracer | None, *, eps: float, out: str) -> Tracer:
        return _normalised(x, scale, shift, eps, out, centred)[0]

    def forward(x: Tracer, scale: Tracer | None, shift: Tracer | None, *, eps: float, out: str) -> tuple:
        return _normalised(x, scale, shift, eps, out, centred)

    def backward(x: Tracer, scale: Tracer | None, shift: Tracer | None, mean: Tracer | None, factor: Tracer, dy: Tracer, *,
                 eps: float, out: str) -> tuple:  # fmt: skip
        return vjp(lambda *a: whole(*a, eps=eps, out=out), x, scale, shift)[1](dy)

    for fn, suffix in ((whole, ""), (forward, "_forward"), (backward, "_backward")):
        fn.__name__ = fn.__qualname__ = name + suffix
    norm, ahead, back = composite(whole), composite(forward), composite(backward)
    back.kernel(lambda x, scale, shift, mean, factor, dy, **_: _norm_backward(x, scale, shift, mean, factor, dy), when=GPUS)

    def fwd(x: Tracer, scale: Tracer | None, shift: Tracer | None, **how: Any) -> tuple:
        y, mean, factor = ahead(x, scale, shift, **how)
        return y, (x, scale, shift, mean, factor)

    return norm.defvjp(fwd, lambda kept, dy, **how: back(*kept, dy, **how))


layernorm = _norm("layernorm", True)
rmsnorm = _norm("rmsnorm", False)


# The loss of labels


@composite
def label_loss(x: Tracer, labels: Tracer) -> Tracer:
    """logsumexp(x) - x[label] for each row; labels are below the number of classes."""
    log_p = log_softmax(up(x)[0], -1)
    return -p.gather(log_p, p.reshape(labels, [*labels.shape, 1]), [x.ndim - 1], x.ndim - 1, "fill", math.nan)


@composite
def label_loss_forward(x: Tracer, labels: Tracer) -> tuple[Tracer, Tracer]:
    return label_loss._fn(x, labels), log_sum_exp(up(x)[0], -1)


@composite
def label_loss_backward(x: Tracer, labels: Tracer, lse: Tracer, dy: Tracer) -> Tracer:
    return vjp(lambda v: label_loss._fn(v, labels), x)[1](dy)[0]


@label_loss_backward.shard
def _rows(ranks: list[int]) -> str:
    rows = " ".join(f"r{i}" for i in range(ranks[1]))
    return f"{rows} C, {rows}, {rows}, {rows} -> {rows} C"


@label_loss_forward.kernel(when=GPUS)
def _label_loss_forward(x: Tracer, labels: Tracer) -> tuple[Tracer, Tracer]:
    lse = log_sum_exp(_wide(x), -1)
    picked = p.gather(x, p.reshape(labels, [*labels.shape, 1]), [x.ndim - 1], x.ndim - 1, "fill", math.nan)
    return lse - _wide(picked), lse


@label_loss.kernel(when=GPUS)
def _label_loss(x: Tracer, labels: Tracer) -> Tracer:
    return _label_loss_forward(x, labels)[0]


@label_loss_backward.kernel(when=GPUS)
def _label_loss_backward(x: Tracer, labels: Tracer, lse: Tracer, dy: Tracer) -> Tracer:
    def column(t: Tracer) -> Tracer:
        return p.reshape(t, [*t.shape, 1])

    weights = xp.exp(_wide(_again(x)) - column(lse)) * column(dy)
    here = p.iota(x.shape, x.ndim - 1) == p.broadcast_to(column(labels), x.shape)
    return p.cast(weights - xp.where(here, p.broadcast_to(column(dy), x.shape), 0.0), x._dtype)


def _label_loss_fwd(x: Tracer, labels: Tracer) -> tuple:
    loss, lse = label_loss_forward(x, labels)
    return loss, (x, labels, lse)


label_loss.defvjp(_label_loss_fwd, lambda kept, dy: (label_loss_backward(*kept, dy), None))


# Parts


@composite
def parts(x: Tracer, *, axis: int) -> list[Tracer]:
    """The positions along an axis, each without it; their cotangents are stacked."""
    index = [slice(None)] * x.ndim
    return [x[(*index[:axis], i, *index[axis + 1:])] for i in range(x.shape[axis])]


parts.defvjp(lambda x, **how: (parts(x, **how), ()), lambda kept, dys, *, axis: (xp.stack(list(dys), axis=axis),))
