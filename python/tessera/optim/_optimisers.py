"""Optimisers: SGD, Adam, AdamW and Lion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import as_tracer, aval, fail
from ..tree import pytree
from . import _checks as check

_NARROW = {"f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1"}


def _wide(dtype: str) -> str:
    return "f64" if dtype == "f64" else "f32"


def _rate(lr: Any, step: Any) -> Any:
    return lr(step) if callable(lr) else lr


@dataclass(frozen=True)
class _Optimiser:
    """The base of all optimisers: master weights, the count of steps, and trees of moments."""

    lr: float | Callable = 1e-3
    weight_decay: float = 0.0
    master: bool = True

    _moments = ()

    def __post_init__(self) -> None:
        what = type(self).__name__
        check.rate(what, self.lr)
        check.number(what, "weight_decay", self.weight_decay)
        check.flag(what, "master", self.master)
        self._check(what)

    def _check(self, what: str) -> None:
        """Checks the hyperparameters that only this optimiser has."""

    def init(self, params: Any) -> dict:
        """The state before the first step."""
        import numpy

        check.floats(type(self).__name__, params)
        state: dict[str, Any] = {"step": numpy.asarray(0, numpy.int64)}
        for name in self._moments:
            state[name] = pytree.map(lambda v, name=name: self._start(name, v), params)
        if self.master and any(aval(v)[1] in _NARROW for v in pytree.leaves(params)):
            state["master"] = pytree.map(lambda v: xp.astype(v, "f32") if aval(v)[1] in _NARROW else v, params)
        return state

    def _start(self, name: str, w: Any) -> Any:
        """A moment of a parameter before the first step."""
        return xp.zeros(aval(w)[0], dtype=_wide(aval(w)[1]))

    def update(self, params: Any, grads: Any, state: dict) -> tuple[Any, dict]:
        """Parameters and state after one step."""
        return _update(self, params, grads, state)

    def _rule(self, w: Any, g: Any, lr: Any, step: Any, moments: list) -> tuple[Any, list]:
        raise NotImplementedError


@eager
def _update(opt: _Optimiser, params: Any, grads: Any, state: dict) -> tuple[Any, dict]:
    leaves, form = pytree.flatten(params)
    given, grads_form = pytree.flatten(grads)
    if form != grads_form:
        raise fail(
            "E_ARGUMENT",
            f"expected gradients of the form of the parameters, {pytree.difference(form, grads_form)}",
            "pass what `ts.grad` gives for the same parameters",
        )
    check.floats(type(opt).__name__, params)
    step = as_tracer(state["step"]) + 1
    # The first update is at step 0 of a schedule; the corrections of moments count from 1.
    lr = _rate(opt.lr, step - 1)
    kept = pytree.leaves(state["master"]) if "master" in state else leaves
    moments = [pytree.leaves(state[name]) for name in opt._moments]
    new, new_kept, new_moments = [], [], [[] for _ in opt._moments]
    for i, (w, g) in enumerate(zip(leaves, given, strict=True)):
        if aval(w)[0] != aval(g)[0]:
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected a gradient of shape {list(aval(w)[0])}, got {list(aval(g)[0])}",
                "pass what `ts.grad` gives for the same parameters",
            )
        wide = _wide(aval(kept[i])[1])
        have = p.cast(kept[i], wide)
        held = [m[i] for m in moments]
        # Nothing to change: shapes without elements have no norms and no aspect ratios.
        w2, changed = (have, held) if 0 in have.shape else opt._rule(have, p.cast(g, wide), _as(lr, wide), _as(step, wide), held)
        new.append(p.cast(w2, aval(w)[1]))
        new_kept.append(p.cast(w2, aval(kept[i])[1]))
        for store, value in zip(new_moments, changed, strict=True):
            store.append(value)
    out = dict(state, step=step, **{n: pytree.unflatten(form, m) for n, m in zip(opt._moments, new_moments, strict=True)})
    if "master" in state:
        out["master"] = pytree.unflatten(form, new_kept)
    return pytree.unflatten(form, new), out


def _as(x: Any, dtype: str) -> Any:
    return x if isinstance(x, (int, float)) else p.cast(x, dtype)


@dataclass(frozen=True)
class SGD(_Optimiser):
    """w -= lr * g, with momentum (and Nesterov's form of it)."""

    lr: float | Callable = 1e-2
    momentum: float = 0.0
    nesterov: bool = False

    def _check(self, what: str) -> None:
        check.number(what, "momentum", self.momentum, 0.0, 1.0)
        check.flag(what, "nesterov", self.nesterov)
        if self.nesterov and not self.momentum:
            raise fail("E_ARGUMENT", f"{what}: expected a momentum above 0 with `nesterov=True`, got {self.momentum!r}",
                       "write `momentum=0.9`")  # fmt: skip

    @property
    def _moments(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("m",) if self.momentum else ()

    def _rule(self, w: Any, g: Any, lr: Any, step: Any, moments: list) -> tuple[Any, list]:
        if self.weight_decay:
            g = g + w * self.weight_decay
        if not self.momentum:
            return w - g * lr, []
        m = moments[0] * self.momentum + g
        move = g + m * self.momentum if self.nesterov else m
        return w - move * lr, [m]


@dataclass(frozen=True)
class Adam(_Optimiser):
    """First and second moments, corrected for their beginning at zero. Weight decay is added to the gradient."""

    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8

    _moments = ("m", "v")
    _decoupled = False

    def _check(self, what: str) -> None:
        check.number(what, "b1", self.b1, 0.0, 1.0)
        check.number(what, "b2", self.b2, 0.0, 1.0)
        check.number(what, "eps", self.eps)

    def _rule(self, w: Any, g: Any, lr: Any, step: Any, moments: list) -> tuple[Any, list]:
        if self.weight_decay and not self._decoupled:
            g = g + w * self.weight_decay
        m = moments[0] * self.b1 + g * (1.0 - self.b1)
        v = moments[1] * self.b2 + g * g * (1.0 - self.b2)
        whole_m = m / (1.0 - xp.pow(self.b1, step))
        whole_v = v / (1.0 - xp.pow(self.b2, step))
        move = whole_m / (xp.sqrt(whole_v) + self.eps)
        if self.weight_decay and self._decoupled:
            move = move + w * self.weight_decay
        return w - move * lr, [m, v]


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with weight decay beside the moments."""

    weight_decay: float = 0.01

    _decoupled = True


@dataclass(frozen=True)
class Lion(_Optimiser):
    """The sign of a mixture of moment and gradient."""

    lr: float | Callable = 1e-4
    b1: float = 0.9
    b2: float = 0.99

    _moments = ("m",)

    def _check(self, what: str) -> None:
        check.number(what, "b1", self.b1, 0.0, 1.0)
        check.number(what, "b2", self.b2, 0.0, 1.0)

    def _rule(self, w: Any, g: Any, lr: Any, step: Any, moments: list) -> tuple[Any, list]:
        move = xp.sign(moments[0] * self.b1 + g * (1.0 - self.b1))
        if self.weight_decay:
            move = move + w * self.weight_decay
        return w - move * lr, [moments[0] * self.b2 + g * (1.0 - self.b2)]
