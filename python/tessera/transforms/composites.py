"""Composites: functions of arrays that stay one operation until planning, where a kernel may compute them whole.

A trace holds the name of a composite, its static arguments and its decomposition, and is the same for every device. Derivatives and
batching come from rules of the composite or from the decomposition. When a function is compiled for a device, planning asks for each composite
that is left (`_Site.provide`), and the first kernel that takes it is traced for the extents, the device and the profile at hand."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _core
from ..base.caller import returns
from ..base.errors import TesseraError
from ..base.numeric_profile import PROFILES, Profile
from ..base.promotion import is_float
from ..trace import prim as p
from ..trace.jit import _name
from ..trace.tracer import Frame, Tracer, as_tracer, aval, current, emit, fail, is_array, outermost, tracing, weakened
from ..tree import pytree
from .custom_rules import (
    _as_given, _closed, _constants, _cotangents, _described, _inner_of_types, _kinds, _once, _opened, _parameters, _Shape, _values, fail_at,
)  # fmt: skip
from .inner import Inner, outside


@dataclass(frozen=True)
class Request:
    """A composite in a function that is compiled: what a kernel decides by."""

    #: The extents and dtypes of the array arguments, in order.
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    #: The static keyword arguments.
    config: dict[str, Any]
    #: The numeric profile, and what the machine has: `ts.runtime.capabilities()`.
    profile: str
    capabilities: dict[str, Any]


@dataclass(frozen=True)
class _Kernel:
    fn: Callable
    when: dict[str, Any]
    takes: Callable[[Request], Any] | None

    def declines(self, request: Request) -> str | None:
        """Why it does not take a composite; None where it does."""
        for name, wanted in self.when.items():
            if name not in request.capabilities or not matches(request.capabilities[name], wanted):
                return f"it is for machines with `{name}` as in `when`"
        answer = True if self.takes is None else self.takes(request)
        return answer if isinstance(answer, str) else None if answer else "its condition does not hold"


def matches(value: Any, wanted: Any) -> bool:
    """Whether a capability is as ``wanted`` says: a value, a list of values, or a function of the value."""
    if callable(wanted):
        return bool(wanted(value))
    if isinstance(wanted, (list, tuple, set, frozenset)):
        return any(matches(value, one) for one in wanted)
    return bool(value == wanted)


class _Making(threading.local):
    """The composites whose kernels this thread is tracing."""

    def __init__(self) -> None:
        self.stack: list[composite] = []


_making = _Making()


class composite:
    """A function of arrays that the compiler keeps as one operation, so that a kernel may compute it::

        @ts.composite
        def rms(x, *, eps=1e-6):
            return x * xp.rsqrt(xp.mean(x * x, -1, keepdims=True) + eps)

        @rms.kernel(when={"backend": "ptx"})
        def rms_on_gpus(x, *, eps): ...

    Positional arguments are trees of arrays; keyword arguments are static. The function itself is the decomposition: it says what
    the composite means, and runs where no kernel takes it. Kernels are tried in the order of their registration when a function is compiled
    for a machine."""

    def __init__(self, fn: Callable) -> None:
        functools.update_wrapper(self, fn)
        self._fn, self._name = fn, _name(fn)
        self._kernels: list[_Kernel] = []
        self._vjp: tuple[Callable, Callable, tuple[int, ...]] | None = None
        self._jvp: Callable | None = None
        self._vmap: Callable | None = None
        self._sharding: str | Callable[[list[int]], str] | None = None
        defaults = inspect.signature(fn).parameters.values()
        self._defaults = {q.name: q.default for q in defaults if q.kind is q.KEYWORD_ONLY and q.default is not q.empty}

    def defvjp(self, fwd: Callable, bwd: Callable, without: Sequence[int] = ()) -> composite:
        """The rule for reverse mode: ``fwd(*args, **static) -> (y, residuals)`` and ``bwd(residuals, dy, **static)``, which gives a
        cotangent for each positional argument. It has none for the arguments ``without``: where one is requested, the derivative is that
        of the decomposition, as it is for forward mode without `defjvp`."""
        self._vjp = fwd, bwd, tuple(without)
        return self

    def defjvp(self, rule: Callable) -> composite:
        """The rule for forward mode: ``rule(primals, tangents, **static) -> (y, dy)``."""
        self._jvp = rule
        return self

    def defvmap(self, rule: Callable) -> composite:
        """The rule for batches: ``rule(size, batched, *args, **static)``, where ``batched`` is a tuple of trees like the arguments with True for each
        array that has the examples along its first axis, of extent ``size``. It gives what the composite gives, with the examples along the
        first axis of every array. It may call the composite, on one example's axes more or on axes joined. Without a rule the decomposition
        is batched, as it is where the number of examples is a name."""
        self._vmap = rule
        return self

    def shard(self, rule: str | Callable[[list[int]], str]) -> composite:
        """How its dims may be split over a mesh: a factor for each dim of each array, ``"b s d, d -> b s d"``. Dims with one name are
        split together, one in upper case must be whole, and of one that is written ``_`` nothing is said. Where arguments differ in how many
        dims they have, a function gives the rule for these numbers.

        Without a rule a composite is split as its decomposition shows: by dims whose blocks it computes one by one, and by dims that it
        sums into a result: kernels then give each rank's part of the sum, and blocks are equal. Where other dims are split it is decomposed. A rule forbids more; and of arguments that a kernel reads and the decomposition does not, it alone can
        say what they are split by."""
        if isinstance(rule, str):
            _core.check_factors(rule)
        self._sharding = rule
        return self

    def kernel(self, fn: Callable | None = None, *, when: dict[str, Any] | None = None, takes: Callable[[Request], Any] | None = None) -> Any:
        """Registers ``fn(*args, **static)``, a function of arrays that calls kernels, for machines whose `ts.runtime.capabilities()`
        are as ``when`` says: a value, a list of values, or a function of the value; one that is missing does not match. ``takes(request)``
        looks at shapes, dtypes, static arguments and the profile; it gives True, or False, or a text that says why not. ``fn`` declines too
        where it returns such a text."""
        if fn is None:
            return lambda given: self.kernel(given, when=when, takes=takes)
        self._kernels.append(_Kernel(fn, dict(when or {}), takes))
        return fn

    def __call__(self, *args: Any, **static: Any) -> Any:
        for name, value in static.items():
            if isinstance(value, Tracer) or is_array(value) and numpy_array(value):
                raise fail("E_ARGUMENT", f"expected `{name}` of `{self._name}` to be known while tracing, got {_described(value)}",
                           "arrays are positional arguments of a composite")  # fmt: skip
        static = {**self._defaults, **static}
        if current() is None:
            return outside(lambda *a: self(*a, **static), args, {}, self._name)
        if self in _making.stack:
            return self._fn(*args, **static)
        key = (self, tuple((k, pytree.static_key(v)) for k, v in sorted(static.items())), _kinds(args))
        site = _once(key, lambda: _Site(self, args, static))
        frame = current()
        assert frame is not None
        given = [*_values(args), *map(frame.array, site.constants)]
        made = emit("composite", [], site.attrs, groups={"values": given}, results=site.results)
        return pytree.unflatten(site.inner.form, weakened(made, site.inner.weak))


def numpy_array(value: Any) -> bool:
    """Whether something that a trace may take is an array and no number."""
    return bool(getattr(value, "shape", ()))


def _printable(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str)) and value == value and value not in (float("inf"), float("-inf"))


class _Site:
    """A composite for arguments of one form and one set of types, in one program."""

    def __init__(self, owner: composite, args: tuple, static: dict[str, Any]) -> None:
        self.owner, self.static = owner, static
        leaves, form = pytree.flatten(args)
        # The arguments belong to their own frame: only their form is used later.
        self.args = pytree.unflatten(form, [0.0 if is_array(v) else v for v in leaves])
        root = outermost()
        assert root is not None
        self.root: Frame = root
        fn = functools.update_wrapper(lambda *a: owner._fn(*a, **static), owner._fn)
        self.inner = _closed(Inner(fn, args, {}, name=owner._name), "composite")
        self.constants = _constants(self.inner)
        n, given = len(self.inner.avals), [aval(c) for c in self.constants]
        self.func = _opened(self.inner, self.constants, n, self.inner.avals + given).func if self.constants else self.inner.func
        self.results = [(list(s), d) for s, d, _ in map(aval, self.inner.results)]
        self.attrs: dict[str, Any] = {"name": owner._name, "decomposition": self.func}
        if config := {k: v for k, v in static.items() if _printable(v)}:
            self.attrs["config"] = config
        if owner._sharding is not None:
            ranks = [len(t[0]) for t in self.inner.avals], [len(s) for s, _ in self.results]
            rule = owner._sharding if isinstance(owner._sharding, str) else owner._sharding(ranks[0])
            _core.check_factors(rule, ranks)
            whole = "".join(f", {' '.join(f'C{i}_{axis}' for axis in range(len(shape)))}" for i, (shape, _, _) in enumerate(given))
            self.attrs["sharding"] = rule.replace("->", f"{whole} ->", 1) if whole else rule
        #: The composites whose kernels hold this one: it may not be given to their kernels again.
        self.around = tuple(_making.stack)
        self._known: dict[Any, str | None] = {}
        self._again: dict[Any, str | None] = {}
        self._rule: dict[str, Any] | None = None
        self._batched: dict[tuple, str | None] = {}
        root.composites[self.func] = self

    # Derivatives

    def rule(self) -> dict[str, Any]:
        """The functions of its derivative rules, traced when a derivative is first taken."""
        if self._rule is None:
            self._rule = {}
            if self.owner._vjp is not None:
                self._rule |= self._reverse(*self.owner._vjp)
            if self.owner._jvp is not None:
                self._rule |= self._forward(self.owner._jvp)
        return self._rule

    def _inner(self, inner: Inner, at: int, types: list, rule: Callable, keep: bool = False) -> str:
        """The function of a rule, with the arrays that the decomposition closes over as parameters from place ``at`` on."""
        _closed(inner, "composite", rule)
        known = {id(c) for c in self.constants}
        if any(id(c) not in known for c in _constants(inner)):
            raise fail_at(returns(rule), "E_UNSUPPORTED",
                          f"expected a rule of `{self.owner._name}` that uses no arrays but those of the composite, got one that captures an array",
                          "pass the array as an argument of the composite")  # fmt: skip
        return _opened(inner, self.constants, at, types, keep=keep).func if self.constants else inner.func

    def _reverse(self, fwd: Callable, bwd: Callable, without: tuple[int, ...]) -> dict[str, Any]:
        owner, types, given = self.owner, self.inner.avals, [aval(c) for c in self.constants]
        form: dict[str, Any] = {}

        def forward(*args: Any) -> Any:
            got = fwd(*args, **self.static)
            if not isinstance(got, (tuple, list)) or len(got) != 2:
                raise fail_at(returns(fwd), "E_ARGUMENT", f"expected the forward rule of `{owner._name}` to give a pair, got {_described(got)}",
                              "return `(y, residuals)`: what the function gives, and what the backward rule needs")  # fmt: skip
            _as_given(owner._fn, self.inner, got[0], returns(fwd), "forward rule", "return `(y, residuals)`, with `y` as the function gives it")
            form["residuals"] = pytree.flatten(got[1])[1]
            return got[0], got[1]

        made_fwd = Inner(forward, self.args, {}, avals=types, name=f"{owner._name}_fwd")
        y_types = [aval(v) for v in self.inner.results]
        residuals = [aval(r) for r in made_fwd.results[len(y_types):]]
        moving = [i for i in range(len(self.args)) if i not in without]
        names = _parameters(owner._fn, len(self.args))

        def backward(res: list, cts: list) -> Any:
            rest = iter(cts)
            full = [next(rest) if is_float(d) else p.splat(0, s, d) for s, d, _ in y_types]
            ct = pytree.unflatten(self.inner.form, full)
            got = bwd(pytree.unflatten(form["residuals"], res), ct, **self.static)
            if not isinstance(got, tuple) and len(self.args) == 1:
                got = (got,)
            if not isinstance(got, tuple) or len(got) != len(self.args):
                raise fail_at(returns(bwd), "E_ARGUMENT",
                              f"expected the backward rule of `{owner._name}` to give a tuple of {len(self.args)}, got {_described(got)}",
                              "give a cotangent for each positional argument, and None for one without derivative")  # fmt: skip
            return _cotangents(tuple(self._like(i) for i in moving), tuple(got[i] for i in moving), [names[i] for i in moving], returns(bwd))

        cts = [_Shape(a) for a in y_types if is_float(a[1])]
        made_bwd = _inner_of_types(backward, [_Shape(r) for r in residuals], cts, f"{owner._name}_bwd")
        n, m = len(types), len(residuals)
        out: dict[str, Any] = {
            "fwd": self._inner(made_fwd, n, types + given, fwd, keep=True),
            "bwd": self._inner(made_bwd, m, [*residuals, *given, *(s.aval for s in cts)], bwd),
        }
        places = [at for i in without for at in self._places(i)] + list(range(n, n + len(given)))
        return out | ({"nondiff": sorted(places)} if places else {})

    def _forward(self, rule: Callable) -> dict[str, Any]:
        owner, types, given = self.owner, self.inner.avals, [aval(c) for c in self.constants]
        nondiff = [at for i in (self.owner._vjp or ((), (), ()))[2] for at in self._places(i)]
        floats = [i for i, t in enumerate(types) if is_float(t[1]) and i not in nondiff]
        form = pytree.flatten(self.args)[1]
        leaves = pytree.leaves(self.args)

        def call(primals: list, tangents: list) -> Any:
            moved_by = dict(zip(floats, tangents, strict=True))
            moved = [moved_by[i] if i in moved_by else p.splat(0, t[0], t[1]) for i, t in enumerate(types)]
            pair = []
            for values in (primals, moved):
                rest = iter(values)
                pair.append(pytree.unflatten(form, [next(rest) if is_array(v) else v for v in leaves]))
            got = rule(*pair, **self.static)
            place, help = returns(rule), "return `(y, dy)`, with `y` as the function gives it"
            if not isinstance(got, (tuple, list)) or len(got) != 2:
                raise fail_at(place, "E_ARGUMENT", f"expected the forward rule of `{owner._name}` to give a pair, got {_described(got)}", help)
            _as_given(owner._fn, self.inner, got[0], place, "rule", help)
            ys, dys = (pytree.leaves(g) for g in got)
            if len(ys) != len(dys) or any(tuple(aval(y)[0]) != tuple(aval(dy)[0]) for y, dy in zip(ys, dys, strict=True)):
                raise fail_at(place, "E_SHAPE_MISMATCH", f"expected the forward rule of `{owner._name}` to give a tangent of the shape of each result",
                              "return a tangent for each result, `xp.zeros_like(y)` for one that does not move")  # fmt: skip
            return ys, [p.cast(dy, aval(y)[1]) for y, dy in zip(ys, dys, strict=True) if is_float(aval(y)[1])]

        made = _inner_of_types(call, [_Shape(t) for t in types], [_Shape(types[i]) for i in floats], f"{owner._name}_jvp")
        n = len(types)
        func = self._inner(made, n, [*types, *given, *(types[i] for i in floats)], rule)
        places = sorted([*nondiff, *range(n, n + len(given))])
        return {"jvp": func} | ({"nondiff": places} if places else {})

    def _places(self, argument: int) -> list[int]:
        """The places of a positional argument's arrays among all."""
        before = sum(is_array(v) for v in pytree.leaves(self.args[:argument]))
        return list(range(before, before + sum(is_array(v) for v in pytree.leaves(self.args[argument]))))

    def _like(self, argument: int) -> Any:
        """A positional argument with stand-ins for its arrays, which have their types."""
        leaves, form = pytree.flatten(self.args[argument])
        places = iter(self._places(argument))
        types = [self.inner.avals[next(places)] if is_array(v) else None for v in leaves]
        frame = current()
        assert frame is not None
        return pytree.unflatten(form, [v if t is None else Tracer(frame, -1, *t) for v, t in zip(leaves, types, strict=True)])

    # Batches

    def batched(self, on: tuple[bool, ...], size: Any) -> str | None:
        """The function of the batching rule for the operands that have the examples; None where it is the decomposition that is batched."""
        if any(on[len(self.inner.avals) :]):
            # An array that it closes over has them.
            return None
        if (on, size) not in self._batched:
            self._batched[on, size] = self._traced_rule(on, size)
        return self._batched[on, size]

    def _traced_rule(self, on: tuple[bool, ...], size: Any) -> str:
        owner, rule = self.owner, self.owner._vmap
        assert rule is not None
        place, form = returns(rule), pytree.flatten(self.args)[1]
        types = [([size, *s] if has else list(s), d) for (s, d, _), has in zip(self.inner.avals, on, strict=False)]
        with self._frame(f"{owner._name}_vmap") as frame:
            params = [frame.param("x", tuple(s), d) for s, d in types]
            for shape, dtype, _ in map(aval, self.constants):
                frame.param("c", tuple(shape), dtype)
            leaves = pytree.leaves(self.args)

            def like_arguments(values: list) -> tuple:
                rest = iter(values)
                return pytree.unflatten(form, [next(rest) if is_array(v) else v for v in leaves])

            result = rule(size, like_arguments(list(on[: len(params)])), *like_arguments(params), **self.static)
            made, got = pytree.flatten(result)
            if got != pytree.closed(self.inner.form) or not all(is_array(v) for v in made):
                raise fail_at(place, "E_TYPE", f"expected the batching rule of `{owner._name}` to give what the function gives, got "
                              f"{_described(result) if got == self.inner.form else pytree.difference(self.inner.form, got)}",
                              "return arrays in the form of the function's results")  # fmt: skip
            for v, (shape, _) in zip(made, self.results, strict=True):
                if list(aval(v)[0]) != [size, *shape]:
                    raise fail_at(place, "E_SHAPE_MISMATCH", f"expected the batching rule of `{owner._name}` to give arrays of shape "
                                  f"{[size, *shape]}, got {list(aval(v)[0])}", "the examples lie along the first axis of every result")  # fmt: skip
            given = [p.cast(v, d) if aval(v)[2] else as_tracer(v) for v, (_, d) in zip(made, self.results, strict=True)]
            if any(aval(v)[1] != d for v, (_, d) in zip(given, self.results, strict=True)):
                got_types, wanted = [aval(v)[1] for v in given], [d for _, d in self.results]
                raise fail_at(place, "E_TYPE", f"expected the batching rule of `{owner._name}` to give arrays of {wanted}, got {got_types}",
                              "cast the results with `.astype`")  # fmt: skip
            if frame.arrays:
                raise fail_at(place, "E_UNSUPPORTED", f"expected a batching rule of `{owner._name}` that captures no array, got one that does",
                              "pass the array as an argument of the composite")  # fmt: skip
            frame.finish(given)
            return frame.name

    @contextlib.contextmanager
    def _frame(self, name: str) -> Iterator[Frame]:
        """A function of the program that the composite is in."""
        with tracing(name, self.root.program) as frame:
            frame.kernels, frame.watches, frame.notes = self.root.kernels, self.root.watches, self.root.notes
            frame.composites = self.root.composites
            yield frame

    # Kernels

    def provide(self, types: list, target: str | None, profile: int) -> str | None:
        """The function of the program that computes it with kernels, for operands of these types; None where none takes it."""
        if self.owner in self.around or not self.owner._kernels:
            return None
        key = (tuple((tuple(shape), dtype) for shape, dtype in types), target, profile, _core.settings())
        if key not in self._known:
            self._known[key] = self._chosen(types, target, profile)
        return self._known[key]

    def again(self, types: list, profile: int) -> str | None:
        """The decomposition, traced for operands of other types; None where arrays that it captures have other extents there."""
        if self.constants:
            return None
        key = (tuple((tuple(shape), dtype) for shape, dtype in types), profile)
        if key not in self._again:
            self._again[key] = self._traced(self.owner._fn, types, None, profile)[0]
        return self._again[key]

    def _chosen(self, types: list, target: str | None, profile: int) -> str | None:
        own = types[: len(self.inner.avals)]
        shapes, dtypes = tuple(tuple(s) for s, _ in own), tuple(d for _, d in own)
        request = Request(shapes, dtypes, dict(self.static), PROFILES[profile], capabilities(target))
        why = ""
        for kernel in self.owner._kernels:
            reason = kernel.declines(request)
            made = None
            if reason is None:
                made, reason = self._traced(kernel.fn, types, target, profile)
            if made is not None:
                return made
            why = why or (reason or "")
        note = f"`{self.owner._name}` is its decomposition: {why}"
        if note not in self.root.notes:
            self.root.notes.append(note)
        return None

    def _traced(self, fn: Callable, types: list, target: str | None, profile: int) -> tuple[str | None, str | None]:
        """The function of a kernel, or why it declines."""
        _making.stack += [*self.around, self.owner]
        try:
            with self._frame(f"{self.owner._name}_kernel") as frame, Profile(PROFILES[profile]):
                frame.target = target
                params = [frame.param("x", tuple(s), d) for s, d in types]
                rest = iter(params)
                args = pytree.unflatten(pytree.flatten(self.args)[1], [next(rest) if is_array(v) else v for v in pytree.leaves(self.args)])
                result = fn(*args, **self.static)
                if isinstance(result, str):
                    return None, result
                leaves, form = pytree.flatten(result)
                if form != pytree.closed(self.inner.form) or not all(is_array(v) for v in leaves):
                    raise fail_at(returns(fn), "E_TYPE", f"expected the kernel of `{self.owner._name}` to give what its decomposition gives, got "
                                  f"{_described(result) if form == self.inner.form else pytree.difference(self.inner.form, form)}",
                                  "return arrays in the form of the decomposition's results")  # fmt: skip
                given = [p.cast(v, d) if aval(v)[2] else as_tracer(v) for v, (_, d) in zip(leaves, self.results, strict=True)]
                if frame.arrays:
                    raise fail_at(returns(fn), "E_UNSUPPORTED", f"expected a kernel of `{self.owner._name}` that captures no array, got one that does",
                                  "pass the array as an argument of the composite")  # fmt: skip
                frame.finish(given)
                return frame.name, None
        finally:
            del _making.stack[-1 - len(self.around):]


@functools.lru_cache(maxsize=64)
def _capabilities(target: str | None, settings: int) -> dict[str, Any]:
    try:
        return dict(_core.capabilities(target))
    except TesseraError:
        return {}


def capabilities(target: str | None) -> dict[str, Any]:
    """What a machine has, by the name of a device, a backend or an architecture; the host's where there is none."""
    # Without a target they are those of the selected backend.
    return _capabilities(target, _core.settings())


def batched_by_rules(program: Any, func: str, in_axes: list, out_axes: list, size: Any) -> str:
    """The function with one more axis, by the batching rules of the composites that it runs where they have such."""
    root = outermost()
    assert root is not None
    rules: dict[tuple[str, tuple[bool, ...]], str | None] = {}
    while True:
        # Rules may bring composites of their own.
        ruled = [name for name, site in root.composites.items() if site.owner._vmap is not None]
        given = [(name, list(on), made) for (name, on), made in rules.items()]
        done, _, missing = program.vmap(func, in_axes, out_axes, size, ruled, given)
        if done is not None:
            return done
        for name, on in missing:
            rules[name, tuple(on)] = root.composites[name].batched(tuple(on), size)


def complete(program: Any, func: str) -> None:
    """Gives the composites that a function runs their derivative rules, before it is differentiated."""
    root = outermost()
    assert root is not None
    for name in program.unruled(func) if root.composites else ():
        site = root.composites.get(name)
        if site is not None and (rule := site.rule()):
            program.set_rule(name, rule.get("fwd"), rule.get("bwd"), rule.get("jvp"), rule.get("nondiff", []))
