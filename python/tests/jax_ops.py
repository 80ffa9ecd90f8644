"""What each row of `graph_ops.OPS` is in JAX: by the same name where JAX has one that means the same, else written out."""

from __future__ import annotations

import math

import graph_ops
import jax
import numpy as np

from tessera._core import real_functions

jax.config.update("jax_enable_x64", True)
jnp, lax = jax.numpy, jax.lax

#: Rows whose function has the same name and the same arguments in `jax.numpy`.
_SAME = {
    "exp", "exp2", "expm1", "sin", "cos", "tanh", "sinh", "cosh", "negative", "square", "asinh", "log", "log2", "log1p", "log10",
    "sqrt", "reciprocal", "abs", "tan", "asin", "acos", "atan", "atanh", "acosh", "positive", "floor", "ceil", "round", "trunc",
    "sign", "isnan", "isinf", "isfinite", "signbit", "add", "subtract", "multiply", "maximum", "minimum", "hypot", "logaddexp",
    "divide", "atan2", "pow", "copysign", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "floor_divide",
    "remainder", "logical_and", "logical_or", "logical_xor", "logical_not", "matmul", "tril", "triu", "outer", "vecdot",
    "matrix_transpose",
} | {name for name, _, _ in real_functions() if hasattr(jnp, name)}  # fmt: skip


def _layernorm(x, w=None, b=None):
    y = jax.nn.standardize(x, axis=-1, epsilon=1e-5)
    return y * (1 if w is None else w) + (0 if b is None else b)


def _attention(q, k, v):
    # JAX has the heads behind the positions, and lets the first query see the first key alone.
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool), scores.shape[-1] - scores.shape[-2])
    return jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)) @ v


def _conv(x, w):
    return lax.conv(x, w, (1,) * (x.ndim - 2), "VALID")


def _picked(x, labels):
    return jnp.take_along_axis(x, labels[..., None], -1)


def _huber(a, b):
    d = jnp.abs(a - b)
    return jnp.where(d < 1, d * d / 2, d - 0.5).mean()


def _batchnorm(x, w, b=None):
    axes, column = (0, *range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
    y = (x - x.mean(axes, keepdims=True)) * lax.rsqrt(x.var(axes, keepdims=True) + 1e-5)
    return y * w.reshape(column) + (0 if b is None else b.reshape(column))


def _focal(x, t):
    each = jax.nn.softplus(x) - x * t
    return (jnp.expm1(-each) ** 2 * each).mean()


def _apart(a, b):
    return jnp.sqrt(((a - b) ** 2).sum(-1) + 1e-12)


def _info_nce(q, k):
    q, k = (x * lax.rsqrt((x * x).sum(-1, keepdims=True) + 1e-12) for x in (q, k))
    return -jnp.diagonal(jax.nn.log_softmax(q @ k.T / 0.1)).mean()


def _ctc(x):
    """All paths to say the labels, one by one."""
    log_p = jax.nn.log_softmax(x)
    out = []
    for row, labels, n, m in zip(log_p, graph_ops.CTC_LABELS, graph_ops.CTC_STEPS, graph_ops.CTC_COUNTS, strict=True):
        paths = np.array(list(graph_ops.ctc_paths(n, labels[:m])))
        out.append(-jax.nn.logsumexp(row[np.arange(n), paths].sum(-1)))
    return jnp.stack(out).mean()


_WRITTEN = {
    "erf": jax.scipy.special.erf,
    "sigmoid": jax.nn.sigmoid,
    "rsqrt": lax.rsqrt,
    "clip": lambda x: jnp.clip(x, -1.0, 1.0),
    "where": lambda x, y: jnp.where(x > y, x, y * 2),
    "power of a number": lambda x: x**3 + x**2.0,
    "fma": lambda x, y: x * y + x,
    "sum of nothing": lambda x: x.sum(0),
    "sum, axes kept": lambda x: x.sum((0, 2), keepdims=True),
    **{n: lambda x, n=n: getattr(jnp, n)(x, -1) for n in ("argmax", "argmin", "any", "all", "argsort", "count_nonzero")},
    "sort": lambda x: jnp.sort(x, 0),
    "sort, descending": lambda x: jnp.sort(x, descending=True),
    "top_k": lambda x: lax.top_k(x, 2)[0],
    "cumulative_sum": lambda x: jnp.cumsum(x, -1),
    "cumulative_prod": lambda x: jnp.cumprod(x, 0),
    "logsumexp": lambda x: jax.nn.logsumexp(x, -1),
    "reshape": lambda x: x.reshape(-1, 2),
    "permute_dims": lambda x: x.transpose(2, 0, 1),
    "swapaxes": lambda x: jnp.swapaxes(x, 0, -1),
    "moveaxis": lambda x: jnp.moveaxis(x, 0, -1),
    "expand_dims": lambda x: jnp.expand_dims(x, 1),
    "squeeze": lambda x: jnp.squeeze(x, 1),
    "broadcast_to": lambda x: jnp.broadcast_to(x, (2, 3, 4)),
    "concat": lambda x, y: jnp.concatenate([x, y], 1),
    "stack": lambda x, y: jnp.stack([x, y], -1),
    "split": lambda x: jnp.split(x, 2, 1)[1],
    "flip": lambda x: jnp.flip(x, 0),
    "roll": lambda x: jnp.roll(x, 2, 1),
    "tile": lambda x: jnp.tile(x, (2, 3)),
    "repeat": lambda x: jnp.repeat(x, 3, 0),
    "pad": lambda x: jnp.pad(x, [(1, 0), (2, 1)]),
    "broadcast_arrays": lambda x, y: jnp.broadcast_arrays(x, y)[0] * y,
    "unstack": lambda x: jnp.unstack(x, axis=1)[2],
    "meshgrid": lambda x, y: jnp.meshgrid(x, y)[0] * jnp.meshgrid(x, y)[1],
    "astype": lambda x: (x * x).astype("float64") + x,
    "dynamic_slice": lambda x, i: lax.dynamic_slice(x, (i, i), (2, 2)),
    "x[1]": lambda x: x[1],
    "x[..., None, ::2]": lambda x: x[..., None, ::2],
    "x[::-2, 1:-1]": lambda x: x[::-2, 1:-1],
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x[:, i],
    "x[i, :, i]": lambda x, i: x[i, :, i],
    "take": lambda x, i: jnp.take(x, i, 1),
    "take_along_axis": lambda x, i: jnp.take_along_axis(x, i, -1),
    "at.add": lambda x, i: x.at[i].add(2.0 * x[0]),
    "at.set": lambda x: x.at[1:, 0].set(7.0),
    "tensordot": lambda a, b: jnp.tensordot(a, b, 2),
    "softmax": jax.nn.softmax,
    "log_softmax": jax.nn.log_softmax,
    "layernorm": _layernorm,
    "rmsnorm": lambda x, w=1.0: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w,
    "groupnorm": lambda x: _layernorm(x.reshape(x.shape[0], 2, -1)).reshape(x.shape),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu, tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "silu": jax.nn.silu,
    "relu": jax.nn.relu,
    "softplus": jax.nn.softplus,
    **{n: getattr(jax.nn, n) for n in (*graph_ops._ACTIVATIONS, "glu")},
    "leaky_relu": jax.nn.leaky_relu,
    "elu": jax.nn.elu,
    "cross_entropy": lambda x, labels: -_picked(jax.nn.log_softmax(x), labels).mean(),
    "mse_loss": lambda a, b: ((a - b) ** 2).mean(),
    "l1_loss": lambda a, b: jnp.abs(a - b).mean(),
    "huber_loss": _huber,
    "smooth_l1_loss": _huber,
    "binary_cross_entropy": lambda x, t: (jax.nn.softplus(x) - x * t).mean(),
    "nll_loss": lambda x, labels: -_picked(x, labels).mean(),
    "kl_div": lambda x, t: (t * (jnp.log(t) - x)).mean(),
    "instancenorm": lambda x: _layernorm(x.reshape(*x.shape[:2], -1)).reshape(x.shape),
    "batchnorm": _batchnorm,
    "weightnorm": lambda v, g: v * (g / jnp.sqrt((v * v).sum(-1)))[:, None],
    "swiglu": lambda x, g: x * jax.nn.silu(g),
    "focal_loss": _focal,
    "contrastive_loss": lambda a, b, s: (s * _apart(a, b) ** 2 + (1 - s) * jnp.maximum(1 - _apart(a, b), 0) ** 2).mean() / 2,
    "triplet_loss": lambda a, b, c: jnp.maximum(_apart(a, b) - _apart(a, c) + 1, 0).mean(),
    "info_nce_loss": _info_nce,
    "ctc_loss": _ctc,
    "embedding": lambda t, i: t[i],
    "attention": _attention,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _conv),
    "max_pool": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
    "avg_pool": lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") / 4,
    **{f"{n}{axis}": lambda x, n=n, axis=axis: getattr(jnp, n)(x, axis=axis)
       for n in ("sum", "prod", "max", "min", "mean", "var", "std") for axis in (None, 0, -1)},
}  # fmt: skip


def function(name: str):
    """What JAX calls a row; `KeyError` where a row has no counterpart here."""
    if name in _SAME:
        return getattr(jnp, name)
    if name.startswith("einsum "):
        return lambda *a: jnp.einsum(name.removeprefix("einsum "), *a)
    return _WRITTEN[name]


def answers(op: graph_ops.Op, args: list, weights: np.ndarray, along: tuple) -> dict[str, list]:
    """The value of a row, its tangent along ``along``, the gradient of its weighted sum, and that gradient's derivative along
    ``along``, forward over reverse and reverse over reverse."""
    places = [k for k in range(len(args)) if k not in op.ints]
    fn = function(op.name)

    def call(*given):
        full = list(args)
        for k, v in zip(places, given, strict=True):
            full[k] = v
        return fn(*full)

    def everything(x, v, w):
        if not op.smooth:
            return {"value": [call(*x)]}
        value, tangent = jax.jvp(call, x, v)
        gradient = jax.grad(lambda *a: (call(*a) * w).sum(), argnums=tuple(range(len(x))))
        first, forward = jax.jvp(gradient, x, v)
        reverse = jax.grad(lambda x: sum((g * d).sum() for g, d in zip(gradient(*x), v, strict=True)))(x)
        return {"value": [value], "tangent": [tangent], "gradient": first, "forward": forward, "reverse": reverse}

    # What is compiled runs once: compiling it well takes longer than it saves.
    run = jax.jit(everything, compiler_options={"xla_backend_optimization_level": 0})
    return {k: [np.asarray(a) for a in v] for k, v in run(tuple(graph_ops.floats(op, args)), along, weights).items()}
