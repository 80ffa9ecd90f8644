"""``@ts.struct``: records, which kernels take as one parameter."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from .. import _core
from ..base.caller import here
from ..base.dtypes import DType, dtype

#: Annotations of compile-time values.
CONSTANTS = (bool, int, float, str, DType, dtype)
_CONSTANT_NAMES = ("bool", "int", "float", "str", "DType", "ts.DType", "ts.dtype", "tessera.DType", "tessera.dtype")


def struct(cls: type | None = None, /) -> Any:
    """Makes a class a record: a frozen dataclass of arrays, numbers, compile-time values and other records.

    ``@ts.kernel`` and ``@ts.func`` take a record as one parameter and read its fields. Fields are annotated as parameters are. For
    ``ts.jit`` and the transforms a record is a tree: its arrays and numbers with a dtype are leaves, and ``bool``, ``int``, ``float``,
    ``str`` and ``ts.DType`` fields are constants of the trace.
    """
    if cls is None:
        return struct
    if not isinstance(cls, type):
        raise _core.error("E_TYPE", f"expected a class after `@ts.struct`, got {type(cls).__name__}", "decorate a `class`", place=here())
    for name, annotation in vars(cls).get("__annotations__", {}).items():
        if not is_constant(annotation):
            continue
        given = vars(cls).get(name, dataclasses.MISSING)
        if isinstance(given, dataclasses.Field):
            given.metadata = {**given.metadata, "static": True}  # type: ignore[assignment]
        else:
            setattr(cls, name, dataclasses.field(default=given, metadata={"static": True}))
    own = "__init__" in vars(cls)
    # Arrays do not compare as a whole: records are compared by identity.
    made = dataclasses.dataclass(frozen=True, eq=False)(cls)
    if not own and _is_plain(made):
        made.__init__ = _init(made)  # type: ignore[misc]
    return made


def _is_plain(cls: type) -> bool:
    """Whether a dataclass does no more than keep its arguments in a dict."""
    fields = dataclasses.fields(cls)
    given = all(f.init and f.default_factory is dataclasses.MISSING for f in fields)
    # Others are variables of the class, and arguments that are not kept.
    return given and len(fields) == len(cls.__dataclass_fields__) and bool(cls.__dictoffset__) and not hasattr(cls, "__post_init__")


def _init(cls: type) -> Any:
    """As the ``__init__`` of a frozen dataclass, which sets its fields one by one: records are made for every launch."""
    fields = dataclasses.fields(cls)
    scope: dict[str, Any] = {"_set": object.__setattr__, "_defaults": {f.name: f.default for f in fields}}
    default = lambda f: "" if f.default is dataclasses.MISSING else f"=_defaults[{f.name!r}]"  # noqa: E731
    places = [f"{f.name}{default(f)}" for f in fields if not f.kw_only]
    names = [f"{f.name}{default(f)}" for f in fields if f.kw_only]
    values = ", ".join(f"{f.name!r}: {f.name}" for f in fields)
    exec(f"def __init__({', '.join(['self', *places, *(['*'] if names else []), *names])}): _set(self, '__dict__', {{{values}}})", scope)
    made = scope["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = cls.__init__.__annotations__  # type: ignore[misc]
    return made


def is_constant(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.partition("|")[0].strip() in _CONSTANT_NAMES
    return any(annotation is one for one in CONSTANTS)


def field_type(cls: type, field: dataclasses.Field, scope: dict[str, Any]) -> Any:
    """The annotation of a field. One that is text is evaluated where its class is defined; text that names nothing stays text."""
    found: Any = field.type
    owner = next((base for base in cls.__mro__ if field.name in vars(base).get("__annotations__", {})), cls)
    module = sys.modules.get(owner.__module__)
    names = {} if module is None else dict(vars(module))
    for _ in range(2):  # Quotes in a module whose annotations are all text.
        if not isinstance(found, str):
            break
        try:
            found = eval(found, names, {**scope, **vars(owner)})
        except (NameError, AttributeError, SyntaxError, TypeError):
            return found
    return found
