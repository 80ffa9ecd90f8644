"""Memory that belongs to a function is freed with it, and caches have a limit."""

import gc
import weakref

import numpy as np
import pytest
import tessera as ts
from tessera.trace import execute, jit
from apart import printed

#: The pages of the process after a first lot, which fills what has a limit, and after a second.
GROWTH = """
import gc
import sys

def pages():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4

def entries():
    return {name: row["entries"] for name, row in ts.runtime.memory_stats()["caches"].items()}

x = np.ones(8, np.float32)
MAKE
for i in range(300):
    make(i)
before, kept = pages(), entries()
for i in range(300, 600):
    make(i)
print((pages() - before) / 300)
after = entries()
print({name: (kept[name], n) for name, n in after.items() if n > kept[name]})
"""

MADE = {
    "a jitted function": """
def make(i):
    f = ts.jit(lambda x: x * float(i) + 1.0)
    assert f(x)[0] == i + 1
""",
    "a kernel": """
def make(i):
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        s = ts.tile.program_id(0) * 8
        y[s:s + 8] = x[s:s + 8] * i
        return y
    assert k(x)[0] == i
""",
    "a derivative": """
def make(i):
    f = ts.grad(lambda x: (x * float(i)).sum())
    assert f(x)[0] == i
""",
    "a module that was executed": """
def make(i):
    f = made(f"@ts.jit\\ndef f(x):\\n    return x + {i}.0\\n", "f")
    assert f(x)[0] == i + 1
""",
    "a function with a kernel inside": """
def make(i):
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        s = ts.tile.program_id(0) * 8
        y[s:s + 8] = x[s:s + 8] * i
        return y
    f = ts.jit(lambda x: k(x) + 1.0)
    assert f(x)[0] == i + 1 == f(x)[0]
""",
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_functions_that_are_dropped_leave_nothing(made):
    # With several arenas the allocator itself keeps some of what threads gave back.
    growth, grown = printed(GROWTH.replace("MAKE", made), MALLOC_ARENA_MAX="1")
    assert float(growth) < 4.0, f"{growth} KiB stay of each"
    assert grown == "{}"


def test_a_function_in_a_circle_is_collected():
    class Model:
        def __init__(self):
            self.scale = np.full(4, 3, np.float32)
            self.step = ts.jit(self._step)

        def _step(self, x):
            return x * self.scale

    x = np.ones(4, np.float32)
    model = Model()
    assert model.step(x).tolist() == model.step(x).tolist() == [3] * 4
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_kernel_that_the_function_it_is_called_by_reaches_is_collected():
    class Owner:
        pass

    def make():
        owner = Owner()

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
            s = ts.tile.program_id(0) * 8
            y[s : s + 8] = x[s : s + 8] * 2.0
            return y

        owner.f = ts.jit(lambda x: owner.k(x) + 1.0)
        owner.k = k
        x = np.ones(8, np.float32)
        assert owner.f(x)[0] == owner.f(x)[0] == 3
        return weakref.ref(owner)

    gone = make()
    gc.collect()
    assert gone() is None


def test_shapes_that_change_all_the_time_are_forgotten(monkeypatch):
    monkeypatch.setattr(jit, "MOST_TRACES", 4)
    monkeypatch.setattr(jit, "MOST_SHAPES", 6)
    f = ts.jit(lambda x: x + 1.0)
    for n in range(1, 13):
        assert f(np.ones(n, np.float32)).tolist() == [2] * n
    assert sum(map(len, f._forms.values())) <= 4 and len(f._traces) <= 6
    assert f(np.ones(1, np.float32)).tolist() == [2]


def test_open_extents_keep_code_for_some_sizes(monkeypatch):
    monkeypatch.setattr(execute, "MOST_SIZES", 3)

    @ts.jit
    def f(x: ts.Tensor["n", ts.f32]):
        return x * 2.0

    for n in range(1, 9):
        assert f(np.ones(n, np.float32)).tolist() == [2] * n
    (traces,) = f._forms.values()
    assert len(traces) == 1 and len(traces[0].runner._compiled) <= 3


def test_memory_stats_tells_of_each_cache():
    f = ts.jit(lambda x: x - 17.25)
    gc.collect()
    before = ts.runtime.memory_stats()["caches"]
    f(np.ones(3, np.float32))
    caches = ts.runtime.memory_stats()["caches"]
    assert all(set(row) == {"entries", "bytes"} for row in caches.values())
    assert caches["functions"]["entries"] == before["functions"]["entries"] + 1
    # The code of a function that others dropped may go in the same moment.
    assert caches["code"]["entries"] >= max(before["code"]["entries"], 1) and caches["code"]["bytes"] > 0
    del f
    gc.collect()
    assert ts.runtime.memory_stats()["caches"]["functions"]["entries"] <= before["functions"]["entries"]
