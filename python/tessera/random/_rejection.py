"""Distributions by rejection sampling. One loop makes an attempt for all elements that have no value yet: attempt a of
element i is made of (key, i, a) alone, so that a value depends neither on the other elements nor on the shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.control import while_loop
from ..trace.tracer import Tracer, as_tracer, fail, one
from ..xp._softmax import softmax
from ._basic import float_name, gauss, int_name, open_unit, parameters, unit, wide
from ._implicit import follow
from ._keys import drawn, fold_in, shape_of, split


def _until_accepted(key: Any, start: Tracer, settled: Tracer, attempt: Callable) -> Tracer:
    """``attempt(key of the attempt)`` gives values and which are accepted; ``settled`` elements keep what they start with."""

    def body(state: tuple) -> tuple:
        number, done, held = state
        value, accepted = attempt(fold_in(key, number))
        return number + 1, done | accepted, xp.where(done, held, value)

    return while_loop(lambda s: ~xp.all(s[1]), body, (p.splat(0, (), "i64"), settled, start))[2]


def _full(value: float, like: Tracer) -> Tracer:
    return p.splat(value, like.shape, like._dtype)


# Gamma and its relatives


def _log_gamma(key: Any, a: Tracer) -> Tracer:
    """The logarithm of gamma values, which move with ``a`` so that their quantile stays what it is. What the loop does is no derivative:
    which attempt is accepted depends on ``a``."""
    return follow(a, one("stop_gradient", [_drawn_log_gamma(key, one("stop_gradient", [a]))]))


def _drawn_log_gamma(key: Any, a: Tracer) -> Tracer:
    """The logarithm of gamma values by the method of Marsaglia and Tsang; below 1 by that of a + 1."""
    kind = a._dtype
    bad = ~((a > 0.0) & xp.isfinite(a))
    small = a < 1.0
    d = xp.where(bad, 1.0, xp.where(small, a + 1.0, a)) - 1.0 / 3.0
    c = 1.0 / xp.sqrt(d * 9.0)
    keys = split(key, 2)

    def attempt(k: Any) -> tuple:
        parts = split(k, 2)
        x = gauss(parts[0], a.shape, kind)
        cx = c * x
        # v - 1 for v = (1 + c x)**3, whose digits matter for large d.
        w = cx * (3.0 + cx * (3.0 + cx))
        inside = cx > -1.0
        log_v = xp.log1p(xp.where(inside, w, 0.0))
        u = open_unit(parts[1], a.shape, kind)
        accepted = inside & (xp.log(u) < x * x * 0.5 + d * (log_v - w))
        return log_v, accepted

    log_v = _until_accepted(keys[0], _full(0.0, a), bad, attempt)
    out = xp.log(d) + log_v
    less = xp.log(open_unit(keys[1], a.shape, kind)) / xp.where(small & ~bad, a, 1.0)
    return xp.where(bad, math.nan, xp.where(small, out + less, out))


@drawn
def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Logarithms of gamma values, which do not underflow where ``a`` is small."""
    name = float_name(dtype)
    shape, (a,) = parameters(shape, wide(name), a)
    return p.cast(_log_gamma(key, a), name)


@drawn
def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Floats of the gamma distribution of shape ``a`` and scale 1. Derivatives by ``a`` are those of implicit reparameterisation."""
    name = float_name(dtype)
    shape, (a,) = parameters(shape, wide(name), a)
    return p.cast(xp.exp(_log_gamma(key, a)), name)


@drawn
def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Floats of the beta distribution."""
    name = float_name(dtype)
    shape, (a, b) = parameters(shape, wide(name), a, b)
    keys = split(key, 2)
    # x / (x + y) of two gamma values, by their logarithms.
    return p.cast(xp.sigmoid(_log_gamma(keys[0], a) - _log_gamma(keys[1], b)), name)


@drawn
def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Rows of floats that sum to 1; ``shape`` is that of the result without the last axis of ``alpha``."""
    name = float_name(dtype)
    alpha = as_tracer(alpha)
    if alpha.ndim < 1:
        raise fail("E_SHAPE_MISMATCH", "expected `alpha` with a last axis, got a number", "write `alpha=numpy.ones(3)`")
    lead = alpha.shape[:-1] if shape is None else shape_of(shape)
    _, (alpha,) = parameters((*lead, alpha.shape[-1]), wide(name), alpha)
    return p.cast(softmax(_log_gamma(key, alpha), -1), name)


@drawn
def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Floats of the chi-square distribution with ``df`` degrees of freedom."""
    name = float_name(dtype)
    shape, (df,) = parameters(shape, wide(name), df)
    return p.cast(xp.exp(_log_gamma(key, df * 0.5)) * 2.0, name)


@drawn
def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """Floats of the F distribution."""
    name = float_name(dtype)
    shape, (n, m) = parameters(shape, wide(name), dfnum, dfden)
    keys = split(key, 2)
    ratio = xp.exp(_log_gamma(keys[0], n * 0.5) - _log_gamma(keys[1], m * 0.5))
    return p.cast(ratio * (m / n), name)


@drawn
def t(key: Any, df: Any, shape: Any = (), dtype: Any = "f32") -> Any:
    """Floats of Student's distribution with ``df`` degrees of freedom."""
    name = float_name(dtype)
    shape, (df,) = parameters(shape or None, wide(name), df)
    keys = split(key, 2)
    half = df * 0.5
    return p.cast(gauss(keys[0], shape, wide(name)) * xp.sqrt(half) * xp.exp(_log_gamma(keys[1], half) * -0.5), name)


@drawn
def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = "f32") -> Any:
    """Floats whose density is proportional to exp(-|x| ** p)."""
    return _generalized(key, p, shape_of(shape), float_name(dtype))


def _generalized(key: Any, power: Any, shape: tuple, name: str) -> Tracer:
    _, (power,) = parameters(shape, wide(name), power)
    keys = split(key, 2)
    size = xp.exp(_log_gamma(keys[0], 1.0 / power) / power)
    return p.cast(xp.where(unit(keys[1], shape, wide(name)) < 0.5, -size, size), name)


@drawn
def ball(key: Any, d: int, p: float = 2, shape: Any = (), dtype: Any = "f32") -> Any:
    """Points of a ball of ``d`` dimensions, evenly; ``p`` says the norm that it is a ball of."""
    return _ball(key, d, p, shape_of(shape), float_name(dtype))


def _ball(key: Any, d: int, power: Any, shape: tuple, name: str) -> Tracer:
    kind, keys = wide(name), split(key, 2)
    g = _generalized(keys[0], power, (*shape, d), kind)
    e = -xp.log(open_unit(keys[1], shape, kind))
    size = xp.pow(xp.sum(xp.pow(xp.abs(g), power), -1) + e, 1.0 / power)
    return p.cast(g / p.expand_dims(size, -1), name)


# Counts


def _stirling(k: Tracer) -> Tracer:
    """log(k!) less Stirling's formula for it, for whole k from 1 on."""
    r = 1.0 / k
    s = r * r
    return xp.where(k < 1.5, 0.08106146679532726, r * (1.0 / 12.0 - s * (1.0 / 360.0 - s * (1.0 / 1260.0 - s / 1680.0))))


def _deviance(k: Tracer, mean: Tracer) -> Tracer:
    """k log(k / mean) + mean - k, whose terms are much larger than itself."""
    e = (k - mean) / mean
    return mean * ((1.0 + e) * xp.log1p(e) - e)


def _log_poisson(k: Tracer, rate: Tracer) -> Tracer:
    safe = xp.maximum(k, 1.0)
    some = -_stirling(safe) - _deviance(safe, rate) - xp.log(safe * (2.0 * math.pi)) * 0.5
    return xp.where(k < 0.5, -rate, some)


#: Below this mean counts are found one by one, above it by rejection.
_FEW = 10.0


@drawn
def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = "i64") -> Any:
    """Counts of Poisson's distribution; -1 where ``lam`` is negative or NaN. Counts have no derivative: that by ``lam`` is 0."""
    name = int_name(dtype)
    shape, (lam,) = parameters(shape, "f32", lam)
    bad = ~((lam >= 0.0) & xp.isfinite(lam))
    few = lam < _FEW
    keys = split(key, 2)
    one_by_one = _poisson_few(keys[0], xp.where(bad | ~few, 0.0, lam))
    rejected = _poisson_many(keys[1], xp.where(bad | few, _FEW, lam), bad | few)
    return p.cast(xp.where(bad, -1.0, xp.where(few, one_by_one, rejected)), name)


def _poisson_few(key: Any, lam: Tracer) -> Tracer:
    """How many exponential waits fit into ``lam``."""
    def body(state: tuple) -> tuple:
        number, time, count = state
        time = time - xp.log(open_unit(fold_in(key, number), lam.shape, "f32"))
        return number + 1, time, xp.where(time <= lam, count + 1.0, count)

    start = (p.splat(0, (), "i64"), _full(0.0, lam), _full(0.0, lam))
    return while_loop(lambda s: xp.any(s[1] <= lam), body, start)[2]


def _tries(k: Any, shape: tuple) -> tuple[Tracer, Tracer, Tracer]:
    """What a transformed rejection begins with: u around 0, its distance from the ends, and v."""
    u = open_unit(k, shape, "f32", (0, 1)) - 0.5
    return u, xp.maximum(0.5 - xp.abs(u), 2.0**-26), open_unit(k, shape, "f32", (2, 3))


def _poisson_many(key: Any, lam: Tracer, settled: Tracer) -> Tracer:
    """Hörmann's transformed rejection (PTRS)."""
    b = xp.sqrt(lam) * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    inverse_alpha = 1.1328 / (b - 3.4) + 1.1239
    quick = 0.9277 - 3.6224 / (b - 2.0)

    def attempt(k: Any) -> tuple:
        u, us, v = _tries(k, lam.shape)
        count = xp.floor((a * 2.0 / us + b) * u + lam + 0.43)
        out = (count < 0.0) | ((us < 0.013) & (v > us))
        lower = xp.log(v * inverse_alpha / (a / (us * us) + b)) <= _log_poisson(xp.maximum(count, 0.0), lam)
        return count, ((us >= 0.07) & (v <= quick)) | (~out & lower)

    return _until_accepted(key, _full(0.0, lam), settled, attempt)


@drawn
def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = "f32") -> Any:
    """How many of ``n`` trials of probability ``p`` succeed, as floats; NaN where the parameters are none."""
    return _binomial(key, n, p, shape, float_name(dtype))


def _binomial(key: Any, n: Any, chance: Any, shape: Any, name: str) -> Tracer:
    shape, (n, chance) = parameters(shape, "f32", n, chance)
    n = xp.floor(n)
    bad = ~((n >= 0.0) & xp.isfinite(n) & (chance >= 0.0) & (chance <= 1.0))
    n, chance = xp.where(bad, 0.0, n), xp.where(bad, 0.0, chance)
    mirrored = chance > 0.5
    q = xp.where(mirrored, 1.0 - chance, chance)
    few = n * q < _FEW
    keys = split(key, 2)
    one_by_one = _binomial_few(keys[0], xp.where(few, n, -1.0), q)
    rejected = _binomial_many(keys[1], xp.where(few, 4.0 * _FEW, n), xp.where(few, 0.5, q), few)
    count = xp.where(few, one_by_one, rejected)
    return p.cast(xp.where(bad, math.nan, xp.where(mirrored, n - count, count)), name)


def _binomial_few(key: Any, n: Tracer, q: Tracer) -> Tracer:
    """How many gaps between successes fit into ``n`` trials."""
    per = xp.log1p(-xp.where(q > 0.0, q, 0.5))
    n = xp.where(q > 0.0, n, -1.0)

    def body(state: tuple) -> tuple:
        number, trials, count = state
        u = open_unit(fold_in(key, number), n.shape, "f32")
        trials = trials + xp.floor(xp.log(u) / per) + 1.0
        return number + 1, trials, xp.where(trials <= n, count + 1.0, count)

    start = (p.splat(0, (), "i64"), _full(0.0, n), _full(0.0, n))
    return while_loop(lambda s: xp.any(s[1] <= n), body, start)[2]


def _binomial_many(key: Any, n: Tracer, q: Tracer, settled: Tracer) -> Tracer:
    """Hörmann's transformed rejection (BTRS), for q up to 1/2 and n q from 10 on."""
    spread = xp.sqrt(n * q * (1.0 - q))
    b = spread * 2.53 + 1.15
    a = b * 0.0248 - 0.0873 + q * 0.01
    alpha = (5.1 / b + 2.83) * spread
    quick = 0.92 - 4.2 / b
    top = _log_binomial(xp.floor((n + 1.0) * q), n, q)

    def attempt(k: Any) -> tuple:
        u, us, v = _tries(k, n.shape)
        count = xp.floor((a * 2.0 / us + b) * u + n * q + 0.5)
        inside = (count >= 0.0) & (count <= n)
        lower = xp.log(v * alpha / (a / (us * us) + b)) <= _log_binomial(xp.clip(count, 0.0, n), n, q) - top
        return count, inside & (((us >= 0.07) & (v <= quick)) | lower)

    return _until_accepted(key, _full(0.0, n), settled, attempt)


def _log_binomial(k: Tracer, n: Tracer, q: Tracer) -> Tracer:
    rest = n - k
    some, others = xp.maximum(k, 1.0), xp.maximum(rest, 1.0)
    inner = _stirling(n) - _stirling(some) - _stirling(others) - _deviance(some, n * q) - _deviance(others, n * (1.0 - q))
    inner = inner + xp.log(n / (some * others * (2.0 * math.pi))) * 0.5
    return xp.where(k < 0.5, n * xp.log1p(-q), xp.where(rest < 0.5, n * xp.log(q), inner))
