"""Composites: functions of arrays that stay one operation of the graph until planning, where a kernel may compute them."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import xp
from tessera.transforms import composites

X = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
W = np.array([0.5, -1.0, 2.0, 1.5], np.float32)


@ts.kernel
def scaled_rows(x: ts.Tensor["M", "N", ts.f32], w: ts.Tensor["N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    i = ts.tile.grid(M)
    y[i, :] = x[i, :] * w[:] + 100.0


def fresh():
    """A composite of its own for each test: kernels stay registered."""

    @ts.composite
    def weighed(x, w, *, factor=2.0):
        return x * w * factor

    return weighed


@pytest.fixture(autouse=True)
def on_the_cpu():
    """Which kernel is chosen depends on the backend, whatever other tests of the process selected."""
    ts.runtime.select_backend("cpu")
    yield
    ts.runtime.select_backend(None)


def near(got, wanted, bound=1e-6):
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=bound, atol=bound)


def test_a_composite_is_one_op_and_means_its_decomposition():
    weighed = fresh()
    f = ts.jit(lambda x, w: weighed(x, w, factor=3.0) + 1.0)
    near(f(X, W), X * W * 3.0 + 1.0)
    near(weighed(X, W), X * W * 2.0)
    text = f.trace(X, W)
    assert "graph.composite" in text and "name = weighed, decomposition = @weighed" in text and "config = {factor = 3.0}" in text
    with ts.runtime.oracle():
        near(f(X, W), X * W * 3.0 + 1.0)
    assert "composite" not in f.compiled(X, W).plan


def test_trees_and_arrays_that_it_closes_over():
    table = np.arange(20, dtype=np.float32).reshape(5, 4)

    @ts.composite
    def both(pair, other, *, swap):
        a, b = pair["a"], pair["b"]
        return {"sum": a + b, "rest": (other * table, b if swap else a)}

    got = ts.jit(lambda a, b: both({"a": a, "b": b}, a[:1], swap=True))(X, X * 2)
    near(got["sum"], X * 3)
    near(got["rest"][0], X[:1] * table)
    near(got["rest"][1], X * 2)
    near(ts.grad(lambda a: both({"a": a, "b": a}, a[:1], swap=False)["rest"][0].sum())(X)[0], table.sum(0))


def test_the_first_kernel_that_takes_it_stands_for_it():
    weighed = fresh()
    seen = []

    @weighed.kernel(when={"backend": "nowhere"})
    def never(x, w, *, factor):
        raise AssertionError

    @weighed.kernel(when={"missing": True})
    def never_too(x, w, *, factor):
        raise AssertionError

    @weighed.kernel(takes=lambda site: seen.append(site) or site.shapes[0][0] == 3)
    def with_kernel(x, w, *, factor):
        assert factor == 2.0
        return scaled_rows(x, w)

    f = ts.jit(lambda x, w: weighed(x, w))
    near(f(X, W), X * W + 100.0)
    assert seen[0].shapes == ((3, 4), (4,)) and seen[0].dtypes == ("f32", "f32") and seen[0].config == {"factor": 2.0}
    assert seen[0].profile == "default" and seen[0].capabilities["backend"] == ts.runtime.capabilities()["backend"]
    # The definition of the graph is the decomposition, whatever runs.
    with ts.runtime.oracle():
        near(f(X, W), X * W * 2.0)
    near(f(X[:2], W), X[:2] * W * 2.0)
    assert "`weighed` is its decomposition" in f.explain(X[:2], W)
    for target in ("interp", "cpu"):
        near(ts.jit(lambda x, w: weighed(x, w), target=target)(X, W), X * W + 100.0)


def test_one_trace_serves_every_machine():
    weighed = fresh()
    weighed.kernel(lambda x, w, *, factor: xp.zeros_like(x), when={"backend": "interp"})
    traced = []

    def f(x, w):
        traced.append(1)
        return weighed(x, w)

    g = ts.jit(f)
    near(g(X, W), X * W * 2.0)
    runner = next(iter(g._traces.values())).runner
    runner.backend = "interp"
    runner._compiled.clear()
    near(runner([X, W])[0], X * 0.0)
    assert len(traced) == 1


def test_the_backend_that_is_selected_at_the_call_decides(monkeypatch):
    weighed = fresh()
    weighed.kernel(lambda x, w, *, factor: xp.zeros_like(x), when={"backend": "interp"})
    earlier = ts.jit(lambda x, w: weighed(x, w))

    def check(backend):
        # A function that was compiled for another backend, and a new one.
        for f in (earlier, ts.jit(lambda x, w: weighed(x, w))):
            near(f(X, W), X * (0.0 if backend == "interp" else W * 2.0))
            assert f.compiled(X, W).backend == backend

    for backend in ("interp", "cpu", "interp"):
        ts.runtime.select_backend(backend)
        check(backend)
    ts.runtime.select_backend(None)
    for backend in ("cpu", "interp"):
        monkeypatch.setenv("TESSERA_BACKEND", backend)
        check(backend)


def test_kernels_are_for_the_extents_and_the_profile_at_hand():
    weighed = fresh()
    weighed.kernel(lambda x, w, *, factor: x * 0.0 + float(x.shape[0]), takes=lambda site: site.profile != "strict" or "not in strict")

    @ts.jit
    def f(x: ts.Tensor["M", 4], w: ts.Tensor[4]):
        return weighed(x, w)

    near(f(X, W), X * 0.0 + 3.0)
    near(f(X[:2], W), X[:2] * 0.0 + 2.0)
    with ts.numerics.profile("strict"):
        near(f(X, W), X * W * 2.0)
        assert "not in strict" in f.explain(X, W)


def test_derivatives_by_rules_and_by_the_decomposition():
    def loss(fn):
        return lambda x, w: (fn(x, w) ** 2).sum()

    plain = fresh()
    wanted = ts.grad(loss(lambda x, w: x * w * 2.0), argnums=(0, 1))(X, W)
    for got, want in zip(ts.grad(loss(plain), argnums=(0, 1))(X, W), wanted, strict=True):
        near(got, want)
    ruled = fresh()
    # Three times the right cotangent of `x`, and none of `w`: it tells who made a derivative.
    ruled.defvjp(lambda x, w, *, factor: (ruled(x, w, factor=factor), w), lambda w, dy, *, factor: (dy * w * factor * 3.0, None), without=(1,))
    near(ts.grad(loss(ruled))(X, W), wanted[0] * 3.0)
    for got, want in zip(ts.grad(loss(ruled), argnums=(0, 1))(X, W), wanted, strict=True):
        near(got, want)
    near(ts.jvp(loss(ruled), (X, W), (X, W * 0))[1], (wanted[0] * X).sum(), 1e-5)
    ruled.defjvp(lambda primals, tangents, *, factor: (ruled(*primals, factor=factor), tangents[0] * primals[1] * factor * 5.0))
    near(ts.jvp(lambda x: loss(ruled)(x, W), (X,), (X,))[1], (wanted[0] * X).sum() * 5.0, 1e-5)
    # Second derivatives, of what rules made: there the composite is its decomposition.
    near(ts.grad(lambda x: ts.grad(loss(plain))(x, W).sum())(X), np.broadcast_to((W * 2.0) ** 2 * 2.0, X.shape))
    near(ts.grad(lambda x: ts.grad(loss(ruled))(x, W).sum())(X), np.broadcast_to((W * 2.0) ** 2 * 2.0 * 3.0, X.shape))


def test_a_rule_runs_kernels_of_its_own():
    @ts.composite
    def backward(x, dy):
        return dy * 2.0 * x

    backward.kernel(lambda x, dy: dy * 2.0 * x + 7.0)

    @ts.composite
    def square(x):
        return x * x

    square.defvjp(lambda x: (square(x), x), lambda x, dy: (backward(x, dy),))
    f = ts.jit(ts.grad(lambda x: square(x).sum()))
    near(f(X), X * 2.0 + 7.0)
    with ts.runtime.oracle():
        near(f(X), X * 2.0)


def test_batching_takes_the_decomposition():
    weighed = fresh()
    weighed.kernel(lambda x, w, *, factor: scaled_rows(x, w))
    many = np.stack([X, X * 2])
    near(ts.vmap(weighed, in_axes=(0, None))(many, W), many * W * 2.0)
    near(ts.vmap(ts.grad(lambda x: weighed(x, W).sum()))(many), np.broadcast_to(W * 2.0, many.shape))


def joined(calls=None):
    """A composite whose kernel takes rows, and whose batching rule joins the rows of all examples."""
    weighed = fresh()
    weighed.kernel(lambda x, w, *, factor: scaled_rows(x, w), takes=lambda request: len(request.shapes[0]) == 2)

    @weighed.defvmap
    def rule(size, batched, x, w, *, factor):
        if calls is not None:
            calls.append((size, batched, factor))
        if batched[1]:
            return (x if batched[0] else x[None]) * w[:, None] * factor + 7.0
        return weighed(x.reshape((-1, x.shape[-1])), w, factor=factor).reshape(x.shape)

    return weighed


def test_batching_by_a_rule():
    calls = []
    weighed, many, weights = joined(calls), np.stack([X, X * 2]), np.stack([W, W + 1])
    near(ts.vmap(lambda x, w: weighed(x, w, factor=3.0), in_axes=(0, None))(many, W), many * W + 100.0)
    assert calls == [(2, (True, False), 3.0)], "the rule is traced once"
    near(ts.vmap(weighed)(many, weights), many * weights[:, None] * 2.0 + 7.0)
    near(ts.vmap(weighed, in_axes=(None, 0))(X, weights), X * weights[:, None] * 2.0 + 7.0)
    near(ts.vmap(weighed, in_axes=(1, None), out_axes=1)(many.swapaxes(0, 1), W), (many * W + 100.0).swapaxes(0, 1))
    with ts.runtime.oracle():
        near(ts.vmap(weighed, in_axes=(0, None))(many, W), many * W * 2.0)


def test_batching_rules_inside_other_transforms():
    weighed, many = joined(), np.stack([X, X * 2])
    three = np.stack([many, many + 1, many + 2])
    near(ts.vmap(ts.vmap(weighed, in_axes=(0, None)), in_axes=(0, None))(three, W), three * W + 100.0)
    batch = ts.vmap(weighed, in_axes=(0, None))
    near(ts.grad(lambda x: xp.sum(batch(x, W)))(many), np.broadcast_to(W * 2.0, many.shape))
    near(ts.vmap(ts.grad(lambda x: xp.sum(weighed(x, W))))(many), np.broadcast_to(W * 2.0, many.shape))

    def twice(x):
        return ts.fori_loop(0, 2, lambda _, y: weighed(y, W) - 100.0, x)

    near(ts.vmap(twice)(many), many * W * W)
    near(ts.vmap(lambda p, x: ts.cond(p, lambda x: weighed(x, W), lambda x: x, x))(np.array([True, False]), many),
         [many[0] * W + 100.0, many[1]])  # fmt: skip


def test_a_batching_rule_of_a_composite_that_closes_over_an_array():
    held = np.arange(4, dtype=np.float32)

    @ts.composite
    def shifted(x):
        return x + held

    shifted.defvmap(lambda size, batched, x: x + 10.0)
    near(ts.vmap(shifted)(X), X + 10.0)
    near(shifted(X), X + held)


@pytest.mark.parametrize(
    "rule, code, text",
    [
        (lambda size, batched, x, w, *, factor: x[:, :1], "E_SHAPE_MISMATCH", r"arrays of shape \[2, 3, 4\], got \[2, 1, 4\]"),
        (lambda size, batched, x, w, *, factor: x.astype("f16"), "E_TYPE", "arrays of"),
        (lambda size, batched, x, w, *, factor: (x, x), "E_TYPE", "give what the function gives"),
        (lambda size, batched, x, w, *, factor: x + xp.asarray(np.arange(20, dtype=np.float32))[:4], "E_UNSUPPORTED", "captures no array"),
    ],
)
def test_batching_rules_that_do_not_fit_are_refused(rule, code, text):
    weighed = fresh().defvmap(rule)
    with pytest.raises(ts.TesseraError, match=text) as raised:
        ts.vmap(weighed, in_axes=(0, None))(np.stack([X, X]), W)
    assert raised.value.code == code


def test_inside_its_own_kernel_a_composite_is_its_decomposition():
    weighed, other = fresh(), fresh()
    weighed.kernel(lambda x, w, *, factor: weighed(x, w, factor=factor) + other(x, w))
    other.kernel(lambda x, w, *, factor: weighed(x, w) + 1.0)
    near(ts.jit(lambda x, w: weighed(x, w))(X, W), X * W * 4.0 + 1.0)


@pytest.mark.parametrize(
    "make, code, text",
    [
        (lambda c: c.kernel(lambda x, w, *, factor: x[:1]), "E_TYPE", "kernel of `weighed`"),
        (lambda c: c.kernel(lambda x, w, *, factor: x.astype("f16")), "E_TYPE", "as its decomposition does"),
        (lambda c: c.kernel(lambda x, w, *, factor: (x, w)), "E_TYPE", "kernel of `weighed`"),
        (lambda c: c.kernel(lambda x, w, *, factor: x + xp.asarray(np.arange(20, dtype=np.float32))[:4]),
         "E_UNSUPPORTED", "captures no array"),
    ],
)  # fmt: skip
def test_kernels_that_do_not_fit_are_refused(make, code, text):
    weighed = fresh()
    make(weighed)
    with pytest.raises(ts.TesseraError, match=text) as raised:
        ts.jit(lambda x, w: weighed(x, w))(X, W)
    assert raised.value.code == code


def test_arrays_are_positional():
    with pytest.raises(ts.TesseraError, match="expected `factor` of `weighed` to be known while tracing") as raised:
        ts.jit(lambda x, w: fresh()(x, w, factor=x))(X, W)
    assert raised.value.code == "E_ARGUMENT"


def test_factor_rules_are_read_and_kept():
    weighed = fresh().shard("m n, n -> m n")
    assert 'sharding = "m n, n -> m n"' in ts.jit(lambda x, w: weighed(x, w)).trace(X, W)
    with pytest.raises(ts.TesseraError, match="expected `operands -> results`"):
        fresh().shard("m n, n")
    wrong = fresh().shard("m n -> m n")
    with pytest.raises(ts.TesseraError, match="expected factors of 2 operands, got those of 1"):
        ts.jit(lambda x, w: wrong(x, w))(X, W)


def test_capabilities_match_values_lists_and_functions():
    assert composites.matches(3, 3) and not composites.matches(3, 4)
    assert composites.matches("ptx", ["cpu", "ptx"]) and not composites.matches("ptx", ["cpu"])
    assert composites.matches(8, lambda n: n > 4) and not composites.matches(8, [2, lambda n: n < 4])
