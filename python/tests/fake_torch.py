"""Fakes of PyTorch and CuPy on a device: only what the binding uses."""

from __future__ import annotations

import contextlib
import ctypes
import sys
import types
from typing import Any

import numpy as np

import tessera as ts


class _Header(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("index", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Api(ctypes.Structure):
    _fields_ = [("header", _Header), ("unused", ctypes.c_void_p * 3), ("tensor", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


_FROM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Tensor))
_STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
_CODES = {"f32": (2, 32), "bf16": (4, 16), "f16": (2, 16), "i32": (0, 32)}
#: What C points to must live.
_ALIVE: list[Any] = []


def _module(monkeypatch: Any, name: str, **entries: Any) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__dict__.update(entries)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def install(monkeypatch: Any, exchange: bool) -> types.ModuleType:
    """A module `torch`; with ``exchange`` its tensors have DLPack's functions in C."""

    class Tensor:
        def __init__(self, array: ts.Array) -> None:
            self.array = array
            self.shape, self.dtype, self.is_cuda = array.shape, f"torch.{array.dtype.numpy_name}", True
            self.device, self.ndim = array.device, array.ndim

        requires_grad = False

        def is_contiguous(self) -> bool:
            return self.stride() == tuple(np.cumprod([1, *self.shape[:0:-1]])[::-1].tolist()) if self.shape else True

        def __dlpack__(self, **kwargs: Any) -> Any:
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()

        def data_ptr(self) -> int:
            return self.array.data_ptr()

        def stride(self) -> tuple[int, ...]:
            return tuple(s // self.array.itemsize for s in self.array.strides)

        def zero_(self) -> None:
            self.array.fill_bytes(0)

        def get_device(self) -> int:
            return int(self.array.device[-1])

        def element_size(self) -> int:
            return self.array.itemsize

        def numel(self) -> int:
            return self.array.size

        def permute(self, order: tuple[int, ...]) -> Tensor:
            assert order == tuple(range(self.array.ndim))
            return self

        def reshape(self, shape: tuple[int, ...]) -> Tensor:
            assert tuple(shape) == tuple(self.shape)
            return self

    Tensor.__module__ = "torch"
    torch = _module(monkeypatch, "torch", Tensor=Tensor, tensor=Tensor, stream=0, float32="torch.float32")
    torch.empty = lambda shape, dtype, device: Tensor(ts.empty(shape, dtype.split(".")[1], device=device))
    # On the device `meta` it has strides alone.
    torch.empty_like = lambda x, device=None, requires_grad=False: x if device else torch.empty(x.shape, x.dtype, x.device)

    def empty_strided(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: str) -> Tensor:
        made = torch.empty(shape, dtype, device)
        assert made.stride() == tuple(strides)
        return made

    torch.empty_strided = empty_strided
    _module(monkeypatch, "torch._C", _cuda_getCurrentRawStream=lambda device: torch.stream)
    if exchange:
        Tensor.__dlpack_c_exchange_api__ = _capsule(torch)
    return torch


def _capsule(torch: types.ModuleType) -> Any:
    @_FROM
    def tensor(value: Any, out: Any) -> int:
        array = value.array
        shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        strides = (ctypes.c_int64 * array.ndim)(*value.stride())
        value.kept = shape, strides
        code, bits = _CODES[array.dtype.name]
        out[0] = _Tensor(
            array.data_ptr(), 2, value.get_device(), array.ndim, code, bits, 1,
            ctypes.addressof(shape), ctypes.addressof(strides), 0,
        )  # fmt: skip
        return 0

    @_STREAM
    def stream(kind: int, device: int, out: Any) -> int:
        out[0] = torch.stream
        return 0

    def pointer(function: Any) -> int | None:
        return ctypes.cast(function, ctypes.c_void_p).value

    api = _Api(_Header(1, 3, None), (ctypes.c_void_p * 3)(), pointer(tensor), pointer(stream))
    _ALIVE.extend((api, tensor, stream))
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(api), b"dlpack_exchange_api", None)


def install_on_host(monkeypatch: Any) -> types.ModuleType:
    """A module `torch` whose tensors are in the memory of the host."""

    class Tensor:
        def __init__(self, array: np.ndarray, dtype: str | None = None) -> None:
            self.array, self.shape, self.dtype = array, array.shape, dtype or f"torch.{array.dtype.name}"
            self.is_cuda, self.device = False, "cpu"

        def detach(self) -> Tensor:
            return self

        cpu = detach

        def numpy(self) -> np.ndarray:
            assert self.dtype == f"torch.{self.array.dtype.name}", "NumPy has no such dtype"
            return self.array

        def view(self, dtype: str) -> Tensor:
            bits = "int16" if dtype == "torch.bfloat16" else dtype.split(".")[1]
            return Tensor(self.array.view(bits), dtype)

        def __dlpack__(self, **kwargs: Any) -> Any:
            return self.array.__dlpack__(**kwargs)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return self.numpy()

    def from_numpy(array: np.ndarray) -> Tensor:
        if array.dtype.isbuiltin != 1:  # 2 is a dtype that a package registered
            raise TypeError(f"can't convert np.ndarray of type {array.dtype}")
        return Tensor(np.asarray(array))

    Tensor.__module__ = "torch"
    return _module(
        monkeypatch, "torch", Tensor=Tensor, from_numpy=from_numpy, int16="torch.int16", float32="torch.float32",
        bfloat16="torch.bfloat16",
    )  # fmt: skip


def install_cupy(monkeypatch: Any) -> types.ModuleType:
    """A module `cupy`."""

    class ndarray:  # noqa: N801
        def __init__(self, array: ts.Array) -> None:
            self.array = array
            self.shape, self.strides, self.dtype = array.shape, array.strides, np.dtype(array.dtype.numpy_name)
            self.data = types.SimpleNamespace(ptr=array.data_ptr(), device_id=int(array.device[-1]))
            self.__cuda_array_interface__ = array.__cuda_array_interface__

    ndarray.__module__ = "cupy"
    cupy = _module(monkeypatch, "cupy", ndarray=ndarray, stream=0)
    cupy.empty = lambda shape, dtype: ndarray(ts.empty(shape, dtype.name, device="cuda:0"))
    cupy.cuda = _module(
        monkeypatch,
        "cupy.cuda",
        get_current_stream=lambda: types.SimpleNamespace(ptr=cupy.stream),
        Device=lambda device: contextlib.nullcontext(),
    )
    return cupy
