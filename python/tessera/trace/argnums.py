"""Resolves options that name arguments, by position (``static_argnums``) or name (``static_argnames``), against the signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .tracer import fail


def chosen(fn: Callable, option: str, nums: Any, names: Any) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The places, counted from the start, and the names of the arguments that ``{option}_argnums`` and ``{option}_argnames`` mean. Where
    one of the two is given, the other follows from the signature, so that an argument is meant however it is handed over."""
    places, called = _places(f"{option}_argnums", nums), _words(f"{option}_argnames", names)
    try:
        params = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin without one
        return places, called
    plain = [p for p in params if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    kinds = {p.kind for p in params}
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        for n in places:
            if not -len(plain) <= n < len(plain):
                raise fail(
                    "E_ARGUMENT",
                    f"expected `{option}_argnums` to be places of the {len(plain)} positional arguments of `{_shown(fn)}`, got {n}",
                    "count arguments from 0, or from -1 at the end",
                )
        places = tuple(n % len(plain) for n in places)
    known = [p.name for p in params if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in called:
            if name not in known:
                raise fail("E_ARGUMENT", f"expected `{option}_argnames` to be names of arguments of `{_shown(fn)}`, got `{name}`",
                           f"its arguments are {', '.join(f'`{k}`' for k in known) or 'none that have names'}")  # fmt: skip
    if places and not called:
        called = tuple(p.name for i, p in enumerate(plain) if i in places and p.kind is p.POSITIONAL_OR_KEYWORD)
    elif called and not places:
        places = tuple(i for i, p in enumerate(plain) if p.name in called)
    return places, called


def _shown(fn: Callable) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _places(option: str, given: Any) -> tuple[int, ...]:
    if given is None:
        return ()
    listed = (given,) if isinstance(given, int) else given
    if not isinstance(listed, (tuple, list)) or not all(isinstance(n, int) and not isinstance(n, bool) for n in listed):
        raise fail("E_ARGUMENT", f"expected `{option}` to be places of arguments, got {given!r}", f"write such as `{option}=(0, 1)`")
    return tuple(listed)


def _words(option: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    listed = (given,) if isinstance(given, str) else given
    if not isinstance(listed, (tuple, list)) or not all(isinstance(n, str) for n in listed):
        raise fail("E_ARGUMENT", f"expected `{option}` to be names of arguments, got {given!r}", f'write such as `{option}=("n",)`')
    return tuple(listed)
