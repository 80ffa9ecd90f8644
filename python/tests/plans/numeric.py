"""Derivatives by differences: what `grad`, `value_and_grad`, `vjp` and `jvp` give, without the rules of derivatives.

A function is evaluated near its argument, in f64, along every element. That is accurate where it is smooth. Where an element is
near a kink (`relu`, `max`, `sort`), other steps and other arguments are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tessera as ts
from tessera import xp


def _along(fn: Callable, at: int, args: tuple, direction: Any, step: float, side: int) -> Any:
    """The derivative of ``fn`` by one argument along a direction, to the fourth order of the step; with a side, 1 or -1, from that side, to the
    second order."""

    def value(k: float) -> Any:
        moved = list(args)
        moved[at] = args[at] + direction * (k * step)
        return fn(*moved)

    if side:
        return (4.0 * value(side) - value(2.0 * side) - 3.0 * value(0.0)) * (side / (2.0 * step))
    return (8.0 * (value(1.0) - value(-1.0)) - (value(2.0) - value(-2.0))) * (1.0 / (12.0 * step))


class Differences:
    """``ts``, with derivatives by differences of this step, on both sides or on one."""

    def __init__(self, step: float, side: int = 0) -> None:
        self._step, self._side = step, side

    def __getattr__(self, name: str) -> Any:
        return getattr(ts, name)

    def jvp(self, fn: Callable, primals: tuple, tangents: tuple) -> tuple:
        return fn(*primals), _along(fn, 0, primals, tangents[0], self._step, self._side)

    def _grad(self, fn: Callable, at: int, args: tuple) -> Any:
        x = args[at]
        n = x.size
        basis = xp.reshape(xp.eye(n, dtype=ts.f64), (n, *x.shape))
        return xp.reshape(ts.vmap(lambda e: _along(fn, at, args, e, self._step, self._side))(basis), x.shape)

    def grad(self, fn: Callable, argnums: Any = 0) -> Callable:
        if isinstance(argnums, tuple):
            return lambda *args: tuple(self._grad(fn, at, args) for at in argnums)
        return lambda *args: self._grad(fn, argnums, args)

    def value_and_grad(self, fn: Callable) -> Callable:
        return lambda *args: (fn(*args), self._grad(fn, 0, args))

    def vjp(self, fn: Callable, *primals: Any) -> tuple:
        return fn(*primals), lambda ct: (self._grad(lambda *a: xp.sum(fn(*a) * ct), 0, primals),)

    def checkpoint(self, fn: Callable) -> Callable:
        return fn
