"""One array for two parameters of a kernel: taken where the interpreter and compiled code agree, refused otherwise."""

import numpy as np
import pytest
import tessera as ts


@ts.kernel
def turned(x: ts.Tensor[32, 32, ts.f32], y: ts.Tensor[32, 32, ts.f32]):
    g = ts.tile.grid(1)
    y[0:32, 0:32] = ts.tile.transpose(x[0:32, 0:32])


@ts.kernel
def summed_later(x: ts.Tensor[64, ts.f32], y: ts.Tensor[64, ts.f32], z: ts.Tensor[1, ts.f32]):
    g = ts.tile.grid(1)
    a = x[0:64]
    y[0:64] = a + 1
    z[0] = ts.tile.sum(a)


@ts.kernel
def normalised(x: ts.Tensor[8, 64, ts.f32], y: ts.Tensor[8, 64, ts.f32], s: ts.Tensor[8, ts.f32]):
    g = ts.tile.grid(1)
    a = x[0:8, 0:64]
    total = ts.tile.sum(a, axis=1)
    s[0:8] = total
    y[0:8, 0:64] = a / total[:, None]


@ts.kernel
def two(x: ts.Tensor[64, ts.f32], y: ts.Tensor[64, ts.f32], z: ts.Tensor[64, ts.f32]):
    g = ts.tile.grid(1)
    a = x[0:64]
    y[0:64] = a + 1
    z[0:64] = a * 2


def test_elements_that_change_places_or_are_read_later_are_refused():
    a = np.arange(1024, dtype=np.float32).reshape(32, 32)
    with pytest.raises(ts.PrivilegeError):
        turned(a, a)
    b = np.arange(64, dtype=np.float32)
    with pytest.raises(ts.PrivilegeError):
        summed_later(b, b, np.zeros(1, np.float32))
    np.testing.assert_array_equal(b, np.arange(64))


def test_rows_are_normalised_in_place():
    a = np.random.default_rng(0).random((8, 64), np.float32)
    want, s = a / a.sum(axis=1, keepdims=True), np.zeros(8, np.float32)
    normalised(a, a, s)
    np.testing.assert_allclose(a, want, rtol=1e-6)


def test_results_of_one_shape_are_written_together():
    a, z = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    two(a, a, z)
    np.testing.assert_array_equal(a, np.arange(64) + 1)
    np.testing.assert_array_equal(z, 2 * np.arange(64))
