"""Kernel objects: what ``@ts.kernel`` makes of a function."""

from __future__ import annotations

import functools
import warnings
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Mapping, Sequence

from .. import _core
from ..arrays.create import for_result
from ..base.errors import TesseraWarning
from ..base.numeric_profile import current as profile_now
from ..base.source import Source
from ..trace.tracer import current as tracing, frames
from .autotune import DEFAULTS, TuningReport, options
from .capture import Look, Names, capture, identity_key
from .check_report import CheckReport
from .clocks import KernelProfile, clocks_of
from .cost import Cost
from .func import Func
from .line_trace import Frame, Traced, interpret, trace
from .schedule import Schedule, given as given_schedule, pinned
from .signature import with_sizes
from .traced_call import call as traced_call, takes_part


@dataclass(frozen=True)
class KernelSpec:
    """Everything that makes a kernel, as plain data: what is pickled."""

    source: Source
    captures: dict[str, Any]
    params: list[tuple]
    candidates: list[dict[str, Any]] = field(default_factory=list)
    #: The extents of a group along the axes of its lanes; empty where the kernel does not say.
    lanes: tuple[int, ...] = ()
    target: str | None = None
    require: tuple[tuple, ...] = ()
    #: How it is tuned: see `autotune.options`.
    tuning: tuple = DEFAULTS
    #: The names of the parameters that may be None.
    optional: tuple[str, ...] = ()
    #: Records and lists, as `_core` takes them apart: see `parameters.Flat`.
    bundles: tuple[tuple[str, Any], ...] = ()
    #: The dims that ranks of a mesh may split: those of blocks, and those of contributions.
    split: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())


@dataclass(frozen=True)
class Definition:
    """What a decorator found, as Python objects. It is read again when a captured value has changed."""

    source: Source
    names: Names
    #: As in `KernelSpec`, with the defaults as they are.
    params: list[tuple]
    candidates: list[dict[str, Any]]
    lanes: tuple[int, ...]
    target: str | None
    require: tuple[tuple, ...]
    tuning: tuple
    optional: tuple[str, ...] = ()
    bundles: tuple[tuple[str, Any], ...] = ()
    schedules: tuple[Schedule, ...] = ()
    split: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    def read(self, look: Look) -> KernelSpec:
        spec = KernelSpec(
            source=self.source,
            captures=self.names.read(look),
            params=with_sizes([(*row, tuple(capture(value, look) for value in default)) for *row, default in self.params], self.names, look),
            candidates=[{k: capture(v, look) for k, v in c.items()} for c in self.candidates],
            lanes=self.lanes,
            target=self.target,
            require=self.require,
            tuning=self.tuning,
            optional=self.optional,
            bundles=self.bundles,
            split=self.split,
        )
        return functools.reduce(pinned, self.schedules, spec)


class Elaboration:
    """A kernel for one set of captured values."""

    __slots__ = ("watch", "same", "spec", "kernel", "call", "__weakref__")

    def __init__(self, watch: Any, spec: KernelSpec, kernel: Any) -> None:
        self.watch = watch
        self.spec = spec
        self.kernel = kernel
        # Looked up once: the lookup would be a noticeable part of a short call.
        self.same = watch.same
        self.call = _core.Elaborated(kernel, watch).call


#: A kernel with more sets of captured values than this was probably meant to have a parameter.
_MANY = 8


class Explanation(str):
    """What ran, where and why, as text; ``fields`` holds the same as a dict."""

    fields: dict[str, Any]

    def __new__(cls, text: str, fields: dict[str, Any]) -> Explanation:
        self = super().__new__(cls, text)
        self.fields = fields
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return self.fields[name]
        except KeyError:
            raise AttributeError(name) from None

    def __reduce__(self) -> tuple[Any, ...]:
        return Explanation, (str(self), self.fields)


class AtGrid(functools.partial):
    """A kernel with its grid, ``k[grid]``: it is called, or checked."""

    def check(self, *args: Any, **kwargs: Any) -> Any:
        """``k.check(…, grid=grid)``."""
        return self.func.__self__.check(*args, **self.keywords, **kwargs)


class KernelFn:
    """A tile kernel. Calling it launches it and gives back the parameters that it returns.

    ``k(x, y)`` launches with the grid that the kernel implies, ``k[grid](x, y)`` with one given.

    A call runs where its arrays are. On the host it returns when the results are there. On a CUDA device it returns
    immediately: the work is on the current stream of the arrays' library (PyTorch, CuPy), else on the default stream, or
    on the one that ``ts.runtime.stream`` names. Arrays are used in place; a tensor that requires a gradient is written
    as its data, which PyTorch does not see.
    """

    #: Its name in messages, where it is used in place of a value.
    kind_name = "kernel"

    def __init__(self, made: KernelSpec | Definition, fn: Callable | None = None) -> None:
        """A kernel of a `Definition` follows its captured names; a pickled one keeps the values it had."""
        if fn is not None:
            functools.update_wrapper(self, fn)
        self._definition = made if isinstance(made, Definition) else None
        look = Look(decorating=True)
        spec = made.read(look) if isinstance(made, Definition) else made
        kernel = _core.Kernel(*_fields(spec), for_result)
        #: The elaboration that was called last, and all of them by captured values.
        self._last = Elaboration(look.watch(), spec, kernel)
        self._all = {_captured(spec): kernel}

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._last.spec.source.name

    @property
    def spec(self) -> KernelSpec:
        """The data that makes the kernel, with the latest captured values."""
        return self._last.spec

    @property
    def flat(self) -> KernelFn:
        """The kernel whose parameters are arrays and numbers only: of one with records, the form of the last call."""
        return self

    def apart(self, args: tuple, kwargs: dict) -> tuple[KernelFn, Sequence, dict]:
        """The kernel without records and lists that a call is for, and the call's arguments for it."""
        return self, args, kwargs

    def now(self) -> Elaboration:
        """The kernel for the present values of its captured names."""
        found = self._last
        return found if found.same() else self._renewed()

    def _renewed(self) -> Elaboration:
        return self._take(Look())

    def _take(self, look: Look) -> Elaboration:
        assert self._definition is not None
        spec = self._definition.read(look)
        key = _captured(spec)
        kernel = self._all.get(key)
        if kernel is None:
            kernel = self._all.setdefault(key, _core.Kernel(*_fields(spec), for_result))
            if len(self._all) == _MANY + 1:
                self._too_many(spec)
        self._last = found = Elaboration(look.watch(), spec, kernel)
        return found

    def _too_many(self, spec: KernelSpec) -> None:
        before = self._last.spec
        changed = [n for n in spec.captures if identity_key(spec.captures[n]) != identity_key(before.captures.get(n))]
        what = f"`{changed[0]}`, which it captures," if changed else "something that a function of it captures"
        warnings.warn(
            f"W_RESPECIALISE: `{self.name}` is compiled for the {_MANY + 1}th set of captured values: {what} changes often; "
            "make it a parameter with a dtype, such as `ts.i64`, for one compilation of all values",
            TesseraWarning,
            stacklevel=5,
        )

    def __set_name__(self, owner: type, name: str) -> None:
        if self._definition is not None:
            self._definition.names.owned(owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # Kept short, without helper functions: each costs a noticeable part of a small call.
        if frames.frames and takes_part(args, kwargs):
            return traced_call(self, args, kwargs, None)
        done = self._last.call(args, kwargs, None, profile_now())
        if done is not NotImplemented:
            return done
        found = self._renewed()
        done = found.call(args, kwargs, None, profile_now())
        # A name that has no value yet is looked up at every call.
        return found.kernel.call(args, kwargs, None, profile_now()) if done is NotImplemented else done

    def launch(self, *args: Any, grid: int | tuple[int, ...] | None = None, **kwargs: Any) -> Any:
        """As a call; ``grid`` counts groups, or lanes in lane kernels."""
        if tracing() and takes_part(args, kwargs):
            return traced_call(self, args, kwargs, grid)
        return self.now().kernel.call(args, kwargs, grid, profile_now())

    def check(self, *args: Any, grid: int | tuple[int, ...] | None = None, **kwargs: Any) -> CheckReport:
        """Runs the call on the interpreter and looks for mistakes: races, accesses out of bounds,
        NaNs. The report holds the findings, and is true when there is none.

        Arrays that the kernel writes are copied first: the caller's stay as they are; arrays on a device are copied
        to the host. A call that does not fit the kernel is refused as always.
        """
        return CheckReport(*self.now().kernel.check(args, kwargs, grid, profile_now()))

    def interpret(
        self,
        *args: Any,
        grid: int | tuple[int, ...] | None = None,
        break_at: Any = None,
        on_stop: Callable[[Frame], Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """As a call, on the interpreter, with breakpoints.

        ``break_at`` is a line of the kernel's file, ``"file.py:12"``, or a list of them. Each time a
        group is about to run the statement there, ``on_stop`` is called with a `Frame`; without it
        Python's debugger opens, with the kernel's variables as its own. Arrays on a device are copied to the host,
        and what was written is copied back.
        """
        return interpret(self, args, kwargs, grid, break_at, on_stop)

    def trace(self, line: int | str, *args: Any, grid: int | tuple[int, ...] | None = None, **kwargs: Any) -> list[Traced]:
        """Runs the call on the interpreter, and gives each value that the statement at ``line``
        assigned, in the order it happened. The arrays are written as by a call."""
        return trace(self, line, args, kwargs, grid)

    def __getitem__(self, grid: int | tuple[int, ...]) -> Callable[..., Any]:
        return AtGrid(self.launch, grid=grid)

    def scheduled(self, schedule: Any = None, /, **fields: Any) -> KernelFn:
        """The kernel with a schedule pinned: a `Schedule`, its text, or fields by name. This one stays as it is."""
        wanted = given_schedule(schedule, fields)
        definition = self._definition
        if definition is None:
            made = KernelFn(pinned(self.spec, wanted))
        else:
            made = KernelFn(replace(definition, schedules=(*definition.schedules, wanted)))
        if hasattr(self, "__wrapped__"):
            functools.update_wrapper(made, self.__wrapped__)
        return made

    def jit(
        self,
        *,
        schedule: Any = None,
        target: str | None = None,
        layouts: Mapping[str, Mapping[str, int | None]] | None = None,
        off: str | Sequence[str] = (),
        **values: Any,
    ) -> Compiled:
        """Compiles for these dims, tunables and constants, without data.

        Dims that reach a tile shape must be given; others may stay free. ``target`` is a backend, or an
        architecture such as ``"sm90"``: no device is needed to compile for it. ``sm_90`` is what PTX calls so,
        which later GPUs run too, ``sm_90a`` has what that generation alone has, and ``sm90`` is what its GPUs get.

        ``layouts`` gives the layout of arrays that are not row-major and 16-byte aligned. For a parameter's name, ``axis`` is
        the contiguous axis (``{"b": {"axis": 0}}`` is column-major; ``None`` for an array without one), and ``align`` the
        alignment in bytes, a power of two up to 16, of the address and of the strides of the other axes. GPUs have separate
        code for each layout. Calls still take any arrays.

        ``off`` names passes of the compiler to switch off, to see what each contributes; results stay the same. An unknown name
        is refused with the list of passes. ``TESSERA_OFF`` does so for every kernel.

        ``schedule`` is a `Schedule`, or the text of one: what ``inspect_ir("schedule")`` prints can be handed back.
        """
        if schedule is not None:
            return self.scheduled(schedule).jit(target=target, layouts=layouts, off=off, **values)
        passes = [off] if isinstance(off, str) else list(off) if isinstance(off, (list, tuple, set, frozenset)) else [str(off)]
        return Compiled(self, values, (_layouts(layouts or {}), target, profile_now(), passes))

    def inspect_ir(self, level: str = "tile", locs: bool = False) -> str:
        """The text of one level: ``graph``, ``schedule``, ``tile``, ``staged`` (GPUs have it) or ``target``."""
        return self.now().kernel.inspect_ir(level, locs)

    def explain(self) -> Explanation:
        """What the latest call or ``jit`` did: backend, configuration, grid, hashes, resources, work, times, notes."""
        return Explanation(*self._last.kernel.explain())

    def cost(self) -> Cost:
        """How much arithmetic and how many bytes the latest call was, and how fast it went."""
        return Cost(**self._last.kernel.cost())

    def profile(self, *args: Any, grid: int | tuple[int, ...] | None = None, **kwargs: Any) -> KernelProfile:
        """Calls the kernel on a GPU with code that reads the clock. Shows the clocks of an iteration of each loop in each warp role,
        beside the clocks that the tensor cores need for its MMAs. ``.result`` is the result of the call. The code of other calls
        is unchanged. ``ts.profile()`` measures whole calls, on every backend."""
        return clocks_of(self.name, lambda: self.launch(*args, grid=grid, **kwargs))

    def tune(self, *args: Any, budget_ms: float | None = None, force: bool = False, **kwargs: Any) -> TuningReport:
        """Measures the candidates for calls like this one, and keeps what it finds for later processes too.

        The arrays are only read: what candidates write goes into copies. ``budget_ms`` is how long all of it may take,
        compiling included (10000 where neither this nor the decorator says it). What was measured before is not
        measured again, unless ``force`` is given.
        """
        options(None, budget_ms, "latency_ms", None)
        self.now().kernel.tune(args, kwargs, profile_now(), budget_ms, force)
        return self.tuning_report()

    def tuning_report(self) -> TuningReport:
        """What is known of the candidates, and which of them runs: a text, with a picture (``.svg()``) and ``.rows``."""
        return TuningReport(self.now().kernel.tuning_reports())

    def cache_clear(self) -> None:
        """Forgets everything that was compiled, and what is known of candidates; records on disk stay."""
        for kernel in list(self._all.values()):
            kernel.cache_clear()

    def __repr__(self) -> str:
        return f"<tessera kernel {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return KernelFn, (self.now().spec,)

    def __deepcopy__(self, memo: dict) -> KernelFn:
        return self


def _fields(spec: KernelSpec) -> tuple:
    """The arguments of the compiler."""
    s = spec.source
    place = s.name, s.file, s.text, s.line
    return *place, spec.captures, spec.params, list(spec.optional), dict(spec.bundles), spec.candidates, list(spec.lanes), spec.target, list(spec.require), spec.tuning


def _captured(spec: KernelSpec) -> Any:
    """The key of an elaboration: the values that it captured."""
    sizes = [info[0] for _, kind, info, _ in spec.params if kind == "tensor" and info[3]]
    return identity_key((spec.captures, [default for *_, default in spec.params], spec.candidates, sizes))


def _layouts(layouts: Any) -> dict[str, dict[str, Any]]:
    """``layouts=`` as the compiler takes it."""
    if not isinstance(layouts, Mapping) or not all(isinstance(entries, Mapping) for entries in layouts.values()):
        what = "expected a dict of dicts as `layouts`, one for each array it tells of"
        raise _core.error("E_ARGUMENT", f"{what}, got {layouts!r}", 'write `layouts={"b": {"axis": 0}}`')
    return {str(name): {str(key): capture(value) for key, value in entries.items()} for name, entries in layouts.items()}


class Compiled:
    """A kernel compiled for one configuration. Like a kernel it follows its captured names: a call after a captured value has
    changed runs code that is compiled for the new value."""

    def __init__(self, kernel: KernelFn, values: dict[str, Any], how: tuple) -> None:
        self.kernel = kernel
        self._values, self._how = values, how
        self._functions = [v for v in values.values() if isinstance(v, Func)]
        self._all: dict[tuple, Any] = {}
        self._handle = self._compiled(self._key())

    def _key(self) -> tuple:
        return self.kernel.now().kernel, *(f.handle for f in self._functions)

    def _compiled(self, key: tuple) -> Any:
        given = {name: capture(value) for name, value in self._values.items()}
        return self._all.setdefault(key, key[0].jit(given, *self._how))

    def _now(self) -> Any:
        key = self._key()
        self._handle = found = self._all.get(key) or self._compiled(key)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._now().call(args, kwargs, None)

    def launch(self, *args: Any, grid: int | tuple[int, ...] | None = None, **kwargs: Any) -> Any:
        """As a call; ``grid`` counts groups, or lanes in lane kernels."""
        return self._now().call(args, kwargs, grid)

    def __getitem__(self, grid: int | tuple[int, ...]) -> Callable[..., Any]:
        return functools.partial(self.launch, grid=grid)

    def inspect_ir(self, level: str = "tile", locs: bool = False) -> str:
        """The text of one level: ``graph``, ``schedule``, ``tile``, ``staged`` (GPUs have it) or ``target``."""
        return self._handle.inspect_ir(level, locs)

    def explain(self) -> Explanation:
        """How it was compiled and, once it was called, what ran."""
        return Explanation(*self._handle.explain())

    def cost(self, **dims: int) -> Cost:
        """How much arithmetic and how many bytes a launch is: one with these dims, or without any the latest."""
        return Cost(**self._handle.cost(dims))

    @property
    def config(self) -> dict[str, Any]:
        """The compile-time values: dims, tunables and constants."""
        return self._handle.config()

    @property
    def schedule(self) -> Schedule:
        """How it runs: what was pinned, and what the compiler chose. ``k.jit(schedule=…)`` takes it back."""
        return Schedule(self.inspect_ir("schedule"))

    @property
    def resources(self) -> dict[str, str]:
        """Figures of the compiled code."""
        return self._handle.resources()

    def __repr__(self) -> str:
        values = ", ".join(f"{k}={v!r}" for k, v in self.config.items())
        return f"<tessera kernel {self.kernel.name} compiled for {values or 'any size'}>"
