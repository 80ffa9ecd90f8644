"""Running extremes, orders by several keys, weighted and masked sums of exponentials, and initialisers, compared with NumPy."""

import math

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp
from tessera.nn import initializers

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 5, 4)).astype(np.float32)
KEY = ts.random.key(3)

RUNNING = {"cummax": np.maximum, "cummin": np.minimum, "cumlogsumexp": np.logaddexp}


@pytest.mark.parametrize("name", RUNNING)
def test_running_extremes(name):
    of, fold = getattr(xp, name), RUNNING[name]
    for axis in (0, 1, -1):
        np.testing.assert_allclose(of(X, axis), fold.accumulate(X, axis), rtol=2e-6, atol=1e-6)
        back = np.flip(fold.accumulate(np.flip(X, axis), axis), axis)
        np.testing.assert_allclose(ts.jit(lambda v, a=axis: of(v, a, reverse=True))(X), back, rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(ts.vmap(lambda v: of(v, 1))(X), fold.accumulate(X, 2), rtol=2e-6, atol=1e-6)
    x, w = X[0, :, 0], RNG.normal(size=5).astype(np.float32)
    grad = ts.grad(lambda v: xp.sum(of(v) * w))(x)
    wide = x.astype(np.float64)
    for i in range(5):
        move = np.zeros(5)
        move[i] = 1e-6
        slope = ((fold.accumulate(wide + move) - fold.accumulate(wide - move)) * w).sum() / 2e-6
        assert grad[i] == pytest.approx(slope, rel=1e-3, abs=1e-4)
    if name != "cumlogsumexp":
        assert of(np.array([3, 1, 4, 1, 5])).tolist() == fold.accumulate([3, 1, 4, 1, 5]).tolist()
        assert np.isnan(of(np.float32([1, np.nan, 3]))).tolist() == [False, True, True]


def test_orders_by_several_keys():
    a, b, c = (RNG.integers(0, 3, (4, 9)) for _ in range(3))
    for axis in (-1, 0):
        np.testing.assert_array_equal(xp.lexsort((a, b, c.astype(np.float32)), axis), np.lexsort((a, b, c), axis))
    np.testing.assert_array_equal(ts.jit(xp.lexsort)(np.stack([a[0], b[0]])), np.lexsort(np.stack([a[0], b[0]])))
    np.testing.assert_array_equal(ts.vmap(lambda k, j: xp.lexsort((k, j)))(a, b), np.lexsort((a, b)))
    with pytest.raises(ts.ShapeError, match="keys of one shape"):
        xp.lexsort((a, b[0]))


def test_partitions():
    for kth, axis in ((2, -1), (-1, 1), (0, 0), (7, None)):
        place = X.reshape(-1) if axis is None else X
        along = 0 if axis is None else axis
        made, at = np.asarray(xp.partition(X, kth, axis)), np.asarray(ts.jit(lambda v, k=kth, a=axis: xp.argpartition(v, k, a))(X))
        want = np.take(np.partition(place, kth, along), kth, along)
        np.testing.assert_array_equal(np.take(made, kth, along), want)
        np.testing.assert_array_equal(np.take_along_axis(place, at, along), made)
    for bad in (4, -5, 1.5):
        with pytest.raises(ts.TesseraError, match="expected `kth` between -4 and 3"):
            xp.partition(X, bad)


def test_weighted_sums_of_exponentials():
    b = RNG.normal(size=(5, 4)).astype(np.float32)
    b[2] = 0.0
    wide, total = X.astype(np.float64), (np.exp(X.astype(np.float64)) * b).sum(1)
    value, sign = ts.jit(lambda x, b: xp.logsumexp(x, 1, b=b, return_sign=True))(X, b)
    np.testing.assert_allclose(value, np.log(np.abs(total)), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(sign, np.sign(total))
    np.testing.assert_array_equal(np.isnan(xp.logsumexp(X, 1, b=b)), total < 0)
    np.testing.assert_allclose(xp.logsumexp(X, 1, b=np.abs(b), keepdims=True)[:, 0], np.log((np.exp(wide) * np.abs(b)).sum(1)), rtol=2e-5, atol=2e-6)
    # Large elements that count nothing do not overflow.
    assert xp.logsumexp(np.float32([1e4, 0.0]), b=np.float32([0.0, 2.0])) == pytest.approx(math.log(2.0))
    mask = X > -0.5
    np.testing.assert_allclose(xp.logsumexp(X, 2, where=mask), np.log(np.where(mask, np.exp(wide), 0.0).sum(2)), rtol=2e-5, atol=2e-6)
    grad = ts.grad(lambda x: xp.sum(xp.logsumexp(x, b=np.abs(b))))(X[0])
    np.testing.assert_allclose(grad, np.exp(wide[0]) * np.abs(b) / (np.exp(wide[0]) * np.abs(b)).sum(), rtol=1e-5, atol=1e-7)


def test_softmax_of_some_elements():
    mask = X > 0.0
    mask[0, 0] = False
    e = np.where(mask, np.exp(X.astype(np.float64)), 0.0)
    want = e / np.where((total := e.sum(-1, keepdims=True)) == 0.0, 1.0, total)
    np.testing.assert_allclose(ts.jit(lambda x, m: nn.softmax(x, where=m))(X, mask), want, rtol=1e-5, atol=1e-7)
    some = mask.any(-1)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(nn.log_softmax(X, where=mask)[some], np.log(want[some]), rtol=1e-4, atol=1e-5)
    grad = np.asarray(ts.grad(lambda x: xp.sum(xp.square(nn.softmax(x, where=mask))))(X))
    assert np.isfinite(grad).all() and (grad[~mask] == 0.0).all() and np.abs(grad).max() > 0.0


#: Scale, fan and the largest value in standard deviations.
SCALINGS = {
    "glorot_normal": 2.0 / 300, "glorot_uniform": 2.0 / 300, "xavier_normal": 2.0 / 300, "xavier_uniform": 2.0 / 300, "he_normal": 2.0 / 200,
    "he_uniform": 2.0 / 200, "kaiming_normal": 2.0 / 200, "kaiming_uniform": 2.0 / 200, "lecun_normal": 1.0 / 200, "lecun_uniform": 1.0 / 200,
}  # fmt: skip


@pytest.mark.parametrize("name", SCALINGS)
def test_initialisers_have_their_variance(name):
    init, want = getattr(initializers, name)(), SCALINGS[name]
    w = np.asarray(init(KEY, (200, 100)), np.float64)
    assert w.dtype == np.float64 and abs(w.mean()) < 5e-3 and w.var() == pytest.approx(want, rel=0.05)
    bound = math.sqrt(3.0 * want) if name.endswith("uniform") else 2.0 * math.sqrt(want) / 0.8796
    assert bound * 0.97 < np.abs(w).max() <= bound * 1.0001
    # Windows count for both: [height, width, inputs, outputs], and [outputs, inputs, height, width] with its axes named.
    assert np.asarray(init(KEY, (2, 5, 20, 10))).var() == pytest.approx(want, rel=0.25)
    named = getattr(initializers, name)(in_axis=1, out_axis=0)
    assert np.asarray(named(KEY, (10, 20, 2, 5))).var() == pytest.approx(want, rel=0.25)
    assert str(init(KEY, (4, 4), ts.bf16).dtype) == "bfloat16"


def test_other_initialisers():
    assert set(initializers.__all__) == {n for n, v in vars(initializers).items() if callable(v) and not n.startswith("_")} - {"Any", "Callable", "eager", "fail", "fori_loop"}
    assert initializers.zeros(KEY, (2, 3)).tolist() == [[0.0] * 3] * 2 and initializers.ones(KEY, (2,), ts.i32).tolist() == [1, 1]
    assert initializers.constant(2.5)(KEY, (2,)).tolist() == [2.5, 2.5]
    assert initializers.constant([1.0, 2.0])(KEY, (3, 2)).tolist() == [[1.0, 2.0]] * 3
    assert np.asarray(initializers.normal(0.5)(KEY, (9999,))).std() == pytest.approx(0.5, rel=0.05)
    u = np.asarray(initializers.uniform(0.5)(KEY, (9999,)))
    assert u.min() >= 0.0 and u.max() < 0.5 and u.mean() == pytest.approx(0.25, rel=0.05)
    t = np.asarray(initializers.truncated_normal(2.0, lower=-1.0, upper=0.5)(KEY, (9999,)))
    assert t.min() >= -2.0 and t.max() <= 1.0
    with pytest.raises(ts.TesseraError, match="mode"):
        initializers.variance_scaling(1.0, "fan", "normal")
    with pytest.raises(ts.TesseraError, match="axes of inputs and outputs"):
        initializers.he_normal()(KEY, (3,))


@pytest.mark.parametrize(("shape", "axis"), [((6, 6), -1), ((9, 4), -1), ((4, 9), -1), ((2, 3, 5), -1), ((5, 2, 4), 0)])
def test_orthogonal_matrices(shape, axis):
    w = np.asarray(ts.jit(lambda k: initializers.orthogonal(2.0, axis)(k, shape, ts.f64))(KEY))
    assert w.shape == shape
    flat = np.moveaxis(w, axis, -1).reshape(-1, shape[axis])
    gram = flat.T @ flat if flat.shape[0] >= flat.shape[1] else flat @ flat.T
    np.testing.assert_allclose(gram, 4.0 * np.eye(len(gram)), atol=1e-12)
    assert initializers.orthogonal()(KEY, shape).dtype == np.float32
