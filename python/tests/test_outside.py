"""Elements outside an array, or behind a mask, compared with NumPy: `other` where it is given, else 0; nothing is written
there. Every extent from 1 to 9 and some beyond, positions that all elements share and positions of their own, every dtype."""

import random

import ml_dtypes
import numpy as np
import pytest

import tessera as ts

DTYPES = {
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "u32": np.uint32, "u64": np.uint64,
    "bool": np.bool_,
}  # fmt: skip


def taken(x, at, mask, other):
    """`x[at]` element by element; positions are never counted from the end."""
    at = np.broadcast_arrays(*at)
    mask = np.broadcast_to(mask, at[0].shape)
    out = np.full(at[0].shape, other, x.dtype)
    for place in np.ndindex(at[0].shape):
        p = tuple(int(a[place]) for a in at)
        if mask[place] and all(0 <= i < n for i, n in zip(p, x.shape)):
            out[place] = x[p]
    return out


def line(name, extent, other):
    """Gathers of one axis: at one place, at neighbours, at places that are read; alone, masked by one condition for all and by one
    for each."""
    dtype = getattr(ts, name)

    @ts.kernel
    def k(
        x: ts.Tensor["n", dtype],
        idx: ts.Tensor["e", ts.i64],
        m: ts.Tensor["e", ts.bool],
        at: ts.i64,
        c: ts.i32,
        y: ts.Out[9, "e", dtype],
    ):
        one = ts.tile.full((extent,), at, ts.i64)
        near = ts.tile.arange(extent) + at
        read = idx[0:extent]
        y[0, 0:extent] = ts.tile.load(x, one, other=other)
        y[1, 0:extent] = ts.tile.load(x, one)
        y[2, 0:extent] = ts.tile.load(x, one, mask=m[0:extent], other=other)
        y[3, 0:extent] = ts.tile.load(x, one, mask=ts.tile.full((extent,), c, ts.i32) > 0, other=other)
        y[4, 0:extent] = ts.tile.load(x, near, other=other)
        y[5, 0:extent] = ts.tile.load(x, near, mask=m[0:extent], other=other)
        y[6, 0:extent] = ts.tile.load(x, read, other=other)
        y[7, 0:extent] = ts.tile.load(x, read, mask=m[0:extent], other=other)
        y[8, 0:extent] = x[read]
        return y

    return k


def lanes(name, other):
    dtype = getattr(ts, name)

    @ts.kernel
    def k(
        x: ts.Tensor["n", dtype],
        idx: ts.Tensor["e", ts.i64],
        m: ts.Tensor["e", ts.bool],
        at: ts.i64,
        c: ts.i32,
        y: ts.Out[9, "e", dtype],
    ):
        i = ts.tile.linear_id()
        if i < e:
            y[0, i] = ts.tile.load(x, at, other=other)
            y[1, i] = ts.tile.load(x, at)
            y[2, i] = ts.tile.load(x, at, mask=m[i], other=other)
            y[3, i] = ts.tile.load(x, at, mask=c > 0, other=other)
            y[4, i] = ts.tile.load(x, at + i, other=other)
            y[5, i] = ts.tile.load(x, at + i, mask=m[i], other=other)
            y[6, i] = ts.tile.load(x, idx[i], other=other)
            y[7, i] = ts.tile.load(x, idx[i], mask=m[i], other=other)
            y[8, i] = x[idx[i]]
        return y

    return k


def line_wanted(x, idx, m, at, c, other):
    one, near = np.full(idx.shape, at), at + np.arange(idx.size)
    rows = [
        (one, True, other), (one, True, 0), (one, m, other), (one, c > 0, other), (near, True, other), (near, m, other),
        (idx, True, other), (idx, m, other), (idx, True, 0),
    ]  # fmt: skip
    return np.stack([taken(x, (a,), mask, v) for a, mask, v in rows])


def plane(name, rows, cols, other):
    """The same of two axes; one of them may be a number for all."""
    dtype = getattr(ts, name)

    @ts.kernel
    def k(
        x: ts.Tensor["m", "n", dtype],
        i: ts.Tensor["r", ts.i32],
        j: ts.Tensor["c", ts.i32],
        mask: ts.Tensor["r", "c", ts.bool],
        at: ts.i32,
        to: ts.i32,
        y: ts.Out[5, "r", "c", dtype],
    ):
        a = ts.tile.broadcast(i[0:rows][:, None], (rows, cols))
        b = ts.tile.broadcast(j[0:cols][None, :], (rows, cols))
        one = ts.tile.full((rows, cols), at, ts.i32)
        two = ts.tile.full((rows, cols), to, ts.i32)
        y[0, 0:rows, 0:cols] = ts.tile.load(x, (a, b), other=other)
        y[1, 0:rows, 0:cols] = ts.tile.load(x, (one, two), other=other)
        y[2, 0:rows, 0:cols] = ts.tile.load(x, (one, b), other=other)
        y[3, 0:rows, 0:cols] = ts.tile.load(x, (a, two), mask=mask[0:rows, 0:cols], other=other)
        y[4, 0:rows, 0:cols] = ts.tile.load(x, (one, two), mask=mask[0:rows, 0:cols], other=other)
        return y

    return k


def plane_wanted(x, i, j, mask, at, to, other):
    shape = (i.size, j.size)
    a, b = np.broadcast_to(i[:, None], shape), np.broadcast_to(j[None, :], shape)
    one, two = np.full(shape, at), np.full(shape, to)
    rows = [((a, b), True), ((one, two), True), ((one, b), True), ((a, two), mask), ((one, two), mask)]
    return np.stack([taken(x, at, m, other) for at, m in rows])


def block(name, rows, cols, other):
    """Slices that leave the array on any side."""
    dtype = getattr(ts, name)

    @ts.kernel
    def k(x: ts.Tensor["m", "n", dtype], at: ts.i64, to: ts.i64, y: ts.Out[2, rows, cols, dtype]):
        y[0, 0:rows, 0:cols] = ts.tile.load(x[at:at + rows, to:to + cols], other=other)
        y[1, 0:rows, 0:cols] = x[at:at + rows, to:to + cols]
        return y

    return k


def values(rng, name, shape):
    x = np.array([rng.randint(1, 9) for _ in range(int(np.prod(shape)))]).reshape(shape)
    return (x % 2 == 0) if name == "bool" else x.astype(DTYPES[name])


def other_of(name):
    return True if name == "bool" else 7 if name[0] == "u" else -1.0 if "f" in name else -1


@pytest.mark.parametrize("name", DTYPES)
def test_gathers_of_one_axis(name, backend):
    rng = random.Random(name)
    other = other_of(name)
    for extent in (*range(1, 10), 17, 31):
        k, each = line(name, extent, other), lanes(name, other)
        n = rng.randint(1, 6)
        x = values(rng, name, (n,))
        for at in (0, n - 1, n, n + 4, -1, -extent, -(2**40), 2**40):
            idx = np.array([rng.randint(-3, n + 3) for _ in range(extent)], np.int64)
            m = np.array([rng.random() < 0.6 for _ in range(extent)])
            c = rng.randint(0, 1)
            want = line_wanted(x, idx, m, at, c, other)
            np.testing.assert_array_equal(k(x, idx, m, at, c), want, f"tiles of {extent} at {at}")
            np.testing.assert_array_equal(each(x, idx, m, at, c), want, f"{extent} lanes at {at}")


@pytest.mark.parametrize("name", DTYPES)
def test_gathers_of_two_axes(name, backend):
    rng = random.Random(name)
    other = other_of(name)
    for rows, cols in ((1, 1), (1, 3), (3, 1), (2, 3), (3, 5), (5, 7), (4, 9), (3, 17)):
        k = plane(name, rows, cols, other)
        m, n = rng.randint(1, 4), rng.randint(1, 4)
        x = values(rng, name, (m, n))
        for at, to in ((0, 0), (m - 1, n - 1), (m, 0), (0, n), (-1, 0), (0, -1), (m, n)):
            i = np.array([rng.randint(-2, m + 1) for _ in range(rows)], np.int32)
            j = np.array([rng.randint(-2, n + 1) for _ in range(cols)], np.int32)
            mask = np.array([[rng.random() < 0.6 for _ in range(cols)] for _ in range(rows)])
            want = plane_wanted(x, i, j, mask, at, to, other)
            np.testing.assert_array_equal(k(x, i, j, mask, at, to), want, f"{rows}x{cols} at {at, to}")


@pytest.mark.parametrize("name", DTYPES)
def test_slices_beyond_the_ends(name, backend):
    rng = random.Random(name)
    other = other_of(name)
    for rows, cols in ((1, 1), (1, 3), (3, 5), (5, 7), (2, 9), (3, 33)):
        k = block(name, rows, cols, other)
        m, n = rng.randint(1, 6), rng.randint(1, 6)
        x = values(rng, name, (m, n))
        for at, to in ((0, 0), (m - 1, n - 1), (m, 0), (0, n), (-1, 0), (0, -1), (-rows, -cols), (-1, -2), (m + 2, n + 3)):
            a, b = np.arange(at, at + rows)[:, None], np.arange(to, to + cols)[None, :]
            want = np.stack([taken(x, (a, b), True, other), taken(x, (a, b), True, 0)])
            np.testing.assert_array_equal(k(x, at, to), want, f"{rows}x{cols} at {at, to} of {m}x{n}")
