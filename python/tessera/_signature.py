"""A kernel's parameters, from its signature and annotations."""

from __future__ import annotations

import inspect
from typing import Any, Callable

import numpy

from . import _core
from ._annotations import Fn, TensorType
from ._capture import capture
from ._dtypes import DType, dtype
from ._errors import TesseraError
from ._source import closure_of

_CONSTANTS = {bool: "bool", int: "int", float: "float", str: "str"}


def params_of(fn: Callable, scope: dict[str, Any]) -> list[tuple]:
    """Each parameter as ``(name, kind, default, ...)``, in the form that the compiler takes.

    ``scope`` holds the local names around the function, for annotations kept as text.
    """
    annotations = inspect.get_annotations(fn)
    params = []
    for p in inspect.signature(fn).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            star = "*" if p.kind == p.VAR_POSITIONAL else "**"
            raise _at(fn, "E_GRAPH_INVALID", f"expected named parameters, got `{star}{p.name}`", "give each parameter a name")
        annotation = annotations.get(p.name)
        if isinstance(annotation, str):
            annotation = _evaluate(fn, p.name, annotation, scope)
        default = () if p.default is p.empty else (capture(p.default),)
        params.append((p.name, *_kind(fn, p.name, annotation), default))
    return params


def _evaluate(fn: Callable, name: str, text: str, scope: dict[str, Any]) -> Any:
    try:
        return eval(text, fn.__globals__, {**scope, **closure_of(fn)})
    except TesseraError:
        raise
    except Exception as e:
        code = "E_NAME" if isinstance(e, (NameError, AttributeError)) else "E_TYPE"
        help = "what it names must be imported or defined before the kernel"
        raise _at(fn, code, f"the annotation `{text}` of `{name}`: {e}", help) from None


def _kind(fn: Callable, name: str, annotation: object) -> tuple[str, Any]:
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
    if annotation is Fn:
        return "function", None
    if isinstance(annotation, type) and issubclass(annotation, numpy.generic):
        return "scalar", dtype(annotation)
    raise _at(
        fn,
        "E_TYPE",
        f"expected the annotation of `{name}` to be a type that kernels take, got {annotation!r}",
        "arrays are `ts.Tensor[...]`, `ts.Region[...]` or `ts.Out[...]`, run-time numbers a dtype such as `ts.f32`, "
        "compile-time values `bool`, `int`, `float` or `str`, functions `ts.Fn`",
    )


def _at(fn: Callable, code: str, message: str, help: str) -> Exception:
    return _core.error(code, message, help, fn.__code__.co_filename, fn.__code__.co_firstlineno)
