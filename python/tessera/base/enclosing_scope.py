"""Which names the scope around a function binds after it."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

#: By the name of the file, with what was known of it: a notebook or `exec` may give a name twice.
_parsed: dict[str, tuple[object, str, ast.Module | None]] = {}
#: How many are cached: a syntax tree is much larger than its text.
MOST_PARSED = 16

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def binds_later(code: CodeType, module: dict[str, Any], name: str) -> bool:
    """Whether the module or the class around a function binds ``name`` below the function.

    Names that enclosing functions bind are in its closure already."""
    text, tree = _tree(code.co_filename, module)
    if tree is None or not re.search(rf"\b{re.escape(name)}\b|\*", text):
        return False
    scopes: list[ast.AST] = [tree]
    found = _scopes(tree, code, scopes)
    line = code.co_firstlineno if found is None else found.end_lineno or found.lineno
    owner = scopes[-1] if isinstance(scopes[-1], ast.ClassDef) else None
    if owner is not None and _binds(owner.body, name, line):
        return True
    return _binds(tree.body, name, line) or "global" in text and _by_global(tree, name)


def kept() -> dict[str, dict[str, int]]:
    """Modules that are kept parsed: entries, and bytes of their text."""
    return {"parsed": {"entries": len(_parsed), "bytes": sum(len(text) for _, text, _ in _parsed.values())}}


def _tree(file: str, module: dict[str, Any]) -> tuple[str, ast.Module | None]:
    lines = linecache.getlines(file, module)
    known = _parsed.get(file)
    mark = linecache.cache.get(file)
    if known is None or known[0] is not mark:
        text = "".join(lines)
        try:
            tree = ast.parse(text) if text else None
        except (SyntaxError, ValueError):
            tree = None
        _parsed.pop(file, None)
        if len(_parsed) >= MOST_PARSED:
            _parsed.pop(next(iter(_parsed), None), None)  # another thread may have done it
        known = _parsed[file] = (mark, text, tree)
    return known[1], known[2]


def _scopes(node: ast.AST, code: CodeType, around: list[ast.AST]) -> ast.FunctionDef | None:
    """The definition that ``code`` is of; ``around`` is left with the modules, classes and functions around it."""
    for child in ast.iter_child_nodes(node):
        if getattr(child, "end_lineno", code.co_firstlineno) < code.co_firstlineno:
            continue  # it ends before
        if isinstance(child, ast.FunctionDef) and child.name == code.co_name:
            if min([child.lineno, *(d.lineno for d in child.decorator_list)]) == code.co_firstlineno:
                return child
        opens = isinstance(child, (ast.ClassDef, *_FUNCTIONS))
        if opens:
            around.append(child)
        found = _scopes(child, code, around)
        if found is not None:
            return found
        if opens:
            around.pop()
    return None


def _binds(body: Iterable[ast.AST], name: str, after: int) -> bool:
    return any(end > after and bound in (name, "*") for bound, end in _bound(body))


def _bound(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, float]]:
    """The names that statements bind in their own scope, and the lines after which they have their values."""
    for node in nodes:
        end: float = getattr(node, "end_lineno", None) or getattr(node, "lineno", 0)
        if isinstance(node, ast.ClassDef):
            # Its name has a value after its last line, which may be the last line of a function in it.
            yield node.name, end + 0.5
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, end
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], end
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, end
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name, end
        elif isinstance(node, (ast.MatchAs, ast.MatchStar)) and node.name:
            yield node.name, end
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest, end
        yield from _bound(ast.iter_child_nodes(node))


def _by_global(tree: ast.Module, name: str) -> bool:
    """Whether a function says ``global name`` and binds it, whenever it is called."""
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            said = any(isinstance(s, ast.Global) and name in s.names for s in ast.walk(function))
            if said and any(bound == name for bound, _ in _bound(function.body)):
                return True
    return False
