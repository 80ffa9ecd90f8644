"""What `ts.checkpoint` keeps for the reverse pass: the same derivatives whatever the policy, and only what it says is computed again."""

import re

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp

POLICIES = ["nothing", "dots", ("z",), ("other",), "everything"]


def rand(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


W = {"a": rand(4, 8), "b": rand(8, 3), "s": rand(8, 8) * 0.3}
X = rand(5, 4, seed=1)


def block(w, x):
    z = ts.checkpoint_name(x @ w["a"], "z")
    return xp.sin(xp.tanh(z) @ w["b"])


def loops(w, x):
    """Loops and branches inside, whose values are not kept."""
    c, _ = ts.scan(lambda c, _: (xp.tanh(ts.checkpoint_name(c @ w["s"], "z")), None), x @ w["a"], length=3)
    c = ts.cond(xp.sum(c) > 0, lambda v: v @ w["s"], lambda v: v * 2, c)
    return xp.exp(ts.checkpoint_name(c @ w["b"], "z") * 0.1)


def loss(f, policy=None):
    g = f if policy is None else ts.checkpoint(f, policy=policy)
    return lambda w, x: xp.sum(xp.square(g(w, x)))


def products(policy):
    """How many matmuls a step runs."""
    plan = str(ts.jit(ts.grad(loss(block, policy))).compiled({k: W[k] for k in "ab"}, X).plan)
    return len(re.findall(r'sched\.launch .*of = "[^"]*dot', plan))


@pytest.mark.parametrize("f", [block, loops])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_derivatives_do_not_depend_on_the_policy(f, policy):
    want, got = ts.grad(loss(f))(W, X), ts.jit(ts.grad(loss(f, policy)))(W, X)
    for name in W:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ts.jit(loss(f, policy))(W, X), loss(f)(W, X), rtol=1e-6)
    rows = ts.vmap(ts.grad(loss(f, policy), argnums=1), (None, 0))(W, X[:, None])
    np.testing.assert_allclose(rows, ts.vmap(ts.grad(loss(f), argnums=1), (None, 0))(W, X[:, None]), rtol=1e-5, atol=1e-5)
    push = ts.jvp(lambda v: loss(f, policy)(W, v), (X,), (X,))[1]
    np.testing.assert_allclose(push, ts.jvp(lambda v: loss(f)(W, v), (X,), (X,))[1], rtol=1e-5)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_second_derivatives_and_values_from_outside(policy):
    def of(policy):
        return lambda a: loss(block, policy)({**W, "a": a}, X)

    np.testing.assert_allclose(ts.hessian(of(policy))(W["a"]), ts.hessian(of(None))(W["a"]), rtol=1e-4, atol=1e-4)

    def captured(w):
        f = ts.checkpoint(lambda v: block(w, v), policy=policy)
        return xp.sum(xp.square(f(X) + f(X * 2)))

    def plain(w):
        return xp.sum(xp.square(block(w, X) + block(w, X * 2)))

    got, want = ts.jit(ts.grad(captured))(W), ts.grad(plain)(W)
    for name in W:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5)


def test_only_what_the_policy_says_is_kept():
    # Two matmuls forward and three in reverse; those that are not kept are run again.
    assert {str(p): products(p) for p in POLICIES} == {"nothing": 7, "dots": 5, "('z',)": 6, "('other',)": 7, "everything": 5}


def test_a_checkpoint_in_a_loop_of_layers():
    stack = rand(6, 8, 8, seed=3) * 0.3

    def net(policy):
        layer = lambda c, w: (xp.tanh(c @ w), None)  # noqa: E731
        layer = ts.checkpoint(layer, policy=policy) if policy else layer
        return lambda ws: xp.sum(xp.square(ts.scan(layer, rand(2, 8), ws)[0]))

    want = ts.grad(net(None))(stack)
    for policy in ("nothing", "dots"):
        np.testing.assert_allclose(ts.jit(ts.grad(net(policy)))(stack), want, rtol=1e-5, atol=1e-6)


def test_convolutions_count_as_dots_and_decorators_take_a_policy():
    w, x = rand(3, 2, 3, 3), rand(1, 2, 6, 6)

    @ts.checkpoint(policy="dots")
    def f(w, x):
        return xp.sin(nn.conv2d(x, w))

    got = ts.jit(ts.grad(lambda w: xp.sum(f(w, x))))(w)
    np.testing.assert_allclose(got, ts.grad(lambda w: xp.sum(xp.sin(nn.conv2d(x, w))))(w), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(f(w, x), xp.sin(nn.conv2d(x, w)), rtol=1e-6)


def test_what_is_no_policy():
    with pytest.raises(ts.TesseraError, match="expected a policy, got 'all'"):
        ts.checkpoint(block, policy="all")
    with pytest.raises(ts.KernelTypeError, match="expected a name"):
        ts.checkpoint_name(X, 3)
    assert ts.checkpoint_name(X, "z") is X
