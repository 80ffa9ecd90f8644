"""The process that does a phase's items, one after another, and writes a line for each into a file.

It is a process of its own because some errors end the use of a GPU by a process, and some kernels never end: `run.py`
then starts another, behind the item that did it.
"""

import json
import os
import sys
import time
import traceback

from . import ledger
from .compare import Mismatch
from .device import Skip, best

#: Exit code of a process whose GPU has stopped working for it.
LOST = 3


def main(options):
    device = best(options.dry_run)
    found = items(options, device)
    mine = list(enumerate(found))[options.begin :]
    with open(options.rows, "w", encoding="utf-8", buffering=1) as out:

        def write(**line):
            out.write(json.dumps(line) + "\n")

        write(device=device.describe(), items=len(found))
        for number, item in mine:
            if number % options.jobs != options.job:
                continue
            if time.time() > options.until:
                write(begin=number, name=item.name)
                write(row={"status": "time", "name": item.name})
                continue
            write(begin=number, name=item.name)
            if options.marks:
                from .sanitize import MARK

                print(f"{MARK}{item.name}", flush=True)
            rows = one(item)
            for row in rows:
                write(row=row)
            if any(row["status"] in ("error", "fail") for row in rows) and not device.alive():
                write(row={"status": "error", "name": item.name, "why": "the GPU no longer works for this process"})
                out.flush()
                # Without the usual end, in which libraries would talk to the GPU.
                os._exit(LOST)
        write(done=True)


def items(options, device):
    """All items of the phase, always in the same order."""
    from . import bench, check, launch

    if options.worker == "check":
        found = check.items(device, options.seed, exact=options.tiny and device.is_cuda, tiny=options.tiny)
    elif options.worker == "bench":
        about = {name: device.describe()[name] for name in ("gpu", "driver")} | {"commit": options.commit}
        found = bench.items(device, options.seed, options.rounds, bool(options.ledger), about)
    else:
        found = launch.items(device, options.seed)
    return check.wanted(found, options.only)


def one(item):
    """The rows of an item, whatever happens in it."""
    start = time.perf_counter()
    try:
        figures = item.run() or {}
        rows = figures.pop("rows", None) or [{"status": "pass", **figures}]
    except Skip as skip:
        rows = [{"status": "skip", "why": str(skip)}]
    except Exception as error:
        status = "fail" if isinstance(error, Mismatch) or type(error).__name__ == "Damage" else "error"
        told = str(error) if status == "fail" else f"{type(error).__name__}: {ledger.first_line(error)}"
        rows = [{"status": status, "why": told, "trace": "".join(traceback.format_exception(error))[-4000:]}]
    seconds = round(time.perf_counter() - start, 3)
    return [{"name": item.name, "seconds": seconds, **row} for row in rows]


if __name__ == "__main__":
    sys.exit("run gpu/run.py")
