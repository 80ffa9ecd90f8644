"""Operations on whole arrays, made of kernels in the tile language.

NumPy arrays in, NumPy arrays out. The ``_safe`` ones keep their intermediate numbers finite for any finite
input of any dtype, and give zeros, not NaN, for rows that are wholly masked.
"""

from __future__ import annotations

from typing import Any

import numpy

__all__ = ["gelu_safe", "layernorm_safe", "logsumexp_safe", "rmsnorm_safe", "softmax_safe"]


def _kernels() -> Any:
    # On first use: the kernels are decorated when their module is imported.
    from .kernels import safe

    return safe


def _rows(x: Any, axis: int) -> tuple[numpy.ndarray, numpy.ndarray]:
    """The array with ``axis`` last, and the same as rows."""
    moved = numpy.moveaxis(numpy.asarray(x), axis, -1)
    return moved, numpy.ascontiguousarray(moved).reshape(-1, moved.shape[-1])


def _back(rows: numpy.ndarray, moved: numpy.ndarray, axis: int) -> numpy.ndarray:
    return numpy.moveaxis(rows.reshape(moved.shape), -1, axis)


def softmax_safe(x: Any, axis: int = -1) -> numpy.ndarray:
    """Softmax along an axis. A row of ``-inf`` alone gives zeros."""
    moved, rows = _rows(x, axis)
    out = numpy.empty_like(rows)
    if rows.size:
        _kernels().softmax_rows(rows, out)
    return _back(out, moved, axis)


def logsumexp_safe(x: Any, axis: int = -1) -> numpy.ndarray:
    """``log(sum(exp(x)))`` along an axis; of a row of ``-inf`` alone, ``-inf``."""
    moved, rows = _rows(x, axis)
    out = numpy.empty(rows.shape[0], rows.dtype)
    if rows.size:
        _kernels().logsumexp_rows(rows, out)
    else:
        out = numpy.full(rows.shape[0], -numpy.inf).astype(rows.dtype)
    return out.reshape(moved.shape[:-1])


def layernorm_safe(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> numpy.ndarray:
    """Layer norm over the last axis, in two passes, ``eps`` inside the root."""
    moved, rows = _rows(x, -1)
    out = numpy.empty_like(rows)
    if rows.size:
        width = rows.shape[1]
        w = numpy.ones(width, rows.dtype) if weight is None else numpy.asarray(weight)
        b = numpy.zeros(width, rows.dtype) if bias is None else numpy.asarray(bias)
        _kernels().layernorm_rows(rows, w, b, out, eps)
    return _back(out, moved, -1)


def rmsnorm_safe(x: Any, weight: Any = None, eps: float = 1e-6) -> numpy.ndarray:
    """RMS norm over the last axis, ``eps`` inside the root."""
    moved, rows = _rows(x, -1)
    out = numpy.empty_like(rows)
    if rows.size:
        w = numpy.ones(rows.shape[1], rows.dtype) if weight is None else numpy.asarray(weight)
        _kernels().rmsnorm_rows(rows, w, out, eps)
    return _back(out, moved, -1)


def gelu_safe(x: Any) -> numpy.ndarray:
    """The exact (erf) form of GELU."""
    flat = numpy.ascontiguousarray(numpy.asarray(x)).reshape(-1)
    out = numpy.empty_like(flat)
    _kernels().gelu_elements(flat, out)
    return out.reshape(numpy.shape(x))
