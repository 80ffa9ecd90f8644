"""Lists and tuples of arrays as parameters: their length is compile-time."""

import pickle
import random

import numpy as np
import pytest

import tessera as ts

F = np.float32


@ts.kernel
def total(xs: list[ts.Tensor["n", ts.f32]], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        v = xs[0][i]
        if len(xs) > 1:
            v += xs[1][i]
        if len(xs) > 2:
            v += xs[-1][i]
        y[i] = v


def arrays(count, n=5, seed=0):
    draw = np.random.default_rng(seed)
    return [draw.integers(-9, 9, n).astype(F) for _ in range(count)]


@pytest.mark.usefixtures("backend")
def test_the_length_selects_the_code():
    for _ in range(3):  # the later ones are replays
        for count in (1, 2, 3):
            xs = arrays(count)
            np.testing.assert_array_equal(total(xs), sum(xs))
            np.testing.assert_array_equal(total(tuple(xs)), sum(xs))
            np.testing.assert_array_equal(total(xs=xs), sum(xs))
            y = np.zeros(5, F)
            total(xs, y)
            np.testing.assert_array_equal(y, sum(xs))


@pytest.mark.parametrize("annotation", [list, tuple, list[ts.Tensor["n", ts.f32]], tuple[ts.Tensor["n", ts.f32], ...]])
def test_every_spelling(annotation):
    @ts.kernel
    def k(xs: annotation, J: int):
        i = ts.tile.linear_id()
        if i < xs[0].shape[0]:
            xs[0][i] = xs[J][i] * len(xs)
        return xs[0]

    xs = arrays(3)
    np.testing.assert_array_equal(k([x.copy() for x in xs], 2), xs[2] * 3)
    np.testing.assert_array_equal(k(tuple(x.copy() for x in xs), -2), xs[1] * 3)


def test_a_tuple_of_fixed_length_has_parts_of_several_types():
    @ts.kernel
    def k(pair: tuple[ts.Tensor["n", ts.f32], ts.Tensor["n", ts.i32] | None], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        if i < n:
            a, b = pair
            y[i] = a[i] if b is None else a[i] + b[i]

    assert k((np.ones(2, F), np.ones(2, np.int32))).tolist() == [2, 2]
    assert k((np.ones(2, F), None)).tolist() == [1, 1]
    with pytest.raises(ts.LaunchError, match="`pair`: expected 2 values, got 1") as e:
        k((np.ones(2, F),))
    assert e.value.code == "E_ARGUMENT"


def test_lists_of_records_in_records():
    @ts.struct
    class Part:
        x: ts.Tensor["n", ts.f32]
        w: ts.f32

    @ts.struct
    class All:
        parts: list[Part]
        y: ts.Out["n", ts.f32] = None

    @ts.kernel
    def k(p: All):
        i = ts.tile.linear_id()
        if i < n:
            p.y[i] = p.parts[0].x[i] * p.parts[0].w + p.parts[1].x[i] * p.parts[1].w

    assert k(All([Part(np.ones(2, F), 2.0), Part(np.ones(2, F), 3.0)])).tolist() == [5, 5]


def test_a_loop_over_a_list_is_unrolled():
    @ts.kernel
    def k(xs: list[ts.Tensor["n", ts.f32]], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        if i < n:
            v = 0.0
            for x in xs:
                v += x[i]
            for j, x in enumerate(xs):
                v += x[i] * j
            y[i] = v

    for count in (1, 2, 4):
        xs = arrays(count)
        np.testing.assert_array_equal(k(xs), sum(x * (j + 1) for j, x in enumerate(xs)))


def test_an_optional_list():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], xs: list[ts.Tensor["n", ts.f32]] | None = None):
        i = ts.tile.linear_id()
        if i < n:
            x[i] = x[i] if xs is None else x[i] + xs[0][i]
        return x

    assert k(np.ones(2, F)).tolist() == [1, 1]
    assert k(np.ones(2, F), [np.ones(2, F)]).tolist() == [2, 2]


def test_an_empty_list_has_length_zero():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], xs: list[ts.Tensor["n", ts.f32]]):
        i = ts.tile.linear_id()
        if i < n:
            x[i] = len(xs)
        return x

    assert k(np.ones(2, F), []).tolist() == [0, 0]
    assert k(np.ones(2, F), [np.ones(2, F)] * 4).tolist() == [4, 4]


def test_a_helper_takes_the_list():
    @ts.func
    def both(xs, i):
        return xs[0][i] + xs[1][i]

    @ts.kernel
    def k(xs: list[ts.Tensor["n", ts.f32]], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = both(xs, i)

    xs = arrays(2)
    np.testing.assert_array_equal(k(xs), xs[0] + xs[1])


def test_traces_gradients_batches_and_pickles():
    xs = arrays(2)
    np.testing.assert_array_equal(ts.jit(total)(xs), sum(xs))
    slopes = ts.grad(lambda xs: total(xs).sum())(xs)
    assert [s.tolist() for s in slopes] == [[1] * 5, [1] * 5]
    many = np.stack(xs)
    np.testing.assert_array_equal(ts.vmap(lambda x: total([x, xs[0]]))(many), many + xs[0])
    again = pickle.loads(pickle.dumps(total))
    np.testing.assert_array_equal(again(xs), sum(xs))
    np.testing.assert_array_equal(again(xs * 2), xs[0] + xs[1] + xs[1])


def test_compiled_for_a_length():
    compiled = total.jit(xs=3)
    xs = arrays(3)
    np.testing.assert_array_equal(compiled(xs), sum(xs))
    with pytest.raises(ts.TesseraError, match="lengths that the kernel was compiled for") as e:
        compiled(xs[:2])
    assert e.value.code == "E_SPECIALIZE"


def test_random_lists_agree_with_numpy():
    @ts.kernel
    def weighted(xs: list, ws: list[ts.Tensor["m", ts.f32]], y: ts.Out["m", ts.f32]):
        i = ts.tile.linear_id()
        if i < m:
            v = xs[0][i] * ws[0][i]
            if len(xs) > 1:
                v += xs[1][i] * ws[len(ws) - 1][i]
            y[i] = v

    draw = random.Random(3)
    for seed in range(30):
        n = draw.choice([0, 1, 4, 33])
        xs = [x.astype(draw.choice([np.float32, np.int32, np.float64])) for x in arrays(draw.choice([1, 2]), n, seed)]
        ws = arrays(draw.choice([1, 2, 3]), n, seed + 100)
        wanted = xs[0] * ws[0] + (xs[1] * ws[-1] if len(xs) > 1 else 0)
        np.testing.assert_array_equal(weighted(xs, ws), wanted.astype(F))


# What is refused.


@pytest.mark.parametrize(
    "given, code, words",
    [
        (lambda x: x, "E_ARGUMENT", r"`xs`: expected a list or tuple of arrays, got an array of shape \(5,\)"),
        (lambda x: None, "E_ARGUMENT", "`xs`: expected a list or tuple of arrays, got None"),
        (lambda x: {"a": x}, "E_ARGUMENT", "`xs`: expected a list or tuple of arrays, got a value of type dict"),
        (lambda x: [x, 3], "E_ARGUMENT", r"`xs\[1\]`: expected an array, got the integer 3"),
        (lambda x: [x, x.astype(np.float64)], "E_TYPE", r"`xs\[1\]`: expected an array of f32, got f64"),
        (lambda x: [x, x[:2]], "E_LAUNCH_INVALID_SHAPE", r"`xs\[1\]`: expected `n` to be 5 along axis 0, as in `xs\[0\]`"),
    ],
)
def test_errors_name_the_element(given, code, words):
    with pytest.raises(ts.TesseraError, match=words) as e:
        total(given(arrays(1)[0]))
    assert e.value.code == code and e.value.help


def test_a_position_beyond_the_length_is_refused_for_that_length():
    @ts.kernel
    def third(xs: list[ts.Tensor["n", ts.f32]], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = xs[2][i]

    xs = arrays(3)
    np.testing.assert_array_equal(third(xs), xs[2])
    with pytest.raises(ts.TesseraError, match="an index from -2 to 1, got the integer 2") as e:
        third(xs[:2])
    assert e.value.code == "E_OOB"


def test_a_position_at_run_time_is_refused():
    with pytest.raises(ts.KernelTypeError) as e:

        @ts.kernel
        def k(xs: list[ts.Tensor["n", ts.f32]], y: ts.Out["n", ts.f32]):
            p = ts.tile.program_id(0)
            y[p] = xs[p][0]

    assert e.value.code == "E_TYPE" and e.value.help


def test_numbers_and_outputs_in_a_list_are_refused():
    with pytest.raises(ts.KernelTypeError, match="`xs` to be a list of arrays"):

        @ts.kernel
        def numbers(xs: list[ts.f32]):
            pass

    with pytest.raises(ts.KernelTypeError, match="one of an output"):

        @ts.kernel
        def outputs(xs: list[ts.Out["n", ts.f32]]):
            pass

    with pytest.raises(ts.KernelTypeError, match="one of a list"):

        @ts.kernel
        def lists(xs: list[list]):
            pass
