"""Matmuls with few rows or columns, which the CPU computes without packing: every layout, and what is fused into them."""

import itertools

import numpy as np
import pytest

import tessera as ts
from tessera import xp
from tessera.trace.execute import oracle

#: Rows and columns on both sides of where the form ends, whole and broken vectors, several passes along k, and strips of columns.
SIZES = [
    (1, 1, 1), (1, 40, 70), (2, 7, 600), (3, 130, 65), (6, 33, 9), (7, 64, 129), (12, 50, 130), (13, 50, 64), (1, 4500, 70), (5, 1200, 3),
    (40, 1, 70), (300, 4, 515), (129, 5, 64), (65, 12, 9), (50, 13, 64), (2, 3, 2500),
]  # fmt: skip
LAYOUTS = ["NN", "NT", "TN", "TT"]


def matrix(rng, shape, turned, dtype):
    if np.dtype(dtype).kind == "f":
        made = rng.standard_normal(shape[::-1] if turned else shape).astype(dtype)
    else:
        made = rng.integers(-9, 9, shape[::-1] if turned else shape).astype(dtype)
    return made.T if turned else made


def operands(layout, size, dtype, seed=3):
    rng, (m, n, k) = np.random.default_rng(seed), size
    return matrix(rng, (m, k), layout[0] == "T", dtype), matrix(rng, (k, n), layout[1] == "T", dtype)


def near(got, a, b, more=0.0):
    a, b = a.astype(np.float64), b.astype(np.float64)
    unit = {2: 2e-3, 4: 4e-6, 8: 1e-14}[np.asarray(got).dtype.itemsize]
    bound = unit * (np.abs(a) @ np.abs(b) + np.abs(more) + 1e-3)
    assert (np.abs(np.asarray(got).astype(np.float64) - (a @ b + more)) <= bound).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_products_are_those_of_numpy(layout, dtype):
    for size in SIZES:
        a, b = operands(layout, size, dtype)
        near(ts.op.matmul(a, b), a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_epilogues_and_traced_functions(layout):
    for size in SIZES:
        a, b = operands(layout, size, np.float32)
        bias = np.arange(size[1], dtype=np.float32)
        near(ts.op.matmul(a, b, bias=bias), a, b, bias)
        transposed = [side == "T" for side in layout]

        def function(a, b, bias, transposed=transposed):
            a, b = (xp.matrix_transpose(x) if t else x for x, t in zip((a, b), transposed))
            return xp.matmul(a, b) + bias

        near(ts.jit(function)(*(x.T if t else x for x, t in zip((a, b), transposed)), bias), a, b, bias)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_integers_are_exact(layout):
    for size in SIZES:
        a, b = operands(layout, size, np.int8)
        np.testing.assert_array_equal(ts.op.matmul(a, b, out_dtype=ts.i32), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("size", [s for s in SIZES if np.prod(s) < 50_000], ids=str)
def test_bits_are_those_of_the_definition_under_strict(size):
    for first, second in itertools.product((False, True), repeat=2):
        a, b = operands("NT"[first] + "NT"[second], size, np.float32)
        f = lambda a, b: (xp.matrix_transpose(a) if first else a) @ (xp.matrix_transpose(b) if second else b)  # noqa: B023, E731
        given = a.T if first else a, b.T if second else b
        got = ts.jit(f, numerics="strict")(*given)
        with oracle():
            expected = ts.jit(f)(*given)
        np.testing.assert_array_equal(np.asarray(got).view(np.uint32), np.asarray(expected).view(np.uint32))
