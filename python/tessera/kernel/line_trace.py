"""``k.interpret`` and ``k.trace``: a run by the lines of the source."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

import numpy

from .. import _core
from ..arrays.create import numpy_dtype
from ..base.numeric_profile import current as profile_now
from .source_lines import Statement, same_file, source_line, statements

if TYPE_CHECKING:
    from .kernel_fn import KernelFn


@dataclass(frozen=True)
class Frame:
    """A group that is about to run a statement.

    ``locals`` holds the kernel's variables by their names: tiles as arrays, numbers as numbers. In a
    lane kernel each value has one element for each lane of the group, and ``active`` says which of
    them run. Parameters and dims are there too. What is known when the kernel is compiled (tunables,
    names for constants) is not.
    """

    file: str
    line: int
    group: tuple[int, ...]
    locals: dict[str, Any]
    active: numpy.ndarray | None = None

    @property
    def source(self) -> str:
        """The text of the line."""
        return source_line(self.file, self.line)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}, group {self.group}: {self.source}"


@dataclass(frozen=True)
class Traced:
    """What a statement assigned, once. ``order`` counts the times in the whole launch, ``iteration``
    those of this group."""

    group: tuple[int, ...]
    iteration: int
    order: int
    values: dict[str, Any] = field(default_factory=dict)
    active: numpy.ndarray | None = None


def interpret(
    kernel: KernelFn, args: tuple, kwargs: dict, grid: Any, break_at: Any, on_stop: Callable[[Frame], Any] | None
) -> Any:
    places = [] if break_at is None else list(break_at) if isinstance(break_at, (list, tuple, set)) else [break_at]
    known: dict[str, Any] = {}

    def plan(lines: dict[str, list[int]], parameters: dict[str, Any]) -> tuple[list, None]:
        known.update(parameters)
        return [_stop(kernel, place, lines) for place in places], None

    def tell(file: str, line: int, group: tuple, values: list[tuple], active: Any) -> None:
        found = {name: _value(*rest) for name, *rest in values}
        (on_stop or _debugger)(Frame(file, line, group, {**known, **found}, _mask(active)))

    return kernel.now().kernel.watch(args, kwargs, grid, profile_now(), plan, tell)


def trace(kernel: KernelFn, line: int | str, args: tuple, kwargs: dict, grid: Any) -> list[Traced]:
    records: list[Traced] = []
    rounds: dict[tuple, int] = {}

    def plan(lines: dict[str, list[int]], parameters: dict[str, Any]) -> tuple[list, list[str]]:
        file, number = _place(kernel, line)
        statement = _statement(kernel, file, number)
        if statement is None or not statement.names:
            raise _core.error("E_ARGUMENT", f"line {number} assigns no variable", "name a line such as `s = a * b`", file, number)
        name = next((f for f in lines if same_file(f, file)), file)
        if not any(statement.first <= able <= statement.last for able in lines.get(name, ())):
            help = "it names a constant, or a value that has a name already: trace the line that computes it"
            raise _core.error("E_ARGUMENT", f"line {number} computes nothing when the kernel runs", help, file, number)
        return [(name, statement.first, statement.last)], list(statement.names)

    def tell(file: str, line: int, group: tuple, values: list[tuple], active: Any) -> None:
        found = {name: _value(*rest) for name, *rest in values}
        last = records[-1] if records else None
        # Several names of one statement come one after another.
        if last is not None and last.group == group and not last.values.keys() & found.keys():
            last.values.update(found)
            return
        iteration = rounds[group] = rounds.get(group, -1) + 1
        records.append(Traced(group, iteration, len(records), found, _mask(active)))

    kernel.now().kernel.watch(args, kwargs, grid, profile_now(), plan, tell)
    return records


def _place(kernel: KernelFn, place: int | str) -> tuple[str, int]:
    """A place as the user names it: a line of the kernel's own file, or ``file.py:12``."""
    if isinstance(place, int) and not isinstance(place, bool):
        return kernel.spec.source.file, place
    file, _, number = str(place).rpartition(":")
    if not isinstance(place, str) or not number.isdigit():
        raise _core.error("E_ARGUMENT", f"expected a line number or \"file.py:12\", got {place!r}", "write `break_at=12`")
    return file or kernel.spec.source.file, int(number)


def _statement(kernel: KernelFn, file: str, line: int) -> Statement | None:
    """The statement of the kernel at a line; of a file that is not the kernel's the line alone."""
    source = kernel.spec.source
    if not same_file(source.file, file):
        return None
    here = [s for s in statements(source.text, source.line) if s.first <= line <= s.last]
    return here[-1] if here else None


def _stop(kernel: KernelFn, place: Any, lines: dict[str, list[int]]) -> tuple[str, int, int]:
    """The statement to stop at: the one named, or the next that does something when it runs."""
    wanted, line = _place(kernel, place)
    file = next((f for f in lines if same_file(f, wanted)), None)
    if file is None:
        known = ", ".join(sorted(lines))
        raise _core.error("E_ARGUMENT", f"the kernel has no line in {wanted}", f"its lines are in {known}")
    able = lines[file]
    statement = _statement(kernel, file, line)
    first, last = (statement.first, statement.last) if statement else (line, line)
    at = bisect.bisect_left(able, first)
    if at == len(able) or line < min(able[0], kernel.spec.source.line):
        shown = ", ".join(map(str, able))
        raise _core.error("E_ARGUMENT", f"the kernel runs nothing at line {line} of {file}", f"it can stop at the lines {shown}")
    if able[at] <= last:
        return file, first, last
    moved = _statement(kernel, file, able[at])
    return (file, moved.first, moved.last) if moved else (file, able[at], able[at])


def _value(dtype: Any, shape: tuple[int, ...], data: bytes) -> Any:
    array = numpy.frombuffer(data, numpy_dtype(dtype)).reshape(shape)
    # Writable, so that a debugger may play with it; the launch does not see that.
    return array.copy() if shape else array[()]


def _mask(active: Any) -> numpy.ndarray | None:
    return None if active is None else numpy.array(active, bool)


def _debugger(frame: Frame) -> None:
    """Python's debugger, in a frame whose variables are the kernel's."""
    import bdb
    import pdb

    print(f"> {frame}")
    print("  variables: " + ", ".join(frame.locals))
    variables = {**frame.locals, "frame": frame, "__stop": pdb.Pdb().set_trace}
    try:
        exec(compile("__stop()\npass", "<kernel>", "exec"), variables, variables)
    except bdb.BdbQuit:
        raise KeyboardInterrupt("the debugger was left") from None


for _class in (Frame, Traced):
    _class.__module__ = "tessera"
