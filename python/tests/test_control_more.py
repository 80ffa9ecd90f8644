"""`switch`, `map`, `associative_scan`, `eval_shape`, `linearize` and `reduce_window` against Python and NumPy."""

import numpy as np
import pytest

import tessera as ts
from tessera import xp

X = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 3, 4, 9])
def test_switch(index):
    branches = [lambda x: x + 1, lambda x: x * 2, lambda x: -x, lambda x: x * x, lambda x: x - 5]
    want = branches[min(max(index, 0), 4)](X)
    for got in (ts.switch(index, branches, X), ts.switch(np.int32(index), branches, X), ts.jit(lambda i, x: ts.switch(i, branches, x))(np.int32(index), X)):
        np.testing.assert_array_equal(got, want)
    one = ts.jit(lambda i, x: ts.switch(i, [branches[0]], x))(np.int32(index), X)
    np.testing.assert_array_equal(one, X + 1)


def test_switch_under_vmap_and_grad():
    branches = [xp.sin, xp.cos, lambda x: x * x]
    at, x = np.int32([0, 1, 2, 5]), np.float64([0.3, 0.4, 0.5, 0.6])
    got = ts.jit(ts.vmap(lambda i, v: ts.switch(i, branches, v)))(at, x)
    np.testing.assert_allclose(got, [np.sin(0.3), np.cos(0.4), 0.25, 0.36])
    slope = ts.jit(lambda i, v: ts.grad(lambda v: ts.switch(i, branches, v))(v))
    for i, want in enumerate((np.cos(0.3), -np.sin(0.3), 0.6)):
        np.testing.assert_allclose(slope(np.int32(i), np.float64(0.3)), want)
    with pytest.raises(ts.TesseraError, match="one integer"):
        ts.jit(lambda x: ts.switch(x, branches, x))(np.float32(1))
    with pytest.raises(ts.TesseraError, match="at least one branch"):
        ts.switch(0, [])


@pytest.mark.parametrize("batch", [None, 1, 2, 3, 7, 10])
def test_map(batch):
    def f(row):
        return {"s": xp.sum(row["x"]) * row["k"], "r": row["x"][::-1]}

    xs = {"x": X, "k": np.arange(7, dtype=np.float32)}
    for got in (ts.map(f, xs, batch_size=batch), ts.jit(lambda v: ts.map(f, v, batch_size=batch))(xs)):
        np.testing.assert_allclose(got["s"], X.sum(1) * xs["k"], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(got["r"], X[:, ::-1])
    g = ts.grad(lambda x: xp.sum(ts.map(lambda r: xp.sum(r * r), x, batch_size=batch)))(X)
    np.testing.assert_allclose(g, 2 * X, rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 8, 13, 64])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan_is_a_cumulative_sum(n, reverse):
    x = np.random.default_rng(n).standard_normal((2, n, 3))
    turned = x[:, ::-1] if reverse else x
    want = np.cumsum(turned, 1)
    want = want[:, ::-1] if reverse else want
    for got in (ts.associative_scan(xp.add, x, reverse, 1), ts.jit(lambda v: ts.associative_scan(xp.add, v, reverse=reverse, axis=-2))(x)):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_associative_scan_of_trees_that_do_not_commute():
    a, b = np.random.default_rng(1).uniform(0.5, 1.5, (2, 11))

    def join(left, right):
        return {"a": left["a"] * right["a"], "b": right["a"] * left["b"] + right["b"]}

    got = ts.jit(lambda a, b: ts.associative_scan(join, {"a": a, "b": b}))(a, b)
    h, want = 0.0, []
    for k in range(11):
        h = a[k] * h + b[k]
        want.append(h)
    np.testing.assert_allclose(got["b"], want, rtol=1e-12)
    m = np.random.default_rng(2).standard_normal((6, 2, 2))
    products = ts.jit(lambda m: ts.associative_scan(xp.matmul, m))(m)
    np.testing.assert_allclose(np.asarray(products)[-1], np.linalg.multi_dot(list(m)), rtol=1e-10)
    assert ts.gradcheck(lambda a, b: ts.associative_scan(join, {"a": a, "b": b})["b"], a[:5], b[:5])


def test_eval_shape():
    ran = []

    def f(x, w, *, flag):
        ran.append(1)
        return {"y": x @ w, "n": xp.argmax(x, 1), "f": xp.sum(x) * (2.0 if flag == "twice" else 1.0)}

    got = ts.eval_shape(f, ts.ShapeDtypeStruct((5, 4), ts.f32), np.ones((4, 2), np.float32), flag="twice")
    assert ran == [1]
    assert got == {"y": ts.ShapeDtypeStruct((5, 2), "f32"), "n": ts.ShapeDtypeStruct((5,), "i64"), "f": ts.ShapeDtypeStruct((), "f32")}
    assert got["y"].ndim == 2 and got["y"].size == 10 and "ShapeDtypeStruct(shape=(5, 2)" in repr(got["y"])
    inside = ts.jit(lambda x: x * ts.eval_shape(lambda v: v[:2] + x[0, 0], x).shape[0])
    np.testing.assert_array_equal(inside(X), X * 2)
    big = ts.eval_shape(ts.jit(lambda x: x @ x.T), ts.ShapeDtypeStruct((1 << 20, 1 << 10), ts.bf16))
    assert big.shape == (1 << 20, 1 << 20)


@pytest.mark.parametrize("how", ["outside", "jit"])
def test_linearize(how):
    def f(a, b):
        return {"y": xp.sin(a) * b["k"], "z": xp.sum(a * a)}

    a, b = np.float64([0.1, 0.2, 0.3]), {"k": np.float64(2.0)}
    da, db = np.float64([1.0, -1.0, 0.5]), {"k": np.float64(0.25)}

    def both(a, b, da, db):
        y, push = ts.linearize(f, a, b)
        return y, push(da, db), push(da * 2, db)

    y, dy, twice = both(a, b, da, db) if how == "outside" else ts.jit(both)(a, b, da, db)
    np.testing.assert_allclose(y["y"], np.sin(a) * 2)
    want = ts.jvp(f, (a, b), (da, db))[1]
    np.testing.assert_allclose(dy["y"], want["y"], rtol=1e-12)
    np.testing.assert_allclose(dy["z"], want["z"], rtol=1e-12)
    np.testing.assert_allclose(twice["z"], 2 * (2 * a * da).sum(), rtol=1e-12)


def test_linearize_of_one_argument_under_vmap():
    x = np.float64([0.3, 0.7])
    got = ts.jit(lambda x: ts.vmap(ts.linearize(lambda v: v * v * 3.0, x)[1])(xp.eye(2, dtype=ts.f64)))(x)
    np.testing.assert_allclose(got, np.diag(6 * x))


def windows(x, fold, init, size, stride, pads, holes, spread):
    """By its definition, for a matrix: padding does not count, the initial value counts once, as in JAX."""
    start = {np.sum: 0.0, np.prod: 1.0, np.max: -np.inf, np.min: np.inf}[fold]
    wide = np.full([(d - 1) * h + 1 for d, h in zip(x.shape, holes, strict=True)], start, x.dtype)
    wide[:: holes[0], :: holes[1]] = x
    wide = np.pad(wide, pads, constant_values=start)
    reach = [(s - 1) * w + 1 for s, w in zip(size, spread, strict=True)]
    out = np.empty([(d - r) // s + 1 for d, r, s in zip(wide.shape, reach, stride, strict=True)], x.dtype)
    for i, j in np.ndindex(out.shape):
        part = wide[i * stride[0] : i * stride[0] + reach[0] : spread[0], j * stride[1] : j * stride[1] + reach[1] : spread[1]]
        out[i, j] = fold(np.append(part, np.asarray(init, x.dtype)))
    return out


@pytest.mark.parametrize(("name", "fold", "init"), [("sum", np.sum, 0.0), ("sum", np.sum, 2.5), ("max", np.max, -np.inf), ("max", np.max, 0.25), ("min", np.min, np.inf), ("prod", np.prod, 1.0)])
@pytest.mark.parametrize(("size", "stride", "pads", "holes", "spread"), [
    ((2, 3), (1, 1), [(0, 0), (0, 0)], (1, 1), (1, 1)), ((3, 2), (2, 1), [(1, 0), (2, 1)], (1, 1), (1, 1)),
    ((2, 2), (1, 2), [(0, 1), (1, 1)], (1, 1), (2, 2)), ((2, 2), (1, 1), [(1, 1), (0, 0)], (2, 3), (1, 1)),
])  # fmt: skip
def test_reduce_window(name, fold, init, size, stride, pads, holes, spread):
    x = np.random.default_rng(3).standard_normal((6, 7)).astype(np.float32)
    want = windows(x, fold, init, size, stride, pads, holes, spread)
    got = ts.jit(lambda x: ts.reduce_window(x, init, name, size, stride, pads, base_dilation=holes, window_dilation=spread))(x)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_reduce_window_by_functions_and_words():
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    np.testing.assert_array_equal(ts.reduce_window(x, -(2**31), xp.maximum, (2, 2), padding="SAME"), [[5, 6, 7, 7], [9, 10, 11, 11], [9, 10, 11, 11]])
    np.testing.assert_array_equal(ts.reduce_window(x, 0, xp.add, (3, 1), (1, 1), "VALID"), x.sum(0, keepdims=True))
    assert ts.gradcheck(lambda v: ts.reduce_window(v, 0.0, "sum", 2, 1, "SAME"), np.random.default_rng(0).standard_normal((3, 4)))
    with pytest.raises(ts.UnsupportedError, match="sum, product"):
        ts.reduce_window(x, 0, xp.subtract, (1, 1))
    with pytest.raises(ts.ShapeError, match="window_dimensions"):
        ts.reduce_window(x, 0, "sum", (1, 1, 1))


def test_slices_along_one_axis():
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    take = ts.jit(lambda x, i: ts.dynamic_slice_in_dim(x, i, 2, axis=-1))
    put = ts.jit(lambda x, u, i: ts.dynamic_update_slice_in_dim(x, u, i, 1))
    # As in JAX: moved back inside, and negative starts count from the end.
    for i, start in ((1, 1), (3, 2), (-2, 2), (-9, 0)):
        np.testing.assert_array_equal(take(x, i), x[..., start : start + 2])
    np.testing.assert_array_equal(ts.dynamic_slice_in_dim(x, 1, 1), x[1:])
    want = x.copy()
    want[:, 1:] = 7.0
    np.testing.assert_array_equal(put(x, np.full((2, 2, 4), 7.0, np.float32), 2), want)
    rows = ts.vmap(lambda v, i: ts.dynamic_slice_in_dim(v, i, 2, 1))(x, np.array([0, 2]))
    np.testing.assert_array_equal(rows, [x[0, :, :2], x[1, :, 2:]])
    grad = ts.grad(lambda x: xp.sum(ts.dynamic_slice_in_dim(x, 1, 2, 2) * 3.0))(x)
    assert np.asarray(grad)[..., 1:3].min() == 3.0 and np.asarray(grad).sum() == 36.0
    with pytest.raises(ts.TesseraError, match="axis"):
        ts.dynamic_slice_in_dim(x, 0, 1, 3)


@pytest.mark.parametrize("policy", [None, "dots"])
def test_static_arguments_of_a_checkpoint(policy):
    @ts.checkpoint(policy=policy, static_argnums=1)
    def power(x, n, scale=1.0):
        out = x
        for _ in range(n - 1):  # a number of Python
            out = out * x
        return out * scale

    x = np.float32(2.0)
    assert ts.grad(lambda x: power(x, 3))(x) == 12.0 and ts.grad(lambda x: power(x, n=3, scale=2.0))(x) == 24.0
    assert ts.jit(ts.grad(lambda x: power(x, 2)))(x) == 4.0 and power(x, 4) == 16.0
    with pytest.raises(ts.TesseraError, match="places of the 1 positional"):
        ts.checkpoint(lambda x: x, static_argnums=3)
