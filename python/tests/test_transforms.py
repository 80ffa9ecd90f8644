"""Transforms of functions: what they give, and that they nest. Values of ops are in `test_graph_ops`."""

import numpy as np
import pytest

import tessera as ts
from tessera import xp

RNG = np.random.default_rng(0)
W, B, X = (RNG.standard_normal(s) for s in ((4, 3), (3,), (5, 4)))


def model(params, x):
    return xp.tanh(x @ params["w"] + params["b"])


def loss(params, x):
    return (model(params, x) ** 2).sum()


PARAMS = {"w": W, "b": B}


def test_the_printed_example():
    y, pull = ts.vjp(lambda x: x * x + 2 * x, 3.0)
    assert (float(y), float(pull(1.0)[0])) == (15.0, 8.0)


def test_gradients_of_trees():
    g = ts.grad(loss)(PARAMS, X)
    h = np.tanh(X @ W + B)
    dz = 2 * h * (1 - h * h)
    np.testing.assert_allclose(g["w"], X.T @ dz, rtol=1e-12)
    np.testing.assert_allclose(g["b"], dz.sum(0), rtol=1e-12)
    value, again = ts.value_and_grad(loss)(PARAMS, X)
    assert float(value) == pytest.approx((h * h).sum())
    np.testing.assert_array_equal(again["w"], g["w"])


def test_which_arguments():
    f = lambda a, b: (a * b * b).sum()  # noqa: E731
    a, b = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    np.testing.assert_array_equal(ts.grad(f)(a, b), b * b)
    np.testing.assert_array_equal(ts.grad(f, argnums=1)(a, b), 2 * a * b)
    np.testing.assert_array_equal(ts.grad(f, wrt="b")(a, b), 2 * a * b)
    second, first = ts.grad(f, argnums=(1, 0))(a, b)
    np.testing.assert_array_equal(first, b * b)
    np.testing.assert_array_equal(second, 2 * a * b)
    assert isinstance(ts.grad(f, argnums=(0,))(a, b), tuple)

    class Asking(np.ndarray):
        requires_grad = True

    np.testing.assert_array_equal(ts.grad(f)(a, b.view(Asking)), 2 * a * b)

    @ts.jit
    @ts.autodiff(wrt="b")
    def marked(a, b):
        return (a * b * b).sum()

    np.testing.assert_array_equal(ts.autodiff.grad(marked)(a, b), 2 * a * b)


def test_aux():
    (value, aux), g = ts.value_and_grad(lambda x: ((x * x).sum(), x + 1), has_aux=True)(B)
    np.testing.assert_array_equal(aux, B + 1)
    np.testing.assert_allclose(g, 2 * B)
    assert float(value) == pytest.approx((B * B).sum())
    g, aux = ts.grad(lambda x: ((x * x).sum(), {"n": 3}), has_aux=True)(B)
    assert int(aux["n"]) == 3


def test_integers_beside_floats_have_no_gradient():
    f = lambda table, i: table[i].sum()  # noqa: E731
    np.testing.assert_array_equal(ts.grad(f)(np.ones((4, 2)), np.array([1, 1, 3])), [[0, 0], [2, 2], [0, 0], [1, 1]])
    y, pull = ts.vjp(f, np.ones((4, 2)), np.array([1]))
    d, none = pull(1.0)
    assert none is None and d[1, 0] == 1


def test_orders_of_derivatives():
    f = lambda x: x**4  # noqa: E731
    assert float(ts.grad(ts.grad(f))(2.0)) == 48.0
    assert float(ts.grad(ts.grad(ts.grad(f)))(2.0)) == 48.0
    assert float(ts.jvp(ts.grad(f), (2.0,), (1.0,))[1]) == 48.0
    assert float(ts.grad(lambda x: ts.jvp(f, (x,), (1.0,))[1])(2.0)) == 48.0
    np.testing.assert_allclose(ts.hessian(lambda x: (x**3).sum())(np.array([1.0, 2.0])), np.diag([6.0, 12.0]))
    np.testing.assert_allclose(ts.hvp(lambda x: (x**3).sum(), (np.array([1.0, 2.0]),), (np.ones(2),)), [6.0, 12.0])


def test_jacobians():
    f = lambda x: xp.stack([x[0] * x[1], x[1] ** 2, x[2]])  # noqa: E731
    x = np.array([2.0, 3.0, 5.0])
    want = [[3, 2, 0], [0, 6, 0], [0, 0, 1]]
    np.testing.assert_allclose(ts.jacfwd(f)(x), want)
    np.testing.assert_allclose(ts.jacrev(f)(x), want)
    both = ts.jacrev(model)(PARAMS, X)
    assert both["w"].shape == (5, 3, 4, 3)
    np.testing.assert_allclose(both["w"], ts.jacfwd(model)(PARAMS, X)["w"], atol=1e-12)


def test_vmap():
    np.testing.assert_allclose(ts.vmap(lambda x: model(PARAMS, x))(X), np.tanh(X @ W + B))
    np.testing.assert_allclose(ts.vmap(lambda a, b: a @ b, (0, None))(X, W), X @ W)
    np.testing.assert_allclose(ts.vmap(lambda a: a * 2, 1, 1)(X), X * 2)
    each = ts.vmap(ts.grad(loss), (None, 0))(PARAMS, X)
    assert each["w"].shape == (5, 4, 3)
    np.testing.assert_allclose(each["w"].sum(0), ts.grad(loss)(PARAMS, X)["w"], rtol=1e-10)
    two = ts.vmap(ts.vmap(lambda a, b: a * b, (None, 0)), (0, None))(np.arange(3.0), np.arange(4.0))
    np.testing.assert_array_equal(two, np.outer(np.arange(3), np.arange(4)))
    with pytest.raises(ts.ShapeError, match="one extent"):
        ts.vmap(lambda a, b: a + b)(np.ones(3), np.ones(4))


def test_closures_are_differentiated_through():
    def outer(w):
        inner = lambda x: (w * x * x).sum()  # noqa: E731
        return ts.grad(inner)(np.array([1.0, 2.0])).sum()

    np.testing.assert_allclose(ts.grad(outer)(np.array([3.0, 4.0])), [2.0, 4.0])


def test_under_jit():
    step = ts.jit(lambda p, x: ts.value_and_grad(loss)(p, x))
    value, g = step(PARAMS, X)
    np.testing.assert_allclose(g["w"], ts.grad(loss)(PARAMS, X)["w"], rtol=1e-10)
    assert float(value) == pytest.approx(float(ts.jit(loss)(PARAMS, X)))


def test_stop_gradient_and_checkpoint():
    assert float(ts.grad(lambda x: x * ts.stop_gradient(x))(3.0)) == 3.0
    again = ts.checkpoint(lambda x: xp.sin(xp.sin(x)))
    assert float(ts.grad(again)(0.5)) == pytest.approx(np.cos(np.sin(0.5)) * np.cos(0.5))


def test_rules_of_ones_own():
    @ts.custom_vjp
    def f(x, y):
        return x * y

    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda kept, d: (d * 10.0, d * kept[0]))
    assert [float(v) for v in ts.grad(f, argnums=(0, 1))(3.0, 4.0)] == [10.0, 3.0]
    assert float(f(3.0, 4.0)) == 12.0

    @ts.custom_jvp
    def g(x):
        return xp.sin(x)

    g.defjvp(lambda primals, tangents: (xp.sin(primals[0]), tangents[0] * 7.0))
    assert float(ts.jvp(g, (1.0,), (1.0,))[1]) == 7.0
    assert float(ts.grad(g)(1.0)) == 7.0


def test_loops_and_branches():
    def f(x):
        return ts.scan(lambda c, v: (c * v, c), 1.0 + 0 * x[0], x)[0]

    x = np.array([2.0, 3.0, 4.0])
    np.testing.assert_allclose(ts.grad(f)(x), 24 / x)
    np.testing.assert_allclose(ts.grad(lambda a: ts.cond(a.sum() > 0, lambda v: (v * v).sum(), lambda v: v.sum(), a))(x), 2 * x)
    np.testing.assert_allclose(ts.grad(lambda a: ts.fori_loop(0, 3, lambda i, v: v * a[i], 1.0 + 0 * a[0]))(x), 24 / x)


def test_gradcheck():
    assert ts.gradcheck(loss, PARAMS, X[:2])

    @ts.custom_vjp
    def wrong(x):
        return x * x

    wrong.defvjp(lambda x: (x * x, x), lambda x, d: (d * x,))
    with pytest.raises(ts.TesseraError, match="gradcheck"):
        ts.gradcheck(wrong, np.array([1.0, 2.0]))
