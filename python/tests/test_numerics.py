"""Profiles, codes against `ml_dtypes`, and block formats."""

import threading

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from kernels import saxpy

N = ts.numerics
SMALL = ["bf16", "f16", "fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1", "e8m0"]
#: Formats without NaN: `ml_dtypes` gives a zero for one, we the largest value.
NO_NAN = ("fp6_e3m2", "fp6_e2m3", "fp4_e2m1")


def numpy_type(name):
    of = ts.dtype(name).numpy_name
    return np.dtype(getattr(ml_dtypes, of, None) or of)


def every_code(name):
    return np.arange(2 ** ts.dtype(name).bits).astype("u2" if ts.dtype(name).itemsize == 2 else "u1")


def agree(name, x):
    """Our codes, not saturating where theirs do not, against theirs."""
    x = x[~np.isnan(x)] if name in NO_NAN else x
    if name == "e8m0":
        # Zero and negative numbers have none: theirs is NaN, ours the smallest. Below 2^-126 theirs
        # does not round to the nearest, and it takes ties up, ours to the even code.
        x = x[(x >= 2.0**-126) & (np.frexp(x)[0] != 0.75)]
    ours = N.encode(x, name, saturate=name in NO_NAN)
    with np.errstate(all="ignore"):
        theirs = x.astype(numpy_type(name)).view(ours.dtype)
    a, b = N.decode(ours, name), N.decode(theirs, name)
    same = (ours == theirs) | (np.isnan(a) & np.isnan(b))
    wrong = np.flatnonzero(~same)
    assert wrong.size == 0, (name, x[wrong[:5]], ours[wrong[:5]], theirs[wrong[:5]])


@pytest.mark.parametrize("name", SMALL)
def test_every_code_decodes_as_ml_dtypes_has_it(name):
    codes = every_code(name)
    ours, theirs = N.decode(codes, name), codes.view(numpy_type(name)).astype(np.float32)
    assert ours.dtype == np.float32
    assert ((ours == theirs) & (np.signbit(ours) == np.signbit(theirs)) | np.isnan(ours) & np.isnan(theirs)).all()


@pytest.mark.parametrize("name", SMALL)
def test_every_half_value_every_code_and_every_tie_encodes_as_ml_dtypes_does(name):
    everything = [N.decode(np.arange(2**16).astype("u2"), half) for half in ("f16", "bf16")]
    own = np.unique(N.decode(every_code(name), name))
    own = own[np.isfinite(own)].astype(np.float64)
    middle = ((own[1:] + own[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middle, np.float32(s) * np.float32(np.inf)) for s in (-1, 1)]
    agree(name, np.concatenate([*everything, own.astype(np.float32), middle, *near]))


def test_ten_million_random_floats_encode_as_ml_dtypes_does():
    x = np.random.default_rng(0).integers(0, 2**32, 10_000_000, dtype=np.uint32).view(np.float32)
    # Random bits rarely fall into the narrow formats' range.
    narrow = np.random.default_rng(1).standard_normal(2_000_000).astype(np.float32) * 8
    for name in SMALL:
        agree(name, x)
        agree(name, narrow)


def test_rounding_and_saturation_can_be_chosen():
    x = [1.0625, -1.0625, 1000.0, -1000.0]
    values = lambda **how: N.decode(N.encode(x, "fp8_e4m3", **how), "fp8_e4m3").tolist()
    assert values() == [1.0, -1.0, 448.0, -448.0]
    assert values(round="up") == [1.125, -1.0, 448.0, -448.0]
    assert values(round="down") == [1.0, -1.125, 448.0, -448.0]
    assert values(round="rtz")[:2] == [1.0, -1.0]
    assert np.isnan(values(saturate=False)[2:]).all()
    # Rounded once from f64: by way of f32 this would be the tie.
    assert N.decode(N.encode(np.float64(1.0625 + 2**-40), "fp8_e4m3"), "fp8_e4m3") == 1.125
    assert N.encode(1.0, "bf16").shape == () and N.encode(np.ones((2, 0)), "bf16").shape == (2, 0)
    with pytest.raises(ts.LaunchError, match="rne, rtz, up, down"):
        N.encode([1.0], "bf16", round="stochastic")
    with pytest.raises(ts.KernelTypeError, match="codes of 2 bytes"):
        N.decode(np.zeros(3, np.uint8), "bf16")


def test_integers_have_codes_too():
    assert N.encode([-1, 7, 9], "i4").tolist() == [15, 7, 9]
    assert N.encode([-1, 7, 9], "i4", saturate=True).tolist() == [15, 7, 7]
    assert N.decode(np.array([15, 7, 9], np.uint8), "i4").tolist() == [-1, 7, -7]
    assert N.encode(np.array([2**64 - 1], np.uint64), "u64").tolist() == [2**64 - 1]
    assert N.decode(N.encode([-5], "i16"), "i16").dtype == np.int16


@pytest.mark.parametrize("fmt", list(N.FORMATS))
def test_blocks_keep_values_that_the_format_holds(fmt):
    element, scale, block = N.FORMATS[fmt]
    codes = np.arange(2 ** ts.dtype(element).bits).astype(np.uint8)
    own = N.decode(codes, element)
    own = own[np.isfinite(own)]
    # The largest value in each block makes its scale 1.
    own = np.stack([np.full(own.size, own.max()), own], 1)
    q = N.quantize(own, fmt)
    assert q.format == fmt and q.data.shape == own.shape and q.scales.shape == (own.shape[0], 1)
    assert q.data.dtype == numpy_type(element) and q.scales.dtype == numpy_type(scale)
    assert (q.tensor_scale is not None) == (fmt == "nvfp4")
    data, scales, tensor_scale = q
    assert data is q.data and scales is q.scales and tensor_scale == q.tensor_scale
    back = N.dequantize(q)
    assert back.dtype == np.float32 and np.allclose(back, own, rtol=1e-6)


def test_blocks_run_along_any_axis_and_the_last_may_be_short():
    x = np.random.default_rng(2).standard_normal((50, 3, 2)).astype(np.float32)
    q = N.quantize(x, "mxfp8_e4m3", axis=0)
    assert q.scales.shape == (2, 3, 2)
    assert np.abs(N.dequantize(q) - x).max() < 0.25
    last = N.quantize(np.moveaxis(x, 0, -1), "mxfp8_e4m3")
    assert (np.moveaxis(N.dequantize(last), -1, 0) == N.dequantize(q)).all()
    # By hand: floor(log2(amax)) - emax.
    block = np.abs(x[:32, 0, 0]).max()
    assert q.scales[0, 0, 0].astype(np.float32) == 2.0 ** (np.floor(np.log2(block)) - 8)


def test_blocks_of_zero_infinity_and_nan():
    x = np.zeros((3, 32), np.float32)
    x[1, 0], x[2, 0] = np.inf, np.nan
    back = N.dequantize(N.quantize(x, "mxfp8_e4m3"))
    assert (back[0] == 0).all() and np.isfinite(back[1]).all() and np.isnan(back[2]).all()


def test_block_arguments_are_checked():
    with pytest.raises(ts.KernelTypeError, match="mxfp4"):
        N.quantize([1.0], "mxfp3")
    with pytest.raises(ts.ShapeError, match="rank 1"):
        N.quantize(1.0, "mxfp4")
    q = N.quantize(np.ones(64), "mxfp4")
    with pytest.raises(ts.ShapeError, match="scales of shape"):
        N.dequantize(N.Quantized(q.data, q.scales[:1]))
    with pytest.raises(ts.KernelTypeError, match="expected the dtypes of a block format, got elements of f32 with scales of f32"):
        N.dequantize(N.Quantized(np.ones(64, np.float32), np.ones(2, np.float32)))
    with pytest.raises(AttributeError):
        q.data = q.scales


def test_blocks_are_along_the_last_axis_where_none_is_named():
    q = N.quantize(np.arange(1.0, 129.0).reshape(2, 64), "mxfp8_e4m3")
    assert q.axis == -1 and q.scales.shape == (2, 2)
    assert N.dequantize(N.Quantized(q.data, q.scales)).tolist() == N.dequantize(q).tolist()


def test_truth_values_have_codes():
    assert N.encode([False, True, True], "bool").tolist() == [0, 1, 1]
    got = N.decode(np.array([0, 1, 0, 1], np.uint8), "bool")
    assert got.dtype == bool and got.tolist() == [False, True, False, True]


def test_unsigned_integers_of_64_bits_are_not_negative():
    top = np.array([2**63, 2**64 - 1, 5], np.uint64)
    assert N.decode(N.encode(top, "i64", saturate=True), "i64").tolist() == [2**63 - 1, 2**63 - 1, 5]
    assert N.decode(N.encode(top, "f32"), "f32").tolist() == [2.0**63, 2.0**64, 5.0]
    assert N.encode(np.array([2**32 - 1], np.uint32), "i8", saturate=True).tolist() == [127]
    assert N.encode(np.array([-1], np.int64), "u8", saturate=True).tolist() == [0]


def test_the_profile_is_reported_set_and_scoped():
    assert N.profile() == "default"
    with N.profile("strict") as p:
        assert p == "strict" == N.profile()
        with N.profile("deterministic"):
            assert N.profile() == "deterministic"
        seen = []
        other = threading.Thread(target=lambda: seen.append(N.profile()))
        other.start(), other.join()
        assert N.profile() == "strict" and seen == ["default"]
    assert N.profile() == "default"
    N.profile("deterministic")
    try:
        assert N.profile() == "deterministic"
        with N.profile("default"):  # the first of them, not that of the process
            assert N.profile() == "default"
        assert N.profile() == "deterministic"
    finally:
        N.profile("default")
    with pytest.raises(ts.LaunchError, match="default, deterministic, strict"):
        N.profile("fast")


def test_the_profile_is_part_of_what_is_compiled():
    x = np.ones(4, np.float32)
    saxpy.cache_clear()
    saxpy(x, x.copy(), 1.0)
    assert saxpy.explain().profile == "default" and not saxpy.explain().cache_hit
    with N.profile("strict"):
        saxpy(x, x.copy(), 1.0)
        assert saxpy.explain().profile == "strict" and not saxpy.explain().cache_hit
        compiled = saxpy.jit()
    compiled(x, x.copy(), 1.0)
    assert saxpy.explain().profile == "strict"
    saxpy(x, x.copy(), 1.0)
    assert saxpy.explain().profile == "default" and saxpy.explain().cache_hit


@ts.kernel
def histogram(x: ts.Tensor["n", ts.f32], y: ts.Tensor["m", ts.f32], z: ts.Tensor["m", ts.i32]):
    i = ts.tile.linear_id()
    if i < n:
        ts.tile.atomic_add(z[0], 1)
        ts.tile.atomic_add(y[0], x[i])


def test_atomic_sums_of_floats_are_refused_where_the_same_bits_are_promised():
    x, y, z = np.ones(4, np.float32), np.zeros(1, np.float32), np.zeros(1, np.int32)
    histogram(x, y, z)
    assert y[0] == 4 == z[0]
    for name in ("deterministic", "strict"):
        with N.profile(name), pytest.raises(ts.TesseraError) as e:
            histogram(x, y, z)
        assert e.value.code == "E_NONDETERMINISTIC" and "x[i]" in str(e.value) and len(e.value.diagnostics) == 1
    assert y[0] == 4
