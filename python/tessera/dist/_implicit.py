"""Arrays that a call brings to another placement without a request to: the warning where that gathers much."""

from __future__ import annotations

import functools
import os
from math import prod
from typing import Any

from .. import _core
from ..arrays.create import numpy_dtype
from ..trace.execute import on_compiled
from ._mesh import Mesh, warn
from ._spec import as_spec

#: The part of a device's memory that one array may take without a warning.
_PART = 4
_warned: set[tuple[Any, ...]] = set()


@functools.cache
def device_bytes(device: str | None) -> int:
    """The memory of a device; of the host for None."""
    if device is not None:
        return int(_core.device_memory_stats(device)["device_total"])
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def gathers(x: Any, wanted: Any, mesh: Mesh, what: str) -> None:
    """``x`` is a `DistArray`. Says, once for each way, that a rank gets more than a quarter of its device's memory by a call that does not say `reshard`."""
    spec = as_spec(wanted, x.ndim)
    placed = _core.PlacedArray(mesh._grid, spec._core, list(x.shape), [])
    item = numpy_dtype(x.dtype).itemsize
    before, after = (max((prod(_extents(runs)) for _, runs, _ in p.blocks()), default=0) * item for p in (x._placed, placed))
    if after <= before:
        return
    known = device_bytes(mesh.player(0))
    if after * _PART <= known:
        return
    key = what, mesh, x.shape, str(x.dtype), x._placed.spec(), placed.spec()
    if key in _warned:
        return
    _warned.add(key)
    blocks = " × ".join(map(str, _largest(placed)))
    warn(f"W_RESHARD: {what} brings an array {x.shape} of {x.dtype} from {x._placed.spec()} to {placed.spec()}: {blocks} × {item} bytes = {_size(after)} "
         f"on a rank, more than a quarter of the {_size(known)} of {mesh.player(0) or 'the host'}")  # fmt: skip


def compiled(made: Any) -> None:
    """Says where a program gathers more than a quarter of the memory of its device for an op, and not because the function says so."""
    known = None
    for c in made.collectives:
        if c.kind != "all_gather" or c.is_written:
            continue
        known = device_bytes(None) if known is None else known
        if c.nbytes * _PART > known:
            along = ", ".join(f"`{a}`" for a in c.axes)
            warn(f"W_RESHARD: this line gathers a value along {along}: {_size(c.nbytes)} on a rank, more than a quarter of the {_size(known)} of the host", c.place)


on_compiled.append(compiled)


def _extents(runs: list[list[tuple[int, int, int]]]) -> list[int]:
    return [sum(count for _, _, count in dim) for dim in runs]


def _largest(placed: Any) -> list[int]:
    return max((_extents(runs) for _, runs, _ in placed.blocks()), key=prod, default=[0])


def _size(nbytes: int) -> str:
    for unit, of in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= of:
            return f"{nbytes / of:.1f} {unit}"
    return f"{nbytes} bytes"

