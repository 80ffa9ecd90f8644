"""Gradients, tangents and batches through kernels called inside jit, on the compiled path and by the interpreter, against
differences in f64."""

import numpy as np
import pytest

import tessera as ts

RNG = np.random.default_rng(7)


@ts.kernel
def gate(a: ts.Tensor["n", ts.f64], b: ts.Tensor["n", ts.f64], y: ts.Out["n", ts.f64]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = a[i] * ts.tile.sigmoid(a[i]) * b[i]
    return y


@ts.kernel
def scaled(x: ts.Tensor["n", ts.f64], alpha: ts.f64, y: ts.Tensor["n", ts.f64]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] * x[i] + y[i]
    return y


@ts.kernel
def norm(x: ts.Tensor["m", "n", ts.f64], w: ts.Tensor["n", ts.f64], y: ts.Out["m", "n", ts.f64]):
    p = ts.tile.program_id(0)
    t = x[p * 4 : p * 4 + 4, :]
    s = ts.tile.mean(t * t, axis=1)
    y[p * 4 : p * 4 + 4, :] = t * ts.tile.rsqrt(s + 1e-5)[:, None] * w[:][None, :]
    return y


@ts.kernel
def softmax(x: ts.Tensor["m", "n", ts.f64], y: ts.Out["m", "n", ts.f64]):
    p = ts.tile.program_id(0)
    t = x[p, :]
    e = ts.tile.exp(t - ts.tile.max(t))
    y[p, :] = e / ts.tile.sum(e)
    return y


@ts.kernel
def gemm(
    A: ts.Tensor["M", "K", ts.f64], B: ts.Tensor["K", "N", ts.f64], bias: ts.Tensor["N", ts.f64], C: ts.Out["M", "N", ts.f64]
):
    pm, pn = ts.tile.grid(ts.cdiv(M, 8), ts.cdiv(N, 8))
    acc = ts.tile.zeros((8, 8), ts.f64)
    for k in range(0, K, 4):
        acc = ts.tile.mma(A[pm * 8 : pm * 8 + 8, k : k + 4], B[k : k + 4, pn * 8 : pn * 8 + 8], acc)
    C[pm * 8 : pm * 8 + 8, pn * 8 : pn * 8 + 8] = ts.tile.tanh(acc + bias[pn * 8 : pn * 8 + 8][None, :])
    return C


@ts.kernel
def gemm_update(A: ts.Tensor["M", "K", ts.f64], B: ts.Tensor["K", "N", ts.f64], C: ts.Region[ts.update, ts.Tensor["M", "N", ts.f64]]):
    C[tile_m : tile_m + 8, tile_n : tile_n + 8] += ts.tile.mma(
        A[tile_m : tile_m + 8, tile_k : tile_k + 4], B[tile_k : tile_k + 4, tile_n : tile_n + 8]
    )
    return C


def arrays(*shapes):
    return tuple(RNG.uniform(0.3, 1.3, s) for s in shapes)


CASES = [
    ("lanes", lambda a, b: gate(a, b), arrays((7,), (7,))),
    ("one lane", lambda a, b: gate(a, b), arrays((1,), (1,))),
    ("no lanes", lambda a, b: gate(a, b), arrays((0,), (0,))),
    ("a number, in place", lambda x, s, y: scaled(x, s, y), arrays((5,), (), (5,))),
    ("rows", lambda x, w: norm(x, w), arrays((6, 5), (5,))),
    ("one row", lambda x, w: norm(x, w), arrays((1, 3), (3,))),
    ("no rows", lambda x, w: norm(x, w), arrays((0, 3), (3,))),
    ("softmax", lambda x: softmax(x), arrays((3, 6))),
    ("product", lambda a, b, c: gemm(a, b, c), arrays((9, 6), (6, 10), (10,))),
    ("product of one", lambda a, b, c: gemm(a, b, c), arrays((1, 1), (1, 1), (1,))),
    ("product over nothing", lambda a, b, c: gemm(a, b, c), arrays((3, 0), (0, 2), (2,))),
    ("a sum that goes on", lambda a, b, c: gemm_update(a, b, c), arrays((9, 6), (6, 10), (9, 10))),
    ("twice", lambda x, w: norm(norm(x, w) * 2.0, w), arrays((5, 4), (4,))),
]


def loss_of(fn, weights):
    return lambda *args: (fn(*args) * weights).sum()


def differences(fn, args, step=1e-6):
    out = []
    for i, x in enumerate(args):
        grad = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            ends = []
            for sign in (1, -1):
                moved = [v.copy() for v in args]
                moved[i][at] += sign * step
                ends.append(float(fn(*moved)))
            grad[at] = (ends[0] - ends[1]) / (2 * step)
        out.append(grad)
    return out


@pytest.mark.parametrize("oracle", [False, True], ids=["compiled", "interpreted"])
@pytest.mark.parametrize("name,fn,args", CASES, ids=[c[0] for c in CASES])
def test_gradients_and_tangents(name, fn, args, oracle):
    import contextlib

    with ts.runtime.oracle() if oracle else contextlib.nullcontext():
        shape = ts.jit(fn)(*args).shape
        weights = RNG.uniform(0.5, 1.5, shape)
        loss = loss_of(fn, weights)
        numbers = tuple(range(len(args)))
        got = ts.jit(ts.grad(loss, argnums=numbers))(*args)
        wanted = differences(ts.jit(loss), args)
        for g, w in zip(got, wanted, strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-7, atol=2e-8)
        along = tuple(RNG.uniform(-1, 1, a.shape) for a in args)
        _, moved = ts.jvp(loss, args, along)
        np.testing.assert_allclose(moved, sum(np.sum(g * t) for g, t in zip(got, along, strict=True)), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name,fn,args", [c for c in CASES if "no " not in c[0]], ids=[c[0] for c in CASES if "no " not in c[0]])
def test_second_derivatives(name, fn, args):
    weights = RNG.uniform(0.5, 1.5, ts.jit(fn)(*args).shape)
    numbers = tuple(range(len(args)))
    along = [RNG.uniform(-1, 1, a.shape) for a in args]

    def slope(*xs):
        grads = ts.grad(loss_of(fn, weights), argnums=numbers)(*xs)
        return sum((g * t).sum() for g, t in zip(grads, along, strict=True))

    got = ts.jit(ts.grad(slope, argnums=numbers))(*args)
    for g, w in zip(got, differences(ts.jit(slope), args), strict=True):
        np.testing.assert_allclose(g, w, rtol=5e-6, atol=1e-6)


def test_batches_of_gradients():
    xs, w = RNG.uniform(0.3, 1.3, (3, 6, 5)), RNG.uniform(0.3, 1.3, 5)
    one = ts.grad(lambda x, w: norm(x, w).sum() * 2.0, argnums=(0, 1))
    dx, dw = ts.jit(ts.vmap(one, in_axes=(0, None)))(xs, w)
    for i in range(3):
        a, b = one(xs[i], w)
        np.testing.assert_allclose(dx[i], a, rtol=1e-12)
        np.testing.assert_allclose(dw[i], b, rtol=1e-12)


@pytest.mark.parametrize("dtype,bound", [(ts.f32, 1e-5), (ts.bf16, 0.04), (ts.f16, 6e-3)], ids=["f32", "bf16", "f16"])
def test_narrow_floats(dtype, bound):
    @ts.kernel
    def low(x: ts.Tensor["m", "n", dtype], w: ts.Tensor["n", dtype], y: ts.Out["m", "n", dtype]):
        p = ts.tile.program_id(0)
        t = ts.tile.cast(x[p * 4 : p * 4 + 4, :], ts.f32)
        s = ts.tile.mean(t * t, axis=1)
        y[p * 4 : p * 4 + 4, :] = t * ts.tile.rsqrt(s + 1e-5)[:, None] * ts.tile.cast(w[:], ts.f32)[None, :]
        return y

    x, w = arrays((6, 5), (5,))
    low_x, low_w = ts.array(x, dtype), ts.array(w, dtype)
    got = ts.jit(ts.grad(lambda x, w: low(x, w).astype("f32").sum(), argnums=(0, 1)))(low_x, low_w)
    exact = [np.asarray(v).astype(np.float64) for v in (low_x, low_w)]
    wanted = ts.grad(lambda x, w: norm(x, w).sum(), argnums=(0, 1))(*exact)
    for g, v in zip(got, wanted, strict=True):
        assert g.dtype == np.asarray(low_x).dtype
        np.testing.assert_allclose(np.asarray(g).astype(np.float64), v, atol=bound * max(1.0, float(np.abs(v).max())))


def test_what_has_no_derivative_says_why_and_where():
    @ts.kernel
    def largest(x: ts.Tensor["n", ts.f32], y: ts.Out[8, ts.f32]):
        p = ts.tile.grid(1)
        best = x[0:8]
        for k in range(0, n, 8):
            best = ts.tile.maximum(best, x[k : k + 8])  # carried
        y[p * 8 : p * 8 + 8] = best
        return y

    def loss(x):
        return largest(x).sum()  # the call

    x = np.ones(16, np.float32)
    with pytest.raises(ts.UnsupportedError, match="carries `best` from iteration to iteration") as raised:
        ts.grad(loss)(x)
    assert raised.value.file == __file__
    assert "custom_vjp" in raised.value.help
    assert "# the call" in str(raised.value)
    # Forward mode goes through it.
    _, moved = ts.jvp(loss, (x,), (np.ones(16, np.float32),))
    np.testing.assert_allclose(moved, 8.0)


def test_kernels_keep_their_privileges_and_returns_under_jit():
    x, y = np.arange(5.0), np.ones(5)
    np.testing.assert_allclose(ts.jit(lambda x, y: scaled(x, 2.0, y))(x, y), 2 * x * x + 1)
    assert "privileges = [read, read, read_write]" in ts.jit(lambda x, y: scaled(x, 2.0, y)).trace(x, y)


@ts.kernel.autotune(space=dict(B=[4, 8]))
def tuned(x: ts.Tensor["n", ts.f64], y: ts.Out["n", ts.f64]):
    p = ts.tile.program_id(0)
    B = ts.tile.context().B
    y[p * B : p * B + B] = ts.tile.sin(x[p * B : p * B + B])
    return y


def test_candidates_and_grids_of_the_caller():
    x = RNG.uniform(0.3, 1.3, 10)
    np.testing.assert_allclose(ts.jit(ts.grad(lambda x: tuned(x).sum()))(x), np.cos(x), rtol=1e-12)
    w = RNG.uniform(0.3, 1.3, 5)
    rows = RNG.uniform(0.3, 1.3, (6, 5))
    # Rows that no group takes have no gradient.
    got = ts.jit(ts.grad(lambda x, w: norm[1](x, w).sum()))(rows, w)
    np.testing.assert_allclose(got[:4], ts.grad(lambda x, w: norm(x, w).sum())(rows, w)[:4], rtol=1e-12)
    assert not got[4:].any()


@pytest.mark.parametrize("profile", ["strict", "deterministic"])
def test_profiles(profile):
    args = arrays((6, 5), (5,))
    loss = lambda x, w: norm(x, w).sum()  # noqa: E731
    wanted = ts.grad(loss, argnums=(0, 1))(*args)
    run = ts.jit(ts.grad(loss, argnums=(0, 1)), numerics=profile)
    first, again = run(*args), run(*args)
    for g, h, w in zip(first, again, wanted, strict=True):
        assert (g == h).all()
        np.testing.assert_allclose(g, w, rtol=1e-12)


def test_inside_loops_and_checkpoints():
    c, xs = RNG.uniform(0.5, 1.5, 4), RNG.uniform(0.5, 1.5, (3, 4))
    loss = lambda c, xs: ts.scan(lambda c, x: (gate(c, x), c.sum()), c, xs)[0].sum()  # noqa: E731
    got = ts.jit(ts.grad(loss, argnums=(0, 1)))(c, xs)
    for g, w in zip(got, differences(ts.jit(loss), [c, xs]), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-6, atol=1e-8)
    kept = ts.jit(ts.grad(ts.checkpoint(lambda c: gate(c, c).sum())))(c)
    np.testing.assert_allclose(kept, ts.grad(lambda c: gate(c, c).sum())(c), rtol=1e-12)
