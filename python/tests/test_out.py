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
