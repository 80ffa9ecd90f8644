"""``ts.jit``: a Python function over trees of arrays, traced once for each tree structure, shapes and dtypes of its arguments."""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import re
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy

from .. import _core
from ..base.dtypes import DType
from ..base.errors import TesseraError, TesseraWarning
from ..base.numeric_profile import PROFILES, Profile, current as profile_now
from ..tree import pytree
from . import placing
from .argnums import chosen
from .dims import Sizes, bare
from .execute import Runner, compiles, device_of, held_by, observers, on_device, surrounded
from .named_dims import annotations_of, extents, types_of
from .tracer import Gathered, Tracer, as_tracer, aval, current, fail, is_array, leaked, one, tracing

#: More traces of one function than this are probably a mistake.
_MANY = 16
#: How many traces a function keeps, and how many shapes of arguments with their trace; the oldest are dropped first.
MOST_TRACES, MOST_SHAPES = 256, 1024
#: Immutable types that are not arrays: equal values share a trace.
_VALUES = (str, bytes, DType, numpy.dtype, enum.Enum, type, range, slice, types.FunctionType, types.BuiltinFunctionType, types.EllipsisType)
#: The range of a Python integer as an argument, which becomes an i64.
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


class Traced:
    """One trace of a function, with the structure of its results."""

    def __init__(
        self, fn: Callable, name: str, leaves: list, form: Any, names: list[str], program: Any = None,
        backend: str | None = None, profile: int | None = None, capture: bool = False, plan: str | None = None,
        shapes: list | None = None, sizes: dict[str, int] | None = None,
    ) -> None:  # fmt: skip
        """``leaves`` are all leaves of ``(args, kwargs)``; those that are arrays become parameters. ``shapes`` are theirs where
        extents have names, whose ``sizes`` are those of the call at hand."""
        self.sizes, self.paths = Sizes(sizes), names
        with tracing(name, program or _core.Program(name), self.sizes) as frame:
            given = []
            for at, (leaf, path) in enumerate(zip(leaves, names, strict=True)):
                if is_array(leaf):
                    shape, dtype, weak = aval(leaf)
                    given.append(frame.param(path, shape if shapes is None else shapes[at], dtype, weak))
                else:
                    given.append(leaf)
            args, kwargs = pytree.unflatten(form, given)
            with contextlib.nullcontext() if profile is None else Profile(PROFILES[profile]):
                result = _called(fn, args, kwargs)
            out, self.form = pytree.opened(result)
            if any(isinstance(v, Tracer) for v in pytree.fixed_in(self.form)):
                raise fail(
                    "E_TYPE",
                    f"expected `{name}` to return traced values as values, got one as the key of a dict or as a static field",
                    "return it beside the others: a key must be known while tracing",
                )
            for path, value in zip(pytree.paths(result), out, strict=True):
                if not is_array(value) and value is not None:
                    raise fail(
                        "E_TYPE",
                        f"expected `{name}` to return arrays, got {type(value).__name__} at result{path}",
                        "return arrays and numbers, in dicts, lists, tuples or dataclasses",
                    )
            tracers = [_settled(as_tracer(v)) for v in out]
            frame.finish(tracers)
        #: Whether results are arrays on a mesh.
        self.on_mesh = frame.mesh is not None
        if self.on_mesh:
            given = None
            if shapes is not None:
                given = [(list(aval(v)[0]), aval(v)[1]) for v in (*filter(is_array, leaves), *(held[1] for held, _ in frame.arrays))]
            self.form = placing.functions["results"](frame, self.form, tracers, profile_now() if profile is None else profile, given)
        self.frame = frame
        self.program, self.func = frame.program, frame.name
        self.captured = [held[1] for held, _ in frame.arrays]
        self.notes = frame.notes
        self._watch, self._watched = None, 0
        #: Donated leaves, computed on first use.
        self.gifts: set[int] | None = None
        weak = [t._weak for t in tracers]
        self.runner = Runner(self.program, self.func, frame.kernels, backend, profile, capture, plan, weak, frame.composites)
        self.runner.mesh = frame.mesh
        self._there: dict[int, list] = {}
        self._memo: dict[Any, Any] = {}

    @property
    def watch(self) -> Any:
        """The captured values of the kernels and functions that were called; None where they captured nothing. Kernels of composites
        are added when the function is compiled."""
        if self._watched != len(self.frame.watches):
            self._watched = len(self.frame.watches)
            self._watch = _core.Watch.all(list(self.frame.watches.values()))
        return self._watch

    def holds(self) -> bool:
        """Whether the kernels and functions that were called still have the same captures."""
        return self.watch is None or self.watch.same()

    def run(self, leaves: list, donated: set[int] | None = None, convert: Callable | None = None) -> Any:
        """``donated`` are the leaves whose memory results may reuse; ``convert`` is applied to each result."""
        arrays, given = [], []
        for place, v in enumerate(leaves):
            if is_array(v):
                if type(v) is int and not _LEAST <= v <= _MOST:
                    raise self._too_large(place, v)
                if donated and place in donated and not isinstance(v, (bool, int, float, numpy.generic)):
                    given.append(len(arrays))
                arrays.append(v)
        held = arrays + self._held(arrays)
        made = self.runner(held, tuple(given))
        for observer in tuple(observers):
            observer(self.program, self.func, self._memo, self.runner.ran(held))
        if self.on_mesh:
            convert = None
        return pytree.unflatten(self.form, made if convert is None else [convert(a) for a in made])

    def recorded(
        self, calls: Any, args: tuple, kwargs: dict, profile: int, leaves: list, donated: set[int] | None = None, convert: Callable | None = None
    ) -> Any:  # fmt: skip
        """Runs, and records for `calls` what calls like this one run."""
        arrays = [v for v in leaves if is_array(v)]
        device = device_of(arrays)
        if device is not None:
            return self._recorded_there(calls, args, kwargs, profile, leaves, donated, convert, device)
        if convert is not None:
            return self.run(leaves, donated, convert)
        for place, v in enumerate(leaves):
            if type(v) is int and not _LEAST <= v <= _MOST:
                raise self._too_large(place, v)
        held = arrays + self.captured
        made = self.runner(held)
        result = pytree.unflatten(self.form, made)
        if len(arrays) == len(leaves):
            run = self.runner.compiled(None, self.runner.sizes(held))
            calls.remember(args, kwargs, profile, self.watch, run, self.runner._kernels, self.captured, result, made)
        return result

    def _recorded_there(
        self, calls: Any, args: tuple, kwargs: dict, profile: int, leaves: list, donated: set[int] | None, convert: Callable | None, device: str
    ) -> Any:  # fmt: skip
        result = self.run(leaves, donated, convert)
        if not calls.wants(args, kwargs, profile):
            return result
        arrays = [v for v in leaves if is_array(v)]
        held = self._held(arrays)
        run = self.runner.compiled(device, self.runner.sizes(arrays + held))
        if run.on_device and len(arrays) == len(leaves):
            gifts = tuple(a for a in donated or () if held_by(arrays[a]) is not None)
            made = self.runner.makes(device, arrays, held, gifts)
            if made is not None:
                calls.remember(args, kwargs, profile, self.watch, run, self.runner._kernels, held, result, pytree.opened(result)[0], made)
        return result

    def _too_large(self, place: int, value: int) -> Exception:
        return fail(
            "E_ARGUMENT",
            f"expected a number that i64 holds, {_LEAST} to {_MOST}, for `{self.paths[place]}`, got {value}",
            f"give a float, or an array: `numpy.uint64({value})`" if 0 <= value < 1 << 64 else "give a float, or a smaller number",
        )

    def _held(self, arrays: list) -> list:
        """The arrays that the trace holds, brought to the device of the others once."""
        device = device_of(arrays) if self.captured else None
        if device is None:
            return self.captured
        if device not in self._there:
            self._there[device] = [on_device(a, a.dtype, device) for a in self.captured]
        return self._there[device]


def _settled(x: Tracer) -> Tracer:
    """A weak float result becomes f32: f64 comes only of f64 arrays."""
    return one("cast", [x], results=[(list(x.shape), "f32")], weak=True) if x._weak and x._dtype == "f64" else x


def run_once(fn: Callable, args: tuple, kwargs: dict | None = None, name: str | None = None) -> Any:
    """Traces and runs: what a transform does outside a trace."""
    leaves, form = pytree.opened((args, kwargs or {}))
    made = Traced(fn, name or _name(fn), leaves, form, _names(fn, args, kwargs or {}))
    return made.run(leaves)


def _name(fn: Callable) -> str:
    name = getattr(fn, "__name__", type(fn).__name__)
    return "".join(c if c.isalnum() and c.isascii() or c == "_" else "_" for c in name).strip("_") or "function"


def _names(fn: Callable, args: tuple, kwargs: dict) -> list[str]:
    """A name for each leaf, from the function's parameters."""
    try:
        params = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        params = []
    plain = [p.name for p in params if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    out = []
    for i, arg in enumerate(args):
        out += pytree.paths(arg, plain[i] if i < len(plain) else f"arg{i}")
    for key in pytree._sorted_keys(kwargs):
        out += pytree.paths(kwargs[key], key)
    return out


def _signature(leaf: Any) -> Any:
    return aval(leaf) if is_array(leaf) else ("static", leaf)


class Jitted(_core.Replayed):
    """A function that runs as one compiled program. ``.trace(*args)`` gives the Graph IR."""

    def __new__(cls, _fn: Callable, static_argnums: tuple[int, ...], static_argnames: tuple[str, ...], options: dict) -> Jitted:
        calls = _core.Calls(False, list(static_argnums), list(static_argnames))
        return super().__new__(cls, calls, _profile(options))

    def __getnewargs__(self) -> tuple:
        return self._fn, self._nums, self._names, self._options

    def __init__(self, fn: Callable, static_argnums: tuple[int, ...], static_argnames: tuple[str, ...], options: dict) -> None:
        functools.update_wrapper(self, fn)
        self._fn, self._nums, self._names, self._options = fn, static_argnums, static_argnames, options
        #: By the arguments' own shapes, and by those with names in them, which several traces may share.
        self._traces: dict[Any, Traced] = {}
        self._forms: dict[Any, list[Traced]] = {}
        self._declared = annotations_of(fn)
        self._bindings: dict[str, int] = options["bindings"] or {}
        self._why: list[str] = []
        self._fixed_profile = _profile(options)
        #: What is done with arguments and results where their placements were given.
        self._specs = None
        if any(options[name] is not None for name in ("mesh", "in_specs", "out_specs")):
            self._specs = placing.functions["jit"](options["mesh"], options["in_specs"], options["out_specs"])

    def __get__(self, owner: Any, _kind: type | None = None) -> Any:
        return self if owner is None else functools.partial(self, owner)

    def __getattr__(self, name: str) -> Any:
        from ..base.foreign_names import missing_of_jitted

        raise missing_of_jitted(name)

    def _split(self, args: tuple, kwargs: dict) -> tuple[Any, list, Any, Any]:
        # A static argument that has a default may be left out.
        fixed_args = {i % len(args): args[i] for i in self._nums if -len(args) <= i < len(args)}
        fixed_names = {k: kwargs[k] for k in self._names if k in kwargs}
        moving = tuple(None if i in fixed_args else a for i, a in enumerate(args))
        rest = {k: v for k, v in kwargs.items() if k not in fixed_names}
        leaves, form = pytree.opened((moving, rest))
        for at, leaf in enumerate(leaves):
            if not (is_array(leaf) or isinstance(leaf, _VALUES)):
                raise self._no_tree(leaf, _names(self._fn, moving, rest)[at])
        fixed = (tuple((i, pytree.static_key(v)) for i, v in sorted(fixed_args.items())),
                 tuple((k, pytree.static_key(v)) for k, v in sorted(fixed_names.items())))  # fmt: skip
        try:
            key = (form, tuple(map(_signature, leaves)), fixed, surrounded())
            hash(key)
        except TesseraError:
            raise
        except TypeError:
            given = [*fixed_args.values(), *fixed_names.values(), *(v for v in leaves if not is_array(v))]
            bad = next(filter(_unhashable, given), None)
            raise fail(
                "E_ARGUMENT",
                f"expected arguments that are arrays or can be compared, got {type(bad).__name__}",
                "pass arrays, or make the static argument hashable (a tuple, a frozen dataclass)",
            ) from None
        return key, leaves, form, (fixed_args, fixed_names)

    def _no_tree(self, leaf: Any, path: str) -> Exception:
        """The error for an argument that is no tree: it may change, and the trace would keep its first value."""
        kind = type(leaf).__name__
        return fail(
            "E_TYPE",
            f"expected arrays, numbers or trees of them as arguments of `{_name(self._fn)}`, got {kind} for `{path}`",
            f"pass the arrays that it holds; or make `{kind}` a tree, as a dataclass or with `ts.tree.register`; or, where it never "
            "changes, name the argument in `static_argnums`",
        )

    def _find(self, args: tuple, kwargs: dict) -> tuple[Traced, list]:
        if self._specs is not None:
            args, kwargs = self._specs.arguments(args, kwargs)
        key, leaves, form, (fixed_args, fixed_names) = self._split(args, kwargs)
        found = self._traces.get(key)
        if found is None or not found.holds():
            moving = tuple(None if i in fixed_args else a for i, a in enumerate(args))
            rest = {k: v for k, v in kwargs.items() if k not in fixed_names}
            paths = _names(self._fn, moving, rest)
            shapes, sizes = self._open(key, moving, rest, paths)
            if shapes is not None:
                marks = tuple(s if s[0] == "static" else (shape, *s[1:]) for s, shape in zip(key[1], shapes, strict=True))
                form_key = (key[0], marks, key[2], key[3])
            else:
                form_key = key
            traces = self._forms.get(form_key, ())
            found = next((t for t in traces if t.sizes.broken(sizes) is None and t.holds()), None)
        if found is None:
            self._explain(form_key, sizes)

            def call(*moving: Any, **rest: Any) -> Any:
                full = [fixed_args.get(i, a) for i, a in enumerate(moving)]
                made = self._fn(*full, **rest, **fixed_names)
                return made if self._specs is None else self._specs.results(made)

            found = Traced(
                call, _name(self._fn), leaves, form, paths, None, self._options["target"], self._fixed_profile,
                self._options["capture_graph"], self._options["plan"], shapes, sizes,
            )
            self._room()
            self._forms.setdefault(form_key, []).append(found)
        if len(self._traces) >= MOST_SHAPES and key not in self._traces:
            self._traces.clear()
        self._traces[key] = found
        return found, leaves

    def _room(self) -> None:
        """Drops the oldest entries, where shapes change all the time."""
        if sum(map(len, self._forms.values())) >= MOST_TRACES:
            gone = self._forms.pop(next(iter(self._forms), None), [])
            for key, trace in list(self._traces.items()):
                if trace in gone:
                    self._traces.pop(key, None)

    def _open(self, key: Any, moving: tuple, rest: dict, paths: list[str]) -> tuple[list | None, dict[str, int]]:
        """The shapes of the arguments, with extents named as in the annotations, and the sizes of the names."""
        if not self._declared:
            return None, {}
        types = types_of(self._fn, self._declared, moving, rest)
        avals = [None if s[0] == "static" else s for s in key[1]]
        return extents(types, avals, paths, self._bindings)

    def _explain(self, key: Any, sizes: dict[str, int]) -> None:
        """Records why a function is traced again, and warns where that happens often."""
        if not self._forms:
            return
        last = next(reversed(self._forms))
        if key in self._forms:
            broken = self._forms[key][-1].sizes.broken(sizes)
            shown = ", ".join(f"{n} = {v}" for n, v in sizes.items())
            why = f"`{broken}`, which {broken.place} requires, does not hold with {shown}" if broken else "what a kernel or function of it captures changed"
        elif last[0] != key[0]:
            why = f"the arguments have another form: {_changed(last[0], key[0])}"
        elif last[1] != key[1]:
            pairs = [(a, b) for a, b in zip(last[1], key[1], strict=True) if a != b]
            why = f"an argument changed from {_show(pairs[0][0])} to {_show(pairs[0][1])}"
        elif last[2] != key[2]:
            why = "a static argument changed"
        else:
            why = "the mesh of the `with` statement around the call changed"
        self._why.append(why)
        if sum(map(len, self._forms.values())) == _MANY:
            warnings.warn(
                f"W_RESPECIALISE: `{_name(self._fn)}` is traced for the {_MANY + 1}th time; the last time because {why}; "
                'extents that differ can have names in annotations, such as `x: ts.Tensor["n"]`, for one trace of all sizes',
                TesseraWarning,
                stacklevel=4,
            )

    @property
    def retraces(self) -> list[str]:
        """Why the function was traced again, each time."""
        return list(self._why)

    def _call_whole(self, /, *args: Any, **kwargs: Any) -> Any:
        """A call that is not replayed without a look at what Python keeps: see `_core.Replayed`."""
        if current() is not None:
            # Inside a trace: a part of it.
            if self._specs is None:
                return self._fn(*args, **kwargs)
            args, kwargs = self._specs.arguments(args, kwargs)
            return self._specs.results(self._fn(*args, **kwargs))
        short = pytree.plain and not observers and compiles() and not surrounded()
        if short:
            profile = profile_now() if self._fixed_profile is None else self._fixed_profile
            done = self._calls.run(args, kwargs, profile)
            if done is not None:
                return done
        found, leaves = self._find(args, kwargs)
        if found.gifts is None:
            found.gifts = self._given(args, kwargs)
        convert = converter(leaves)
        if not short or found.on_mesh or any([type(v) is Gathered for v in leaves]):
            return found.run(leaves, found.gifts, convert)
        return found.recorded(self._calls, args, kwargs, profile, leaves, found.gifts, convert)

    def _given(self, args: tuple, kwargs: dict) -> set[int]:
        """The leaves of the arguments that are donated."""
        nums, names = self._options["donated"]
        if not nums and not names:
            return set()
        wanted = {n % len(args) for n in nums if -len(args) <= n < len(args)}
        fixed = {n % len(args) for n in self._nums if -len(args) <= n < len(args)}
        out, at = set(), 0
        parts = [(None if i in fixed else a, i in wanted) for i, a in enumerate(args)]
        rest = {k: v for k, v in kwargs.items() if k not in self._names}
        parts += [(rest[k], k in names) for k in pytree._sorted_keys(rest)]
        for part, given in parts:
            count = len(pytree.opened(part)[0])
            if given:
                out |= set(range(at, at + count))
            at += count
        return out

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """The traces of the function: open extents, guards and the lines that made them, what was compiled, and why the function was
        traced again. With arguments also the choices for them: the device, the number of kernels, placements on a mesh, and notes."""
        chosen = self._chosen(args, kwargs) if args or kwargs else []
        lines = [f"{_name(self._fn)}: traced {_times(sum(map(len, self._forms.values())))}"]
        for (_, marks, _, _), traces in self._forms.items():
            for t in traces:
                lines.append(f"  for {', '.join(_show(m) for m in marks)}")
                lines += [f"    while {g} ({g.place})" for g in t.sizes.guards]
                for device, sizes in t.runner.made():
                    where = "" if device is None else f" on {device}"
                    lines.append(f"    compiled{where}" + ("" if sizes is None else f" for {', '.join(_shape(s) for s in sizes)}"))
        lines += [f"  traced again because {why}" for why in self._why]
        return "\n".join(lines + chosen)

    def _chosen(self, args: tuple, kwargs: dict) -> list[str]:
        found, _ = self._find(args, kwargs)
        made = self.compiled(*args, **kwargs)
        lines = ["for these arguments", f"  backend: {made.backend}"]
        lines += [f"  {name}: {made.stats[name]}" for name in ("launches", "kernels", "scratch_bytes")]
        lines += [f"  {line}" for line in made.explain().splitlines()] if found.on_mesh else []
        return [*lines, *(f"  note: {note}" for note in found.notes)]

    def trace(self, *args: Any, **kwargs: Any) -> str:
        """The Graph IR for these arguments: extents that annotations name are symbols."""
        return str(self._find(args, kwargs)[0].program)

    def host_ops(self, *args: Any, **kwargs: Any) -> list[str]:
        """Ops that have no kernel yet and that the host evaluates by their definition."""
        return self.compiled(*args, **kwargs).host_ops

    def compiled(self, *args: Any, **kwargs: Any) -> Any:
        """What is compiled for these arguments: ``.plan``, ``.stats``, ``.backend``, ``.graphs`` (how many were recorded)."""
        found, leaves = self._find(args, kwargs)
        arrays = [v for v in leaves if is_array(v)]
        device = device_of(arrays)
        return found.runner.compiled(device, found.runner.sizes(arrays + found._held(arrays)))

    def stats(self, *args: Any, **kwargs: Any) -> dict:
        """What compiling took, and how many kernels there are."""
        return self.compiled(*args, **kwargs).stats

    def cache_clear(self) -> None:
        self._traces.clear()
        self._forms.clear()
        self._calls.clear()

    #: The name that JAX has for it.
    clear_cache = cache_clear


def _profile(options: dict) -> int | None:
    """The number of the requested profile; ``None`` for the one that is current at the call."""
    name = options["numerics"] or ("deterministic" if options["deterministic"] else None)
    return None if name is None else PROFILES.index(name)


def _called(fn: Callable, args: Any, kwargs: Any) -> Any:
    """Calls a function while it is traced. Where NumPy wraps our error in its own (`y[0] = x`), ours is raised."""
    try:
        return fn(*args, **kwargs)
    except (TypeError, ValueError) as error:
        if isinstance(error, TesseraError) or not isinstance(error.__cause__, TesseraError):
            raise
        found = error.__cause__
    raise found


def _changed(last: Any, now: Any) -> str:
    """The first difference of the forms of two calls: it was …, and is …."""
    (args, kwargs), (new_args, new_kwargs) = last.children, now.children
    found = pytree.difference(args, new_args, "args") or pytree.difference(kwargs, new_kwargs, "kwargs") or ""
    return found.replace(", got ", " before, now ", 1)


def _unhashable(v: Any) -> bool:
    try:
        hash(v)
    except TypeError:
        return True
    return False


def _show(sig: Any) -> str:
    if sig[0] == "static":
        return repr(sig[1])
    return f"{_shape(sig[0])} {sig[1]}"


def _shape(shape: Any) -> str:
    return f"[{', '.join(bare(str(d)) for d in shape)}]"


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def like(result: Any, leaves: list) -> Any:
    """Results follow the inputs: PyTorch in, PyTorch out; JAX in, JAX out; else arrays of ours."""
    convert = converter(leaves)
    return result if convert is None else pytree.map(convert, result)


def converter(leaves: list) -> Callable | None:
    """The function that converts a result to the array library of the inputs; None where nothing has to be done."""
    placed = next((v for v in leaves if is_array(v) and held_by(v) is not None), None)
    if placed is not None:
        return _on_device_like(placed, type(placed).__module__.partition(".")[0])
    for leaf in leaves:
        kind = type(leaf).__module__.partition(".")[0]
        if kind == "torch":
            return _to_torch
        if kind in ("jax", "jaxlib"):
            import jax.numpy as jnp

            return jnp.asarray
    return None


def _to_torch(a: numpy.ndarray) -> Any:
    """A result in the memory of the host as PyTorch's, which takes the bits of dtypes that NumPy does not have."""
    import torch

    if a.dtype.isbuiltin == 1:
        return torch.from_numpy(a)
    dtype = getattr(torch, a.dtype.name, None)
    return a if dtype is None else torch.from_numpy(a.view(f"i{a.dtype.itemsize}")).view(dtype)


def _on_device_like(leaf: Any, kind: str) -> Callable:
    """Results of a device as arrays of the library that ``leaf`` is of; those that came to the host are brought back."""
    device = held_by(leaf)
    assert device is not None

    def one(a: Any) -> Any:
        if isinstance(a, numpy.ndarray):
            a = on_device(a, a.dtype, device)
        if isinstance(a, _core.Array) and kind == "torch":
            import torch

            return torch.from_dlpack(a)
        if isinstance(a, _core.Array) and kind == "cupy":
            import cupy

            return cupy.from_dlpack(a)
        if kind in ("jax", "jaxlib"):
            import jax

            return jax.dlpack.from_dlpack(a)
        return a

    return one


def jit(
    fn: Callable | None = None,
    *,
    static_argnums: int | tuple[int, ...] = (),
    static_argnames: str | tuple[str, ...] = (),
    capture_graph: bool = False,
    deterministic: bool = False,
    seed: int | None = None,
    target: str | None = None,
    bindings: dict | None = None,
    numerics: str | None = None,
    donate_argnums: int | tuple[int, ...] = (),
    donate_argnames: str | tuple[str, ...] = (),
    plan: str | None = None,
    mesh: Any = None,
    in_specs: Any = None,
    out_specs: Any = None,
) -> Any:
    """Compiles a function of arrays. The function is called with tracers, once for each tree structure, shapes and dtypes of its
    arguments; the recorded operations are compiled.

    ``numerics`` is a profile (``"default"``, ``"deterministic"``, ``"strict"``), ``deterministic=True`` the second of them;
    ``target`` names a backend. Arrays on a CUDA device make the function run there, on their library's current stream.
    ``capture_graph`` records the launches into a CUDA graph and replays it where arrays come again at the same addresses; on the
    host launches are recorded and replayed in any case. Random numbers come from keys (`ts.random`), so that there is no ``seed`` to set.

    Arguments of ``static_argnums`` and ``static_argnames`` are values of Python, and each of them has a trace. Arrays of ``donate_argnums``
    and ``donate_argnames`` may be written over by results. Where places or names alone are given, the others follow from the signature.

    Annotations may leave extents open: ``def f(x: ts.Tensor["B", 16], p: {"w": ts.Tensor[16, "H"]})`` is traced once for all sizes
    of ``B`` and ``H``, checked for all of them, and compiled for each size that comes; ``bindings={"H": 4}`` says a size once and for
    all. Where Python needs to know a size (``if``, ``range``), the trace is for those sizes that answer alike: `.explain()` says so.

    ``f.compiled(*args).plan`` is the plan as text, a module of Schedule IR: which values have memory (``sched.store``), which are
    parts of kernels (``sched.fused``), and which kernels run on what. Change ``fused`` to ``store``, or the other way round, and
    hand the text back as ``plan``.

    Where arguments are on a mesh (`dist.shard`), the program is one of all its ranks, and results are on it too. ``in_specs`` and
    ``out_specs`` (trees of specs like the arguments and results, or one for all) say where arguments and results are on ``mesh``, also those
    of the host; the compiler places those whose spec is None. ``f.compiled(*args).spmd`` is the program of a rank, ``.rank_plan`` its plan
    where ranks run one by one, and ``.collectives`` what it communicates."""
    if fn is None:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames, capture_graph=capture_graph,
            deterministic=deterministic, seed=seed, target=target, bindings=bindings, numerics=numerics,
            donate_argnums=donate_argnums, donate_argnames=donate_argnames, plan=plan, mesh=mesh, in_specs=in_specs, out_specs=out_specs,
        )  # fmt: skip
    if not callable(fn):
        raise fail("E_ARGUMENT", f"expected a function, got {type(fn).__name__}", "write `@ts.jit` above a function")
    if seed is not None:
        raise fail("E_UNSUPPORTED", "expected no `seed` for jit", "pass a key to the function and use `ts.random`")
    if bindings is not None and not (isinstance(bindings, dict) and all(type(k) is str and type(v) is int for k, v in bindings.items())):
        raise fail("E_ARGUMENT", f"expected `bindings` to be sizes of named extents, got {bindings!r}",
                   'write such as `bindings={"T": 256}`')  # fmt: skip
    if numerics is not None and numerics not in PROFILES:
        raise fail(
            "E_ARGUMENT",
            f"expected a profile (one of {', '.join(PROFILES)}), got {numerics!r}",
            "leave it out for the profile of the process",
        )
    if plan is not None and not isinstance(plan, str):
        raise fail("E_ARGUMENT", f"expected `plan` to be the text of a plan, got {type(plan).__name__}",
                   "start from `f.compiled(*args).plan`")  # fmt: skip
    nums, names = chosen(fn, "static", static_argnums, static_argnames)
    donated = chosen(fn, "donate", donate_argnums, donate_argnames)
    if both := [*(f"`{n}`" for n in names if n in donated[1]), *map(str, (n for n in nums if n in donated[0]))]:
        raise fail("E_ARGUMENT", f"expected an argument to be static or donated, got {both[0]} as both", "leave it out of one of the two")
    options = {
        "capture_graph": capture_graph, "deterministic": deterministic, "seed": seed, "target": target, "bindings": bindings,
        "numerics": numerics, "plan": plan, "donated": donated, "mesh": mesh, "in_specs": in_specs, "out_specs": out_specs,
    }  # fmt: skip
    return Jitted(fn, nums, names, options)


#: Parameters that say how arrays are laid out, wherever they stand; the others are known by their annotation.
_LAYOUT = {"shape", "new_shape", "axis", "axes", "source", "destination", "slice_sizes", "pad_width", "stride", "dilation", "num", "size"}


def _structural(fn: Callable) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Places and names of the parameters that are extents, axes and counts: known while tracing, and never arrays of a trace."""
    code, annotations = getattr(fn, "__code__", None), getattr(fn, "__annotations__", {})
    if code is None:
        return (), ()
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    found = [i for i, n in enumerate(named) if n in _LAYOUT or "int" in re.findall(r"\w+", str(annotations.get(n, "")))]
    return tuple(i for i in found if i < code.co_argcount), tuple(named[i] for i in found)


def _counted(v: Any) -> Any:
    """Integers of NumPy's, and arrays of them in one row, as Python's; all else as it is."""
    if isinstance(v, (numpy.integer, numpy.bool_)):
        return v.item()
    if isinstance(v, numpy.ndarray):
        return v if v.ndim > 1 or v.dtype.kind not in "iu" else v.item() if v.ndim == 0 else tuple(v.tolist())
    if type(v) in (tuple, list) and any(isinstance(e, (numpy.integer, numpy.ndarray, tuple, list)) for e in v):
        made = [_counted(e) for e in v]
        return v if all(a is b for a, b in zip(made, v, strict=True)) else type(v)(made)
    return v


def eager(fn: Callable) -> Callable:
    """A library function: inside a trace a part of it, outside one a program that runs immediately."""
    cache: dict[Any, Traced] = {}
    calls = _core.Calls(True)
    places, names = _structural(fn)

    def settled(args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
        """The arguments with Python's integers for extents, axes and counts that NumPy counted; None where there are none."""
        found = {i: v for i in places if i < len(args) and (v := _counted(args[i])) is not args[i]}
        named = {n: v for n in names if n in kwargs and (v := _counted(kwargs[n])) is not kwargs[n]} if kwargs else {}
        return (tuple(found.get(i, v) for i, v in enumerate(args)), {**kwargs, **named}) if found or named else None

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            if names and (plain := settled(args, kwargs)):
                args, kwargs = plain
            if any([hasattr(v, "_as_tracer") for v in args]):
                args = tuple([as_tracer(v) if hasattr(v, "_as_tracer") else v for v in args])
            return fn(*args, **kwargs)
        short = pytree.plain and not observers and compiles()
        if short:
            profile = profile_now()
            done = calls.run(args, kwargs, profile)
            if done is not None:
                return done
        if names and (plain := settled(args, kwargs)):
            return call(*plain[0], **plain[1])
        leaves, form = pytree.opened((args, kwargs))
        for v in leaves:
            if isinstance(v, Tracer):  # no trace is open that it could belong to
                raise leaked(v)
        arrays = [isinstance(v, (numpy.ndarray, numpy.generic)) or (is_array(v) and not isinstance(v, (bool, int, float)))
                  for v in leaves]  # fmt: skip
        try:
            key = (form, tuple(aval(v) if a else pytree.static_key(v) for v, a in zip(leaves, arrays, strict=True)))
            found = cache.get(key)
        except TypeError:
            key, found = None, None
        moving = [v for v, a in zip(leaves, arrays, strict=True) if a]
        if found is None or not found.holds():

            def whole(*given: Any) -> Any:
                rest = iter(given)
                full = [next(rest) if a else v for v, a in zip(leaves, arrays, strict=True)]
                inner_args, inner_kwargs = pytree.unflatten(form, full)
                return fn(*inner_args, **inner_kwargs)

            flat, flat_form = pytree.flatten((tuple(moving), {}))
            found = Traced(whole, _name(fn), flat, flat_form, [f"x{i}" for i in range(len(flat))])
            if key is not None:
                if len(cache) >= MOST_TRACES and key not in cache:
                    cache.pop(next(iter(cache), None), None)  # another thread may have done it
                cache[key] = found
        if found.on_mesh:
            return found.run(moving)
        if not short or key is None:
            return like(found.run(moving), moving)
        return found.recorded(calls, args, kwargs, profile, moving, convert=converter(moving))

    return call
