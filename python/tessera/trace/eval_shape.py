"""Abstract evaluation: the shapes and dtypes of a function's results, without running it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..base.dtypes import DType, dtype as as_dtype
from ..tree import pytree
from .jit import Jitted, _name, _names
from .tracer import as_tracer, aval, is_array, tracing


class ShapeDtypeStruct:
    """The shape and dtype of an array without elements: what `eval_shape` gives, and takes."""

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Any, dtype: Any) -> None:
        self.shape: tuple = tuple(shape)
        self.dtype: DType = as_dtype(dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __repr__(self) -> str:
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype})"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, ShapeDtypeStruct) and (self.shape, str(self.dtype)) == (other.shape, str(other.dtype))

    def __hash__(self) -> int:
        return hash((self.shape, str(self.dtype)))


def eval_shape(fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of what ``fn`` gives for arguments of these shapes and dtypes; nothing runs. Arguments may be arrays or
    `ShapeDtypeStruct`."""
    fn = fn._fn if isinstance(fn, Jitted) else fn
    leaves, form = pytree.flatten((args, kwargs))
    names = _names(fn, args, kwargs)
    with tracing(_name(fn)) as frame:
        given = []
        for leaf, name in zip(leaves, names, strict=True):
            if isinstance(leaf, ShapeDtypeStruct):
                given.append(frame.param(name, leaf.shape, str(leaf.dtype)))
            else:
                given.append(frame.param(name, *aval(leaf)) if is_array(leaf) else leaf)
        inner_args, inner_kwargs = pytree.unflatten(form, given)
        out, out_form = pytree.flatten(fn(*inner_args, **inner_kwargs))
        types = [aval(as_tracer(v)) for v in out]
    return pytree.unflatten(out_form, [ShapeDtypeStruct(s, "f32" if w and d == "f64" else d) for s, d, w in types])
