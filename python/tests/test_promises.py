"""Claims of the guides that are about privileges, fallbacks, warps and grids."""

import warnings

import numpy as np
import pytest

import tessera as ts
from kernels import gemm, saxpy


def test_writing_a_read_region_is_refused_at_decoration():
    with pytest.raises(ts.PrivilegeError) as e:

        @ts.kernel
        def bad(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]]):
            i = ts.tile.linear_id()
            x[i] = 1.0

    assert e.value.code == "E_PRIVILEGE" and "x[i] = 1.0" in str(e.value)


def test_folding_into_an_out_says_the_whole_annotation():
    index = np.array([1, 1, 7], np.int32)
    for dims in ("8", '"m"'):
        with pytest.raises(ts.PrivilegeError) as e:

            @ts.kernel
            def bad(idx: ts.Tensor[3, ts.i32], y: ts.Out[eval(dims), ts.f32]):
                y[idx[:]] += 1.0

        assert f"`y: ts.Region[ts.reduce_sum, ts.Out[{dims}, ts.f32]]`" in e.value.help

    @ts.kernel
    def good(idx: ts.Tensor[3, ts.i32], y: ts.Region[ts.reduce_sum, ts.Out[8, ts.f32]]):
        y[idx[:]] += 1.0
        return y

    assert good(index).tolist() == [0, 2, 0, 0, 0, 0, 0, 1]
    with pytest.raises(ts.PrivilegeError) as e:

        @ts.kernel
        def reads(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
            i = ts.tile.linear_id()
            y[i] = y[i] + x[i]

    assert '`y: ts.Region[ts.read_write, ts.Tensor["n", ts.f32]]`, and pass an array' in e.value.help


@ts.kernel
def both(x: ts.Tensor["n", ts.f32], a: ts.Region[ts.write, ts.Tensor["n", ts.f32]],
         b: ts.Region[ts.write, ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    a[i] = x[i]
    b[i] = x[i] + 1.0


def test_one_array_for_two_written_regions_is_refused():
    x, out = np.ones(4, np.float32), np.zeros(6, np.float32)
    for a, b in [(out, out), (out[:4], out[2:]), (out[:4], out[3::-1])]:
        with pytest.raises(ts.PrivilegeError, match="overlap") as e:
            both(x, a[:4], b[:4])
        assert "both are written" in str(e.value)
    assert (out == 0).all()
    pair = np.zeros(8, np.float32)
    both(x, pair[::2], pair[1::2])
    assert (pair == [1, 2] * 4).all()


@pytest.mark.parametrize("name", ["fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1", "bf16", "f16"])
@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_no_dtype_falls_back(name, backend, monkeypatch):
    """A fallback gives a warning. These backends have every dtype: there is no warning, and results have the bits of the
    dtype itself."""
    monkeypatch.setenv("TESSERA_BACKEND", backend)
    elem = ts.dtype(name)

    @ts.kernel
    def third(x: ts.Tensor["n", elem], y: ts.Tensor["n", elem]):
        i = ts.tile.linear_id()
        y[i] = x[i] / 3.0

    values = np.array([1, 1.5, 2, 3, 4, 6], np.float32)
    x = ts.array(values, name)
    y = ts.zeros(6, name)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ts.TesseraWarning)
        third(x, y)
    wanted = ts.numerics.encode(x.astype(np.float32) / np.float32(3), name)
    assert (y.view(wanted.dtype) == wanted).all()
    assert "W_DTYPE_FALLBACK" not in third.explain()


@ts.kernel(lanes=128)
def group_sums(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = ts.tile.group.reduce(x[i], "sum")
    z[i] = ts.tile.group.scan(x[i], "sum")


def test_group_reductions_do_not_depend_on_the_width_of_a_warp(monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", "interp")
    x = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    results = []
    for width in (16, 32, 64):
        monkeypatch.setenv("TESSERA_INTERP_WARP", str(width))
        assert ts.runtime.capabilities()["warp_size"] == width
        group_sums.cache_clear()
        y, z = np.zeros_like(x), np.zeros_like(x)
        group_sums(x, y, z)
        results.append((y.tobytes(), z.tobytes()))
    assert results[0] == results[1] == results[2]
    sums = [x[i : i + 128].sum(dtype=np.float64) for i in (0, 128, 256)]
    assert np.allclose(np.frombuffer(results[0][0], np.float32), np.repeat(sums, 128)[:300], rtol=1e-5)
    monkeypatch.setenv("TESSERA_INTERP_WARP", "33")
    with pytest.raises(ts.LaunchError, match="16, 32 or 64"):
        ts.runtime.capabilities()


@ts.kernel
def blocks(x: ts.Tensor[64, ts.f32], y: ts.Tensor[64, ts.f32]):
    p = ts.tile.program_id(0)
    y[p * 16 : p * 16 + 16] = x[p * 16 : p * 16 + 16] + 1.0


def test_more_groups_than_the_kernels_own_write_nothing_outside():
    memory = np.zeros(96, np.float32)
    x, y = np.ones(64, np.float32), memory[:64]
    blocks(x, y)
    assert "inside" in blocks.jit().inspect_ir("tile")
    for launch in (blocks[6], blocks.jit()[6]):
        y[:] = 0
        launch(x, y)
        assert (memory[:64] == 2).all() and (memory[64:] == 0).all()
        assert "from the caller" in blocks.explain()
    # Fewer are the caller's choice.
    y[:] = 0
    blocks[2](x, y)
    assert (memory[:32] == 2).all() and (memory[32:] == 0).all()


def test_a_grid_whose_groups_write_one_place_is_refused():
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(ts.TesseraError) as e:
        blocks[4, 2](x, y)
    assert e.value.code == "E_RACE" and "program_id(1)" in str(e.value) and (y == 0).all()
    blocks[4, 1](x, y)
    assert (y == 2).all()
    a = ts.ones((64, 64), "bf16")
    with pytest.raises(ts.TesseraError, match="E_RACE"):
        gemm[1, 1, 2](a, a, ts.zeros((64, 64)))


def test_a_grid_of_lanes_is_the_callers_too():
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    saxpy[5](x, y, 2.0)
    assert (y == [2] * 5 + [0] * 3).all()
    saxpy[500](x, y, 2.0)
    assert (y == [4] * 5 + [2] * 3).all()


@ts.kernel
def mapped(x: ts.Tensor["n", ts.f32], f: ts.Fn = ts.identity):
    i = ts.tile.linear_id()
    x[i] = f(x[i])
    return x


def test_functions_of_the_language_may_be_given_for_function_parameters():
    x = np.array([4.0, 9.0], np.float32)
    assert mapped(x).tolist() == [4, 9]
    assert mapped(x, ts.tile.sqrt).tolist() == [2, 3]
    assert mapped(x, f=ts.tile.neg).tolist() == [-2, -3]
    assert mapped.jit(f=ts.tile.abs)(x).tolist() == [2, 3]
    with pytest.raises(ts.LaunchError, match="expected a function"):
        mapped(x, np.sqrt)


@ts.kernel
def talkative(x: ts.Tensor["n", ts.f32]):
    p = ts.tile.program_id(0)
    t = x[p * 2 : p * 2 + 2]
    ts.tile.print("t =", t)
    x[p * 2 : p * 2 + 2] = t + 1.0


def test_what_a_kernel_prints_goes_where_python_prints(capsys):
    talkative(np.array([1, 2, 3, 4], np.float32))
    assert capsys.readouterr().out == "talkative[0]: t = [1.0, 2.0]\ntalkative[1]: t = [3.0, 4.0]\n"


@ts.kernel(lanes=64)
def places(lane: ts.Tensor["n", ts.i32], warp: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    lane[i] = ts.tile.lane_id()
    warp[i] = ts.tile.warp_id()


@pytest.mark.parametrize("width", [16, 32, 64])
def test_lane_ids_follow_the_emulated_warp_width(width, monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", "interp")
    monkeypatch.setenv("TESSERA_INTERP_WARP", str(width))
    lane, warp = np.zeros(64, np.int32), np.zeros(64, np.int32)
    places(lane, warp)
    np.testing.assert_array_equal(lane, np.arange(64) % width)
    np.testing.assert_array_equal(warp, np.arange(64) // width)


def test_warps_have_32_lanes_on_the_cpu(monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", "cpu")
    monkeypatch.setenv("TESSERA_INTERP_WARP", "64")  # not its affair
    lane, warp = np.zeros(64, np.int32), np.zeros(64, np.int32)
    places(lane, warp)
    np.testing.assert_array_equal(lane, np.arange(64) % 32)
    np.testing.assert_array_equal(warp, np.arange(64) // 32)
