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


def seen(source: numpy.ndarray, dims: Sequence[Sequence[tuple[int, int, int, int, int]]], shape: tuple[int, ...]) -> numpy.ndarray | None:
    """The elements of a move as a view of the sender's block, where they fill a block of this shape; None where they do not."""
    found = []
    for pieces, extent in zip(dims, shape, strict=True):
        if len(pieces) != 1:
            return None
        ((at, step, to, to_step, n),) = pieces
        if to != 0 or n != extent or (to_step != 1 and n > 1):
            return None
        found.append(slice(at, at + n * step, step) if n > 1 else slice(at, at + n))
    return source[tuple(found)] if found else source


def _combine(op: str, a: numpy.ndarray, b: numpy.ndarray, out: numpy.ndarray) -> None:
    """``a op b``, to ``out``."""
    with numpy.errstate(all="ignore"):
        if op == "sum":
            (numpy.logical_or if a.dtype.kind == "b" else numpy.add)(a, b, out=out)
            return
        if op == "prod":
            (numpy.logical_and if a.dtype.kind == "b" else numpy.multiply)(a, b, out=out)
            return
        zeros = negative = None
        if a.dtype.kind == "f":
            # -0.0 is less than 0.0, which NumPy leaves open.
            zeros = (a == 0) & (b == 0)
            if zeros.any():
                negative = numpy.signbit(a) & numpy.signbit(b) if op == "max" else numpy.signbit(a) | numpy.signbit(b)
        (numpy.maximum if op == "max" else numpy.minimum)(a, b, out=out)
        if negative is not None:
            numpy.copyto(out, numpy.where(negative, a.dtype.type(-0.0), a.dtype.type(0.0)), where=zeros)  # type: ignore[arg-type]


#: Lanes of the canonical reduction (docs/language.md, section 14).
_LANES = 64
#: Elements that are combined at a time: the operands stay in a core's caches.
_AT_A_TIME = 1 << 15


def combined(op: str, contributions: Sequence[numpy.ndarray]) -> numpy.ndarray:
    """Contributions combined by the canonical reduction over their order: a new array."""
    first = contributions[0]
    if len(contributions) == 1:
        return numpy.array(first)
    result = numpy.empty(first.shape, first.dtype)
    if result.ndim == 0:
        result[...] = _folded(op, [c.reshape(1) for c in contributions])[0]
        return result
    # Parts along the first dim: rows of other ranks' blocks may stand apart.
    rows = max(1, _AT_A_TIME * len(result) // max(1, result.size))
    for start in range(0, len(result), rows):
        part = slice(start, start + rows)
        result[part] = _folded(op, [c[part] for c in contributions])
    return result


def _folded(op: str, contributions: list[numpy.ndarray]) -> numpy.ndarray:
    lanes: list[Any] = list(contributions[:_LANES])
    owned = [False] * len(lanes)

    def join(at: int, other: numpy.ndarray) -> None:
        held = lanes[at]
        if not owned[at]:
            lanes[at], owned[at] = numpy.empty(held.shape, held.dtype), True
        _combine(op, held, other, lanes[at])

    for at, value in enumerate(contributions[_LANES:]):
        join(at % _LANES, value)
    half = _LANES // 2
    while half:
        for at in range(min(half, len(lanes) - half)):
            join(at, lanes[at + half])
        half //= 2
    return lanes[0]


def cast(values: numpy.ndarray, to: numpy.dtype) -> numpy.ndarray:
    """Elements in another dtype, rounded once."""
    if values.dtype == to:
        return values
    with numpy.errstate(all="ignore"):
        return values.astype(to)
