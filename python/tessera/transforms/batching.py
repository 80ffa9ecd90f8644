"""Batching: `ts.vmap`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy

from .. import _core
from ..trace.jit import _name
from ..trace.tracer import Tracer, aval, current, fail, is_array
from ..tree import pytree
from .composites import batched_by_rules
from .inner import Inner, inline, outside, unwrap


def vmap(fn: Callable, in_axes: Any = 0, out_axes: Any = 0, *, axis_size: int | None = None) -> Callable:
    """Vectorises a function of one example over many, along ``in_axes`` of the arguments (``None``: the same for all) and
    ``out_axes`` of the results (``None``: a result that is the same for all, given once). ``axis_size`` says how many there
    are, where no argument does."""
    inner_fn = unwrap(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is None:
            return outside(lambda *a, **k: _vmap(inner_fn, in_axes, out_axes, a, k, axis_size), args, kwargs, _name(inner_fn))
        return _vmap(inner_fn, in_axes, out_axes, args, kwargs, axis_size)

    # They are about one example.
    call.__annotations__ = {}
    return call


def _spread(axes: Any, tree: Any, what: str) -> list:
    """One axis for each leaf of a tree; ``axes`` is one for all or a tree above."""
    leaves = pytree.opened(tree)[0]
    if axes is None or isinstance(axes, int):
        return [axes] * len(leaves)
    if isinstance(axes, (tuple, list)) and isinstance(tree, (tuple, list)) and len(axes) == len(tree):
        return [v for a, t in zip(axes, tree, strict=True) for v in _spread(a, t, what)]
    if isinstance(axes, dict) and isinstance(tree, dict) and axes.keys() == tree.keys():
        return [v for k in pytree._sorted_keys(tree) for v in _spread(axes[k], tree[k], what)]
    raise fail(
        "E_ARGUMENT",
        f"expected `{what}` to be one axis, or a tree of them like the {'results' if what == 'out_axes' else 'arguments'}, got {axes!r}",
        "write `out_axes=0`, or a tuple with an entry for each result" if what == "out_axes" else
        "write `in_axes=0`, or a tuple with an entry for each argument and None for those that are not mapped",
    )


def _vmap(fn: Callable, in_axes: Any, out_axes: Any, args: tuple, kwargs: dict, axis_size: int | None = None) -> Any:
    spread = _spread(in_axes, args, "in_axes") + [0] * len(pytree.opened(kwargs)[0])
    leaves = pytree.opened((args, kwargs))[0]
    sizes, axes, inner_types = set(), [], []
    # Of all leaves, the axis that is mapped.
    taken: list[int | None] = []
    for leaf, axis in zip(leaves, spread, strict=True):
        taken.append(None)
        if not is_array(leaf):
            continue
        shape, dtype, weak = aval(leaf)
        if axis is None or not shape:
            if axis is not None and isinstance(leaf, (Tracer, numpy.ndarray)):
                raise fail("E_SHAPE_MISMATCH", f"vmap: expected an argument with axis {axis}, got one without axes",
                           "say `None` for it in `in_axes`")  # fmt: skip
            axes.append(None)
            inner_types.append((shape, dtype, weak))
            continue
        if not -len(shape) <= axis < len(shape):
            raise fail(
                "E_SHAPE_MISMATCH",
                f"vmap: expected an argument with axis {axis}, got shape {list(shape)}",
                "choose an axis that the array has, or None",
            )
        at = taken[-1] = axis % len(shape)
        axes.append(at)
        sizes.add(shape[at])
        inner_types.append((shape[:at] + shape[at + 1 :], dtype, weak))
    if axis_size is not None:
        sizes.add(int(axis_size))
    if len(sizes) != 1:
        raise fail(
            "E_SHAPE_MISMATCH",
            f"vmap: expected mapped axes of one extent, got {', '.join(sorted(map(str, sizes))) or 'none'}",
            "map axes of one extent; `None` in `in_axes` leaves an argument unmapped" if sizes else
            "map an argument, or say how many there are: `ts.vmap(f, in_axes=None, axis_size=4)`",
        )

    def inside(form: Any) -> Any:
        return pytree.reformed(form, lambda meta, i: meta if taken[i] is None else meta.without(taken[i]))

    inner = Inner(fn, args, kwargs, avals=inner_types, reform=inside)
    outs = []
    for axis, result, place in zip(_spread(out_axes, inner.result, "out_axes"), inner.results, inner.places, strict=True):
        if axis is not None and not -result.ndim - 1 <= axis <= result.ndim:
            raise _core.error("E_SHAPE_MISMATCH", f"vmap: expected `out_axes` between {-result.ndim - 1} and {result.ndim} for a result of "
                              f"{result.ndim} axes, got {axis}", "the examples lie along this axis of the result", None, None, place)  # fmt: skip
        outs.append(None if axis is None else axis % (result.ndim + 1))
    axes += [None] * len(inner.captured)
    func = batched_by_rules(inner.program, inner.func, axes, outs, sizes.pop())
    form = pytree.reformed(inner.form, lambda meta, i: meta if outs[i] is None else meta.stacked(outs[i]))
    return pytree.unflatten(form, inline(inner.program, func, inner.arguments(), inner.weak))
