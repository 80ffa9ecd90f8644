"""Kernels in which an eager compiler would read too late, write too early, or fuse MMAs that must stay separate."""

import numpy as np
import pytest

import tessera as ts

RNG = np.random.default_rng(23)


def on(backend, kernel, *arrays):
    """The arrays as a launch leaves them."""
    copies = [np.array(a) for a in arrays]
    ts.runtime.select_backend(backend)
    try:
        kernel(*copies)
    finally:
        ts.runtime.select_backend(None)
    return copies


def agree(kernel, *arrays):
    for got, expected in zip(on("cpu", kernel, *arrays), on("interp", kernel, *arrays), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


@ts.kernel
def lower_triangle(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    m = ts.tile.program_id(0) * 32
    n = ts.tile.program_id(1) * 32
    acc = ts.tile.zeros((32, 32), ts.f32)
    for k in ts.tile.range(0, m + 32, 32):
        acc = ts.tile.mma(A[m : m + 32, k : k + 32], B[k : k + 32, n : n + 32], accumulator=acc)
    C[m : m + 32, n : n + 32] = acc


def test_a_depth_that_differs_between_groups():
    agree(lower_triangle, normal(128, 128), normal(128, 96), np.zeros((128, 96), np.float32))


@ts.kernel
def shift(A: ts.Tensor["n", ts.f32]):
    g = ts.tile.grid(1)
    x = A[g : g + 64]
    A[g + 1 : g + 65] = x


@ts.kernel
def reverse(A: ts.Tensor["n", ts.f32]):
    g = ts.tile.grid(1)
    x = A[63 - ts.tile.arange(64)]
    A[g : g + 64] = x


@ts.kernel
def shift_what_is_used_twice(A: ts.Tensor["n", ts.f32], B: ts.Tensor["n", ts.f32]):
    g = ts.tile.grid(1)
    y = ts.tile.exp(A[g : g + 64])
    A[g + 1 : g + 65] = y
    B[g : g + 64] = y


def test_tiles_that_overlap_what_they_are_written_to():
    agree(shift, normal(80))
    agree(reverse, normal(80))
    agree(shift_what_is_used_twice, normal(80), np.zeros(80, np.float32))


@ts.kernel
def begin_again(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    g = ts.tile.grid(1)
    first = ts.tile.mma(A[g : g + 32, 0:32], B[0:32, g : g + 32])
    total = ts.tile.zeros((32, 32), ts.f32)
    for k in ts.tile.range(0, K, 32):
        total = total + ts.tile.mma(A[g : g + 32, k : k + 32], B[k : k + 32, g : g + 32], accumulator=first)
    C[g : g + 32, g : g + 32] = total


def test_an_accumulator_from_outside_the_loop():
    agree(begin_again, normal(32, 96), normal(96, 32), np.zeros((32, 32), np.float32))


@ts.kernel
def padded_with_ones(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    m = ts.tile.program_id(0) * 32
    n = ts.tile.program_id(1) * 32
    acc = ts.tile.zeros((32, 32), ts.f32)
    for k in ts.tile.range(0, K, 64):
        a = ts.tile.load(A[m : m + 32, k : k + 64], other=1.0)
        b = ts.tile.load(B[k : k + 64, n : n + 32], other=1.0)
        acc = ts.tile.mma(a, b, accumulator=acc)
    C[m : m + 32, n : n + 32] = acc


def test_padding_that_is_not_zero():
    agree(padded_with_ones, normal(64, 100), normal(100, 64), np.zeros((64, 64), np.float32))


@ts.kernel
def keep_the_old(
    A: ts.Tensor["M", "K", ts.f32],
    B: ts.Tensor["K", "N", ts.f32],
    C: ts.Tensor["M", "N", ts.f32],
    D: ts.Tensor["M", "N", ts.f32],
):
    m = ts.tile.program_id(0) * 32
    n = ts.tile.program_id(1) * 32
    old = C[m : m + 32, n : n + 32]
    acc = ts.tile.zeros((32, 32), ts.f32)
    for k in ts.tile.range(0, K, 32):
        acc = ts.tile.mma(A[m : m + 32, k : k + 32], B[k : k + 32, n : n + 32], accumulator=acc)
    C[m : m + 32, n : n + 32] = acc
    D[m : m + 32, n : n + 32] = old


@ts.kernel
def two_sizes(
    A: ts.Tensor["M", "K", ts.f32],
    B: ts.Tensor["K", "N", ts.f32],
    C: ts.Tensor["M", "N", ts.f32],
    D: ts.Tensor["P", "N", ts.f32],
):
    pm, pn = ts.tile.grid(ts.cdiv(P, 32), ts.cdiv(N, 32))
    m, n = pm * 32, pn * 32
    acc = ts.tile.full((32, 32), 2.0, ts.f32)
    for k in ts.tile.range(0, K, 32):
        acc = ts.tile.mma(A[m : m + 32, k : k + 32], B[k : k + 32, n : n + 32], accumulator=acc)
    C[m : m + 32, n : n + 32] = acc
    D[m : m + 32, n : n + 32] = acc


def test_products_with_two_results():
    a, b, c = normal(64, 64), normal(64, 64), normal(64, 64)
    agree(keep_the_old, a, b, c, np.zeros((64, 64), np.float32))
    agree(two_sizes, a, b, c, np.zeros((100, 64), np.float32))


@ts.kernel
def column(x: ts.Tensor["n", ts.f32], y: ts.Tensor["m", "one", ts.f32]):
    start = ts.tile.program_id(0) * 64
    ts.tile.store(y[start + 1 : start + 65, 0:1], x[start : start + 64][:, None])


@pytest.mark.parametrize("offset", [0, 4])
def test_large_results_at_odd_places(offset):
    n = 9 << 20
    memory = np.zeros(4 * (n + 64) + 128, np.uint8)
    first = -memory.ctypes.data % 64 + offset
    y = memory[first : first + 4 * (n + 1)].view(np.float32).reshape(n + 1, 1)
    x = np.arange(n, dtype=np.float32)
    column[n // 64](x, y)
    np.testing.assert_array_equal(y[1:, 0], x)


@ts.kernel(lanes=64)
def butterfly(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    total = x[i]
    for k in ts.tile.range(0, 6, 1):
        total = total + ts.tile.group.shuffle(total, ts.tile.local_id() ^ (1 << k))
    y[i] = total


def test_lanes_that_look_at_what_others_are_about_to_change():
    agree(butterfly, normal(192), np.zeros(192, np.float32))


@ts.kernel
def before_the_first(x: ts.Tensor["a", "b", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[i - 3, 0]
    x[i - 5, 1] = y[i] + 1.0


def test_an_axis_of_one_position():
    agree(before_the_first, normal(1, 1000), np.zeros(40, np.float32))
