"""Distributions that are a formula of uniform and normal values."""

from __future__ import annotations

import math
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.tracer import fail, one
from ._basic import float_name, gauss, int_name, open_unit, parameters, unit, wide
from ._implicit import follow_wald
from ._keys import drawn, shape_of, split


def _formula(name: str, doc: str, of: Any) -> Any:
    def call(key: Any, shape: Any = (), dtype: Any = "f32") -> Any:
        kind = float_name(dtype)
        return p.cast(of(open_unit(key, shape_of(shape), wide(kind))), kind)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return drawn(call)


exponential = _formula("exponential", "Floats of the exponential distribution with mean 1.", lambda u: -xp.log(u))
gumbel = _formula("gumbel", "Floats of Gumbel's distribution.", lambda u: -xp.log(-xp.log(u)))
laplace = _formula("laplace", "Floats of Laplace's distribution.", lambda u: _signed_log(u))
logistic = _formula("logistic", "Floats of the logistic distribution.", lambda u: xp.log(u) - xp.log1p(-u))
cauchy = _formula("cauchy", "Floats of Cauchy's distribution.", lambda u: xp.tan((u - 0.5) * math.pi))


def _signed_log(u: Any) -> Any:
    # Each half by its own distance from the end: no digits are lost in the tails.
    below = u < 0.5
    near = xp.where(below, u, 1.0 - u)
    size = xp.log(near * 2.0)
    return xp.where(below, size, -size)


def _begin(dtype: Any, shape: Any, *values: Any) -> tuple:
    name = float_name(dtype)
    shape, given = parameters(shape, wide(name), *values)
    return name, shape, given


@drawn
def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Floats of Pareto's distribution of shape ``b``, from 1 on."""
    name, shape, (b,) = _begin(dtype, shape, b)
    return p.cast(xp.exp(-xp.log(open_unit(key, shape, wide(name))) / b), name)


@drawn
def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Floats of Weibull's distribution."""
    name, shape, (scale, c) = _begin(dtype, shape, scale, concentration)
    return p.cast(xp.pow(-xp.log(open_unit(key, shape, wide(name))), 1.0 / c) * scale, name)


@drawn
def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Floats of Rayleigh's distribution."""
    name, shape, (scale,) = _begin(dtype, shape, scale)
    return p.cast(xp.sqrt(xp.log(open_unit(key, shape, wide(name))) * -2.0) * scale, name)


@drawn
def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Floats between ``left`` and ``right``, most often near ``mode``."""
    name, shape, (a, c, b) = _begin(dtype, shape, left, mode, right)
    u = unit(key, shape, wide(name))
    rising = u * (b - a) < c - a
    up = a + xp.sqrt(xp.maximum(u * (b - a) * (c - a), 0.0))
    down = b - xp.sqrt(xp.maximum((1.0 - u) * (b - a) * (b - c), 0.0))
    return p.cast(xp.where(rising, up, down), name)


@drawn
def maxwell(key: Any, shape: Any = (), dtype: Any = "f32") -> Any:
    """Floats of Maxwell's distribution: the length of three normal values."""
    name = float_name(dtype)
    shape, keys = shape_of(shape), split(key, 3)
    parts = [gauss(keys[i], shape, wide(name)) for i in range(3)]
    return p.cast(xp.sqrt(parts[0] * parts[0] + parts[1] * parts[1] + parts[2] * parts[2]), name)


@drawn
def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """``loc`` and to either side of it ``scale`` times a value of Maxwell's distribution."""
    name, shape, (loc, scale) = _begin(dtype, shape, loc, scale)
    keys = split(key, 2)
    size = maxwell(keys[0], shape, wide(name))
    side = xp.where(unit(keys[1], shape, wide(name)) < 0.5, -1.0, 1.0)
    return p.cast(loc + scale * size * side, name)


@drawn
def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Floats of Wald's distribution (the inverse Gaussian of scale 1)."""
    name, shape, (mean,) = _begin(dtype, shape, mean)
    # Which root is taken depends on the mean: derivatives of the formula are biased.
    m = one("stop_gradient", [mean])
    keys = split(key, 2)
    n = gauss(keys[0], shape, wide(name))
    y = n * n
    # The smaller root of a quadratic, without the difference of large numbers.
    t = m * y
    x = m * 2.0 / (2.0 + t + xp.sqrt(t * (4.0 + t)))
    u = unit(keys[1], shape, wide(name))
    return p.cast(follow_wald(mean, xp.where(u * (m + x) <= m, x, m * m / x)), name)


@drawn
def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = "i64") -> Any:
    """How many trials of probability ``p`` it takes to succeed: 1 or more."""
    return _geometric(key, p, shape, int_name(dtype))


def _geometric(key: Any, chance: Any, shape: Any, name: str) -> Any:
    shape, (chance,) = parameters(shape, "f64" if name in ("i64", "u64") else "f32", chance)
    u = open_unit(key, shape, chance._dtype)
    count = xp.floor(xp.log(u) / xp.log1p(-chance)) + 1.0
    return p.cast(xp.where(chance >= 1.0, 1.0, count), name)


def multivariate_normal(key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Not there yet: it needs a Cholesky factor of the covariance."""
    raise fail("E_UNSUPPORTED", "expected no `multivariate_normal`: there is no Cholesky factorisation of arrays yet",
               "factor the covariance with NumPy and write `mean + ts.random.normal(key, (..., n)) @ factor.T`")  # fmt: skip


def orthogonal(key: Any, n: int, shape: Any = (), dtype: Any = "f32") -> Any:
    """Not there yet: it needs a QR factorisation."""
    raise fail("E_UNSUPPORTED", "expected no `orthogonal`: there is no QR factorisation of arrays yet",
               "factor a normal matrix with NumPy: `numpy.linalg.qr(ts.random.normal(key, (n, n)))[0]`")  # fmt: skip
