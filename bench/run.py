"""Benchmarks: figures and their budgets. A figure over its budget is not a failure.

    make bench
"""

import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import tessera as ts

ROOT = Path(__file__).resolve().parents[1]
#: What is timed by an example of a crate: a title, its budget, the package, the example.
PROGRAMS = (
    ("10,000-op module: verify, print, parse, each", "100 ms", "tessera-filetest", "ir_speed"),
    ("front end, attention kernel, decorate to Tile IR", "20 ms", "tessera-frontend", "frontend_speed"),
)


def heading(title, budget):
    print(f"\n{title}\n  budget: {budget}")


def run_program(package, example):
    # The profile that the extension module is built with here.
    command = ["cargo", "run", "-q", "--release", "-p", package, "--example", example]
    print(f"  command: {' '.join(command)}", flush=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(f"  failed with exit status {done.returncode}:\n{done.stderr.rstrip()}")
        return False
    print("\n".join(f"  {line}" for line in done.stdout.rstrip().splitlines()))
    return True


@ts.kernel
def four(a: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32], c: ts.Tensor["n", ts.f32], d: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    d[i] = a[i] + b[i] + c[i]


def sample(call, count, rounds=15):
    """Microseconds for one call, of several rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count * 1e6)
    return times


def show(label, times):
    print(f"  {label:<44} median {statistics.median(times):8.2f} us   from {min(times):.2f} to {max(times):.2f}")


def launches():
    heading("cached launch from Python, 4 arrays", "4 us on the CPU backend, with one element")
    arrays = [np.zeros(1, np.float32) for _ in range(4)]
    empty = [np.zeros(0, np.float32) for _ in range(4)]
    four(*arrays)
    show("one element: call, checks and the kernel", sample(lambda: four(*arrays), 2000))
    show("no element: call and checks only", sample(lambda: four(*empty), 2000))
    show("an empty Python function of 4 arguments", sample(lambda: (lambda a, b, c, d: None)(*arrays), 20000))


if __name__ == "__main__":
    print(f"Tessera {ts.__version__}, Python {platform.python_version()}, {platform.machine()}, measured now on this machine")
    fine = True
    for title, budget, package, example in PROGRAMS:
        heading(title, budget)
        fine &= run_program(package, example)
    launches()
    sys.exit(not fine)
