"""The worker process of a phase: runs its items one after another and writes a line for each into a file.

It is a separate process because some errors make the GPU unusable for a process, and some kernels never end. `run.py` then
starts another worker after the item that failed.
"""

import json
import os
import time
import traceback

from .compare import Mismatch
from .device import Skip, best
from .items import first_line, wanted

#: Exit code of a process that can no longer use the GPU.
LOST = 3
#: Printed before the name of an item when a tool such as compute-sanitizer runs the process.
MARK = "@@ item "


def main(options, items):
    """Runs this process's share of `items(options, device)`."""
    device = best(options.dry_run)
    found = wanted(items(options, device), options.only)
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
                print(f"{MARK}{item.name}", flush=True)
            rows = one(item)
            for row in rows:
                write(row=row)
            if any(row["status"] in ("error", "fail") for row in rows) and not device.alive():
                write(row={"status": "error", "name": item.name, "why": "the GPU no longer works for this process"})
                out.flush()
                # No normal exit: libraries would use the GPU again.
                os._exit(LOST)
        write(done=True)


def one(item):
    """The rows of an item. No exception leaves it."""
    start = time.perf_counter()
    try:
        figures = item.run() or {}
        rows = figures.pop("rows", None) or [{"status": "pass", **figures}]
    except Skip as skip:
        rows = [{"status": "skip", "why": str(skip)}]
    except Exception as error:
        status = "fail" if isinstance(error, Mismatch) else "error"
        why = str(error) if status == "fail" else f"{type(error).__name__}: {first_line(error)}"
        rows = [{"status": status, "why": why, "trace": "".join(traceback.format_exception(error))[-4000:]}]
    seconds = round(time.perf_counter() - start, 3)
    return [{"name": item.name, "seconds": seconds, **row} for row in rows]
