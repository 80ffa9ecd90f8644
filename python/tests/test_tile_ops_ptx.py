"""Sorts, histograms, scans and reductions by own combiners on the emulated GPU: as ops on tiles in registers, and expanded into
shared buffers (`TESSERA_OFF=tile_ops`). Both give NumPy's results, and in `strict` the interpreter's bits."""

import functools
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import tessera as ts

sys.path.append(str(Path(__file__).resolve().parents[2]))
from conformance.gpu import tile_op_cases  # noqa: E402
from gpurun.compare import near, same_bits  # noqa: E402

GROUPS = tile_op_cases.cases()


def on(backend, profile, kernel, args):
    ts.runtime.select_backend(backend)
    try:
        with ts.numerics.profile(profile):
            results = kernel(*args)
    finally:
        ts.runtime.select_backend(None)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("off", ["", "tile_ops"])
@pytest.mark.parametrize("name", GROUPS)
def test_results_are_those_of_numpy_and_bits_those_of_the_interpreter(name, off, monkeypatch):
    if off:
        monkeypatch.setenv("TESSERA_OFF", off)
    for number, (what, make) in enumerate(GROUPS[name]):
        if off and number % 4:
            continue
        kernel, args, expected = make()
        for i, (r, e) in enumerate(zip(on("ptx-emulated", "default", kernel, args), expected())):
            near(r, e, None, f"{what}, result {i}")
        if number % 2 == 0:
            right = on("interp", "strict", kernel, args)
            for i, (r, e) in enumerate(zip(on("ptx-emulated", "strict", kernel, args), right)):
                same_bits(r, e, f"strict {what}, result {i}")


@ts.func
def step(a, b, c, d):
    return a * c, c * b + d


@ts.kernel
def selective_scan(a: ts.Tensor["T", "D", ts.f32], b: ts.Tensor["T", "D", ts.f32], y: ts.Out["T", "D", ts.f32]):
    d = ts.tile.program_id(0) * 128
    state = ts.tile.zeros((128,))
    for t in ts.tile.range(0, T, 32):  # noqa: F821
        decay, added = ts.tile.associative_scan((a[t : t + 32, d : d + 128], b[t : t + 32, d : d + 128]), step, axis=0)
        h = decay * state[None, :] + added
        y[t : t + 32, d : d + 128] = h
        state = h[-1]
    return y


@ts.func
def apart(a, b):
    # Not associative, so that the order shows; each thread has a branch and a quotient of its own.
    if a // 3 > b:
        return a - b * 5
    return a * 5 + b % 7


@ts.kernel
def odd_combiner(x: ts.Tensor["M", "N", ts.i64], r: ts.Out["M", ts.i64], s: ts.Out["M", "N", ts.i64], u: ts.Out["M", "N", ts.i64]):
    ts.tile.grid(1)
    t = x[:, :]
    r[:] = ts.tile.reduce(t, apart, axis=1)
    s[:, :] = ts.tile.scan(t, apart, axis=1)
    u[:, :] = ts.tile.scan(t, apart, axis=0, reverse=True)
    return r, s, u


@ts.func
def either(a, b, c, d):
    return a | c, b & d


@ts.kernel
def conditions(x: ts.Tensor["M", "N", ts.i32], r: ts.Out["M", ts.i32], s: ts.Out["M", "N", ts.i32]):
    ts.tile.grid(1)
    t = x[:, :]
    any_, all_ = ts.tile.reduce((t > 8, t > 0), either, axis=1)
    r[:] = ts.tile.where(any_, 2, 0) + ts.tile.where(all_, 1, 0)
    up, _ = ts.tile.scan((t > 8, t > 0), either, axis=1)
    s[:, :] = ts.tile.where(up, 1, 0)
    return r, s


@ts.kernel
def sort_row(x: ts.Tensor["M", 1024, ts.i32], y: ts.Out["M", 1024, ts.i32]):
    row = ts.tile.program_id(0)
    y[row, :] = ts.tile.sort(x[row, :])
    return y


def code(kernel, args):
    ts.runtime.select_backend("ptx-emulated")
    try:
        kernel(*args)
        return kernel.inspect_ir("target")
    finally:
        ts.runtime.select_backend(None)


def test_a_scan_of_columns_moves_nothing_between_threads(monkeypatch):
    # Loads go through shared memory otherwise.
    monkeypatch.setenv("TESSERA_OFF", "software_pipelining")
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.5, 1, (64, 128)).astype(np.float32), rng.standard_normal((64, 128), dtype=np.float32)
    ptx = code(selective_scan, (a, b))
    assert "mul.rn.f32" in ptx
    assert "shfl" not in ptx and "shared" not in ptx


@pytest.mark.parametrize("shape", [(3, 5), (4, 64), (1, 1000), (32, 33), (64, 100), (7, 1)])
def test_the_order_of_combining_is_that_of_the_interpreter(shape):
    x = np.random.default_rng(1).integers(-50, 50, shape)
    right = on("interp", "strict", odd_combiner, (x,))
    for i, (r, e) in enumerate(zip(on("ptx-emulated", "strict", odd_combiner, (x,)), right)):
        same_bits(r, e, f"{shape}, result {i}")


def test_combiners_of_conditions():
    x = np.random.default_rng(0).integers(0, 10, (5, 300)).astype(np.int32)
    x[1:3] = np.clip(x[1:3], 1, 8)
    for backend, profile in (("ptx-emulated", "default"), ("ptx-emulated", "strict"), ("interp", "strict")):
        r, s = on(backend, profile, conditions, (x,))
        assert (r == 2 * (x > 8).any(1) + (x > 0).all(1)).all()
        assert (s == np.maximum.accumulate(x > 8, axis=1)).all()


def test_a_row_of_1024_numbers_is_sorted_by_one_warp_in_registers():
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 1024)).astype(np.int32)
    ptx = code(sort_row, (x,))
    # Fifteen of the 55 steps are between lanes, each of 32 registers.
    assert ptx.count("shfl.sync.bfly") == 15 * 32
    assert ptx.count("min.u32") == 40 * 16 + 15 * 32


@ts.kernel
def sort_floats(x: ts.Tensor["M", 1024, ts.f32], y: ts.Out["M", 1024, ts.f32]):
    row = ts.tile.program_id(0)
    y[row, :] = ts.tile.sort(x[row, :])
    return y


def test_floats_with_negative_zeros_take_the_same_path_as_others():
    ptx = code(sort_floats, (np.zeros((1, 1024), np.float32),))
    assert ptx.count("shfl.sync.bfly") == 15 * 32 and ptx.count("min.u32") == 40 * 16 + 15 * 32
    # No vote, no loop: nothing depends on what the numbers are.
    assert "vote" not in ptx and "bra" not in ptx


@functools.lru_cache(maxsize=None)
def sorter(dtype, descending):
    @ts.kernel
    def kernel(x: ts.Tensor["M", "N", dtype], y: ts.Out["M", "N", dtype]):
        row = ts.tile.program_id(0)
        y[row, :] = ts.tile.sort(x[row, :], descending=descending)
        return y

    return kernel


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("n", [1, 3, 32, 100, 1024, 3000])
def test_zeros_of_both_signs_keep_their_order(kind, descending, n):
    """Beside numbers that are next to zero and the largest of both signs, which have the neighbouring keys."""
    dtype, numpy_dtype = tile_op_cases.DTYPES[kind]
    rng = np.random.default_rng([n, descending])
    info = ml_dtypes.finfo(numpy_dtype)
    least, most = info.smallest_subnormal, info.max
    rows = [
        rng.choice(np.array([0.0, -0.0], numpy_dtype), n),
        rng.choice(np.array([0.0, -0.0, least, -least, most, -most, np.inf, -np.inf, np.nan], numpy_dtype), n),
        np.where(rng.random(n) < 0.01, -0.0, rng.standard_normal(n)).astype(numpy_dtype),
        np.full(n, -np.inf, numpy_dtype),
    ]
    x = np.stack(rows)
    at = tile_op_cases.ordered(x, 1, descending)
    (y,) = on("ptx-emulated", "default", sorter(dtype, descending), (x,))
    near(y, np.take_along_axis(x, at, 1), None, kind)


@functools.lru_cache(maxsize=None)
def placer(dtype):
    @ts.kernel
    def kernel(x: ts.Tensor["M", "N", dtype], y: ts.Out["M", "N", ts.i32], z: ts.Out["M", "N", ts.i32]):
        ts.tile.grid(1)
        t = x[:, :]
        y[:, :] = ts.tile.argsort(t, axis=1)
        z[:, :] = ts.tile.argsort(t, axis=0, descending=True)
        return y, z

    return kernel


@pytest.mark.parametrize("warps", [None, 1, 4])
@pytest.mark.parametrize("kind", sorted(tile_op_cases.DTYPES))
@pytest.mark.parametrize("shape", [(1, 1024), (2, 700), (300, 3), (16, 64)])
def test_places_in_digits_are_those_of_numpy(kind, shape, warps):
    """Threads with many elements sort digit by digit."""
    dtype, _ = tile_op_cases.DTYPES[kind]
    x = tile_op_cases.drawn(np.random.default_rng([*shape, len(kind)]), kind, shape)
    kernel = placer(dtype) if warps is None else placer(dtype).scheduled(num_warps=warps)
    y, z = on("ptx-emulated", "default", kernel, (x,))
    assert (y == tile_op_cases.ordered(x, 1)).all()
    assert (z == tile_op_cases.ordered(x, 0, True)).all()


@pytest.mark.parametrize("kind, digits", [("bf16", 1), ("f16", 1), ("u8", 1), ("i16", 1), ("f32", 2), ("u32", 2), ("i64", 3)])
def test_narrow_keys_with_places_are_one_word(kind, digits):
    dtype, numpy_dtype = tile_op_cases.DTYPES[kind]

    @ts.kernel
    def kernel(x: ts.Tensor["M", 1024, dtype], y: ts.Out["M", 1024, ts.i32]):
        row = ts.tile.program_id(0)
        y[row, :] = ts.tile.argsort(x[row, :])
        return y

    ptx = code(kernel, (np.zeros((1, 1024), numpy_dtype),))
    assert ptx.count("min.u32") == digits * (40 * 16 + 15 * 32)


@ts.func
def welford(n, mean, m2, k, other, n2):
    count = n + k
    delta = other - mean
    return count, mean + delta * (k / count), m2 + n2 + delta * delta * (n * k / count)


@functools.lru_cache(maxsize=None)
def moments(length):
    @ts.kernel
    def kernel(x: ts.Tensor["M", length, ts.f32], y: ts.Out["M", 3, ts.f32]):
        row = ts.tile.program_id(0)
        n, mean, m2 = ts.tile.reduce((ts.tile.ones((length,)), x[row, :], ts.tile.zeros((length,))), welford)
        y[row, 0], y[row, 1], y[row, 2] = n, mean, m2
        return y

    return kernel


@pytest.mark.parametrize("warps", [None, 1, 4])
def test_constants_of_a_combiner_are_folded_where_every_pair_has_them(warps):
    x = np.random.default_rng(0).standard_normal((2, 1024)).astype(np.float32)
    kernel = moments(1024) if warps is None else moments(1024).scheduled(num_warps=warps)
    assert "div" not in code(kernel, (x,))
    # A row that fills its last pairs with padding counts as it goes.
    for length in (1024, 1000, 5):
        part = np.ascontiguousarray(x[:, :length])
        kernel = moments(length) if warps is None else moments(length).scheduled(num_warps=warps)
        (right,) = on("interp", "strict", kernel, (part,))
        (y,) = on("ptx-emulated", "strict", kernel, (part,))
        same_bits(y, right, f"{length}")
