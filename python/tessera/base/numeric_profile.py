"""The numeric profile: one for the process, and one for each block that sets its own."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any

from .. import _core

PROFILES: tuple[str, ...] = tuple(_core.profiles())

_process = 0
#: The number of the profile inside a ``with`` block; -1 outside.
_scoped: ContextVar[int] = ContextVar("tessera profile", default=-1)


def current() -> int:
    """The number of the profile that holds here."""
    scoped = _scoped.get()
    return _process if scoped < 0 else scoped


class Profile(str):
    """The name of a profile; as a context manager, that profile for a block."""

    def __new__(cls, name: str, before: int | None = None) -> Profile:
        self = super().__new__(cls, name)
        self._before = before
        self._tokens: list[Token[int]] = []
        return self

    _before: int | None
    _tokens: list[Token[int]]

    def __enter__(self) -> Profile:
        global _process
        if self._before is not None:
            # The call that made this object set the process; a block sets only itself.
            _process, self._before = self._before, None
            _core.process_profile(_process)
        _core.scoped_settings()
        self._tokens.append(_scoped.set(PROFILES.index(str(self))))
        return self

    def __exit__(self, *exception: Any) -> None:
        _scoped.reset(self._tokens.pop())


def profile(name: str | None = None) -> Profile:
    """The numeric profile: ``"default"``, ``"deterministic"`` or ``"strict"``.

    ``profile()`` returns the current one. ``profile("strict")`` sets it for the process, and
    ``with profile("strict"):`` for the calls inside the block, in this thread. Kernels are compiled
    anew for each.
    """
    global _process
    if name is None:
        return Profile(PROFILES[current()])
    if name not in PROFILES:
        raise _core.error(
            "E_ARGUMENT", f"expected a profile (one of {', '.join(PROFILES)}), got {name!r}", 'write `profile("strict")`'
        )
    before, _process = _process, PROFILES.index(name)
    _core.process_profile(_process)
    return Profile(name, before)
