"""How parameters begin, with the names and formulas of `jax.nn.initializers`. An initialiser is a function ``init(key, shape, dtype)``;
those that need numbers are made by functions: ``he_normal()(key, (784, 128))``.

A shape of a linear map is [inputs, outputs]; ``in_axis`` and ``out_axis`` say which axes these are, ``batch_axis`` which ones index
independent maps, and all others are places of a window."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import random, xp
from ..trace import prim as p
from ..trace.control import fori_loop
from ..trace.jit import eager
from ..trace.tracer import fail

__all__ = [
    "constant", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform", "kaiming_normal", "kaiming_uniform", "lecun_normal",
    "lecun_uniform", "normal", "ones", "orthogonal", "truncated_normal", "uniform", "variance_scaling", "xavier_normal",
    "xavier_uniform", "zeros",
]  # fmt: skip

#: The standard deviation of normal values between -2 and 2.
_CUT = 0.87962566103423978


def zeros(key: Any, shape: Any, dtype: Any = "f32") -> Any:
    """Zeros."""
    return xp.zeros(shape, dtype=dtype)


def ones(key: Any, shape: Any, dtype: Any = "f32") -> Any:
    """Ones."""
    return xp.ones(shape, dtype=dtype)


def constant(value: Any, dtype: Any = "f32") -> Callable:
    """One value everywhere, or an array that stretches to the shape."""
    first = dtype
    return lambda key, shape, dtype=first: xp.broadcast_to(xp.astype(xp.asarray(value), dtype), tuple(shape))


def normal(stddev: float = 1e-2, dtype: Any = "f32") -> Callable:
    """Normal values with this standard deviation."""
    first = dtype
    return lambda key, shape, dtype=first: random.normal(key, shape, dtype, 0.0, stddev)


def uniform(scale: float = 1e-2, dtype: Any = "f32") -> Callable:
    """Values from 0 up to ``scale``."""
    first = dtype
    return lambda key, shape, dtype=first: random.uniform(key, shape, dtype, 0.0, scale)


def truncated_normal(stddev: float = 1e-2, dtype: Any = "f32", lower: float = -2.0, upper: float = 2.0) -> Callable:
    """Normal values between ``lower`` and ``upper``, then times ``stddev``."""
    first = dtype
    return lambda key, shape, dtype=first: _scaled(random.truncated_normal(key, lower, upper, tuple(shape), dtype), stddev, dtype)


def _scaled(x: Any, factor: float, dtype: Any) -> Any:
    return xp.astype(xp.multiply(x, factor), dtype)


def _axes(given: Any, rank: int) -> list[int]:
    return [p.axis_of(a, rank) for a in ((given,) if isinstance(given, int) else given)]


def _fans(shape: tuple, in_axis: Any, out_axis: Any, batch_axis: Any) -> tuple[float, float]:
    """How many numbers enter an output, and how many outputs an input enters."""
    if len(shape) < 2:
        raise fail("E_SHAPE_MISMATCH", f"expected a shape with axes of inputs and outputs, got {p.show(shape)}",
                   "write such as `zeros` or `normal(1e-2)` for vectors")  # fmt: skip
    inputs, outputs, batch = (math.prod(shape[a] for a in _axes(given, len(shape))) for given in (in_axis, out_axis, batch_axis))
    window = math.prod(shape) / max(inputs * outputs * batch, 1)
    return inputs * window, outputs * window


def variance_scaling(scale: float, mode: str, distribution: str, in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (),
                     dtype: Any = "f32") -> Callable:  # fmt: skip
    """Values of a variance of ``scale`` over the number of inputs (``mode="fan_in"``), outputs (``"fan_out"``) or their mean (``"fan_avg"``),
    with the ``distribution`` ``"truncated_normal"``, ``"normal"`` or ``"uniform"``."""
    if mode not in ("fan_in", "fan_out", "fan_avg"):
        raise fail("E_ARGUMENT", f'expected a mode "fan_in", "fan_out" or "fan_avg", got {mode!r}', 'write `mode="fan_in"`')
    if distribution not in ("truncated_normal", "normal", "uniform"):
        raise fail("E_ARGUMENT", f'expected a distribution "truncated_normal", "normal" or "uniform", got {distribution!r}',
                   'write `distribution="truncated_normal"`')  # fmt: skip
    first = dtype

    def init(key: Any, shape: Any, dtype: Any = first) -> Any:
        shape = tuple(shape)
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2.0}[mode]
        variance = scale / max(fan, 1.0)
        if distribution == "uniform":
            return random.uniform(key, shape, dtype, -math.sqrt(3.0 * variance), math.sqrt(3.0 * variance))
        if distribution == "normal":
            return random.normal(key, shape, dtype, 0.0, math.sqrt(variance))
        return _scaled(random.truncated_normal(key, -2.0, 2.0, shape, dtype), math.sqrt(variance) / _CUT, dtype)

    return init


def _scaling(name: str, doc: str, scale: float, mode: str, distribution: str) -> Callable:
    def make(in_axis: Any = -2, out_axis: Any = -1, batch_axis: Any = (), dtype: Any = "f32") -> Callable:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return make


_NORMAL = "truncated_normal"
glorot_normal = _scaling("glorot_normal", "Normal values of variance 2 / (inputs + outputs), cut at two deviations.", 1.0, "fan_avg", _NORMAL)
glorot_uniform = _scaling("glorot_uniform", "Even values of variance 2 / (inputs + outputs).", 1.0, "fan_avg", "uniform")
he_normal = _scaling("he_normal", "Normal values of variance 2 / inputs, cut at two deviations.", 2.0, "fan_in", _NORMAL)
he_uniform = _scaling("he_uniform", "Even values of variance 2 / inputs.", 2.0, "fan_in", "uniform")
lecun_normal = _scaling("lecun_normal", "Normal values of variance 1 / inputs, cut at two deviations.", 1.0, "fan_in", _NORMAL)
lecun_uniform = _scaling("lecun_uniform", "Even values of variance 1 / inputs.", 1.0, "fan_in", "uniform")
xavier_normal, xavier_uniform, kaiming_normal, kaiming_uniform = glorot_normal, glorot_uniform, he_normal, he_uniform


def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype: Any = "f32") -> Callable:
    """Matrices with orthogonal columns of length ``scale`` (rows, where there are fewer of them), all directions alike. ``column_axis`` holds
    the columns, and the other axes together the rows."""
    first = dtype

    def init(key: Any, shape: Any, dtype: Any = first) -> Any:
        shape = tuple(shape)
        if len(shape) < 2:
            raise fail("E_SHAPE_MISMATCH", f"expected the shape of a matrix, got {p.show(shape)}", "orthogonal vectors need two axes or more")
        return _orthogonal(key, shape, p.axis_of(column_axis, len(shape)), scale, p.name_of(dtype))

    return init


@eager
def _orthogonal(key: Any, shape: tuple, axis: int, scale: float, dtype: str) -> Any:
    """Columns of normal values made orthogonal one after another (Gram and Schmidt, twice), in f64."""
    columns = shape[axis]
    rows = math.prod(shape) // columns if columns else 0
    tall, count = max(rows, columns), min(rows, columns)
    drawn = random.normal(key, (count, tall), "f64")

    def step(k: Any, held: Any) -> Any:
        v = drawn[k]
        for _ in range(2):  # what rounding left of the others in the first
            v = v - xp.matmul(xp.matmul(held, v), held)
        return held.at[k].set(v * xp.rsqrt(xp.sum(v * v)))

    made = fori_loop(0, count, step, xp.zeros((count, tall), dtype="f64")) * scale
    # Row k is a column of the result, or a row where there are fewer of them.
    made = made if rows < columns else xp.matrix_transpose(made)
    rest = tuple(n for i, n in enumerate(shape) if i != axis)
    return xp.astype(xp.moveaxis(xp.reshape(made, (*rest, columns)), -1, axis), dtype)
