"""NumPy arrays by Tessera's dtype names."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy

from ._dtypes import DType, dtype


def numpy_dtype(spec: DType | str) -> numpy.dtype:
    """The NumPy dtype that holds elements of ``spec``; two packed 4-bit elements are one uint8."""
    return numpy.dtype(numpy.uint8) if dtype(spec).packed else _one_a_byte(spec)


def _one_a_byte(spec: DType | str) -> numpy.dtype:
    """The dtype of single elements; a 4-bit one takes a byte, packed or not."""
    name = dtype(spec).numpy_name
    return numpy.dtype(getattr(ml_dtypes, name, None) or name)


def _shape(shape: int | tuple[int, ...], spec: DType | str) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    if dtype(spec).packed and sizes:
        return (*sizes[:-1], -(-sizes[-1] // 2))
    return sizes


def empty(shape: int | tuple[int, ...], dtype: DType | str = "f32") -> numpy.ndarray:
    """An array whose contents are not defined."""
    return numpy.empty(_shape(shape, dtype), numpy_dtype(dtype))


def for_result(shape: tuple[int, ...], dtype: DType, privilege: str) -> numpy.ndarray:
    """The array for an ``Out`` that a caller left out. One that a kernel folds into begins with the
    identity of its operator."""
    made = empty(shape, dtype)
    if privilege == "reduce_sum":
        made.fill(0)
    elif privilege == "reduce_prod":
        made.fill(1)
    elif privilege in ("reduce_max", "reduce_min"):
        low = privilege == "reduce_max"
        if made.dtype.kind in "iu":
            limits = numpy.iinfo(made.dtype)
            made.fill(limits.min if low else limits.max)
        else:
            made.fill(-numpy.inf if low else numpy.inf)
    return made


def zeros(shape: int | tuple[int, ...], dtype: DType | str = "f32") -> numpy.ndarray:
    """An array of zeros."""
    return numpy.zeros(_shape(shape, dtype), numpy_dtype(dtype))


def ones(shape: int | tuple[int, ...], dtype: DType | str = "f32") -> numpy.ndarray:
    """An array of ones."""
    return array(numpy.ones(shape), dtype)


def array(values: Any, dtype: DType | str | None = None) -> numpy.ndarray:
    """A new array of these values, in ``dtype`` (by default what NumPy makes of them, in 32 bits for
    Python's floats)."""
    made = numpy.array(values)
    if dtype is None:
        # Python's own floats are f64 only because Python has no other.
        plain = not hasattr(values, "dtype") and made.dtype == numpy.float64
        return made.astype(numpy.float32) if plain else made
    converted = made.astype(_one_a_byte(dtype))
    return _pack(converted) if _packed(dtype) else converted


def _packed(spec: DType | str) -> bool:
    return dtype(spec).packed


def _pack(values: numpy.ndarray) -> numpy.ndarray:
    codes = values.view(numpy.uint8) & 15
    if codes.shape[-1] % 2:
        codes = numpy.concatenate([codes, numpy.zeros((*codes.shape[:-1], 1), numpy.uint8)], axis=-1)
    return codes[..., ::2] | codes[..., 1::2] << 4
