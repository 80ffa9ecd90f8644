"""Arrays as a hostile or broken library would describe them: DLPack structs field by field, and array interfaces."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np


class Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
HOST = (1, 0)


def int64s(values: Any) -> Any:
    return None if values is None else (ctypes.c_int64 * max(len(values), 1))(*values)


class Foreign:
    """Eight floats, 0 to 7, or what its fields say."""

    def __init__(self, **fields: Any) -> None:
        self.memory = np.arange(64, dtype=np.float32)
        self.device = fields.pop("says_device", HOST)
        self.version = fields.pop("version", None)
        self.flags = fields.pop("flags", 0)
        self.name = fields.pop("name", None)
        shape, strides = int64s(fields.pop("shape", [8])), int64s(fields.pop("strides", None))
        self.kept = (shape, strides)
        cast = lambda p: ctypes.cast(p, ctypes.POINTER(ctypes.c_int64))  # noqa: E731
        usual = dict(data=self.memory.ctypes.data, device_type=1, device_id=0, ndim=1, code=2, bits=32, lanes=1, byte_offset=0)
        self.tensor = Tensor(shape=cast(shape), strides=cast(strides), **(usual | fields))

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **_: Any) -> Any:
        if self.version is None:
            self.struct: Any = Managed(self.tensor, None, None)
            name = b"dltensor"
        else:
            self.struct = Versioned(*self.version, None, None, self.flags, self.tensor)
            name = b"dltensor_versioned"
        return _new(ctypes.addressof(self.struct), self.name or name, None)


class CudaInterface:
    """`__cuda_array_interface__` as it is given."""

    def __init__(self, **fields: Any) -> None:
        usual = {"shape": (8,), "typestr": "<f4", "data": (1 << 20, False), "version": 3}
        self.__cuda_array_interface__ = {k: v for k, v in (usual | fields).items() if v is not ...}


#: Numbers at which something may overflow, and some that are usual.
NUMBERS = [0, 1, 2, 3, 8, 63, 64, 65, 2**31 - 1, 2**31, 2**32, 2**40, 2**61, 2**62, 2**63 - 1]
NUMBERS += [-n for n in NUMBERS] + [-(2**63)]


def wrong_fields(rng: random.Random) -> tuple[dict[str, Any], bool]:
    """A description at random, and whether it may be one of memory that is there."""
    shape = [rng.choice([1, 2, 4, 8, *NUMBERS]) for _ in range(rng.randrange(4))]
    strides = rng.choice([None, [rng.choice([1, 2, *NUMBERS]) for _ in shape]])
    fields: dict[str, Any] = {"shape": shape, "strides": strides, "ndim": len(shape)}
    if rng.random() < 0.1:
        fields["ndim"] = rng.choice([-1, -(2**31), 65, 1000, 2**31 - 1])
    if rng.random() < 0.1:
        fields["shape"] = None
    for name, values in (
        ("data", [0, 1]),
        ("byte_offset", [4, 2**40, 2**63, 2**64 - 4, 2**64 - 1]),
        ("lanes", [0, 2, 65535]),
        ("bits", [0, 1, 4, 8, 16, 64, 255]),
        ("code", [0, 1, 3, 4, 5, 6, 17, 255]),
        ("device_type", [0, 2, 10, 13, 99, -1]),
        ("device_id", [1, -1, -(2**31)]),
        ("version", [(1, 0), (1, 9), (0, 0), (2, 0), (2**32 - 1, 0)]),
    ):
        if rng.random() < 0.1:
            fields[name] = rng.choice(values)
    return fields, reads_there(fields)


def reads_there(fields: dict[str, Any]) -> bool:
    """Whether all elements that the description names are in the 64 floats of memory, by Python's integers."""
    shape, strides = fields["shape"], fields["strides"]
    usual = {"data": None, "byte_offset": 0, "lanes": 1, "bits": 32, "code": 2, "device_type": 1, "version": None}
    if any(fields.get(k, v) != v for k, v in usual.items() if k != "byte_offset") or fields["ndim"] not in range(65):
        return False
    if shape is None or any(n < 0 for n in shape):
        return False
    if 0 in shape:
        return True
    if strides is None:
        strides, step = [], 1
        for n in reversed(shape):
            strides.insert(0, step)
            step *= n
    far = [(n - 1) * s for n, s in zip(shape, strides)]
    offset = fields.get("byte_offset", 0)
    low, high = sum(f for f in far if f < 0), sum(f for f in far if f > 0) + 1
    count = 1
    for n in shape:
        count *= n
    return offset % 4 == 0 and offset // 4 + low >= 0 and offset // 4 + high <= 64 and count < 10**6
