"""Classes by their names in files: ``package.module:Class.Inner``.

A file chooses no code. Names are looked up among the modules that the program has imported; nothing is imported for a file. A class
that is found is given its fields without a call of its own code, unless the program itself made it a tree (`ts.tree.register`,
`nn.Module`) or saved one: then it is made as `ts.tree.unflatten` makes it."""

from __future__ import annotations

import dataclasses
import sys
import types
import weakref
from collections import OrderedDict
from typing import Any

from ..base.errors import Refusal
from ..tree import pytree
from .bounded_json import shown

#: Classes that the program saved: also those of functions and notebooks, which no module has under their names.
_saved: weakref.WeakValueDictionary[str, type] = weakref.WeakValueDictionary()


def name_of(kind: type) -> str:
    """By the package that makes it public, where its module is private: files outlive where a class is defined."""
    module = kind.__module__
    package, _, last = module.rpartition(".")
    public = getattr(sys.modules.get(package), "__dict__", {})
    if last.startswith("_") and public.get(kind.__qualname__) is kind:
        module = package
    return f"{module}:{kind.__qualname__}"


def remember(kind: type) -> None:
    """Lets files name a class that the program saves."""
    _saved[name_of(kind)] = kind


def find(name: Any, at: str, family: type = object) -> tuple[type, bool]:
    """The class of a name, and whether the program vouches for what its own code does."""
    if not isinstance(name, str):
        raise Refusal(f"expected the name of a class {at}, got {shown(name)}", "the file is damaged: write it again")
    found = _imported(name) or next((k for k in reversed(pytree._REGISTERED) if name_of(k) == name), None) or _saved.get(name)
    if found is None or not issubclass(found, family):
        raise Refusal(f"expected a class `{shown(name)}` {at}, got a program without one",
                      "import the module that defines it, or give a tree of this structure: `ts.load(path, like=tree)`")  # fmt: skip
    trusted = found in pytree._REGISTERED or found is _saved.get(name)
    if not trusted and hasattr(found, "__del__"):
        raise _code(found, "`__del__`", at)
    return found, trusted


def _imported(name: str) -> type | None:
    module, _, inner = name.partition(":")
    found: Any = sys.modules.get(module)
    if not isinstance(found, types.ModuleType):
        return None
    # By `__dict__`: attributes of modules may import more, and those of classes may be computed.
    scope = object.__getattribute__(found, "__dict__")
    for step in inner.split("."):
        found = scope.get(step)
        if not isinstance(found, type):
            return None
        scope = type.__getattribute__(found, "__dict__")
    return found if name_of(found) == name else None


def named_tuple(kind: type, fields: Any, children: list, at: str) -> Any:
    have = list(getattr(kind, "_fields", ()))
    if not issubclass(kind, tuple) or have != fields or len(fields) != len(children):
        raise _other(kind, have, fields, at)
    return tuple.__new__(kind, children)


def data_class(kind: type, values: dict[str, Any], trusted: bool, at: str) -> Any:
    """A dataclass with these values of its fields."""
    fields = {f.name: f.init for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else None
    # A field that `__init__` does not take may have no value.
    if fields is None or values.keys() - fields.keys() or any(init and name not in values for name, init in fields.items()):
        raise _other(kind, list(fields or []), list(values), at)
    if not trusted and not _only_fields(kind):
        raise _code(kind, "`__init__`, `__post_init__` or setters", at)
    try:
        return pytree.built(kind, values)
    except Exception as error:
        raise failed(kind, error, at) from error


def _only_fields(kind: type) -> bool:
    """Whether a dataclass is its fields: `dataclass` wrote its ``__init__``, and nothing runs beside it."""
    code = getattr(kind.__init__, "__code__", None)
    written = code is not None and code.co_filename == "<string>" and kind.__new__ is object.__new__
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    held = [next((vars(c)[f.name] for c in kind.__mro__ if f.name in vars(c)), None) for f in fields]
    setters = [v for v in held if hasattr(type(v), "__set__") and not isinstance(v, types.MemberDescriptorType)]
    return written and not hasattr(kind, "__post_init__") and not setters


def dict_of(kind: type, items: dict, trusted: bool, at: str) -> Any:
    """A class of dicts with these items."""
    if kind in (dict, OrderedDict):
        return kind(items)
    if trusted:
        try:
            return kind(items)
        except Exception as error:
            raise failed(kind, error, at) from error
    own = {"__init__", "__new__", "__setitem__", "update"} & {n for c in kind.__mro__[: kind.__mro__.index(dict)] for n in vars(c)}
    if own:
        raise _code(kind, f"`{sorted(own)[0]}`", at)
    made = dict.__new__(kind)
    dict.update(made, items)
    return made


def registered(kind: type, meta: Any, children: list, at: str) -> Any:
    try:
        return pytree._REGISTERED[kind][1](meta, children)
    except Exception as error:
        raise failed(kind, error, at) from error


def _code(kind: type, what: str, at: str) -> Refusal:
    return Refusal(f"expected a class without {what} of its own {at}, got `{shown(name_of(kind))}`: a file calls no code",
                   "give a tree of this structure: `ts.load(path, like=tree)`")  # fmt: skip


def failed(kind: type, error: Exception, at: str) -> Refusal:
    """For what a class itself raised."""
    return Refusal(f"expected to make a `{kind.__qualname__}` {at}, got {type(error).__name__}: {shown(error, 90)}",
                   f"let `{kind.__name__}` be made of the fields it has, or save a dict of its arrays")  # fmt: skip


def _other(kind: type, have: list, fields: Any, at: str) -> Refusal:
    return Refusal(f"expected a `{shown(name_of(kind))}` {at} with the fields {shown(', '.join(have)) or 'of none'}, "
                   f"got {shown(', '.join(map(str, fields)) if isinstance(fields, list) else fields) or 'none'}",
                   "give a tree of the structure that was saved: `ts.load(path, like=tree)`")  # fmt: skip
