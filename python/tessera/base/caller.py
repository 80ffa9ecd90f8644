"""The source location of the user's call: the innermost line outside this package."""

from __future__ import annotations

import dis
import functools
import inspect
import linecache
import os
import sys
import weakref
from types import CodeType, FrameType
from typing import Any

from .. import _core
from .._core import Place, SourceText

_INSIDE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: How many texts of files are cached; a notebook has one for each cell that was run.
MOST_TEXTS = 64
#: By the name of the file, with what was known of it: a notebook or `exec` may give a name twice.
_texts: dict[str, tuple[object, SourceText]] = {}


class ByCode:
    """A cache by code object, with entries that live as long as the code. Code is compared by identity, not by its text: the same
    lines may be in two files."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[dict, weakref.ref]] = {}

    def of(self, code: CodeType) -> dict[Any, Any]:
        at = id(code)
        found = self._known.get(at)
        if found is None:
            forget = self._known.pop
            found = self._known[at] = {}, weakref.ref(code, lambda _: forget(at, None))
        return found[0]

    def __len__(self) -> int:
        return sum(len(facts) for facts, _ in self._known.values())


_places = ByCode()
#: Whether code is of this package, by identity; an entry goes with its code.
_ours: dict[int, bool] = {}
_watched: dict[int, weakref.ref] = {}


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is of this package."""
    code = frame.f_code
    at = id(code)
    known = _ours.get(at)
    if known is None:
        name = code.co_filename
        # Code that `dataclass` generates has no file; it belongs to the module of the class.
        written = name == "<string>" and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "tessera"
        known = os.path.abspath(name).startswith(_INSIDE) or name.endswith("functools.py") or written

        def forget(_: weakref.ref) -> None:
            _ours.pop(at, None)
            _watched.pop(at, None)

        _watched[at] = weakref.ref(code, forget)
        _ours[at] = known
    return known


def _user_frame() -> FrameType | None:
    # Once for each op of a trace, through some forty frames: without a call for each.
    frame: FrameType | None = sys._getframe(2)
    known = _ours.get
    while frame is not None:
        ours = known(id(frame.f_code))
        if not (is_ours(frame) if ours is None else ours):
            return frame
        frame = frame.f_back
    return None


def here() -> Place | None:
    """The place of the expression that the user's innermost frame is at."""
    frame = _user_frame()
    if frame is None:
        return None
    places = _places.of(frame.f_code)
    found = places.get(frame.f_lasti)
    if found is None:
        found = places[frame.f_lasti] = _make(frame)
    return found


def kept() -> dict[str, dict[str, int]]:
    """The tables of this module: entries, and bytes of text."""
    texts = sum(len(lines) for mark, _ in _texts.values() if isinstance(mark, tuple) and len(mark) > 2 for lines in mark[2])
    return {"places": {"entries": len(_places) + len(_ours), "bytes": 0}, "texts": {"entries": len(_texts), "bytes": texts}}


def returns(fn: Any) -> Place | None:
    """The last `return` of a function, for errors about its result; the user's line where it has no source."""
    fn = inspect.unwrap(fn)
    while isinstance(fn, functools.partial):
        fn = inspect.unwrap(fn.func)
    code = getattr(fn, "__code__", None)
    if code is None:
        return here()
    spans = [(i.opname, at) for i in dis.get_instructions(code) if (at := getattr(i, "positions", None)) and at.lineno]
    if fn.__name__ == "<lambda>":
        # The return of a lambda has no width: the last expression is what it gives.
        ends = [at for _, at in spans if None not in at and (at.lineno, at.col_offset) != (at.end_lineno, at.end_col_offset)]
    else:
        ends = [at for name, at in spans if name.startswith("RETURN_") and None not in at]
    span = ends[-1] if ends else None
    if span is None:
        return Place(_text(code.co_filename, fn.__globals__), code.co_firstlineno, 1, code.co_firstlineno, 1)
    line, end, column, last = span
    return Place(_text(code.co_filename, fn.__globals__), line, column + 1, end, last + 1)


def _text(name: str, names: dict) -> SourceText:
    known, text = _texts.get(name, (None, None))
    if text is None or known is not linecache.cache.get(name):
        text = SourceText(name, "".join(linecache.getlines(name, names)))
        _texts.pop(name, None)
        if len(_texts) >= MOST_TEXTS:
            _texts.pop(next(iter(_texts), None), None)  # another thread may have done it
        _texts[name] = linecache.cache.get(name), text
    return text


def _make(frame: FrameType) -> Place:
    code = frame.f_code
    text = _text(code.co_filename, frame.f_globals)
    line = end = frame.f_lineno or 1
    column = last = 1
    if hasattr(code, "co_positions"):
        spans = list(code.co_positions())
        at = frame.f_lasti // 2
        if at < len(spans) and None not in spans[at]:
            line, end, column, last = spans[at]  # type: ignore[assignment]
            column, last = column + 1, last + 1
    return Place(text, line, column, end, last)


def fail(code: str, message: str, help: str | None = None) -> Exception:
    """The error for the user's line."""
    return _core.error(code, message, help, None, None, here())
