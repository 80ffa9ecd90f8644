"""Derivatives of random values by the parameters of their distribution, where values are drawn by rejection."""

import math

import numpy as np
import pytest

import tessera as ts
from tessera import xp
from tessera.random._implicit import log_gamma_slope, wald_slope

r = ts.random
KEY = r.key(7)

#: (a, x, dx/da) by `jax.lax.random_gamma_grad` in f64.
JAX = [
    (0.001, 1e-50, 1.1455368271789199e-45),
    (0.001, 0.5, 461.9921671892392),
    (0.1, 1e-08, 1.7996925975414167e-06),
    (0.1, 1.0, 6.790083413327754),
    (0.1, 3.0, 9.443617144094606),
    (1.0, 0.05, 0.17591374110815516),
    (1.0, 1.0, 1.1735630272247275),
    (1.0, 1.5, 1.4309374423012802),
    (1.0, 12.0, 3.1394484478284523),
    (2.5, 0.9, 0.6119037056601557),
    (2.5, 1.2, 0.7224369105520616),
    (2.5, 6.0, 1.6029866492202423),
    (30.0, 15.0, 0.6969448745222248),
    (30.0, 29.6, 0.9988397385719612),
    (30.0, 55.0, 1.3408481463610908),
    (1000.0, 900.0, 0.9484026381794025),
    (1000.0, 1100.0, 1.0485866785615345),
]


@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 3e-6), (np.float64, 1e-11)])
def test_the_slope_of_gamma_values_is_jaxs(dtype, rtol):
    a, x, want = np.array(JAX).T
    got = ts.jit(log_gamma_slope)(a.astype(dtype), np.log(x).astype(dtype))
    np.testing.assert_allclose(np.asarray(got, np.float64) * x, want, rtol=rtol)


MEANS = {
    "gamma": (lambda a, n: r.gamma(KEY, a, n), lambda a: a),
    "loggamma": (lambda a, n: r.loggamma(KEY, a, n), lambda a: np.asarray(xp.digamma(np.float64(a)))),
    "beta": (lambda a, n: r.beta(KEY, a, 2.0, n), lambda a: a / (a + 2.0)),
    "dirichlet": (lambda a, n: r.dirichlet(KEY, xp.stack([a, a * 0.0 + 3.0]), n)[:, 0], lambda a: a / (a + 3.0)),
    "chisquare": (lambda a, n: r.chisquare(KEY, a, n), lambda a: a),
    # The formula, differentiated, gave 1.26 for 1: which of two roots is taken depends on the mean.
    "wald": (lambda a, n: r.wald(KEY, a, n), lambda a: a),
    "wald_squared": (lambda a, n: r.wald(KEY, a, n) ** 2.0, lambda a: a**2 + a**3),
    "wald_inverse": (lambda a, n: 1.0 / r.wald(KEY, a, n), lambda a: 1.0 / a + 1.0),
    "t": (lambda a, n: r.t(KEY, a + 10.0, n) ** 2.0, lambda a: (a + 10.0) / (a + 8.0)),
}


@pytest.mark.parametrize("name", MEANS)
def test_the_mean_of_derivatives_is_the_derivative_of_the_mean(name):
    """What the rejection loop does, differentiated, is biased: it gave 1.6 for 1 with `gamma(0.7)`."""
    draw, mean = MEANS[name]
    a, n = np.float32(2.3), (4000,)
    want = (mean(2.3 + 1e-4) - mean(2.3 - 1e-4)) / 2e-4
    _, slopes = ts.jvp(lambda v: draw(v, n), (a,), (np.float32(1.0),))
    slopes = np.asarray(slopes, np.float64)
    assert abs(slopes.mean() - want) < 5.0 * slopes.std() / np.sqrt(slopes.size)


def test_slopes_under_transforms():
    a = np.array([0.05, 0.9, 4.0, 200.0])
    draw = lambda v: r.gamma(KEY, v, dtype=ts.f64)
    x = np.asarray(draw(a))
    slope = ts.jit(ts.grad(lambda v: xp.sum(draw(v))))(a)
    np.testing.assert_allclose(slope, np.asarray(ts.jit(log_gamma_slope)(a, np.log(x))) * x, rtol=1e-12)
    keys = r.split(KEY, 3)
    rows = ts.vmap(lambda k: ts.grad(lambda v: xp.sum(r.gamma(k, v, dtype=ts.f64)))(a))(keys)
    for row, k in zip(rows, keys, strict=True):
        np.testing.assert_allclose(row, ts.grad(lambda v, k=k: xp.sum(r.gamma(k, v, dtype=ts.f64)))(a), rtol=1e-12)
    # The second derivative of x(a) is that of its slope along the curve.
    second = ts.grad(lambda v: xp.sum(ts.grad(lambda w: xp.sum(draw(w)))(v)))(a)
    h = 1e-5 * a
    along = lambda t: np.asarray(ts.jit(log_gamma_slope)(a + t, np.log(x + t * slope))) * (x + t * slope)
    np.testing.assert_allclose(second, (along(h) - along(-h)) / (2 * h), rtol=1e-5, atol=1e-9)
    bad = ts.jvp(draw, (np.array([-1.0, 0.0, np.nan]),), (np.ones(3),))[1]
    assert np.isnan(bad).all()


def test_counts_have_no_derivative():
    rate = np.array([0.0, 3.0, 50.0], np.float32)
    assert (np.asarray(r.poisson(KEY, np.zeros(1000, np.float32))) == 0).all()
    for draw in (lambda v: xp.astype(r.poisson(KEY, v), "f32"), lambda v: r.binomial(KEY, 20.0, v / 51.0)):
        value, slope = ts.jvp(draw, (rate,), (np.ones(3, np.float32),))
        assert value[0] == 0.0 and np.array_equal(slope, np.zeros(3))
        assert np.array_equal(ts.grad(lambda v: xp.sum(draw(v)))(rate), np.zeros(3))


def wald_cdf(x: float, m: float) -> float:
    phi = lambda z: math.erfc(-z / math.sqrt(2)) / 2
    return phi((x / m - 1) / math.sqrt(x)) + math.exp(2 / m) * phi(-(x / m + 1) / math.sqrt(x))


def test_walds_values_keep_their_quantile():
    m = np.array([0.4, 0.4, 1.0, 1.0, 1.0, 3.0, 30.0])
    x = np.array([0.1, 1.2, 0.05, 0.8, 6.0, 2.0, 100.0])
    h = 1e-5
    slope = np.asarray(ts.jit(wald_slope)(m, x))
    for mean, at, got in zip(m, x, slope, strict=True):
        by_mean = (wald_cdf(at, mean + h) - wald_cdf(at, mean - h)) / (2 * h)
        density = (wald_cdf(at * (1 + h), mean) - wald_cdf(at * (1 - h), mean)) / (2 * h * at)
        assert math.isclose(got, -by_mean / density, rel_tol=1e-6), (mean, at)
    # Both formulas agree at the switch from one to the other, z = 2, and the second derivative is that of the slope along the curve.
    near, far = (np.asarray(ts.jit(wald_slope)(np.ones(1), np.array([x]))) for x in (1.0 + 1e-12, 1.0 - 1e-12))
    np.testing.assert_allclose(near, far, rtol=1e-11)
    draw = lambda v: r.wald(KEY, v, dtype=ts.f64)
    values, first = np.asarray(draw(m)), np.asarray(ts.grad(lambda v: xp.sum(draw(v)))(m))
    second = ts.grad(lambda v: xp.sum(ts.grad(lambda w: xp.sum(draw(w)))(v)))(m)
    along = lambda t: np.asarray(ts.jit(wald_slope)(m + t, values + t * first))
    np.testing.assert_allclose(second, (along(h) - along(-h)) / (2 * h), rtol=1e-5)
