"""Dtypes, constants and inspection of dtypes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy

from ..arrays.create import numpy_dtype
from ..base.dtypes import bf16 as bfloat16, bool_ as bool, dtype as as_dtype, f16 as float16, f32 as float32, f64 as float64
from ..base.dtypes import i8 as int8, i16 as int16, i32 as int32, i64 as int64, u8 as uint8, u16 as uint16, u32 as uint32
from ..base.dtypes import u64 as uint64
from ..base.promotion import kind as kind_of, promote_pair
from ..trace.tracer import aval, fail, is_array
from ..tree import pytree

__all__ = [
    "bfloat16", "bool", "can_cast", "e", "finfo", "float16", "float32", "float64", "iinfo", "inf", "int8", "int16", "int32",
    "int64", "isdtype", "nan", "newaxis", "pi", "result_type", "uint8", "uint16", "uint32", "uint64",
]  # fmt: skip

e, inf, nan, pi, newaxis = math.e, math.inf, math.nan, math.pi, None


@dataclass(frozen=True)
class Limits:
    """The limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: Any


@dataclass(frozen=True)
class FloatLimits:
    """The limits of a float dtype, as Python numbers."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


def _has_one(x: Any) -> Any:
    return is_array(x) or pytree.is_opened(x)


def _of_kind(type: Any, kind: str, name: str) -> Any:
    given = as_dtype(type.dtype if _has_one(type) else type)
    if not isdtype(given, kind):
        raise fail("E_TYPE", f"expected a dtype of kind {kind!r} for `{name}`, got {given}", "cast the argument with `.astype`")
    return given


def finfo(type: Any, /) -> FloatLimits:
    """Limits of a float dtype, or of that of an array."""
    import ml_dtypes

    given = _of_kind(type, "real floating", "finfo")
    wanted = numpy_dtype(given)
    found = numpy.finfo(wanted) if wanted.kind == "f" else ml_dtypes.finfo(wanted)
    normal = getattr(found, "smallest_normal", None) or found.tiny
    return FloatLimits(int(found.bits), float(found.eps), float(found.max), float(found.min), float(normal), given)


def iinfo(type: Any, /) -> Limits:
    """Limits of an integer dtype, or of that of an array."""
    given = _of_kind(type, "integral", "iinfo")
    found = numpy.iinfo(numpy_dtype(given))
    return Limits(int(found.bits), int(found.max), int(found.min), given)


def result_type(*values: Any) -> Any:
    """The promoted dtype of arrays, numbers and dtypes."""
    found = None
    for v in values:
        one = aval(v)[1:] if _has_one(v) else (str(as_dtype(v)), False)
        found = one if found is None else promote_pair(found, one)
    return as_dtype(found[0])  # type: ignore[index]


def can_cast(source: Any, to: Any) -> Any:
    """Whether one dtype promotes to the other."""
    a = aval(source)[1] if _has_one(source) else str(as_dtype(source))
    b = str(as_dtype(to))
    try:
        return promote_pair((a, False), (b, False))[0] == b
    except Exception:
        return False


def isdtype(dtype: Any, kind: Any) -> Any:
    """Whether a dtype is one, or of a kind such as ``"real floating"``."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    name = str(as_dtype(dtype))
    k = kind_of(name)
    kinds = {
        "bool": k == 0, "signed integer": name in ("i4", "i8", "i16", "i32", "i64"),
        "unsigned integer": k == 1 and name.startswith("u"), "integral": k == 1, "real floating": k == 2,
        "complex floating": False, "numeric": k in (1, 2),
    }  # fmt: skip
    return kinds[kind] if isinstance(kind, str) and kind in kinds else name == str(as_dtype(kind))
