"""Loss scaling for narrow floats: the loss is multiplied before the reverse pass and gradients divided after it; the factor
falls when a gradient is not finite and rises after many good steps."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy

from .. import xp
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import aval
from ..tree import pytree
from . import _checks as check


@dataclass(frozen=True)
class LossScaler:
    """``state = scaler.init()``; ``scaler.scale(loss, state)``; ``grads, ok = scaler.unscale(grads, state)``;
    ``state = scaler.update(state, ok)``; ``params = scaler.choose(ok, new, old)``."""

    start: float = 2.0**15
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def __post_init__(self) -> None:
        check.number("LossScaler", "start", self.start, 0.0, open_low=True)
        check.number("LossScaler", "growth", self.growth, 1.0)
        check.number("LossScaler", "backoff", self.backoff, 0.0, 1.0, open_low=True)
        check.count("LossScaler", "interval", self.interval)

    def init(self) -> dict:
        return {"scale": numpy.asarray(self.start, numpy.float32), "good": numpy.asarray(0, numpy.int64)}

    def scale(self, loss: Any, state: dict) -> Any:
        return _scaled(loss, state["scale"])

    def unscale(self, grads: Any, state: dict) -> tuple[Any, Any]:
        return _unscaled(grads, state["scale"])

    def update(self, state: dict, ok: Any) -> dict:
        return _updated(self, state, ok)

    def choose(self, ok: Any, new: Any, old: Any) -> Any:
        """``new`` where the step was good, else ``old``."""
        return _chosen(ok, new, old)


@eager
def _scaled(loss: Any, scale: Any) -> Any:
    return xp.multiply(loss, p.cast(scale, aval(loss)[1]))


@eager
def _unscaled(grads: Any, scale: Any) -> tuple[Any, Any]:
    by = xp.reciprocal(scale)
    out = pytree.map(lambda g: p.cast(g, "f64" if aval(g)[1] == "f64" else "f32") * by, grads)
    good = [xp.all(xp.isfinite(g)) for g in pytree.leaves(out)]
    return out, functools.reduce(xp.logical_and, good)


@eager
def _updated(scaler: LossScaler, state: dict, ok: Any) -> dict:
    good = xp.where(ok, xp.add(state["good"], 1), 0)
    grow = xp.equal(good, scaler.interval)
    scale = xp.where(ok, xp.where(grow, xp.multiply(state["scale"], scaler.growth), state["scale"]),
                     xp.multiply(state["scale"], scaler.backoff))  # fmt: skip
    return {"scale": p.cast(scale, "f32"), "good": xp.where(grow, 0, good)}


@eager
def _chosen(ok: Any, new: Any, old: Any) -> Any:
    return pytree.map(lambda a, b: xp.where(ok, a, b), new, old)
