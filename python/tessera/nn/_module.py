"""Modules: classes that hold their parameters and are trees."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from typing import Any, ClassVar

import numpy

from ..arrays.host import Array
from ..base.annotations import Tensor, TensorType
from ..random import Key
from ..trace.tracer import Tracer, fail, is_array
from ..tree import pytree

_MARK = "tessera_field"


def static(default: Any = dataclasses.MISSING, *, default_factory: Any = dataclasses.MISSING) -> Any:
    """A field of a `Module` that is no array: a part of the form of the tree, and a constant of a trace."""
    return _field("static", default, default_factory)


def leaf(default: Any = dataclasses.MISSING, *, default_factory: Any = dataclasses.MISSING) -> Any:
    """A field of a `Module` that holds arrays, whatever its annotation says."""
    return _field("leaf", default, default_factory)


def _field(kind: str, default: Any, factory: Any) -> Any:
    more = {} if default is dataclasses.MISSING else {"default": default}
    if factory is not dataclasses.MISSING:
        more["default_factory"] = factory
    return dataclasses.field(metadata={_MARK: kind}, **more)


def _holds_arrays(hint: Any) -> bool:
    """Whether values of an annotation are arrays or hold some."""
    if hint in (Any, object, dict, list, tuple) or isinstance(hint, (str, typing.TypeVar)):
        return True  # an unknown annotation may hold arrays
    if isinstance(hint, TensorType) or hint is Tensor:
        return True
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _holds_arrays(typing.get_args(hint)[0])
    if origin in (typing.Union, types.UnionType, list, tuple, dict):
        return any(_holds_arrays(a) for a in typing.get_args(hint) if a is not Ellipsis)
    if isinstance(hint, type):
        if issubclass(hint, (Module, Key, Tracer, numpy.ndarray, Array)):
            return True
        return hasattr(hint, "__dlpack__") and not issubclass(hint, numpy.generic)
    return False


def _hint(cls: type, field: dataclasses.Field) -> Any:
    """The annotation of a field; its text where the names in it are not known here."""
    if not isinstance(field.type, str):
        return field.type
    owner = next(c for c in cls.__mro__ if field.name in c.__dict__.get("__annotations__", {}))
    try:
        return eval(field.type, vars(sys.modules[owner.__module__]), dict(vars(owner)))
    except Exception:  # a name that only a type checker knows, or one of a function
        return field.type


class Module:
    """A class whose fields that hold arrays are leaves of a tree, and whose other fields are static.

        class Net(nn.Module):
            w: ts.Array
            name: str = "net"

            def __call__(self, x):
                return xp.tanh(x @ self.w)

    It is a dataclass: ``Net(w)``; a class may have an ``__init__`` of its own, which gives a value to each annotated field. Annotations
    say which fields hold arrays: those of arrays, keys and modules, lists, tuples and dicts of them, and `Any`. `nn.static()` and
    `nn.leaf()` say it of one field. Modules go through `ts.jit`, `ts.grad`, `ts.vmap`, optimisers and checkpoints as the trees that
    they are; they do not change: ``module.replace(w=new)`` gives another."""

    _leaves: ClassVar[tuple[str, ...]] = ()
    _static: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own_init = "__init__" in cls.__dict__
        dataclasses.dataclass(eq=False, repr=False, init=not own_init)(cls)
        kinds = {f.name: f.metadata.get(_MARK) or ("leaf" if _holds_arrays(_hint(cls, f)) else "static")
                 for f in dataclasses.fields(cls)}  # fmt: skip
        cls._leaves = tuple(n for n, k in kinds.items() if k == "leaf")
        cls._static = tuple(n for n, k in kinds.items() if k == "static")
        begin = cls.__init__

        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            begin(self, *args, **kwargs)
            if type(self) is cls:
                _check(self)
                object.__setattr__(self, "_made", True)

        __init__.__wrapped__ = begin  # type: ignore[attr-defined]
        cls.__init__ = __init__  # type: ignore[method-assign]
        pytree.register(cls, _flatten, lambda meta, children: _unflatten(cls, meta, children), lambda m: type(m)._leaves)

    def __setattr__(self, name: str, value: Any) -> None:
        if getattr(self, "_made", False):
            raise fail("E_READ_ONLY", f"expected no assignment to `{type(self).__name__}.{name}`: modules do not change",
                       f"write `module = module.replace({name}=...)`, and return it from a jitted function")  # fmt: skip
        if name not in self._leaves and name not in self._static:
            raise fail("E_NAME", f"expected a field of `{type(self).__name__}`, got `{name}`, which has no annotation",
                       f"write `{name}: ts.Array` (or another type) in the body of the class")  # fmt: skip
        object.__setattr__(self, name, value)

    def replace(self, **changes: Any) -> Any:
        """A module with other values for some fields."""
        for name in changes:
            if name not in self._leaves and name not in self._static:
                known = ", ".join((*self._leaves, *self._static))
                raise fail("E_NAME", f"expected a field of `{type(self).__name__}`, got `{name}`", f"its fields are {known}")
        made = object.__new__(type(self))
        for name in (*self._leaves, *self._static):
            object.__setattr__(made, name, changes.get(name, getattr(self, name)))
        _check(made)
        object.__setattr__(made, "_made", True)
        return made

    def __repr__(self) -> str:
        def show(v: Any) -> str:
            if isinstance(v, (Module, dict, list, tuple)) or not hasattr(v, "shape"):
                return repr(v)
            return f"{v.dtype}[{', '.join(map(str, v.shape))}]"

        fields = [f.name for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{n}={show(getattr(self, n))}' for n in fields)})"


def _check(module: Module) -> None:
    what = type(module).__name__
    for name in (*module._leaves, *module._static):
        if not hasattr(module, name):
            raise fail("E_UNINIT", f"expected `{what}.__init__` to give a value to `{name}`", f"write `self.{name} = ...` in it")
    for name in module._static:
        value = getattr(module, name)
        if any(isinstance(v, Tracer) or (is_array(v) and not isinstance(v, (bool, int, float, complex))) for v in pytree.leaves(value)):
            raise fail("E_TYPE", f"expected `{what}.{name}` to hold no arrays, for its annotation is of none, got {type(value).__name__}",
                       f"annotate it as an array: `{name}: ts.Array`, or write `{name}: Any = nn.leaf()`")  # fmt: skip
        try:
            hash(value)
        except TypeError:
            raise fail("E_TYPE", f"expected a static value of `{what}.{name}` that can be compared, got {type(value).__name__}",
                       "make it a tuple or a frozen dataclass") from None  # fmt: skip


def _flatten(module: Module) -> tuple[list, Any]:
    fixed = tuple(getattr(module, n) for n in module._static)
    return [getattr(module, n) for n in module._leaves], (fixed, pytree.static_key(fixed))


def _unflatten(cls: type, meta: Any, children: list) -> Any:
    made = object.__new__(cls)
    for name, value in zip(cls._leaves, children, strict=True):  # type: ignore[attr-defined]
        object.__setattr__(made, name, value)
    for name, value in zip(cls._static, meta[0], strict=True):  # type: ignore[attr-defined]
        object.__setattr__(made, name, value)
    object.__setattr__(made, "_made", True)
    return made
