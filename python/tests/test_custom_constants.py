"""Rules of derivatives that close over arrays. Those of more than 16 elements are inputs of the program, and were refused."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import xp

W = np.linspace(-1, 2, 24, dtype=np.float32).reshape(4, 6)
V = np.linspace(1, 3, 20, dtype=np.float32)
AT = np.arange(20)[::-1].copy()
X = np.float32([0.5, -1.0, 2.0, 0.25])


@ts.custom_vjp
def product(x):
    return xp.sum(x @ W) + xp.sum(V)


def _bwd(kept, ct):
    # An array of the rule alone, one that the function has too, and integers: three times the true derivative.
    return (3 * ct * (xp.asarray(W) @ np.ones(6, np.float32) + 0 * xp.sum(V[AT])),)


product.defvjp(lambda x: (product(x), None), _bwd)


@ts.custom_jvp
def jumped(x):
    return x * xp.sum(xp.asarray(V))


@jumped.defjvp
def _jvp(primals, tangents):
    return jumped(*primals), 2 * tangents[0] * xp.sum(V)


def test_rules_of_custom_vjp_close_over_arrays():
    wanted = 3 * W.sum(1)
    np.testing.assert_allclose(product(X), X @ W.sum(1) + V.sum(), rtol=1e-6)
    for f in (product, ts.jit(product), lambda x: ts.jit(product)(x)):
        np.testing.assert_allclose(ts.grad(f)(X), wanted, rtol=1e-6)
    np.testing.assert_allclose(ts.jit(ts.vmap(ts.grad(product)))(np.stack([X, X])), [wanted, wanted], rtol=1e-6)
    np.testing.assert_allclose(ts.vmap(product)(np.stack([X, 2 * X])), [product(X), product(2 * X)], rtol=1e-6)


def test_rules_of_custom_jvp_close_over_arrays():
    total = V.sum()
    assert np.allclose(jumped(2.0), 2 * total) and np.allclose(ts.grad(jumped)(2.0), 2 * total)
    assert np.allclose(ts.jvp(jumped, (2.0,), (1.5,))[1], 3 * total)
    assert np.allclose(ts.jit(ts.vmap(ts.grad(jumped)))(np.ones(3, np.float32)), 2 * total)
    assert np.allclose(ts.grad(lambda x: jumped(x) + jumped(jumped(x)))(1.0), 2 * total + 4 * total**2)


def test_inside_loops_and_inside_each_other():
    def loop(x):
        return ts.scan(lambda c, v: (jumped(c) * v / np.float32(V.sum()), None), x, np.ones(3, np.float32))[0]

    assert np.allclose(loop(1.0), 1) and np.allclose(ts.grad(loop)(1.0), 8)

    @ts.custom_jvp
    def outer(x):
        return jumped(x)

    outer.defjvp(lambda primals, tangents: (jumped(*primals), ts.grad(jumped)(primals[0]) * tangents[0]))
    assert np.allclose(ts.jit(ts.grad(outer))(1.0), 2 * V.sum())


def test_the_array_is_the_one_of_the_trace():
    table = np.arange(20, dtype=np.float32)
    f = ts.custom_jvp(lambda x: x * xp.sum(table))
    f.defjvp(lambda p, t: (f(*p), t[0] * xp.sum(table)))
    assert ts.grad(f)(1.0) == 190


def test_traced_values_are_still_refused():
    def outer(x, y):
        f = ts.custom_jvp(lambda x: x * y)
        f.defjvp(lambda p, t: (f(*p), t[0] * y))
        return f(x)

    with pytest.raises(ts.UnsupportedError, match="pass the value as an argument"):
        ts.grad(outer)(1.0, 2.0)


def test_one_array_is_one_input_however_often_it_is_read():
    table = xp.asarray(np.arange(40, dtype=np.float32))
    f = ts.jit(lambda x: x * table + table)
    np.testing.assert_array_equal(f(np.float32(2)), np.arange(40) * 3)
    assert "array_1" not in f.trace(np.float32(2))


def rule_of(f, rule):
    f = ts.custom_jvp(f)
    f.defjvp(rule)
    return f


@pytest.mark.parametrize("rule, code, message", [
    (lambda p, t: t[0], "E_ARGUMENT", "a pair, got one value"),
    (lambda p, t: (p[0], t[0], 1), "E_ARGUMENT", "a pair, got a tuple of 3"),
    (lambda p, t: (xp.sum(p[0]), t[0]), "E_TYPE", "f32[2], got f32[]"),
    (lambda p, t: ((p[0],), (t[0],)), "E_TYPE", "got a tuple of 1"),
    (lambda p, t: (p[0], xp.sum(t[0])), "E_SHAPE_MISMATCH", "f32[2], got f32[]"),
    (lambda p, t: (p[0], (t[0], t[0])), "E_ARGUMENT", "in the form of its results"),
    (lambda p, t: (p[0], xp.arange(2)), "E_TYPE", "got i64[2]"),
])  # fmt: skip
def test_rules_that_do_not_fit_are_reported_at_their_line(rule, code, message):
    with pytest.raises(ts.TesseraError) as caught:
        ts.jvp(rule_of(lambda x: x * 2, rule), (np.ones(2, np.float32),), (np.ones(2, np.float32),))
    text = str(caught.value)
    assert code in text and message in text and "lambda p, t" in text


def test_tangents_take_the_dtype_of_results():
    f = rule_of(lambda x: x * np.float32(2), lambda p, t: (p[0] * np.float32(2), 2 * t[0]))
    assert ts.grad(f)(1.0) == 2 and ts.grad(lambda x: xp.sum(f(x)))(np.ones(2, np.float16)).dtype == np.float16
