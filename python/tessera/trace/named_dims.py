"""Annotations of a compiled function's parameters: which extents of its arguments have names."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from ..base.annotations import TensorType
from ..base.source import closure_of
from ..tree import pytree
from .tracer import fail


def annotations_of(fn: Callable) -> dict[str, Any]:
    """The annotations that are ``Tensor[...]``, or trees of them; others are not about arrays."""
    found = {}
    for name, given in getattr(fn, "__annotations__", {}).items():
        if isinstance(given, str):
            try:
                given = eval(given, fn.__globals__, closure_of(fn))  # type: ignore[attr-defined]
            except Exception:
                # An annotation for others, such as a name that only a type checker imports.
                continue
        if name != "return" and _has_tensor(given):
            found[name] = given
    return found


def _has_tensor(given: Any) -> bool:
    if isinstance(given, dict):
        return any(map(_has_tensor, given.values()))
    if isinstance(given, (list, tuple)):
        return any(map(_has_tensor, given))
    return isinstance(given, TensorType)


def types_of(fn: Callable, annotations: dict[str, Any], args: tuple, kwargs: dict) -> list[TensorType | None]:
    """What is said of each leaf of the arguments."""
    params = [p.name for p in inspect.signature(fn).parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    out: list[TensorType | None] = []
    for i, arg in enumerate(args):
        name = params[i] if i < len(params) else f"arg{i}"
        out += _matched(annotations.get(name), arg, name)
    for key in pytree._sorted_keys(kwargs):
        out += _matched(annotations.get(key), kwargs[key], key)
    return out


def _matched(given: Any, arg: Any, path: str) -> list[TensorType | None]:
    if isinstance(given, TensorType):
        if len(pytree.leaves(arg)) == 1:
            return [given]
        if arg is None:
            return []
        raise fail("E_TYPE", f"expected `{path}` to be one array, as its annotation says, got {type(arg).__name__}",
                   'annotate a dict or a list of arrays with a dict or a list: `{"w": ts.Tensor["n", 4]}`')  # fmt: skip
    if isinstance(given, dict) and isinstance(arg, dict):
        return [t for k in pytree._sorted_keys(arg) for t in _matched(given.get(k), arg[k], f"{path}[{k!r}]")]
    if isinstance(given, (list, tuple)) and isinstance(arg, (list, tuple)) and len(given) == len(arg):
        return [t for i, (g, a) in enumerate(zip(given, arg, strict=True)) for t in _matched(g, a, f"{path}[{i}]")]
    return [None] * len(pytree.leaves(arg))


def extents(types: list[TensorType | None], avals: list, paths: list[str], fixed: dict[str, int]) -> tuple[list, dict[str, int]]:
    """The shapes of the arguments with names in them, and the sizes that the names have. ``fixed`` names stay numbers."""
    sizes: dict[str, int] = {}
    first: dict[str, str] = {}
    shapes: list = []
    for said, known, path in zip(types, avals, paths, strict=True):
        if known is None:
            shapes.append(None)
            continue
        shape, dtype = known[0], known[1]
        if said is not None and said.dtype is not None and str(said.dtype) != dtype:
            raise fail("E_TYPE", f"expected `{path}` to be {said.dtype}, as its annotation says, got {dtype}",
                       "convert it with `.astype`, or leave the dtype out of the annotation")  # fmt: skip
        if said is None or said.dims is None:
            shapes.append(shape)
            continue
        if len(said.dims) != len(shape):
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected `{path}` to be {said}, got {list(shape)}",
                "pass an array of this rank, or change the annotation",
            )
        for axis, (dim, extent) in enumerate(zip(said.dims, shape, strict=True)):
            if dim.isidentifier() and sizes.setdefault(dim, extent) != extent:
                raise fail("E_SHAPE_MISMATCH", f"expected `{dim}` to be {sizes[dim]}, as in {first[dim]}, "
                           f"got {extent} in axis {axis} of `{path}`",
                           "a name stands for one size: pass arrays that agree, or use two names")  # fmt: skip
            first.setdefault(dim, f"axis {axis} of `{path}`")
        shapes.append(said.dims)
    for name, value in fixed.items():
        if sizes.get(name, value) != value:
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected `{name}` to be {value}, as `bindings` says, got {sizes[name]} in {first[name]}",
                "pass arrays of this size, or leave the name out of `bindings`",
            )
    for at, (said, known, path) in enumerate(zip(types, avals, paths, strict=True)):
        if said is not None and said.dims is not None and known is not None:
            pairs = enumerate(zip(said.dims, known[0], strict=True))
            shapes[at] = tuple(_extent(d, n, sizes, fixed, f"axis {k} of `{path}`") for k, (d, n) in pairs)
    return shapes, {n: v for n, v in sizes.items() if n not in fixed}


def _extent(dim: str, extent: int, sizes: dict[str, int], fixed: dict[str, int], where: str) -> Any:
    """One extent: a number, a name or a product of both."""
    if dim == "?":
        return extent
    factors = dim.split("*")
    if unknown := [f for f in factors if not f.isdigit() and f not in sizes]:
        raise fail("E_SHAPE_MISMATCH", f"expected `{unknown[0]}` of {where} to be the extent of an axis by itself too",
                   "a product of names says nothing of each: give the name to an axis of another argument")  # fmt: skip
    wanted = math.prod(int(f) if f.isdigit() else sizes[f] for f in factors)
    if wanted != extent:
        raise fail("E_SHAPE_MISMATCH", f"expected {dim} = {wanted} in {where}, got {extent}" if not dim.isdigit() else
                   f"expected {dim} in {where}, as its annotation says, got {extent}",
                   "pass an array of this extent, or name the extent in the annotation")  # fmt: skip
    open_ = [f for f in factors if not f.isdigit() and f not in fixed]
    return functools.reduce(lambda a, b: f"({a} * {b})", [str(fixed.get(f, f)) for f in factors]) if open_ else extent
