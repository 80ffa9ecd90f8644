"""Leaving loops and kernels early keeps what was assigned before."""

import numpy as np
import pytest

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each


@ts.kernel
def first_above(x: ts.Tensor["n", ts.f32], limit: ts.f32, out: ts.Tensor["k", ts.i64]):
    found = n
    for i in range(n):
        if x[i] > limit:
            found = i
            break
    out[0] = found
    return out


@ts.kernel
def first_above_while(x: ts.Tensor["n", ts.f32], limit: ts.f32, out: ts.Tensor["k", ts.i64]):
    found = n
    i = 0
    while i < n:
        if x[i] > limit:
            found = i
            break
        i += 1
    out[0] = found
    return out


@ts.kernel
def sum_of_small(x: ts.Tensor["n", ts.f32], limit: ts.f32, out: ts.Tensor["k", ts.f32]):
    total = 0.0
    skipped = 0
    for i in range(n):
        if x[i] > limit:
            skipped += 1
            continue
        total += x[i]
    out[0] = total
    out[1] = skipped
    return out


@ts.kernel
def return_in_loop(x: ts.Tensor["n", ts.f32], limit: ts.f32, out: ts.Tensor["k", ts.i64]):
    for i in range(n):
        if x[i] > limit:
            out[0] = i
            return out
        out[1] = i
    out[0] = -1
    return out


@ts.kernel
def lanes_break(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    total = 0.0
    for j in range(8):
        if j == 3:
            break
        total += x[i]
    y[i] = total
    return y


X = np.array([1, 2, 5, 3, 9], np.float32)


@pytest.mark.parametrize("kernel", [first_above, first_above_while])
@pytest.mark.parametrize("limit, expected", [(4.0, 2), (8.0, 4), (100.0, 5), (0.0, 0)])
def test_break_keeps_the_assignment_before_it(kernel, limit, expected):
    assert kernel(X, limit, np.zeros(1, np.int64))[0] == expected


def test_continue_keeps_the_assignment_before_it():
    np.testing.assert_array_equal(sum_of_small(X, 4.0, np.zeros(2, np.float32)), [6, 2])


@pytest.mark.parametrize("limit, expected", [(4.0, [2, 1]), (100.0, [-1, 4])])
def test_return_inside_a_loop_ends_the_kernel(limit, expected):
    np.testing.assert_array_equal(return_in_loop(X, limit, np.zeros(2, np.int64)), expected)


def test_break_under_a_uniform_condition_is_allowed_in_lane_kernels():
    np.testing.assert_array_equal(lanes_break(X, np.zeros_like(X)), 3 * X)


def test_lanes_that_left_a_loop_reach_no_barrier_in_it():
    with pytest.raises(ts.TesseraError) as caught:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            for j in range(8):
                if x[i] > j:
                    break
                ts.tile.barrier()
                y[i] = 1.0

    assert caught.value.code == "E_DIVERGENT_BARRIER"


def test_mean_of_a_ragged_slice_is_refused():
    with pytest.raises(ts.ShapeError) as caught:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.f32]):
            y[0] = ts.tile.mean(x[0:64])

    assert caught.value.code == "E_RAGGED"


def test_product_dims_bind_only_the_product():
    @ts.kernel
    def rows(x: ts.Tensor["B*H", "D", ts.f32], y: ts.Tensor["k", ts.f32]):
        y[0] = x.shape[0]
        return y

    assert rows(np.zeros((6, 2), np.float32), np.zeros(1, np.float32))[0] == 6
    with pytest.raises(ts.KernelSyntaxError, match="binds the product"):

        @ts.kernel
        def k(x: ts.Tensor["B*H", "D", ts.f32], y: ts.Tensor["k", ts.f32]):
            y[0] = B


def test_a_second_loop_may_use_the_names_of_the_first():
    @ts.kernel
    def sums(x: ts.Tensor["n", ts.f32], y: ts.Tensor["?", ts.f32]):
        total = ts.tile.zeros((8,), ts.f32)
        i = ts.tile.program_id(0)
        for at in ts.tile.range(0, 16, 8):
            t = x[at:at + 8] * 2.0
            total = total + t
        for at in ts.tile.range(16, 32, 8):
            t = ts.tile.where(x[at:at + 8] > 20.0, 1.0, 0.0)
            total = total + t
        y[i * 8:i * 8 + 8] = total

    x = np.arange(32, dtype=np.float32)
    y = np.zeros(8, np.float32)
    sums[1](x, y)
    assert (y == 2 * (x[:8] + x[8:16]) + (x[16:24] > 20) + (x[24:] > 20)).all()


def test_a_name_of_an_earlier_loop_has_no_value_after_it():
    with pytest.raises(ts.TesseraError) as caught:

        @ts.kernel
        def late(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
            i = ts.tile.program_id(0) * 8
            for at in ts.tile.range(0, 16, 8):
                t = x[at:at + 8]
            for at in ts.tile.range(0, 16, 8):
                y[i:i + 8] = t
                t = x[at:at + 8]

    assert caught.value.code == "E_NAME"
