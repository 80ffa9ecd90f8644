"""Arrays of NumPy, PyTorch and CuPy behind one interface: the only module of the library that depends on which one it is.

Results are arrays of the argument's library, on the same device. Support for another library goes here and nowhere else:
recognising an argument, its dtype and strides, views of it, and new arrays like it. Beyond this, operations use only ``shape``,
``ndim``, ``reshape``, and indexing with integers and slices, which all three have. Neither PyTorch nor CuPy is imported here: an
argument of theirs shows that the caller has done so.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import Any, Sequence

import numpy

from .. import _core
from ..arrays.create import numpy_dtype
from ..arrays.device_names import dlpack_device
from ..base.dtypes import DType
from ..base.dtypes import dtype as _dtype


def _is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _is_cupy(x: Any) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(x, cupy.ndarray)


def given(x: Any, name: str) -> Any:
    """The array that an argument is. Numbers and lists become arrays."""
    if type(x) is numpy.ndarray or _is_torch(x) or _is_cupy(x):
        return x
    if not isinstance(x, numpy.ndarray) and _on_device(x):
        got = f"an array of type {type(x).__name__} on a device"
        help = "pass a PyTorch or CuPy array: `torch.from_dlpack(x)` copies nothing"
        raise _core.error("E_ARGUMENT", f"`{name}`: expected an array of NumPy, PyTorch or CuPy, got {got}", help)
    try:
        made = numpy.asarray(x)
    except ValueError:
        made = None  # lists of unlike lengths
    if made is None or made.dtype.kind in "OUS":
        got = f"a value of type {type(x).__name__}"
        raise _core.error("E_ARGUMENT", f"`{name}`: expected an array, got {got}", "pass a NumPy array")
    return made


def _on_device(x: Any) -> bool:
    if hasattr(x, "__cuda_array_interface__"):
        return True
    return hasattr(x, "__dlpack_device__") and dlpack_device(x)[0] != 1  # 1 is the host


def is_number(x: Any) -> bool:
    """Whether an argument is one number, which takes the dtype of the other operand."""
    return isinstance(x, (bool, int, float)) or isinstance(x, numpy.generic)


def strides(x: Any) -> tuple[int, ...]:
    """How far apart neighbours are along each axis, in any unit."""
    return tuple(x.stride()) if _is_torch(x) else x.strides


def strides_in_elements(x: Any) -> bool:
    """Whether `strides` counts elements, not bytes."""
    return _is_torch(x)


def lies_along(x: Any, axis: int) -> bool:
    """Whether neighbours along an axis are contiguous."""
    return strides(x)[axis] == (1 if strides_in_elements(x) else itemsize(x))


def lies_in_rows(x: Any) -> bool:
    """Whether rows of the last axis follow each other without gaps, along the next to last."""
    return lies_along(x, -1) and strides(x)[-2] == strides(x)[-1] * x.shape[-1]


def address(x: Any) -> int:
    """The address of the first element."""
    if _is_torch(x):
        return x.data_ptr()
    return x.data.ptr if _is_cupy(x) else x.__array_interface__["data"][0]


def on_device(x: Any) -> bool:
    """Whether the elements are in the memory of a GPU."""
    return x.is_cuda if _is_torch(x) else _is_cupy(x)


def size(x: Any) -> int:
    """How many elements there are."""
    return x.numel() if _is_torch(x) else x.size


def itemsize(x: Any) -> int:
    """How many bytes an element has."""
    return x.element_size() if _is_torch(x) else x.itemsize


def permuted(x: Any, order: Sequence[int]) -> Any:
    """A view with the axes in another order."""
    return x.permute(tuple(order)) if _is_torch(x) else x.transpose(order)


def dtype_of(x: Any) -> DType:
    return _of_torch(x.dtype) if _is_torch(x) else _of_numpy(x.dtype)


@functools.lru_cache(maxsize=None)
def _of_numpy(of: numpy.dtype) -> DType:
    if of.kind in "OUSmMc" or of.names is not None:
        help = "convert it first, for example with `.astype(np.float32)`"
        raise _core.error("E_UNSUPPORTED_DTYPE", f"expected an array of numbers that kernels have, got one of {of}", help)
    if not of.isnative:
        native = of.newbyteorder("=")
        help = f'convert it: `array.astype("{native.name}")`'
        raise _core.error("E_LAUNCH_BAD_LAYOUT", f"expected the machine's byte order, got swapped bytes of {native}", help)
    return _dtype(of)


@functools.lru_cache(maxsize=None)
def _of_torch(of: Any) -> DType:
    return _dtype(str(of).removeprefix("torch."))


@functools.lru_cache(maxsize=None)
def _to_numpy(of: DType) -> numpy.dtype:
    return numpy_dtype(of)


# What PyTorch calls its dtypes.
_TORCH_NAMES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "bool": "bool",
    **{f"{sign}{bits}": f"{word}{bits}" for sign, word in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
}


@functools.lru_cache(maxsize=None)
def _to_torch(of: DType) -> Any:
    name = _TORCH_NAMES.get(of.name)
    if name is None:
        raise _core.error("E_TYPE", f"expected a dtype that PyTorch has, got {of}", "give `out_dtype=`")
    return getattr(sys.modules["torch"], name)


def scalar(value: float, dtype: DType) -> Any:
    """One number of this dtype, as a kernel takes it for a run-time parameter. For f32 that is a Python float: call replay takes no
    numbers of NumPy."""
    return float(value) if dtype.name == "f32" else _to_numpy(dtype).type(value)


def limits(dtype: DType) -> tuple[Any, Any]:
    """The least and the greatest value of a dtype: infinities, where it has them."""
    if dtype.name == "bool":
        return False, True
    if dtype.name[0] in "iu":
        info = numpy.iinfo(_to_numpy(dtype))
        return int(info.min), int(info.max)
    return -math.inf, math.inf


def empty(shape: Sequence[int], dtype: DType, like: Any) -> Any:
    """A new array in row-major order, where ``like`` is."""
    # Call replay allocates what was made by `note_made`: its arguments must not hold an array.
    if _is_torch(like):
        return _core.note_made(sys.modules["torch"].empty, tuple(shape), dtype=_to_torch(dtype), device=like.device)
    return _core.note_made(_module(like).empty, tuple(shape), _to_numpy(dtype))


def unused(shape: Sequence[int], dtype: DType, like: Any) -> Any:
    """An array where ``like`` is for a parameter that a kernel neither reads nor writes: one number, broadcast, so that its
    strides are zero for all shapes."""
    if _is_torch(like):
        return _core.note_fixed(_one(_to_torch(dtype), like.device).expand(tuple(shape)))
    return _core.note_fixed(_module(like).broadcast_to(_module(like).empty((), _to_numpy(dtype)), tuple(shape)))


@functools.lru_cache(maxsize=None)
def _one(dtype: Any, device: Any) -> Any:
    return sys.modules["torch"].empty((), dtype=dtype, device=device)


def _module(like: Any) -> Any:
    return sys.modules["cupy"] if _is_cupy(like) else numpy


def empty_like(x: Any, dtype: DType) -> Any:
    """A new array of the shape of ``x``, contiguous, with the axes in the memory order of ``x``."""
    if _is_torch(x):
        torch = sys.modules["torch"]
        strides = torch.empty_like(x, device="meta", requires_grad=False).stride()
        return _core.note_made(torch.empty_strided, tuple(x.shape), strides, dtype=_to_torch(dtype), device=x.device)
    if _is_cupy(x):
        return sys.modules["cupy"].empty_like(x, _to_numpy(dtype))
    if x.flags.c_contiguous:
        return _core.note_made(numpy.empty, x.shape, _to_numpy(dtype))
    return _core.note_made(_in_order, tuple(sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))), x.shape, _to_numpy(dtype))


def _in_order(order: Sequence[int], shape: Sequence[int], dtype: numpy.dtype) -> numpy.ndarray:
    """A new array whose axes have this order in memory, the slowest first."""
    return numpy.empty([shape[axis] for axis in order], dtype).transpose(numpy.argsort(order))


def empty_as(x: Any, shape: Sequence[int]) -> Any:
    """A new array in row-major order, with the dtype of ``x``."""
    if _is_torch(x):
        return _core.note_made(sys.modules["torch"].empty, tuple(shape), dtype=x.dtype, device=x.device)
    return _core.note_made(_module(x).empty, tuple(shape), x.dtype)


def full(shape: Sequence[int], value: float, dtype: DType, like: Any) -> Any:
    """A new array of one number."""
    if _is_torch(like):
        return _core.note_made(_filled, sys.modules["torch"].empty, value, tuple(shape), dtype=_to_torch(dtype), device=like.device)
    return _core.note_made(_filled, _module(like).empty, value, tuple(shape), dtype=_to_numpy(dtype))


def _filled(make: Any, value: float, shape: Sequence[int], **what: Any) -> Any:
    made = make(shape, **what)
    made.fill_(value) if _is_torch(made) else made.fill(value)
    return made


def expand(x: Any, shape: Sequence[int]) -> Any:
    """A read-only view of ``x`` broadcast to a shape."""
    return x.expand(tuple(shape)) if _is_torch(x) else _module(x).broadcast_to(x, shape)


def bits(x: Any) -> Any:
    """A view of the elements as unsigned integers, for copying them bit by bit."""
    if _is_torch(x):
        return x.view(getattr(sys.modules["torch"], f"uint{8 * x.element_size()}"))
    return x.view(f"u{x.dtype.itemsize}")


def movable(x: Any) -> bool:
    """Whether `bits` supports its dtype."""
    if _is_torch(x):
        return x.element_size() in (1, 2, 4, 8) and not x.is_complex()
    return x.dtype.itemsize in (1, 2, 4, 8) and not x.dtype.hasobject
