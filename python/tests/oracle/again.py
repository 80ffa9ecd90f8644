"""What the oracle found for a launch, kept for launches that mean the same.

The tests compare the same programs on several backends, and the oracle, which takes most of the time, knows nothing of backends. `key`
names everything that it reads: the source with the values of its free names and of theirs, the arguments, the grid and the configuration.
A launch with anything else among them has no key and is executed.
"""

from __future__ import annotations

import hashlib
import inspect
import types
from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts
from tessera.kernel.builtins import ApiFunction, ApiNamespace
from tessera.kernel.func import Func

#: Seconds from which a result is worth keeping, and how many are kept.
LEAST, MOST = 0.004, 5000
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), ts.DType)
#: Modules that no test changes: their names say what is in them.
KNOWN = ("builtins", "math", "numpy", "tessera")

kept: dict[bytes, Any] = {}


class Unnamed(Exception):
    """There is a value whose meaning has no name."""


def meaning(value: Any, names: Callable[[Any], dict[str, Any]], within: tuple[int, ...] = ()) -> Any:
    """Equal for values that mean the same to a kernel; ``names`` gives the free names of a function."""
    if isinstance(value, PLAIN):
        return type(value).__name__, repr(value)
    if isinstance(value, np.ndarray):
        return "array", str(value.dtype), value.shape, value.flags.writeable, hashlib.sha256(np.ascontiguousarray(value).tobytes()).digest()
    if isinstance(value, np.generic):
        return "number", str(value.dtype), value.tobytes()
    if isinstance(value, np.dtype):
        return "dtype", str(value)
    if isinstance(value, tuple | list):
        return type(value).__name__, [meaning(v, names, within) for v in value]
    if isinstance(value, dict):
        return "dict", [(meaning(k, names, within), meaning(v, names, within)) for k, v in value.items()]
    if isinstance(value, ApiFunction):
        return "api", value.api_name
    if isinstance(value, ApiNamespace):
        return "namespace", repr(value)
    if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] in KNOWN:
        return "module", value.__name__
    if isinstance(value, types.BuiltinFunctionType):
        return "builtin", getattr(value, "__module__", ""), value.__qualname__
    if isinstance(value, Func):
        if id(value) in within:
            return "itself", within.index(id(value))
        inside = (*within, id(value))
        fn = inspect.unwrap(value)
        defaults = (fn.__defaults__, fn.__kwdefaults__) if inspect.isfunction(fn) else None
        return "func", value.source.text, meaning(defaults, names, inside), [(k, meaning(v, names, inside)) for k, v in sorted(names(value).items())]
    if isinstance(value, type) and value.__module__.partition(".")[0] in KNOWN:
        return "type", value.__module__, value.__qualname__
    raise Unnamed


def key(*values: Any, names: Callable[[Any], dict[str, Any]]) -> bytes | None:
    try:
        return hashlib.sha256(repr(meaning(values, names)).encode()).digest()
    except Unnamed:
        return None


def keep(found: bytes | None, seconds: float, result: Any) -> None:
    if found is not None and seconds >= LEAST and len(kept) < MOST:
        kept[found] = result
