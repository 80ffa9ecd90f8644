"""`ts.linearize`: the derivative at a point as a linear function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..trace import prim as p
from ..trace.eval_shape import ShapeDtypeStruct
from ..trace.jit import eager
from ..trace.tracer import aval, fail
from ..tree import pytree
from .derivatives import vjp

_zeros = eager(lambda shape, dtype: p.splat(0, shape, p.name_of(dtype)))


def linearize(fn: Callable, *primals: Any) -> tuple:
    """``(y, push)``: the result, and the derivative at ``primals`` as a function of tangents. What it needs of ``fn`` is computed once."""
    y, pull = vjp(fn, *primals)
    y_leaves, y_form = pytree.opened(y)
    _, form = pytree.opened(tuple(primals))
    # The transpose of the pullback: linear in the cotangent, so that its own pullback needs no point.
    start = [ShapeDtypeStruct(aval(v)[0], aval(v)[1]) for v in y_leaves]

    def push(*tangents: Any) -> Any:
        given, got = pytree.opened(tuple(tangents))
        if pytree.closed(got) != pytree.closed(form):
            raise fail("E_ARGUMENT", f"linearize: expected tangents of the form {form}, got {got}", "give one for each argument")
        zeros = [_zeros(s.shape, s.dtype) for s in start]
        _, back = vjp(lambda *cts: pytree.leaves(pull(pytree.unflatten(y_form, list(cts)))), *zeros)
        return pytree.unflatten(y_form, pytree.opened(back(given))[0])

    return y, push
