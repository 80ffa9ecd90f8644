"""Launches that are more than the kernel's own code: operands copied to aligned rows, and loops divided among groups."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts


@ts.kernel
def product(
    A: ts.Tensor["M", "K", ts.f16],
    B: ts.Tensor["K", "N", ts.f16],
    R: ts.Tensor["M", "N", ts.f32],
    C: ts.Tensor["M", "N", ts.f32],
    BM: int = 64,
    BN: int = 64,
    BK: int = 32,
):
    m, n = ts.tile.grid(ts.cdiv(M, BM), ts.cdiv(N, BN))
    m, n = m * BM, n * BN
    acc = ts.tile.zeros((BM, BN), ts.f32)
    for k in ts.tile.range(0, K, BK):
        acc = ts.tile.mma(A[m:m + BM, k:k + BK], B[k:k + BK, n:n + BN], accumulator=acc)
    C[m:m + BM, n:n + BN] = ts.tile.maximum(acc, 0.0) + R[m:m + BM, n:n + BN]


@pytest.fixture(params=["ptx-emulated:sm_80", "ptx-emulated:sm_90a"])
def gpu(request):
    ts.runtime.select_backend(request.param)
    yield request.param
    ts.runtime.select_backend(None)


def off_pitch(x: np.ndarray) -> np.ndarray:
    """The same in rows that begin at odd multiples of an element."""
    wide = np.zeros((x.shape[0], x.shape[1] + 1), x.dtype)
    wide[:, :-1] = x
    return wide[:, :-1]


def operands(M: int, K: int, N: int, turned: bool = False) -> tuple[np.ndarray, ...]:
    """Small integers: every sum is exact, in any order."""
    r = np.random.default_rng(M + K + N)
    a, b = (r.integers(-3, 4, shape).astype(np.float16) for shape in ((M, K), (K, N)))
    a, b = (off_pitch(a.T).T, off_pitch(b.T).T) if turned else (off_pitch(a), off_pitch(b))
    return a, b, r.integers(-9, 10, (M, N)).astype(np.float32), np.zeros((M, N), np.float32)


def expected(a: np.ndarray, b: np.ndarray, r: np.ndarray) -> np.ndarray:
    return np.maximum(a.astype(np.float32) @ b.astype(np.float32), 0) + r


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(40, 104, 72), (64, 64, 136)])
def test_operands_are_copied_to_aligned_rows(gpu, shape, turned):
    a, b, r, c = operands(*shape, turned)
    before = a.copy(), b.copy()
    kernel = product.scheduled(operand_padding=True)
    kernel(a, b, r, c)
    np.testing.assert_array_equal(c, expected(a, b, r))
    assert kernel.explain().resources["copied_to_aligned_rows"] == "A, B"
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])


def test_only_what_is_not_aligned_is_copied(gpu):
    a, b, r, c = operands(48, 64, 40)
    a = np.ascontiguousarray(a)
    kernel = product.scheduled(operand_padding=True)
    kernel(a, b, r, c)
    np.testing.assert_array_equal(c, expected(a, b, r))
    assert kernel.explain().resources["copied_to_aligned_rows"] == "B"
    kernel = product.scheduled(operand_padding=False)
    kernel(a, b, r, c)
    assert "copied_to_aligned_rows" not in kernel.explain().resources


@pytest.mark.parametrize("splits", [2, 3, 8])
def test_a_loop_is_divided_among_groups(gpu, splits):
    a, b, r, c = operands(70, 160, 72)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    kernel = product.scheduled(k_splits=splits)
    kernel(a, b, r, c)
    np.testing.assert_array_equal(c, expected(a, b, r))
    assert kernel.explain().resources["k_splits"] == str(splits)


def test_extents_need_not_be_aligned(gpu):
    for turned in (False, True):
        a, b, r, c = operands(33, 129, 65, turned)
        kernel = product.scheduled(k_splits=3, operand_padding=True)
        kernel(a, b, r, c)
        np.testing.assert_array_equal(c, expected(a, b, r))


def test_both_together(gpu):
    a, b, r, c = operands(40, 136, 72)
    kernel = product.scheduled(k_splits=4, operand_padding=True)
    kernel(a, b, r, c)
    np.testing.assert_array_equal(c, expected(a, b, r))
    assert kernel.explain().resources.keys() >= {"k_splits", "copied_to_aligned_rows", "predicted"}


@pytest.mark.parametrize("shape", [(40, 136, 72), (33, 129, 65), (16, 4104, 64), (1, 264, 40), (40, 264, 1)])
def test_matmuls_of_jitted_functions_are_those_of_the_library(gpu, shape):
    """Odd rows, few tiles with a long sum, vectors: by the same schedule, and exact."""
    M, K, N = shape
    r = np.random.default_rng(M + K + N)
    a, b = (r.integers(-3, 4, s).astype(np.float16) for s in ((M, K), (K, N)))
    wanted = np.maximum(a.astype(np.float32) @ b.astype(np.float32), 0.0) + 1
    for profile in ("default", "deterministic", "strict"):
        with ts.numerics.profile(profile):
            traced = ts.jit(lambda a, b: ts.op.matmul(a, b, activation="relu", out_dtype="f32") + 1.0)
            np.testing.assert_array_equal(traced(a, b), wanted)
            np.testing.assert_array_equal(ts.op.matmul(a, b, activation="relu", out_dtype="f32") + 1.0, wanted)


@ts.kernel
def divided(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16], C: ts.Out["M", "N", ts.f32]):
    m, n = ts.tile.grid(ts.cdiv(M, 64), ts.cdiv(N, 64))
    acc = ts.tile.zeros((64, 64), ts.f32)
    for k in ts.tile.range(0, K, 32):
        acc = ts.tile.mma(A[m * 64:m * 64 + 64, k:k + 32], B[k:k + 32, n * 64:n * 64 + 64], accumulator=acc)
    C[m * 64:m * 64 + 64, n * 64:n * 64 + 64] = acc


def test_kernels_in_jitted_functions_are_planned_too(gpu):
    a, b, _, _ = operands(40, 136, 72)
    kernel = divided.scheduled(k_splits=4, operand_padding=True)
    got = ts.jit(lambda a, b: kernel(a, b) * 2.0)(a, b)
    np.testing.assert_array_equal(got, 2 * (a.astype(np.float32) @ b.astype(np.float32)))
    assert kernel.explain().resources["k_splits"] == "4"


def test_what_was_compared_is_reported(gpu):
    a, b, r, c = operands(40, 136, 72)
    kernel = product.scheduled(k_splits=4, operand_padding=True)
    kernel(a, b, r, c)
    report = kernel.explain().resources["predicted"]
    assert "us with copies to aligned rows in 4 parts; others " in report and report.endswith("us as it is")
    # Nothing is pinned: whatever is chosen, both are named.
    product(a, b, r, c)
    report = product.explain().resources["predicted"]
    assert "us as it is" in report and "us with copies to aligned rows" in report and "; others " in report


def test_small_launches_and_other_profiles_run_the_code_as_it_is(gpu):
    a, b, r, c = operands(40, 32, 72)
    product(a, b, r, c)
    assert not product.explain().resources.keys() & {"k_splits", "copied_to_aligned_rows"}
    a, b, r, c = operands(40, 136, 72)
    with ts.numerics.profile("deterministic"):
        kernel = product.scheduled(k_splits=4, operand_padding=True)
        kernel(a, b, r, c)
    np.testing.assert_array_equal(c, expected(a, b, r))
    assert not kernel.explain().resources.keys() & {"k_splits", "copied_to_aligned_rows"}


@ts.kernel
def scaled(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16], C: ts.Tensor["M", "N", ts.f32]):
    m, n = ts.tile.grid(ts.cdiv(M, 64), ts.cdiv(N, 64))
    acc = ts.tile.zeros((64, 64), ts.f32)
    for k in ts.tile.range(0, K, 32):
        acc = ts.tile.mma(A[m * 64:m * 64 + 64, k:k + 32], B[k:k + 32, n * 64:n * 64 + 64], accumulator=acc * 0.5)
    C[m * 64:m * 64 + 64, n * 64:n * 64 + 64] = acc


def test_what_is_no_sum_stays_whole(gpu):
    a, b, _, c = operands(40, 96, 48)
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    kernel = scaled.scheduled(k_splits=3)
    kernel(a, b, c)
    acc = np.zeros_like(c)
    for k in range(0, 96, 32):
        acc = 0.5 * acc + a[:, k:k + 32].astype(np.float32) @ b[k:k + 32].astype(np.float32)
    np.testing.assert_array_equal(c, acc)
    assert "k_splits" not in kernel.explain().resources
