"""Arrays by Tessera's dtype names: NumPy's on the host, our own on a device."""

from __future__ import annotations

import math
import sys
from typing import Any

import ml_dtypes
import numpy

from .. import _core
from .._core import Array
from ..base.caller import fail
from ..base.dtypes import DType, dtype
from .device_names import device_name, number_of
from .host import HostArray, functions, host, unmasked


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


def empty(shape: int | tuple[int, ...], dtype: DType | str = "f32", device: Any = None) -> Any:
    """An array whose contents are not defined: NumPy's, or a `ts.Array` on a device such as ``"cuda:0"``."""
    name = None if device is None else device_name(device)
    if name is None:
        return _core.aligned_empty(numpy.ndarray, _shape(shape, dtype), numpy_dtype(dtype))
    return _core.device_empty(list(_shape(shape, dtype)), _stored(dtype), name)


def _stored(spec: DType | str) -> DType:
    """The dtype of an array's elements: packed ones are bytes."""
    return dtype("u8") if dtype(spec).packed else dtype(spec)


def zeros(shape: int | tuple[int, ...], dtype: DType | str = "f32", device: Any = None) -> Any:
    """An array of zeros."""
    if device is None or device_name(device) is None:
        return numpy.zeros(_shape(shape, dtype), numpy_dtype(dtype))
    made = empty(shape, dtype, device)
    made.fill_bytes(0)
    return made


def ones(shape: int | tuple[int, ...], dtype: DType | str = "f32", device: Any = None) -> Any:
    """An array of ones."""
    return array(numpy.ones(shape), dtype, device)


def full(shape: int | tuple[int, ...], value: Any, dtype: DType | str = "f32", device: Any = None) -> Any:
    """An array of one value."""
    return array(numpy.full(shape, value), dtype, device)


def array(values: Any, dtype: DType | str | None = None, device: Any = None) -> Any:
    """A new array of these values, in ``dtype`` (by default what NumPy makes of them, in 32 bits for
    Python's floats), on the host or on a device."""
    if isinstance(values, (Array, HostArray)):
        values = values.numpy()
    made = _host_array(unmasked(values), dtype)
    name = None if device is None else device_name(device)
    return made if name is None else _upload(made, name)


functions["array"] = array


def _host_array(values: Any, dtype: DType | str | None) -> numpy.ndarray:
    made = numpy.array(values)
    if made.dtype == object:
        raise _wrong(f"expected numbers that 64 bits hold, got {values!r:.80}", "give floats, or smaller numbers, in lists of one length")
    if made.dtype.kind in "cSUMm":
        raise _wrong(f"expected numbers, got {made.dtype}", "there are no complex numbers, texts and dates: give floats, integers or bools")
    if dtype is None:
        return narrowed(made, values)
    wanted = _one_a_byte(dtype)
    if made.dtype.kind in "iu" and wanted.kind in "iu" and made.size and not hasattr(values, "dtype"):
        # Arrays are cast, and wrap as in NumPy; Python's numbers are what was written.
        limits = numpy.iinfo(wanted)
        for v in (made.min().item(), made.max().item()):
            if not limits.min <= v <= limits.max:
                raise _wrong(f"expected numbers that {dtype} holds, {limits.min} to {limits.max}, got {v}",
                             "use a dtype that holds it, or let it wrap: `xp.asarray(v).astype(dtype)`")  # fmt: skip
    with numpy.errstate(all="ignore"):
        converted = made.astype(wanted)
    return _pack(converted) if _packed(dtype) else converted


def _wrong(message: str, help: str) -> Exception:
    return fail("E_TYPE", message, help)


def narrowed(made: numpy.ndarray, values: Any) -> numpy.ndarray:
    """What NumPy made of values: Python's own floats are f64 only because Python has no other, and become f32."""
    if made.dtype != numpy.float64 or hasattr(values, "dtype"):
        return made
    numbers = [values]
    while numbers:
        v = numbers.pop()
        if isinstance(v, (list, tuple)):
            numbers += v
        elif getattr(v, "dtype", None) == numpy.float64:
            return made
    return made.astype(numpy.float32)


def _upload(values: numpy.ndarray, device: str) -> Array:
    made = _core.device_empty(list(values.shape), dtype(values.dtype.name), device)
    made.write_from(numpy.ascontiguousarray(values))
    return made


def to_host(values: Array) -> numpy.ndarray:
    """The elements as a NumPy array."""
    made = numpy.empty(values.shape, numpy_dtype(values.dtype))
    values.read_into(made)
    return made


def to_device(values: Array, device: Any) -> Any:
    """The elements on another device."""
    name = device_name(device)
    if name is None:
        return to_host(values)
    return values if values.device == name else _upload(to_host(values), name)


def assign(part: Array, values: Any) -> None:
    """``array[index] = values``: the values are brought to the device."""
    if isinstance(values, Array):
        values = values.numpy()
    wanted = numpy_dtype(part.dtype)
    part.write_from(numpy.ascontiguousarray(numpy.broadcast_to(numpy.asarray(values).astype(wanted), part.shape)))


def for_result(
    shape: tuple[int, ...],
    dtype: DType,
    privilege: str,
    like: Any = None,
    device: str | None = None,
    clear: bool = False,
) -> Any:
    """The array for an ``Out`` that a caller left out: of the kind of the first array of the call, and where it
    is. One that a kernel folds into begins with the identity of its operator, one that it may write in part
    (``clear``) with zeros."""
    start = _identity(privilege, dtype)
    if clear and start is None:
        return _cleared(shape, dtype, like, device)
    made = _of_torch(shape, dtype, like) if like is not None else None
    if made is None and device is not None:
        made = _of_cupy(shape, dtype, like, device)
    if made is not None:
        if start is not None:
            made.fill_(start) if hasattr(made, "fill_") else made.fill(start)
        return made
    if device is not None:
        return empty(shape, dtype, device) if start is None else full(shape, start, dtype, device)
    made = empty(shape, dtype)
    if start is not None:
        made.fill(start)
    return host(made) if isinstance(like, HostArray) else made


def _cleared(shape: tuple[int, ...], dtype: DType, like: Any, device: str | None) -> Any:
    made = for_result(shape, dtype, "write", like, device) if like is not None or device is not None else None
    if made is None or isinstance(made, numpy.ndarray):
        cleared = zeros(shape, dtype)
        return host(cleared) if isinstance(like, HostArray) else cleared
    if isinstance(made, Array):
        made.fill_bytes(0)
    elif hasattr(made, "zero_"):
        made.zero_()
    else:
        made.fill(0)
    return made


def _identity(privilege: str, dtype: DType) -> Any:
    """What folding begins with; ``None`` where nothing is folded."""
    if privilege in ("reduce_sum", "reduce_prod"):
        return int(privilege == "reduce_prod")
    if privilege in ("reduce_max", "reduce_min"):
        low = privilege == "reduce_max"
        kind = numpy_dtype(dtype)
        if kind.kind in "iu":
            limits = numpy.iinfo(kind)
            return int(limits.min if low else limits.max)
        return -numpy.inf if low else numpy.inf
    return None


def _of_torch(shape: tuple[int, ...], dtype: DType, like: Any) -> Any:
    """A tensor beside ``like``, if that is one."""
    call = allocation(shape, dtype, like)
    return None if call is None else call[0](*call[1], **call[2])


def allocation(shape: tuple[int, ...], dtype: DType, like: Any) -> tuple[Any, tuple, dict] | None:
    """The call that makes a tensor beside ``like``, if that is one: a function and its arguments, which hold no array. PyTorch is never
    imported here: who has a tensor has it."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(like, getattr(torch, "Tensor", ())):
        return None
    whole = dtype.bits >= 8 or dtype.packed or dtype.name == "bool"
    kind = getattr(torch, numpy_dtype(dtype).name, None) if whole else None
    return None if kind is None else (torch.empty, (_shape(shape, dtype),), {"dtype": kind, "device": like.device})


def allocation_beside(shape: tuple[int, ...], dtype: DType, like: Any, arguments: list) -> tuple[Any, tuple, dict] | tuple[Any, int] | None:
    """What makes the same tensor in calls with arguments like these: a call as of `allocation`, or a function of the argument of that number.
    `torch.empty` reads the most of its arguments, and takes the longest."""
    call = allocation(shape, dtype, like)
    if call is None:
        return None
    torch, (shape,), kind = sys.modules["torch"], call[1], call[2]["dtype"]
    for place, x in enumerate(arguments):
        if type(x) is torch.Tensor and tuple(x.shape) == tuple(shape) and x.dtype == kind and x.device == like.device and x.is_contiguous():
            return torch.empty_like, place
    strides = [math.prod(max(n, 1) for n in shape[axis + 1 :]) for axis in range(len(shape))]
    return torch.empty_strided, (shape, tuple(strides)), call[2]


def _of_cupy(shape: tuple[int, ...], dtype: DType, like: Any, device: str) -> Any:
    cupy = sys.modules.get("cupy")
    kind = numpy_dtype(dtype)
    # It has NumPy's own dtypes, not those of `ml_dtypes`.
    if cupy is None or not isinstance(like, getattr(cupy, "ndarray", ())) or kind.kind not in "biuf":
        return None
    with cupy.cuda.Device(number_of(device)):
        return cupy.empty(_shape(shape, dtype), kind)


def _packed(spec: DType | str) -> bool:
    return dtype(spec).packed


def _pack(values: numpy.ndarray) -> numpy.ndarray:
    codes = values.view(numpy.uint8) & 15
    if codes.shape[-1] % 2:
        codes = numpy.concatenate([codes, numpy.zeros((*codes.shape[:-1], 1), numpy.uint8)], axis=-1)
    return codes[..., ::2] | codes[..., 1::2] << 4
