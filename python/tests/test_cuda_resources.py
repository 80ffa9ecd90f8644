"""Tiles that a GPU has no room for: the error names the tile, its line and what fits. No GPU is needed."""

import pytest

import tessera as ts


@ts.kernel
def multiplied(x: ts.Tensor[128, 256, ts.f32], w: ts.Tensor[256, 128, ts.f32], y: ts.Tensor[128, 128, ts.f32]):
    y[0:128, 0:128] = ts.tile.mma(x[0:128, 0:256], w[0:256, 0:128])


@ts.kernel
def lowered(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    t = x[row, :]
    y[row, :] = t - ts.tile.max(t)


def test_too_much_shared_memory_names_the_tile_and_what_fits():
    with pytest.raises(ts.ResourceError) as caught:
        multiplied.jit(target="sm90")
    error = caught.value
    assert error.code == "E_TILE_LOWERING" and "ts.tile.mma(x[0:128, 0:256], w[0:256, 0:128])" in str(error)
    assert "tile<256x128xf32> takes 135168 bytes" in str(error) and "at most 24079 elements" in str(error)


def test_too_many_registers_name_the_tile_and_what_fits():
    with pytest.raises(ts.ResourceError) as caught:
        lowered.jit(N=4_000_000, target="sm90")
    assert caught.value.code == "E_TILE_LOWERING"
    assert "tile<4000000xf32>" in str(caught.value) and "at most 262144 elements" in str(caught.value)
