"""Reductions and scans by functions of the program's: the order that `strict` fixes, tuples, what is refused."""

import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each


@pytest.fixture(autouse=True)
def strict():
    """Where the order is fixed: results are compared bit for bit, also between the backends."""
    with ts.numerics.profile("strict"):
        yield


def tree(rows, f):
    """The balanced tree over neighbours; a lone last element goes up unchanged."""
    level = list(rows)
    while len(level) > 1:
        level = [f(*level[k : k + 2]) if k + 1 < len(level) else level[k] for k in range(0, len(level), 2)]
    return level[0]


def fold(rows, f):
    out = []
    for row in rows:
        out.append(row if not out else f(out[-1], row))
    return out


def normal(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def same(got, want):
    got, want = np.asarray(got), np.asarray(want, np.asarray(got).dtype)
    assert got.shape == want.shape
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), want.view(f"u{want.itemsize}"))


# One tile


@ts.func
def added(a, b):
    return a + b


@ts.func
def halved(a, b):
    return a * 0.5 - b


@ts.func
def left(a, b):
    return a


@ts.func
def right(a, b):
    return b


@ts.func
def branched(a, b):
    if a > b:
        return a - b
    return b * 2 - a


@ts.func
def unrolled(a, b):
    r = a
    for k in ts.static_range(3):
        r = r * 2 + b + k
    return r


FUNCTIONS = {
    "added": lambda a, b: a + b,
    "halved": lambda a, b: a * np.float32(0.5) - b,
    "left": lambda a, b: a,
    "right": lambda a, b: b,
    "branched": lambda a, b: a - b if a > b else b * np.float32(2) - a,
    "unrolled": lambda a, b: ((a * np.float32(2) + b) * np.float32(2) + b + np.float32(1)) * np.float32(2) + b + np.float32(2),
}


@ts.kernel
def combine(x: ts.Tensor["N", "M", ts.f32], r: ts.Out["N", ts.f32], c: ts.Out["M", ts.f32], s: ts.Out["N", "M", ts.f32], b: ts.Out["N", "M", ts.f32], f: ts.Fn):
    ts.tile.grid(1)
    t = x[...]
    r[...] = ts.tile.reduce(t, f, axis=1)
    c[...] = ts.tile.reduce(t, f, axis=0)
    s[...] = ts.tile.scan(t, f, axis=1)
    b[...] = ts.tile.associative_scan(t, f, axis=0, reverse=True)
    return r, c, s, b


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 7), (1, 16), (5, 1)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_order_of_combinations(name, shape):
    x, f = normal(shape), FUNCTIONS[name]
    r, c, s, b = combine(x, f=globals()[name])
    same(r, [tree(row, f) for row in x])
    same(c, [tree(column, f) for column in x.T])
    same(s, [fold(row, f) for row in x])
    same(b, np.array([fold(column[::-1], f)[::-1] for column in x.T]).T)


NAMES = {np.int32: "i32", np.int64: "i64", np.uint32: "u32", np.uint64: "u64", np.float32: "f32", np.float64: "f64"}
ONE = """
@ts.func
def f(a, b):
    return a * 3 + b

@ts.kernel
def k(x: ts.Tensor[{n}, ts.{dt}], r: ts.Out[1, ts.{dt}], s: ts.Out[{n}, ts.{dt}]):
    ts.tile.grid(1)
    r[0] = ts.tile.reduce(x[...], f)
    s[...] = ts.tile.scan(x[...], f, reverse=True)
    return r, s
"""


@pytest.mark.parametrize("dtype", NAMES, ids=NAMES.get)
@pytest.mark.parametrize("n", [1, 2, 13, 64, 65])
def test_combinations_of_every_dtype(dtype, n):
    x = (normal(n) * 9).astype(dtype)
    three = dtype(3)
    with np.errstate(over="ignore"):
        r, s = load(ONE.format(n=n, dt=NAMES[dtype]))["k"](x)
        same(r, [tree(x, lambda a, b: a * three + b)])
        same(s, fold(x[::-1], lambda a, b: a * three + b)[::-1])


@ts.kernel
def of_three_axes(x: ts.Tensor[2, 3, 4, ts.f32], y: ts.Out[2, 4, ts.f32], s: ts.Out[2, 3, 4, ts.f32], whole: ts.Out[1, 1, 1, ts.f32]):
    ts.tile.grid(1)
    t = x[...]
    y[...] = ts.tile.reduce(t, halved, axis=1)
    s[...] = ts.tile.scan(t, halved, axis=-2)
    whole[...] = ts.tile.reduce(t, halved, keepdims=True)
    return y, s, whole


def test_combinations_of_three_axes():
    x, f = normal((2, 3, 4)), FUNCTIONS["halved"]
    y, s, whole = of_three_axes(x)
    same(y, [[tree(x[i, :, k], f) for k in range(4)] for i in range(2)])
    same(s, np.array([[fold(x[i, :, k], f) for k in range(4)] for i in range(2)]).transpose(0, 2, 1))
    same(whole, [[[tree(x.reshape(-1), f)]]])


@ts.kernel
def by_functions_of_the_language(x: ts.Tensor[9, ts.f32], y: ts.Out[2, ts.f32], s: ts.Out[9, ts.f32]):
    ts.tile.grid(1)
    y[0] = ts.tile.reduce(x[...], ts.tile.maximum)
    y[1] = ts.tile.reduce(x[...], ts.tile.minimum)
    s[...] = ts.tile.scan(x[...], ts.tile.maximum)
    return y, s


def test_functions_of_the_language_combine():
    x = normal(9)
    y, s = by_functions_of_the_language(x)
    same(y, [x.max(), x.min()])
    same(s, np.maximum.accumulate(x))
    x[4] = np.nan
    y, s = by_functions_of_the_language(x)
    assert np.isnan(y).all() and np.isnan(s[4:]).all() and not np.isnan(s[:4]).any()


# Several tiles


@ts.func
def affine(a, b, c, d):
    return a * c, b * c + d


@ts.kernel
def recurrence(decay: ts.Tensor[11, 3, ts.f32], x: ts.Tensor[11, 3, ts.f32], h: ts.Out[11, 3, ts.f32]):
    ts.tile.grid(1)
    _, states = ts.tile.associative_scan((decay[...], x[...]), affine, axis=0)
    h[...] = states
    return h


def test_linear_recurrence():
    decay, x = normal((11, 3)), normal((11, 3), seed=1)
    state, want = np.zeros(3, np.float32), []
    for a, b in zip(decay, x):
        state = state * a + b if want else b
        want.append(state)
    same(recurrence(decay, x), want)


@ts.func
def product(a, b, c, d, e, f, g, h):
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@ts.kernel
def matrices(x: ts.Tensor[4, 7, ts.i64], y: ts.Out[4, ts.i64], s: ts.Out[4, 7, ts.i64]):
    ts.tile.grid(1)
    parts = (x[0, :], x[1, :], x[2, :], x[3, :])
    y[0], y[1], y[2], y[3] = ts.tile.reduce(parts, product)
    a, b, c, d = ts.tile.scan(parts, product, reverse=True)
    s[...] = ts.tile.stack((a, b, c, d))
    return y, s


def test_matrix_products_keep_their_order():
    x = np.random.default_rng(3).integers(-3, 4, (4, 7))
    of = [x[:, k].reshape(2, 2) for k in range(7)]
    y, s = matrices(x)
    same(y, np.linalg.multi_dot(of).reshape(-1))
    same(s, np.array([m.reshape(-1) for m in fold(of[::-1], np.matmul)[::-1]]).T)


@ts.func
def joined(n, m, s, k, p, t):
    d = p - m
    c = n + k
    return c, m + d * k / c, s + t + d * d * n * k / c


@ts.kernel
def welford(x: ts.Tensor["r", 33, ts.f32], y: ts.Out["r", 2, ts.f32]):
    row = ts.tile.grid(r)
    t = x[row, :]
    n, mean, squares = ts.tile.reduce((ts.tile.ones((33,)), t, ts.tile.zeros((33,))), joined)
    y[row, 0] = mean
    y[row, 1] = squares / n
    return y


def test_welford():
    x = normal((4, 33)) + 1000
    np.testing.assert_allclose(welford(x), np.stack([x.mean(1), x.astype(np.float64).var(1)], 1), rtol=1e-4)


@ts.func
def larger(v, i, w, j):
    if w > v:
        return w, j
    return v, i


@ts.kernel
def largest(x: ts.Tensor[3, 8, ts.i32], v: ts.Out[3, ts.i32], p: ts.Out[3, ts.i32], s: ts.Out[3, 8, ts.i32]):
    ts.tile.grid(1)
    places = ts.tile.arange(8)[None, :]
    best, at = ts.tile.reduce((x[...], places), larger, axis=1)
    _, running = ts.tile.scan((x[...], places), larger, axis=1)
    v[...] = best
    p[...] = at
    s[...] = running
    return v, p, s


def test_largest_with_its_place():
    x = np.array([[3, 1, 4, 1, 5, 9, 2, 6], [7, 7, 7, 7, 7, 7, 7, 7], [-1, -5, -2, -1, -9, -1, -3, -1]], np.int32)
    v, p, s = largest(x)
    same(v, x.max(1))
    same(p, x.argmax(1))
    same(s, [[int(np.argmax(row[: k + 1])) for k in range(8)] for row in x])


@ts.func
def of_two_types(n, v, m, w):
    return n + m, v * ts.tile.cast(m, ts.f64) + w


@ts.kernel
def counted(x: ts.Tensor[6, ts.f64], n: ts.Out[6, ts.i32], y: ts.Out[6, ts.f64]):
    ts.tile.grid(1)
    a, b = ts.tile.scan((ts.tile.arange(6), x[...]), of_two_types)
    n[...] = a
    y[...] = b
    return n, y


def test_tiles_of_several_dtypes():
    x = normal(6, np.float64)
    want = fold([(k, v) for k, v in enumerate(x)], lambda a, b: (a[0] + b[0], a[1] * b[0] + b[1]))
    n, y = counted(x)
    same(n, [w[0] for w in want])
    same(y, [w[1] for w in want])


SCALE = 3


@ts.func
def scaled(a, b):
    return a * SCALE + b


@ts.kernel
def captured(x: ts.Tensor[5, ts.i32], y: ts.Out[1, ts.i32]):
    ts.tile.grid(1)
    y[0] = ts.tile.reduce(x[...], scaled)
    return y


def test_combiners_capture(monkeypatch):
    x = np.arange(1, 6, dtype=np.int32)
    assert captured(x).item() == tree(x, lambda a, b: a * 3 + b)
    monkeypatch.setitem(globals(), "SCALE", 5)
    assert captured(x).item() == tree(x, lambda a, b: a * 5 + b)


# Profiles and backends


def test_every_profile_agrees_where_the_function_is_associative(monkeypatch):
    x = np.random.default_rng(4).integers(-3, 4, (4, 7))
    want = matrices(x)
    for profile in ("default", "deterministic", "strict"):
        with ts.numerics.profile(profile):
            for got, expected in zip(matrices(x), want):
                same(got, expected)


def test_backends_give_the_same_bits(monkeypatch):
    x = normal((3, 17), seed=9)
    found = []
    for name in ("interp", "cpu"):
        monkeypatch.setenv("TESSERA_BACKEND", name)
        found.append([np.asarray(a).tobytes() for f in (halved, branched, unrolled) for a in combine(x, f=f)])
    assert found[0] == found[1]


# What is refused

HEAD = """
@ts.func
def f(a, b):
    {f}

@ts.func
def g(a, b, c, d):
    return a, c

@ts.kernel
def k(x: ts.Tensor[8, {dt}], z: ts.Tensor[8, ts.i32], y: ts.Tensor[8, ts.i32]):
    ts.tile.grid(1)
    t = x[...]
    r = {r}
"""


@pytest.mark.parametrize(
    "f, r, code",
    [
        ("return a > b", "ts.tile.reduce(t, f)", "E_TYPE"),
        ("return ts.tile.cast(a, ts.i64)", "ts.tile.scan(t, f)", "E_TYPE"),
        ("return a, b", "ts.tile.reduce(t, f)", "E_TYPE"),
        ("pass", "ts.tile.reduce(t, f)", "E_TYPE"),
        ("return a", "ts.tile.reduce((t, t), f)", "E_ARGUMENT"),
        ("return a", "ts.tile.reduce(t, g)", "E_ARGUMENT"),
        ("return a", "ts.tile.reduce(z[0], f)", "E_TYPE"),
        ("return a", "ts.tile.associative_scan(t, 'sum')", "E_TYPE"),
        ("return a", "ts.tile.reduce(t, 3)", "E_ARGUMENT"),
        ("return a", "ts.tile.reduce(t, 'mean')", "E_ARGUMENT"),
        ("return a", "ts.tile.reduce(t, f, axis=1)", "E_SHAPE_MISMATCH"),
        ("return a", "ts.tile.scan(t, f, exclusive=True)", "E_UNSUPPORTED"),
        ("return a", "ts.tile.scan(ts.tile.reshape(t, (2, 4)), f)", "E_ARGUMENT"),
        ("return a", "ts.tile.scan(t, f, reverse=z[0] > 1)", "E_ARGUMENT"),
        ("return a", "ts.tile.reduce((t, ts.tile.reshape(t, (2, 4))), g)", "E_SHAPE_MISMATCH"),
        ("return a + ts.tile.sum(ts.tile.arange(4))", "ts.tile.reduce(t, f)", "E_UNSUPPORTED"),
        ("ts.tile.print(a)\n    return a", "ts.tile.reduce(t, f)", "E_UNSUPPORTED"),
        ("for i in range(4):\n        a += b\n    return a", "ts.tile.reduce(t, f)", "E_UNSUPPORTED"),
    ],
)
def test_combiners_that_are_refused(f, r, code):
    with pytest.raises(ts.TesseraError) as caught:
        text = HEAD.format(f=f, r=r, dt="ts.i32")
        load(text)["k"](np.zeros(8, np.int32), np.zeros(8, np.int32), np.zeros(8, np.int32))
    assert caught.value.code == code and caught.value.help


def test_narrow_elements_are_cast_by_the_function():
    text = HEAD.format(f="return a + b", r="ts.tile.reduce(t, f)", dt="ts.bf16")
    with pytest.raises(ts.TesseraError) as caught:
        load(text)["k"](np.asarray(ts.zeros((8,), ts.bf16)), np.zeros(8, np.int32), np.zeros(8, np.int32))
    assert caught.value.code == "E_TYPE" and "cast" in caught.value.help


def test_combiners_over_padding_are_refused():
    for r in ("ts.tile.reduce(t, f)", "ts.tile.scan(t, f, reverse=True)", "ts.tile.scan(ts.tile.flip(t), f)"):
        text = HEAD.format(f="return a + b", r=r, dt="ts.i32").replace("ts.Tensor[8, ts.i32], z", "ts.Tensor['n', ts.i32], z")
        with pytest.raises(ts.ShapeError) as caught:
            load(text.replace("x[...]", "x[0:8]"))["k"](np.zeros(5, np.int32), np.zeros(8, np.int32), np.zeros(8, np.int32))
        assert caught.value.code == "E_RAGGED" and "mask" in caught.value.help


@ts.kernel
def masked(x: ts.Tensor["n", ts.f32], y: ts.Out[1, ts.f32]):
    ts.tile.grid(1)
    y[0] = ts.tile.reduce(ts.tile.bounds_mask(x[0:8], cols=n, value=1.0), product_of_two)
    return y


@ts.func
def product_of_two(a, b):
    return a * b


def test_masked_padding_is_combined():
    assert masked(np.array([2, 3, 4], np.float32)).item() == 24


# Derivatives and transformations


@ts.kernel
def running(x: ts.Tensor[8, ts.f32], y: ts.Out[8, ts.f32]):
    ts.tile.grid(1)
    y[...] = ts.tile.associative_scan(x[...], product_of_two)
    return y


def test_own_combiners_have_derivatives():
    """More of them in test_combined_derivatives.py."""
    x = normal(8) + 3
    got = ts.grad(lambda v: ts.xp.sum(running(v)))(x)
    products = np.cumprod(x.astype(np.float64))
    want = np.array([products[k:].sum() for k in range(8)]) / x
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_combiners_inside_jit_and_vmap():
    x = normal((3, 8))
    want = np.array([fold(row, lambda a, b: a * b) for row in x])
    same(np.asarray(ts.jit(lambda v: running(v))(x[1])), want[1])
    same(np.asarray(ts.vmap(running)(x)), want)
