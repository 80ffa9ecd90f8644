"""Array functions of one primitive of Graph IR."""

from __future__ import annotations

from typing import Any

from ..trace import prim as p
from ..trace.jit import eager


def unary(fn: str, name: str, doc: str) -> Any:
    def call(x: Any) -> Any:
        return p.ew(fn, x)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return eager(call)


def binary(fn: str, name: str, doc: str) -> Any:
    def call(x1: Any, x2: Any) -> Any:
        return p.ew(fn, x1, x2)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = doc
    return eager(call)
