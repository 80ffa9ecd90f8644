"""Captures: the values of the free names of a kernel, now and when its code was compiled."""

from __future__ import annotations

import builtins
import math
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy

from .. import _core
from ..base.enclosing_scope import binds_later
from ..base.source import Source
from .builtins import ApiFunction, ApiNamespace

_MISSING = object()
_NAMESPACES = ("tessera", "tessera.tile", "tessera.target", "math")
_LATER = _core.Name("later", "")


class Look:
    """One reading of captured names. Each name is read once, so that a kernel and all functions that it reaches see the same
    values. The values are remembered, so that later calls can compare.

    At decoration a name without a value may still get one further down in the file; at a call that is an error."""

    def __init__(self, decorating: bool = False) -> None:
        self.decorating = decorating
        #: The functions that were read, by identity.
        self.handles: dict[int, Any] = {}
        self._found: dict[tuple, Any] = {}
        self._entries: list[tuple] = []
        self._waits = False

    def item(self, namespace: Mapping[str, Any], name: str) -> Any:
        key = (id(namespace), name)
        if key not in self._found:
            self._found[key] = namespace.get(name, _MISSING)
        return self._found[key]

    def cell(self, cell: types.CellType) -> Any:
        key = (id(cell), None)
        if key not in self._found:
            try:
                self._found[key] = cell.cell_contents
            except ValueError:
                self._found[key] = _MISSING
        return self._found[key]

    def attribute(self, value: Any, name: str) -> Any:
        key = (id(value), ".", name)
        if key not in self._found:
            # The object is kept alive: another one could get its address.
            try:
                self._found[key] = value, getattr(value, name, _MISSING)
            except Exception:
                self._found[key] = value, _MISSING
        return self._found[key][1]

    def saw(self, namespace: Mapping[str, Any] | None, name: Any, attributes: tuple[str, ...], value: Any) -> None:
        """``namespace`` and ``name``, or nothing and a cell, and the attributes followed from there."""
        key = (id(name) if namespace is None else (id(namespace), name), attributes)
        if ("saw", *key) not in self._found:
            self._found[("saw", *key)] = True
            self._entries.append((namespace, name, attributes, () if value is _MISSING else (value,)))

    def waits(self) -> Any:
        """The placeholder of a name that gets its value later."""
        self._waits = True
        return _LATER

    def watch(self) -> _core.Watch:
        return _core.Watch(self._entries, not self._waits)


class Names:
    """The free names of a function, and where they are found: as Python finds them, then in the class around it."""

    def __init__(self, fn: Callable, source: Source, frame: types.FrameType | None = None, known: frozenset[str] = frozenset()) -> None:
        """``frame`` is where the function is decorated; ``known`` names mean something by themselves."""
        self._fn = fn
        self._source = source
        self._known = known
        self._cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or ()))
        self._body = None if frame is None else _class_body(fn, frame)
        self._paths: list[tuple[str, ...]] | None = None
        self._owned = False
        # The names of our own modules never change.
        self._ours = fn.__globals__.get("__name__", "").partition(".")[0] == "tessera"

    def read(self, look: Look) -> dict[str, Any]:
        """The value of each dotted path that Python can resolve.

        A path that resolves only in part is given by its longest part that does; one whose root Python does not know (a dim
        symbol, an implicit origin) is left out.
        """
        if self._paths is None:
            s = self._source
            self._paths = [tuple(path.split(".")) for path in _core.free_paths(s.file, s.text, s.line)]
        out: dict[str, Any] = {}
        for root, *attributes in self._paths:
            if root in self._known:
                continue
            namespace, name, value = self._root(root, look)
            if value is _MISSING:
                if self._comes(root, look):
                    out[root] = look.waits()
                continue
            path, followed, last = (root,), (), value
            for attribute in attributes:
                inner = look.attribute(value, attribute)
                ours = _is_namespace(value)
                if inner is _MISSING or (ours and _is_opaque(inner)):
                    break
                value, path = inner, (*path, attribute)
                if not ours and len(followed) == len(path) - 2:
                    followed, last = path[1:], value
            self._saw(look, namespace, name, followed, last)
            out[".".join(path)] = capture(value, look)
        return out

    def integer(self, name: str, look: Look) -> int | None:
        """The integer that a name of the source stands for, if it does for one."""
        namespace, root, value = self._root(name, look)
        if value is _MISSING:
            return None
        self._saw(look, namespace, root, (), value)
        return int(value) if isinstance(value, (int, numpy.integer)) and not isinstance(value, bool) else None

    def _saw(self, look: Look, namespace: Any, name: Any, attributes: tuple[str, ...], value: Any) -> None:
        if not self._ours:
            look.saw(namespace, name, attributes, value)

    def _root(self, name: str, look: Look) -> tuple[Any, Any, Any]:
        """Where a name is found, builtins left out: the language has its own."""
        cell = self._cells.get(name)
        if cell is not None:
            value = look.cell(cell)
            if value is _MISSING:
                self._saw(look, None, cell, (), _MISSING)
            return None, cell, value
        value = look.item(self._fn.__globals__, name)
        if value is not _MISSING:
            return self._fn.__globals__, name, value
        self._saw(look, self._fn.__globals__, name, (), _MISSING)
        members = self._members()
        if members is None:
            return None, None, _MISSING
        if look.decorating:
            # The class is still to be made of these names.
            look.waits()
        value = look.item(members, name)
        if value is _MISSING:
            self._saw(look, members, name, (), _MISSING)
        elif isinstance(value, (staticmethod, classmethod)):
            # A helper may be a static method.
            self._saw(look, members, name, (), value)
            return members, name, value.__func__
        return members, name, value

    def owned(self, owner: type) -> None:
        """Called when the class exists: names are looked up in it from now on."""
        if self._body is not None:
            self._body, self._owned = vars(owner), True

    def _members(self) -> Mapping[str, Any] | None:
        if self._body is not None and not self._owned:
            # A static method does not know its class.
            found: Any = sys.modules.get(self._fn.__module__)
            for part in self._fn.__qualname__.split(".")[:-1]:
                found = getattr(found, part, None)
            if isinstance(found, type) and self._fn.__name__ in vars(found):
                self.owned(found)
        return self._body

    def _comes(self, name: str, look: Look) -> bool:
        if not look.decorating:
            return False
        if name in self._cells:
            return True
        return not hasattr(builtins, name) and binds_later(self._fn.__code__, self._fn.__globals__, name)


def _class_body(fn: Callable, frame: types.FrameType) -> Mapping[str, Any] | None:
    """The names of the class whose body a function is decorated in."""
    names = frame.f_locals
    inside = names is not frame.f_globals and fn.__qualname__ == f"{names.get('__qualname__')}.{fn.__name__}"
    return names if inside else None


def _is_namespace(value: object) -> bool:
    return isinstance(value, types.ModuleType) and value.__name__ in _NAMESPACES


def _is_opaque(value: object) -> bool:
    found = capture(value)
    return isinstance(found, _core.Name) and found.kind == "opaque"


class Inlined:
    """A function that kernels inline: `func.Func`."""

    @property
    def handle(self) -> Any:
        """The function as it is now."""
        raise NotImplementedError

    def seen(self, look: Look) -> Any:
        """The function as ``look`` sees it."""
        raise NotImplementedError


def capture(value: object, look: Look | None = None) -> Any:
    """``value`` in the form that the compiler takes; functions as ``look`` sees them, or as they are now."""
    if value is None or isinstance(value, (bool, str, _core.DType)):
        return value
    if isinstance(value, int):
        return int(value) if -(2**127) <= value < 2**127 else _core.Name("opaque", "integer beyond 128 bits")
    if isinstance(value, float):
        return float(value)
    if isinstance(value, numpy.generic) and value.dtype.kind in "biuf":
        return capture(value.item())
    if isinstance(value, tuple):
        # The contents of an array in it could change unnoticed.
        return tuple(_opaque(v) if isinstance(v, numpy.ndarray) else capture(v, look) for v in value)
    if isinstance(value, numpy.ndarray):
        return _table(value)
    if isinstance(value, ApiFunction):
        return _core.Name("builtin", value.api_name)
    if isinstance(value, ApiNamespace):
        return _core.Name("namespace", value.__name__)
    if isinstance(value, Inlined):
        return value.handle if look is None else value.seen(look)
    if _is_namespace(value):
        return _core.Name("namespace", value.__name__)  # type: ignore[attr-defined]
    if isinstance(value, types.BuiltinFunctionType) and getattr(math, value.__name__, None) is value:
        return _core.Name("builtin", f"math.{value.__name__}")
    if isinstance(value, type) and issubclass(value, numpy.generic) and _core.is_dtype_name(numpy.dtype(value).name):
        return _core.dtype(numpy.dtype(value).name)
    return _opaque(value)


def _opaque(value: object) -> _core.Name:
    return _core.Name("opaque", getattr(value, "kind_name", None) or type(value).__name__)


def _table(value: numpy.ndarray) -> Any:
    """A small read-only array is a constant."""
    known = value.dtype.isnative and _core.is_dtype_name(value.dtype.name) and value.dtype.name != "float8_e4m3"
    small = value.ndim > 0 and 0 < value.nbytes <= _core.Table.MOST_BYTES
    if value.flags.writeable or not known or not small:
        return _opaque(value)
    return _core.Table(_core.dtype(value.dtype.name), list(value.shape), value.tobytes())


def identity_key(value: Any) -> Any:
    """A key that distinguishes captured values: equal numbers of two types differ, and so do zeros of both signs."""
    kind = type(value)
    if kind is float:
        return kind, value.hex()
    if kind is tuple or kind is list:
        return (kind, *map(identity_key, value))
    if kind is dict:
        return (kind, *((name, identity_key(value[name])) for name in sorted(value)))
    return kind, value
