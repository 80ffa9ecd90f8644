"""Matmul of whole arrays: batch axes, epilogue operands, and which kernel of `gemm` runs."""

from __future__ import annotations

from typing import Any, Sequence

import tessera as ts

from .. import _core
from . import arrays, checks, pad
from .gemm import (
    WORTH_PADDING, _batched, _count, _laid_out, _matrices, _zero, block_scaled, combined, parts, planned, product, products, sums_of,
)  # fmt: skip


def multiply(
    a: Any,
    b: Any,
    epilogue: Any,
    extras: Sequence[Any],
    out_dtype: Any,
    tile: Any,
    scales: tuple[Any, Any] | None = None,
    precision: str | None = None,
) -> Any:
    """``epilogue(a @ b, *extras)`` with the batch rules of NumPy; ``extras`` broadcast to the result."""
    a, b, mode, of, batch, vector = _matrices(a, b, precision)
    M, N = a.shape[-2], b.shape[-1]
    given = arrays.dtype_of(a)
    of = checks.out_dtype(out_dtype, of if not checks.is_float(given) else given, floats=False)
    shape = (*batch, M, N)
    c = arrays.empty(shape, of, a)
    if arrays.size(c):
        P = _count(batch)
        flat = [_batched(x, batch, P) for x in (a, b)]
        more = [_extra(x, shape, P, a) for x in extras]
        scales = None if scales is None else tuple(_scales(arrays.given(x, "block_scales"), batch, P) for x in scales)
        _launch(*flat, more, c.reshape(P, M, N), epilogue, tile, scales, mode)
    kept = [*batch, *([] if vector[0] else [M]), *([] if vector[1] else [N])]
    return c.reshape(kept)


def _scales(x: Any, batch: tuple[int, ...], P: int) -> Any:
    """As `_batched`; scales may have more axes of one element than the matrices."""
    whole = arrays.size(x) == P * _count(x.shape[-2:])
    return x.reshape(P, *x.shape[-2:]) if whole else _batched(x, batch, P)


def _extra(x: Any, shape: tuple[int, ...], P: int, like: Any) -> tuple[Any, str]:
    """An epilogue operand as ``[P, …, …]``, and how it broadcasts: the ``kind`` of `gemm.epilogue_tile`."""
    if arrays.is_number(x):
        x = arrays.full((), x, ts.f32, like)
    x = arrays.given(x, "epilogue")
    try:
        whole = arrays.expand(x, shape)
    except (ValueError, RuntimeError):
        raise _core.error(
            "E_SHAPE_MISMATCH",
            f"expected an array of the epilogue that broadcasts to {shape}, got shape {tuple(x.shape)}",
            "sizes must be equal or 1, counted from the last axis",
        ) from None
    padded = (1,) * (len(shape) - x.ndim) + tuple(x.shape)
    one = [padded[-2] == 1 and shape[-2] > 1, padded[-1] == 1 and shape[-1] > 1]
    kind = "1" if all(one) else "r" if one[0] else "c" if one[1] else "-"
    cut = whole[..., : 1 if one[0] else None, : 1 if one[1] else None]
    return cut.reshape(P, *cut.shape[-2:]), kind


_TURNED = {"r": "c", "c": "r", "1": "1", "-": "-"}


def _launch(a: Any, b: Any, extras: list, c: Any, epilogue: Any, tile: Any, scales: Any, precision: str) -> None:
    P, M, K = a.shape
    N = b.shape[-1]
    if len(extras) > 3:
        raise _core.error("E_ARGUMENT", f"expected at most three arrays for an epilogue, got {len(extras)}", "combine some first")
    # The autotuner searches tiles only; with split-K the tiles of the plan are used.
    measured = tile == "tune" and scales is None
    chosen = planned(a, b, None if tile == "tune" else tile, precision)
    a, b = _laid_out(a, b, chosen)
    zero = _zero(sums_of(arrays.dtype_of(a), arrays.dtype_of(b)))
    if scales is None and chosen.swapped:
        a, b, c = (arrays.permuted(x, (0, 2, 1)) for x in (b, a, c))
        extras = [(arrays.permuted(x, (0, 2, 1)), _TURNED[kind]) for x, kind in extras]
    count = len(extras)
    filled = [x for x, _ in extras] + [a] * (3 - count)
    kinds = [kind for _, kind in extras] + ["-"] * (3 - count)
    more = (chosen.num_warps, chosen.num_stages, chosen.cluster_m, chosen.cluster_n, chosen.warp_specialization, int(chosen.persistent))
    if scales is not None:
        rows, squares = scales
        # Each iteration reads one scale of every row of a tile: they should be contiguous along the rows.
        if arrays.on_device(a) and M >= WORTH_PADDING and rows.shape[-1] > 1 and not arrays.lies_along(rows, -2):
            rows = pad.along(rows, -2)
        block_scaled(a, b, rows, squares, *filled, c, epilogue, count, 128, 128, *more[:2], *kinds)
    elif chosen.split > 1:
        steps = -(-K // chosen.tile[2])
        each = -(-steps // chosen.split) * chosen.tile[2]
        sums = arrays.empty((-(-K // each), *c.shape), sums_of(arrays.dtype_of(a), arrays.dtype_of(b)), a)
        parts(a, b, sums, zero, each, *chosen.tile, *more, precision)
        # Small tiles give many groups: the time of this launch is the latency of its loop over chunks.
        columns = next((n for n in (16, 32, 64, 128) if n >= c.shape[2]), 256)
        combined(sums, *filled, c, epilogue, count, 1024 // columns, columns, *kinds)
    elif measured:
        from . import tuned

        if P == 1:
            tuned.product(a[0], b[0], *filled, c[0], zero, epilogue, count, *kinds, precision)
        else:
            tuned.products(a, b, *filled, c, zero, epilogue, count, *kinds, precision)
    elif P == 1:
        product(a[0], b[0], *filled, c[0], zero, epilogue, count, *chosen.tile, *more, *kinds, precision)
    else:
        products(a, b, *filled, c, zero, epilogue, count, *chosen.tile, *more, *kinds, precision)
