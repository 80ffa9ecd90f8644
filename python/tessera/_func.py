"""``@ts.func``: a function that kernels call; it is inlined where it is called."""

from __future__ import annotations

import ast
import functools
import textwrap
from typing import Any, Callable

from . import _core
from ._api import outside
from ._capture import captures_of
from ._placed import placed
from ._source import Source, source_of

# While a function's captures are being found, a path back to it is recursion.
_RECURSIVE = "function that calls itself"


class Func:
    """A ``@ts.func``. Its free names are looked up when a kernel first uses it."""

    def __init__(self, fn: Callable | None, source: Source, captures: dict[str, Any] | None = None) -> None:
        self.source = source
        self._captures = captures
        self._made: Any = None
        self._busy = False
        self._fn = fn
        if fn is not None:
            functools.update_wrapper(self, fn)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def parameters(self) -> list[str]:
        """Their names, of the source: one that was pickled has nothing else."""
        found = self.parsed().args
        return [a.arg for a in (*found.posonlyargs, *found.args)]

    def parsed(self) -> ast.FunctionDef:
        """The definition. One inside of a function is indented."""
        tree = ast.parse(textwrap.dedent(self.source.text))
        return next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))

    @property
    def handle(self) -> Any:
        if self._made is None:
            if self._busy:
                return _core.Name("opaque", _RECURSIVE)
            self._busy = True
            try:
                captures = self.captures
            finally:
                self._busy = False
            s = self.source
            self._made = _core.Func(s.name, s.file, s.text, s.line, captures)
        return self._made

    @property
    def captures(self) -> dict[str, Any]:
        if self._captures is None:
            assert self._fn is not None
            self._captures = captures_of(self._fn, self.source)
        return self._captures

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise outside(self.name)

    def __repr__(self) -> str:
        return f"<tessera func {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Func, (None, self.source, self.captures)

    def __deepcopy__(self, memo: dict) -> Func:
        return self


def func(fn: Callable | None = None, *, source: str | None = None) -> Any:
    """Declares a function that kernels may call: ``@ts.func``. It is inlined at every call."""
    if fn is None:
        return functools.partial(func, source=source)
    return Func(fn, source_of(fn, source, "ts.func"))


class Bound:
    """A ``@ts.func`` with arrays for its last parameters."""

    def __init__(self, function: Func, arrays: dict[str, Any]) -> None:
        self.function = function
        self.arrays = arrays

    def rests_on(self) -> tuple:
        """What decisions of an operation rest on that is given this: see `_again`."""
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
