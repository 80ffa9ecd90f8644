"""Profiles: what ran, how long, and how it is reported."""

import json
import subprocess
import sys

import numpy as np
import pytest

import tessera as ts


@ts.kernel
def twice(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = x[i] + x[i]


@ts.jit
def model(x, w):
    return ts.xp.sum(ts.xp.tanh(x @ w))


def test_launches_are_reported_with_their_work_and_their_place():
    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    twice(x, y)
    with ts.profile() as p:
        twice(x, y)
        twice(x, y)
    assert [s.name for s in p.samples] == ["twice", "twice"]
    first, second = p.samples
    assert first.kind == "kernel" and first.backend == twice.explain().fields["backend"]
    assert (first.flops, first.bytes, first.exact) == (1000, 8000, True)
    file, number = first.place
    assert file.endswith("test_profile.py") and "def twice" in open(file).read().splitlines()[number - 1]
    assert 0 <= first.begin <= first.begin + first.seconds <= second.begin <= p.seconds
    (line,) = p.lines
    assert (line.calls, line.flops, line.bytes) == (2, 2000, 16000)
    assert line.seconds == pytest.approx(first.seconds + second.seconds)


def test_nothing_is_kept_outside_a_block():
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    with ts.profile() as p:
        pass
    twice(x, y)
    assert p.samples == [] and "nothing ran" in str(p)


def test_steps_of_a_compiled_function_are_reported():
    x, w = np.ones((64, 32), np.float32), np.ones((32, 16), np.float32)
    model(x, w)
    with ts.profile() as p:
        model(x, w)
    groups = [s for s in p.samples if s.kind == "group"]
    assert groups and sum(s.flops for s in groups) >= 2 * 64 * 32 * 16
    assert any(s.place and s.place[0].endswith("test_profile.py") for s in groups)
    assert p.memory and all(where == "host" and count >= 0 for _, where, count in p.memory)


def test_ranges_stand_in_the_trace_and_not_in_the_table(tmp_path):
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    with ts.profile() as p:
        with p.range("the loop"):
            twice(x, y)
    assert [line.name for line in p.lines] == ["twice"]
    p.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = {e["name"]: e for e in events if e["ph"] == "X"}
    outer, inner = spans["the loop"], spans["twice"]
    assert outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 1
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"host"}


def test_the_table_stands_under_a_measured_roof():
    x, y = np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    with ts.profile() as p:
        twice(x, y)
    text = p.table()
    assert "roof of the host:" in text and "(measured)" in text and "twice (kernel" in text
    assert "of roof" in text.splitlines()[0]
    assert "roof of" not in p.table(roofline=False)


def test_one_profile_at_a_time():
    with ts.profile():
        with pytest.raises(ts.TesseraError, match="a profile is being taken already"):
            with ts.profile():
                pass
    with ts.profile():
        pass


def test_an_error_in_the_block_ends_the_profile():
    with pytest.raises(ZeroDivisionError):
        with ts.profile():
            1 / 0
    with ts.profile() as p:
        pass
    assert p.samples == []


def test_a_trace_that_cannot_be_written_is_reported(tmp_path):
    with ts.profile() as p:
        pass
    with pytest.raises(ts.TesseraError, match="the trace cannot be written"):
        p.save(tmp_path / "none" / "trace.json")
    with pytest.raises(ts.TesseraError, match="the trace cannot be written"):
        p.save("/")
    with pytest.raises(ts.TesseraError, match="expected the name of a range, got 3"):
        with p.range(3):
            pass


def test_the_command_runs_a_program(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\nimport numpy as np\nimport tessera as ts\n"
        "print('arguments', sys.argv[1:])\nts.op.softmax(np.ones((4, 8), np.float32))\nsys.exit(3)\n"
    )
    trace = tmp_path / "t.json"
    command = [sys.executable, "-m", "tessera", "prof", "--no-roofline", "--trace", str(trace), str(program), "--a", "b"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert "arguments ['--a', 'b']" in done.stdout and "kernel" in done.stdout
    assert json.loads(trace.read_text())["traceEvents"]
    missing = subprocess.run([sys.executable, "-m", "tessera", "prof", "nothing.py"], capture_output=True, text=True)
    assert missing.returncode == 2 and "nothing.py" in missing.stderr
