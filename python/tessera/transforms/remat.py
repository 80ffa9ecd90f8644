"""Rematerialisation, `ts.checkpoint`: a policy says which inner values are kept for the reverse pass. The rest is recomputed.

The function is traced three times: as it is; with the values that are kept as further results; and as what the reverse pass
differentiates, where a kept value stands for what made it, and has its derivative. What nothing needs then is left out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..base.promotion import is_float
from ..trace.argnums import chosen
from ..trace.saved_values import Saving, saveable
from ..trace.tracer import Tracer, as_tracer, aval, current, emit, fail, is_array, tracing, weakened
from ..tree import pytree
from .composites import complete
from .custom_rules import custom_jvp
from .inner import Inner, inline, unwrap


def _stands_for(x: Tracer, held: Tracer) -> Tracer:
    """``held``, with the derivative of ``x``."""
    if not is_float(x._dtype):
        return held
    pick = custom_jvp(lambda made, kept: kept)
    pick.defjvp(lambda primals, tangents: (primals[1], tangents[0]))
    return pick(x, held)


def checkpoint(fn: Callable | None = None, *, policy: Any = None, static_argnums: int | tuple[int, ...] = ()) -> Callable:
    """A function whose inner values are not kept for the reverse pass but computed again. ``policy`` says what is kept all the same:
    ``"nothing"``, ``"dots"`` (results of matmuls and convolutions), a tuple of names that `ts.checkpoint_name` gives, or ``"everything"``.
    Values of loops and branches inside the function are not kept. Arguments of ``static_argnums`` are values of Python in it, which
    numbers are not otherwise."""
    if fn is None:
        return functools.partial(checkpoint, policy=policy, static_argnums=static_argnums)
    inner_fn, keeps = unwrap(fn), policy_of(policy)
    nums, names = chosen(inner_fn, "static", static_argnums, ())

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is None or keeps is None:
            return inner_fn(*args, **kwargs)
        fixed = {n % len(args): args[n] for n in nums if -len(args) <= n < len(args)}
        named = {k: v for k, v in kwargs.items() if k in names}

        @functools.wraps(inner_fn)
        def moved(*rest: Any, **more: Any) -> Any:
            given = iter(rest)
            return inner_fn(*(fixed[i] if i in fixed else next(given) for i in range(len(args))), **more, **named)

        if fixed or named:
            moving, more = tuple(a for i, a in enumerate(args) if i not in fixed), {k: v for k, v in kwargs.items() if k not in names}
        else:
            moving, more = args, kwargs
        target = moved if fixed or named else inner_fn
        if keeps:
            return kept_call(target, keeps, moving, more)
        inner = Inner(target, moving, more)
        types = [(list(s), d) for s, d, _ in map(aval, inner.results)]
        made = emit("call", [], {"callee": inner.func, "kind": "checkpoint"}, groups={"values": inner.arguments()}, results=types)
        return pytree.unflatten(inner.form, weakened(made, inner.weak))

    return call


def checkpoint_name(x: Any, name: str) -> Any:
    """The same values under a name, for the policy of `ts.checkpoint`."""
    if not isinstance(name, str):
        raise fail("E_TYPE", f"expected a name, got {type(name).__name__}", 'write `ts.checkpoint_name(x, "hidden")`')
    if current() is None:
        return x
    return pytree.map(lambda v: saveable(as_tracer(v), f"name:{name}"), x)


def policy_of(policy: Any) -> frozenset | None:
    """What a policy keeps; None for everything."""
    if policy is None or policy == "nothing":
        return frozenset()
    if policy == "everything":
        return None
    if policy == "dots":
        return frozenset(["dots"])
    if isinstance(policy, (tuple, list, set, frozenset)) and all(isinstance(n, str) for n in policy):
        return frozenset(f"name:{n}" for n in policy)
    raise fail("E_ARGUMENT", f"expected a policy, got {policy!r}",
               'write "nothing", "everything", "dots", or a tuple of names that `ts.checkpoint_name` gives')  # fmt: skip


def kept_call(fn: Callable, policy: frozenset, args: tuple, kwargs: dict) -> Any:
    """Calls a function inside a trace, so that its reverse pass keeps what the policy says."""
    plain = Inner(fn, args, kwargs)

    def gathering(*a: Any, **k: Any) -> Any:
        with Saving(policy, None) as mode:
            return fn(*a, **k), list(mode.saved)

    forward = Inner(gathering, args, kwargs, name=f"{plain.func}_keep")
    count = len(plain.results)
    kept = [aval(v) for v in forward.results[count:]]

    def replayed(held: list, a: tuple, k: dict) -> Any:
        with Saving(policy, held, _stands_for):
            return fn(*a, **k)

    # The gathered values belong to their own frame: only their types are used here.
    again = _again(replayed, kept, args, kwargs, f"{plain.func}_again")
    outer = plain.arguments()
    if [id(t) for t in again.captured] != [id(t) for t in plain.captured] or [id(t) for t in forward.captured] != [id(t) for t in plain.captured]:
        raise fail("E_GRAPH_INVALID", "expected a function that uses the same values each time it is called", "make it a function of its arguments")
    types = [aval(v) for v in outer]
    n_own = len(plain.leaves)
    # Kept for the reverse pass: the arguments, and what the policy says.
    fwd = _function(f"{plain.func}_fwd", types, lambda given: [*inline(plain.program, forward.func, given), *given])
    y_types = [aval(v) for v in plain.results]
    wrt = [i for i, (_, d, _) in enumerate(types) if is_float(d)]

    def backward(given: list) -> list:
        saved, values, cts = given[: len(kept)], given[len(kept): len(kept) + len(types)], given[len(kept) + len(types):]
        # Nothing may be taken from the first run.
        values = emit("opt_barrier", [], groups={"values": values}) if values else []
        full = [*saved, *values[:n_own], *values[n_own:]]
        complete(again.program, again.func)
        halves = again.program.vjp(again.func, [i + len(kept) for i in wrt])
        made = inline(again.program, halves[0], full)
        return inline(again.program, halves[1], [*made[len(y_types):], *cts])

    bwd = _function(f"{plain.func}_bwd", [*kept, *types, *(t for t in y_types if is_float(t[1]))], backward)
    attrs = {"callee": plain.func, "kind": "custom_vjp", "fwd": fwd, "bwd": bwd, "plain": plain.func}
    made = emit("call", [], attrs, groups={"values": outer}, results=[(list(s), d) for s, d, _ in y_types], weak=False)
    return pytree.unflatten(plain.form, made)


def _again(fn: Callable, kept: list, args: tuple, kwargs: dict, name: str) -> Any:
    class Shape:
        """What stands for a kept value while its types are all that is known."""

        def __init__(self, kind: tuple) -> None:
            self.shape, self.dtype, _ = kind

        def __dlpack__(self) -> None: ...

    held = [Shape(k) for k in kept]
    own = [aval(v) for v in pytree.opened((args, kwargs))[0] if is_array(v)]
    return Inner(fn, (held, args, kwargs), {}, avals=[*kept, *own], name=name)


def _function(name: str, types: list, body: Callable) -> str:
    """A function of values of these types, beside the current one."""
    with tracing(name) as frame:
        given = [frame.param("x", *t) for t in types]
        frame.finish([frame.lift(as_tracer(v)) for v in body(given)])
    assert not frame.captured
    return frame.name
