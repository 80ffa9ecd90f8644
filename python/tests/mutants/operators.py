"""The faults that a Python module can have, as changes of its syntax tree.

Left out is what no test could or should notice: annotations, docstrings, the texts of errors, `__all__`, `__slots__`.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from dataclasses import dataclass
from typing import Any, Callable, Iterator

COMPARES = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}  # fmt: skip
#: Names whose values are no behaviour of the module.
NAMES = {"__all__", "__slots__", "__doc__"}


@dataclass(frozen=True)
class Mutant:
    """`at` counts the faults of a module; `in_function`: whether only the code of one function differs."""

    module: str
    at: int
    place: str
    line: int
    operator: str
    before: str
    after: str
    nth: int
    in_function: bool

    @property
    def name(self) -> str:
        """Stays the same when lines move."""
        return f"{self.module}:{self.place}: {self.before} -> {self.after}" + (f" (#{self.nth + 1})" if self.nth else "")


@dataclass
class Site:
    node: ast.AST
    place: str
    operator: str
    in_function: bool
    #: What the node becomes.
    made: Callable[[], ast.AST]
    put: Callable[[ast.AST], None]
    #: What is shown of it: a number alone would say little.
    around: ast.AST | None = None


def mutants(module: str, source: str) -> list[Mutant]:
    found, seen = [], Counter()
    for at, site in enumerate(_sites(ast.parse(source))):
        around = site.around or site.node
        before = _text(around)
        if around is site.node:
            after = _text(site.made())
        else:
            site.put(site.made())
            after = _text(around)
            site.put(site.node)
        nth = seen[site.place, before, after]
        seen[site.place, before, after] += 1
        found.append(Mutant(module, at, site.place, site.node.lineno, site.operator, before, after, nth, site.in_function))
    return found


def mutated(source: str, at: int) -> ast.Module:
    """The module with its fault of this number."""
    tree = ast.parse(source)
    site = next(site for i, site in enumerate(_sites(tree)) if i == at)
    made = ast.copy_location(site.made(), site.node)
    site.put(made)
    return ast.fix_missing_locations(tree)


def _text(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 100 else f"{text[:70]} … {text[-27:]}"


def _sites(tree: ast.Module) -> Iterator[Site]:
    yield from _Walk().body(tree.body, "", False, docstring=True)


class _Walk:
    #: The expressions and simple statements around the node that is looked at.
    around: list

    def __init__(self) -> None:
        self.around = []

    def body(self, body: list, place: str, inside: bool, docstring: bool = False) -> Iterator[Site]:
        for i, statement in enumerate(body):
            if docstring and i == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            simple = not hasattr(statement, "body")
            self.around += [statement] * simple
            yield from self.statement(statement, lambda new, i=i: body.__setitem__(i, new), place, inside)
            del self.around[len(self.around) - simple :]

    def statement(self, node: ast.stmt, put: Callable, place: str, inside: bool) -> Iterator[Site]:
        def site(operator: str, made: Callable[[], ast.AST]) -> Site:
            return Site(node, place or "<module>", operator, inside, made, put)

        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = f"{place}.{node.name}" if place else node.name
            for field in ("decorator_list", "bases"):
                yield from self.children(node, field, inner, inside)
            is_function = not isinstance(node, ast.ClassDef)
            if is_function:
                for field in ("defaults", "kw_defaults"):
                    yield from self.children(node.args, field, inner, inside)
            yield from self.body(node.body, inner, inside or is_function, docstring=True)
            return
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Pass)):
            return
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id in NAMES for t in node.targets):
            return
        if inside:
            if isinstance(node, (ast.Raise, ast.AugAssign, ast.Assert, ast.Delete)) or isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                yield site("remove a statement", ast.Pass)
            if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name):
                yield site("remove a statement", ast.Pass)
            if isinstance(node, ast.Return) and node.value is not None and not _is(node.value, None):
                yield site("return None", lambda: ast.Return(ast.Constant(None)))
            if isinstance(node, ast.Break):
                yield site("break to continue", ast.Continue)
            if isinstance(node, ast.Continue):
                yield site("continue to break", ast.Break)
        if isinstance(node, ast.Raise):
            return  # what an error says is checked elsewhere
        if isinstance(node, (ast.If, ast.While)):
            if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                return
            yield from self.negated(node, "test", place, inside)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "type_comment", "returns"):
                continue
            if field in ("body", "orelse", "finalbody") and isinstance(value, list):
                yield from self.body(value, place, inside)
            elif field == "handlers":
                for handler in value:
                    yield from self.body(handler.body, place, inside)
            elif field == "cases":
                for case in value:
                    yield from self.children(case, "guard", place, inside)
                    yield from self.body(case.body, place, inside)
            else:
                yield from self.children(node, field, place, inside)

    def negated(self, node: ast.AST, field: str, place: str, inside: bool) -> Iterator[Site]:
        """A condition that is no comparison, which has a fault of its own."""
        test = getattr(node, field)
        if isinstance(test, ast.Compare) and len(test.ops) == 1 or isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return
        if isinstance(test, ast.Constant):
            return
        yield Site(test, place or "<module>", "negate a condition", inside, lambda: ast.UnaryOp(ast.Not(), copy.deepcopy(test)),
                   lambda new: setattr(node, field, new))  # fmt: skip

    def children(self, node: ast.AST, field: str, place: str, inside: bool) -> Iterator[Site]:
        value = getattr(node, field, None)
        if isinstance(value, list):
            for i, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from self.node(item, lambda new, i=i: value.__setitem__(i, new), place, inside)
        elif isinstance(value, ast.AST):
            yield from self.node(value, lambda new: setattr(node, field, new), place, inside)

    def node(self, node: ast.AST, put: Callable, place: str, inside: bool) -> Iterator[Site]:
        def site(operator: str, made: Callable[[], ast.AST]) -> Site:
            around = self.around[-1] if isinstance(node, ast.Constant) and self.around else None
            return Site(node, place or "<module>", operator, inside, made, put, around)

        def changed(**fields: Any) -> ast.AST:
            made = copy.deepcopy(node)
            for name, value in fields.items():
                setattr(made, name, value)
            return made

        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "fail":
            return
        if isinstance(node, (ast.JoinedStr, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)):
            return
        if isinstance(node, ast.Compare):
            for i, op in enumerate(node.ops):
                other = COMPARES[type(op)]
                yield site("swap a comparison", lambda i=i, other=other: changed(ops=[*node.ops[:i], other(), *node.ops[i + 1 :]]))
                if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) and len(node.ops) == 1:
                    yield site("negate a comparison", lambda: ast.UnaryOp(ast.Not(), copy.deepcopy(node)))
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not _is_text(node):
            other = ARITHMETIC[type(node.op)]
            yield site("swap an operator", lambda: changed(op=other()))
        if isinstance(node, ast.BoolOp):
            other_op = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield site("and to or", lambda: changed(op=other_op()))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
            yield site("drop a sign", lambda: copy.deepcopy(node.operand))
        if isinstance(node, ast.IfExp):
            yield site("swap a choice", lambda: changed(body=copy.deepcopy(node.orelse), orelse=copy.deepcopy(node.body)))
        if isinstance(node, ast.Constant):
            value = node.value
            if isinstance(value, bool):
                yield site("other truth", lambda: changed(value=not value))
            elif isinstance(value, int):
                yield site("one more", lambda: changed(value=value + 1))
                yield site("one less", lambda: changed(value=value - 1))
            elif isinstance(value, float):
                yield site("one more", lambda: changed(value=value + 1.0))
        if isinstance(node, ast.comprehension):
            for i, test in enumerate(node.ifs):
                yield Site(test, place or "<module>", "drop a filter", inside, lambda: ast.Constant(True),
                           lambda new, i=i: node.ifs.__setitem__(i, new))  # fmt: skip
        if isinstance(node, ast.Lambda):
            for field in ("defaults", "kw_defaults"):
                yield from self.children(node.args, field, place, inside)
            yield from self.children(node, "body", place, True)
            return
        shown = isinstance(node, (ast.Call, ast.BinOp, ast.Compare, ast.Subscript, ast.IfExp))
        self.around += [node] * shown
        for field, _ in ast.iter_fields(node):
            if not isinstance(node, ast.arg):
                yield from self.children(node, field, place, inside)
        del self.around[len(self.around) - shown :]


def _is(node: ast.AST, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_text(node: ast.BinOp) -> bool:
    """Texts that are joined or filled in, and types that are named together."""
    return any(isinstance(side, ast.JoinedStr) or isinstance(side, ast.Constant) and isinstance(side.value, (str, type(None))) for side in (node.left, node.right))
