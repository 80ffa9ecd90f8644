"""Crash reports of internal errors: a file in the folder for temporary files.

It holds versions, the platform, the location of the failure, and the call: its location and the kinds of its
arguments. It holds no contents of arrays, no texts, no source, and no environment variables but Tessera's own.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

from .. import _core

#: A program that fails over and over should not fill the disk.
_MOST = 16
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_written = 0


def write(entry: str, build: str, backtrace: str) -> str | None:
    """Writes a report that only the user can read, and gives its path."""
    import tempfile  # only here: it imports `random` and `shutil`

    global _written
    if _written >= _MOST:
        return None
    _written += 1
    frame = sys._getframe(1) if hasattr(sys, "_getframe") else None
    text = "\n\n".join([_HEAD, _versions(build), _settings(), _call(entry, frame), f"What failed:\n{backtrace}"]) + "\n"
    try:
        # Made anew, with a name that nobody can foresee, for the user alone.
        number, path = tempfile.mkstemp(prefix="tessera-report-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        return None
    return path


_HEAD = """\
Tessera failed by a fault of its own. Please attach this file to an issue, with the kernel or the function that was called
if you may share it. Look through it first: it has the names of files and functions of your program."""


def _versions(build: str) -> str:
    import platform

    lines = [f"Tessera {build}", f"Python {sys.version.split()[0]} ({platform.python_implementation()})"]
    for name in ("numpy", "torch", "jax", "cupy", "ml_dtypes"):
        module = sys.modules.get(name)
        if module is not None:
            lines.append(f"{name} {getattr(module, '__version__', 'of an unknown version')}")
    lines.append(f"{platform.platform()}, {platform.machine()}, {os.cpu_count()} processors")
    return "Versions:\n" + "\n".join(f"  {line}" for line in lines)


def _settings() -> str:
    lines = [f"  {name}={os.environ[name]!r}" for name in _core.knobs() if name in os.environ]
    return "Settings:\n" + ("\n".join(lines) or "  none")


def _call(entry: str, frame: FrameType | None) -> str:
    lines = [f"  {entry}"]
    described = False
    for _ in range(30):
        if frame is None:
            break
        code = frame.f_code
        lines.append(f"  {code.co_filename}:{frame.f_lineno} in {code.co_name}")
        # The innermost of our own functions that was called with all arguments of the user's.
        if not described and code.co_filename.startswith(_PACKAGE) and "args" in code.co_varnames:
            values = frame.f_locals.get("args")
            if isinstance(values, tuple):
                described = True
                lines += [f"    argument {number}: {_kind(value)}" for number, value in enumerate(values)]
        frame = frame.f_back
    return "The call, from the inside out:\n" + "\n".join(lines)


def _kind(value: Any) -> str:
    """A description of a value: the shape and dtype of arrays, the value of numbers."""
    try:
        kind = type(value).__name__
        if isinstance(value, (bool, int, float)):
            return f"{kind} {value!r}"[:60]
        if isinstance(value, (str, bytes)):
            return f"{kind} of length {len(value)}"
        shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        if isinstance(shape, tuple) and dtype is not None:
            return f"{kind} of {str(dtype)[:40]}, shape {shape}, strides {getattr(value, 'strides', None)}"[:300]
        return kind
    except Exception:  # an object may fail at anything
        return "a value that cannot be described"
