"""Functions of `tessera.xp` beyond the array API: against NumPy, outside traces and compiled; derivatives against differences."""

import contextlib
import re

import ml_dtypes
import numpy as np
import pytest
import xp_cases
from doc_blocks import ROOT

import tessera as ts
from tessera import xp
from tessera.trace.execute import oracle

CASES = [pytest.param(c, id=f"{k}-{c.id}") for k, c in enumerate(xp_cases.CASES)]
SMOOTH = [p for p in CASES if p.values[0].smooth]


def leaves(x):
    return [v for part in x for v in leaves(part)] if isinstance(x, (list, tuple)) else [x]


def same(got, want, bound):
    got, want = leaves(got), leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        w = np.asarray(w)
        assert np.shape(g) == w.shape
        g = np.asarray(g)
        if w.dtype.kind in "biu" and g.dtype.kind in "biu":
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(np.asarray(g, np.float64), np.asarray(w, np.float64), rtol=bound, atol=bound)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
@pytest.mark.parametrize("how", ["outside", "jit", "interpreted"])
@pytest.mark.parametrize("case", CASES)
def test_as_numpy(case, how):
    with np.errstate(all="ignore"):
        want = case.reference(np, *case.args) if case.reference else case.call(np, *case.args)
        with oracle() if how == "interpreted" else contextlib.nullcontext():
            got = case.call(xp, *case.args) if how == "outside" else ts.jit(lambda *a: case.call(xp, *a))(*case.args)
    same(got, want, case.bound)
    floats = {np.asarray(a).dtype for a in case.args if np.asarray(a).dtype.kind == "f"}
    if floats == {np.dtype(np.float32)} or not case.args:
        assert not any(np.asarray(v).dtype == np.float64 for v in leaves(got)), "f64 from f32"


FLOATS = [p for p in SMOOTH if p.values[0].args and all(np.asarray(a).dtype == np.float32 for a in p.values[0].args)]


@pytest.mark.parametrize("case", FLOATS)
def test_f64_keeps_its_digits(case):
    args = [np.asarray(a, np.float64) for a in case.args]
    got, want = leaves(ts.jit(lambda *a: case.call(xp, *a))(*args)), leaves(case.call(np, *args))
    for g, w in zip(got, want, strict=True):
        assert np.asarray(g).dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize("case", FLOATS)
def test_narrow_floats_stay_narrow(case, kind):
    args = [np.asarray(a, kind) for a in case.args]
    got = leaves(ts.jit(lambda *a: case.call(xp, *a))(*args))
    want = leaves(case.call(np, *(np.asarray(a, np.float64) for a in args)))
    for g, w in zip(got, want, strict=True):
        assert np.asarray(g).dtype == kind or w.dtype.kind in "biu"
        assert np.shape(g) == w.shape and not np.isnan(np.asarray(g, np.float64)).any()


def of_floats(case):
    """The call as a function of its float arguments in f64, to one number."""
    args = [np.asarray(a, np.float64) if np.asarray(a).dtype == np.float32 else a for a in case.args]
    moving = [k for k, a in enumerate(args) if np.asarray(a).dtype == np.float64]

    def call(space, *given):
        full = list(args)
        for k, v in zip(moving, given, strict=True):
            full[k] = v
        out = 0.0
        for n, y in enumerate(leaves(case.call(space, *full))):
            if np.issubdtype(np.dtype(str(y.dtype).replace("f64", "float64").replace("f32", "float32").replace("i64", "int64").replace("bool_", "bool")), np.floating):
                weights = np.cos(np.arange(max(int(np.prod(y.shape)), 1), dtype=np.float64) + n)[: int(np.prod(y.shape))].reshape(y.shape)
                out = out + space.sum(y * weights)
        return out

    return call, [args[k] for k in moving]


@pytest.mark.parametrize("case", SMOOTH)
def test_gradient_against_differences(case):
    call, given = of_floats(case)
    if not given:
        pytest.skip("no floats")
    got = ts.grad(lambda *a: call(xp, *a), argnums=tuple(range(len(given))))(*given)
    for k, g in enumerate(got):
        x, want = given[k], np.zeros_like(given[k])
        for at in np.ndindex(x.shape):
            step = np.zeros_like(x)
            step[at] = 1e-6
            sides = [float(call(np, *given[:k], x + s, *given[k + 1 :])) for s in (step, -step)]
            want[at] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(np.asarray(g), want, rtol=2e-6, atol=2e-7)


BATCHED = [p for p in SMOOTH if len(p.values[0].args) == 1 and np.size(p.values[0].args[0])]


@pytest.mark.parametrize("case", BATCHED)
def test_vmap_is_a_loop(case):
    x = case.args[0]
    many = np.stack([x, x * np.float32(0.7), x[::-1].copy() if x.ndim else x])
    got = leaves(ts.jit(ts.vmap(lambda v: case.call(xp, v)))(many))
    each = [leaves(case.call(np, v)) for v in many]
    for k, g in enumerate(got):
        np.testing.assert_allclose(np.asarray(g), np.stack([one[k] for one in each]), rtol=1e-5, atol=1e-5)


def test_every_function_has_a_case():
    ours = set(re.findall(r"\w+", " ".join(c.names for c in xp_cases.CASES)))
    elsewhere = set(re.findall(r"xp\.(\w+)", (ROOT / "python/tests/test_xp_more.py").read_text() + (ROOT / "python/tests/test_xp_special.py").read_text()))
    files = ("_calculus", "_diagonals", "_joins", "_numbers", "_sets", "_special", "_statistics")
    missing = [n for n, v in vars(xp).items() if not n.startswith("_") and callable(v) and getattr(v, "__module__", "").rpartition(".")[2] in files
               and n not in ours | elsewhere]  # fmt: skip
    # Those of the array API, which its suite tests.
    missing = [n for n in missing if n not in ("round", "unique_all", "unique_counts", "unique_inverse", "unique_values", "where")]
    assert not missing, f"functions without a case: {missing}"


# What NumPy has not, or means otherwise


IDS = np.int32([0, 2, 2, -1, 7, 0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_segments(name, dtype):
    data = (np.arange(12).reshape(6, 2) % 5 + 1).astype(dtype)
    fn = getattr(xp, f"segment_{name}")
    info = np.finfo(dtype) if dtype.startswith("f") else np.iinfo(dtype)
    start = {"sum": 0, "prod": 1, "max": -np.inf if dtype.startswith("f") else info.min, "min": np.inf if dtype.startswith("f") else info.max}[name]
    want = np.full((4, 2), start, dtype)
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[name]
    for row, k in zip(data, IDS, strict=True):
        if 0 <= k < 4:
            want[k] = ufunc(want[k], row)
    for got in (fn(data, IDS, 4), ts.jit(lambda d, k: fn(d, k, num_segments=4))(data, IDS)):
        assert np.asarray(got).dtype == dtype
        np.testing.assert_array_equal(got, want)
    assert np.shape(fn(data, IDS)) == (8, 2)
    if dtype == "float64":
        assert ts.gradcheck(lambda d: fn(d, IDS, 4)[np.array([0, 2])], data + np.linspace(0, 1, 12).reshape(6, 2))


def test_segments_are_xp_segment_sum_max_min_prod_and_need_a_count():
    for fn in (xp.segment_sum, xp.segment_max, xp.segment_min, xp.segment_prod):
        with pytest.raises(ts.ShapeError, match="num_segments=") as caught:
            ts.jit(fn)(np.ones(6, np.float32), IDS)
        assert caught.value.code == "E_DYNAMIC_EXTENT"


def test_bincount():
    x = np.array([1, 2, 2, 5])
    np.testing.assert_array_equal(xp.bincount(x), np.bincount(x))
    np.testing.assert_array_equal(xp.bincount(x, minlength=9), np.bincount(x, minlength=9))
    w = np.float32([0.5, 1, 2, 3])
    np.testing.assert_array_equal(ts.jit(lambda x, w: xp.bincount(x, w, length=4))(x, w), [0, 0.5, 3, 0])
    np.testing.assert_array_equal(xp.bincount(np.array([], int)), [])
    with pytest.raises(ts.ShapeError, match="length="):
        ts.jit(xp.bincount)(x)


MASK = np.array([[0, 3, 0], [4, 0, 5]], np.int32)


def test_positions_of_a_known_number():
    f = ts.jit(lambda x: (xp.nonzero(x, size=4, fill_value=-1), xp.argwhere(x, size=2), xp.flatnonzero(x, size=4, fill_value=99)))
    (rows, columns), where, flat = f(MASK)
    np.testing.assert_array_equal(rows, [0, 1, 1, -1])
    np.testing.assert_array_equal(columns, [1, 0, 2, -1])
    np.testing.assert_array_equal(where, [[0, 1], [1, 0]])
    np.testing.assert_array_equal(flat, [1, 3, 5, 99])
    np.testing.assert_array_equal(xp.nonzero(MASK), np.nonzero(MASK))
    np.testing.assert_array_equal(xp.argwhere(MASK), np.argwhere(MASK))
    np.testing.assert_array_equal(xp.flatnonzero(MASK), [1, 3, 5])


def test_sizes_under_vmap():
    rows = np.array([[0, 1, 0, 2], [3, 0, 0, 0], [1, 1, 1, 1]])
    got = ts.jit(ts.vmap(lambda r: (xp.flatnonzero(r, size=3, fill_value=-1), xp.unique(r, size=3), xp.bincount(r, length=3))))(rows)
    np.testing.assert_array_equal(got[0], [[1, 3, -1], [0, -1, -1], [0, 1, 2]])
    np.testing.assert_array_equal(got[1], [[0, 1, 2], [0, 3, 0], [1, 1, 1]])
    np.testing.assert_array_equal(got[2], [[2, 1, 1], [3, 0, 0], [0, 4, 0]])


def test_chosen_elements():
    x = np.float32([1, 2, 3, 4, 5])
    keep = x % 2 == 1
    np.testing.assert_array_equal(xp.compress(keep, x), [1, 3, 5])
    np.testing.assert_array_equal(xp.extract(keep, x), [1, 3, 5])
    np.testing.assert_array_equal(ts.jit(lambda k, x: xp.compress(k, x, size=4, fill_value=-1))(keep, x), [1, 3, 5, -1])
    grid = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(xp.compress([True, False, True], grid, axis=1), grid[:, [0, 2]])
    np.testing.assert_array_equal(ts.grad(lambda x: xp.sum(xp.extract(keep, x, size=4) ** 2))(x), [2, 0, 6, 0, 10])


def test_sets():
    a, b = np.int32([3, 1, 2, 3, 1, 7]), np.int32([2, 3, 9, 9])
    for fn, ref in ((xp.union1d, np.union1d), (xp.intersect1d, np.intersect1d), (xp.setdiff1d, np.setdiff1d), (xp.setxor1d, np.setxor1d)):
        want = ref(a, b)
        np.testing.assert_array_equal(fn(a, b), want)
        got = ts.jit(lambda a, b, fn=fn: fn(a, b, size=8, fill_value=-5))(a, b)
        np.testing.assert_array_equal(got, [*want, *[-5] * (8 - len(want))])
        # What JAX puts behind: the least, and 0 for `setdiff1d`.
        behind = 0 if fn is xp.setdiff1d else want[0]
        np.testing.assert_array_equal(fn(a, b, size=8), [*want, *[behind] * (8 - len(want))])
        np.testing.assert_array_equal(fn(a, b, size=1), want[:1])
    values, index, inverse, counts = ts.jit(lambda a: xp.unique(a, True, True, True, size=6))(a)
    np.testing.assert_array_equal(values, [1, 2, 3, 7, 1, 1])
    np.testing.assert_array_equal(np.asarray(index)[:4], [1, 2, 0, 5])
    np.testing.assert_array_equal(np.asarray(values)[np.asarray(inverse)], a)
    np.testing.assert_array_equal(counts, [2, 1, 2, 1, 0, 0])
    np.testing.assert_array_equal(ts.jit(lambda x: xp.unique(x, size=3))(np.float32([np.nan, 1, np.nan])), [1, np.nan, 1])
    np.testing.assert_array_equal(xp.unique(a), [1, 2, 3, 7])


@pytest.mark.parametrize("fn", [xp.nonzero, xp.argwhere, xp.flatnonzero, xp.unique, lambda x: xp.extract(x, x), lambda x: xp.union1d(x, x)])
def test_a_size_is_required_where_values_decide(fn):
    with pytest.raises(ts.ShapeError, match="size=") as caught:
        ts.jit(fn)(MASK)
    assert caught.value.code == "E_DYNAMIC_EXTENT" and "size=" in caught.value.help


def test_positions_that_must_be_known():
    with pytest.raises(ts.ShapeError, match="obj"):
        ts.jit(xp.delete)(np.ones(3, np.float32), np.int32([1]))


@pytest.mark.parametrize("n", [1, 3, 64, 65, 1000])
@pytest.mark.parametrize("side", ["left", "right"])
def test_searchsorted(n, side):
    s = np.sort(np.random.default_rng(n).integers(0, n // 2 + 2, n)).astype(np.float32)
    s[-1] = np.nan if n > 3 else s[-1]
    x = np.concatenate([s, s + 0.5, [-1, 1e9, np.nan, np.inf]]).astype(np.float32)
    np.testing.assert_array_equal(ts.jit(lambda s, x: xp.searchsorted(s, x, side=side))(s, x), np.searchsorted(s, x, side))


def test_questions_about_shapes_and_dtypes():
    x = np.ones((2, 3), np.float32)
    assert xp.shape(x) == (2, 3) and xp.ndim(x) == 2 and xp.size(x) == 6 and xp.size(x, 1) == 3
    assert xp.broadcast_shapes((2, 1), (3,), 3) == (2, 3)
    assert xp.promote_types(ts.f32, ts.i64) == ts.f32
    assert xp.isscalar(3.0) and not xp.isscalar(x) and xp.iterable(x) and not xp.iterable(3)
    assert xp.isrealobj(x) and not xp.iscomplexobj(x)
    assert xp.issubdtype(ts.f32, np.floating) and not xp.issubdtype(ts.i32, np.floating) and xp.issubdtype(ts.i32, ts.i32)


def test_python_scalars_are_weak_and_lists_are_f32():
    x = np.ones(3, np.float16)
    for y in (xp.isclose(x, 1.0), xp.fmax(x, 2.0), xp.heaviside(x, 0.5), xp.interp(x, [0.0, 1.0], [0.0, 2.0])):
        assert np.asarray(y).dtype in (np.bool_, np.float16, np.float32)
    assert np.asarray(xp.fmax(x, 2.0)).dtype == np.float16
    assert np.asarray(xp.median([1.0, 2.0, 4.0])).dtype == np.float32
    assert np.asarray(xp.diff(np.int32([1, 2]))).dtype == np.int32


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("counts", ["each", "one", "zeros", "list"])
def test_repeats_of_each_element(axis, counts):
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    n = 6 if axis is None else x.shape[axis]
    repeats = {"each": np.arange(n) % 3, "one": np.array(2, np.int8), "zeros": np.zeros(n, int), "list": [1] * (n - 1) + [3]}[counts]
    want = np.repeat(x, repeats, axis)
    np.testing.assert_array_equal(xp.repeat(x, repeats, axis), want)
    np.testing.assert_array_equal(ts.jit(lambda v: xp.repeat(v, repeats, axis))(x), want)
    if counts in ("each", "list"):
        # JAX's `total_repeat_length`: cut, or filled with the last element.
        at = 0 if axis is None else axis
        for total in (want.shape[at] - 1, want.shape[at], want.shape[at] + 2):
            more = max(total - want.shape[at], 0)
            filled = np.take(np.concatenate([want] + [np.take(want, [-1], at)] * more, at), np.arange(total), at)
            got = ts.jit(lambda v, r: xp.repeat(v, r, axis, total_repeat_length=total))(x, np.asarray(repeats))
            np.testing.assert_array_equal(got, filled)
            np.testing.assert_array_equal(xp.repeat(x, repeats, axis, total_repeat_length=total), filled)
    weights = np.random.default_rng(0).standard_normal(want.shape).astype(np.float32)
    got = ts.grad(lambda v: xp.sum(xp.repeat(v, repeats, axis) * weights))(x)
    back = np.zeros_like(x)
    np.add.at(back.reshape(-1), np.repeat(np.arange(6).reshape(2, 3), repeats, axis).reshape(-1), weights.reshape(-1))
    np.testing.assert_allclose(got, back, rtol=1e-6)


def test_repeats_that_are_refused():
    x = np.arange(3)
    with pytest.raises(ts.TesseraError, match="expected `total_repeat_length`"):
        ts.jit(xp.repeat)(x, np.arange(3))
    for wrong, message in (([1, 2], "one for each of 3"), ([1, -1, 2], "at least 0"), ([1.5, 1, 1], "to be integers")):
        with pytest.raises(ts.TesseraError, match=message):
            xp.repeat(x, wrong)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("kind", ["drawn", "ties", "ends"])
def test_quantiles_are_selected_without_sorting(dtype, kind):
    """Rows of 16 and more, against the elements of NumPy's sorted rows: bits, and derivatives by position."""
    of = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(3)
    x = {
        "drawn": rng.standard_normal((5, 40)) * 10.0 ** rng.integers(-4, 4, (5, 40)),
        "ties": rng.integers(-2, 3, (5, 40)).astype(float),
        "ends": rng.choice([np.inf, -np.inf, 0.0, -0.0, 1e-6, -3.0, 2.0], (5, 40)),
    }[kind].astype(of)  # fmt: skip
    ordered = np.sort(x.astype(np.float64), -1)
    for q, rank in ((0.0, 0), (0.25, 10), (0.5, 19), (0.75, 29), (1.0, 39)):
        low = xp.quantile(x, q, axis=1, method="lower")
        np.testing.assert_array_equal(np.asarray(low, np.float64), ordered[:, int(np.floor(q * 39))])
        high = xp.quantile(x, q, axis=1, method="higher")
        np.testing.assert_array_equal(np.asarray(high, np.float64), ordered[:, int(np.ceil(q * 39))])
    few = xp.quantile(x[:, :15], 0.5, axis=1, method="lower")
    np.testing.assert_array_equal(np.asarray(few, np.float64), np.sort(x[:, :15].astype(np.float64), -1)[:, 7])
    if kind != "ends":
        weights = rng.standard_normal(5)
        got = ts.grad(lambda v: xp.sum(xp.median(v, axis=1).astype(ts.f32) * weights.astype(np.float32)))(x)
        want, order = np.zeros((5, 40)), np.argsort(x.astype(np.float64), -1, kind="stable")
        for row, w in enumerate(weights.astype(np.float32)):
            want[row, order[row, 19]] += w / 2
            want[row, order[row, 20]] += w / 2
        np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=1e-2 if of.itemsize == 2 else 1e-6)


def test_quantiles_of_long_rows_leave_nan_out():
    x = np.random.default_rng(0).standard_normal((4, 100)).astype(np.float32)
    x[0, 3] = x[1, ::2] = x[2] = np.nan
    np.testing.assert_array_equal(np.isnan(xp.median(x, axis=1)), [True, True, True, False])
    with np.errstate(all="ignore"), contextlib.suppress(RuntimeWarning):
        np.testing.assert_allclose(xp.nanmedian(x, axis=1)[[0, 1, 3]], np.nanmedian(x[[0, 1, 3]], axis=1), rtol=1e-6)
    assert np.isnan(xp.nanmedian(x, axis=1)[2])
    many = np.linspace(0, 1, 11).astype(np.float32)
    np.testing.assert_allclose(xp.quantile(x[3], many), np.quantile(x[3], many), rtol=1e-5)
    np.testing.assert_allclose(ts.vmap(lambda v: xp.quantile(v, np.float32([0.1, 0.9])))(x[3:]), np.quantile(x[3:], [0.1, 0.9], axis=1).T, rtol=1e-5)
    with oracle():
        np.testing.assert_allclose(ts.jit(lambda v: xp.percentile(v, 37.0))(x[3]), np.percentile(x[3], 37.0), rtol=1e-5)


@pytest.mark.parametrize("sizes", [(100, 5), (100, 16), (100, 17), (60, 50), (33, 33), (17, 100)])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions_of_many_shifts(sizes, mode):
    """With a scan over groups of shifts; infinities of the longer vector reach only what they take part in."""
    rng = np.random.default_rng(list(sizes))
    a, v = (rng.standard_normal(n).astype(np.float32) for n in sizes)
    longer = a if len(a) >= len(v) else v
    longer[7] = np.inf
    with np.errstate(invalid="ignore"):
        want = np.convolve(a, v, mode)
    np.testing.assert_allclose(xp.convolve(a, v, mode), want, rtol=1e-4, atol=1e-5)
    ints = [rng.integers(-9, 9, n) for n in sizes]
    np.testing.assert_array_equal(xp.convolve(*ints, mode), np.convolve(*ints, mode))
    np.testing.assert_array_equal(xp.correlate(*ints, mode), np.correlate(*ints, mode))
    longer[7] = 1.0
    w = rng.standard_normal(want.shape).astype(np.float32)
    ga, gv = ts.grad(lambda a, v: xp.sum(xp.convolve(a, v, mode) * w), argnums=(0, 1))(a, v)
    # The products are bilinear: a direction gives the sum of its product with the gradient.
    for given, got, along in ((a, ga, lambda d: np.convolve(d, v, mode)), (v, gv, lambda d: np.convolve(a, d, mode))):
        d = rng.standard_normal(given.shape).astype(np.float32)
        np.testing.assert_allclose(np.dot(got, d), np.dot(along(d), w), rtol=2e-4, atol=2e-3)
    half = xp.convolve(a.astype(np.float16), v.astype(np.float16), mode)
    assert half.dtype == np.float16
    np.testing.assert_allclose(np.asarray(half, np.float32), np.convolve(a.astype(np.float16).astype(np.float32), v.astype(np.float16).astype(np.float32), mode), rtol=2e-3, atol=2e-2)


def test_the_sign_of_zeros():
    for dtype in (np.float64, np.float32, np.float16):
        got = np.asarray(ts.jit(xp.sign)(np.array([0.0, -0.0, -3.0, 2.0, np.nan], dtype)))
        np.testing.assert_array_equal(got, np.array([0, 0, -1, 1, np.nan], dtype))
        assert not np.signbit(got[:2]).any() and got.dtype == dtype
    np.testing.assert_array_equal(xp.sign(np.array([-5, 0, 5])), [-1, 0, 1])


@pytest.mark.parametrize("name", ["max", "min", "nanmax", "nanmin", "ptp"])
def test_extremes_of_nothing_are_refused(name):
    """As in NumPy and JAX: they were infinite, and the least integer."""
    of, empty = getattr(xp, name), np.ones((0, 3), np.float32)
    for x in (empty, empty.astype(int)) + ((empty.astype(bool),) if name in ("max", "min") else ()):
        for axis in (0, None, (0, 1), -2):
            with pytest.raises(ValueError, match=f"xp.{name}: expected elements along the axes, got \\[0, 3\\]"):
                of(x, axis=axis)
        assert of(x, axis=1).shape == (0,)
    with pytest.raises(ts.ShapeError):
        ts.jit(lambda v: of(v, axis=0))(empty)
    if name in ("max", "min"):
        assert of(empty, axis=0, initial=2.0).tolist() == [2.0] * 3
