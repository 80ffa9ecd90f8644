"""Learning rates as functions of the step, which may be traced."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.jit import eager
from . import _checks as check


def _at(step: Any) -> Any:
    return p.cast(step, "f32")


def constant(value: float) -> Callable:
    """A constant rate."""
    check.number("constant", "value", value)
    return lambda step: value


def linear(start: float, end: float, steps: int) -> Callable:
    """From one rate to another over ``steps`` steps, then constant."""
    check.number("linear", "start", start)
    check.number("linear", "end", end)
    check.count("linear", "steps", steps)

    @eager
    def schedule(step: Any) -> Any:
        return xp.clip(_at(step) / float(max(steps, 1)), 0.0, 1.0) * (end - start) + start

    return schedule


def exponential(start: float, factor: float, every: int = 1) -> Callable:
    """Multiplied by ``factor`` every ``every`` steps, smoothly."""
    check.number("exponential", "start", start)
    check.number("exponential", "factor", factor, open_low=True)
    check.count("exponential", "every", every)

    @eager
    def schedule(step: Any) -> Any:
        return xp.exp(_at(step) * (math.log(factor) / every)) * start

    return schedule


def cosine(start: float, steps: int, end: float = 0.0) -> Callable:
    """Half a cosine from one rate to another."""
    check.number("cosine", "start", start)
    check.count("cosine", "steps", steps)
    check.number("cosine", "end", end)

    @eager
    def schedule(step: Any) -> Any:
        part = xp.clip(_at(step) / float(max(steps, 1)), 0.0, 1.0)
        return (xp.cos(part * math.pi) + 1.0) * (0.5 * (start - end)) + end

    return schedule


def warmup_cosine(peak: float, warmup: int, steps: int, end: float = 0.0) -> Callable:
    """Up in a straight line, then down by half a cosine."""
    check.number("warmup_cosine", "peak", peak)
    check.count("warmup_cosine", "warmup", warmup, 0)
    check.count("warmup_cosine", "steps", steps)
    check.number("warmup_cosine", "end", end)
    fall = cosine(peak, max(steps - warmup, 1), end)

    @eager
    def schedule(step: Any) -> Any:
        at = _at(step)
        return xp.where(at < float(warmup), at * (peak / max(warmup, 1)), fall(at - float(warmup)))

    return schedule
