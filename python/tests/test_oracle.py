"""Kernels compute what Python computes from their source: documentation, gallery, the kernels of other tests, and random programs.

`oracle/` executes the source of a kernel by Python itself. Each backend is compared with it, bit for bit in the profile
``strict`` (and on the interpreter in every profile), within a tolerance where a function is only within a bound.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import platform
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from doc_blocks import ROOT, python_blocks, run
from oracle import fuzz
from oracle.expressions import W
from oracle.generate import generate
from oracle.run import Program, array
from oracle.values import OracleError, Val
from oracle.watch import Seen, watching

import tessera as ts

HERE = Path(__file__).resolve().parent
GALLERY = ROOT / "examples" / "kernels"
PAGES = ["language.md", "debugging.md", "tuning.md"]
BACKENDS = ["interp", "cpu", "ptx-emulated:sm_80", "ptx-emulated:sm_90a"]
#: Kernels that are not compared, with the reason: nothing is left out in silence.
ORIGINS = "implicit tile origins, which Python does not have"
TRACED = "called inside `ts.jit` and `ts.vmap` only, with values that have no elements yet"
LARGE = "more groups, lanes or iterations than are executed here"
NOT_COMPARED = {
    "gemm at example.py": ORIGINS,
    "gemm at kernels.py": ORIGINS,
    "gemm at <printed gemm>": ORIGINS,
    "product at tuned.py": LARGE,
    "column at test_cpu_hazards.py": LARGE,
    "gate at example.py": TRACED,
    "scale at example.py": TRACED,
    "rounded_step at example.py": "stochastic rounding, which is judged by its mean",
    "stochastic_step at stochastic_rounding.py": "stochastic rounding, which is judged by its mean",
    "derived at example.py": "ts.tile.value_and_grad: a derivative",
}
#: Test files whose kernels are compared.
FILES = [
    "test_kernels.py", "test_control_flow.py", "test_ragged.py", "test_out.py", "test_cpu_hazards.py", "test_promises.py",
    "test_arguments.py", "test_safe_ops.py", "test_debug.py",
]  # fmt: skip
#: Seconds of random programs in `make test`, by two processes.
SECONDS = float(os.environ.get("TESSERA_FUZZ_SECONDS") or 30)


@pytest.fixture(params=BACKENDS)
def everywhere(request, monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", request.param)
    return request.param


def nothing_wrong(seen: Seen) -> None:
    print(seen.table())
    assert not seen.wrong, "\n".join(seen.wrong)
    unlisted = [name for name in seen.without() if name.rpartition(":")[0] not in NOT_COMPARED]
    assert not unlisted, f"neither compared nor listed in NOT_COMPARED: {[(name, seen.lacking[name]) for name in unlisted]}"


def test_documentation(everywhere) -> None:
    """Blocks whose assertions need another backend or profile are run again in the default one."""
    with watching() as seen, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for page in PAGES:
            for block in python_blocks(ROOT / "docs" / page):
                if not block.marks:
                    with contextlib.suppress(AssertionError, ts.TesseraError):
                        run(block)
    ts.runtime.select_backend(None)
    nothing_wrong(seen)
    assert len(seen.compared) > (50 if everywhere in ("interp", "cpu") else 30)


@pytest.fixture
def gallery(monkeypatch):
    monkeypatch.syspath_prepend(str(GALLERY))
    names = sorted(path.stem for path in GALLERY.glob("*.py") if path.stem != "gallery")
    before = set(sys.modules)
    yield names
    for name in set(sys.modules) - before:
        if name in names or name == "gallery":
            del sys.modules[name]


def test_gallery(gallery, everywhere) -> None:
    with watching() as seen:
        for name in gallery:
            module = importlib.import_module(name)
            sized = sorted(((sum(getattr(a, "size", 1) for a in args), args) for args in module.cases()), key=lambda case: case[0])
            chosen = sized[:2] + [case for case in sized[2:] if case[0] <= 3000][-1:]
            for _, args in chosen:
                with contextlib.suppress(ts.UnsupportedError):  # what `strict` refuses
                    module.run(*args)
    nothing_wrong(seen)
    assert len(seen.compared) >= 48


def test_kernels_of_other_tests(tmp_path) -> None:
    report = tmp_path / "report.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "oracle.plugin", *FILES]
    environment = {**os.environ, "TESSERA_ORACLE_REPORT": str(report), "PYTHONPATH": str(HERE)}
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    reported = json.loads(report.read_text(encoding="utf-8"))
    seen = Seen(reported["compared"], {}, {k: set(v) for k, v in reported["lacking"].items()}, reported["wrong"])
    nothing_wrong(seen)
    assert len(seen.compared) > 40


# The oracle itself: what it says is Python's meaning, written out by hand.
def after(body: str, **arrays: list) -> dict[str, list]:
    inner = "\n".join("    " + line for line in body.splitlines())
    program = Program(f"def k({', '.join(arrays)}):\n{inner}\n")
    hosts = {name: np.array(values, np.int32) for name, values in arrays.items()}
    program.launch("k", [array(host) for host in hosts.values()], (1,))
    return {name: host.tolist() for name, host in hosts.items()}


@pytest.mark.parametrize(
    "body, x, y",
    [
        ("x[0], x[1] = x[1], x[0]", [2, 1, 3, 4], [0, 0, 0, 0]),
        ("x[0:2], x[2:4] = x[2:4], x[0:2]", [3, 4, 1, 2], [0, 0, 0, 0]),
        ("pair = (x[0], x[1])\nx[0] = 9\ny[0] = pair[0]", [9, 2, 3, 4], [1, 0, 0, 0]),
        ("y[0] = x[0] + ts.tile.atomic_add(x[0], 5)", [6, 2, 3, 4], [2, 0, 0, 0]),
        ("x[0] += ts.tile.atomic_add(x[0], 5)", [2, 2, 3, 4], [0, 0, 0, 0]),
        ("if x[0] > 1 and ts.tile.atomic_add(y[0], 1) < 5:\n    x[0] = 7", [1, 2, 3, 4], [0, 0, 0, 0]),
        ("y[0] = x[1] or 9\ny[1] = y[2] or 9\ny[2] = x[1] and 5", [1, 2, 3, 4], [2, 9, 5, 0]),
        ("for j in range(3):\n    y[0] += 1\ny[1] = j", [1, 2, 3, 4], [3, 2, 0, 0]),
        ("for j in range(0):\n    y[0] += 1\ny[1] = j + 4", [1, 2, 3, 4], [0, 4, 0, 0]),
        ("for j in range(4):\n    if x[j] == 2:\n        break\nelse:\n    y[0] = 1\ny[1] = j", [1, 2, 3, 4], [0, 1, 0, 0]),
        ("y[0] = ts.tile.cast((x[0] + 2**40) >> 38, ts.i32)", [1, 2, 3, 4], [4, 0, 0, 0]),
        ("y[ts.tile.arange(4) // 2] += 1", [1, 2, 3, 4], [2, 2, 0, 0]),
        ("y[0] = (-7) // x[1]\ny[1] = x[0] // y[3]\ny[2] = (-7) % x[1]", [1, 2, 3, 4], [-4, 0, 1, 0]),
        ("y[0] = x[7]\nx[9] = 5\ny[1] = x[-1]", [1, 2, 3, 4], [0, 4, 0, 0]),
    ],
)
def test_the_oracle_says_what_python_says(body, x, y) -> None:
    assert after(body, x=[1, 2, 3, 4], y=[0, 0, 0, 0]) == {"x": x, "y": y}


def test_literals_take_the_type_of_the_other_operand() -> None:
    def value(dt):
        return Val(dt, np.array(5)[()].astype({"i32": np.int32, "u32": np.uint32, "u64": np.uint64, "f32": np.float32, "i64": np.int64}[dt]))

    assert (value("i32") + 1).dt == "i32" and (value("i32") + 2**40).dt == "i64" and (value("u32") - -1).dt == "i64"
    assert (value("u64") + 2**63).dt == "u64" and (value("f32") * 0.1).dt == "f32" and (value("f32") * 2**40).dt == "f32"
    for refused in (lambda: value("u64") + -1, lambda: value("i64") + 2**63):
        with pytest.raises(OracleError, match="E_TYPE"):
            refused()
    with pytest.raises(OracleError, match="E_OVERFLOW"):
        value("f32") * 1e300


def test_lanes_synchronise_at_barriers() -> None:
    text = "def k(x, y):\n    i = ts.tile.linear_id()\n    s = ts.tile.alloc_shared((4,), ts.i32)\n    s[ts.tile.local_id()] = x[i]\n"
    text += '    ts.tile.barrier()\n    y[i] = s[3 - ts.tile.local_id()] * 100 + ts.tile.group.reduce(x[i], "sum")\n'
    x, y = np.arange(8, dtype=np.int32), np.zeros(8, np.int32)
    Program(text).launch("k", [array(x), array(y)], (8,), 4)
    assert y.tolist() == [306, 206, 106, 6, 722, 622, 522, 422]


def test_programs_are_large_and_of_all_kinds() -> None:
    counts, small = Counter(), []
    for seed in range(300):
        case = generate(seed)
        counts.update(case.counts)
        small += [seed] * (case.statements < 15)
        fuzz.expected(case)
    assert not small and W == 8
    wanted = [
        "swap of elements", "swap of slices", "swap of shared elements", "tuple value", "read beside an effect on it", "helper call",
        "and in a condition", "a if c else b", "value of or, and", "for else", "while else", "loop variable after its loop", "walrus",
        "literal that widens", "edge literal", "break or continue of a lane", "early return", "chained comparison", "captured",
        "compile-time divisor tile", "load other=", "store mask=", "scatter", "gather", "begun with a literal", "augmented element",
        "slice of a tile", "slice of a tile that runs backwards", "slice of a tile from a position of run time", "element of a tile",
        "element of a tile at run time", "flip", "roll", "concat", "split", "stack", "gather from a tile", "take_along_axis", "sort",
        "argsort", "topk", "histogram", "histogram with a mask", "unique_count", "scan by name", "scan by a function",
        "reduce by a function", "reduce of several tiles by a function", "reduce by a function along an axis", "max with its place",
        "part of a narrow tile", "part of a tile of bools", "row of a tile", "reshape", "unrolled loop: count", "unrolled loop: values",
        "unrolled loop: table", "unrolled loop: enumerate", "unrolled loop: zip", "unrolled loop: reversed", "else of an unrolled loop",
        "break in unrolled loop", "continue in unrolled loop", "tuple carried: for", "tuple carried: while", "tuple carried: unrolled",
        "tuple assigned before a loop is left", "reversed range", "assembly text in its place", "assembly text in a function",
        "assembly text inside another", "assembly text on tiles", "assembly text: its results as variables",
        "assembly text without results", "assembly text of 3 with an effect", "assembly: loop", "assembly: conversion",
    ]  # fmt: skip
    missing = [name for name in wanted if not counts[name]]
    assert not missing, missing


def test_a_wrong_answer_is_found_and_made_small(monkeypatch) -> None:
    """A compiler that adds one to a certain sum is caught, and the program that shows it is short."""
    real = fuzz.compiled

    def wrong(case, backend, profile="strict"):
        out = real(case, backend, profile)
        if "atomic_add" in case.text:
            for arrays in out:
                arrays["ri"].reshape(-1)[0] += 1
        return out

    monkeypatch.setattr(fuzz, "compiled", wrong)
    have, _ = fuzz.probe()
    found = fuzz.run(5, 200, ["interp"], have=have, stop_at=1, say=None, minimise_for=10)
    (failure,) = found.failures
    assert "atomic_add" in failure[1] and len(failure[1].splitlines()) < 25


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the text is for x86_64")
@pytest.mark.parametrize("instruction, differs", [("addl", False), ("subl", True)])
def test_a_text_that_computes_something_else_is_found(instruction, differs) -> None:
    """The CPU runs the instructions in another profile than `strict`, which runs what stands for them."""
    text = (
        "@ts.func\ndef plain(a):\n    return a + a\n\n@ts.kernel\ndef k(x: ts.Tensor[8, ts.i32]):\n    ts.tile.grid(1)\n"
        f'    x[:] = ts.target.asm("movl $1, $0; {instruction} $1, $0", x[:], dtype=ts.i32, target="x86_64", otherwise=plain)\n'
    )
    case = fuzz.Case(text, {}, {"x": ((8,), "i32")}, 1, 0, 1, native=True)
    assert [fuzz.judge(case, backend) != [] for backend in BACKENDS[:3]] == [False, differs, False]


@pytest.mark.parametrize("backend, share", [("interp", 0.4), ("cpu", 0.35), ("ptx-emulated:sm_80", 0.25)])
def test_random_programs(backend, share) -> None:
    have, refused = fuzz.probe()
    seed = fuzz.day()
    print(f"TESSERA_FUZZ_SEED={seed}, on {backend}; not in this build: {', '.join(refused) or 'nothing'}")
    tally = fuzz.spread(2, seed, 10**9, [backend], SECONDS * share / 60, have, None, 3)
    print(tally.report())
    assert not tally.failures, f"TESSERA_FUZZ_SEED={seed}\n" + "\n".join(text for _, text in tally.failures)
    assert tally.agreed > 0.8 * tally.programs and len(tally.broken) <= tally.programs // 100
