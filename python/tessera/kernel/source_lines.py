"""Lines of a kernel's source: which statement is there, and what it assigns."""

from __future__ import annotations

import ast
import linecache
import os
from dataclasses import dataclass
from typing import Any, Iterator


@dataclass(frozen=True)
class Statement:
    """The lines of a statement without the statements inside it, and the names it assigns."""

    first: int
    last: int
    names: tuple[str, ...]


def statements(text: str, first_line: int) -> list[Statement]:
    """Every statement of a function's source, in order."""
    lines = text.split("\n")
    # Indented source is a block of something: with a head it is a file.
    indented = bool(lines[0][:1].isspace())
    source = f"if True:\n{text}" if indented else text
    shift = first_line - (2 if indented else 1)
    return list(_walk(ast.parse(source), shift))


def _walk(node: ast.AST, shift: int) -> Iterator[Statement]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            first, last = child.lineno, child.end_lineno or child.lineno
            inner = getattr(child, "body", None)
            if isinstance(inner, list) and inner:
                last = max(first, min(s.lineno for s in inner) - 1)
            if not isinstance(child, ast.FunctionDef):
                yield Statement(first + shift, last + shift, tuple(_assigned(child)))
        yield from _walk(child, shift)


def _assigned(statement: ast.stmt) -> Iterator[str]:
    targets: list[Any] = []
    if isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign, ast.For)):
        targets = [statement.target]
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def same_file(known: str, given: str) -> bool:
    """Whether ``given``, as a user writes it, means the file that the compiler calls ``known``."""
    return known == given or os.path.basename(known) == given or known.endswith(os.sep + given)


def source_line(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()
