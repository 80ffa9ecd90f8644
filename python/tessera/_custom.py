"""Functions with derivatives of their own."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from . import _tree
from ._jit import _name
from ._promote import is_float
from ._trace import Tracer, as_tracer, aval, current, emit, fail, is_array, outermost, weakened
from ._transforms import Inner, _outside


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
    leaves, form = _tree.flatten(args)
    return form, tuple(aval(v) if is_array(v) else _tree.told_apart(v) for v in leaves)


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
            return _outside(self.__call__, args, {}, _name(self._fn))
        level = self._rules.depth
        if level >= _ORDERS:
            return self._fn(*args)
        fixed = {i: args[i] for i in self._nondiff}
        moving = tuple(a for i, a in enumerate(args) if i not in fixed)
        key = (self, self._fwd, self._bwd, level, tuple((i, _tree.told_apart(v)) for i, v in fixed.items()), _kinds(moving))
        attrs, results, form, weak = _once(key, lambda: self._traced(args, fixed, moving, level))
        return _tree.unflatten(form, weakened(emit("call", [], attrs, groups={"values": _values(moving)}, results=results), weak))

    def _traced(self, args: tuple, fixed: dict[int, Any], moving: tuple, level: int) -> tuple:

        def whole(fn: Callable) -> Callable:
            def call(*rest: Any) -> Any:
                more = iter(rest)
                return fn(*(fixed[i] if i in fixed else next(more) for i in range(len(args))))

            return functools.update_wrapper(call, fn)

        with self._rules.at(_ORDERS):
            inner = _closed(Inner(whole(self._fn), moving, {}, name=_name(self._fn)), "custom_vjp")
        residual_form: dict[str, Any] = {}

        def forward(*rest: Any) -> Any:
            y, residuals = whole(self._fwd)(*rest)  # type: ignore[arg-type]
            residual_form["form"] = _tree.flatten(residuals)[1]
            return y, residuals

        with self._rules.at(level + 1):
            fwd = _closed(Inner(forward, moving, {}, name=f"{_name(self._fn)}_fwd"), "custom_vjp")
        y_types = [aval(v) for v in inner.results]
        residuals = fwd.results[len(y_types):]

        def backward(res: list, cts: list) -> Any:
            given = iter(cts)
            from . import xp

            full = [next(given) if is_float(d) else xp.zeros(s, dtype=d) for s, d, _ in y_types]
            ct = _tree.unflatten(inner.form, full)
            kept = _tree.unflatten(residual_form["form"], res)
            got = self._bwd(*fixed.values(), kept, ct)  # type: ignore[misc]
            got = got if isinstance(got, tuple) else (got,)
            if len(got) != len(moving):
                raise fail("E_ARGUMENT", f"expected the backward function to give {len(moving)} cotangents, got {len(got)}",
                           "give one for each argument, and None for one without derivative")  # fmt: skip
            return _cotangents(moving, got)

        fake_res = [_Shape(aval(r)) for r in residuals]
        fake_cts = [_Shape(a) for a in y_types if is_float(a[1])]
        with self._rules.at(level + 1):
            bwd = _closed(_inner_of_types(backward, fake_res, fake_cts, f"{_name(self._fn)}_bwd"), "custom_vjp")
        attrs = {"callee": inner.func, "kind": "custom_vjp", "fwd": fwd.func, "bwd": bwd.func}
        return attrs, [(list(s), d) for s, d, _ in y_types], inner.form, inner.weak


class Fused:
    """Kernels in place of what they compute: ``kernels`` is what runs, ``plain`` what it means in other ops, for transforms that have
    no rule here. With ``backward``, kernels that give the cotangents of the arguments from the arguments, the results and the
    cotangents of the results, reverse mode runs these, and ``plain_backward`` says what they mean. Arguments at
    the places ``left`` have no cotangent there: where it is asked for, the derivative is that of ``plain``.

    Functions are traced once in a program for arguments of the same kinds and the same ``key``."""

    def __init__(self, name: str, key: Any, kernels: Callable, plain: Callable, backward: Callable | None = None,
                 plain_backward: Callable | None = None, left: tuple[int, ...] = ()) -> None:  # fmt: skip
        self._name, self._key, self._kernels, self._plain = name, key, kernels, plain
        self._backward, self._plain_backward, self._left = backward, plain_backward, left

    def __call__(self, *args: Tracer) -> list[Tracer]:
        root = outermost()
        assert root is not None
        types = [aval(a) for a in args]
        key = (self._name, self._key, tuple(types))
        known = root.shared.get(key)
        if known is None:
            known = root.shared[key] = self._traced(types)
        attrs, results = known
        return emit("call", [], attrs, groups={"values": list(args)}, results=results)

    def _traced(self, types: list[tuple]) -> tuple[dict, list]:
        def inner(fn: Callable, suffix: str, types: list[tuple]) -> Inner:
            return _closed(Inner(fn, (0.0,) * len(types), {}, avals=types, name=self._name + suffix), "fused")

        callee, plain = inner(self._kernels, "", types), inner(self._plain, "_plain", types)
        outs = [aval(v) for v in callee.results]
        attrs = {"callee": callee.func, "plain": plain.func}
        if self._backward is not None:
            again = Fused(self._name, (self._key, "forward"), self._kernels, self._plain)
            back = Fused(self._name + "_backward", self._key, self._backward, self._plain_backward)  # type: ignore[arg-type]

            def forward(*args: Any) -> Any:
                made = again(*args)
                return [*made, *args, *made]

            fwd = inner(forward, "_fwd", types)
            bwd = inner(lambda *kept: back(*kept), "_bwd", [*types, *outs, *outs])
            attrs |= {"kind": "custom_vjp", "fwd": fwd.func, "bwd": bwd.func}
            if self._left:
                attrs["nondiff"] = list(self._left)
        return attrs, [(list(s), d) for s, d, _ in outs]


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
    return [as_tracer(v) for v in _tree.leaves(args) if is_array(v)]


def _closed(inner: Inner, what: str) -> Inner:
    if inner.captured:
        made = inner.captured[0]._place
        raise fail(
            "E_UNSUPPORTED",
            f"expected a {what} function that uses its arguments only, got one that uses a traced value of the function "
            f"around it{f' (made at {made!r})' if made is not None else ''}",
            "pass the value as an argument",
        )
    return inner


def _cotangents(args: tuple, got: tuple) -> list:
    """Cotangents of the float leaves of the arguments, zeros for None."""
    from . import _prim as p, xp

    out = []
    for arg, ct in zip(args, got, strict=True):
        leaves = _tree.leaves(arg)
        given = [None] * len(leaves) if ct is None else _tree.leaves(ct)
        for leaf, c in zip(leaves, given, strict=True):
            if not is_array(leaf):
                continue
            shape, dtype, _ = aval(leaf)
            if is_float(dtype):
                out.append(xp.zeros(shape, dtype=dtype) if c is None else p.broadcast_to(p.cast(c, dtype), shape))
    return out


class custom_jvp:
    """A function with a forward derivative of its own: ``f.defjvp(rule)`` with ``rule(primals, tangents) -> (y, dy)``. The rule may
    call the function: its derivative there is the rule again, up to the fourth derivative, and that of its text beyond."""

    def __init__(self, fn: Callable) -> None:
        functools.update_wrapper(self, fn)
        self._fn = fn
        self._rule: Callable | None = None
        self._rules = _Rules()

    def defjvp(self, rule: Callable) -> custom_jvp:
        self._rule = rule
        return self

    def __call__(self, *args: Any) -> Any:
        if self._rule is None:
            raise fail(
                "E_ARGUMENT",
                f"expected `{_name(self._fn)}.defjvp(rule)` before it is called",
                "define the rule first: `f.defjvp(rule)`",
            )
        if current() is None:
            return _outside(self.__call__, args, {}, _name(self._fn))
        level = self._rules.depth
        if level >= _ORDERS:
            return self._fn(*args)
        attrs, results, form, weak = _once((self, self._rule, level, _kinds(args)), lambda: self._traced(args, level))
        return _tree.unflatten(form, weakened(emit("call", [], attrs, groups={"values": _values(args)}, results=results), weak))

    def _traced(self, args: tuple, level: int) -> tuple:
        with self._rules.at(_ORDERS):
            inner = _closed(Inner(self._fn, args, {}), "custom_jvp")
        form = _tree.flatten(args)[1]
        types = inner.avals
        floats = [i for i, t in enumerate(types) if is_float(t[1])]

        def rule(primals: list, tangents: list) -> Any:
            from . import xp

            given = dict(zip(floats, tangents, strict=True))
            moved = [given[i] if i in given else xp.zeros(t[0], dtype=t[1]) for i, t in enumerate(types)]
            y, dy = self._rule(_tree.unflatten(form, primals), _tree.unflatten(form, moved))  # type: ignore[misc]
            ys, dys = _tree.leaves(y), _tree.leaves(dy)
            return ys, [d for v, d in zip(ys, dys, strict=True) if is_float(aval(v)[1])]

        shapes = [_Shape(t) for t in types], [_Shape(types[i]) for i in floats]
        with self._rules.at(level + 1):
            made_rule = _closed(_inner_of_types(rule, *shapes, f"{_name(self._fn)}_jvp"), "custom_jvp")
        attrs = {"callee": inner.func, "kind": "custom_jvp", "jvp": made_rule.func}
        return attrs, [(list(s), d) for s, d, _ in map(aval, inner.results)], inner.form, inner.weak
