"""Figures that need a new process: the time of a first compilation, and the memory of a launch.

This module is also the program of those processes: `python -m bench.cpu.fresh compile|memory WORK full|quick`
prints what it measured as JSON.
"""

from . import environment  # first: it takes the cores

import ctypes
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import numpy as np

from . import arrays, cases
from .case import Must, check
from .report import Row
from .timing import interval

COMPILE_BUDGETS_MS = {"saxpy": 30, "f32 gemm": 120, "bf16 gemm": 120, "attention": 150}
MEMORY_WORKS = ("f32 gemm", "bf16 gemm", "attention causal", "attention full")
MIB = 2**20


def ask(command, work, size):
    # Without the disk cache, which would replace the compilation.
    setting = environment.child(__spec__.name, command, work, size, threads=1, TESSERA_CACHE="0")
    done = subprocess.run(**setting, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}")
    found = json.loads(done.stdout)
    environment.demand_same_library(found["library"])
    return found


def run_compile(report, works, size, rounds):
    report.heading(
        f"Compilation in a fresh process without the cache on disk, median of {rounds}",
        "figure: the first call less the second, with everything from the kernel's source to machine code",
    )
    for work in works:
        try:
            found = [ask("compile", work, size) for _ in range(rounds)]
            first = [1e3 * f["compile_s"] for f in found]
            must = Must(COMPILE_BUDGETS_MS[work], at_most=True)
            again = f"again in the process {1e3 * median(f['again_s'] for f in found):.3g}"
            report.add(Row("compile", work, "", median(first), "ms", *interval(first), again, must, {"runs": found}))
        except Exception as error:
            report.fail(work, "", error)


def run_memory(report, works, size):
    report.heading(
        "Peak memory of a launch beyond the arguments, one thread",
        "figure: the first launch after an empty one, with what is kept for later ones; at the right the same again",
    )
    for work in works:
        try:
            found = ask("memory", work, size)
            again = f"again {found['again'] / MIB:.3g}, arrays {found['arrays'] / MIB:.3g} MiB"
            report.add(Row("memory", found["name"], "", found["first"] / MIB, "MiB", remark=again, data=found))
        except Exception as error:
            report.fail(work, "", error)


def case_of(work, gemm, attention):
    """The case of this name, with these sizes if it is a matmul (m, n, k) or attention (heads, length, depth)."""
    if work == "saxpy":
        return cases.saxpy(1024)
    if work.endswith("gemm"):
        return cases.gemm(*gemm, arrays.BF16 if work.startswith("bf16") else np.dtype(np.float32))
    return cases.attention(*attention, is_causal="full" not in work)


def measure_compile(work, sizes):
    """What the first call takes beyond a second one; and once more after the kernel forgot its code."""
    n, depth = sizes.compile_gemm, sizes.attention[2]
    # The code serves any length; a short one keeps the launch out of the difference.
    problem = case_of(work, (n, n, n), (1, 128, depth)).build()

    def call():
        start = time.perf_counter()
        problem.ours.run()
        return time.perf_counter() - start

    first = call()
    explained = problem.kernel.explain()
    second = min(call() for _ in range(5))
    problem.kernel.cache_clear()
    again = call()
    check(problem.ours, problem)
    return {"compile_s": first - second, "again_s": again - second, "launch_s": second, "explain": str(explained)}


def status_bytes(name):
    return 1024 * int(re.search(rf"^{name}:\s*(\d+) kB", Path("/proc/self/status").read_text(), re.M).group(1))


def peak_beyond(run):
    """By how much the memory of the process grew at most while `run` ran."""
    # Free heap memory is returned to the system, so it counts when it is allocated again.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = status_bytes("VmRSS")
    run()
    return max(0, status_bytes("VmHWM") - before)


def measure_memory(work, sizes):
    n, (heads, length, depth) = sizes.large_gemm, sizes.attention
    case = case_of(work, (n, n, n), (heads, length, depth))
    problem = case.build()
    # An empty launch compiles, so the compiler's memory does not count as the launch's.
    case_of(work, (0, n, n), (0, length, depth)).build().ours.run()
    first, again = peak_beyond(problem.ours.run), peak_beyond(problem.ours.run)
    check(problem.ours, problem)
    return {"name": case.name, "first": first, "again": again, "arrays": problem.ours.memory}


if __name__ == "__main__":
    command, work, size = sys.argv[1:]
    measure = {"compile": measure_compile, "memory": measure_memory}[command]
    found = measure(work, {"full": cases.FULL, "quick": cases.QUICK}[size])
    print(json.dumps({**found, "library": environment.library()}))
