"""The context of the running code: its group, its lane, and the shared buffers of its group."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .values import host_dtype


class Here:
    """One group; ``lane`` is the lane that runs now, and ``shape`` the extents of a group of lanes (empty in a group kernel)."""

    def __init__(self, group: tuple[int, ...], grid: tuple[int, ...], shape: tuple[int, ...], config: dict[str, Any]) -> None:
        self.group = group
        self.grid = grid
        self.shape = shape
        self.lanes = math.prod(shape) if shape else 0
        self.config = config
        self.lane = 0
        self.buffers: list[Any] = []
        self.requests: dict[int, int] = {}

    def place(self, axis: int) -> int:
        """The place of the lane along an axis of its group: the last one counts fastest."""
        return self.lane // math.prod(self.shape[axis + 1 :]) % self.shape[axis]

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


here: Here = Here((0, 0, 0), (1, 1, 1), (), {})
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
