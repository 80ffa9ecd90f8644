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


@pytest.mark.parametrize("values", [[1, 1, 1, 1, 1, 1, 1, 1], [1, 2, 3, 4, 5, 6, 7, 8]])
def test_unique_stores_of_two_lanes_to_one_element_are_found(values):
    @ts.kernel(lanes=32)
    def scattered(x: ts.Tensor["n", ts.f32], index: ts.Tensor["n", ts.i32], y: ts.Tensor["m", ts.f32]):
        i = ts.tile.linear_id()
        ts.tile.store(y, index[i], x[i], unique=True)

    x, y = np.array(values, np.float32), np.zeros(8, np.float32)
    text = findings(scattered, x, np.array([0, 0, 2, 3, 4, 5, 6, 7], np.int32), y)
    assert "lanes 0 and 1 of group 0 write it" in text and "happened" not in text
    assert scattered.check(x, np.arange(8, dtype=np.int32), y)


def test_an_element_stored_twice_is_one_finding():
    @ts.kernel
    def by_groups(index: ts.Tensor["n", ts.i32], y: ts.Tensor["m", ts.f32]):
        p = ts.tile.grid(n)
        ts.tile.store(y, index[p], 1.0, unique=True)

    @ts.kernel
    def by_tile(index: ts.Tensor["n", ts.i32], y: ts.Tensor["m", ts.f32]):
        ts.tile.store(y, index[:], 1.0, unique=True)

    for kernel in (by_groups, by_tile):
        text = findings(kernel, np.array([0, 1, 2, 2], np.int32), np.zeros(4, np.float32))
        assert "element [2] of `y`" in text and "happened" not in text


# Kernels over tickets: what stands between `p = atomic_add(t[0], 1)` and the end, and whether GPUs accept it.
TICKETS = """
@ts.kernel
def k(x: ts.Tensor["n", ts.f32], t: ts.Tensor[1, ts.i32], y: ts.Tensor["n", ts.f32], z: ts.Tensor["n", ts.f32], c: ts.Tensor["n", ts.i32]):
    ts.tile.grid(ts.cdiv(n, 16))
    g = ts.tile.program_id(0) * 16
    p = ts.tile.atomic_add(t[0], 1)
    s = p * 16
"""
OWN = "ts.tile.owned(y[s:s + 16])\n"
LOOP = """while p * 16 < n:
    s = p * 16
    ts.tile.owned(y[s:s + 16])
    y[s:s + 16] = {value}
    {more}
    p = ts.tile.atomic_add(t[0], 1)
"""
ACCEPTED = {
    "second half": OWN + "y[s + 8:s + 16] = x[s + 8:s + 16]",
    "middle": OWN + "y[s + 4:s + 8] = 1.0",
    "element": OWN + "y[s + 3] = x[s + 3]",
    "last element": OWN + "y[s + 15] = x[s]",
    "index tile": OWN + "y[s + ts.tile.arange(16)] = x[s:s + 16]",
    "reversed": OWN + "y[s + 15 - ts.tile.arange(16)] = x[s:s + 16]",
    "strided": OWN + "y[s + 2 * ts.tile.arange(8)] = 1.0",
    "parts in a loop": OWN + "for i in range(4):\n    y[s + 4 * i:s + 4 * i + 4] = x[s:s + 4]",
    "ticket number": OWN + "y[s:s + 16] = x[s:s + 16] + ts.tile.cast(p, ts.f32)",
    "masked by the ticket": OWN + "y[s:s + 16] = ts.tile.where(s + ts.tile.arange(16) < n, x[s:s + 16], 1.0)",
    "sum over a loop": OWN + "acc = 0.0\nfor i in range(4):\n    acc += x[s + i]\ny[s] = acc",
    "own block read back": OWN + "y[s:s + 16] = x[s:s + 16]\ny[s:s + 16] = y[s:s + 16] * 2.0",
    "under a ticket's condition": OWN + "if p > 1:\n    y[s:s + 16] = x[s:s + 16]",
    "under a group's condition": "if g > 16:\n    q = ts.tile.atomic_add(t[0], 1)\n    ts.tile.owned(y[q * 16:q * 16 + 16])\n    y[q * 16:q * 16 + 16] = 1.0",
    "a count that nothing reads": OWN + "y[s:s + 16] = 1.0\nts.tile.atomic_add(c[p], 1)",
    "persistent": LOOP.format(value="x[s:s + 16] * 2.0", more="pass"),
    "persistent, counting": LOOP.format(value="x[s:s + 16]", more="ts.tile.atomic_add(c[0], 1)"),
    "after a persistent loop": LOOP.format(value="x[s:s + 16]", more="pass") + "z[g:g + 16] = x[g:g + 16]",
}
REFUSED = {
    "value by ticket, place by group": "ts.tile.owned(y[g:g + 16])\ny[g:g + 16] = x[g:g + 16] + ts.tile.cast(p, ts.f32)",
    "place by ticket, value by group": OWN + "y[s:s + 16] = x[g:g + 16]",
    "condition by group": OWN + "if g > 16:\n    y[s:s + 16] = 1.0",
    "two tickets": "q = ts.tile.atomic_add(t[0], 1)\n" + OWN + "y[s:s + 16] = x[q * 16:q * 16 + 16]",
    "what a max found": "old = ts.tile.atomic_max(c[0], ts.tile.cast(x[g], ts.i32))\nts.tile.store(z, g, ts.tile.cast(old, ts.f32), unique=True)",
    "a count of what differs": "old = ts.tile.atomic_add(c[0], ts.tile.cast(x[g], ts.i32))\nts.tile.owned(z[old])\nz[old] = 1.0",
    "a block of another": OWN + "y[s:s + 16] = x[s:s + 16] + y[s + 16:s + 32]",
    "persistent, adding up": "acc = 0.0\n" + LOOP.format(value="x[s:s + 16] + acc", more="acc += x[s]"),
    "persistent, counting iterations": "n_own = 0.0\n" + LOOP.format(value="x[s:s + 16] + n_own", more="n_own += 1.0"),
    "persistent, the one before": "last = p\n" + LOOP.format(value="x[last * 16:last * 16 + 16]", more="last = p"),
    "persistent, by group": LOOP.format(value="x[g:g + 16]", more="pass"),
    "a flag": OWN + "y[s:s + 16] = 1.0\nts.tile.atomic_exchange(c[p], 1, order='release')",
}
BEYOND = {
    "one further": OWN + "y[s + 1:s + 17] = 1.0",
    "element behind": OWN + "y[s + 16] = 1.0",
    "element before": OWN + "y[s - 1] = 1.0",
    "index tile": OWN + "y[s + 1 + ts.tile.arange(16)] = x[s:s + 16]",
    "by the extent": OWN + "y[s + n] = 1.0",
}


def over_tickets(body):
    text = TICKETS + "".join(f"    {line}\n" for line in body.splitlines())
    scope = {"ts": ts}
    import linecache

    name = f"<tickets {hash(body)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), scope)
    return scope["k"]


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED)
def test_what_follows_from_one_ticket_is_accepted(body, backend):
    kernel = over_tickets(body)
    for profile in ("deterministic", "strict"):
        with ts.numerics.profile(profile):
            kernel.jit(target="sm90")


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED)
def test_what_shows_who_took_a_ticket_is_refused(body):
    kernel = over_tickets(body)
    for profile in ("deterministic", "strict"):
        with ts.numerics.profile(profile), pytest.raises(ts.UnsupportedError, match="E_NONDETERMINISTIC"):
            kernel.jit(target="sm90")
    kernel.jit(target="sm90")


def test_owning_is_no_promise_about_values():
    with ts.numerics.profile("strict"), pytest.raises(ts.UnsupportedError) as caught:
        over_tickets(REFUSED["value by ticket, place by group"]).jit(target="sm90")
    assert "say who touches an element, not what is stored there" in caught.value.help
    assert "mixes a ticket with which group" in str(caught.value)


def test_a_flag_is_not_to_be_owned():
    with ts.numerics.profile("strict"), pytest.raises(ts.UnsupportedError) as caught:
        over_tickets(REFUSED["a flag"]).jit(target="sm90")
    assert "`ts.tile.owned` would deny" in caught.value.help


@pytest.mark.parametrize("body", BEYOND.values(), ids=BEYOND)
def test_a_write_beyond_its_block_names_the_block(body):
    with ts.numerics.profile("strict"), pytest.raises(ts.UnsupportedError) as caught:
        over_tickets(body).jit(target="sm90")
    assert "line 8 owns `y[s:s + 16]`, but what this writes could not be shown to lie in it" in str(caught.value)


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
