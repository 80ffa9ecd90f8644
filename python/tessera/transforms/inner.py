"""Functions traced inside the current one, which transforms hand to the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.caller import here
from ..trace.jit import Jitted, _name, _names, like, run_once
from ..trace.tracer import Tracer, as_tracer, aval, current, is_array, tracing, weakened
from ..tree import pytree


class Inner:
    """A function traced inside the current one: its name, and the values it captures from enclosing frames."""

    def __init__(self, fn: Callable, args: tuple, kwargs: dict, *, avals: list | None = None, name: str | None = None,
                 reform: Callable[[Any], Any] = lambda form: form) -> None:  # fmt: skip
        """``reform`` gives the form of what the function is called with."""
        leaves, form = pytree.opened((args, kwargs))
        form = reform(form)
        self.leaves = [leaf for leaf in leaves if is_array(leaf)]
        self.avals = [aval(v) for v in self.leaves] if avals is None else avals
        names = [n for n, leaf in zip(_names(fn, args, kwargs), leaves, strict=True) if is_array(leaf)]
        with tracing(name or _name(fn)) as frame:
            params = [frame.param(n, *a) for n, a in zip(names, self.avals, strict=True)]
            rest = iter(params)
            inner_args, inner_kwargs = pytree.unflatten(form, [next(rest) if is_array(v) else v for v in leaves])
            result = fn(*inner_args, **inner_kwargs)
            self.result = result
            out, self.form = pytree.opened(result)
            self.results = [frame.lift(as_tracer(v)) for v in out]
            self.places = [r._place for r in self.results]
            self.weak = [r._weak for r in self.results]
            frame.finish(self.results)
        self.frame, self.func, self.program = frame, frame.name, frame.program

    @property
    def captured(self) -> list[Tracer]:
        return [theirs for theirs, _ in self.frame.captured]

    def arguments(self) -> list[Tracer]:
        return [as_tracer(v) for v in self.leaves] + self.captured


def inline(program: Any, func: str, args: list[Tracer], weak: list[bool] | None = None) -> list[Tracer]:
    """Puts a function of the program into the current one. ``weak`` are marks of its first results."""
    frame = current()
    assert frame is not None
    ids = [frame.lift(a)._value for a in args]
    place = here()
    made = [Tracer(frame, v, s, d, False, place) for v, s, d in frame.builder.inline(program, func, ids, place)]
    weakened(made[: len(weak or ())], weak or [])
    return made


def outside(fn: Callable, args: tuple, kwargs: dict, name: str) -> Any:
    """Runs a transform immediately, outside a trace."""
    leaves = pytree.opened((args, kwargs))[0]
    return like(run_once(fn, args, kwargs, name), leaves)


def unwrap(fn: Callable) -> Callable:
    return fn._fn if isinstance(fn, Jitted) else fn
