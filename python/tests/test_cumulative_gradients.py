"""Gradients of running sums and products of parts of an array, against central differences of NumPy in f64 and Graph IR's interpreter."""

import numpy as np
import pytest

import tessera as ts
from tessera import xp

X = np.array([0.5, 1.5, -2.0, 3.0, 0.7, 1.1])
W = np.arange(1.0, 9.0)

#: What is made of the array, by `tessera.xp` and by NumPy.
PARTS = {
    "plain": (lambda x: x, lambda x: x),
    "tail": (lambda x: x[1:], lambda x: x[1:]),
    "head": (lambda x: x[:-2], lambda x: x[:-2]),
    "step": (lambda x: x[::2], lambda x: x[::2]),
    "step_tail": (lambda x: x[1::3], lambda x: x[1::3]),
    "turned": (lambda x: x[::-1], lambda x: x[::-1]),
    "turned_step": (lambda x: x[4::-2], lambda x: x[4::-2]),
    "padded": (lambda x: xp.pad(x, ((1, 1),)), lambda x: np.pad(x, 1)),
    "set": (lambda x: x.at[2].set(3.0), lambda x: np.where(np.arange(6) == 2, 3.0, x)),
    "set_part": (lambda x: x.at[1:3].set(2.0), lambda x: np.where((np.arange(6) >= 1) & (np.arange(6) < 3), 2.0, x)),
    "taken": (lambda x: x[np.array([4, 1, 1, 3])], lambda x: x[[4, 1, 1, 3]]),
    "joined": (lambda x: xp.concat([x[2:], x[:2]]), lambda x: np.concatenate([x[2:], x[:2]])),
    "rows": (lambda x: xp.reshape(x, (2, 3))[:, 1:], lambda x: x.reshape(2, 3)[:, 1:]),
    "columns": (lambda x: xp.reshape(x, (3, 2))[1:].T, lambda x: x.reshape(3, 2)[1:].T),
}
#: What runs over it: a function of `tessera.xp`, one of NumPy, and what is done before and after both.
RUNS = {
    "sum": (lambda v: xp.cumulative_sum(v, axis=v.ndim - 1), lambda v: np.cumsum(v, axis=-1)),
    "prod": (lambda v: xp.cumulative_prod(v, axis=v.ndim - 1), lambda v: np.cumprod(v, axis=-1)),
    "sum_from_the_end": (lambda v: xp.flip(xp.cumulative_sum(xp.flip(v), axis=v.ndim - 1)), lambda v: np.flip(np.cumsum(np.flip(v), axis=-1))),
    "part_of_sum": (lambda v: xp.cumulative_sum(v, axis=v.ndim - 1)[..., 1:], lambda v: np.cumsum(v, axis=-1)[..., 1:]),
}


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("part", PARTS)
def test_gradients_of_running_reductions_of_parts(run, part):
    (cut, numpy_cut), (over, numpy_over) = PARTS[part], RUNS[run]
    weights = W[: numpy_over(numpy_cut(X)).size].reshape(numpy_over(numpy_cut(X)).shape)

    def f(x):
        return (over(cut(x)) * weights.astype(np.float32)).sum()

    def plain(x):
        return (numpy_over(numpy_cut(x)) * weights).sum()

    wanted = [(plain(X + d) - plain(X - d)) / 2e-6 for d in np.eye(6) * 1e-6]
    x = X.astype(np.float32)
    np.testing.assert_allclose(ts.jit(f)(x), plain(X), rtol=1e-5)
    with ts.runtime.oracle():
        np.testing.assert_allclose(ts.grad(f)(x), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ts.jit(ts.grad(f))(x), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ts.jit(lambda x: ts.jvp(f, (x,), (np.float32(1) + 0 * x,))[1])(x), np.sum(wanted), rtol=1e-3, atol=1e-3)
