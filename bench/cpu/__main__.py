"""The CPU backend compared with MKL, NumPy and XLA.

    make bench-cpu
    make bench-cpu BENCH="--only softmax --rounds 60"
"""

# The environment is set before NumPy, MKL and XLA are loaded, for they read it once.
from . import environment

environment.use_one_core()

import argparse  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from . import cases, compare, fresh, growth, launch, peer_mkl, plots, scaling  # noqa: E402
from .report import LEAST_ROUNDS, Report  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(prog="python -m bench.cpu", description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--only", metavar="PATTERN", default="", help="only work in whose name this regular expression is found, "
           "such as 'bf16 gemm', 'scaling', 'launch', 'compile attention', 'memory', 'growth saxpy'")  # fmt: skip
    option("--quick", action="store_true", help="tiny sizes and few rounds: tries the benchmark itself")
    option("--rounds", type=int, metavar="N", help=f"rounds of each comparison ({LEAST_ROUNDS}; 5 with --quick)")
    option("--threads", type=int, metavar="N", default=2, help="threads compared with one (2); 1 leaves that out")
    option("--out", type=Path, metavar="DIR", help="where the results go (bench/results; build/bench-cpu where the run "
           "is not a whole one)")  # fmt: skip
    options = parser.parse_args()
    options.rounds = options.rounds or (5 if options.quick else LEAST_ROUNDS)
    partial = options.quick or options.only or options.threads < 2
    options.out = options.out or environment.ROOT / ("build/bench-cpu" if partial else "bench/results")
    return options


def main():
    options = parse()
    size = "quick" if options.quick else "full"
    sizes = scaling.sizes_of(size)
    wanted = re.compile(options.only).search
    machine = {**environment.describe(), "mkl": peer_mkl.version()}
    report = Report(options.out.resolve(), machine, {**vars(options), "out": options.out.name})
    curves = {}

    # Each part: its works by name, and a function that runs the requested ones.
    compared = {case.name: case for case in cases.compared(sizes)}
    scaled = {f"scaling {case.name}": case.name for case in cases.scaled(sizes)} if options.threads > 1 else {}
    parts = [
        (compared, lambda found: compare.run(report, found, options.rounds)),
        (scaled, lambda found: scaling.run(report, found, options.threads, options.rounds, size)),
        ({name: name for name in launch.WORKS}, lambda found: launch.run(report, found, options.rounds)),
        ({f"compile {w}": w for w in fresh.COMPILE_BUDGETS_MS},
         lambda found: fresh.run_compile(report, found, size, 2 if options.quick else 7)),
        ({f"memory {w}": w for w in fresh.MEMORY_WORKS}, lambda found: fresh.run_memory(report, found, size)),
        ({f"growth {w}": w for w in growth.WORKS},
         lambda found: curves.update(growth.run(report, found, sizes, 5 if options.quick else 50))),
    ]  # fmt: skip
    chosen = [([value for name, value in offered.items() if wanted(name)], run) for offered, run in parts]
    if not any(found for found, _ in chosen):
        sys.exit(f"error: there is no work in whose name {options.only!r} is found")
    report.introduce()
    for found, run in chosen:
        if found:
            run(found)
    report.conclude(plots.draw(report, curves))
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
