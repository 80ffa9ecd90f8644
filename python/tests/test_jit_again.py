"""Call replay of jitted functions: a call like an earlier one is replayed (`_core.Calls`) and gives the same result."""

import gc
import os
import threading
import time

import numpy as np
import pytest

import tessera as ts
from tessera import xp
from tessera.tree import pytree
from tessera.trace.execute import oracle

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture
def counted(monkeypatch):
    """A list with one entry for each call that was not replayed."""
    from tessera.trace.jit import Jitted

    long, whole = [], Jitted._find
    monkeypatch.setattr(Jitted, "_find", lambda self, *a: long.append(1) or whole(self, *a))
    return long


def test_the_second_call_is_replayed(counted):
    f = ts.jit(lambda tree, pair, *, more: {"z": tree["b"] + pair[0] * more, "a": (tree["a"][0], [pair[1]])})
    for step in range(4):
        tree = {"b": X + step, "a": [X * 2]} if step % 2 else {"a": [X * 2], "b": X + step}
        out = f(tree, (X, np.float64(3)) if step == 3 else (X, X[0]), more=step + 0.5)
        np.testing.assert_array_equal(out["z"], X + step + X * np.float32(step + 0.5))
        assert list(out) == ["a", "z"] and isinstance(out["a"], tuple) and isinstance(out["a"][1], list)
        np.testing.assert_array_equal(out["a"][0], X * 2)
    assert len(counted) == 2  # the first, and the one with a number of NumPy's


def test_results_are_new_each_time(counted):
    f = ts.jit(lambda x: x + 1)
    first, second = f(X), f(X * 2)
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_array_equal(second, X * 2 + 1)
    assert len(counted) == 1


def test_other_shapes_dtypes_and_layouts(counted):
    f = ts.jit(lambda x: x * 2)
    f(X)
    others = [X[:2], X.astype(np.float64), X.T, X[:, ::2], X.astype(np.int32), np.float32(2), np.zeros((0, 4), np.float32)]
    for x in (*others, X.astype(">f4")):
        expected = x.astype(x.dtype.newbyteorder("=")) * 2 if x.dtype.byteorder == ">" else x * 2
        for _ in range(2):
            np.testing.assert_array_equal(f(x), expected)
    before = len(counted)
    np.testing.assert_array_equal(f(np.array(X[:2])), X[:2] * 2)
    assert len(counted) == before


def test_subclasses_of_arrays_and_of_trees_go_the_long_way(counted):
    class Mine(np.ndarray):
        pass

    class Other(dict):
        pass

    f = ts.jit(lambda t: t["x"] + 1)
    f({"x": X}), f({"x": X})
    assert len(counted) == 1
    np.testing.assert_array_equal(f(Other(x=X)), X + 1)
    np.testing.assert_array_equal(f({"x": X.view(Mine)}), X + 1)
    assert len(counted) == 3


def test_more_forms_than_are_kept(counted):
    f = ts.jit(lambda x: x + 1)
    for _ in range(2):
        for n in range(1, 12):
            np.testing.assert_array_equal(f(np.ones(n, np.float32)), np.full(n, 2, np.float32))


def test_nothing_is_a_tree_without_leaves(counted):
    f = ts.jit(lambda x, y: x + 1 if y is None else x + y)
    for _ in range(2):
        np.testing.assert_array_equal(f(X, None), X + 1)
        np.testing.assert_array_equal(f(X, X), X + X)
    assert len(counted) == 2


def test_numbers(counted):
    f = ts.jit(lambda x, a: x * a)
    for a in (2.5, -1.0, 3, 4, True, False):
        np.testing.assert_allclose(f(X, a), X * a)
    assert len(counted) == 3
    assert f(X, 2).dtype == np.float32
    long = ts.jit(lambda x, a: x + a)
    for big in (7, 1 << 70):
        if big == 7:
            long(X, big), long(X, big)
            continue
        with pytest.raises(Exception) as short:
            long(X, big)
        with pytest.raises(type(short.value)) as fresh:
            ts.jit(lambda x, a: x + a)(X, big)
        assert str(short.value).splitlines()[0] == str(fresh.value).splitlines()[0]


def test_profiles_and_the_oracle(counted):
    x = np.linspace(-3, 3, 200, dtype=np.float32)
    f = ts.jit(lambda x: xp.exp(x) + 1)
    default, strict = f(x), None
    for _ in range(2):
        with ts.numerics.profile("strict"):
            strict = f(x)
    assert len(counted) == 2
    with oracle():
        np.testing.assert_array_equal(strict, f(x))
    assert len(counted) == 3
    np.testing.assert_array_equal(default, f(x))


def test_arrays_that_the_function_holds(counted, monkeypatch):
    w = np.arange(40000, dtype=np.float32)
    f, long = ts.jit(lambda x: x + w), ts.jit(lambda x: x + w)
    x = np.ones(40000, np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(f(x), long(x))
        w += 1
    assert len(counted) == 3


def test_inside_a_trace_and_after_the_cache_is_cleared(counted):
    f = ts.jit(lambda x: x + 1)
    f(X), f(X)
    np.testing.assert_array_equal(ts.jit(lambda x: f(x) * 2)(X), (X + 1) * 2)
    before = len(counted)
    f.cache_clear()
    f(X)
    assert len(counted) == before + 1


def test_open_extents(counted):
    @ts.jit
    def f(x: ts.Tensor["n", 4]):
        return x.sum(0), x * 2

    for n in (3, 5, 3, 5):
        total, twice = f(np.ones((n, 4), np.float32))
        assert total[0] == n and twice.shape == (n, 4)
    assert len(counted) == 2


def test_static_arguments_stand_for_themselves(counted):
    f = ts.jit(lambda x, how, *, by=1.0: x + by if how == "up" else x - by, static_argnums=-1, static_argnames="by")
    for _ in range(2):
        np.testing.assert_array_equal(f(X, "up"), X + 1)
        np.testing.assert_array_equal(f(X, "down"), X - 1)
        np.testing.assert_array_equal(f(X, "up", by=2.0), X + 2)
        np.testing.assert_array_equal(f(X, "up", by=3), X + 3)
    assert len(counted) == 4
    # A tuple is compared by its items.
    g = ts.jit(lambda x, shape: x.reshape(shape), static_argnums=1)
    for _ in range(2):
        assert g(X, (2, 6)).shape == (2, 6) and g(X, (12,)).shape == (12,)
    assert len(counted) == 6


def test_functions_of_the_library_outside_a_trace(monkeypatch):
    long, whole = [], pytree.flatten
    xp.sum(X, 1), xp.sum(X, 0), xp.sum(X, axis=1), xp.sum(X, True)
    monkeypatch.setattr(pytree, "flatten", lambda tree: long.append(1) or whole(tree))
    np.testing.assert_array_equal(xp.sum(X, 1), X.sum(1))
    np.testing.assert_array_equal(xp.sum(X, 0), X.sum(0))
    np.testing.assert_array_equal(xp.sum(X, axis=1), X.sum(1))
    assert not long
    np.testing.assert_array_equal(xp.sum(X, -1), X.sum(1))
    np.testing.assert_array_equal(xp.sum(X[::2], 1), X[::2].sum(1))
    assert len(long) > 1
    messages = set()
    for _ in range(2):
        with pytest.raises(ts.TesseraError) as error:
            xp.sum(X, 2)
        messages.add(str(error.value))
    assert len(messages) == 1
    one = np.ones(2, np.float32)
    for _ in range(2):
        # True is 1 for a dict, and another axis of meaning here.
        assert xp.multiply(one, 1).dtype == one.dtype and xp.multiply(one, 2.5)[0] == 2.5


def test_a_class_of_trees_that_means_something_else(counted, monkeypatch):
    monkeypatch.setattr(pytree, "plain", True)
    monkeypatch.setattr(pytree, "_REGISTERED", dict(pytree._REGISTERED))
    f = ts.jit(lambda p: p[0] + 1)
    f([X, X]), f([X, X])
    assert len(counted) == 1
    pytree.register(list, lambda v: (v[::-1], None), lambda _, c: c[::-1])
    assert not pytree.plain
    again = ts.jit(lambda p: p[0] + 1)
    for step in range(2):
        np.testing.assert_array_equal(again([X + step, X * 2]), X + step + 1)
    assert len(counted) == 3


def test_a_kernel_in_the_function(counted):
    @ts.kernel
    def double(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = x[i] * 2
        return y

    f = ts.jit(lambda x: double(x + 1) + 1)
    x = np.arange(100, dtype=np.float32)
    for step in range(3):
        np.testing.assert_array_equal(f(x + step), (x + step + 1) * 2 + 1)
    assert len(counted) == 1


def test_arrays_are_held_while_a_call_runs():
    """Another thread takes the array out of the list that it came in, and uses its memory."""
    side = 1200
    product = ts.jit(lambda values: values[0] @ values[0])
    product([np.ones((side, side), np.float32)])
    values, results = [np.ones((side, side), np.float32)], []
    thread = threading.Thread(target=lambda: results.append(product(values)))
    thread.start()
    time.sleep(0.005)
    values[0] = None
    kept = [np.full((side, side), 7, np.float32) for _ in range(3)]
    thread.join()
    assert len(kept) == 3 and (results[0] == side).all()


def test_what_is_equal_and_not_the_same():
    x = np.ones(3, np.float32)
    kinds = ts.jit(lambda x, n: x + {bool: 1, int: 2, float: 3}[type(n)], static_argnums=1)
    assert [float(kinds(x, n)[0]) for n in (1, True, 1.0, 1, True)] == [3, 2, 4, 3, 2]
    assert (xp.divide(x, 0.0) > 0).all() and (xp.divide(x, -0.0) < 0).all() and (xp.divide(x, 0.0) > 0).all()


def test_a_static_argument_may_be_left_out():
    @ts.jit(static_argnums=1)
    def times(x, n=2):
        return x * n

    x = np.ones(3, np.float32)
    assert [float(times(x)[0]), float(times(x)[0]), float(times(x, 3)[0]), float(times(x, n=4)[0])] == [2, 2, 3, 4]


def test_names_that_are_no_text():
    x = np.ones(3, np.float32)
    add = ts.jit(lambda named: named["\ud800"] + 1)
    assert [float(add({"\ud800": x})[0]) for _ in range(2)] == [2, 2]


def test_a_dtype_that_there_is_not():
    with pytest.raises(ts.TesseraError, match="complex128"):
        ts.jit(lambda x: x)(np.ones(2, complex))


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="asks Linux how much memory is mapped")
def test_code_of_functions_that_are_gone_is_let_go():
    x = np.ones(4, np.float32)

    def pieces():
        gc.collect()
        with open("/proc/self/maps") as file:
            return sum(1 for _ in file)

    def many(first, count):
        for i in range(first, first + count):
            ts.jit(lambda x, i=i: x * (i + 0.125))(x)
        return pieces()

    before = pieces()
    # The number of idle kernels that are kept is limited. Each has two allocations or more.
    assert many(0, 1100) - before < 1100
