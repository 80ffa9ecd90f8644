"""In-kernel profiling, ``k.profile(...)``: how many clocks the loops of a kernel take, by warp role.

The kernel is compiled once more with code that reads the clock: one thread of each role reads it before and after each loop
and counts the iterations. Ordinary calls run code without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import _core
from ..base.former_names import former_attribute


@dataclass(frozen=True)
class Visit:
    """One execution of a loop by the warps of a role."""

    role: str
    replica: int
    #: The loop's line in the source, 0 where it has none.
    line: int
    #: The least clocks of the tensor cores for the MMAs of one iteration, 0 where there are none.
    least: int
    block: int
    iterations: int
    #: Readings of the multiprocessor's clock.
    begin: int
    end: int

    __getattr__ = former_attribute


@dataclass(frozen=True)
class Line:
    """All visits of a role's replica to one loop."""

    role: str
    replica: int
    line: int
    visits: int
    iterations: int
    clocks: int
    least: int

    __getattr__ = former_attribute

    @property
    def each(self) -> float:
        """Clocks of one iteration."""
        return self.clocks / self.iterations if self.iterations else 0.0


class KernelProfile:
    """The result of ``k.profile(...)``: a table when printed, ``visits`` and ``lines`` as data."""

    def __init__(self, name: str, visits: list[Visit], left_out: int, result: Any) -> None:
        self.name = name
        self.visits = visits
        #: How many visits did not fit into the buffer.
        self.left_out = left_out
        #: The result of the call.
        self.result = result

    @property
    def lines(self) -> list[Line]:
        """The visits by role, replica and loop."""
        found: dict[tuple[str, int, int], list[Visit]] = {}
        for visit in self.visits:
            found.setdefault((visit.role, visit.replica, visit.line), []).append(visit)
        return [
            Line(*key, len(own), sum(v.iterations for v in own), sum(v.end - v.begin for v in own), max(v.least for v in own))
            for key, own in sorted(found.items())
        ]

    @property
    def clocks(self) -> int:
        """Clocks from the start of the first loop to the end of the last, summed over blocks."""
        blocks: dict[int, list[Visit]] = {}
        for visit in self.visits:
            blocks.setdefault(visit.block, []).append(visit)
        return sum(max(v.end for v in own) - min(v.begin for v in own) for own in blocks.values())

    @property
    def matrix_use(self) -> float | None:
        """The fraction of those clocks in which the tensor cores must have been busy; None where no loop has MMAs."""
        least = sum(v.least * v.iterations for v in self.visits)
        return least / self.clocks if least and self.clocks else None

    def __str__(self) -> str:
        rows = [("role", "loop", "visits", "iterations", "clocks each", "tensor cores", "busy")]
        for line in self.lines:
            role = f"{line.role} {line.replica}" if self._several(line.role) else line.role
            use = f"{line.least / line.each:.2f}" if line.least and line.each else "-"
            place = f"line {line.line}" if line.line else "-"
            least = str(line.least) if line.least else "-"
            rows.append((role, place, str(line.visits), str(line.iterations), f"{line.each:.1f}", least, use))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        out = [f"{self.name}: {len({v.block for v in self.visits})} blocks"]
        if self.matrix_use is not None:
            out[0] += f", tensor cores busy for {self.matrix_use:.3f} of the clocks from the first loop to the last"
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
    """Runs a call with kernels that read the clock."""
    before = os.environ.get("TESSERA_OFF")
    os.environ["TESSERA_OFF"] = f"{before},clock_elision" if before else "clock_elision"
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
