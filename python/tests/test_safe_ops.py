"""Safe operations: finite at the edges of every dtype, and right in between."""

import math

import ml_dtypes
import numpy as np
import pytest

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each

FLOATS = [
    np.float64,
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float6_e3m2fn,
    ml_dtypes.float6_e2m3fn,
    ml_dtypes.float4_e2m1fn,
]


def extremes(dtype):
    """Rows with the largest finite numbers of both signs, alone and mixed."""
    top = ml_dtypes.finfo(dtype).max if dtype not in (np.float64, np.float32, np.float16) else np.finfo(dtype).max
    rows = [[1, 1, 1, 1, 1], [-1, -1, -1, -1, -1], [1, -1, 1, -1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, -1, 1, 0, 0]]
    return np.array([[float(top) * v for v in row] for row in rows]).astype(dtype)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("op", ["softmax_safe", "layernorm_safe", "rmsnorm_safe", "gelu_safe", "logsumexp_safe"])
def test_results_are_finite_at_the_largest_numbers(op, dtype):
    x = extremes(dtype)
    y = getattr(ts.op, op)(x)
    assert y.dtype == x.dtype
    assert np.isfinite(y.astype(np.float64)).all(), y


def test_results_are_right_in_between():
    x = np.random.default_rng(0).standard_normal((7, 33)).astype(np.float32)
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(1, keepdims=True))
    np.testing.assert_allclose(ts.op.softmax_safe(x), e / e.sum(1, keepdims=True), atol=1e-7)
    np.testing.assert_allclose(ts.op.softmax_safe(x, axis=0).sum(0), 1, atol=1e-6)
    np.testing.assert_allclose(ts.op.logsumexp_safe(x), np.log(np.exp(wide).sum(1)), atol=1e-6)
    w, b = np.linspace(0.5, 2, 33, dtype=np.float32), np.linspace(-1, 1, 33, dtype=np.float32)
    centred = wide - wide.mean(1, keepdims=True)
    expected = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * w + b
    np.testing.assert_allclose(ts.op.layernorm_safe(x, w, b), expected, atol=2e-6)
    np.testing.assert_allclose(
        ts.op.rmsnorm_safe(x, w), wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-6) * w, atol=2e-6
    )
    exact = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in wide.ravel()]).reshape(x.shape)
    np.testing.assert_allclose(ts.op.gelu_safe(x), exact, atol=1e-6)


def test_masked_rows_give_zeros_and_minus_infinity():
    x = np.full((2, 4), -np.inf, np.float32)
    assert (ts.op.softmax_safe(x) == 0).all()
    assert (ts.op.logsumexp_safe(x) == -np.inf).all()


def test_shapes_and_empty_arrays():
    assert ts.op.softmax_safe(np.zeros((2, 3, 4), np.float32)).shape == (2, 3, 4)
    assert ts.op.softmax_safe(np.zeros((0, 4), np.float32)).shape == (0, 4)
    assert ts.op.logsumexp_safe(np.zeros((2, 3, 4), np.float32)).shape == (2, 3)
    assert ts.ops is ts.op and ts.softmax_safe is ts.op.softmax_safe
