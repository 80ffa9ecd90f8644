"""Checks of hyperparameters: when an optimiser is made, not when it first runs inside a compiled step."""

from __future__ import annotations

import math
import numbers
from typing import Any

from ..base.promotion import is_float
from ..trace.tracer import Tracer, aval, fail
from ..tree import pytree


def _refuse(what: str, name: str, wanted: str, got: Any, help: str) -> Exception:
    kind = "E_TYPE" if not isinstance(got, numbers.Real) or isinstance(got, bool) else "E_ARGUMENT"
    return fail(kind, f"{what}: expected `{name}` to be {wanted}, got {got!r}", help)


def number(what: str, name: str, got: Any, low: float = 0.0, high: float = math.inf, *, open_low: bool = False) -> None:
    """A finite number from ``low`` up to, and without, ``high``."""
    begin = f"above {low:g}" if open_low else f"of at least {low:g}"
    wanted = f"a number {begin}" if high == math.inf else f"a number {begin} and below {high:g}"
    good = isinstance(got, numbers.Real) and not isinstance(got, bool) and math.isfinite(got)
    if not good or got < low or (open_low and got == low) or got >= high:
        raise _refuse(what, name, wanted, got, f"write `{what}({name}=...)` with {wanted}")


def rate(what: str, got: Any) -> None:
    """A learning rate: a number, a function of the step, or an array without axes."""
    if callable(got) or (isinstance(got, Tracer) or hasattr(got, "shape")) and tuple(got.shape) == ():
        return
    wanted = "a number of at least 0, or a function from the step to one"
    good = isinstance(got, numbers.Real) and not isinstance(got, bool) and math.isfinite(got) and got >= 0
    if not good:
        raise _refuse(what, "lr", wanted, got, "write `lr=1e-3`, or a schedule such as `ts.optim.cosine(1e-3, steps)`")


def flag(what: str, name: str, got: Any) -> None:
    if not isinstance(got, bool):
        raise fail("E_TYPE", f"{what}: expected `{name}` to be True or False, got {got!r}", f"write `{what}({name}=True)`")


def count(what: str, name: str, got: Any, low: int = 1) -> None:
    if not isinstance(got, numbers.Integral) or isinstance(got, bool) or got < low:
        wanted = f"a whole number of at least {low}"
        raise _refuse(what, name, wanted, got, f"write `{what}({name}=...)` with {wanted}")


def floats(what: str, params: Any) -> None:
    """Parameters are floats: a step of an integer would be rounded, most often to none."""
    for path, leaf in zip(pytree.paths(params), pytree.leaves(params), strict=True):
        dtype = aval(leaf)[1]
        if not is_float(dtype):
            raise fail("E_TYPE", f"{what}: expected parameters of floats, got {dtype} for params{path}",
                       "keep it out of the parameters, or write `ts.optim.masked(optimiser, mask)`, which leaves the others as they are")  # fmt: skip
