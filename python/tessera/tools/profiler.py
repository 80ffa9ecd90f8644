"""Profiles: what ran in a block of code, how long it took, and how near it came to the roofline."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core
from .peaks import Peaks, peaks


@dataclass(frozen=True)
class Sample:
    """One launch, or one step of a compiled function."""

    name: str
    #: ``kernel``; of compiled functions ``group``, ``host`` (evaluated by definition) or ``copy``; ``range`` of the user's.
    kind: str
    backend: str
    #: File and line of the user's source, where it is known.
    place: tuple[str, int] | None
    #: Seconds since the session began. On a device its own clock, by events around the launch.
    begin: float
    seconds: float
    thread: int = 0
    device: str | None = None
    stream: int = 0
    #: Counted in the program, not measured; None where that cannot be done.
    flops: int | None = None
    bytes: int | None = None
    #: Whether nothing that was counted depends on data.
    exact: bool = False
    #: Bytes in use at its end: the device's pool, or the memory that a compiled function plans.
    memory: int | None = None


@dataclass(frozen=True)
class Line:
    """All samples of one name and place."""

    name: str
    kind: str
    backend: str
    place: tuple[str, int] | None
    device: str | None
    calls: int
    seconds: float
    flops: int | None
    bytes: int | None


class Profile:
    """What a session saw. Printed it is a table; ``save`` writes a trace for chrome://tracing or ui.perfetto.dev."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        #: How long the block took.
        self.seconds = 0.0
        self._ranges: list[Sample] = []
        self._start = 0.0

    def __enter__(self) -> Profile:
        _core.profile_begin()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception: Any) -> None:
        rows, self.seconds = _core.profile_end()
        self.samples = [Sample(**row) for row in rows]
        self.samples += self._ranges
        self.samples.sort(key=lambda s: s.begin)

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Names a part of the block; it stands in the trace above what runs in it. The host's time."""
        if not isinstance(name, str):
            raise _core.error("E_TYPE", f"expected the name of a range, got {name!r}", 'write `with p.range("forward"):`')
        begin = time.perf_counter()
        try:
            yield
        finally:
            end = time.perf_counter()
            thread = threading.get_ident() % 100_000
            self._ranges.append(Sample(name, "range", "host", None, begin - self._start, end - begin, thread))

    @property
    def lines(self) -> list[Line]:
        """Samples by name and place, those that took longest first. Ranges are not among them: they hold others."""
        groups: dict[Any, list[Sample]] = {}
        for s in self.samples:
            if s.kind != "range":
                groups.setdefault((s.name, s.kind, s.backend, s.place, s.device), []).append(s)
        made = [
            Line(*key, len(group), sum(s.seconds for s in group), _sum(s.flops for s in group), _sum(s.bytes for s in group))
            for key, group in groups.items()
        ]
        return sorted(made, key=lambda line: (-line.seconds, line.name))

    @property
    def memory(self) -> list[tuple[float, str, int]]:
        """Bytes in use over time: seconds, where (``host`` or a device), bytes."""
        return [(s.begin + s.seconds, s.device or "host", s.memory) for s in self.samples if s.memory is not None]

    def peaks(self) -> dict[str | None, Peaks]:
        """The measured peaks of each device that was used, measured on first use."""
        return {device: peaks(device) for device in sorted({line.device for line in self.lines}, key=str)}

    def table(self, top: int = 20, roofline: bool = True) -> str:
        """The lines that took longest. ``roofline`` measures what the device reaches, which takes about half a second."""
        lines = self.lines
        if not lines:
            return f"nothing ran on a backend in {_time(self.seconds)}"
        reached = self.peaks() if roofline else {}
        total = sum(line.seconds for line in lines)
        rows = [("time", "share", "calls", "each", "GB/s", "Gflop/s", "of roof", "what", "where")]
        for line in lines[:top]:
            rows.append(self._row(line, total, reached.get(line.device)))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        left = len(rows[0]) - 2  # the last two are words
        text = [
            "  ".join(c.ljust(w) if i >= left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))).rstrip()
            for row in rows
        ]
        if len(lines) > top:
            rest = sum(line.seconds for line in lines[top:])
            text.append(f"... and {len(lines) - top} more, {_time(rest)} together")
        text.append(f"{_time(total)} in {sum(line.calls for line in lines)} launches and steps; the block took {_time(self.seconds)}")
        for device, found in reached.items():
            text.append(f"roof of {device or 'the host'}: {found}")
        if most := max((m[2] for m in self.memory), default=0):
            text.append(f"memory in use at most: {_bytes(most)}")
        text.append("times are measured; flops and bytes are counted in the program (least bytes: each array once)")
        return "\n".join(text)

    @staticmethod
    def _row(line: Line, total: float, peak: Peaks | None) -> tuple[str, ...]:
        rate = lambda n: "-" if n is None or not line.seconds else f"{n / line.seconds / 1e9:.4g}"  # noqa: E731
        roof = "-"
        if peak is not None and line.seconds and line.flops is not None and line.bytes is not None:
            roof = f"{peak.floor(line.flops, line.bytes) / line.seconds:.0%}"
        what = f"{line.name} ({line.kind}, {line.device or line.backend})"
        where = f"{Path(line.place[0]).name}:{line.place[1]}" if line.place else ""
        each = _time(line.seconds / line.calls)
        share = f"{line.seconds / total:.1%}" if total else "-"
        return (_time(line.seconds), share, str(line.calls), each, rate(line.bytes), rate(line.flops), roof, what, where)

    def __str__(self) -> str:
        return self.table()

    def trace(self) -> dict[str, Any]:
        """The trace in the Trace Event Format, as JSON has it."""
        events: list[dict[str, Any]] = []
        places: dict[str, int] = {}
        for s in self.samples:
            # Collectives have a track for each rank, beside what runs meanwhile.
            in_flight = s.kind == "collective"
            pid = places.setdefault("collectives" if in_flight else s.device or "host", len(places) + 1)
            args = {"backend": s.backend, "flops (counted)": s.flops, "bytes (counted)": s.bytes}
            if s.place:
                args["place"] = f"{s.place[0]}:{s.place[1]}"
            tid = s.stream if s.device or in_flight else s.thread
            base = {"pid": pid, "tid": tid, "cat": s.kind}
            events.append({"ph": "X", "name": s.name, "ts": s.begin * 1e6, "dur": s.seconds * 1e6, "args": args, **base})
        for at, where, count in self.memory:
            events.append({"ph": "C", "name": "memory", "pid": places[where], "ts": at * 1e6, "args": {"bytes in use": count}})
        for name, pid in places.items():
            events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def save(self, path: Any) -> None:
        """Writes the trace; the file appears whole or not at all."""
        target = Path(path)
        part = target.parent / f".{target.name}.part"
        try:
            part.write_text(json.dumps(self.trace()), encoding="utf-8")
            part.replace(target)
        except OSError as e:
            part.unlink(missing_ok=True)
            raise _core.error("E_ARGUMENT", f"the trace cannot be written to {path}: {e.strerror or e}", "name a file that can be written") from None


def profile() -> Profile:
    """Watches what kernels and compiled functions do in a block.

    ::

        with ts.profile() as p:
            step(params, batch)
        print(p)              # time, rate and part of the roofline of each kernel
        p.save("trace.json")  # for chrome://tracing and ui.perfetto.dev

    Profiling has a cost: a launch on a device has two events around it. One profile is taken at a time.
    """
    return Profile()


def _sum(values: Any) -> int | None:
    found = list(values)
    return None if any(v is None for v in found) else sum(found)


def _time(seconds: float) -> str:
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e6:.1f} us"


def _bytes(count: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.2f} {unit}"
    return f"{count} B"


for _public in (Sample, Line, Profile):
    _public.__module__ = "tessera"
