"""Locations for errors of operations on whole arrays: the line that called them. Such errors are found before anything is compiled,
and have no location of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .. import _core
from .caller import here
from .errors import TesseraError


def placed(operation: Callable) -> Callable:
    """The operation; its errors without a location get that of the caller."""

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
