"""Groups and lanes that synchronise through memory: tickets, locks, and errors."""

import numpy as np
import pytest

import tessera as ts


@ts.kernel
def by_ticket(n: ts.Tensor[1, ts.i64], x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]):
    p = ts.tile.grid(ts.cdiv(N, 4))
    t = ts.tile.atomic_add(n[0], 1)
    y[t * 4 : t * 4 + 4] = x[t * 4 : t * 4 + 4] * 2.0


@ts.kernel
def by_wrong_ticket(n: ts.Tensor[1, ts.i64], y: ts.Tensor["N", ts.f32]):
    p = ts.tile.grid(ts.cdiv(N, 4))
    t = ts.tile.atomic_add(n[0], 1) // 2
    y[t * 4 : t * 4 + 4] = ts.tile.full((4,), 1.0, ts.f32)


def counter():
    return np.zeros(1, np.int64)


def test_tiles_taken_by_a_ticket_are_accepted_and_clean(backend):
    x, y = np.arange(30, dtype=np.float32), np.zeros(30, np.float32)
    by_ticket(counter(), x, y)
    np.testing.assert_array_equal(y, 2 * x)
    report = by_ticket.check(counter(), x, y)
    assert report, str(report)


def test_a_ticket_that_two_groups_share_is_found():
    report = by_wrong_ticket.check(counter(), np.zeros(16, np.float32))
    assert [d.code for d in report.findings] == ["E_RACE"]


def test_a_position_that_memory_gives_is_never_refused_before_it_runs(backend):
    @ts.kernel
    def move(at: ts.Tensor["G", ts.i64], y: ts.Tensor["N", ts.f32]):
        p = ts.tile.grid(G)
        s = at[p]
        y[s : s + 4] = ts.tile.full((4,), 1.0, ts.f32)

    y = np.zeros(16, np.float32)
    move(np.array([8, 0], np.int64), y)
    assert y.tolist() == [1.0] * 4 + [0.0] * 4 + [1.0] * 4 + [0.0] * 4
    assert move.check(np.array([8, 0], np.int64), y)
    report = move.check(np.array([2, 0], np.int64), y)
    assert [d.code for d in report.findings] == ["E_RACE"]


def locked(acquire, release):
    @ts.kernel
    def add(l: ts.Tensor[1, ts.i32], c: ts.Tensor[2, ts.f32], count: ts.i64):
        p = ts.tile.grid(count)
        done = 0
        while done == 0:
            if ts.tile.atomic_cas(l[0], 0, 1, order=acquire) == 0:
                c[0] = c[0] + 1.0
                c[1] = c[0] * 2.0
                ts.tile.atomic_exchange(l[0], 0, order=release)
                done = 1

    return add


def lock():
    return np.zeros(1, np.int32)


def test_a_lock_orders_what_it_guards(backend):
    add = locked("acquire", "release")
    c = np.zeros(2, np.float32)
    add(lock(), c, 50)
    assert c.tolist() == [50.0, 100.0]
    report = add.check(lock(), c, 50)
    assert report, str(report)


@pytest.mark.parametrize("acquire, release", [("relaxed", "release"), ("acquire", "relaxed"), ("relaxed", "relaxed")])
def test_a_lock_of_relaxed_atomics_is_found(acquire, release):
    report = locked(acquire, release).check(lock(), np.zeros(2, np.float32), 3)
    assert {d.code for d in report.findings} == {"E_RACE"}
    assert any('order="acquire"' in (d.help or "") for d in report.findings)


def test_an_access_outside_the_lock_is_found():
    @ts.kernel
    def add(l: ts.Tensor[1, ts.i32], c: ts.Tensor[2, ts.f32], count: ts.i64):
        p = ts.tile.grid(count)
        done = 0
        while done == 0:
            if ts.tile.atomic_cas(l[0], 0, 1, order="acquire") == 0:
                c[0] = c[0] + 1.0
                ts.tile.atomic_exchange(l[0], 0, order="release")
                if c[1] < 1.0:
                    c[1] = 2.0
                done = 1

    report = add.check(lock(), np.zeros(2, np.float32), 3)
    assert report.findings and all("`c`" in d.message and "[1]" in d.message for d in report.findings)


def test_a_spin_lock_before_a_plain_store_is_no_race(backend):
    @ts.kernel
    def add(l: ts.Tensor[1, ts.i32], c: ts.Tensor[1, ts.f32], count: ts.i64):
        p = ts.tile.grid(count)
        while ts.tile.atomic_cas(l[0], 0, 1, order="acquire") != 0:
            pass
        c[0] = c[0] + 1.0
        ts.tile.atomic_exchange(l[0], 0, order="release")

    c = np.zeros(1, np.float32)
    add(lock(), c, 20)
    assert c[0] == 20
    assert add.check(lock(), c, 20)


def test_a_relaxed_spin_lock_before_a_plain_store_is_refused():
    with pytest.raises(ts.PrivilegeError) as caught:

        @ts.kernel
        def add(l: ts.Tensor[1, ts.i32], c: ts.Tensor[1, ts.f32], count: ts.i64):
            p = ts.tile.grid(count)
            while ts.tile.atomic_cas(l[0], 0, 1) != 0:
                pass
            c[0] = c[0] + 1.0
            ts.tile.atomic_exchange(l[0], 0)

    assert caught.value.code == "E_RACE" and 'order="acquire"' in caught.value.help


def test_what_is_published_with_a_flag_may_be_read_behind_it(backend):
    def chain(order):
        @ts.kernel
        def scan(x: ts.Tensor["N", ts.i32], sums: ts.Tensor["N", ts.i32], ready: ts.Tensor["N", ts.i32]):
            p = ts.tile.grid(N)
            total = x[p]
            if p > 0:
                while ts.tile.atomic_add(ready[p - 1], 0, order=order) == 0:
                    pass
                total = total + sums[p - 1]
            sums[p] = total
            ts.tile.atomic_exchange(ready[p], 1, order="release")

        return scan

    x = np.arange(1, 41, dtype=np.int32)
    sums, ready = np.zeros_like(x), np.zeros_like(x)
    chain("acquire")(x, sums, ready)
    np.testing.assert_array_equal(sums, np.cumsum(x))
    report = chain("acquire").check(x, np.zeros_like(x), np.zeros_like(x))
    assert report, str(report)
    report = chain("relaxed").check(x, np.zeros_like(x), np.zeros_like(x))
    assert [d.code for d in report.findings] == ["E_RACE"]


def test_lanes_with_a_lock_and_with_a_barrier():
    def kernel(order, with_barrier):
        @ts.kernel(lanes=8)
        def add(l: ts.Tensor[1, ts.i32], c: ts.Tensor[1, ts.i32], y: ts.Tensor["n", ts.i32]):
            i = ts.tile.linear_id()
            done = 0
            while done == 0:
                if ts.tile.atomic_cas(l[0], 0, 1, order=order) == 0:
                    c[0] = c[0] + 1
                    ts.tile.atomic_exchange(l[0], 0, order="release")
                    done = 1
            s = ts.tile.alloc_shared((8,), ts.i32)
            s[ts.tile.local_id()] = 1
            if with_barrier:
                ts.tile.barrier()
            y[i] = s[7 - ts.tile.local_id()]

        return add

    y = np.zeros(32, np.int32)
    assert (report := kernel("acquire", True).check(lock(), lock(), y)), str(report)
    assert [d.code for d in kernel("relaxed", True).check(lock(), lock(), y).findings] == ["E_RACE"] * 2
    (found,) = kernel("acquire", False).check(lock(), lock(), y).findings
    assert found.code == "E_RACE" and "`s`" in found.message


def test_a_grid_of_four_axes_is_said_to_be_one():
    @ts.kernel
    def fill(y: ts.Tensor["n", ts.f32]):
        y[ts.tile.program_id(0)] = 1.0

    y = np.zeros(4, np.float32)
    calls = [
        lambda: fill[(1, 2, 3, 4)](y),
        lambda: fill[()](y),
        lambda: fill.launch(y, grid=(1, 2, 3, 4)),
        lambda: fill.check(y, grid=(1, 2, 3, 4)),
        lambda: fill.jit(n=4)[(1, 2, 3, 4)](y),
        lambda: ts.jit(lambda v: fill[(1, 2, 3, 4)](v))(y),
    ]
    for call in calls:
        with pytest.raises(ts.LaunchError, match="one to three axes") as caught:
            call()
        assert caught.value.code == "E_LAUNCH_GEOMETRY" and "three" in caught.value.help


@ts.kernel
def tickets(n: ts.Tensor[1, ts.i32], y: ts.Tensor["A", "B", "C", ts.i32]):
    a = ts.tile.program_id(0)
    b = ts.tile.program_id(1)
    c = ts.tile.program_id(2)
    y[a, b, c] = ts.tile.atomic_add(n[0], 1)


@ts.kernel
def last(n: ts.Tensor[1, ts.i32], work: ts.Tensor["N", ts.i32]):
    p = ts.tile.grid(N)
    work[p] = ts.tile.atomic_exchange(n[0], 1 + p)


@pytest.mark.parametrize("profile", ["deterministic", "strict"])
def test_groups_run_in_order_where_their_order_shows(backend, profile):
    # Large enough that other profiles would share it among threads.
    shape = (40, 50, 60)
    with ts.numerics.profile(profile):
        y = np.full(shape, -1, np.int32)
        tickets(np.zeros(1, np.int32), y)
        np.testing.assert_array_equal(y.ravel(), np.arange(y.size))
        n, work = np.zeros(1, np.int32), np.full(100_000, -1, np.int32)
        last(n, work)
        np.testing.assert_array_equal(work, np.arange(work.size))
        assert n[0] == work.size


@pytest.mark.parametrize("profile", ["deterministic", "strict"])
@pytest.mark.parametrize("kernel", [tickets, last])
def test_what_depends_on_the_order_of_groups_is_refused_on_a_gpu(profile, kernel):
    with ts.numerics.profile(profile), pytest.raises(ts.UnsupportedError) as caught:
        kernel.jit(target="sm90")
    assert caught.value.code == "E_NONDETERMINISTIC" and caught.value.line
    assert "order of groups" in caught.value.message
    kernel.jit(target="sm90")


def test_integer_sums_keep_their_bits_in_any_order():
    @ts.kernel
    def count(x: ts.Tensor["n", ts.i32], y: ts.Tensor[4, ts.i32]):
        i = ts.tile.linear_id()
        ts.tile.atomic_add(y[x[i]], 1)

    with ts.numerics.profile("strict"):
        count.jit(target="sm90")
