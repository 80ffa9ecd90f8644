"""Transposes: an array with its axes in another order, in memory too.

Elements are moved as bits, so every dtype works and no NaN changes.
"""

from __future__ import annotations

from typing import Any

import tessera as ts

from .. import _core
from . import arrays, checks, machine, schedule
from .layout import four, pointwise


@ts.kernel
def turn(x: ts.Tensor["P", "Q", "M", "N"], y: ts.Tensor["P", "Q", "N", "M"], A: int = 32, B: int = 32):
    """Tiles are read along ``N`` and written along ``M``: both accesses are coalesced."""
    # Consecutive groups read adjacent tiles.
    pq, a, b = ts.tile.grid(P * Q, ts.cdiv(M, A), ts.cdiv(N, B))
    p = pq // Q
    q = pq % Q
    m = a * A
    n = b * B
    y[p, q, n:n + B, m:m + A] = ts.tile.transpose(x[p, q, m:m + A, n:n + B])


@ts.kernel
def copy_line(x: ts.Tensor["n"], y: ts.Tensor["n"], T: int = 4096):
    i = ts.tile.program_id(0) * T
    y[i:i + T] = x[i:i + T]


@ts.kernel
def copy(x: ts.Tensor["P", "Q", "M", "N"], y: ts.Tensor["P", "Q", "M", "N"], R: int = 4, C: int = 1024):
    c, r, pq = ts.tile.grid(ts.cdiv(N, C), ts.cdiv(M, R), P * Q)
    p = pq // Q
    q = pq % Q
    m = r * R
    n = c * C
    y[p, q, m:m + R, n:n + C] = x[p, q, m:m + R, n:n + C]


def transpose(x: Any, axes: Any, rows: Any, block: Any) -> Any:
    x = arrays.given(x, "x")
    rows, block = checks.extents(rows, block)
    order = _order(axes, x)
    if not arrays.movable(x):
        message = f"`x`: expected elements of 1, 2, 4 or 8 bytes, got {x.dtype}"
        raise _core.error("E_UNSUPPORTED_DTYPE", message, "split it into parts")
    turned = arrays.permuted(x, order)
    y = arrays.empty_as(x, turned.shape)
    if arrays.size(y):
        _copy(arrays.bits(turned), arrays.bits(y), rows, block)
    return y


def _copy(x: Any, y: Any, rows: Any, block: Any) -> None:
    layout = pointwise(tuple(x.shape), (arrays.strides(y), arrays.strides(x)))
    x, y = layout.view(x), layout.view(y)
    if x.ndim == 1:
        copy_line(x, y, schedule.line(x.shape[0], arrays.itemsize(x), block, groups=machine.groups(x)))
        return
    turned, layout = four(tuple(x.shape), arrays.strides(x))
    xs, ys = layout.view(x), layout.view(y)
    M, N = layout.sizes[2:]
    times = layout.sizes[0] * layout.sizes[1]
    A, B = schedule.square(N, M, arrays.itemsize(x), times, groups=machine.groups(x)) if turned else schedule.area(M, N)
    A, B = rows or A, block or B
    for at in layout.launches:
        if turned:
            # x is contiguous along M, y along N.
            turn(arrays.permuted(xs[at], (0, 1, 3, 2)), ys[at], A, B)
        else:
            copy(xs[at], ys[at], A, B)


def _order(axes: Any, x: Any) -> list[int]:
    if axes is None:
        return list(reversed(range(x.ndim)))
    order = [checks.one_axis(a, x, "axes") for a in axes] if isinstance(axes, (tuple, list)) else [axes]
    if sorted(order) != list(range(x.ndim)):
        raise _core.error(
            "E_ARGUMENT", f"`axes`: expected each of the {x.ndim} axes once, got {axes!r}", "`None` reverses them"
        )
    return order
