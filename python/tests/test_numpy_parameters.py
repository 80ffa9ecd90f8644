"""Parameters of NumPy's and JAX's functions that were missing, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import xp

X = np.arange(12, dtype=np.float32).reshape(3, 4) ** 2
MASK = X % 3 != 0


def both(f, *args):
    """The result of a function, the same eagerly and jitted."""
    once, jitted = f(*args), ts.jit(f)(*args)
    np.testing.assert_array_equal(once, jitted)
    return once


def test_mean_in_another_dtype():
    assert both(lambda x: xp.mean(x, dtype=xp.float16), X).dtype == np.float16 and both(lambda x: x.mean(0, dtype=ts.f64), xp.asarray(X)).dtype == np.float64
    big = np.full(100, 2**24 + 1, np.int32)
    assert xp.mean(big, dtype=xp.float64) == 2**24 + 1
    assert xp.mean(np.full(100, 1000, np.float16), dtype=np.float16) == 1000
    with pytest.raises(ts.KernelTypeError, match="xp.mean.*a float"):
        xp.mean(X, dtype=xp.int32)


@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_var_and_std_where(axis, keepdims):
    for ours, theirs in ((xp.var, np.var), (xp.std, np.std)):
        for ddof in (0, 1):
            got = both(lambda x, m, ours=ours: ours(x, axis, ddof=ddof, keepdims=keepdims, where=m), X, MASK)
            np.testing.assert_allclose(got, theirs(X.astype(np.float64), axis, ddof=ddof, keepdims=keepdims, where=MASK), rtol=1e-6)
    assert np.isnan(xp.var(X, 1, where=np.array([[False], [True], [True]]))).tolist() == [True, False, False]
    assert xp.var(X, dtype=np.float64).dtype == np.float64


def test_sum_where_and_initial():
    np.testing.assert_array_equal(both(lambda x, m: xp.sum(x, 1, where=m, initial=5), X, MASK), X.sum(1, where=MASK, initial=5))
    np.testing.assert_array_equal(both(lambda x, m: xp.sum(x, 1, where=m), X, MASK.astype(np.int32)), X.sum(1, where=MASK))


@pytest.mark.parametrize("shape", [(4, 3), (-1,), (2, -1), (2, 2, 3), 12])
def test_reshape_by_columns(shape):
    np.testing.assert_array_equal(both(lambda x: xp.reshape(x, shape, order="F"), X), X.reshape(shape, order="F"))
    np.testing.assert_array_equal(both(lambda x: x.reshape(shape, order="F"), xp.asarray(X)), X.reshape(shape, order="F"))
    np.testing.assert_array_equal(ts.jit(lambda x: x.ravel("F") + x.flatten(order="F"))(X), 2 * X.ravel("F"))
    with pytest.raises(ts.LaunchError, match="order"):
        xp.reshape(X, shape, order="G")


def test_clip_by_the_names_of_numpy():
    np.testing.assert_array_equal(both(lambda x: xp.clip(x, a_min=2, a_max=9), X), X.clip(2, 9))
    np.testing.assert_array_equal(both(lambda x: xp.clip(x, a_max=9), X), X.clip(None, 9))
    with pytest.raises(ts.LaunchError, match="once"):
        xp.clip(X, 1, a_min=2)


def test_where_of_a_condition_alone():
    for got, want in zip(xp.where(MASK), np.where(MASK), strict=True):
        np.testing.assert_array_equal(got, want)
    rows, columns = ts.jit(lambda m: xp.where(m, size=9, fill_value=-1))(MASK)
    assert rows.tolist() == [*np.where(MASK)[0], -1] and columns.tolist() == [*np.where(MASK)[1], -1]
    with pytest.raises(ts.ShapeError, match="size="):
        ts.jit(xp.where)(MASK)
    with pytest.raises(ts.LaunchError, match="both values"):
        xp.where(MASK, X)
    np.testing.assert_array_equal(both(lambda m, x: xp.where(m, x, 0), MASK.astype(np.int32), X), np.where(MASK, X, 0))


def test_bincount_of_a_length():
    assert both(lambda v: xp.bincount(v, length=4), np.array([0, 3, 3, 7])).tolist() == [1, 0, 0, 2]


def test_vmap_of_a_size():
    key = ts.random.key(0)
    assert ts.vmap(lambda: 1.0, axis_size=3)().tolist() == [1, 1, 1]
    assert ts.vmap(lambda x: x * 2, in_axes=None, axis_size=2)(X).shape == (2, 3, 4)
    assert ts.vmap(lambda k, x: x + ts.random.normal(k), in_axes=(None, 0), axis_size=3)(key, X).shape == (3, 4)
    with pytest.raises(ts.ShapeError, match="3, 4"):
        ts.vmap(lambda x: x, axis_size=4)(X)
    with pytest.raises(ts.ShapeError, match="axis_size=4"):
        ts.vmap(lambda x: x, in_axes=None)(X)


def test_results_of_vmap_that_are_the_same_for_all():
    """They had the axis of the examples, as if `out_axes` were 0."""
    row, total = ts.vmap(lambda x, w: (x * w, w + 1), in_axes=(0, None), out_axes=(0, None))(X, np.float32(2))
    assert row.shape == (3, 4) and total.shape == () and total == 3
    with pytest.raises(ts.LaunchError, match="depends on a batched argument"):
        ts.vmap(lambda x: x, out_axes=None)(X)
    with pytest.raises(ts.ShapeError, match="between -2 and 1"):
        ts.vmap(lambda x: x, out_axes=2)(X)
    with pytest.raises(ts.LaunchError, match="a tree of them"):
        ts.vmap(lambda t: t["a"] + t["b"], in_axes=({"a": 0},))({"a": X, "b": X})


def test_classes_of_dtypes_and_arrays():
    assert xp.issubdtype(xp.bfloat16, xp.floating) and not xp.issubdtype(xp.int8, xp.floating) and xp.issubdtype(np.uint8, xp.integer)
    assert ts.jit(lambda x: xp.issubdtype(x.dtype, xp.inexact) and isinstance(x, xp.ndarray))(X)
    np.testing.assert_array_equal(xp.asarray(X)[xp.s_[1:, ::2]], X[1:, ::2])


def same(f, *args):
    """As NumPy, eagerly and jitted. The function takes the module."""
    want = f(np, *args)
    for got in (f(xp, *map(xp.asarray, args)), ts.jit(lambda *a: f(xp, *a))(*args)):
        for a, b in zip(got, want, strict=True) if isinstance(want, (list, tuple)) else [(got, want)]:
            np.testing.assert_allclose(a, b, rtol=1e-6)
            assert np.shape(a) == np.shape(b)


T = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
I = np.array([1, 0, 1])


@pytest.mark.parametrize("read", [
    lambda x, i: x[0, :, i], lambda x, i: x[i, :, 0], lambda x, i: x[:, 0, i], lambda x, i: x[0, i], lambda x, i: x[:, i, 0], lambda x, i: x[1, :, :, i],
    lambda x, i: x[i, None, 0], lambda x, i: x[0, ..., i], lambda x, i: x[:, 1, None, i], lambda x, i: x[(0, 1), (1, 2)],
])  # fmt: skip
def test_integers_beside_arrays_of_positions(read):
    """Where a slice stood between an integer and an array, axes of the array stayed in its place under jit; NumPy puts them first."""
    want = read(T, I)
    np.testing.assert_array_equal(ts.jit(read)(T, I), want)
    np.testing.assert_array_equal(read(xp.asarray(T), I), want)
    places = read(np.arange(T.size).reshape(T.shape), I)
    update = np.arange(want.size, dtype=np.float32).reshape(want.shape)
    added = T.ravel().copy()
    np.add.at(added, places.ravel(), update.ravel())
    got = ts.jit(lambda x, i, u: read(x.at, i).add(u))(T, I, update)
    np.testing.assert_allclose(np.asarray(got).ravel(), added)


def test_more_of_numpys_forms():
    x, y, v = X, X[::-1] + 1, np.float32([3, 1, 2])
    same(lambda m, x, y: m.outer(x, y), x, y)
    same(lambda m, x, y: m.einsum(x, [0, 1], y, [2, 1], [0, 2]), x, y)
    same(lambda m, x, y: m.einsum(x, [0, 1], y, [2, 1]), x, y)
    same(lambda m, x: m.sort(x, axis=None), x)
    same(lambda m, x: m.argsort(-x, axis=None), x)
    same(lambda m, v, w: m.meshgrid(v, w, sparse=True), v, x[0])
    same(lambda m, a, b: m.linspace(a, b, 5), v, v * 2)
    same(lambda m, a, b: m.linspace(a, b, 4, axis=1, endpoint=False), v, v * 2)
    same(lambda m, x: m.zeros_like(x, shape=(2, 2)), x)
    same(lambda m, x: m.vectorize(lambda a, b: a @ b, signature="(n,m),(m)->(n)")(x, x[0]), x)
    same(lambda m, x: divmod(x, 2.5), x)
    assert xp.linspace(0, 1, 3, retstep=True)[1] == 0.5 and xp.linspace(-3, 3, 4, dtype=int).tolist() == [-3, -1, 1, 3]
    assert ts.jit(lambda x: round(x / 2))(x).dtype == np.int64 and round(xp.asarray(x) / 2).tolist() == np.rint(x / 2).tolist()
    assert ts.jit(lambda x: x.nbytes + x.itemsize + x.real.sum() * 0)(x) == 52


def test_products_in_a_wider_dtype():
    a = np.full((2, 4096), 1, np.float16)
    for f in (lambda a: xp.einsum("ij,kj->ik", a, a, preferred_element_type=xp.float32), lambda a: xp.matmul(a, a.T, preferred_element_type=xp.float32),
              lambda a: xp.dot(a, a.T, preferred_element_type=xp.float32, precision="highest"), lambda a: xp.einsum("ij->i", 32 * a, preferred_element_type="f32")[:, None] / 32):  # fmt: skip
        got = both(f, a)
        assert got.dtype == np.float32 and (got == 4096).all()


@pytest.mark.parametrize("spec, message", [("ij->ik", "`k`"), ("ij->ii", "`i`")])
def test_letters_of_a_result(spec, message):
    with pytest.raises(ts.LaunchError, match=message):
        xp.einsum(spec, X)


def test_functions_of_nn_by_the_keywords_of_jax():
    from tessera import nn

    i = np.array([2, 0, 5, -1])
    want = np.array([[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(both(lambda i: nn.one_hot(i, num_classes=3), i), want)
    np.testing.assert_array_equal(both(lambda i: nn.one_hot(i, 3, axis=0, dtype=xp.int32), i), want.T)
    assert nn.leaky_relu(np.float32(-1), negative_slope=0.5) == -0.5


def test_products_of_bools_are_bools():
    """They were counts, in i32."""
    for f in (lambda m, x: x @ x.T, lambda m, x: m.dot(x, x.T), lambda m, x: m.tensordot(x, x, axes=2), lambda m, x: m.einsum("ij,kj->ik", x, x)):
        want = f(np, MASK)
        for got in (f(xp, xp.asarray(MASK)), ts.jit(lambda x, f=f: f(xp, x))(MASK)):
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype == np.bool_
    assert (xp.matmul(MASK, MASK.T, preferred_element_type=xp.int32) == MASK.astype(int) @ MASK.T.astype(int)).all()
