"""Printing, callbacks and checks inside traced functions: when they run, how often, and in which order."""

import numpy as np
import pytest

import tessera as ts
from tessera import debug, xp

X = np.arange(4, dtype=np.float32)


def lines(capsys):
    return capsys.readouterr().out.splitlines()


@pytest.fixture(params=["compiled", "oracle"])
def how(request):
    """Compiled, and op by op."""
    if request.param == "compiled":
        yield
    else:
        with ts.runtime.oracle():
            yield


def test_values_are_printed_when_the_program_runs(capsys, how):
    @ts.jit
    def f(x):
        debug.print("x = {x}, sum {s:.2f}, {}", 3, x=x, s=xp.sum(x))
        return x * 2

    for _ in range(3):  # the first call, one like it, and one that is repeated
        np.testing.assert_array_equal(f(X), X * 2)
    assert lines(capsys) == ["x = [0. 1. 2. 3.], sum 6.00, 3"] * 3
    f(X + 1)
    assert lines(capsys) == ["x = [1. 2. 3. 4.], sum 10.00, 3"]


def test_outside_a_trace_they_run_immediately(capsys):
    debug.print("{} {x}", 1.5, x=X)
    assert lines(capsys) == ["1.5 [0. 1. 2. 3.]"]


def test_effects_keep_the_order_of_the_program(capsys, how):
    m = np.eye(4, dtype=np.float32)

    @ts.jit
    def f(x):
        y = x
        for _ in range(3):
            y = xp.sort(m @ y)
        debug.print("1 {}", y)
        debug.print("2 {}", x)
        debug.print("3 {}", xp.sum(x))
        ts.fori_loop(0, 2, lambda i, c: (debug.print("4 {}", i), c + 1)[1], 0.0)
        debug.print("5 {}", xp.cumulative_sum(y))
        debug.print("6")
        debug.print("6")
        ts.cond(xp.sum(x) > 0, lambda: (debug.print("7"), 1.0)[1], lambda: (debug.print("no"), 2.0)[1])
        debug.print("8 {}", xp.max(y))
        return x

    f(X)
    assert [line[0] for line in lines(capsys)] == list("1234456678")


def test_order_where_a_later_kernel_could_be_shared(capsys, how):
    """`x + 1` is wanted by the first effect and by what comes after the second, which has a result of its own."""

    @ts.jit
    def f(x):
        a = x + 1
        debug.print("1 {}", xp.sum(a))
        total = ts.fori_loop(0, 2, lambda i, c: (debug.print("2 {}", c), c + a)[1], a)
        debug.print("3 {}", total)
        return a * total

    np.testing.assert_allclose(f(X), (X + 1) ** 2 * 3)
    assert lines(capsys) == ["1 10.0", "2 [1. 2. 3. 4.]", "2 [2. 4. 6. 8.]", "3 [ 3.  6.  9. 12.]"]


def test_loops_print_in_each_iteration(capsys, how):
    def body(c, x):
        debug.print("{c} {x}", c=c, x=x)
        return c + x, c

    ts.jit(lambda v: ts.scan(body, 0.0, v))(X)
    assert lines(capsys) == ["0.0 0.0", "0.0 1.0", "1.0 2.0", "3.0 3.0"]
    ts.jit(lambda n: ts.while_loop(lambda c: c < n, lambda c: (debug.print("{}", c), c + 1)[1], 0))(3)
    assert lines(capsys) == ["0", "1", "2"]


def test_derivatives_and_batches_pass_through(capsys):
    def f(x):
        debug.print("{}", x * 2)
        return xp.sum(x * x)

    np.testing.assert_array_equal(ts.jit(ts.grad(f))(X), X * 2)
    assert lines(capsys) == ["[0. 2. 4. 6.]"]
    y, dy = ts.jvp(f, (X,), (np.ones_like(X),))
    assert (y, dy) == (14.0, 12.0) and lines(capsys) == ["[0. 2. 4. 6.]"]
    np.testing.assert_array_equal(ts.jit(ts.vmap(f))(X.reshape(2, 2)), [1, 13])
    assert lines(capsys) == ["[0. 2.]", "[4. 6.]"]

    def loop(w):
        return ts.scan(lambda c, v: (debug.print("{:.0f}", c), (c * w + v, c))[1], 1.0, X)[0]

    assert ts.jit(ts.grad(loop))(np.float32(2)) == 38.0
    assert lines(capsys) == ["1", "2", "5", "12"]


def test_callbacks_get_trees_of_arrays():
    seen = []

    @ts.jit
    def f(x, key):
        debug.callback(lambda tree, name, *, flag: seen.append((tree, name, flag)), {"a": x, "k": key}, "name", flag=True)
        return x

    f(X, ts.random.key(5))
    f(X + 1, ts.random.key(6))
    (first, name, flag), (second, _, _) = seen
    assert name == "name" and flag and int(first["k"]) == 5 and int(second["k"]) == 6
    # A copy: the memory of the program is used again.
    np.testing.assert_array_equal(first["a"], X)
    np.testing.assert_array_equal(second["a"], X + 1)


def test_what_a_callback_raises_comes_out(how):
    def broken(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ts.jit(lambda x: (debug.callback(broken, x), x)[1])(X)


def test_checks():
    @ts.jit
    def f(x):
        debug.check(x < 3, "expected numbers below {n}, got {x}", x=x, n=3)
        return x * 2

    np.testing.assert_array_equal(f(X - 1), (X - 1) * 2)
    with pytest.raises(ts.CheckError) as error:
        f(X)
    assert error.value.code == "E_ASSERT" and error.value.message == "expected numbers below 3, got [0. 1. 2. 3.] (at [3])"
    assert error.value.file == __file__ and "debug.check" in str(error.value)
    np.testing.assert_array_equal(f(X - 1), (X - 1) * 2)  # it goes on after an error


def test_checks_of_numbers_and_positions():
    good = ts.jit(lambda x: debug.check_finite({"log": xp.log(x)}, "out"))
    good(X + 1)
    with pytest.raises(ts.CheckError, match=r"`out\['log'\]`, got -inf at \[0\]") as error:
        good(X)
    assert error.value.code == "E_NAN_INF"
    good(np.array(3.0, np.float32))
    with pytest.raises(ts.CheckError, match="got nan"):
        good(np.array(-3.0, np.float32))
    at = ts.jit(lambda i: debug.check_index(i, 4, "row"))
    assert at(np.array([0, 3])).tolist() == [0, 3]
    with pytest.raises(ts.CheckError, match="expected `row` from 0 up to 4, got -1") as error:
        at(np.array([2, -1]))
    assert error.value.code == "E_OOB"
    # In the middle of a loop, with the step that made it.
    with pytest.raises(ts.CheckError, match="step 2"):
        ts.jit(lambda x: ts.fori_loop(0, 5, lambda i, c: (debug.check(c > 0, "step {}", i), c - 1)[1], x))(2.0)


def test_texts_that_cannot_be_formatted_are_refused_where_they_stand():
    for text, args, kwargs in (("{x}", (), {}), ("{} {}", (1,), {}), ("{0[1]} {y.z}", (X,), {"x": 1})):
        with pytest.raises(ts.TesseraError, match="expected a value for") as error:
            debug.print(text, *args, **kwargs)
        assert error.value.file == __file__
    with pytest.raises(ts.TesseraError, match="can be formatted"):
        debug.print("{x", x=1)
    with pytest.raises(ts.KernelTypeError, match="expected a text"):
        debug.print(X)
    with pytest.raises(ts.KernelTypeError, match="expected a function"):
        debug.callback(3)
