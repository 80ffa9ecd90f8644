"""A kernel's parameters, from its signature and annotations."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any, Callable

import numpy

from .. import _core
from ..base.annotations import Fn, TensorType
from ..base.dtypes import DType, dtype
from ..base.errors import TesseraError
from ..base.source import Source, closure_of

_CONSTANTS = {bool: "bool", int: "int", float: "float", str: "str"}


def params_of(fn: Callable, source: Source, scope: dict[str, Any]) -> list[tuple]:
    """Each parameter as ``(name, kind, detail, (default,) or ())``.

    ``scope`` holds the local names around the function, for annotations kept as text; ``source`` is what errors point into.
    """
    annotations = inspect.get_annotations(fn)
    params = []
    for p in inspect.signature(fn).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            star = "*" if p.kind == p.VAR_POSITIONAL else "**"
            raise _at(source, p.name, "E_GRAPH_INVALID", f"expected named parameters, got `{star}{p.name}`", "give each parameter a name")
        annotation = annotations.get(p.name)
        if isinstance(annotation, str):
            annotation = _evaluate(fn, p.name, annotation, scope, source)
        default = () if p.default is p.empty else (p.default,)
        params.append((p.name, *_kind(source, p.name, annotation), default))
    return params


def dims_of(params: list[tuple]) -> frozenset[str]:
    """The names that annotations give extents: in a body they are those, whatever else has the name."""
    shapes = [info[0] or () for _, kind, info, _ in params if kind == "tensor"]
    return frozenset(dim for dims in shapes for dim in dims if dim.isidentifier())


def _evaluate(fn: Callable, name: str, text: str, scope: dict[str, Any], source: Source) -> Any:
    try:
        names = {**scope, **closure_of(fn)}
        found = eval(text, fn.__globals__, names)
        # Quotes in a module whose annotations are all text.
        return eval(found, fn.__globals__, names) if isinstance(found, str) else found
    except TesseraError as e:
        raise _at(source, name, e.code, e.message, e.help) from None
    except Exception as e:
        code = "E_NAME" if isinstance(e, (NameError, AttributeError)) else "E_TYPE"
        help = "what it names must be imported or defined before the kernel"
        raise _at(source, name, code, f"the annotation `{text}` of `{name}`: {e}", help) from None


def _kind(source: Source, name: str, annotation: object) -> tuple[str, Any]:
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
    raise _at(
        source,
        name,
        "E_TYPE",
        f"expected the annotation of `{name}` to be a type that kernels take, got {_said(annotation)}",
        _instead(annotation),
    )


#: By the name of a class that people write, what to write.
_OTHERS = {
    "ndarray": 'write `ts.Tensor["n", ts.f32]`, with a name or a size for each axis',
    "Tensor": 'write `ts.Tensor["n", ts.f32]`, with a name or a size for each axis',
    "Array": 'write `ts.Tensor["n", ts.f32]`, with a name or a size for each axis',
    "constexpr": "write `int`, `float`, `bool` or `str`: those are compile-time values",
    "list": "give each array a parameter of its own",
    "tuple": "give each value a parameter of its own",
    "dict": "give each value a parameter of its own",
    "complex": "there are no complex numbers: give both parts as parameters",
    "function": "write `ts.Fn`: the caller gives a `@ts.func`",
}


def _said(annotation: object) -> str:
    return f"the class `{annotation.__name__}`" if isinstance(annotation, type) else repr(annotation)


def _instead(annotation: object) -> str:
    origin = getattr(annotation, "__origin__", annotation)
    known = _OTHERS.get(getattr(origin, "__name__", type(annotation).__name__))
    return known or (
        "arrays are `ts.Tensor[...]`, `ts.Region[...]` or `ts.Out[...]`, run-time numbers a dtype such as `ts.f32`, "
        "compile-time values `bool`, `int`, `float`, `str` or `ts.DType`, functions `ts.Fn`"
    )


def _at(source: Source, name: str, code: str, message: str, help: str | None) -> Exception:
    """The error at a parameter's annotation, or at the parameter."""
    place = None
    indent = len(source.text) - len(source.text.lstrip(" \t"))
    try:
        (definition,) = ast.parse(textwrap.dedent(source.text)).body
        given = definition.args  # type: ignore[attr-defined]
        rest = [a for a in (given.vararg, given.kwarg) if a is not None]
        (found,) = [a for a in (*given.posonlyargs, *given.args, *given.kwonlyargs, *rest) if a.arg == name]
        at = found.annotation or found
        text = _core.SourceText(source.file, "\n" * (source.line - 1) + source.text)
        first, last = source.line + at.lineno - 1, source.line + at.end_lineno - 1
        place = _core.Place(text, first, indent + at.col_offset + 1, last, indent + at.end_col_offset + 1)
    except (SyntaxError, ValueError, AttributeError):
        return _core.error(code, message, help, source.file, source.line)
    return _core.error(code, message, help, place=place)
