"""The report of a checked run: ``k.check(...)``."""

from __future__ import annotations

from dataclasses import dataclass

from ..base.errors import Diagnostic


@dataclass(frozen=True)
class CheckReport:
    """The findings of ``k.check(...)``. True when there is none."""

    findings: list[Diagnostic]
    text: str = ""
    #: How many further places have a mistake that is not described.
    omitted: int = 0

    def __bool__(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        if not self.findings:
            return "no mistakes found"
        more = f"\n\nand at {self.omitted} more places" if self.omitted else ""
        return self.text + more

    def __repr__(self) -> str:
        return f"<{len(self.findings)} findings: {', '.join(d.code for d in self.findings)}>" if self.findings else "<clean>"


CheckReport.__module__ = "tessera"
