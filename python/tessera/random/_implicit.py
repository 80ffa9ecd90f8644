"""Derivatives of gamma values by their shape and of Wald's by their mean, by implicit reparameterisation (Figurnov, Mohamed and Mnih,
2018): a value x of shape a moves so that the cumulative distribution P(a, x) stays what it is, d log x / da = -(dP / da) / (x p(x))."""

from __future__ import annotations

import math
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.tracer import Tracer
from ..transforms.custom_rules import custom_jvp

#: Terms of the series, which serves x up to 1: the n-th is at most 1 / n! of the first.
_TERMS = 20
#: Steps of the quadrature. The error is below 1e-7 with the first, for results that are rounded to f32, and below 1e-12 with the second.
_STEPS = {"f32": 0.125, "f64": 0.07}
#: Terms of the continued fraction, which serves z from 2: the error is about exp(-2 z sqrt(2 n)).
_FRACTIONS = 40


@custom_jvp
def follow(a: Tracer, log_x: Tracer) -> Tracer:
    """Logarithms of gamma values as they are, which move with their shape ``a``."""
    return xp.positive(log_x)


@follow.defjvp
def _moved(primals: tuple, tangents: tuple) -> tuple:
    log_x = follow(*primals)
    return log_x, log_gamma_slope(primals[0], log_x) * tangents[0]


def log_gamma_slope(a: Tracer, log_x: Tracer) -> Tracer:
    """d log x / da of gamma values, given by their logarithms. Computed in f64.

    With d = log x - digamma(a), up to x = 1 from the series of P:
        -(d S + dS/da), where S = P / (x p) = sum of x**n / (a (a + 1) … (a + n)).
    Beyond, as an integral of positive terms, of the tail that x is in (s = 1 where d is positive, else -1):
        integral of (u + abs(d)) exp(s a u - x (exp(s u) - 1)) from 0 to infinity."""
    kind = a._dtype
    a, log_x = p.cast(a, "f64"), p.cast(log_x, "f64")
    d = log_x - xp.digamma(a)
    x = xp.exp(log_x)
    near = x <= 1.0
    # Each formula gets arguments of its own range, so that what is not chosen has finite derivatives too.
    return p.cast(xp.where(near, _series(a, xp.where(near, x, 1.0), d), _integral(xp.where(near, 1.0, a), xp.where(near, 1.0, x), d, kind)), kind)


def _series(a: Tracer, x: Tracer, d: Tracer) -> Tracer:
    term = harmonic = total = 1.0 / a
    moved = term * harmonic
    for n in range(1, _TERMS):
        step = 1.0 / (a + float(n))
        term, harmonic = term * x * step, harmonic + step
        total, moved = total + term, moved + term * harmonic
    return moved - d * total


def _integral(a: Tracer, x: Tracer, d: Tracer, kind: str) -> Tracer:
    """By the double exponential formula for integrands with an exponential tail: u = w exp(t - exp(-t))."""
    step = _STEPS[kind]
    t = p.cast(p.iota((int(7.4 / step),), 0), "f64") * step - 3.6
    back = xp.exp(-t)
    at = xp.exp(t - back)
    weight = (1.0 + back) * at * step
    sign = xp.where(d >= 0.0, 1.0, -1.0)
    w = 1.0 / (xp.abs(a - x) + xp.sqrt(x))

    def column(v: Any) -> Tracer:
        return p.expand_dims(v, -1)

    u = column(w) * at
    turned = column(sign) * u
    exponent = column(a - x) * turned - column(x) * (xp.expm1(turned) - turned)
    return xp.sum((u + column(xp.abs(d))) * xp.exp(exponent) * weight, -1) * w


@custom_jvp
def follow_wald(mean: Tracer, x: Tracer) -> Tracer:
    """Values of Wald's distribution as they are, which move with its mean."""
    return xp.positive(x)


@follow_wald.defjvp
def _moved_wald(primals: tuple, tangents: tuple) -> tuple:
    x = follow_wald(*primals)
    return x, wald_slope(primals[0], x) * tangents[0]


def wald_slope(mean: Tracer, x: Tracer) -> Tracer:
    """dx / dm of values of Wald's distribution of mean m. Computed in f64.

    With z = (x / m + 1) / sqrt(x) the slope of the cumulative distribution by m is -2 / m**2 exp(2 / m) Phi(-z), and exp(2 / m) phi(z) is
    the density times x**1.5: what is left is 2 x**1.5 / m**2 Phi(-z) / phi(z)."""
    kind = mean._dtype
    m, x = p.cast(mean, "f64"), p.cast(x, "f64")
    root = xp.sqrt(x)
    return p.cast(2.0 / (m * m) * x * root * _mills((x / m + 1.0) / root), kind)


def _mills(z: Tracer) -> Tracer:
    """Phi(-z) / phi(z) of positive numbers: by the error function, which has all its digits up to 2, and by Laplace's continued fraction."""
    near = z < 2.0
    low, high = xp.where(near, z, 1.0), xp.where(near, 2.0, z)
    below = (1.0 - xp.erf(low * math.sqrt(0.5))) * xp.exp(low * low * 0.5) * math.sqrt(math.pi / 2.0)
    beyond = high
    for n in range(_FRACTIONS, 0, -1):
        beyond = high + float(n) / beyond
    return xp.where(near, below, 1.0 / beyond)
