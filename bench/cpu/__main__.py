"""The CPU backend beside its peers.

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
from .report import Report  # noqa: E402


def parse():
    parser = argparse.ArgumentParser(prog="python -m bench.cpu", description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="PATTERN", default="", help="only work whose name this regular expression finds")
    parser.add_argument("--quick", action="store_true", help="tiny sizes and few rounds: tries the benchmark itself")
    parser.add_argument("--rounds", type=int, metavar="N", help="paired rounds of each comparison (40; 5 with --quick)")
    parser.add_argument("--threads", type=int, metavar="N", default=2, help="threads compared with one; 1 leaves that out (2)")
    parser.add_argument("--out", type=Path, metavar="DIR",
                        help="where the results go (bench/results; build/bench-cpu with --only or --quick)")  # fmt: skip
    options = parser.parse_args()
    options.rounds = options.rounds or (5 if options.quick else 40)
    partial = options.quick or options.only or options.threads < 2
    options.out = options.out or environment.ROOT / ("build/bench-cpu" if partial else "bench/results")
    return options


def main():
    options = parse()
    size = "quick" if options.quick else "full"
    sizes = scaling.sizes_of(size)
    wanted = re.compile(options.only).search
    machine = {**environment.describe(), "mkl": peer_mkl.version()}
    report = Report(options.out.resolve(), machine, {**vars(options), "out": str(options.out)})
    report.introduce()
    curves = {}

    # Each part: what it can do under which name, and how it does what is wanted of that.
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
    for offered, run in parts:
        found = [value for name, value in offered.items() if wanted(name)]
        if found:
            run(found)
    if not report.rows and not report.failures:
        sys.exit(f"error: no work has a name in which {options.only!r} is found")
    report.conclude(plots.draw(report, curves))
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
