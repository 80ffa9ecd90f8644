"""Executes kernels: Python compiles the text and runs it for each group and lane."""

from __future__ import annotations

import ast
import functools
import itertools
import math
import re
from typing import Any

import numpy as np

import tessera as ts

from . import context, tile
from .memory import Array, Constants, Index, Numbers, Place, value_of
from .rewrite import rewritten
from .values import Lacks, NUMPY, OracleError, Val, carrier, cast_array, common, convert, dtype_name, strong


class Func:
    """A ``@ts.func``: a Python function over the oracle's values."""

    def __init__(self, call: Any, coroutine: bool) -> None:
        self.call = call
        self.coroutine = coroutine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.coroutine:
            raise Lacks("a function in which lanes synchronise, called where they cannot")
        return self.call(*args, **kwargs)


def _call(f: Any, *args: Any, **kwargs: Any) -> Any:
    """A call in a coroutine."""
    if isinstance(f, tile.Sync):
        return (yield f.name, args, kwargs)
    if f == TARGET.asm:
        f, args = TARGET.meaning(*args, **kwargs)
        kwargs = {}
    if isinstance(f, Func) and f.coroutine:
        return (yield from f.call(*args, **kwargs))
    return f(*args, **kwargs)


def _as(dt: str, value: Any) -> Any:
    """A value assigned to a variable of a given type: a literal takes the type, and a value is widened to it."""
    if isinstance(value, Val):
        if value.dt == dt or carrier(value.dt) == dt:
            return value
        if carrier(value.dt) == "bool" and dt != "bool":
            raise OracleError("E_TYPE", f"bool assigned to {dt}")
        try:
            if common((value, Val(dt, NUMPY[dt].type(0))), "select") == dt:
                return Val(dt, convert(value, dt))
        except OracleError:
            pass
        raise OracleError("E_TYPE", f"{value.dt} assigned to a variable of {dt}")
    return Val(dt, convert(value, dt)) if isinstance(value, (bool, int, float)) else value


def _python(name: str) -> Any:
    """Python's own functions, over values."""

    def two(f: Any, plain: Any) -> Any:
        def pair(a: Any, b: Any) -> Any:
            return f(a, b) if isinstance(a, Val) or isinstance(b, Val) else plain(a, b)

        return lambda a, b, *more: functools.reduce(pair, more, pair(a, b))

    def as_int(x: Any) -> Any:
        if isinstance(x, Val):
            return Val("i64", cast_array(x.a, carrier(x.dt), "i64"))
        return int(x)

    def as_float(x: Any) -> Any:
        return Val(common((x,), "float"), convert(x, common((x,), "float"))) if isinstance(x, Val) else float(x)

    table = {
        "range": tile.range, "min": two(tile.minimum, min), "max": two(tile.maximum, max), "print": tile.print,
        "abs": lambda x: abs(x), "int": as_int, "float": as_float, "bool": lambda x: Val("bool", convert(x, "bool")) if isinstance(x, Val) else bool(x),
        "round": lambda x: tile.round(x) if isinstance(x, Val) else round(x), "pow": lambda a, b: a**b, "len": len,
        "reversed": lambda items: list(items)[::-1], "enumerate": enumerate, "zip": zip,
    }  # fmt: skip
    return table[name]


BUILTINS = {
    n: _python(n)
    for n in ("range", "min", "max", "print", "abs", "int", "float", "bool", "round", "pow", "len", "reversed", "enumerate", "zip")
}
HELPERS = {
    "__place__": lambda a, at: a[at] if isinstance(a, tuple) else Place(a, at), "__index__": Index, "__call__": _call, "__as__": _as, "slice": slice, "__tick__": context.tick,
    "__unbound__": lambda: Val("i64", np.int64(0)),
}  # fmt: skip


class _Math:
    """``math`` over values."""

    def __getattr__(self, name: str) -> Any:
        plain = getattr(math, name)
        ours = getattr(tile, {"fabs": "abs"}.get(name, name), None)
        if not callable(plain):
            return plain
        return lambda *a: ours(*a) if any(isinstance(x, Val) for x in a) and ours else plain(*a)


class _Tile:
    """``ts.tile``."""

    def __getattr__(self, name: str) -> Any:
        if name == "context":
            return tile.context_
        found = getattr(tile, name, None)
        if found is None or name.startswith("_") or name in HIDDEN:
            raise Lacks(f"ts.tile.{name}")
        return found


class _Target:
    """``ts.target``: a text is what its other meaning computes."""

    def asm(self, *given: Any, **how: Any) -> Any:
        otherwise, values = self.meaning(*given, **how)
        return otherwise(*values)

    @staticmethod
    def meaning(text: str, *values: Any, dtype: Any = None, otherwise: Any = None, **how: Any) -> tuple[Any, list[Any]]:
        if otherwise is None:
            raise Lacks("ts.target.asm without otherwise=")
        operands = [strong(value_of(v)) for v in values]
        shape = np.broadcast_shapes(*(np.shape(v.a) for v in operands))
        return otherwise, [Val(v.dt, np.broadcast_to(v.a, shape)) if shape else v for v in operands]


HIDDEN = {"np", "ts", "math", "Array", "Place", "Val", "Any", "Callable", "collective", "range_", "value_of", "identity"}
TILE = _Tile()
TARGET = _Target()
MATH = _Math()


def cdiv(a: Any, b: Any) -> Any:
    return -(-a // b)


class Ts:
    """``ts`` as a kernel sees it."""

    tile = TILE
    target = TARGET
    cdiv = staticmethod(cdiv)
    identity = staticmethod(lambda x: x)

    def require(self, *constraints: Any) -> None:
        return None

    def static_range(self, start: Any, stop: Any = None, step: int = 1) -> range:
        """Numbers that are known when the kernel is compiled: they stay Python's."""
        lo, hi = (0, start) if stop is None else (start, stop)
        if any(isinstance(v, Val) for v in (lo, hi, step)):
            raise OracleError("E_TYPE", "a bound of run time")
        if not step:
            raise OracleError("E_ARGUMENT", "a step of 0")
        return range(lo, hi, step)

    def static_assert(self, cond: Any, text: Any = None) -> None:
        if isinstance(cond, Val):
            raise OracleError("E_TYPE", "a condition of run time")
        if not cond:
            raise OracleError("E_ASSERT", text or "")

    def static_print(self, *values: Any) -> None:
        return None

    def round(self, mode: str) -> Any:
        raise Lacks("ts.round")

    def stochastic_round(self, seed: Any, at: Any) -> Any:
        raise Lacks("ts.stochastic_round")

    def __getattr__(self, name: str) -> Any:
        return getattr(ts, name)


TS = Ts()


class Program:
    """The functions of one module text, for Python to execute.

    ``types`` gives, for each function, the types of variables that begin with a literal.
    """

    def __init__(self, text: str, namespace: dict[str, Any] | None = None, types: dict[str, dict[str, str]] | None = None) -> None:
        tree = ast.parse(text)
        self.coroutine = re.search(r"\b(barrier|sync)\(|\.group\b", text) is not None
        self.namespace: dict[str, Any] = {**BUILTINS, **HELPERS, "ts": TS, "math": MATH, "np": np, **(namespace or {})}
        self.kernels: dict[str, tuple[ast.FunctionDef, dict[str, Any]]] = {}
        for node in tree.body:
            if not isinstance(node, ast.FunctionDef):
                exec(compile(ast.Module([node], []), "<program>", "exec"), self.namespace)
                continue
            kind = decorator(node)
            annotations = [(a.arg, a.annotation) for a in node.args.args]
            made = ast.Module([rewritten(node, self.coroutine, (types or {}).get(node.name))], [])
            exec(compile(made, "<program>", "exec"), self.namespace)
            call = self.namespace[node.name]
            if kind == "func":
                self.namespace[node.name] = Func(call, self.coroutine)
            else:
                self.kernels[node.name] = (annotations, call)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self._capture(node.targets[0].id)

    def _capture(self, name: str) -> None:
        """Constant tables take positions of run time and stand at the head of loops."""
        value = self.namespace[name]
        if isinstance(value, tuple):
            self.namespace[name] = Numbers(value)
        elif isinstance(value, np.ndarray):
            self.namespace[name] = Constants(value, dtype_name(value.dtype))

    def launch(self, name: str, arguments: list[Any], grid: tuple[int, ...], lanes: Any = 0, config: dict | None = None) -> None:
        """Runs a kernel on arrays of its own; ``grid`` counts groups, or with ``lanes``, a number or one for each axis, lanes."""
        call = self.kernels[name][1]
        launch(call, self.coroutine, arguments, grid, lanes, config)


def decorator(node: ast.FunctionDef) -> str:
    for mark in node.decorator_list:
        text = ast.unparse(mark)
        if "func" in text:
            return "func"
    return "kernel"


#: Lanes and groups in the other order: what a program gives must not depend on it.
backwards = False


def _order(n: int) -> range:
    return range(n - 1, -1, -1) if backwards else range(n)


def launch(call: Any, coroutine: bool, arguments: Any, grid: tuple[int, ...], lanes: Any = 0, config: dict | None = None) -> None:
    args, kwargs = arguments if isinstance(arguments, tuple) else (arguments, {})
    config = config or {}
    context.ticks = 0
    with np.errstate(all="ignore"):
        if not lanes:
            full = tuple(grid) + (1,) * (3 - len(grid))
            for group in itertools.product(*(_order(n) for n in full)):
                context.here = context.Here(group, full, (), config)
                out = call(*args, **kwargs)
                if coroutine:
                    _alone(out)
            return
        shape = lanes if isinstance(lanes, tuple) else (lanes,)
        extents = grid if len(shape) > 1 else (math.prod(grid),)
        groups = tuple(-(-n // by) for n, by in zip(extents, shape)) + (1,) * (3 - len(shape))
        for group in itertools.product(*(_order(n) for n in groups)):
            context.here = here = context.Here(group, groups, shape, config)
            left = [n - at * by for n, at, by in zip(extents, group, shape)]
            places = itertools.product(*(range(by) for by in shape))
            members = [k for k, place in enumerate(places) if all(p < n for p, n in zip(place, left))]
            if not coroutine:
                for k in _order(len(members)):
                    here.lane = members[k]
                    call(*args, **kwargs)
                continue
            together(here, members, [call(*args, **kwargs) for _ in members])


def _alone(body: Any) -> Any:
    """Runs a group kernel that has barriers, which are only hints there."""
    try:
        request = next(body)
        while True:
            if request[0] not in ("barrier", "sync"):
                raise Lacks(f"group.{request[0]} in a group kernel")
            request = body.send(None)
    except StopIteration as end:
        return end.value


def together(here: context.Here, numbers: list[int], lanes: list[Any]) -> None:
    """Runs lanes from barrier to barrier, without those that have returned."""
    answers: list[Any] = [None] * len(lanes)
    alive = list(range(len(lanes)))
    while alive:
        waiting: list[tuple[int, str, tuple]] = []
        for k in reversed(alive) if backwards else alive:
            here.lane = numbers[k]
            try:
                name, args, kwargs = lanes[k].send(answers[k])
                waiting.append((k, name, (args, kwargs)))
            except StopIteration:
                pass
        waiting.sort(key=lambda entry: entry[0])
        alive = [k for k, _, _ in waiting]
        if waiting:
            names = {name for _, name, _ in waiting}
            if len(names) > 1:
                raise OracleError("E_DIVERGENT_BARRIER", f"lanes reach different barriers: {names}")
            for (k, _, _), answer in zip(waiting, tile.collective(waiting[0][1], [c for _, _, c in waiting], [numbers[k] for k in alive])):
                answers[k] = answer


def array(host: np.ndarray, annotation: Any = None) -> Array:
    """An argument as the kernel sees it; the host array itself is written."""
    dt = None
    saturate = op = None
    if annotation is not None and getattr(annotation, "dtype", None) is not None:
        dt = dtype_name(annotation.dtype)
        saturate = "saturate" in str(annotation.dtype) or None
    if dt is None:
        dt = dtype_name(host.dtype)
    privilege = getattr(getattr(annotation, "privilege", None), "name", "")
    if privilege.startswith("reduce_"):
        op = privilege[len("reduce_") :]
    return Array(host, dt, saturate, op)


def scalar(value: Any, annotation: Any) -> Any:
    """A number as the kernel sees it: of its dtype at run time, or a constant."""
    if isinstance(annotation, ts.DType):
        dt = dtype_name(annotation)
        return Val(dt, convert(value, carrier(dt)) if isinstance(value, (bool, int, float)) else np.asarray(value).astype(NUMPY[carrier(dt)])[()])
    return value


