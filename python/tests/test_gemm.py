"""Matmuls of the library compared with float64, on small integers, whose sums are exact in any order."""

import itertools
import re

import numpy as np
import pytest

import tessera as ts
from tessera.kernels import gemm_plan as kernels
from tessera.kernels import pad


@pytest.fixture
def ints():
    rng = np.random.default_rng(0)
    return lambda *shape, dtype="bf16": ts.array(rng.integers(-3, 4, shape), dtype)


def wide(x):
    return np.asarray(x).astype(np.float64)


def same(got, expected):
    assert got.shape == expected.shape
    assert (wide(got) == expected).all()


SHAPES = [
    ((5, 7), (7, 3)), ((130, 70), (70, 129)), ((2, 3, 20, 30), (30, 40)), ((3, 20, 30), (2, 1, 30, 8)), ((7,), (7,)),
    ((7,), (7, 9)), ((4, 7), (7,)), ((4, 0), (0, 5)), ((0, 4), (4, 5)), ((1, 300), (300, 1)), ((300, 1), (1, 300)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "f64"])
def test_shapes_follow_numpy(ints, dtype):
    for of_a, of_b in SHAPES:
        a, b = ints(*of_a, dtype=dtype), ints(*of_b, dtype=dtype)
        same(ts.op.matmul(a, b, out_dtype="f64" if dtype == "f64" else "f32"), wide(a) @ wide(b))


def test_transposes_are_the_same_memory(ints):
    a, b = ints(64, 96), ints(96, 80)
    for trans_a, trans_b in itertools.product((False, True), repeat=2):
        left = np.ascontiguousarray(a.T) if trans_a else a
        right = np.ascontiguousarray(b.T) if trans_b else b
        same(ts.gemm(left, right, trans_a=trans_a, trans_b=trans_b, out_dtype="f32"), wide(a) @ wide(b))
    same(ts.op.matmul(a[::2, ::-1], b[::-1, 1::3], out_dtype="f32"), wide(a[::2, ::-1]) @ wide(b[::-1, 1::3]))


def test_alpha_and_beta(ints):
    a, b, c = ints(64, 96), ints(96, 80), ints(64, 80, dtype="f32")
    same(ts.gemm(a, b, c, 2.0, 3.0, out_dtype="f32"), 2 * (wide(a) @ wide(b)) + 3 * wide(c))
    nothing = np.full((64, 80), np.nan, np.float32)
    same(ts.gemm(a, b, nothing, 2.0, 0.0, out_dtype="f32"), 2 * (wide(a) @ wide(b)))


PLANS = [None, {"split": 2}, {"swapped": True}, {"split": 3, "swapped": True, "tile": (32, 16, 16)}, (16, 16, 16)]


@pytest.mark.parametrize("plan", PLANS)
def test_epilogues_are_the_same_for_every_plan(ints, plan):
    a, b = ints(64, 96), ints(96, 80)
    row, column, rest = ints(80, dtype="f32"), ints(64, 1, dtype="f32"), ints(64, 80, dtype="f32")
    sums = wide(a) @ wide(b)
    got = ts.op.matmul(a, b, bias=row, activation="relu", residual=rest, out_dtype="f32", tile=plan)
    same(got, np.maximum(sums + wide(row), 0) + wide(rest))
    same(ts.op.matmul(a, b, bias=column, scale=2.0, out_dtype="f32", tile=plan), 2 * sums + wide(column))
    batch = ts.op.matmul(np.stack([a, a]), b, residual=ints(2, 1, 1, dtype="f32") * 0 + 1, out_dtype="f32", tile=plan)
    same(batch, np.stack([sums, sums]) + 1)


def test_integers_are_exact(ints):
    a, b = ints(5, 70, dtype="i8"), ints(70, 30, dtype="i8")
    got = ts.op.matmul(a, b)
    assert got.dtype == np.int32
    same(got, wide(a) @ wide(b))


def test_scales_of_fp8(ints):
    a, b = ints(40, 256, dtype="fp8_e4m3"), ints(256, 140, dtype="fp8_e5m2")
    same(ts.op.matmul(a, b, scale=0.5, out_dtype="f32"), wide(a) @ wide(b) * 0.5)
    of_a = np.abs(ints(1, 40, 2, dtype="f32"))
    of_b = np.abs(ints(1, 2, 2, dtype="f32"))
    scaled_a = wide(a) * np.repeat(of_a[0], 128, axis=1)
    scaled_b = wide(b) * np.repeat(np.repeat(of_b[0], 128, axis=0), 128, axis=1)[:, :140]
    same(ts.op.matmul(a, b, block_scales=(of_a, of_b), out_dtype="f32"), scaled_a @ scaled_b)
    same(ts.op.matmul(a, b, block_scales=(of_a[0], of_b[0]), out_dtype="f32"), scaled_a @ scaled_b)


def test_precision(ints):
    a, b = ints(40, 70, dtype="f32"), ints(70, 30, dtype="f32")
    same(ts.op.matmul(a, b, precision="tf32"), wide(a) @ wide(b))
    same(ts.op.matmul(a, b, precision="f32"), wide(a) @ wide(b))
    narrow = ints(40, 70, dtype="fp8_e4m3"), ints(70, 30, dtype="fp8_e4m3")
    for mode in ("default", "fast", "f32"):
        same(ts.op.matmul(*narrow, precision=mode, out_dtype="f32"), wide(narrow[0]) @ wide(narrow[1]))
    with pytest.raises(ts.TesseraError, match="expected one of 'default', 'f32', 'tf32' for matrices of f32, got 'fast'"):
        ts.op.matmul(a, b, precision="fast")
    with pytest.raises(ts.TesseraError, match="expected one of 'default' for matrices of bf16"):
        ts.op.matmul(ints(4, 4, dtype="bf16"), ints(4, 4, dtype="bf16"), precision="tf32")


@pytest.mark.parametrize("sizes", [[10, 0, 54, 30], [100, 0, 0, 0], [0, 0, 0, 0], [25, 25, 25, 25]])
def test_groups_of_rows(ints, sizes):
    a, b = ints(100, 70), ints(4, 70, 90)
    expected, at = np.zeros((100, 90)), 0
    for size, matrix in zip(sizes, b):
        expected[at : at + size] = wide(a[at : at + size]) @ wide(matrix)
        at += size
    same(ts.op.grouped_gemm(a, b, np.array(sizes), out_dtype="f32"), expected)
    # Whole tiles, ends of groups in the midst of one, and rows of no group.
    same(ts.op.grouped_gemm(a, b, np.array(sizes, np.int32), out_dtype="f32", tile=(16, 32, 16)), expected)
    assert not wide(ts.op.grouped_gemm(a, b[:0], np.zeros(0, np.int64), out_dtype="f32")).any()


def test_strict_is_the_interpreter_and_never_splits(ints):
    a = ts.array(np.random.default_rng(1).standard_normal((33, 100)), "f32")
    b = ts.array(np.random.default_rng(2).standard_normal((100, 20)), "f32")
    with ts.numerics.profile("strict"):
        compiled = ts.op.matmul(a, b)
        ts.runtime.select_backend("interp")
        try:
            assert ts.op.matmul(a, b).tobytes() == compiled.tobytes()
        finally:
            ts.runtime.select_backend(None)
    assert kernels.plan(1, 64, 64, 65536, ts.bf16, True, (True, True), True).split == 1
    assert kernels.plan(1, 64, 64, 65536, ts.bf16, True, (True, True), False).split > 1


def test_plans_are_for_every_shape():
    for shape in itertools.product((1, 3), (1, 16, 64, 100, 1000, 4096), (1, 24, 64, 129, 8192), (0, 1, 64, 14336)):
        for of, aligned in itertools.product((ts.i8, ts.bf16, ts.f32, ts.tf32, ts.f64), ((True, True), (False, True))):
            plan = kernels.plan(*shape, of, True, aligned, False)
            assert all(side > 0 for side in plan.tile) and plan.split >= 1
            assert str(plan).startswith("tiles of ")
    # Rows that TMA cannot copy, in a matmul large enough that padding pays.
    assert kernels.plan(1, 4095, 4095, 4095, ts.bf16, True, (False, False), False).padded == ("A", "B")
    assert kernels.plan(1, 8, 4095, 4095, ts.bf16, True, (False, False), False).padded == ()


def test_a_block_computes_one_tile_if_all_blocks_are_resident():
    plan = lambda *shape: kernels.plan(*shape, ts.bf16, True, (True, True), False)  # noqa: E731
    for shape in ((1, 1000, 1000, 1000), (1, 1024, 1024, 1024), (1, 2048, 2048, 2048), (1, 64, 8192, 8192), (2, 512, 512, 512)):
        assert not plan(*shape).persistent, shape
    for shape in ((1, 4096, 4096, 4096), (1, 2048, 2048 + 512, 64), (64, 512, 512, 512)):
        assert plan(*shape).persistent, shape


def test_rows_that_begin_inside_cache_lines_use_clusters():
    plan = lambda M, N, K, alignment: kernels.plan(1, M, N, K, ts.bf16, True, (True, True), False, row_bytes=alignment)  # noqa: E731
    assert (plan(4104, 4104, 4104, 16).cluster_m, plan(4104, 4104, 4104, 128).cluster_m) == (2, 0)
    assert str(plan(1000, 1000, 1000, 16)).startswith("tiles of 64x128x64, clusters of 2x1 tiles")
    # Such requests are slow: fewer stages cover the memory latency.
    assert [plan(1000, 1000, 1000, alignment).num_stages for alignment in (16, 32, 128)] == [6, 6, 0]


def test_explain_says_what_is_copied_first(ints, monkeypatch):
    odd, even, long = ints(300, 301), ints(301, 304), ints(301, 303)
    assert ts.op.matmul.explain(odd, long) == "tiles of 128x128x64"
    # As for arrays on a GPU: TMA needs rows on multiples of 16 bytes.
    monkeypatch.setattr(kernels.arrays, "on_device", lambda x: True)
    says = lambda *args: ts.op.matmul.explain(*args).partition(";")[0]  # noqa: E731
    assert says(odd, long).endswith(", A and B copied to rows on multiples of 128 bytes first in one launch")
    assert says(odd, even).endswith(", A copied to rows on multiples of 128 bytes first")
    assert "copied" not in ts.op.matmul.explain(ints(300, 304), ints(304, 304))
    # Elements of 2 bytes on odd rows are read one by one: a copy pays with few rows too, but not with a short K.
    assert says(ints(30, 301), long).endswith(", A and B copied to rows on multiples of 128 bytes first in one launch")
    assert "copied" not in says(ints(30, 101), ints(101, 303)) and "copied" not in says(ints(30, 300), ints(300, 304))
    assert "copied" not in ts.op.matmul.explain(ints(300, 301, dtype="f32"), ints(301, 303, dtype="f32"))
    assert "copied" not in says(ints(300, 304), ints(304, 1))
    assert ts.op.matmul.explain(odd, long, tile=(64, 64, 32)).startswith("tiles of 64x64x32")
    narrow = ints(300, 301, dtype="fp8_e4m3"), ints(301, 303, dtype="fp8_e4m3")
    text = says(*narrow)
    assert text.endswith(", A copied to rows on multiples of 128 bytes first, B copied along K first")
    # For tf32, one matrix need not be contiguous along K: the left one of the matmul, or of its transpose.
    f32 = lambda *shape: ints(*shape, dtype="f32")  # noqa: E731
    plan_of = lambda a, b: ts.op.matmul.explain(a, b, precision="tf32").partition(";")[0]  # noqa: E731
    assert "transposed" not in plan_of(f32(320, 512), f32(640, 512).T) and "copied" not in plan_of(f32(320, 512), f32(640, 512).T)
    assert plan_of(f32(320, 512), f32(512, 640)).find(", of the transposed matrices") > 0
    assert "transposed" not in plan_of(f32(512, 320).T, f32(640, 512).T) and "copied" not in plan_of(f32(512, 320).T, f32(640, 512).T)
    assert plan_of(f32(512, 320).T, f32(512, 640)).endswith("B copied along K first")
    assert plan_of(f32(320, 512), f32(512, 641)).endswith("matrices, B copied to rows on multiples of 128 bytes first")
    with pytest.raises(ts.TesseraError, match="as long as the next to last"):
        ts.op.matmul.explain(odd, odd)


@pytest.mark.parametrize("dtype", ["i8", "bf16", "f32", "f64"])
def test_copies_to_good_rows(ints, dtype):
    def aligned_rows(x):
        steps = [s for s, n in zip(x.strides, x.shape) if n > 1]
        return all(s % 128 == 0 or s == x.itemsize for s in steps)

    for of_a, of_b in [((1, 33, 45), (1, 45, 37)), ((3, 5, 7), (1, 7, 9)), ((1, 1, 1), (2, 1, 300)), ((2, 70, 513), (2, 513, 20))]:
        for trans_a, trans_b in itertools.product((False, True), repeat=2):
            a, b = (ints(*shape, dtype=dtype) for shape in (of_a, of_b))
            if trans_a:
                a = np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1)
            if trans_b:
                b = np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1)
            for given, made in zip((a, b), pad.on_good_rows(a, b)):
                assert made.tobytes() == given.tobytes() and made.dtype == given.dtype and aligned_rows(made)
            [made] = pad.on_good_rows(a)
            assert made.tobytes() == a.tobytes()
            assert pad.along(a, -2).tobytes() == a.tobytes() and aligned_rows(pad.along(a, -2))
    # A broadcast array is copied once; an array without a contiguous axis is copied too.
    [made] = pad.on_good_rows(np.broadcast_to(a[:1], (4, *a.shape[1:])))
    assert made.strides[0] == 0 and made.tobytes() == a[:1].tobytes() * 4
    [made] = pad.on_good_rows(a[:, ::2, ::-3])
    assert made.tobytes() == a[:, ::2, ::-3].tobytes() and aligned_rows(made)


def test_tiles_follow_what_they_cost():
    def chosen(*sides, lines=True):
        plan = kernels.plan(1, *sides, ts.bf16, True, (True, True), False, row_bytes=128 if lines else 16)
        return (*plan.tile[:2], plan.split)

    # Split-K sends partial sums through memory and needs a second launch, which must pay off.
    assert chosen(1024, 1024, 4096) == (64, 128, 1)
    assert chosen(256, 256, 16384)[2] > 1
    # Pieces that cross a cache line are loaded twice; larger tiles have fewer of them.
    assert sum(chosen(1200, 1200, 8192, lines=False)[:2]) >= sum(chosen(1200, 1200, 8192)[:2])
    # The choice, its predicted time, and the next best candidates.
    text = str(kernels.plan(1, 4096, 4096, 4096, ts.bf16, True, (True, True), False))
    found = re.fullmatch(r"tiles of 128x256x64; predicted ([\d.]+) us \(mostly arithmetic\); then (\d+x\d+.* us(, )?){3}", text)
    assert found and 120 < float(found[1]) < 240, text
    pinned = ts.op.matmul.explain(np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32), tile=(64, 64, 32))
    assert "predicted" not in pinned
    assert kernels.is_aligned(np.zeros((4, 8), np.float32)) and not kernels.is_aligned(np.zeros((4, 8), np.float32), 128)
    for T, G, N in itertools.product((1, 100, 8192), (1, 8, 64), (1, 100, 4096)):
        bm, bn, bk = kernels.group_tile(T, G, N, 4096, ts.bf16)
        assert bm == (128 if T >= 128 * G else 64) and bn <= 256 and bk == 64
    assert kernels.group_tile(8192, 8, 4096, 4096, ts.bf16) == (128, 256, 64)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda a, b: ts.op.matmul(a, a), "E_SHAPE_MISMATCH"),
        (lambda a, b: ts.op.matmul(a, b.astype(np.float64)), "E_TYPE"),
        (lambda a, b: ts.op.matmul(a.astype(np.int64), b.astype(np.int64)), "E_TYPE"),
        (lambda a, b: ts.op.matmul(a, b, bias=np.zeros(3, np.float32)), "E_SHAPE_MISMATCH"),
        (lambda a, b: ts.op.matmul(a, b, tile=(1, 2)), "E_ARGUMENT"),
        (lambda a, b: ts.op.matmul(a, b, tile={"stages": 2}), "E_ARGUMENT"),
        (lambda a, b: ts.op.matmul(a, b, epilogue=ts.identity, bias=b), "E_ARGUMENT"),
        (lambda a, b: ts.op.matmul(np.float32(1), b), "E_SHAPE_MISMATCH"),
        (lambda a, b: ts.op.grouped_gemm(a, b[None], np.zeros(2, np.int64)), "E_SHAPE_MISMATCH"),
        (lambda a, b: ts.op.grouped_gemm(a, b, np.zeros(2, np.int64)), "E_SHAPE_MISMATCH"),
        (lambda a, b: ts.gemm(np.zeros(3, np.float32), b, trans_a=True), "E_SHAPE_MISMATCH"),
    ],
)
def test_refused(call, code):
    with pytest.raises(ts.TesseraError) as caught:
        call(np.zeros((4, 6), np.float32), np.zeros((6, 5), np.float32))
    assert caught.value.code == code and caught.value.help
