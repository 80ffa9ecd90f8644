"""Timing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any, Callable


@dataclass(frozen=True)
class Timing:
    """The times of several runs, in seconds."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def best(self) -> float:
        return min(self.samples)

    def __str__(self) -> str:
        low, mid, high = min(self.samples), self.median, max(self.samples)
        return f"median {mid * 1e3:.3f} ms (from {low * 1e3:.3f} to {high * 1e3:.3f}, {len(self.samples)} runs)"


def bench(fn: Callable[..., Any], *args: Any, repeat: int = 20, warmup: int = 2, **kwargs: Any) -> Timing:
    """Calls ``fn`` and times it. The first ``warmup`` calls, which compile, are not counted."""
    for _ in range(warmup):
        fn(*args, **kwargs)
    samples = []
    for _ in range(max(repeat, 1)):
        start = time.perf_counter()
        fn(*args, **kwargs)
        samples.append(time.perf_counter() - start)
    return Timing(tuple(samples))
