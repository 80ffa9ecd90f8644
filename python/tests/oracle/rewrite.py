"""The few changes to a kernel's text that Python needs to execute it. Order, names and control flow stay its own.

- The first argument of `store`, `accumulate`, `atomic_*`, `cp_async` and `owned` is a place, which nothing reads:
  ``atomic_add(x[i], v)`` becomes ``atomic_add(__place__(x, i), v)``. So does that of ``load``, which reads it once, with
  its mask.
- ``x[i] += v`` marks its index (``x[__index__(i)] += v``), so that an index tile adds every contribution; Python itself
  evaluates the index once, reads, evaluates ``v`` and stores.
- A loop's own variable that nothing bound before is 0 after a loop without an iteration (LANGUAGE 2): it is bound so at
  the head of the function.
- A loop counts its iterations (``__tick__``), so that a program without end is one that the oracle refuses.
- In a kernel whose lanes synchronise, functions become generators: a call becomes ``yield from __call__(f, …)``, which yields
  at a barrier.
- A variable that begins with a literal takes the type of what it is joined with (LANGUAGE 9), which Python finds out too
  late. Where the types of variables are given (``types``), an assignment converts the value to the type.
"""

from __future__ import annotations

import ast
from typing import Any

PLACES = {"store", "accumulate", "cp_async", "owned", "load"}
SYNC = {"barrier", "sync"}
GROUP = {"reduce", "scan", "broadcast", "shuffle", "any", "all", "ballot", "match"}


#: Where what is put in stands: anywhere. Looking for a place would take longer than all the rest.
AT = {"lineno": 1, "col_offset": 0, "end_lineno": 1, "end_col_offset": 0}


def _name(name: str, ctx: Any = None) -> ast.Name:
    return ast.Name(name, ctx or ast.Load(), **AT)


def _called(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(_name(name), list(args), [], **AT)


def _last(func: ast.expr) -> str:
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _is_place(name: str) -> bool:
    return name in PLACES or name.startswith("atomic_")


def _index(node: ast.expr) -> ast.expr:
    """An index as an expression: slices become calls of `slice`."""
    if isinstance(node, ast.Slice):
        parts = [p if p is not None else ast.Constant(None, **AT) for p in (node.lower, node.upper, node.step)]
        return _called("slice", *parts)
    if isinstance(node, ast.Tuple):
        return ast.Tuple([_index(e) for e in node.elts], ast.Load(), **AT)
    return node


def synchronises(tree: ast.AST) -> bool:
    """Whether lanes synchronise in this code: it has a barrier, or an operation of the group."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _last(node.func) in SYNC:
            return True
        if isinstance(node, ast.Attribute) and node.attr == "group":
            return True
    return False


class Rewrite(ast.NodeTransformer):
    def __init__(self, coroutine: bool, types: dict[str, str] | None) -> None:
        self.coroutine = coroutine
        self.types = types or {}
        self.loops: list[str] = []

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = []
        parameters = {a.arg for a in (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs)}
        body: list[ast.stmt] = []
        for statement in node.body:
            out = self.visit(statement)
            body += out if isinstance(out, list) else [out]
        head: list[ast.stmt] = [
            ast.Assign([_name(name, ast.Store())], _called("__unbound__"), **AT)
            for name in dict.fromkeys(self.loops)
            if name not in parameters
        ]
        if self.coroutine:
            # A function with a `yield` in it is a generator, whatever else it has.
            head.append(ast.If(ast.Constant(False, **AT), [ast.Expr(ast.Yield(None, **AT), **AT)], [], **AT))
        for argument in (*node.args.args, *node.args.kwonlyargs):
            argument.annotation = None
        node.returns = None
        node.body = head + body
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        raise SyntaxError("a function in a function")

    def visit_For(self, node: ast.For) -> ast.AST:
        if isinstance(node.target, ast.Name):
            self.loops.append(node.target.id)
        self.generic_visit(node)
        return self._ticked(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        self.generic_visit(node)
        return self._ticked(node)

    @staticmethod
    def _ticked(node: Any) -> ast.AST:
        node.body.insert(0, ast.Expr(_called("__tick__"), **AT))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = _last(node.func)
        first = node.args[0] if node.args else None
        self.generic_visit(node)
        if isinstance(first, ast.Subscript) and _is_place(name):
            node.args[0] = _called("__place__", first.value, _index(first.slice))
        if self.coroutine and name not in ("range", "zeros", "cast", "linear_id", "local_id", "slice", "__place__", "__index__", "__as__", "__tick__"):
            return ast.YieldFrom(ast.Call(_name("__call__"), [node.func, *node.args], node.keywords, **AT), **AT)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        self.generic_visit(node)
        if isinstance(node.target, ast.Subscript):
            node.target.slice = _called("__index__", _index(node.target.slice))
            return node
        return [node, *self._typed(node.target)]

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.generic_visit(node)
        out: list[ast.stmt] = [node]
        for target in node.targets:
            out += self._typed(target)
        return out if len(out) > 1 else node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        self.generic_visit(node)
        if node.target.id in self.types:
            node.value = self._as(node.target.id, node.value)
        return node

    def _as(self, name: str, value: ast.expr) -> ast.expr:
        return _called("__as__", ast.Constant(self.types[name], **AT), value)

    def _typed(self, target: ast.expr) -> list[ast.stmt]:
        if isinstance(target, ast.Name) and target.id in self.types:
            return [ast.Assign([_name(target.id, ast.Store())], self._as(target.id, _name(target.id)), **AT)]
        if isinstance(target, (ast.Tuple, ast.List)):
            return [s for t in target.elts for s in self._typed(t)]
        return []


def rewritten(node: ast.FunctionDef, coroutine: bool, types: dict[str, str] | None = None) -> ast.FunctionDef:
    return Rewrite(coroutine, types).function(node)
