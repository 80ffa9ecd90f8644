"""Long chains of operations, which the CPU computes on several vectors in one iteration: every row length and every kind of number."""

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp
from tessera.trace.execute import oracle

RNG = np.random.default_rng(5)
EXTREMES = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38, -3.4028235e38, 88.72283, 88.72284,
     89.0, 89.5, 128.0, 127.99999, 129.0, -87.33654, -87.33655, -103.27893, -103.97207, -103.97208, -104.0, -104.00001, -126.0,
     -149.0, -149.99998,
     -150.0, -151.0, -151.00002, -1e9, 1e9, 0.34657359, -0.34657359],
    np.float32,
)  # fmt: skip


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def chain(x, r, scale, shift):
    return nn.gelu(nn.layernorm((x + r) * 0.5, scale, shift), True) + x


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 31, 32, 63, 64, 65, 100, 127, 128, 200, 256])
def test_rows_of_every_length(columns):
    args = [normal(21, columns), normal(21, columns), normal(columns), normal(columns)]
    got = ts.jit(chain)(*args)
    strict = ts.jit(chain, numerics="strict")(*args)
    with oracle():
        expected = ts.jit(chain)(*args)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(strict, expected)


@pytest.mark.parametrize("columns", [64, 144, 200])
@pytest.mark.parametrize("name", ["exp", "exp2", "tanh", "sigmoid", "erf", "log", "log1p", "expm1", "rsqrt", "sin", "atan"])
def test_functions_of_rows_have_the_bits_of_the_definition_under_strict(name, columns):
    x = normal(5, columns) * 20
    x.ravel()[: EXTREMES.size] = EXTREMES
    f = lambda x: getattr(xp, name)(x * 1.5) * x  # noqa: E731
    got = ts.jit(f, numerics="strict")(x)
    with oracle():
        expected = ts.jit(f)(x)
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


def logistic(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


@pytest.mark.parametrize("name, exact", [("exp", np.exp), ("exp2", np.exp2), ("tanh", np.tanh), ("sigmoid", logistic)])
def test_functions_are_within_two_units_of_the_last_place(name, exact):
    codes = np.arange(5, 2**32, 20477, dtype=np.uint64).astype(np.uint32)
    near = np.linspace(-152, 130, 100003, dtype=np.float32)
    x = np.concatenate([codes.view(np.float32), near, EXTREMES])
    x = x[~np.isnan(x)]
    got = ts.jit(getattr(xp, name))(x)
    with np.errstate(all="ignore"):
        truth = exact(x.astype(np.float64))
        nearest = np.abs(truth).astype(np.float32)
        unit = np.spacing(np.where(np.isfinite(nearest), nearest, np.finfo(np.float32).max)).astype(np.float64)
        # Results of planned kernels may be flushed: the least normal number is allowed beside the bound.
        far = np.abs(got.astype(np.float64) - truth)
        error = np.where(far <= np.finfo(np.float32).tiny, 0.0, far / unit)
    assert (error[np.isfinite(nearest)] <= 2.0).all()
    assert np.isinf(got[np.isinf(nearest)]).all()
    assert np.isnan(ts.jit(getattr(xp, name))(np.full(200, np.nan, np.float32))).all()


def test_a_negated_product_keeps_the_sign_of_zero():
    a, b = (v.ravel() for v in np.meshgrid(EXTREMES, EXTREMES))
    with np.errstate(all="ignore"):
        expected = -(a * b)
    expected[np.isnan(expected)] = np.nan
    for profile in ("default", "strict"):
        got = ts.jit(lambda a, b: -(a * b), numerics=profile)(a, b)
        if profile == "default":
            flushed = np.abs(expected) < np.finfo(np.float32).tiny
            expected, whole = np.where(flushed & (got == 0), np.copysign(np.float32(0), expected), expected), expected
        np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))
        expected = whole


def test_what_a_mask_leaves_out_is_zero():
    x = normal(7, 192)
    keep = RNG.random(x.shape) < 0.5
    f = lambda x, keep: xp.exp(xp.where(keep, x, -np.inf)) + xp.exp(xp.where(keep, x, -1e9))  # noqa: E731
    got = ts.jit(f)(x, keep)
    assert (got[~keep] == 0).all()
    np.testing.assert_allclose(got[keep], 2 * np.exp(x[keep]), rtol=1e-6)


def test_arrays_that_are_written_past_the_caches():
    x = normal(2050, 4100)
    got = ts.jit(lambda x: nn.gelu(x, True) + 1)(x)
    with oracle():
        expected = ts.jit(lambda x: nn.gelu(x, True) + 1)(x[-3:])
    np.testing.assert_allclose(got[-3:], expected, rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(got[:3], nn.gelu(x[:3], True) + 1, rtol=2e-6, atol=2e-6)
