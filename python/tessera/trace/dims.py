"""Symbolic extents: `Dim` is one, `Sizes` holds what a trace knows of all of them.

A function whose parameters are annotated with names of extents (``x: ts.Tensor["B", 16]``) is traced once for all sizes of them.
Where the answer to a question depends on the size (``if n > 4``, ``range(n)``), the size of the call that is being traced
decides, and the answer becomes a guard: the trace serves calls for which the guard holds, others are traced again."""

from __future__ import annotations

import operator
import sys
from dataclasses import dataclass, field
from typing import Any

from .._core import dim_compute, dim_value
from ..base.caller import here, is_ours

_HOLDS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<"}


@dataclass(frozen=True)
class Guard:
    """An assumption of a trace about its sizes, and the line that made it."""

    left: str
    op: str
    right: str
    place: str = field(compare=False)

    def holds(self, sizes: dict[str, int]) -> bool:
        return _HOLDS[self.op](_value(self.left, sizes), _value(self.right, sizes))

    def __str__(self) -> str:
        return f"{bare(self.left)} {self.op} {bare(self.right)}"


def bare(text: str) -> str:
    """An expression without the brackets around the whole of it."""
    if not text.startswith("("):
        return text
    depth = 0
    for at, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if at == len(text) - 1 else text
    return text


def _value(text: str, sizes: dict[str, int]) -> int:
    return sizes[text] if text in sizes else dim_value(text, sizes)


class Sizes:
    """The open extents of one trace: their sizes in the call that is traced, and the guards so far."""

    def __init__(self, values: dict[str, int] | None = None) -> None:
        self.values = values or {}
        self.guards: dict[Guard, None] = {}

    def dim(self, extent: Any) -> Any:
        """An extent as Graph IR gives it: an integer, or text."""
        return Dim(extent, self) if isinstance(extent, str) else extent

    def broken(self, values: dict[str, int]) -> Guard | None:
        """The first guard that other sizes break."""
        return next((g for g in self.guards if not g.holds(values)), None)

    def guard(self, left: str, op: str, right: str) -> None:
        self.guards.setdefault(Guard(left, op, right, repr(here())))

    def decide(self, op: str, a: Dim, b: Any, ours: bool = False) -> bool:
        """Whether ``a op b``: for every size where that can be known, else for the size at hand, which becomes a guard. Where
        functions of ``ours`` ask whether extents are equal, those that need not be are not: what they do then is right for
        all sizes, or a rule of Graph IR refuses it with both in symbols."""
        more = dim_compute("sub", a, b)
        if isinstance(more, int):
            return _HOLDS[op](more, 0)
        less = dim_compute("sub", b, a)
        if op in ("<", ">="):
            if _natural(more):
                return op == ">="
            if _natural(dim_compute("sub", less, 1)):
                return op == "<"
        elif _natural(dim_compute("sub", less, 1)) or _natural(dim_compute("sub", more, 1)):
            return op == "!="
        if ours:
            return op == "!="
        found = _HOLDS[op](_value(a.text, self.values), _value(str_of(b), self.values))
        self.guard(a.text, op if found else _OPPOSITE[op], str_of(b))
        return found


def _natural(extent: Any) -> bool:
    """Whether it is 0 or more whatever the sizes are."""
    if isinstance(extent, int):
        return extent >= 0
    return dim_compute("max", extent, 0) == extent


def str_of(extent: Any) -> str:
    return extent.text if isinstance(extent, Dim) else str(extent)


def _arithmetic(op: str, swapped: bool = False) -> Any:
    def method(self: Dim, other: Any) -> Any:
        if _foreign(other):
            return NotImplemented
        a, b = (other, self) if swapped else (self, other)
        if op in ("floordiv", "mod") and (self._sizes.decide("==", b, 0) if isinstance(b, Dim) else b == 0):
            raise ZeroDivisionError(f"{a} by {b}")
        return self._sizes.dim(dim_compute(op, a, b))

    return method


def _comparison(op: str) -> Any:
    def method(self: Dim, other: Any) -> Any:
        if _foreign(other):
            return NotImplemented
        return self._sizes.decide(op, self, other, op in ("==", "!=") and is_ours(sys._getframe(1)))

    return method


class Dim:
    """An extent that differs from call to call, or an expression of such: ``n``, ``2 * n + 1``."""

    __slots__ = ("text", "_sizes")

    def __init__(self, text: str, sizes: Sizes) -> None:
        self.text, self._sizes = text, sizes

    @property
    def size(self) -> int:
        """Its value in the call that is being traced."""
        return _value(self.text, self._sizes.values)

    __add__, __radd__ = _arithmetic("add"), _arithmetic("add", True)
    __sub__, __rsub__ = _arithmetic("sub"), _arithmetic("sub", True)
    __mul__, __rmul__ = _arithmetic("mul"), _arithmetic("mul", True)
    __floordiv__, __rfloordiv__ = _arithmetic("floordiv"), _arithmetic("floordiv", True)
    __mod__, __rmod__ = _arithmetic("mod"), _arithmetic("mod", True)
    __eq__, __ne__ = _comparison("=="), _comparison("!=")
    __lt__, __ge__ = _comparison("<"), _comparison(">=")

    def __gt__(self, other: Any) -> Any:
        return NotImplemented if _foreign(other) else not self <= other

    def __le__(self, other: Any) -> Any:
        return NotImplemented if _foreign(other) else self < other + 1

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Dim:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __bool__(self) -> bool:
        return self._sizes.decide("!=", self, 0)

    def __index__(self) -> int:
        """The integer that Python asks for: from here on the trace is for this size alone."""
        self._sizes.guard(self.text, "==", str(self.size))
        return self.size

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.__index__())

    # Hashed by text: equal texts are equal extents. `==` compares the values of different texts.
    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return bare(self.text)


def _foreign(other: Any) -> bool:
    """What is no extent; a traced value answers such a question itself."""
    return isinstance(other, bool) or not isinstance(other, (int, Dim))


def bounds(item: slice, n: Any) -> tuple[Any, Any, int] | None:
    """The first position, the limit and the step of a slice of an axis of extent ``n``, where one of these is open; a negative
    step stands for the same positions backwards. ``None`` where Python's own rule for integers is to be taken."""
    if not any(isinstance(v, Dim) for v in (n, item.start, item.stop)):
        return None
    step = 1 if item.step is None else operator.index(item.step)
    if step == -1 and item.start is None and item.stop is None:
        return 0, n, 1
    if step <= 0:
        # Backwards from somewhere: for the sizes at hand.
        return None

    def inside(at: Any) -> Any:
        at = at + n if at < 0 else at
        return 0 if at < 0 else n if at > n else at

    first = 0 if item.start is None else inside(item.start)
    last = n if item.stop is None else inside(item.stop)
    return first, last if last >= first else first, step
