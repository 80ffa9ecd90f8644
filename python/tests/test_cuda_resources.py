"""Tiles that a GPU has no room for: the error names the tile, its line and what fits. No GPU is needed."""

import pytest

import tessera as ts


@ts.kernel
def turned(x: ts.Tensor["N", "N", ts.f32], y: ts.Tensor["N", "N", ts.f32]):
    y[0:256, 0:256] = x[0:256, 0:256].T


@ts.kernel
def lowered(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    t = x[row, :]
    y[row, :] = t - ts.tile.max(t)


def test_too_much_shared_memory_names_the_tile_and_what_fits():
    with pytest.raises(ts.ResourceError) as caught:
        turned.jit(target="sm90")
    error = caught.value
    assert error.code == "E_TILE_LOWERING" and "y[0:256, 0:256] = x[0:256, 0:256].T" in str(error)
    assert "tile<256x256xf32> takes 262144 bytes" in str(error) and "at most 58112 elements" in str(error)


def test_too_many_registers_name_the_tile_and_what_fits():
    with pytest.raises(ts.ResourceError) as caught:
        lowered.jit(N=4_000_000, target="sm90")
    assert caught.value.code == "E_TILE_LOWERING"
    assert "tile<4000000xf32>" in str(caught.value) and "at most 262144 elements" in str(caught.value)
