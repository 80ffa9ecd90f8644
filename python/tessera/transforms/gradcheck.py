"""Checks gradients against finite differences."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy

from ..base.promotion import is_float
from ..trace.jit import run_once
from ..trace.tracer import as_tracer, aval, fail
from ..tree import pytree
from .derivatives import grad


def gradcheck(fn: Callable, *args: Any, eps: float = 1e-6, rtol: float = 1e-5, atol: float = 1e-7) -> bool:
    """Compares gradients with central differences in f64; raises where they differ."""
    wide = tuple(pytree.map(lambda v: numpy.asarray(v, numpy.float64) if is_float(aval(v)[1]) else v, a) for a in args)
    chosen = tuple(i for i, a in enumerate(wide) if any(is_float(aval(v)[1]) for v in pytree.leaves(a)))

    def total(*a: Any) -> Any:
        parts = [as_tracer(v).sum() for v in pytree.leaves(fn(*a))]
        return functools.reduce(lambda x, y: x + y, parts)

    got = grad(total, argnums=chosen)(*wide)
    for i, g in zip(chosen, got, strict=True):
        leaves, form = pytree.flatten(wide[i])
        for at, (leaf, mine) in enumerate(zip(leaves, pytree.leaves(g), strict=True)):
            for k in range(leaf.size):
                sides = []
                for step in (eps, -eps):
                    moved = leaf.copy()
                    moved.reshape(-1)[k] += step
                    full = list(wide)
                    full[i] = pytree.unflatten(form, [moved if j == at else v for j, v in enumerate(leaves)])
                    sides.append(float(run_once(total, tuple(full))))
                want = (sides[0] - sides[1]) / (2 * eps)
                have = float(numpy.reshape(mine, -1)[k])
                if not abs(have - want) <= atol + rtol * max(abs(want), 1.0):
                    raise fail(
                        "E_ASSERT", f"gradcheck: expected the derivative by element {k} of argument {i} to be {want!r}, got {have!r}"
                    ) from None
    return True
