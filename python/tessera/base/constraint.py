"""Constraints on dims, for ``@ts.kernel(require=[...])``: checked when sizes become known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Divisible:
    """``dim`` is a multiple of ``by``."""

    dim: str
    by: int

    def _parts(self) -> tuple:
        return ("divisible", self.dim, self.by)


@dataclass(frozen=True)
class Range:
    """``low <= dim <= high``."""

    dim: str
    low: int
    high: int

    def _parts(self) -> tuple:
        return ("range", self.dim, self.low, self.high)


@dataclass(frozen=True)
class Equal:
    """``dim`` equals ``other``: another dim, or an integer."""

    dim: str
    other: str | int

    def _parts(self) -> tuple:
        return ("derived", self.dim, str(self.other))


@dataclass(frozen=True)
class Derived:
    """``dim`` equals the product ``expr`` of dims and integers, such as ``"H*D"``."""

    dim: str
    expr: str

    def _parts(self) -> tuple:
        return ("derived", self.dim, self.expr)


Constraint = Divisible | Range | Equal | Derived
