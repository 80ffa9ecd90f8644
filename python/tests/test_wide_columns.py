"""Reductions of wide columns, which the CPU does row after row: against NumPy, and bit for bit against the plan's definition under
``strict``. A failure prints its seed."""

import numpy as np
import pytest

import tessera as ts
from tessera import xp
from tessera.trace.execute import oracle

#: Rows and columns: few rows, a block of rows and one more, several strips of columns, and columns that are no whole vectors.
SHAPES = [(9, 40), (128, 64), (129, 100), (300, 257), (70, 2100), (1000, 33), (3, 50, 90), (2, 200, 515), (66000, 40)]

OPS = {
    "sum": (xp.sum, np.sum),
    "max": (xp.max, np.max),
    "min": (xp.min, np.min),
    "squares": (lambda x, axis: xp.sum(x * x, axis=axis), lambda x, axis: np.sum(x * x, axis=axis)),
    "any": (lambda x, axis: xp.any(x > 2, axis=axis), lambda x, axis: np.any(x > 2, axis=axis)),
}


def given(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 9, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_columns_are_those_of_numpy(name, dtype):
    ours, numpys = OPS[name]
    for seed, shape in enumerate(SHAPES[:-1]):
        axis, x = len(shape) - 2, given(shape, dtype, seed)
        if name == "squares" and dtype == np.uint8:
            continue
        got = np.asarray(ts.jit(lambda x: ours(x, axis=axis))(x))  # noqa: B023
        wide = x.astype(np.float64) if x.dtype.kind == "f" else x.astype(np.int64)
        expected = numpys(wide, axis)
        size = np.abs(wide).sum(axis) if x.dtype.kind == "f" else 0
        bound = {np.float64: 1e-13, np.float32: 1e-5, np.float16: 2e-3}.get(dtype, 0) * (1 + size)
        assert (np.abs(got.astype(np.float64) - expected) <= bound).all(), (name, shape, seed)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_columns_have_the_bits_of_the_definition_under_strict(shape):
    x = given(shape, np.float32, 7)
    f = lambda x: (xp.sum(x, axis=-2), xp.sum(x * x + 1.0, axis=-2), xp.max(x, axis=-2))  # noqa: E731
    got = ts.jit(f, numerics="strict")(x)
    with oracle():
        expected = ts.jit(f)(x)
    for a, b in zip(got, expected):
        np.testing.assert_array_equal(np.asarray(a).view(np.uint32), np.asarray(b).view(np.uint32))


def test_a_factor_of_each_row_and_one_of_each_column():
    rng = np.random.default_rng(3)
    x, rows, columns = rng.standard_normal((500, 333)), rng.standard_normal((500, 1)), rng.standard_normal(333)
    got = ts.jit(lambda x, r, c: xp.sum(x * r * c, axis=0))(x, rows, columns)
    np.testing.assert_allclose(got, (x * rows * columns).sum(0), rtol=1e-12, atol=1e-12)
