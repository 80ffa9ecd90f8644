"""Convolutions over one and three axes, and their transposes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from .. import random, xp
from ..trace.tracer import aval, fail
from . import _functional as F
from ._functions import conv_transpose


def _sizes(value: Any, n: int) -> tuple[int, ...]:
    return (value,) * n if isinstance(value, int) else tuple(value)


def _divided(what: str, groups: int, *channels: int) -> None:
    if groups < 1 or any(c % groups for c in channels):
        raise fail("E_SHAPE_MISMATCH", f"{what}: expected {groups} groups to divide {' and '.join(map(str, channels))} channels",
                   "choose a divisor of both numbers of channels")  # fmt: skip


@dataclass(frozen=True)
class _Conv:
    inputs: int
    outputs: int
    window: int | tuple[int, ...] = 3
    stride: int | tuple[int, ...] = 1
    padding: Any = "same"
    dilation: int | tuple[int, ...] = 1
    groups: int = 1
    bias: bool = True
    dtype: Any = "f32"

    _axes: ClassVar[int] = 0
    _made_by: ClassVar[Any] = None

    def init(self, key: Any) -> dict:
        _divided(type(self).__name__, self.groups, self.inputs, self.outputs)
        sizes = _sizes(self.window, self._axes)
        each = self.inputs // self.groups
        std = math.sqrt(2.0 / (each * math.prod(sizes)))
        made = {"w": random.normal(key, (self.outputs, each, *sizes), self.dtype, 0.0, std)}
        if self.bias:
            made["b"] = xp.zeros((self.outputs,), dtype=self.dtype)
        return made

    def __call__(self, params: dict, x: Any) -> Any:
        return type(self)._made_by(x, params["w"], params.get("b"), stride=self.stride, padding=self.padding,
                                   dilation=self.dilation, groups=self.groups)  # fmt: skip


class Conv1d(_Conv):
    """Convolution of [batch, channels, width]."""

    _axes, _made_by = 1, staticmethod(F.conv1d)


class Conv3d(_Conv):
    """Convolution of [batch, channels, depth, height, width]."""

    _axes, _made_by = 3, staticmethod(F.conv3d)


@dataclass(frozen=True)
class ConvTranspose:
    """The transpose of a convolution of [batch, channels, …] over ``axes`` axes, two unless said: ``stride=2`` doubles the extents with
    ``padding="same"``. The weights are [inputs, outputs / groups, …]."""

    inputs: int
    outputs: int
    window: int | tuple[int, ...] = 3
    stride: int | tuple[int, ...] = 1
    padding: Any = "same"
    output_padding: int | tuple[int, ...] = 0
    dilation: int | tuple[int, ...] = 1
    groups: int = 1
    bias: bool = True
    axes: int = 2
    dtype: Any = "f32"

    def init(self, key: Any) -> dict:
        _divided("ConvTranspose", self.groups, self.inputs, self.outputs)
        sizes = _sizes(self.window, self.axes)
        fan = self.inputs // self.groups * math.prod(sizes) / math.prod(_sizes(self.stride, self.axes))
        shape = (self.inputs, self.outputs // self.groups, *sizes)
        made = {"w": random.normal(key, shape, self.dtype, 0.0, math.sqrt(2.0 / fan))}
        if self.bias:
            made["b"] = xp.zeros((self.outputs,), dtype=self.dtype)
        return made

    def __call__(self, params: dict, x: Any) -> Any:
        if len(aval(x)[0]) != self.axes + 2:
            raise fail("E_SHAPE_MISMATCH", f"ConvTranspose: expected an array of {self.axes + 2} axes, got shape {list(aval(x)[0])}",
                       f"write `ConvTranspose(..., axes={max(len(aval(x)[0]) - 2, 1)})`")  # fmt: skip
        return conv_transpose(x, params["w"], params.get("b"), stride=self.stride, padding=self.padding,
                              output_padding=self.output_padding, dilation=self.dilation, groups=self.groups)  # fmt: skip
