"""Random values, number by number: against Philox in Python's own arithmetic, and against kept hashes of every distribution.

A key gives the same numbers in every release: a change of a hash here changes what users' seeds give. `TESSERA_BLESS=1` writes them.
"""

import hashlib
import json
import math
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
from doc_blocks import BLESS

import tessera as ts
from tessera import random as r

SEED = 0x1234_5678_9ABC_DEF0
KEY = r.key(SEED)
KEPT = Path(__file__).parent / "random_values.json"
M64, M32 = (1 << 64) - 1, (1 << 32) - 1
SPLIT, FOLD = 1 << 62, (1 << 62) + (1 << 61)


def philox(key, counter):
    """Philox4x32-10 of Salmon, Moraes, Dror and Shaw (2011): four words."""
    c = [counter & M32, counter >> 32 & M32, 0, 0]
    k = [key & M32, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b >> 32 ^ c[1] ^ k[0], b & M32, a >> 32 ^ c[3] ^ k[1], a & M32]
        k = [k[0] + 0x9E3779B9 & M32, k[1] + 0xBB67AE85 & M32]
    return c


def words(key, count, which):
    return [philox(key, i)[which] for i in range(count)]


def splits(key, count):
    return [w[0] | w[1] << 32 for w in (philox(key, SPLIT + i) for i in range(count))]


def folded(key, data):
    w = philox(key, FOLD + data & M64)
    return w[2] | w[3] << 32


def units(key, count, dtype="f32", which=(0, 1)):
    """Floats in [0, 1): 24 bits, or 27 and 26 of two words."""
    if dtype == "f64":
        return np.array([((a >> 5) * 2**26 + (b >> 6)) / 2**53 for a, b in zip(words(key, count, which[0]), words(key, count, which[1]))])
    return np.array([(a >> 8) / 2**24 for a in words(key, count, which[0])])


def opened(key, count, dtype="f64", which=(0, 1)):
    return units(key, count, dtype, which) + 2.0**-54


def gauss(key, count):
    return np.sqrt(-2 * np.log(1 - units(key, count, "f64"))) * np.cos(2 * math.pi * units(key, count, "f64", (2, 3)))


def test_philox_is_that_of_its_authors():
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_keys():
    assert int(KEY) == SEED and int(r.key(-1)) == M64 and int(r.key(M64)) == M64
    assert r.split(KEY).tolist() == splits(SEED, 2)
    assert r.split(KEY, 5).tolist() == splits(SEED, 5) and r.split(KEY, (2, 3)).tolist() == [splits(SEED, 6)[:3], splits(SEED, 6)[3:]]
    for data in (0, 1, 77, -5, 2**40):
        assert int(r.fold_in(KEY, data)) == folded(SEED, data)
    # The lowest and the highest seeds there are, and one beyond each.
    assert int(r.key(-(1 << 63))) == 1 << 63
    for seed in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(ts.TesseraError, match="that 64 bits hold"):
            r.key(seed)


def test_arrays_of_keys():
    keys = r.split(KEY, 6)
    assert keys.shape == (6,) and keys.ndim == 1 and keys.size == 6 and len(keys) == 6 and KEY.size == 1 and KEY.ndim == 0
    assert [int(k) for k in keys] == splits(SEED, 6)
    assert keys.reshape(2, 3).shape == keys.reshape((2, 3)).shape == (2, 3) and keys.reshape(-1).tolist() == keys.tolist()
    assert keys.reshape([3, 2]).shape == (3, 2) and keys.reshape(6).shape == (6,)
    assert np.asarray(keys, np.float64).dtype == np.float64 and np.asarray(keys).dtype == np.uint64
    assert (keys == r.split(KEY, 6)).all() and not (keys == r.split(r.key(1), 6)).any()
    assert (KEY == 3) is False and KEY != "x"
    for words_, got in ((np.zeros(2, np.float32), "f32"), ("x", "str"), (np.int32(3), "i32")):
        with pytest.raises(ts.TesseraError, match=f"expected words of 64 bits, got {got}"):
            r.wrap_key_data(words_)
    assert repr(KEY) == f"Key({SEED})" and ts.jit(lambda k: (print(k), k)[1])(keys).tolist() == keys.tolist()
    with pytest.raises(ts.TesseraError, match="to take one of, got one key"):
        KEY[0]
    with pytest.raises(ts.TesseraError, match="expected one key, got keys of shape"):
        r.bits(keys)
    with pytest.raises(ts.TesseraError, match="expected one number to fold in"):
        r.fold_in(KEY, np.arange(3))


def test_shapes_may_be_numbers():
    assert r.bits(KEY, 5).tolist() == r.bits(KEY, (5,)).tolist() == words(SEED, 5, 0)
    assert r.bits(key=KEY, shape=[2]).tolist() == words(SEED, 2, 0) and r.split(key=KEY).tolist() == splits(SEED, 2)
    assert r.bits(KEY).shape == () and r.uniform(KEY).shape == () and r.normal(KEY).shape == ()


def test_bits():
    low, next_ = words(SEED, 9, 0), words(SEED, 9, 1)
    assert r.bits(KEY, (9,), "u32").tolist() == low
    assert r.bits(KEY, (9,), "u16").tolist() == [w >> 16 for w in low] and r.bits(KEY, (9,), "u8").tolist() == [w >> 24 for w in low]
    assert r.bits(KEY, (9,), "u64").tolist() == [a | b << 32 for a, b in zip(low, next_)]
    assert r.rademacher(KEY, (9,)).tolist() == [2 * (w >> 31) - 1 for w in low]


@pytest.mark.parametrize("dtype, bits", {"f16": 11, "bf16": 8, "fp8_e4m3": 4, "fp8_e5m2": 3, "fp6_e3m2": 3, "fp6_e2m3": 3, "fp4_e2m1": 1}.items())
def test_narrow_uniform_values_have_all_bits_of_the_dtype(dtype, bits):
    got = np.asarray(r.uniform(KEY, (200,), dtype), np.float64)
    assert got.tolist() == [(w >> 32 - bits) / 2**bits for w in words(SEED, 200, 0)] and got.max() < 1.0
    # Every multiple below 1 is a number of the dtype, and no finer ones are all there.
    for more, all_there in ((bits, True), (bits + 1, False)):
        steps = np.arange(2**more) / 2**more
        assert (np.asarray(ts.array(steps, dtype), np.float64) == steps).all() == all_there


def test_uniform_values():
    assert r.uniform(KEY, (50,)).tolist() == units(SEED, 50).tolist()
    assert r.uniform(KEY, (50,), "f64").tolist() == units(SEED, 50, "f64").tolist()
    want = units(SEED, 50, "f64")
    np.testing.assert_allclose(r.uniform(KEY, (50,), "f64", -3.0, 5.0), want * 8 - 3, rtol=1e-14)
    for named in ({"low": 2.0, "high": 4.0}, {"minval": 2.0, "maxval": 4.0}, {"minval": 2, "high": 4, "low": 9}):
        np.testing.assert_allclose(r.uniform(KEY, (50,), "f64", **named), want * 2 + 2, rtol=1e-14)
    np.testing.assert_allclose(r.uniform(KEY, (50,), "f64", high=0.5), want * 0.5, rtol=1e-14)
    np.testing.assert_allclose(r.uniform(KEY, (50,), "f64", low=0.5), want * 0.5 + 0.5, rtol=1e-14)
    ends = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(r.uniform(KEY, (2, 3), "f64", 0.0, ends), want[:6].reshape(2, 3) * ends, rtol=1e-14)
    np.testing.assert_allclose(r.uniform(KEY, None, "f64", ends, ends + 1), want[:3] + ends, rtol=1e-14)
    with pytest.raises(ts.TesseraError, match="parameters that stretch to the shape"):
        r.uniform(KEY, (2, 1), low=0.0, high=ends)


def test_bernoulli_and_counts_of_trials():
    u = units(SEED, 60)
    assert r.bernoulli(KEY, 0.3, (60,)).tolist() == (u < np.float32(0.3)).tolist()
    assert r.bernoulli(KEY, shape=(60,)).tolist() == (u < 0.5).tolist()
    count = np.floor(np.log(opened(SEED, 60)) / np.log1p(-0.3)) + 1
    assert r.geometric(KEY, np.float64(0.3), (60,)).tolist() == count.astype(int).tolist()
    for dtype in ("i32", "i64", "u64"):
        assert r.geometric(KEY, 1.0, (4,), dtype).tolist() == [1] * 4


def test_integers():
    low = words(SEED, 80, 0)
    assert r.randint(KEY, (80,), 3, 11).tolist() == [3 + (w * 8 >> 32) for w in low]
    assert r.randint(KEY, (80,), -(2**31), 2**31).tolist() == [w - 2**31 for w in low]
    assert r.randint(KEY, (80,), minval=0, maxval=2, dtype="u8").tolist() == [w >> 31 for w in low]
    assert r.randint(KEY, (4,), -128, 128, "i8").dtype == np.int8 and r.randint(KEY, (4,), 0, 256, "u8").dtype == np.uint8
    for low_, high, dtype in ((-129, 0, "i8"), (0, 129, "i8"), (-1, 3, "u8"), (0, 257, "u8")):
        with pytest.raises(ts.TesseraError, match="expected a range within"):
            r.randint(KEY, (4,), low_, high, dtype)
    for low_, high in ((0, 0), (5, 4)):
        with pytest.raises(ts.TesseraError, match="expected a range of one integer or more"):
            r.randint(KEY, (4,), low_, high)
    assert r.randint(KEY, (3,), 5, 6).tolist() == [5] * 3
    for ends, got in (((0.5, 2), "f"), ((0, 2.0), "f"), ((0, None), "NoneType"), (("a", 3), "str"), ((np.zeros(3, np.float32), 3), "f32")):
        with pytest.raises(ts.TesseraError, match=f"expected whole numbers for the ends of the range, got {got}"):
            r.randint(KEY, (3,), *ends)
    # Ends that are arrays: short ranges as above, longer ones by 128 bits; an empty one gives its low end.
    ends = np.array([1, 7, 2**32, 2**32 + 1, 2**60, 0, -4, 3 << 30, (1 << 32) - 5])
    whole = [sum(w << 32 * at for at, w in enumerate(four)) for four in zip(*(words(SEED, 80, at) for at in range(4)))]
    want = [low[i] * max(e, 1) >> 32 if e <= 2**32 else whole[i] * e >> 128 for i, e in enumerate(ends.tolist())]
    assert r.randint(KEY, (9,), 0, ends).tolist() == want
    assert r.randint(KEY, (9,), ends, ends + 9).tolist() == [e + (low[i] * 9 >> 32) for i, e in enumerate(ends.tolist())]


def many_words(key, count, which):
    """`words` for many counters, in 64-bit integers of NumPy's."""
    zero = np.zeros(count, np.uint64)
    c = [np.arange(count, dtype=np.uint64), zero, zero, zero]
    k = [np.uint64(key & M32), np.uint64(key >> 32)]
    low, by = np.uint64(M32), np.uint64(32)
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [b >> by ^ c[1] ^ k[0], b & low, a >> by ^ c[3] ^ k[1], a & low]
        k = [k[0] + np.uint64(0x9E3779B9) & low, k[1] + np.uint64(0xBB67AE85) & low]
    return c[which]


def test_orders_of_many_are_by_both_words():
    """Of 300,000 words of 32 bits some are the same."""
    n = 300_000
    first, second = many_words(SEED, n, 0), many_words(SEED, n, 1)
    assert first[:5].tolist() == words(SEED, 5, 0) and len(set(first.tolist())) < n
    order = np.lexsort((second, first))
    assert (order != np.argsort(first, kind="stable")).any()
    assert (np.asarray(r.permutation(KEY, n)) == order).all()


def test_orders():
    order = sorted(range(30), key=lambda i: philox(SEED, i)[:2])
    assert r.permutation(KEY, 30).tolist() == order and r.permutation(KEY, 0).tolist() == []
    x = np.arange(60).reshape(30, 2)
    assert r.permutation(KEY, x).tolist() == r.shuffle(KEY, x).tolist() == x[order].tolist()
    assert r.permutation(KEY, x.T, 1).tolist() == r.shuffle(KEY, x.T, 1).tolist() == x.T[:, order].tolist()
    rows = r.permutation(KEY, np.arange(12).reshape(3, 4), 1, independent=True)
    assert rows.tolist() == [[4 * i + j for j in sorted(range(4), key=lambda j: philox(SEED, 4 * i + j)[:2])] for i in range(3)]


def test_choices():
    low, u = words(SEED, 40, 0), units(SEED, 40)
    assert r.choice(KEY, 7, (40,)).tolist() == [w * 7 >> 32 for w in low]
    order = sorted(range(9), key=lambda i: philox(SEED, i)[:2])
    assert r.choice(KEY, 9, (2, 2), replace=False).tolist() == np.reshape(order[:4], (2, 2)).tolist()
    assert r.choice(KEY, 9, (9,), replace=False).tolist() == order
    weights = np.array([0.125, 0.5, 0.375], np.float32)
    sums = np.cumsum(weights)
    assert r.choice(KEY, 3, (40,), p=weights).tolist() == np.searchsorted(sums, (1 - u) * sums[-1]).tolist()
    assert r.choice(KEY, 3, (5, 8), p=weights).tolist() == r.choice(KEY, 3, (40,), p=weights).reshape(5, 8).tolist()
    noise = -np.log(-np.log(opened(SEED, 3, "f32") + 2.0**-25 - 2.0**-54))
    assert r.choice(KEY, 3, (3,), replace=False, p=weights).tolist() == np.argsort(-(np.log(weights) + noise)).tolist()
    x = np.arange(14).reshape(7, 2)
    at = low[0] * 7 >> 32
    assert r.choice(KEY, x).tolist() == x[at].tolist() and r.choice(KEY, x.T, axis=1).tolist() == x[at].tolist()
    assert r.choice(KEY, x.T, (3,), axis=-1).tolist() == x.T[:, [w * 7 >> 32 for w in low[:3]]].tolist()
    for bad in (dict(a=0), dict(a=3, shape=(4,), replace=False), dict(a=3, p=weights[:2])):
        with pytest.raises(ts.TesseraError):
            r.choice(KEY, **bad)
    assert r.choice(KEY, 1, (3,)).tolist() == [0] * 3
    with pytest.raises(ts.TesseraError, match="known while tracing, or an array"):
        r.choice(KEY, 2.5)
    with pytest.raises(ts.TesseraError, match="known while tracing, or an array"):
        ts.jit(lambda n: r.choice(KEY, n))(np.int64(5))


def test_classes():
    logits = np.array([[0.5, 1.0, -1.0], [2.0, 0.0, 1.0]], np.float32)

    def noise(shape):
        return -np.log(-np.log(np.clip(units(SEED, math.prod(shape)), 1e-20, 1 - 6e-8))).reshape(shape)

    assert r.categorical(KEY, logits).tolist() == (logits + noise((2, 3))).argmax(1).tolist()
    assert r.categorical(KEY, logits, 0).tolist() == (logits + noise((2, 3))).argmax(0).tolist()
    assert r.categorical(KEY, logits, shape=(4, 2)).tolist() == (logits + noise((4, 2, 3))).argmax(-1).tolist()
    assert r.categorical(KEY, logits.T, 0, (4, 2)).tolist() == (logits.T + noise((4, 3, 2))).argmax(1).tolist()
    best = np.argsort(-(logits + noise((2, 3))), 1)
    assert r.categorical(KEY, logits, shape=(2, 2), replace=False).tolist() == best[:, :2].T.tolist()
    assert r.categorical(KEY, logits, shape=(3, 2), replace=False).tolist() == best.T.tolist()
    cube = np.arange(12, dtype=np.float32).reshape(2, 3, 2) % 5
    best = np.argsort(-(cube + noise((2, 3, 2))), 1)
    assert r.categorical(KEY, cube, 1, (2, 2, 2), replace=False).tolist() == best[:, :2].transpose(1, 0, 2).tolist()
    with pytest.raises(ts.TesseraError, match="at most 3 different classes"):
        r.categorical(KEY, logits, shape=(4, 2), replace=False)
    for shape in ((3,), (2, 3), ()):
        with pytest.raises(ts.TesseraError, match="that ends with that of the rows"):
            r.categorical(KEY, logits, shape=shape)
    assert r.categorical(KEY, logits[:1], shape=(5,)).shape == (5,)


def formulas():
    """The distributions that are formulas, in f64."""
    u, n = opened(SEED, 50), gauss(SEED, 50)
    two = splits(SEED, 2)
    maxwell = lambda key: np.sqrt(sum(gauss(k, 50) ** 2 for k in splits(key, 3)))  # noqa: E731
    v = units(SEED, 50, "f64")
    y = gauss(two[0], 50) ** 2
    # The smaller root x = m + m²y/2 - m/2 √(4my + m²y²) for the mean m = 2.
    x = 2.0 + 2.0 * y - np.sqrt(4.0 * 2.0 * y + 4.0 * y * y)
    return {
        "normal": (lambda **k: r.normal(KEY, (50,), **k), n),
        "normal_of": (lambda **k: r.normal(KEY, (50,), mean=1.0, std=2.5, **k), n * 2.5 + 1),
        "lognormal": (lambda **k: r.lognormal(KEY, (50,), mean=0.5, std=0.25, **k), np.exp(n * 0.25 + 0.5)),
        "lognormal plain": (lambda **k: r.lognormal(KEY, (50,), **k), np.exp(n)),
        "exponential": (lambda **k: r.exponential(KEY, (50,), **k), -np.log(u)),
        "gumbel": (lambda **k: r.gumbel(KEY, (50,), **k), -np.log(-np.log(u))),
        "laplace": (lambda **k: r.laplace(KEY, (50,), **k), np.where(u < 0.5, np.log(2 * u), -np.log(2 * (1 - u)))),
        "logistic": (lambda **k: r.logistic(KEY, (50,), **k), np.log(u) - np.log1p(-u)),
        "cauchy": (lambda **k: r.cauchy(KEY, (50,), **k), np.tan((u - 0.5) * math.pi)),
        "pareto": (lambda **k: r.pareto(KEY, 3.0, (50,), **k), u ** (-1 / 3)),
        "weibull_min": (lambda **k: r.weibull_min(KEY, 2.0, 1.5, (50,), **k), 2 * (-np.log(u)) ** (1 / 1.5)),
        "rayleigh": (lambda **k: r.rayleigh(KEY, 2.0, (50,), **k), 2 * np.sqrt(-2 * np.log(u))),
        "triangular": (lambda **k: r.triangular(KEY, 0.5, 1.0, 4.5, (50,), **k),
                       np.where(v * 4 < 0.5, 0.5 + np.sqrt(v * 4 * 0.5), 4.5 - np.sqrt((1 - v) * 4 * 3.5))),
        "maxwell": (lambda **k: r.maxwell(KEY, (50,), **k), maxwell(SEED)),
        "double_sided_maxwell": (lambda **k: r.double_sided_maxwell(KEY, 1.0, 2.0, (50,), **k),
                                 1 + 2 * maxwell(two[0]) * np.where(units(two[1], 50, "f64") < 0.5, -1, 1)),
        "wald": (lambda **k: r.wald(KEY, 2.0, (50,), **k), np.where(units(two[1], 50, "f64") * (2 + x) <= 2, x, 4 / x)),
    }  # fmt: skip


@pytest.mark.parametrize("name", formulas())
def test_formulas(name):
    draw, want = formulas()[name]
    np.testing.assert_allclose(draw(dtype="f64"), want, rtol=1e-9)


@pytest.mark.parametrize("low, high", [(-2.0, 2.0), (-1.0, 2.5), (0.5, 0.75), (-6.0, -1.0), (1.0, 5.0)])
def test_truncated_normal_values_are_quantiles(low, high):
    bell = NormalDist()
    a, b = bell.cdf(low), bell.cdf(high)
    want = [bell.inv_cdf(a + (b - a) * u) for u in opened(SEED, 200)]
    np.testing.assert_allclose(r.truncated_normal(KEY, low, high, (200,), "f64"), want, rtol=2e-6, atol=1e-9)
    single = [bell.inv_cdf(a + (b - a) * u) for u in np.minimum(units(SEED, 200) + 2.0**-25, 1 - 2.0**-24)]
    got = r.truncated_normal(KEY, low, high, (200,))
    np.testing.assert_allclose(got, single, rtol=1e-4, atol=1e-5)
    assert got.dtype == np.float32 and low <= got.min() and got.max() <= high
    assert r.truncated_normal(KEY, shape=(3,)).tolist() == r.truncated_normal(KEY, -2.0, 2.0, (3,)).tolist()


def test_the_ends_of_truncated_normal_values_are_reached_and_finite():
    for dtype, far in (("f32", 5.0), ("f64", 7.0)):
        x = r.truncated_normal(KEY, -40.0, 40.0, (20000,), dtype)
        assert np.isfinite(x).all() and np.abs(x).max() < far
        # Where the dtype cannot distinguish it from 1, the bound itself results.
        beyond = r.truncated_normal(KEY, 20.0, 21.0, (50,), dtype)
        assert beyond.tolist() == [20.0] * 50


N = 3000
A = np.array([0.05, 0.3, 0.999, 1.0, 2.5, 40.0, 1e4], np.float32)
DRAWS = {
    "gamma": lambda k: r.gamma(k, A, (N, 7)),
    "gamma f64": lambda k: r.gamma(k, A, (N, 7), "f64"),
    "loggamma": lambda k: r.loggamma(k, A, (N, 7)),
    "beta": lambda k: r.beta(k, A, A[::-1].copy(), (N, 7)),
    "dirichlet": lambda k: r.dirichlet(k, A[:4], (N,)),
    "chisquare": lambda k: r.chisquare(k, A, (N, 7)),
    "f": lambda k: r.f(k, A[2:] * 2, 5.0, (N, 5)),
    "t": lambda k: r.t(k, A[2:], (N, 5)),
    "generalized_normal": lambda k: r.generalized_normal(k, A[2:6], (N, 4)),
    "ball": lambda k: r.ball(k, 3, 1.5, (N,)),
    "dirichlet of rows": lambda k: r.dirichlet(k, A[:6].reshape(3, 2) * np.ones((2, 3, 2), np.float32)),
    "poisson of ten": lambda k: r.poisson(k, 10.0, (60000,)),
    "poisson": lambda k: r.poisson(k, np.array([0.1, 1.0, 9.99, 10.0, 12.0, 300.0, 1e6], np.float32), (N, 7)),
    "binomial": lambda k: r.binomial(
        k, np.array([1, 7, 19, 20, 40, 1000, 10**6], np.float32), np.array([0.5, 0.2, 0.51, 0.5, 0.75, 0.01, 0.3], np.float32), (N, 7)
    ),
    "truncated_normal": lambda k: r.truncated_normal(k, -1.0, 3.0, (N,)),
    "truncated_normal f64": lambda k: r.truncated_normal(k, -6.0, 7.5, (N,), "f64"),
    "normal": lambda k: r.normal(k, (N,)),
    "laplace": lambda k: r.laplace(k, (N,)),
    "wald": lambda k: r.wald(k, A[1:6], (N, 5)),
    "categorical": lambda k: r.categorical(k, A, shape=(N,)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_values_stay_what_they_were(name):
    """Bit by bit in `strict`, whatever the processor. The distributions of the same values are tested in test_random_more.py."""
    got = np.asarray(ts.jit(DRAWS[name], numerics="strict")(KEY))
    found = {"hash": hashlib.sha256(got.tobytes()).hexdigest()[:20], "first": [float(f"{v:.6g}") for v in got.reshape(-1)[:4]]}
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if BLESS:
        kept[name] = found
        KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    assert kept.get(name) == found, "keys give other values than before: users' seeds too"


def test_dirichlet_rows_sum_to_one():
    x = np.asarray(r.dirichlet(KEY, np.ones((2, 3, 4), np.float32)))
    assert x.shape == (2, 3, 4)
    np.testing.assert_allclose(x.sum(-1), 1.0, rtol=1e-6)


def test_all_trials_may_succeed():
    """Once in a million by rejection: 20 of 20."""
    x = np.asarray(r.binomial(KEY, 20, 0.5, (4_000_000,)))
    assert (x.min(), x.max()) == (0, 20) and abs(x.mean() - 10) < 0.01


def test_binomial_counts_stay_within_the_trials():
    for n, p in ((0, 0.5), (10**6, 1.0), (30, 0.999), (10**6, 1e-5)):
        x = r.binomial(KEY, n, p, (200,))
        assert (0 <= x).all() and (x <= n).all()
    bad = r.binomial(KEY, np.array([-1, 5, 5, np.nan, np.inf], np.float32), np.array([0.5, -0.1, 1.1, 0.5, 0.5], np.float32))
    assert np.isnan(bad).all()
    assert r.poisson(KEY, np.array([-1, np.nan, np.inf], np.float32)).tolist() == [-1] * 3
    assert np.isnan(r.gamma(KEY, np.array([-1, 0, np.nan, np.inf], np.float32))).all()
