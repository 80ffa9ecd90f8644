"""Builds the kernel object of a decorated function."""

from __future__ import annotations

from types import FrameType
from typing import Any, Callable, Sequence

from .. import _core
from ..base.source import source_of
from .autotune import DEFAULTS
from .capture import Names
from .kernel_fn import Definition, KernelFn
from .parameters import Flat, is_flat
from .record_kernel import RecordKernelFn
from .require import take
from .schedule import Schedule
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
) -> KernelFn:
    """Builds the kernel of a decorator. ``frame`` is the frame of the decorated definition."""
    found, inside = take(fn, source_of(fn, source, "ts.kernel"))
    nodes = params_of(fn, found, dict(frame.f_locals))
    flat = is_flat(nodes)
    first = Flat(nodes, ()) if flat else None
    definition = Definition(
        source=found,
        names=Names(fn, found, frame, dims_of(nodes)),
        params=[] if first is None else first.rows,
        optional=() if first is None else first.optional,
        candidates=candidates or [],
        lanes=lanes,
        target=target,
        require=tuple(_constraint(c) for c in [*require, *inside]),
        tuning=tuning,
        schedules=() if schedule is None else (schedule,),
    )
    return KernelFn(definition, fn) if flat else RecordKernelFn(definition, nodes, fn)


def _constraint(item: Any) -> tuple:
    parts = getattr(item, "_parts", None)
    if parts is None:
        raise _core.error("E_ARGUMENT", f"expected a constraint in `require=`, got {item!r}", "see `ts.constraint`")
    return parts()
