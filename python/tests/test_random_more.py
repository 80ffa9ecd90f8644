"""Keys as a type, and distributions: against their own cumulative distributions, and the same values however they are run."""

import math

import numpy as np
import pytest

import tessera as ts
from tessera import random as r, xp

N = 20000
KEY = r.key(20240611)

erf = np.vectorize(math.erf)


def phi(x):
    return 0.5 * (1.0 + erf(x / math.sqrt(2.0)))


def erlang(k):
    return lambda x: 1.0 - np.exp(-x) * sum(x**i / math.factorial(i) for i in range(k))


def triangle(x):  # of 0, 1 and 4
    return np.where(x < 1.0, x * x / 4.0, 1.0 - (4.0 - x) ** 2 / 12.0)


def inverse_gauss(m):
    def cdf(x):
        root = np.sqrt(1.0 / x)
        return phi(root * (x / m - 1.0)) + np.exp(2.0 / m) * phi(-root * (x / m + 1.0))

    return cdf


def maxwellian(x):
    return erf(x / math.sqrt(2.0)) - np.sqrt(2.0 / math.pi) * x * np.exp(-x * x / 2.0)


def both_sides(x):
    size = 0.5 * maxwellian(np.abs(x - 1.0) / 2.0)
    return np.where(x < 1.0, 0.5 - size, 0.5 + size)


CONTINUOUS = {
    "uniform": ((), {"low": -1.0, "high": 3.0}, lambda x: (x + 1.0) / 4.0),
    "normal": ((), {"mean": 1.0, "std": 2.0}, lambda x: phi((x - 1.0) / 2.0)),
    "lognormal": ((), {"mean": 0.5, "std": 0.75}, lambda x: phi((np.log(x) - 0.5) / 0.75)),
    "truncated_normal": ((-1.0, 2.5), {}, lambda x: (phi(x) - phi(-1.0)) / (phi(2.5) - phi(-1.0))),
    "exponential": ((), {}, lambda x: 1.0 - np.exp(-x)),
    "laplace": ((), {}, lambda x: np.where(x < 0, 0.5 * np.exp(x), 1.0 - 0.5 * np.exp(-x))),
    "logistic": ((), {}, lambda x: 1.0 / (1.0 + np.exp(-x))),
    "gumbel": ((), {}, lambda x: np.exp(-np.exp(-x))),
    "cauchy": ((), {}, lambda x: 0.5 + np.arctan(x) / math.pi),
    "pareto": ((3.0,), {}, lambda x: 1.0 - x**-3.0),
    "weibull_min": ((2.0, 1.5), {}, lambda x: 1.0 - np.exp(-((x / 2.0) ** 1.5))),
    "rayleigh": ((2.0,), {}, lambda x: 1.0 - np.exp(-x * x / 8.0)),
    "triangular": ((0.0, 1.0, 4.0), {}, triangle),
    "maxwell": ((), {}, maxwellian),
    "double_sided_maxwell": ((1.0, 2.0), {}, both_sides),
    "wald": ((2.0,), {}, inverse_gauss(2.0)),
    "gamma": ((3.0,), {}, erlang(3)),
    "loggamma": ((2.0,), {}, lambda x: erlang(2)(np.exp(x))),
    "beta": ((2.0, 3.0), {}, lambda x: 6 * x**2 - 8 * x**3 + 3 * x**4),
    "chisquare": ((2.0,), {}, lambda x: 1.0 - np.exp(-x / 2.0)),
    "f": ((2.0, 6.0), {}, lambda x: 1.0 - (1.0 + x / 3.0) ** -3.0),
    "t": ((2.0,), {}, lambda x: 0.5 + x / (2.0 * np.sqrt(2.0 + x * x))),
    "generalized_normal": ((1.0,), {}, lambda x: np.where(x < 0, 0.5 * np.exp(x), 1.0 - 0.5 * np.exp(-x))),
}

DISCRETE = {
    "poisson": (4.5,), "poisson_many": (80.0,), "binomial": (25, 0.3), "binomial_many": (400, 0.25), "binomial_mirrored": (60, 0.8),
    "geometric": (0.3,), "randint": (3, 11), "bernoulli": (0.3,), "rademacher": (),
}  # fmt: skip


def distance(x, cdf):
    """Kolmogorov's distance times the root of the count: above 1.95 once in a thousand."""
    x = np.sort(np.asarray(x, np.float64))
    at = cdf(x)
    steps = np.arange(len(x) + 1) / len(x)
    return max(np.abs(at - steps[1:]).max(), np.abs(at - steps[:-1]).max()) * math.sqrt(len(x))


@pytest.mark.parametrize("name", CONTINUOUS)
def test_values_follow_the_distribution(name):
    args, more, cdf = CONTINUOUS[name]
    x = getattr(r, name)(KEY, *args, shape=(N,), **more)
    assert x.shape == (N,) and x.dtype == np.float32
    assert distance(x, cdf) < 1.95


@pytest.mark.parametrize("name", ["normal", "gamma", "truncated_normal", "t", "exponential"])
def test_doubles_follow_the_distribution(name):
    args, more, cdf = CONTINUOUS[name]
    x = getattr(r, name)(KEY, *args, shape=(N,), dtype=ts.f64, **more)
    assert x.dtype == np.float64 and distance(x, cdf) < 1.95
    # More digits than f32 has.
    assert np.mean(x == x.astype(np.float32)) < 0.01


def test_the_test_of_distributions_can_fail():
    assert distance(r.normal(KEY, (N,)), lambda x: phi(x - 0.05)) > 1.95


def probabilities(name, top):
    k = np.arange(top)
    lg = np.vectorize(math.lgamma)
    kind = name.partition("_")[0]
    args = DISCRETE[name]
    if kind == "poisson":
        return np.exp(-args[0] + k * math.log(args[0]) - lg(k + 1.0))
    if kind == "geometric":
        return np.where(k > 0, 0.3 * 0.7 ** (k - 1.0), 0.0)
    if kind == "bernoulli":
        return np.where(k == 0, 0.7, np.where(k == 1, 0.3, 0.0))
    if kind == "randint":
        return np.where((k >= 3) & (k < 11), 1 / 8, 0.0)
    if kind == "rademacher":
        return np.where((k == 0) | (k == 2), 0.5, 0.0)  # moved up by one
    n, p = args
    inside = k <= n
    kk = np.minimum(k, n)
    return np.where(inside, np.exp(math.lgamma(n + 1) - lg(kk + 1.0) - lg(n - kk + 1.0) + kk * math.log(p) + (n - kk) * math.log(1 - p)), 0)


@pytest.mark.parametrize("name", DISCRETE)
def test_counts_follow_the_distribution(name):
    kind, args = name.partition("_")[0], DISCRETE[name]
    x = r.randint(KEY, (N,), *args) if kind == "randint" else getattr(r, kind)(KEY, *args, shape=(N,))
    x = np.asarray(x, np.int64) + (kind == "rademacher")
    seen = np.bincount(x, minlength=600)
    want = probabilities(name, len(seen)) * N
    assert not seen[want == 0].any()
    # Chi-square over the classes that are expected often enough, the rest as one.
    often = want >= 8
    got, expected = np.append(seen[often], seen[~often].sum()), np.append(want[often], want[~often].sum())
    expected, got = expected[expected > 0.5], got[expected > 0.5]
    freedom = len(got) - 1
    chi = ((got - expected) ** 2 / expected).sum()
    assert chi < freedom + 3.3 * math.sqrt(2 * freedom) + 4


def test_counts_of_large_means():
    for mean in (1e3, 1e6):
        x = np.asarray(r.poisson(KEY, mean, (N,)), np.float64)
        assert abs(x.mean() - mean) < 4 * math.sqrt(mean / N) and abs(x.var() / mean - 1) < 0.05
    assert distance(np.asarray(r.gamma(KEY, 1e4, (N,)), np.float64), lambda x: phi(3 * 1e2 * ((x / 1e4) ** (1 / 3) - 1 + 1 / 9e4))) < 1.95


def test_small_shapes_of_gamma_have_their_mass_near_zero():
    # gamma(1/2) is half the square of a normal value.
    assert distance(r.gamma(KEY, 0.5, (N,)), lambda x: erf(np.sqrt(x))) < 1.95
    # Its logarithm does not underflow where the value does.
    x = r.loggamma(KEY, np.full((2000,), 1e-3, np.float32))
    assert np.isfinite(x).all() and (np.exp(np.asarray(x)) == 0).mean() > 0.5


def test_parameters_that_are_none():
    bad = np.array([-1.0, np.nan, 2.0], np.float32)
    assert np.isnan(r.gamma(KEY, bad)).tolist() == [True, True, False]
    assert (np.asarray(r.poisson(KEY, bad)) < 0).tolist() == [True, True, False]
    assert np.isnan(r.binomial(KEY, 5, bad)).tolist() == [True, True, True]
    assert r.binomial(KEY, 5, np.array([0.0, 1.0], np.float32)).tolist() == [0.0, 5.0]
    assert r.poisson(KEY, 0.0, (5,)).tolist() == [0] * 5
    assert r.geometric(KEY, 1.0, (5,)).tolist() == [1] * 5


def test_points_of_a_ball_and_rows_of_a_simplex():
    x = np.asarray(r.ball(KEY, 3, shape=(N,)), np.float64)
    assert x.shape == (N, 3)
    assert distance(np.sqrt((x * x).sum(-1)), lambda v: v**3) < 1.95
    assert distance(x[:, 1], lambda v: 0.5 + 0.75 * (v - v**3 / 3)) < 1.95
    cross = np.asarray(r.ball(KEY, 2, p=1, shape=(N,)))
    assert np.abs(cross).sum(-1).max() <= 1.0 + 1e-6
    d = np.asarray(r.dirichlet(KEY, np.array([1.0, 2.0, 3.0], np.float32), (N,)), np.float64)
    np.testing.assert_allclose(d.sum(-1), 1.0, rtol=1e-6)
    # Each is a beta value: of 1 and 5.
    assert distance(d[:, 0], lambda v: 1 - (1 - v) ** 5) < 1.95


# The same values however they are drawn

CALLS = {
    **{n: (lambda k, s, n=n, a=a, m=m: getattr(r, n)(k, *a, shape=s, **m)) for n, (a, m, _) in CONTINUOUS.items()},
    **{n: (lambda k, s, n=n, a=a: getattr(r, n.partition("_")[0])(k, *a, shape=s)) for n, a in DISCRETE.items() if n != "randint"},
    "randint": lambda k, s: r.randint(k, s, 3, 11),
    "bits": lambda k, s: r.bits(k, s),
    "choice": lambda k, s: r.choice(k, 7, s),
    "choice_p": lambda k, s: r.choice(k, 3, s, p=np.array([0.1, 0.5, 0.4], np.float32)),
    "dirichlet": lambda k, s: r.dirichlet(k, np.array([0.5, 1.0, 2.0], np.float32), s),
    "ball": lambda k, s: r.ball(k, 3, shape=s),
    "categorical": lambda k, s: r.categorical(k, np.array([0.0, 1.0, 0.5], np.float32), shape=s),
}


@pytest.mark.parametrize("name", CALLS)
def test_eager_jitted_and_mapped_agree(name):
    draw = CALLS[name]
    keys = r.split(KEY, 3)
    want = np.stack([np.asarray(draw(k, (4, 3))) for k in keys])
    jitted = ts.jit(lambda k: draw(k, (4, 3)))
    np.testing.assert_array_equal(np.stack([np.asarray(jitted(k)) for k in keys]), want)
    np.testing.assert_array_equal(ts.vmap(lambda k: draw(k, (4, 3)))(keys), want)
    np.testing.assert_array_equal(ts.jit(ts.vmap(lambda k: draw(k, (4, 3))))(keys), want)
    # Bare keys are the same keys.
    np.testing.assert_array_equal(draw(np.asarray(keys)[1], (4, 3)), want[1])


@pytest.mark.parametrize("name", CALLS)
def test_an_element_depends_on_the_key_and_its_place_alone(name):
    draw = CALLS[name]
    many, few = np.asarray(draw(KEY, (40,))), np.asarray(draw(KEY, (7,)))
    np.testing.assert_array_equal(few, many[:7])
    np.testing.assert_array_equal(np.asarray(draw(KEY, (5, 8))).reshape(many.shape), many)


def test_an_element_does_not_depend_on_the_parameters_of_others():
    a = np.array([0.3, 5.0, 900.0, 2.0], np.float32)
    for draw in (r.gamma, r.poisson, lambda k, v: r.binomial(k, 50, v / (1 + v))):
        got = np.asarray(draw(KEY, a))
        for i in range(4):
            alone = np.full(4, 1.0, np.float32)
            alone[i] = a[i]
            assert np.asarray(draw(KEY, alone))[i] == got[i]


def test_values_of_the_definition_of_each_op():
    for draw in (CALLS["gamma"], CALLS["poisson_many"], CALLS["binomial"]):
        got = ts.jit(lambda k: draw(k, (16,)))(KEY)
        with ts.runtime.oracle():
            want = ts.jit(lambda k: draw(k, (16,)))(KEY)
        np.testing.assert_allclose(got, want, rtol=2e-6)


# Keys


def test_keys_are_a_type():
    key = r.key(7)
    assert isinstance(key, r.Key) and key.shape == () and np.asarray(key) == 7 and np.asarray(key).dtype == np.uint64
    assert int(np.asarray(r.key(-1))) == 2**64 - 1 == int(np.asarray(r.key(2**64 - 1)))
    keys = r.split(key, (2, 3))
    assert keys.shape == (2, 3) and keys.size == 6 and len(keys) == 2
    assert keys.reshape(6).tolist() == r.split(key, 6).tolist() == [int(k) for row in keys for k in row]
    assert bool(xp.all(keys[1] == keys[1])) and not bool(xp.any(keys[0] == keys[1]))
    a, b = r.split(key)
    assert int(a) != int(b) and repr(a).startswith("Key(")
    assert int(r.fold_in(key, 3)) == int(ts.jit(r.fold_in)(key, 3))


def test_key_data_and_back():
    keys = r.split(r.key(1), 4)
    data = r.key_data(keys)
    assert data.dtype == np.uint64 and data.shape == (4,)
    again = r.wrap_key_data(data)
    np.testing.assert_array_equal(r.normal(again[2], (3,)), r.normal(keys[2], (3,)))
    np.testing.assert_array_equal(ts.jit(lambda k: r.key_data(k))(keys), data)
    inside = ts.jit(lambda d: r.normal(r.wrap_key_data(d)[1], (3,)))(data)
    np.testing.assert_array_equal(inside, r.normal(keys[1], (3,)))
    assert r.wrap_key_data(keys) is keys
    with pytest.raises(ts.KernelTypeError, match="64 bits"):
        r.wrap_key_data(np.zeros(2, np.float32))


def test_keys_go_through_every_transform(tmp_path):
    key = r.key(5)

    @ts.jit
    def step(state):
        key, use = r.split(state["key"])
        return {"key": key, "x": state["x"] + r.normal(use, (2,))}

    state = {"key": key, "x": np.zeros(2, np.float32)}
    for _ in range(3):
        state = step(state)
    assert isinstance(state["key"], r.Key)

    def body(k, _):
        k, use = r.split(k)
        return k, r.normal(use, (2,))

    last, xs = ts.jit(lambda k: ts.scan(body, k, length=3))(key)
    assert int(last) == int(state["key"])
    np.testing.assert_allclose(np.asarray(xs).sum(0), state["x"], rtol=1e-6)
    # As what a scan goes along, in a branch, and beside what is differentiated.
    _, ys = ts.scan(lambda c, k: (c, r.normal(k, ())), 0.0, r.split(key, 4))
    np.testing.assert_array_equal(ys, [r.normal(k, ()) for k in r.split(key, 4)])
    pick = ts.jit(lambda c, a, b: ts.cond(c, lambda: a, lambda: b))(True, key, r.key(6))
    assert int(pick) == 5
    g = ts.grad(lambda w, k: xp.sum(w * r.normal(k, (2,))))(np.ones(2, np.float32), key)
    np.testing.assert_array_equal(g, r.normal(key, (2,)))
    # Into a checkpoint and back.
    ts.save(tmp_path / "state.safetensors", state)
    back = ts.load(tmp_path / "state.safetensors")
    assert isinstance(back["key"], r.Key) and int(back["key"]) == int(state["key"])
    like = ts.load(tmp_path / "state.safetensors", like=state)
    assert int(like["key"]) == int(state["key"])


def test_bare_keys_keep_working():
    old = r.PRNGKey(3)
    np.testing.assert_array_equal(r.normal(old, (4,)), r.normal(r.key(3), (4,)))
    np.testing.assert_array_equal(r.normal(3, (4,)), r.normal(r.key(3), (4,)))
    halves = r.split(old)
    assert isinstance(halves, np.ndarray) or not isinstance(halves, r.Key)
    np.testing.assert_array_equal(r.normal(halves[1], (4,)), r.normal(r.split(r.key(3))[1], (4,)))


def test_keys_that_are_none():
    with pytest.raises(ts.ShapeError, match="one key"):
        r.normal(r.split(r.key(0)), (2,))
    with pytest.raises(ts.KernelTypeError, match="expected a key"):
        r.normal(0.5, (2,))
    with pytest.raises(ts.KernelTypeError, match="expected a key"):
        r.normal("seed", (2,))
    with pytest.raises(ts.TesseraError, match="64 bits hold"):
        r.key(2**65)
    with pytest.raises(ts.ShapeError, match="one key"):
        r.key(0)[0]
    with pytest.raises(ts.UnsupportedError, match="Cholesky"):
        r.multivariate_normal(r.key(0), np.zeros(2), np.eye(2))
    with pytest.raises(ts.KernelTypeError, match="lower bound"):
        r.truncated_normal(r.key(0), (5,))


# Picks, orders and classes


def test_choice():
    a = np.arange(10, 20)
    assert set(np.asarray(r.choice(KEY, a, (500,))).tolist()) == set(a.tolist())
    once = np.asarray(r.choice(KEY, a, (2, 5), replace=False))
    assert once.shape == (2, 5) and sorted(once.reshape(-1).tolist()) == a.tolist()
    p = np.array([0.1, 0.0, 0.6, 0.3], np.float32)
    seen = np.bincount(r.choice(KEY, 4, (N,), p=p), minlength=4) / N
    np.testing.assert_allclose(seen, p, atol=0.015)
    assert seen[1] == 0
    # Without replacement the first of them has the probabilities.
    keys = r.split(KEY, 4000)
    two = np.asarray(ts.vmap(lambda k: r.choice(k, 4, (2,), replace=False, p=p))(keys))
    np.testing.assert_allclose(np.bincount(two[:, 0], minlength=4) / 4000, p, atol=0.03)
    assert (two[:, 0] != two[:, 1]).all() and not (two == 1).any()
    m = np.arange(6).reshape(2, 3)
    assert np.asarray(r.choice(KEY, m, axis=1)).tolist() in m.T.tolist()
    assert r.choice(KEY, m, (4,), axis=1).shape == (2, 4)
    with pytest.raises(ts.TesseraError, match="at most 4"):
        r.choice(KEY, 4, (5,), replace=False)


def test_permutations():
    x = np.arange(12).reshape(4, 3)
    rows = np.asarray(r.permutation(KEY, x))
    assert sorted(rows.tolist()) == x.tolist() and not np.array_equal(rows, x)
    np.testing.assert_array_equal(rows, x[np.asarray(r.permutation(KEY, 4))])
    columns = np.asarray(r.shuffle(KEY, x, 1))
    assert sorted(columns.T.tolist()) == x.T.tolist()
    own = np.asarray(r.permutation(KEY, np.tile(np.arange(20), (3, 1)), 1, independent=True))
    assert all(sorted(row) == list(range(20)) for row in own.tolist()) and not np.array_equal(own[0], own[1])
    # Each place is as likely for the first element.
    places = np.asarray(ts.vmap(lambda k: r.permutation(k, 5))(r.split(KEY, 5000)))
    np.testing.assert_allclose(np.bincount((places == 0).argmax(1)) / 5000, 0.2, atol=0.02)


def test_classes():
    logits = np.log(np.array([[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]], np.float32))
    draws = np.asarray(r.categorical(KEY, logits, shape=(N, 2)))
    for row in range(2):
        np.testing.assert_allclose(np.bincount(draws[:, row], minlength=3) / N, np.exp(logits[row]), atol=0.012)
    along = np.asarray(r.categorical(KEY, logits.T, axis=0, shape=(N, 2)))
    np.testing.assert_allclose(np.bincount(along[:, 1], minlength=3) / N, np.exp(logits[1]), atol=0.012)
    once = np.asarray(r.categorical(KEY, logits, shape=(3, 2), replace=False))
    assert [sorted(c) for c in once.T.tolist()] == [[0, 1, 2]] * 2
    with pytest.raises(ts.ShapeError, match="ends with"):
        r.categorical(KEY, logits, shape=(3,))


def test_ranges_that_are_arrays():
    low, high = np.array([0, 10, -5]), np.array([3, 12, 2**50])
    x = np.asarray(r.randint(KEY, (4000, 3), low, high))
    assert (x.min(0) >= low).all() and (x.max(0) < high).all()
    assert set(x[:, 0].tolist()) == {0, 1, 2} and x[:, 2].max() > 2**48
    assert r.randint(KEY, (3,), minval=0, maxval=5).shape == (3,)


def test_narrow_floats_stay_below_one():
    for dtype in (ts.f16, ts.bf16):
        x = np.asarray(r.uniform(KEY, (100000,), dtype), np.float64)
        assert x.max() < 1.0 and abs(x.mean() - 0.5) < 0.01


def test_derivatives_by_parameters_of_formulas():
    mean = np.float32(0.3)
    g = ts.grad(lambda m: xp.mean(r.normal(KEY, (50,), mean=m, std=m)))(mean)
    np.testing.assert_allclose(g, 1.0 + np.asarray(r.normal(KEY, (50,))).mean(), rtol=1e-5)
    scale = np.float32(2.0)
    got = ts.grad(lambda s: xp.sum(r.rayleigh(KEY, s, (10,))))(scale)
    np.testing.assert_allclose(got, np.asarray(r.rayleigh(KEY, 1.0, (10,))).sum(), rtol=1e-5)
    # What is done to values has one too.
    g = ts.grad(lambda s: xp.sum(s * r.gamma(KEY, 2.0, (4,))))(np.float32(1.0))
    np.testing.assert_allclose(g, np.asarray(r.gamma(KEY, 2.0, (4,))).sum(), rtol=1e-6)
