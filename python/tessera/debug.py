"""Debugging of traced functions: printing, callbacks and checks inside `ts.jit`, loops and branches. They run in the order
of the program, once for each time that the program reaches them; under `ts.vmap` once for each example. Derivatives pass through them.

    @ts.jit
    def step(x):
        ts.debug.print("x = {x}, its sum {s:.2f}", x=x, s=xp.sum(x))
        ts.debug.check(xp.all(x > 0), "expected positive numbers, got {x}", x=x)
        return xp.log(x)
"""

from __future__ import annotations

import builtins
import itertools
import string
from collections.abc import Callable
from typing import Any

import numpy

from . import _core
from .base.caller import here
from .trace.tracer import as_tracer, current, emit, fail, is_array, one, outermost, to_numpy
from .tree import pytree

__all__ = ["callback", "check", "check_finite", "check_index", "print"]


def callback(function: Callable, *args: Any, **kwargs: Any) -> None:
    """Calls a Python function with the values of arrays, as NumPy arrays, when the program runs. What it returns is not used; what
    it raises ends the call of the program and is raised there. Values that are no arrays are passed as they are."""
    if not callable(function):
        raise fail("E_TYPE", f"expected a function to call back, got {type(function).__name__}", "write `ts.debug.callback(f, x, y)`")
    leaves, form = pytree.flatten((args, kwargs))
    moving = [is_array(v) for v in leaves]

    def run(arrays: list) -> None:
        rest = iter([_value(to_numpy(a)) for a in arrays])
        given, named = pytree.unflatten(form, [next(rest) if m else v for v, m in zip(leaves, moving, strict=True)])
        function(*given, **named)

    frame, root = current(), outermost()
    if frame is None or root is None:
        run([v for v, m in zip(leaves, moving, strict=True) if m])
        return
    # A kernel that only reads, whose launch is a call of Python: such an op is kept, and stays in its place.
    label = next(name for i in itertools.count() if (name := f"callback_{i}") not in root.kernels)
    root.kernels[label] = (run, run)
    operands = [one("stop_gradient", [as_tracer(v)]) for v, m in zip(leaves, moving, strict=True) if m]
    emit("kernel_call", [], {"kernel": label, "privileges": ["read"] * len(operands)}, groups={"values": operands})


def _value(x: numpy.ndarray) -> Any:
    """A copy, for the memory is used again; numbers without axes can be formatted as such."""
    return x[()] if x.ndim == 0 else numpy.array(x)


def _fields(text: str, args: tuple, kwargs: dict, what: str) -> None:
    """Refuses what could not be formatted, at the line where it is written."""
    if not isinstance(text, str):
        raise fail("E_TYPE", f"{what}: expected a text, got {type(text).__name__}", 'write `ts.debug.print("x = {x}", x=x)`')
    try:
        names = [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]
    except ValueError as error:
        raise fail("E_ARGUMENT", f"{what}: expected a text that can be formatted, got {text!r}: {error}", "write `{{` for a brace") from None
    automatic = 0
    for field in names:
        name = field.partition(".")[0].partition("[")[0]
        if name == "":
            name, automatic = str(automatic), automatic + 1
        if name.isdigit() and int(name) >= len(args) or not name.isdigit() and name not in kwargs:
            raise fail("E_ARGUMENT", f"{what}: expected a value for `{{{field}}}`, got none", f'write `ts.debug.print("… {{x}}", x=x)`')


def print(text: str, *args: Any, **kwargs: Any) -> None:
    """Prints ``text.format(*args, **kwargs)`` with the values of arrays when the program runs."""
    _fields(text, args, kwargs, "debug.print")
    callback(lambda *a, **k: builtins.print(text.format(*a, **k)), *args, **kwargs)


def check(condition: Any, text: str = "expected a condition to hold", *args: Any, **kwargs: Any) -> None:
    """Raises `ts.CheckError` with ``text.format(*args, **kwargs)`` where an element of the condition is false when the program runs."""
    _fields(text, args, kwargs, "debug.check")
    place = here()

    def look(ok: Any, *a: Any, **k: Any) -> None:
        if not numpy.all(ok):
            shape = numpy.shape(ok)
            at = [int(i) for i in numpy.argwhere(~numpy.asarray(ok, bool))[0]] if shape else None
            more = f" (at {at})" if at is not None else ""
            raise _core.error("E_ASSERT", text.format(*a, **k) + more, "change the program or what goes in: the check stands at this line",
                              None, None, place)  # fmt: skip

    callback(look, condition, *args, **kwargs)


def check_finite(tree: Any, what: str = "value") -> Any:
    """Raises `ts.CheckError` where an array of a tree has NaN or an infinity when the program runs; gives the tree."""
    place, paths = here(), pytree.paths(tree, what)

    def look(leaves: list) -> None:
        for path, leaf in zip(paths, leaves, strict=True):
            bad = ~numpy.isfinite(leaf.astype(numpy.float64)) if is_array(leaf) else numpy.zeros(())
            if bad.any():
                first = [int(i) for i in numpy.argwhere(bad)[0]]
                shown = f"{leaf[tuple(first)]} at {first}, and {int(bad.sum()) - 1} more" if numpy.ndim(leaf) else f"{leaf}"
                raise _core.error("E_NAN_INF", f"expected finite numbers in `{path}`, got {shown}",
                                  "look at what makes it: check what goes into it too", None, None, place)  # fmt: skip

    callback(look, pytree.leaves(tree))
    return tree


def check_index(index: Any, size: Any, what: str = "index") -> Any:
    """Raises `ts.CheckError` where an index is not from 0 up to ``size`` when the program runs; gives the index."""
    place = here()

    def look(at: Any, n: Any) -> None:
        bad = (numpy.asarray(at) < 0) | (numpy.asarray(at) >= n)
        if bad.any():
            got = numpy.asarray(at)[bad].reshape(-1)[0]
            raise _core.error("E_OOB", f"expected `{what}` from 0 up to {n}, got {got}", "positions outside are left out or moved inside by array functions",
                              None, None, place)  # fmt: skip

    callback(look, index, size)
    return index
