"""Values of Python as JSON, exactly: numbers and text that are leaves, the keys of dicts, and what classes hold beside their arrays.

``None``, ``True``, text, finite floats and integers of 64 bits are themselves. The rest is an object with one entry:

| JSON | Python |
|---|---|
| ``{"int": "-0x1f…"}`` | an integer of more bits |
| ``{"float": "7ff0000000000000"}`` | an infinity or a NaN, by its bits |
| ``{"complex": [re, im]}``, ``{"bytes": "c0ff33"}`` | |
| ``{"tuple": […]}``, ``{"list": […]}``, ``{"frozenset": […]}``, ``{"dict": [[key, value], …]}`` | |
| ``{"dtype": "bf16"}``, ``{"numpy": "f32"}``, ``{"type": "f32"}`` | a dtype of Tessera's, a dtype of NumPy's, its class of scalars |
| ``{"scalar": ["f32", "0000803f"]}`` | a scalar of NumPy's, by its bytes |
| ``{"function": "nn.gelu"}`` | a function of `ts.nn` or `ts.xp` |
| ``{"enum": ["module:Class", "NAME"]}`` | |
| ``{"named": ["module:Class", […]]}``, ``{"data": ["module:Class", {…}]}`` | a named tuple, a dataclass |
| ``{"opaque": "a function"}`` | what files cannot hold: it is taken from ``like=`` |
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import struct
import types
from typing import Any

import numpy

from .. import nn, xp
from .._core import DType
from ..arrays.create import numpy_dtype
from ..base.dtypes import dtype as as_dtype
from ..base.errors import Refusal, TesseraError
from . import class_names as classes
from .bounded_json import shown

#: Exactly these are leaves that are written into the description of a tree.
PLAIN = (bool, int, float, complex, str, bytes)
_DEEPEST = 16
_DAMAGED = "the file is damaged: write it again"


class Opaque(Exception):
    """What files cannot hold."""


def encode(value: Any, plain: bool = False, depth: int = 0) -> Any:
    """``value`` as JSON; raises `Opaque` for what is not data, and with ``plain`` for objects."""
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 64 else {"int": hex(value)}
    if kind is float:
        return value if value - value == 0.0 else {"float": struct.pack(">d", value).hex()}
    if kind is complex:
        return {"complex": [encode(value.real), encode(value.imag)]}
    if kind is bytes:
        return {"bytes": value.hex()}
    if depth > _DEEPEST:
        raise Opaque(f"values nested deeper than {_DEEPEST}")

    def inner(values: Any) -> list:
        return [encode(v, plain, depth + 1) for v in values]

    if kind is tuple or kind is list:
        return {kind.__name__: inner(value)}
    if kind is frozenset:
        return {"frozenset": sorted(inner(value), key=json.dumps)}
    if kind is dict:
        return {"dict": [inner(item) for item in value.items()]}
    if plain:
        raise Opaque(f"a value of type {kind.__name__}")
    return _object(value, kind, inner)


def _object(value: Any, kind: type, inner: Any) -> Any:
    if kind is DType:
        return {"dtype": str(value)}
    if isinstance(value, enum.Enum) and value.name in kind.__members__:
        classes.remember(kind)
        return {"enum": [classes.name_of(kind), value.name]}
    if isinstance(value, numpy.dtype):
        return {"numpy": exact_dtype(value)}
    if isinstance(value, type) and issubclass(value, numpy.generic):
        return {"type": exact_dtype(numpy.dtype(value))}
    if isinstance(value, numpy.generic):
        return {"scalar": [exact_dtype(value.dtype), numpy.asarray(value).tobytes().hex()]}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        classes.remember(kind)
        return {"named": [classes.name_of(kind), inner(value)]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [f.name for f in dataclasses.fields(value) if f.init or hasattr(value, f.name)]
        classes.remember(kind)
        return {"data": [classes.name_of(kind), dict(zip(names, inner(getattr(value, n) for n in names), strict=True))]}
    if isinstance(value, types.FunctionType) and value.__name__ in _functions() and _functions()[value.__name__][1] is value:
        return {"function": f"{_functions()[value.__name__][0]}.{value.__name__}"}
    raise Opaque("a function" if callable(value) and hasattr(value, "__name__") else f"a value of type {kind.__name__}")


@functools.cache
def _functions() -> dict[str, tuple[str, Any]]:
    """The functions that files may name, which compute and do nothing else: those of `ts.nn` and `ts.xp`."""
    both = [(name, module) for module in (xp, nn) for name in vars(module) if not name.startswith("_")]
    found = {name: (module.__name__.rpartition(".")[2], getattr(module, name)) for name, module in both}
    return {name: (module, value) for name, (module, value) in found.items() if isinstance(value, types.FunctionType)}


def exact_dtype(dtype: numpy.dtype) -> str:
    """Our name of a dtype of NumPy's in either byte order; raises `Opaque` where it is none of ours."""
    try:
        name = as_dtype(dtype).name
        # The names of some are those of others: `ml_dtypes` has two float8_e4m3.
        same = numpy_dtype(name) == dtype.newbyteorder("=")
    except (TesseraError, TypeError, ValueError):
        same = False
    if not same:
        raise Opaque(f"dtype {dtype.name}")
    return name


def decode(coded: Any, at: str, depth: int = 0) -> Any:
    """What `encode` was given; ``at`` is where it is, for messages."""
    kind = type(coded)
    if coded is None or kind in (bool, int, float, str):
        return coded
    if kind is not dict or len(coded) != 1 or depth > _DEEPEST + 1:
        raise _damaged(coded, at)
    ((tag, inner),) = coded.items()
    try:
        return _DECODERS[tag](inner, at, depth + 1)
    except Refusal:
        raise
    except Exception:  # whatever a hostile value does to what takes it apart
        raise _damaged(coded, at) from None


def _damaged(coded: Any, at: str) -> Refusal:
    return Refusal(f"expected a value {at}, got {shown(coded)}", _DAMAGED)


def _values(inner: list, at: str, depth: int) -> list:
    if type(inner) is not list:
        raise _damaged(inner, at)
    return [decode(v, at, depth) for v in inner]


def _float(inner: str, at: str, depth: int) -> float:
    return struct.unpack(">d", bytes.fromhex(inner))[0]


def _dict(inner: list, at: str, depth: int) -> dict:
    rows = [_values(row, at, depth) for row in inner]
    made = {k: v for k, v in rows}
    if len(made) != len(rows):
        raise _damaged(inner, at)
    return made


def _scalar(inner: list, at: str, depth: int) -> Any:
    name, data = inner
    (value,) = numpy.frombuffer(bytes.fromhex(data), numpy_dtype(name))
    return value


def _enum(inner: list, at: str, depth: int) -> Any:
    name, member = inner
    kind, _ = classes.find(name, at, enum.Enum)
    return kind.__members__[member]  # type: ignore[attr-defined]


def _function(inner: str, at: str, depth: int) -> Any:
    module, name = inner.split(".")
    home, value = _functions()[name]
    if home != module:
        raise _damaged(inner, at)
    return value


def _named(inner: list, at: str, depth: int) -> Any:
    kind, _ = classes.find(inner[0], at, tuple)
    return classes.named_tuple(kind, list(getattr(kind, "_fields", ())), _values(inner[1], at, depth), at)


def _data(inner: list, at: str, depth: int) -> Any:
    kind, trusted = classes.find(inner[0], at)
    return classes.data_class(kind, {n: decode(v, at, depth) for n, v in inner[1].items()}, trusted, at)


def _opaque(inner: Any, at: str, depth: int) -> Any:
    raise Refusal(f"expected {shown(inner)} {at}, which files do not hold", "give a tree of this structure: `ts.load(path, like=tree)`")


_DECODERS = {
    "int": lambda v, at, depth: int(v, 16), "float": _float,
    "complex": lambda v, at, depth: complex(*map(float, _values(v, at, depth))),
    "bytes": lambda v, at, depth: bytes.fromhex(v), "tuple": lambda v, at, depth: tuple(_values(v, at, depth)), "list": _values,
    "frozenset": lambda v, at, depth: frozenset(_values(v, at, depth)), "dict": _dict,
    "dtype": lambda v, at, depth: as_dtype(str(v)), "numpy": lambda v, at, depth: numpy_dtype(str(v)),
    "type": lambda v, at, depth: numpy_dtype(str(v)).type, "scalar": _scalar, "function": _function, "enum": _enum, "named": _named, "data": _data,
    "opaque": _opaque,
}  # fmt: skip
