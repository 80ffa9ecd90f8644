"""Arrays on meshes as arguments of library functions that are no programs of their own where they run immediately: kernels of the host's
arrays, views of them, and results whose size depends on values. What `jit.eager` runs takes such arrays as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..tree import pytree
from . import placing
from .jit import eager
from .tracer import current


def is_given(args: tuple, kwargs: dict) -> bool:
    """Whether a call outside a trace has an array on a mesh, itself or in lists, tuples and dicts."""
    return current() is None and (_has(args) or bool(kwargs) and _has(kwargs.values()))


def _has(values: Any) -> bool:
    for v in values:
        kind = type(v)
        if pytree.is_opened(v) or (kind is tuple or kind is list) and _has(v) or kind is dict and _has(v.values()):
            return True
    return False


def traced(form: Callable | None = None) -> Callable[[Callable], Callable]:
    """For a function that has a form of primitives, by default itself inside a trace: on arrays on a mesh that form is a program, and the
    compiler places its results."""

    def decorate(fn: Callable) -> Callable:
        program = eager(fn if form is None else form)

        @functools.wraps(fn)
        def call(*args: Any, **kwargs: Any) -> Any:
            return program(*args, **kwargs) if is_given(args, kwargs) else fn(*args, **kwargs)

        return call

    return decorate


def gathered(fn: Callable) -> Callable:
    """For a function of arrays in one memory, whose results have sizes that depend on values: arrays on a mesh are gathered for it, and its
    results are copies on every rank. With ``size=`` it is a program."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("size") is None and is_given(args, kwargs):
            return placing.functions["gathered"](fn, args, kwargs)
        return fn(*args, **kwargs)

    return call
