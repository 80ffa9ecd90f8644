"""`tessera.op` inside a trace: each function becomes the composition of primitives that it stands for. Choices of tiles
(``rows``, ``block``) are ignored."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import xp
from ..nn import _functional as F
from ..trace import on_mesh, prim as p
from ..trace.tracer import Tracer, current
from . import _backward as backward, _products as products


def _forms() -> dict[str, Callable]:
    def to(x: Any, out_dtype: Any) -> Any:
        return x if out_dtype is None else p.cast(x, out_dtype)

    def reduction(fn: Callable) -> Callable:
        return lambda x, axis=None, *, keepdims=False, out_dtype=None: to(fn(x, axis, keepdims=keepdims), out_dtype)

    def gelu(x: Any, *, approximate: bool = False, out_dtype: Any = None) -> Any:
        return to(F.gelu(x, approximate), out_dtype)

    def activation(x: Any, bias: Any, activation: Any = "gelu", *, out_dtype: Any = None) -> Any:
        known = {"gelu": F.gelu, "gelu_tanh": lambda v: F.gelu(v, True), "silu": F.silu, "relu": F.relu, "identity": lambda v: v}
        fn = known[activation] if isinstance(activation, str) else activation
        return to(fn(xp.add(x, bias)), out_dtype)

    def cross_entropy(logits: Any, labels: Any, *, ignore_index: int = -100, reduction: str = "mean", return_lse: bool = False,
                      out_dtype: Any = None) -> Any:  # fmt: skip
        loss = to(F.cross_entropy(logits, labels, ignore_index=ignore_index, reduction=reduction), out_dtype)
        return (loss, F.logsumexp(logits, -1)) if return_lse else loss

    def layernorm(x: Any, scale: Any = None, shift: Any = None, eps: float = 1e-5, *, return_stats: bool = False,
                  out_dtype: Any = None) -> Any:  # fmt: skip
        y = F.layernorm(x, scale, shift, eps, out_dtype=out_dtype)
        if not return_stats:
            return y
        wide, _ = F._up(x)
        return y, xp.mean(wide, -1), xp.rsqrt(xp.var(wide, -1) + eps)

    def rmsnorm(x: Any, scale: Any = None, eps: float = 1e-6, *, return_stats: bool = False, out_dtype: Any = None) -> Any:
        y = F.rmsnorm(x, scale, eps, out_dtype=out_dtype)
        if not return_stats:
            return y
        wide, _ = F._up(x)
        return y, xp.rsqrt(xp.mean(wide * wide, -1) + eps)

    return {
        "softmax": F.softmax, "log_softmax": F.log_softmax, "layernorm": layernorm, "rmsnorm": rmsnorm, "gelu": gelu,
        "cross_entropy": cross_entropy, "bias_activation": activation, "sum": reduction(xp.sum), "mean": reduction(xp.mean),
        "max": reduction(xp.max), "min": reduction(xp.min), "prod": reduction(xp.prod), "argmax": xp.argmax, "argmin": xp.argmin,
        "transpose": xp.permute_dims, "softmax_safe": lambda x, axis=-1: F.softmax(x, axis, safe=True),
        "logsumexp_safe": lambda x, axis=-1: F.logsumexp(x, axis), "layernorm_safe": F.layernorm, "rmsnorm_safe": F.rmsnorm, "gelu_safe": F.gelu,
        "matmul": products.matmul, "gemm": products.gemm, "flash_attention": products.flash_attention,
        "saxpy": lambda alpha, x, y, *, out_dtype=None: to(xp.add(xp.multiply(x, alpha), y), out_dtype),
        **{name: getattr(backward, name) for name in BACKWARD}, "grouped_gemm": backward.grouped_gemm,
    }  # fmt: skip


@functools.lru_cache(maxsize=1)
def _table() -> dict[str, Callable]:
    return _forms()


#: The gradients that are functions.
BACKWARD = ("softmax_backward", "log_softmax_backward", "layernorm_backward", "rmsnorm_backward", "cross_entropy_backward")
#: The functions that have a traced form.
NAMES = (
    "softmax", "log_softmax", "layernorm", "rmsnorm", "gelu", "cross_entropy", "bias_activation", "sum", "mean", "max", "min",
    "prod", "argmax", "argmin", "transpose", "softmax_safe", "logsumexp_safe", "layernorm_safe", "rmsnorm_safe", "gelu_safe",
    "saxpy", "matmul", "gemm", "flash_attention", *BACKWARD, "grouped_gemm",
)  # fmt: skip


def traceable(fn: Callable) -> Callable:
    """A function of arrays that is a composition of primitives inside a trace, and on arrays on a mesh."""

    def form(*args: Any, **kwargs: Any) -> Any:
        kept = {k: v for k, v in kwargs.items() if k not in ("rows", "block")}
        return _table()[fn.__name__](*args, **kept)

    @on_mesh.traced(form)
    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is None and not any(isinstance(a, Tracer) for a in (*args, *kwargs.values())):
            return fn(*args, **kwargs)
        return form(*args, **kwargs)

    return call
