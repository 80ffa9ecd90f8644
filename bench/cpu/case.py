"""What is compared: a problem, the contenders that solve it, and the check of their results."""

from dataclasses import dataclass, field
from typing import Any, Callable

import ml_dtypes
import numpy as np


@dataclass(frozen=True)
class Must:
    """A figure that the project promises."""

    value: float
    at_most: bool = False

    def met(self, figure):
        return figure <= self.value if self.at_most else figure >= self.value

    def __str__(self):
        return f"{'<=' if self.at_most else '>='} {self.value:g}"


@dataclass(frozen=True)
class Contender:
    """A solution of a problem, with its own arrays."""

    run: Callable[[], Any]
    result: Callable[[], Any]
    #: Floating-point operations or bytes of one call: the numerator of its speed.
    work: float
    #: Bytes of its arrays.
    memory: int = 0
    #: Puts arrays that are updated in place back to their start.
    reset: Callable[[], Any] = lambda: None
    #: Whether it solves the problem: a copy only moves the same number of bytes.
    solves: bool = True
    #: The formulation that was chosen, if there are several, and the speeds of the others.
    form: str = ""
    tried: dict = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    name: str
    make: Callable[[], Contender]
    must: Must | None = None


@dataclass(frozen=True)
class Problem:
    ours: Contender
    #: The kernel, for `.explain()`.
    kernel: Any
    peers: list
    #: The extent of the result's first axis, and a function from a slice of it to the exact values in
    #: float64 and their error bound.
    parts: int
    expected: Callable[[slice], tuple]


@dataclass(frozen=True)
class Case:
    name: str
    unit: str
    #: Makes the arrays, which are freed with the problem.
    build: Callable[[], Problem]


class WrongResult(Exception):
    pass


def check(contender, problem):
    """Runs the contender once and compares all of its result with NumPy in float64."""
    contender.reset()
    contender.run()
    if not contender.solves:
        return
    result = np.asarray(contender.result())
    step = max(1, 2**22 * problem.parts // max(result.size, 1))
    for start in range(0, problem.parts, step):
        part = slice(start, min(start + step, problem.parts))
        values, bound = problem.expected(part)
        if result.dtype != np.float32:
            bound = bound + np.abs(values) * float(ml_dtypes.finfo(result.dtype).eps) / 2
        error = np.abs(result[part].astype(np.float64) - values)
        if error.shape != values.shape or not (error <= bound).all():  # a NaN is not within its bound
            worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error / bound)), error.shape)
            raise WrongResult(
                f"at {tuple(int(i) for i in worst)} of part {start}: {values[worst]:.6g} is right, "
                f"the result is off by {error[worst]:.3g}, allowed is {np.broadcast_to(bound, error.shape)[worst]:.3g}"
            )
