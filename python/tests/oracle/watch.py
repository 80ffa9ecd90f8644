"""Compares every launch of a kernel with the execution of its source by Python.

``with watching() as seen:`` compares each kernel call inside the block with the oracle: it copies the arguments, makes the call,
executes the source on the copies with the grid of the launch, and compares the arrays. ``seen`` has the names of the kernels that
were compared, and what the oracle lacks for others.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import math
import os
import textwrap
import time
import types
from dataclasses import dataclass, field
from typing import Any, Iterator

import numpy as np

import tessera as ts
from tessera.kernel.builtins import ApiFunction, ApiNamespace
from tessera.kernel.func import Func as RealFunc
from tessera.kernel.kernel_fn import KernelFn
from tessera.base.source import closure_of

from . import again, context, run
from .memory import Array, Constants, Numbers
from .rewrite import Rewrite, synchronises
from .run import BUILTINS, HELPERS, MATH, TILE, TS, Func, _as, cdiv, launch
from .reduce import identity
from .values import Lacks, OracleError, Val, carrier, convert, dtype_name, from_storage, join, to_storage

#: Larger launches are not executed: groups or lanes, and iterations of loops.
MEMBERS, TICKS = 3000, 60_000
#: For kernels with functions that are within a bound (`context.inexact`), and for the profile that rounds otherwise.
RTOL, ATOL = 2e-3, 2e-4


@dataclass
class Seen:
    """What became of each kernel: by its name and place, how many launches were compared, and what was lacking."""

    compared: dict[str, int] = field(default_factory=dict)
    within: dict[str, set[str]] = field(default_factory=dict)
    lacking: dict[str, set[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def table(self) -> str:
        rows = []
        for name in sorted({*self.compared, *self.lacking}):
            how = f"{self.compared.get(name, 0)} launches"
            if name in self.within:
                how += f", within a tolerance ({', '.join(sorted(self.within[name]))})"
            if name in self.lacking:
                how += f"; not compared: {'; '.join(sorted(self.lacking[name]))}"
            rows.append(f"{name}: {how}")
        return "\n".join(rows)

    def without(self) -> list[str]:
        """The kernels of which no launch was compared."""
        return sorted(name for name in self.lacking if not self.compared.get(name))


class _Noted(Rewrite):
    """Records which types each variable is assigned."""

    def _typed(self, target: ast.expr) -> list[ast.stmt]:
        if isinstance(target, ast.Name):
            call = ast.Call(ast.Name("__note__", ast.Load()), [ast.Constant(target.id), ast.Name(target.id, ast.Load())], [])
            return [ast.Expr(call)]
        return super()._typed(target)


@functools.lru_cache(maxsize=4096)
def parsed(text: str, name: str) -> tuple[ast.FunctionDef, str, bool, list[list[str]], frozenset[str]]:
    """A function: its tree, which nobody changes, its own text, whether it synchronises, the names that it returns and those it uses."""
    tree = ast.parse(textwrap.dedent(text))
    node = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name)
    returns = [
        [e.id for e in (r.value.elts if isinstance(r.value, ast.Tuple) else [r.value]) if isinstance(e, ast.Name)]
        for r in ast.walk(node)
        if isinstance(r, ast.Return) and r.value is not None
    ]
    used = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
    return node, ast.unparse(node), synchronises(node), returns, used


class Source:
    """A kernel or helper as Python executes it."""

    def __init__(self, fn: Any, text: str, name: str) -> None:
        self.fn = fn
        self.node, self.text, self.synchronises, self.returns, self.used = parsed(text, name)

    def names(self) -> dict[str, Any]:
        """What its free names stand for, as far as Python knows them."""
        bound = {**members_of(self.fn), **self.fn.__globals__, **closure_of(self.fn)}
        return {name: bound[name] for name in self.used if name in bound}

    def call(self, coroutine: bool, namespace: dict[str, Any], types: dict[str, str] | None, noted: bool) -> Any:
        node = ast.parse(self.text).body[0]
        kind = _Noted if noted else Rewrite
        made = ast.Module([kind(coroutine, types).function(node)], [])
        defaults = dict(defaults_of(self.fn))
        for argument in ast.walk(made):
            if isinstance(argument, ast.arguments):
                argument.defaults, argument.kw_defaults = [], [None for _ in argument.kwonlyargs]
                break
        exec(compile(ast.fix_missing_locations(made), f"<oracle of {self.fn.__name__}>", "exec"), namespace)
        function = namespace[self.fn.__name__]
        # Defaults are values of the module that the function stands in.
        plain = {name: taken(value, coroutine, noted, {}) for name, value in defaults.items()}
        names = list(inspect.signature(self.fn).parameters)
        tail = [plain[n] for n in names if n in plain]
        function.__defaults__ = tuple(tail)
        return function


def members_of(fn: Any) -> dict[str, Any]:
    """The names of the class that a function stands in: kernels and their helpers see them after all others."""
    owner: Any = None
    for part in fn.__qualname__.rpartition("<locals>.")[2].split(".")[:-1]:
        owner = fn.__globals__.get(part) if owner is None else vars(owner).get(part)
    return dict(vars(owner)) if isinstance(owner, type) else {}


def defaults_of(fn: Any) -> list[tuple[str, Any]]:
    return [(p.name, p.default) for p in inspect.signature(fn).parameters.values() if p.default is not p.empty]


def taken(value: Any, coroutine: bool, noted: bool, made: dict[int, Any]) -> Any:
    """What a captured value is for the oracle."""
    if value is ts:
        return TS
    if value is ts.tile:
        return TILE
    if value is math:
        return MATH
    if isinstance(value, RealFunc):
        if id(value) not in made:
            fn = inspect.unwrap(value)
            if not inspect.isfunction(fn):
                raise Lacks("a function that was pickled")
            source = Source(fn, value.source.text, value.source.name)
            space = {**BUILTINS, **HELPERS, "__note__": _note}
            made[id(value)] = found = Func(None, coroutine)
            space.update({k: taken(v, coroutine, noted, made) for k, v in source.names().items()})
            found.call = source.call(coroutine, space, None, noted)
        return made[id(value)]
    if isinstance(value, ApiFunction):
        name = value.api_name.removeprefix("tile.")
        if name == "cdiv":
            return cdiv
        if name == "identity":
            return lambda x: x
        found = TILE
        for part in name.split("."):
            found = getattr(found, part)
        return found
    if isinstance(value, ApiNamespace):
        return TILE.group
    if isinstance(value, types.BuiltinFunctionType) and getattr(math, value.__name__, None) is value:
        return getattr(MATH, value.__name__)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return Numbers(taken(v, coroutine, noted, made) for v in value)
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        return Constants(value.copy(), dtype_name(value.dtype))
    return value


_notes: dict[str, list[Any]] = {}


def _note(name: str, value: Any) -> None:
    held = _notes.setdefault(name, [])
    if isinstance(value, Val):
        if value.a.ndim == 0 and value.dt not in held:
            held.append(value.dt)
    elif isinstance(value, (bool, int, float)) and not any(type(h) is type(value) and h == value for h in held) and len(held) < 8:
        held.append(value)


def settled() -> dict[str, str]:
    """The types of variables that were assigned literals: of what they are joined with (LANGUAGE 9)."""
    out = {}
    for name, held in _notes.items():
        weak = [h for h in held if not isinstance(h, str)]
        strong = [h for h in held if isinstance(h, str)]
        if not weak or (not strong and len(weak) < 2) or any(isinstance(h, bool) for h in weak):
            continue
        try:
            if strong:
                dt = carrier(strong[0])
                for other in strong[1:]:
                    dt = join(dt, other)
                out[name] = dt
            else:
                out[name] = "f32" if any(isinstance(h, float) for h in weak) else "i64"
        except OracleError:
            continue
    return out


def fresh(param: tuple, dims: dict[str, int]) -> np.ndarray:
    """An `Out` that the caller left out: zeros, or what changes nothing that is folded into it."""
    _, _, (names, dtype, privilege, _), _ = param
    sizes = {"__builtins__": {}, "min": min, "max": max, "cdiv": lambda a, b: -(-a // b)}
    shape = tuple(dims[n] if n in dims else int(eval(n, sizes, dims)) for n in names)
    host = np.asarray(ts.zeros(shape, dtype_name(dtype)))
    if privilege and privilege.startswith("reduce_"):
        dt = dtype_name(dtype)
        kind = carrier(dt)
        host = np.full(shape, to_storage(np.asarray(identity(privilege[len("reduce_") :], kind)), kind, dt), host.dtype)
        if privilege == "reduce_sum":
            host = np.zeros(shape, host.dtype)
    return host


def is_packed(param: tuple) -> bool:
    return param[1] == "tensor" and param[2][1] is not None and ts.dtype(param[2][1]).packed


def unpacked(host: np.ndarray, dtype: Any, last: int) -> np.ndarray:
    """The elements of bytes that hold two each, the one with the even index in the low half."""
    codes = np.stack([host & 15, host >> 4], -1).reshape(*host.shape[:-1], 2 * host.shape[-1])[..., :last]
    kind = np.asarray(ts.zeros((1,), dtype_name(dtype))).dtype
    return ((codes.astype(np.int8) << 4) >> 4).astype(kind) if dtype_name(dtype) == "i4" else codes.view(kind)


def packed(elements: np.ndarray) -> np.ndarray:
    """Two elements a byte; the high half of a last byte with one element is zero."""
    codes = elements.view(np.uint8) & 15
    pairs = np.zeros((*codes.shape[:-1], -(-codes.shape[-1] // 2), 2), np.uint8)
    pairs.reshape(*codes.shape[:-1], -1)[..., : codes.shape[-1]] = codes
    return pairs[..., 0] | pairs[..., 1] << 4


def compare(kernel: KernelFn, args: tuple, kwargs: dict, before: dict[str, Any], result: Any, seen: Seen, exact: bool) -> None:
    """Executes the source on copies of the arguments and compares what was written."""
    name = f"{kernel.name} at {kernel.spec.source.file.rpartition('/')[2]}:{kernel.spec.source.line}"
    try:
        explained = kernel.explain()
        context.warp = int(os.environ.get("TESSERA_INTERP_WARP", "32")) if explained.backend == "interp" else 32
        fn = getattr(kernel, "__wrapped__", None)
        if fn is None:
            raise Lacks("the Python function: a kernel that was pickled")
        source = Source(fn, kernel.spec.source.text, kernel.name)
        coroutine = source.synchronises or any(isinstance(v, RealFunc) and synchronises(v.parsed()) for v in source.names().values())
        grid, lanes = explained.grid, 0
        if explained.fields.get("lanes"):
            total, lanes = explained.lanes
            grid = (total,) if isinstance(total, int) else total
        if math.prod(grid) > MEMBERS:
            raise Lacks(f"a launch of more than {MEMBERS} groups or lanes")
        params = {p[0]: p for p in kernel.spec.params}
        dims: dict[str, int] = {}
        bytes_of: dict[str, tuple[str, int]] = {}  # of packed arrays: where no other says so, a size is even
        for key, value in before.items():
            what = params[key]
            if what[1] == "tensor" and what[2][0] is not None and isinstance(value, np.ndarray):
                for axis, (dim, extent) in enumerate(zip(what[2][0], value.shape)):
                    if is_packed(what) and axis == value.ndim - 1:
                        bytes_of[key] = (dim, extent)
                    elif not dim.isdigit() and dim != "?":
                        dims[dim] = extent
        for dim, extent in bytes_of.values():
            if not dim.isdigit() and dim != "?":
                dims.setdefault(dim, 2 * extent)
        arrays = list({id(v): v for v in args_of(kernel, args, kwargs).values() if isinstance(v, np.ndarray)}.values())
        if any(np.may_share_memory(a, b) and np.shares_memory(a, b) for k, a in enumerate(arrays) for b in arrays[:k]):
            raise Lacks("arguments that share memory")
        returned = result if isinstance(result, tuple) else (result,)
        order = source.returns[0] if source.returns else [p[0] for p in kernel.spec.params if p[1] == "tensor" and p[2][3]]
        hosts, got = {}, {}
        for key, what in params.items():
            if key in bytes_of:
                dim, extent = bytes_of[key]
                last = int(dim) if dim.isdigit() else dims.get(dim, 2 * extent)
                hosts[key] = unpacked(before[key], what[2][1], last)
            elif isinstance(before.get(key), np.ndarray):
                hosts[key] = before[key]
            elif what[1] == "tensor" and what[2][3] and key not in before:
                hosts[key] = fresh(what, dims)
                if key in order and order.index(key) < len(returned):
                    got[key] = np.asarray(returned[order.index(key)])
        config = {**{k: Val("i64", np.int64(v)) for k, v in dims.items()}, **explained.config}
        free = {n.id for n in ast.walk(source.node) if isinstance(n, ast.Name) and n.id.startswith("tile_")}
        stores = {n.id for n in ast.walk(source.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        if (free - stores - set(params) - set(source.names())) and not config.keys() >= free:
            raise Lacks("implicit tile origins, which Python does not have")

        def execute(types: dict[str, str] | None, noted: bool) -> dict[str, np.ndarray]:
            made: dict[int, Any] = {}
            space = {**BUILTINS, **HELPERS, "__note__": _note, "__as__": _as}
            space.update({k: taken(v, coroutine, noted, made) for k, v in source.names().items()})
            space.update({k: Val("i64", np.int64(v)) for k, v in dims.items() if k not in params})
            space.update({k: v for k, v in explained.config.items() if k not in params and k not in dims and k not in space})
            copies: dict[int, np.ndarray] = {}  # one array that is given twice stays one
            written = {k: copies.setdefault(id(h), h.copy()) for k, h in hosts.items()}
            given = {}
            for key, what in params.items():
                if key in written:
                    annotation = what[2] if what[1] == "tensor" else (None, None, None, False)
                    dt = dtype_name(annotation[1]) if annotation[1] is not None else dtype_name(written[key].dtype)
                    op = (annotation[2] or "").removeprefix("reduce_") if (annotation[2] or "").startswith("reduce_") else None
                    given[key] = Array(written[key], dt, "saturate" in str(annotation[1] or "") or None, op)
                elif what[1] == "scalar" and key in before:
                    dt = dtype_name(what[2])
                    value = before[key]
                    given[key] = Val(dt, from_storage(to_storage(np.asarray(value), carrier_of(value), dt), dt)[()])
                elif what[1] == "any" and key in before and isinstance(before[key], (int, float)) and not isinstance(before[key], bool):
                    given[key] = Val("i64" if isinstance(before[key], int) else "f64", np.asarray(before[key])[()])
                elif key in before:
                    given[key] = taken(before[key], coroutine, noted, made)
                elif what[3]:
                    given[key] = taken(inspect.signature(fn).parameters[key].default, coroutine, noted, made)
                    if what[1] == "scalar":
                        dt = dtype_name(what[2])
                        given[key] = Val(dt, convert(given[key], carrier(dt)))
                if key in explained.config and what[1] == "const":
                    given[key] = explained.config[key]
            call = source.call(coroutine, space, types, noted)
            launch(call, coroutine, ((), put_together(given, kernel.spec)), grid, lanes, config)
            return written

        at = again.key(
            [kernel.name, source.text, kernel.spec.params, sorted(source.names().items()), defaults_of(fn), hosts, before, dims],
            [grid, lanes, coroutine, explained.config, context.warp, run.backwards],
            names=lambda func: Source(inspect.unwrap(func), func.source.text, func.source.name).names(),
        )
        if at in again.kept:
            want, inexact = again.kept[at]
        else:
            begin = time.perf_counter()
            limit, context.limit = context.limit, TICKS
            context.inexact.clear()
            try:
                _notes.clear()
                want = execute(None, True)
                types_found = settled()
                if types_found:
                    want = execute(types_found, False)
            finally:
                context.limit = limit
            inexact = set(context.inexact)
            again.keep(at, time.perf_counter() - begin, (want, inexact))
        for key, host in want.items():
            real = got.get(key, args_of(kernel, args, kwargs).get(key))
            if real is None:
                continue
            real = np.asarray(real)
            if is_packed(params[key]):
                host = packed(host)
            same, how = alike(host, real, exact and not inexact)
            if not same:
                seen.wrong.append(f"{name}: `{key}` {how}")
        if inexact or not exact:
            seen.within.setdefault(name, set()).update(inexact or {"the profile"})
        seen.compared[name] = seen.compared.get(name, 0) + 1
    except Lacks as lack:
        seen.lacking.setdefault(name, set()).add(str(lack))
    except OracleError as error:
        reason = "a launch with more iterations" if error.code == "endless" else f"the oracle refuses it: {error}"
        if error.code == "endless":
            seen.lacking.setdefault(name, set()).add(reason)
        else:
            seen.wrong.append(f"{name}: {reason}")
    except (SyntaxError, AttributeError) as error:
        seen.lacking.setdefault(name, set()).add(f"{type(error).__name__}: {error}")


def carrier_of(value: Any) -> str:
    kind = np.asarray(value).dtype.kind
    return {"b": "bool", "i": "i64", "u": "u64"}.get(kind, "f64")


def args_of(kernel: KernelFn, args: tuple, kwargs: dict) -> dict[str, Any]:
    return {**dict(zip((p[0] for p in kernel.spec.params), args)), **kwargs}


def put_together(given: dict[str, Any], spec: Any) -> dict[str, Any]:
    """Arguments with the records and lists that they are parts of."""
    names = [row[0] for row in spec.params]

    def made(how: Any) -> Any:
        if how is None:
            return None
        if isinstance(how, int):
            return given.get(names[how])
        if how[0] == "list":
            return tuple(made(part) for part in how[1])
        return types.SimpleNamespace(**{field: made(part) for field, part in how[2]})

    whole = {name: made(how) for name, how in spec.bundles}
    return {name: value for name, value in given.items() if name.partition(".")[0] not in whole} | whole


def alike(want: np.ndarray, got: np.ndarray, exact: bool) -> tuple[bool, str]:
    if want.shape != got.shape:
        return False, f"has shape {got.shape}, Python says {want.shape}"
    if exact or want.dtype.kind in "biu":
        bits = f"u{want.dtype.itemsize}"
        same = np.ascontiguousarray(want).view(bits) == np.ascontiguousarray(got).view(bits)
        if want.dtype.kind not in "biu":
            same |= np.isnan(want.astype(np.float64)) & np.isnan(got.astype(np.float64))
    else:
        loose = 30 if want.dtype.itemsize <= 2 else 1
        same = np.isclose(want.astype(np.float64), got.astype(np.float64), RTOL * loose, ATOL * loose, equal_nan=True)
    if same.all():
        return True, ""
    at = tuple(int(k) for k in np.argwhere(~same)[0])
    return False, f"at {list(at)} is {got[at]!r}, Python says {want[at]!r}"


@contextlib.contextmanager
def watching(profile: str | None = "strict") -> Iterator[Seen]:
    """Holds every launch inside against the oracle; the calls are made in ``profile``, where bits are compared."""
    seen = Seen()
    plain_call, plain_launch = KernelFn.__call__, KernelFn.launch
    busy = False

    def held(kernel: KernelFn, args: tuple, kwargs: dict, call: Any) -> Any:
        nonlocal busy
        if busy:
            return call()
        outputs = {row[0] for row in kernel.spec.params if row[1] == "tensor" and row[2][3]}
        # An output that is None is made for the call, as one that is left out.
        named = {k: v for k, v in args_of(kernel, args, kwargs).items() if v is not None or k not in outputs}
        copies: dict[int, np.ndarray] = {}
        before = {k: copies.setdefault(id(v), np.array(v)) if isinstance(v, np.ndarray) else v for k, v in named.items()}
        host = all(isinstance(v, (np.ndarray, int, float, bool, str, type(None), RealFunc, ApiFunction, np.generic, ts.DType)) for v in named.values())
        busy = True
        try:
            result = call()
            if host and ts.numerics.profile() != "deterministic":
                # The interpreter serves every profile by the strict rules.
                exact = ts.numerics.profile() == "strict" or kernel.explain().backend == "interp"
                compare(kernel, args, kwargs, before, result, seen, exact)
            else:
                place = f"{kernel.name} at {kernel.spec.source.file.rpartition('/')[2]}:{kernel.spec.source.line}"
                seen.lacking.setdefault(place, set()).add("arguments that are no NumPy arrays")
            return result
        finally:
            busy = False

    def call(self: KernelFn, *args: Any, **kwargs: Any) -> Any:
        return held(self, args, kwargs, lambda: plain_call(self, *args, **kwargs))

    def launched(self: KernelFn, *args: Any, grid: Any = None, **kwargs: Any) -> Any:
        return held(self, args, kwargs, lambda: plain_launch(self, *args, grid=grid, **kwargs))

    KernelFn.__call__, KernelFn.launch = call, launched
    try:
        if profile is None:
            yield seen
        else:
            with ts.numerics.profile(profile):
                yield seen
    finally:
        KernelFn.__call__, KernelFn.launch = plain_call, plain_launch
