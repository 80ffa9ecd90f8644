"""Python's floats take the dtype of the arrays they are combined with, through every function, and are f32 without any."""

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp

#: Of a Python float, which under `ts.jit` is an argument.
FUNCTIONS = {
    "full": lambda x: xp.full((2,), x), "full_like": lambda x: xp.full_like(x, 2), "zeros_like": xp.zeros_like, "ones_like": xp.ones_like,
    "stack": lambda x: xp.stack([x, 1.0]), "concat": lambda x: xp.concat([xp.reshape(x, (1,))] * 2), "append": lambda x: xp.append(x, 1.0),
    "hstack": lambda x: xp.hstack([x, 1.0]), "column_stack": lambda x: xp.column_stack([x, 1.0]), "block": lambda x: xp.block([x, 1.0]),
    "array": lambda x: xp.array([x, 3.0]), "asarray": lambda x: xp.asarray([x]), "pad": lambda x: xp.pad(xp.full((2,), x), 1),
    "diag": lambda x: xp.diag(xp.full((2,), x)), "nan_to_num": xp.nan_to_num, "polyval": lambda x: xp.polyval([1.0, x], 2.0),
    "cumulative_sum": lambda x: xp.cumulative_sum(xp.full((2,), x)), "einsum": lambda x: xp.einsum(",", x, 2.0),
    "quantile": lambda x: xp.quantile(xp.full((2,), x), 0.5), "median": lambda x: xp.median(xp.full((2,), x)),
    "sort": lambda x: xp.sort(xp.full((2,), x)), "top_k": lambda x: xp.top_k(xp.full((2,), x), 1)[0], "stop_gradient": ts.stop_gradient,
    "piecewise": lambda x: xp.piecewise(x, [x > 0], [1.0, 2.0]), "vander": lambda x: xp.vander(xp.full((2,), x), 2),
    "take": lambda x: xp.take(xp.full((2,), x), 0), "ldexp": lambda x: xp.ldexp(x, 2),
    "segment_sum": lambda x: xp.segment_sum(xp.full((2,), x), np.int32([0, 0]), 1), "histogram": lambda x: xp.histogram(xp.full((2,), x), bins=3)[1],
    "softmax": lambda x: nn.softmax(xp.stack([x, 1.0])), "logsumexp": lambda x: nn.logsumexp(xp.stack([x, 1.0])), "gelu": nn.gelu,
    "at": lambda x: xp.stack([x, 1.0]).at[0].set(2.0), "at_add": lambda x: xp.zeros_like(xp.stack([x, 1.0])).at[0].add(x),
    "dot": lambda x: xp.dot(xp.stack([x, 1.0]), xp.stack([x, 1.0])), "cov": lambda x: xp.cov(xp.stack([x, 1.0])),
    "triu": lambda x: xp.triu(xp.full((2, 2), x)), "associative_scan": lambda x: ts.associative_scan(lambda a, b: a * b, xp.full((4,), x)),
    "cond": lambda x: ts.cond(x > 0, lambda a: a * 2, lambda a: a, x), "scan": lambda x: ts.scan(lambda c, _: (c * x, c), x, None, length=3)[1],
    "checkpoint": lambda x: ts.checkpoint(lambda a: a * 2)(x), "jvp": lambda x: ts.jvp(lambda a: a * a, (x,), (1.0,))[1],
    "where": lambda x: xp.where(x > 0, x, 0.0), "sum": xp.sum, "mean": xp.mean, "gradient": lambda x: xp.gradient(xp.stack([x, 1.0, 2.0])),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_python_float_is_no_f64(name):
    fn = FUNCTIONS[name]
    assert ts.jit(fn)(0.5).dtype == np.float32
    assert fn(xp.sqrt(0.25)).dtype == np.float32
    for dtype in (np.float16, np.float32):
        one = np.ones((), dtype)
        made = ts.jit(lambda x, one: one * fn(x))(0.5, one)
        assert made.dtype in (dtype, np.float32), made.dtype
        np.testing.assert_allclose(np.asarray(made, np.float64), np.asarray(fn(np.float64(0.5)), np.float64), rtol=2e-3, err_msg=name)
    # A NumPy f64 stays f64 and keeps all digits of the float.
    assert ts.jit(fn)(np.float64(0.5)).dtype == np.float64
    exact = ts.jit(lambda x, one: one * xp.full((), x))(0.1, np.float64(1))
    assert exact.dtype == np.float64 and exact == 0.1


def test_loops_keep_the_dtype_of_their_carry():
    w = np.ones(2, np.float32)
    step = ts.jit(lambda w, dt: ts.scan(lambda c, _: (c + xp.array([dt, 2 * dt]) * c, None), w, None, length=3)[0])
    made = step(w, 0.1)
    assert made.dtype == np.float32
    np.testing.assert_allclose(np.asarray(made), [1.1**3, 1.2**3], rtol=1e-6)
    value, grad = ts.value_and_grad(lambda w, lr: xp.sum(w * xp.full((2,), lr)))(w, 0.1)
    assert value.dtype == grad.dtype == np.float32
    assert ts.vmap(lambda a, lr: a * xp.full((), lr), in_axes=(0, None))(w, 0.1).dtype == np.float32


def test_a_requested_dtype_holds():
    f64 = ts.jit(lambda x: (xp.full((2,), x, dtype="f64"), xp.asarray(x, dtype="f64") * np.ones(1, np.float32), xp.astype(xp.stack([x, x]), "f64")))(0.1)
    assert [y.dtype for y in f64] == [np.float64] * 3 and f64[0][0] == 0.1
    assert ts.jit(lambda n: xp.stack([n, 2]) * np.ones(2, np.int32))(3).dtype == np.int32
    assert ts.jit(lambda n: xp.stack([n, 2]))(3).dtype == np.int64
