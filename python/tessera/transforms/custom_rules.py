"""Custom derivative rules: `ts.custom_vjp` and `ts.custom_jvp`."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

from .. import _core
from ..base.caller import here, returns
from ..base.promotion import is_float
from ..trace import prim as p
from ..trace.jit import _name
from ..trace.tracer import Tracer, as_tracer, aval, current, emit, fail, is_array, outermost, weakened
from ..tree import pytree
from .inner import Inner, inline, outside


#: A rule that calls its own function has that function's rule again, to this order of derivatives. How often a function will be
#: differentiated is not known when it is traced.
_ORDERS = 4


class _Rules(threading.local):
    """How deep in its own rules this thread traces a function: from `_ORDERS` on the function is what its text says."""

    depth = 0

    @contextlib.contextmanager
    def at(self, depth: int) -> Iterator[None]:
        before, self.depth = self.depth, depth
        try:
            yield
        finally:
            self.depth = before


def _once(key: tuple, make: Callable[[], Any]) -> Any:
    """What was traced once in a program for arguments of the same kinds."""
    root = outermost()
    assert root is not None
    try:
        known = root.shared.get(key)
    except TypeError:  # something among the arguments cannot be compared
        return make()
    if known is None:
        known = root.shared[key] = make()
    return known


def _kinds(args: tuple) -> tuple:
    """What a trace of these arguments rests on."""
    leaves, form = pytree.flatten(args)
    return form, tuple(aval(v) if is_array(v) else pytree.static_key(v) for v in leaves)


class custom_vjp:
    """A function with a derivative of its own::

        @ts.custom_vjp
        def f(x): ...
        f.defvjp(fwd, bwd)     # fwd(x) -> (y, residuals); bwd(residuals, dy) -> (dx,)
    """

    def __init__(self, fn: Callable, nondiff_argnums: tuple[int, ...] = ()) -> None:
        functools.update_wrapper(self, fn)
        self._fn, self._nondiff = fn, tuple(nondiff_argnums)
        self._fwd: Callable | None = None
        self._bwd: Callable | None = None
        self._rules = _Rules()

    def defvjp(self, fwd: Callable, bwd: Callable) -> custom_vjp:
        self._fwd, self._bwd = fwd, bwd
        return self

    def __call__(self, *args: Any) -> Any:
        if self._fwd is None or self._bwd is None:
            raise fail(
                "E_ARGUMENT",
                f"expected `{_name(self._fn)}.defvjp(fwd, bwd)` before it is called",
                "define both rules first: `f.defvjp(fwd, bwd)`",
            )
        if current() is None:
            return outside(self.__call__, args, {}, _name(self._fn))
        level = self._rules.depth
        if level >= _ORDERS:
            return self._fn(*args)
        fixed = {i: args[i] for i in self._nondiff}
        moving = tuple(a for i, a in enumerate(args) if i not in fixed)
        key = (self, self._fwd, self._bwd, level, tuple((i, pytree.static_key(v)) for i, v in fixed.items()), _kinds(moving))
        return _called(_once(key, lambda: self._traced(args, fixed, moving, level)), moving)

    def _traced(self, args: tuple, fixed: dict[int, Any], moving: tuple, level: int) -> tuple:

        def whole(fn: Callable) -> Callable:
            def call(*rest: Any) -> Any:
                more = iter(rest)
                return fn(*(fixed[i] if i in fixed else next(more) for i in range(len(args))))

            return functools.update_wrapper(call, fn)

        with self._rules.at(_ORDERS):
            inner = _closed(Inner(whole(self._fn), moving, {}, name=_name(self._fn)), "custom_vjp")
        residual_form: dict[str, Any] = {}
        names = [n for i, n in enumerate(_parameters(self._fn, len(args))) if i not in fixed]

        def forward(*rest: Any) -> Any:
            got = whole(self._fwd)(*rest)  # type: ignore[arg-type]
            if not isinstance(got, (tuple, list)) or len(got) != 2:
                raise fail_at(returns(self._fwd), "E_ARGUMENT",
                              f"expected the forward rule of `{_name(self._fn)}` to give a pair, got {_described(got)}",
                              "return `(y, residuals)`: what the function gives, and what the backward rule needs")  # fmt: skip
            y, residuals = got
            self._same_results(inner, y)
            residual_form["form"] = pytree.flatten(residuals)[1]
            return y, residuals

        with self._rules.at(level + 1):
            fwd = _closed(Inner(forward, moving, {}, name=f"{_name(self._fn)}_fwd"), "custom_vjp", self._fwd)
        y_types = [aval(v) for v in inner.results]
        residuals = fwd.results[len(y_types):]

        def backward(res: list, cts: list) -> Any:
            given = iter(cts)
            full = [next(given) if is_float(d) else p.splat(0, s, d) for s, d, _ in y_types]
            ct = pytree.unflatten(inner.form, full)
            kept = pytree.unflatten(residual_form["form"], res)
            got = self._bwd(*fixed.values(), kept, ct)  # type: ignore[misc]
            if not isinstance(got, tuple) and len(moving) == 1:
                got = (got,)
            if not isinstance(got, tuple) or len(got) != len(moving):
                raise fail_at(returns(self._bwd), "E_ARGUMENT",
                              f"expected the backward rule of `{_name(self._fn)}` to give a tuple of {len(moving)}, got {_described(got)}",
                              "give a cotangent for each argument, and None for one without derivative")  # fmt: skip
            return _cotangents(moving, got, names, returns(self._bwd))

        fake_res = [_Shape(aval(r)) for r in residuals]
        fake_cts = [_Shape(a) for a in y_types if is_float(a[1])]
        with self._rules.at(level + 1):
            bwd = _closed(_inner_of_types(backward, fake_res, fake_cts, f"{_name(self._fn)}_bwd"), "custom_vjp", self._bwd)
        constants = _constants(inner, fwd, bwd)
        attrs: dict[str, Any] = {"callee": inner.func, "kind": "custom_vjp", "fwd": fwd.func, "bwd": bwd.func}
        if constants:
            n, m, given = len(inner.avals), len(residuals), [aval(c) for c in constants]
            attrs = {
                "kind": "custom_vjp",
                "nondiff": list(range(n, n + len(constants))),
                "callee": _opened(inner, constants, n, inner.avals + given).func,
                "fwd": _opened(fwd, constants, n, inner.avals + given, keep=True).func,
                "bwd": _opened(bwd, constants, m, [*map(aval, residuals), *given, *(s.aval for s in fake_cts)]).func,
            }
        return attrs, [(list(s), d) for s, d, _ in y_types], inner.form, inner.weak, constants

    def _same_results(self, inner: Inner, y: Any) -> None:
        """The forward rule gives what the function gives."""
        help = "return `(y, residuals)`, with `y` as the function gives it"
        _as_given(self._fn, inner, y, returns(self._fwd), "forward rule", help)  # type: ignore[arg-type]


def _as_given(fn: Callable, inner: Inner, y: Any, place: Any, rule: str, help: str) -> None:
    """Refuses results of a rule that are not those of the function."""
    form, wanted_form = pytree.flatten(y)[1], pytree.closed(inner.form)
    wrong = pytree.difference(wanted_form, form) if form != wanted_form else None
    for wanted, got, path in zip(inner.results, pytree.leaves(y), pytree.paths(y), strict=True) if wrong is None else ():
        have, want = _type_of(got), _type_of(wanted)
        if have != want and not (is_array(got) and aval(got)[:2] == aval(wanted)[:2]):
            wrong = f"{f'at {path} ' if path else ''}{want}, got {have}"
            break
    if wrong is not None:
        raise fail_at(place, "E_TYPE", f"expected the {rule} of `{_name(fn)}` to give what the function gives: {wrong}", help)


class _Shape:
    def __init__(self, aval: tuple) -> None:
        self.aval = aval


def _inner_of_types(fn: Callable, first: list, second: list, name: str) -> Inner:
    """Traces ``fn(list, list)`` for values of these types."""
    types = [s.aval for s in (*first, *second)]
    zeros = [0.0] * len(types)
    n = len(first)

    def call(*flat: Any) -> Any:
        return fn(list(flat[:n]), list(flat[n:]))

    return Inner(call, tuple(zeros), {}, avals=types, name=name)


def _values(args: tuple) -> list[Tracer]:
    """The array leaves of arguments."""
    return [as_tracer(v) for v in pytree.leaves(args) if is_array(v)]


def _called(traced: tuple, args: tuple) -> Any:
    """A call of what was traced once, in the function that is being traced now."""
    attrs, results, form, weak, constants = traced
    frame = current()
    assert frame is not None
    values = [*_values(args), *map(frame.array, constants)]
    return pytree.unflatten(form, weakened(emit("call", [], attrs, groups={"values": values}, results=results), weak))


def _constant(x: Tracer) -> Any:
    """The array that a captured value is, where it is one that the program takes as an input; None for values that are computed."""
    frame = x._frame
    while frame.parent is not None:
        found = next((theirs for theirs, ours in frame.captured if ours._value == x._value), None)
        if found is None:
            return None
        x, frame = found, found._frame
    return next((held[0] for held, tracer in frame.arrays if tracer._value == x._value), None)


def _constants(*inners: Inner) -> list:
    """The arrays that functions close over, each once."""
    found = {id(c): c for inner in inners for c in map(_constant, inner.captured)}
    return list(found.values())


def _opened(inner: Inner, constants: list, at: int, types: list, keep: bool = False) -> Inner:
    """The function with all ``constants`` as parameters from place ``at`` on, and, to ``keep`` them, as its last results too."""

    def call(*flat: Any) -> list:
        given = flat[at : at + len(constants)]
        own = [given[next(i for i, c in enumerate(constants) if c is _constant(x))] for x in inner.captured]
        made = inline(inner.program, inner.func, [*flat[:at], *flat[at + len(constants) :], *own])
        return [*made, *given] if keep else made

    return Inner(call, (0.0,) * len(types), {}, avals=types, name=inner.func)


def _closed(inner: Inner, what: str, rule: Callable | None = None) -> Inner:
    traced = [x for x in inner.captured if _constant(x) is None]
    if traced:
        made = traced[0]._place
        raise fail_at(
            here() if rule is None else returns(rule),
            "E_UNSUPPORTED",
            f"expected a {what} function that uses its arguments only, got one that uses a traced value of the function "
            f"around it{f' (made at {made!r})' if made is not None else ''}",
            "pass the value as an argument",
        )
    return inner


def fail_at(place: Any, code: str, message: str, help: str) -> Exception:
    """The error for a line that is not the one being run."""
    return _core.error(code, message, help, None, None, place)


def _described(value: Any) -> str:
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, (tuple, list)) else "None" if value is None else "one value"


def _type_of(value: Any) -> str:
    if not is_array(value):
        return type(value).__name__
    shape, dtype, weak = aval(value)
    return f"{'f32' if weak and dtype == 'f64' else dtype}[{', '.join(map(str, shape))}]"


def _parameters(fn: Callable, count: int) -> list[str]:
    """Names for positional arguments."""
    try:
        names = [p.name for p in inspect.signature(fn).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    return [names[i] if i < len(names) else f"arg{i}" for i in range(count)]


def _cotangents(args: tuple, got: tuple, names: list[str], place: Any) -> list:
    """Cotangents of the float leaves of the arguments, zeros for None. Each has the shape of its argument."""
    out = []
    for arg, ct, name in zip(args, got, names, strict=True):
        leaves, form = pytree.flatten(arg)
        given, got_form = pytree.flatten(ct)
        for leaf, c, path in zip(leaves, _matched(form, got_form, iter(given), name, place), pytree.paths(arg, name), strict=True):
            if not is_array(leaf):
                continue
            shape, dtype, _ = aval(leaf)
            if not is_float(dtype):
                continue
            if c is None:
                out.append(p.splat(0, shape, dtype))
                continue
            if not is_array(c) or not (is_float(aval(c)[1]) or aval(c)[2]):
                raise fail_at(place, "E_TYPE", f"expected a cotangent of floats for `{path}`, got {_type_of(c)}",
                              "give an array of the argument's shape and dtype, or None")  # fmt: skip
            if tuple(aval(c)[0]) != tuple(shape):
                raise fail_at(place, "E_SHAPE_MISMATCH",
                              f"expected a cotangent for `{path}` of its shape {p.show(shape)}, got {p.show(aval(c)[0])}",
                              "sum over the axes that were stretched, or write `xp.broadcast_to` where that is meant")  # fmt: skip
            out.append(p.cast(c, dtype))
    return out


def _matched(wanted: Any, got: Any, given: Iterator, path: str, place: Any) -> list:
    """The leaves of a cotangent for each leaf of an argument: None may stand for any part of it."""
    if got.kind is type(None):
        return [None] * wanted.leaf_count
    if wanted.kind is None and got.kind is None:
        return [next(given)]
    if wanted.kind is not got.kind or wanted.meta != got.meta or len(wanted.children) != len(got.children):
        raise fail_at(place, "E_ARGUMENT", f"expected the cotangent of `{path}` to be a tree like it: {pytree.difference(wanted, got)}",
                      "give the argument's form, with None for parts without derivative")  # fmt: skip
    return [c for step, a, b in zip(pytree._steps(wanted), wanted.children, got.children, strict=True)
            for c in _matched(a, b, given, path + step, place)]  # fmt: skip


class custom_jvp:
    """A function with a forward derivative of its own: ``f.defjvp(rule)`` with ``rule(primals, tangents) -> (y, dy)``, or
    ``f.defjvps(rule, …)`` with one for each argument. The rule may call the function: its derivative there is the rule again, up to the
    fourth derivative, and that of its text beyond."""

    def __init__(self, fn: Callable) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._rule: Callable | None = None
        self._rules = _Rules()

    def defjvp(self, rule: Callable) -> custom_jvp:
        self._rule = rule
        return self

    def defjvps(self, *rules: Callable | None) -> custom_jvp:
        """A rule for each argument, ``rule(tangent, result, *primals)``, whose tangents are added; None for an argument without
        derivative. For functions that give one array."""

        def rule(primals: tuple, tangents: tuple) -> tuple:
            if len(rules) != len(primals):
                raise fail("E_ARGUMENT",
                           f"expected `{_name(self._fn)}.defjvps` with a rule for each of {len(primals)} arguments, got {len(rules)}",
                           "write None for an argument without derivative")  # fmt: skip
            y = self(*primals)
            parts = [r(t, y, *primals) for r, t in zip(rules, tangents, strict=True) if r is not None]
            return y, functools.reduce(lambda a, b: p.ew("add", a, b), parts) if parts else p.zeros_like(y)

        return self.defjvp(rule)

    def __call__(self, *args: Any) -> Any:
        if self._rule is None:
            raise fail(
                "E_ARGUMENT",
                f"expected `{_name(self._fn)}.defjvp(rule)` before it is called",
                "define the rule first: `f.defjvp(rule)`",
            )
        if current() is None:
            return outside(self.__call__, args, {}, _name(self._fn))
        level = self._rules.depth
        if level >= _ORDERS:
            return self._fn(*args)
        return _called(_once((self, self._rule, level, _kinds(args)), lambda: self._traced(args, level)), args)

    def _traced(self, args: tuple, level: int) -> tuple:
        with self._rules.at(_ORDERS):
            inner = _closed(Inner(self._fn, args, {}), "custom_jvp")
        form = pytree.flatten(args)[1]
        types = inner.avals
        floats = [i for i, t in enumerate(types) if is_float(t[1])]

        def rule(primals: list, tangents: list) -> Any:
            given = dict(zip(floats, tangents, strict=True))
            moved = [given[i] if i in given else p.splat(0, t[0], t[1]) for i, t in enumerate(types)]
            got = self._rule(pytree.unflatten(form, primals), pytree.unflatten(form, moved))  # type: ignore[misc]
            return self._checked(inner, got)

        shapes = [_Shape(t) for t in types], [_Shape(types[i]) for i in floats]
        with self._rules.at(level + 1):
            made_rule = _closed(_inner_of_types(rule, *shapes, f"{_name(self._fn)}_jvp"), "custom_jvp")
        constants = _constants(inner, made_rule)
        attrs: dict[str, Any] = {"callee": inner.func, "kind": "custom_jvp", "jvp": made_rule.func}
        if constants:
            n, given = len(types), [aval(c) for c in constants]
            attrs = {
                "kind": "custom_jvp",
                "nondiff": list(range(n, n + len(constants))),
                "callee": _opened(inner, constants, n, types + given).func,
                "jvp": _opened(made_rule, constants, n, [*types, *given, *(types[i] for i in floats)]).func,
            }
        return attrs, [(list(s), d) for s, d, _ in map(aval, inner.results)], inner.form, inner.weak, constants

    def _checked(self, inner: Inner, got: Any) -> tuple[list, list]:
        """What the rule gave: results as the function gives them, and a tangent of the same shape for each float among them."""
        place = returns(self._rule)  # type: ignore[arg-type]
        if not isinstance(got, (tuple, list)) or len(got) != 2:
            raise fail_at(place, "E_ARGUMENT", f"expected the rule of `{_name(self._fn)}` to give a pair, got {_described(got)}",
                          "return `(y, dy)`: what the function gives, and its tangents")  # fmt: skip
        _as_given(self._fn, inner, got[0], place, "rule", "return `(y, dy)`, with `y` as the function gives it")
        ys, form = pytree.flatten(got[0])
        dys, dy_form = pytree.flatten(got[1])
        if form != dy_form:
            raise fail_at(place, "E_ARGUMENT",
                          f"expected the rule of `{_name(self._fn)}` to give tangents in the form of its results: {pytree.difference(form, dy_form)}",
                          "return a tangent for each result, `xp.zeros_like(y)` for one that does not move")  # fmt: skip
        tangents = []
        for y, dy, path in zip(ys, dys, pytree.paths(got[0]), strict=True):
            shape, dtype, weak = aval(y)
            if not is_float(dtype):
                continue
            if not is_array(dy) or not (is_float(aval(dy)[1]) or aval(dy)[2]) or tuple(aval(dy)[0]) != tuple(shape):
                raise fail_at(place, "E_SHAPE_MISMATCH" if is_array(dy) and is_float(aval(dy)[1]) else "E_TYPE",
                              f"expected the rule of `{_name(self._fn)}` to give a tangent of the shape of the result"
                              f"{f' at {path}' if path else ''}: {_type_of(y)}, got {_type_of(dy)}",
                              "a tangent is an array of floats of the shape of what it is the tangent of")  # fmt: skip
            # Tangents of Python's numbers have more digits than the results that they belong to.
            tangents.append(p.cast(dy, dtype))
        return ys, tangents
