"""A function of each part of arrays, one after another or in batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..trace import prim as p
from ..trace.control import scan
from ..trace.jit import eager
from ..trace.tracer import as_tracer, fail
from ..tree import pytree
from .batching import vmap


def map(f: Callable, xs: Any, *, batch_size: int | None = None) -> Any:  # noqa: A001
    """``f`` of each part of ``xs`` along the first axis, one after the other or in batches of ``batch_size``, and the results joined."""
    return _map(f, xs, batch_size)


@eager
def _map(f: Callable, xs: Any, batch_size: int | None) -> Any:
    xs = pytree.map(as_tracer, xs)
    leaves = pytree.leaves(xs)
    if not leaves or any(not v.shape for v in leaves):
        raise fail("E_SHAPE_MISMATCH", "map: expected arrays with a first axis", "give arrays with one part for each call")
    n = leaves[0].shape[0]
    if batch_size is None or isinstance(n, int) and n == 0:
        return scan(lambda c, x: (c, f(x)), (), xs)[1]
    if batch_size < 1:
        raise fail("E_ARGUMENT", f"map: expected `batch_size` of 1 or more, got {batch_size}", "leave it out for one at a time")
    whole, rest = divmod(n, batch_size)

    def part(a: int, b: int) -> Any:
        return pytree.map(lambda v: p.slice_(v, [a] + [0] * (v.ndim - 1), [b, *v.shape[1:]], [1] * v.ndim), xs)

    made = []
    if whole:
        first = pytree.map(lambda v: p.reshape(v, [whole, batch_size, *v.shape[1:]]), part(0, whole * batch_size))
        rows = scan(lambda c, x: (c, vmap(f)(x)), (), first)[1]
        made.append(pytree.map(lambda v: p.reshape(v, [whole * batch_size, *v.shape[2:]]), rows))
    if rest:
        made.append(vmap(f)(part(whole * batch_size, n)))
    return made[0] if len(made) == 1 else pytree.map(lambda *v: p.concat(list(v), 0), *made)
