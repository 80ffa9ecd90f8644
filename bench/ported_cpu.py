"""Thirty programs ported from JAX, on one core, compared with `jax.jit`.

usage: PYTHONPATH=python:. build/bench-venv/bin/python -m bench.ported_cpu [--rounds N] [--only WORD] [--first [N]] [--cold]
       [--vanishing] [--cpu-time] [--out FILE]

By default it times a call. Results are compared before anything is timed, and the two alternate. A figure is the median over the
rounds of our time over XLA's (less is better), with the minimum and the maximum. `--first` times the first call (tracing,
compiling, running) in N new processes each (5 by default) and takes the minimum. Importing the library and one call of `x + 1` come
before, unless `--cold`. Our disk cache is off. `--vanishing` compares a net of 100 layers whose activations become subnormal with
the same net and normal activations. `--cpu-time` counts processor time, for a machine with other load."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from bench.cpu import environment

if __name__ == "__main__":
    environment.use_one_core()

import numpy as np  # noqa: E402

from bench.cpu.timing import paired  # noqa: E402
from bench.ported import PROGRAMS, Program  # noqa: E402

Clock = Callable[[], float]
#: The required median of the calls, and the required median and maximum of the first calls.
STEADY, FIRST, FIRST_WORST, VANISHING = 0.55, 0.7, 1.2, 1.2


def steady(program: Program, rounds: int, clock: Clock) -> dict:
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    ours, theirs, args = program.ours(), program.theirs(), program.arguments()
    placed = jax.tree.map(jax.numpy.asarray, args)
    off = program.compare(jax.tree.leaves(ours(*args)), jax.tree.leaves(theirs(*placed)))
    times = paired(lambda: ours(*args), lambda: jax.block_until_ready(theirs(*placed)), rounds, clock)
    return {"ours": times.ours, "theirs": times.theirs, "ratios": [1 / r for r in times.ratios()], "off": off}


def first_call(program: Program, who: str, cold: bool, clock: Clock) -> float:
    """Seconds of the first call in this process."""
    args = program.arguments()
    if who == "ours":
        import tessera as ts

        f, wait, one = program.ours(), lambda x: x, ts.jit(lambda x: x + 1)
    else:
        import jax

        f, wait, one = program.theirs(), jax.block_until_ready, jax.jit(lambda x: x + 1)
    if not cold:
        wait(one(np.float32(1)))
    start = clock()
    wait(f(*args))
    return clock() - start


def first(program: Program, count: int, flags: list[str]) -> dict:
    taken: dict[str, list] = {"ours": [], "theirs": []}
    for i in range(count):
        for who in ("ours", "theirs") if i % 2 else ("theirs", "ours"):
            start = environment.child("bench.ported_cpu", "--only", program.name, "--child", who, *flags, threads=1, TESSERA_CACHE="0")
            done = subprocess.run(**start, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stdout + done.stderr)
            taken[who].append(json.loads(done.stdout.splitlines()[-1]))
    return {**taken, "ratio": min(taken["ours"]) / min(taken["theirs"])}


def vanishing(rounds: int, clock: Clock) -> dict:
    """Seconds of a net of 100 layers with activations that stay near one, and with ones that become subnormal."""
    import tessera as ts
    from tessera import xp

    rng = np.random.default_rng(3)
    layers = [(rng.standard_normal((256, 256)) / 16).astype(np.float32) for _ in range(100)]
    x = rng.standard_normal((64, 256)).astype(np.float32)

    @ts.jit
    def net(layers, x):
        for w in layers:
            x = xp.tanh(x @ w)
        return x

    # From 1 to 1e-40 in a few layers: then all that follows is subnormal, or zero.
    small = [w * np.float32(1e-4) if i < 10 else w for i, w in enumerate(layers)]
    value = x.astype(np.float64)
    for w in small:
        value = np.tanh(value @ w)
    assert 0 < np.abs(value).max() < 1.2e-38, np.abs(value).max()
    times = paired(lambda: net(small, x), lambda: net(layers, x), rounds, clock)
    return {"subnormal": times.ours, "normal": times.theirs, "ratios": [1 / r for r in times.ratios()]}


def spread(values: list, scale: float = 1.0) -> str:
    return f"{statistics.median(values) * scale:.2f} [{min(values) * scale:.2f}, {max(values) * scale:.2f}]"


def report_steady(found: dict) -> None:
    rows = sorted(found.items(), key=lambda row: statistics.median(row[1]["ratios"]))
    for name, row in rows:
        ours, theirs = (statistics.median(row[who]) * 1e3 for who in ("ours", "theirs"))
        print(f"{name:36s} {spread(row['ratios']):24s} {ours:9.3f} ms {theirs:9.3f} ms   off {row['off']:.0e}")
    ratios = [statistics.median(row["ratios"]) for row in found.values()]
    print(f"median {statistics.median(ratios):.3f} (required: {STEADY}), worst {max(ratios):.2f} of {len(ratios)}")


def report_first(found: dict) -> None:
    for name, row in sorted(found.items(), key=lambda row: row[1]["ratio"]):
        ours, theirs = (min(row[who]) * 1e3 for who in ("ours", "theirs"))
        print(f"{name:36s} {row['ratio']:.2f} {ours:9.1f} ms {theirs:9.1f} ms   "
              f"(largest {max(row['ours']) * 1e3:.1f}, {max(row['theirs']) * 1e3:.1f})")  # fmt: skip
    ratios = [row["ratio"] for row in found.values()]
    print(f"median {statistics.median(ratios):.3f} (required: {FIRST}), worst {max(ratios):.2f} (required: {FIRST_WORST}) of {len(ratios)}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", default="")
    parser.add_argument("--first", type=int, nargs="?", const=5)
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--vanishing", action="store_true")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--out")
    parser.add_argument("--child", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    clock = time.process_time if given.cpu_time else time.perf_counter
    if given.child:
        print(json.dumps(first_call(PROGRAMS[given.only], given.child, given.cold, clock)))
        return 0
    kept = {"machine": environment.describe(), "clock": "processor" if given.cpu_time else "wall", "rows": {}}
    if given.vanishing:
        kept["rows"] = found = vanishing(given.rounds, clock)
        print(f"subnormal over normal activations: {spread(found['ratios'])} (required: {VANISHING}); "
              f"{statistics.median(found['normal']) * 1e3:.2f} ms normal")  # fmt: skip
    else:
        flags = ["--cold"] * given.cold + ["--cpu-time"] * given.cpu_time
        for name, program in PROGRAMS.items():
            if given.only in name:
                try:
                    found = first(program, given.first, flags) if given.first else steady(program, given.rounds, clock)
                    kept["rows"][name] = found
                    print(".", end="", flush=True, file=sys.stderr)
                except Exception as error:  # The others are still of interest.
                    print(f"\n{name}: {type(error).__name__}: {error}", flush=True)
        print(file=sys.stderr)
        if kept["rows"]:
            (report_first if given.first else report_steady)(kept["rows"])
    if given.out:
        with open(given.out, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
