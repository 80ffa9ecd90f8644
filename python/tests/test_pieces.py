"""Concatenations that are read part by part, arrays of few components, transposes of transposes: results compared with NumPy's, and
which of them a plan keeps in memory."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import xp

RNG = np.random.default_rng(29)


def stored(f, *args) -> int:
    """How many arrays a plan keeps."""
    return f.compiled(*args).plan.count("sched.store")


SHAPES = [(5,), (16,), (17,), (40, 7), (33, 64), (3, 20, 18)]


@pytest.mark.parametrize("profile", ["default", "strict"])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int8", "bool"])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums_of_rolls(shape, dtype, profile):
    x = (RNG.standard_normal(shape) * 5).astype(dtype)
    axes = tuple(range(len(shape)))
    shifts = [tuple(int(s) for s in RNG.integers(-2, 3, len(shape))) for _ in range(4)]
    def near(m, x):
        out = x
        for by in shifts:
            rolled = m.roll(x, by, axis=axes)
            out = (m.logical_or if dtype == "bool" else m.maximum)(out, rolled)
        return out

    f = ts.jit(lambda x: near(xp, x), numerics=profile)
    np.testing.assert_array_equal(np.asarray(f(x)), near(np, x))


def test_rolls_are_not_kept():
    x = RNG.standard_normal((64, 48)).astype(np.float32)
    f = ts.jit(lambda x: xp.roll(x, 1, axis=0) + xp.roll(x, -1, axis=0) + xp.roll(x, (1, 2), axis=(0, 1)) - 4 * x)
    want = np.roll(x, 1, 0) + np.roll(x, -1, 0) + np.roll(x, (1, 2), (0, 1)) - 4 * x
    np.testing.assert_allclose(f(x), want, rtol=1e-5, atol=1e-5)
    assert stored(f, x) == 1


def test_a_value_that_is_computed_is_kept_once_for_its_rolls():
    x = RNG.standard_normal((64, 48)).astype(np.float32)

    def g(m, x):
        y = m.exp(x)
        return m.roll(y, 1, axis=0) + m.roll(y, -1, axis=0) + m.roll(y, 1, axis=1)

    f = ts.jit(lambda x: g(xp, x))
    np.testing.assert_allclose(f(x), g(np, x), rtol=1e-5)
    assert stored(f, x) == 2


def test_joins_with_other_users_stay_in_memory():
    x = RNG.standard_normal((24, 20)).astype(np.float32)
    w = RNG.standard_normal((20, 8)).astype(np.float32)

    def g(m, x, w):
        r = m.roll(x, 3, axis=1)
        return r @ w, r * 2, m.sum(r, axis=1)

    for got, want in zip(ts.jit(lambda x, w: g(xp, x, w))(x, w), g(np, x, w), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_parts_of_joins_and_joins_of_parts():
    x, y = (RNG.standard_normal((9, 30)).astype(np.float32) for _ in range(2))

    def g(m, x, y):
        joined = m.concatenate([x[:, 3:], y[:, :5], x[:, :2]], axis=1)
        return joined[1:, 4:28] * 2 + x[1:, 4:28], m.where(joined[::-1] > 0, joined[::-1], -1), (joined.T + 1)[5:11]

    f = ts.jit(lambda x, y: g(types, x, y))
    for got, want in zip(f(x, y), g(np, x, y), strict=True):
        np.testing.assert_array_equal(got, want)


class types:  # noqa: N801 - NumPy's names for the same functions
    concatenate = staticmethod(lambda parts, axis: xp.concat(parts, axis=axis))
    where = staticmethod(xp.where)


def test_a_stencil_in_a_loop_and_its_derivative():
    x = RNG.standard_normal((40, 33)).astype(np.float32)

    def step(m, u):
        near = m.roll(u, 1, 0) + m.roll(u, -1, 0) + m.roll(u, 1, 1) + m.roll(u, -1, 1)
        return u + np.float32(0.1) * (near - 4 * u)

    def rolls(m):
        return (lambda x, n, a: xp.roll(x, n, axis=a)) if m is xp else np.roll

    class With:
        def __init__(self, m):
            self.roll = rolls(m)

    got = ts.jit(lambda u: ts.fori_loop(0, 7, lambda i, u: step(With(xp), u), u))(x)
    want = x
    for _ in range(7):
        want = step(With(np), want)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    # The step is linear and symmetric.
    v = RNG.standard_normal(x.shape).astype(np.float32)
    pulled = ts.jit(ts.grad(lambda u: xp.sum(step(With(xp), u) * v)))(x)
    np.testing.assert_allclose(pulled, step(With(np), v), rtol=1e-4, atol=1e-5)


def lorenz(m, s):
    x, y, z = s[:, 0], s[:, 1], s[:, 2]
    return m.stack([10 * (y - x), x * (28 - z) - y, x * y - z], axis=-1)


def test_components_are_taken_apart():
    s = RNG.standard_normal((50, 3)).astype(np.float32)

    def step(m, s):
        h = np.float32(0.01)
        k1 = lorenz(m, s)
        k2 = lorenz(m, s + h * k1)
        return s + h / 2 * (k1 + k2)

    f = ts.jit(lambda s: step(xp, s))
    np.testing.assert_allclose(f(s), step(np, s), rtol=1e-5, atol=1e-5)
    run = ts.jit(lambda s: ts.scan(lambda s, _: (step(xp, s),) * 2, s, None, length=20))
    last, rows = run(s)
    want = s
    for _ in range(20):
        want = step(np, want)
    np.testing.assert_allclose(last, want, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(rows[-1], last)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_components_along_any_axis_in_strict(axis):
    x = RNG.standard_normal((4, 3, 5)).astype(np.float32)

    def g(m, x):
        parts = [x.take(k, axis=axis) if m is np else xp.take(x, k, axis=axis) for k in range(x.shape[axis])]
        y = m.stack([parts[-1] * parts[0], *parts[1:-1], parts[0] - parts[1]], axis=axis) * 2 + x
        return m.stack([y.take(0, axis=axis) if m is np else xp.take(y, 0, axis=axis), parts[1]], axis=0), y

    for got, want in zip(ts.jit(lambda x: g(xp, x), numerics="strict")(x), g(np, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_transposes_of_transposes_move_nothing():
    a = RNG.standard_normal((6, 5, 4)).astype(np.float32)

    def solve(x):
        return ts.scan(lambda c, r: (c + r, c * r), 0.0, x)[1]

    def twice(x):
        return ts.scan(lambda c, r: (c - r, c + r), 0.0, ts.scan(lambda c, r: (c + r, c * r), 0.0, x)[1], reverse=True)[1]

    f = ts.jit(ts.vmap(twice))
    got = f(a[:, :, 0])
    want = np.stack([np.asarray(twice(row)) for row in a[:, :, 0]])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    assert f.compiled(a[:, :, 0]).plan.count('of = "transpose"') <= 2
    g = ts.jit(lambda a: xp.permute_dims(xp.permute_dims(a, (2, 0, 1)), (1, 2, 0)) + 1)
    np.testing.assert_array_equal(g(a), a + 1)
    h = ts.jit(lambda a: xp.permute_dims(xp.permute_dims(a, (2, 0, 1)), (2, 1, 0)))
    np.testing.assert_array_equal(h(a), a.transpose(2, 0, 1).transpose(2, 1, 0))
    assert ts.jit(solve)(a[0, :, 0]).shape == (5,)


@pytest.mark.parametrize("fill", [0, 1.5, -np.inf])
@pytest.mark.parametrize("shape", [(7,), (30, 17), (5, 6, 33)])
def test_stencils_of_pads(shape, fill):
    x = RNG.standard_normal(shape).astype(np.float32)
    widths = [(1 + k, 2) for k in range(len(shape))]

    def g(m, x):
        p = m.pad(x, widths, constant_values=fill)
        near = [p[tuple(slice(k, k + d) for d in shape)] for k in (0, 1, 2)]
        return m.maximum(m.maximum(near[0], near[1]), near[2]) + x, m.where(p > 0, p, 0.5)

    f = ts.jit(lambda x: g(xp, x))
    for got, want in zip(f(x), g(np, x), strict=True):
        np.testing.assert_array_equal(got, want)
    assert stored(f, x) == 2


def test_pads_of_rolls_and_rolls_of_pads():
    x = RNG.standard_normal((12, 20)).astype(np.float32)

    def g(m, x):
        a = m.pad(m.roll(x, 3, axis=1), [(0, 1), (2, 0)])
        b = m.roll(m.pad(x, [(1, 0), (0, 2)]), (-1, 2), axis=(0, 1))
        return a * 2 + b, m.pad(x[2:], [(3, 0), (0, 2)])[::-1] - b

    for got, want in zip(ts.jit(lambda x: g(xp, x))(x), g(np, x), strict=True):
        np.testing.assert_array_equal(got, want)


def test_pads_with_a_number_that_is_computed():
    x = RNG.standard_normal((9, 20)).astype(np.float32)
    f = ts.jit(lambda x: xp.pad(x, [(1, 1), (0, 3)], constant_values=xp.sum(x))[:, 1:] * 2)
    want = np.pad(x, [(1, 1), (0, 3)], constant_values=x.sum())[:, 1:] * 2
    np.testing.assert_allclose(f(x), want, rtol=1e-5)
