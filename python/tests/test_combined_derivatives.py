"""Derivatives of kernels that combine elements by functions of their own, and of elements by position: against differences in
f64 and against formulas in NumPy."""

import numpy as np
import pytest
from test_kernel_derivatives import differences, loss_of

import tessera as ts

RNG = np.random.default_rng(11)


def arrays(*shapes):
    return tuple(RNG.uniform(0.4, 1.4, s) for s in shapes)


# Functions that are associative and, but for the product of numbers, do not commute.


@ts.func
def times(a, b):
    return a * b


@ts.func
def affine(a1, b1, a2, b2):
    """x -> a x + b, the left one first."""
    return a1 * a2, a2 * b1 + b2


@ts.func
def matrix(a, b, c, d, e, f, g, h):
    """Matrices of two rows."""
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@ts.func
def last_large(a, b):
    if b > 0.7:
        return b * 1.0
    return a * 1.0


@ts.func
def welford(n1, m1, s1, n2, m2, s2):
    n = n1 + n2
    d = m2 - m1
    return n, m1 + d * n2 / n, s1 + s2 + d * d * n1 * n2 / n


@ts.kernel
def product_rows(x: ts.Tensor["M", "N", ts.f64], y: ts.Out["M", ts.f64]):
    m = ts.tile.program_id(0) * 2
    y[m : m + 2] = ts.tile.reduce(x[m : m + 2, :], times, axis=1)
    return y


@ts.kernel
def product_all(x: ts.Tensor["M", "N", ts.f64], y: ts.Out[1, ts.f64]):
    ts.tile.grid(1)
    y[0] = ts.tile.reduce(x[...], times)
    return y


@ts.kernel
def recurrence(a: ts.Tensor["T", "D", ts.f64], b: ts.Tensor["T", "D", ts.f64], y: ts.Out["T", "D", ts.f64]):
    d = ts.tile.program_id(0) * 4
    _, h = ts.tile.associative_scan((a[:, d : d + 4], b[:, d : d + 4]), affine, axis=0)
    y[:, d : d + 4] = h
    return y


@ts.kernel
def backwards(a: ts.Tensor["T", ts.f64], b: ts.Tensor["T", ts.f64], y: ts.Out["T", ts.f64]):
    ts.tile.grid(1)
    p, h = ts.tile.associative_scan((a[:], b[:]), affine, axis=0, reverse=True)
    y[:] = h + p
    return y


@ts.kernel
def matrices(x: ts.Tensor["T", 4, ts.f64], y: ts.Out[4, ts.f64]):
    ts.tile.grid(1)
    t = x[...]
    a, b, c, d = ts.tile.reduce((t[:, 0], t[:, 1], t[:, 2], t[:, 3]), matrix, axis=0)
    y[0] = a
    y[1] = b
    y[2] = c
    y[3] = d
    return y


@ts.kernel
def branches(x: ts.Tensor["M", "N", ts.f64], y: ts.Out["M", "N", ts.f64]):
    m = ts.tile.program_id(0)
    y[m, :] = ts.tile.scan(x[m, :], last_large)
    return y


@ts.kernel
def spread(x: ts.Tensor["M", "N", ts.f64], y: ts.Out["M", ts.f64]):
    m = ts.tile.program_id(0)
    t = x[m, :]
    n, _, s = ts.tile.reduce((ts.tile.ones((N,), ts.f64), t, ts.tile.zeros((N,), ts.f64)), welford, axis=0)
    y[m] = s / n
    return y


@ts.kernel
def captured(x: ts.Tensor["M", "N", ts.f64], k: ts.f64, y: ts.Out["M", ts.f64]):
    m = ts.tile.program_id(0)
    y[m] = ts.tile.reduce(x[m, :] * k, times)
    return y


@ts.kernel
def rows_by_id(x: ts.Tensor["M", "N", ts.f64], ids: ts.Tensor["K", ts.i32], y: ts.Out["K", "N", ts.f64]):
    ts.tile.grid(1)
    t = x[...]
    y[...] = t[ids[:]] * t[ids[:]]
    return y


@ts.kernel
def along(x: ts.Tensor["M", "N", ts.f64], ids: ts.Tensor["M", "K", ts.i64], y: ts.Out["M", "K", ts.f64]):
    m = ts.tile.program_id(0) * 2
    y[m : m + 2, :] = ts.tile.take_along_axis(ts.tile.exp(x[m : m + 2, :]), ids[m : m + 2, :], axis=1)
    return y


IDS = np.array([2, 0, 2, 2, -1, 4, 7], np.int32)  # repeats, and positions outside
ALONG = RNG.integers(-1, 7, (3, 9))
CASES = [
    ("product", lambda x: product_rows(x), arrays((5, 7))),
    ("product of eight", lambda x: product_rows(x), arrays((3, 8))),
    ("product of one", lambda x: product_rows(x), arrays((2, 1))),
    ("product of all", lambda x: product_all(x), arrays((3, 5))),
    ("recurrence", lambda a, b: recurrence(a, b), arrays((9, 6), (9, 6))),
    ("recurrence of one", lambda a, b: recurrence(a, b), arrays((1, 3), (1, 3))),
    ("backwards", lambda a, b: backwards(a, b), arrays((11,), (11,))),
    ("matrices", lambda x: matrices(x), arrays((7, 4))),
    ("branches", lambda x: branches(x), arrays((3, 9))),
    ("three tiles", lambda x: spread(x), arrays((3, 6))),
    ("a number of the caller's", lambda x, k: captured(x, k), arrays((2, 5), ())),
    ("rows by position", lambda x: rows_by_id(x, IDS), arrays((5, 3))),
    ("elements by position", lambda x: along(x, ALONG), arrays((3, 6))),
]


@pytest.mark.parametrize("where", ["compiled", "interpreted"])
@pytest.mark.parametrize("name,fn,args", CASES, ids=[c[0] for c in CASES])
def test_gradients_and_tangents(name, fn, args, where):
    import contextlib

    with ts.runtime.oracle() if where == "interpreted" else contextlib.nullcontext():
        weights = RNG.uniform(0.5, 1.5, ts.jit(fn)(*args).shape)
        loss = loss_of(fn, weights)
        numbers = tuple(range(len(args)))
        got = ts.jit(ts.grad(loss, argnums=numbers))(*args)
        for g, w in zip(got, differences(ts.jit(loss), args), strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-7, atol=2e-8)
        along = tuple(RNG.uniform(-1, 1, np.shape(a)) for a in args)
        _, moved = ts.jvp(loss, args, along)
        np.testing.assert_allclose(moved, sum(np.sum(g * t) for g, t in zip(got, along, strict=True)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name,fn,args", CASES, ids=[c[0] for c in CASES])
def test_second_derivatives(name, fn, args):
    weights = RNG.uniform(0.5, 1.5, ts.jit(fn)(*args).shape)
    numbers = tuple(range(len(args)))
    along = [RNG.uniform(-1, 1, np.shape(a)) for a in args]

    def slope(*xs):
        grads = ts.grad(loss_of(fn, weights), argnums=numbers)(*xs)
        return sum((g * t).sum() for g, t in zip(grads, along, strict=True))

    got = ts.jit(ts.grad(slope, argnums=numbers))(*args)
    for g, w in zip(got, differences(ts.jit(slope), args), strict=True):
        np.testing.assert_allclose(g, w, rtol=5e-6, atol=1e-6)


def test_the_gradient_of_a_recurrence_is_the_recurrence_backwards():
    """h[t] = a[t] h[t-1] + b[t]: dL/db[t] = g[t] + a[t+1] dL/db[t+1], and dL/da[t] = h[t-1] dL/db[t]."""
    a, b, g = arrays((13, 4), (13, 4), (13, 4))
    h = np.zeros_like(b)
    for t in range(13):
        h[t] = b[t] + (a[t] * h[t - 1] if t else 0)
    db = np.zeros_like(b)
    for t in reversed(range(13)):
        db[t] = g[t] + (a[t + 1] * db[t + 1] if t < 12 else 0)
    da = np.concatenate([np.zeros((1, 4)), h[:-1]]) * db
    got = ts.grad(lambda a, b: (recurrence(a, b) * g).sum(), argnums=(0, 1))(a, b)
    np.testing.assert_allclose(got[0], da, rtol=1e-12)
    np.testing.assert_allclose(got[1], db, rtol=1e-12)


def test_the_gradient_of_take_adds_up_repeats():
    (x,) = arrays((5, 3))
    got = ts.grad(lambda x: rows_by_id(x, IDS).sum())(x)
    want = np.zeros_like(x)
    inside = IDS[(IDS >= 0) & (IDS < 5)]
    np.add.at(want, inside, 2 * x[inside])
    np.testing.assert_allclose(got, want, rtol=1e-15)


@ts.kernel
def many(x: ts.Tensor["N", ts.f32], ids: ts.Tensor["K", ts.i32], y: ts.Out["K", ts.f32]):
    ts.tile.grid(1)
    t = x[:]
    y[:] = t[ids[:]]
    return y


@pytest.mark.parametrize("n,k", [(300, 1000), (1000, 129), (20000, 5)])
def test_a_take_of_more_elements_than_one_comparison_has(n, k):
    x, ids = RNG.standard_normal(n).astype(np.float32), RNG.integers(0, n, k).astype(np.int32)
    g = RNG.integers(-8, 8, k).astype(np.float32)
    got = ts.grad(lambda x: (many(x, ids) * g).sum())(x)
    want = np.zeros(n, np.float32)
    np.add.at(want, ids, g)
    np.testing.assert_array_equal(got, want)


@ts.kernel
def ragged(x: ts.Tensor["T", ts.f64], y: ts.Out["T", ts.f64]):
    t = ts.tile.program_id(0) * 16
    y[t : t + 16] = ts.tile.scan(x[t : t + 16], divided)
    return y


@ts.func
def divided(a, b):
    """Not defined for padding, which is zero."""
    return a / b * b * b


def test_padding_after_a_scan_has_no_part_in_the_gradient():
    (x,) = arrays((21,))
    loss = lambda x: (ragged(x) * np.arange(1.0, 22)).sum()  # noqa: E731
    got = ts.jit(ts.grad(loss))(x)
    np.testing.assert_allclose(got, differences(ts.jit(loss), (x,))[0], rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("profile", ["strict", "deterministic"])
def test_the_gradient_is_the_same_bits_every_time(profile):
    x, ids = RNG.standard_normal(300).astype(np.float32), RNG.integers(0, 300, 900).astype(np.int32)
    g = RNG.standard_normal(900).astype(np.float32)
    with ts.numerics.profile(profile):
        runs = [np.asarray(ts.grad(lambda x: (many(x, ids) * g).sum())(x)) for _ in range(3)]
    assert all((r.view(np.uint32) == runs[0].view(np.uint32)).all() for r in runs)
