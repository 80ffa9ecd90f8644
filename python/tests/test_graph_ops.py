"""Every op of the table: its value against NumPy, on the compiler and on the oracle; its derivatives, first and second, forward
and reverse, against differences in f64 and against each other."""

import contextlib
import re
from pathlib import Path

import graph_ops
import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp
from tessera._execute import oracle

CASES = [pytest.param(op, shapes, id=f"{op.name}-{'x'.join(str(list(s)) for s in shapes)}") for op in graph_ops.OPS for shapes in op.shapes]
SMOOTH = [c for c in CASES if c.values[0].smooth]


@pytest.mark.parametrize(("op", "shapes"), CASES)
def test_value(op, shapes):
    args = graph_ops.arguments(op, shapes)
    want = np.asarray(op.reference(*args))
    for run in (oracle, None):
        if run is None:
            got = ts.jit(op.fn)(*args)
        else:
            with run():
                got = ts.jit(op.fn)(*args)
        assert got.shape == want.shape
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=1e-11, atol=op.bound)


def scalar(op, args, rng):
    """The op as a function of its float arguments to one number: a weighted sum of its results."""
    floats = [k for k in range(len(args)) if k not in op.ints]
    weights = np.asarray(rng.standard_normal(np.asarray(op.reference(*args)).shape))

    def call(*given):
        full = list(args)
        for k, v in zip(floats, given, strict=True):
            full[k] = v
        return xp.sum(op.fn(*full) * weights)

    return call, [args[k] for k in floats]


WAYS = pytest.mark.parametrize("way", [oracle, contextlib.nullcontext], ids=["oracle", "compiled"])


@WAYS
@pytest.mark.parametrize(("op", "shapes"), SMOOTH)
def test_derivatives(op, shapes, way):
    rng = np.random.default_rng(7)
    f, x = scalar(op, graph_ops.arguments(op, shapes), rng)
    v = tuple(np.asarray(rng.standard_normal(a.shape)) for a in x)
    numbers, eps = tuple(range(len(x))), 1e-6

    @ts.jit
    def everything(x, v):
        up, down = (f(*(a + s * d for a, d in zip(x, v, strict=True))) for s in (eps, -eps))
        return up, down, ts.grad(f, argnums=numbers)(*x), ts.jvp(f, x, v)[1]

    with way():
        up, down, grads, forward = everything(tuple(x), v)
    slope = (float(up) - float(down)) / (2 * eps)
    reverse = sum(float((g * d).sum()) for g, d in zip(grads, v, strict=True))
    scale = max(1.0, abs(slope))
    assert reverse == pytest.approx(float(forward), rel=1e-9, abs=1e-9)
    assert reverse == pytest.approx(slope, rel=1e-5, abs=2e-7 * scale)
    assert all(g.shape == a.shape and g.dtype == a.dtype for g, a in zip(grads, x, strict=True))


@WAYS
@pytest.mark.parametrize(("op", "shapes"), [p for p in SMOOTH if p.values[1] == p.values[0].shapes[0]])
def test_second_derivatives(op, shapes, way):
    """Forward over reverse, and reverse over reverse, against differences of gradients."""
    rng = np.random.default_rng(8)
    f, x = scalar(op, graph_ops.arguments(op, shapes), rng)
    v = tuple(np.asarray(rng.standard_normal(a.shape)) for a in x)
    numbers, eps = tuple(range(len(x))), 1e-5
    gradient = ts.grad(f, argnums=numbers)

    def along(x, v):
        return sum(xp.sum(g * d) for g, d in zip(gradient(*x), v, strict=True))

    @ts.jit
    def everything(x, v):
        up, down = (gradient(*(a + s * d for a, d in zip(x, v, strict=True))) for s in (eps, -eps))
        got = ts.hvp(f, x, v)
        return up, down, got if isinstance(got, tuple) else (got,), ts.grad(along)(x, v)

    with way():
        up, down, forward, reverse = everything(tuple(x), v)
    for h, r, a, b in zip(forward, reverse, up, down, strict=True):
        np.testing.assert_allclose(h, (a - b) / (2 * eps), rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(r, h, rtol=1e-8, atol=1e-9)


def test_no_function_is_left_out_without_a_reason():
    rows = Path(graph_ops.__file__).read_text().partition("LEFT_OUT")[0]
    bare = []
    for space in (xp, nn):
        public = {n: v for n, v in vars(space).items() if not n.startswith("_") and callable(v) and not isinstance(v, type)}
        for name, value in public.items():
            # Other names of one function share its row.
            names = [n for n, v in public.items() if v is value]
            has_row = any(re.search(rf'\b(xp|nn)\.{n}\b|"{n}"', rows) for n in names)
            if not has_row and not any(n in graph_ops.LEFT_OUT for n in names):
                bare.append(f"{space.__name__}.{name}")
    assert not bare, f"functions without a row in graph_ops.OPS and without a reason: {bare}"


def test_no_primitive_is_left_out_without_a_reason():
    crates = Path(__file__).parents[2] / "crates"
    table = (crates / "graph/src/table.rs").read_text()
    scalars = (crates / "numerics/src/scalar_fn.rs").read_text()
    known = set(re.findall(r'= 0x[0-9A-F]+ "(\w+)"', table)) | set(re.findall(r'^    \w+ = "(\w+)", \d,', scalars, re.M))
    assert len(known) > 80
    used = set()
    for op in graph_ops.OPS:
        used |= set(re.findall(r"graph\.(\w+)", ts.jit(op.fn).trace(*graph_ops.arguments(op, op.shapes[0]))))
    assert used <= known
    left = known - used - set(graph_ops.LEFT_OUT_PRIMITIVES)
    assert not left, f"primitives without a row in graph_ops.OPS and without a reason: {sorted(left)}"
    stale = used & set(graph_ops.LEFT_OUT_PRIMITIVES)
    assert not stale, f"primitives that have a row now: {sorted(stale)}"


def test_derivatives_against_jax():
    """First and second derivatives of the functions that JAX has by the same name."""
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    compared = 0
    for op in graph_ops.OPS:
        theirs = getattr(jax.numpy, op.name, None)
        if not op.smooth or theirs is None or op.ints:
            continue
        x = graph_ops.arguments(op, op.shapes[0])
        weights = np.random.default_rng(3).standard_normal(np.asarray(op.reference(*x)).shape)
        numbers = tuple(range(len(x)))
        ours = ts.grad(lambda *a, op=op, w=weights: xp.sum(op.fn(*a) * w), argnums=numbers)
        wanted = jax.grad(lambda *a, f=theirs, w=weights: (f(*a) * w).sum(), argnums=numbers)
        for g, h in zip(ours(*x), wanted(*x), strict=True):
            np.testing.assert_allclose(g, np.asarray(h), rtol=1e-9, atol=1e-11, err_msg=op.name)
        along = tuple(np.ones_like(a) for a in x)
        second = ts.jvp(lambda *a, g=ours: g(*a), tuple(x), along)[1]
        for g, h in zip(second, jax.jvp(wanted, tuple(x), along)[1], strict=True):
            np.testing.assert_allclose(g, np.asarray(h), rtol=1e-8, atol=1e-10, err_msg=op.name)
        compared += 1
    assert compared > 30, compared
