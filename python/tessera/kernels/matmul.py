"""Matmul of whole arrays: batch axes, epilogue operands, and which kernel of `gemm` runs."""

from __future__ import annotations

import functools
import operator
from typing import Any, Sequence

import tessera as ts

from .. import _core
from . import arrays, checks, elementwise, pad
from .functions import Function
from .gemm import Epilogue, Tile, block_scaled, combined, dealt, grouped, parts, product, products
from .gemm_plan import WORTH_PADDING, Plan, group_tile, pinned, planned

#: The most arrays that an epilogue reads.
MOST = 3


@functools.lru_cache(maxsize=256)
def epilogue_of(activation: Any, biased: bool, residual: bool, scaled: bool) -> Any:
    """``activation(scale * acc + bias) + residual`` as one function of the operands that are given."""
    if not (biased or residual or scaled):
        return activation
    bias_at, rest_at = int(scaled), int(scaled) + int(biased)

    @ts.func
    def done(acc, a, b=None, c=None):
        given = a, b, c
        t = acc
        if scaled:
            t = t * given[0]
        if biased:
            t = t + given[bias_at]
        t = activation(t)
        return t + given[rest_at] if residual else t

    return done


@ts.func
def with_beta(acc, alpha, beta, c):
    return alpha * acc + beta * c


@ts.func
def with_alpha(acc, alpha):
    return alpha * acc


def turned(x: Any) -> Any:
    """A view with the last two axes exchanged."""
    x = arrays.given(x, "matrix")
    if x.ndim < 2:
        got = f"shape {tuple(x.shape)}"
        raise _core.error("E_SHAPE_MISMATCH", f"expected a matrix to transpose, got {got}", "give it two axes")
    return arrays.permuted(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


#: The accumulator's dtype for operands of these dtypes; f32 for others.
_SUMS = {"f64": ts.f64, "i8": ts.i32, "u8": ts.i32}


def sums_of(a: Any, b: Any) -> Any:
    return _SUMS.get(a.name) or _SUMS.get(b.name) or ts.f32


def _matrices(a: Any, b: Any, precision: str | None) -> tuple[Any, Any, str, Any, tuple[int, ...], tuple[bool, bool]]:
    """Both operands as matrices, the precision and dtype of the accumulator, the batch axes, and which operand is a vector."""
    a, b = arrays.given(a, "a"), arrays.given(b, "b")
    of = _dtypes(a, b)
    mode = _precision(precision, arrays.dtype_of(a))
    if not a.ndim or not b.ndim:
        got = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise _core.error("E_SHAPE_MISMATCH", f"expected matrices or vectors, got shapes {got}", "multiply numbers with `*`")
    vector = (a.ndim == 1, b.ndim == 1)
    a = a.reshape(1, -1) if vector[0] else a
    b = b.reshape(-1, 1) if vector[1] else b
    if a.shape[-1] != b.shape[-2]:
        raise _core.error(
            "E_SHAPE_MISMATCH",
            f"expected the last axis of `a` to be as long as the next to last of `b`, got {tuple(a.shape)} and {tuple(b.shape)}",
            "transpose one of them, or look where its shape comes from",
        )
    batch = elementwise._broadcast([tuple(a.shape[:-2]), tuple(b.shape[:-2])])
    return a, b, mode, of, batch, vector


def _count(batch: Sequence[int]) -> int:
    return functools.reduce(operator.mul, batch, 1)


def _dtypes(a: Any, b: Any) -> Any:
    da, db = arrays.dtype_of(a), arrays.dtype_of(b)
    narrow = ("fp8_e4m3", "fp8_e5m2")
    if da != db and not (da.name in narrow and db.name in narrow):
        raise _core.error("E_TYPE", f"expected matrices of one dtype, got {da} and {db}", "convert one of them first")
    if da.name not in _MULTIPLIED:
        known = ", ".join(_MULTIPLIED)
        raise _core.error("E_TYPE", f"expected matrices of one of {known}, got {da}", "convert both first")
    return sums_of(da, db)


#: The dtypes that kernels multiply.
_MULTIPLIED = ("f64", "f32", "tf32", "bf16", "f16", "fp8_e4m3", "fp8_e5m2", "i8", "u8")


#: Values of ``precision``, by the dtype of the matrices.
_MODES = {"f32": ("f32", "tf32"), "fp8_e4m3": ("f32", "fast"), "fp8_e5m2": ("f32", "fast")}


def _precision(given: str | None, of: Any) -> str:
    known = _MODES.get(of.name, ())
    if given is None or given == "default":
        return "default"
    if given not in known:
        names = ", ".join(repr(name) for name in ("default", *known))
        raise _core.error("E_ARGUMENT", f"`precision`: expected one of {names} for matrices of {of}, got {given!r}", "leave it out")
    return given


def _batched(x: Any, batch: tuple[int, ...], P: int) -> Any:
    """``[P, rows, columns]`` without a copy where strides allow it."""
    return arrays.expand(x, (*batch, *x.shape[-2:])).reshape(P, *x.shape[-2:])


def explain(a: Any, b: Any, tile: Any = None, precision: str | None = None) -> Plan:
    """The plan that `multiply` would use for these arrays. Nothing is computed."""
    a, b, mode, _, batch, _ = _matrices(a, b, precision)
    P = _count(batch)
    return planned(_batched(a, batch, P), _batched(b, batch, P), None if tile == "tune" else tile, mode)


def _laid_out(a: Any, b: Any, chosen: Plan) -> tuple[Any, Any]:
    """The matrices in the memory layout that the plan needs."""
    given = {"A": a, "B": b}
    for name, axis in (("A", -1), ("B", -2)):
        if name in chosen.turned:
            given[name] = pad.along(given[name], axis)
    # A vector becomes a column of rows of its own: no tensor map has neighbours along an axis of one element.
    vectors = {name: axis for name, axis in (("A", -2), ("B", -1)) if name in chosen.padded and given[name].shape[axis] == 1}
    for name, axis in vectors.items():
        given[name] = pad.along(given[name], axis)
    if rest := [name for name in chosen.padded if name not in vectors]:
        given.update(zip(rest, pad.on_good_rows(*(given[name] for name in rest))))
    return given["A"], given["B"]


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
    """An epilogue operand as ``[P, …, …]``, and how it broadcasts: the ``kinds`` of `Function`."""
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
    if len(extras) > MOST:
        raise _core.error("E_ARGUMENT", f"expected at most three arrays for an epilogue, got {len(extras)}", "combine some first")
    # The autotuner searches tiles only; with split-K the tiles of the plan are used.
    measured = tile == "tune" and scales is None
    chosen = planned(a, b, None if tile == "tune" else tile, precision)
    a, b = _laid_out(a, b, chosen)
    zero = arrays.scalar(0, sums_of(arrays.dtype_of(a), arrays.dtype_of(b)))
    if scales is None and chosen.swapped:
        a, b, c = (arrays.permuted(x, (0, 2, 1)) for x in (b, a, c))
        extras = [(arrays.permuted(x, (0, 2, 1)), _TURNED[kind]) for x, kind in extras]
    last = Epilogue.filled(epilogue, [x for x, _ in extras], MOST, a, "".join(kind for _, kind in extras))
    tile_of = chosen.for_kernel(precision)
    if scales is not None:
        rows, squares = scales
        # Each iteration reads one scale of every row of a tile: they should be contiguous along the rows.
        if arrays.on_device(a) and M >= WORTH_PADDING and rows.shape[-1] > 1 and not arrays.lies_along(rows, -2):
            rows = pad.along(rows, -2)
        block_scaled(a, b, rows, squares, last, c, Tile(128, 128, 128, chosen.num_warps, chosen.num_stages))
    elif chosen.split > 1:
        steps = -(-K // chosen.tile[2])
        each = -(-steps // chosen.split) * chosen.tile[2]
        sums = arrays.empty((-(-K // each), *c.shape), sums_of(arrays.dtype_of(a), arrays.dtype_of(b)), a)
        parts(a, b, sums, zero, each, tile_of)
        # Small tiles give many groups: the time of this launch is the latency of its loop over chunks.
        columns = next((n for n in (16, 32, 64, 128) if n >= c.shape[2]), 256)
        combined(sums, last, c, 1024 // columns, columns)
    elif measured:
        from . import tuned

        if P == 1:
            tuned.product(a[0], b[0], last, c[0], zero, precision)
        else:
            tuned.products(a, b, last, c, zero, precision)
    elif P == 1:
        product(a[0], b[0], last, c[0], zero, tile_of)
    else:
        products(a, b, last, c, zero, tile_of)


def grouped_product(a: Any, b: Any, sizes: Any, activation: Any, out_dtype: Any, tile: Any) -> Any:
    """Grouped matmul: rows of ``a`` in groups of ``sizes``, each times its own matrix of ``b``."""
    a, b = arrays.given(a, "a"), arrays.given(b, "b")
    _dtypes(a, b)
    if a.ndim != 2 or b.ndim != 3 or a.shape[1] != b.shape[1]:
        raise _core.error(
            "E_SHAPE_MISMATCH",
            f"expected `a` of shape [rows, K] and `b` of [groups, K, N], got {tuple(a.shape)} and {tuple(b.shape)}",
            "the K of both must be equal",
        )
    sizes = arrays.given(sizes, "sizes")
    if tuple(sizes.shape) != (b.shape[0],):
        raise _core.error(
            "E_SHAPE_MISMATCH",
            f"`sizes`: expected one for each of {b.shape[0]} groups, got shape {tuple(sizes.shape)}",
            "it says how many rows of `a` each group has",
        )
    (T, K), (G, _, N) = a.shape, b.shape
    of = checks.out_dtype(out_dtype, arrays.dtype_of(a), floats=False)
    c = arrays.empty((T, N), of, a)
    zero = arrays.scalar(0, sums_of(arrays.dtype_of(a), arrays.dtype_of(b)))
    if arrays.size(c):
        chosen = Plan(group_tile(T, G, N, K, arrays.dtype_of(a)))
        chosen = pinned(chosen, tile) if tile is not None else chosen
        # At most: the full tiles of all rows, one partial tile for each group, and one for rows of no group.
        table = arrays.empty((T // chosen.tile[0] + G + 1, 3), ts.i64, a)
        dealt(sizes, table, chosen.tile[0])
        tile = Tile(*chosen.tile, chosen.num_warps, chosen.num_stages)
        grouped(a, b, table, c, zero, activation, tile)
    return c
