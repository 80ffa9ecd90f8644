"""Where modules were before they were sorted into packages. Pickles and checkpoints name classes and functions by these, and builds of
`_core` import some of them."""

from __future__ import annotations

import sys
from typing import Any

from .deprecation import warn

_MODULES = {
    "_annotations": "base.annotations",
    "_api": "kernel.builtins",
    "_arrays": "arrays.create",
    "_bench": "tools.bench",
    "_checkpoint": "checkpoint.files",
    "_control": "trace.control",
    "_control_more": "trace.eval_shape",
    "_custom": "transforms.custom_rules",
    "_dtypes": "base.dtypes",
    "_errors": "base.errors",
    "_fault": "base.crash_report",
    "_func": "kernel.func",
    "_functional": "nn._functional",
    "_gradcheck": "transforms.gradcheck",
    "_host_array": "arrays.host",
    "_jit": "trace.jit",
    "_kernel": "kernel.kernel_fn",
    "_losses": "nn._losses",
    "_place": "base.caller",
    "_remat": "transforms.remat",
    "_schedule": "kernel.schedule",
    "_trace": "trace.tracer",
    "_transforms": "transforms.derivatives",
    "_tree": "tree.pytree",
    "_tuning": "kernel.autotune",
    "constraint": "base.constraint",
}


#: Attributes of objects that were renamed.
_ATTRIBUTES = {"turns": "iterations"}


def former_attribute(owner: Any, name: str) -> Any:
    """The attribute that had this name; for ``__getattr__`` of classes whose attributes were renamed."""
    if name not in _ATTRIBUTES:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    warn(name, _ATTRIBUTES[name])
    return getattr(owner, _ATTRIBUTES[name])


def install() -> None:
    """Lets these modules be found by their former names; those that are not loaded are left out."""
    for old, new in _MODULES.items():
        if f"tessera.{new}" in sys.modules:
            sys.modules[f"tessera.{old}"] = sys.modules[f"tessera.{new}"]
