"""The names of a program under JAX: ``ts``, ``xp`` and ``nn`` as a program uses them, by JAX itself.

Run by the Python of build/bench-venv, which has JAX and not Tessera's own packages.
"""

from __future__ import annotations

import types
from typing import Any

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)
# Speed does not matter here.
jax.config.update("jax_disable_most_optimizations", True)
jnp, lax = jax.numpy, jax.lax

DTYPES = {"f32": jnp.float32, "f64": jnp.float64, "bf16": jnp.bfloat16, "f16": jnp.float16, "i32": jnp.int32, "i64": jnp.int64,
          "u8": jnp.uint8, "bool": jnp.bool_}  # fmt: skip


def _wide(x: Any) -> Any:
    """Sums and products of integers are kept in 64 bits."""
    x = jnp.asarray(x)
    return x.astype(jnp.int64) if x.dtype.kind in "bi" else x.astype(jnp.uint64) if x.dtype.kind == "u" else x


def _sum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return jnp.sum(_wide(x), axis=axis, keepdims=keepdims)


def _prod(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return jnp.prod(_wide(x), axis=axis, keepdims=keepdims)


def _take_along_axis(x: Any, i: Any, axis: int = -1) -> Any:
    lead = list(np.broadcast_shapes(*(tuple(1 if k == axis % x.ndim else d for k, d in enumerate(np.shape(a))) for a in (x, i))))
    stretch = [tuple(np.shape(a)[axis] if k == axis % x.ndim else d for k, d in enumerate(lead)) for a in (x, i)]
    return jnp.take_along_axis(jnp.broadcast_to(x, stretch[0]), jnp.broadcast_to(i, stretch[1]), axis=axis, mode="clip")


def _take(x: Any, i: Any, axis: int, mode: str = "clip") -> Any:
    i = jnp.asarray(i)
    return jnp.take(x, jnp.where(i < 0, i + x.shape[axis], i), axis=axis, mode="clip")


def _top_k(x: Any, k: int, axis: int = -1) -> tuple:
    order = jnp.argsort(x, axis=axis, descending=True, stable=True)
    order = lax.slice_in_dim(order, 0, k, axis=axis)
    return jnp.take_along_axis(x, order, axis=axis), order


def _xp() -> types.SimpleNamespace:
    same = """exp tanh sin cos abs sqrt log1p square sign floor round clip maximum minimum hypot logaddexp where remainder atan2 logical_xor
              logical_not any all mean var std max min argmax argmin count_nonzero flip roll tile repeat expand_dims broadcast_to tril triu
              reshape concat stack pad einsum outer vecdot arange full zeros ones eye linspace asarray astype sort argsort permute_dims
              ones_like zeros_like squeeze swapaxes moveaxis""".split()
    names: dict[str, Any] = {n: getattr(jnp, n) for n in same}
    names |= {
        "atan": jnp.arctan, "erf": jax.scipy.special.erf, "rsqrt": lax.rsqrt, "sum": _sum, "prod": _prod,
        "logsumexp": lambda x, axis=None, keepdims=False: jax.scipy.special.logsumexp(x, axis=axis, keepdims=keepdims),
        "cumulative_sum": lambda x, axis: jnp.cumsum(_wide(x), axis=axis), "cumulative_prod": lambda x, axis: jnp.cumprod(_wide(x), axis=axis),
        "take": _take, "take_along_axis": _take_along_axis, "top_k": _top_k,
        "sigmoid": jax.nn.sigmoid,
    }  # fmt: skip
    return types.SimpleNamespace(**names)


def _norm(x: Any, eps: float) -> Any:
    far = x - x.mean(-1, keepdims=True)
    return far * lax.rsqrt((far * far).mean(-1, keepdims=True) + eps)


NN = types.SimpleNamespace(
    sigmoid=jax.nn.sigmoid, relu=jax.nn.relu, gelu=lambda x: jax.nn.gelu(x, approximate=False), silu=jax.nn.silu, softplus=jax.nn.softplus,
    softmax=jax.nn.softmax, log_softmax=jax.nn.log_softmax, layernorm=_norm,
    rmsnorm=lambda x, eps: x * lax.rsqrt((x * x).mean(-1, keepdims=True) + eps),
)  # fmt: skip


def _cond(pred: Any, then: Any, otherwise: Any, *operands: Any) -> Any:
    return lax.cond(jnp.asarray(pred).astype(bool), then, otherwise, *operands)


def _fori(low: Any, high: Any, body: Any, init: Any) -> Any:
    if isinstance(low, int) and isinstance(high, int):
        # By `scan`, which has a reverse mode for no iterations too.
        steps = np.arange(low, max(high, low), dtype=np.int64)
        return lax.scan(lambda c, i: (body(i, c), None), init, steps)[0]
    return lax.while_loop(lambda c: c[0] < high, lambda c: (c[0] + 1, body(c[0], c[1])), (jnp.asarray(low, jnp.int64), init))[1]


TS = types.SimpleNamespace(
    **DTYPES, cond=_cond, scan=lax.scan, fori_loop=_fori, while_loop=lax.while_loop, vmap=jax.vmap, grad=jax.grad,
    value_and_grad=jax.value_and_grad, vjp=jax.vjp, jvp=jax.jvp, stop_gradient=lax.stop_gradient, checkpoint=jax.checkpoint,
    dynamic_slice=lambda x, at, extent: lax.dynamic_slice(x, [jnp.asarray(i, jnp.int64) for i in at], extent),
    dynamic_update_slice=lambda x, part, at: lax.dynamic_update_slice(x, part, [jnp.asarray(i, jnp.int64) for i in at]),
)  # fmt: skip
NAMES = {"ts": TS, "xp": _xp(), "nn": NN, "np": np, "jnp": jnp}


def evaluate(text: str, inputs: list[list[np.ndarray]]) -> list[list[np.ndarray]]:
    """The results of a program under ``jax.jit``, for each of several lists of arguments."""
    namespace = {**NAMES, "first": lambda x: x[0] if isinstance(x, tuple) else x, "__name__": "random_plan"}
    exec(compile(text, "<plan>", "exec", dont_inherit=True), namespace)
    fn = jax.jit(namespace["f"])
    return [[np.asarray(a) for a in fn(*(jnp.asarray(a) for a in given))] for given in inputs]
