"""Special functions against values in 50 digits (`xp_special_values.py`): the bounds of their docstrings, and their derivatives."""

from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera import xp

KEPT = np.load(Path(__file__).with_name("xp_special.npz"))
#: Function and bound in ulp of f64.
BOUNDS = {
    "lgamma": (xp.lgamma, 4), "digamma": (xp.digamma, 4), "polygamma_1": (lambda x: xp.polygamma(1, x), 8),
    "polygamma_3": (lambda x: xp.polygamma(3, x), 8), "erfinv": (xp.erfinv, 4), "i0": (xp.i0, 8), "sinc": (xp.sinc, 4),
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds(name):
    fn, ulp = BOUNDS[name]
    x, want = KEPT[name]
    for got in (fn(x), ts.jit(fn)(x)):
        off = np.abs(np.asarray(got) - want) / np.spacing(np.abs(want))
        assert off.max() <= ulp, (x[off.argmax()], np.asarray(got)[off.argmax()], want[off.argmax()])


@pytest.mark.parametrize(("name", "fn"), [("lgamma_below", xp.lgamma), ("digamma_below", xp.digamma)])
def test_bounds_below_zero(name, fn):
    x, want = KEPT[name]
    np.testing.assert_array_less(np.abs(np.asarray(fn(x)) - want), 4e-15 * np.maximum(1, np.abs(want)) * (1 if name == "lgamma_below" else 4))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["lgamma", "digamma", "erfinv"])
def test_narrow_floats_are_rounded_once(name, dtype):
    import ml_dtypes

    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.linspace(-0.97, 0.97, 33) if name == "erfinv" else np.linspace(0.06, 19.0, 77)
    x = x.astype(np.float32).astype(kind)
    fn = BOUNDS[name][0]
    got = np.asarray(fn(x))
    assert got.dtype == kind
    np.testing.assert_array_equal(got.astype(np.float32), np.asarray(fn(x.astype(np.float64))).astype(kind).astype(np.float32))


#: Numbers of every size that f32 has, around integers, zeros and the ends of branches.
def _many(name):
    rng = np.random.default_rng(5)
    near = np.concatenate([np.float32(c) + np.float32(2.0) ** -np.arange(1, 24) * s for c in (0, 0.5, 1, 1.4616321, 1.5, 2, 2.5, 8, 10, -0.5, -2.457024, -5.0, -0.504083) for s in (1, -1)])
    if name == "erfinv":
        edges = 1 - np.float32(2.0) ** -np.arange(1, 25)
        return np.concatenate([rng.uniform(-1, 1, 200_000), edges, -edges, [0.75, -0.75], 10.0 ** rng.uniform(-38, 0, 1000)]).astype(np.float32)
    return np.concatenate([rng.uniform(-60, 60, 200_000), 10.0 ** rng.uniform(-37, 37, 50_000), near]).astype(np.float32)


@pytest.mark.parametrize("name", ["lgamma", "digamma", "erfinv"])
def test_f32_against_f64(name):
    """Within half an ulp plus the difference of two algorithms: the series for narrow floats and the functions of f64."""
    x, fn = _many(name), BOUNDS[name][0]
    got, want = np.asarray(fn(x)).astype(np.float64), np.asarray(fn(x.astype(np.float64)))
    with np.errstate(over="ignore"):
        ends = want.astype(np.float32)
    assert (np.isnan(got) == np.isnan(want)).all() and (np.isinf(got) == np.isinf(ends)).all()
    ok = np.isfinite(ends)
    off = np.abs(got[ok] - want[ok]) / np.spacing(np.abs(ends[ok])).astype(np.float64)
    assert off.max() < 0.505, (x[ok][off.argmax()], off.max())
    with ts.runtime.oracle():
        few = x[:: len(x) // 500]
        np.testing.assert_array_equal(np.asarray(fn(few)), got[:: len(x) // 500].astype(np.float32))


def test_edges():
    inf, nan = np.inf, np.nan
    x = np.float32([0.0, -0.0, -1.0, -2.0, inf, -inf, nan, 1.0, 2.0])
    np.testing.assert_array_equal(xp.lgamma(x), np.float32([inf, inf, inf, inf, inf, inf, nan, 0, 0]))
    np.testing.assert_array_equal(np.asarray(xp.digamma(x))[:7], np.float32([-inf, inf, nan, nan, inf, nan, nan]))
    np.testing.assert_array_equal(np.asarray(xp.polygamma(1, x))[[2, 4, 6]], np.float32([inf, 0, nan]))
    np.testing.assert_array_equal(xp.erfinv(np.float32([1, -1, 2, nan, 0])), np.float32([inf, -inf, nan, nan, 0]))
    np.testing.assert_array_equal(xp.i0(np.float32([inf, -inf, nan, 0])), np.float32([inf, inf, nan, 1]))
    assert np.asarray(xp.gammaln(np.int32([5]))).dtype == np.float32
    np.testing.assert_allclose(xp.gammaln(np.int32([5])), np.log([24.0]), rtol=1e-7)
    assert xp.lgamma(np.zeros((2, 0), np.float32)).shape == (2, 0)


def test_derivatives():
    x = np.array([0.1, 0.5, 0.99, 1.0, 1.4616321449683622, 1.5, 2.0, 2.5, 7.9, 8.0, 30.0, -0.3, -2.6])
    np.testing.assert_allclose(ts.grad(lambda x: xp.sum(xp.lgamma(x)))(x), xp.digamma(x), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(ts.grad(lambda x: xp.sum(xp.digamma(x)))(x), xp.polygamma(1, x), rtol=1e-14)
    above = x[x > 0]
    np.testing.assert_allclose(ts.grad(lambda x: xp.sum(xp.polygamma(1, x)))(above), xp.polygamma(2, above), rtol=1e-12)
    second = ts.grad(lambda x: xp.sum(ts.grad(lambda v: xp.sum(xp.lgamma(v)))(x)))(x)
    np.testing.assert_allclose(second, xp.polygamma(1, x), rtol=1e-13)
    third = ts.grad(lambda x: xp.sum(ts.grad(lambda v: xp.sum(xp.digamma(v)))(x)))(above)
    np.testing.assert_allclose(third, xp.polygamma(2, above), rtol=1e-12)
    # Through the value too: (lgamma²)'' = 2 (digamma² + lgamma trigamma).
    squared = ts.grad(lambda x: xp.sum(ts.grad(lambda v: xp.sum(xp.lgamma(v) ** 2))(x)))(above)
    want = 2 * (np.asarray(xp.digamma(above)) ** 2 + np.asarray(xp.lgamma(above)) * np.asarray(xp.polygamma(1, above)))
    np.testing.assert_allclose(squared, want, rtol=1e-10)
    y = np.array([-0.999, -0.75, 0.0, 1e-5, 0.3, 0.76, 0.9999999])
    e = np.asarray(xp.erfinv(y))
    np.testing.assert_allclose(ts.grad(lambda x: xp.sum(xp.erfinv(x)))(y), np.sqrt(np.pi) / 2 * np.exp(e * e), rtol=1e-13)
    np.testing.assert_allclose(ts.jvp(lambda x: xp.erfinv(x), (y,), (np.ones(7),))[1], np.sqrt(np.pi) / 2 * np.exp(e * e), rtol=1e-13)


def test_under_vmap_and_jit():
    x = np.linspace(0.2, 9.0, 12).reshape(3, 4)
    got = ts.jit(ts.vmap(ts.grad(lambda v: xp.sum(xp.lgamma(v)))))(x)
    np.testing.assert_allclose(got, xp.digamma(x), rtol=1e-14)


def test_an_order_that_is_no_number_is_refused():
    with pytest.raises(ts.TesseraError, match="Python int") as caught:
        xp.polygamma(-1, np.ones(3))
    assert caught.value.code == "E_ARGUMENT"


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("name", ["asinh", "acosh"])
def test_inverse_hyperbolic_functions_of_large_numbers(name, dtype):
    most = float(np.finfo(dtype).max)
    x = np.array([1.5, 100, 127, 129, 255, 300, 8191, 8193, most / 8, most, np.inf], dtype)
    x = x[x > 0]
    reference = getattr(np, f"arc{name[1:]}")
    bound = 4 * float(np.finfo(dtype).eps)
    for sign in (1, -1) if name == "asinh" else (1,):
        got = np.asarray(getattr(xp, name)(sign * x)).astype(np.float64)
        np.testing.assert_allclose(got, reference(sign * x.astype(np.float64)), rtol=bound)
    slope = np.asarray(ts.grad(lambda v: xp.sum(getattr(xp, name)(v)))(x[:8])).astype(np.float64)
    wide = x[:8].astype(np.float64)
    np.testing.assert_allclose(slope, 1 / np.sqrt(wide * wide + (1 if name == "asinh" else -1)), rtol=4 * bound)
