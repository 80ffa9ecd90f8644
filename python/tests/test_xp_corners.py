"""Values and derivatives of `xp` at corners, against NumPy and by hand."""

import numpy as np
import pytest

import tessera as ts
from tessera import random, xp
from tessera.random._keys import word


def f32(*values):
    return np.array(values, np.float32)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("bins", [[3, 2, 1], [1, 2, 3], [3, 3, 1], [1, 1, 3], [2], [2, 2]])
def test_digitize_in_both_orders(bins, right):
    x, bins = f32(0, 1, 1.5, 2, 2.5, 3, 9), f32(*bins)
    for fn in (xp.digitize, ts.jit(xp.digitize, static_argnames=("right",))):
        np.testing.assert_array_equal(np.asarray(fn(x, bins, right=right)), np.digitize(x, bins, right=right))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_cube_roots_and_their_slopes(dtype):
    x = np.array([0, -0.0, np.inf, -np.inf, 27, -8, 1e-30], dtype)
    y = xp.cbrt(x)
    np.testing.assert_allclose(np.asarray(y), np.cbrt(x), rtol=1e-6)
    assert np.signbit(np.asarray(y)).tolist() == np.signbit(x).tolist()
    with np.errstate(all="ignore"):
        slopes = 1 / (3 * np.cbrt(x.astype(np.float64)) ** 2)
    np.testing.assert_allclose(np.asarray(ts.vmap(ts.grad(xp.cbrt))(x)), slopes, rtol=1e-5)
    np.testing.assert_allclose(np.asarray(ts.jvp(xp.cbrt, (x,), (np.ones_like(x),))[1]), slopes, rtol=1e-5)
    assert np.isnan(xp.cbrt(dtype(np.nan)))


def test_fmod_has_the_sign_of_the_dividend_also_of_zeros():
    x = f32(-0.0, 0.0, -4, 4, -5, 5)
    made, exact = np.asarray(xp.fmod(x, 2.0)), np.fmod(x, np.float32(2))
    np.testing.assert_array_equal(made, exact)
    np.testing.assert_array_equal(np.signbit(made), np.signbit(exact))


def test_divmod_promotes_as_other_operators_do():
    x, n = xp.arange(3.0) + 1, xp.asarray(np.int32([2, 3, 4]))
    for pair in (divmod(x, n), divmod(5.0, x), divmod(np.ones(3, np.float32), x)):
        assert all(isinstance(v, ts.Array) and v.dtype == np.float32 for v in pair)
    np.testing.assert_array_equal(np.asarray(divmod(-x, 2.0)), np.divmod(-np.asarray(x), 2.0))


def test_views_of_traced_values():
    x = f32(1, -2.5, np.inf)
    view = ts.jit(lambda x: x.view(np.int32))(x)
    np.testing.assert_array_equal(np.asarray(view), x.view(np.int32))
    np.testing.assert_array_equal(np.asarray(ts.jit(lambda i: i.view(ts.f32))(view)), x)
    for dtype in (np.int16, np.float64, bool):
        with pytest.raises(ts.KernelTypeError, match="expected a dtype of 32 bits"):
            ts.jit(lambda x, dtype=dtype: x.view(dtype))(x)


@pytest.mark.parametrize("low, high, dtype", [(0, 2**33, "i64"), (-(2**63), 2**63, "i64"), (-(2**63), 2**63 - 1, "i64"), (5, 3 * 2**61 + 7, "i64"),
                                              (0, 2**64, "u64"), (2**63, 2**64 - 3, "u64")])  # fmt: skip
def test_integers_of_long_ranges(low, high, dtype):
    key, n = random.key(7), 200
    drawn = [int(v) for v in np.asarray(random.randint(key, (n,), low, high, dtype=dtype))]
    words = ts.jit(lambda key: [word(key._words, xp.arange(n), i) for i in range(4)])(key)
    bits = [sum(int(np.asarray(w)[k]) << (32 * i) for i, w in enumerate(words)) for k in range(n)]
    span = high - low
    assert drawn == [low + (b * span >> 128 if span < 2**64 else b % 2**64) for b in bits]
    if high < 2**63:
        ends = np.full(n, low), np.full(n, high)
        np.testing.assert_array_equal(np.asarray(random.randint(key, (n,), *ends)), drawn)
