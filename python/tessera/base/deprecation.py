"""Names that a release renamed: they work until the next one, and warn."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from typing import Any, Callable, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def warn(former: str, now: str) -> None:
    """Warns that ``former`` is now ``now``, at the user's line."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tessera":
        frame = frame.f_back
    message = f"W_DEPRECATED: `{former}` is now `{now}`; the next release has no `{former}`"
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, DeprecationWarning, frame.f_code.co_filename, frame.f_lineno, registry=registry)


def renamed_keywords(**former: str) -> Callable[[F], F]:
    """A function that takes its keyword arguments by former names too: ``@renamed_keywords(old="new")``."""

    def decorate(fn: F) -> F:
        @functools.wraps(fn)
        def call(*args: Any, **keywords: Any) -> Any:
            for old in former.keys() & keywords.keys():
                if former[old] in keywords:
                    raise TypeError(f"{fn.__name__}() got both `{old}` and `{former[old]}`, which are one argument")
                warn(old, former[old])
                keywords[former[old]] = keywords.pop(old)
            return fn(*args, **keywords)

        # The signature and the source are those of the function.
        call.__signature__ = inspect.signature(fn)  # type: ignore[attr-defined]
        return call  # type: ignore[return-value]

    return decorate
