"""Detects stale source: a file that was edited after Python compiled a function from it."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType
from typing import Any, Callable

#: Files that are kept compiled.
MOST_FILES = 16
#: By the name of a file: what was known of it, and the functions of its text by name and first line.
_compiled: dict[str, tuple[object, dict[tuple[str, int], list[tuple]]]] = {}


def is_stale(fn: Callable) -> bool:
    """Whether the file of a function has changed since it was imported. Only code that Python itself compiled from a file is
    checked: the code of import hooks and notebooks is not what the text compiles to."""
    code, module = fn.__code__, fn.__globals__
    file = code.co_filename
    if not _is_plain(module, file):
        return False
    known = _functions(file, module)
    if known is None:
        return True
    same = known.get((code.co_name, code.co_firstlineno), [])
    return _marks(code) not in same


def _is_plain(module: dict[str, Any], file: str) -> bool:
    if module.get("__file__") != file or not os.path.isfile(file):
        return False
    spec = module.get("__spec__")
    # A module that is being imported was read a moment ago; a script runs for as long as it runs.
    if getattr(spec, "_initializing", False):
        return False
    loader = module.get("__loader__") if spec is None else spec.loader
    return type(loader) is SourceFileLoader


def _functions(file: str, module: dict[str, Any]) -> dict[tuple[str, int], list[tuple]] | None:
    """The functions of a file as it is now; None where it is no Python any more."""
    linecache.checkcache(file)
    lines = linecache.getlines(file, module)
    mark = linecache.cache.get(file)
    found = _compiled.get(file)
    if found is None or found[0] is not mark:
        try:
            whole = compile("".join(lines), file, "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return None
        table: dict[tuple[str, int], list[tuple]] = {}
        for code in _inside(whole):
            table.setdefault((code.co_name, code.co_firstlineno), []).append(_marks(code))
        _compiled.pop(file, None)
        if len(_compiled) >= MOST_FILES:
            _compiled.pop(next(iter(_compiled), None), None)  # another thread may have done it
        found = _compiled[file] = mark, table
    return found[1]


def _inside(code: CodeType) -> Iterator[CodeType]:
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield const
            yield from _inside(const)


def _marks(code: CodeType) -> tuple:
    """A fingerprint of a function: equal for two that do the same, at any lines."""
    consts = tuple(map(_const, code.co_consts))
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_code, consts, names, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount


def _const(c: object) -> object:
    """A constant as itself: `1`, `1.0` and `True` are equal, and sets have no order."""
    if isinstance(c, CodeType):
        return _marks(c)
    if isinstance(c, tuple):
        return tuple(map(_const, c))
    if isinstance(c, frozenset):
        return frozenset(map(_const, c))
    return type(c), repr(c)
