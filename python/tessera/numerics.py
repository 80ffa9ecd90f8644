"""Numerics outside kernels: profiles, storage codes, and block formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator

import numpy

from . import _core
from .arrays.create import numpy_dtype
from .base.dtypes import DType, dtype
from .base.numeric_profile import Profile, profile

#: Each block format: element dtype, scale dtype, elements that share a scale.
FORMATS: dict[str, tuple[str, str, int]] = {name: tuple(rest) for name, *rest in _core.block_formats()}  # type: ignore[misc]

_ROUNDINGS = ("rne", "rtz", "up", "down")


def encode(x: Any, dtype: DType | str, round: str = "rne", saturate: bool | None = None) -> numpy.ndarray:
    """The storage codes of ``x`` in ``dtype``, as unsigned integers, one a code.

    ``round`` is ``"rne"``, ``"rtz"``, ``"up"`` or ``"down"``; the value is rounded once, also from
    f64. With ``saturate`` what is out of range becomes the largest finite value, else infinity, or
    NaN where there is none; by default fp8, fp6 and fp4 saturate. Integers wrap unless they saturate.
    """
    if round not in _ROUNDINGS:
        raise _core.error("E_ARGUMENT", f"expected a rounding (one of {', '.join(_ROUNDINGS)}), got {round!r}", 'write `round="rtz"`')
    to = _dtype(dtype)
    values = _wide(x)
    out = numpy.empty(values.shape, f"u{to.itemsize}")
    _core.numerics_encode(values, out, to, round, saturate)
    return out


def decode(codes: Any, dtype: DType | str) -> numpy.ndarray:
    """The values of storage codes of ``dtype``: f32, f64 for f64, and integers for integers."""
    of = _dtype(dtype)
    codes = numpy.ascontiguousarray(codes).reshape(numpy.shape(codes))
    if codes.dtype.itemsize != of.itemsize:
        raise _core.error(
            "E_TYPE", f"expected codes of {of.itemsize} bytes for {of}, got {codes.dtype}", f"give an array of uint{8 * of.itemsize}"
        )
    codes = codes.view(f"u{of.itemsize}")
    name = of.name
    if name == "i4":
        return (codes << 4).view(numpy.int8) >> 4
    if name == "bool" or name[0] in "iu":
        return (codes & 1).astype(bool) if name == "bool" else codes.view(numpy_dtype(of))
    out = numpy.empty(codes.shape, numpy.float64 if name == "f64" else numpy.float32)
    _core.numerics_decode(codes, out, of)
    return out


@dataclass(frozen=True)
class Quantized:
    """An array in a block format: the elements, a scale for each block along ``axis``, and for
    ``nvfp4`` one f32 scale for all of it. The dtypes of the two arrays say which format it is."""

    data: numpy.ndarray
    scales: numpy.ndarray
    tensor_scale: float | None = None
    axis: int = -1

    @property
    def format(self) -> str:
        """The name of the format."""
        have = (dtype(self.data.dtype).name, dtype(self.scales.dtype).name)
        for name, (element, scale, _) in FORMATS.items():
            if have == (element, scale):
                return name
        raise _core.error(
            "E_UNSUPPORTED_DTYPE",
            f"expected the dtypes of a block format, got elements of {have[0]} with scales of {have[1]}",
            f"the formats are {', '.join(FORMATS)}",
        )

    def __iter__(self) -> Iterator[Any]:
        return iter((self.data, self.scales, self.tensor_scale))


def quantize(x: Any, fmt: str, axis: int = -1) -> Quantized:
    """``x`` in a block format: ``"mxfp8_e4m3"``, ``"mxfp4"``, ``"nvfp4"`` and others.

    Blocks run along ``axis``; a short last block counts as padded with zeros. Infinity saturates; a
    block with a NaN has a NaN for its scale.
    """
    if fmt not in FORMATS:
        raise _core.error("E_UNSUPPORTED_DTYPE", f"expected a block format (one of {', '.join(FORMATS)}), got {fmt!r}", 'write `quantize(x, "mxfp4")`')
    element, scale, block = FORMATS[fmt]
    values = numpy.asarray(x)
    if values.ndim == 0:
        raise _core.error("E_SHAPE_MISMATCH", "expected an array of rank 1 or more, got one number", "give the numbers of a block")
    rows = numpy.ascontiguousarray(numpy.moveaxis(values, axis, -1), numpy.float32)
    last = rows.shape[-1]
    data = numpy.zeros(rows.shape, numpy.uint8)
    scales = numpy.zeros((*rows.shape[:-1], -(-last // block)), numpy.uint8)
    tensor_scale = _core.numerics_quantize(rows, last, fmt, data, scales)
    return Quantized(
        numpy.moveaxis(data.view(numpy_dtype(element)), -1, axis),
        numpy.moveaxis(scales.view(numpy_dtype(scale)), -1, axis),
        tensor_scale,
        axis,
    )


def dequantize(q: Quantized) -> numpy.ndarray:
    """The f32 values of an array in a block format."""
    fmt, axis = q.format, q.axis
    block = FORMATS[fmt][2]
    data = numpy.ascontiguousarray(numpy.moveaxis(q.data, axis, -1)).view(numpy.uint8)
    scales = numpy.ascontiguousarray(numpy.moveaxis(q.scales, axis, -1)).view(numpy.uint8)
    wanted = (*data.shape[:-1], -(-data.shape[-1] // block))
    if scales.shape != wanted:
        raise _core.error(
            "E_SHAPE_MISMATCH",
            f"expected scales of shape {wanted} for elements of shape {data.shape}, got {scales.shape}",
            f"{fmt} has a scale for each {block} elements",
        )
    out = numpy.empty(data.shape, numpy.float32)
    _core.numerics_dequantize(data, scales, q.tensor_scale, data.shape[-1], fmt, out)
    return numpy.moveaxis(out, -1, axis)


def _dtype(spec: DType | str) -> DType:
    return dtype(spec)


def _wide(x: Any) -> numpy.ndarray:
    """``x`` in a dtype that holds it exactly and that the codec takes."""
    values = numpy.asarray(x)
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind == "u" and size == 8:
        wide: type = numpy.uint64
    elif kind in "iub":
        wide = numpy.int64
    else:
        wide = numpy.float64 if kind == "f" and size >= 8 else numpy.float32
    # NumPy would make an array of a single number.
    return numpy.ascontiguousarray(values, wide).reshape(values.shape)


__all__ = ["FORMATS", "Profile", "Quantized", "decode", "dequantize", "encode", "profile", "quantize"]
