"""``@ts.func``: a function that kernels call; it is inlined where it is called."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import textwrap
from types import FrameType
from typing import Any, Callable

from .. import _core
from ..base.error_location import placed
from ..base.source import Source, source_of
from ..trace.tracer import rests_on
from .builtins import outside
from .capture import Inlined, Look, Names, capture, identity_key

# While a function's captures are being found, a path back to it is recursion.
_RECURSIVE = "function that calls itself"


class Func(Inlined):
    """A ``@ts.func``. Its free names are looked up when a kernel uses it."""

    def __init__(
        self, fn: Callable | None, source: Source, made: Any = None, frame: FrameType | None = None
    ) -> None:
        """``made`` is the compiled form of a function with fixed captures: one that was pickled, or frozen."""
        self.source = source
        #: Its last form, and the values of its names that it was made from.
        self._now: tuple[_core.Watch, Any] | None = None if made is None else (_core.Watch([], True), made)
        self._names: Names | None = None
        self._defaults: dict[str, Any] = {}
        #: The last result of `frozen`.
        self._still: Func | None = None
        #: Its forms by captured values.
        self._made: dict[Any, Any] = {}
        if fn is not None:
            functools.update_wrapper(self, fn)
            self._names = Names(fn, source, frame)
            self._defaults = defaults_of(fn)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def parameters(self) -> list[str]:
        """Their names, parsed from the source: a pickled function has nothing else."""
        found = self.parsed().args
        return [a.arg for a in (*found.posonlyargs, *found.args)]

    def parsed(self) -> ast.FunctionDef | ast.Lambda:
        """The syntax tree of the definition. The source of a nested function is indented."""
        tree = ast.parse(textwrap.dedent(self.source.text))
        return next(node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.Lambda)))

    @property
    def handle(self) -> Any:
        """The function with the present values of its names, and of the names of functions that it calls."""
        now = self._now
        if now is None or not now[0].same():
            look = Look()
            handle = self.seen(look)
            now = self._now = look.watch(), handle
        rests_on(now[0])
        return now[1]

    def seen(self, look: Look) -> Any:
        """The function as one reading of names sees it."""
        if self._names is None:
            assert self._now is not None
            return self._now[1]
        handle = look.handles.get(id(self))
        if handle is None:
            look.handles[id(self)] = _core.Name("opaque", _RECURSIVE)
            captures = self._names.read(look)
            defaults = {name: capture(value, look) for name, value in self._defaults.items()}
            key = identity_key((captures, defaults))
            handle = self._made.get(key)
            if handle is None:
                s = self.source
                handle = self._made.setdefault(key, _core.Func(s.name, s.file, s.text, s.line, captures, defaults))
            look.handles[id(self)] = handle
        return handle

    def frozen(self) -> Func:
        """The function with its present captures, which later assignments do not change."""
        handle = self.handle
        if self._names is None:
            return self
        if self._still is None or self._still.handle is not handle:
            self._still = Func(None, self.source, handle)
            functools.update_wrapper(self._still, self, updated=())
        return self._still

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise outside(self.name)

    def __set_name__(self, owner: type, name: str) -> None:
        if self._names is not None:
            self._names.owned(owner)

    def __repr__(self) -> str:
        return f"<tessera func {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Func, (None, self.source, self.handle)

    def __deepcopy__(self, memo: dict) -> Func:
        return self


def func(fn: Callable | None = None, *, source: str | None = None) -> Any:
    """Declares a function that kernels may call: ``@ts.func``, or ``ts.func(lambda v: v * v)``. It is inlined at every call.

    Its names mean what Python says when a kernel that reaches it is called; defaults of its parameters are those that Python
    evaluated at its definition.
    """
    if fn is None:
        return functools.partial(func, source=source)
    return Func(fn, source_of(fn, source, "ts.func"), frame=sys._getframe(1))


def defaults_of(fn: Callable) -> dict[str, Any]:
    """The defaults of a function's parameters, by name."""
    found = inspect.signature(fn).parameters.values()
    return {p.name: p.default for p in found if p.default is not p.empty}


class Bound:
    """A ``@ts.func`` with arrays for its last parameters."""

    def __init__(self, function: Func, arrays: dict[str, Any]) -> None:
        self.function = function
        self.arrays = arrays

    def rests_on(self) -> tuple:
        """The parts that call replay compares in its place."""
        return self.function, self.arrays

    def __repr__(self) -> str:
        return f"<tessera func {self.function.name} with {', '.join(self.arrays)}>"


@placed
def bind(function: Any, **arrays: Any) -> Bound:
    """A function for an operation of the library that also reads arrays: ``ts.bind(add_bias, bias=bias)``.

    The arrays are the function's last parameters. They are handed over at every call, so the function is compiled once for
    all arrays of a dtype and rank.
    """
    if not isinstance(function, Func):
        got = type(function).__name__
        raise _core.error("E_ARGUMENT", f"expected a `@ts.func`, got a {got}", "decorate it: `@ts.func`")
    for name, value in arrays.items():
        if isinstance(value, (bool, int, float, str)) or getattr(value, "shape", None) == ():
            help = f"numbers are part of the function: give `{name}` a default, or hand over an array of one and read `{name}[0]`"
            raise _core.error("E_ARGUMENT", f"`{name}`: expected an array, got the single value {value!r}", help)
    names = function.parameters
    last = names[len(names) - len(arrays) :] if arrays else []
    if set(last) != set(arrays):
        got, wanted = ", ".join(arrays), ", ".join(last)
        raise _core.error(
            "E_ARGUMENT", f"expected arrays for the last parameters of `{function.name}` ({wanted}), got {got}",
            "arrays come after all that the operation gives",
        )
    return Bound(function, {name: arrays[name] for name in last})
