"""Builds the kernel object of a decorated function."""

from __future__ import annotations

from types import FrameType
from typing import Any, Callable, Sequence

from .. import _core
from ..base.annotations import names_in
from ..base.source import source_of
from .autotune import DEFAULTS
from .capture import Names
from .kernel_fn import Definition, KernelFn
from .parameters import Flat, is_flat
from .record_kernel import RecordKernelFn
from .require import take
from .schedule import Schedule, caller
from .signature import dims_of, params_of


def make(
    fn: Callable,
    frame: FrameType,
    *,
    candidates: list[dict[str, Any]] | None = None,
    lanes: tuple[int, ...] = (),
    target: str | None = None,
    source: str | None = None,
    require: Sequence[Any] = (),
    tuning: tuple = DEFAULTS,
    schedule: Schedule | None = None,
    parallel: str | Sequence[str] = (),
    contract: str | Sequence[str] = (),
) -> KernelFn:
    """Builds the kernel of a decorator. ``frame`` is the frame of the decorated definition."""
    found, inside = take(fn, source_of(fn, source, "ts.kernel"))
    nodes = params_of(fn, found, dict(frame.f_locals))
    flat = is_flat(nodes)
    first = Flat(nodes, ()) if flat else None
    dims = dims_of(nodes)
    definition = Definition(
        source=found,
        names=Names(fn, found, frame, dims),
        params=[] if first is None else first.rows,
        optional=() if first is None else first.optional,
        candidates=candidates or [],
        lanes=lanes,
        target=target,
        require=tuple(_constraint(c) for c in [*require, *inside]),
        tuning=tuning,
        schedules=() if schedule is None else (schedule,),
        split=_split(parallel, contract, dims),
    )
    return KernelFn(definition, fn) if flat else RecordKernelFn(definition, nodes, fn)


def _constraint(item: Any) -> tuple:
    parts = getattr(item, "_parts", None)
    if parts is None:
        raise _core.error("E_ARGUMENT", f"expected a constraint in `require=`, got {item!r}", "see `ts.constraint`")
    return parts()


def _split(parallel: Any, contract: Any, dims: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rows = []
    for what, given in (("parallel", parallel), ("contract", contract)):
        names = (given,) if isinstance(given, str) else given
        if not isinstance(names, (tuple, list)) or not all(isinstance(n, str) for n in names):
            raise _core.error("E_ARGUMENT", f"expected names of dims in `{what}=`, got {given!r}", f'write `{what}=("M", "N")`', *caller())
        known = {name for dim in dims for name in names_in(dim)}
        if unknown := [n for n in names if n not in known]:
            there = f"one of {', '.join(sorted(known))}" if known else "`ts.Tensor[\"M\", ts.f32]`"
            raise _core.error("E_ARGUMENT", f"expected names of dims of the annotations in `{what}=`, got {unknown[0]!r}", f"write {there}", *caller())
        rows.append(tuple(names))
    if both := [n for n in rows[0] if n in rows[1]]:
        raise _core.error("E_ARGUMENT", f"expected a dim in one of `parallel=` and `contract=`, got {both[0]!r} in both",
                          "blocks of a parallel dim are results of their own; those of a contracted one are added", *caller())  # fmt: skip
    return rows[0], rows[1]
