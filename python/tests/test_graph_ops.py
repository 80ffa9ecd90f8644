"""Every op of the table: its value against NumPy, on the compiler and on the oracle; its derivatives, first and second, forward
and reverse, against differences in f64 and against each other."""

import functools

import graph_ops
import numpy as np
import pytest

import tessera as ts
from tessera import xp
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


@pytest.mark.parametrize(("op", "shapes"), SMOOTH)
def test_derivatives(op, shapes):
    rng = np.random.default_rng(7)
    f, x = scalar(op, graph_ops.arguments(op, shapes), rng)
    v = [np.asarray(rng.standard_normal(a.shape)) for a in x]
    numbers = tuple(range(len(x)))
    with oracle():
        value = functools.partial(ts.jit(f))

        def moved(step):
            return float(value(*(a + step * d for a, d in zip(x, v, strict=True))))

        eps = 1e-6
        slope = (moved(eps) - moved(-eps)) / (2 * eps)
        grads = ts.grad(f, argnums=numbers)(*x)
        reverse = sum(float((g * d).sum()) for g, d in zip(grads, v, strict=True))
        forward = float(ts.jvp(f, tuple(x), tuple(v))[1])
        scale = max(1.0, abs(slope))
        assert reverse == pytest.approx(forward, rel=1e-9, abs=1e-9)
        assert reverse == pytest.approx(slope, rel=1e-5, abs=2e-7 * scale)
        assert all(g.shape == a.shape and g.dtype == a.dtype for g, a in zip(grads, x, strict=True))


@pytest.mark.parametrize(("op", "shapes"), [p for p in SMOOTH if p.values[1] == p.values[0].shapes[0]])
def test_second_derivatives(op, shapes):
    """Forward over reverse against differences of gradients."""
    rng = np.random.default_rng(8)
    f, x = scalar(op, graph_ops.arguments(op, shapes), rng)
    v = [np.asarray(rng.standard_normal(a.shape)) for a in x]
    numbers = tuple(range(len(x)))
    gradient = ts.grad(f, argnums=numbers)
    with oracle():
        got = ts.hvp(f, tuple(x), tuple(v))
        got = got if isinstance(got, tuple) else (got,)
        eps = 1e-5
        up, down = (gradient(*(a + s * d for a, d in zip(x, v, strict=True))) for s in (eps, -eps))
        for h, a, b in zip(got, up, down, strict=True):
            np.testing.assert_allclose(h, (a - b) / (2 * eps), rtol=2e-4, atol=2e-5)
