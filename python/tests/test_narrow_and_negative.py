"""Averages of narrow dtypes, negative starts, truths, and states of recurrent layers: what NumPy and JAX give."""

import numpy as np
import pytest
import tessera as ts
from tessera import nn, xp

f16 = np.float16


@pytest.mark.parametrize("jit", [False, True])
def test_averages_of_f16_are_no_sums_of_f16(jit):
    run = (lambda f: ts.jit(f)) if jit else (lambda f: f)
    assert run(xp.mean)(np.full(100, 1000, f16)) == 1000
    assert run(xp.mean)(np.ones(70000, f16)) == 1
    assert run(lambda x: xp.mean(x, where=x > 0))(np.full(100, 1000, f16)) == 1000
    assert run(nn.mse_loss)(np.full(1000, 20, f16), np.zeros(1000, f16)) == 400
    assert run(nn.l1_loss)(np.full(70000, 20, f16), np.zeros(70000, f16)) == 20
    assert np.all(np.asarray(run(lambda x: nn.avg_pool(x, 64))(np.full((1, 1, 64, 64), 1000, f16))) == 1000)
    wide = np.linspace(-300, 300, 5000)
    assert abs(float(run(xp.var)(wide.astype(f16))) - wide.astype(f16).astype(np.float64).var()) < 16
    assert abs(float(run(xp.mean)(ts.array(np.full(1000, 3.0), ts.f8_e4m3))) - 3) == 0
    assert xp.mean(np.ones(3, f16)).dtype == f16


def test_the_gradient_of_a_mean_of_f16():
    slope = np.asarray(ts.grad(lambda x: xp.mean(x * x))(np.ones(70000, f16)))
    np.testing.assert_allclose(slope.astype(np.float64), 2 / 70000, rtol=2e-2)


def test_negative_starts_count_from_the_end():
    x = np.arange(7.0)
    for start in (-3, np.int32(-3), xp.asarray(-3)):
        np.testing.assert_array_equal(np.asarray(ts.dynamic_slice(x, (start,), (2,))), [4, 5])
    np.testing.assert_array_equal(np.asarray(ts.jit(lambda x, i: ts.dynamic_slice(x, (i,), (2,)))(x, -7)), [0, 1])
    np.testing.assert_array_equal(np.asarray(ts.dynamic_update_slice(x, np.array([9.0]), (-1,))), [0, 1, 2, 3, 4, 5, 9])


def test_integers_stay_in_their_range():
    key = ts.random.key(0)
    with pytest.raises(ts.TesseraError, match="within i8"):
        ts.random.randint(key, (8,), 0, 1000, dtype=ts.i8)
    made = np.asarray(ts.random.randint(key, (500,), -128, 128, dtype=ts.i8))
    assert made.min() < -100 and made.max() > 100


def test_truths_have_a_greatest_and_its_place():
    mask = np.array([[False, True, True], [False, False, False]])
    for name in ("max", "min"):
        np.testing.assert_array_equal(np.asarray(ts.jit(lambda x: getattr(xp, name)(x, axis=1))(mask)), getattr(np, name)(mask, axis=1))
    for name in ("argmax", "argmin"):
        np.testing.assert_array_equal(np.asarray(ts.jit(lambda x: getattr(xp, name)(x, axis=1))(mask)), getattr(np, name)(mask, axis=1))


def test_running_sums_of_all_elements():
    x = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(np.asarray(xp.cumsum(x)), np.cumsum(x))
    np.testing.assert_array_equal(np.asarray(xp.cumprod(x + 1)), np.cumprod(x + 1))
    np.testing.assert_array_equal(np.asarray(xp.cumsum(x, axis=0)), np.cumsum(x, axis=0))


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_states_have_the_dtype_of_inputs_and_weights(layer):
    made = layer(4, 8)
    for dtype in (np.float64, f16):
        params = ts.tree.map(lambda v: np.asarray(v).astype(dtype), made.init(ts.random.key(0)))
        y, state = made(params, np.ones((1, 5, 4), dtype))
        assert y.dtype == dtype and all(leaf.dtype == dtype for leaf in ts.tree.leaves(state))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("start", [0, 0.0])
def test_python_numbers_begin_a_loop_in_the_dtype_of_its_body(start, dtype):
    x = np.ones(3, dtype)
    loops = [
        lambda x: ts.scan(lambda c, v: (c + v, None), start, x)[0],
        lambda x: ts.fori_loop(0, 3, lambda i, c: c + xp.asarray(x)[i], start),
        lambda x: ts.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] + xp.asarray(x)[s[0]]), (0, start))[1],
        lambda x: ts.scan(lambda c, v: ({"a": c["a"] + v, "n": c["n"] + 1}, None), {"a": start, "n": 0}, x, unroll=2)[0]["a"],
    ]
    for run in loops:
        for made in (run(x), ts.jit(run)(x)):
            assert made.dtype == dtype and made == 3


def test_what_stays_open_is_f32_and_i64():
    assert ts.fori_loop(0, 3, lambda i, c: c * 2, 1.0).dtype == np.float32
    assert ts.fori_loop(0, 3, lambda i, c: c * 2, 1).dtype == np.int64
    assert ts.scan(lambda c, _: (c + 1, c), 0, None, length=0)[0].dtype == np.int64
    with pytest.raises(ts.TesseraError, match="stay i32"):
        ts.scan(lambda c, v: (c + v, None), np.int32(0), np.ones(3, np.float32))
