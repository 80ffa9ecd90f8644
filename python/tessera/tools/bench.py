"""Timing of calls: `ts.bench`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any, Callable

from .. import _core


@dataclass(frozen=True)
class Timing:
    """The times of several runs, in seconds. ``clock`` says whose they are: the host's, or a device's own."""

    samples: tuple[float, ...]
    clock: str = "host"

    @property
    def median(self) -> float:
        return median(self.samples)

    @property
    def best(self) -> float:
        return min(self.samples)

    @property
    def spread(self) -> float:
        """From the first quarter of the times to the last, as a part of the median."""
        if len(self.samples) < 2:
            return 0.0
        low, _, high = quantiles(self.samples, n=4, method="inclusive")
        return (high - low) / self.median if self.median else 0.0

    def __str__(self) -> str:
        low, mid, high = min(self.samples), self.median, max(self.samples)
        whose = "" if self.clock == "host" else f" on {self.clock}"
        return f"median {mid * 1e3:.3f} ms (from {low * 1e3:.3f} to {high * 1e3:.3f}, {len(self.samples)} runs{whose})"


def bench(
    fn: Callable[..., Any], *args: Any, repeat: int = 20, warmup: int = 2, flush: bool = False, **kwargs: Any
) -> Timing:
    """Calls ``fn`` and times it. The first ``warmup`` calls, which compile, are not counted.

    Where those calls put launches on a device, it is the device that is timed, by events around each call, on
    the stream that the launches went to. ``flush`` then empties the device's cache before each: what is read is read
    from memory.
    """
    before = _core.device_launches()[0]
    for _ in range(warmup):
        fn(*args, **kwargs)
    launches, device, stream = _core.device_launches()
    if launches != before:
        return _on_device(lambda: fn(*args, **kwargs), max(repeat, 1), device, stream, flush)
    samples = []
    for _ in range(max(repeat, 1)):
        start = time.perf_counter()
        fn(*args, **kwargs)
        samples.append(time.perf_counter() - start)
    return Timing(tuple(samples))


def _on_device(call: Callable[[], Any], repeat: int, device: str, stream: int, flush: bool) -> Timing:
    scratch = None
    if flush:
        # Twice as much as the cache holds.
        size = 2 * next(d["l2_bytes"] for d in _core.devices() if d["device"] == device)
        before = _core.set_stream(stream)
        try:
            scratch = _core.device_empty([max(size, 1)], _core.dtype("u8"), device)
        finally:
            _core.set_stream(before)
    marks = []
    _core.device_synchronize(device, stream)
    for run in range(repeat):
        if scratch is not None:
            scratch.fill_bytes(run % 256)
        start = _core.Event(device, stream)
        call()
        marks.append((start, _core.Event(device, stream)))
    marks[-1][1].synchronize()
    return Timing(tuple(end.seconds_since(start) for start, end in marks), device)
