"""Recurrent layers: a cell, carried along the second axis of [batch, time, features] by `ts.scan`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import random, xp
from ..trace import prim as p
from ..trace.control import scan
from ..trace.jit import eager
from ..trace.tracer import as_tracer, aval, fail


@dataclass(frozen=True)
class _Recurrent:
    inputs: int
    size: int
    reverse: bool = False
    dtype: Any = "f32"

    _gates: ClassVar[int] = 0
    _parts: ClassVar[tuple[str, ...]] = ()

    def init(self, key: Any) -> dict:
        """Weights between ±1/√size, as in PyTorch; gates are contiguous along the last axis."""
        keys, bound = random.split(key, 4), 1.0 / math.sqrt(self.size)
        wide = self._gates * self.size
        shapes = {"w_x": (self.inputs, wide), "w_h": (self.size, wide), "b_x": (wide,), "b_h": (wide,)}
        return {name: random.uniform(keys[i], shape, self.dtype, -bound, bound) for i, (name, shape) in enumerate(shapes.items())}

    def start(self, batch: int, dtype: Any = None) -> Any:
        """The state before the first step: zeros, of the layer's dtype unless ``dtype`` is given."""
        made = tuple(xp.zeros((batch, self.size), dtype=dtype or self.dtype) for _ in self._parts)
        return made if len(made) > 1 else made[0]

    def step(self, params: dict, state: Any, x: Any) -> tuple[Any, Any]:
        """One step for [batch, features]: ``(state, y)``."""
        return _stepped(self, params, state, x)

    def __call__(self, params: dict, x: Any, state: Any = None) -> tuple[Any, Any]:
        """``(y, state)``: the outputs [batch, time, size] and the last state."""
        shape = aval(x)[0]
        if len(shape) != 3 or shape[2] != self.inputs:
            raise fail("E_SHAPE_MISMATCH", f"{type(self).__name__}: expected [batch, time, {self.inputs}], got {list(shape)}",
                       "put the steps second: `xp.moveaxis(x, 0, 1)`")  # fmt: skip
        return _run(self, params, x, state)

    def _cell(self, params: dict, state: Any, part: Any) -> tuple[Any, Any]:
        raise NotImplementedError


@eager
def _stepped(layer: _Recurrent, params: dict, state: Any, x: Any) -> tuple:
    return layer._cell(params, state, xp.matmul(x, params["w_x"]) + params["b_x"])


@eager
def _run(layer: _Recurrent, params: dict, x: Any, state: Any) -> tuple:
    x = as_tracer(x)
    # What does not depend on the state is one matmul for all steps.
    parts = xp.moveaxis(xp.matmul(x, params["w_x"]) + params["b_x"], 1, 0)
    if state is None:
        # That of the inputs and the weights: f64 stays f64, bf16 stays bf16.
        state = layer.start(x.shape[0], aval(parts)[1])
    last, ys = scan(lambda s, part: layer._cell(params, s, part), state, parts, reverse=layer.reverse)
    return xp.moveaxis(ys, 0, 1), last


def _thirds(x: Any, n: int) -> list:
    size = x.shape[-1] // n
    return [x[..., i * size : (i + 1) * size] for i in range(n)]


class LSTM(_Recurrent):
    """Long short-term memory. The state is ``(h, c)``; gates are in the order input, forget, cell, output."""

    _gates, _parts = 4, ("h", "c")

    def _cell(self, params: dict, state: Any, part: Any) -> tuple[Any, Any]:
        h, c = state
        i, f, g, o = _thirds(part + xp.matmul(h, params["w_h"]) + params["b_h"], 4)
        c = xp.sigmoid(f) * c + xp.sigmoid(i) * xp.tanh(g)
        h = xp.sigmoid(o) * xp.tanh(c)
        return (p.cast(h, aval(state[0])[1]), p.cast(c, aval(state[1])[1])), h


class GRU(_Recurrent):
    """Gated recurrent unit. The state is ``h``; gates are in the order reset, update, new, and the reset gate is applied after the
    matmul, as in PyTorch."""

    _gates, _parts = 3, ("h",)

    def _cell(self, params: dict, state: Any, part: Any) -> tuple[Any, Any]:
        xr, xz, xn = _thirds(part, 3)
        hr, hz, hn = _thirds(xp.matmul(state, params["w_h"]) + params["b_h"], 3)
        z = xp.sigmoid(xz + hz)
        n = xp.tanh(xn + xp.sigmoid(xr + hr) * hn)
        h = n + z * (state - n)
        return p.cast(h, aval(state)[1]), h
