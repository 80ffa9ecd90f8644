"""Backends: which there are, what they can do, which one runs, and with how many threads."""

from __future__ import annotations

from typing import Any

from . import _core


def backends() -> dict[str, str]:
    """Every backend by name: ``"available"``, or what it misses here."""
    return _core.backends()


def select_backend(name: str | None) -> None:
    """Runs every later call on this backend; ``None`` returns to the default.

    It wins over ``TESSERA_BACKEND``, which wins over where the arrays are.
    """
    _core.select_backend(name)


def capabilities(device: str | None = None) -> dict[str, Any]:
    """What a device or backend can do; by default what a call with host arrays would run on."""
    return _core.capabilities(device)


def threads() -> int:
    """How many threads a launch on the CPU may use."""
    return _core.threads()


def set_threads(n: int | None) -> None:
    """Sets how many threads every later launch on the CPU may use; ``None`` for as many as there are cores.

    ``TESSERA_THREADS`` says how many there are at first. In the profile ``strict`` the number changes no bit
    of a result.
    """
    _core.set_threads(n)


def knobs() -> dict[str, str]:
    """The environment variables that Tessera reads, each with a line on what it does."""
    return _core.knobs()
