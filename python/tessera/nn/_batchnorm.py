"""Batch normalisation with running statistics, which are an explicit state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import as_tracer, fail, one
from . import _functional as F


@dataclass(frozen=True)
class BatchNorm:
    """Channels of [batch, channels, …] normalised over all other axes.

        y, state = norm(params, x, state, train=True)    # by the batch, which moves the running statistics
        y = norm(params, x, state)                       # by the running statistics

    ``state`` begins as ``norm.init_state()``; a call without one is refused, and `nn.batchnorm` normalises by the batch alone. ``momentum`` is the part of the new statistics that enters; the running variance is
    that without bias, as in PyTorch."""

    channels: int
    momentum: float = 0.1
    eps: float = 1e-5
    affine: bool = True
    dtype: Any = "f32"

    def init(self, key: Any) -> dict:
        if not self.affine:
            return {}
        return {"scale": xp.ones((self.channels,), dtype=self.dtype), "shift": xp.zeros((self.channels,), dtype=self.dtype)}

    def init_state(self) -> dict:
        """Running statistics before the first batch."""
        return {"mean": xp.zeros((self.channels,)), "var": xp.ones((self.channels,))}

    def __call__(self, params: dict, x: Any, state: dict | None = None, train: bool = False) -> Any:
        if state is None:
            raise fail("E_ARGUMENT", f"BatchNorm({self.channels}): expected the state{' with `train=True`' if train else ''}, got none",
                       "write `y, state = norm(params, x, state, train=True)` in training, beginning with `state = norm.init_state()`, and "
                       "`y = norm(params, x, state)` after it; `nn.batchnorm(x, scale, shift)` normalises by the batch alone")  # fmt: skip
        scale, shift = params.get("scale"), params.get("shift")
        if train:
            return _trained(x, scale, shift, state, self.channels, self.momentum, self.eps)
        return F.batchnorm(x, scale, shift, state["mean"], state["var"], self.eps)


@eager
def _trained(x: Any, scale: Any, shift: Any, state: dict, channels: int, momentum: float, eps: float) -> tuple:
    x = as_tracer(x)
    if x.ndim < 2 or x.shape[1] != channels:
        raise fail("E_SHAPE_MISMATCH", f"BatchNorm: expected [batch, {channels}, …], got {p.show(x.shape)}",
                   "the layer was made for another number of channels")  # fmt: skip
    others = tuple(i for i in range(x.ndim) if i != 1)
    held = one("stop_gradient", [p.cast(x, "f64" if x._dtype == "f64" else "f32")])
    count = math.prod(x.shape[i] for i in others)
    mean = xp.mean(held, others)
    far = held - p.reshape(mean, [1, -1] + [1] * (x.ndim - 2))
    var = xp.sum(far * far, others) / float(max(count - 1, 1))
    new = {"mean": _moved(state["mean"], mean, momentum), "var": _moved(state["var"], var, momentum)}
    return F.batchnorm(x, scale, shift, eps=eps), new


def _moved(old: Any, new: Any, part: float) -> Any:
    old = as_tracer(old)
    return old + (p.cast(new, old._dtype) - old) * part
