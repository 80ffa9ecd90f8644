"""Products of block-scaled tiles: against exact rational arithmetic at the ends of the scales, and of ragged operands."""

from fractions import Fraction
import warnings

import ml_dtypes
import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts

HOST = {"fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2, "fp4": ml_dtypes.float4_e2m1fn, "bf16": ml_dtypes.bfloat16}


@pytest.fixture(params=["interp", "cpu", "ptx-emulated:sm_80", "ptx-emulated:sm_90a"])
def everywhere(request, monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", request.param)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.TesseraWarning)
        yield request.param


def product(element, scale, block, blocks=1):
    return load(f"""
@ts.kernel
def k(a: ts.Tensor[16, {block * blocks}, ts.{element}], sa: ts.Tensor[16, {blocks}, ts.{scale}],
      b: ts.Tensor[{block * blocks}, 16, ts.{element}], sb: ts.Tensor[{blocks}, 16, ts.{scale}], c: ts.Out[16, 16, ts.f32]):
    ts.tile.grid(1)
    c[...] = ts.tile.mma_scaled(a[...], sa[...], b[...], sb[...])
    return c
""")["k"]


def nearest(x):
    """An exact number as f32: one that f64 has, so that it is rounded once."""
    assert Fraction(float(x)) == x
    with np.errstate(over="ignore", under="ignore"):
        return np.float32(float(x))


def run(profile, k, *args):
    with ts.numerics.profile(profile):
        return np.asarray(k(*args))


#: (element, scale, block)
KINDS = [("fp8_e4m3", "e8m0", 32), ("fp8_e5m2", "e8m0", 32), ("fp4", "e8m0", 32), ("bf16", "e8m0", 32), ("fp4", "fp8_e4m3", 16)]


@pytest.mark.parametrize("element,scale,block", KINDS, ids=str)
def test_a_block_is_scaled_exactly_and_rounded_once(everywhere, element, scale, block):
    """Every pair of extreme scales, in both orders: overflow, subnormal numbers and ties as of the true number."""
    seed = 11
    print("seed", seed)
    rng = np.random.default_rng(seed)
    k = product(element, scale, block)
    ends = [0, 1, 2, 62, 63, 64, 65, 100, 120, 126, 127, 128, 150, 188, 189, 190, 191, 192, 200, 253, 254]
    for draw in range(6):
        a, b = np.zeros((16, block), HOST[element]), np.zeros((block, 16), HOST[element])
        # One or two products a block: their sums are exact.
        for j in rng.choice(block, 1 if element == "bf16" else 2, replace=False):
            bits = [rng.integers(0, 2 ** (8 * a.itemsize) if element != "fp4" else 16, 16) for _ in range(2)]
            for tile, codes in zip((a[:, j : j + 1].T, b[j : j + 1]), bits):
                drawn = codes.astype(np.uint16 if element == "bf16" else np.uint8).view(HOST[element])
                drawn[~np.isfinite(drawn.astype(np.float32))] = 1.0
                tile[...] = drawn if element != "bf16" else (rng.standard_normal(16) * 2.0 ** rng.integers(-60, 60, 16)).astype(HOST[element])
        if scale == "e8m0":
            codes = [rng.choice(ends, 16).astype(np.uint8), rng.choice(ends, 16).astype(np.uint8)]
            if draw == 0:  # the largest times the smallest, and the reverse
                codes = [np.repeat(np.uint8([254, 0]), 8), np.tile(np.uint8([0, 254]), 8)]
            sa, sb = (c.view(ml_dtypes.float8_e8m0fnu) for c in codes)
            powers = [[Fraction(2) ** (int(c) - 127) for c in side] for side in codes]
        else:
            sa, sb = (rng.choice(np.float32([2**-9, 448, 1.125, 2**-6, 0, 3.5, 240]), 16).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
            powers = [[Fraction(float(s)) for s in side] for side in (sa, sb)]
        exact = [[sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j])) for j in range(16)] for i in range(16)]
        fits = np.array([[Fraction(float(np.float32(float(s)))) == s and abs(s) < 2**127 for s in row] for row in exact])
        assert fits.mean() > 0.2
        wanted = np.array([[nearest(s * powers[0][i] * powers[1][j]) if fits[i, j] else 0 for j, s in enumerate(row)] for i, row in enumerate(exact)], np.float32)
        given = (ts.array(a.astype(np.float32), element), ts.array(sa.astype(np.float32).reshape(16, 1), scale),
                 ts.array(b.astype(np.float32), element), ts.array(sb.astype(np.float32).reshape(1, 16), scale))  # fmt: skip
        got = run("strict", k, *given)
        np.testing.assert_array_equal(got[fits], wanted[fits])
        # The default profile: within one rounding of subnormal numbers, and the same infinities.
        loose = run("default", k, *given)
        np.testing.assert_allclose(loose[fits], wanted[fits], rtol=1e-6, atol=2.0**-149)


QUANTIZED = """
@ts.kernel
def k(A: ts.Tensor[16, 32, ts.f32], B: ts.Tensor[32, 16, ts.f32], c: ts.Out[16, 16, ts.f32]):
    ts.tile.grid(1)
    a, sa = ts.tile.quantize(A[...], "mxfp8_e4m3")
    b, sb = ts.tile.quantize(B[...], "mxfp8_e4m3", axis=0)
    c[...] = ts.tile.mma_scaled(a, sa, b, sb)
    return c
"""


@pytest.mark.parametrize("large,small", [(1e36, 1e-30), (1e38, 1e-38), (3e38, 1e-40)])
def test_neither_operand_overflows_by_itself(everywhere, large, small):
    quantized = load(QUANTIZED)["k"]
    one, other = np.full((16, 32), large, np.float32), np.full((32, 16), small, np.float32)
    there, back = quantized(one, other), quantized(other.T.copy(), one.T.copy())
    assert np.isfinite(there).all() and (there == back).all()
    assert np.allclose(there, 32 * large * small, rtol=0.3)


def test_a_scale_that_is_nan(everywhere):
    k = product("fp8_e4m3", "e8m0", 32)
    sa = np.ones((16, 1), np.float32)
    sa[3] = np.nan
    ones = [ts.array(np.ones(s), "fp8_e4m3") for s in ((16, 32), (32, 16))]
    got = np.asarray(k(ones[0], ts.array(sa, "e8m0"), ones[1], ts.array(np.full((1, 16), 2.0**127), "e8m0")))
    assert np.isnan(got[3]).all() and np.isposinf(np.delete(got, 3, 0)).all()


@pytest.mark.parametrize("fmt", ["mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp4", "nvfp4"])
def test_ragged_tiles_that_are_quantized_need_no_mask(everywhere, fmt):
    extra = ", tensor_scale=1.0" if fmt == "nvfp4" else ""
    k = load(f"""
@ts.kernel
def k(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Out["M", "N", ts.f32]):
    m, n = ts.tile.program_id(0) * 16, ts.tile.program_id(1) * 16
    acc = ts.tile.zeros((16, 16))
    for k in range(0, K, 32):
        a, sa = ts.tile.quantize(A[m:m + 16, k:k + 32], {fmt!r}{extra})
        b, sb = ts.tile.quantize(B[k:k + 32, n:n + 16], {fmt!r}, axis=0{extra})
        acc = ts.tile.mma_scaled(a, sa, b, sb, accumulator=acc)
    C[m:m + 16, n:n + 16] = acc
    return C
""")["k"]
    rng = np.random.default_rng(5)
    for M, K, N in ((16, 32, 16), (17, 50, 20), (1, 1, 1), (5, 100, 3)):
        A, B = rng.standard_normal((M, K)).astype(np.float32), rng.standard_normal((K, N)).astype(np.float32)
        got = np.asarray(k(A, B))
        # As of whole tiles with zeros.
        whole = [np.pad(x, [(0, -n % 32) for n in x.shape]) for x in (A, B)]
        np.testing.assert_array_equal(got, np.asarray(k(*whole))[:M, :N])
        if fmt != "nvfp4":  # which here has a scale of one for the tensor
            a, b = (ts.numerics.dequantize(ts.numerics.quantize(x, fmt, axis=axis)).astype(np.float64) for x, axis in ((A, 1), (B, 0)))
            np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-5)


def test_sums_of_dequantized_ragged_tiles(everywhere):
    k = load("""
@ts.kernel
def k(x: ts.Tensor["M", "K", ts.f32], s: ts.Out["M", ts.f32]):
    m = ts.tile.program_id(0) * 4
    data, scales = ts.tile.quantize(x[m:m + 4, 0:64], "mxfp8_e4m3")
    s[m:m + 4] = ts.tile.sum(ts.tile.dequantize(data, scales), axis=1)
    return s
""")["k"]
    assert k(np.ones((5, 40), np.float32)).tolist() == [40] * 5


#: What is wrong, and what the message and the help say.
WRONG = [
    ("fp8_e4m3", "(16, 2)", "e8m0", "fp4", "(4, 16)", "fp8_e4m3", "E_UNSUPPORTED_DTYPE", "`a` in an mx format", "quantize both"),
    ("fp8_e4m3", "(16, 2)", "e8m0", "fp8_e4m3", "(16, 2)", "e8m0", "E_SHAPE_MISMATCH", "`scale_b` has 2 columns", "transpose `scale_b`: `sb[...].T`"),
    ("fp8_e4m3", "(2, 16)", "e8m0", "fp8_e4m3", "(2, 16)", "e8m0", "E_SHAPE_MISMATCH", "`scale_a` has 2 rows", "transpose `scale_a`: `sa[...].T`"),
    ("fp8_e4m3", "(16, 2)", "f32", "fp8_e4m3", "(2, 16)", "f32", "E_UNSUPPORTED_DTYPE", "`scale_a` of e8m0", "ts.tile.mma"),
    ("i8", "(16, 2)", "e8m0", "i8", "(2, 16)", "e8m0", "E_TYPE", "got i8", "ts.tile.quantize"),
]


@pytest.mark.parametrize("case", WRONG, ids=lambda c: f"{c[0]}-{c[2]}-{c[4]}-{c[5]}")
def test_operands_that_do_not_fit(case):
    a, sa, da, b, sb, db, code, message, help = case
    with pytest.raises(ts.TesseraError) as caught:
        load(f"""
@ts.kernel
def k(a: ts.Tensor[16, 64, ts.{a}], sa: ts.Tensor[{sa[1:-1]}, ts.{da}], b: ts.Tensor[64, 16, ts.{b}], sb: ts.Tensor[{sb[1:-1]}, ts.{db}], c: ts.Out[16, 16, ts.f32]):
    ts.tile.grid(1)
    c[...] = ts.tile.mma_scaled(a[...], sa[...], b[...], sb[...])
""")
    assert caught.value.code == code and message in str(caught.value) and help in str(caught.value)


def test_the_warning_names_no_dtype_that_a_mask_made():
    with pytest.warns(ts.TesseraWarning, match="block-scaled tiles is computed block by block"):
        load("""
@ts.kernel
def k(A: ts.Tensor[16, 32, ts.f32], B: ts.Tensor[32, 16, ts.f32], C: ts.Out[16, 16, ts.f32]):
    ts.tile.grid(1)
    a, sa = ts.tile.quantize(A[...], "mxfp8_e4m3")
    b, sb = ts.tile.quantize(B[...], "mxfp8_e4m3", axis=0)
    C[...] = ts.tile.mma_scaled(ts.tile.bounds_mask(a, cols=20, value=0.0), sa, ts.tile.bounds_mask(b, rows=20, value=0.0), sb)
""")
