"""``tessera prof``: runs a program and shows what its kernels did."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path
from typing import Any

from .arguments import Failure
from .profiler import profile


def add(commands: Any) -> None:
    """Puts the command among the others."""
    one = commands.add_parser("prof", help="runs a Python program and shows what its kernels did")
    one.add_argument("--top", type=int, default=20, metavar="N", help="how many lines of the table; 20 by default")
    one.add_argument("--trace", metavar="PATH", help="write a trace for chrome://tracing or ui.perfetto.dev")
    one.add_argument("--no-roofline", action="store_true", help="do not measure what the device reaches")
    one.add_argument("file", metavar="FILE.py")
    one.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program")
    one.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """The exit status is the program's. The profile is printed also where the program failed."""
    path = Path(options.file)
    if not path.is_file():
        raise Failure(f"cannot read {options.file}: no such file")
    before, code = (sys.argv[:], sys.path[:]), 0
    sys.argv, sys.path[0] = [options.file, *options.arguments], str(path.resolve().parent)
    seen = profile()
    try:
        with seen:
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    finally:
        sys.argv, sys.path[:] = before
        print(seen.table(options.top, not options.no_roofline))
        if options.trace:
            seen.save(options.trace)
            print(f"trace: {options.trace}")
    return code
