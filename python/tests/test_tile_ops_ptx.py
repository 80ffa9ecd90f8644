"""Sorts, histograms, scans and reductions by own combiners on the emulated GPU: as ops on tiles in registers, and expanded into
shared buffers (`TESSERA_OFF=tile_ops`). Both give NumPy's results, and in `strict` the interpreter's bits."""

import sys
from pathlib import Path

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
