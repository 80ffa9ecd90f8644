"""Reverse-mode rules for functions of models on a device. They keep the arguments and one number for each row for the backward pass,
and recompute the rest where it is read: on a device such functions are limited by memory, not arithmetic.

Each rule is a composition of primitives, and so is the function that other transforms see."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.tracer import Tracer, emit, one, outermost
from ..transforms.custom_rules import Fused
from ..transforms.derivatives import vjp


def wanted() -> bool:
    """Whether the function that is traced is made for a device."""
    frame = outermost()
    return frame is not None and frame.on_device


def _wide(x: Tracer) -> Tracer:
    return x if x._dtype == "f64" else p.cast(x, "f32")


def _again(x: Tracer) -> Tracer:
    """The same value behind a barrier to common subexpression elimination: otherwise the values to recompute would be kept."""
    return emit("opt_barrier", [], groups={"values": [x]})[0]


def pointwise(name: str, key: Any, fn: Callable, slope: Callable, x: Tracer) -> Tracer:
    """A function of each element: ``fn`` of the value as it came, ``slope`` of the value in the dtype that it is computed in."""

    def backward(x: Tracer, y: Tracer, dy: Tracer) -> list[Tracer]:
        return [p.cast(_wide(dy) * slope(_wide(_again(x))), x._dtype)]

    def plain(x: Tracer) -> list[Tracer]:
        return [fn(x)]

    return Fused(name, key, plain, plain, backward, lambda *a: _pulled(plain, a, 1))(x)[0]


def gelu_slope(x: Tracer, approximate: bool) -> Tracer:
    if approximate:
        c = math.sqrt(2.0 / math.pi)
        t = xp.tanh((x + x * x * x * 0.044715) * c)
        return (t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * (c + x * x * (3 * 0.044715 * c))
    return (xp.erf(x * math.sqrt(0.5)) + 1.0) * 0.5 + x * xp.exp(x * x * -0.5) * (1.0 / math.sqrt(2.0 * math.pi))


def silu_slope(x: Tracer) -> Tracer:
    s = xp.sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def norm(x: Tracer, scale: Tracer | None, shift: Tracer | None, eps: float, out: str, centred: bool) -> Tracer:
    """A norm over the last axis: the mean and the factor of a row are kept."""
    given = [x] + [t for t in (scale, shift) if t is not None]
    scaled, shifted = scale is not None, shift is not None

    def forward(x: Tracer, *rest: Tracer) -> list[Tracer]:
        wide = _wide(x)
        mean = xp.mean(wide, -1, keepdims=True) if centred else None
        far = wide - mean if centred else wide
        factor = xp.rsqrt(xp.mean(far * far, -1, keepdims=True) + eps)
        y = far * factor
        more = iter(rest)
        if scaled:
            y = y * p.cast(next(more), y._dtype)
        if shifted:
            y = y + p.cast(next(more), y._dtype)
        return [p.cast(y, out), *([mean] if centred else []), factor]

    def backward(*kept: Tracer) -> list[Tracer]:
        n, more = len(given), 2 if centred else 1
        x, dy = _again(kept[0]), _wide(kept[n + 1 + more])
        factor = kept[n + more]

        def units(x: Tracer) -> Tracer:
            return (_wide(x) - kept[n + 1] if centred else _wide(x)) * factor

        unit = units(x)
        g = dy * p.cast(kept[1], dy._dtype) if scaled else dy
        inner = g - unit * xp.mean(g * unit, -1, keepdims=True)
        dx = factor * (inner - xp.mean(g, -1, keepdims=True) if centred else inner)
        rows = tuple(range(x.ndim - 1))
        out = [p.cast(dx, x._dtype)]
        if scaled:
            # Summed by columns, in another kernel: it computes them too.
            out.append(p.cast(xp.sum(dy * units(_again(kept[0])), rows), kept[1]._dtype))
        if shifted:
            out.append(p.cast(xp.sum(dy, rows), kept[n - 1]._dtype))
        return out

    key = (eps, out, centred, scaled, shifted)
    count = 3 if centred else 2
    rule = Fused("layernorm" if centred else "rmsnorm", key, forward, forward, backward, lambda *a: _pulled(forward, a, count))
    return rule(*given)[0]


def label_loss(x: Tracer, labels: Tracer) -> Tracer:
    """logsumexp(x) - x[label] for each row; the sums of rows are kept, and labels are below the number of classes."""
    classes = x.shape[-1]

    def forward(x: Tracer, labels: Tracer) -> list[Tracer]:
        wide = _wide(x)
        top = one("stop_gradient", [p.reduce("max", wide, -1, True)])
        top = xp.where(xp.isfinite(top), top, 0.0)
        lse = xp.log(p.reduce("sum", xp.exp(wide - top), -1, True)) + top
        picked = p.gather(x, p.reshape(labels, [*labels.shape, 1]), [x.ndim - 1], x.ndim - 1, "fill", math.nan)
        lse = p.reshape(lse, lse.shape[:-1])
        return [lse - _wide(picked), lse]

    def backward(x: Tracer, labels: Tracer, loss: Tracer, lse: Tracer, d_loss: Tracer, d_lse: Tracer) -> list[Tracer]:
        def column(t: Tracer) -> Tracer:
            return p.reshape(t, [*t.shape, 1])

        weights = xp.exp(_wide(_again(x)) - column(lse)) * column(d_loss + d_lse)
        here = p.iota(x.shape, x.ndim - 1) == p.broadcast_to(column(labels), x.shape)
        return [p.cast(weights - xp.where(here, p.broadcast_to(column(d_loss), x.shape), 0.0), x._dtype)]

    def plain(x: Tracer, labels: Tracer) -> list[Tracer]:
        return forward(x, labels)

    return Fused("label_loss", classes, forward, plain, backward, lambda *a: _pulled(plain, a, 2, moving=1))(x, labels)[0]


def parts(x: Tracer, axis: int) -> list[Tracer]:
    """The positions along an axis, each without it; their cotangents are stacked."""
    count = x.shape[axis]

    def forward(x: Tracer) -> list[Tracer]:
        index = [slice(None)] * x.ndim
        return [x[(*index[:axis], i, *index[axis + 1:])] for i in range(count)]

    def backward(x: Tracer, *kept: Tracer) -> list[Tracer]:
        return [xp.stack(list(kept[count:]), axis=axis)]

    return Fused("parts", axis, forward, forward, backward, lambda *a: _pulled(forward, a, count))(x)


def _pulled(fn: Callable, kept: tuple, results: int, moving: int | None = None) -> list[Tracer]:
    """The cotangents of the first ``moving`` arguments by the derivative of the composition."""
    args, cts = kept[: len(kept) - 2 * results], kept[len(kept) - results:]
    count = len(args) if moving is None else moving
    _, pull = vjp(lambda *a: fn(*a, *args[count:]), *args[:count])
    return list(pull(list(cts)))
