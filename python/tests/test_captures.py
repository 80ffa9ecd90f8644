"""Captured names: what they may be, when they are read, and what happens where they change."""

from __future__ import annotations

import linecache
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import types
import warnings

import numpy as np
import pytest

import tessera as ts

SCALE = 2.0
SHIFT = 1
cfg = types.SimpleNamespace(BLOCK=4, inner=types.SimpleNamespace(k=3.0))


def ones(n=8):
    return np.ones(n, np.float32)


@ts.kernel
def scaled(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    x[i] = x[i] * SCALE
    return x


@ts.func
def inner_helper(v):
    return v * SCALE


@ts.func
def outer_helper(v):
    return inner_helper(v) + SHIFT


@ts.kernel
def by_helpers(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    x[i] = outer_helper(x[i])
    return x


@ts.kernel
def by_path(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32]):
    i = ts.tile.program_id(0)
    o[i * cfg.BLOCK : i * cfg.BLOCK + cfg.BLOCK] = x[i * cfg.BLOCK : i * cfg.BLOCK + cfg.BLOCK] * cfg.inner.k
    return o


def test_changed_global_of_a_kernel(monkeypatch):
    assert scaled(ones())[0] == 2
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert scaled(ones())[0] == 5
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert scaled(ones())[0] == 2


def test_type_and_sign_of_a_captured_number_are_part_of_it(monkeypatch):
    @ts.kernel
    def k(x: ts.Tensor["n", ts.i32], o: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        o[i] = x[i] / HALF
        return o

    x = np.full(4, 3, np.int32)
    for value, wanted in ((2, 1.5), (2.0, 1.5), (-0.0, -np.inf), (0.0, np.inf), (True, 3.0)):
        monkeypatch.setitem(globals(), "HALF", value)
        with np.errstate(all="ignore"):
            assert k(x)[0] == wanted, value


HALF = 2


def test_changed_global_of_a_helper_of_a_helper(monkeypatch):
    assert by_helpers(ones())[0] == 3
    monkeypatch.setitem(globals(), "SCALE", 10.0)
    assert by_helpers(ones())[0] == 11
    monkeypatch.setitem(globals(), "SHIFT", 5)
    assert by_helpers(ones())[0] == 15
    monkeypatch.undo()
    assert by_helpers(ones())[0] == 3


def test_helper_replaced_by_another(monkeypatch):
    @ts.func
    def other(v):
        return v - 7

    assert by_helpers(ones())[0] == 3
    monkeypatch.setitem(globals(), "inner_helper", other)
    assert by_helpers(ones())[0] == -5
    monkeypatch.undo()
    assert by_helpers(ones())[0] == 3


def test_dotted_path_is_captured_whole(monkeypatch):
    assert by_path(ones())[0] == 3
    monkeypatch.setattr(cfg, "BLOCK", 2)
    assert by_path(ones())[0] == 3 and by_path.explain().grid[0] == 4
    # Another object with equal values is the same capture.
    known = len(by_path._all)
    monkeypatch.setitem(globals(), "cfg", types.SimpleNamespace(BLOCK=2, inner=types.SimpleNamespace(k=3.0), more=1))
    assert by_path(ones())[0] == 3 and len(by_path._all) == known
    monkeypatch.setattr(cfg.inner, "k", 4.0)
    assert by_path(ones())[0] == 4


def test_attribute_of_a_module(monkeypatch):
    module = types.ModuleType("settings")
    module.K = 3.0
    monkeypatch.setitem(globals(), "settings", module)

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = settings.K  # noqa: F821
        return x

    assert k(ones())[0] == 3
    module.K = 4.0
    assert k(ones())[0] == 4


def test_property_is_read_at_every_call():
    class Config:
        now = 1000

        @property
        def value(self):
            return self.now + 1

    config = Config()

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = config.value
        return x

    assert k(ones())[0] == 1001
    assert k(ones())[0] == 1001 and len(k._all) == 1
    config.now = 2000
    assert k(ones())[0] == 2001


def test_nonlocal_variable():
    factor = 2.0

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = x[i] * factor
        return x

    assert k(ones())[0] == 2
    factor = 3.0
    assert k(ones())[0] == 3


def test_old_elaborations_stay(monkeypatch):
    scaled.cache_clear()
    scaled(ones())
    for value in (20.0, 30.0):
        monkeypatch.setitem(globals(), "SCALE", value)
        assert scaled(ones())[0] == value
        assert scaled.explain().cache_hit is False
    for value in (20.0, 2.0, 30.0):
        monkeypatch.setitem(globals(), "SCALE", value)
        assert scaled(ones())[0] == value
        assert scaled.explain().cache_hit is True


def test_many_sets_of_captures_are_warned_of(monkeypatch):
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = x[i] + COUNT
        return x

    with pytest.warns(ts.TesseraWarning, match="W_RESPECIALISE.*`COUNT`.*parameter") as found:
        for n in range(10):
            monkeypatch.setitem(globals(), "COUNT", n)
            assert k(ones())[0] == 1 + n
    assert len(found) == 1 and found[0].filename == __file__


COUNT = 0


def test_compiled_kernel_follows_too(monkeypatch):
    made = scaled.jit()
    assert made(ones())[0] == 2
    monkeypatch.setitem(globals(), "SCALE", 6.0)
    assert made(ones())[0] == 6


def test_kernel_with_a_schedule_follows_too(monkeypatch):
    made = by_path.scheduled(warps=4)
    assert made(ones())[0] == 3
    monkeypatch.setattr(cfg.inner, "k", 7.0)
    assert made(ones())[0] == 7


def test_function_parameters_and_defaults(monkeypatch):
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], f: ts.Fn = outer_helper):
        i = ts.tile.linear_id()
        x[i] = f(x[i])
        return x

    made = k.jit(f=outer_helper)
    assert k(ones())[0] == 3 and k(ones(), outer_helper)[0] == 3 and made(ones())[0] == 3
    monkeypatch.setitem(globals(), "SHIFT", 2)
    assert k(ones())[0] == 4 and k(ones(), outer_helper)[0] == 4 and made(ones())[0] == 4
    monkeypatch.undo()
    assert k(ones(), outer_helper)[0] == 3


def test_default_of_a_helper_is_evaluated_where_it_stands(tmp_path, monkeypatch):
    (tmp_path / "helpers_of_another_module.py").write_text(textwrap.dedent(
        """
        import tessera as ts
        WIDTH = 4.0

        @ts.func
        def widen(v, by=WIDTH, *, more=-WIDTH / 2):
            return v * by + more
        """
    ))  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    import helpers_of_another_module as helpers

    WIDTH = 100.0  # noqa: F841 - not the helper's

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = helpers.widen(x[i])
        return x

    assert k(ones())[0] == 2
    # As in Python, a default is evaluated once.
    helpers.WIDTH = 8.0
    assert k(ones())[0] == 2


class Layer:
    FACTOR = 3.0

    @ts.func
    def times(v):
        return v * FACTOR  # noqa: F821

    @ts.kernel
    def run(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = times(x[i]) + BEHIND  # noqa: F821
        return x

    @staticmethod
    @ts.kernel
    def static(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = x[i] * FACTOR  # noqa: F821
        return x

    BEHIND = 1.0


class Last:
    FACTOR = 2.0

    @staticmethod
    @ts.kernel
    def run(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = x[i] * Last.FACTOR


def test_the_last_kernel_of_a_class_may_name_its_class():
    x = ones()
    Last.run(x)
    assert x[0] == 2


def test_names_of_the_class(monkeypatch):
    assert Layer.run(ones())[0] == 4 and Layer().run(ones())[0] == 4 and Layer.static(ones())[0] == 3
    monkeypatch.setattr(Layer, "FACTOR", 5.0)
    assert Layer.run(ones())[0] == 6 and Layer.static(ones())[0] == 5
    monkeypatch.setattr(Layer, "BEHIND", 2.0)
    assert Layer.run(ones())[0] == 7


def test_names_of_a_class_inside_a_function():
    class Local:
        A = 2.0

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            x[i] = x[i] * A + B  # noqa: F821
            return x

        B = 1.0

    assert Local.k(ones())[0] == 3
    Local.A = 5.0
    assert Local.k(ones())[0] == 6


def test_names_that_python_finds_go_before_those_of_the_class():
    class Local:
        SCALE = 50.0

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            x[i] = x[i] * SCALE
            return x

    assert Local.k(ones())[0] == 2


@ts.kernel
def forward_kernel(x: ts.Tensor["n", ts.f32]):
    i = further_down_id()
    x[i] = further_down(x[i]) * FURTHER
    return x


@ts.func
def further_down(v):
    return v + even_further(v)


@ts.func
def further_down_id():
    return ts.tile.linear_id()


@ts.func
def even_further(v):
    return v * FURTHER


FURTHER = 3


def test_names_bound_further_down_in_the_module():
    assert forward_kernel(ones())[0] == 12


def test_helper_further_down_in_the_function():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = later(x[i])
        return x

    with pytest.raises(ts.KernelSyntaxError) as error:
        k(ones())
    assert error.value.code == "E_NAME" and "`later`" in error.value.message

    @ts.func
    def later(v):
        return v + 2

    assert k(ones())[0] == 3


def load(tmp_path, monkeypatch, text, name="some_kernels"):
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop(name, None)
    try:
        return __import__(name)
    finally:
        sys.modules.pop(name, None)


HEAD = """
import tessera as ts
{before}
@ts.kernel
def k(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    x[i] = x[i] + NAME
    return x
{after}
"""


@pytest.mark.parametrize(
    "after",
    [
        "NAME = 2",
        "from math import tau as NAME",
        "import math as NAME, os\nNAME = 2",
        "for NAME in (1, 2): pass",
        "if True:\n    NAME = 2\nelse:\n    pass",
        "try:\n    NAME = 2\nexcept ValueError as NAME:\n    pass",
        "def set():\n    global NAME\n    NAME = 2\nset()",
        "(NAME := 2)",
        "NAME: int = 2",
        "(NAME, other), third = (2, 3), 4",
        "from decided_elsewhere import *",
    ],
)
def test_bindings_further_down(tmp_path, monkeypatch, after):
    (tmp_path / "decided_elsewhere.py").write_text("NAME = 2\n")
    module = load(tmp_path, monkeypatch, HEAD.format(before="", after=after))
    assert module.k(ones())[0] == np.float32(1 + module.NAME)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("", "def f():\n    NAME = 2"),
        ("", "class C:\n    NAME = 2"),
        ("", "print(NAME) if False else None"),
        ("", "NAMES = 2"),
        ("NAME = 2\ndel NAME", ""),
        ("", "[NAME for x in ()]"),
    ],
)
def test_name_that_nothing_binds_is_refused_at_decoration(tmp_path, monkeypatch, before, after):
    with pytest.raises(ts.KernelSyntaxError) as error:
        load(tmp_path, monkeypatch, HEAD.format(before=before, after=after))
    assert error.value.code == "E_NAME" and error.value.line == 7 + before.count("\n")


def test_other_errors_are_reported_though_a_name_comes_later(tmp_path, monkeypatch):
    with pytest.raises(ts.KernelSyntaxError) as error:
        load(tmp_path, monkeypatch, HEAD.format(before="", after="NAME = 2").replace("return x", "x[i] = unknown\n    return x"))
    assert error.value.code == "E_NAME" and "`unknown`" in error.value.message


ORIGIN = """
import tessera as ts

@ts.kernel
def k(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32]):
    o[tile_n : tile_n + 4] = x[tile_n : tile_n + 4] + 1.0
    return o
{after}
"""


def test_origin_only_where_nothing_binds_the_name(tmp_path, monkeypatch):
    free = load(tmp_path, monkeypatch, ORIGIN.format(after=""), "free_origin")
    assert (free.k(ones()) == 2).all()
    bound = load(tmp_path, monkeypatch, ORIGIN.format(after="tile_n = 4"), "bound_origin")
    # Not an origin: the second four elements alone are written.
    assert bound.k[1](ones())[4:].tolist() == [2.0] * 4
    bound.tile_n = 0
    assert bound.k[1](ones())[:4].tolist() == [2.0] * 4


def test_objects_are_refused():
    thing = object()
    table = [1, 2]

    with pytest.raises(ts.KernelTypeError) as error:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            x[i] = thing
            return x

    assert "make it a parameter" in error.value.help

    with pytest.raises(ts.KernelTypeError) as error:

        @ts.kernel
        def m(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            x[i] = table
            return x

    assert "make it a parameter" in error.value.help


def test_capture_that_becomes_wrong_is_reported_at_the_call(monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", [1.0])
    with pytest.raises(ts.KernelTypeError):
        scaled(ones())
    monkeypatch.delitem(globals(), "SCALE")
    with pytest.raises(ts.KernelSyntaxError) as error:
        scaled(ones())
    assert error.value.code == "E_NAME"
    monkeypatch.undo()
    assert scaled(ones())[0] == 2


def test_recursion_through_a_helper_further_down():
    with pytest.raises(ts.TesseraError) as error:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            x[i] = recursive_first(x[i])
            return x

        k(ones())
    assert "recursion" in error.value.message


@ts.func
def recursive_first(v):
    return recursive_second(v)


@ts.func
def recursive_second(v):
    return recursive_first(v)


# jit


def test_jitted_function_is_traced_again(monkeypatch):
    traced = 0

    @ts.jit
    def f(x):
        nonlocal traced
        traced += 1
        return by_helpers(x * 1.0)

    for _ in range(3):
        assert np.asarray(f(ones()))[0] == 3
    assert traced == 1
    monkeypatch.setitem(globals(), "SCALE", 10.0)
    for _ in range(3):
        assert np.asarray(f(ones()))[0] == 11
    assert traced == 2
    assert any("captures changed" in why for why in f.retraces)
    monkeypatch.undo()
    # The old trace is there.
    for _ in range(3):
        assert np.asarray(f(ones()))[0] == 3
    assert traced == 2


def test_values_that_a_jitted_body_reads_are_constants_of_the_trace(monkeypatch):
    @ts.jit
    def f(x):
        return x * SCALE

    assert np.asarray(f(ones()))[0] == 2
    monkeypatch.setitem(globals(), "SCALE", 10.0)
    assert np.asarray(f(ones()))[0] == 2


def test_function_of_a_library_operation(monkeypatch):
    q = np.random.default_rng(0).standard_normal((1, 1, 8, 16), dtype=np.float32)

    @ts.func
    def modified(score, b, h, qi, ki):
        return score * SCALE

    @ts.jit
    def f(q):
        return ts.op.flash_attention(q, q, q, score_mod=modified)

    def reference(factor):
        s = q[0, 0] @ q[0, 0].T / 4 * factor
        p = np.exp(s - s.max(-1, keepdims=True))
        return p / p.sum(-1, keepdims=True) @ q[0, 0]

    for factor in (2.0, 0.5, 2.0):
        monkeypatch.setitem(globals(), "SCALE", factor)
        for call in (f, lambda q: ts.op.flash_attention(q, q, q, score_mod=modified)):
            np.testing.assert_allclose(np.asarray(call(q))[0, 0], reference(factor), rtol=2e-5, atol=2e-5)


# Threads, pickles, processes


def test_one_call_sees_one_set():
    """A kernel and its helper read one name: they never see two values of it."""
    space = {}
    text = textwrap.dedent(
        """
        import tessera as ts
        V = 0

        @ts.func
        def twice(v):
            return v + V

        @ts.kernel
        def k(x: ts.Tensor["n", ts.i32]):
            i = ts.tile.linear_id()
            x[i] = twice(V * 1000)
            return x
        """
    )
    import linecache

    linecache.cache["<one set>"] = (len(text), None, text.splitlines(True), "<one set>")
    exec(compile(text, "<one set>", "exec"), space)
    stop = threading.Event()

    def change():
        n = 0
        while not stop.is_set():
            n = (n + 1) % 4
            space["V"] = n

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=change)
    thread.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen, calls, end = set(), 0, time.monotonic() + 60
            # The other thread runs when the machine schedules it.
            while time.monotonic() < end and (calls < 2000 or len(seen) < 4):
                got = int(space["k"](np.zeros(1, np.int32))[0])
                assert got // 1000 == got % 1000, got
                seen.add(got)
                calls += 1
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(before)
    assert seen == {0, 1001, 2002, 3003}


def test_pickled_kernel_and_function_keep_what_they_had(monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    kernel, helper = pickle.loads(pickle.dumps(by_helpers)), pickle.loads(pickle.dumps(outer_helper))
    monkeypatch.undo()
    assert kernel(ones())[0] == 5

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = helper(x[i])
        return x

    assert k(ones())[0] == 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_changed_after_fork(tmp_path):
    text = """
    import os
    import numpy as np
    import tessera as ts
    A = 1.0

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = x[i] + A
        return x

    one = lambda: float(k(np.zeros(4, np.float32))[0])
    assert one() == 1
    child = os.fork()
    if child == 0:
        A = 2.0
        os._exit(0 if one() == 2 and (globals().update(A=1.0) or one() == 1) else 1)
    assert os.waitpid(child, 0)[1] == 0 and one() == 1
    A = 3.0
    assert one() == 3
    """
    file = tmp_path / "forks.py"
    file.write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# Constant tables


def frozen(values, dtype):
    array = np.array(values, dtype)
    array.setflags(write=False)
    return array


WEIGHTS = frozen([1.5, -2.0, 0.25, 8.0, 3.0], np.float32)
GRID = frozen([[1, 2, 3], [4, 5, 6]], np.int32)
STEPS = (3, 1, 4, 1, 5, 9)
MIXED = (1, 2.5, True)


@ts.kernel
def by_scalar(x: ts.Tensor["n", ts.i32], o: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    o[i] = WEIGHTS[x[i]] + STEPS[x[i]] * MIXED[i % 3] + WEIGHTS[1] + STEPS[-1] + GRID[x[i] % 2, i % 3]
    return o


@ts.kernel
def by_tile(x: ts.Tensor["n", ts.i32], o: ts.Out["n", ts.f32]):
    p = ts.tile.program_id(0)
    at = x[p * 4 : p * 4 + 4]
    rows = GRID[1, :]
    o[p * 4 : p * 4 + 4] = WEIGHTS[at] + STEPS[at] + ts.tile.sum(rows) + STEPS[p % 2] + GRID[at % 2, at % 3]
    return o


@pytest.fixture(params=["interp", "cpu", "ptx-emulated:sm_80", "ptx-emulated:sm_90a"])
def backend(request):
    ts.runtime.select_backend(request.param)
    yield request.param
    ts.runtime.select_backend(None)


def test_tables_at_scalars(backend):
    x = np.array([0, 4, 2, 2, 1, 3, 0], np.int32)
    i = np.arange(7)
    mixed = np.array([1, 2.5, 1], np.float32)
    wanted = WEIGHTS[x] + np.array(STEPS)[x] * mixed[i % 3] - 2 + 9 + GRID[x % 2, i % 3]
    for _ in range(2):
        assert by_scalar(x).tolist() == wanted.tolist()


def test_tables_at_index_tiles(backend):
    x = np.array([0, 4, 2, 2, 1, 3, 0, 1], np.int32)
    p = np.arange(8) // 4
    wanted = WEIGHTS[x] + np.array(STEPS)[x] + 15 + np.array(STEPS)[p % 2] + GRID[x % 2, x % 3]
    assert by_tile(x).tolist() == wanted.tolist()
    assert bool(by_tile.check(x))


def test_positions_outside_a_table_read_zero_and_are_reported():
    x = np.array([5, 7, 0, 0], np.int32)
    assert by_tile(x)[1] == 15 + 3 + GRID[1, 1]
    assert "E_OOB" in {f.code for f in by_tile.check(x).findings}


SHORT = (1.0, 2.0, 3.0)


@ts.kernel
def at_the_lane(x: ts.Tensor["n", ts.f32], o: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    o[i] = x[i] + SHORT[i] + WEIGHTS[i]
    return o


def test_a_table_says_nothing_of_the_number_of_lanes(backend):
    wanted = [1 + 1.5, 2 - 2.0, 3 + 0.25, 8, 3, 0, 0]
    assert at_the_lane(np.zeros(7, np.float32)).tolist() == wanted
    assert at_the_lane(np.zeros(2, np.float32)).tolist() == wanted[:2]


def test_findings_name_a_table_as_the_source_does():
    report = at_the_lane.check(np.zeros(5, np.float32))
    assert [str(f).splitlines()[0] for f in report.findings if "outside" in str(f)] == [
        "error[E_OOB]: index 3 is outside `SHORT`, which has 3 elements along axis 0"
    ]

    @ts.kernel
    def literal(o: ts.Out[4, ts.i64], SHORT: ts.i64):
        i = ts.tile.linear_id()
        pair = (5, 7)
        o[i] = pair[i] + (SHORT, 2)[1]
        return o

    assert "outside `pair`" in str(literal.check(SHORT=1))
    assert literal(SHORT=1).tolist() == [7, 9, 2, 2]


@pytest.mark.parametrize(
    ("items", "words", "help"),
    [
        ("(-1, 2**63)", "no dtype holds both -1 and 9223372036854775808", "as floats"),
        ("(1, 2**70)", "no dtype holds 1180591620717411303424", "as floats"),
        ("(x[0], x[1])", "the items of the tuple are computed at run time", "ts.tile.where(i == 0, a, b)"),
        ("(1, 'a')", "the tuple holds ", "numbers alone"),
    ],
)
def test_tuples_that_are_no_tables_say_why(items, words, help):
    text = f'@ts.kernel\ndef k(x: ts.Tensor["n", ts.f32]):\n    i = ts.tile.linear_id()\n    x[i] = {items}[i]\n'
    linecache.cache["<no table>"] = (len(text), None, text.splitlines(keepends=True), "<no table>")
    with pytest.raises(ts.TesseraError) as caught:
        exec(compile(text, "<no table>", "exec"), {"ts": ts})
    assert words in str(caught.value) and help in caught.value.help


def test_items_that_are_computed_can_be_chosen(backend):
    @ts.kernel
    def lanes(x: ts.Tensor[2, ts.f32], o: ts.Out[2, ts.f32]):
        i = ts.tile.linear_id()
        o[i] = ts.tile.where(i == 0, x[1], x[0])
        return o

    @ts.kernel
    def groups(x: ts.Tensor[3, ts.f32], o: ts.Out[3, ts.f32]):
        i = ts.tile.program_id(0)
        o[i] = ts.tile.where(i == 0, x[1], ts.tile.where(i == 1, x[2], x[0]))
        return o

    x = np.array([3, 4], np.float32)
    assert lanes(x).tolist() == [4, 3]
    assert groups(np.array([3, 4, 5], np.float32)).tolist() == [4, 5, 3]


def test_table_is_a_constant_at_a_known_position():
    @ts.kernel
    def k(o: ts.Out[4, ts.f32]):
        o[0 : STEPS[2]] = ts.tile.zeros((GRID[1, 0],), ts.f32) + WEIGHTS[STEPS[1]]
        return o

    assert (k() == -2).all()


def test_changed_table(monkeypatch):
    base = np.array([1, 2, 3], np.float32)
    view = base[:]
    view.setflags(write=False)
    monkeypatch.setitem(globals(), "VIEWED", view)

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = VIEWED[i % 3]  # noqa: F821
        return x

    assert k(ones(3)).tolist() == [1, 2, 3]
    # The array stays the same object.
    base[1] = 20
    assert k(ones(3)).tolist() == [1, 20, 3]
    base[1] = 2
    assert k(ones(3)).tolist() == [1, 2, 3] and len(k._all) == 2
    monkeypatch.setitem(globals(), "VIEWED", frozen([1, 2, 3], np.float32))
    assert k(ones(3)).tolist() == [1, 2, 3] and len(k._all) == 2
    monkeypatch.setitem(globals(), "VIEWED", frozen([1, 2, 3], np.int32))
    assert k(ones(3)).tolist() == [1, 2, 3] and len(k._all) == 3


def test_tables_of_helpers_defaults_and_pickles():
    @ts.func
    def look_up(i, table=WEIGHTS):
        return table[i] + STEPS[i]

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        x[i] = look_up(i % 5)
        return x

    wanted = (WEIGHTS + np.array(STEPS[:5]))[np.arange(8) % 5].tolist()
    assert k(ones()).tolist() == wanted and pickle.loads(pickle.dumps(k))(ones()).tolist() == wanted


def test_tables_inside_a_jitted_function():
    @ts.jit
    def f(x):
        return by_scalar(x) * 2.0

    x = np.array([0, 4, 2, 2, 1, 3, 0], np.int32)
    for _ in range(3):
        assert np.asarray(f(x)).tolist() == (2 * by_scalar(x)).tolist()


def test_arrays_that_are_no_constants_are_refused():
    big = frozen(np.zeros(1025), np.float32)
    writable = np.zeros(4, np.float32)
    for name, value in (("big", big), ("writable", writable)):
        space = {"ts": ts, "table": value, "__name__": "tables"}
        text = "@ts.kernel\ndef k(x: ts.Tensor['n', ts.f32]):\n    i = ts.tile.linear_id()\n    x[i] = table[i]\n"
        import linecache

        linecache.cache[f"<{name}>"] = (len(text), None, text.splitlines(True), f"<{name}>")
        with pytest.raises(ts.KernelTypeError):
            exec(compile(text, f"<{name}>", "exec"), space)


def test_table_cannot_be_written():
    with pytest.raises(ts.PrivilegeError) as error:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            WEIGHTS[i] = x[i]

    assert "parameter" in error.value.help


def test_index_outside_a_tuple_is_refused():
    with pytest.raises(ts.TesseraError) as error:

        @ts.kernel
        def k(x: ts.Tensor["n", ts.i64]):
            i = ts.tile.linear_id()
            x[i] = STEPS[6]

    assert error.value.code == "E_OOB"


OFFSET_BASIS = 0xCBF29CE484222325
LEAST = -(2**63)
BEYOND = 2**130


def test_integers_of_all_widths(backend):
    @ts.kernel
    def hashed(x: ts.Tensor["n", ts.u64], y: ts.Tensor["n", ts.i64], PRIME: int = 2**40 + 2**8 + 0xB3, MASK: int = 2**64 - 1):
        i = ts.tile.linear_id()
        x[i] = (x[i] ^ OFFSET_BASIS) * PRIME & MASK
        y[i] = LEAST + y[i]
        return x

    def expected(v, mask=2**64 - 1):
        return (v ^ OFFSET_BASIS) * (2**40 + 2**8 + 0xB3) & mask & (2**64 - 1)

    x, y = np.array([0, 7, 2**64 - 1], np.uint64), np.array([0, 5, 2**63 - 1], np.int64)
    hashed(x, y)
    assert x.tolist() == [expected(v) for v in (0, 7, 2**64 - 1)]
    assert y.tolist() == [LEAST, LEAST + 5, -1]
    for _ in range(3):  # a call that is repeated compares constants of all widths
        x[0] = 7
        hashed(x, y, MASK=2**63 + 5)
        assert int(x[0]) == expected(7, 2**63 + 5)
        x[0] = 7
        hashed(x, y, MASK=2**63 + 4)
        assert int(x[0]) == expected(7, 2**63 + 4)


def test_integer_that_no_type_holds_is_refused():
    with pytest.raises(ts.TesseraError, match="integer beyond 128 bits"):

        @ts.kernel
        def k(x: ts.Tensor["n", ts.u64]):
            x[0] = BEYOND
            return x


def test_kernels_are_freed_with_the_namespace_that_they_watch():
    import gc
    import weakref

    text = "@ts.kernel(source=SOURCE)\ndef k(x: ts.Tensor['n', ts.f32]):\n    pass\n"
    source = 'def k(x: ts.Tensor["n", ts.f32]):\n    i = ts.tile.linear_id()\n    x[i] = x[i] * FACTOR\n    return x\n'
    seen = []
    for factor in range(5):
        namespace = {"ts": ts, "SOURCE": source, "FACTOR": float(factor)}
        exec(compile(text, "<made>", "exec"), namespace)
        assert namespace["k"](ones())[0] == factor
        seen.append(weakref.ref(namespace["k"]))
    del namespace
    gc.collect()
    assert [kernel for kernel in seen if kernel() is not None] == []
