"""Atomics and folds at index tiles and lanes, compared with NumPy: every contribution counts once, those outside do not, on one thread
(where a launch is alone with its arrays) and on several, also beside other launches."""

import threading

import numpy as np
import pytest

import tessera as ts

KINDS = {"i32": np.int32, "i64": np.int64, "u32": np.uint32, "f32": np.float32, "f64": np.float64, "i8": np.int8, "f16": np.float16}


@pytest.fixture(params=[1, 3])
def threads(request):
    before = ts.runtime.threads()
    ts.runtime.set_threads(request.param)
    yield request.param
    ts.runtime.set_threads(before)


def changing(op, dtype, index, extent, form):
    """Kernels that change `h` at the places of `x` by the values of `v`."""
    dt, it = getattr(ts, dtype), getattr(ts, index)
    wide = {"i8": ts.i32, "f16": ts.f32}.get(dtype, dt)
    change = getattr(ts.tile, f"atomic_{op}")

    @ts.kernel
    def tiles(x: ts.Tensor["n", it], v: ts.Tensor["n", wide], h: ts.Tensor["b", dt]):
        o = ts.tile.grid(ts.cdiv(n, extent)) * extent
        change(h[ts.tile.load(x[o:o + extent], other=-1)], v[o:o + extent])
        return h

    @ts.kernel
    def lanes(x: ts.Tensor["n", it], v: ts.Tensor["n", wide], h: ts.Tensor["b", dt]):
        i = ts.tile.linear_id()
        if i < n:
            if v[i] != 3:
                change(h[x[i]], v[i])
        return h

    @ts.kernel
    def region(x: ts.Tensor["n", it], v: ts.Tensor["n", wide], h: ts.Region[ts.reduce_sum, ts.Tensor["b", dt]]):
        o = ts.tile.grid(ts.cdiv(n, extent)) * extent
        h[ts.tile.load(x[o:o + extent], other=-1)] += v[o:o + extent]
        return h

    @ts.kernel
    def region_lanes(x: ts.Tensor["n", it], v: ts.Tensor["n", wide], h: ts.Region[ts.reduce_sum, ts.Tensor["b", dt]]):
        i = ts.tile.linear_id()
        if i < n:
            h[x[i]] += v[i]
        return h

    return {"tiles": tiles, "lanes": lanes, "region": region, "region lanes": region_lanes}[form]


FOLDS = {"add": np.add, "sub": np.subtract, "max": np.maximum, "min": np.minimum, "xor": np.bitwise_xor, "or": np.bitwise_or}


def wanted(op, x, v, h, form):
    out = h.astype(np.float64 if h.dtype.kind == "f" else np.int64)
    for i, d in zip(x.tolist(), v.tolist()):
        if 0 <= i < h.size and not (form == "lanes" and d == 3):
            out[i] = FOLDS[op](out[i], d)
    return out.astype(h.dtype)


@pytest.mark.parametrize("form", ["tiles", "lanes", "region", "region lanes"])
@pytest.mark.parametrize("dtype", KINDS)
def test_every_contribution_counts_once(form, dtype, threads, backend):
    rng = np.random.default_rng(9)
    floats = dtype[0] == "f"
    ops = ["add"] if form.startswith("region") else ["add", "sub", "max", "min"] + ([] if floats else ["xor", "or"])
    for op in ops:
        for n, bins, extent, index in ((1, 1, 4, "i32"), (5, 3, 3, "i64"), (100, 7, 16, "i32"), (997, 300, 64, "i64"), (300, 2, 100, "i32")):
            x = rng.integers(-2, bins + 2, n).astype(KINDS[index])
            v = rng.integers(0, 4, n).astype({"i8": np.int32, "f16": np.float32}.get(dtype, KINDS[dtype]))
            h = rng.integers(0, 4, bins).astype(KINDS[dtype])
            got = changing(op, dtype, index, extent, form)(x, v, h.copy())
            np.testing.assert_array_equal(got, wanted(op, x, v, h, form), f"{op} of {n} in {bins}, tiles of {extent}")


@ts.kernel
def histogram(x: ts.Tensor["n", ts.i32], h: ts.Tensor["b", ts.i32]):
    o = ts.tile.grid(ts.cdiv(n, 1024)) * 1024
    ts.tile.atomic_add(h[ts.tile.load(x[o:o + 1024], other=-1)], 1)
    return h


@ts.kernel
def tickets(x: ts.Tensor[64, ts.i64], n: ts.Tensor["b", ts.i64], seen: ts.Out[64, ts.i64]):
    seen[:] = ts.tile.atomic_add(n[x[:]], 1)
    return seen


def test_large_launches_on_all_threads(threads):
    x = np.random.default_rng(1).integers(0, 1000, 400_000).astype(np.int32)
    np.testing.assert_array_equal(histogram(x, np.zeros(1000, np.int32)), np.bincount(x, minlength=1000))


def test_launches_beside_each_other_change_one_array():
    """Each is on one thread; what one reads another must not write before it is put back."""
    x = np.random.default_rng(2).integers(0, 8, 200_000).astype(np.int32)
    h, before = np.zeros(8, np.int32), ts.runtime.threads()
    histogram(x, h.copy())
    ts.runtime.set_threads(1)
    try:
        work = [threading.Thread(target=lambda: [histogram(x, h) for _ in range(5)]) for _ in range(4)]
        [w.start() for w in work]
        [w.join() for w in work]
    finally:
        ts.runtime.set_threads(before)
    np.testing.assert_array_equal(h, 20 * np.bincount(x, minlength=8))


def test_what_was_there_is_given_back(backend):
    x = np.array([5, 1, 5, 9, -1, 1, 1, 5] * 8, np.int64)
    n = np.zeros(6, np.int64)
    seen = tickets[1](x, n)
    so_far = [0] * 6
    want = []
    for at in x.tolist():
        want.append(so_far[at] if 0 <= at < 6 else 0)
        if 0 <= at < 6:
            so_far[at] += 1
    assert seen.tolist() == want and n.tolist() == so_far


def test_an_index_read_from_the_array_that_changes(backend):
    @ts.kernel
    def k(h: ts.Region[ts.read_write, ts.Tensor[8, ts.i32]]):
        at = h[:]
        ts.tile.atomic_add(h[at], 1)
        return h

    h = np.array([1, 1, 1, 0, 0, 7, 2, 3], np.int32)
    want = h.copy()
    np.add.at(want, h.copy(), 1)
    np.testing.assert_array_equal(k(h.copy()), want)


def test_many_values_read_from_the_array_that_changes(backend):
    """More than a block of them: all are read before any is changed."""

    @ts.kernel
    def k(h: ts.Region[ts.read_write, ts.Tensor[600, ts.i32]], x: ts.Tensor[600, ts.i32]):
        ts.tile.atomic_add(h[x[:]], h[:])
        at = h[:]
        ts.tile.atomic_add(h[at], 1)
        return h

    rng = np.random.default_rng(14)
    h, x = rng.integers(0, 300, 600).astype(np.int32), rng.integers(-5, 620, 600).astype(np.int32)
    want = h.copy()
    for at, v in ((x, want.copy), (None, lambda: np.ones(600, np.int32))):
        at, v = want.copy() if at is None else at, v()
        inside = (0 <= at) & (at < 600)
        np.add.at(want, at[inside], v[inside])
    np.testing.assert_array_equal(k(h.copy(), x), want)


@pytest.mark.parametrize("form", ["tiles", "region"])
@pytest.mark.parametrize("dtype", ["i32", "i64", "u32", "f32", "f64"])
def test_tiles_of_every_length(form, dtype, threads):
    """Whole blocks of places, parts of one, parts of a vector; a table of any length, so that its alignment varies."""
    rng = np.random.default_rng(10)
    for extent, index, bins in ((1, "i32", 1), (2, "i64", 3), (15, "i32", 16), (17, "i64", 5), (127, "i32", 256), (128, "i32", 384), (129, "i64", 512),
                                (143, "i32", 700), (144, "i64", 1000), (257, "i32", 9), (1000, "i64", 5000)):  # fmt: skip
        kernel = changing("add", dtype, index, extent, form)
        for n in (extent, 3 * extent + extent // 2 + 1):
            x = rng.integers(-bins // 2 - 1, 2 * bins, n).astype(KINDS[index])
            x[rng.integers(0, n, n // 8)] = rng.choice([np.iinfo(x.dtype).min, np.iinfo(x.dtype).max, -1, bins])
            v, h = rng.integers(0, 4, n).astype(KINDS[dtype]), rng.integers(0, 4, bins).astype(KINDS[dtype])
            np.testing.assert_array_equal(kernel(x, v, h.copy()), wanted("add", x, v, h, form), f"{n} in {bins}, tiles of {extent}")


def test_sums_of_floats_are_made_in_order():
    """On one thread each bin is the sum of its values one after another, whatever block they are in."""
    rng, before = np.random.default_rng(11), ts.runtime.threads()
    ts.runtime.set_threads(1)
    try:
        for dtype in ("f32", "f64"):
            for extent in (100, 300, 1024):
                x = rng.integers(-1, 6, 5000).astype(np.int32)
                v = (rng.standard_normal(5000) * 10.0 ** rng.integers(-6, 6, 5000)).astype(KINDS[dtype])
                want = np.zeros(5, KINDS[dtype])
                for i, d in zip(x, v):
                    if 0 <= i < 5:
                        want[i] += d
                for form in ("tiles", "region"):
                    got = changing("add", dtype, "i32", extent, form)(x, v, np.zeros_like(want))
                    assert got.tobytes() == want.tobytes(), (dtype, extent, form)
    finally:
        ts.runtime.set_threads(before)


def test_values_that_follow_some_axes(backend):
    """Of two axes: one value for each row, one for each column, one computed from two that are one for all, one for each element."""

    @ts.kernel
    def k(x: ts.Tensor[5, 150, ts.i32], r: ts.Tensor[5, ts.i32], c: ts.Tensor[150, ts.i32], a: ts.i32, h: ts.Tensor["b", ts.i32]):
        at = x[:, :]
        rows = ts.tile.broadcast(r[:][:, None], (5, 150))
        cols = ts.tile.broadcast(c[:][None, :], (5, 150))
        ts.tile.atomic_add(h[at], rows)
        ts.tile.atomic_sub(h[at + 1], cols)
        ts.tile.atomic_add(h[at], ts.tile.full((5, 150), a, ts.i32) * ts.tile.full((5, 150), a, ts.i32))
        ts.tile.atomic_add(h[at], rows * cols)
        ts.tile.atomic_xor(h[at * 2], at)
        return h

    rng = np.random.default_rng(12)
    x, r, c, h = (rng.integers(-3, 40, shape).astype(np.int32) for shape in ((5, 150), 5, 150, 37))
    want = h.copy()
    rows, cols = np.broadcast_to(r[:, None], x.shape), np.broadcast_to(c[None, :], x.shape)
    for op, at, v in ((np.add, x, rows), (np.subtract, x + 1, cols), (np.add, x, np.full_like(x, 49)), (np.add, x, rows * cols),
                      (np.bitwise_xor, x * 2, x)):  # fmt: skip
        inside = (0 <= at) & (at < h.size)
        op.at(want, at[inside], v[inside])
    np.testing.assert_array_equal(k[1](x, r, c, 7, h.copy()), want)


def test_indexes_that_are_computed_and_kept(backend):
    """The nest that changes also stores what it computes for another."""

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], h: ts.Tensor["b", ts.i64], y: ts.Out["n", ts.i32]):
        o = ts.tile.grid(ts.cdiv(n, 200)) * 200
        at = ts.tile.cast(ts.tile.floor(ts.tile.load(x[o:o + 200], other=-1.0) * 10.0), ts.i32)
        ts.tile.atomic_max(h[at], ts.tile.cast(at, ts.i64) * at)
        y[o:o + 200] = at
        return h, y

    x = np.random.default_rng(13).uniform(-1, 4, 777).astype(np.float32)
    at = np.floor(x * np.float32(10)).astype(np.int32)
    want = np.full(30, 50, np.int64)
    inside = (0 <= at) & (at < 30)
    np.maximum.at(want, at[inside], at[inside].astype(np.int64) ** 2)
    h, y = k(x, np.full(30, 50, np.int64))
    np.testing.assert_array_equal(h, want)
    np.testing.assert_array_equal(y, at)
