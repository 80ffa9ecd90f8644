"""What is bounded: the size of programs, the stack that they are compiled on, and memory."""

import json

import numpy as np
import pytest
import tessera as ts
from apart import printed, run



def doubling(body: str, first: str = "x + 1.0", last: str = "f26(a)") -> str:
    """A program that makes a kernel of functions, each of which calls the one before twice."""
    text = f"@ts.func\ndef f0(x):\n    return {first}\n"
    for i in range(26):
        text += f"@ts.func\ndef f{i + 1}(x):\n    return {body.replace('@', f'f{i}')}\n"
    text += f"""@ts.kernel
def k(x: ts.Tensor["n", ts.f32]):
    s = ts.tile.program_id(0) * 8
    a = x[s:s + 8]
    x[s:s + 8] = {last}
    return x
"""
    return f"""
import time
start = time.perf_counter()
try:
    made({text!r}, "k")
except ts.ResourceError as e:
    print(e.code, e.diagnostics[0].line is not None, time.perf_counter() - start < 60)
"""


@pytest.mark.parametrize("body", ["@(@(x))", "@(x) + @(x)"])
def test_functions_that_call_each_other_twice_are_refused_at_their_line(body):
    assert printed(doubling(body), timeout=120) == ["E_TOO_LARGE True True"]


def test_compile_time_functions_are_counted_too():
    assert printed(doubling("@(x) + @(x)", "1", "a * f26(0)"), timeout=120) == ["E_TOO_LARGE True True"]


def test_a_loop_that_is_elaborated_again_is_refused_too():
    text = """
@ts.kernel
def k(x: ts.Tensor[8, ts.f32]):
    ts.tile.grid(1)
    v = 0
    for j in range(2):
        v = v + 0.5
        for _ in ts.static_range(200):
            x[0:8] = x[0:8] + 1.0
    x[0:8] = x[0:8] * v
"""
    program = f"""
try:
    made({text!r}, "k")(np.zeros(8, np.float32))
except ts.ResourceError as e:
    print(e.code)
"""
    assert printed(program, TESSERA_MAX_OPS="300") == ["E_TOO_LARGE"]


def test_the_limit_can_be_set():
    program = """
    try:
        heavy(100, 0)
        print("taken")
    except ts.ResourceError as e:
        print(e.code)
    """
    assert printed(program) == ["taken"]
    assert printed(program, TESSERA_MAX_OPS="150") == ["E_TOO_LARGE"]
    wrong = run("heavy(1, 0)", TESSERA_MAX_OPS="many")
    assert wrong.returncode != 0 and "expected a number of operations in TESSERA_MAX_OPS" in wrong.stderr


def test_a_traced_function_of_too_many_ops_is_refused():
    lines = printed(
        """
        def f(x):
            for i in range(700):
                x = x + float(i)
            return x
        try:
            ts.jit(f)(np.ones(3, np.float32))
        except ts.ResourceError as e:
            print(e.code, "ts.scan" in str(e))
        """,
        TESSERA_MAX_OPS="60",
    )
    assert lines == ["E_TOO_LARGE True"]


def test_long_chains_take_about_as_much_longer_as_they_are_longer():
    found = json.loads(
        printed(
            """
            import json, time
            def chain(n, by):
                def f(x):
                    for _ in range(n):
                        x = ts.xp.sin(x) + by
                    return x
                return ts.jit(f)
            x = np.linspace(0, 1, 64, dtype=np.float32)
            chain(2, 0.25)(x)
            found = {}
            for n in (50, 200):
                f = chain(n, 1.0 / n)
                start = time.process_time()
                y = f(x)
                found[n] = time.process_time() - start
                with ts.runtime.oracle():
                    assert np.allclose(y, f(x), rtol=1e-3, atol=1e-4)
            print(json.dumps(found))
            """
        )[-1]
    )
    # Twice the time of each half would be sixteen times as much.
    assert found["200"] < 8 * found["50"] + 0.5, found


def test_a_long_chain_runs_as_several_kernels():
    def f(x):
        for _ in range(200):
            x = ts.xp.sin(x)
        return x

    x = np.linspace(0, 1, 64, dtype=np.float32)
    stats = ts.jit(f).stats(x)
    assert 10 <= stats["launches"] <= 20 and stats["kernels"] <= 3, stats


SMALL_STACK = """
import threading
threading.stack_size(256 * 1024)
failed = []
def work():
    try:
        BODY
    except BaseException as e:
        failed.append(repr(e))
t = threading.Thread(target=work)
t.start()
t.join()
print(failed)
"""

BODIES = {
    "kernel": "heavy(300, 0)(np.ones(256, np.float32))",
    "function": "ts.jit(lambda x: sum((ts.xp.sin(x) * float(i) for i in range(300)), x))(np.ones(8, np.float32))",
    "derivative": "ts.grad(lambda x: sum((ts.xp.sin(x) * float(i) for i in range(300)), x).sum())(np.ones(8, np.float32))",
    "loop": "ts.jit(ts.grad(lambda x: ts.fori_loop(0, 4, lambda i, v: ts.cond(v.sum() > 0, lambda a: a * x, lambda a: a - x, v), x).sum()))(np.ones(8, np.float32))",
    "batch": "ts.vmap(lambda x: ts.nn.softmax(x))(np.ones((3, 8), np.float32))",
    "interpreter": "ts.runtime.select_backend('interp'); heavy(300, 0)(np.ones(256, np.float32))",
    "another layout": "k = heavy(300, 0); k(np.ones(256, np.float32)); k(np.ones(512, np.float32)[::2])",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_threads_with_small_stacks_compile(body):
    assert printed(SMALL_STACK.replace("BODY", body)) == ["[]"]


SHORT = """
import resource
def room(mib):
    used = int(open("/proc/self/statm").read().split()[0]) * 4096
    resource.setrlimit(resource.RLIMIT_AS, (used + (mib << 20),) * 2)
def refused(work):
    try:
        work()
    except (ts.ResourceError, MemoryError) as e:
        return getattr(e, "code", type(e).__name__)
    return "done"
"""


def test_the_interpreter_refuses_what_there_is_no_memory_for():
    lines = printed(
        SHORT
        + """
x = np.ones(1 << 20, np.float32)
big = ts.jit(lambda x: ts.xp.broadcast_to(x, (256, 1 << 20)).sum())
with ts.runtime.oracle():
    ts.jit(lambda x: x + 1.0)(x)
    room(300)
    print(refused(lambda: big(x)))
    print(refused(lambda: ts.jit(lambda x: x + 2.0)(x)))
"""
    )
    assert lines == ["E_OOM", "done"]


def test_tiles_and_buffers_that_there_is_no_memory_for_are_refused():
    lines = printed(
        SHORT
        + """
ts.runtime.select_backend("interp")
@ts.kernel
def k(x: ts.Tensor["n", ts.f32], y: ts.Out["m", ts.f32], T: int = 8):
    a = ts.tile.zeros((T,), ts.f32)
    y[0:T] = a + 1.0
    return y
x, y = np.ones(8, np.float32), np.zeros(1 << 26, np.float32)
k(x, y, T=8)
room(300)
print(refused(lambda: k(x, y, T=1 << 26)))
print(refused(lambda: k(x, y, T=16)))
"""
    )
    assert lines == ["E_OOM", "done"]


def test_results_that_there_is_no_memory_for_are_refused():
    lines = printed(
        SHORT
        + """
f = ts.jit(lambda x: ts.xp.broadcast_to(x, (1 << 14, 1 << 16)) * 2.0)
g = ts.jit(lambda x: ts.xp.cumsum(ts.xp.broadcast_to(x, (1 << 10, 1 << 16)), axis=0).T.sum())
x = np.ones(1 << 16, np.float32)
ts.jit(lambda x: x + 1.0)(x)
room(300)
print(refused(lambda: f(x)))
print(refused(lambda: ts.jit(lambda x: x + 2.0)(x)))
"""
    )
    assert lines[0] in ("E_OOM", "MemoryError", "_ArrayMemoryError") and lines[1] == "done"


def test_an_empty_grid_gives_zeros():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        s = ts.tile.program_id(0) * 8
        y[s : s + 8] = x[s : s + 8] * 2.0
        return y

    x = np.full(1024, 7, np.float32)
    jitted = ts.jit(lambda x: k[(0,)](x))
    for _ in range(8):
        # Freed memory, which the allocator hands out to the next request.
        junk = [np.full(1024, 5, np.float32) for _ in range(50)]
        del junk
        for call in (k[(0,)], k[(0, 1)], jitted):
            assert not np.any(call(x))
    assert k(x)[0] == 14
