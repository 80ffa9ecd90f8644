"""Functions of models as compositions of primitives: activations, norms, softmax, losses, embedding, attention,
convolution, pooling. On tracers; `tessera.op` uses them inside a trace."""

from __future__ import annotations

import math
from typing import Any

from .. import xp
from ..base.deprecation import renamed_keywords
from ..base.dtypes import dtype as as_dtype
from ..base.promotion import is_float
from ..kernel.schedule import FORMER_KEYWORDS as _FORMER
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.saved_values import saveable
from ..trace.tracer import Tracer, as_tracer, aval, fail, one
from ..xp._softmax import LOW as _LOW, down as _down, log_softmax, log_sum_exp as logsumexp, softmax, up as _up
from . import _fused as fused

# Activations


@eager
def relu(x: Any) -> Any:
    """max(x, 0). The derivative at 0 is 0."""
    # A maximum would share the derivative between its equal sides.
    return p.select(p.ew("le", x, 0), 0, x)


@eager
def silu(x: Any) -> Any:
    """x * sigmoid(x)."""
    return fused.silu(_floats(x))


def _floats(x: Any) -> Tracer:
    x = as_tracer(x)
    return x if is_float(x._dtype) else p.cast(x, "f32")


@eager
def gelu(x: Any, approximate: bool = False) -> Any:
    """x * Phi(x); with ``approximate`` by the tanh formula."""
    return fused.gelu(_floats(x), approximate=bool(approximate))


@eager
def softplus(x: Any) -> Any:
    """log(1 + exp(x)), without overflow."""
    x, dtype = _up(x)
    return _down(_softplus(x), dtype)


def _softplus(x: Tracer) -> Tracer:
    # Neither a maximum nor a magnitude: at 0 they have the first derivative, and not the second.
    above = p.ew("gt", x, 0)
    return p.select(above, x, 0.0) + xp.log1p(xp.exp(p.select(above, -x, x)))


@eager
def leaky_relu(x: Any, negative_slope: float = 0.01) -> Any:
    """x, or negative_slope * x below zero. The derivative at 0 is 1."""
    x = as_tracer(x)
    return xp.where(x >= 0, x, x * negative_slope)


@eager
def elu(x: Any, alpha: float = 1.0) -> Any:
    """x, or alpha * (exp(x) - 1) below zero. The derivative at 0 is alpha."""
    x = as_tracer(x)
    above = x > 0
    # Only one of the two sides has a derivative, so that a large `x` gives no infinity times zero.
    return xp.where(above, x, xp.expm1(xp.where(above, 0.0, x)) * alpha)


# Norms


@eager
def layernorm(x: Any, scale: Any = None, shift: Any = None, eps: float = 1e-5, *, out_dtype: Any = None) -> Any:
    """(x - mean) / sqrt(variance + eps) * scale + shift over the last axis."""
    return _norm(fused.layernorm, x, scale, shift, eps, out_dtype)


@eager
def rmsnorm(x: Any, scale: Any = None, eps: float = 1e-6, *, out_dtype: Any = None) -> Any:
    """x / sqrt(mean(x * x) + eps) * scale over the last axis."""
    return _norm(fused.rmsnorm, x, scale, None, eps, out_dtype)


def _norm(norm: Any, x: Any, scale: Any, shift: Any, eps: Any, out_dtype: Any) -> Tracer:
    x = _floats(x)
    given = [None if w is None else _parameter(w, x, name) for w, name in ((scale, "scale"), (shift, "shift"))]
    out = x._dtype if out_dtype is None else str(as_dtype(out_dtype))
    # A traced number is no static argument: then the ops are there themselves.
    return (norm._fn if isinstance(eps, Tracer) else norm)(x, *given, eps=eps, out=out)


def _parameter(w: Any, x: Tracer, name: str) -> Tracer:
    w = as_tracer(w)
    if w.shape != x.shape[-1:]:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected `{name}` of the shape of the last axis of {p.show(x.shape)}, got {p.show(w.shape)}",
            "weights have one element for each position of the last axis",
        )
    return w


@eager
def groupnorm(x: Any, groups: int, scale: Any = None, shift: Any = None, eps: float = 1e-5) -> Any:
    """Normalised over groups of channels of [batch, channels, …]."""
    x, dtype = _up(x)
    if isinstance(groups, int) and groups < 1:
        raise fail("E_ARGUMENT", f"expected `groups` above 0, got {groups}", "write `groups=1` for one group")
    if x.ndim < 2 or x.shape[1] % groups:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected {groups} groups to divide the channels of {p.show(x.shape)}",
            "choose a divisor of the number of channels",
        )
    parts = p.reshape(x, [x.shape[0], groups, -1])
    far = parts - xp.mean(parts, -1, keepdims=True)
    out = p.reshape(far * xp.rsqrt(xp.mean(far * far, -1, keepdims=True) + eps), x.shape)
    column = [1, x.shape[1]] + [1] * (x.ndim - 2)
    if scale is not None:
        out = out * p.reshape(scale, column)
    if shift is not None:
        out = out + p.reshape(shift, column)
    return _down(out, dtype)


@eager
def instancenorm(x: Any, scale: Any = None, shift: Any = None, eps: float = 1e-5) -> Any:
    """Each channel of each element of [batch, channels, …] normalised by itself."""
    x = as_tracer(x)
    if x.ndim < 2:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected [batch, channels, …], got {p.show(x.shape)}",
            "put the channels second: `xp.moveaxis(x, -1, 1)`",
        )
    return groupnorm(x, x.shape[1] or 1, scale, shift, eps)


@eager
def batchnorm(x: Any, scale: Any = None, shift: Any = None, mean: Any = None, var: Any = None, eps: float = 1e-5) -> Any:
    """Channels of [batch, channels, …] normalised over all other axes: by ``mean`` and ``var`` of [channels] where they are given,
    else by those of ``x`` itself."""
    x, dtype = _up(x)
    if x.ndim < 2:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected [batch, channels, …], got {p.show(x.shape)}",
            "put the channels second: `xp.moveaxis(x, -1, 1)`",
        )
    if (mean is None) != (var is None):
        raise fail(
            "E_ARGUMENT",
            "expected `mean` and `var` together, got one of them",
            "give both for inference, or neither for training",
        )
    column = [1, x.shape[1]] + [1] * (x.ndim - 2)
    others = tuple(i for i in range(x.ndim) if i != 1)
    far = x - (xp.mean(x, others, keepdims=True) if mean is None else p.reshape(mean, column))
    spread = xp.mean(far * far, others, keepdims=True) if var is None else p.reshape(var, column)
    out = far * xp.rsqrt(spread + eps)
    if scale is not None:
        out = out * p.reshape(scale, column)
    if shift is not None:
        out = out + p.reshape(shift, column)
    return _down(out, dtype)


@eager
def weightnorm(v: Any, g: Any) -> Any:
    """g * v / |v|, with one length ``g`` for each position along the first axis."""
    x, dtype = _up(v)
    if x.ndim < 1:
        raise fail("E_SHAPE_MISMATCH", f"expected one axis or more, got {p.show(x.shape)}", "reshape it: `x.reshape(1)`")
    length = xp.sqrt(xp.sum(x * x, tuple(range(1, x.ndim)), keepdims=True))
    return _down(x * (p.reshape(g, [x.shape[0]] + [1] * (x.ndim - 1)) / length), dtype)


@eager
def swiglu(x: Any, gate: Any) -> Any:
    """silu(gate) * x."""
    return silu(gate) * x


# Losses


def _reduced(x: Tracer, reduction: str) -> Tracer:
    if reduction == "none":
        return x
    if reduction not in ("mean", "sum"):
        raise fail(
            "E_ARGUMENT",
            f'expected `reduction` to be "mean", "sum" or "none", got {reduction!r}',
            'leave it out for "mean"',
        )
    return xp.mean(x) if reduction == "mean" else xp.sum(x)


@eager
def cross_entropy(logits: Any, labels: Any, *, ignore_index: int = -100, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Any:  # fmt: skip
    """logsumexp(logits) - logits[label] for each row along the last axis; rows labelled ``ignore_index`` count nowhere."""
    x, _ = _up(logits)
    labels = as_tracer(labels)
    if labels.shape != x.shape[:-1]:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected one label for each row of {p.show(x.shape)}, got {p.show(labels.shape)}",
            "logits are [..., classes] and labels [...], as integers",
        )
    if is_float(labels._dtype):
        raise fail("E_TYPE", f"expected labels to be integers, got {labels._dtype}", "cast them: `labels.astype(ts.i32)`")
    labels = p.cast(labels, "i64")
    counted = labels != ignore_index
    safe = xp.where(counted, labels, 0)
    loss = fused.label_loss(_floats(logits), safe)
    if label_smoothing:
        loss = loss * (1.0 - label_smoothing) - xp.mean(log_softmax(x, -1), -1) * label_smoothing
    loss = xp.where(counted, loss, 0.0)
    if reduction == "mean":
        return xp.sum(loss) / xp.maximum(p.cast(xp.sum(p.cast(counted, "i64")), x._dtype), 1.0)
    return _reduced(loss, reduction)


def _difference(name: str, a: Any, b: Any) -> Any:
    _alike(name, a, b)
    return p.ew("sub", a, b)


def _alike(name: str, a: Any, b: Any) -> None:
    """Two arrays of one shape, or a number with any. [n, 1] beside [n] would be all pairs."""
    one, other = aval(a)[0], aval(b)[0]
    if one and other and tuple(one) != tuple(other):
        raise fail("E_SHAPE_MISMATCH", f"{name}: expected two arrays of one shape, got {p.show(one)} and {p.show(other)}",
                   "reshape one of them: `a.reshape(b.shape)`, or say it: `xp.broadcast_to(b, a.shape)`")  # fmt: skip


@eager
def mse_loss(a: Any, b: Any, *, reduction: str = "mean") -> Any:
    """Mean square difference."""
    d = _difference("mse_loss", a, b)
    return _reduced(d * d, reduction)


@eager
def l1_loss(a: Any, b: Any, *, reduction: str = "mean") -> Any:
    """Mean magnitude of the difference."""
    return _reduced(xp.abs(_difference("l1_loss", a, b)), reduction)


@eager
def huber_loss(a: Any, b: Any, delta: float = 1.0, *, reduction: str = "mean") -> Any:
    """Square near zero, straight beyond ``delta``."""
    d = xp.abs(_difference("huber_loss", a, b))
    return _reduced(xp.where(d < delta, d * d * 0.5, (d - 0.5 * delta) * delta), reduction)


@eager
def smooth_l1_loss(a: Any, b: Any, beta: float = 1.0, *, reduction: str = "mean") -> Any:
    """`huber_loss` over ``beta``."""
    d = xp.abs(_difference("smooth_l1_loss", a, b))
    return _reduced(xp.where(d < beta, d * d * (0.5 / beta), d - 0.5 * beta), reduction)


@eager
def binary_cross_entropy(logits: Any, targets: Any, *, reduction: str = "mean") -> Any:
    """Of logits, without overflow."""
    x, _ = _up(logits)
    _alike("binary_cross_entropy", x, targets)
    t = p.cast(targets, x._dtype)
    return _reduced(_softplus(x) - x * t, reduction)


@eager
def nll_loss(log_p: Any, labels: Any, *, reduction: str = "mean") -> Any:
    """Minus the log probability of each label; NaN for a label that is no class."""
    x, ix = as_tracer(log_p), p.cast(labels, "i64")
    return _reduced(-p.gather(x, p.expand_dims(ix, ix.ndim), [x.ndim - 1], x.ndim - 1, "fill", math.nan), reduction)


@eager
def kl_div(log_p: Any, target: Any, *, reduction: str = "mean") -> Any:
    """sum(target * (log(target) - log_p)); zero where the target is zero."""
    x, t = as_tracer(log_p), as_tracer(target)
    safe = xp.where(t > 0, t, 1.0)
    return _reduced(t * (xp.log(safe) - x), reduction)


# Tables and attention


def parts(x: Any, axis: int) -> list:
    """The positions along an axis, each without it."""
    if isinstance(x, Tracer) and is_float(x._dtype):
        return fused.parts(x, axis=axis)
    index = [slice(None)] * x.ndim
    return [x[(*index[:axis], i, *index[axis + 1:])] for i in range(x.shape[axis])]


@eager
def embedding(table: Any, indices: Any, *, mode: str | None = None) -> Any:
    """The rows of a table at these positions. Positions outside are those of `xp.take`: NaN unless ``mode`` says otherwise."""
    table, ix = as_tracer(table), as_tracer(indices)
    if table.ndim != 2:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected a table of rows, got {p.show(table.shape)}",
            "a table has a row for each position: [positions, size]",
        )
    if is_float(ix._dtype):
        raise fail("E_TYPE", f"expected positions to be integers, got {ix._dtype}", "cast them: `positions.astype(ts.i32)`")
    return xp.take(table, ix, 0, mode=mode)


@eager
def one_hot(indices: Any, num_classes: int, dtype: Any = "f32", axis: int = -1) -> Any:
    """1 at each position, 0 elsewhere, along a new axis, the last unless said; 0 everywhere for positions outside."""
    ix = p.cast(indices, "i64")
    at = p.axis_of(axis, ix.ndim + 1)
    shape = (*ix.shape[:at], num_classes, *ix.shape[at:])
    return p.cast(p.ew("eq", p.iota(shape, at), p.broadcast_to(p.expand_dims(ix, at), shape)), dtype)


@renamed_keywords(**_FORMER)
@eager
def attention(q: Any, k: Any, v: Any, *, causal: Any = False, scale: float | None = None, mask: Any = None,
              bias: Any = None, window: Any = None, layout: str = "bhsd", return_lse: bool = False, score_mod: Any = None,
              mask_mod: Any = None, lazy_rescale: bool | None = None) -> Any:  # fmt: skip
    """softmax(q kᵀ · scale) v. ``mask`` is true where a key counts; causal aligns to the end of the keys unless it is
    ``"top_left"``. Fewer heads of ``k`` and ``v`` are shared. Rows wholly masked give zeros. ``score_mod`` and ``mask_mod`` are
    functions of tiles, as for `ts.op.flash_attention`."""
    from . import _attention as kernels
    from ..kernels.attention_plan import scaled, sight, unfit

    q, k, v = (as_tracer(t) for t in (q, k, v))
    shapes = f"{p.show(q.shape)}, {p.show(k.shape)} and {p.show(v.shape)}"
    if q.ndim not in (3, 4) or k.ndim != q.ndim or v.ndim != q.ndim:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"attention: expected q, k and v of rank 4, or all of rank 3, got {shapes}",
            "shapes are (batch, heads, length, head dim), or (batch * heads, length, head dim)",
        )
    turned = layout == "bshd" and q.ndim == 4
    if turned:
        q, k, v = (p.transpose(t, [0, 2, 1, 3]) for t in (q, k, v))
    if wrong := unfit(*([1] * (4 - t.ndim) + list(t.shape) for t in (q, k, v)), shapes):
        raise fail("E_SHAPE_MISMATCH", f"attention: {wrong[0]}", wrong[1])
    n, m = q.shape[-2], k.shape[-2]
    sight(causal, window, n, m)  # refuses what it does not take
    scale = scale if isinstance(scale, Tracer) else scaled(scale, q.shape[-1])
    (scores, changes), (mask_of, masks) = _function(score_mod, "score_mod"), _function(mask_mod, "mask_mod")
    reason = "a mask or a bias that is an array is no part of its kernels" if mask is not None or bias is not None else None
    if reason is None and isinstance(scale, Tracer):
        reason = "the scale is not known while tracing"
    if reason is None:
        options = kernels.Options(scale, *_sight(causal, window), scores, mask_of, return_lse, lazy_rescale is not False)
        made = kernels.attend(q, k, v, changes, masks, options)
    else:
        kernels.note_composition(reason)
        made = kernels.composed(q, k, v, sight(causal, window, n, m), scale, return_lse, mask=mask, bias=bias,
                                scores=(scores, changes), masks=(mask_of, masks))  # fmt: skip
    out, lse = made if return_lse else (made, None)
    out = p.transpose(out, [0, 2, 1, 3]) if turned else out
    return (out, lse) if return_lse else out


def _sight(causal: Any, window: Any) -> tuple[Any, Any]:
    """``causal`` and ``window`` as static values: `sight` has taken them."""
    sides = tuple(None if w is None else int(w) for w in window) if isinstance(window, (tuple, list)) else None if window is None else int(window)
    return causal if isinstance(causal, str) else bool(causal), sides


def _function(function: Any, name: str) -> tuple[Any, list]:
    """A function of tiles, and the arrays that it reads."""
    from ..kernels.attention_plan import function_of

    if function is None:
        return None, []
    function, given = function_of(function, name)
    return function, [as_tracer(x) for x in given]


# Convolution and pooling


def _per_axis(value: Any, n: int) -> list[int]:
    return [value] * n if isinstance(value, int) else list(value)


def _padding(padding: Any, sizes: list[int], extents: list[int], strides: list[int], dilations: list[int]) -> tuple[list, list]:
    n = len(extents)
    if isinstance(padding, str):
        # JAX writes them in capitals.
        padding = padding.lower()
        if padding not in ("same", "valid"):
            raise fail("E_ARGUMENT", f'expected `padding` to be "same", "valid", a number, or a pair for each axis, got {padding!r}', 'write `padding="same"`')
    if padding == "same":
        lo, hi = [], []
        for size, extent, stride, dilation in zip(sizes, extents, strides, dilations, strict=True):
            reach = (extent - 1) * dilation + 1
            total = max((-(-size // stride) - 1) * stride + reach - size, 0)
            lo.append(total // 2)
            hi.append(total - total // 2)
        return lo, hi
    if padding == "valid":
        return [0] * n, [0] * n
    pairs = [(v, v) if isinstance(v, int) else tuple(v) for v in (_per_axis(padding, n))]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _check_channels(x: tuple, w: tuple, n: int, groups: int, layout: str) -> None:
    """Refuses channels that do not match; both shapes with the channels on axis 1."""
    channels, each, out = x[1], w[1], w[0]
    if groups < 1 or channels % groups or out % groups:
        raise fail("E_SHAPE_MISMATCH", f"conv{n}d: expected {groups} groups to divide {channels} channels of `x` and {out} of the result",
                   "choose a divisor of both numbers of channels")  # fmt: skip
    if each * groups == channels:
        return
    of = f" in each of {groups} groups" if groups > 1 else ""
    if x[-1] == each * groups and not layout.endswith("C"):
        help = f'the channels of `x` are on axis 1; where they are on the last axis, write `layout="{layout[0]}{layout[2:]}C"`'
    elif w[-2] == channels or w[-1] == channels:
        help = f"weights are [out, in / groups, {', '.join(['width', 'height', 'depth'][:n][::-1])}]: transpose those of JAX's HWIO with `w.transpose({n + 1}, {n}, {', '.join(map(str, range(n)))})`"
    else:
        help = "the second axis of the weights has an element for each channel of `x`, divided by `groups`"
    raise fail("E_SHAPE_MISMATCH", f"conv{n}d: expected {each} channels{of} of `x`, as the weights {p.show(w)} have, got {channels}", help)


def _conv(x: Any, w: Any, b: Any, n: int, stride: Any, padding: Any, dilation: Any, groups: int, layout: str) -> Any:
    x, w = as_tracer(x), as_tracer(w)
    last = layout.endswith("C")
    if x.ndim != n + 2 or w.ndim != n + 2:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"conv{n}d: expected arrays of {n + 2} axes, got {p.show(x.shape)} and {p.show(w.shape)}",
            "shapes are [batch, channels, …] and [out channels, in channels, …]",
        )
    if last:
        x = p.transpose(x, [0, n + 1, *range(1, n + 1)])
    _check_channels(x.shape, w.shape, n, groups, layout)
    strides, dilations = _per_axis(stride, n), _per_axis(dilation, n)
    lo, hi = _padding(padding, list(x.shape[2:]), list(w.shape[2:]), strides, dilations)
    dtype = xp.result_type(x, w)
    x, w = p.cast(x, dtype), p.cast(w, dtype)
    out = saveable(one("conv", [x, w], {"strides": strides, "lo": lo, "hi": hi, "dilate_w": dilations, "groups": groups}), "dots")
    if b is not None:
        out = out + p.reshape(b, [1, -1] + [1] * n)
    return p.transpose(out, [0, *range(2, n + 2), 1]) if last else out


@eager
def conv1d(x: Any, w: Any, b: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCW") -> Any:  # fmt: skip
    """Convolution of [batch, channels, width] with [out, channels / groups, width]."""
    return _conv(x, w, b, 1, stride, padding, dilation, groups, layout)


@eager
def conv2d(x: Any, w: Any, b: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCHW") -> Any:  # fmt: skip
    """Convolution of [batch, channels, height, width] (or ``NHWC``) with [out, channels / groups, height, width]."""
    return _conv(x, w, b, 2, stride, padding, dilation, groups, layout)


@eager
def conv3d(x: Any, w: Any, b: Any = None, *, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
           layout: str = "NCDHW") -> Any:  # fmt: skip
    """Convolution over three axes."""
    return _conv(x, w, b, 3, stride, padding, dilation, groups, layout)


def _windows(x: Tracer, window: Any, stride: Any, padding: Any) -> dict:
    n = x.ndim - 2
    sizes = _per_axis(window, n)
    strides = sizes if stride is None else _per_axis(stride, n)
    lo, hi = _padding(padding, list(x.shape[2:]), sizes, strides, [1] * n)
    return {"window": [1, 1, *sizes], "strides": [1, 1, *strides], "lo": [0, 0, *lo], "hi": [0, 0, *hi]}


@eager
def max_pool(x: Any, window: Any, stride: Any = None, padding: Any = 0) -> Any:
    """Greatest of each window of [batch, channels, …]."""
    x = as_tracer(x)
    return one("window_reduce", [x], {"op": "max", **_windows(x, window, stride, padding)})


@eager
def avg_pool(x: Any, window: Any, stride: Any = None, padding: Any = 0) -> Any:
    """Average of each window of [batch, channels, …]; padding counts as zeros."""
    x = as_tracer(x)
    # A sum of f16 need not be one.
    wide = x if x._dtype in ("f32", "f64") or not is_float(x._dtype) else p.cast(x, "f32")
    made = one("window_reduce", [wide], {"op": "sum", **_windows(x, window, stride, padding)})
    made = made * (1.0 / math.prod(_per_axis(window, x.ndim - 2)))
    return made if wide is x else p.cast(made, x._dtype)
