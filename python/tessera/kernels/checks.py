"""What library operations ask of their arguments, before anything is launched."""

from __future__ import annotations

import operator
from typing import Any, Sequence

from .. import _core
from .._dtypes import DType, dtype, f32, f64
from . import arrays


def is_float(of: DType) -> bool:
    return of.name not in ("bool", "e8m0") and of.name[0] not in "iu"


def is_integer(of: DType) -> bool:
    return of.name[0] in "iu"


def accumulator(of: DType) -> DType:
    """What numbers of a float dtype are computed in."""
    return f64 if of.name == "f64" else f32


def floating(x: Any, name: str) -> Any:
    """The array that an argument is, which must hold floats."""
    x = arrays.given(x, name)
    if not is_float(of := arrays.dtype_of(x)):
        raise _core.error(
            "E_TYPE", f"`{name}`: expected an array of floats, got {of}", f"convert it first: `{name}.astype(np.float32)`"
        )
    return x


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
    """The error of a largest or smallest element among none."""
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


def pair(value: Any, name: str) -> tuple[int, int] | None:
    """Two tile extents that the caller gives, or none."""
    if value is None:
        return None
    if not isinstance(value, (tuple, list)) or len(value) != 2 or any(not isinstance(n, int) or n < 1 for n in value):
        help = "leave it out for a choice by shape"
        raise _core.error("E_ARGUMENT", f"`{name}`: expected two positive integers, got {value!r}", help)
    return value[0], value[1]


def word(value: Any, choices: tuple[str, ...], name: str) -> str:
    if value not in choices:
        message = f"`{name}`: expected one of {', '.join(choices)}, got {value!r}"
        raise _core.error("E_ARGUMENT", message, f'write `{name}="{choices[0]}"`')
    return value
