"""Softmax of rows with infinities, NaN and masks: by the definition, in f64, with NumPy."""

import itertools

import numpy as np
import pytest

import tessera as ts
from tessera import nn

INF, NAN = np.inf, np.nan
ROWS = [[INF, 1, 2], [INF, INF, 1], [-INF, 1, 0], [-INF, -INF, -INF], [NAN, 1, 2], [INF, -INF, 0], [1e30, -1e30, 0], [1, 2, 3]]
MASKS = [None, *map(list, itertools.product([True, False], repeat=3))]


def expected(row, mask, log):
    row = np.array(row, np.float64)
    mask = np.ones(3, bool) if mask is None else np.array(mask)
    held = np.where(mask, row, -INF)
    with np.errstate(all="ignore"):
        shifted = held - held.max()
        total = np.exp(shifted).sum()
        y = shifted - np.log(total) if log else np.exp(shifted) / total
    return np.where(mask, y, -INF if log else 0.0)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("profile", ["default", "strict"])
def test_rows_with_infinities_and_masks(name, profile):
    of = getattr(nn, name)
    plain = ts.jit(lambda x: of(x), numerics=profile)
    masked = ts.jit(lambda x, where: of(x, where=where), numerics=profile)
    for row, mask in itertools.product(ROWS, MASKS):
        x = np.array(row, np.float32)
        y = plain(x) if mask is None else masked(x, np.array(mask))
        np.testing.assert_allclose(np.asarray(y), expected(row, mask, name == "log_softmax"), rtol=1e-6, err_msg=f"{row} where {mask}")


def test_safe_rows_of_nothing_are_zeros():
    x = np.array([[-INF, -INF], [INF, 1], [0, 0]], np.float32)
    np.testing.assert_array_equal(np.asarray(nn.softmax(x, safe=True)), [[0, 0], [NAN, NAN], [0.5, 0.5]])
    np.testing.assert_array_equal(np.asarray(nn.softmax(x)), [[NAN, NAN], [NAN, NAN], [0.5, 0.5]])


def test_derivatives_of_masked_rows_are_zero():
    x = np.array([[5, 1, 2], [3, -INF, 1]], np.float32)
    where = np.array([[False, False, False], [True, False, True]])
    for of in (nn.softmax, nn.log_softmax):
        g = ts.jit(ts.grad(lambda x, of=of: ts.xp.sum(ts.xp.where(where, of(x, where=where) * np.float32([1, 2, 3]), 0.0))))(x)
        assert np.isfinite(np.asarray(g)).all() and not np.asarray(g)[~where].any()
