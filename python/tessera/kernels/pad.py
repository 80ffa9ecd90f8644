"""Copies of matrices to rows that start at multiples of 128 bytes. TMA needs 16; with 128, each 128-byte piece that it loads is one
cache line.

A matrix keeps its contiguous axis. A matrix that is broadcast along the batch is copied once. Two matrices are copied in one
launch, so that neither waits for the last groups of the other.
"""

from __future__ import annotations

import functools
from typing import Any

import tessera as ts

from . import arrays, elementwise


@ts.kernel
def one(
    A: ts.Tensor["P", "M", "N"],
    X: ts.Tensor["P", "M", "N"],
    R: int = 16,
    C: int = 256,
    num_warps: int = 4,
):
    at, p = ts.tile.grid(ts.cdiv(M, R) * ts.cdiv(N, C), P)
    wide = ts.cdiv(N, C)
    m = at // wide * R
    n = at % wide * C
    X[p, m:m + R, n:n + C] = A[p, m:m + R, n:n + C]


@ts.kernel
def two(
    A: ts.Tensor["P", "M", "N"],
    B: ts.Tensor["PB", "MB", "NB"],
    X: ts.Tensor["P", "M", "N"],
    Y: ts.Tensor["PB", "MB", "NB"],
    R: int = 16,
    C: int = 256,
    num_warps: int = 4,
):
    """Copies the tiles of ``A``, then those of ``B``. Groups beyond the smaller batch have nothing to do."""
    of_a = ts.cdiv(M, R) * ts.cdiv(N, C)
    at, p = ts.tile.grid(ts.cdiv(M, R) * ts.cdiv(N, C) + ts.cdiv(MB, R) * ts.cdiv(NB, C), max(P, PB))
    if at < of_a:
        wide = ts.cdiv(N, C)
        m = at // wide * R
        n = at % wide * C
        X[p, m:m + R, n:n + C] = A[p, m:m + R, n:n + C]
    else:
        rest = at - of_a
        wide = ts.cdiv(NB, C)
        m = rest // wide * R
        n = rest % wide * C
        Y[p, m:m + R, n:n + C] = B[p, m:m + R, n:n + C]


#: Bytes of a cache line.
LINE = 128
#: Elements of a tile: with 4 warps, each thread has several wide loads in flight.
TILE = 4096
WIDTHS = (512, 256, 128, 64, 32)


@functools.lru_cache(maxsize=4096)
def tile(*columns: int) -> tuple[int, int]:
    """The widest tile that covers matrices of these column counts with at most 1/16 more elements than the best width does."""
    covered = {wide: sum(-(-n // wide) * wide for n in columns) for wide in WIDTHS}
    least = min(covered.values())
    wide = next(w for w in WIDTHS if 16 * covered[w] <= 17 * least)
    return TILE // wide, wide


def on_good_rows(*matrices: Any) -> list[Any]:
    """Copies of one or two arrays ``[P, rows, columns]``."""
    views = [_View.of(x) for x in matrices]
    if all(view.quick for view in views):
        moved = [(arrays.bits(view.rows), arrays.bits(view.made)) for view in views]
        sides = tile(*(view.rows.shape[-1] for view in views))
        if len(moved) == 1 or arrays.itemsize(moved[0][0]) != arrays.itemsize(moved[1][0]):
            for x, y in moved:
                one(x, y, *sides)
        else:
            (a, x), (b, y) = moved
            two(a, b, x, y, *sides)
    else:
        for view in views:
            elementwise.copy(view.rows, view.made)
    return [view.result() for view in views]


def along(x: Any, axis: int) -> Any:
    """A copy that is contiguous along this one of the last two axes, in rows that start at multiples of 128 bytes."""
    if axis == -2:
        return arrays.permuted(along(arrays.permuted(x, (0, 2, 1)), -1), (0, 2, 1))
    made = _rows_like(x)
    elementwise.copy(x, made)
    return made


def _rows_like(x: Any) -> Any:
    each = LINE // arrays.itemsize(x)
    wide = -(-x.shape[-1] // each) * each
    return arrays.empty_as(x, (*x.shape[:-1], wide))[..., : x.shape[-1]]


class _View:
    """A matrix viewed as contiguous rows, and the array that its copy goes to."""

    def __init__(self, rows: Any, turned: bool, repeats: int):
        self.rows, self.turned, self.repeats = rows, turned, repeats
        self.made = _rows_like(rows)
        unit = 1 if arrays.strides_in_elements(rows) else arrays.itemsize(rows)
        self.quick = arrays.movable(rows) and arrays.strides(rows)[-1] == unit

    @classmethod
    def of(cls, x: Any) -> _View:
        steps = arrays.strides(x)
        repeats = x.shape[0] if not steps[0] else 1
        # An axis of one element may have any stride.
        turned = x.shape[-2] > 1 and 0 < steps[-2] < abs(steps[-1] or steps[-2] + 1) and x.shape[-1] > 1
        x = x[:1] if repeats > 1 else x
        return cls(arrays.permuted(x, (0, 2, 1)) if turned else x, turned, repeats)

    def result(self) -> Any:
        x = arrays.permuted(self.made, (0, 2, 1)) if self.turned else self.made
        return arrays.expand(x, (self.repeats, *x.shape[1:])) if self.repeats > 1 else x
