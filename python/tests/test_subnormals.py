"""Subnormal numbers in functions: `strict` keeps them, `default` may give zero for results of f32 arithmetic (LANGUAGE 13), and casts,
comparisons, minima and f64 keep them everywhere."""

import numpy as np

import tessera as ts

xp = ts.xp
TINY = np.array([1e-40, -3e-41, 1.4e-45, 1e-38, 1.0], np.float32)


def test_strict_keeps_subnormals():
    with ts.numerics.profile("strict"):
        got = ts.jit(lambda x: (x * 0.5, x + x, x - 2 * x))(TINY)
    for a, b in zip(got, (TINY * np.float32(0.5), TINY + TINY, TINY - 2 * TINY), strict=True):
        np.testing.assert_array_equal(np.asarray(a), b)


def test_results_are_within_the_least_normal_number():
    least = np.finfo(np.float32).tiny
    for got, exact in (
        (ts.jit(lambda x: x * 0.5)(TINY), TINY.astype(np.float64) * 0.5),
        (ts.jit(lambda x: x + x)(TINY), TINY.astype(np.float64) * 2),
    ):
        assert (np.abs(np.asarray(got, np.float64) - exact) <= least).all()


def test_casts_comparisons_extremes_and_f64_keep_them():
    wide = TINY.astype(np.float64)
    assert np.array_equal(np.asarray(ts.jit(lambda x: xp.astype(x, ts.f32))(wide)), TINY)
    assert np.array_equal(np.asarray(ts.jit(lambda x: xp.astype(x, ts.f64))(TINY)), wide)
    assert np.array_equal(np.asarray(ts.jit(lambda x: x > 0)(TINY)), TINY > 0)
    assert np.array_equal(np.asarray(ts.jit(lambda x: x == 0)(TINY)), TINY == 0)
    assert np.array_equal(np.asarray(ts.jit(lambda x: xp.maximum(x, 0.0))(TINY)), np.maximum(TINY, 0))
    assert np.asarray(ts.jit(lambda x: xp.min(x))(TINY)) == TINY.min()
    assert np.array_equal(np.asarray(ts.jit(lambda x: x * 0.5)(np.array([5e-324 * 4, 1e-310]))), np.array([5e-324 * 2, 5e-311]))
    assert np.array_equal(np.asarray(ts.jit(lambda x: xp.flip(x))(TINY)), TINY[::-1])


def test_a_kernel_of_the_users_keeps_them():
    @ts.kernel
    def half(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        y[:] = x[:] * 0.5
        return y

    np.testing.assert_array_equal(np.asarray(half(TINY)), TINY * np.float32(0.5))
    np.testing.assert_array_equal(np.asarray(ts.jit(lambda x: half(x))(TINY)), TINY * np.float32(0.5))
