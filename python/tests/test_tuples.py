"""Tuples and lists in kernels as Python has them: `*` in calls and displays, slices, `+`, letters of strings; and tuples that loops carry."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tessera as ts

F = np.float32


@ts.struct
class Function:
    of: ts.Fn
    arrays: tuple[ts.Tensor["n", ts.f32], ...]
    kinds: str = ""


@ts.func
def weighted(x, a, b=1.0, c=0.0):
    return x * a + b - c


@ts.func
def tile_of(x, i, kind):
    return x[0:1] if kind == "1" else x[i:i + 4]


@ts.kernel
def applied(x: ts.Tensor["n", ts.f32], f: Function, y: ts.Out["n", ts.f32]):
    i = ts.tile.program_id(0) * 4
    tiles = ()
    for a, kind in zip(f.arrays, f.kinds):
        tiles = (*tiles, tile_of(a, i, kind))
    y[i:i + 4] = f.of(x[i:i + 4], *tiles)
    return y


def numbers(n=10, seed=0):
    return np.random.default_rng(seed).integers(-9, 9, n).astype(F)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("kinds", ["-", "1", "-1", "1-1", "---"])
def test_arguments_are_unpacked_and_letters_are_iterated(kinds):
    x, arrays = numbers(), tuple(numbers(seed=i + 1) for i in range(3))
    a, b, c = [a[:1] if kind == "1" else a for a, kind in zip(arrays, kinds)] + [F(1), F(0)][len(kinds) - 1 :]
    np.testing.assert_array_equal(applied(x, Function(weighted, arrays, kinds)), x * a + b - c)


BOUNDS = [None, -4, -1, 0, 2, 5]


@ts.kernel
def digits(y: ts.Out[1, ts.i64], part: ts.Fn):
    g = ts.tile.grid(1)
    v = 0
    for d in part((1, 2, 3)):
        v = v * 10 + d
    y[0] = v + g
    return y


@pytest.mark.parametrize("step", [None, 1, 2, -1, -2, 7])
def test_slices_of_tuples_are_those_of_python(step):
    for start, stop in itertools.product(BOUNDS, BOUNDS):
        part = ts.func(lambda t: t[start:stop:step])  # noqa: B023
        wanted = (1, 2, 3)[start:stop:step]
        assert digits(part=part)[0] == int("".join(map(str, wanted)) or 0), (start, stop, step)


@ts.kernel
def displays(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], word: str = "ab"):
    i = ts.tile.program_id(0) * 4
    t = x[i:i + 4]
    some = (t, *(t * 2.0, t * 3.0))
    more = [*some[1:], *some[:1]] + (t * 4.0,)
    lo, hi = min(*some[:2]), max(*(2, 3))
    v = more[0] * 1000.0 + more[1] * 100.0 + more[2] * 10.0 + more[3]
    y[i:i + 4] = v + lo * 0.0 + hi + len(more) + len(word) + len((*word, "c"))
    return y


@pytest.mark.usefixtures("backend")
def test_displays_and_sums_of_tuples():
    x = np.ones(6, F)
    np.testing.assert_array_equal(displays(x), np.full(6, 2000 + 300 + 10 + 4 + 3 + 4 + 2 + 3, F))


@ts.kernel
def carried(x: ts.Tensor["n", ts.f32], y: ts.Out[2, ts.f32], zero):
    g = ts.tile.grid(1)
    state = 0.0, zero
    for i in range(n):
        state = state[0] + x[i], state[1] * 1.0 + x[i] * x[i]
    total, squares = state
    y[0] = total + g
    y[1] = squares
    return y


@pytest.mark.usefixtures("backend")
def test_a_loop_carries_a_tuple_with_a_part_of_unknown_dtype():
    """The dtype of `zero` is known at the call."""
    x = numbers()
    np.testing.assert_array_equal(carried(x, zero=F(0)), [x.sum(), (x * x).sum()])


def refused(code, message, fn, *args):
    with pytest.raises(ts.TesseraError) as caught:
        fn(*args)
    (found,) = caught.value.diagnostics
    assert found.code == code and message in found.message and found.help, found


@pytest.mark.parametrize("text, code, message", [
    ("y[0] = ts.tile.sum(*x[0:4])", "E_TYPE", "expected a tuple or a list after `*`, got a tile"),
    ("y[0] = ts.tile.maximum(*i)", "E_TYPE", "expected a tuple or a list after `*`"),
    ("y[0] = (1.0, 2.0)[:i][0]", "E_TYPE", "expected a compile-time integer in a slice of a tuple"),
    ("y[0] = (1.0, 2.0)[::0][0]", "E_ARGUMENT", "expected a step other than 0, got 0"),
    ("y[0] = (1.0, 2.0)[2:][0]", "E_OOB", "expected an index from"),
    ("y[0] = ts.tile.sum(**x)", "E_SYNTAX", "`**` arguments are not part"),
])  # fmt: skip
def test_what_is_no_tuple_is_refused(text, code, message):
    source = f"def k(x, y):\n    i = ts.tile.program_id(0)\n    {text}\n"

    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]): ...

    refused(code, message, lambda: ts.kernel(source=source)(k))


def test_an_error_in_a_function_is_reported_once_where_a_loop_carries_a_tuple():
    @ts.func
    def wrong(state, v):
        return state[0] + v[:, None], state[1]

    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.program_id(0) * 4
        state = ts.tile.zeros((4,), ts.f32), 0.0
        for _ in range(3):
            state = wrong(state, x[i:i + 4] + y)
        y[i:i + 4] = state[0]

    with pytest.raises(ts.TesseraError) as caught:
        ts.kernel(k)
    assert not [d for d in caught.value.diagnostics if "mean the same" in d.message], caught.value
