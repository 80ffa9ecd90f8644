"""Cross entropy of logits with labels over the last axis, and its gradient.

The loss of a row is ``logsumexp(logits) - logits[label]``, in f32 (f64 for f64 logits); a row with the ignored label
has loss and gradient 0. A label outside the vocabulary gives NaN, and `E_OOB` in checked mode. The gradient takes the
logsumexp that the forward pass stored, so it is elementwise and reads the logits once.
"""

from __future__ import annotations

import math
from typing import Any

import tessera as ts

from .. import _core
from . import arrays, checks, machine, reduce, schedule
from .layout import along, pointwise, strides_with
from .softmax import online


@ts.kernel
def whole(
    logits: ts.Tensor["P", "M", "N"],
    labels: ts.Tensor["P", "M"],
    loss: ts.Tensor["P", "M"],
    lse: ts.Tensor["P", "M"],
    ignore: ts.i64,
    R: int = 1,
):
    m = ts.tile.program_id(0) * R
    p = ts.tile.program_id(1)
    t = logits[p, m:m + R, :]
    top = ts.tile.max(t, axis=1)
    base = ts.tile.where(top == -math.inf, 0.0, top)
    last = ts.tile.log(ts.tile.sum(ts.tile.exp(t - base[:, None]), axis=1))
    lse[p, m:m + R] = base + last
    rows = m + ts.tile.arange(R)
    label = ts.tile.cast(labels[p, m:m + R], ts.i64)
    at = ts.tile.load(logits, (p, rows, label), mask=(label != ignore) & (rows < M))
    # Not lse - at: for large logits, lse is rounded, and the difference would lose digits.
    value = ts.tile.where((label >= 0) & (label < N), base - at + last, math.nan)
    loss[p, m:m + R] = ts.tile.where(label == ignore, 0.0, value)


@ts.kernel
def pieces(
    logits: ts.Tensor["P", "M", "N"],
    labels: ts.Tensor["P", "M"],
    loss: ts.Tensor["P", "M"],
    lse: ts.Tensor["P", "M"],
    ignore: ts.i64,
    T: int = 4096,
):
    m = ts.tile.program_id(0)
    p = ts.tile.program_id(1)
    top = -math.inf
    total = 0.0
    for n in ts.tile.range(0, N, T):
        top, total = online(top, total, ts.tile.bounds_mask(logits[p, m, n:n + T], cols=N - n))
    base = ts.tile.where(top == -math.inf, 0.0, top)
    last = ts.tile.log(total)
    lse[p, m] = base + last
    label = ts.tile.cast(labels[p, m], ts.i64)
    at = ts.tile.load(logits, (p, m, label), mask=label != ignore)
    value = ts.tile.where((label >= 0) and (label < N), base - at + last, math.nan)
    loss[p, m] = ts.tile.where(label == ignore, 0.0, value)


@ts.kernel
def gradient(
    logits: ts.Tensor["P", "M", "N"],
    labels: ts.Tensor["P", "M"],
    lse: ts.Tensor["P", "M"],
    g: ts.Tensor["P", "M"],
    dx: ts.Tensor["P", "M", "N"],
    ignore: ts.i64,
    R: int = 4,
    C: int = 1024,
):
    c, r, p = ts.tile.grid(ts.cdiv(N, C), ts.cdiv(M, R), P)
    m = r * R
    n = c * C
    label = ts.tile.cast(labels[p, m:m + R], ts.i64)
    factor = ts.tile.where((label >= 0) & (label < N), g[p, m:m + R], math.nan)
    weight = ts.tile.exp(logits[p, m:m + R, n:n + C] - lse[p, m:m + R][:, None])
    here = ts.tile.cast(label - n, ts.i32)[:, None] == ts.tile.arange(C)[None, :]
    t = ts.tile.where(here, weight - 1.0, weight) * factor[:, None]
    dx[p, m:m + R, n:n + C] = ts.tile.where((label == ignore)[:, None], 0.0, t)


@ts.kernel
def over_kept(
    value: ts.Tensor["P", "V"],
    labels: ts.Tensor["P", "M"],
    y: ts.Tensor[1],
    zero,
    ignore: ts.i64,
    T: int = 4096,
    each: bool = False,
):
    """A number, or with ``each`` the sum of one number for each label, divided by the count of labels that are not ignored. One
    group does it: labels are few compared with logits."""
    one = ts.tile.grid(1)
    kept = ts.tile.zeros((T,), ts.i32)
    total = ts.tile.zeros((T,), zero.dtype)
    for p in ts.tile.range(0, P):
        for m in ts.tile.range(0, M, T):
            label = ts.tile.bounds_mask(ts.tile.cast(labels[p, m:m + T], ts.i64), cols=M - m, value=ignore)
            kept = kept + ts.tile.cast(label != ignore, ts.i32)
            if each:
                total = total + value[p, m:m + T]
    count = ts.tile.cast(ts.tile.sum(kept), zero.dtype)
    if each:
        y[one] = ts.tile.sum(total) / count
    else:
        y[one] = value[0, 0] / count


def _checked(logits: Any, labels: Any) -> tuple[Any, Any, int]:
    logits, labels = checks.floating(logits, "logits"), arrays.given(labels, "labels")
    axis = checks.one_axis(-1, logits)
    of = arrays.dtype_of(labels)
    if not checks.is_integer(of) or of.name == "u64":
        help = "labels count classes from 0: pass int32 or int64"
        raise _core.error("E_TYPE", f"`labels`: expected an array of integers, got {of}", help)
    checks.shape(labels, logits.shape[:-1], "labels", "the rows of `logits` have")
    return logits, labels, axis


def forward(
    logits: Any, labels: Any, ignore: int, reduction: str, out_dtype: Any, rows: Any, block: Any
) -> tuple[Any, Any]:
    """The loss, and the logsumexp of each row."""
    logits, labels, axis = _checked(logits, labels)
    checks.word(reduction, ("mean", "sum", "none"), "reduction")
    rows, block = checks.extents(rows, block)
    of = arrays.dtype_of(logits)
    wide = checks.accumulator(of)
    to = checks.out_dtype(out_dtype, of)
    if arrays.size(labels) and not arrays.size(logits):
        message = f"expected at least one class, got logits of shape {tuple(logits.shape)}"
        raise _core.error("E_SHAPE_MISMATCH", message, "a label names one")
    loss = arrays.empty(labels.shape, to if reduction == "none" else wide, logits)
    lse = arrays.empty(labels.shape, wide, logits)
    if arrays.size(labels):
        layout = along(
            tuple(logits.shape), (arrays.strides(logits), *(strides_with(a, axis) for a in (labels, loss, lse))), axis, False
        )
        tile = schedule.rows(*layout.sizes, arrays.itemsize(logits), 1, rows, block, groups=machine.groups(logits))
        xs = layout.view(logits)
        others = [layout.view_without(a) for a in (labels, loss, lse)]
        for at in layout.launches:
            if tile.whole:
                whole(xs[at], *(a[at] for a in others), ignore, tile.rows)
            else:
                pieces(xs[at], *(a[at] for a in others), ignore, tile.block)
    if reduction == "sum":
        loss = reduce.forward(loss, None, "sum", False, to, None, None)
    elif reduction == "mean":
        loss = _over_kept(loss, labels, ignore, wide, to, True)
    return loss, lse


def _over_kept(value: Any, labels: Any, ignore: int, wide: Any, to: Any, each: bool) -> Any:
    y = arrays.empty((), to, value)
    layout = pointwise(tuple(labels.shape), (arrays.strides(labels), *([arrays.strides(value)] if each else [])))
    rows = layout.view(labels)
    rows = rows.reshape(1, -1) if rows.ndim == 1 else rows.reshape(rows.shape[0], -1)
    values = layout.view(value).reshape(rows.shape) if each else arrays.expand(value, (rows.shape[0], 1))
    over_kept(values, rows, y.reshape(1), arrays.scalar(0, wide), ignore, 4096, each)
    return y


def backward(
    dloss: Any, logits: Any, labels: Any, lse: Any, ignore: int, reduction: str, *, out_dtype: Any, rows: Any, block: Any
) -> Any:
    logits, labels, axis = _checked(logits, labels)
    lse = checks.shape(checks.floating(lse, "lse"), labels.shape, "lse", "`labels` has")
    checks.word(reduction, ("mean", "sum", "none"), "reduction")
    rows, block = checks.extents(rows, block)
    of = arrays.dtype_of(logits)
    wide = checks.accumulator(of)
    if arrays.is_number(dloss):
        g = arrays.full((), dloss, wide, logits)
    else:
        g = checks.floating(dloss, "dloss")
        checks.shape(g, labels.shape if reduction == "none" else (), "dloss", "the loss has")
    dx = arrays.empty_like(logits, checks.out_dtype(out_dtype, of))
    if not arrays.size(logits):
        return dx
    if reduction == "mean":
        g = _over_kept(g, labels, ignore, wide, wide, False)
    g = arrays.expand(g, labels.shape)
    layout = along(
        tuple(logits.shape),
        (arrays.strides(logits), arrays.strides(dx), *(strides_with(a, axis) for a in (labels, lse, g))),
        axis,
        False,
    )
    R, C = schedule.area(*layout.sizes[1:])
    xs, into = layout.view(logits), layout.view(dx)
    others = [layout.view_without(a) for a in (labels, lse, g)]
    for at in layout.launches:
        gradient(xs[at], *(a[at] for a in others), into[at], ignore, rows or R, block or C)
    return dx
