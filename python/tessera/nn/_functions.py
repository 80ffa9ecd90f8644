"""Transposed convolution and rotary position embeddings."""

from __future__ import annotations

import math
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import as_tracer, fail, one
from ..trace.saved_values import saveable
from . import _functional as F


@eager
def conv_transpose(x: Any, w: Any, b: Any = None, *, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                   dilation: Any = 1, groups: int = 1) -> Any:  # fmt: skip
    """The transpose of a convolution of [batch, channels, …] with [channels, out / groups, …]: what a convolution with the same
    numbers would take away from the extents is added to them, as in PyTorch."""
    x, w = as_tracer(x), as_tracer(w)
    n = x.ndim - 2
    if n < 1 or w.ndim != x.ndim or w.shape[0] != x.shape[1]:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"conv_transpose: expected [batch, channels, …] and [channels, out / groups, …], got {p.show(x.shape)} and {p.show(w.shape)}",
            "the first axis of the weights has an element for each channel of `x`",
        )
    if groups < 1 or x.shape[1] % groups:
        raise fail("E_SHAPE_MISMATCH", f"conv_transpose: expected {groups} groups to divide {x.shape[1]} channels",
                   "choose a divisor of the number of channels")  # fmt: skip
    strides, dilations, more = F._per_axis(stride, n), F._per_axis(dilation, n), F._per_axis(output_padding, n)
    reach = [(e - 1) * d for e, d in zip(w.shape[2:], dilations, strict=True)]
    lo, hi = ([], []) if padding == "same" else F._padding(padding, [0] * n, [0] * n, strides, dilations)
    for s, r in zip(strides, reach, strict=True) if padding == "same" else ():
        # The result has `stride` times the extent.
        total = max(r + 1 - s, 0)
        lo.append(total // 2)
        hi.append(total - total // 2)
        more[len(lo) - 1] = max(s - r - 1, 0)
    dtype = xp.result_type(x, w)
    x, w = p.cast(x, dtype), p.cast(w, dtype)
    # [channels, out / groups, …] as the weights of the convolution that goes the other way: [out, channels / groups, …], turned round.
    each, out = w.shape[0] // groups, w.shape[1]
    w = p.reshape(w, [groups, each, out, *w.shape[2:]])
    w = p.reshape(p.transpose(w, [0, 2, 1, *range(3, n + 3)]), [groups * out, each, *w.shape[3:]])
    w = p.reverse(w, list(range(2, n + 2)))
    y = one("conv", [x, w], {"strides": [1] * n, "lo": [r - a for r, a in zip(reach, lo, strict=True)],
                             "hi": [r - a + m for r, a, m in zip(reach, hi, more, strict=True)],
                             "dilate_x": strides, "dilate_w": dilations, "groups": groups})  # fmt: skip
    y = saveable(y, "dots")
    return y if b is None else y + p.reshape(b, [1, -1] + [1] * n)


@eager
def rope(x: Any, positions: Any = None, base: float = 10000.0, *, interleaved: bool = False) -> Any:
    """Rotary position embeddings of [..., positions, size]: pairs of features are rotated by an angle that grows with the position.
    A pair is a feature of the first half and one of the second, or with ``interleaved`` two neighbours."""
    x, dtype = F._up(x)
    if x.ndim < 2 or x.shape[-1] % 2:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"rope: expected [..., positions, size] with an even size, got {p.show(x.shape)}",
            "the last axis is divided into pairs",
        )
    half = x.shape[-1] // 2
    at = p.iota((x.shape[-2],), 0) if positions is None else as_tracer(positions)
    rates = xp.exp(p.iota((half,), 0, x._dtype) * (-math.log(base) / half))
    angle = p.expand_dims(p.cast(at, x._dtype), -1) * rates
    cos, sin = xp.cos(angle), xp.sin(angle)
    if interleaved:
        pairs = p.reshape(x, [*x.shape[:-1], half, 2])
        a, b = pairs[..., 0], pairs[..., 1]
        out = p.reshape(xp.stack([a * cos - b * sin, a * sin + b * cos], axis=-1), x.shape)
    else:
        a, b = x[..., :half], x[..., half:]
        out = p.concat([a * cos - b * sin, a * sin + b * cos], -1)
    return F._down(out, dtype)
