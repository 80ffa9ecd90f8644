"""Blocks of arrays in memory: positions, copies between blocks, contributions and how they are combined."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy

from .. import _core
from ..arrays.create import array, numpy_dtype, to_host
from ..base.dtypes import DType, dtype

#: Positions along a dim: (start, step, count) each.
Runs = list[tuple[int, int, int]]


def length(runs: Runs) -> int:
    # Most are one run.
    return runs[0][2] if len(runs) == 1 else sum([count for _, _, count in runs])


def extents(index: Sequence[Runs]) -> tuple[int, ...]:
    return tuple([length(runs) for runs in index])


def subscript(index: Sequence[Runs]) -> tuple[Any, ...]:
    """Positions as users see them: a slice for each dim, an array of positions where one slice is not enough."""
    return tuple(_slice(runs) if len(runs) < 2 else _positions(runs) for runs in index)


def _slice(runs: Runs) -> slice:
    if not runs:
        return slice(0, 0, None)
    start, step, count = runs[0]
    return slice(start, start + (count - 1) * step + 1, step if step > 1 else None)


def _positions(runs: Runs) -> numpy.ndarray:
    return numpy.concatenate([numpy.arange(s, s + n * d, d) for s, d, n in runs]) if runs else numpy.zeros(0, numpy.int64)


def places(index: Sequence[Runs]) -> Any:
    """Positions as NumPy takes them, all combinations of them."""
    if all(len(runs) < 2 for runs in index):
        return tuple(_slice(runs) for runs in index)
    return numpy.ix_(*(_positions(runs) for runs in index))


def host(block: Any) -> numpy.ndarray:
    """The elements of a block in host memory: its own where it is there."""
    return to_host(block) if isinstance(block, _core.Array) else block


def on(values: numpy.ndarray, device: str | None) -> Any:
    """A block with these elements on a device."""
    return values if device is None else array(values, device=device)


def store(block: Any, values: Any) -> None:
    """Writes all elements of a block."""
    block[...] = values


def accumulation(of: DType) -> DType:
    """What contributions of a dtype are kept and combined in."""
    text = str(of)
    if "accum(" in text:
        return dtype(text.partition("accum(")[2].partition(")")[0].removesuffix("_fast"))
    plain = numpy_dtype(of)
    if plain.name == "int4":
        return dtype("i8")
    if plain.kind in "biu":
        return dtype(plain.name)
    return dtype("f64") if plain == numpy.float64 else dtype("f32")


def identity(op: str, of: numpy.dtype) -> Any:
    """What changes no value when it is combined with it."""
    if op == "prod":
        return of.type(1)
    if op == "sum":
        return of.type(0) if of.kind in "biu" else of.type(-0.0)
    if of.kind == "b":
        return of.type(op == "min")
    if of.kind in "iu":
        limits = numpy.iinfo(of)
        return of.type(limits.min if op == "max" else limits.max)
    # Of a dtype without infinities, the number that is farthest out.
    return cast(numpy.asarray(-numpy.inf if op == "max" else numpy.inf, numpy.float32), of)[()]


#: Where a block begins in memory that several share.
_ALIGN = 64


def empty(shapes: Sequence[tuple[int, ...]], of: numpy.dtype) -> list[numpy.ndarray]:
    """New blocks of an array, in one piece of memory: the system gives large pieces in large pages, and there is one to ask for."""
    if len(shapes) < 2:
        return [numpy.empty(s, of) for s in shapes]
    item, begins, end = of.itemsize, [], 0
    for s in shapes:
        begins.append(end)
        end += -(-prod(s) * item // _ALIGN) * _ALIGN
    memory = numpy.empty(end + _ALIGN, numpy.uint8)
    first = -memory.ctypes.data % _ALIGN
    return [numpy.ndarray(s, of, memory, first + begin) for s, begin in zip(shapes, begins, strict=True)]


def filled(shape: tuple[int, ...], value: Any, of: numpy.dtype) -> numpy.ndarray:
    return numpy.full(shape, value, of)


def combined(op: str, contributions: Sequence[numpy.ndarray]) -> numpy.ndarray:
    """Contributions combined by the canonical reduction over their order (docs/language.md, section 14). They are of one accumulation dtype."""
    made = numpy.empty(contributions[0].shape, contributions[0].dtype)
    _core.combine_arrays(op, [numpy.asarray(c, order="C") for c in contributions], made)
    return made


def cast(values: numpy.ndarray, to: numpy.dtype) -> numpy.ndarray:
    """Elements in another dtype, rounded once by the language's rules: floats that fp8 and narrower dtypes do not hold saturate."""
    if values.dtype == to:
        return values
    if to.itemsize == 1 and to.kind not in "biu":
        made = numpy.empty(values.shape, to)
        _core.convert_arrays(numpy.asarray(values, order="C"), made)
        return made
    with numpy.errstate(all="ignore"):
        return values.astype(to)
