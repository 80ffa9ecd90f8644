"""`ts.op` on traced arrays: the numbers of the functions outside a trace, with gradients and batches."""

import numpy as np
import pytest

import tessera as ts

RNG = np.random.default_rng(3)


def normal(*shape):
    return RNG.standard_normal(shape)


A, B, BIAS = normal(5, 4), normal(4, 6), normal(6)
Q, K, V = normal(2, 3, 5, 4), normal(2, 3, 7, 4), normal(2, 3, 7, 4)
LABELS = np.array([1, 0, 3, 5, 2])

CASES = {
    "matmul": (lambda a, b: ts.op.matmul(a, b), (A, B)),
    "matmul with an epilogue": (lambda a, b, c: ts.op.matmul(a, b, bias=c, activation="silu", scale=0.5), (A, B, BIAS)),
    "matmul of batches": (lambda a, b: ts.op.matmul(a, b), (normal(2, 3, 4), normal(4, 5))),
    "gemm": (lambda a, b, c: ts.op.gemm(a, b, c, 2.0, 0.5, trans_b=True), (A, normal(6, 4), normal(5, 6))),
    "attention": (lambda q, k, v: ts.op.flash_attention(q, k, v), (Q, K, V)),
    "causal attention": (lambda q, k, v: ts.op.flash_attention(q, k, v, causal=True, scale=0.3), (Q, K, V)),
    "attention with shared heads": (lambda q, k, v: ts.op.flash_attention(q, k, v, window=(2, 1)), (normal(2, 4, 5, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 4))),
    "softmax": (lambda x: ts.op.softmax(x), (A,)),
    "layernorm": (lambda x, w, b: ts.op.layernorm(x, w, b), (B, BIAS, normal(6))),
    "rmsnorm": (lambda x, w: ts.op.rmsnorm(x, w), (B, BIAS)),
    "cross_entropy": (lambda x: ts.op.cross_entropy(x, LABELS), (normal(5, 6),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_numbers_gradients_and_batches(name):
    fn, args = CASES[name]
    f32 = tuple(a.astype(np.float32) for a in args)
    # f32 outside a trace runs the library's kernels.
    np.testing.assert_allclose(ts.jit(fn)(*f32), np.asarray(fn(*f32)), rtol=2e-4, atol=2e-5)
    weights = normal(*np.shape(np.asarray(ts.jit(fn)(*args))))
    loss = lambda *xs: (fn(*xs) * weights).sum()  # noqa: E731
    numbers = tuple(range(len(args)))
    got = ts.jit(ts.grad(loss, argnums=numbers))(*args)
    run = ts.jit(loss)
    for i, (x, g) in enumerate(zip(args, got, strict=True)):
        along = normal(*x.shape)
        ends = [float(run(*(v + s * 1e-6 * along if j == i else v for j, v in enumerate(args)))) for s in (1, -1)]
        np.testing.assert_allclose(np.sum(g * along), (ends[0] - ends[1]) / 2e-6, rtol=1e-6, atol=1e-7)
    batch = tuple(np.stack([a, a * 0.5]) for a in args)
    rows = ts.jit(ts.vmap(fn))(*batch)
    for i in range(2):
        np.testing.assert_allclose(rows[i], ts.jit(fn)(*(b[i] for b in batch)), rtol=1e-10, atol=1e-12)


def test_shapes_are_refused_at_the_users_line():
    with pytest.raises(ts.ShapeError, match="matmul: expected the last axis of the first") as raised:
        ts.jit(lambda a, b: ts.op.matmul(a, b))(A, A)  # this line
    assert raised.value.file == __file__ and "# this line" in str(raised.value)
    with pytest.raises(ts.ShapeError, match="attention: expected q"):
        ts.jit(lambda q, k: ts.op.flash_attention(q, k, k))(Q, A)
    with pytest.raises(ts.ShapeError, match="expected `a` to be a matrix"):
        ts.jit(lambda a, b: ts.op.gemm(a, b))(BIAS, A)


def test_functions_of_tiles_are_refused():
    @ts.func
    def twice(x):
        return x * 2.0

    for fn in (
        lambda a, b: ts.op.matmul(a, b, epilogue=twice),
        lambda a, b: ts.op.matmul(a, b, activation=twice),
    ):
        with pytest.raises(ts.UnsupportedError, match="function of tiles") as raised:
            ts.jit(fn)(A, B)
        assert raised.value.file == __file__ and raised.value.help
