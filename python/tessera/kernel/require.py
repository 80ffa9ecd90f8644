"""``ts.require(...)`` at the top of a kernel's body: constraints that are read at decoration."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import replace
from typing import Any, Callable

from .. import _core
from ..base.errors import TesseraError
from ..base.source import Source, closure_of
from .builtins import outside


def require(*constraints: Any) -> None:
    """At the top of a kernel: what its dims must satisfy, such as ``ts.constraint.Divisible("K", 64)``."""
    raise outside("ts.require")


def take(fn: Callable, source: Source) -> tuple[Source, list[Any]]:
    """The constraints at the top of the body, and the source without them.

    They are Python, evaluated now, and not part of the tile language; the statements become
    ``pass``, so that everything else keeps its line.
    """
    if "require" not in source.text:
        return source, []
    try:
        tree = ast.parse(textwrap.dedent(source.text))
    except SyntaxError:  # the compiler says it better
        return source, []
    found: list[Any] = []
    text = source.text
    scope = {**fn.__globals__, **closure_of(fn)}
    for statement in _top(tree):
        call = statement.value
        try:
            if _value(call.func, scope) is not require:
                continue
        except (NameError, AttributeError):  # the compiler says it better
            continue
        for argument in call.args:
            value = _argument(argument, scope, source)
            found.extend(value if isinstance(value, (list, tuple)) else [value])
        text = _blank(text, statement.lineno, statement.end_lineno or statement.lineno)
    return replace(source, text=text), found


def _argument(expression: ast.expr, scope: dict[str, Any], source: Source) -> Any:
    """The value of a constraint; a Python exception becomes an error at its line."""
    try:
        return _value(expression, scope)
    except TesseraError:
        raise
    except Exception as e:
        code = "E_NAME" if isinstance(e, (NameError, AttributeError)) else "E_TYPE"
        text, line = ast.unparse(expression), source.line + expression.lineno - 1
        help = 'write `ts.require(ts.constraint.Divisible("K", 64))`, with names of the module or of functions around the kernel'
        raise _core.error(code, f"the constraint `{text}`: {e}", help, source.file, line) from None


def _value(expression: ast.expr, scope: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(expression), "<require>", "eval"), scope)


def _top(tree: ast.Module) -> list[Any]:
    """The calls of ``require`` before any statement other than the docstring."""
    out = []
    body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.FunctionDef) else []
    for statement in body:
        value = statement.value if isinstance(statement, ast.Expr) else None
        if isinstance(value, ast.Constant):
            continue
        last = getattr(getattr(value, "func", None), "attr", None) or getattr(getattr(value, "func", None), "id", None)
        if last != "require":
            break
        out.append(statement)
    return out


def _blank(text: str, first: int, last: int) -> str:
    lines = text.split("\n")
    for number in range(first - 1, last):
        indent = len(lines[number]) - len(lines[number].lstrip())
        lines[number] = lines[number][:indent] + "pass" if number == first - 1 else ""
    return "\n".join(lines)
