"""The command ``tessera``: ``doctor``, ``run``, ``ir``, ``check``, ``layout``, ``tune``, ``prof`` and ``cache``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import _core
from ..base.errors import TesseraError
from . import profile_cli, run_cli, tune_cli
from .cache import clear_cache, list_cache
from .doctor import doctor
from .arguments import Failure, kernel_of, load_or_fail, value_of

EPILOG = "FILE is a Python file. `python -m tessera` is the same command."

LAYOUTS = "a text as in Staged IR, `coalesced`, `mma_acc`, `mma_a`, `mma_b`, or `shared` and a text"
#: The compiler reads and checks the values.
LAYOUT_OPTIONS = (
    ("shape", "64x32", "of the tile; of the accumulator, for mma_*"),
    ("contiguous", "DIM", "coalesced: whose elements are neighbours in memory; the last by default"),
    ("vector", "N", "coalesced: the most elements of one access; 8 by default"),
    ("warps", "N", "4 by default; mma_*: along rows and columns, 2x2 by default"),
    ("ctas", "N", "coalesced: the ctas of a cluster; 1 by default"),
    ("cta-dim", "DIM", "coalesced: which dim ctas divide; without it they hold copies"),
    ("blocks", None, "mma_*: each warp has one block of the tile, as in matmuls; else warps take turns"),
    ("k", "N", "mma_a, mma_b: the extent that is summed; 32 by default"),
    ("bits", "N", "mma_*: of an operand's element: 4, 8, 16 (the default), 32, or 64"),
    ("bytes", "N", "of an element, for shared memory and for costs"),
    ("convert", "TEXT", "another layout: how data would go there; for `shared`, who accesses it"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; gives the exit status."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except Failure as e:
        print(f"error: {e}", file=sys.stderr)
        return 2
    except TesseraError as e:
        print(e, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # The reader closed the pipe (`| head`). The rest of the output is dropped, also at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as e:
        print(f"error: {e.filename or 'a file'}: {e.strerror or e}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser("tessera", description="Tools for Tessera kernels.", epilog=EPILOG)
    top.add_argument("--version", action="version", version=f"tessera {_core.__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    one = commands.add_parser("doctor", help="what is installed here, and whether a kernel runs")
    one.set_defaults(run=lambda options: doctor(sys.stdout))

    run_cli.add(commands)
    one = commands.add_parser("ir", help="the text of a kernel at an IR level")
    one.add_argument("kernel", metavar="FILE.py:KERNEL")
    one.add_argument("values", nargs="*", metavar="NAME=VALUE", help="dims, tunables and constants to compile for")
    one.add_argument("--level", default="tile", help="graph, schedule, tile (the default), staged or target")
    one.add_argument("--target", help="a backend, or an architecture such as sm90, to compile for; no device is needed")
    one.add_argument("--locs", action="store_true", help="print where each op stands in the source")
    one.set_defaults(run=print_ir)

    one = commands.add_parser("check", help="report the errors of all kernels of a file")
    one.add_argument("file", metavar="FILE.py")
    one.set_defaults(run=check_file)

    one = commands.add_parser("layout", help="draws which thread holds which element of a tile")
    one.add_argument("layout", nargs="*", metavar="LAYOUT", help=LAYOUTS)
    for name, value, what in LAYOUT_OPTIONS:
        kind = {"metavar": value} if value else {"action": "store_const", "const": ""}
        one.add_argument(f"--{name}", help=what, **kind)
    one.set_defaults(run=print_layout)

    one = commands.add_parser("cache", help="the compiled kernels that are kept on disk")
    what = one.add_subparsers(title="what to do", metavar="ls|clear", required=True)
    one = what.add_parser("ls", help="list them, last used first")
    one.add_argument("--json", action="store_true", help="as JSON")
    one.set_defaults(run=lambda options: list_cache(options.json))
    one = what.add_parser("clear", help="remove them")
    one.set_defaults(run=lambda options: clear_cache())
    tune_cli.add(commands)
    profile_cli.add(commands)
    return top


def check_file(options: argparse.Namespace) -> int:
    loaded = load_or_fail(options.file)
    for name in loaded.kernels:
        print(f"ok      {name}")
    for name, error in loaded.errors:
        print(f"failed  {name}\n{error}\n")
    if loaded.stopped:
        print(f"the file could not be run to its end:\n{loaded.stopped}")
    kernels = len(loaded.kernels) + len(loaded.errors)
    wrong = f"{len(loaded.errors)} with errors" if loaded.errors else "no errors"
    print(f"{kernels} kernel{'s' * (kernels != 1)}, {wrong}")
    return 1 if loaded.errors or loaded.stopped else 0


def print_ir(options: argparse.Namespace) -> int:
    kernel = kernel_of(options.kernel)
    values = dict(value_of(item) for item in options.values)
    try:
        subject = kernel.jit(target=options.target, **values) if values or options.target else kernel
        print(subject.inspect_ir(options.level, options.locs), end="")
    except TesseraError:
        raise  # Some are a `ValueError` too.
    except ValueError as e:
        raise Failure(e) from None
    return 0


def print_layout(options: argparse.Namespace) -> int:
    given = [(name, getattr(options, name.replace("-", "_"))) for name, _, _ in LAYOUT_OPTIONS]
    print(_core.layout_text(options.layout, [(name, text) for name, text in given if text is not None]), end="")
    return 0
