"""Functions with derivatives of their own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from . import _tree
from ._jit import _name
from ._promote import is_float
from ._trace import Tracer, aval, current, emit, fail, is_array, outermost, weakened
from ._transforms import Inner, _outside


class _Rules(threading.local):
    """Whether this thread is tracing a function with its rules."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: Any) -> None:
        self.depth -= 1


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
        if self._rules.depth:
            # The rule itself calls the function: there it is what it says.
            return self._fn(*args)
        with self._rules:
            return self._traced(args)

    def _traced(self, args: tuple) -> Any:
        fixed = {i: args[i] for i in self._nondiff}
        moving = tuple(a for i, a in enumerate(args) if i not in fixed)

        def whole(fn: Callable) -> Callable:
            def call(*rest: Any) -> Any:
                more = iter(rest)
                return fn(*(fixed[i] if i in fixed else next(more) for i in range(len(args))))

            return functools.update_wrapper(call, fn)

        inner = _closed(Inner(whole(self._fn), moving, {}, name=_name(self._fn)), "custom_vjp")
        residual_form: dict[str, Any] = {}

        def forward(*rest: Any) -> Any:
            y, residuals = whole(self._fwd)(*rest)  # type: ignore[arg-type]
            residual_form["form"] = _tree.flatten(residuals)[1]
            return y, residuals

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
        bwd = _closed(_inner_of_types(backward, fake_res, fake_cts, f"{_name(self._fn)}_bwd"), "custom_vjp")
        types = [(list(s), d) for s, d, _ in y_types]
        attrs = {"callee": inner.func, "kind": "custom_vjp", "fwd": fwd.func, "bwd": bwd.func}
        made = emit("call", [], attrs, groups={"values": inner.arguments()}, results=types)
        return _tree.unflatten(inner.form, weakened(made, inner.weak))


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
    call the function: there it is what its text says, and is differentiated as that."""

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
        if self._rules.depth:
            return self._fn(*args)
        with self._rules:
            return self._traced(args)

    def _traced(self, args: tuple) -> Any:
        inner = _closed(Inner(self._fn, args, {}), "custom_jvp")
        leaves, form = _tree.flatten(args)
        types = inner.avals
        floats = [i for i, t in enumerate(types) if is_float(t[1])]

        def rule(primals: list, tangents: list) -> Any:
            from . import xp

            given = dict(zip(floats, tangents, strict=True))
            moved = [given[i] if i in given else xp.zeros(t[0], dtype=t[1]) for i, t in enumerate(types)]
            y, dy = self._rule(_tree.unflatten(form, primals), _tree.unflatten(form, moved))  # type: ignore[misc]
            ys, dys = _tree.leaves(y), _tree.leaves(dy)
            return ys, [d for v, d in zip(ys, dys, strict=True) if is_float(aval(v)[1])]

        made_rule = _closed(
            _inner_of_types(rule, [_Shape(t) for t in types], [_Shape(types[i]) for i in floats], f"{_name(self._fn)}_jvp"), "custom_jvp"
        )
        attrs = {"callee": inner.func, "kind": "custom_jvp", "jvp": made_rule.func}
        results = [(list(s), d) for s, d, _ in map(aval, inner.results)]
        made = emit("call", [], attrs, groups={"values": inner.arguments()}, results=results)
        return _tree.unflatten(inner.form, weakened(made, inner.weak))
