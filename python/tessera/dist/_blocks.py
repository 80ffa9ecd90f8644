"""Blocks of arrays in memory: positions, copies between blocks, contributions and how they are combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy

from .. import _core
from ..arrays.create import array, numpy_dtype, to_host
from ..base.dtypes import DType, dtype

#: Positions along a dim: (start, step, count) each.
Runs = list[tuple[int, int, int]]


def length(runs: Runs) -> int:
    return sum(count for _, _, count in runs)


def extents(index: Sequence[Runs]) -> tuple[int, ...]:
    return tuple(length(runs) for runs in index)


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


def put(target: numpy.ndarray, source: numpy.ndarray, dims: Sequence[Sequence[tuple[int, int, int, int, int]]]) -> None:
    """Copies the elements that a move names; pieces are (from, step, to, step, count)."""
    there = [[(to, step, n) for _, _, to, step, n in pieces] for pieces in dims]
    here = [[(at, step, n) for at, step, _, _, n in pieces] for pieces in dims]
    target[places(there)] = source[places(here)]


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
    return of.type(-numpy.inf if op == "max" else numpy.inf)


def filled(shape: tuple[int, ...], value: Any, of: numpy.dtype) -> numpy.ndarray:
    return numpy.full(shape, value, of)


def _combine(op: str, a: numpy.ndarray, b: numpy.ndarray) -> numpy.ndarray:
    with numpy.errstate(all="ignore"):
        if op == "sum":
            return numpy.add(a, b, dtype=a.dtype) if a.dtype.kind != "b" else numpy.logical_or(a, b)
        if op == "prod":
            return numpy.multiply(a, b, dtype=a.dtype) if a.dtype.kind != "b" else numpy.logical_and(a, b)
        made = (numpy.maximum if op == "max" else numpy.minimum)(a, b)
        if a.dtype.kind == "f":
            # -0.0 is less than 0.0, which NumPy leaves open.
            zeros = (a == 0) & (b == 0)
            if zeros.any():
                negative = numpy.signbit(a) & numpy.signbit(b) if op == "max" else numpy.signbit(a) | numpy.signbit(b)
                made = numpy.where(zeros, numpy.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0)), made)
        return made


#: Lanes of the canonical reduction (docs/language.md, section 14).
_LANES = 64


def combined(op: str, contributions: Sequence[numpy.ndarray]) -> numpy.ndarray:
    """Contributions combined by the canonical reduction over their order."""
    lanes: list[Any] = [None] * _LANES
    for at, value in enumerate(contributions):
        held = lanes[at % _LANES]
        lanes[at % _LANES] = value if held is None else _combine(op, held, value)
    half = _LANES // 2
    while half:
        for at in range(half):
            other = lanes[at + half]
            if other is not None:
                lanes[at] = other if lanes[at] is None else _combine(op, lanes[at], other)
        half //= 2
    return numpy.asarray(lanes[0])


def cast(values: numpy.ndarray, to: numpy.dtype) -> numpy.ndarray:
    """Elements in another dtype, rounded once."""
    if values.dtype == to:
        return values
    with numpy.errstate(all="ignore"):
        return values.astype(to)
