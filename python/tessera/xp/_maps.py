"""Array functions of one primitive of Graph IR."""

from __future__ import annotations

from typing import Any

from ..trace import prim as p
from ..trace.jit import eager


def _named(call: Any, name: str, doc: str) -> Any:
    # By these names pickle finds it again.
    call.__name__ = call.__qualname__ = name
    call.__module__ = "tessera.xp"
    call.__doc__ = doc
    return eager(call)


def unary(fn: str, name: str, doc: str) -> Any:
    def call(x: Any) -> Any:
        return p.ew(fn, x)

    return _named(call, name, doc)


def binary(fn: str, name: str, doc: str) -> Any:
    def call(x1: Any, x2: Any) -> Any:
        return p.ew(fn, x1, x2)

    return _named(call, name, doc)
