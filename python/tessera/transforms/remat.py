"""Checkpoints with a policy: which inner values are kept for the reverse pass. The rest is computed again.

The function is traced three times: as it is; with the values that are kept as further results; and as what the reverse pass
differentiates, where a kept value stands for what made it, and has its derivative. What nothing needs then is left out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ..base.promotion import is_float
from ..trace.tracer import Tracer, as_tracer, aval, current, emit, fail, is_array, tracing
from ..tree import pytree


class _Modes(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Mode] = []


_modes = _Modes()


class _Counting:
    """A builder that knows how many regions are open."""

    def __init__(self, builder: Any) -> None:
        self._builder, self.depth = builder, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def open(self, *args: Any) -> Any:
        made = self._builder.open(*args)
        self.depth += 1
        return made

    def close(self, *args: Any) -> Any:
        made = self._builder.close(*args)
        self.depth -= 1
        return made

    def abandon(self) -> None:
        self._builder.abandon()
        self.depth -= 1


class _Mode:
    """A function that is traced with a policy: values are gathered, or given back where they were."""

    def __init__(self, policy: Any, given: list | None) -> None:
        self.policy, self.given, self.saved = policy, given, []
        self.frame = current()
        assert self.frame is not None
        self.frame.builder = _Counting(self.frame.builder)

    def __enter__(self) -> _Mode:
        _modes.stack.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _modes.stack.pop()


def saveable(x: Tracer, kind: str) -> Tracer:
    """A value that a policy may keep: a matmul, or one that has a name."""
    mode = _modes.stack[-1] if _modes.stack else None
    # Values of loops and branches are made in each iteration: they are not kept.
    if mode is None or mode.frame is not current() or mode.frame.builder.depth or kind not in mode.policy:
        return x
    if mode.given is None:
        mode.saved.append(x)
        return x
    held = mode.given[len(mode.saved)]
    mode.saved.append(x)
    return _stands_for(x, held)


def _stands_for(x: Tracer, held: Tracer) -> Tracer:
    """``held``, with the derivative of ``x``."""
    from .custom_rules import custom_jvp

    if not is_float(x._dtype):
        return held
    pick = custom_jvp(lambda made, kept: kept)
    pick.defjvp(lambda primals, tangents: (primals[1], tangents[0]))
    return pick(x, held)


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
    """Calls a function inside of a trace, so that its reverse pass keeps what the policy says."""
    from .derivatives import Inner, inline

    plain = Inner(fn, args, kwargs)

    def gathering(*a: Any, **k: Any) -> Any:
        with _Mode(policy, None) as mode:
            return fn(*a, **k), list(mode.saved)

    forward = Inner(gathering, args, kwargs, name=f"{plain.func}_keep")
    count = len(plain.results)
    kept = [aval(v) for v in forward.results[count:]]

    def replayed(held: list, a: tuple, k: dict) -> Any:
        with _Mode(policy, held):
            return fn(*a, **k)

    # What the gathered values are inside of their frame is not what they are here: their types stand for them.
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
        halves = again.program.vjp(again.func, [i + len(kept) for i in wrt])
        made = inline(again.program, halves[0], full)
        return inline(again.program, halves[1], [*made[len(y_types):], *cts])

    bwd = _function(f"{plain.func}_bwd", [*kept, *types, *(t for t in y_types if is_float(t[1]))], backward)
    attrs = {"callee": plain.func, "kind": "custom_vjp", "fwd": fwd, "bwd": bwd, "plain": plain.func}
    made = emit("call", [], attrs, groups={"values": outer}, results=[(list(s), d) for s, d, _ in y_types])
    return pytree.unflatten(plain.form, made)


def _again(fn: Callable, kept: list, args: tuple, kwargs: dict, name: str) -> Any:
    from .derivatives import Inner

    class Shape:
        """What stands for a kept value while its types are all that is known."""

        def __init__(self, kind: tuple) -> None:
            self.shape, self.dtype, _ = kind

        def __dlpack__(self) -> None: ...

    held = [Shape(k) for k in kept]
    own = [aval(v) for v in pytree.leaves((args, kwargs)) if is_array(v)]
    return Inner(fn, (held, args, kwargs), {}, avals=[*kept, *own], name=name)


def _function(name: str, types: list, body: Callable) -> str:
    """A function of values of these types, beside the current one."""
    with tracing(name) as frame:
        given = [frame.param("x", *t) for t in types]
        frame.finish([frame.lift(as_tracer(v)) for v in body(given)])
    assert not frame.captured
    return frame.name
