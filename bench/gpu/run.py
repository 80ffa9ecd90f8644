"""Times our kernels and their peers, and launch overhead, on an NVIDIA GPU. See docs/perf/nvidia.md.

    scripts/gpu-extension.sh                                                     here: builds build/gpu
    PYTHONPATH=build/gpu python3 -m bench.gpu.run --out $OUT/run.jsonl           there
    PYTHONPATH=build/gpu python3 -m bench.gpu.run --what bench --only softmax --ledger $OUT/ledger.jsonl
    .venv/bin/python -m bench.gpu.run --dry-run                on the host, without a GPU
"""

import sys
from pathlib import Path

from gpurun import run
from ledger import ledger

from . import kernels, launch_overhead


def _kernels(options, device):
    about = {name: device.describe()[name] for name in ("gpu", "driver")} | {"commit": options.commit}
    rounds = options.rounds or (6 if options.dry_run else 60)
    return kernels.items(device, options.seed, rounds, bool(options.ledger), about)


def _launches(options, device):
    return launch_overhead.items(device, options.seed)


def _options(parser):
    parser.add_argument("--rounds", type=int, metavar="N", help="pairs of samples of each comparison (60)")
    parser.add_argument("--ledger", type=Path, nargs="?", const=ledger.LEDGER, metavar="FILE",
                        help="also add rows of the ledger to this file (ledger/ledger.jsonl)")  # fmt: skip


def _arguments(options):
    rounds = ["--rounds", options.rounds] if options.rounds else []
    return [*rounds, *(["--ledger"] if options.ledger else [])]


PROGRAM = run.Program(
    "bench.gpu.run",
    __doc__.splitlines()[0],
    {"bench": run.Phase(150, _kernels, silence=75), "launch": run.Phase(90, _launches)},
    _options,
    _arguments,
)


def main():
    options = run.parse(PROGRAM)
    if options.dry_run and options.ledger == ledger.LEDGER and not options.worker:
        sys.exit("error: a trial run writes nothing into the ledger: name another file")
    rows = []
    failed = run.main(PROGRAM, options, lambda found: rows.extend(row.pop("ledger") for row in found if "ledger" in row))
    if options.ledger and not options.worker:
        ledger.save(ledger.merged(ledger.load(options.ledger), rows), options.ledger)
        print(f"{len(rows)} rows for the ledger in {options.ledger}")
    return failed


if __name__ == "__main__":
    sys.exit(main())
