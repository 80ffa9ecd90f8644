"""`ts.tile.owned` and `unique=True`: what profiles accept, and what checked mode finds."""

import numpy as np
import pytest
import tessera as ts


@ts.kernel
def by_ticket(x: ts.Tensor["n", ts.f32], tickets: ts.Tensor[1, ts.i32], y: ts.Tensor["n", ts.f32]):
    ts.tile.grid(ts.cdiv(n, 16))
    start = ts.tile.atomic_add(tickets[0], 1) * 16
    ts.tile.owned(y[start:start + 16])
    y[start:start + 16] = 2.0 * x[start:start + 16]


@ts.kernel
def by_unique_store(x: ts.Tensor["n", ts.f32], tickets: ts.Tensor[1, ts.i32], y: ts.Tensor["n", ts.f32]):
    ts.tile.grid(ts.cdiv(n, 16))
    start = ts.tile.atomic_add(tickets[0], 1) * 16
    ts.tile.store(y[start:start + 16], 2.0 * x[start:start + 16], unique=True)


@ts.kernel(lanes=32)
def by_lane(x: ts.Tensor["n", ts.f32], tickets: ts.Tensor[1, ts.i32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        at = ts.tile.atomic_add(tickets[0], 1)
        ts.tile.owned(y[at])
        y[at] = 2.0 * x[at]


@pytest.mark.parametrize("kernel", [by_ticket, by_unique_store, by_lane])
@pytest.mark.parametrize("profile", ["default", "deterministic", "strict"])
def test_tickets_decide_who_and_not_what(kernel, profile, backend):
    x = np.arange(100, dtype=np.float32)
    y = np.zeros_like(x)
    with ts.numerics.profile(profile):
        kernel(x, np.zeros(1, np.int32), y)
        kernel.jit(target="sm90")
    assert (y == 2 * x).all()
    assert kernel.check(x, np.zeros(1, np.int32), np.zeros_like(x))


def refused(kernel):
    with ts.numerics.profile("strict"), pytest.raises(ts.UnsupportedError, match="E_NONDETERMINISTIC") as caught:
        kernel.jit(target="sm90")
    assert "ts.tile.owned" in caught.value.help
    return str(caught.value)


def test_a_write_that_is_not_owned_is_named():
    @ts.kernel
    def half(x: ts.Tensor["n", ts.f32], tickets: ts.Tensor[1, ts.i32], y: ts.Tensor["n", ts.f32]):
        ts.tile.grid(ts.cdiv(n, 16))
        start = ts.tile.atomic_add(tickets[0], 1) * 16
        ts.tile.owned(y[start:start + 8])
        y[start:start + 16] = 2.0 * x[start:start + 16]

    text = refused(half)
    assert "this write follows from it" in text and "y[start:start + 16] = 2.0" in text


def test_parts_of_an_owned_block_are_owned():
    @ts.kernel
    def parts(x: ts.Tensor["n", ts.f32], tickets: ts.Tensor[1, ts.i32], y: ts.Tensor["n", ts.f32]):
        ts.tile.grid(ts.cdiv(n, 16))
        start = ts.tile.atomic_add(tickets[0], 1) * 16
        ts.tile.owned(y[start:start + 16])
        for k in range(4):
            y[start + 4 * k:start + 4 * k + 4] = 2.0 * x[start + 4 * k:start + 4 * k + 4]

    with ts.numerics.profile("strict"):
        parts.jit(target="sm90")


def test_a_statement_on_one_path_owns_nothing_behind_it():
    @ts.kernel
    def one_path(x: ts.Tensor["n", ts.f32], tickets: ts.Tensor[1, ts.i32], y: ts.Tensor["n", ts.f32]):
        ts.tile.grid(ts.cdiv(n, 16))
        start = ts.tile.atomic_add(tickets[0], 1) * 16
        if start > 16:
            ts.tile.owned(y[start:start + 16])
        y[start:start + 16] = 2.0 * x[start:start + 16]

    refused(one_path)


def test_what_waits_for_a_lock_follows_from_it():
    @ts.kernel
    def locked(lock: ts.Tensor[1, ts.i32], total: ts.Tensor[1, ts.f32], x: ts.Tensor["n", ts.f32]):
        start = ts.tile.grid(ts.cdiv(n, 16)) * 16
        while ts.tile.atomic_cas(lock[0], 0, 1, order="acquire") != 0:
            pass
        total[0] = total[0] + ts.tile.sum(x[start:start + 16])
        ts.tile.atomic_exchange(lock[0], 0, order="release")

    refused(locked)
    x = np.arange(48, dtype=np.float32)
    assert locked.check(np.zeros(1, np.int32), np.zeros(1, np.float32), x)  # a lock is no race
    total = np.zeros(1, np.float32)
    with ts.numerics.profile("strict"):
        locked(np.zeros(1, np.int32), total, x)
    assert total[0] == x.sum()


def findings(kernel, *args, **kwargs):
    report = kernel.check(*args, **kwargs)
    assert {f.code for f in report.findings} == {"E_RACE"}
    return str(report)


def test_blocks_that_overlap_are_found():
    @ts.kernel
    def overlapping(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        start = ts.tile.grid(ts.cdiv(n, 16)) * 16
        ts.tile.owned(y[start:start + 32])
        y[start:start + 16] = x[start:start + 16]

    assert "group 1 owns element [16] of `y`, which group 0 owns" in findings(overlapping, np.ones(64, np.float32), np.zeros(64, np.float32))


def test_a_read_of_what_another_group_owns_is_found():
    @ts.kernel
    def peeks(y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", ts.f32]):
        p = ts.tile.grid(ts.cdiv(n, 16))
        if p == 0:
            ts.tile.owned(y[0:16])
        z[p * 16:p * 16 + 16] = y[0:16]

    assert "group 1 reads element [0] of `y`, which group 0 owns" in findings(peeks, np.ones(32, np.float32), np.zeros(32, np.float32))


def test_a_claim_of_what_another_group_has_touched_is_found():
    @ts.kernel
    def late(y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", ts.f32]):
        p = ts.tile.grid(ts.cdiv(n, 16))
        z[p * 16:p * 16 + 16] = y[0:16]
        if p == 1:
            ts.tile.owned(y[0:16])

    assert "group 1 owns element [0] of `y`, which group 0 has read" in findings(late, np.ones(32, np.float32), np.zeros(32, np.float32))


def test_unique_stores_of_two_groups_to_one_element_are_found():
    @ts.kernel(lanes=4)
    def twice(index: ts.Tensor["n", ts.i32], y: ts.Tensor["m", ts.f32]):
        i = ts.tile.linear_id()
        ts.tile.store(y, index[i], 1.0, unique=True)

    index = np.array([0, 1, 2, 3, 3, 4, 5, 6], np.int32)
    text = findings(twice, index, np.zeros(8, np.float32), grid=8)
    assert "element [3] of `y`" in text and "unique=True" in text
    assert twice.check(np.arange(8, dtype=np.int32), np.zeros(8, np.float32), grid=8)


def test_statements_that_are_refused():
    with pytest.raises(ts.TesseraError, match="E_TYPE.*expected a slice or an element to own"):

        @ts.kernel
        def scattered(x: ts.Tensor[16, ts.f32], index: ts.Tensor[16, ts.i32], y: ts.Tensor["n", ts.f32]):
            at = index[:]
            ts.tile.owned(y[at])
            y[at] = x[:]

    with pytest.raises(ts.TesseraError, match="E_TYPE.*expected a slice or an element of a parameter to own"):

        @ts.kernel
        def buffer(x: ts.Tensor[16, ts.f32]):
            held = ts.tile.alloc_shared((16,), ts.f32)
            ts.tile.owned(held)
            held[:] = x[:]
            x[:] = held[:] + 1.0
