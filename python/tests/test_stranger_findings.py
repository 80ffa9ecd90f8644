"""What users of JAX and NumPy wrote and what came of it: each silently gave something else, or said nothing of use."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp


def refused(code: str, f, *args) -> str:
    with pytest.raises(ts.TesseraError) as caught:
        f(*args)
    assert code in str(caught.value), str(caught.value)
    return str(caught.value)


def test_traced_values_are_arrays_too():
    assert ts.jit(lambda x: x * isinstance(x, ts.Array))(np.float32(2)) == 2
    assert isinstance(xp.zeros(3), ts.Array) and not isinstance(np.zeros(3), ts.Array)


def test_whole_numbers_become_floats_where_the_body_makes_them_so():
    for run in (
        lambda: ts.fori_loop(0, 3, lambda i, c: c + 0.5, 0),
        lambda: ts.scan(lambda c, x: (c + 0.5, None), 0, None, length=3)[0],
    ):
        assert run() == 1.5 and run().dtype == np.float32
    assert ts.while_loop(lambda c: c < 3, lambda c: c + 0.5, 0) == 3.0
    assert ts.fori_loop(0, 3, lambda i, c: c + 1, 0).dtype == np.int64


@pytest.mark.parametrize("loss", [nn.mse_loss, nn.l1_loss, nn.huber_loss, nn.smooth_l1_loss, nn.binary_cross_entropy])
def test_losses_take_no_pairs_of_all_elements(loss):
    a, b = np.ones((4, 1), np.float32), np.ones(4, np.float32)
    assert "reshape" in refused("E_SHAPE_MISMATCH", loss, a, b)
    assert loss(a, a).shape == () and loss(b, 1.0).shape == ()


@pytest.mark.parametrize("bound", [3.0, np.float32(2.5), np.zeros(2, np.int32), "3"])
def test_bounds_of_loops_are_integers(bound):
    assert "upper" in refused("E_TYPE", lambda: ts.fori_loop(0, bound, lambda i, c: c + 1, 0))
    if not isinstance(bound, str):
        refused("E_TYPE", ts.jit(lambda n: ts.fori_loop(0, n, lambda i, c: c + 1, 0)), np.asarray(bound))


def test_bounds_of_loops_of_any_integer():
    for n in (3, np.int32(3), np.array(3), xp.asarray(3)):
        assert ts.fori_loop(0, n, lambda i, c: c + i, 0) == 3
        assert ts.jit(lambda n: ts.fori_loop(0, n, lambda i, c: c + i, 0))(n) == 3


def test_floats_are_not_cut_into_arrays_of_integers():
    x = np.zeros(3, np.int32)
    refused("E_TYPE", lambda: ts.dynamic_update_slice(x, np.float32([1.7, 2.9]), (0,)))
    for way in ("set", "add", "multiply", "min", "max"):
        refused("E_TYPE", lambda way=way: getattr(xp.asarray(x).at[0], way)(5.7))
    np.testing.assert_array_equal(xp.asarray(x).at[0].set(5), [5, 0, 0])
    np.testing.assert_array_equal(xp.asarray(x, np.float32).at[0].set(5), [5, 0, 0])
    np.testing.assert_array_equal(xp.asarray(x).at[np.array([True, False, True])].add(2), [2, 0, 2])


def test_positions_of_slices_one_for_each_axis():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert "one for each axis" in refused("E_ARGUMENT", lambda: ts.dynamic_slice(x, 1, (1, 2)))
    refused("E_ARGUMENT", lambda: ts.dynamic_slice(x, (1,), (1, 2)))
    np.testing.assert_array_equal(ts.dynamic_slice(x, np.array([1, 1]), (1, 2)), x[1:, 1:])


def test_rolls_by_a_traced_number():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axis in (0, 1, 2, None):
        for by in (-5, 0, 3):
            np.testing.assert_array_equal(ts.jit(lambda x, k, axis=axis: xp.roll(x, k, axis=axis))(x, by), np.roll(x, by, axis))
    got = ts.jit(lambda x, k: xp.roll(x, (k, 1), axis=(0, 2)))(x, 1)
    np.testing.assert_array_equal(got, np.roll(x, (1, 1), (0, 2)))
    np.testing.assert_array_equal(ts.vmap(lambda x, k: xp.roll(x, k, axis=0))(x[0], np.arange(3)), [np.roll(r, k) for k, r in enumerate(x[0])])


def test_positions_beyond_i64():
    x, i = np.arange(5.0), np.array([2**64 - 1, 2**63, 1], np.uint64)
    np.testing.assert_array_equal(ts.jit(lambda i, x: x[i])(i, x), [4, 4, 1])
    np.testing.assert_array_equal(xp.take(x, i, mode="clip"), [4, 4, 1])
    np.testing.assert_array_equal(xp.take(x, i, mode="wrap"), x[(i % np.uint64(5)).astype(int)])
    np.testing.assert_array_equal(ts.jit(lambda i, x: x.at[i].set(-1.0))(i, x), [0, -1, 2, 3, 4])


def test_arguments_by_position_as_in_numpy():
    assert xp.zeros(3, xp.int32).dtype == np.int32 and xp.ones((2,), "f64").dtype == np.float64
    assert xp.full(2, 1, xp.float32).dtype == np.float32 and xp.arange(0, 6, 2, xp.float32).dtype == np.float32
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(xp.tril(a, -1), np.tril(a, -1))
    np.testing.assert_array_equal(xp.triu(a, 1), np.triu(a, 1))
    np.testing.assert_array_equal(xp.eye(3, 4, 1, xp.int32), np.eye(3, 4, 1, np.int32))
    np.testing.assert_allclose(xp.linspace(0, 1, 4, False), np.linspace(0, 1, 4, False), rtol=1e-6)
    assert xp.zeros_like(a, xp.int8).dtype == np.int8 and xp.asarray([1, 2], xp.float32).dtype == np.float32


def test_counters_that_went_through_a_step_are_loaded_where_a_number_was(tmp_path):
    path = tmp_path / "run.safetensors"
    step = ts.jit(lambda n, lr: (n + 1, lr * 0.5))
    n, lr = step(0, 0.5)
    ts.save(path, {"n": n, "lr": lr})
    got = ts.load(path, like={"n": 0, "lr": 0.1})
    assert got["n"] == 1 and got["lr"] == 0.25
    with pytest.raises(ts.CheckpointError, match="E_CHECKPOINT"):
        ts.load(path, like={"n": 0.5, "lr": 0.1})
    ts.save(path, {"n": np.zeros(2, np.int64)})
    with pytest.raises(ts.CheckpointError):
        ts.load(path, like={"n": 0})


def test_a_product_reads_behind_a_view_that_another_kernel_writes_later():
    """The transposed array is written for the gather of `top_k`, after the product ran: the product read memory that nobody had written."""
    x = np.random.default_rng(7).integers(-3, 4, (8, 8)).astype(np.float64)

    @ts.jit
    def f(x):
        best = xp.top_k(x, 8, axis=0)[0]
        whole = xp.reshape(x, (1, 8, 8))
        product = xp.concat([whole, whole], axis=1) @ x.T
        start = xp.take(whole, xp.reshape(xp.arange(1), ()), axis=0, mode="clip")
        return ts.fori_loop(1, 2, lambda _, p: xp.broadcast_to(xp.min(product), (8, 8)), start), best

    least, best = f(x)
    np.testing.assert_array_equal(np.asarray(least), (x @ x.T).min())
    np.testing.assert_array_equal(np.asarray(best), np.sort(x, axis=0)[::-1])
