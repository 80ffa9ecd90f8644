"""Derivatives as a namespace, and as a decorator: ``@ts.autodiff`` or ``@ts.autodiff(wrt=("w",))`` marks a function as one to
differentiate, and by which arguments."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

from .transforms.custom_rules import custom_jvp, custom_vjp
from .transforms.gradcheck import gradcheck
from .transforms.batching import vmap
from .transforms.derivatives import (
    grad,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jvp,
    stop_gradient,
    value_and_grad,
    vjp,
)
from .transforms.remat import checkpoint

__all__ = [
    "checkpoint", "custom_jvp", "custom_vjp", "grad", "gradcheck", "hessian", "hvp", "jacfwd", "jacrev", "jvp",
    "stop_gradient", "value_and_grad", "vjp", "vmap",
]  # fmt: skip


def _mark(fn: Callable | None = None, *, wrt: Any = None) -> Any:
    if fn is None:
        return lambda inner: _mark(inner, wrt=wrt)
    if wrt is not None:
        fn._tessera_wrt = wrt  # type: ignore[attr-defined]
    return fn


class _Callable(types.ModuleType):
    def __call__(self, fn: Callable | None = None, **options: Any) -> Any:
        return _mark(fn, **options)


# A module that can be called: both spellings are in use.
sys.modules[__name__].__class__ = _Callable
