"""`ts.op` under the names of the specification's section 8: compositions whose results follow their inputs."""

import re

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
#: Of section 8, what is there; linear algebra, spectral, sparse, quantised and mixture operations come with their own steps.
NAMES = """gemm matmul gemv batched_gemm einsum factorized_matmul dot transpose trace kron conv1d conv2d conv3d max_pool avg_pool
layer_norm rmsnorm batch_norm group_norm instance_norm weight_norm relu gelu silu swish sigmoid tanh softplus softmax log_softmax
swiglu silu_mul dropout flash_attention segment_reduce gather scatter scatter_add mse mse_loss mae huber smooth_l1 cross_entropy bce kl
focal contrastive info_nce triplet ctc sum mean prod max min argmax argmin var std logsumexp cumsum cumprod sort argsort top_k"""


def test_every_name_is_there_and_documented():
    for name in re.findall(r"\w+", NAMES):
        fn = getattr(ts.op, name)
        assert name in ts.op.__all__ and fn.__doc__, name
    assert len(set(ts.op.__all__)) == len(ts.op.__all__)


@pytest.mark.parametrize(("name", "want"), [
    ("relu", np.maximum(X, 0)), ("swish", X / (1 + np.exp(-X))), ("cumsum", None), ("sigmoid", 1 / (1 + np.exp(-X))), ("square", X * X),
])  # fmt: skip
def test_numpy_in_numpy_out(name, want):
    if name == "cumsum":
        got, want = ts.op.cumsum(X, axis=1), X.cumsum(1)
    else:
        got = getattr(ts.op, name)(X)
    assert type(got) is np.ndarray and got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_values():
    np.testing.assert_allclose(ts.op.logsumexp(X, axis=1), np.log(np.exp(X).sum(1)), rtol=1e-5)
    np.testing.assert_allclose(ts.op.mse_loss(X, Y), ((X - Y) ** 2).mean(), rtol=1e-5)
    np.testing.assert_allclose(ts.op.mae(X, Y), np.abs(X - Y).mean(), rtol=1e-5)
    np.testing.assert_allclose(ts.op.einsum("ij,kj->ik", X, Y), X @ Y.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ts.op.layer_norm(X), ts.op.layernorm(X))
    np.testing.assert_allclose(ts.op.gemv(X, Y[0]), X @ Y[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ts.op.factorized_matmul(X, Y.T[:, :2], Y[:2]), X @ Y.T[:, :2] @ Y[:2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(ts.op.silu_mul(X, Y), X / (1 + np.exp(-X)) * Y, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ts.op.gather(X, np.array([2, 0]), axis=1), X[:, [2, 0]])
    want = X.copy()
    want[:, [1, 3]] = 0
    np.testing.assert_array_equal(ts.op.scatter(X, np.array([1, 3]), np.zeros((4, 2), np.float32), axis=1), want)
    added = X.copy()
    np.add.at(added, [0, 0], Y[:2])
    np.testing.assert_allclose(ts.op.scatter_add(X, np.array([0, 0]), Y[:2]), added, rtol=1e-6)
    ids = np.array([0, 2, 0, 2])
    np.testing.assert_allclose(ts.op.segment_reduce(X, ids, 3, "mean"), [(X[0] + X[2]) / 2, X[0] * 0, (X[1] + X[3]) / 2], rtol=1e-5)
    np.testing.assert_array_equal(ts.op.segment_reduce(X, ids, 3, "max")[2], np.maximum(X[1], X[3]))


def test_inside_a_trace():
    f = ts.jit(lambda x, y: ts.op.mse_loss(ts.op.relu(x), ts.op.layer_norm(y)) + ts.op.logsumexp(x))
    g = ts.jit(lambda x, y: nn.mse_loss(nn.relu(x), nn.layernorm(y)) + xp.logsumexp(x))
    np.testing.assert_allclose(f(X, Y), g(X, Y), rtol=1e-6)
    np.testing.assert_allclose(ts.grad(lambda x: ts.op.mse_loss(x, Y))(X), 2 * (X - Y) / X.size, rtol=1e-5)


def test_errors_have_a_place():
    with pytest.raises(ts.TesseraError) as caught:
        ts.op.segment_reduce(X, np.array([0, 1, 2, 3]), 4, "median")
    assert caught.value.code == "E_ARGUMENT" and caught.value.file.endswith("test_op_names.py")
