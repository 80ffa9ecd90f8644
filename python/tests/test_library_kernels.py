"""Library kernels: `ts.op` against NumPy in float64, within the bounds of the language, on shapes of every kind."""

from __future__ import annotations

import functools
import itertools
import math
import warnings

import ml_dtypes
import numpy as np
import pytest
from doc_blocks import ROOT, Block, check_text, python_blocks, run

import tessera as ts
from tessera.kernels import arrays, layout, norm_rows, schedule, softmax

op = ts.op
bf16 = ml_dtypes.bfloat16
U = 2.0**-24  # half a unit in the last place of f32

#: Half a unit in the last place of each dtype, and its smallest number.
STORAGE = {np.dtype(np.float32): (U, 2.0**-149), np.dtype(bf16): (2.0**-8, 2.0**-133), np.dtype(np.float16): (2.0**-11, 2.0**-24)}
FLOATS = [np.float32, bf16, np.float16]

SHAPES = [(7,), (5, 37), (0, 4), (2, 3, 5), (3, 1, 2, 5), (1,), (1, 5), (3, 1), (4, 0)]


def shapes(dtype, of=SHAPES, few=3):
    """All of them for f32, and a few for others: what differs between shapes does not depend on the dtype."""
    return list(enumerate(of if dtype is np.float32 else of[:few]))



def of_dtype(dtypes):
    return pytest.mark.parametrize("dtype", dtypes, ids=lambda d: np.dtype(d).name)


def normal(seed, shape, dtype=np.float32, scale=1.0, shift=0.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape) + shift).astype(dtype)


def wide(*values):
    out = [np.asarray(v).astype(np.float64) for v in values]
    return out if len(out) > 1 else out[0]


def near(result, expected, bound):
    """Whether the result is as near as ``bound`` and one rounding to its dtype allow."""
    expected = np.asarray(expected)
    assert result.shape == expected.shape, (result.shape, expected.shape)
    half, least = STORAGE.get(result.dtype, (2.0**-53, 0.0))
    error = np.abs(wide(result) - expected)
    allowed = bound + half * (np.abs(expected) + bound) + least
    assert (error <= allowed).all(), (result.dtype, result.shape, float((error / np.maximum(allowed, 1e-300)).max()))


def strided(x):
    """The array, and the same numbers under other strides."""
    yield x
    yield np.asfortranarray(x)
    apart = np.zeros((*x.shape, 2), x.dtype)
    apart[..., 0] = x
    yield apart[..., 0]
    yield np.ascontiguousarray(x[::-1])[::-1]
    if x.ndim > 1:
        yield np.ascontiguousarray(np.flip(np.moveaxis(x, 0, -1), 0))[::-1].transpose(x.ndim - 1, *range(x.ndim - 1))


# Softmax


def softmax_reference(x, axis):
    x = wide(x)
    shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
    log = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)) if x.size else x
    return np.exp(log), log


def check_softmax(x, axis, **tiles):
    n = x.shape[axis]
    y, log = softmax_reference(x, axis)
    rel = 4 * U * (n + 8)
    near(op.softmax(x, axis, **tiles), y, rel * y)
    near(op.log_softmax(x, axis, **tiles), log, rel + 4 * U * np.abs(log))
    dy = normal(1, x.shape, x.dtype)
    result = op.softmax(x, axis, out_dtype="f32", **tiles)
    t, g = wide(result, dy)
    magnitude = np.abs(t) * (np.abs(g) + (np.abs(g * t)).sum(axis, keepdims=True))
    expected = t * (g - (g * t).sum(axis, keepdims=True))
    near(op.softmax_backward(dy, result, axis, out_dtype="f32", **tiles), expected, (n + 8) * U * magnitude)
    result = op.log_softmax(x, axis, out_dtype="f32", **tiles)
    t = wide(result)
    magnitude = np.abs(g) + np.exp(t) * np.abs(g).sum(axis, keepdims=True) * (1 + np.abs(t))
    expected = g - np.exp(t) * g.sum(axis, keepdims=True)
    near(op.log_softmax_backward(dy, result, axis, out_dtype="f32", **tiles), expected, (n + 8) * U * magnitude)


@of_dtype(FLOATS)
def test_softmax_along_every_axis(dtype):
    for i, shape in shapes(dtype):
        for axis in range(-1, len(shape) - 1):
            check_softmax(normal(i, shape, dtype, 3.0), axis)


def test_softmax_of_every_layout_and_tile():
    for i, x in enumerate(strided(normal(0, (4, 6, 11), scale=3.0))):
        for axis in {0, 2, i % 3}:
            check_softmax(x, axis)
    for axis, tiles in itertools.product((0, 1), ({"rows": 4}, {"block": 4})):
        check_softmax(normal(0, (9, 13), np.float32, 3.0), axis, **tiles)


def test_softmax_of_long_rows():
    check_softmax(normal(0, (2, 131072), bf16, 3.0), -1)  # held whole
    check_softmax(normal(0, (1, 131072), np.float32, 3.0), -1)  # in pieces
    check_softmax(normal(0, (9001, 3), np.float32, 3.0), 0)  # columns in pieces


def test_softmax_of_wide_and_f64_numbers():
    x = np.array([[1e4, 1e4 - 1, -1e4], [-5e3, -5e3, -5e3]], np.float32)
    near(op.softmax(x), softmax_reference(x, -1)[0], 1e-6)
    x = normal(0, (3, 50), np.float64)
    for tiles in ({}, {"block": 16}):
        assert np.abs(op.softmax(x, **tiles) - softmax_reference(x, -1)[0]).max() < 1e-15
        assert np.abs(op.softmax(x, 0, **tiles) - softmax_reference(x, 0)[0]).max() < 1e-15


@pytest.mark.parametrize("tiles", [{}, {"block": 4}], ids=str)
def test_masked_pieces_of_a_row_have_no_weight_and_masked_rows_are_not_numbers(tiles):
    x = np.full((3, 11), -np.inf, np.float32)
    x[0, 9], x[1, 2] = 1.0, 2.0
    for t, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
        y = op.softmax(t, axis, **tiles)
        y = y if axis else y.T
        assert y[0].tolist() == [0.0] * 9 + [1.0, 0.0] and y[1, 2] == 1.0 and y[1].sum() == 1.0
        assert np.isnan(y[2]).all()


# Norms


def norm_reference(x, scale, shift, eps, centre):
    x = wide(x)
    mean = x.mean(-1, keepdims=True) * centre
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)
    return (x - mean) * rstd * (1.0 if scale is None else wide(scale)) + (0.0 if shift is None else wide(shift)), mean, rstd


def norm_backward_reference(dy, x, scale, mean, rstd, centre):
    dy, x = wide(dy, x)
    normal = (x - mean) * rstd
    dn = dy * (1.0 if scale is None else wide(scale))
    dx = rstd * (dn - centre * dn.mean(-1, keepdims=True) - normal * (dn * normal).mean(-1, keepdims=True))
    size = rstd * (np.abs(dn) + np.abs(dn).mean(-1, keepdims=True) + np.abs(normal) * np.abs(dn * normal).mean(-1, keepdims=True))
    rows = tuple(range(x.ndim - 1))
    dscale = (dy * normal).sum(rows), (np.abs(dy) * (np.abs(x) + np.abs(mean)) * rstd).sum(rows)
    sums = [dscale, (dy.sum(rows), np.abs(dy).sum(rows))]
    return dx, size, sums


def check_norm(x, scale, shift, **tiles):
    n = x.shape[-1]
    dy = normal(9, x.shape, x.dtype)
    for centre in (True, False):
        y, mean, rstd = norm_reference(x, scale, shift if centre else None, 1e-5, centre)
        if centre:
            *results, rstds = op.layernorm(x, scale, shift, return_stats=True, **tiles)
            means = results[1]
            near(means, mean[..., 0], (n + 2) * U * np.abs(wide(x)).mean(-1))
        else:
            *results, rstds = op.rmsnorm(x, scale, 1e-5, return_stats=True, **tiles)
        size = (np.abs(wide(x)) + np.abs(mean)) * rstd * (1.0 if scale is None else np.abs(wide(scale)))
        near(results[0], y, (n + 16) * U * (size + np.abs(y)))
        # The largest number of a row may dwarf its deviation.
        spread = (n + 16) * U * (1 + np.abs(wide(x)).max(-1) * rstd[..., 0])
        near(rstds, rstd[..., 0], spread * rstd[..., 0])
        if centre:
            dx, *sums = op.layernorm_backward(dy, x, means, rstds, scale, **tiles)
        else:
            dx, *sums = op.rmsnorm_backward(dy, x, rstds, scale, **tiles)
        expected, size, exact = norm_backward_reference(dy, x, scale, mean, rstd, centre)
        near(dx, expected, (n + 16) * 4 * U * size * (1 + spread[..., None] / U / (n + 16)))
        for result, (total, magnitude) in zip(sums, exact):
            if scale is None:
                assert result is None
            else:
                rows = math.prod(x.shape[:-1])
                near(result, total, (rows + n + 16) * 4 * U * magnitude)


@of_dtype(FLOATS)
def test_norms(dtype):
    for i, shape in shapes(dtype, [(5, 37), (300, 3), (2, 9000), (2, 3, 5), (2, 1, 3, 8), (3, 1)]):
        x = normal(i, shape, dtype, 2.0, 1.0)
        scale, shift = normal(7, (2, shape[-1]))
        if shape[-1] > 1:  # one number has no deviation
            check_norm(x, scale, shift)
        else:
            assert (op.layernorm(x, scale, shift) == shift.astype(dtype)).all()
    check_norm(normal(3, (4, 11), dtype), None, None)


def test_norms_of_every_layout_and_tile():
    scale, shift = normal(7, (2, 11))
    for x in strided(normal(0, (4, 6, 11), shift=2.0)):
        check_norm(x, scale, shift[::-1])
    for tiles in ({"rows": 4}, {"block": 4}):
        check_norm(normal(0, (9, 11), np.float32, shift=100.0), scale, shift, **tiles)


def test_norms_of_long_rows_and_of_many_rows():
    check_norm(normal(0, (2, 131072), bf16, 1.0, 3.0), *normal(7, (2, 131072)))
    check_norm(normal(0, (4500, 8), np.float32), *normal(7, (2, 8)))  # groups keep the sums of their rows


@pytest.mark.parametrize("profile", ["default", "strict"])
def test_on_a_gpu_groups_share_each_of_a_few_long_rows(monkeypatch, profile):
    """The launches of a GPU, run here. In `strict` rows are read as on every device."""
    monkeypatch.setattr(arrays, "on_device", lambda x: True)
    split = []
    for kernels, name in ((softmax, "rows_shared"), (norm_rows, "few")):
        launch = getattr(kernels, name)
        monkeypatch.setattr(kernels, name, lambda *given, launch=launch: (split.append(given), launch(*given)))
    x = normal(31, (3, 70001), scale=3.0, shift=1.0)
    x[1, 5000:] = -np.inf  # chunks without any weight
    finite = np.where(np.isinf(x), 0.5, x)
    weight, offset = (normal(seed, 70001) for seed in (32, 33))
    with ts.numerics.profile(profile):
        found = [op.softmax(x), op.log_softmax(x), op.layernorm(finite, weight, offset), op.rmsnorm(finite, weight), op.rmsnorm(finite)]
    weights, logs = softmax_reference(x, 1)
    near(found[0], weights, 1e-6)
    near(found[1][[0, 2]], logs[[0, 2]], 2e-5)
    y = finite.astype(float)
    about = y - y.mean(1, keepdims=True)
    root = lambda t: 1 / np.sqrt((t * t).mean(1, keepdims=True) + 1e-5)  # noqa: E731
    for result, expected in zip(found[2:], (about * root(about) * weight + offset, y * root(y) * weight, y * root(y))):
        near(result, expected, 1e-5 * (1 + np.abs(expected)))
    assert len(split) == (5 if profile == "default" else 0)


def test_norms_of_nothing():
    for shape in ((0, 4), (4, 0)):
        x = np.zeros(shape, np.float32)
        y, mean, rstd = op.layernorm(x, return_stats=True)
        assert y.shape == shape and mean.shape == rstd.shape == shape[:-1]
        dx, dscale, dshift = op.layernorm_backward(x, x, mean, rstd, np.ones(shape[-1], np.float32))
        assert dx.shape == shape and dscale.tolist() == dshift.tolist() == [0] * shape[-1]


# Cross entropy


def entropy_reference(logits, labels, ignore=-100):
    _, log = softmax_reference(logits, -1)
    keep = labels != ignore
    at = np.where(keep, labels, 0)[..., None].astype(np.int64)
    loss = np.where(keep, -np.take_along_axis(log, at, -1)[..., 0], 0.0)
    grad = np.exp(log)
    np.put_along_axis(grad, at, np.take_along_axis(grad, at, -1) - 1, -1)
    return loss, grad * keep[..., None], keep.sum(), np.exp(log)


def check_entropy(logits, labels, **tiles):
    n = logits.shape[-1]
    loss, grad, kept, weights = entropy_reference(logits, labels)
    bound = 4 * U * (n + 8) + 4 * U * np.abs(loss)
    result, lse = op.cross_entropy(logits, labels, reduction="none", return_lse=True, **tiles)
    near(result, loss, bound)
    x = wide(logits)
    near(lse, np.log(np.exp(x - x.max()).sum(-1)) + x.max(), 4 * U * (n + 8) + 2 * U * np.abs(x).max())
    total = op.cross_entropy(logits, labels, reduction="sum", out_dtype="f32", **tiles)
    near(total, loss.sum(), bound.sum() + loss.size * U * loss.sum())
    mean = op.cross_entropy(logits, labels, out_dtype="f32", **tiles)
    if kept:
        near(mean, loss.sum() / kept, (bound.sum() + loss.size * U * loss.sum()) / kept)
    else:
        assert np.isnan(mean)
    spread = weights * (4 * U * (n + 8) + 4 * U * np.abs(x).max()) + 2 * U * np.abs(grad)
    g = normal(5, labels.shape)
    each = wide(g)[..., None]
    result = op.cross_entropy_backward(g, logits, labels, lse, reduction="none", **tiles)
    near(result, grad * each, spread * np.abs(each))
    near(op.cross_entropy_backward(2.0, logits, labels, lse, reduction="sum", **tiles), 2 * grad, 2 * spread)
    if kept:
        factor = wide(mean) / kept
        near(op.cross_entropy_backward(mean, logits, labels, lse, **tiles), factor * grad, np.abs(factor) * spread)


@of_dtype(FLOATS)
def test_cross_entropy(dtype):
    rng = np.random.default_rng(0)
    for i, shape in shapes(dtype, [(9, 2), (5, 37), (2, 131072), (2, 3, 5), (1, 5), (3, 1)]):
        labels = rng.integers(0, shape[-1], shape[:-1]).astype([np.int64, np.int32][i % 2])
        if i != 1:
            labels.flat[i % labels.size] = -100
        check_entropy(normal(i, shape, dtype, 3.0), labels)


def test_cross_entropy_of_every_layout_and_tile():
    labels = np.random.default_rng(0).integers(0, 11, (4, 6))
    labels[1, 2:4] = -100
    for x in strided(normal(0, (4, 6, 11), scale=3.0)):
        check_entropy(x, labels[::-1].copy()[::-1])
    for tiles in ({"rows": 4}, {"block": 4}):
        check_entropy(normal(0, (4, 6, 11), scale=3.0), np.asfortranarray(labels), **tiles)


def test_cross_entropy_of_ignored_and_of_no_rows():
    x = np.full((2, 3), np.nan, np.float32)
    x[0] = 1.0
    labels = np.array([2, 7])
    loss, lse = op.cross_entropy(x, labels, ignore_index=7, return_lse=True)
    near(loss, math.log(3), 1e-6)
    assert (op.cross_entropy_backward(1.0, x, labels, lse, ignore_index=7)[1] == 0).all()
    assert op.cross_entropy(x[:0], labels[:0], reduction="none").shape == (0,)
    assert op.cross_entropy(x[:0], labels[:0], reduction="sum") == 0 and np.isnan(op.cross_entropy(x[:0], labels[:0]))


@pytest.mark.parametrize("tiles", [{}, {"block": 2}], ids=str)
def test_a_label_outside_is_not_a_number_and_checked_mode_reports_it(tiles, monkeypatch):
    x = np.ones((3, 4), np.float32)
    for bad in (4, -1):
        labels = np.array([0, bad, -100])
        loss, lse = op.cross_entropy(x, labels, reduction="none", return_lse=True, **tiles)
        assert np.isnan(loss).tolist() == [False, True, False]
        grad = op.cross_entropy_backward(1.0, x, labels, lse, reduction="sum", **tiles)
        assert np.isnan(grad).any(1).tolist() == [False, True, False]
    monkeypatch.setenv("TESSERA_CHECK", "1")
    with pytest.raises(ts.CheckError, match="index -1 is outside `logits`") as e:
        op.cross_entropy(x, labels, **tiles)
    assert e.value.code == "E_OOB"


# Reductions


@of_dtype(FLOATS)
def test_sums_means_and_products(dtype):
    for i, shape in shapes(dtype, [(70000,), (3, 9000), (9000, 3), *SHAPES], 4):
        x = normal(i, shape, dtype)
        axes = [None, *range(-1, len(shape) - 1), *([(0, 2), (1, -1)] if len(shape) > 2 else [])]
        for axis in axes:
            exact, size = wide(x).sum(axis), np.abs(wide(x)).sum(axis)
            n = x.size // max(exact.size, 1)
            near(op.sum(x, axis), exact, (n + 2) * U * size)
            if n:
                near(op.mean(x, axis), exact / n, (n + 3) * U * size / n)
            y = np.exp2(x.astype(np.float32) / max(n, 1)).astype(dtype)
            near(op.prod(y, axis, out_dtype="f32"), wide(y).prod(axis), (n + 2) * U * wide(y).prod(axis))


@of_dtype([np.float32, bf16, np.int8, np.bool_])
def test_extremes_and_their_places(dtype):
    for i, shape in shapes(dtype, [(5, 37), (2, 9000), (9000, 2), (40000,), (2, 3, 5), (3, 1, 2, 5)], 2):
        x = (4 * normal(i, shape)).astype(dtype)
        for axis in (None, *range(-1, len(shape) - 1)):
            for name in ("max", "min", "argmax", "argmin"):
                result, expected = getattr(op, name)(x, axis), getattr(np, name)(x, axis=axis)
                assert result.dtype == (np.int64 if name[0] == "a" else x.dtype)
                assert result.shape == np.shape(expected) and (result == expected).all(), (name, shape, axis)


def test_reductions_of_every_layout():
    for x in strided(normal(0, (4, 6, 5))):
        for axis in (None, 0, 1, 2, (0, 2), (1, 2)):
            near(op.sum(x, axis), wide(x).sum(axis), 130 * U * np.abs(wide(x)).sum(axis))
            assert (op.max(x, axis) == x.max(axis)).all()
        for axis in (None, 0, 1, 2):
            assert (op.argmin(x, axis) == x.argmin(axis)).all()
    x = normal(0, (4, 6, 5, 6))[::2, ::3, ::2, ::5]  # no two axes merge
    for axis in range(4):
        assert (op.max(x, axis) == x.max(axis)).all() and (op.argmax(x, axis) == x.argmax(axis)).all()
        check_softmax(x, axis)
    row = np.broadcast_to(np.arange(5, dtype=np.float32), (3, 5))
    assert op.sum(row, 0).tolist() == [0, 3, 6, 9, 12] and op.sum(row, 1).tolist() == [10] * 3


def test_on_a_gpu_strips_of_columns_are_shared_by_groups(monkeypatch):
    """The launches of a GPU, run here."""
    monkeypatch.setattr(arrays, "on_device", lambda x: True)
    for i, shape in enumerate([(700, 70), (5000, 3), (9, 2500), (3, 600, 33), (2100, 1)]):
        x = normal(i, shape, scale=2.0)
        near(op.sum(x, axis=-2), wide(x).sum(-2), 1e-3)
        near(op.mean(x, axis=-2), wide(x).mean(-2), 1e-5)
        assert (op.max(x, axis=-2) == x.max(-2)).all() and (op.min(x, axis=-2) == x.min(-2)).all()
        assert (op.sum(x.astype(np.int32), axis=-2) == x.astype(np.int32).sum(-2)).all()


def test_reductions_of_integers_are_in_64_bits():
    x = np.full((300, 7), 100, np.int8)
    assert op.sum(x).dtype == np.int64 and op.sum(x) == 210000 and (op.sum(x, 0) == 30000).all()
    assert op.mean(x).dtype == np.float64 and op.mean(x) == 100
    assert op.prod(np.array([2**31, 2], np.int64)) == 2**32 and op.sum(np.array([2**63, 5], np.uint64)).dtype == np.uint64
    assert op.sum(np.array([True, False, True])) == 2 and op.max(np.array([-7, -9], np.int64)) == -7


def test_not_numbers_propagate_and_are_found_first():
    for n, tiles in ((40, {}), (40, {"block": 8}), (9000, {})):
        x = normal(0, (3, n))
        x[0, 30] = x[0, 33] = np.nan
        x[1] = -np.inf
        x[2, 5:9] = np.inf
        for t, axis in ((x, 1), (np.ascontiguousarray(x.T), 0)):
            with np.errstate(invalid="ignore"):
                assert np.array_equal(op.max(t, axis, **tiles), t.max(axis), equal_nan=True)
                assert (op.argmax(t, axis, **tiles) == t.argmax(axis)).all()
                assert (op.argmin(t, axis, **tiles) == t.argmin(axis)).all()


def test_reductions_of_nothing_and_of_kept_axes():
    x = np.zeros((0, 4), np.float32)
    assert op.sum(x) == 0 and op.prod(x, 0).tolist() == [1] * 4 and np.isnan(op.mean(x, 0)).all()
    assert op.sum(x, 1).shape == (0,) and op.max(x, 1).shape == (0,) and op.argmax(x, 1).shape == (0,)
    y = normal(0, (2, 3, 4))
    for axis in (None, 1, (0, 2), ()):
        assert op.sum(y, axis, keepdims=True).shape == y.sum(axis, keepdims=True).shape
    assert (op.sum(y, ()) == y).all() and op.sum(np.float32(3)) == 3
    assert op.argmax(y, 1, keepdims=True).shape == (2, 1, 4) and op.argmax(y, keepdims=True).shape == (1, 1, 1)


# Elements


@of_dtype([np.bool_, bf16, np.float32, np.complex64, ml_dtypes.float4_e2m1fn])
def test_transpose(dtype):
    for i, shape in enumerate([(), (5,), (70, 33), (3, 130), (0, 4), (2, 5, 7), (3, 2, 1, 5), (2, 3, 2, 3, 2)]):
        x = normal(i, shape, scale=3.0).astype(dtype)
        for axes in (None, *list(itertools.permutations(range(len(shape))))[::7]):
            for t in (x, x[::-1] if shape else x, x[..., ::2] if shape else x):
                y, expected = op.transpose(t, axes), np.transpose(t, axes)
                assert y.dtype == x.dtype and y.flags.c_contiguous and y.shape == expected.shape
                assert y.tobytes() == expected.tobytes()


def test_transpose_keeps_bits_and_takes_tiles():
    x = np.array([[0x7FC00001, 0xFF800000], [0x7F800001, 1]], np.uint32).view(np.float32)
    with ts.numerics.profile("strict"):
        assert op.transpose(x).tobytes() == x.T.tobytes()
    y = normal(0, (40, 50))
    assert (op.transpose(y, rows=8, block=16) == y.T).all()


@ts.func
def chain(x, w):
    return 0.5 * (x + w) * (1.0 + ts.tile.tanh(x + w)) * x


@ts.func
def four(a, b, c, d):
    return a * b + c * d


def test_elementwise_chains_of_every_dtype():
    x, w = normal(0, (2, 7, 100))
    t = wide(x) + wide(w)
    expected = 0.5 * t * (1 + np.tanh(t)) * x
    near(op.elementwise(chain, x, w), expected, 8 * U * np.abs(x) * (1 + np.abs(t)))
    for dtype in (bf16, np.float16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        a = x.astype(dtype)
        assert op.elementwise(ts.tile.exp, a).dtype == dtype
        assert op.elementwise(ts.tile.exp, a, out_dtype=ts.f32).dtype == np.float32
        assert (op.elementwise(ts.identity, a) == a).all() and (op.elementwise(ts.identity, x, out_dtype=dtype) == a).all()
    assert (op.saxpy(2.0, x, w) == np.float32(2) * x + w).all()
    assert op.elementwise(ts.tile.abs, np.array([-3, 4], np.int32)).tolist() == [3, 4]


def test_elementwise_broadcasts_over_any_layout():
    x = normal(0, (4, 6, 9))
    others = [normal(1, s) for s in ((4, 6, 9), (9,), (6, 1), (4, 1, 9), (1, 1, 1), ())]
    for a in strided(x):
        for b in (*others, 3.0, others[0].T.copy().T):
            assert np.allclose(op.elementwise(four, a, b, 2.0, a), wide(a) * b + 2 * wide(a), atol=1e-5)
    assert np.allclose(op.elementwise(four, others[1], others[2], 1.0, others[3]), others[1] * others[2] + others[3], atol=1e-6)
    assert op.gelu(np.zeros((0, 3), np.float32)).shape == (0, 3) and op.gelu(np.float32(1)[None]).shape == (1,)
    long = normal(2, (3, 5000))
    assert (op.elementwise(ts.identity, long, block=128) == long).all()
    assert (op.elementwise(ts.identity, long[:, ::2], rows=2) == long[:, ::2]).all()


def test_activations_after_a_bias():
    x, bias = normal(0, (5, 40)), normal(1, 40)
    t = wide(x) + wide(bias)
    erf = np.vectorize(math.erf)
    for name, expected in {
        "gelu": 0.5 * t * (1 + erf(t / math.sqrt(2))),
        "gelu_tanh": 0.5 * t * (1 + np.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t**3))),
        "silu": t / (1 + np.exp(-t)),
        "relu": np.maximum(t, 0),
        "identity": t,
    }.items():
        near(op.bias_activation(x, bias, name), expected, 1e-6)
    near(op.bias_activation(x, bias, ts.tile.exp), np.exp(t), 16 * U * np.exp(t) * (1 + np.abs(t)))
    near(op.gelu(x), 0.5 * wide(x) * (1 + erf(wide(x) / math.sqrt(2))), 1e-6)
    near(op.gelu(x, approximate=True), op.bias_activation(x, 0.0, "gelu_tanh"), 0.0)


def drawn(rng):
    """An array of random rank, sizes, dtype and strides, and one of its axes."""
    rank = rng.integers(1, 5)
    x = normal(rng.integers(1000), rng.choice([1, 2, 3, 5, 7, 11, 13], rank), FLOATS[rng.integers(3)], 2.0)
    x = x.transpose(rng.permutation(rank))
    x = x[tuple(slice(None, None, int(step)) for step in rng.choice([1, 1, 1, 2, -1], rank))]
    return x, int(rng.integers(rank))


@pytest.mark.parametrize("seed", range(8))
def test_random_arrays(seed):
    x, axis = drawn(np.random.default_rng(seed))
    check_softmax(x, axis)
    check_norm(x, None, None)
    near(op.sum(x, axis), wide(x).sum(axis), (x.shape[axis] + 2) * U * np.abs(wide(x)).sum(axis))
    assert (op.argmax(x, axis) == x.argmax(axis)).all() and (op.min(x) == x.min()).all()
    assert (op.transpose(x) == x.T).all() and (op.elementwise(ts.tile.neg, x) == -x).all()


# Profiles, backends, errors


def small_calls():
    """Every operation and every kernel once, on a few numbers."""
    x, dy = normal(0, (2, 5, 6), scale=2.0)
    h = x.astype(bf16)
    scale, shift = normal(2, (2, 6))
    labels = np.array([0, 5, -100, 3, 1])
    for tiles in ({"rows": 2}, {"block": 4}):
        for axis in (0, 1):
            for name in ("softmax", "log_softmax"):
                y = getattr(op, name)(x, axis, **tiles)
                yield y
                yield getattr(op, name + "_backward")(dy, y, axis, **tiles)
        y, mean, rstd = op.layernorm(h, scale, shift, return_stats=True, **tiles)
        yield from (y, mean, rstd, *op.layernorm_backward(dy, h, mean, rstd, scale, **tiles))
        y, rstd = op.rmsnorm(x, scale, return_stats=True, **tiles)
        yield from (y, rstd, *op.rmsnorm_backward(dy, x, rstd, scale, **tiles))
        loss, lse = op.cross_entropy(h, labels, return_lse=True, **tiles)
        yield from (loss, lse, op.cross_entropy_backward(loss, h, labels, lse, **tiles))
        for name, axis in itertools.product(("sum", "mean", "max", "prod", "argmin"), (0, 1)):
            yield getattr(op, name)(h, axis, **tiles)
        yield op.transpose(x, **tiles)
        yield op.elementwise(chain, x, scale, **tiles)
    yield op.elementwise(four, h, h, 2.0, x)
    yield op.sum(normal(3, 40000))
    yield op.argmax(normal(3, 40000))


def test_strict_is_the_same_on_every_backend(monkeypatch):
    with ts.numerics.profile("strict"):
        compiled = [y.tobytes() for y in small_calls()]
        monkeypatch.setenv("TESSERA_BACKEND", "interp")
        assert compiled == [y.tobytes() for y in small_calls()]


def test_checked_mode_finds_nothing(monkeypatch):
    monkeypatch.setenv("TESSERA_CHECK", "1")
    assert sum(1 for _ in small_calls()) > 50


def test_deterministic_takes_everything():
    with ts.numerics.profile("deterministic"):
        x = normal(0, (5000, 6))
        y, mean, rstd = op.layernorm(x, return_stats=True)
        once = op.layernorm_backward(x, x, mean, rstd, np.ones(6, np.float32))
        again = op.layernorm_backward(x, x, mean, rstd, np.ones(6, np.float32))
        assert all((a == b).all() for a, b in zip(once, again))
        assert op.sum(x) == op.sum(x)


X = np.zeros((3, 4), np.float32)
ROWS = np.zeros(3, np.float32)


@pytest.mark.parametrize("call, code, error, text", [
    (lambda: op.softmax(X, 2), "E_ARGUMENT", ts.LaunchError, "expected an axis from -2 to 1, got 2"),
    (lambda: op.softmax(X, 1.5), "E_ARGUMENT", ts.LaunchError, "expected an integer, got 1.5"),
    (lambda: op.softmax(X.astype(int)), "E_TYPE", ts.KernelTypeError, "`x`: expected an array of floats, got i64"),
    (lambda: op.softmax(np.float32(1)), "E_SHAPE_MISMATCH", ts.ShapeError, "got a single number"),
    (lambda: op.softmax(object()), "E_ARGUMENT", ts.LaunchError, "expected an array, got a value of type object"),
    (lambda: op.softmax(X, out_dtype="i32"), "E_TYPE", ts.KernelTypeError, "expected a float dtype, got i32"),
    (lambda: op.softmax(X, out_dtype="f33"), "E_UNSUPPORTED_DTYPE", ts.KernelTypeError, "f33"),
    (lambda: op.softmax(X, rows=0), "E_ARGUMENT", ts.LaunchError, "`rows`: expected a positive integer, got 0"),
    (lambda: op.softmax(X, block="8"), "E_ARGUMENT", ts.LaunchError, "`block`: expected a positive integer, got '8'"),
    (lambda: op.softmax_backward(X[:2], X), "E_SHAPE_MISMATCH", ts.ShapeError, "`dy`: expected shape \\(3, 4\\), as `y` has, got \\(2, 4\\)"),
    (lambda: op.layernorm(X, ROWS), "E_SHAPE_MISMATCH", ts.ShapeError, "`scale`: expected shape \\(4,\\)"),
    (lambda: op.layernorm(X, shift=X), "E_SHAPE_MISMATCH", ts.ShapeError, "`shift`: expected shape \\(4,\\)"),
    (lambda: op.layernorm_backward(X, X, X, ROWS), "E_SHAPE_MISMATCH", ts.ShapeError, "`mean`: expected shape \\(3,\\)"),
    (lambda: op.layernorm_backward(X, X, None, ROWS), "E_ARGUMENT", ts.LaunchError, "`mean`: expected an array, got a value of type NoneType"),
    (lambda: op.rmsnorm_backward(X, X.T, ROWS), "E_SHAPE_MISMATCH", ts.ShapeError, "`dy`: expected shape \\(4, 3\\)"),
    (lambda: op.cross_entropy(X, ROWS), "E_TYPE", ts.KernelTypeError, "`labels`: expected an array of integers, got f32"),
    (lambda: op.cross_entropy(X, np.zeros(4, int)), "E_SHAPE_MISMATCH", ts.ShapeError, "`labels`: expected shape \\(3,\\)"),
    (lambda: op.cross_entropy(X, ROWS.astype(int), reduction="max"), "E_ARGUMENT", ts.LaunchError, "expected one of mean, sum, none"),
    (lambda: op.cross_entropy(X[:, :0], ROWS.astype(int)), "E_SHAPE_MISMATCH", ts.ShapeError, "at least one class"),
    (lambda: op.cross_entropy_backward(ROWS, X, ROWS.astype(int), ROWS), "E_SHAPE_MISMATCH", ts.ShapeError, "`dloss`: expected shape \\(\\)"),
    (lambda: op.sum(X, (0, 0)), "E_ARGUMENT", ts.LaunchError, "expected each axis once"),
    (lambda: op.sum(X, (0, -3)), "E_ARGUMENT", ts.LaunchError, "expected an axis from -2 to 1, got -3"),
    (lambda: op.max(X[:0], 0), "E_SHAPE_MISMATCH", ts.ShapeError, "at least one element to take the max of, got shape \\(0, 4\\)"),
    (lambda: op.argmin(X[:0]), "E_SHAPE_MISMATCH", ts.ShapeError, "at least one element"),
    (lambda: op.argmax(X, (0, 1)), "E_ARGUMENT", ts.LaunchError, "expected an integer, got \\(0, 1\\)"),
    (lambda: op.transpose(X, (0, 0)), "E_ARGUMENT", ts.LaunchError, "expected each of the 2 axes once, got \\(0, 0\\)"),
    (lambda: op.transpose(X.astype(np.complex128)), "E_UNSUPPORTED_DTYPE", ts.KernelTypeError, "complex128"),
    (lambda: op.elementwise(four, X, ROWS, X, X), "E_SHAPE_MISMATCH", ts.ShapeError, "expected shapes that broadcast together, got \\(3, 4\\), \\(3,\\)"),
    (lambda: op.elementwise(chain), "E_ARGUMENT", ts.LaunchError, "one to four arrays, got 0"),
    (lambda: op.elementwise(chain, 1.0, 2.0), "E_ARGUMENT", ts.LaunchError, "got numbers only"),
    (lambda: op.elementwise(abs, X), "E_ARGUMENT", ts.LaunchError, "function"),
    (lambda: op.bias_activation(X, ROWS[:1], "gelo"), "E_ARGUMENT", ts.LaunchError, "expected one of gelu"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_is_launched(call, code, error, text):
    with pytest.raises(error, match=text) as e:
        call()
    assert e.value.code == code


# Layouts and schedules


def test_layouts_merge_axes_without_copies():
    x = np.zeros((4, 5, 6, 7), np.float32)
    for view, axis, shape, columns in (
        (x, -1, (1, 120, 7), False),
        (x, 1, (4, 5, 42), True),
        (x, 0, (1, 4, 210), True),
        (x.T, 0, (1, 120, 7), False),
        (x[:, :, ::2], 3, (1, 60, 7), False),
        (x[:, ::2], 3, (3, 4, 6, 7), False),
        (x[:, 1:3, ::3], 3, (4, 4, 7), False),
        (x[:, :, :1, :1], 1, (1, 4, 5), False),
        (np.broadcast_to(x[0], x.shape), 3, (4, 30, 7), False),
    ):
        found = layout.along(view.shape, (view.strides,), axis % 4)
        assert found.shape == shape and found.columns == columns, (view.shape, axis, found)
        assert np.shares_memory(found.view(view), x) and len(found.launches) == math.prod(shape[:-3])
        less = np.zeros([n for a, n in enumerate(view.shape) if a != axis % 4])
        assert found.view_without(less).shape == tuple(n for i, n in enumerate(shape) if i != len(shape) + found.place)
    assert layout.pointwise(x.shape, (x.strides, x.strides)).shape == (840,)
    assert layout.pointwise(x.shape, (x.strides, x[:, :, :, ::-1].strides)).shape == (120, 7)
    assert layout.reduction(x.shape, x.strides, frozenset({1, 3})) == ((0, 1, 2, 3), (4, 5, 6, 7), (False, True, False, True))
    assert layout.reduction(x.shape, x.strides, frozenset()) == ((0, 1, 2, 3), (840, 1), (False, True))


class Large:
    """The schedules of a GPU with 132 multiprocessors."""

    def __getattr__(self, name):
        return functools.partial(getattr(schedule, name), groups=264)


large = Large()


def test_rows_are_held_whole_while_they_fit():
    assert large.rows(1, 8192, 1024, 2) == schedule.Tile(True, rows=4)
    assert large.rows(1, 8192, 1024, 4) == schedule.Tile(True, rows=2)
    assert large.rows(1, 100, 1024, 2) == schedule.Tile(True, rows=1)  # rather more groups than more rows each
    assert large.rows(1, 10**6, 4, 4) == schedule.Tile(True, rows=128)
    assert large.rows(1, 4096, 131072, 2) == schedule.Tile(True, rows=1)
    assert large.rows(1, 4096, 131072, 4) == schedule.Tile(False, block=8192)
    assert large.rows(1, 4096, 131072, 2, held=2) == schedule.Tile(False, block=16384)
    assert large.rows(1, 1, 10, 4, rows=7) == schedule.Tile(True, rows=7)
    assert large.rows(1, 1, 10, 4, block=7) == schedule.Tile(False, block=7)


def test_columns_long_axes_and_elements():
    assert large.columns(64, 21, 65536, 4) == schedule.Tile(True, columns=64)
    assert large.columns(1, 2048, 4096, 2) == schedule.Tile(True, columns=32) and large.columns(1, 99, 3, 2).columns == 4
    assert large.columns(1, 10**6, 64, 4) == schedule.Tile(False, columns=64, block=64)
    assert schedule.strip(1, 8192, 4096, 2) == schedule.Tile(False, columns=128, block=32)
    assert schedule.strip(1, 3, 10**6, 4).columns == 1024 and schedule.strip(1, 10**6, 3, 4).columns == 4
    assert large.chunks(1, 10**9, 4096) == (528, 1896448) and large.chunks(1000, 8192, 4096) == (1, 8192)
    # On a GPU strips are split while a launch takes less than the iterations that it saves.
    of = lambda *given: (lambda t: (t.block, t.columns, t.warps))(large.gpu_strip(1, *given))  # noqa: E731
    assert of(5205, 11648, 4) == (32, 32, 4) and of(413, 9577, 2) == (64, 64, 8) and of(20000, 512, 2) == (64, 64, 8)
    # Two bytes: streams, and few rows.
    assert of(5205, 11648, 2) == of(2 * 10**6, 128, 2) == (32, 128, 4) and of(31, 246296, 2) == (16, 256, 4)
    assert of(12, 83120, 4) == (8, 128, 4) and of(3, 10**5, 4) == (8, 128, 4)
    assert [large.gpu_strip(1, 1000, b, 2).columns for b in (1, 5, 17, 99)] == [4, 16, 64, 64]
    narrow, wide = large.gpu_strip(1, 5205, 11648, 4), large.gpu_strip(1, 20000, 512, 2)
    assert large.strips(364, 5205, narrow) == (2, 2624) and large.strips(8, 20000, wide) == (32, 640)
    assert large.strips(104, 126, narrow) == (1, 128) and large.strips(10**4, 10**6, wide)[0] == 1
    assert large.shared(19, 204752, 2) == schedule.Shares(13, 4, 4096) and large.shared(133, 204752, 2) is None
    assert large.shared(1, 10**6, 4) == schedule.Shares(245, 2, 2048) and schedule.parts(245) == 256
    assert large.shares(1, 8192, 1024, 4) == (256, 32) and large.shares(1, 100, 1024, 4) is None
    assert large.square(9000, 9000, 2) == (128, 128) and large.square(9000, 9000, 4) == (64, 64)
    # Small ones have small tiles, so that there are enough groups; narrow ones of 2 bytes little beyond the edge.
    assert large.square(1000, 1000, 2) == (64, 32) and large.square(1000, 1000, 2, times=99) == (128, 128)
    assert large.square(10**6, 46, 2) == (256, 16) and large.square(10**6, 46, 4) == (64, 64)
    # Rows off 16 bytes, or few columns, are taken several at a time.
    assert schedule.folded(10**6, 71, 2, 0) == 8 and schedule.folded(10**6, 8, 2, 0) == 16 and schedule.folded(10**6, 512, 2, 0) == 1
    assert schedule.folded(500, 71, 2, 0) == 1 and schedule.folded(10**5, 71, 2, 2**24) == 1
    assert large.square(10**6, 3, 2) == (256, 4) and schedule.area(10**6, 100) == (32, 128)
    assert large.line(10**7, 4) == 4096 and large.line(1000, 4) == 1024 and large.line(10**7, 8) == 2048


def test_tile_extents_are_one_of_a_few():
    """Eight values of one would warn of a kernel that is compiled over and over."""
    seen: dict[str, set[int]] = {}
    sizes = [1, 2, 3, 7, 31, 100, 1000, 5000, 70000, 10**6]
    for a, b, itemsize in itertools.product(sizes, sizes, (1, 2, 4, 8)):
        for name in ("rows", "columns", "strip", "gpu_strip"):
            tile = getattr(schedule if name == "strip" else large, name)(1, a, b, itemsize)
            for field in ("rows", "columns", "block"):
                seen.setdefault(f"{name}.{field}", set()).add(getattr(tile, field))
        for kind, pair in (("area", schedule.area(a, b)), ("square", large.square(a, b, itemsize))):
            for i in (0, 1):
                seen.setdefault(f"{kind}.{i}", set()).add(pair[i])
        seen.setdefault("line", set()).add(large.line(a, itemsize))
    assert all(len(values - {0}) < 8 for values in seen.values()), seen


def test_many_shapes_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (1, 2, 5, 17, 65, 300, 1500, 3000):
            op.softmax(np.zeros((1000, n), np.float32))
            op.sum(np.zeros((n, 3), np.float32), 0)
            op.transpose(np.zeros((n, 300), np.int8))


def test_numbers_become_arrays_and_names_are_exported():
    assert op.softmax([1.0, 1.0]).tolist() == [0.5, 0.5]
    assert arrays.is_number(np.float32(1)) and not arrays.is_number(np.zeros(()))
    for name in op.__all__:
        assert callable(getattr(op, name))
    assert ts.softmax is op.softmax and ts.layernorm is op.layernorm and ts.cross_entropy is op.cross_entropy


@pytest.mark.parametrize("block", python_blocks(ROOT / "docs" / "library.md"), ids=lambda b: b.id)
def test_page(block: Block) -> None:
    check_text(block, run(block))
