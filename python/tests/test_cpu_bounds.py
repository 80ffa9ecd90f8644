"""The error bounds of the default profile (LANGUAGE 13), compared with float64; and `deterministic` repeats its bits."""

import ml_dtypes
import numpy as np
import pytest

import tessera as ts

EPS = 2.0**-24


def gemm_of(dtype):
    @ts.kernel
    def gemm(A: ts.Tensor["M", "K", dtype], B: ts.Tensor["K", "N", dtype], C: ts.Out["M", "N", ts.f32]):
        m = ts.tile.program_id(0) * 32
        n = ts.tile.program_id(1) * 48
        acc = ts.tile.zeros((32, 48), ts.f32)
        for k in ts.tile.range(0, K, 32):
            acc = ts.tile.mma(A[m : m + 32, k : k + 32], B[k : k + 32, n : n + 48], accumulator=acc)
        C[m : m + 32, n : n + 48] = acc
        return C

    return gemm


gemm_f32 = gemm_of(ts.f32)
gemm_bf16 = gemm_of(ts.bf16)
gemm_f16 = gemm_of(ts.f16)


@pytest.mark.parametrize("kernel, dtype", [(gemm_f32, np.float32), (gemm_bf16, ml_dtypes.bfloat16), (gemm_f16, np.float16)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (32, 48, 32), (33, 49, 65), (7, 130, 257), (96, 100, 64)])
def test_products_are_within_the_bound_of_their_class(kernel, dtype, shape):
    m, n, k = shape
    rng = np.random.default_rng(m * n * k)
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    exact_a, exact_b = a.astype(np.float64), b.astype(np.float64)
    bound = (k + 2) * EPS * (np.abs(exact_a) @ np.abs(exact_b))
    assert (np.abs(kernel(a, b) - exact_a @ exact_b) <= bound).all()


def test_products_of_small_integers_are_exact():
    rng = np.random.default_rng(5)
    for dtype, kernel in ((np.float32, gemm_f32), (ml_dtypes.bfloat16, gemm_bf16)):
        a = rng.integers(-4, 5, (70, 150)).astype(dtype)
        b = rng.integers(-4, 5, (150, 90)).astype(dtype)
        np.testing.assert_array_equal(kernel(a, b), a.astype(np.float32) @ b.astype(np.float32))


@ts.kernel
def exp(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = ts.tile.exp(x[i])
    return y


@ts.kernel
def tanh(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = ts.tile.tanh(x[i])
    return y


@ts.kernel
def sigmoid(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = ts.tile.sigmoid(x[i])
    return y


def logistic(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, e) / (1.0 + e)


@pytest.mark.parametrize("kernel, exact", [(exp, np.exp), (tanh, np.tanh), (sigmoid, logistic)])
def test_functions_are_within_two_units_of_the_last_place(kernel, exact):
    codes = np.arange(3, 2**32, 40961, dtype=np.uint64).astype(np.uint32)
    x = codes.view(np.float32)
    x = x[np.isfinite(x)]
    with np.errstate(all="ignore"):
        truth = exact(x.astype(np.float64))
        nearest = np.abs(truth).astype(np.float32)
        unit = np.spacing(np.where(np.isfinite(nearest), nearest, np.finfo(np.float32).max)).astype(np.float64)
        got = kernel(x)
        error = np.abs(got.astype(np.float64) - truth) / unit
    # Beyond the range of f32 an infinity is right.
    assert (error[np.isfinite(nearest)] <= 2.0).all()
    assert np.isinf(got[np.isinf(nearest)]).all()
    assert np.isnan(kernel(np.array([np.nan], np.float32))).all()


@ts.kernel
def softmax(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    t = x[row, :]
    weights = ts.tile.exp(t - ts.tile.max(t))
    y[row, :] = weights / ts.tile.sum(weights)
    return y


@pytest.mark.parametrize("n", [1, 15, 16, 17, 64, 1000])
def test_softmax_rows_are_within_their_bound(n):
    x = np.random.default_rng(n).standard_normal((37, n)).astype(np.float32) * 4
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    assert (np.abs(softmax(x) - exact) <= 4 * EPS * (n + 8) * exact).all()


@ts.kernel
def divided(x: ts.Tensor["M", "N", ts.f32], by: ts.Tensor["M", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    y[row, :] = x[row, :] / by[row]
    return y


def test_division_by_one_number_is_rounded_correctly():
    rng = np.random.default_rng(11)
    any_bits = rng.integers(0, 2**32, (300, 64), dtype=np.uint32).view(np.float32)
    usual = (rng.random((300, 64), np.float32) + 0.5) * np.float32(2.0) ** rng.integers(-70, 70, (300, 1)).astype(np.float32)
    for x in (any_bits, usual):
        for by in (any_bits[:, 0].copy(), usual[:, 1].copy(), rng.random(300, np.float32)):
            with np.errstate(all="ignore"):
                exact = x / by[:, None]
            got = divided(np.ascontiguousarray(x), by)
            same = (got.view(np.uint32) == exact.view(np.uint32)) | (np.isnan(got) & np.isnan(exact))
            assert same.all()


def test_deterministic_results_are_the_same_in_every_run():
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((300, 257)).astype(np.float32), rng.standard_normal((257, 310)).astype(np.float32)
    first = gemm_f32(a, b).tobytes()
    rows = softmax(a).tobytes()
    for _ in range(5):
        assert gemm_f32(a, b).tobytes() == first
        assert softmax(a).tobytes() == rows
