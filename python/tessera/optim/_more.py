"""RMSProp, Adafactor and Muon, by the formulas of optax."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.tracer import aval, fail
from . import _checks as check
from ._optimisers import _Optimiser, _wide


@dataclass(frozen=True)
class RMSProp(_Optimiser):
    """Gradients over the root of the mean of their squares; with ``centered`` over their deviation. ``momentum`` is of the moves."""

    lr: float | Callable = 1e-3
    decay: float = 0.9
    eps: float = 1e-8
    momentum: float = 0.0
    nesterov: bool = False
    centered: bool = False

    def _check(self, what: str) -> None:
        check.number(what, "decay", self.decay, 0.0, 1.0)
        check.number(what, "eps", self.eps)
        check.number(what, "momentum", self.momentum, 0.0, 1.0)
        check.flag(what, "nesterov", self.nesterov)
        check.flag(what, "centered", self.centered)

    @property
    def _moments(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("v", *(("mean",) if self.centered else ()), *(("m",) if self.momentum else ()))

    def _rule(self, w: Any, g: Any, lr: Any, step: Any, moments: list) -> tuple[Any, list]:
        held = dict(zip(self._moments, moments, strict=True))
        if self.weight_decay:
            g = g + w * self.weight_decay
        held["v"] = held["v"] * self.decay + g * g * (1.0 - self.decay)
        spread = held["v"]
        if self.centered:
            held["mean"] = held["mean"] * self.decay + g * (1.0 - self.decay)
            spread = spread - held["mean"] * held["mean"]
        move = g * xp.rsqrt(spread + self.eps) * lr
        if self.momentum:
            held["m"] = held["m"] * self.momentum + move
            move = move + held["m"] * self.momentum if self.nesterov else held["m"]
        return w - move, [held[name] for name in self._moments]


def _factored(shape: tuple, least: int) -> tuple[int, int] | None:
    """The two longest axes, the longest last, where both are long enough to be worth it."""
    if len(shape) < 2:
        return None
    order = sorted(range(len(shape)), key=lambda i: (shape[i], i))
    return None if shape[order[-2]] < least else (order[-2], order[-1])


def _mean_square(x: Any) -> Any:
    return xp.mean(x * x)


@dataclass(frozen=True)
class Adafactor(_Optimiser):
    """Second moments of matrices kept as those of their rows and columns, so that the state is small. The rate is relative to the
    size of each parameter with ``scale_by_size``; moves are clipped to a root mean square of ``clip``."""

    lr: float | Callable = 1e-2
    decay: float = 0.8
    eps: float = 1e-30
    clip: float | None = 1.0
    momentum: float = 0.0
    scale_by_size: bool = True
    least_size: float = 1e-3
    factored_from: int = 128

    def _check(self, what: str) -> None:
        check.number(what, "decay", self.decay, 0.0, open_low=True)
        check.number(what, "eps", self.eps)
        check.number(what, "momentum", self.momentum, 0.0, 1.0)
        check.number(what, "least_size", self.least_size)
        check.count(what, "factored_from", self.factored_from)
        check.flag(what, "scale_by_size", self.scale_by_size)
        if self.clip is not None:
            check.number(what, "clip", self.clip, 0.0, open_low=True)

    @property
    def _moments(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("rows", "columns", "v", *(("m",) if self.momentum else ()))

    def _start(self, name: str, w: Any) -> Any:
        shape, dtype, _ = aval(w)
        axes = _factored(tuple(shape), self.factored_from)
        out = {"rows": None if axes is None else axes[1], "columns": None if axes is None else axes[0]}
        if name in out:
            kept = () if axes is None else tuple(d for i, d in enumerate(shape) if i != out[name])
        else:
            kept = shape if name == "m" or axes is None else ()
        return xp.zeros(kept, dtype=_wide(dtype))

    def _rule(self, w: Any, g: Any, lr: Any, step: Any, moments: list) -> tuple[Any, list]:
        held = dict(zip(self._moments, moments, strict=True))
        decay = 1.0 - xp.pow(step, -float(self.decay))
        square = g * g + self.eps
        axes = _factored(g.shape, self.factored_from)
        if axes is None:
            held["v"] = held["v"] * decay + square * (1.0 - decay)
            move = g * xp.rsqrt(held["v"])
        else:
            short, long = axes
            held["rows"] = held["rows"] * decay + xp.mean(square, long) * (1.0 - decay)
            held["columns"] = held["columns"] * decay + xp.mean(square, short) * (1.0 - decay)
            among = short - 1 if short > long else short
            rows = xp.rsqrt(held["rows"] / xp.mean(held["rows"], among, keepdims=True))
            move = g * p.expand_dims(rows, long) * p.expand_dims(xp.rsqrt(held["columns"]), short)
        if self.clip is not None:
            move = move / xp.maximum(xp.sqrt(_mean_square(move)) / self.clip, 1.0)
        move = move * lr
        if self.scale_by_size:
            move = move * xp.maximum(xp.sqrt(_mean_square(w)), self.least_size)
        if self.momentum:
            held["m"] = held["m"] * self.momentum + move * (1.0 - self.momentum)
            move = held["m"]
        if self.weight_decay:
            move = move + w * self.weight_decay
        return w - move, [held[name] for name in self._moments]


def _orthogonal(x: Any, steps: int, factors: tuple, eps: float) -> Any:
    """The nearest matrix with singular values about 1, by the iteration of Newton and Schulz."""
    tall = x.shape[0] > x.shape[1]
    x = xp.matrix_transpose(x) if tall else x
    x = x / (xp.sqrt(xp.sum(x * x)) + eps)
    a, b, c = factors
    for _ in range(steps):
        square = xp.matmul(x, xp.matrix_transpose(x))
        x = x * a + xp.matmul(square * b + xp.matmul(square, square) * c, x)
    return xp.matrix_transpose(x) if tall else x


@dataclass(frozen=True)
class Muon(_Optimiser):
    """Momentum of matrices made orthogonal; parameters that are no matrices are updated by AdamW with the rate ``adam_lr``, or the same.
    Embeddings and the last layer are better updated by AdamW too: see `groups`."""

    lr: float | Callable = 2e-2
    momentum: float = 0.95
    nesterov: bool = True
    steps: int = 5
    factors: tuple[float, float, float] = (3.4445, -4.7750, 2.0315)
    eps: float = 1e-8
    adam_lr: float | None = None
    adam_b1: float = 0.9
    adam_b2: float = 0.999

    _moments = ("m", "v")

    def _check(self, what: str) -> None:
        check.number(what, "momentum", self.momentum, 0.0, 1.0)
        check.flag(what, "nesterov", self.nesterov)
        check.count(what, "steps", self.steps)
        check.number(what, "eps", self.eps)
        check.number(what, "adam_b1", self.adam_b1, 0.0, 1.0)
        check.number(what, "adam_b2", self.adam_b2, 0.0, 1.0)
        if self.adam_lr is not None:
            check.number(what, "adam_lr", self.adam_lr)
        if len(self.factors) != 3:
            raise fail("E_ARGUMENT", f"{what}: expected three `factors`, got {len(self.factors)}", "leave them out")

    def _start(self, name: str, w: Any) -> Any:
        shape, dtype, _ = aval(w)
        return xp.zeros(() if name == "v" and len(shape) == 2 else shape, dtype=_wide(dtype))

    def _rule(self, w: Any, g: Any, lr: Any, step: Any, moments: list) -> tuple[Any, list]:
        m, v = moments
        if len(g.shape) != 2:
            b1, b2 = self.adam_b1, self.adam_b2
            m, v = m * b1 + g * (1.0 - b1), v * b2 + g * g * (1.0 - b2)
            move = m / (1.0 - xp.pow(b1, step)) / (xp.sqrt(v / (1.0 - xp.pow(b2, step))) + self.eps)
            lr = lr if self.adam_lr is None else self.adam_lr
        else:
            b = self.momentum
            m = m * b + g * (1.0 - b)
            if self.nesterov:
                move = m * b / (1.0 - xp.pow(b, step + 1.0)) + g * (1.0 - b) / (1.0 - xp.pow(b, step))
            else:
                move = m / (1.0 - xp.pow(b, step))
            move = _orthogonal(move, self.steps, self.factors, self.eps)
            move = move * math.sqrt(max(1.0, g.shape[1] / g.shape[0]))
        if self.weight_decay:
            move = move + w * self.weight_decay
        return w - move * lr, [m, v]
