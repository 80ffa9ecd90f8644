"""Compile-time parameters without defaults: unknown at decoration, checked at the first call."""

import textwrap

import numpy as np
import pytest

import tessera as ts

N = 64


def iota(n=N, dtype=np.float32):
    return np.arange(n, dtype=dtype)


def refused(call, code):
    with pytest.raises(ts.TesseraError) as error:
        call()
    assert error.value.code == code, str(error.value)
    return error.value


# Integers


@ts.kernel
def in_shapes(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32], BLOCK: int):
    p = ts.tile.program_id(0)
    acc = ts.tile.zeros((BLOCK,), ts.f32)
    acc = acc + x[p * BLOCK : p * BLOCK + BLOCK]
    o[p * BLOCK : p * BLOCK + BLOCK] = acc * ts.tile.full((BLOCK,), 2.0, ts.f32)
    return o


@pytest.mark.parametrize("block", [1, 3, 16, 64])
def test_int_in_shapes_and_slices(block):
    assert (in_shapes(iota(), BLOCK=block) == 2 * iota()).all()


def test_wrong_extent_is_reported_at_the_call():
    refused(lambda: in_shapes(iota(), BLOCK=-4), "E_SHAPE_MISMATCH")
    error = refused(lambda: in_shapes(iota(), BLOCK=0), "E_LAUNCH_GEOMETRY")
    assert "the tiles that are stored have no elements" in str(error)


@ts.kernel
def two_blocks(x: ts.Tensor["M", "N", ts.f32], o: ts.Out["M", ts.f32], BM: int, BN: int):
    p = ts.tile.program_id(0)
    acc = ts.tile.zeros((BM,), ts.f32)
    for n0 in ts.tile.range(0, N, BN):
        acc = acc + ts.tile.sum(x[p * BM : p * BM + BM, n0 : n0 + BN], axis=1)
    o[p * BM : p * BM + BM] = acc
    return o


@pytest.mark.parametrize("blocks", [(1, 1), (4, 8), (5, 7)])
def test_ints_as_step_and_extents(blocks):
    x = np.arange(10 * 12, dtype=np.float32).reshape(10, 12)
    assert (two_blocks(x, BM=blocks[0], BN=blocks[1]) == x.sum(1)).all()


def test_step_that_is_not_positive_is_reported_at_the_call():
    x = np.ones((4, 4), np.float32)
    refused(lambda: two_blocks(x, BM=2, BN=0), "E_ARGUMENT")


@ts.kernel
def as_repeat(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32], rep: int):
    for p in ts.tile.range(ts.cdiv(n, rep)):  # noqa: F821
        o[p * rep : p * rep + rep] = x[p * rep : p * rep + rep] + p
    return o


def test_product_of_a_position_and_an_open_extent():
    for rep in (1, 4, 5):
        assert (as_repeat[1](iota(), rep=rep) == iota() + np.arange(N) // rep).all()


@ts.kernel
def as_grid(o: ts.Out["n", ts.i32], x: ts.Tensor["n", ts.i32], parts: int):
    p = ts.tile.grid(parts)
    for i in range(p, n, parts):  # noqa: F821
        o[i] = x[i] + p
    return o


def test_int_as_grid_extent_and_step():
    x = np.zeros(10, np.int32)
    for parts in (1, 3, 10):
        assert (as_grid(x=x, parts=parts) == np.arange(10) % parts).all()


@ts.kernel
def as_bound(x: ts.Tensor["n", ts.f32], lo: int, hi: int, times: int):
    i = ts.tile.linear_id()
    if lo <= i < hi:
        for _ in range(times):
            x[i] = x[i] * 2 + lo - hi
    return x


def test_ints_as_bounds_and_in_arithmetic():
    for lo, hi, times in ((0, 3, 2), (2, 5, 0), (4, 4, 1)):
        wanted = iota(8)
        for i in range(lo, hi):
            for _ in range(times):
                wanted[i] = wanted[i] * 2 + lo - hi
        assert (as_bound(iota(8), lo, hi, times) == wanted).all()


@ts.kernel
def derived(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32], A: int, B: int):
    T = A * B if A > 1 else max(B, 2)
    p = ts.tile.program_id(0)
    half = T // 2
    o[p * T : p * T + half] = x[p * T : p * T + half]
    o[p * T + half : p * T + T] = x[p * T + half : p * T + T] * 2
    return o


def test_values_made_of_ints():
    for a, b in ((2, 4), (1, 8), (1, 1)):
        t = a * b if a > 1 else max(b, 2)
        wanted = np.where(np.arange(N) % t < t // 2, iota(), iota() * 2)
        assert (derived[N // t](iota(), A=a, B=b) == wanted).all()


@ts.kernel
def with_pattern(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32], STRIDE: int, OFF: int):
    p = ts.tile.program_id(0)
    at = ts.tile.arange(OFF, OFF + 4) * STRIDE
    o[p * 4 : p * 4 + 4] = ts.tile.load(x, (at,), other=-1.0)
    return o


def test_ints_in_index_tiles():
    for stride, off in ((1, 0), (3, 2)):
        assert (with_pattern[1](iota(8), STRIDE=stride, OFF=off)[:4] == [
            v if v < 8 else -1 for v in (np.arange(off, off + 4) * stride)]).all()  # fmt: skip


@ts.kernel
def static_and_open(x: ts.Tensor["M", "D", ts.f32], o: ts.Out["M", ts.f32], BM: int, which: str):
    p = ts.tile.program_id(0)
    if which == "sum":
        acc = ts.tile.zeros((BM, D), ts.f32) + x[p * BM : p * BM + BM, :]  # noqa: F821
        y = ts.tile.sum(acc, axis=1)
    elif which == "first":
        y = ts.tile.sum(x[p * BM : p * BM + BM, 0:1], axis=1)
    o[p * BM : p * BM + BM] = y
    return o


def test_dims_are_static_whatever_branch_needs_them():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    assert (static_and_open(x, BM=2, which="sum") == x.sum(1)).all()
    assert (static_and_open(x, BM=4, which="first") == x[:, 0]).all()
    assert "y" in refused(lambda: static_and_open(x, BM=4, which="none"), "E_NAME").message


# Texts


@ts.func
def activate(v, act):
    if act == "gelu":
        return v * 0.5 * (1.0 + ts.tile.erf(v * 0.70710678))
    elif act == "relu":
        return ts.tile.maximum(v, 0.0)
    return v


@ts.kernel
def activated(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32], act: str):
    p = ts.tile.program_id(0)
    v = x[p * 16 : p * 16 + 16]
    if act == "neg" or act == "minus":
        v = -v
    elif act != "none":
        v = activate(v, act)
    o[p * 16 : p * 16 + 16] = v
    return o


def test_texts_choose_branches():
    x = iota() - 32
    assert (activated(x, act="relu") == np.maximum(x, 0)).all()
    assert (activated(x, act="none") == x).all() and (activated(x, act="minus") == -x).all()
    assert activated(x, act="gelu")[-1] == x[-1]
    refused(lambda: activated(x, act=3), "E_ARGUMENT")
    refused(lambda: activated(x), "E_ARGUMENT")


@ts.kernel
def combined(x: ts.Tensor[8, ts.f32], op: str):
    i = ts.tile.program_id(0)
    x[i] = ts.tile.reduce(x[0:8], op)
    return x


def test_text_handed_to_the_language():
    assert combined[1](iota(8), "sum")[0] == 28 and combined[1](iota(8), op="max")[0] == 7
    assert refused(lambda: combined[1](iota(8), "average"), "E_ARGUMENT").line is not None


# Booleans and floats


@ts.kernel
def flagged(x: ts.Tensor["n", ts.f32], flag: bool, other: bool, by: float):
    i = ts.tile.linear_id()
    if flag and not other:
        x[i] = x[i] * by
    else:
        w = x[i] + (by if other else -by)
        x[i] = w
    return x


def test_bools_and_floats():
    for flag in (False, True):
        for other in (False, True):
            wanted = iota() * 0.5 if flag and not other else iota() + (0.5 if other else -0.5)
            assert (flagged(iota(), flag, other, 0.5) == wanted).all()
    refused(lambda: flagged(iota(), 1, True, 0.5), "E_ARGUMENT")


@ts.kernel
def masked_sum(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32], mask: bool):
    p = ts.tile.program_id(0)
    v = x[p * 8 : p * 8 + 8]
    if mask:
        v = ts.tile.bounds_mask(v, rows=n - p * 8, value=-1.0)  # noqa: F821
    o[p] = ts.tile.max(v)
    return o


def test_raggedness_for_some_values_is_reported_for_those():
    refused(lambda: masked_sum[1](iota(6), mask=False), "E_RAGGED")


# Dtypes


@ts.kernel
def converted(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32], acc: ts.dtype):
    p = ts.tile.program_id(0)
    v = ts.tile.cast(x[p * 16 : p * 16 + 16], acc)
    w = ts.tile.zeros((16,), acc) + v
    o[p * 16 : p * 16 + 16] = ts.tile.cast(w, ts.f32)
    return o


@ts.kernel
def called(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32], kind: ts.DType):
    i = ts.tile.linear_id()
    y = kind(x[i])
    if kind == ts.i32:
        o[i] = ts.f32(y) + 100.0
    else:
        o[i] = ts.f32(y)
    return o


def test_dtypes():
    x = iota(32) + 0.625
    assert (converted(x, acc=ts.f32) == x).all() and (converted(x, acc=ts.i32) == np.trunc(x)).all()
    assert (converted(x, acc=ts.f64) == x).all()
    assert (called(x, kind=ts.i32) == np.trunc(x) + 100).all() and (called(x, kind=ts.f32) == x).all()
    refused(lambda: converted(x, acc=3), "E_ARGUMENT")
    refused(lambda: converted(x, acc="f32"), "E_ARGUMENT")
    assert (converted.jit(acc=ts.i32)(x) == np.trunc(x)).all()


@ts.kernel
def with_default_dtype(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32], acc: ts.DType = ts.i32):
    i = ts.tile.linear_id()
    o[i] = ts.f32(acc(x[i]))
    return o


def test_dtype_with_a_default():
    x = iota() + 0.5
    assert (with_default_dtype(x) == iota()).all() and (with_default_dtype(x, acc=ts.f32) == x).all()


# Errors for every value are reported at decoration


def test_errors_that_no_value_avoids_are_reported_at_decoration():
    with pytest.raises(ts.KernelSyntaxError) as error:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32], BLOCK: int, act: str):
            p = ts.tile.program_id(0)
            x[p * BLOCK : p * BLOCK + BLOCK] = nothing_of_this_name  # noqa: F821

    assert error.value.code == "E_NAME"
    with pytest.raises(ts.TesseraError) as error:

        @ts.kernel
        def m(x: ts.Tensor["n", ts.f32], BLOCK: int):
            p = ts.tile.program_id(0)
            x[p * BLOCK : p * BLOCK + BLOCK] = x[0:BLOCK, 0:BLOCK]

    assert error.value.code == "E_SHAPE_MISMATCH"


def test_all_of_them_on_every_backend():
    from tessera import runtime

    for backend in ("interp", "cpu"):
        runtime.select_backend(backend)
        try:
            test_int_in_shapes_and_slices(3)
            test_ints_as_step_and_extents((5, 7))
            test_texts_choose_branches()
            test_dtypes()
        finally:
            runtime.select_backend(None)


# Annotations


@pytest.mark.parametrize("future", [False, True])
def test_wrong_annotation_names_its_line(future, tmp_path):
    for annotation, code in (
        ("complex", "E_TYPE"),
        ("[int]", "E_TYPE"),
        ('ts.Tensor["n", "fp7"]', "E_UNSUPPORTED_DTYPE"),
        ('ts.Tensor[-1, ts.f32]', "E_SHAPE_MISMATCH"),
        ('ts.Out["n"]', "E_TYPE"),
        ('ts.Region["wright"]', "E_ARGUMENT"),
    ):
        text = f"""
        {"from __future__ import annotations" if future else ""}
        import tessera as ts

        @ts.kernel
        def k(
            x: ts.Tensor["n", ts.f32],
            y: {annotation},
        ):
            pass
        """
        file = tmp_path / f"annotated_{len(list(tmp_path.iterdir()))}.py"
        file.write_text(textwrap.dedent(text))
        with pytest.raises(ts.TesseraError) as error:
            exec(compile(file.read_text(), str(file), "exec"), {"__name__": "annotated"})
        assert (error.value.code, error.value.file, error.value.line) == (code, str(file), 8), annotation
