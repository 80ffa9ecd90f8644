"""Operations on whole arrays, made of kernels in the tile language.

NumPy arrays in, NumPy arrays out, and likewise for arrays of ours and of PyTorch; of any rank and strides. Results have the dtype of the input unless ``out_dtype=`` says
otherwise; arithmetic is done in f32, in f64 for f64 arrays, and rounded once. Tiles are chosen by shape
(``tessera.kernels.schedule``); ``rows=`` (rows in a tile that holds them whole) and ``block=`` (elements of a piece of a row)
overrule the choice. ``*_backward`` give gradients.

The ``_safe`` ones keep their intermediate numbers finite for any finite input of any dtype, and give zeros, not NaN, for
rows that are wholly masked.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy

from .. import _core
from ..arrays.host import followed as _followed
from ..base.error_location import placed as _placed
from ..base.deprecation import renamed_keywords
from ..kernel.schedule import FORMER_KEYWORDS as _FORMER
from ..base.numeric_profile import current as _profile_now
from ..trace.tracer import frames as _frames
from ..trace import on_mesh as _on_mesh
from ._traced import NAMES as _TRACED, traceable as _traceable

__all__ = [
    "argmax", "argmin", "bias_activation", "block_mask", "cross_entropy", "cross_entropy_backward", "elementwise", "flash_attention",
    "gelu",
    "gelu_safe", "gemm", "grouped_gemm", "layernorm", "layernorm_backward", "layernorm_safe", "log_softmax", "log_softmax_backward", "logsumexp_safe",
    "max",
    "matmul", "mean", "min", "prod", "rmsnorm", "rmsnorm_backward", "rmsnorm_safe", "saxpy", "softmax", "softmax_backward",
    "softmax_safe", "sum", "transpose",
]  # fmt: skip


@functools.lru_cache(maxsize=None)
def _kernels(name: str) -> Any:
    # On first use: the kernels are decorated when their module is imported.
    return importlib.import_module(f"tessera.kernels.{name}")


# Products


def matmul(
    a: Any,
    b: Any,
    *,
    bias: Any = None,
    activation: Any = "identity",
    residual: Any = None,
    scale: Any = None,
    epilogue: Any = None,
    extras: Any = (),
    block_scales: Any = None,
    out_dtype: Any = None,
    tile: Any = None,
    precision: str | None = None,
) -> Any:
    """``a @ b`` by NumPy's rules for batches and vectors, in any strides.

    ``activation(scale * (a @ b) + bias) + residual`` is done before anything is stored; each of them broadcasts to the
    result, ``scale`` is a number or an array (of fp8 matrices the product of their scales). ``activation`` is a name or a
    ``@ts.func``. ``epilogue`` is a ``@ts.func`` of the accumulator and of up to three arrays in ``extras`` instead. ``block_scales``
    are the scales of fp8 matrices: one for each 128 elements of a row of ``a`` (``[…, M, K/128]``), and one for each square
    of 128 of ``b`` (``[…, K/128, N/128]``).

    The accumulator is f32 (f64 for f64, i32 for 8-bit integers). ``precision="tf32"`` rounds f32 matrices to ten fraction
    bits; of fp8 matrices ``"fast"`` leaves out the promotions of the accumulator, and ``"f32"`` requests all bits of f32. The
    result has the dtype of ``a``, for integers that of the accumulator.
    ``tile=(BM, BN, BK)`` overrides the choice of tiles; a dict may also name ``split``, ``num_warps``, ``num_stages``,
    ``cluster_m``, ``cluster_n``, ``warp_specialization`` and ``persistent``.
    ``tile="tune"`` measures tiles in the first call of its kind and keeps what it finds (``docs/tuning.md``).
    ``ts.op.matmul.explain(a, b)`` says what is chosen, and which matrices are copied first.

    Inside ``ts.jit`` and the transforms it is a matmul of Graph IR followed by elementwise ops; ``epilogue`` and
    ``block_scales`` are refused there.
    """
    module = _kernels("matmul")
    if epilogue is None:
        given = [x for x in (scale, bias, residual) if x is not None]
        names = _kernels("elementwise").activation(activation)
        epilogue = module.epilogue_of(names, bias is not None, residual is not None, scale is not None)
    else:
        given = list(extras)
        if bias is not None or residual is not None or scale is not None or activation != "identity":
            help = "hand the arrays to the epilogue as `extras=`"
            raise _core.error("E_ARGUMENT", "expected `epilogue=` alone, got another part of one beside it", help)
    return module.multiply(a, b, epilogue, given, out_dtype, tile, block_scales, precision)


def _explain_matmul(a: Any, b: Any, *, tile: Any = None, precision: str | None = None) -> str:
    """How ``matmul`` of these arrays is computed: tiles, chunks of ``K``, copies that come first. Nothing runs."""
    return str(_kernels("matmul").explain(a, b, tile, precision))


matmul.explain = _explain_matmul  # type: ignore[attr-defined]


def gemm(
    a: Any,
    b: Any,
    c: Any = None,
    alpha: float = 1,
    beta: float = 0,
    trans_a: bool = False,
    trans_b: bool = False,
    *,
    out_dtype: Any = None,
    tile: Any = None,
) -> Any:
    """``alpha * (a @ b) + beta * c``; ``trans_a`` and ``trans_b`` exchange the last two axes of the matrices, without a copy.
    ``c`` is not read where ``beta`` is 0."""
    module = _kernels("matmul")
    a, b = (module.turned(x) if transposed else x for x, transposed in ((a, trans_a), (b, trans_b)))
    if c is not None and beta != 0:
        return module.multiply(a, b, module.with_beta, (float(alpha), float(beta), c), out_dtype, tile)
    if alpha != 1:
        return module.multiply(a, b, module.with_alpha, (float(alpha),), out_dtype, tile)
    return matmul(a, b, out_dtype=out_dtype, tile=tile)


def grouped_gemm(a: Any, b: Any, sizes: Any, *, activation: Any = "identity", out_dtype: Any = None, tile: Any = None) -> Any:
    """The rows of ``a`` in groups, the first ``sizes[0]`` by ``b[0]``, the next ``sizes[1]`` by ``b[1]``, and so on; rows
    beyond the last group give zeros. ``sizes`` may be on the device: nothing waits for it."""
    names = _kernels("elementwise").activation(activation)
    return _kernels("matmul").grouped_product(a, b, sizes, names, out_dtype, tile)


# Attention


def flash_attention(
    q: Any,
    k: Any,
    v: Any,
    causal: Any = False,
    scale: float | None = None,
    window: Any = None,
    score_mod: Any = None,
    mask_mod: Any = None,
    return_lse: bool = False,
    *,
    is_causal: Any = None,
    layout: str = "bhsd",
    tile: Any = None,
    lazy_rescale: bool | None = None,
) -> Any:
    """``softmax(scale * q @ k^T) @ v`` for every head, without storing the scores.

    Shapes are ``(B, H, S, D)``, ``(B, S, H, D)`` with ``layout="bshd"``, or ``(B*H, S, D)``; in any strides. ``k`` and ``v``
    may have fewer heads, each for as many of ``q``; another length; and ``v`` another head dim. ``scale`` is
    ``1 / sqrt(D)``.

    ``causal``: a query sees the keys up to its own place, counted from the ends of both (``"top_left"``: from the begins).
    ``window`` is ``(left, right)``: how many keys to each side it sees, ``-1`` or ``None`` where there is no bound; an int w means
    the last w keys when causal, else those less than w away. ``score_mod(score, b, h, q, k)`` is a ``@ts.func`` on tiles of scores
    and of absolute positions, and ``mask_mod(b, h, q, k)`` one that says which keys are seen; ``ts.bind(f, bias=array)`` hands
    them arrays. A mask visits all
    blocks of keys that the other options leave; what `block_mask` makes of one visits only those in which something is seen.

    Inside ``ts.jit`` it and its gradient are kernels too, where those are possible and faster than the composition of matmuls
    and a softmax that it stands for; ``.explain()`` says which, and why (``docs/library.md``). Tiles are chosen there.

    A row that sees nothing gives zeros. With ``return_lse`` the logarithm of each row's sum of exponentials comes too, in f32
    (f64 for f64 arrays): ``-inf`` where nothing is seen.

    ``lazy_rescale=False`` rescales the accumulator whenever the running maximum of a row grows. By default kernels on tensor
    cores rescale lazily: they keep the maximum of the first block and rescale only rows that outgrow it. That is faster, and
    gives the same sums except for scores that grow by 2^96 within a row. ``tile=(BM, BN)`` overrides the queries and keys of a
    block; ``tile="tune"`` measures them, and ``lazy_rescale``, in the first call of its kind and keeps the best (``docs/tuning.md``).
    """
    causal = causal if is_causal is None else is_causal
    return _kernels("flash_attention").attend(
        q, k, v, causal=causal, scale=scale, window=window, score_mod=score_mod, mask_mod=mask_mod, return_lse=return_lse,
        layout=layout, tile=tile, free=lazy_rescale,
    )  # fmt: skip


def block_mask(
    mask_mod: Any, q: Any, k: Any, v: Any, causal: Any = False, window: Any = None, *, layout: str = "bhsd", tile: Any = None
) -> Any:
    """A block-sparse mask: evaluates a mask once and lists the blocks of keys that each block of queries sees. ``flash_attention``
    takes it as ``mask_mod``, visits no other blocks, and masks only those that are seen in part.

    It is valid for arrays of these shapes, whose elements are not read, and for the present contents of the mask's own arrays:
    make a new one when they change. ``causal`` and ``window`` become part of it. ``visited`` of the result is the fraction of
    blocks that is left.
    """
    return _kernels("block_mask").make(mask_mod, q, k, v, causal, window, layout, tile)


# Softmax


def softmax(x: Any, axis: int = -1, *, out_dtype: Any = None, rows: int | None = None, block: int | None = None) -> Any:
    """``exp(x) / sum(exp(x))`` along an axis, with the maximum subtracted first. Rows of ``-inf`` alone give NaN;
    `softmax_safe` gives zeros."""
    return _kernels("softmax").forward(x, axis, False, out_dtype, rows, block)


def softmax_backward(
    dy: Any, y: Any, axis: int = -1, *, out_dtype: Any = None, rows: int | None = None, block: int | None = None
) -> Any:
    """The gradient of `softmax` at the result ``y``, for the gradient ``dy`` of that result."""
    return _kernels("softmax").backward(dy, y, axis, False, out_dtype, rows, block)


def log_softmax(x: Any, axis: int = -1, *, out_dtype: Any = None, rows: int | None = None, block: int | None = None) -> Any:
    """``log(softmax(x))`` along an axis, without the loss of small weights."""
    return _kernels("softmax").forward(x, axis, True, out_dtype, rows, block)


def log_softmax_backward(
    dy: Any, y: Any, axis: int = -1, *, out_dtype: Any = None, rows: int | None = None, block: int | None = None
) -> Any:
    """The gradient of `log_softmax` at the result ``y``, for the gradient ``dy`` of that result."""
    return _kernels("softmax").backward(dy, y, axis, True, out_dtype, rows, block)


# Norms


def layernorm(
    x: Any,
    scale: Any = None,
    shift: Any = None,
    eps: float = 1e-5,
    *,
    return_stats: bool = False,
    out_dtype: Any = None,
    rows: int | None = None,
    block: int | None = None,
) -> Any:
    """``(x - mean) / sqrt(variance + eps) * scale + shift`` over the last axis.

    With ``return_stats`` it gives ``y, mean, rstd``: what `layernorm_backward` wants, in f32 (f64 for f64 arrays).
    """
    y, mean, rstd = _kernels("norm_rows").forward(x, scale, shift, eps, True, return_stats, out_dtype=out_dtype, rows=rows, block=block)
    return (y, mean, rstd) if return_stats else y


def layernorm_backward(
    dy: Any,
    x: Any,
    mean: Any,
    rstd: Any,
    scale: Any = None,
    *,
    parameters: bool | None = None,
    out_dtype: Any = None,
    rows: int | None = None,
    block: int | None = None,
) -> tuple[Any, Any, Any]:
    """``dx, dscale, dshift`` of `layernorm`. The last two are None unless ``parameters`` asks for them; by default where
    there is a scale. They are sums over all rows in a fixed order."""
    return _kernels("norm_rows").backward(dy, x, scale, mean, rstd, True, parameters, out_dtype=out_dtype, rows=rows, block=block)


def rmsnorm(
    x: Any,
    scale: Any = None,
    eps: float = 1e-6,
    *,
    return_stats: bool = False,
    out_dtype: Any = None,
    rows: int | None = None,
    block: int | None = None,
) -> Any:
    """``x / sqrt(mean(x * x) + eps) * scale`` over the last axis; with ``return_stats`` it gives ``y, rstd``."""
    y, _, rstd = _kernels("norm_rows").forward(x, scale, None, eps, False, return_stats, out_dtype=out_dtype, rows=rows, block=block)
    return (y, rstd) if return_stats else y


def rmsnorm_backward(
    dy: Any,
    x: Any,
    rstd: Any,
    scale: Any = None,
    *,
    parameters: bool | None = None,
    out_dtype: Any = None,
    rows: int | None = None,
    block: int | None = None,
) -> tuple[Any, Any]:
    """``dx, dscale`` of `rmsnorm`; ``parameters`` as in `layernorm_backward`."""
    return _kernels("norm_rows").backward(dy, x, scale, None, rstd, False, parameters, out_dtype=out_dtype, rows=rows, block=block)[:2]


# Losses


def cross_entropy(
    logits: Any,
    labels: Any,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    return_lse: bool = False,
    out_dtype: Any = None,
    rows: int | None = None,
    block: int | None = None,
) -> Any:
    """``logsumexp(logits) - logits[label]`` for each row along the last axis; ``labels`` are integers.

    Rows whose label is ``ignore_index`` count nowhere. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``. With
    ``return_lse`` it gives ``loss, lse``: the second is what the backward form wants. A label outside the vocabulary
    gives NaN, and is an error in checked mode.
    """
    loss, lse = _kernels("cross_entropy").forward(logits, labels, ignore_index, reduction, out_dtype, rows, block)
    return (loss, lse) if return_lse else loss


def cross_entropy_backward(
    dloss: Any,
    logits: Any,
    labels: Any,
    lse: Any,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    out_dtype: Any = None,
    rows: int | None = None,
    block: int | None = None,
) -> Any:
    """The gradient of the logits for ``dloss``: a number, or for ``reduction="none"`` an array like ``labels``."""
    return _kernels("cross_entropy").backward(
        dloss, logits, labels, lse, ignore_index, reduction, out_dtype=out_dtype, rows=rows, block=block
    )


# Reductions


def sum(
    x: Any, axis: Any = None, *, keepdims: bool = False, out_dtype: Any = None, rows: int | None = None, block: int | None = None
) -> Any:
    """The sum along an axis, several, or all. Integers are added in 64 bits and give such."""
    return _kernels("reduce").forward(x, axis, "sum", keepdims, out_dtype, rows, block)


def mean(
    x: Any, axis: Any = None, *, keepdims: bool = False, out_dtype: Any = None, rows: int | None = None, block: int | None = None
) -> Any:
    """The mean along an axis, several, or all; of integers in f64, of nothing NaN."""
    return _kernels("reduce").forward(x, axis, "sum", keepdims, out_dtype, rows, block, True)


def max(
    x: Any, axis: Any = None, *, keepdims: bool = False, out_dtype: Any = None, rows: int | None = None, block: int | None = None
) -> Any:
    """The largest element along an axis, several, or all. NaN propagates."""
    return _kernels("reduce").forward(x, axis, "max", keepdims, out_dtype, rows, block)


def min(
    x: Any, axis: Any = None, *, keepdims: bool = False, out_dtype: Any = None, rows: int | None = None, block: int | None = None
) -> Any:
    """The smallest element along an axis, several, or all. NaN propagates."""
    return _kernels("reduce").forward(x, axis, "min", keepdims, out_dtype, rows, block)


def prod(
    x: Any, axis: Any = None, *, keepdims: bool = False, out_dtype: Any = None, rows: int | None = None, block: int | None = None
) -> Any:
    """The product along an axis, several, or all. Integers are multiplied in 64 bits and give such."""
    return _kernels("reduce").forward(x, axis, "prod", keepdims, out_dtype, rows, block)


def argmax(x: Any, axis: int | None = None, *, keepdims: bool = False, rows: int | None = None, block: int | None = None) -> Any:
    """Where the largest element is, as int64: along an axis, or in row-major order over all. Of equal elements the first;
    NaN counts as the largest."""
    return _kernels("arg").forward(x, axis, True, keepdims, rows, block)


def argmin(x: Any, axis: int | None = None, *, keepdims: bool = False, rows: int | None = None, block: int | None = None) -> Any:
    """Where the smallest element is, as int64: along an axis, or in row-major order over all. Of equal elements the first;
    NaN counts as the smallest."""
    return _kernels("arg").forward(x, axis, False, keepdims, rows, block)


# Elements


def transpose(x: Any, axes: Any = None, *, rows: int | None = None, block: int | None = None) -> Any:
    """A new array with the axes in another order, in memory too; ``axes=None`` reverses them. Of any dtype."""
    return _kernels("move").transpose(x, axes, rows, block)


def elementwise(function: Any, *operands: Any, out_dtype: Any = None, rows: int | None = None, block: int | None = None) -> Any:
    """``function`` (a ``@ts.func``) of one to four arrays, element by element, in one pass over memory.

    They broadcast as in NumPy, and may be numbers. The result has the dtype of the first array.
    """
    return _kernels("elementwise").forward(function, operands, out_dtype, rows, block)


def saxpy(alpha: float, x: Any, y: Any, *, out_dtype: Any = None) -> Any:
    """``alpha * x + y``, as a new array."""
    kernels = _kernels("elementwise")
    return kernels.forward(kernels.scaled_sum, (alpha, x, y), out_dtype, None, None)


def gelu(x: Any, *, approximate: bool = False, out_dtype: Any = None) -> Any:
    """GELU: its exact (erf) form, or with ``approximate`` the one by tanh."""
    kernels = _kernels("elementwise")
    return kernels.forward(kernels.gelu_tanh if approximate else kernels.gelu, (x,), out_dtype, None, None)


def bias_activation(x: Any, bias: Any, activation: Any = "gelu", *, out_dtype: Any = None) -> Any:
    """``activation(x + bias)``; the activation is ``"gelu"``, ``"gelu_tanh"``, ``"silu"``, ``"relu"``, ``"identity"``, or a
    ``@ts.func``."""
    kernels = _kernels("elementwise")
    return kernels.forward(kernels.after_bias(kernels.activation(activation)), (x, bias), out_dtype, None, None)


# Safe forms


def _rows(x: Any, axis: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The array with ``axis`` last, and the same as rows."""
    moved = numpy.moveaxis(numpy.asarray(x), axis, -1)
    return moved, numpy.ascontiguousarray(moved).reshape(-1, moved.shape[-1])


def _back(rows: numpy.ndarray, moved: numpy.ndarray, axis: int) -> numpy.ndarray:
    return numpy.moveaxis(rows.reshape(moved.shape), -1, axis)


def softmax_safe(x: Any, axis: int = -1) -> numpy.ndarray:
    """Softmax along an axis. A row of ``-inf`` alone gives zeros."""
    moved, rows = _rows(x, axis)
    out = _core.note_made(numpy.empty, rows.shape, rows.dtype)
    if rows.size:
        _kernels("safe").softmax_rows(rows, out)
    return _back(out, moved, axis)


def logsumexp_safe(x: Any, axis: int = -1) -> numpy.ndarray:
    """``log(sum(exp(x)))`` along an axis; of a row of ``-inf`` alone, ``-inf``."""
    moved, rows = _rows(x, axis)
    out = _core.note_made(numpy.empty, rows.shape[0], rows.dtype)
    if rows.size:
        _kernels("safe").logsumexp_rows(rows, out)
    else:
        out = numpy.full(rows.shape[0], -numpy.inf).astype(rows.dtype)
    return out.reshape(moved.shape[:-1])


def layernorm_safe(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> numpy.ndarray:
    """Layer norm over the last axis, in two passes, ``eps`` inside the root."""
    moved, rows = _rows(x, -1)
    out = _core.note_made(numpy.empty, rows.shape, rows.dtype)
    if rows.size:
        width = rows.shape[1]
        w = _core.note_made(numpy.ones, width, rows.dtype) if weight is None else numpy.asarray(weight)
        b = _core.note_made(numpy.zeros, width, rows.dtype) if bias is None else numpy.asarray(bias)
        _kernels("safe").layernorm_rows(rows, w, b, out, eps)
    return _back(out, moved, -1)


def rmsnorm_safe(x: Any, weight: Any = None, eps: float = 1e-6) -> numpy.ndarray:
    """RMS norm over the last axis, ``eps`` inside the root."""
    moved, rows = _rows(x, -1)
    out = _core.note_made(numpy.empty, rows.shape, rows.dtype)
    if rows.size:
        w = _core.note_made(numpy.ones, rows.shape[1], rows.dtype) if weight is None else numpy.asarray(weight)
        _kernels("safe").rmsnorm_rows(rows, w, out, eps)
    return _back(out, moved, -1)


def gelu_safe(x: Any) -> numpy.ndarray:
    """The exact (erf) form of GELU."""
    flat = numpy.ascontiguousarray(numpy.asarray(x)).reshape(-1)
    out = _core.note_made(numpy.empty, flat.shape, flat.dtype)
    _kernels("safe").gelu_elements(flat, out)
    return out.reshape(numpy.shape(x))


# Traced calls, and the locations of errors


#: Operations whose calls always take the full path.
_UNRECORDED = {
    "block_mask": "it makes an object for later calls",
}


#: Operations with keywords of former names. Each call warns, also one that is replayed.
_RENAMED = {"flash_attention": _FORMER}


def _replayed(operation: Any) -> Any:
    """The operation with call replay: its calls are recorded."""
    recorded = _core.Operation(operation)
    run = recorded.run

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        return operation(*args, **kwargs) if _frames.frames else run(args, kwargs, _profile_now())

    call.recordings = recorded.recordings  # type: ignore[attr-defined]
    return call


def _make_public() -> None:
    for name in __all__:
        operation = _followed(globals()[name])
        operation = _traceable(operation) if name in _TRACED else _on_mesh.gathered(operation)
        operation = operation if name in _UNRECORDED else _replayed(operation)
        globals()[name] = _placed(renamed_keywords(**_RENAMED[name])(operation) if name in _RENAMED else operation)


_make_public()
