"""Indexed reads and writes with affine positions, which are vector accesses on the CPU. Compared with NumPy's indexing."""

import itertools

import numpy as np
import pytest
import tessera as ts
from tessera import xp

ROWS, COLS = 9, 37


def table(dtype=np.float32):
    return np.arange(ROWS * COLS).astype(dtype).reshape(ROWS, COLS)


@ts.kernel
def rows_at(
    x: ts.Tensor["R", "C", ts.f32], at: ts.Tensor["N", ts.i32], y: ts.Tensor["N", "W", ts.f32], first: ts.i64, N: int, W: int, STEP: int
):  # noqa: F821
    r = at[0:N]
    c = ts.tile.arange(W) * STEP + first
    y[0:N, 0:W] = ts.tile.load(x, (r[:, None], c[None, :]), other=-1.0)


def wanted(x, at, first, width, step):
    c = first + step * np.arange(width)
    rows, cols = np.broadcast_arrays(at[:, None], c[None, :])
    inside = (rows >= 0) & (rows < x.shape[0]) & (cols >= 0) & (cols < x.shape[1])
    return np.where(inside, x[np.clip(rows, 0, x.shape[0] - 1), np.clip(cols, 0, x.shape[1] - 1)], np.float32(-1))


@pytest.mark.parametrize("width,step", [(8, 1), (16, 1), (32, 1), (21, 1), (16, 2), (16, -1), (8, -3), (4, 0)])
def test_rows_of_a_table(backend, width, step):
    x, at = table(), np.array([3, 0, 8, 8, -1, 9, 5, 2], np.int32)
    for first in (0, 1, 30, 36, -4, 2**31 - 3):
        y = np.zeros((len(at), width), np.float32)
        rows_at(x, at, y, first, N=len(at), W=width, STEP=step)
        np.testing.assert_array_equal(y, wanted(x, at, first, width, step))


@ts.kernel
def rows_to(x: ts.Tensor[6, 16, ts.f32], at: ts.Tensor[6, ts.i32], y: ts.Tensor["R", "C", ts.f32], first: ts.i64):  # noqa: F821
    r = at[0:6]
    c = ts.tile.arange(16) + first
    ts.tile.store(y, (r[:, None], c[None, :]), x[0:6, 0:16])


@pytest.mark.parametrize("first", [0, 5, 30, -4])
def test_rows_are_written(backend, first):
    x, at = table()[:6, :16].copy(), np.array([7, 1, 2, -1, 9, 4], np.int32)
    y, want = np.zeros((ROWS, COLS), np.float32), np.zeros((ROWS, COLS), np.float32)
    rows_to(x, at, y, first)
    for (i, r), k in itertools.product(enumerate(at), range(16)):
        if 0 <= r < ROWS and 0 <= first + k < COLS:
            want[r, first + k] = x[i, k]
    np.testing.assert_array_equal(y, want)


@ts.kernel
def wrapping(x: ts.Tensor["C", ts.f32], y: ts.Tensor["W", ts.f32], first: ts.i32, W: int):  # noqa: F821
    # 32 bits: the last ones wrap around to positions before the array.
    y[0:W] = ts.tile.load(x, ts.tile.arange(W) + first, other=-1.0)


def test_positions_of_32_bits_wrap_around(backend):
    y = np.zeros(16, np.float32)
    wrapping(np.arange(20, dtype=np.float32), y, 2**31 - 4, W=16)
    assert (y == -1).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bfloat16", "bool", "float16"])
@pytest.mark.parametrize("cols", [1, 3, 16, 33])
def test_take_of_rows(dtype, cols):
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    x = (np.arange(11 * cols) % 7).astype(kind).reshape(11, cols)
    at = np.array([0, 10, -1, 5, 3, 99, -50] * 40, np.int32)
    for mode, places in (("clip", np.clip(at, 0, 10)), ("wrap", at % 11)):
        got = ts.jit(lambda x, at, mode=mode: xp.take(x, at, axis=0, mode=mode))(x, at)
        np.testing.assert_array_equal(np.asarray(got).view(np.uint8), x[places].view(np.uint8))
    # Views: columns backwards and every other row.
    got = ts.jit(lambda x, at: xp.take(xp.flip(x, axis=1)[::2], at, axis=0, mode="clip"))(x, at)
    np.testing.assert_array_equal(np.asarray(got).view(np.uint8), np.ascontiguousarray(x[::2, ::-1][np.clip(at, 0, 5)]).view(np.uint8))


@pytest.mark.parametrize("rows,cols", [(200, 256), (256, 256), (255, 256), (128, 128)])
def test_parts_that_share_memory_are_written_in_loops(rows, cols):
    # A part at a position that is computed is a view of all the places where it may be; they overlap.
    u = np.random.default_rng(0).normal(size=(rows, cols)).astype(np.float32)
    part = np.full((rows - 2, cols - 2), 2.0, np.float32)
    f = ts.jit(lambda u, p, at: ts.fori_loop(0, 3, lambda i, u: ts.dynamic_update_slice(u, p + u[0, 0], [at, at]), u))
    want = u.copy()
    want[1:-1, 1:-1] = part + u[0, 0]
    np.testing.assert_array_equal(f(u, part, 1), want)
