"""Linear algebra: matmul, `einsum` and their relatives."""

from __future__ import annotations

import string
from typing import Any

from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import Tracer, as_tracer, fail


@eager
def matmul(x1: Any, x2: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Matmul, for each position of the leading axes, which are broadcast. ``preferred_element_type`` is the dtype of the
    accumulator and the result where it is not that of the arrays. f32 operands are never rounded, whatever ``precision`` is."""
    return product(x1, x2, None if preferred_element_type is None else p.name_of(preferred_element_type))


def product(x1: Any, x2: Any, out: str | None = None) -> Any:
    """As `matmul`; ``out`` is the dtype of the result, where it is not that of the arrays."""
    a, b = as_tracer(x1), as_tracer(x2)
    if not a.ndim or not b.ndim:
        raise fail("E_SHAPE_MISMATCH", f"expected arrays with axes, got {p.show(a.shape)} and {p.show(b.shape)}",
                   "multiply numbers with `*`")  # fmt: skip
    inner_a, inner_b = a.shape[-1], b.shape[-2 if b.ndim > 1 else 0]
    if inner_a != inner_b:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"matmul: expected the last axis of the first ({inner_a}) and the one before the last of the second ({inner_b}) "
            f"to agree, got {p.show(a.shape)} and {p.show(b.shape)}",
            "transpose one of them, or check which axis holds the features",
        )
    if a.ndim == 1 or b.ndim <= 2:
        if a.ndim == 1 and b.ndim > 2:
            return _drop(product(p.expand_dims(a, 0), b, out), -2)
        return p.dot(a, b, ([a.ndim - 1], [b.ndim - 2 if b.ndim > 1 else 0]), out=out)
    if a.ndim == 2:
        # The matrix is the same for all: its rows end up before the columns.
        made = p.dot(b, a, ([b.ndim - 2], [1]), out=out)
        rank = made.ndim
        return p.transpose(made, [*range(rank - 2), rank - 1, rank - 2])
    lead = p.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = p.broadcast_to(a, (*lead, *a.shape[-2:]))
    b = p.broadcast_to(b, (*lead, *b.shape[-2:]))
    batch = list(range(len(lead)))
    return p.dot(a, b, ([a.ndim - 1], [b.ndim - 2]), (batch, batch), out=out)


def _drop(x: Tracer, axis: int) -> Tracer:
    at = axis % x.ndim
    return p.reshape(x, [d for i, d in enumerate(x.shape) if i != at])


@eager
def matrix_transpose(x: Any) -> Any:
    """The last two axes exchanged."""
    x = as_tracer(x)
    return p.transpose(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


@eager
def vecdot(x1: Any, x2: Any, *, axis: int = -1) -> Any:
    """Sum of products along an axis."""
    given = as_tracer(x1).shape, as_tracer(x2).shape
    (a, b), _ = p.together(x1, x2)
    at = p.axis_of(axis, a.ndim)
    # Counted from the end, so that it is one axis of both; it is not stretched.
    back = at - a.ndim
    if any(len(s) < -back for s in given) or given[0][back] != given[1][back]:
        raise fail("E_SHAPE_MISMATCH", f"vecdot: expected axis {axis} of both to agree, got {p.show(given[0])} and {p.show(given[1])}",
                   "give arrays with as many elements along the axis that is summed")  # fmt: skip
    batch = [i for i in range(a.ndim) if i != at]
    return p.dot(a, b, ([at], [at]), (batch, batch))


@eager
def outer(x1: Any, x2: Any) -> Any:
    """The outer product of two vectors; arrays of more axes are flattened."""
    a, b = (x if (x := as_tracer(v)).ndim == 1 else p.reshape(x, [-1]) for v in (x1, x2))
    return p.ew("mul", p.expand_dims(a, 1), p.expand_dims(b, 0))


@eager
def tensordot(x1: Any, x2: Any, axes: Any = 2, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Sums of products over pairs of axes, or over the last ``axes`` axes of ``x1`` and the first of ``x2``."""
    a, b = as_tracer(x1), as_tracer(x2)
    if isinstance(axes, int):
        pair = (list(range(a.ndim - axes, a.ndim)), list(range(axes)))
    else:
        left, right = ([v] if isinstance(v, int) else list(v) for v in axes)
        pair = ([p.axis_of(v, a.ndim) for v in left], [p.axis_of(v, b.ndim) for v in right])
    return p.dot(a, b, pair, out=preferred_element_type)


def _letters(spec: str, ranks: list[int]) -> tuple[list[str], str]:
    """Each operand's letters and the result's, with ``...`` written out."""
    inputs, arrow, out = spec.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ranks):
        raise fail(
            "E_ARGUMENT",
            f"einsum: expected {len(terms)} arrays for `{spec}`, got {len(ranks)}",
            "give one array for each part before `->`",
        )
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in spec]
    most = 0
    full = []
    for term, rank in zip(terms, ranks, strict=True):
        if "..." in term:
            n = rank - len(term.replace("...", ""))
            most = max(most, n)
            term = term.replace("...", "." * n)
        elif len(term) != rank:
            raise fail(
                "E_SHAPE_MISMATCH",
                f"einsum: expected {len(term)} axes for `{term}` of `{spec}`, got {rank}",
                "write one letter for each axis",
            )
        full.append(term)
    dots = "".join(spare[:most])
    full = [_undot(t, dots) for t in full]
    if arrow:
        result = out.replace("...", dots)
        wrong = [c for c in result if c not in "".join(full)] or [c for c in result if result.count(c) > 1]
        if wrong:
            raise fail("E_ARGUMENT", f"einsum: expected each letter of the result of `{spec}` once, and in one of the arrays, got `{wrong[0]}`",
                       "the letters after `->` name axes of the arrays")  # fmt: skip
    else:
        every = "".join(full)
        result = dots + "".join(sorted(c for c in set(every) - set(dots) if every.count(c) == 1))
    return full, result


def _undot(term: str, dots: str) -> str:
    n = term.count(".")
    return term.replace("." * n, dots[len(dots) - n :]) if n else term


def _diagonal(x: Tracer, letters: str) -> tuple[Tracer, str]:
    """Repeated letters of one operand name its diagonal."""
    for c in dict.fromkeys(letters):
        while letters.count(c) > 1:
            i = letters.index(c)
            j = letters.index(c, i + 1)
            shape = x.shape
            on = p.ew("eq", p.iota(shape, i), p.iota(shape, j))
            zero = p.splat(0, (), x._dtype)
            x = p.reduce("sum", p.select(on, x, zero), j)
            letters = letters[:j] + letters[j + 1 :]
    return x, letters


def _reduced(x: Tracer, letters: str, keep: set[str]) -> tuple[Tracer, str]:
    """Sums over letters that no other operand has."""
    gone = [i for i, c in enumerate(letters) if c not in keep]
    return (p.reduce("sum", x, gone), "".join(c for c in letters if c in keep)) if gone else (x, letters)


def einsum(spec: Any, *arrays: Any, precision: Any = None, preferred_element_type: Any = None, optimize: Any = None) -> Any:
    """Sums of products by letters: ``einsum("bqd,bkd->bqk", q, k)``, or by numbers, ``einsum(q, [0, 1], k, [2, 1], [0, 2])``. Operands are
    taken from left to right. ``preferred_element_type`` is the dtype of the accumulator and the result where it is not that of the
    arrays. f32 operands are never rounded, whatever ``precision`` is."""
    if not isinstance(spec, str):
        spec, arrays = _lettered((spec, *arrays))
    return _einsum(spec, *arrays, out=None if preferred_element_type is None else p.name_of(preferred_element_type))


def _lettered(given: tuple) -> tuple[str, tuple]:
    """Operands with lists of numbers behind them, and perhaps a list for the result, as letters and operands."""
    letter = lambda n: "..." if n is Ellipsis else (string.ascii_letters[n] if 0 <= n < 52 else "?")
    count = len(given) // 2
    try:
        terms = ["".join(letter(n) for n in numbers) for numbers in given[1 : 2 * count : 2]]
        end = "->" + "".join(letter(n) for n in given[-1]) if len(given) % 2 else ""
    except TypeError:
        raise fail("E_ARGUMENT", "einsum: expected letters first, or a list of numbers behind each array",
                   'write `einsum("ij,jk->ik", a, b)`, or `einsum(a, [0, 1], b, [1, 2], [0, 2])`') from None  # fmt: skip
    return ",".join(terms) + end, given[0 : 2 * count : 2]


@eager
def _einsum(spec: str, *arrays: Any, out: str | None = None) -> Any:
    operands = [as_tracer(a) for a in arrays]
    terms, result = _letters(spec, [a.ndim for a in operands])
    extents: dict[str, int] = {}
    for x, term in zip(operands, terms, strict=True):
        for d, c in zip(x.shape, term, strict=True):
            if extents.setdefault(c, d) not in (d, 1) and d != 1:
                raise fail(
                    "E_SHAPE_MISMATCH",
                    f"einsum: expected one extent for `{c}` of `{spec}`, got {extents[c]} and {d}",
                    "use another letter for an axis of another extent",
                )
            extents[c] = max(extents[c], d)
    ready = []
    for x, term in zip(operands, terms, strict=True):
        x = p.broadcast_to(x, [extents[c] for c in term])
        ready.append(_diagonal(x, term))
    while len(ready) > 1:
        (a, la), (b, lb) = ready[0], ready[1]
        later = set(result) | {c for _, term in ready[2:] for c in term}
        a, la = _reduced(a, la, later | set(lb))
        b, lb = _reduced(b, lb, later | set(la))
        both = [c for c in la if c in lb]
        batch = [c for c in both if c in later]
        contract = [c for c in both if c not in later]
        made = p.dot(
            a, b,
            ([la.index(c) for c in contract], [lb.index(c) for c in contract]),
            ([la.index(c) for c in batch], [lb.index(c) for c in batch]),
            out=out,
        )  # fmt: skip
        letters = batch + [c for c in la if c not in both] + [c for c in lb if c not in both]
        ready = [(made, "".join(letters)), *ready[2:]]
    x, letters = ready[0] if out is None or ready[0][0]._dtype == out else (p.cast(ready[0][0], out), ready[0][1])
    x, letters = _reduced(x, letters, set(result))
    return p.transpose(x, [letters.index(c) for c in result])
