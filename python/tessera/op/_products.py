"""Matmul and attention of `tessera.op` inside a trace: compositions of primitives, with the derivative and batching rules of the
primitives. An epilogue that is written in the tile language is refused there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import xp
from ..base.promotion import is_float
from ..nn import _functional as F
from ..trace import prim as p
from ..trace.tracer import as_tracer, fail
from ..xp._linalg import product


def _tile_function(name: str, value: Any, instead: str) -> None:
    if value is not None:
        raise fail("E_UNSUPPORTED", f"expected no `{name}` for traced arrays, got {value!r}: it is a function of tiles", instead)


def _activation(wanted: Any) -> Callable:
    known = {
        "identity": lambda v: v, "gelu": F.gelu, "gelu_tanh": lambda v: F.gelu(v, True), "silu": F.silu, "relu": F.relu,
    }  # fmt: skip
    if isinstance(wanted, str) and wanted in known:
        return known[wanted]
    what = f"`{wanted}`" if isinstance(wanted, str) else f"{wanted!r}, a function of tiles"
    raise fail("E_UNSUPPORTED", f"expected an activation of {', '.join(known)} for traced arrays, got {what}",
               "apply a function of arrays to the result")  # fmt: skip


def _wide(a: Any, b: Any) -> str | None:
    """What sums are kept in: f32 for narrow floats, f64 for f64; of integers what products of them give."""
    if not is_float(a._dtype) or not is_float(b._dtype):
        return None
    return "f64" if "f64" in (a._dtype, b._dtype) else "f32"


def matmul(
    a: Any, b: Any, *, bias: Any = None, activation: Any = "identity", residual: Any = None, scale: Any = None,
    epilogue: Any = None, extras: Any = (), block_scales: Any = None, out_dtype: Any = None, tile: Any = None,
    precision: str | None = None,
) -> Any:  # fmt: skip
    _tile_function("epilogue", epilogue, "write it as functions of arrays after the product: it is fused where that is better")
    if block_scales is not None:
        raise fail("E_UNSUPPORTED", "expected no `block_scales` for traced arrays", "multiply the matrices by their scales before")
    if precision not in (None, "f32", "tf32", "fast"):
        raise fail(
            "E_ARGUMENT",
            f"expected a precision of f32, tf32 or fast, got {precision!r}",
            "leave it out for the precision of the operands' dtype",
        )
    a, b = as_tracer(a), as_tracer(b)
    y = product(a, b, _wide(a, b))
    if scale is not None:
        y = y * scale
    if bias is not None:
        y = y + bias
    y = _activation(activation)(y)
    if residual is not None:
        y = y + residual
    return p.cast(y, out_dtype if out_dtype is not None else a._dtype if is_float(a._dtype) else y._dtype)


def gemm(
    a: Any, b: Any, c: Any = None, alpha: float = 1, beta: float = 0, trans_a: bool = False, trans_b: bool = False, *,
    out_dtype: Any = None, tile: Any = None,
) -> Any:  # fmt: skip
    a, b = as_tracer(a), as_tracer(b)
    for name, x in (("a", a), ("b", b)):
        if x.ndim < 2:
            raise fail(
                "E_SHAPE_MISMATCH",
                f"gemm: expected `{name}` to be a matrix, got {p.show(x.shape)}",
                "write `a[None, :]` for a row or `a[:, None]` for a column",
            )
    a, b = (xp.matrix_transpose(x) if transposed else x for x, transposed in ((a, trans_a), (b, trans_b)))
    y = product(a, b, _wide(a, b))
    if alpha != 1:
        y = y * alpha
    if c is not None and beta != 0:
        y = y + as_tracer(c) * beta
    return p.cast(y, out_dtype if out_dtype is not None else a._dtype if is_float(a._dtype) else y._dtype)


def flash_attention(
    q: Any, k: Any, v: Any, causal: Any = False, scale: float | None = None, window: Any = None, score_mod: Any = None,
    mask_mod: Any = None, return_lse: bool = False, *, is_causal: Any = None, layout: str = "bhsd", tile: Any = None,
    lazy_rescale: bool | None = None,
) -> Any:  # fmt: skip
    from ..kernels import attention_plan as kernels, checks

    # The same arguments are refused as for arrays in memory; the compiler chooses tiles.
    causal = causal if is_causal is None else is_causal
    checks.word(layout, ("bhsd", "bshd"), "layout")
    if not (isinstance(tile, str) and tile == "tune"):
        checks.pair(tile, "tile")
    kernels.exact(lazy_rescale)
    q, k, v = (as_tracer(x) for x in (q, k, v))
    kinds = [x._dtype for x in (q, k, v)]
    if len(set(kinds)) > 1:
        raise fail(*kernels.of_one_dtype(kinds))
    if not is_float(kinds[0]):
        raise fail("E_TYPE", f"expected q, k and v of a float dtype, got {kinds[0]}", "convert them first")
    return F.attention(
        q, k, v, causal=causal, scale=scale, window=window, layout=layout, return_lse=checks.flag(return_lse, "return_lse"),
        score_mod=score_mod, mask_mod=mask_mod, lazy_rescale=lazy_rescale,
    )  # fmt: skip
