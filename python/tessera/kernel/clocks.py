"""How long the loops of one kernel take, in clocks, by roles: ``k.profile(...)``.

The kernel is compiled once more with code that reads clocks: one thread of each role reads one before and after each loop
and counts its turns. The code of ordinary calls has none of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _core


@dataclass(frozen=True)
class Visit:
    """One visit of a role's threads to a loop."""

    role: str
    replica: int
    #: The loop's line in the source, 0 where it has none.
    line: int
    #: Clocks of the matrix units that the products of one turn take at least, 0 where there are none.
    least: int
    block: int
    turns: int
    #: Clocks of the multiprocessor.
    begin: int
    end: int


@dataclass(frozen=True)
class Line:
    """All visits of a role's replica to one loop."""

    role: str
    replica: int
    line: int
    visits: int
    turns: int
    clocks: int
    least: int

    @property
    def each(self) -> float:
        """Clocks of a turn."""
        return self.clocks / self.turns if self.turns else 0.0


class KernelProfile:
    """What ``k.profile(...)`` found: a table when printed, ``visits`` and ``lines`` as data."""

    def __init__(self, name: str, visits: list[Visit], left_out: int, result: Any) -> None:
        self.name = name
        self.visits = visits
        #: Visits that there was no room for.
        self.left_out = left_out
        #: What the call gave.
        self.result = result

    @property
    def lines(self) -> list[Line]:
        """The visits by role, replica and loop."""
        found: dict[tuple[str, int, int], list[Visit]] = {}
        for visit in self.visits:
            found.setdefault((visit.role, visit.replica, visit.line), []).append(visit)
        return [
            Line(*key, len(own), sum(v.turns for v in own), sum(v.end - v.begin for v in own), max(v.least for v in own))
            for key, own in sorted(found.items())
        ]

    @property
    def clocks(self) -> int:
        """Clocks from the first loop's begin to the last one's end, of all blocks together."""
        blocks: dict[int, list[Visit]] = {}
        for visit in self.visits:
            blocks.setdefault(visit.block, []).append(visit)
        return sum(max(v.end for v in own) - min(v.begin for v in own) for own in blocks.values())

    @property
    def matrix_use(self) -> float | None:
        """The part of those clocks in which the matrix units must have been busy; None where no loop has products."""
        least = sum(v.least * v.turns for v in self.visits)
        return least / self.clocks if least and self.clocks else None

    def __str__(self) -> str:
        rows = [("role", "loop", "visits", "turns", "clocks a turn", "matrix units", "of them")]
        for line in self.lines:
            role = f"{line.role} {line.replica}" if self._several(line.role) else line.role
            use = f"{line.least / line.each:.2f}" if line.least and line.each else "-"
            place = f"line {line.line}" if line.line else "-"
            least = str(line.least) if line.least else "-"
            rows.append((role, place, str(line.visits), str(line.turns), f"{line.each:.1f}", least, use))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        out = [f"{self.name}: {len({v.block for v in self.visits})} blocks"]
        if self.matrix_use is not None:
            out[0] += f", matrix units busy for {self.matrix_use:.3f} of the clocks from the first loop to the last"
        for row in rows:
            out.append("  ".join(cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths))).rstrip())
        if self.left_out:
            out.append(f"{self.left_out} visits are left out: there was no room for them")
        return "\n".join(out)

    def _several(self, role: str) -> bool:
        return any(v.role == role and v.replica for v in self.visits)

    def __repr__(self) -> str:
        return f"<profile of {self.name}: {len(self.visits)} visits to loops>"


def clocks_of(name: str, call: Callable[[], Any]) -> KernelProfile:
    """Runs a call whose kernels read clocks."""
    before = os.environ.get("TESSERA_OFF")
    os.environ["TESSERA_OFF"] = f"{before},bare" if before else "bare"
    _core.clocks_begin()
    try:
        result = call()
    finally:
        visits, left_out = _core.clocks_end()
        if before is None:
            del os.environ["TESSERA_OFF"]
        else:
            os.environ["TESSERA_OFF"] = before
    if not visits:
        help = "kernels of the ptx backend with a loop have clocks; `ts.profile()` measures calls anywhere"
        raise _core.error("E_UNSUPPORTED", f"expected `{name}` to run a loop on a GPU, got no clocks from it", help)
    return KernelProfile(name, [Visit(*visit) for visit in visits], left_out, result)
