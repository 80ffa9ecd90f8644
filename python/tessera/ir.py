"""IR text."""

from __future__ import annotations

from . import _core
from ._core import Module


def parse(text: str) -> Module:
    """Reads a module of any level: ``str(module)`` is its text, ``module.hash()`` its hash."""
    return _core.ir_parse(text)


__all__ = ["Module", "parse"]
