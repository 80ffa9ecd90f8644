"""What ran: counts of collectives and launches, and the questions to the mapper that come with them."""

from __future__ import annotations

import threading
import weakref
from dataclasses import asdict, dataclass
from typing import Any

from .. import _core
from ..trace.execute import observers, on_compiled
from . import _mapper

_lock = threading.Lock()
_counts: list[Counts] = []


@dataclass(frozen=True)
class Event:
    """A collective or a launch that ran: once, and not for each rank."""

    #: Such as ``"all_reduce"``, or ``"index_launch"``.
    kind: str
    axes: tuple[str, ...]
    #: Of a collective, the bytes on one rank of the value that is combined or gathered.
    nbytes: int
    #: How many ranks take part, or how many tasks there are.
    size: int
    #: The algorithm that the mapper chose, or the kernel's name.
    name: str


class Counts:
    """What ran inside ``with dist.count() as c:``. ``c["all_reduce"]`` counts collectives of a kind."""

    def __init__(self) -> None:
        #: All that ran, in order.
        self.events: list[Event] = []

    def __getitem__(self, kind: str) -> int:
        return sum(e.kind == kind for e in self.events)

    @property
    def launches(self) -> int:
        """Index launches."""
        return self["index_launch"]

    @property
    def nbytes(self) -> int:
        """The bytes of all collectives."""
        return sum(e.nbytes for e in self.events)

    def __enter__(self) -> Counts:
        with _lock:
            _counts.append(self)
        _watch()
        return self

    def __exit__(self, *failure: object) -> None:
        with _lock:
            _counts.remove(self)
        _watch()

    def __repr__(self) -> str:
        kinds = dict.fromkeys(e.kind for e in self.events)
        return f"Counts({', '.join(f'{k}={self[k]}' for k in kinds)})"


def count() -> Counts:
    """Counts collectives and launches of a block."""
    return Counts()


def are_seen() -> bool:
    """Whether someone counts, or there is a mapper."""
    return bool(_counts) or _mapper.current() is not None


def happened(event: Event) -> None:
    with _lock:
        for counts in _counts:
            counts.events.append(event)
    if _mapper.current() is not None:
        _mapper.report(asdict(event))


def collective(kind: str, axes: tuple[str, ...], size: int, nbytes: int) -> None:
    """A collective runs now; the mapper chooses its algorithm."""
    happened(Event(kind, axes, nbytes, size, _mapper.choose_collective(kind, size, nbytes)))


#: The mapper that chose the algorithms of a program's collectives.
_answered: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _sizes(found: list[Any]) -> list[int]:
    """The bytes of each collective; of those that run as one, of all of them."""
    whole: dict[int, int] = {}
    for c in found:
        if c.bucket is not None:
            whole[c.bucket] = whole.get(c.bucket, 0) + c.nbytes
    return [c.nbytes if c.bucket is None else whole[c.bucket] for c in found]


def _compiled(made: Any) -> list[Any]:
    """The collectives of compiled code, with the algorithms that the mapper chooses: it answers once for each program and question."""
    found = made.collectives
    mapper = _mapper.current()
    if found and _answered.get(made) is not mapper:
        answers: dict[tuple, str] = {}
        questions = [(c.kind, c.size, n) for c, n in zip(found, _sizes(found), strict=True)]
        for question in questions:
            if question not in answers:
                answers[question] = _mapper.choose_collective(*question)
        made.choose([answers[question] for question in questions])
        _answered[made] = mapper
        found = made.collectives
    return found


def _program_ran(program: Any, func: str, memo: dict, made: Any) -> None:
    """The collectives of a program that has run."""
    if made is not None:
        found, joined = _compiled(made), set()
        for c, nbytes in zip(found, _sizes(found), strict=True):
            if c.bucket is not None:
                if c.bucket in joined:
                    continue
                joined.add(c.bucket)
            for _ in range(c.times):
                happened(Event(c.kind, c.axes, nbytes, c.size, c.algorithm))
        return
    if "collectives" not in memo:
        memo["collectives"] = program.collectives(func)
    for kind, axes, size, nbytes, times in memo["collectives"]:
        for _ in range(times):
            collective(kind, tuple(axes), size, nbytes)


def _watch() -> None:
    """Programs are watched while someone counts, or there is a mapper."""
    with _lock:
        wanted = are_seen()
        if wanted and _program_ran not in observers:
            _core.scoped_settings()
            observers.append(_program_ran)
        elif not wanted and _program_ran in observers:
            observers.remove(_program_ran)


_mapper.on_change.append(_watch)
on_compiled.append(_compiled)


def launch(axes: tuple[str, ...], tasks: int, kernel: str) -> None:
    happened(Event("index_launch", axes, 0, tasks, kernel))


__all__: list[Any] = ["Counts", "Event", "collective", "count", "happened", "launch"]
