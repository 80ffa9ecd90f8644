"""Tiles in parts against NumPy: subscripts, concatenation and splitting, turning around, shapes, what is refused."""

import ml_dtypes
import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each

NAMES = {
    np.dtype(np.bool_): "bool", np.dtype(np.int8): "i8", np.dtype(np.int32): "i32", np.dtype(np.int64): "i64",
    np.dtype(np.uint32): "u32", np.dtype(np.uint64): "u64", np.dtype(np.float16): "f16", np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(np.float32): "f32", np.dtype(np.float64): "f64",
}  # fmt: skip
DTYPES = list(NAMES)


def numbers(shape, dtype=np.int32):
    """Different elements as far as the dtype has them."""
    count = np.arange(1, 1 + int(np.prod(shape)))
    return (count % 2 if dtype == np.bool_ else count % 100).astype(dtype).reshape(shape)


def run(body, want, x, **scalars):
    """Runs a kernel that ends with `r`, a tile; compares it with an array."""
    want = np.asarray(want)
    flat = f"ts.tile.reshape(r, ({want.size},))" if want.ndim != 1 else "r"
    store = f"y[0:{want.size}] = {flat}" if want.ndim else "y[0] = r"
    extents = ", ".join(map(str, x.shape))
    parameters = [f"x: ts.Tensor[{extents}, ts.{NAMES[x.dtype]}]", f"y: ts.Tensor[{max(want.size, 1)}, ts.{NAMES[want.dtype]}]"]
    parameters += [f"{name}: ts.i32" for name in scalars]
    lines = ["t = x[...]", *body.splitlines(), store]
    text = f"@ts.kernel\ndef k({', '.join(parameters)}):\n" + "".join(f"    {line}\n" for line in ["ts.tile.grid(1)", *lines])
    y = np.zeros(max(want.size, 1), want.dtype)
    load(text)["k"](x, y, *scalars.values())
    if want.size:
        np.testing.assert_array_equal(y.astype(np.float64), want.reshape(-1).astype(np.float64))


def code(body, x=None):
    """How a kernel is refused."""
    x = numbers((4, 6)) if x is None else x
    extents = ", ".join(map(str, x.shape))
    lines = ["ts.tile.grid(1)", "t = x[...]", *body.splitlines()]
    text = f"@ts.kernel\ndef k(x: ts.Tensor[{extents}, ts.{NAMES[x.dtype]}], y: ts.Tensor[64, ts.i32], i: ts.i32):\n"
    with pytest.raises(ts.TesseraError) as caught:
        load(text + "".join(f"    {line}\n" for line in lines))["k"](x, np.zeros(64, np.int32), 1)
    assert caught.value.help
    return caught.value.code, caught.value.help


# Subscripts


@ts.kernel
def rotate_half(x: ts.Tensor["n", 8, ts.f32], c: ts.Tensor[4, ts.f32], s: ts.Tensor[4, ts.f32], y: ts.Out["n", 8, ts.f32]):
    row = ts.tile.grid(n)
    t = x[row, 0:8]
    low, high = t[:4], t[4:]
    y[row, 0:8] = ts.tile.concat((low * c[0:4] - high * s[0:4], high * c[0:4] + low * s[0:4]))
    return y


def test_rotary_embedding_by_slices_of_a_tile():
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    angle = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    c, s = np.cos(angle), np.sin(angle)
    want = np.concatenate([x[:, :4] * c - x[:, 4:] * s, x[:, 4:] * c + x[:, :4] * s], 1)
    np.testing.assert_allclose(rotate_half(x, c, s), want, rtol=1e-6, atol=1e-6)


@ts.kernel
def window(x: ts.Tensor[16, ts.i32], starts: ts.Tensor["n", ts.i64], y: ts.Out["n", 4, ts.i32]):
    row = ts.tile.grid(n)
    t = x[0:16] * 10
    s = starts[row]
    y[row, 0:4] = t[s : s + 4]
    return y


def test_slices_from_a_position_of_run_time_give_zero_outside():
    x = numbers(16)
    starts = np.array([0, 5, 12, 14, -1, -4, 16, 2**62, -(2**63), 2**63 - 1], np.int64)
    padded = {int(s): [10 * int(x[k]) if 0 <= (k := int(s) + j) < 16 else 0 for j in range(4)] for s in starts}
    assert window(x, starts).tolist() == [padded[int(s)] for s in starts]


@ts.kernel
def window_by_unsigned(x: ts.Tensor[16, ts.i32], starts: ts.Tensor["n", ts.u32], y: ts.Out["n", 4, ts.i32]):
    row = ts.tile.grid(n)
    s = starts[row]
    y[row, 0:4] = x[0:16][s : s + 4]
    return y


def test_starts_are_widened_before_they_are_added_to():
    starts = np.array([13, 2**32 - 1, 2**31], np.uint32)
    assert window_by_unsigned(numbers(16), starts).tolist() == [[14, 15, 16, 0], [0] * 4, [0] * 4]


@ts.kernel
def element(x: ts.Tensor[5, ts.f32], i: ts.i64, y: ts.Out[1, ts.f32]):
    ts.tile.grid(1)
    t = x[0:5] + 1.0
    y[0] = t[i]
    return y


def test_an_element_at_a_position_of_run_time():
    x = np.arange(5, dtype=np.float32)
    assert [element(x, i).item() for i in (0, 4, 5, -1, 2**40)] == [1.0, 5.0, 0.0, 0.0, 0.0]


SUBSCRIPTS = [
    "t[0]", "t[-1]", "t[1, 2]", "t[-2, -3]", "t[:, 2]", "t[..., -1]", "t[1:3]", "t[:2]", "t[-3:]", "t[:-1]", "t[:, 1:5]",
    "t[1:3, 2:4]", "t[::2]", "t[1::2, ::3]", "t[::-1]", "t[:, ::-1]", "t[::-1, ::-1]", "t[3:0:-1]", "t[2::-2]", "t[:, 5:0:-2]",
    "t[2:2]", "t[:, 3:3]", "t[None]", "t[:, None]", "t[..., None]", "t[None, 1]", "t[1, None]", "t[None, :, 3, None]",
    "t[1, 2, None]", "t[0:4]", "t[:]", "t[-4:4]", "t[1:4:5]", "t[3:4]",
]  # fmt: skip


@pytest.mark.parametrize("subscript", SUBSCRIPTS)
def test_subscripts_of_known_positions_are_numpys(subscript):
    t = numbers((4, 6))
    run(f"r = {subscript}", eval(subscript, {"t": t}), t)


@pytest.mark.parametrize("shape", [(1,), (1, 1), (3, 1), (1, 5), (2, 3, 4), (1, 2, 1), (7,)])
def test_subscripts_of_other_shapes(shape):
    t = numbers(shape)
    last = "..., " * (len(shape) > 1)
    for subscript in ["t[0]", "t[-1:]", f"t[{last}::-1]", f"t[{last}0]", f"t[{last}None]", "t[::2]", "t[0:1]"]:
        run(f"r = {subscript}", eval(subscript, {"t": t}), t)


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES.get)
def test_parts_of_every_dtype_keep_it(dtype):
    t = numbers((3, 5), dtype)
    run("r = t[::-1, 1:4]", t[::-1, 1:4], t)
    run("r = t[i:i + 2]", t[1:3], t, i=1)
    run("r = t[i]", t[2], t, i=2)
    run("r = t[i]", np.zeros(5, dtype), t, i=3)
    run("r = t[ts.tile.arange(4) - 1]", np.concatenate([np.zeros((1, 5), dtype), t]), t)
    run("r = ts.tile.concat((t, t[1:2]))", np.concatenate([t, t[1:2]]), t)
    run("r = ts.tile.stack((t, t[::-1]), axis=1)", np.stack([t, t[::-1]], 1), t)
    run("r = ts.tile.flip(t)", np.flip(t), t)
    run("r = ts.tile.roll(t, i, axis=1)", np.roll(t, 2, 1), t, i=2)
    run("r = ts.tile.roll(t, 4)", np.roll(t, 4), t)
    run("a, b = ts.tile.split(t, (2,), axis=1)\nr = b", t[:, 2:], t)
    run("r = ts.tile.transpose(t, (1, 0))", t.T, t)
    run("r = ts.tile.take_along_axis(t, ts.tile.full((3, 1), 4, ts.i32), 1)", t[:, 4:], t)


def test_positions_from_index_tiles():
    t = numbers((4, 6))
    ids, two = "ts.tile.arange(3) + 1", "ts.tile.reshape(ts.tile.arange(4), (2, 2))"
    rows = np.arange(3) + 1
    run(f"ids = {ids}\nr = t[ids]", t[rows], t)
    run(f"ids = {ids}\nr = t[:, ids]", t[:, rows], t)
    run(f"ids = {ids}\nr = t[ids, 1:3]", t[rows, 1:3], t)
    run(f"ids = {ids}\nr = t[1:3, ids]", t[1:3, rows], t)
    run(f"ids = {ids}\nr = t[ids, ids]", t[rows, rows], t)
    run(f"ids = {ids}\nr = t[ids, -1]", t[rows, -1], t)
    run(f"ids = {ids}\nr = t[i, ids]", t[2, rows], t, i=2)
    run(f"ids = {ids}\nr = t[ids[:, None], ids[None, :]]", t[rows[:, None], rows[None, :]], t)
    run(f"r = t[{two}]", t[np.arange(4).reshape(2, 2)], t)
    run(f"r = t[:, {two}]", t[:, np.arange(4).reshape(2, 2)], t)
    run(f"r = t[{two}, 2:4]", t[np.arange(4).reshape(2, 2), 2:4], t)
    run("r = t[ts.tile.arange(6) - 1]", np.concatenate([np.zeros((1, 6), np.int32), t, np.zeros((1, 6), np.int32)]), t)
    run("r = t[ts.tile.arange(3) - 1, ts.tile.arange(3) + 4]", np.array([0, t[0, 5], 0], np.int32), t)
    cube = numbers((2, 3, 4))
    run("r = t[:, ts.tile.arange(2) + 1]", cube[:, 1:3], cube)
    run("i3 = ts.tile.arange(2)\nr = t[i3, i3 + 1, i3 + 2]", cube[[0, 1], [1, 2], [2, 3]], cube)


def test_index_tile_of_two_axes_beside_a_slice_of_run_time():
    t = numbers((4, 6))
    run("r = t[ts.tile.reshape(ts.tile.arange(4), (2, 2)), i:i + 2]", t[np.arange(4).reshape(2, 2), 1:3], t, i=1)
    run("r = t[ts.tile.reshape(ts.tile.arange(4), (2, 2)), i]", t[np.arange(4).reshape(2, 2), 1], t, i=1)


@pytest.mark.parametrize(
    "subscript, expected",
    [
        ("t[4]", "E_SHAPE_MISMATCH"), ("t[-5]", "E_SHAPE_MISMATCH"), ("t[1:5]", "E_SHAPE_MISMATCH"), ("t[-5:2]", "E_SHAPE_MISMATCH"),
        ("t[9223372036854775807:-9223372036854775807]", "E_SHAPE_MISMATCH"), ("ts.tile.mma(x[0, 0], ts.tile.zeros((2, 16, 16)), ts.tile.zeros((2, 16, 16)))", "E_SHAPE_MISMATCH"),
        ("t[3:1]", "E_SHAPE_MISMATCH"), ("t[1, 2, 3]", "E_SHAPE_MISMATCH"), ("t[:, 6]", "E_SHAPE_MISMATCH"),
        ("t[::0]", "E_ARGUMENT"), ("t[::i]", "E_ARGUMENT"), ("t[i:i + 4:-1]", "E_ARGUMENT"), ("t[i:]", "E_DYNAMIC_EXTENT"),
        ("t[0:i]", "E_DYNAMIC_EXTENT"), ("t[t > 3]", "E_UNSUPPORTED"), ("t[0][t[0] > 3]", "E_UNSUPPORTED"), ("t[1.5]", "E_TYPE"),
        ("t[ts.tile.zeros((3,))]", "E_TYPE"), ("t[(0, 1),]", "E_TYPE"), ("t[ts.tile.arange(2), ts.tile.arange(3)]", "E_SHAPE_MISMATCH"),
        ("t[..., ...]", "E_SYNTAX"),
    ],
)  # fmt: skip
def test_subscripts_that_are_refused(subscript, expected):
    assert code(f"r = {subscript}")[0] == expected


def test_helps_of_subscripts():
    assert "where" in code("r = t[t > 3]")[1] and "flip" in code("r = t[i:i + 4:-1]")[1] and "[::-1]" in code("r = t[::0]")[1]


# Putting together and taking apart


@pytest.mark.parametrize("shape", [(6,), (1,), (4, 6), (1, 5), (2, 3, 4)])
def test_concat_stack_and_split(shape):
    t = numbers(shape)
    for axis in range(len(shape)):
        run(f"r = ts.tile.concat((t, t, t), axis={axis})", np.concatenate([t, t, t], axis), t)
        run(f"r = ts.tile.concat((t,), axis={axis})", t, t)
    if len(shape) < 3:
        for axis in range(-1, len(shape) + 1):
            run(f"r = ts.tile.stack((t, t + 1), axis={axis})", np.stack([t, t + 1], axis), t)
    for axis, extent in enumerate(shape):
        for sections in [1, extent, (0,), (extent,), (1,), (extent // 2, extent // 2)]:
            for k, part in enumerate(np.split(t, list(sections) if isinstance(sections, tuple) else sections, axis)):
                if part.size:
                    run(f"r = ts.tile.split(t, {sections}, axis={axis})[{k}]", part, t)


@pytest.mark.parametrize(
    "body, expected",
    [
        ("r = ts.tile.concat(t)", "E_TYPE"), ("r = ts.tile.concat(())", "E_TYPE"), ("r = ts.tile.concat((t, 1))", "E_TYPE"),
        ("r = ts.tile.concat((t, ts.tile.cast(t, ts.i64)))", "E_TYPE"), ("r = ts.tile.concat((t, t[0]))", "E_SHAPE_MISMATCH"),
        ("r = ts.tile.concat((t, t[:, 1:]))", "E_SHAPE_MISMATCH"), ("r = ts.tile.concat((t, t), axis=2)", "E_SHAPE_MISMATCH"),
        ("r = ts.tile.stack((t, t[1:]))", "E_SHAPE_MISMATCH"), ("r = ts.tile.stack((t, t), axis=3)", "E_SHAPE_MISMATCH"),
        ("r = ts.tile.split(t, 3)", "E_SHAPE_MISMATCH"), ("r = ts.tile.split(t, 0)", "E_ARGUMENT"), ("r = ts.tile.split(t, i)", "E_ARGUMENT"),
        ("r = ts.tile.split(t, (3, 1))", "E_SHAPE_MISMATCH"), ("r = ts.tile.split(t, (5,))", "E_SHAPE_MISMATCH"),
        ("r = ts.tile.flip(t, 2)", "E_SHAPE_MISMATCH"), ("r = ts.tile.roll(t, 1, axis=-3)", "E_SHAPE_MISMATCH"),
        ("r = ts.tile.take_along_axis(t, t[0], 0)", "E_SHAPE_MISMATCH"), ("r = ts.tile.take_along_axis(t, t > 0, 0)", "E_TYPE"),
        ("r = ts.tile.transpose(t, (0, 0))", "E_SHAPE_MISMATCH"), ("r = ts.tile.transpose(t, (0,))", "E_SHAPE_MISMATCH"),
        ("r = ts.tile.reshape(t, (5, -1))", "E_SHAPE_MISMATCH"), ("r = ts.tile.reshape(t, (-1, -1))", "E_SHAPE_MISMATCH"),
        ("r = ts.tile.sum(t, axis=(0, 0))", "E_ARGUMENT"), ("r = ts.tile.sum(t, axis=2)", "E_SHAPE_MISMATCH"),
        ("r = ts.tile.sum(t, keepdims=i)", "E_ARGUMENT"), ("r = ts.tile.max(t, return_indices=True)", "E_ARGUMENT"),
        ("r = ts.tile.max(t, axis=(0, 1), return_indices=True)", "E_ARGUMENT"), ("r = ts.tile.cumsum(t, reverse=True)", "E_ARGUMENT"),
    ],
)  # fmt: skip
def test_parts_that_are_refused(body, expected):
    assert code(body)[0] == expected


@pytest.mark.parametrize("shape", [(5,), (1,), (3, 4), (1, 4), (2, 3, 4)])
def test_flip_and_roll(shape):
    t = numbers(shape)
    run("r = ts.tile.flip(t)", np.flip(t), t)
    for shift in (0, 1, -1, 7, -9):
        run(f"r = ts.tile.roll(t, {shift})", np.roll(t, shift), t)
        run("r = ts.tile.roll(t, i)", np.roll(t, shift), t, i=shift)
    for axis in range(len(shape)):
        run(f"r = ts.tile.flip(t, {axis})", np.flip(t, axis), t)
        run(f"r = ts.tile.roll(t, 2, axis={axis})", np.roll(t, 2, axis), t)
        run(f"r = ts.tile.roll(t, i, axis={axis - len(shape)})", np.roll(t, -2, axis), t, i=-2)
    if len(shape) == 3:
        run("r = ts.tile.flip(t, (0, 2))", np.flip(t, (0, 2)), t)
        for axes in [(0, 1, 2), (2, 0, 1), (1, 0, 2), (-1, 0, 1), (2, 1, 0)]:
            run(f"r = ts.tile.transpose(t, {axes})", np.transpose(t, axes), t)
        run("r = ts.tile.transpose(t)", t.T, t)


def test_take_along_axis():
    t = numbers((4, 6))
    text = "at = ts.tile.concat((ts.tile.reshape(ts.tile.arange(4), (4, 1)) * 3 % 7, ts.tile.full((4, 1), 5, ts.i32)), axis=1)\n"
    at = np.concatenate([np.arange(4).reshape(4, 1) * 3 % 7, np.full((4, 1), 5)], 1)
    want = np.where(at < 6, np.take_along_axis(t, np.minimum(at, 5), 1), 0).astype(np.int32)
    run(text + "r = ts.tile.take_along_axis(t, at, 1)", want, t)
    run("r = ts.tile.take_along_axis(t, ts.tile.full((1, 6), 2, ts.i64), 0)", t[2:3], t)


# Reductions


@pytest.mark.parametrize("shape", [(5,), (1,), (3, 4), (1, 4), (3, 1), (2, 3, 4)])
def test_kept_and_several_axes(shape):
    t = numbers(shape)
    axes = [None, *range(len(shape)), -1, tuple(range(len(shape))), (0, len(shape) - 1) if len(shape) > 1 else (0,)]
    for axis in axes:
        for name in ("sum", "max", "min", "prod"):
            given = "" if axis is None else f", axis={axis}"
            run(f"r = ts.tile.{name}(t{given}, keepdims=True)", getattr(np, name)(t, axis=axis, keepdims=True).astype(np.int32), t)
            run(f"r = ts.tile.{name}(t{given})", getattr(np, name)(t, axis=axis).astype(np.int32), t)
        run(f"r = ts.tile.any(t > 9{given}, keepdims=True)", np.any(t > 9, axis=axis, keepdims=True), t)
        run(f"r = ts.tile.mean(t{given}, keepdims=True)", np.mean(t, axis=axis, keepdims=True, dtype=np.float32), t)


def test_the_largest_and_where_it_is():
    t = np.array([[3, 9, 9, 1], [7, 2, 7, 7], [0, 0, 0, 0]], np.int32)
    for axis in (0, 1, -1):
        for name in ("max", "min"):
            value, place = getattr(np, name)(t, axis), getattr(np, "arg" + name)(t, axis).astype(np.int32)
            run(f"r, p = ts.tile.{name}(t, axis={axis}, return_indices=True)", value, t)
            run(f"v, r = ts.tile.{name}(t, axis={axis}, return_indices=True)", place, t)
            run(f"v, r = ts.tile.{name}(t, axis={axis}, keepdims=True, return_indices=True)", np.expand_dims(place, axis), t)
    f = np.array([1.0, np.nan, 5.0, np.nan], np.float32)
    run("v, r = ts.tile.max(t, return_indices=True)", np.int32(1), f)


@pytest.mark.parametrize("shape, axis", [((5,), 0), ((1,), 0), ((3, 4), 0), ((3, 4), 1), ((2, 3, 4), 1)])
def test_scans_from_the_end(shape, axis):
    t = numbers(shape) % 5
    back = np.flip(np.cumsum(np.flip(t, axis), axis), axis).astype(np.int32)
    run(f"r = ts.tile.cumsum(t, axis={axis}, reverse=True)", back, t)
    run(f"r = ts.tile.cumsum(t, axis={axis}, reverse=True, exclusive=True)", back - t, t)
    run(f"r = ts.tile.cumprod(t, axis={axis}, reverse=True)", np.flip(np.cumprod(np.flip(t, axis), axis), axis).astype(np.int32), t)
    top = np.flip(np.maximum.accumulate(np.flip(t, axis), axis), axis)
    run(f'r = ts.tile.scan(t, "max", axis={axis}, reverse=True)', top, t)


# Padding


RAGGED = "@ts.kernel\ndef k(x: ts.Tensor['n', ts.f32], y: ts.Tensor[8, ts.f32]):\n    ts.tile.grid(1)\n    t = x[0:8]\n"


@pytest.mark.parametrize(
    "value",
    [
        "ts.tile.max(ts.tile.flip(t))", "ts.tile.max(t[0:4])", "ts.tile.min(t[::2])", "ts.tile.max(ts.tile.roll(t, 2))",
        "ts.tile.max(ts.tile.concat((t, t)))", "ts.tile.max(ts.tile.split(t, 2)[0])", "ts.tile.max(ts.tile.reshape(t, (2, 4))[0])",
        "ts.tile.sum(ts.tile.concat((t, t + 1.0)))", "ts.tile.sum(t[ts.tile.arange(4)])", "ts.tile.sum(ts.tile.cumsum(t, reverse=True))",
        "ts.tile.max(t, return_indices=True)[0]", "ts.tile.sum(ts.tile.stack((t, t + 1.0), axis=1), axis=0)[1]",
        "ts.tile.cumsum(ts.tile.flip(t + 1.0))[0]",
    ],
)  # fmt: skip
def test_padding_in_parts_is_refused(value):
    with pytest.raises(ts.ShapeError) as caught:
        load(RAGGED + f"    y[0] = {value}\n")["k"](np.ones(5, np.float32), np.zeros(8, np.float32))
    assert caught.value.code == "E_RAGGED" and "mask" in caught.value.help


@pytest.mark.parametrize(
    "value", ["ts.tile.scan(t, 'max', reverse=True)", "ts.tile.cumprod(t, reverse=True)", "ts.tile.scan(ts.tile.flip(t), 'max')"]
)
def test_padding_at_the_beginning_of_a_scan_is_refused(value):
    with pytest.raises(ts.ShapeError) as caught:
        load(RAGGED + f"    y[0:8] = {value}\n")["k"](np.full(5, -1, np.float32), np.zeros(8, np.float32))
    assert caught.value.code == "E_RAGGED"


def test_zeros_of_padding_stay_zeros_in_sums():
    x = np.array([3, -1, 2, -5, 4], np.float32)
    for value, want in [("ts.tile.flip(t)", 3), ("ts.tile.roll(t, 2)", 3), ("t[::2]", 9), ("t[0:4]", -1), ("ts.tile.concat((t, t))", 6)]:
        y = np.zeros(8, np.float32)
        load(RAGGED + f"    y[0] = ts.tile.sum({value})\n")["k"](x, y)
        assert y[0] == want


# Rolls by any integer

SHIFTS = [(np.int64, s) for s in (0, 1, -1, 7, -(2**63), -(2**63) + 1, 2**63 - 1)]
SHIFTS += [(np.uint64, s) for s in (0, 3, 2**63, 2**63 + 1, 2**64 - 1)] + [(np.int8, -128), (np.uint32, 2**32 - 1)]


@pytest.mark.parametrize("dtype, shift", SHIFTS)
@pytest.mark.parametrize("n", [1, 3, 5, 8, 12])
def test_a_roll_by_any_integer(dtype, shift, n):
    """By -2**63 and by u64 above 2**63 the distance was wrong unless the extent was a power of two."""
    name = NAMES.get(np.dtype(dtype), "i8")
    text = f"@ts.kernel\ndef k(x: ts.Tensor[{n}, ts.i32], by: ts.Tensor[1, ts.{name}], y: ts.Tensor[2, {n}, ts.i32]):\n    ts.tile.grid(1)\n"
    text += f"    y[0, :] = ts.tile.roll(x[:], by[0])\n    y[1, :] = ts.tile.roll(x[:], {int(shift)})\n"
    x, y = np.arange(n, dtype=np.int32), np.zeros((2, n), np.int32)
    load(text)["k"](x, np.array([shift], dtype), y)
    want = x[(np.arange(n) - shift % n) % n]
    np.testing.assert_array_equal(y, [want, want])


@pytest.mark.parametrize("shift, axes", [((1, 2), (0, 1)), (3, (0, 1)), ((1, -2), (1, 0)), ((1, 1), (1, 1)), ((5,), (0,)), ((2,), 1)])
def test_a_roll_along_several_axes(shift, axes):
    x = numbers((4, 6))
    run(f"r = ts.tile.roll(t, {shift}, axis={axes})", np.roll(x, shift, axes), x)


def test_rolls_that_are_refused():
    assert code("y[0:24] = ts.tile.reshape(ts.tile.roll(t, (1, 2, 3), axis=(0, 1)), (24,))")[0] == "E_ARGUMENT"
    assert code("y[0:24] = ts.tile.reshape(ts.tile.roll(t, (1, 2)), (24,))")[0] == "E_ARGUMENT"
    assert code("y[0:24] = ts.tile.reshape(ts.tile.roll(t, 1.5), (24,))")[0] == "E_TYPE"
    assert "one axis after another" in code("y[0:4] = ts.tile.argsort(t, axis=(0, 1))")[1]


# Derivatives and transformations

GRAD = "@ts.kernel\ndef k(x: ts.Tensor[8, ts.f32], y: ts.Out[{n}, ts.f32]):\n    ts.tile.grid(1)\n    t = x[0:8]\n    y[0:{n}] = {value}\n    return y\n"


@pytest.mark.parametrize(
    "n, value",
    [
        (4, "t[::2] * t[1::2]"), (4, "t[7:3:-1] * t[0:4]"), (8, "ts.tile.concat((t[4:8], t[0:4] * 2.0)) * t"), (8, "ts.tile.flip(t) * t"),
        (8, "ts.tile.roll(t, 3) * t"), (8, "ts.tile.cumsum(t * t, reverse=True)"), (4, "ts.tile.split(t, 2)[1] * t[0:4]"),
        (8, "ts.tile.reshape(ts.tile.transpose(ts.tile.reshape(t, (2, -1)), (1, 0)), (8,)) * t"), (8, "t - ts.tile.sum(t * t, keepdims=True)"),
        (8, "t[ts.tile.arange(8) // 2] * t"), (8, "t * t[3]"),
    ],
)  # fmt: skip
def test_derivatives_through_parts(n, value):
    k = load(GRAD.format(n=n, value=value))["k"]
    x = np.array([0.9, 0.6, 0.5, 0.8, 1.4, 1.5, 1.2, 1.1], np.float32)
    found = np.asarray(ts.grad(lambda v: ts.xp.sum(k(v)))(x))
    total = lambda v: float(np.asarray(k(v.astype(np.float32)), np.float64).sum())  # noqa: E731
    step = 1e-2
    want = [(total(x + step * e) - total(x - step * e)) / (2 * step) for e in np.eye(8)]
    np.testing.assert_allclose(found, want, rtol=2e-2, atol=2e-2)


def test_parts_inside_jit_and_vmap():
    k = load(GRAD.format(n=8, value="ts.tile.concat((t[4:8], ts.tile.flip(t[0:4])))"))["k"]
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    want = np.concatenate([x[:, 4:], x[:, 3::-1]], 1)
    np.testing.assert_array_equal(np.asarray(ts.jit(lambda v: k(v * 2.0) + 1.0)(x[0])), want[0] * 2 + 1)
    np.testing.assert_array_equal(np.asarray(ts.vmap(k)(x)), want)
    np.testing.assert_array_equal(np.asarray(ts.jit(ts.vmap(lambda v: k(v)))(x)), want)
