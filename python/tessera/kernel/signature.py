"""A kernel's parameters, from its signature and annotations."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import textwrap
import types
import typing
from dataclasses import replace
from typing import Any, Callable

import numpy

from .. import _core
from ..base.annotations import Fn, OptionalType, TensorType, is_expression, names_in
from ..base.dtypes import DType, dtype
from ..base.errors import TesseraError
from ..base.source import Source, closure_of
from .parameters import Leaf, ListNode, RecordNode, shown
from .struct import field_type

_CONSTANTS = {bool: "bool", int: "int", float: "float", str: "str"}


def params_of(fn: Callable, source: Source, scope: dict[str, Any]) -> list[Any]:
    """The parameters, as trees: see `parameters`. A row of the compiler is ``(name, kind, detail, (default,) or ())``.

    ``scope`` holds the local names around the function, for annotations kept as text; ``source`` is what errors point into.
    """
    annotations = inspect.get_annotations(fn)
    params = []
    for p in inspect.signature(fn).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
            star = "*" if p.kind == p.VAR_POSITIONAL else "**"
            raise at_parameter(source, p.name, "E_GRAPH_INVALID", f"expected named parameters, got `{star}{p.name}`", "give each parameter a name")
        annotation = annotations.get(p.name)
        if isinstance(annotation, str):
            annotation = _evaluate(fn, p.name, annotation, scope, source)
        default = () if p.default is p.empty else (p.default,)
        fail = functools.partial(at_parameter, source, p.name)
        node = _node(p.name, annotation, fail, scope, ())
        params.append(replace(node, default=default, optional=node.optional or default == (None,)))
    return params


def dims_of(params: list[Any]) -> frozenset[str]:
    """The names that annotations give extents: in a body they are those, whatever else has the name."""
    shapes = [info[0] or () for node in params for _, kind, info, _ in node.kinds if kind == "tensor"]
    return frozenset(dim for dims in shapes for dim in dims if dim.isidentifier())


def _node(name: str, annotation: object, fail: Callable[..., Exception], scope: dict[str, Any], inside: tuple[type, ...]) -> Any:
    """The tree of one parameter. ``inside`` are the records that it is a field of."""
    inner, optional = _without_none(annotation)
    if inner is not annotation:
        return replace(_node(name, inner, fail, scope, inside), optional=optional)
    origin = typing.get_origin(annotation)
    if annotation in (list, tuple) or origin in (list, tuple):
        return _list(name, annotation, fail, scope, inside)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _record(name, annotation, fail, scope, inside)
    return Leaf(name, *_kind(fail, name, annotation))


def _without_none(annotation: object) -> tuple[object, bool]:
    """An annotation without ``| None``, and whether it had it."""
    if isinstance(annotation, OptionalType):
        return annotation.inner, True
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        parts = [part for part in typing.get_args(annotation) if part is not type(None)]
        if len(parts) == 1 and len(typing.get_args(annotation)) == 2:
            return parts[0], True
    return annotation, False


def _list(name: str, annotation: object, fail: Callable[..., Exception], scope: dict[str, Any], inside: tuple[type, ...]) -> ListNode:
    parts = typing.get_args(annotation)
    if not parts:
        return ListNode(name, Leaf(f"{name}.0", "tensor", (None, None, None, False)))
    any_number = annotation is list or typing.get_origin(annotation) is list or len(parts) == 2 and parts[1] is Ellipsis
    kinds = [part for part in parts if part is not Ellipsis]
    nodes = [_node(f"{name}.{i}", part, fail, scope, inside) for i, part in enumerate(kinds)]
    for node in nodes:
        wrong = isinstance(node, ListNode) or isinstance(node, Leaf) and node.kind not in ("tensor", "any")
        if wrong or node.kinds and any(kind == "tensor" and info[3] for _, kind, info, _ in node.kinds):
            got = "an output" if not wrong else "a list" if isinstance(node, ListNode) else f"`{kinds[nodes.index(node)]}`"
            raise fail("E_TYPE", f"expected `{name}` to be a list of arrays, got one of {got}",
                       'write `list[ts.Tensor["n", ts.f32]]`; numbers and outputs are parameters, or fields of a record')  # fmt: skip
    return ListNode(name, nodes[0]) if any_number else ListNode(name, None, tuple(nodes))


def _record(name: str, cls: type, fail: Callable[..., Exception], scope: dict[str, Any], inside: tuple[type, ...]) -> RecordNode:
    path, what = shown(name), cls.__name__
    if not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise fail("E_TYPE", f"`{path}`: expected a frozen dataclass, got `{what}`, whose fields can be assigned",
                   f"decorate `{what}` with `@ts.struct`, or with `@dataclass(frozen=True)`")  # fmt: skip
    if cls in inside:
        raise fail("E_TYPE", f"`{path}`: expected a record of known depth, got `{what}` inside itself", "give the inner fields by themselves")
    fields = []
    for f in dataclasses.fields(cls):
        annotation = field_type(cls, f, scope)
        if isinstance(annotation, str):
            raise fail("E_NAME", f"`{path}.{f.name}`: the annotation `{annotation}` of `{what}.{f.name}` names nothing that is known here",
                       "what it names must be imported or defined before the kernel")  # fmt: skip
        node = _node(f"{name}.{f.name}", annotation, fail, scope, (*inside, cls))
        # None is the value of an output that the runtime makes, and of any other field one that is not there.
        out = isinstance(node, Leaf) and node.kind == "tensor" and node.info[3]
        if f.default is None and not out:
            node = replace(node, optional=True)
        elif isinstance(node, Leaf) and node.kind in ("const", "function") and f.default is not dataclasses.MISSING:
            node = replace(node, default=(f.default,))
        fields.append((f.name, node))
    return RecordNode(name, cls, tuple(fields))


def with_sizes(rows: list[tuple], names: Any, look: Any) -> list[tuple]:
    """Rows whose sizes by expression have the values of captured constants. A name in an expression is the size of an axis of an array, a
    compile-time parameter, a captured integer, or else a size that the call gives by keyword."""
    taken = {name for name, *_ in rows}
    for _, kind, info, _ in rows:
        if kind == "tensor" and not info[3]:
            taken.update(name for dim in info[0] or () for name in names_in(dim))
    if not any(kind == "tensor" and info[3] and any(map(is_expression, info[0] or ())) for _, kind, info, _ in rows):
        return rows

    def sized(dim: str) -> str:
        if not is_expression(dim):
            return dim
        values = {name: names.integer(name, look) for name in names_in(dim) if name not in taken}
        return re.sub(r"[^\W\d]\w*", lambda m: m[0] if values.get(m[0]) is None else f"({values[m[0]]})", dim)

    return [(name, kind, ([sized(d) for d in info[0]], *info[1:]) if kind == "tensor" and info[3] else info, default)
            for name, kind, info, default in rows]  # fmt: skip


def _evaluate(fn: Callable, name: str, text: str, scope: dict[str, Any], source: Source) -> Any:
    try:
        names = {**scope, **closure_of(fn)}
        found = eval(text, fn.__globals__, names)
        # Quotes in a module whose annotations are all text.
        return eval(found, fn.__globals__, names) if isinstance(found, str) else found
    except TesseraError as e:
        raise at_parameter(source, name, e.code, e.message, e.help) from None
    except Exception as e:
        code = "E_NAME" if isinstance(e, (NameError, AttributeError)) else "E_TYPE"
        help = "what it names must be imported or defined before the kernel"
        raise at_parameter(source, name, code, f"the annotation `{text}` of `{name}`: {e}", help) from None


def _kind(fail: Callable[..., Exception], name: str, annotation: object) -> tuple[str, Any]:
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
    raise fail("E_TYPE", f"expected the annotation of `{shown(name)}` to be a type that kernels take, got {_said(annotation)}", _instead(annotation))


#: By the name of a class that people write, what to write.
_OTHERS = {
    "ndarray": 'write `ts.Tensor["n", ts.f32]`, with a name or a size for each axis',
    "Tensor": 'write `ts.Tensor["n", ts.f32]`, with a name or a size for each axis',
    "Array": 'write `ts.Tensor["n", ts.f32]`, with a name or a size for each axis',
    "constexpr": "write `int`, `float`, `bool` or `str`: those are compile-time values",
    "dict": "write a record: a class of the values with `@ts.struct`",
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


def at_parameter(source: Source, name: str, code: str, message: str, help: str | None, called: Any = None) -> Exception:
    """The error at a parameter's annotation, or at the parameter; ``called`` is the line of a call."""
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
        return _core.error(code, message, help, source.file, source.line, called=called)
    return _core.error(code, message, help, place=place, called=called)
