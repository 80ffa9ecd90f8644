"""Running sums, products and extremes, compared with NumPy: exact for integers, the bits of a fold from the left under `strict`, and
within the bound of sums (LANGUAGE 13) in the default profile."""

import random

import numpy as np
import pytest

import tessera as ts

FOLDS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
EMPTY = {"sum": 0, "prod": 1}


def kernel(dtype, rows, cols, axis, op, exclusive, form):
    dt = getattr(ts, dtype)

    @ts.kernel
    def k(x: ts.Tensor["M", "N", dt], y: ts.Tensor["M", "N", dt]):
        r = ts.tile.program_id(0) * rows
        t = x[r:r + rows, 0:cols]
        if form == "computed":
            t = t + t - t  # noqa: no bit changes
        s = ts.tile.scan(t, op, axis=axis, exclusive=exclusive)
        if form == "used twice":
            y[r:r + rows, 0:cols] = s + (s - s)
        elif form == "masked":
            ts.tile.store(y, (slice(r, r + rows), slice(0, cols)), s, mask=t == t)
        else:
            y[r:r + rows, 0:cols] = s
        return y

    @ts.kernel
    def in_place(x: ts.Region[ts.read_write, ts.Tensor["M", "N", dt]]):
        r = ts.tile.program_id(0) * rows
        x[r:r + rows, 0:cols] = ts.tile.scan(x[r:r + rows, 0:cols], op, axis=axis, exclusive=exclusive)
        return x

    return in_place if form == "in place" else k


def folded(x, op, axis, exclusive):
    """From the left, one after another, in the dtype."""
    x = np.moveaxis(x, axis, 0)
    out, so_far = np.empty_like(x), None
    with np.errstate(all="ignore"):
        for i, row in enumerate(x):
            with_it = row if so_far is None else FOLDS[op](so_far, row)
            out[i] = with_it if not exclusive else (so_far if so_far is not None else EMPTY[op])
            so_far = with_it
    return np.moveaxis(out, 0, axis)


FORMS = ("plain", "computed", "used twice", "in place")


@pytest.mark.parametrize("dtype", ["i32", "i64", "u32", "f32", "f64"])
def test_scans_are_folds(dtype, backend):
    rng = random.Random(dtype)
    numbers = np.random.default_rng(5)
    kind = {"i32": np.int32, "i64": np.int64, "u32": np.uint32, "f32": np.float32, "f64": np.float64}[dtype]
    for _ in range(40):
        rows, cols = rng.choice([1, 1, 2, 3, 5]), rng.choice([1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 100, 257])
        axis, op, form = rng.randint(0, 1), rng.choice(list(FOLDS)), rng.choice(FORMS)
        exclusive = op in EMPTY and rng.random() < 0.4
        groups = rng.randint(1, 3)
        x = numbers.integers(0 if dtype[0] == "u" else -50, 50, (rows * groups, cols)).astype(kind)
        if "f" in dtype:
            # Few digits and products near 1: every order gives the same number, so that all of them are held to it.
            x = (x / 64 if op != "prod" else np.exp2(x % 3 - 1.0)).astype(kind)
        k = kernel(dtype, rows, cols, axis, op, exclusive, form)
        parts = np.split(x, groups)
        want = np.concatenate([folded(p, op, axis, exclusive) for p in parts])
        got = k(x.copy()) if form == "in place" else k(x, np.empty_like(x))
        np.testing.assert_array_equal(got, want, f"{op} along {axis} of {rows}x{cols}, {form}, exclusive={exclusive}")


@pytest.mark.parametrize("cols", [1, 5, 16, 100, 1000, 4099])
def test_strict_sums_have_the_bits_of_a_fold_and_others_are_within_the_bound(cols, backend):
    rng = np.random.default_rng(cols)
    x = (rng.standard_normal((3, cols)) * np.exp(rng.uniform(-8, 8, (3, cols)))).astype(np.float32)
    k = kernel("f32", 1, cols, 1, "sum", False, "plain")
    exact, sizes = np.cumsum(x.astype(np.float64), 1), np.cumsum(np.abs(x.astype(np.float64)), 1)
    bound = (np.arange(cols) + 3) * 2.0**-24 * sizes
    assert (np.abs(k(x, np.empty_like(x)) - exact) <= bound).all()
    with ts.numerics.profile("strict"):
        got = k(x, np.empty_like(x))
    np.testing.assert_array_equal(got.view(np.uint32), folded(x, "sum", 1, False).view(np.uint32))


def test_what_is_no_number_stays_behind_its_place(backend):
    """Padding, and what follows, is never seen by what comes before."""
    x = np.ones((1, 37), np.float32)
    x[0, 20] = np.inf
    x[0, 30] = np.nan
    got = kernel("f32", 1, 37, 1, "sum", False, "plain")(x, np.empty_like(x))[0]
    np.testing.assert_array_equal(got[:20], np.arange(1, 21))
    assert np.isinf(got[20:30]).all() and np.isnan(got[30:]).all()


def test_a_scan_of_ragged_rows_stores_what_is_inside(backend):
    @ts.kernel
    def k(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
        r, c = ts.tile.program_id(0) * 4, ts.tile.program_id(1) * 24
        y[r:r + 4, c:c + 24] = ts.tile.cumsum(x[r:r + 4, c:c + 24], axis=1)
        return y

    x = np.arange(7 * 61, dtype=np.float32).reshape(7, 61)
    want = np.concatenate([np.cumsum(x[:, c:c + 24], 1) for c in range(0, 61, 24)], 1)
    np.testing.assert_array_equal(k(x, np.zeros_like(x)), want)


def test_a_store_to_what_a_scan_reads_elsewhere_comes_after_it(backend):
    @ts.kernel
    def k(x: ts.Region[ts.read_write, ts.Tensor["n", ts.i32]], y: ts.Tensor["n", ts.i32]):
        s = ts.tile.cumsum(x[1:33])
        t = ts.tile.cumsum(x[0:32])
        x[0:32] = s
        y[0:32] = t
        return y

    x = np.arange(40, dtype=np.int32)
    y = k(x, np.zeros(40, np.int32))
    np.testing.assert_array_equal(y[:32], np.cumsum(np.arange(32)))
    np.testing.assert_array_equal(x[:32], np.cumsum(np.arange(1, 33)))
