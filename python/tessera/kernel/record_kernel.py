"""Kernels with records or lists as parameters: calls are taken apart and handed to the kernel of their form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable

from .. import _core
from ..base.caller import here
from ..base.errors import TesseraError
from .capture import capture
from .kernel_fn import CheckReport, Compiled, Definition, Elaboration, KernelFn, KernelSpec, TuningReport
from .parameters import ABSENT, MISSING, Flat, Leaf, Misfit, trial_forms
from .schedule import given
from .signature import at_parameter


class RecordKernelFn(KernelFn):
    """A kernel with a kernel without records and lists for each form of its arguments: see `parameters`."""

    def __init__(self, made: KernelSpec | Definition, nodes: list[Any], fn: Callable | None = None) -> None:
        self._made, self._nodes, self._fn = made, nodes, fn
        self._places = {node.name: place for place, node in enumerate(nodes)}
        self._forms: dict[tuple[int, ...], KernelFn] = {}
        #: Takes the arguments of most calls apart; others are looked at by `apart`.
        self._spread = _core.Spread([node.tree for node in nodes])
        self._form = self._first()
        if fn is not None:
            for name in ("__module__", "__name__", "__qualname__", "__doc__", "__wrapped__"):
                setattr(self, name, fn if name == "__wrapped__" else getattr(fn, name, None))

    def _first(self) -> KernelFn:
        """The form that decoration checks. How long lists are is not known: an error counts if it is found with every length."""
        first = None
        for form in trial_forms(self._nodes):
            try:
                return self._of(form)
            except TesseraError as e:
                first = first or e
        assert first is not None
        raise first

    def _of(self, form: tuple[int, ...]) -> KernelFn:
        found = self._forms.get(form)
        if found is None:
            flat = Flat(self._nodes, form)
            rows, made = flat.rows, self._made
            if isinstance(made, KernelSpec):
                rows = [(*row, tuple(capture(value) for value in default)) for *row, default in rows]
            found = KernelFn(replace(made, params=rows, optional=flat.optional, bundles=flat.bundles), self._fn)
            self._forms.setdefault(form, found)
        return found

    def apart(self, args: tuple, kwargs: dict) -> tuple[KernelFn, list, dict]:
        """The kernel of a call's form, and the call's arguments for it."""
        out: list = []
        form: list[int] = []
        nodes = self._nodes
        try:
            if kwargs or len(args) < len(nodes):
                args, kwargs = self._by_place(args, kwargs)
            if len(args) > len(nodes):
                s = "" if len(nodes) == 1 else "s"
                raise Misfit("", "E_ARGUMENT", f"expected at most {len(nodes)} argument{s}, got {len(args)}", "leave out those at the end")
            for node, value in zip(nodes, args):
                if type(node) is Leaf and value is not MISSING:
                    out.append(value)
                else:
                    node.spread(value, out, form)
        except Misfit as e:
            raise at_parameter(self._made.source, e.path.partition(".")[0], e.code, e.message, e.help, here()) from None
        self._form = found = self._of(tuple(form))
        return found, out, kwargs

    def _by_place(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        values = [*args, *[MISSING] * (len(self._nodes) - len(args))]
        rest = {}
        for name, value in kwargs.items():
            place = self._places.get(name)
            if place is None:
                rest[name] = value
            elif values[place] is not MISSING:
                raise Misfit(name, "E_ARGUMENT", f"expected `{name}` once, got it twice", "it is given by place already: leave out the keyword")
            else:
                values[place] = value
        return tuple(values), rest

    @property
    def flat(self) -> KernelFn:
        return self._form

    @property
    def _last(self) -> Elaboration:
        return self._form._last

    def now(self) -> Elaboration:
        return self._form.now()

    def __set_name__(self, owner: type, name: str) -> None:
        if isinstance(self._made, Definition):
            self._made.names.owned(owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Kept short, as that of `KernelFn`.
        found = None if kwargs else self._spread(args)
        if found is None:
            kernel, flat, rest = self.apart(args, kwargs)
            return kernel(*flat, **rest)
        form, flat = found
        self._form = kernel = self._forms.get(form) or self._of(form)
        return kernel(*flat)

    def launch(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        kernel, flat, rest = self.apart(args, kwargs)
        return kernel.launch(*flat, grid=grid, **rest)

    def check(self, *args: Any, grid: Any = None, **kwargs: Any) -> CheckReport:
        kernel, flat, rest = self.apart(args, kwargs)
        return kernel.check(*flat, grid=grid, **rest)

    def interpret(self, *args: Any, grid: Any = None, break_at: Any = None, on_stop: Any = None, **kwargs: Any) -> Any:
        kernel, flat, rest = self.apart(args, kwargs)
        return kernel.interpret(*flat, grid=grid, break_at=break_at, on_stop=on_stop, **rest)

    def trace(self, line: int | str, *args: Any, grid: Any = None, **kwargs: Any) -> list:
        kernel, flat, rest = self.apart(args, kwargs)
        return kernel.trace(line, *flat, grid=grid, **rest)

    def tune(self, *args: Any, budget_ms: float | None = None, force: bool = False, **kwargs: Any) -> TuningReport:
        kernel, flat, rest = self.apart(args, kwargs)
        return kernel.tune(*flat, budget_ms=budget_ms, force=force, **rest)

    def scheduled(self, schedule: Any = None, /, **fields: Any) -> KernelFn:
        wanted, made = given(schedule, fields), self._made
        if isinstance(made, Definition):
            return RecordKernelFn(replace(made, schedules=(*made.schedules, wanted)), self._nodes, self._fn)
        raise _core.error("E_UNSUPPORTED", f"`{self.name}` was read from a pickle: its schedule is fixed", "pin it before it is pickled")

    def jit(self, *, schedule: Any = None, **options: Any) -> Compiled:
        """As for other kernels. Fields are named by their paths, ``jit(**{"p.BLOCK": 64})``; a list is given by its length, ``xs=3``."""
        if schedule is not None:
            return self.scheduled(schedule).jit(**options)
        lengths = {name: options.pop(name) for name in list(options) if type(self._nodes[self._places.get(name, 0)]) is not Leaf and name in self._places}
        kernel = self.of_lengths(**lengths) if lengths else self._form
        return RecordCompiled(self, kernel, kernel.jit(**options))

    def of_lengths(self, **lengths: int | None) -> KernelFn:
        """The kernel without records and lists, for lists of these lengths by the names of their parameters; None leaves one out."""
        form = []
        for node in self._nodes:
            length = lengths.get(node.name, 2)
            if length is None and node.optional:
                form.append(ABSENT)
            else:
                form.extend(node.trial(length if isinstance(length, int) else 2))
        return self._of(tuple(form))

    def cache_clear(self) -> None:
        for kernel in self._forms.values():
            kernel.cache_clear()

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordKernelFn, (replace(self.now().spec, params=[], optional=(), bundles=()), self._nodes)


class RecordCompiled(Compiled):
    """A compiled kernel of one form."""

    def __init__(self, whole: RecordKernelFn, form: KernelFn, made: Compiled) -> None:
        self.__dict__.update(vars(made))
        self._whole, self._own = whole, form

    def _flat(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        form, flat, rest = self._whole.apart(args, kwargs)
        if form is not self._own:
            what = "expected lists of the lengths that the kernel was compiled for, got others"
            raise _core.error("E_SPECIALIZE", what, "call the kernel itself, or compile it again with `.jit(xs=3)`", place=here())
        return tuple(flat), rest

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        flat, rest = self._flat(args, kwargs)
        return super().__call__(*flat, **rest)

    def launch(self, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        flat, rest = self._flat(args, kwargs)
        return super().launch(*flat, grid=grid, **rest)
