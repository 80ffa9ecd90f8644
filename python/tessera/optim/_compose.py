"""Composition of optimisers: gradient transforms before an optimiser, an optimiser for each group of parameters, averages of parameters,
and gradient accumulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from .. import xp
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import as_tracer, aval, fail
from ..tree import pytree
from . import _checks as check
from ._clip import clip_by_global_norm, clip_by_value

_HELP = "pass what `ts.grad` gives for the same parameters"


def _same(params: Any, grads: Any) -> None:
    if pytree.flatten(params)[1] != pytree.flatten(grads)[1]:
        raise fail("E_ARGUMENT", f"expected gradients of the form of the parameters, {pytree.flatten(params)[1]}, got {pytree.flatten(grads)[1]}", _HELP)


@dataclass(frozen=True)
class Transform:
    """A change of gradients, for `chain`: ``start(params)`` gives its state, ``change(grads, state, params)`` gives ``(grads, state)``."""

    change: Callable
    start: Callable = lambda params: ()

    def init(self, params: Any) -> Any:
        return self.start(params)


def stateless(change: Callable) -> Transform:
    """A change of gradients that is a function ``change(grads, params)``."""
    return Transform(lambda grads, state, params: (change(grads, params), state))


def clip_norm(limit: float) -> Transform:
    """Gradients scaled down together to a norm of at most ``limit``."""
    check.number("clip_norm", "limit", limit, 0.0, open_low=True)
    return stateless(lambda grads, params: clip_by_global_norm(grads, limit))


def clip_value(limit: float) -> Transform:
    """Every element of the gradients between -limit and limit."""
    check.number("clip_value", "limit", limit, 0.0, open_low=True)
    return stateless(lambda grads, params: clip_by_value(grads, limit))


def scale(factor: float) -> Transform:
    """Gradients times a number."""
    return stateless(lambda grads, params: pytree.map(lambda g: xp.multiply(g, factor), grads))


def add_weight_decay(rate: float, mask: Any = None) -> Transform:
    """Gradients plus ``rate`` times the parameters, where the mask is true."""
    check.number("add_weight_decay", "rate", rate)

    def change(grads: Any, params: Any) -> Any:
        chosen = pytree.unflatten(pytree.flatten(params)[1], _marks(mask, params, "mask")) if mask is not None else None
        if chosen is None:
            return pytree.map(lambda g, w: xp.add(g, xp.multiply(w, rate)), grads, params)
        return pytree.map(lambda g, w, m: xp.add(g, xp.multiply(w, rate)) if m else g, grads, params, chosen)

    return stateless(change)


def momentum(decay: float = 0.9, nesterov: bool = False) -> Transform:
    """Gradients plus ``decay`` times those before."""
    check.number("momentum", "decay", decay, 0.0, 1.0)

    def change(grads: Any, state: Any, params: Any) -> tuple:
        held = pytree.map(lambda m, g: xp.add(xp.multiply(m, decay), g), state, grads)
        return (pytree.map(lambda m, g: xp.add(xp.multiply(m, decay), g), held, grads) if nesterov else held), held

    return Transform(change, lambda params: pytree.map(xp.zeros_like, params))


@dataclass(frozen=True)
class Chain:
    """See `chain`."""

    parts: tuple

    def init(self, params: Any) -> tuple:
        return tuple(part.init(params) for part in self.parts)

    def update(self, params: Any, grads: Any, state: tuple) -> tuple[Any, tuple]:
        _same(params, grads)
        if not isinstance(state, (tuple, list)) or len(state) != len(self.parts):
            got = f"one of {len(state)}" if isinstance(state, (tuple, list)) else f"a value of type {type(state).__name__}"
            raise fail("E_ARGUMENT", f"chain: expected the state of {len(self.parts)} parts, got {got}", "begin with `state = opt.init(params)`")
        return _chained(self, params, grads, state)


@eager
def _chained(chained: Chain, params: Any, grads: Any, state: tuple) -> tuple:
    new = []
    for part, own in zip(chained.parts[:-1], state[:-1], strict=True):
        grads, own = part.change(grads, own, params)
        new.append(own)
    last = chained.parts[-1]
    if not isinstance(last, Transform):
        params, own = last.update(params, grads, state[-1])
        return params, (*new, own)
    grads, own = last.change(grads, state[-1], params)
    moved = pytree.map(lambda w, g: p.cast(xp.add(w, g), aval(w)[1]), params, grads)
    return moved, (*new, own)


def chain(*parts: Any) -> Chain:
    """Changes of gradients one after another, the last of them an optimiser: ``chain(clip_norm(1.0), AdamW(3e-4))``. Without an optimiser
    the gradients that come out are added to the parameters: ``chain(momentum(), scale(-1e-2))``."""
    if not parts:
        raise fail("E_ARGUMENT", "chain: expected one part or more", "write `chain(clip_norm(1.0), AdamW(3e-4))`")
    for at, part in enumerate(parts):
        good = isinstance(part, Transform) or (at == len(parts) - 1 and hasattr(part, "update") and hasattr(part, "init"))
        if not good:
            raise fail("E_TYPE", f"chain: expected changes of gradients and an optimiser as the last part, got {type(part).__name__} at {at}",
                       "put the optimiser last; write own changes with `ts.optim.stateless(lambda grads, params: ...)`")  # fmt: skip
    return Chain(tuple(parts))


# Groups


def _marks(given: Any, params: Any, what: str) -> list:
    """A mark for each leaf: of a tree of them (or one above the parameters), or of a function from the path and the leaf."""
    leaves, form = pytree.flatten(params)
    if callable(given):
        return [given(path.lstrip("."), leaf) for path, leaf in zip(pytree.paths(params), leaves, strict=True)]
    if isinstance(given, (bool, str)):
        return [given] * len(leaves)
    marks, got = pytree.flatten(given)
    if got == form:
        return marks
    if isinstance(given, dict) and isinstance(params, dict) and set(given) == set(params):
        return [m for k in pytree._sorted_keys(params) for m in _marks(given[k], params[k], what)]
    if isinstance(given, (list, tuple)) and isinstance(params, (list, tuple)) and len(given) == len(params):
        return [m for a, b in zip(given, params, strict=True) for m in _marks(a, b, what)]
    raise fail("E_ARGUMENT", f"{what}: expected a tree of the form of the parameters, {form}, got {got}",
               "give a mark for each parameter or for a whole part, or a function of the path and the array")  # fmt: skip


@dataclass(frozen=True)
class Groups:
    """See `groups`."""

    optimisers: dict
    labels: Any

    def _places(self, params: Any) -> dict[str, list[int]]:
        out: dict[str, list[int]] = {name: [] for name in self.optimisers}
        for at, label in enumerate(_marks(self.labels, params, "groups")):
            if label not in out:
                raise fail("E_ARGUMENT", f"groups: expected a label among {', '.join(map(repr, out))}, got {label!r} for params{pytree.paths(params)[at]}",
                           "give an optimiser for each label; `ts.optim.Keep()` leaves parameters as they are")  # fmt: skip
            out[label].append(at)
        return out

    def init(self, params: Any) -> dict:
        leaves = pytree.leaves(params)
        return {name: self.optimisers[name].init([leaves[i] for i in places]) for name, places in self._places(params).items()}

    def update(self, params: Any, grads: Any, state: dict) -> tuple[Any, dict]:
        """Parameters and state after one step."""
        _same(params, grads)
        leaves, form = pytree.flatten(params)
        given, out, new = pytree.leaves(grads), list(leaves), {}
        for name, places in self._places(params).items():
            made, new[name] = self.optimisers[name].update([leaves[i] for i in places], [given[i] for i in places], state[name])
            for i, w in zip(places, made, strict=True):
                out[i] = w
        return pytree.unflatten(form, out), new


def groups(optimisers: dict[str, Any], labels: Any) -> Groups:
    """An optimiser for each label of parameters. ``labels`` is a tree of labels, or a function of a parameter's path and array; `Keep()`
    is the optimiser that leaves parameters as they are.

        opt = groups({"muon": Muon(), "adam": AdamW()}, lambda path, w: "muon" if w.ndim == 2 else "adam")
    """
    if not isinstance(optimisers, dict) or not all(hasattr(o, "update") and hasattr(o, "init") for o in optimisers.values()):
        raise fail("E_TYPE", "groups: expected a dict of optimisers by label", 'write `groups({"a": SGD(), "b": AdamW()}, labels)`')
    return Groups(dict(optimisers), labels)


def masked(optimiser: Any, mask: Any) -> Groups:
    """An optimiser for the parameters where the mask is true; the others stay as they are. The mask is a tree of bools, or a function of a
    parameter's path and array."""
    def label(mark: Any) -> str:
        return "in" if mark else "out"

    labels = (lambda path, leaf: label(mask(path, leaf))) if callable(mask) else pytree.map(label, mask)
    return Groups({"in": optimiser, "out": Keep()}, labels)


class Keep:
    """An optimiser that leaves parameters as they are."""

    def init(self, params: Any) -> tuple:
        return ()

    def update(self, params: Any, grads: Any, state: tuple) -> tuple[Any, tuple]:
        """The same parameters."""
        return params, state


# Averages and gathered gradients


@dataclass(frozen=True)
class EMA:
    """An exponential average of parameters: ``state = ema.init(params)``; ``state = ema.update(params, state)``; ``ema.value(state)``. With
    ``debias`` it begins at zero and is corrected for that, else it begins at the parameters."""

    decay: float = 0.999
    debias: bool = False

    def __post_init__(self) -> None:
        check.number("EMA", "decay", self.decay, 0.0, 1.0)
        check.flag("EMA", "debias", self.debias)

    def init(self, params: Any) -> dict:
        return {"step": numpy.asarray(0, numpy.int64), "average": _first(params, self.debias)}

    def update(self, params: Any, state: dict) -> dict:
        return _averaged(self, params, state)

    def value(self, state: dict) -> Any:
        """The average."""
        return _corrected(self.decay, state) if self.debias else state["average"]


def _kind(v: Any) -> str:
    return "f64" if aval(v)[1] == "f64" else "f32"


@eager
def _first(params: Any, zero: bool) -> Any:
    return pytree.map(lambda v: p.cast(xp.zeros_like(v) if zero else v, _kind(v)), params)


@eager
def _averaged(ema: EMA, params: Any, state: dict) -> dict:
    new = pytree.map(lambda a, v: as_tracer(a) * ema.decay + p.cast(v, aval(a)[1]) * (1.0 - ema.decay), state["average"], params)
    return {"step": as_tracer(state["step"]) + 1, "average": new}


@eager
def _corrected(decay: float, state: dict) -> Any:
    step = xp.maximum(p.cast(state["step"], "f32"), 1.0)
    return pytree.map(lambda a: as_tracer(a) / p.cast(1.0 - xp.pow(decay, step), aval(a)[1]), state["average"])


@dataclass(frozen=True)
class Accumulate:
    """See `accumulate`."""

    optimiser: Any
    every: int

    def init(self, params: Any) -> dict:
        zeros = pytree.map(lambda v: xp.zeros(aval(v)[0], dtype=_kind(v)), params)
        return {"count": numpy.asarray(0, numpy.int64), "sum": zeros, "inner": self.optimiser.init(params)}

    def update(self, params: Any, grads: Any, state: dict) -> tuple[Any, dict]:
        """Parameters and state after one step."""
        _same(params, grads)
        return _gathered(self, params, grads, state)


@eager
def _gathered(own: Accumulate, params: Any, grads: Any, state: dict) -> tuple:
    count = as_tracer(state["count"]) + 1
    total = pytree.map(lambda s, g: as_tracer(s) + p.cast(g, aval(s)[1]), state["sum"], grads)
    due = count == own.every
    mean = pytree.map(lambda s, g: p.cast(s * (1.0 / own.every), aval(g)[1]), total, grads)
    moved, inner = own.optimiser.update(params, mean, state["inner"])

    def choose(new: Any, old: Any) -> Any:
        return pytree.map(lambda a, b: xp.where(due, a, b), new, old)

    kept = pytree.map(lambda s: xp.where(due, xp.zeros_like(s), s), total)
    new_state = {"count": xp.where(due, 0, count), "sum": kept, "inner": choose(inner, state["inner"])}
    return choose(moved, params), new_state


def accumulate(optimiser: Any, every: int) -> Accumulate:
    """An optimiser that makes a step each ``every`` calls, with the mean of their gradients; parameters stay as they are in between."""
    check.count("accumulate", "every", every)
    return Accumulate(optimiser, every)
