"""Padding never slips into a result: kernels that would let it are refused, and the help of the error works."""

import math

import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each


def test_scatter_at_a_ragged_index_tile_is_refused_and_its_help_is_right():
    with pytest.raises(ts.ShapeError) as caught:

        @ts.kernel
        def broken(index: ts.Tensor["m", ts.i32], v: ts.Tensor["m", ts.f32], y: ts.Tensor["n", ts.f32]):
            s = ts.tile.program_id(0) * 8
            y[index[s : s + 8]] = v[s : s + 8]

    assert caught.value.code == "E_RAGGED"
    assert "value=-1" in caught.value.help

    @ts.kernel
    def scatter(index: ts.Tensor["m", ts.i32], v: ts.Tensor["m", ts.f32], y: ts.Tensor["n", ts.f32]):
        s = ts.tile.grid(ts.cdiv(m, 8)) * 8
        at = ts.tile.bounds_mask(index[s : s + 8], cols=m - s, value=-1)
        y[at] = v[s : s + 8]
        return y

    y = scatter(np.array([3, 1, 4], np.int32), np.array([1, 2, 3], np.float32), np.zeros(6, np.float32))
    np.testing.assert_array_equal(y, [0, 2, 0, 1, 3, 0])


def test_slice_that_may_begin_before_the_tensor_needs_a_mask_of_both_ends():
    with pytest.raises(ts.ShapeError) as caught:

        @ts.kernel
        def broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
            s = ts.tile.program_id(0)
            t = ts.tile.bounds_mask(x[s - 1 : s + 2], cols=n - s + 1)
            y[s] = ts.tile.max(t)

    assert caught.value.code == "E_RAGGED"
    assert "both ends" in caught.value.help

    @ts.kernel
    def pool(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        s = ts.tile.program_id(0)
        p = s - 1 + ts.tile.arange(3)
        t = ts.tile.where((p >= 0) & (p < n), x[s - 1 : s + 2], -math.inf)
        y[s] = ts.tile.max(t)
        return y

    x = np.array([-3, -1, -2, -5], np.float32)
    np.testing.assert_array_equal(pool(x, np.zeros_like(x)), [-1, -1, -1, -2])


def test_mean_of_a_ragged_slice_says_how_to_count():
    with pytest.raises(ts.ShapeError) as caught:

        @ts.kernel
        def broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.f32]):
            y[0] = ts.tile.mean(x[0:64])

    assert "divide ts.tile.sum" in caught.value.help


def test_rows_are_picked_by_an_index_tile():
    @ts.kernel
    def pick(W: ts.Tensor["V", "D", ts.f32], ids: ts.Tensor["n", ts.i32], y: ts.Tensor["n", "D", ts.f32]):
        s = ts.tile.grid(ts.cdiv(n, 4)) * 4
        y[s : s + 4, :] = W[ids[s : s + 4], :]
        return y

    W = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    ids = np.array([6, 0, 3, 3, 1, 2], np.int32)
    np.testing.assert_array_equal(pick(W, ids, np.zeros((6, 5), np.float32)), W[ids])


def test_index_tiles_of_several_axes_broadcast():
    @ts.kernel
    def corner(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor[3, 2, ts.f32]):
        y[:, :] = x[ts.tile.arange(3)[:, None] * 2, ts.tile.arange(2)[None, :]]
        return y

    x = np.arange(30, dtype=np.float32).reshape(6, 5)
    np.testing.assert_array_equal(corner(x, np.zeros((3, 2), np.float32)), x[0:6:2, 0:2])


def test_index_tiles_into_a_transposed_parameter_keep_the_order_of_the_subscript():
    @ts.kernel
    def columns(W: ts.Tensor["V", "D", ts.f32], ids: ts.Tensor["n", ts.i32], y: ts.Tensor["D", "n", ts.f32]):
        y[:, :] = W.T[:, ids[:]]
        return y

    @ts.kernel
    def rows(W: ts.Tensor["V", "D", ts.f32], ids: ts.Tensor["n", ts.i32], y: ts.Tensor["n", "V", ts.f32]):
        y[:, :] = W.T[ids[:], :]
        return y

    W = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    ids = np.array([3, 1, 4], np.int32)
    np.testing.assert_array_equal(columns(W, ids, np.zeros((5, 3), np.float32)), W.T[:, ids])
    np.testing.assert_array_equal(rows(W, ids, np.zeros((3, 7), np.float32)), W.T[ids, :])


@pytest.mark.parametrize("axis", ["", ", axis=(0, 1)"])
def test_a_maximum_along_both_axes_names_the_one_that_has_padding(axis):
    def help_of(body):
        text = f"""
@ts.kernel
def k(x: ts.Tensor["m", "n", ts.f32], y: ts.Tensor["g", ts.f32]):
    i = ts.tile.program_id(0)
    {body.format(axis=axis)}
"""
        with pytest.raises(ts.ShapeError) as caught:
            load(text)
        assert caught.value.code == "E_RAGGED"
        return caught.value.help

    assert "`t = ts.tile.bounds_mask(t, rows=m - i * 8)`" in help_of("t = x[i * 8:i * 8 + 8, 0:n]; y[i] = ts.tile.max(t{axis})")
    assert "`t = ts.tile.bounds_mask(t, cols=n - i * 8)`" in help_of("t = x[0:m, i * 8:i * 8 + 8]; y[i] = ts.tile.max(t{axis})")


NARROW = """
@ts.kernel
def k(x: ts.Tensor["n", ts.f32], y: ts.Tensor["g", ts.f32]):
    i = ts.tile.program_id(0)
    s = {start}
    y[i] = ts.tile.max(ts.tile.where({position} < n - s, x[s:s + {extent}], -math.inf))
"""


@pytest.mark.parametrize(
    "start, position, extent, taken",
    [
        ("i * 100", "ts.tile.arange(64)", 64, True),
        ("ts.tile.cast(i * 100, ts.i32)", "ts.tile.arange(64)", 64, True),
        # 200 is -56 in 8 bits.
        ("ts.tile.cast(ts.tile.cast(i * 100, ts.i8), ts.i64)", "ts.tile.arange(64)", 64, False),
        ("ts.tile.cast(ts.tile.cast(i * 100, ts.u8), ts.i64)", "ts.tile.arange(64)", 64, True),
        ("i * 100", "ts.tile.cast(ts.tile.arange(128), ts.i8)", 128, True),
        ("i * 100", "ts.tile.cast(ts.tile.arange(256), ts.i8)", 256, False),
        ("i * 100", "ts.tile.cast(ts.tile.arange(256), ts.u8)", 256, True),
    ],
)
def test_what_narrowing_makes_of_a_position_is_not_known(start, position, extent, taken):
    text = NARROW.format(start=start, position=position, extent=extent)
    x, y = np.arange(-230, -20, dtype=np.float32), np.zeros(3, np.float32)
    if not taken:
        with pytest.raises(ts.ShapeError) as caught:
            load(text)["k"](x, y)
        assert caught.value.code == "E_RAGGED"
        return
    load(text)["k"].launch(x, y, grid=3)
    assert y.tolist() == [x[s : s + extent].max() for s in (0, 100, 200)]
