"""Sorting and counting of tiles against NumPy: ties, NaN, zeros of both signs, infinities, padding."""

import ml_dtypes
import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each

NAMES = {
    np.dtype(np.bool_): "bool", np.dtype(np.int8): "i8", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64",
    np.dtype(np.uint32): "u32", np.dtype(np.uint64): "u64", np.dtype(np.float16): "f16", np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(np.float32): "f32", np.dtype(np.float64): "f64",
}  # fmt: skip
FLOATS = [d for d in NAMES if d.name.endswith(("16", "32", "64")) and "int" not in d.name]
INTS = [d for d in NAMES if "int" in d.name]


def places(x, axis=-1, descending=False):
    """NumPy's stable order, in which NaN is last; descending, NaN is first and equal elements keep their order."""
    wide = x.astype(np.float64) if x.dtype not in INTS else x
    if not descending:
        return np.argsort(wide, axis=axis, kind="stable").astype(np.int32)
    back = np.flip(wide, axis)
    return (x.shape[axis] - 1 - np.flip(np.argsort(back, axis=axis, kind="stable"), axis)).astype(np.int32)


SORT = """
@ts.kernel
def k(x: ts.Tensor[{shape}, ts.{dt}], v: ts.Out[{shape}, ts.{dt}], p: ts.Out[{shape}, ts.i32], w: ts.Out[{shape}, ts.{dt}], q: ts.Out[{shape}, ts.i32]):
    ts.tile.grid(1)
    t = x[...]
    v[...] = ts.tile.sort(t, axis={axis})
    p[...] = ts.tile.argsort(t, axis={axis})
    w[...] = ts.tile.sort(t, axis={axis}, descending=True)
    q[...] = ts.tile.argsort(t, axis={axis}, descending=True)
    return v, p, w, q
"""


def same(got, want):
    got, want = np.asarray(got), np.ascontiguousarray(want)
    assert got.shape == want.shape
    bits = f"u{want.itemsize}"
    equal = got.view(bits) == want.view(bits)
    if want.dtype in FLOATS:
        equal |= np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64))
    assert equal.all(), (got, want)


def sorts_as_numpy(x, axis=-1):
    x = np.asarray(x)
    k = load(SORT.format(shape=", ".join(map(str, x.shape)), dt=NAMES[x.dtype], axis=axis))["k"]
    v, p, w, q = k(x)
    up, down = places(x, axis), places(x, axis, True)
    same(v, np.take_along_axis(x, up, axis))
    same(p, up)
    same(w, np.take_along_axis(x, down, axis))
    same(q, down)


@pytest.mark.parametrize("dtype", NAMES, ids=NAMES.get)
def test_ties_of_every_dtype(dtype):
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 7, 16, 33):
        sorts_as_numpy(rng.integers(0, 2 if dtype == np.bool_ else 4, n).astype(dtype))


@pytest.mark.parametrize("dtype", INTS, ids=NAMES.get)
def test_the_least_and_the_greatest(dtype):
    info = np.iinfo(dtype)
    sorts_as_numpy(np.array([0, info.max, 1, info.min, info.max - 1, 5, info.min, info.max, info.min + 1], dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=NAMES.get)
def test_nan_zeros_and_infinities(dtype):
    x = np.array([3, np.nan, -0.0, 0.0, np.inf, -np.inf, 3, -np.nan, 1e-7, -0.0, 0.0, 7, -1e-7, np.nan, -3], dtype)
    sorts_as_numpy(x)
    sorts_as_numpy(np.full(5, np.nan, dtype))
    sorts_as_numpy(np.array([0.0, -0.0, 0.0, -0.0], dtype))
    sorts_as_numpy(np.array([np.nan, -np.inf], dtype))


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (1, 4), (4, 1), (2, 3, 4), (1, 1)])
def test_axes(shape):
    x = np.random.default_rng(1).integers(-3, 4, shape).astype(np.int32)
    for axis in range(-1, len(shape)):
        sorts_as_numpy(x, axis)


def test_large_tiles():
    rng = np.random.default_rng(2)
    sorts_as_numpy(rng.standard_normal(257).astype(np.float32))
    sorts_as_numpy(rng.integers(0, 50, 1024).astype(np.int32))
    sorts_as_numpy(rng.integers(0, 9, (4, 100)).astype(np.int64))


# The largest

TOPK = """
@ts.kernel
def k(x: ts.Tensor[{shape}, ts.{dt}], v: ts.Out[{out}, ts.{dt}], p: ts.Out[{out}, ts.i32]):
    ts.tile.grid(1)
    v[...], p[...] = ts.tile.topk(x[...], {k}, axis={axis})
    return v, p
"""


@pytest.mark.parametrize("dtype", NAMES, ids=NAMES.get)
def test_topk(dtype):
    rng = np.random.default_rng(3)
    for shape, axis in [((9,), -1), ((1,), 0), ((3, 6), 1), ((6, 3), 0)]:
        x = rng.integers(0, 2 if dtype == np.bool_ else 5, shape).astype(dtype)
        if dtype in FLOATS:
            x.reshape(-1)[0] = np.nan
        for k in {1, (shape[axis] + 1) // 2, shape[axis]}:
            out = list(shape)
            out[axis] = k
            text = TOPK.format(shape=", ".join(map(str, shape)), out=", ".join(map(str, out)), dt=NAMES[dtype], k=k, axis=axis)
            v, p = load(text)["k"](x)
            want = np.take(places(x, axis, True), range(k), axis)
            same(v, np.take_along_axis(x, want, axis))
            same(p, want)


@ts.kernel
def route(scores: ts.Tensor["tokens", 8, ts.f32], which: ts.Out["tokens", 2, ts.i32], share: ts.Out["tokens", 2, ts.f32]):
    token = ts.tile.grid(tokens)
    values, experts = ts.tile.topk(scores[token, :], 2)
    weight = ts.tile.exp(values - ts.tile.max(values, keepdims=True))
    which[token, :] = experts
    share[token, :] = weight / ts.tile.sum(weight, keepdims=True)
    return which, share


def test_router():
    scores = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)
    which, share = route(scores)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :2]
    best = np.take_along_axis(scores, order, 1).astype(np.float64)
    np.testing.assert_array_equal(which, order)
    np.testing.assert_allclose(share, np.exp(best) / np.exp(best).sum(1, keepdims=True), rtol=1e-5)


# Counting

COUNT = """
@ts.kernel
def k(x: ts.Tensor[{shape}, ts.{dt}], h: ts.Out[{bins}, ts.i32], m: ts.Out[{bins}, ts.i32], u: ts.Out[1, ts.i32]):
    ts.tile.grid(1)
    t = x[...]
    h[...] = ts.tile.histogram(t, {bins})
    m[...] = ts.tile.histogram(t, {bins}, mask=t > 1)
    u[0] = ts.tile.unique_count(t)
    return h, m, u
"""


@pytest.mark.parametrize("dtype", INTS, ids=NAMES.get)
def test_histogram_and_unique_count(dtype):
    rng = np.random.default_rng(4)
    info = np.iinfo(dtype)
    for shape in [(1,), (13,), (100,), (3, 5), (2, 3, 4)]:
        x = rng.integers(max(info.min, -2), 9, shape).astype(dtype)
        x.reshape(-1)[0] = info.max
        x.reshape(-1)[-1] = info.min
        for bins in (1, 5, 64):
            h, m, u = load(COUNT.format(shape=", ".join(map(str, shape)), dt=NAMES[dtype], bins=bins))["k"](x)
            flat = x.reshape(-1).astype(object)
            same(h, np.array([np.sum(flat == b) for b in range(bins)], np.int32))
            same(m, np.array([np.sum(flat == b) * (b > 1) for b in range(bins)], np.int32))
            assert u.item() == len(set(flat.tolist()))


UNIQUE = "@ts.kernel\ndef k(x: ts.Tensor[{n}, ts.{dt}], u: ts.Out[1, ts.i32]):\n    ts.tile.grid(1)\n    u[0] = ts.tile.unique_count(x[...])\n    return u\n"


@pytest.mark.parametrize("dtype", [*FLOATS, np.dtype(bool)], ids=NAMES.get)
def test_unique_count_takes_all_nan_and_both_zeros_for_one(dtype):
    for values, count in [([1], 1), ([0.0, -0.0, 0.0], 1), ([np.nan, 1, -np.nan, np.nan], 2), ([np.inf, -np.inf, 0, np.inf], 3)]:
        x = np.array(values, np.float64).astype(dtype)
        want = count if dtype in FLOATS else len(set(x.tolist()))
        assert load(UNIQUE.format(n=len(values), dt=NAMES[dtype]))["k"](x).item() == want


# What is refused

REFUSED = "@ts.kernel\ndef k(x: ts.Tensor[{n}, ts.{dt}], n: ts.i32):\n    ts.tile.grid(1)\n    t = x[0:8]\n    r = {r}\n"


@pytest.mark.parametrize(
    "r, dt, code",
    [
        ("ts.tile.topk(t, 9)", "f32", "E_SHAPE_MISMATCH"), ("ts.tile.topk(t, n)", "f32", "E_DYNAMIC_EXTENT"),
        ("ts.tile.topk(t, -1)", "f32", "E_SHAPE_MISMATCH"), ("ts.tile.topk(t[0], 1)", "f32", "E_TYPE"), ("ts.tile.sort(t, axis=1)", "f32", "E_SHAPE_MISMATCH"),
        ("ts.tile.sort(t, descending=n)", "f32", "E_ARGUMENT"), ("ts.tile.sort(n)", "f32", "E_TYPE"), ("ts.tile.argsort(t, axis=n)", "f32", "E_SHAPE_MISMATCH"),
        ("ts.tile.histogram(t, 4)", "f32", "E_TYPE"), ("ts.tile.histogram(t > 1, 4)", "i32", "E_TYPE"), ("ts.tile.histogram(t, n)", "i32", "E_DYNAMIC_EXTENT"),
        ("ts.tile.histogram(t, 4, mask=t)", "i32", "E_TYPE"), ("ts.tile.unique_count(n)", "i32", "E_TYPE"),
        ("ts.tile.histogram(t, 4, mask=ts.tile.arange(4) > 1)", "i32", "E_SHAPE_MISMATCH"),
    ],
)  # fmt: skip
def test_sorts_that_are_refused(r, dt, code):
    with pytest.raises(ts.TesseraError) as caught:
        load(REFUSED.format(n=8, dt=dt, r=r))["k"](np.zeros(8, np.float32 if dt == "f32" else np.int32), 3)
    assert caught.value.code == code and caught.value.help


RAGGED = "@ts.kernel\ndef k(x: ts.Tensor['n', ts.{dt}], y: ts.Tensor[8, ts.{dt}]):\n    ts.tile.grid(1)\n    t = x[0:8]\n{mask}    {store}\n    return y\n"


@pytest.mark.parametrize(
    "store, dt, want",
    [
        ("y[...] = ts.tile.sort(t)", "f32", [-5, -1, 2, 2, 3, np.inf, np.inf, np.inf]),
        ("y[0:5] = ts.tile.argsort(t)[0:5]", "f32", [3, 1, 2, 4, 0, 0, 0, 0]),
        ("y[0:2] = ts.tile.topk(t, 2)[0]", "f32", [3, 2, 0, 0, 0, 0, 0, 0]),
        ("y[...] = ts.tile.sort(t, descending=True)", "f32", [3, 2, 2, -1, -5, -np.inf, -np.inf, -np.inf]),
        ("y[0:4] = ts.tile.histogram(t, 4)", "i32", [0, 0, 2, 1, 0, 0, 0, 0]),
    ],
)
def test_ragged_sizes_need_the_mask_that_the_error_names(store, dt, want):
    dtype = np.float32 if dt == "f32" else np.int32
    x, y = np.array([3, -1, 2, -5, 2], dtype), np.zeros(8, dtype)
    with pytest.raises(ts.ShapeError) as caught:
        load(RAGGED.format(dt=dt, mask="", store=store))["k"](x, y)
    assert caught.value.code == "E_RAGGED"
    mask = caught.value.help.split("`")[1]
    assert mask.startswith("t = ts.tile.bounds_mask(t")
    assert load(RAGGED.format(dt=dt, mask=f"    {mask}\n", store=store))["k"](x, y).tolist() == want


def test_a_mask_of_positions_clears_a_histogram():
    text = RAGGED.format(dt="i32", mask="", store="y[0:4] = ts.tile.histogram(t, 4, mask=ts.tile.arange(8) < n)")
    assert load(text)["k"](np.array([0, 3, 0, 1, 0], np.int32), np.zeros(8, np.int32)).tolist() == [3, 1, 0, 1, 0, 0, 0, 0]
    text = RAGGED.format(dt="i32", mask="", store="y[0:4] = ts.tile.histogram(t, 4, mask=t >= 0)")
    with pytest.raises(ts.ShapeError) as caught:
        load(text)["k"](np.zeros(5, np.int32), np.zeros(8, np.int32))
    assert caught.value.code == "E_RAGGED"


def test_rows_beyond_the_array_are_sorted_by_themselves():
    text = "@ts.kernel\ndef k(x: ts.Tensor['m', 4, ts.f32], y: ts.Out['m', 4, ts.f32]):\n    i = ts.tile.grid(ts.cdiv(m, 2)) * 2\n    y[i:i + 2, :] = ts.tile.sort(x[i:i + 2, :])\n    return y\n"
    x = np.random.default_rng(6).standard_normal((3, 4)).astype(np.float32)
    same(load(text)["k"](x), np.sort(x))


# Derivatives and transformations


@ts.kernel
def ascending(x: ts.Tensor[8, ts.f32], y: ts.Out[8, ts.f32]):
    ts.tile.grid(1)
    y[...] = ts.tile.sort(x[...])
    return y


@ts.kernel
def ranks(x: ts.Tensor[8, ts.f32], y: ts.Out[8, ts.f32]):
    ts.tile.grid(1)
    y[...] = ts.tile.cast(ts.tile.argsort(x[...]), ts.f32) * x[...]
    return y


def test_derivative_of_a_sort_goes_where_the_element_was():
    x, weight = np.array([3, 1, 2, 8, 7, 6, 5, 4], np.float32), np.arange(8, dtype=np.float32)
    found = np.asarray(ts.grad(lambda v: ts.xp.sum(ascending(v) * weight))(x))
    np.testing.assert_array_equal(found, weight[np.argsort(np.argsort(x))])


def test_places_are_constants_for_derivatives():
    x = np.array([3, 1, 2, 8, 7, 6, 5, 4], np.float32)
    try:
        found = np.asarray(ts.grad(lambda v: ts.xp.sum(ranks(v)))(x))
    except ts.UnsupportedError as error:
        assert error.help
        return
    np.testing.assert_array_equal(found, np.argsort(x).astype(np.float32))


def test_sorts_inside_jit_and_vmap():
    x = np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32)
    same(np.asarray(ts.jit(lambda v: ascending(v * 2.0))(x[0])), np.sort(x[0] * 2))
    same(np.asarray(ts.vmap(ascending)(x)), np.sort(x))
    same(np.asarray(ts.jit(ts.vmap(lambda v: ascending(v)))(x)), np.sort(x))
