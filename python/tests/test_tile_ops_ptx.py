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


@ts.kernel
def sort_row(x: ts.Tensor["M", 1024, ts.i32], y: ts.Out["M", 1024, ts.i32]):
    row = ts.tile.program_id(0)
    y[row, :] = ts.tile.sort(x[row, :])
    return y


def code(kernel, args, level):
    on("ptx-emulated", "default", kernel, args)
    return kernel.inspect_ir(level)


def test_a_scan_of_columns_moves_nothing_between_threads():
    rng = np.random.default_rng(0)
    a, b = rng.uniform(0.5, 1, (64, 128)).astype(np.float32), rng.standard_normal((64, 128), dtype=np.float32)
    staged = code(selective_scan, (a, b), "staged")
    assert "staged.scan_by" in staged and "staged.slice" in staged
    assert "convert_layout" not in staged and "buf_alloc" not in staged
    assert "shfl" not in code(selective_scan, (a, b), "target")


def test_a_row_of_1024_numbers_is_sorted_by_one_warp_in_registers():
    x = np.random.default_rng(0).integers(-(2**31), 2**31, (2, 1024)).astype(np.int32)
    ptx = code(sort_row, (x,), "target")
    # Fifteen of the 55 steps are between lanes, each of 32 registers.
    assert ptx.count("shfl.sync.bfly") == 15 * 32
    assert ptx.count("min.u32") == 40 * 16 + 15 * 32
