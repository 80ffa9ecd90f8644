"""Mappers: policies that users give for placement and algorithms. They change speed, never results."""

from __future__ import annotations

import collections
import inspect
import json
import os
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from .. import _core
from ..base.caller import here
from ..base.errors import TesseraError
from . import _given
from ._mesh import Mesh, warn

#: Algorithms of collectives.
ALGORITHMS = ("auto", "ring", "tree", "direct", "hierarchical", "nvls", "sharp_ring")
#: The methods of mappers.
METHODS = ("place", "choose_collective", "choose_variant", "tunable", "report")
#: The largest number that steers anything.
_MOST = 2**31 - 1
#: Ways of compiling a kernel.
VARIANTS = ("ptx", "tile_ir", "library", "emulated")


@dataclass(frozen=True)
class MappedRegion:
    """The question of `Mapper.place`: an axis of a mesh, and the first array that is put on it."""

    axis: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    privilege: str


@dataclass(frozen=True)
class Arch:
    """An architecture that `Mapper.choose_variant` chooses for."""

    name: str

    @property
    def is_hopper(self) -> bool:
        return self.name.startswith("sm90") or self.name.startswith("sm_90")

    @property
    def is_blackwell(self) -> bool:
        return self.name.replace("_", "").startswith(("sm100", "sm103", "sm110", "sm12"))


class Mapper:
    """A policy for placement and algorithms. Any method may be absent, or return None for the default.

    An answer that is not known gives one ``W_MAPPER`` and the default (``E_MAPPER`` with ``TESSERA_CHECK=1``). An exception in a
    mapper is an ``E_MAPPER`` with its text.
    """

    def place(self, region: MappedRegion, mesh: Mesh) -> Any:
        """Which devices play the coordinates of an axis: ``"local_switch"`` (neighbouring devices), ``"spread"``, or the order of
        coordinates. Called once for each axis of a mesh object, when the first array is put on it."""

    def choose_collective(self, kind: str, size: int, nbytes: int) -> str | None:
        """The algorithm of a collective among ``size`` ranks; ``nbytes`` may be left out of the signature."""

    def choose_variant(self, op: str, arch: Arch) -> str | None:
        """How a kernel is compiled for an architecture."""

    def tunable(self, name: str, default: Any) -> Any:
        """A number that steers speed, such as ``"launch_threads"``."""

    def report(self, event: dict[str, Any]) -> None:
        """Called after each collective and launch."""


class _Previous:
    """The mapper before `set_mapper`, as a context manager that puts it back."""

    def __init__(self, before: Mapper | None) -> None:
        self.mapper = before

    def __enter__(self) -> Mapper | None:
        return self.mapper

    def __exit__(self, *failure: object) -> None:
        _set(self.mapper)

    def __eq__(self, other: object) -> bool:
        return other is self.mapper if not isinstance(other, _Previous) else other.mapper is self.mapper

    def __hash__(self) -> int:
        return hash(self.mapper)

    def __repr__(self) -> str:
        return f"<the mapper before: {self.mapper!r}>"


_lock = threading.RLock()
_mapper: Any = None
_warned: set[tuple[str, str]] = set()
#: Called after another mapper was set.
on_change: list[Callable[[], None]] = []


def _set(mapper: Any) -> None:
    global _mapper
    with _lock:
        _mapper = mapper
        _warned.clear()
        for changed in on_change:
            changed()


def current() -> Any:
    """The mapper of the process; None for the default."""
    return _mapper


def set_mapper(mapper: Mapper | None) -> _Previous:
    """Makes this the mapper of the process; ``None`` restores the default. The result is the previous one; in a ``with`` statement it is
    put back at the end."""
    if isinstance(mapper, _Previous):
        mapper = mapper.mapper
    if mapper is not None and not isinstance(mapper, type) and not any(hasattr(mapper, m) for m in METHODS):
        raise _core.error("E_TYPE", f"expected a mapper, got {mapper!r}", f"it has one or more of the methods {', '.join(METHODS)}", place=here())
    if isinstance(mapper, type):
        raise _core.error("E_TYPE", f"expected a mapper, got the class {mapper.__name__}", f"write `set_mapper({mapper.__name__}())`", place=here())
    before = _Previous(_mapper)
    _set(mapper)
    return before


#: The method whose answer this thread waits for.
_answering: ContextVar[str | None] = ContextVar("tessera mapper answering", default=None)


def _alone(method: str) -> None:
    """A mapper that asks itself would do so again in the answer to that, and so on."""
    outer = _answering.get()
    if outer is None:
        return
    by = f"`{method}`" if method != outer else "it"
    text = f"`{outer}` of {type(_mapper).__name__} places arrays, moves them or launches before it has answered, for which {by} is called"
    raise _core.error("E_MAPPER", text, "answer from the arguments, and from what the mapper computed before `set_mapper`", place=here())


def _ask(method: str, *args: Any) -> Any:
    if _mapper is None:
        return None
    answering = getattr(_mapper, method, None)
    if answering is None:
        return None
    _alone(method)
    token = _answering.set(method)
    try:
        if method == "choose_collective" and not _takes(answering, len(args)):
            args = args[:-1]
        return answering(*args)
    except TesseraError as error:
        if error.code == "E_MAPPER":
            raise
        raise _raised(method, error) from error
    except Exception as error:
        raise _raised(method, error) from error
    finally:
        _answering.reset(token)


def _raised(method: str, error: Exception) -> Exception:
    text = f"`{method}` of {type(_mapper).__name__} raised {type(error).__name__}: {error}"
    return _core.error("E_MAPPER", text, "mend the mapper; a method that returns None takes the default", place=here())


def _takes(function: Callable, count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _unknown(method: str, answer: Any, known: str) -> None:
    """An answer that is not known: one warning for each."""
    text = f"expected {known} from `{method}` of {type(_mapper).__name__}, got {answer!r}"
    if os.environ.get("TESSERA_CHECK", "") not in ("", "0"):
        raise _core.error("E_MAPPER", text, "return None for the default", place=here())
    with _lock:
        if (method, repr(answer)) in _warned:
            return
        _warned.add((method, repr(answer)))
    warn(f"W_MAPPER: {text}; the default is used")


def choose_collective(kind: str, size: int, nbytes: int) -> str:
    answer = _ask("choose_collective", kind, size, nbytes)
    return _word("choose_collective", answer, ALGORITHMS) or "auto"


def choose_variant(op: str, arch: str) -> str | None:
    return _word("choose_variant", _ask("choose_variant", op, Arch(arch)), VARIANTS)


def _word(method: str, answer: Any, known: tuple[str, ...]) -> str | None:
    """An answer that is one of these words; None for the default. Other answers may be anything, arrays too, so they are not compared."""
    if answer is None or isinstance(answer, str) and answer in known:
        return answer
    _unknown(method, answer, f"one of {', '.join(known)}")
    return None


def tunable(name: str, default: int) -> int:
    answer = _ask("tunable", name, default)
    if answer is None:
        return default
    number = _given.integer(answer)
    if number is None or not 1 <= number <= _MOST:
        _unknown("tunable", answer, f"a number from 1 to {_MOST} for {name!r}")
        return default
    return number


def report(event: dict[str, Any]) -> None:
    _ask("report", event)


def place(mesh: Mesh, shape: tuple[int, ...], dtype: str, nbytes: int, privilege: str) -> None:
    """The first array is put on a mesh: asks where the devices of its axes are."""
    if mesh._is_placed:
        return
    if _mapper is not None:
        # Before the lock, which the question that is open may hold.
        _alone("place")
    with mesh._placing:
        if mesh._is_placed:
            return
        if _mapper is None:
            # Arrays stay where they are: a mapper that is set later does not move the ranks of this mesh.
            mesh._is_placed = True
            return
        answers = {}
        for axis, extent in zip(mesh.axes, mesh.shape, strict=True):
            answer = _ask("place", MappedRegion(axis, shape, dtype, nbytes, privilege), mesh)
            words = isinstance(answer, str) and answer in ("local_switch", "spread")
            if answer is not None and not words and not _is_order(answer, extent):
                _unknown("place", answer, f'"local_switch", "spread" or the numbers 0 to {extent - 1} in some order')
                answer = None
            answers[axis] = answer
        mesh._is_placed = True
        mesh._players = [mesh._players[at] for at in order(mesh, answers)]


def _is_order(answer: Any, extent: int) -> bool:
    return isinstance(answer, (list, tuple)) and sorted(map(repr, answer)) == sorted(map(repr, range(extent)))


def order(mesh: Mesh, answers: dict[str, Any]) -> list[int]:
    """For each rank, the number of the device that plays it. Ranks along ``"local_switch"`` axes are on neighbouring devices, those along
    ``"spread"`` axes are the farthest apart."""
    rank_of = {"spread": 0, "local_switch": 2}
    outer_first = sorted(range(len(mesh.axes)), key=lambda a: rank_of.get(answers[mesh.axes[a]] if isinstance(answers[mesh.axes[a]], str) else "", 1))
    found = []
    for coords in product(*(range(n) for n in mesh.shape)):
        moved = list(coords)
        for a, name in enumerate(mesh.axes):
            if isinstance(answers[name], (list, tuple)):
                moved[a] = answers[name][coords[a]]
        number = 0
        for a in outer_first:
            number = number * mesh.shape[a] + moved[a]
        found.append(number)
    assert len(found) == prod(mesh.shape)
    return found


class RecordingMapper(Mapper):
    """Asks another mapper, and keeps questions and answers in ``.log``, which is plain data."""

    def __init__(self, inner: Mapper | None = None) -> None:
        self.inner = inner
        #: One dict for each question: ``method``, ``args``, ``answer``.
        self.log: list[dict[str, Any]] = []

    def _record(self, method: str, *args: Any) -> Any:
        answering = getattr(self.inner, method, None)
        given = args[:-1] if method == "choose_collective" and answering is not None and not _takes(answering, len(args)) else args
        answer = None if answering is None else answering(*given)
        self.log.append({"method": method, "args": _plain(args), "answer": _plain(answer)})
        return answer

    def place(self, region: MappedRegion, mesh: Mesh) -> Any:
        return self._record("place", region, mesh)

    def choose_collective(self, kind: str, size: int, nbytes: int) -> Any:
        return self._record("choose_collective", kind, size, nbytes)

    def choose_variant(self, op: str, arch: Arch) -> Any:
        return self._record("choose_variant", op, arch)

    def tunable(self, name: str, default: Any) -> Any:
        return self._record("tunable", name, default)

    def report(self, event: dict[str, Any]) -> None:
        answering = getattr(self.inner, "report", None)
        if answering is not None:
            answering(event)

    def save(self, path: str | os.PathLike) -> None:
        """Writes the log as JSON."""
        with open(path, "w", encoding="utf-8") as file:
            json.dump(self.log, file)


class ReplayMapper(Mapper):
    """Gives the answers of a recording, and refuses questions that are not in it."""

    def __init__(self, log: list[dict[str, Any]] | str | os.PathLike) -> None:
        if isinstance(log, (str, os.PathLike)):
            with open(log, encoding="utf-8") as file:
                try:
                    log = json.load(file)
                except ValueError as error:
                    raise self._damaged(f"no JSON: {error}") from error
        if not isinstance(log, list):
            raise self._damaged(f"{type(log).__name__} in place of a list")
        self._answers: dict[str, collections.deque] = collections.defaultdict(collections.deque)
        for row in log:
            if not isinstance(row, dict) or not {"method", "args", "answer"} <= set(row):
                raise self._damaged(f"the row {row!r:.60}")
            try:
                self._answers[_key(row["method"], row["args"])].append(row["answer"])
            except (TypeError, ValueError) as error:
                raise self._damaged(f"the row {row!r:.60}") from error

    @staticmethod
    def _damaged(what: str) -> Exception:
        return _core.error("E_MAPPER", f"expected the log of a `RecordingMapper`, got {what}", "give its `.log`, or the path of `.save(path)`", place=here())

    def _answer(self, method: str, *args: Any) -> Any:
        known = self._answers.get(_key(method, _plain(args)))
        if known is None:
            text = f"the recording has no answer to {method}{_plain(args)}"
            raise _core.error("E_MAPPER", text, "record a run of the same program with `dist.RecordingMapper`", place=here())
        return known.popleft() if len(known) > 1 else known[0]

    def place(self, region: MappedRegion, mesh: Mesh) -> Any:
        return self._answer("place", region, mesh)

    def choose_collective(self, kind: str, size: int, nbytes: int) -> Any:
        return self._answer("choose_collective", kind, size, nbytes)

    def choose_variant(self, op: str, arch: Arch) -> Any:
        return self._answer("choose_variant", op, arch)

    def tunable(self, name: str, default: Any) -> Any:
        return self._answer("tunable", name, default)


def _key(method: str, args: Any) -> str:
    return json.dumps([method, args], sort_keys=True)


def _plain(value: Any) -> Any:
    """Questions and answers as JSON has them."""
    if isinstance(value, (MappedRegion, Arch)):
        return {k: _plain(v) for k, v in vars(value).items()}
    if isinstance(value, Mesh):
        return {"axes": list(value.axes), "shape": list(value.shape)}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value if value is None or isinstance(value, (str, int, float, bool)) else repr(value)
