"""The source text of a function, wherever it was written."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any, Callable

from .. import _core
from .stale_source import is_stale


@dataclass(frozen=True)
class Source:
    """The text of a ``def`` with its decorators, and where it stands."""

    name: str
    file: str
    text: str
    line: int


def source_of(fn: Callable, given: str | None, decorator: str) -> Source:
    """The source of ``fn``; ``given`` is what the user passed as ``source=``."""
    code = getattr(fn, "__code__", None)
    if code is None:
        raise _core.error(
            "E_SYNTAX", f"expected a function after `@{decorator}`, got {type(fn).__name__}", "decorate a `def`"
        )
    if given is not None:
        return Source(fn.__name__, code.co_filename, given, 1)
    # A file edited since it was imported gives lines of something else.
    if is_stale(fn):
        raise _core.error(
            "E_SYNTAX",
            f"expected {code.co_filename} as it was when it was imported, got a file that has changed since: the source of `{fn.__name__}` "
            "is not what Python runs",
            "start Python again, or `importlib.reload` the module",
        )
    if fn.__name__ == "<lambda>":
        raise _core.error(
            "E_SYNTAX",
            f"expected a function made by `def`, got a lambda: `{decorator}` compiles the statements of a function",
            f"write `@{decorator}` above a `def`",
        )
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError, SyntaxError):
        raise _unavailable(fn, decorator) from None
    text = "".join(lines)
    if not re.search(rf"\bdef\s+{re.escape(code.co_name)}\b", text):
        raise _unavailable(fn, decorator)
    return Source(fn.__name__, code.co_filename, text, max(first, 1))


def closure_of(fn: Callable) -> dict[str, Any]:
    """The names that ``fn`` takes from the functions around it; those not assigned yet are left out."""
    out = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or ()):
        try:
            out[name] = cell.cell_contents
        except ValueError:
            pass
    return out


def _unavailable(fn: Callable, decorator: str) -> Exception:
    return _core.error(
        "E_SYNTAX",
        f"the source of `{fn.__name__}` is not available: Python keeps none for {fn.__code__.co_filename}",
        f'pass it: `@{decorator}(source="""def {fn.__name__}(...): ...""")`, or put the kernel into a file',
    )
