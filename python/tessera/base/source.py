"""The source text of a function, wherever it was written."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
import stat
import sys
from dataclasses import dataclass
from typing import Any, Callable

from .. import _core
from .caller import here
from .stale_source import is_stale


@dataclass(frozen=True)
class Source:
    """The text of a ``def`` with its decorators, and where it stands."""

    name: str
    file: str
    text: str
    line: int


def source_of(fn: Callable, given: str | None, decorator: str) -> Source:
    """The source of ``fn``; ``given`` is what the user passed as ``source=``."""
    code = getattr(fn, "__code__", None)
    if code is None:
        raise _core.error(
            "E_SYNTAX", f"expected a function after `@{decorator}`, got {type(fn).__name__}", "decorate a `def`"
        )
    if given is not None:
        return Source(fn.__name__, code.co_filename, _text(given, decorator), 1)
    if code.co_name == "<lambda>" and decorator == "ts.kernel":
        raise _core.error("E_SYNTAX", "expected a `def` after `@ts.kernel`, got a `lambda`", "a kernel has statements: write a `def`", place=here())
    if code.co_name == "<lambda>":
        return _lambda(fn, decorator)
    # A file edited since it was imported gives lines of something else.
    if is_stale(fn):
        raise _core.error(
            "E_SYNTAX",
            f"expected {code.co_filename} as it was when it was imported, got a file that has changed since: the source of `{fn.__name__}` "
            "is not what Python runs",
            "start Python again, or `importlib.reload` the module",
        )
    keep_command(code.co_filename)
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError, SyntaxError):
        raise _unavailable(fn, decorator) from None
    text = "".join(lines)
    if not re.search(rf"\bdef\s+{re.escape(code.co_name)}\b", text):
        raise _unavailable(fn, decorator)
    return Source(fn.__name__, code.co_filename, text, max(first, 1))


def _text(given: object, decorator: str) -> str:
    if isinstance(given, str):
        return given
    help = f'write `@{decorator}(source="""def f(...): ...""")`'
    raise _core.error("E_ARGUMENT", f"expected the text of a function as `source`, got {type(given).__name__}", help)


def _lambda(fn: Callable, decorator: str) -> Source:
    """A ``lambda``: its text alone, at its place in the file. Python tells the line and the parameters of a ``lambda``: there must be one such
    on the line."""
    code = fn.__code__
    keep_command(code.co_filename)
    lines = linecache.getlines(code.co_filename, fn.__globals__)
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        raise _unavailable(fn, decorator) from None
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno]
    if len(found) > 1:
        stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
        own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]
        found = [node for node in found if _names(node.args) == own]
    if not found:
        raise _unavailable(fn, decorator)
    if len(found) > 1:
        raise _core.error(
            "E_SYNTAX",
            f"expected one `lambda` on line {code.co_firstlineno}, got {len(found)}: which of them is meant is not known",
            f"put each on a line of its own, or write a function: `@{decorator}` above `def`",
            place=here(),
        )
    (node,) = found
    text = ast.get_source_segment("".join(lines), node)
    if text is None:
        raise _unavailable(fn, decorator)
    # In parentheses it may go over several lines.
    before = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
    return Source("lambda", code.co_filename, " " * (before - 1) + f"({text})", node.lineno)


def _names(args: ast.arguments) -> tuple[str, ...]:
    rest = [a for a in (args.vararg, args.kwarg) if a is not None]
    return tuple(a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs, *rest))


def keep_command(file: str) -> None:
    """Keeps the text of ``python -c`` and of ``python < file`` where `linecache` and `inspect` find it."""
    if file not in ("<string>", "<stdin>") or file in linecache.cache:
        return
    if file == "<stdin>":
        text = _standard_input()
        if text:
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        return
    given = sys.orig_argv
    at = next((i for i, word in enumerate(given) if re.fullmatch(r"-[A-Za-z]*c", word)), None)
    # The main module has no file then.
    if at is None or at + 1 >= len(given) or hasattr(sys.modules.get("__main__"), "__file__"):
        return
    text = given[at + 1]
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True) or [""], file)


def _standard_input() -> str | None:
    """The program that Python reads from standard input, if that is a file; a pipe cannot be read twice."""
    try:
        if sys.flags.interactive or not stat.S_ISREG(os.fstat(0).st_mode):
            return None
        return os.pread(0, os.fstat(0).st_size, 0).decode()
    except (OSError, AttributeError, UnicodeDecodeError):
        return None


def closure_of(fn: Callable) -> dict[str, Any]:
    """The names that ``fn`` takes from the functions around it; those not assigned yet are left out."""
    out = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            out[name] = cell.cell_contents
        except ValueError:
            pass
    return out


def _unavailable(fn: Callable, decorator: str) -> Exception:
    file = fn.__code__.co_filename
    where = " (what it reads from standard input)" if file == "<stdin>" else ""
    name = "f" if fn.__name__ == "<lambda>" else fn.__name__
    return _core.error(
        "E_SYNTAX",
        f"the source of `{fn.__name__}` is not available: Python keeps none for {file}{where}",
        f'pass it: `@{decorator}(source="""def {name}(...): ...""")`, put it into a file, or use IPython, which keeps the text',
    )
