"""Errors of operations on whole arrays, at the line that called them: an operation finds them before anything is compiled, and
knows no place of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _core
from .caller import here
from .errors import TesseraError


def placed(operation: Callable) -> Callable:
    """The operation, whose errors without a place get that of the caller."""

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return operation(*args, **kwargs)
        except TesseraError as error:
            # Those of a kernel's source or of several arguments say where they are.
            if error.line is not None or len(error.diagnostics) != 1 or error.notes:
                raise
            place = here()
            if place is None:
                raise
            found = error
        raise _core.error(found.code, found.message, found.help, place=place)

    return call
