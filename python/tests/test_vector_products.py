"""Matrix-vector products, which are reductions on the CPU. Compared with NumPy in f64."""

import numpy as np
import pytest
import tessera as ts
from tessera import xp

SHAPES = [
    ((300, 100), (100,)), ((100,), (100, 300)), ((100,), (100,)), ((5, 30, 100), (100,)), ((5, 30, 100), (5, 100, 1)), ((1, 100), (100, 40)),
    ((100, 1), (1, 40)), ((3, 1, 100), (3, 100, 7)), ((64, 63), (63,)), ((2, 1, 4, 64), (4, 64, 1)), ((1, 64), (64, 1)), ((0, 64), (64,)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32])
@pytest.mark.parametrize("a,b", SHAPES)
def test_products_with_vectors(a, b, dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-4, 5, s).astype(dtype) for s in (a, b))
    want = np.matmul(x.astype(np.float64), y.astype(np.float64))
    for profile in ("default", "strict"):
        f = ts.jit(xp.matmul, numerics=profile)
        np.testing.assert_array_equal(np.asarray(f(x, y), np.float64), want)
        t = ts.jit(lambda x, y: xp.matmul(x.swapaxes(-1, -2) if x.ndim > 1 else x, y), numerics=profile)
        if x.ndim > 1:
            np.testing.assert_array_equal(np.asarray(t(np.ascontiguousarray(np.swapaxes(x, -1, -2)), y), np.float64), want)


def test_several_axes_are_summed():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(6, 4, 32)).astype(np.float32), rng.normal(size=(4, 32)).astype(np.float32)
    got = ts.jit(lambda x, y: xp.tensordot(x, y, 2))(x, y)
    np.testing.assert_allclose(got, np.tensordot(x.astype(np.float64), y.astype(np.float64), 2), rtol=1e-5, atol=1e-5)
    got = ts.jit(lambda x, y: xp.einsum("ijk,kj->i", x, y))(x, np.ascontiguousarray(y.T))
    np.testing.assert_allclose(got, np.einsum("ijk,jk->i", x.astype(np.float64), y.astype(np.float64)), rtol=1e-5, atol=1e-5)


def test_derivatives_and_batches():
    rng = np.random.default_rng(2)
    m, v = rng.normal(size=(70, 80)).astype(np.float32), rng.normal(size=80).astype(np.float32)
    f = lambda m, v: xp.sum(xp.tanh(m @ v))
    gm, gv = ts.jit(ts.grad(f, argnums=(0, 1)))(m, v)
    s = 1 - np.tanh(m.astype(np.float64) @ v) ** 2
    np.testing.assert_allclose(gm, np.outer(s, v), rtol=2e-4, atol=1e-5)
    np.testing.assert_allclose(gv, m.T.astype(np.float64) @ s, rtol=2e-4, atol=1e-4)
    many = rng.normal(size=(5, 80)).astype(np.float32)
    np.testing.assert_allclose(ts.jit(ts.vmap(lambda v: m @ v))(many), many @ m.T, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("depth", [7, 8, 33, 100])
@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_products_that_vanish_keep_their_sign_in_strict(target, depth):
    a, b = np.full((9, depth), 1e-30, np.float32), np.full((depth, 12), -1e-30, np.float32)
    with ts.numerics.profile("strict"):
        made = np.asarray(ts.jit(lambda a, b: a @ b, target=target)(a, b))
    assert (made == 0).all() and np.signbit(made).all()
