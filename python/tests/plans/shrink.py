"""Shrinks a failing program."""

from __future__ import annotations

import ast
import time
from collections.abc import Callable

from .values import Case


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float = 30) -> Case:
    """Drops results and statements, puts parts in the place of expressions and values in the place of each other, while the
    program still fails, for as many seconds of processor time."""
    until = time.process_time() + seconds
    best = case.with_text(ast.unparse(ast.parse(case.text)))
    tried: set[str] = set()

    def attempt(tree: ast.Module) -> Case | None:
        text = ast.unparse(ast.fix_missing_locations(tree))
        if text in tried:
            return None
        tried.add(text)
        trial = best.with_text(text)
        try:
            return trial if fails(trial) else None
        except Exception:
            return None

    progress = True
    while progress and time.process_time() < until:
        progress = False
        for change in (_result, _drop, _alias, _part):
            place = 0
            while time.process_time() < until:
                tree = ast.parse(best.text)
                if not change(tree, place):
                    break
                found = attempt(tree)
                if found is None:
                    place += 1
                else:
                    best, progress = found, True
    return best


def _result(tree: ast.Module, place: int) -> bool:
    """One result of ``f`` less: the halves first."""
    value = tree.body[-1].body[-1].value  # type: ignore[attr-defined]
    if not isinstance(value, ast.Tuple) or len(value.elts) < 2 or place >= len(value.elts) + 2:
        return False
    half = len(value.elts) // 2
    if place < 2:
        value.elts = value.elts[:half] if place else value.elts[half:]
    else:
        del value.elts[place - 2]
    return True


def _bodies(tree: ast.AST) -> list[list[ast.stmt]]:
    return [node.body for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _drop(tree: ast.Module, place: int) -> bool:
    """One statement less, the last ones first."""
    for body in _bodies(tree):
        if place < len(body) - 1:
            del body[len(body) - 2 - place]
            return True
        place -= len(body) - 1
    return False


def _alias(tree: ast.Module, place: int) -> bool:
    """``v = w`` goes, and ``w`` is used."""
    for body in _bodies(tree):
        for k, node in enumerate(body):
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Constant)) and isinstance(node.targets[0], ast.Name):
                if place == 0:
                    old, new = node.targets[0].id, node.value
                    del body[k]

                    class Rename(ast.NodeTransformer):
                        def visit_Name(self, name: ast.Name) -> ast.expr:
                            return new if name.id == old else name

                    Rename().visit(tree)
                    return True
                place -= 1
    return False


def _part(tree: ast.Module, place: int) -> bool:
    """An expression's part in its place."""
    counted = _counting(tree)
    for node in ast.walk(tree):
        if node in counted:
            continue
        for name, value in ast.iter_fields(node):
            values = value if isinstance(value, list) else [value]
            for k, child in enumerate(values):
                if child in counted or not isinstance(child, (ast.BinOp, ast.Call, ast.Compare, ast.UnaryOp, ast.Subscript)):
                    continue
                parts = [c for c in ast.iter_child_nodes(child) if isinstance(c, ast.expr) and not isinstance(c, (ast.Constant, ast.Attribute))]
                if isinstance(child, ast.Call) and isinstance(child.func, ast.Attribute) and not isinstance(child.func.value, ast.Name):
                    parts.append(child.func.value)
                if place < len(parts):
                    if isinstance(value, list):
                        value[k] = parts[place]
                    else:
                        setattr(node, name, parts[place])
                    return True
                place -= len(parts)
    return False


def _counting(tree: ast.Module) -> set[ast.AST]:
    """What ends the loops: tests, and the counters that they look at. Without them a loop would go on for ever."""
    out: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("t"):
            out.update(ast.walk(node))
        if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Name) and node.left.id.startswith("i") and isinstance(node.right, ast.Constant):
            out.add(node)
    return out
