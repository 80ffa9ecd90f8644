"""The command `tessera`."""

import os
import re
import subprocess
import sys

import pytest

import tessera as ts
from tessera._cli import main

GOOD = '''
import tessera as ts

@ts.kernel
def double(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    x[i] = x[i] + x[i]

@ts.kernel.autotune(space=dict(B=[4, 8]))
def rows(x: ts.Tensor["m", "k", ts.f32], y: ts.Tensor["m", ts.f32], flip: bool = False):
    B = ts.tile.context().B
    p = ts.tile.program_id(0)
    y[p * B : p * B + B] = ts.tile.row_sum(x[p * B : p * B + B, :])
'''
BAD = GOOD + '''
@ts.kernel
def broken(x: ts.Tensor["n", ts.f32]):
    x[0] = nothing

@ts.kernel
def wrong(x: ts.Region["read", ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    x[i] = 1.0
'''


@pytest.fixture
def run(tmp_path, capsys):
    def run(*arguments, text=GOOD):
        (tmp_path / "kernels_here.py").write_text(text)
        status = main([a.replace("FILE", str(tmp_path / "kernels_here.py")) for a in arguments])
        return status, *capsys.readouterr()

    return run


def test_the_version_is_told_by_the_module_too():
    out = subprocess.run([sys.executable, "-m", "tessera", "--version"], capture_output=True, text=True)
    assert out.stdout == f"tessera {ts.__version__}\n" and out.returncode == 0


def test_doctor_finds_a_kernel_that_runs(run, monkeypatch):
    monkeypatch.setenv("TESSERA_VERIFY", "1")
    monkeypatch.setenv("TESSERA_NOTHING", "1")
    status, out, _ = run("doctor")
    assert status == 0 and out.rstrip().endswith("all is well")
    for words in ("numpy", "ml_dtypes", "interp                   available", "cpu                      available", "ptx",
                  "does not contain", "warp_size", "saxpy of 1000 elements   right, on cpu",
                  "TESSERA_VERIFY           '1'", "does not know it"):
        assert words in out, out


def test_doctor_tells_of_the_processor_and_the_cache(tmp_path):
    cache = str(tmp_path / "cache")

    def doctor(**environment):
        command = [sys.executable, "-m", "tessera", "doctor"]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})

    out = doctor(TESSERA_CPU="generic", TESSERA_THREADS="3", TESSERA_CACHE_DIR=cache).stdout
    for row in (r"instructions +generic \((TESSERA_CPU says so; there is (avx2|avx512|amx)|the most there is)\)",
                r"vectors +128 bits", r"matrix units +none", r"threads +3 \(of \d+ cores\)", r"LLVM +19\.1",
                rf"directory +{re.escape(cache)}", r"kept +0, 0 B of at most 1.0 GiB"):
        assert re.search(row, out), (row, out)
    wrong = doctor(TESSERA_CPU="sse")
    assert wrong.returncode == 1 and 'in TESSERA_CPU, got "sse"' in wrong.stdout


def test_doctor_says_what_is_wrong(run, monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", "ptx")
    status, out, _ = run("doctor")
    assert status == 1 and "something is wrong" in out and "`ptx` is not available" in out


def test_ir_is_printed_open_and_for_values(run):
    status, out, _ = run("ir", "FILE:double")
    assert status == 0 and ts.ir.parse(out).name == "double" and "view<[n], f32" in out
    status, out, _ = run("ir", "FILE:rows", "k=16", "B=8", "flip=True")
    assert status == 0 and "tile<8x16xf32>" in out
    assert "kernels_here.py" in run("ir", "FILE:double", "--locs")[1]
    assert ": schedule" in run("ir", "FILE:double", "--level", "schedule")[1]


def test_ir_of_what_is_not_there_names_what_is_near(run):
    status, _, err = run("ir", "FILE:doubel")
    assert status == 2 and "did you mean `double`?" in err and "rows" in err
    assert "expected FILE.py:KERNEL" in run("ir", "FILE"[:0] + "double")[2]
    assert "cannot read nowhere.py" in run("ir", "nowhere.py:k")[2]
    assert "expected a level" in run("ir", "FILE:double", "--level", "assembly")[2]
    status, _, err = run("ir", "FILE:rows", "B=8")
    assert status == 1 and "E_SPECIALIZE" in err
    assert "expected NAME=VALUE" in run("ir", "FILE:rows", "8")[2]


def test_check_lists_kernels_and_reports_every_error(run):
    status, out, _ = run("check", "FILE")
    assert status == 0 and "ok      double" in out and "2 kernels, no errors" in out
    status, out, _ = run("check", "FILE", text=BAD)
    assert status == 1 and "ok      rows" in out and "4 kernels, 2 with errors" in out
    assert "E_NAME" in out and "E_PRIVILEGE" in out and "x[i] = 1.0" in out
    assert "has errors" in run("ir", "FILE:wrong", text=BAD)[2]


def test_check_of_a_file_that_cannot_be_run(run):
    status, out, _ = run("check", "FILE", text=GOOD + "\n1 / 0\n")
    assert status == 1 and "ok      double" in out and "ZeroDivisionError" in out
    status, _, err = run("check", "FILE", text="def (")
    assert status == 2 and "kernels_here.py:1" in err
