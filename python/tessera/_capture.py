"""What the free names of a kernel stand for."""

from __future__ import annotations

import math
import types
from typing import Any, Callable

import numpy

from . import _core
from ._api import ApiFunction, ApiNamespace
from ._source import Source, closure_of

_MISSING = object()
_NAMESPACES = ("tessera", "tessera.tile", "math")


def captures_of(fn: Callable, source: Source) -> dict[str, Any]:
    """For each dotted path of ``source`` that Python can resolve, what it stands for.

    A path that resolves only in part is given by its longest part that does; one whose root
    Python does not know (a dim symbol, an implicit origin) is left out.
    """
    out: dict[str, Any] = {}
    for path in _core.free_paths(source.file, source.text, source.line):
        root, *attributes = path.split(".")
        value, name = _lookup(fn, root), root
        if value is _MISSING:
            continue
        for attribute in attributes:
            inner = getattr(value, attribute, _MISSING)
            if inner is _MISSING or (_is_namespace(value) and _is_opaque(inner)):
                break
            value, name = inner, f"{name}.{attribute}"
        out[name] = capture(value)
    return out


def _lookup(fn: Callable, name: str) -> Any:
    """A name as the function itself would see it, builtins left out: the language has its own."""
    if name in fn.__code__.co_freevars:
        return closure_of(fn).get(name, _MISSING)
    return fn.__globals__.get(name, _MISSING)


def _is_namespace(value: object) -> bool:
    return isinstance(value, types.ModuleType) and value.__name__ in _NAMESPACES


def _is_opaque(value: object) -> bool:
    found = capture(value)
    return isinstance(found, _core.Name) and found.kind == "opaque"


def capture(value: object) -> Any:
    """``value`` in the form that the compiler takes."""
    from ._func import Func

    if value is None or isinstance(value, (bool, str, _core.DType)):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else _core.Name("opaque", "integer beyond 64 bits")
    if isinstance(value, float):
        return float(value)
    if isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
        return capture(value.item())
    if isinstance(value, tuple):
        return tuple(capture(v) for v in value)
    if isinstance(value, ApiFunction):
        return _core.Name("builtin", value.api_name)
    if isinstance(value, ApiNamespace):
        return _core.Name("namespace", value.__name__)
    if isinstance(value, Func):
        return value.handle
    if _is_namespace(value):
        return _core.Name("namespace", value.__name__)  # type: ignore[attr-defined]
    if isinstance(value, types.BuiltinFunctionType) and getattr(math, value.__name__, None) is value:
        return _core.Name("builtin", f"math.{value.__name__}")
    if isinstance(value, type) and issubclass(value, numpy.generic) and _core.is_dtype_name(numpy.dtype(value).name):
        return _core.dtype(numpy.dtype(value).name)
    return _core.Name("opaque", getattr(value, "kind_name", None) or type(value).__name__)
