"""Layers with parameters."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import random, xp
from ..trace.jit import eager
from ..trace.tracer import aval, fail
from . import _functional as F


def _expect_last(name: str, x: Any, size: int) -> None:
    shape = aval(x)[0]
    if not shape or shape[-1] != size:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"{name}: expected a last axis of {size}, got shape {list(shape)}",
            "the layer was made for another number of features: change the layer or the array before it",
        )


@dataclass(frozen=True)
class Linear:
    """x w + b, with ``w`` of [inputs, outputs]."""

    inputs: int
    outputs: int
    bias: bool = True
    dtype: Any = "f32"
    std: float | None = None

    def init(self, key: Any) -> dict:
        std = 1.0 / math.sqrt(self.inputs) if self.std is None else self.std
        made = {"w": random.normal(key, (self.inputs, self.outputs), self.dtype, 0.0, std)}
        if self.bias:
            made["b"] = xp.zeros((self.outputs,), dtype=self.dtype)
        return made

    def __call__(self, params: dict, x: Any) -> Any:
        _expect_last(f"Linear({self.inputs}, {self.outputs})", x, self.inputs)
        out = xp.matmul(x, params["w"])
        return xp.add(out, params["b"]) if self.bias else out


@dataclass(frozen=True)
class Embedding:
    """Rows of a table."""

    count: int
    size: int
    dtype: Any = "f32"
    std: float = 0.02

    def init(self, key: Any) -> dict:
        return {"table": random.normal(key, (self.count, self.size), self.dtype, 0.0, self.std)}

    def __call__(self, params: dict, indices: Any) -> Any:
        return F.embedding(params["table"], indices)


@dataclass(frozen=True)
class LayerNorm:
    """Normalised over the last axis, with scale and shift."""

    size: int
    eps: float = 1e-5
    dtype: Any = "f32"

    def init(self, key: Any) -> dict:
        return {"scale": xp.ones((self.size,), dtype=self.dtype), "shift": xp.zeros((self.size,), dtype=self.dtype)}

    def __call__(self, params: dict, x: Any) -> Any:
        _expect_last(f"LayerNorm({self.size})", x, self.size)
        return F.layernorm(x, params["scale"], params["shift"], self.eps)


@dataclass(frozen=True)
class RMSNorm:
    """Scaled to a root mean square of one over the last axis."""

    size: int
    eps: float = 1e-6
    dtype: Any = "f32"

    def init(self, key: Any) -> dict:
        return {"scale": xp.ones((self.size,), dtype=self.dtype)}

    def __call__(self, params: dict, x: Any) -> Any:
        _expect_last(f"RMSNorm({self.size})", x, self.size)
        return F.rmsnorm(x, params["scale"], self.eps)


@dataclass(frozen=True)
class GroupNorm:
    """Normalised over groups of channels of [batch, channels, …]."""

    groups: int
    channels: int
    eps: float = 1e-5
    dtype: Any = "f32"

    def init(self, key: Any) -> dict:
        return {"scale": xp.ones((self.channels,), dtype=self.dtype), "shift": xp.zeros((self.channels,), dtype=self.dtype)}

    def __call__(self, params: dict, x: Any) -> Any:
        return F.groupnorm(x, self.groups, params["scale"], params["shift"], self.eps)


@dataclass(frozen=True)
class Conv2d:
    """Convolution of [batch, channels, height, width] (or ``NHWC``)."""

    inputs: int
    outputs: int
    window: int | tuple[int, int] = 3
    stride: int | tuple[int, int] = 1
    padding: Any = "same"
    dilation: int | tuple[int, int] = 1
    groups: int = 1
    bias: bool = True
    layout: str = "NCHW"
    dtype: Any = "f32"

    def init(self, key: Any) -> dict:
        sizes = (self.window,) * 2 if isinstance(self.window, int) else tuple(self.window)
        fan = self.inputs // self.groups * sizes[0] * sizes[1]
        shape = (self.outputs, self.inputs // self.groups, *sizes)
        made = {"w": random.normal(key, shape, self.dtype, 0.0, math.sqrt(2.0 / fan))}
        if self.bias:
            made["b"] = xp.zeros((self.outputs,), dtype=self.dtype)
        return made

    def __call__(self, params: dict, x: Any) -> Any:
        return F.conv2d(x, params["w"], params.get("b"), stride=self.stride, padding=self.padding, dilation=self.dilation,
                        groups=self.groups, layout=self.layout)  # fmt: skip


@eager
def dropout(key: Any, x: Any, rate: float) -> Any:
    """Elements become zero with probability ``rate``, the others are scaled up. The same key drops the same ones."""
    if not isinstance(rate, (int, float)):
        raise fail("E_TYPE", f"dropout: expected `rate` to be a number of Python's, got {type(rate).__name__}", "write `nn.dropout(key, x, 0.1)`: the key comes first")
    if not 0.0 <= rate < 1.0:
        raise fail(
            "E_ARGUMENT",
            f"expected a rate from 0 up to 1, got {rate}",
            "it is the probability that an element becomes zero: 0.1",
        )
    if rate == 0.0:
        return xp.positive(x)
    keep = random.bits(key, aval(x)[0]) >= min(round(rate * 2**32), 2**32 - 1)
    return xp.where(keep, xp.multiply(x, 1.0 / (1.0 - rate)), 0.0)


@dataclass(frozen=True)
class Dropout:
    """`dropout` as a layer: it needs a key, and does nothing without one."""

    rate: float

    def init(self, key: Any) -> dict:
        return {}

    def __call__(self, params: dict, x: Any, key: Any = None) -> Any:
        return x if key is None else dropout(key, x, self.rate)


@dataclass(frozen=True)
class MLP:
    """Two linear maps with an activation between."""

    size: int
    hidden: int
    activation: Callable = F.gelu
    dtype: Any = "f32"

    @property
    def _parts(self) -> tuple[Linear, Linear]:
        return Linear(self.size, self.hidden, dtype=self.dtype), Linear(self.hidden, self.size, dtype=self.dtype)

    def init(self, key: Any) -> dict:
        keys = random.split(key, 2)
        return {"up": self._parts[0].init(keys[0]), "down": self._parts[1].init(keys[1])}

    def __call__(self, params: dict, x: Any) -> Any:
        up, down = self._parts
        return down(params["down"], self.activation(up(params["up"], x)))


@dataclass(frozen=True)
class Attention:
    """Self-attention of [batch, positions, size] with several heads."""

    size: int
    heads: int
    causal: bool = True
    dtype: Any = "f32"

    @property
    def _parts(self) -> tuple[Linear, Linear]:
        return Linear(self.size, 3 * self.size, dtype=self.dtype), Linear(self.size, self.size, dtype=self.dtype)

    def init(self, key: Any) -> dict:
        if self.size % self.heads:
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected {self.heads} heads to divide {self.size}",
                "choose a size that is a multiple of the number of heads",
            )
        keys = random.split(key, 2)
        return {"qkv": self._parts[0].init(keys[0]), "out": self._parts[1].init(keys[1])}

    def __call__(self, params: dict, x: Any, mask: Any = None) -> Any:
        _expect_last(f"Attention({self.size})", x, self.size)
        project, out = self._parts
        batch, length, _ = aval(x)[0]
        wide = project(params["qkv"], x).reshape(batch, length, 3, self.heads, self.size // self.heads)
        q, k, v = (part.transpose(0, 2, 1, 3) for part in F.parts(wide, 2))
        y = F.attention(q, k, v, causal=self.causal, mask=mask)
        return out(params["out"], y.transpose(0, 2, 1, 3).reshape(batch, length, self.size))


@dataclass(frozen=True)
class TransformerBlock:
    """x + attention(norm(x)), then x + mlp(norm(x))."""

    size: int
    heads: int
    hidden: int | None = None
    causal: bool = True
    dtype: Any = "f32"

    @property
    def _parts(self) -> dict[str, Any]:
        return {
            "norm1": LayerNorm(self.size, dtype=self.dtype), "attention": Attention(self.size, self.heads, self.causal, self.dtype),
            "norm2": LayerNorm(self.size, dtype=self.dtype), "mlp": MLP(self.size, self.hidden or 4 * self.size, dtype=self.dtype),
        }  # fmt: skip

    def init(self, key: Any) -> dict:
        keys = random.split(key, 4)
        return {name: part.init(keys[i]) for i, (name, part) in enumerate(self._parts.items())}

    def __call__(self, params: dict, x: Any) -> Any:
        parts = self._parts
        x = x + parts["attention"](params["attention"], parts["norm1"](params["norm1"], x))
        return x + parts["mlp"](params["mlp"], parts["norm2"](params["norm2"], x))


def _takes_key(layer: Any) -> bool:
    """Whether a layer or function has a parameter ``key``."""
    try:
        return "key" in inspect.signature(layer).parameters
    except (TypeError, ValueError):
        return False


def _has_state(layer: Any) -> bool:
    """Whether a layer has a state beside its parameters, as `BatchNorm` has."""
    return any(map(_has_state, layer.layers)) if isinstance(layer, Sequential) else hasattr(layer, "init_state")


class Sequential:
    """Layers and plain functions, one after another. A ``key`` goes to those that take one, each with its place folded in: with a
    key a `Dropout` drops (training), without one it does nothing. Where layers have a state (`BatchNorm`), it is passed in and returned:

        y, state = model(params, x, state=state, train=True)    # beginning with `model.init_state()`
        y = model(params, x, state=state)
    """

    def __init__(self, *layers: Any) -> None:
        self.layers = layers

    def init(self, key: Any) -> list:
        keys = random.split(key, max(len(self.layers), 1))
        return [layer.init(keys[i]) if hasattr(layer, "init") else {} for i, layer in enumerate(self.layers)]

    def init_state(self) -> list:
        """The states of the layers before the first batch; ``{}`` for those without one."""
        return [layer.init_state() if _has_state(layer) else {} for layer in self.layers]

    def __call__(self, params: list, x: Any, key: Any = None, state: Any = None, train: bool = False) -> Any:
        self._check(params, "parameters", "make them with `init(key)` of the same layers")
        if state is None:
            stateful = next((layer for layer in self.layers if _has_state(layer)), None)
            if stateful is not None:
                raise fail(
                    "E_ARGUMENT",
                    f"Sequential: expected the state of its layers, for {type(stateful).__name__} has one, got none",
                    "write `y, state = model(params, x, state=state, train=True)` in training, beginning with `state = model.init_state()`, "
                    "and `y = model(params, x, state=state)` after it",
                )
        else:
            self._check(state, "states", "begin with `init_state()` of the same layers")
        new = []
        for i, (layer, part) in enumerate(zip(self.layers, params, strict=True)):
            more = {"key": random.fold_in(key, i)} if key is not None and _takes_key(layer) else {}
            if _has_state(layer):
                x = layer(part, x, state=state[i], train=train, **more)
                x, moved = x if train else (x, None)
                new.append(moved)
            else:
                x = layer(part, x, **more) if hasattr(layer, "init") else layer(x, **more)
                new.append({})
        return (x, new) if train else x

    def _check(self, parts: Any, what: str, help: str) -> None:
        if len(parts) != len(self.layers):
            raise fail("E_ARGUMENT", f"expected {what} for {len(self.layers)} layers, got {len(parts)}", help)
