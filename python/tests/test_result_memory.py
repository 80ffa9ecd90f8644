"""The memory of results: its alignment, what is cached, and what is returned to the system."""

import threading

import numpy as np
import pytest

import tessera as ts
from tessera import xp

MIB = 1 << 20


def handler(array):
    core = getattr(np, "_core", None) or np.core
    return core.multiarray.get_handler_name(array)


def test_results_begin_at_a_line():
    f = ts.jit(lambda x: (x + 1, xp.sum(x)))
    for n in (1024, 5000, 3 << 20):
        x = np.ones(n, np.float32)
        for _ in range(3):
            y, _ = f(x)
            assert y.__array_interface__["data"][0] % 64 == 0 and y.flags.owndata
            np.testing.assert_array_equal(np.asarray(y), 2)
    assert ts.empty((64, 64), "f32").__array_interface__["data"][0] % 64 == 0


def test_other_arrays_keep_their_memory():
    assert handler(np.empty(100_000)) == "default_allocator"
    y = ts.jit(lambda x: x * 2)(np.ones(4096, np.float32))
    assert handler(y) == "tessera_aligned"
    assert handler(np.empty(100_000)) == "default_allocator"
    z = np.array(y)
    assert handler(z) == "default_allocator"
    own = np.asarray(ts.empty((4096,), "f32"))
    own[:] = 3
    own.resize(9000, refcheck=False)
    assert own.shape == (9000,) and (own[:4096] == 3).all() and not own[4096:].any()
    with pytest.raises(MemoryError):
        ts.empty((1 << 50,), "f32")
    assert handler(np.empty(100_000)) == "default_allocator"


def address(array):
    return np.asarray(array).__array_interface__["data"][0]


def held():
    return ts.runtime.memory_stats()["caches"]["results"]


def test_calls_get_their_large_results_where_the_last_one_was():
    f = ts.jit(lambda x: x + 1)
    x = np.ones(3 * MIB // 4, np.float32)
    first = address(f(x))
    assert {address(f(x)) for _ in range(10)} == {first}
    # Results that live at the same time do not share memory, and one size does not get the block of another.
    many = [f(x) for _ in range(5)]
    assert len({address(y) for y in many}) == 5 and first in map(address, many)
    other = f(np.ones(5 * MIB, np.float32))
    for y in (*many, other):
        np.testing.assert_array_equal(np.asarray(y), 2)


def test_freed_results_are_kept_up_to_a_limit():
    blocks = [ts.empty((8 * MIB,), "u8") for _ in range(40)]
    for block in blocks:
        np.asarray(block)[::4096] = 1
    del block, blocks
    after = held()
    assert 8 * MIB <= after["bytes"] <= 128 * MIB and 1 <= after["entries"] <= 16
    del after
    ts.empty((300 * MIB,), "u8")
    assert held()["bytes"] <= 128 * MIB


def test_a_view_holds_the_block_of_its_result():
    f = ts.jit(lambda x: x * 2)
    x = np.arange(2 * MIB, dtype=np.float32)
    part = np.asarray(f(x))[7:20]
    for _ in range(5):
        f(-x)
    np.testing.assert_array_equal(part, 2 * x[7:20])


def test_threads_take_and_free_large_results_concurrently():
    f = ts.jit(lambda x, c: x + c)
    x = np.zeros(MIB // 2, np.float32)
    wrong = []

    def work(c):
        kept = []
        for k in range(60):
            kept.append((k, np.asarray(f(x, np.float32(c + k)))))
            if len(kept) > 3:
                n, y = kept.pop(0)
                if not (y == c + n).all():
                    wrong.append((c, n))

    threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_large_arrays_change_their_size():
    own = np.asarray(ts.empty((MIB,), "f32"))
    own[:] = 3
    own.resize(3 * MIB, refcheck=False)
    assert (own[:MIB] == 3).all() and not own[MIB:].any()
    own.resize(10, refcheck=False)
    assert (own == 3).all()
    own.resize(2 * MIB, refcheck=False)
    assert (own[:10] == 3).all() and not own[10:].any()
