"""Runs by the lines of the source: breakpoints and traces."""

import inspect
import io

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from kernels import attention, gemm, saxpy


@ts.func
def squared(v):
    w = v * v
    return w


@ts.kernel
def rows(x: ts.Tensor["m", 8, ts.bf16], y: ts.Tensor["m", ts.f32], rounds: int = 2):
    p = ts.tile.program_id(0)
    total = ts.tile.zeros((4,), ts.f32)
    for r in range(rounds):
        t = x[p * 4 : p * 4 + 4, :]
        s, low = (
            ts.tile.row_sum(squared(t)),
            ts.tile.row_sum(t),
        )
        total = total + s + low
    y[p * 4 : p * 4 + 4] = total


def line(kernel, text):
    lines, first = inspect.getsourcelines(kernel)
    return first + next(i for i, l in enumerate(lines) if text in l)


def data(m=8):
    x = ts.array(np.arange(m * 8).reshape(m, 8) % 5, "bf16")
    return x, np.zeros(m, np.float32)


def test_a_run_by_lines_computes_what_a_call_does():
    (x, y), z = data(10), np.zeros(10, np.float32)
    rows(x, z)
    assert rows.interpret(x, y) is None and (y == z).all()
    assert "by the lines" in rows.explain().ran
    a = ts.array(np.random.default_rng(0).standard_normal((2, 70, 16)), "bf16")
    one, two = ts.zeros(a.shape, "bf16"), ts.zeros(a.shape, "bf16")
    assert attention.interpret(a, a, a, one) is one
    attention(a, a, a, two)
    assert (one.view("u2") == two.view("u2")).all()


def test_a_breakpoint_stops_each_group_and_round_before_the_line():
    x, y = data()
    frames = []
    rows.interpret(x, y, break_at=line(rows, "total = total + s"), on_stop=frames.append)
    assert [f.group for f in frames] == [(0, 0, 0)] * 2 + [(1, 0, 0)] * 2
    assert [int(f.locals["r"]) for f in frames] == [0, 1, 0, 1]
    frame = frames[0]
    assert frame.source.startswith("total = total + s") and frame.line == line(rows, "total = total + s")
    assert (frame.locals["total"] == 0).all() and frame.locals["total"].shape == (4,)
    assert frame.locals["t"].dtype == ml_dtypes.bfloat16 and (frame.locals["t"] == x[:4]).all()
    assert frame.locals["x"] is x and frame.locals["m"] == 8 and frame.active is None
    # What belongs to the function that was called is not the kernel's.
    assert "w" not in frame.locals
    assert (frames[1].locals["total"] == frame.locals["s"] + frame.locals["low"]).all()


def test_a_statement_of_several_lines_stops_once_and_any_of_its_lines_will_do():
    x, y = data()
    frames = []
    first = line(rows, "s, low = (")
    rows.interpret(x, y, break_at=[first, first + 2], on_stop=frames.append)
    assert len(frames) == 4


def test_lines_of_inlined_functions_and_lines_by_file():
    x, y = data()
    frames = []
    rows.interpret(x, y, break_at=f"test_debug.py:{line(squared.__wrapped__, 'w = v * v')}", on_stop=frames.append)
    assert len(frames) == 4 and frames[0].line == line(squared.__wrapped__, "w = v * v")


def test_a_line_without_code_moves_on_and_one_beyond_the_end_is_refused():
    x, y = data()
    frames = []
    rows.interpret(x, y, break_at=line(rows, "@ts.kernel"), on_stop=frames.append)
    assert frames[0].line == line(rows, "p = ts.tile")
    with pytest.raises(ts.LaunchError, match="runs nothing at line"):
        rows.interpret(x, y, break_at=10**6)
    with pytest.raises(ts.LaunchError, match="runs nothing at line 1 "):
        rows.interpret(x, y, break_at=1)
    with pytest.raises(ts.LaunchError, match="no line in other.py"):
        rows.interpret(x, y, break_at="other.py:3")
    with pytest.raises(ts.LaunchError, match="line number"):
        rows.interpret(x, y, break_at="here")


def test_what_a_callback_raises_ends_the_run():
    x, y = data()

    def stop(frame):
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        rows.interpret(x, y, break_at=line(rows, "total = total"), on_stop=stop)
    assert (y == 0).all()


def test_lanes_have_one_element_each_and_say_which_run():
    x, y = np.arange(300, dtype=np.float32), np.zeros(300, np.float32)
    frames = []
    saxpy.interpret(x, y, 2.0, break_at=line(saxpy, "y[i] ="), on_stop=frames.append)
    assert [int(f.active.sum()) for f in frames] == [256, 44]
    assert (frames[1].locals["i"] == np.arange(256, 512)).all()
    assert frames[1].locals["alpha"] == 2.0 and frames[1].locals["n"] == 300


def test_implicit_tiles_can_be_watched():
    frames = []
    c = ts.zeros((70, 70))
    gemm.interpret(*[ts.ones((70, 70), "bf16")] * 2, c, break_at=line(gemm, "acc ="), on_stop=frames.append)
    # Four groups, three blocks along k.
    assert len(frames) == 12 and frames[0].locals["smem_a"].shape == (64, 32)
    assert (c == 70).all()


def test_the_debugger_opens_with_the_variables(monkeypatch, capsys):
    x, y = data(4)
    monkeypatch.setattr("sys.stdin", io.StringIO("p total.shape, frame.group\nq\n"))
    with pytest.raises(KeyboardInterrupt):
        rows.interpret(x, y, break_at=line(rows, "total = total"))
    assert "((4,), (0, 0, 0))" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("c\n" * 2))
    rows.interpret(x, y, break_at=line(rows, "total = total"))
    assert (y > 0).all()


def test_a_trace_gives_each_assignment_in_order():
    x, y = data()
    records = rows.trace(line(rows, "s, low"), x, y)
    assert [(r.group[0], r.iteration, r.order) for r in records] == [(0, 0, 0), (0, 1, 1), (1, 0, 2), (1, 1, 3)]
    wide = x.astype(np.float32)
    assert (records[2].values["s"] == (wide[4:] ** 2).sum(1)).all()
    assert (records[2].values["low"] == wide[4:].sum(1)).all()
    tiles = rows.trace(line(rows, "t = x["), x, y)
    assert tiles[0].values["t"].dtype == ml_dtypes.bfloat16
    loops = rows.trace(line(rows, "for r"), x, y)
    assert [int(r.values["r"]) for r in loops] == [0, 1, 0, 1]
    assert rows.trace(f"test_debug.py:{line(rows, 't = x[')}", x, y)[0].values.keys() == {"t"}


def test_a_line_that_assigns_nothing_cannot_be_traced():
    with pytest.raises(ts.LaunchError, match="assigns no variable"):
        rows.trace(line(rows, "y[p * 4"), *data())


@ts.kernel(lanes=64)
def reverse(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    buffer = ts.tile.alloc_shared((64,), ts.f32)
    i = ts.tile.linear_id()
    j = ts.tile.local_id()
    buffer[j] = x[i]
    ts.tile.barrier()
    same = j
    y[i] = buffer[63 - same]


def test_shared_memory_is_shown_once_it_was_written():
    x = np.arange(64, dtype=np.float32)
    y, frames = np.zeros_like(x), []
    places = [line(reverse, "buffer[j] = x[i]"), line(reverse, "y[i] = buffer")]
    reverse.interpret(x, y, break_at=places, on_stop=frames.append)
    assert "buffer" not in frames[0].locals and (frames[1].locals["buffer"] == x).all()
    assert (y == x[::-1]).all()


def test_another_name_for_a_value_cannot_be_traced():
    x = np.arange(64, dtype=np.float32)
    with pytest.raises(ts.LaunchError, match="computes nothing when the kernel runs"):
        reverse.trace(line(reverse, "same = j"), x, x.copy())
