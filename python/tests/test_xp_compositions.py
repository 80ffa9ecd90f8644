"""Functions of `xp` whose composition depends on what is known while tracing, against NumPy."""

import random

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp

UPDATES = {
    "set": lambda old, new: new, "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


def drawn_index(rng, shape):
    """Integers, slices of all steps and new axes, for some of the axes."""
    index = []
    for n in shape:
        ends = [None, *range(-n, n + 1)]
        kind = rng.random()
        if kind < 0.25:
            index.append(rng.randint(-n, n - 1))
        else:
            index.append(slice(None) if kind < 0.35 else slice(rng.choice(ends), rng.choice(ends), rng.choice([None, 1, 2, 3, -1, -2])))
    if rng.random() < 0.2:
        index.insert(rng.randint(0, len(index)), None)
    return tuple(index[: rng.randint(1, len(index))])


@pytest.mark.parametrize("op", UPDATES)
def test_updates_of_known_slices_are_numpys(op):
    rng, numbers = random.Random(op), np.random.default_rng(0)
    for trial in range(40):
        shape = tuple(rng.randint(1, 6) for _ in range(rng.randint(1, 3)))
        index, dtype = drawn_index(rng, shape), rng.choice([np.float32, np.float64, np.int32])
        x = (5 * numbers.standard_normal(shape)).astype(dtype)
        want = x.copy()
        value = dtype(3) if rng.random() < 0.3 else (5 * numbers.standard_normal(want[index].shape)).astype(dtype)
        want[index] = UPDATES[op](want[index], value)
        got = ts.jit(lambda x, v, index=index: getattr(x.at[index], op)(v))(x, value)
        assert got.dtype == want.dtype and np.array_equal(got, want), (shape, index)
        if trial % 8 == 0 and dtype == np.float64 and np.size(value):
            assert ts.gradcheck(lambda x, v, index=index: xp.sum(xp.sin(getattr(x.at[index], op)(v))), x, np.asarray(value, np.float64))


def test_updates_of_known_slices_need_no_scatter():
    for op in ("set", "add"):
        for index in ((slice(1, -1), slice(1, -1)), (3,), (slice(None, None, 2),)):
            text = str(ts.jit(lambda x, op=op, index=index: getattr(x.at[index], op)(1.0)).trace(np.ones((8, 8), np.float32)))
            assert "graph.scatter" not in text and "graph.gather" not in text


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int64"])
def test_top_k_is_the_beginning_of_a_stable_sort(dtype):
    rng, numbers = random.Random(dtype), np.random.default_rng(1)
    for _ in range(20):
        shape = tuple(rng.randint(1, 40) if i == 0 else rng.randint(1, 12) for i in range(rng.randint(1, 3)))
        axis = rng.randrange(-len(shape), len(shape))
        k = rng.randint(1, shape[axis])
        x = np.round(3 * numbers.standard_normal(shape))
        x = (np.abs(x) if dtype == "uint8" else x).astype(dtype)
        if dtype.startswith("float"):
            for special in (np.nan, -np.inf, np.inf, -0.0):
                x[numbers.random(shape) < 0.08] = special
        # Descending, NaN first, equal elements in their order.
        places = np.moveaxis(np.empty(shape, np.int64), axis, -1)
        for at, row in zip(np.ndindex(places.shape[:-1]), np.moveaxis(x, axis, -1).reshape(-1, shape[axis]), strict=True):
            places[at] = sorted(range(len(row)), key=lambda i, row=row: (not row[i] != row[i], -float(row[i]) if row[i] == row[i] else 0))
        want = np.moveaxis(places[..., :k], -1, axis)
        values, found = ts.jit(lambda x, k=k, axis=axis: xp.top_k(x, k, axis))(x)
        assert np.array_equal(found, want), (shape, axis, k)
        assert np.array_equal(values, np.take_along_axis(x, want, axis), equal_nan=dtype.startswith("float"))


@pytest.mark.parametrize("k", [2, 9, 33])
def test_gradient_of_top_k_goes_to_the_elements_that_were_taken(k):
    x = np.repeat(np.arange(20.0), 2)
    weights = np.arange(1.0, k + 1)
    found = ts.jit(lambda x: xp.top_k(x, k)[1])(x)
    want = np.zeros_like(x)
    want[found] = weights
    assert np.array_equal(ts.jit(ts.grad(lambda x: xp.sum(weights * xp.top_k(x, k)[0])))(x), want)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric", "wrap"])
def test_pad_is_numpys(mode):
    rng, numbers = random.Random(mode), np.random.default_rng(2)

    def pair():
        return rng.randint(0, 7), rng.randint(0, 7)

    for trial in range(40):
        shape = tuple(rng.randint(1, 5) for _ in range(rng.randint(1, 3)))
        x = numbers.standard_normal(shape).astype(np.float32)
        widths = [rng.randint(0, 7), pair(), (pair(),), tuple(pair() for _ in shape)][trial % 4]
        more = {}
        if mode == "constant" and trial % 3:
            more = {"constant_values": 3.0 if trial % 3 == 1 else tuple((float(i), -1.0) for i in range(len(shape)))}
        want = np.pad(x, widths, mode=mode, **more)
        assert np.array_equal(xp.pad(x, widths, mode, **more), want), (shape, widths)
        jitted = ts.jit(lambda x, widths=widths, more=more: xp.pad(x, widths, mode, **more))
        assert np.array_equal(jitted(x), want), (shape, widths)


def test_pad_refuses_what_it_cannot_read():
    for wrong in ({"pad_width": ((1, 2), (3, 4), (5, 6))}, {"pad_width": (1, 2, 3)}):
        with pytest.raises(ts.ShapeError, match="for each of 2 axes"):
            xp.pad(np.ones((2, 2), np.float32), **wrong)
    with pytest.raises(ValueError, match="mode"):
        xp.pad(np.ones(2, np.float32), 1, "ramp")
    with pytest.raises(ts.ShapeError, match="expected elements"):
        xp.pad(np.ones(0, np.float32), 1, "edge")


@pytest.mark.parametrize("n, k", [(1, 1), (5, 3), (40, 8), (40, 9), (30, 30), (300, 101)])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions_keep_infinities_where_they_are(n, k, mode):
    rng = np.random.default_rng(n + k)
    a, v = rng.standard_normal(n), rng.standard_normal(k)
    for broken in (False, True):
        if broken:
            a[n // 2] = np.inf
        for ours, numpys in ((xp.convolve, np.convolve), (xp.correlate, np.correlate)):
            got, want = ts.jit(lambda a, v, f=ours: f(a, v, mode))(a, v), numpys(a, v, mode)
            assert np.allclose(got, want, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_convolution_has_a_gradient():
    rng = np.random.default_rng(3)
    assert ts.gradcheck(lambda a, v: xp.sum(xp.sin(xp.convolve(a, v, "same"))), rng.standard_normal(30), rng.standard_normal(11))


def test_reductions_take_where_and_initial():
    rng = np.random.default_rng(4)
    x, mask = rng.standard_normal((5, 7)).astype(np.float32), rng.random((5, 7)) < 0.5
    mask[0] = mask[:, 0] = True
    for name in ("sum", "prod", "max", "min"):
        ours, numpys = getattr(xp, name), getattr(np, name)
        for axis in (None, 0, 1):
            got = ts.jit(lambda x, m, f=ours, axis=axis: f(x, axis=axis, where=m, initial=0.5))(x, mask)
            assert np.allclose(got, numpys(x, axis=axis, where=mask, initial=0.5), rtol=1e-5), (name, axis)
            assert np.allclose(ours(x, axis=axis, initial=2.0), numpys(x, axis=axis, initial=2.0), rtol=1e-5)
    assert np.allclose(xp.mean(x, axis=0, where=mask), np.mean(x, axis=0, where=mask), rtol=1e-5)
    assert np.array_equal(xp.any(x > 0, axis=1, where=mask), np.any(x > 0, axis=1, where=mask))
    assert np.array_equal(xp.all(x > 0, axis=1, where=mask), np.all(x > 0, axis=1, where=mask))
    assert np.allclose(xp.std(x, axis=0, ddof=1), np.std(x, axis=0, ddof=1), rtol=1e-5)
    assert xp.sum(np.int32([1, 2]), initial=3) == 6 and xp.max(np.int32([1, 2]), initial=3).dtype == np.int32
    with pytest.raises(ValueError, match="initial"):
        xp.max(x, where=mask)


def test_arrays_in_traces_have_numpys_methods():
    x = np.random.default_rng(5).standard_normal((3, 3)).astype(np.float32)
    for name, args in {"sort": (), "argsort": (), "dot": (x,), "repeat": (2,), "diagonal": (), "trace": (), "round": (1,)}.items():
        want = getattr(x.copy(), name)(*args) if name != "sort" else np.sort(x)
        assert np.allclose(ts.jit(lambda v, name=name, args=args: getattr(v, name)(*args))(x), want, atol=1e-6), name
    assert np.array_equal(ts.jit(lambda v: v.nonzero(size=2)[0])(np.float32([0, 5, 0, 6])), [1, 3])
    assert np.allclose(xp.round(np.float32([1.256, -2.5]), 2), [1.26, -2.5])


def test_updates_by_functions():
    x = np.float32([1, 2, 3, 4])
    assert ts.jit(lambda x: x.at[1:3].apply(xp.square))(x).tolist() == [1, 4, 9, 4]
    assert ts.jit(lambda x, i: x.at[i].power(2.0))(x, np.array([3, 9])).tolist() == [1, 2, 3, 16]
    assert ts.jit(lambda x: x.at[0].mul(5.0))(x).tolist() == [5, 2, 3, 4]


def test_activations_are_those_of_their_formulas():
    from tessera import nn

    x = np.linspace(-8, 8, 33)
    sigmoid, softplus = 1 / (1 + np.exp(-x)), np.log1p(np.exp(x))
    wanted = {
        "relu6": np.clip(x, 0, 6), "hard_sigmoid": np.clip(x + 3, 0, 6) / 6, "hard_silu": x * np.clip(x + 3, 0, 6) / 6,
        "hard_tanh": np.clip(x, -1, 1), "log_sigmoid": np.log(sigmoid), "soft_sign": x / (1 + np.abs(x)), "mish": x * np.tanh(softplus),
        "squareplus": (x + np.sqrt(x * x + 4)) / 2, "celu": np.where(x > 0, x, np.expm1(x)), "swish": x * sigmoid,
        "selu": 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
        "standardize": (x - x.mean()) / np.sqrt(x.var() + 1e-5),
    }  # fmt: skip
    for name, want in wanted.items():
        assert np.allclose(ts.jit(getattr(nn, name))(x), want, rtol=1e-12, atol=1e-12), name
        assert ts.gradcheck(lambda v, f=getattr(nn, name): xp.sum(f(v)), x + 0.013), name
    assert np.allclose(nn.glu(x[:32]), x[:16] * sigmoid[16:32])
    with pytest.raises(ts.ShapeError, match="even extent"):
        nn.glu(x)


def test_standardize_has_the_derivatives_of_layernorm():
    x = np.random.default_rng(3).normal(size=(4, 6)).astype(np.float32)
    for fn in (ts.grad(lambda f, v: xp.sum(xp.sin(f(v))), argnums=1), lambda f, v: ts.hvp(lambda u: xp.sum(xp.sin(f(u))), v, v)):
        np.testing.assert_allclose(fn(nn.standardize, x), fn(nn.layernorm, x), rtol=1e-4, atol=1e-5)
