"""Dry runs on the host of the programs for GPU machines, so that GPU time is not spent on their mistakes."""

import ast
import json
import subprocess
import sys
import time
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from doc_blocks import ROOT

import tessera as ts
from tessera.arrays import create as _create

sys.path.append(str(ROOT))

from bench.gpu import gemm  # noqa: E402
from conformance.gpu import redirected_calls, sanitize  # noqa: E402
from gpurun import compare, report, run, stats  # noqa: E402
from gpurun.device import POISON, Host, Placed  # noqa: E402
from ledger import ledger  # noqa: E402


#: What each folder may import of the others.
IMPORTS = {"gpurun": set(), "ledger": {"gpurun"}, "conformance/gpu": {"gpurun", "ledger"}, "bench/gpu": {"gpurun", "ledger"}}


@pytest.mark.parametrize("folder", IMPORTS)
def test_folders_import_in_one_direction(folder):
    others = {"gpu", *(name.partition("/")[0] for name in IMPORTS)} - {folder.partition("/")[0]}
    for path in (ROOT / folder).glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        modules = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
        modules += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level]
        found = {module.partition(".")[0] for module in modules} & others
        assert found <= IMPORTS[folder], f"{path.relative_to(ROOT)} imports {', '.join(sorted(found - IMPORTS[folder]))}"


@pytest.mark.parametrize("program, what, only, reported", [
    ("conformance.gpu.check", "check", "op (transpose|f64)|example (gather|reduce_sum|transpose)|strict op masked|random 0", "check: "),
    ("bench.gpu.run", "bench,launch", "softmax bf16 24x96|gemm bf16 33|launch", "1 passed"),
])  # fmt: skip
def test_a_trial_run_passes_and_writes_what_it_found(program, what, only, reported, tmp_path):
    out, rows = tmp_path / "run.jsonl", tmp_path / "ledger.jsonl"
    command = [sys.executable, "-m", program, "--dry-run", "--what", what, "--only", only, "--out", out]
    command += ["--ledger", rows] if "bench" in what else []
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0 and reported in done.stdout, done.stdout + done.stderr
    about, *found = [json.loads(line) for line in out.read_text().splitlines()]
    assert about["about"]["gpu"] is None and about["about"]["backend"] == "cpu"
    assert found and {row["status"] for row in found} <= {"pass", "skip"}
    kept = ledger.load(rows)
    assert len(kept) == (2 if "bench" in what else 0) and all(ledger.verify(row).word == "proven" for row in kept)


def test_products_are_tried_beside_a_library(tmp_path, capsys):
    out = tmp_path / "gemm.json"
    rows = tmp_path / "rows.jsonl"
    arguments = ["--dry-run", "--rounds", "3", "--out", str(out), "--ledger", str(rows)]
    assert gemm.main([*arguments, "--config", "BM=64,BN=64,BK=16"]) == 0, capsys.readouterr().out
    found = json.loads(out.read_text())
    assert [row["name"] for row in found["rows"]] == [row.name for row in gemm.TRIED]
    for row in found["rows"]:
        assert row["status"] == "pass" and row["peer"] == "numpy" and not row["refused"]
        assert set(row["ours"]) == {"default", "BM=64,BN=64,BK=16"}
        assert all(one["low"] <= one["ratio"] <= one["high"] for one in row["ours"].values())
        assert {len(samples) for samples in row["samples_us"].values()} == {3}
    assert "bf16 64x48x96 NT" in capsys.readouterr().out
    kept = ledger.load(rows)
    assert len(kept) == len(gemm.TRIED) and all(ledger.verify(row).word == "proven" for row in kept)
    assert len({row.name for row in gemm.TABLE}) == len(gemm.TABLE)


def test_products_that_are_wrong_are_not_timed(tmp_path, monkeypatch, capsys):
    right = ts.op.matmul

    def wrong(*args, **more):
        out = right(*args, **more)
        out[-1, -1] += 1
        return out

    monkeypatch.setattr(ts.op, "matmul", wrong)
    out = tmp_path / "gemm.json"
    assert gemm.main(["--dry-run", "--only", "NT$|gelu", "--out", str(out)]) == 1
    rows = json.loads(out.read_text())["rows"]
    assert len(rows) == 3 and {row["status"] for row in rows} == {"wrong"} and "samples_us" not in rows[0]
    assert "1 elements are wrong, the first at (63, 47)" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["BM", "BM=x", "tile=3", ""])
def test_what_is_pinned_of_a_schedule_has_names(text, capsys):
    with pytest.raises(SystemExit):
        gemm.parse(["--config", text])
    assert "expected NAME=VALUE" in capsys.readouterr().err


def test_a_trial_run_keeps_out_of_the_ledger():
    command = [sys.executable, "-m", "bench.gpu.run", "--dry-run", "--what", "launch", "--only", "none", "--ledger"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode != 0 and "name another file" in done.stderr


WORKER = """
import json, os, sys, time
begin, path = int(sys.argv[1]), sys.argv[2]
with open(path, "w", buffering=1) as out:
    for number in range(begin, 6):
        out.write(json.dumps({"begin": number, "name": f"item {number}"}) + "\\n")
        if number == 1: os.abort()
        if number == 3: time.sleep(60)
        if number == 4: os._exit(3)
        out.write(json.dumps({"row": {"status": "pass", "name": f"item {number}"}}) + "\\n")
    out.write('{"done": true}\\n')
"""


def test_items_that_end_or_hang_their_process_are_rows(tmp_path, monkeypatch):
    program = run.Program("none", "", {"check": run.Phase(100, silence=1)})
    monkeypatch.setattr(run.Worker, "command", lambda self, begin: [sys.executable, "-c", WORKER, begin, self.path])
    worker = run.Worker(program, "check", SimpleNamespace(), 0, 1, time.time() + 100, tmp_path)
    while not worker.finished:
        worker.poll()
        time.sleep(0.01)
    found = {row["name"]: (row["status"], row.get("why", "")) for row in worker.rows}
    assert [found[f"item {i}"][0] for i in (0, 1, 2, 3, 5)] == ["pass", "error", "pass", "error", "pass"]
    assert "the process ended with -6" in found["item 1"][1] and "it hangs" in found["item 3"][1] and "item 4" not in found


@ts.kernel
def negate(x: ts.Tensor["m", "n", ts.f32], y: ts.Tensor["m", "n", ts.f32]):
    i = ts.tile.linear_id()
    if i < m * n:
        y[i // n, i % n] = -x[i // n, i % n]


def test_arrays_are_placed_with_their_strides():
    base = np.arange(120, dtype=np.float32).reshape(10, 12)
    views = [base, base.T, base[1::3, 2:9:2], base[::-2, ::-1], base[:0], np.broadcast_to(base[0], (3, 12)), base[2:3, 5:]]
    for view in views:
        for exact in (False, True):
            placed = Placed(Host(), view, exact)
            assert np.array_equal(placed.array, view) and (placed.array.strides == view.strides or not view.size)
            if view.size and not exact:
                first, second = (a.__array_interface__["data"][0] % 16 for a in (placed.array, view))
                assert first == second
            assert placed.damage(placed.fetch()) == ""


def test_calls_are_moved_and_what_they_wrote_comes_back():
    x = np.arange(40, dtype=np.float32).reshape(5, 8)
    y = np.zeros((5, 16), np.float32)
    with redirected_calls.on(Host()):
        negate(x[::-1], y[:, 1::2])
    assert np.array_equal(y[:, 1::2], -x[::-1]) and not y[:, ::2].any()


def test_writes_beside_an_array_are_found(monkeypatch):
    whole = np.zeros((4, 6), np.float32)
    placed = Placed(Host(), whole[:, ::2])
    placed.memory[placed.at + 4] = 7  # between two elements
    assert "1 bytes beside the elements were written, the first 4 bytes" in placed.damage(placed.fetch())
    # A kernel cannot leave its arrays; the array that the mover fetches can be changed.
    fetch = Placed.fetch
    monkeypatch.setattr(Placed, "fetch", lambda self: np.where(np.arange(self.before.size) == 3, 0, fetch(self)).astype(np.uint8))
    with pytest.raises(redirected_calls.Damage, match="negate, an array of float32"), redirected_calls.on(Host()):
        negate(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32))


def test_results_are_poisoned_before_they_are_written():
    with redirected_calls.poisoned(Host()):
        assert np.isnan(_create.empty((2, 3), "f32")).all() and np.isnan(_create.empty((), "bf16").astype(np.float32))
        assert (_create.empty(4, "u8") == POISON).all() and _create.empty((0, 3)).shape == (0, 3)


def test_the_worst_element_is_reported():
    right = np.arange(6.0).reshape(2, 3)
    result = right.astype(np.float32)
    assert compare.near(result, right, 0.0, "it") == 0.0
    result[1, 1] += 1e-5
    result[1, 2] = np.nan
    with pytest.raises(compare.Mismatch, match=r"2 of 6 elements of \(2, 3\); the worst at \(1, 2\): got nan, right is 5"):
        compare.near(result, right, 1e-7, "it")
    with pytest.raises(compare.Mismatch, match="expected shape"):
        compare.near(result[0], right, 1.0, "it")
    with pytest.raises(compare.Mismatch, match=r"the first at \(0, 1\): got -0.0 \(0x80000000\)"):
        compare.same_bits(np.array([[1, -0.0]], np.float32), np.array([[1, 0]], np.float32), "it")


@pytest.mark.parametrize("dtype", ["float32", "float64", ml_dtypes.bfloat16])
def test_which_nan_it_is_only_strict_says(dtype):
    right = np.array([1, np.nan, -0.0], dtype)
    result = right.copy()
    result.view(np.uint8)[right.itemsize] ^= 1
    assert np.isnan(result[1]) and compare.near(result, right, None, "it") == 0.0
    with pytest.raises(compare.Mismatch, match=r"the first at \(1,\): got nan"):
        compare.same_bits(result, right, "it")
    result[2] = 0.0
    with pytest.raises(compare.Mismatch, match=r"1 of 3 elements of \(3,\) differ; the first at \(2,\): got 0"):
        compare.near(result, right, None, "it")


def test_findings_of_the_sanitizer_belong_to_items():
    text = """@@ item op softmax
@@ item gemm bf16
========= Invalid __global__ read of size 16 bytes
=========     at tessera_gemm+0x80
=========     by thread (0,0,0) in block (1,0,0)
========= ERROR SUMMARY: 1 error
"""
    (bad, total) = sanitize.parse("memcheck", text, 0)
    assert bad["name"] == "memcheck: gemm bf16" and bad["findings"] == 1 and "at tessera_gemm+0x80" in bad["why"]
    assert total["status"] == "fail" and total["cases"] == 2
    (clean,) = sanitize.parse("racecheck", "@@ item a\n========= RACECHECK SUMMARY: 0 hazards displayed (0 errors)\n", 0)
    assert clean["status"] == "pass" and clean["findings"] == 0
    assert sanitize.parse("memcheck", "Device not supported", 1)[0]["status"] == "error"
    assert sanitize.parse("memcheck", "@@ item a\n", None)[0]["status"] == "time"


def test_ratios_are_of_pairs_with_an_interval():
    found = stats.ratio([1.0, 2.0, 4.0, 1.0], [2.0, 4.0, 8.0, 2.0])
    assert found == {"ratio": 2.0, "low": 2.0, "high": 2.0}
    found = stats.ratio([1.0] * 50, list(np.linspace(1, 2, 50)))
    assert found["low"] < found["ratio"] < found["high"]


def test_the_table_says_where_it_ran_whichever_phase_reported_it(tmp_path):
    """In a run of the sanitizer only, the processes under the tool report the GPU."""
    rows = tmp_path / "memcheck-0.jsonl"
    assert sanitize.about(rows) == {}
    rows.write_text('{"device": {"gpu": "NVIDIA H200", "driver": "580"}, "items": 3}\n{"begin": 0, "name": "x"}\n')
    assert report.table([], sanitize.about(rows), {"sanitize": 1.0}).startswith("\nNVIDIA H200, driver 580\nsanitize: ")
    assert report.table([], {}, {}) == "\nnothing ran"
    assert report.table([], {"gpu": None, "backend": "cpu"}, {}) == "\nthe host (cpu): a trial"
