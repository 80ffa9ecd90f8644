"""The context of the running code: its group, its lane, and the shared buffers of its group."""

from __future__ import annotations

from typing import Any

import numpy as np

from .values import host_dtype


class Here:
    """One group; ``lane`` is the lane that runs now, and ``lanes`` how many the group has (0 in a group kernel)."""

    def __init__(self, group: tuple[int, ...], grid: tuple[int, ...], lanes: int, first: int, config: dict[str, Any]) -> None:
        self.group = group
        self.grid = grid
        self.lanes = lanes
        self.first = first
        self.config = config
        self.lane = 0
        self.buffers: list[Any] = []
        self.requests: dict[int, int] = {}

    def shared(self, shape: tuple[int, ...], dt: str) -> Any:
        """The buffer of an `alloc_shared`: in a lane kernel the lanes' n-th calls give one buffer."""
        from .memory import Array

        number = self.requests.get(self.lane, 0)
        self.requests[self.lane] = number + 1
        if number == len(self.buffers) or not self.lanes:
            made = Array(np.zeros(shape, host_dtype(dt)), dt)
            if not self.lanes:
                return made
            self.buffers.append(made)
        return self.buffers[number]


here: Here = Here((0, 0, 0), (1, 1, 1), 0, 0, {})
#: Lanes of a warp, on the backend that is compared with the oracle.
warp = 32
#: The functions that were called in a run whose results are only within a bound.
inexact: set[str] = set()

#: How many iterations a launch may have, all loops together; 0 for any number.
limit = 0
ticks = 0


def tick() -> None:
    global ticks
    ticks += 1
    if limit and ticks > limit:
        from .values import OracleError

        raise OracleError("endless", "a loop that does not end")
