"""Results that the caller leaves to the call."""

import numpy as np
import pytest

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each


@ts.kernel
def doubled(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = 2.0 * x[i]


def test_out_that_is_left_out_is_returned_even_without_return():
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(doubled(x), 2 * x)


def test_out_that_is_given_is_written_in_place():
    x, y = np.arange(5, dtype=np.float32), np.zeros(5, np.float32)
    assert doubled(x, y) is None
    np.testing.assert_array_equal(y, 2 * x)


@pytest.mark.parametrize(
    "mode, dtype, expected",
    [("sum", ts.f32, 10), ("max", ts.f32, 4), ("min", ts.i32, 0), ("max", ts.i32, 4), ("prod", ts.f32, 0)],
)
def test_folding_into_an_out_begins_with_the_identity(mode, dtype, expected):
    @ts.kernel
    def fold(x: ts.Tensor["n", dtype], total: ts.Region["reduce_" + mode, ts.Out[1, dtype]]):
        i = ts.tile.grid(n)
        ts.tile.accumulate(total[0], x[i])
        return total

    x = np.arange(5, dtype=np.int32 if dtype is ts.i32 else np.float32)
    assert fold(x)[0] == expected


@ts.kernel
def half(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    s = ts.tile.grid(ts.cdiv(n, 8)) * 8
    y[s : s + 4] = x[s : s + 4]


@ts.kernel
def blocks(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    s = ts.tile.grid(ts.cdiv(n, 8)) * 8
    y[s : s + 8] = x[s : s + 8]


def stale(n):
    """Memory that allocators give again, with something in it."""
    kept = [np.full(n, 7.0, np.float32) for _ in range(50)]
    del kept


def expected(x):
    return np.where(np.arange(len(x)) % 8 < 4, x, 0)


@pytest.mark.parametrize("n", [16, 100, 5000])
def test_elements_that_a_launch_does_not_write_are_zero(n):
    x = np.arange(1, n + 1, dtype=np.float32)
    for _ in range(5):
        stale(n)
        np.testing.assert_array_equal(half(x), expected(x))


def test_a_smaller_grid_leaves_zeros():
    x = np.arange(1, 101, dtype=np.float32)
    for _ in range(5):
        stale(100)
        y = blocks[3](x)
        np.testing.assert_array_equal(y[:24], x[:24])
        assert (y[24:] == 0).all()
    stale(100)
    assert (blocks[0](x) == 0).all()


def test_an_array_that_is_given_keeps_what_is_not_written():
    x, y = np.ones(16, np.float32), np.full(16, 3.0, np.float32)
    half(x, y)
    assert y.tolist() == [1.0] * 4 + [3.0] * 4 + [1.0] * 4 + [3.0] * 4


def test_elements_that_a_traced_call_does_not_write_are_zero():
    x = np.arange(1, 101, dtype=np.float32)
    f = ts.jit(lambda v: half(v * 2.0) + 1.0)
    for _ in range(3):
        stale(100)
        np.testing.assert_array_equal(f(x), expected(2 * x) + 1)


@ts.kernel
def by_condition(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    if x[i] > 0.0:
        y[i] = x[i]


@ts.kernel
def scattered(x: ts.Tensor["n", ts.f32], at: ts.Tensor["n", ts.i32], y: ts.Out["n", ts.f32]):
    y[at[:]] = x[:]


def test_conditions_and_scatters_leave_zeros():
    x = np.array([1, -1, 2, -2] * 50, np.float32)
    stale(200)
    np.testing.assert_array_equal(by_condition(x), np.maximum(x, 0))
    stale(200)
    at = np.arange(200, dtype=np.int32) // 2
    y = scattered(np.ones(200, np.float32), at)
    assert (y[:100] == 1).all() and (y[100:] == 0).all()


def test_checked_mode_tells_what_is_not_written(monkeypatch):
    x = np.ones(16, np.float32)
    (found,) = half.check(x).findings
    assert found.code == "E_UNINIT" and "element [4] of `y`" in found.message and "8 of its 16" in found.notes[0]
    assert found.file.endswith("test_out.py") and found.line
    assert blocks.check(x) and half.check(x, np.zeros_like(x))
    assert [d.code for d in blocks.check(x, grid=1).findings] == ["E_UNINIT"]
    (found,) = by_condition.check(-x).findings
    assert found.code == "E_UNINIT"
    monkeypatch.setenv("TESSERA_CHECK", "1")
    with pytest.raises(ts.CheckError) as caught:
        half(x)
    assert caught.value.code == "E_UNINIT"


def test_only_what_may_be_written_in_part_is_cleared(monkeypatch):
    from tessera.arrays import create as _create

    cleared = []
    clear = _create._cleared
    monkeypatch.setattr(_create, "_cleared", lambda shape, *rest: cleared.append(shape) or clear(shape, *rest))
    x = np.ones(40, np.float32)
    doubled(x), blocks(x), blocks[5](x)
    assert cleared == []
    blocks[4](x), half(x)
    assert cleared == [(40,), (40,)]
