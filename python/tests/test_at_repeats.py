"""Updates at positions that name an element more than once: each of them counts, as in JAX."""

import numpy as np
import pytest

import tessera as ts
from tessera import xp

X = np.array([2.0, 3.0, 4.0], np.float32)
TWICE = np.array([0, 0, 1])
V = np.array([2.0, 3.0, 2.0], np.float32)

#: What JAX gives for `x.at[[0, 0, 1]]`.
JAX = {
    "power": (lambda a: a.power(V), [64.0, 9.0, 4.0]),
    "power_number": (lambda a: a.power(2.0), [16.0, 9.0, 4.0]),
    "apply": (lambda a: a.apply(xp.sin), [0.78907233, 0.14112, 4.0]),
    "multiply": (lambda a: a.multiply(V), [12.0, 6.0, 4.0]),
    "divide": (lambda a: a.divide(V), [1.0 / 3.0, 1.5, 4.0]),
    "subtract": (lambda a: a.subtract(V), [-3.0, 1.0, 4.0]),
    "add": (lambda a: a.add(1.0), [4.0, 4.0, 4.0]),
    "min": (lambda a: a.min(np.float32([1.0, 3.0, 2.0])), [1.0, 2.0, 4.0]),
    "max": (lambda a: a.max(np.float32([7.0, 3.0, 2.0])), [7.0, 3.0, 4.0]),
    "set": (lambda a: a.set(np.float32([7.0, 3.0, 2.0])), [3.0, 2.0, 4.0]),
}


@pytest.mark.parametrize("name", JAX)
def test_every_update_counts(name):
    update, want = JAX[name]
    variants = {
        "eager": lambda: update(xp.at(ts.xp.asarray(X))[TWICE]),
        "known": lambda: ts.jit(lambda x: update(x.at[TWICE]))(X),
        "traced": lambda: ts.jit(lambda x, i: update(x.at[i]))(X, TWICE),
    }
    for variant, run in variants.items():
        np.testing.assert_allclose(run(), want, rtol=1e-6, err_msg=variant)


def sequential(x, index, fn, values):
    """NumPy, one position after another; `index` are full positions of rows along the first axes."""
    out = x.copy()
    for at, v in zip(index, values, strict=True):
        out[at] = fn(out[at], v)
    return out


def test_rows_axes_and_ends():
    x = np.linspace(0.5, 2.0, 24).astype(np.float32).reshape(2, 3, 4)
    i, j = np.array([[1, 0], [-1, 1]]), np.array([2, 0])
    v = np.linspace(0.5, 1.5, 16).astype(np.float32).reshape(2, 2, 4)
    # Adjacent positions: (1, 2), (0, 0), (-1, 2), (1, 0), with a row of exponents each.
    places = list(zip(i.reshape(-1).tolist(), np.broadcast_to(j, i.shape).reshape(-1).tolist(), strict=True))
    want = sequential(x, places, np.power, v.reshape(4, 4))
    np.testing.assert_allclose(ts.jit(lambda x, i, j, v: x.at[i, j].power(v))(x, i, j, v), want, rtol=1e-5)
    np.testing.assert_allclose(xp.at(xp.asarray(x))[i, j].power(v), want, rtol=1e-5)
    # A slice between: the axes of the positions come first; before them: where they stood.
    k = np.array([3, 3])
    rows = [(1, slice(None), 3)] * 2
    v = np.float32([[0.5, 1.0, 2.0], [3.0, 1.0, 0.5]])
    want = sequential(x, rows, np.power, v)
    np.testing.assert_allclose(ts.jit(lambda x, k: x.at[np.array([1, 1]), :, k].power(v))(x, k), want, rtol=1e-5)
    want = sequential(x, [(slice(None), slice(None), 3)] * 2, np.power, np.moveaxis(np.stack([v.T] * 2), -1, 0))
    np.testing.assert_allclose(ts.jit(lambda x, k: x.at[..., k].power(v.T))(x, k), want, rtol=1e-5)
    # Positions outside are left out, as ever; masks name each element once.
    out = ts.jit(lambda x, i: x.at[i].apply(lambda v: v * 2.0))(X, np.array([0, 7, 0, -1]))
    assert out.tolist() == [8.0, 3.0, 8.0]
    assert xp.at(xp.asarray(X))[X > 2.5].power(2.0).tolist() == [2.0, 9.0, 16.0]


def test_derivatives_and_batches():
    grad = ts.grad(lambda x, i: xp.sum(x.at[i].apply(xp.sin)))(X, TWICE)
    np.testing.assert_allclose(grad, [np.cos(np.sin(2.0)) * np.cos(2.0), np.cos(3.0), 1.0], rtol=1e-5)
    grad = ts.grad(lambda v: xp.sum(xp.asarray(X).at[TWICE].power(v)))(V)
    np.testing.assert_allclose(grad, [64 * 3 * np.log(2), 64 * np.log(4), 9 * np.log(3)], rtol=1e-5)
    rows = ts.vmap(lambda i: xp.asarray(X).at[i].power(2.0))(np.array([[0, 0], [1, 2], [2, 2]]))
    np.testing.assert_allclose(rows, [[16, 3, 4], [2, 9, 16], [2, 3, 256]], rtol=1e-6)
