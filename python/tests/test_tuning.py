"""Autotuning: what is measured and when, the records, and what runs afterwards."""

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import xml.etree.ElementTree as xml
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera.kernel import autotune as _autotune
from tessera.tools.cli import main


@pytest.fixture(autouse=True)
def records(tmp_path, monkeypatch):
    """The test has its own records, and nothing is measured unless it requests it."""
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TESSERA_TUNE", raising=False)
    return tmp_path / "cache" / "tuning"


def doubling(**options):
    """A kernel with two candidates, in place."""

    @ts.kernel.autotune(**({"space": dict(B=[64, 256])} | options))
    def double(x: ts.Tensor["n", ts.f32]):
        B = ts.tile.context().B
        i = ts.tile.program_id(0) * B
        x[i : i + B] = x[i : i + B] * 2.0
        return x

    return double


def ran(kernel):
    return kernel.explain().config["B"]


def files(folder):
    return sorted(p for p in folder.glob("*.json"))


def edit(folder, samples):
    """Gives candidates other times, in all records. A record that is edited in place is not used."""
    records = ts.tuning.records()
    for row in (row for record in records for row in record["rows"]):
        times = samples[row["config"]]
        row["samples_s"] = times if isinstance(times, list) else [times] * 5
        row["reason"] = ""
    bundle = folder.parent / "edited.json"
    bundle.write_text(json.dumps({"tessera_tuning": records}))
    assert ts.tuning.clear() == ts.tuning.load(bundle) == len(records)


def test_nothing_is_measured_unless_requested(records):
    double = doubling()
    double(np.ones(1000, np.float32))
    assert ran(double) == 64 and not records.exists()
    assert double.tuning_report() == "nothing was tuned yet" and double.tuning_report().rows == []


def test_tuning_measures_every_candidate_and_leaves_the_arrays(records):
    double = doubling()
    x = np.arange(1000, dtype=np.float32)
    report = double.tune(x, budget_ms=500)
    assert (x == np.arange(1000)).all()
    assert [row.config for row in report.rows] == ["B=64", "B=256"]
    assert {row.state for row in report.rows} == {"measured"}
    assert all(row.samples and row.seconds > 0 and row.predicted > 0 for row in report.rows)
    assert report.source == "measured" and report.chosen in ("B=64", "B=256")
    double(x)
    assert f"B={ran(double)}" == report.chosen and (x == 2 * np.arange(1000)).all()
    assert double.explain().tuned.startswith(report.chosen) and "measured by this process" in double.explain()
    (path,) = files(records)
    record = json.loads(path.read_text())
    subject = record["subject"]
    assert subject["kernel"] == "double" and subject["sizes"] == {"n": "1000"} and subject["types"] == {"x": "f32"}
    assert subject["backend"] == "cpu" and "thread" in subject["device"] and subject["compiler"].startswith(ts.__version__)
    assert all(row["provenance"] == {"clock": "host"} and row["compile_s"] > 0 for row in record["rows"])


def test_tuning_again_measures_nothing_unless_forced(records):
    double = doubling()
    x = np.ones(1000, np.float32)
    before = double.tune(x, budget_ms=200)
    assert double.tune(x, budget_ms=200).rows == before.rows
    assert double.tune(x, budget_ms=200, force=True).rows != before.rows


PROGRAM = """
import sys
import numpy as np
import tessera as ts

@ts.kernel.autotune(space=dict(B={candidates}))
def double(x: ts.Tensor["n", ts.f32]):
    B = ts.tile.context().B
    i = ts.tile.program_id(0) * B
    x[i : i + B] = x[i : i + B] * 2.0

x = np.ones(1000, np.float32)
"""


def program(tmp_path, rest, candidates="[64, 256]"):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(candidates=candidates) + textwrap.dedent(rest))
    return path


def run(path, check=True):
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=check).stdout


def test_another_process_finds_the_record(tmp_path, records):
    run(program(tmp_path, "double.tune(x, budget_ms=200)"))
    edit(records, {"B=64": 2e-3, "B=256": 1e-3})
    out = run(program(tmp_path, "double(x); print(double.explain().config['B'], double.tuning_report().source)"))
    assert out.split() == ["256", "stored"]
    edit(records, {"B=64": 1e-3, "B=256": 1e-3})
    assert run(program(tmp_path, "double(x); print(double.explain().config['B'])")).split() == ["64"]


def test_concurrent_processes_keep_each_others_rows(tmp_path, records):
    paths = []
    for number, candidates in enumerate(("[32, 64]", "[128, 256]", "[512, 1024]")):
        path = program(tmp_path, "double.tune(x, budget_ms=300)", candidates)
        paths.append(path.rename(tmp_path / f"program{number}.py"))
    running = [subprocess.Popen([sys.executable, str(path)]) for path in paths]
    assert [process.wait() for process in running] == [0, 0, 0]
    (path,) = files(records)
    rows = json.loads(path.read_text())["rows"]
    assert {row["config"]: row["state"] for row in rows} == {f"B={b}": "measured" for b in (32, 64, 128, 256, 512, 1024)}


def test_near_ties_go_to_the_first_candidate(records):
    x = np.ones(1000, np.float32)
    doubling().tune(x, budget_ms=200)
    for times, expected in (((1.01, 1.0), 64), ((1.05, 1.0), 256), ((1.0, 1.0), 64)):
        edit(records, {"B=64": times[0], "B=256": times[1]})
        double = doubling()
        double(x)
        assert ran(double) == expected


def test_a_longer_list_uses_what_was_measured_and_measures_the_rest(records):
    x = np.ones(1000, np.float32)
    doubling().tune(x, budget_ms=200)
    edit(records, {"B=64": 1.0, "B=256": 1e-9})
    double = doubling(space=dict(B=[64, 128, 256]))
    double(x)
    assert ran(double) == 256
    rows = {row.config: row for row in double.tune(x, budget_ms=200).rows}
    assert rows["B=64"].samples == (1.0,) * 5  # not measured again
    assert rows["B=128"].state == "measured" and rows["B=256"].samples != (1e-9,) * 5  # beside the new one


def test_failing_candidates_are_rows_with_reasons():
    @ts.kernel.autotune(configs=[dict(B=3, C=4), dict(B=8, C=8), dict(B=16, C=16)])
    def fill(x: ts.Tensor["n", ts.f32]):
        B = ts.tile.context().B
        i = ts.tile.program_id(0) * B
        assert x[0] < 1.0 * B, "too large"
        x[i : i + B] = ts.tile.zeros((B,), ts.f32) + ts.tile.zeros((ts.tile.context().C,), ts.f32)

    # What one candidate writes is not what the next one reads: all see the 10.
    rows = {row.config: row for row in fill.tune(np.full(64, 10, np.float32), budget_ms=200).rows}
    assert rows["B=3, C=4"].state == "failed" and "E_SHAPE_MISMATCH" in rows["B=3, C=4"].reason
    assert rows["B=8, C=8"].state == "failed" and "E_ASSERT: too large" in rows["B=8, C=8"].reason
    assert rows["B=16, C=16"].state == "measured"
    assert fill.tuning_report().chosen == "B=16, C=16"


def test_nothing_that_can_be_measured_is_an_error_with_all_reasons():
    @ts.kernel.autotune(space=dict(B=[8, 16]))
    def fill(x: ts.Tensor["n", ts.f32]):
        B = ts.tile.context().B
        i = ts.tile.program_id(0) * B
        assert x[0] < 1.0, "too large"
        x[i : i + B] = 0.0

    x = np.full(64, 10, np.float32)
    with pytest.raises(ts.LaunchError) as e:
        fill.tune(x)
    assert e.value.code == "E_TUNE_MEASURE_FAIL" and str(e.value).count("too large") == 2
    # A call that measures by itself says what is wrong with the call.
    os.environ["TESSERA_TUNE"] = "1"
    try:
        with pytest.raises(ts.CheckError):
            fill(x)
    finally:
        del os.environ["TESSERA_TUNE"]


def test_a_budget_makes_calls_measure_once_for_each_key(records, monkeypatch):
    double = doubling(budget_ms=100)
    for n in (100, 200, 100):
        assert double(np.ones(n, np.float32))[0] == 2
    assert len(files(records)) == 2 and double.tuning_report().source == "measured"
    monkeypatch.setenv("TESSERA_TUNE", "0")
    double(np.ones(300, np.float32))
    assert len(files(records)) == 2


def test_the_environment_makes_calls_measure(records, monkeypatch):
    monkeypatch.setenv("TESSERA_TUNE", "1")
    x = np.ones(1000, np.float32)
    out = doubling()(x)
    assert out is x and (x == 2).all() and len(files(records)) == 1


def test_results_that_are_left_out_are_made_for_tuning_too():
    @ts.kernel.autotune(space=dict(B=[64, 256]), budget_ms=100)
    def copied(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        B = ts.tile.context().B
        i = ts.tile.program_id(0) * B
        y[i : i + B] = x[i : i + B]

    x = np.arange(300, dtype=np.float32)
    assert (copied(x) == x).all() and copied.tuning_report().chosen


def test_strict_takes_the_first_candidate_and_never_tunes(records, monkeypatch):
    x = np.ones(1000, np.float32)
    double = doubling()
    with ts.numerics.profile("strict"), pytest.raises(ts.LaunchError, match="strict"):
        double.tune(x)
    double.tune(x, budget_ms=100)
    edit(records, {"B=64": 1.0, "B=256": 1e-3})
    monkeypatch.setenv("TESSERA_TUNE", "1")
    double = doubling()
    with ts.numerics.profile("strict"):
        double(x)
    assert ran(double) == 64 and len(files(records)) == 1
    double(x)
    assert ran(double) == 256


def test_deterministic_uses_records_and_measures_nothing_by_itself(records, monkeypatch):
    monkeypatch.setenv("TESSERA_TUNE", "1")
    x = np.ones(1000, np.float32)
    with ts.numerics.profile("deterministic"):
        double = doubling(budget_ms=100)
        double(x)
        assert ran(double) == 64 and not files(records)
        double.tune(x)
        edit(records, {"B=64": 1.0, "B=256": 1e-3})
        double = doubling()
        double(x)
        assert ran(double) == 256


def test_a_grid_of_the_caller_is_for_the_first_candidate(records, monkeypatch):
    x = np.ones(1000, np.float32)
    doubling().tune(x, budget_ms=100)
    edit(records, {"B=64": 1.0, "B=256": 1e-3})
    monkeypatch.setenv("TESSERA_TUNE", "1")
    double = doubling()
    double[16](x)
    assert ran(double) == 64


def test_the_key_says_which_sizes_share_a_choice(records):
    double = doubling(key=[])
    double.tune(np.ones(1000, np.float32), budget_ms=100)
    edit(records, {"B=64": 1.0, "B=256": 1e-3})
    double = doubling(key=[])
    double(np.ones(10, np.float32))
    assert ran(double) == 256
    with pytest.raises(ts.LaunchError, match=r"some of n\), got `m`"):
        doubling(key=["m"])


@pytest.mark.parametrize("options", [
    {"key": "n"}, {"key": [1]}, {"budget_ms": 0}, {"budget_ms": "long"}, {"budget_ms": float("nan")}, {"metric": "speed"}, {"metric": 1},
    {"key": 5}, {"budget_ms": True}, {"cache": 3}, {"space": None, "configs": [3]}, {"space": None, "configs": [None]},
    {"space": None, "configs": "B"}, {"space": None, "configs": [{1: 2}]}, {"space": {"B": 64}}, {"space": None},
])  # fmt: skip
def test_bad_options_are_refused(options):
    with pytest.raises(ts.LaunchError) as e:
        doubling(**options)
    assert e.value.code == "E_ARGUMENT"
    assert e.value.file == __file__


def test_a_budget_may_be_a_number_of_numpy(records):
    double = doubling(budget_ms=np.int64(50))
    double(np.ones(10, np.float32))
    assert double.tuning_report().source == "measured"


def test_tuning_needs_something_to_choose_from():
    with pytest.raises(ts.LaunchError, match="several candidates"):
        doubling(space=dict(B=[64])).tune(np.ones(10, np.float32))


def test_the_tail_can_count(records):
    x = np.ones(1000, np.float32)
    doubling().tune(x, budget_ms=100)
    edit(records, {"B=64": [1e-3] * 8 + [9e-3] * 2, "B=256": [2e-3] * 10})
    for metric, expected in (("latency_ms", 64), ("p90_ms", 256)):
        double = doubling(metric=metric)
        double(x)
        assert ran(double) == expected


def test_records_are_exported_loaded_and_merged(tmp_path, records):
    x = np.ones(1000, np.float32)
    doubling().tune(x, budget_ms=100)
    edit(records, {"B=64": 1.0, "B=256": 1e-3})
    assert ts.tuning.export(tmp_path / "a.json") == 1
    assert ts.tuning.export(tmp_path / "none.json", kernel="other") == 0
    assert ts.tuning.clear() == 1 and ts.tuning.records() == []
    doubling().tune(np.ones(500, np.float32), budget_ms=100)
    ts.tuning.export(tmp_path / "b.json")
    ts.tuning.clear()
    assert ts.tuning.merge(tmp_path / "ab.json", tmp_path / "a.json", tmp_path / "b.json") == 2
    ts.tuning.merge(tmp_path / "ba.json", tmp_path / "b.json", tmp_path / "a.json")
    assert (tmp_path / "ab.json").read_bytes() == (tmp_path / "ba.json").read_bytes()
    assert ts.tuning.load(tmp_path / "ab.json") == 2
    assert [r["subject"]["sizes"]["n"] for r in ts.tuning.records()] == ["500", "1000"]
    double = doubling()
    double(x)
    assert ran(double) == 256 and double.tuning_report().source == "stored"
    (tmp_path / "a.json").write_text("{}")
    with pytest.raises(ts.LaunchError, match="holds no tuning records"):
        ts.tuning.load(tmp_path / "a.json")


def test_a_damaged_record_is_written_anew(records):
    x = np.ones(1000, np.float32)
    doubling().tune(x, budget_ms=100)
    (path,) = files(records)
    path.write_text(path.read_text()[:100])
    with pytest.warns(ts.TesseraWarning, match="is no record"):
        assert ts.tuning.records() == []
    double = doubling()
    with pytest.warns(ts.TesseraWarning, match="is no record"):
        double(x)
    assert ran(double) == 64
    double.tune(x, budget_ms=100)
    assert len(ts.tuning.records()) == 1


def test_another_source_dtype_or_constant_has_a_record_of_its_own(records):
    def make(factor):
        @ts.kernel.autotune(space=dict(B=[64, 256]))
        def scale(x: ts.Tensor["n"], twice: bool = False):
            B = ts.tile.context().B
            i = ts.tile.program_id(0) * B
            x[i : i + B] = x[i : i + B] * factor

        return scale

    make(2.0).tune(np.ones(100, np.float32), budget_ms=50)
    make(3.0).tune(np.ones(100, np.float32), budget_ms=50)
    make(2.0).tune(np.ones(100, np.float64), budget_ms=50)
    make(2.0).tune(np.ones(100, np.float32), True, budget_ms=50)
    assert len(files(records)) == 4
    make(2.0).tune(np.ones(100, np.float32), budget_ms=50)
    assert len(files(records)) == 4


def test_a_directory_of_its_own(tmp_path, records):
    doubling(cache=tmp_path / "mine").tune(np.ones(100, np.float32), budget_ms=50)
    assert not records.exists() and len(files(tmp_path / "mine")) == 1


def test_without_a_cache_the_choice_holds_for_the_process(records, monkeypatch):
    monkeypatch.setenv("TESSERA_CACHE", "0")
    double = doubling()
    x = np.ones(100, np.float32)
    report = double.tune(x, budget_ms=50)
    double(x)
    assert f"B={ran(double)}" == report.chosen and not records.exists()


def test_what_cannot_be_written_is_a_warning(tmp_path):
    (tmp_path / "file").write_text("")
    double = doubling(cache=tmp_path / "file" / "below")
    with pytest.warns(ts.TesseraWarning, match="could not be written"):
        assert double.tune(np.ones(100, np.float32), budget_ms=50).chosen


def test_an_interrupt_keeps_what_was_measured(records):
    @ts.kernel.autotune(space=dict(B=[64, 128, 256, 512]))
    def slow(x: ts.Tensor["n", ts.f32], steps: ts.i64):
        B = ts.tile.context().B
        i = ts.tile.program_id(0) * B
        t = x[i : i + B]
        for _ in ts.tile.range(0, steps):
            t = ts.tile.sin(t) + 1.0
        x[i : i + B] = t

    x = np.ones(4096, np.float32)
    slow(x, 1)
    start = time.perf_counter()
    slow(x, 1000)
    steps = int(1000 * 0.05 / (time.perf_counter() - start))  # some 50 ms a launch, and 100 launches in all
    timer = threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a debugger may have left its own
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            slow.tune(x, steps, budget_ms=60_000)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    (path,) = files(records)
    states = {row["config"]: row["state"] for row in json.loads(path.read_text())["rows"]}
    assert "measured" in states.values() and "started" not in states.values(), states
    assert slow.tuning_report().chosen


@pytest.mark.parametrize("phase", ["compiling", "measuring", "done"])
def test_an_interrupt_while_progress_is_reported_counts(phase, records, monkeypatch):
    def progress(kernel, now, *rest):
        if now == phase:
            raise KeyboardInterrupt
        raise RuntimeError("a bar that is broken is no reason to stop")

    monkeypatch.setattr(_autotune, "progress", progress)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    with pytest.raises(KeyboardInterrupt):
        doubling().tune(np.ones(1 << 22, np.float32), budget_ms=500)
    monkeypatch.undo()


def test_many_candidates_are_ranked_and_the_best_few_measured(records):
    double = doubling(space=dict(B=[1 << k for k in range(4, 15)]))
    x = np.ones(1 << 16, np.float32)
    rows = double.tune(x, budget_ms=3000).rows
    states = [row.state for row in rows]
    assert len(rows) == 11 and states.count("skipped") == 3 and rows[0].state == "measured"
    skipped = [row for row in rows if row.state == "skipped"]
    measured = [row for row in rows if row.state == "measured"]
    assert all("of 11 by the cost model" in row.reason for row in skipped)
    assert max(row.predicted for row in measured[1:]) <= min(row.predicted for row in skipped)
    # Tuning again goes on with those.
    assert [row.state for row in double.tune(x, budget_ms=3000).rows].count("skipped") == 0


def test_candidates_that_give_the_same_code_are_measured_once():
    double = doubling(space=dict(num_warps=[4, 8], B=[64, 256]))
    report = double.tune(np.ones(1000, np.float32), budget_ms=200)
    rows = {row.config: row for row in report.rows}
    for b in (64, 256):
        one, twin = rows[f"B={b}, num_warps=4"], rows[f"B={b}, num_warps=8"]
        assert twin.reason.startswith(f"the same code as B={b}, num_warps=4") and twin.samples == one.samples
    assert report.chosen.endswith("num_warps=4")


def test_the_report_is_a_text_a_picture_and_rows(tmp_path):
    double = doubling()
    double.tune(np.ones(1000, np.float32), budget_ms=100)
    report = double.tuning_report()
    assert report.startswith("tuning of double for n=1000; x=f32\n") and f"runs: {report.chosen}" in report
    root = xml.fromstring(report.svg(tmp_path / "plot.svg"))
    assert (tmp_path / "plot.svg").read_text() == report.svg()
    dots = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(dots) == sum(len(row.samples) for row in report.rows)
    copy = pickle.loads(pickle.dumps(report))
    assert copy == report and copy.rows == report.rows
    double.tune(np.ones(2000, np.float32), budget_ms=100)
    assert double.tuning_report().count("tuning of double") == 2
    assert json.loads(report.json)["subject"]["kernel"] == "double"


def test_a_tuned_kernel_survives_pickling():
    double = pickle.loads(pickle.dumps(TUNED))
    assert double.spec == TUNED.spec and double(np.ones(10, np.float32))[0] == 2


TUNED = doubling(key=["n"], metric="p90_ms")


def test_progress_is_shown_on_a_terminal_only(monkeypatch, capsys):
    _autotune.progress("gemm", "measuring", 0.5, 3, ("BM=64", 1e-3))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    doubling().tune(np.ones(1 << 22, np.float32), budget_ms=500)
    shown = capsys.readouterr().err
    assert "tuning double: measuring [" in shown and "best B=" in shown and shown.endswith("\r\x1b[K")


CLI = PROGRAM.format(candidates="[64, 256]")


@pytest.fixture
def command(tmp_path, capsys):
    def command(*arguments):
        (tmp_path / "kernels_here.py").write_text(CLI)
        status = main(["tune", *(a.replace("FILE", str(tmp_path / "kernels_here.py")) for a in arguments)])
        return status, *capsys.readouterr()

    return command


def test_the_command_tunes_and_writes_pictures(command, tmp_path):
    status, out, _ = command("FILE:double", "--shape", "n=1000", "--budget-ms", "100", "--svg", str(tmp_path / "p.svg"))
    assert status == 0 and "tuning of double for n=1000" in out and "runs: B=" in out
    assert "<svg" in (tmp_path / "p.svg").read_text()
    status, out, _ = command("FILE:double", "n=1000", "--json")
    assert status == 0 and json.loads(out)["subject"]["sizes"] == {"n": "1000"}


def test_the_command_handles_records(command, tmp_path):
    command("FILE:double", "n=1000", "--budget-ms", "50")
    status, out, _ = command("--list")
    assert status == 0 and "double  n=1000" in out and "2 of 2 candidates measured" in out and "1 record\n" in out
    file = str(tmp_path / "all.json")
    assert command("--export", file)[1] == "wrote 1 record\n"
    assert command("--clear")[1] == "removed 1 record\n"
    assert command("--merge", str(tmp_path / "more.json"), file, file)[1] == "wrote 1 record\n"
    assert command("--import", str(tmp_path / "more.json"))[1] == "added 1 record\n"
    assert json.loads(command("--list", "--json")[1])[0]["subject"]["kernel"] == "double"


def test_the_command_says_what_is_missing(command, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for arguments, message in (
        ((), "expected FILE.py:KERNEL"),
        (("FILE:double",), "give --shape n=64"),
        (("FILE:double", "n=8", "m=9"), "got `m`"),
        (("FILE:doubled", "n=8"), "did you mean `double`"),
        (("no_such_module:double", "n=8"), "cannot read"),
        (("FILE:double", "n=8", "--dtype", "z=f32"), "got `z`"),
        (("FILE:double", "n=8", "--budget-ms", "50", "--svg", "/no/such/folder/p.svg"), "/no/such/folder/p.svg: No such file"),
        (("tessera.kernels.tuned:attended", "n=8"), "Its kernels: product, products, attention"),
        (("broken_module:double", "n=8"), "ZeroDivisionError"),
    ):
        (tmp_path / "broken_module.py").write_text("1 / 0\n")
        status, _, err = command(*arguments)
        assert status == 2 and message in err, err


def test_the_command_takes_modules(command, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    command("--list")
    status, out, _ = command("kernels_here:double", "n=64", "--budget-ms", "50")
    assert status == 0 and "tuning of double" in out


def test_the_command_takes_modules_of_packages(command, tmp_path, monkeypatch):
    """Whose imports are relative to them."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "package_here").mkdir()
    (tmp_path / "package_here" / "__init__.py").touch()
    (tmp_path / "package_here" / "numbers.py").write_text("ONE = 1\n")
    (tmp_path / "package_here" / "inner.py").write_text("from .numbers import ONE\n" + CLI)
    status, out, err = command("package_here.inner:double", "n=64", "--budget-ms", "50")
    assert status == 0 and "tuning of double" in out, err


def test_every_dtype_gets_arrays(command):
    from tessera.tools.tune_cli import _random

    rng = np.random.default_rng(0)
    for name in ("f16", "bf16", "f32", "f64", "i8", "u32", "i64", "bool", "fp8_e4m3"):
        assert _random(rng, (2, 3), ts.dtype(name), None).dtype == ts.zeros(1, name).dtype
