"""A kernel's parameters, from its signature and annotations."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any, Callable

import numpy

from . import _core
from ._annotations import Fn, TensorType
from ._dtypes import DType, dtype
from ._errors import TesseraError
from ._source import Source, closure_of

_CONSTANTS = {bool: "bool", int: "int", float: "float", str: "str"}


def params_of(fn: Callable, source: Source, scope: dict[str, Any]) -> list[tuple]:
    """Each parameter as ``(name, kind, detail, (default,) or ())``.

    ``scope`` holds the local names around the function, for annotations kept as text.
    """
    where = Lines(source)
    annotations = inspect.get_annotations(fn)
    params = []
    for p in inspect.signature(fn).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            star = "*" if p.kind == p.VAR_POSITIONAL else "**"
            raise where.error(p.name, "E_GRAPH_INVALID", f"expected named parameters, got `{star}{p.name}`", "give each parameter a name")
        annotation = annotations.get(p.name)
        if isinstance(annotation, str):
            annotation = _evaluate(fn, where, p.name, annotation, scope)
        default = () if p.default is p.empty else (p.default,)
        params.append((p.name, *_kind(where, p.name, annotation), default))
    return params


def dims_of(params: list[tuple]) -> frozenset[str]:
    """The names that annotations give extents: in a body they are those, whatever else has the name."""
    shapes = [info[0] or () for _, kind, info, _ in params if kind == "tensor"]
    return frozenset(dim for dims in shapes for dim in dims if dim.isidentifier())


def _evaluate(fn: Callable, where: Lines, name: str, text: str, scope: dict[str, Any]) -> Any:
    try:
        return eval(text, fn.__globals__, {**scope, **closure_of(fn)})
    except TesseraError as e:
        if e.line is not None and e.file != "<string>":
            raise
        raise where.error(name, e.code, e.message, e.help) from None
    except Exception as e:
        code = "E_NAME" if isinstance(e, (NameError, AttributeError)) else "E_TYPE"
        help = "what it names must be imported or defined before the kernel"
        raise where.error(name, code, f"the annotation `{text}` of `{name}`: {e}", help) from None


def _kind(where: Lines, name: str, annotation: object) -> tuple[str, Any]:
    if annotation is None or annotation is inspect.Parameter.empty:
        return "any", None
    if isinstance(annotation, TensorType):
        privilege = annotation.privilege.name if annotation.privilege else None
        dims = None if annotation.dims is None else list(annotation.dims)
        return "tensor", (dims, annotation.dtype, privilege, annotation.out)
    if isinstance(annotation, DType):
        return "scalar", annotation
    if isinstance(annotation, type) and annotation in _CONSTANTS:
        return "const", _CONSTANTS[annotation]
    if annotation is DType or annotation is dtype:
        return "const", "dtype"
    if annotation is Fn:
        return "function", None
    if isinstance(annotation, type) and issubclass(annotation, numpy.generic):
        return "scalar", dtype(annotation)
    raise where.error(
        name,
        "E_TYPE",
        f"expected the annotation of `{name}` to be a type that kernels take, got {annotation!r}",
        "arrays are `ts.Tensor[...]`, `ts.Region[...]` or `ts.Out[...]`, run-time numbers a dtype such as `ts.f32`, "
        "compile-time values `bool`, `int`, `float`, `str` or `ts.DType`, functions `ts.Fn`",
    )


class Lines:
    """Where the parameters of a function stand."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._found: dict[str, int] | None = None

    def error(self, name: str, code: str, message: str, help: str | None) -> Exception:
        return _core.error(code, message, help, self._source.file, self._line(name))

    def _line(self, name: str) -> int:
        if self._found is None:
            self._found = {}
            try:
                tree = ast.parse(textwrap.dedent(self._source.text))
            except SyntaxError:  # the compiler says it better
                tree = ast.Module([], [])
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    a = node.args
                    every = [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg]
                    self._found = {p.arg: (p.annotation or p).lineno for p in every if p is not None}
                    break
        return self._source.line + self._found.get(name, 1) - 1
