"""How a matmul is computed, by shapes, dtypes, strides and alignment: the schedule of the compiler's cost model
(`crates/cost/src/matmul`), which plans of whole functions use too, and what memory layouts add to it.

The transposed matmul ``B^T A^T`` is computed instead, on the same memory, in two cases: the result has few rows, or the
operands are tf32 and the right matrix is not contiguous along ``K``. WGMMA reads a tf32 operand from shared memory only with
``K`` contiguous, and the left operand can come from registers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import tessera as ts

from .. import _core
from ..base.numeric_profile import profile
from . import arrays
from .gemm import Tile


#: How many of the plans that were not chosen are shown.
RUNNERS_UP = 3


@dataclass(frozen=True)
class Predicted:
    """What the cost model predicts: the seconds of the chosen plan, what limits it, and the next best plans, each as rows and
    columns of a tile, chunks of ``K`` and seconds."""

    seconds: float
    limit: str
    others: tuple[tuple[int, int, int, float], ...] = ()

    def __str__(self) -> str:
        text = f"predicted {1e6 * self.seconds:.1f} us (mostly {self.limit})"
        others = [f"{bm}x{bn}{f' in {s} chunks' if s > 1 else ''} {1e6 * t:.1f} us" for bm, bn, s, t in self.others]
        return text + (f"; then {', '.join(others)}" if others else "")


@dataclass(frozen=True)
class Plan:
    """How a matmul is computed. ``str(plan)`` is what a user reads."""

    tile: tuple[int, int, int]
    #: Chunks of ``K``; more than 1 are combined by a second launch.
    split: int = 1
    #: Whether the transposed matrices are multiplied.
    swapped: bool = False
    #: Operands that are first copied to rows that start at multiples of 128 bytes.
    padded: tuple[str, ...] = ()
    #: Operands that are first copied so that they are contiguous along ``K``.
    turned: tuple[str, ...] = ()
    num_warps: int = 0
    num_stages: int = 0
    #: CTAs of a cluster along the rows and columns of tiles: operands they share are loaded once (multicast). 0: the compiler's choice.
    cluster_m: int = 0
    cluster_n: int = 0
    #: "pingpong": warpgroups take whole tiles alternately; "cooperative": they divide each.
    warp_specialization: str = ""
    #: Whether groups are persistent, and take one tile after another. False where all tiles are resident together.
    persistent: bool = True
    #: The prediction, where the cost model chose.
    predicted: Predicted | None = None

    def for_kernel(self, precision: str = "default") -> Tile:
        """As kernels take it."""
        return _tile(*self.tile, self.num_warps, self.num_stages, self.cluster_m, self.cluster_n, self.warp_specialization,
                     int(self.persistent), precision)  # fmt: skip

    def __str__(self) -> str:
        words = ["tiles of " + "x".join(map(str, self.tile))]
        if self.swapped:
            words.append("of the transposed matrices")
        if self.split > 1:
            words.append(f"K in {self.split} chunks that a second launch adds up")
        if self.cluster_m > 1 or self.cluster_n > 1:
            words.append(f"clusters of {max(self.cluster_m, 1)}x{max(self.cluster_n, 1)} tiles")
        if self.padded:
            once = " in one launch" if len(self.padded) > 1 else ""
            words.append(f"{' and '.join(self.padded)} copied to rows on multiples of 128 bytes first{once}")
        if self.turned:
            words.append(f"{' and '.join(self.turned)} copied along K first")
        return ", ".join(words) + (f"; {self.predicted}" if self.predicted else "")


#: The same record for the same tile: it is not made for every call.
_tile = functools.lru_cache(maxsize=1024)(Tile)


@functools.lru_cache(maxsize=4096)
def group_tile(T: int, G: int, N: int, K: int, of: Any) -> tuple[int, int, int]:
    """The tile of a grouped matmul of ``T`` rows in ``G`` groups: rows by the mean size of a group, and the width that is fastest
    by the cost model."""
    bm = 128 if T >= 128 * G else 64
    # A group ends in the middle of a tile, on the average.
    bn = _core.grouped_columns(bm, T // bm + -(-G // 2), N, K, of)
    return bm, bn, max(128 // of.itemsize, 16)


#: Bytes of a cache line of a GPU.
LINE = 128
#: From this side of the result on, each row of an operand is read many times.
WORTH_PADDING = 256
#: Bytes of a row below which it does not matter where rows begin.
SHORT_ROW = 64
#: Bytes of asynchronous copies: of the first number they keep a pipeline full, of fewer than the second there are none.
ASYNC_BYTES = (8, 4)


@functools.lru_cache(maxsize=4096)
def plan(
    P: int,
    M: int,
    N: int,
    K: int,
    of: Any,
    on_device: bool,
    aligned: tuple[bool, bool],
    strict: bool,
    *,
    row_bytes: int = LINE,
    out_bytes: int | None = None,
    rows_on: tuple[int, int] = (8, 8),
) -> Plan:
    """How ``[P, M, K]`` by ``[P, K, N]`` of a dtype is computed. ``aligned`` says which operands have rows that start at multiples
    of 16 bytes, ``row_bytes`` the alignment of those that do, ``rows_on`` of those that do not."""
    if not on_device:
        return Plan((128, 128, max(128 // of.itemsize, 16)))
    odd = tuple(None if good else on for good, on in zip(aligned, rows_on))
    out_bytes = of.itemsize if out_bytes is None else out_bytes
    found = _core.matmul_schedule(P, M, N, K, of, out_bytes, row_bytes, odd, not strict)
    tile, split, swapped, copied, cluster, stages, persistent, ranked = found
    padded = tuple(name for name, copy in zip("AB", copied) if copy)
    (*_, seconds, limit), *others = ranked
    predicted = Predicted(seconds, limit, tuple(row[:4] for row in others[:RUNNERS_UP]))
    return Plan(tile, split, swapped, padded, num_stages=stages, cluster_m=cluster[0], cluster_n=cluster[1],
                persistent=persistent, predicted=predicted)  # fmt: skip


def _rows_on(x: Any) -> int:
    """On multiples of how many bytes all rows begin: 16, or one of `ASYNC_BYTES`, or 1. Short rows count as wide enough."""
    wide, least = ASYNC_BYTES
    found = next((n for n in (16, wide, least) if is_aligned(x, n)), 1)
    along = next((n for axis, n in enumerate(x.shape) if n > 1 and arrays.lies_along(x, axis)), 1)
    return wide if found == least and along * arrays.itemsize(x) < SHORT_ROW else found


def is_aligned(x: Any, to: int = 16) -> bool:
    """Whether every row starts at a multiple of ``to`` bytes, and one of the last two axes is contiguous."""
    each = arrays.itemsize(x)
    unit = each if arrays.strides_in_elements(x) else 1
    steps = [s * unit for s, n in zip(arrays.strides(x), x.shape) if n > 1]
    return arrays.address(x) % to == 0 and all(s > 0 and (s == each or s % to == 0) for s in steps)


def transposed_operands(a: Any, b: Any, precision: str) -> tuple[str, ...]:
    """Operands that tensor cores cannot read from memory with their strides: only 16-bit elements may be contiguous along the
    axis other than ``K``."""
    narrow = arrays.itemsize(a) == 1 or precision == "tf32"
    if not narrow or not arrays.on_device(a) or min(a.shape[-2], b.shape[-1]) < WORTH_PADDING:
        return ()
    return tuple(name for name, x, axis in (("A", a, -1), ("B", b, -2)) if not arrays.lies_along(x, axis))


def planned(a: Any, b: Any, tile: Any, precision: str) -> Plan:
    """How ``[P, M, K]`` by ``[P, K, N]`` is computed, given the strides and alignment of these arrays."""
    (P, M, K), N = a.shape, b.shape[-1]
    strict = str(profile()) == "strict"
    aligned = (is_aligned(a), is_aligned(b))
    rows_on = (_rows_on(a), _rows_on(b))
    good_rows = [x for x, good in zip((a, b), aligned) if good]
    row_bytes = LINE if all(is_aligned(x, LINE) for x in good_rows) else 16
    of, on_device = ts.tf32 if precision == "tf32" else arrays.dtype_of(a), arrays.on_device(a)
    turned = transposed_operands(a, b, precision)
    if precision == "tf32" and turned == ("B",):
        # The left matrix may have any strides: its elements go through registers.
        chosen = plan(P, N, M, K, of, on_device, aligned[::-1], strict, row_bytes=row_bytes)
        chosen = replace(chosen, swapped=True, padded=tuple("AB"["BA".index(name)] for name in chosen.padded))
        turned = ()
    else:
        chosen = plan(P, M, N, K, of, on_device, aligned, strict, row_bytes=row_bytes, rows_on=rows_on)
        turned = tuple(name for name in turned if name != "A" or precision != "tf32")
    if tile is not None:
        chosen = pinned(chosen, tile)
    padded = tuple(name for name in chosen.padded if name not in turned)
    return replace(chosen, turned=turned, padded=padded)


def pinned(chosen: Plan, tile: Any) -> Plan:
    """A plan with the fields that the caller gives: ``(BM, BN, BK)`` or a dict of fields of `Plan`."""
    fields = dict(tile) if isinstance(tile, dict) else {"tile": tile}
    known = set(Plan.__dataclass_fields__) - {"predicted"}
    if unknown := sorted(set(fields) - known):
        got = ", ".join(unknown)
        raise _core.error("E_ARGUMENT", f"`tile`: expected fields of {', '.join(sorted(known))}, got {got}", "leave it out")
    sides = fields.get("tile", chosen.tile)
    if isinstance(sides, str):
        raise _core.error("E_ARGUMENT", f"`tile`: expected three positive integers or \"tune\", got {sides!r}", "leave it out")
    sides = tuple(sides)
    if len(sides) != 3 or any(not isinstance(n, int) or n < 1 for n in sides):
        raise _core.error("E_ARGUMENT", f"`tile`: expected three positive integers, got {sides}", "write `tile=(128, 256, 64)`")
    return Plan(**{**chosen.__dict__, "predicted": None, **fields, "tile": sides})
