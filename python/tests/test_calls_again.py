"""Call replay of kernels: a call like an earlier one is replayed without being bound again; every difference must be noticed."""

import numpy as np
import pytest

import tessera as ts


def adder():
    @ts.kernel
    def add(a: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32], s: ts.f32, c: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        c[i] = a[i] + b[i] * s
        return c

    return add


def numbers(n, start=0.0):
    return np.arange(n, dtype=np.float32) + np.float32(start)


def test_other_arrays_numbers_and_sizes_are_used(backend):
    add = adder()
    for round in range(4):
        for n in (1, 3, 17, 1000):
            for s in (2.0, 0.5, 3, True):
                a, b = numbers(n, round), numbers(n, 10 * round)
                c = np.empty(n, np.float32)
                assert add(a, b, s, c) is c
                np.testing.assert_array_equal(c, a + b * np.float32(s))
                np.testing.assert_array_equal(add(a, b, s), c)


def test_each_call_has_a_result_of_its_own(backend):
    add, a = adder(), numbers(8)
    first = [add(a, a, float(i)) for i in range(5)]
    for i, c in enumerate(first):
        np.testing.assert_array_equal(c, a + a * i)


def test_arrays_with_other_strides_are_read_by_their_strides(backend):
    add = adder()
    many = np.arange(60, dtype=np.float32).reshape(6, 10)
    for _ in range(3):
        for a in (many[0], many[:, 1][:6], many[1, ::2], many[2, ::-1], np.ascontiguousarray(many[3])):
            np.testing.assert_array_equal(add(a, a, 1.0), a + a)
    # At an address that is no multiple of the element's size.
    odd = np.zeros(41, np.uint8)[1:].view(np.float32)
    odd[:] = 7
    for _ in range(3):
        np.testing.assert_array_equal(add(odd, odd, 1.0), odd + odd)


def test_what_is_refused_is_refused_again():
    add, a = adder(), numbers(8)
    for _ in range(2):
        add(a, a, 1.0, np.empty(8, np.float32))
    frozen = np.empty(8, np.float32)
    frozen.flags.writeable = False
    both = numbers(12)
    for _ in range(2):
        with pytest.raises(ts.TesseraError):
            add(a, a, 1.0, frozen)
        with pytest.raises(ts.TesseraError):
            add(both[:8], a, 1.0, both[4:])
        with pytest.raises(ts.TesseraError):
            add(a, numbers(9), 1.0)
        with pytest.raises(ts.TesseraError):
            add(a.astype(np.float64), a, 1.0)
        with pytest.raises(ts.TesseraError):
            add(a, a, "1")
        with pytest.raises(ts.TesseraError):
            add(a, a)


def test_arrays_may_be_updated_in_place(backend):
    @ts.kernel
    def grow(a: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        b[i] = a[i] + 1
        return b

    a = numbers(5)
    for i in range(4):
        assert grow(a, a) is a
    np.testing.assert_array_equal(a, numbers(5, 4))


def test_another_profile_backend_or_grid_is_another_call(monkeypatch):
    @ts.kernel
    def where(y: ts.Tensor["n", ts.i32]):
        p = ts.tile.program_id(0)
        y[p] = p + 1

    add, a = adder(), numbers(8)
    for _ in range(2):
        add(a, a, 1.0)
        with ts.numerics.profile("strict"):
            add(a, a, 1.0)
            assert "strict" in add.explain()
        add(a, a, 1.0)
        assert "strict" not in add.explain()
    for name in ("interp", "cpu"):
        monkeypatch.setenv("TESSERA_BACKEND", name)
        add(a, a, 1.0)
        assert add.explain().backend == name
    y = np.zeros(6, np.int32)
    for grid in (2, 4, 2, 6):
        y[:] = 0
        where[grid](y)
        np.testing.assert_array_equal(y, [i + 1 if i < grid else 0 for i in range(6)])


def test_checked_mode_is_heard_in_between(monkeypatch):
    @ts.kernel
    def far(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], at: ts.i32):
        i = ts.tile.linear_id()
        y[i] = x[i + at]

    x, y = numbers(8), numbers(8)
    for _ in range(3):
        far(x, y, 1)
    monkeypatch.setenv("TESSERA_CHECK", "1")
    with pytest.raises(ts.TesseraError):
        far(x, y, 1)
    monkeypatch.delenv("TESSERA_CHECK")
    far(x, y, 1)


def test_explain_and_cost_tell_of_the_latest_call():
    add = adder()
    for n in (10, 2000, 10, 2000):
        add(numbers(n), numbers(n), 1.0)
        add(numbers(n), numbers(n), 1.0)
        assert f"n={n}" in add.explain().replace(" ", "") or str(n) in add.explain()
        assert add.cost() is not None


def test_a_kernel_that_folds_begins_with_the_identity(backend):
    @ts.kernel
    def total(x: ts.Tensor["n", ts.f32], y: ts.Region[ts.reduce_sum, ts.Out[1, ts.f32]]):
        i = ts.tile.linear_id()
        if i < n:
            y[0] += x[i]
        return y

    x = numbers(50)
    for _ in range(4):
        assert total(x)[0] == x.sum()
