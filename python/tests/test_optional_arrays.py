"""Optional arrays: a call with one and a call without are two specialisations, and branches on it are compile-time."""

import typing

import numpy as np
import pytest

import tessera as ts

F = np.float32
ONES = np.ones(5, F)


@ts.kernel
def biased(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], b: ts.Tensor["n", ts.f32] | None = None):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] + b[i] if b is not None else x[i]


@pytest.mark.usefixtures("backend")
def test_with_and_without():
    for _ in range(3):  # the later ones are replays
        assert biased(ONES).tolist() == [1] * 5
        assert biased(ONES, None, ONES).tolist() == [2] * 5
        assert biased(ONES, b=None).tolist() == [1] * 5
        y = np.zeros(5, F)
        biased(ONES, y, ONES)
        assert y.tolist() == [2] * 5


def test_every_spelling_of_the_annotation():
    T = ts.Tensor["n", ts.f32]
    assert repr(T | None) == repr(None | T) == 'Tensor["n", f32] | None'

    def made(annotation, *default):
        @ts.kernel
        def k(x: T, b: annotation):
            i = ts.tile.linear_id()
            if i < n:
                x[i] = 7.0 if b is None else b[i]
            return x

        return k

    for annotation in (T | None, None | T, typing.Optional[T], typing.Union[T, None], "T | None", "typing.Optional[T]"):
        assert made(annotation)(np.zeros(2, F), None).tolist() == [7, 7]
        assert made(annotation)(np.zeros(2, F), np.zeros(2, F)).tolist() == [0, 0]


def test_a_default_of_none_is_enough():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32] = None, c=None, s: ts.f32 = None, m: int | None = None, f: ts.Fn = None):
        i = ts.tile.linear_id()
        if i >= n:
            return x
        v = x[i]
        if b is not None:
            v += b[i]
        if c is not None and c[i] > 0:
            v += 10.0
        if s is not None:
            v *= s
        if m is not None:
            v += m
        x[i] = v if f is None else f(v)
        return x

    assert k(np.ones(2, F)).tolist() == [1, 1]
    assert k(np.ones(2, F), ONES[:2]).tolist() == [2, 2]
    assert k(np.ones(2, F), c=np.array([0, 1], np.int32)).tolist() == [1, 11]
    assert k(np.ones(2, F), s=3.0, m=4).tolist() == [7, 7]
    assert k(np.ones(2, F), f=ts.func(lambda v: v * 8)).tolist() == [8, 8]


def test_the_other_side_is_not_elaborated():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], w: ts.Tensor["n", "m", ts.f32] | None, y: ts.Out["n", ts.f32]):
        r = ts.tile.program_id(0)
        s = ts.tile.sum(w[r, :]) if w is not None else 0.0
        none = w is None or w.shape[1] == 0
        y[r] = x[r] + s + (100.0 if none else 0.0)

    assert k(ONES, None).tolist() == [101] * 5
    assert k(ONES, np.ones((5, 3), F)).tolist() == [4] * 5


def test_an_output_that_is_none_is_made_and_an_optional_one_is_not():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], z: ts.Out["n", ts.f32] | None = None):
        i = ts.tile.linear_id()
        y[i] = x[i]
        if z is not None:
            z[i] = -x[i]

    assert k(ONES, None).tolist() == [1] * 5
    z = np.zeros(5, F)
    assert k(ONES, None, z).tolist() == [1] * 5 and z.tolist() == [-1] * 5


def test_traces_gradients_and_batches():
    x, b = np.arange(5, dtype=F), ONES
    np.testing.assert_array_equal(ts.jit(lambda x: biased(x))(x), x)
    np.testing.assert_array_equal(ts.jit(lambda x, b: biased(x, b=b))(x, b), x + b)
    np.testing.assert_array_equal(ts.jit(lambda x, b: biased(x, b=b))(x, None), x)
    assert ts.grad(lambda b: biased(ts.array(x), b=b).sum())(b).tolist() == [1] * 5
    assert ts.grad(lambda a: biased(a["x"], b=a["b"]).sum())({"x": x, "b": None})["b"] is None
    many = np.stack([x, b])
    np.testing.assert_array_equal(ts.vmap(lambda x: biased(x, b=b))(many), many + b)


def test_compiled_for_one_of_the_two():
    without = biased.jit(b=None)
    assert without(ONES).tolist() == [1] * 5
    with pytest.raises(ts.TesseraError, match="compiled for b = None") as e:
        without(ONES, None, ONES)
    assert e.value.code == "E_SPECIALIZE"
    assert biased.jit()(ONES, None, ONES).tolist() == [2] * 5


def test_a_helper_takes_what_may_be_none():
    @ts.func
    def add(v, b, i):
        if b is None:
            return v
        return v + b[i]

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32] | None = None):
        i = ts.tile.linear_id()
        x[i] = add(x[i], b, i)
        return x

    assert k(np.ones(2, F)).tolist() == [1, 1]
    assert k(np.ones(2, F), ONES[:2]).tolist() == [2, 2]


# What is refused.


def test_reading_what_is_none_is_refused():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], b: ts.Tensor["m", ts.f32] | None = None):
        i = ts.tile.linear_id()
        if i < n:
            x[i] = b[i]

    k(np.ones(2, F), ONES)
    with pytest.raises(ts.KernelTypeError, match="`b` is None here") as e:
        k(np.ones(2, F))
    assert "b is not None" in e.value.help


def test_a_size_of_what_is_none_is_refused():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], b: ts.Tensor["m", ts.f32] | None = None):
        i = ts.tile.linear_id()
        if i < n:
            x[i] = m
        return x

    assert k(np.ones(2, F), ONES).tolist() == [5, 5]
    with pytest.raises(ts.KernelSyntaxError, match="dimension of `b`, which is None"):
        k(np.ones(2, F))


def test_none_for_an_array_that_is_not_optional_is_refused():
    with pytest.raises(ts.LaunchError, match="`x`: expected an array, got None"):
        biased(None)


def test_another_type_beside_none_is_refused():
    with pytest.raises(ts.KernelTypeError, match="None`, got"):
        ts.Tensor["n", ts.f32] | int
    with pytest.raises(ts.KernelTypeError, match="type that kernels take"):

        @ts.kernel
        def k(x: int | str):
            pass


def test_an_array_as_a_condition_is_refused():
    with pytest.raises(ts.KernelTypeError, match="whole parameter `b`") as e:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32] | None = None):
            i = ts.tile.linear_id()
            if b:
                x[i] = b[i]

    assert "is not None" in e.value.help


def test_a_type_makes_no_array():
    with pytest.raises(ts.KernelTypeError, match="makes no array"):
        ts.Tensor["n", ts.f32](3)
