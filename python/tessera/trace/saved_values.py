"""Values that a policy of `ts.checkpoint` may keep for the reverse pass: primitives name theirs here, `transforms.remat` asks for them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from .tracer import Tracer, current


class _Modes(threading.local):
    def __init__(self) -> None:
        self.stack: list[Saving] = []


_modes = _Modes()


class _Counting:
    """A builder that knows how many regions are open."""

    def __init__(self, builder: Any) -> None:
        self._builder, self.depth = builder, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def open(self, *args: Any) -> Any:
        made = self._builder.open(*args)
        self.depth += 1
        return made

    def close(self, *args: Any) -> Any:
        made = self._builder.close(*args)
        self.depth -= 1
        return made

    def abandon(self) -> None:
        self._builder.abandon()
        self.depth -= 1


class Saving:
    """A function that is traced with a policy: values are gathered, or given back where they were."""

    def __init__(self, policy: Any, given: list | None, stands_for: Callable[[Tracer, Tracer], Tracer] | None = None) -> None:
        """``stands_for(made, held)`` is a held value with the derivative of what made it."""
        self.policy, self.given, self.saved, self.stands_for = policy, given, [], stands_for
        self.frame = current()
        assert self.frame is not None
        self.frame.builder = _Counting(self.frame.builder)

    def __enter__(self) -> Saving:
        _modes.stack.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _modes.stack.pop()


def saveable(x: Tracer, kind: str) -> Tracer:
    """A value that a policy may keep: a matmul, or one that has a name."""
    mode = _modes.stack[-1] if _modes.stack else None
    # Values of loops and branches are made in each iteration: they are not kept.
    if mode is None or mode.frame is not current() or mode.frame.builder.depth or kind not in mode.policy:
        return x
    if mode.given is None:
        mode.saved.append(x)
        return x
    held = mode.given[len(mode.saved)]
    mode.saved.append(x)
    assert mode.stands_for is not None
    return mode.stands_for(x, held)
