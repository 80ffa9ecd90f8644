"""Packed arrays of 4-bit elements, and block formats of tiles."""

import warnings

import ml_dtypes
import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts

RNG = np.random.default_rng(3)


@pytest.fixture(params=["interp", "cpu", "ptx-emulated:sm_80", "ptx-emulated:sm_90a"])
def everywhere(request, monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", request.param)
    return request.param


def packed(codes):
    """Two codes a byte; a last one alone leaves the high half zero."""
    codes = np.asarray(codes, np.uint8)
    if codes.shape[-1] % 2:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], 1), np.uint8)], -1)
    return codes[..., ::2] | codes[..., 1::2] << 4


def drawn(shape):
    """Codes, and the numbers that they are in fp4."""
    codes = RNG.integers(0, 16, shape).astype(np.uint8)
    return codes, codes.view(ml_dtypes.float4_e2m1fn).astype(np.float32)


# Packed arrays


@ts.kernel
def unpack(x: ts.Tensor["M", "K", "fp4 @packed"], y: ts.Out["M", "K", ts.f32]):
    m = ts.tile.program_id(0) * 4
    k = ts.tile.program_id(1) * 16
    y[m : m + 4, k : k + 16] = ts.tile.cast(x[m : m + 4, k : k + 16], ts.f32)
    return y


@ts.kernel
def pack(y: ts.Tensor["M", "K", ts.f32], x: ts.Out["M", "K", "fp4 @packed"]):
    m = ts.tile.program_id(0) * 4
    k = ts.tile.program_id(1) * 16
    x[m : m + 4, k : k + 16] = y[m : m + 4, k : k + 16]
    return x


@pytest.mark.parametrize("shape", [(8, 32), (1, 1), (5, 20), (7, 37), (0, 4), (3, 0)], ids=str)
def test_slices_of_packed_arrays(everywhere, shape):
    codes, values = drawn(shape)
    held = packed(codes)
    if shape[1] % 2:
        held[:, -1] |= 0x70  # no element: it is never read
    np.testing.assert_array_equal(unpack(held, y=np.zeros(shape, np.float32)), values)
    # Zeros have one code after arithmetic, and the high half of an odd last byte is zero.
    np.testing.assert_array_equal(pack(values), packed(values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)))


@ts.kernel
def odd(x: ts.Tensor[3, 5, "i4 @packed"], y: ts.Out[3, 5, "i4 @packed"], z: ts.Out[3, 5, ts.i32]):
    ts.tile.grid(1)
    t = x[...]
    z[...] = ts.tile.cast(t, ts.i32)
    y[...] = t
    return y, z


def test_whole_arrays_of_an_odd_extent(everywhere):
    codes, _ = drawn((3, 5))
    y, z = odd(packed(codes))
    np.testing.assert_array_equal(y, packed(codes))
    np.testing.assert_array_equal(z, (codes.astype(np.int8) << 4 >> 4).astype(np.int32))


@ts.kernel
def by_lane(x: ts.Tensor["M", "K", "fp4 @packed"], y: ts.Out["M", "K", ts.f32]):
    i = ts.tile.linear_id()
    if i < M * K:
        y[i // K, i % K] = ts.tile.cast(x[i // K, i % K], ts.f32)
    return y


@ts.kernel
def by_position(x: ts.Tensor["M", "K", "fp4 @packed"], ids: ts.Tensor[8, ts.i32], y: ts.Out["M", 8, ts.f32], z: ts.Out["M", 8, ts.f32]):
    m = ts.tile.program_id(0)
    y[m, :] = ts.tile.cast(x[m, ids[:]], ts.f32)
    z[m, :] = ts.tile.cast(ts.tile.load(x, (m, ids[:]), other=6.0), ts.f32)
    return y, z


@ts.kernel
def in_a_loop(x: ts.Tensor["M", "K", "fp4 @packed"], total: ts.Out["M", ts.f32], column: ts.Out["M", ts.f32]):
    m = ts.tile.program_id(0) * 4
    acc = ts.tile.zeros((4,), ts.f32)
    for k in ts.tile.range(0, K, 6):
        acc += ts.tile.sum(ts.tile.cast(x[m : m + 4, k : k + 6], ts.f32), axis=1)
    total[m : m + 4] = acc
    column[m : m + 4] = x[m : m + 4, 3] * 1.0
    return total, column


@ts.kernel
def in_place(x: ts.Tensor["K", "fp4 @packed"]):
    k = ts.tile.program_id(0) * 8
    x[k : k + 8] += 1.0
    return x


@ts.kernel
def transposed(x: ts.Tensor["M", "K", "fp4 @packed"], y: ts.Out["K", "M", ts.f32]):
    k = ts.tile.program_id(0) * 8
    y[k : k + 8, :] = ts.tile.cast(x.T[k : k + 8, :], ts.f32)
    return y


@ts.kernel
def through_shared(x: ts.Tensor["K", "fp4 @packed"], y: ts.Out["K", ts.f32]):
    k = ts.tile.program_id(0) * 8
    buffer = ts.tile.alloc_shared((8,), ts.fp4)
    ts.tile.cp_async(buffer, x[k : k + 8])
    y[k : k + 8] = ts.tile.cast(buffer, ts.f32)
    return y


@ts.kernel
def with_origins(x: ts.Tensor["M", "K", "fp4 @packed"], y: ts.Out["M", "K", ts.f32]):
    y[tile_m : tile_m + 2, tile_k : tile_k + 8] = ts.tile.cast(x[tile_m : tile_m + 2, tile_k : tile_k + 8], ts.f32)
    return y


def test_other_ways_to_read_packed_arrays(everywhere):
    codes, values = drawn((5, 14))
    held = packed(codes)
    np.testing.assert_array_equal(by_lane(held), values)
    ids = np.array([0, 1, 2, 13, 7, -1, 14, 3], np.int32)
    inside = (ids >= 0) & (ids < 14)
    y, z = by_position(held, ids)
    np.testing.assert_array_equal(y, np.where(inside, values[:, np.where(inside, ids, 0)], 0))
    np.testing.assert_array_equal(z, np.where(inside, values[:, np.where(inside, ids, 0)], 6))
    total, column = in_a_loop(held)
    np.testing.assert_array_equal(total, values.sum(1))
    np.testing.assert_array_equal(column, values[:, 3])
    np.testing.assert_array_equal(transposed(held), values.T)
    np.testing.assert_array_equal(through_shared(held[0]), values[0])
    np.testing.assert_array_equal(with_origins(held), values)
    want = (values[0] + 1).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(in_place(held[0].copy()), packed(want))


def test_packed_arrays_inside_jit():
    codes, values = drawn((6, 16))
    np.testing.assert_array_equal(ts.jit(lambda x: unpack(x))(packed(codes)), values)
    again = np.asarray(ts.jit(lambda y: pack(y))(values))
    np.testing.assert_array_equal(again, packed(values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)))


def test_strides_of_packed_arrays(everywhere):
    codes, values = drawn((6, 32))
    held = packed(codes)[::2, ::-1]
    want = np.stack([values[::2, ::2][:, ::-1], values[::2, 1::2][:, ::-1]], -1).reshape(3, 32)
    np.testing.assert_array_equal(unpack(held), want)


SIZES = [((3, 4), (3, 6)), ((3, 4), (3, 5)), ((4, 4), (3, 7))]


@pytest.mark.parametrize("have,wanted", SIZES)
def test_sizes_of_packed_arrays_that_do_not_agree(have, wanted):
    with pytest.raises(ts.TesseraError) as caught:
        unpack(np.zeros(have, np.uint8), y=np.zeros(wanted, np.float32))
    assert caught.value.code == "E_LAUNCH_INVALID_SHAPE" and caught.value.help


def test_packed_arrays_are_bytes():
    with pytest.raises(ts.TesseraError) as caught:
        unpack(np.zeros((2, 4), np.int32))
    assert caught.value.code == "E_TYPE" and "fp4_e2m1 @packed" in caught.value.message


REFUSED = [
    ("x[i] = 1.0", "E_UNSUPPORTED", "single element"),
    ("x[ids[:]] = 1.0", "E_UNSUPPORTED", "single element"),
    ("x[i * 8 + 1:i * 8 + 9] = 1.0", "E_UNSUPPORTED", "multiple of two"),
    ("y[0:8] = x[i * 3:i * 3 + 8] * 1.0", "E_UNSUPPORTED", "multiple of two"),
    ("x[i * 8:i * 8 + 7] = 1.0", "E_UNSUPPORTED", "middle of a byte"),
    ("y[0:8] = x[0:16:2] * 1.0", "E_UNSUPPORTED", "with a step"),
    ("ts.tile.store(x[i * 8:i * 8 + 8], ts.tile.zeros((8,), ts.fp4), mask=ts.tile.arange(8) < 3)", "E_UNSUPPORTED", "mask"),
    ("ts.tile.atomic_add(x[i], 1.0)", "E_UNSUPPORTED", "atomic"),
]


@pytest.mark.parametrize("line,code,what", REFUSED)
def test_what_would_share_a_byte_is_refused(line, code, what):
    text = f"""
@ts.kernel
def k(x: ts.Tensor["n", "fp4 @packed"], ids: ts.Tensor[8, ts.i32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.program_id(0)
    {line}
"""
    with pytest.raises(ts.TesseraError) as caught:
        load(text)["k"](np.zeros(8, np.uint8), np.zeros(8, np.int32), np.zeros(16, np.float32))
    assert caught.value.code == code and what in caught.value.message and caught.value.help and caught.value.line


def test_groups_do_not_fold_into_packed_arrays():
    with pytest.raises(ts.UnsupportedError, match="fold"):

        @ts.kernel
        def fold(x: ts.Region[ts.reduce_sum, ts.Tensor["n", "fp4 @packed"]]):
            i = ts.tile.program_id(0) * 8
            x[i : i + 8] += 1.0


def test_a_maximum_over_the_padding_of_a_packed_array_is_refused():
    with pytest.raises(ts.ShapeError) as caught:

        @ts.kernel
        def largest(x: ts.Tensor["n", "fp4 @packed"], y: ts.Out[1, ts.f32]):
            ts.tile.grid(1)
            y[0] = ts.tile.max(ts.tile.cast(x[0:64], ts.f32))

    assert caught.value.code == "E_RAGGED"


# Block formats


def wild(shape):
    x = (RNG.standard_normal(shape) * 10.0 ** RNG.integers(-42, 38, shape)).astype(np.float32)
    x[RNG.random(shape) < 0.05] = 0
    return x


def both(fmt, shape, axis):
    """A kernel that quantizes a whole array and takes it back."""
    element, scale, block = ts.numerics.FORMATS[fmt]
    scales = [*shape]
    scales[axis] = -(-scales[axis] // block)
    names = {"fmt": fmt, "axis": axis, "E": ts.dtype(element), "S": ts.dtype(scale)}
    extra = ", tensor_scale=t" if fmt == "nvfp4" else ""
    return load(f"""
fmt, axis = {fmt!r}, {axis}

@ts.kernel
def k(x: ts.Tensor[{shape[0]}, {shape[1]}, ts.f32], t: ts.f32, d: ts.Out[{shape[0]}, {shape[1]}, ts.{names["E"]}], s: ts.Out[{scales[0]}, {scales[1]}, ts.{names["S"]}],
      back: ts.Out[{shape[0]}, {shape[1]}, ts.f32]):
    ts.tile.grid(1)
    q, z = ts.tile.quantize(x[...], fmt, axis=axis{extra})
    d[...] = q
    s[...] = z
    back[...] = ts.tile.dequantize(q, z, axis=axis{extra})
    return d, s, back
""")["k"]


@pytest.mark.parametrize("shape,axis", [((4, 64), 1), ((3, 40), -1), ((64, 8), 0), ((33, 5), 0), ((2, 1), 1)], ids=str)
@pytest.mark.parametrize("fmt", ts.numerics.FORMATS)
def test_tiles_have_the_bits_of_arrays(everywhere, fmt, shape, axis):
    """As `ts.numerics.quantize` and `dequantize`, also of infinities, NaN, zeros and subnormal numbers."""
    k = both(fmt, shape, axis)
    for special in (False, True):
        x = wild(shape)
        if special:
            x[0, 0], x[-1, -1] = np.inf, -np.inf
            x[1, :] = 0
            if fmt != "nvfp4":
                x[-1, 0] = np.nan
        q = ts.numerics.quantize(x, fmt, axis=axis)
        with ts.numerics.profile("strict"):
            d, s, back = k(x, q.tensor_scale or 1.0)
        np.testing.assert_array_equal(d.view(np.uint8), q.data.view(np.uint8))
        np.testing.assert_array_equal(s.view(np.uint8), q.scales.view(np.uint8))
        np.testing.assert_array_equal(back, ts.numerics.dequantize(q))


def test_a_tensor_scale_of_zero_and_a_nan():
    x = np.zeros((2, 32), np.float32)
    d, s, back = both("nvfp4", (2, 32), 1)(x, 0.0)
    assert not d.view(np.uint8).any() and not s.view(np.uint8).any() and not back.any()
    x[0, 3] = np.nan
    d, s, _ = both("nvfp4", (2, 32), 1)(x, 1.0)
    q = ts.numerics.quantize(x, "nvfp4")
    assert np.isnan(s[0, 0]) and np.isnan(q.scales[0, 0]) and (d[0, :16].view(np.uint8) == q.data[0, :16].view(np.uint8)).all()


@ts.kernel
def blocks(x: ts.Tensor["M", "K", ts.bf16], d: ts.Out["M", "K", ts.fp8_e4m3], s: ts.Out["M", "cdiv(K, 32)", ts.e8m0]):
    m = ts.tile.program_id(0) * 4
    k = ts.tile.program_id(1) * 64
    b = ts.tile.program_id(1) * 2
    d[m : m + 4, k : k + 64], s[m : m + 4, b : b + 2] = ts.tile.quantize(x[m : m + 4, k : k + 64], "mxfp8_e4m3")
    return d, s


def test_ragged_tiles_are_quantized_with_zeros_for_padding(everywhere):
    x = ts.array(RNG.standard_normal((7, 100)), "bf16")
    q = ts.numerics.quantize(x.astype(np.float32), "mxfp8_e4m3")
    d, s = blocks(x)
    np.testing.assert_array_equal(d.view(np.uint8), q.data.view(np.uint8))
    np.testing.assert_array_equal(s.view(np.uint8), q.scales.view(np.uint8))


@ts.kernel
def one_scale(x: ts.Tensor[64, ts.f32], y: ts.Out[3, ts.f32]):
    ts.tile.grid(1)
    data, scales = ts.tile.quantize(x[:], "mxfp8_e4m3")
    y[0] = ts.tile.cast(scales[0], ts.f32)
    y[1] = ts.tile.cast(scales[-1], ts.f32)
    y[2] = ts.tile.cast(data[3], ts.f32)
    return y


def test_elements_of_narrow_tiles(everywhere):
    x = np.concatenate([np.full(32, 448.0), np.full(32, 0.0)]).astype(np.float32)
    assert one_scale(x).tolist() == [1.0, 2.0**-127, 448.0]


WRONG = [
    ('ts.tile.quantize(x[...], "mxfp5")', "E_UNSUPPORTED_DTYPE"),
    ('ts.tile.quantize(x[...], "nvfp4")', "E_ARGUMENT"),
    ('ts.tile.quantize(x[...], "mxfp4", tensor_scale=2.0)', "E_ARGUMENT"),
    ('ts.tile.quantize(x[...], "nvfp4", tensor_scale=x[...])', "E_TYPE"),
    ('ts.tile.quantize(x[...], "mxfp4", axis=2)', "E_SHAPE_MISMATCH"),
    ('ts.tile.quantize(1.0, "mxfp4")', "E_TYPE"),
    ("ts.tile.dequantize(x[...], x[...])", "E_UNSUPPORTED_DTYPE"),
    ('ts.tile.dequantize(ts.tile.quantize(x[...], "mxfp4")[0], ts.tile.quantize(x[0:8, :], "mxfp4", axis=0)[1])', "E_SHAPE_MISMATCH"),
]


@pytest.mark.parametrize("call,code", WRONG)
def test_calls_that_are_refused(call, code):
    with pytest.raises(ts.TesseraError) as caught:
        load(f"""
@ts.kernel
def k(x: ts.Tensor[8, 64, ts.f32], y: ts.Out[8, 64, ts.f32]):
    ts.tile.grid(1)
    t = {call}
    y[...] = x[...]
""")["k"](np.zeros((8, 64), np.float32))
    assert caught.value.code == code and caught.value.help and caught.value.line


# The warning


def test_a_widened_matmul_warns_once():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")

        @ts.kernel
        def narrow(a: ts.Tensor[16, 32, ts.fp4], b: ts.Tensor[32, 8, ts.fp4], c: ts.Out[16, 8, ts.f32]):
            ts.tile.grid(1)
            c[...] = ts.tile.mma(a[...], b[...]) + ts.tile.mma(a[...], b[...])
            return c

        a, b = ts.array(RNG.integers(-2, 3, (16, 32)), ts.fp4), ts.array(RNG.integers(-2, 3, (32, 8)), ts.fp4)
        for _ in range(2):
            got = narrow(a, b)
    np.testing.assert_array_equal(got, 2 * (a.astype(np.float32) @ b.astype(np.float32)))
    texts = [str(w.message) for w in found if issubclass(w.category, ts.TesseraWarning)]
    assert len(texts) == 1 and texts[0].startswith("W_EMULATED: ") and "bf16" in texts[0]
    assert any("W_EMULATED" in str(note) for note in narrow.explain().notes)


def test_a_loop_that_is_elaborated_again_still_warns():
    with pytest.warns(ts.TesseraWarning, match="W_EMULATED"):

        @ts.kernel
        def repeated(a: ts.Tensor[16, 32, ts.fp4], b: ts.Tensor[32, 8, ts.fp4], c: ts.Out[16, 8, ts.f32]):
            ts.tile.grid(1)
            scale = 0
            t = ts.tile.zeros((16, 8), ts.f32)
            for _ in range(2):
                t = ts.tile.mma(a[...], b[...], accumulator=t)
                scale += 0.5
            c[...] = t * scale
            return c

        a, b = ts.array(RNG.integers(-2, 3, (16, 32)), ts.fp4), ts.array(RNG.integers(-2, 3, (32, 8)), ts.fp4)
        got = repeated(a, b)
    np.testing.assert_array_equal(got, 2 * (a.astype(np.float32) @ b.astype(np.float32)))


def test_a_matmul_that_targets_have_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @ts.kernel
        def plain(a: ts.Tensor[16, 32, ts.fp8_e4m3], b: ts.Tensor[32, 8, ts.fp8_e4m3], c: ts.Out[16, 8, ts.f32]):
            ts.tile.grid(1)
            c[...] = ts.tile.mma(a[...], b[...])
            return c

        plain(ts.array(np.ones((16, 32)), ts.fp8_e4m3), ts.array(np.ones((32, 8)), ts.fp8_e4m3))
