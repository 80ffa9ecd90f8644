"""Checks of the arguments of library operations, before anything is launched."""

from __future__ import annotations

import math
import operator
import os
from typing import Any, Sequence

import numpy

from .. import _core
from ..base.dtypes import DType, dtype, f32, f64
from ..base.numeric_profile import profile
from . import arrays


def is_float(of: DType) -> bool:
    return of.name not in ("bool", "e8m0") and of.name[0] not in "iu"


def is_integer(of: DType) -> bool:
    return of.name[0] in "iu"


def accumulator(of: DType) -> DType:
    """The dtype that a float dtype is computed in."""
    return f64 if of.name == "f64" else f32


def floating(x: Any, name: str) -> Any:
    """The array that an argument is, which must hold floats."""
    x = arrays.given(x, name)
    if not is_float(of := arrays.dtype_of(x)):
        raise _core.error(
            "E_TYPE", f"`{name}`: expected an array of floats, got {of}", f"convert it first: `{name}.astype(np.float32)`"
        )
    return x


def number(value: Any, name: str) -> float:
    """A number of f32 that the caller gives: Python's, NumPy's, or an array of one without axes."""
    single = arrays.is_number(value) or getattr(value, "shape", None) == ()
    try:
        found = None if isinstance(value, bool) or not single else float(value)
    except OverflowError:
        found = math.inf
    except (TypeError, ValueError):
        found = None
    if found is None:
        raise _core.error("E_TYPE", f"`{name}`: expected a number, got {said(value)}", f"write for example `{name}=0.125`")
    if not (abs(found) <= _MOST or math.isnan(found) or (isinstance(value, float) and math.isinf(value))):
        raise _core.error("E_ARGUMENT", f"`{name}`: expected a number in the range of f32, got {said(value)}", f"at most {_MOST:.3g}")
    return found


#: The greatest finite number of f32.
_MOST = (2 - 2**-23) * 2.0**127


def said(value: Any) -> str:
    """A value as messages show it, shortened."""
    text = f"an array of shape {tuple(value.shape)}" if getattr(value, "shape", ()) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def flag(value: Any, name: str) -> bool:
    if not isinstance(value, (bool, numpy.bool_)):
        raise _core.error("E_TYPE", f"`{name}`: expected True or False, got {said(value)}", "leave it out for False")
    return bool(value)


def checked() -> bool:
    """Whether launches run in checked mode (`docs/debugging.md`)."""
    return os.environ.get("TESSERA_CHECK", "") not in ("", "0", "false", "off")


def one_axis(axis: Any, x: Any, name: str = "axis") -> int:
    """An axis of the array, counted from the front."""
    try:
        at = operator.index(axis)
    except TypeError:
        raise _core.error(
            "E_ARGUMENT", f"`{name}`: expected an integer, got {axis!r}", "axes are counted from 0, or from the end from -1"
        ) from None
    if not x.ndim:
        raise _core.error(
            "E_SHAPE_MISMATCH", "expected an array of rank 1 or more, got a single number", "give it an axis: `x.reshape(1)`"
        )
    if not -x.ndim <= at < x.ndim:
        raise _core.error(
            "E_ARGUMENT",
            f"`{name}`: expected an axis from {-x.ndim} to {x.ndim - 1}, got {at}",
            f"the array has shape {tuple(x.shape)}",
        )
    return at % x.ndim


def some_axes(axis: Any, x: Any) -> frozenset[int]:
    """The axes that ``axis`` names: one, several, or all for ``None``."""
    if axis is None:
        return frozenset(range(x.ndim))
    if not isinstance(axis, (tuple, list)):
        return frozenset([one_axis(axis, x)])
    axes = [one_axis(a, x) for a in axis]
    if len(set(axes)) < len(axes):
        help = f"the array has shape {tuple(x.shape)}"
        raise _core.error("E_ARGUMENT", f"`axis`: expected each axis once, got {tuple(axis)}", help)
    return frozenset(axes)


def shape(x: Any, wanted: Sequence[int], name: str, like: str) -> Any:
    """The array, if it has the shape that another implies."""
    if tuple(x.shape) != tuple(wanted):
        raise _core.error(
            "E_SHAPE_MISMATCH",
            f"`{name}`: expected shape {tuple(wanted)}, as {like}, got {tuple(x.shape)}",
            f"`{name}` must fit it without broadcasting",
        )
    return x


def nothing(what: str, axis: Any, x: Any) -> Exception:
    """The error for the largest or smallest element of an empty axis."""
    return _core.error(
        "E_SHAPE_MISMATCH",
        f"expected at least one element to take the {what} of, got shape {tuple(x.shape)} with `axis={axis}`",
        "an empty axis has a sum and a product, and no largest element",
    )


def out_dtype(wanted: Any, default: DType, floats: bool = True) -> DType:
    """The dtype of a result."""
    if wanted is None:
        return default
    of = dtype(wanted)
    if floats and not is_float(of):
        raise _core.error("E_TYPE", f"`out_dtype`: expected a float dtype, got {of}", 'write for example `out_dtype="f32"`')
    return of


def extent(value: Any, name: str) -> int | None:
    """A tile extent that the caller gives, or none."""
    if value is None:
        return None
    try:
        at = operator.index(value)
    except TypeError:
        at = 0
    if at < 1:
        help = "leave it out for a choice by shape"
        raise _core.error("E_ARGUMENT", f"`{name}`: expected a positive integer, got {value!r}", help)
    return at


def extents(rows: Any, block: Any) -> tuple[int | None, int | None]:
    """``rows=`` and ``block=`` of an operation."""
    return extent(rows, "rows"), extent(block, "block")


def free(x: Any) -> bool:
    """Whether an operation on ``x`` may be computed in an order of its device: not under `strict`, whose bits are those of every device."""
    return arrays.on_device(x) and str(profile()) != "strict"


def pair(value: Any, name: str) -> tuple[int, int] | None:
    """Two tile extents that the caller gives, or none."""
    if value is None:
        return None
    sides = [whole(n) for n in value] if isinstance(value, (tuple, list)) else []
    if len(sides) != 2 or any(n is None or n < 1 for n in sides):
        help = "leave it out for a choice by shape"
        raise _core.error("E_ARGUMENT", f"`{name}`: expected two positive integers, got {said(value)}", help)
    return sides[0], sides[1]  # type: ignore[return-value]


def whole(value: Any) -> int | None:
    """The integer that a value is, Python's or NumPy's; none for others, and for booleans."""
    if isinstance(value, (bool, numpy.bool_)):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def word(value: Any, choices: tuple[str, ...], name: str) -> str:
    if not isinstance(value, str) or value not in choices:
        message = f"`{name}`: expected one of {', '.join(choices)}, got {said(value)}"
        raise _core.error("E_ARGUMENT", message, f'write `{name}="{choices[0]}"`')
    return value
