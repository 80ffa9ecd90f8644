"""What users give, checked: names of axes, extents, coordinates."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from ..base.caller import fail

#: Larger numbers are extents of nothing.
_MOST = 2**63


def axes(given: Any) -> tuple[str, ...]:
    """The name of an axis, or several: a tuple of names."""
    found = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (tuple, list)) else None
    if not found or not all(isinstance(name, str) for name in found):
        raise fail("E_TYPE", f"expected the name of a mesh axis, or a tuple of names, got {given!r}", 'write `"tp"`, or `("dp", "tp")`')
    for at, name in enumerate(found):
        if name in found[:at]:
            raise fail("E_MESH", f"the axis `{name}` is named twice", "name each axis once")
    return found


def integer(given: Any) -> int | None:
    """A whole number of 64 bits, NumPy's too; None for anything else."""
    if isinstance(given, bool):
        return None
    try:
        made = operator.index(given)
    except TypeError:
        return None
    return made if -_MOST <= made < _MOST else None


def integers(given: Any) -> tuple[int, ...] | None:
    """Whole numbers in a tuple or a list; None for anything else."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return None
    found = tuple(integer(n) for n in given)
    return None if None in found else found  # type: ignore[return-value]


def extents(given: Any, least: int, code: str, help: str) -> tuple[int, ...]:
    """Extents of at least ``least``: a number, or a tuple."""
    one = integer(given)
    found = (one,) if one is not None else integers(given)
    if found is None or any(n < least for n in found):
        wide = [n for n in (given if isinstance(given, (tuple, list)) else (given,)) if isinstance(n, int) and n >= _MOST]
        wanted = "extents that 63 bits hold" if wide else f"extents of at least {least}"
        raise fail(code, f"expected {wanted}, got {given!r}", help)
    return found
