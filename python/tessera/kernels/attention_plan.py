"""Attention, before a launch: which keys queries see, the tiles, and the checks of the arguments."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any, Sequence

from .. import _core
from ..base.numeric_profile import PROFILES
from ..base.numeric_profile import current as current_profile
from ..kernel.func import Bound, Func
from . import arrays, checks, machine
from .attention import SMALLEST, Options, Span


@dataclass(frozen=True)
class Sight:
    """Which keys query ``i`` sees: from ``i + lowest`` to ``i + highest``, where they are given."""

    lowest: int | None
    highest: int | None

    @property
    def edges(self) -> int:
        """On how many sides keys are masked: 0 to 2."""
        return (self.lowest is not None) + (self.highest is not None)

    @property
    def span(self) -> Span:
        """As kernels take it."""
        return Span(self.lowest or 0, self.highest or 0, self.lowest is not None, self.highest is not None)


def sight(causal: Any, window: Any, Sq: int, Sk: int) -> Sight:
    plain = isinstance(causal, (bool, int, str)) or getattr(causal, "shape", None) == ()
    if not plain or causal not in (False, True, "top_left", "bottom_right"):
        got = checks.said(causal)
        raise _core.error("E_ARGUMENT", f'`causal`: expected True, False or "top_left", got {got}', "leave it out for none")
    offset = 0 if causal == "top_left" else Sk - Sq
    left: int | None = None
    right: int | None = 0 if causal else None
    if window is not None:
        pair = isinstance(window, (tuple, list)) and len(window) == 2
        # A side of -1 is unbounded, as in FlashAttention.
        given = [None if checks.whole(side) == -1 else side for side in window] if pair else [window, window]
        sides = [None if side is None else checks.whole(side) for side in given]
        wrong = any(found is None or found < 0 for side, found in zip(given, sides) if side is not None)
        if wrong or (not pair and not sides[0]):
            help = "an int w are the last w keys, or those less than w away; a pair is (left, right), -1 or None for no bound"
            raise _core.error("E_ARGUMENT", f"`window`: expected a positive int or a pair of ints, got {checks.said(window)}", help)
        # A window wider than all queries and keys is clamped.
        left, reach = (None if side is None else min(side - (not pair), Sq + Sk) for side in sides)
        right = reach if right is None else right
    return Sight(None if left is None else offset - left, None if right is None else offset + right)


def scaled(scale: Any, D: int) -> float:
    """The factor of the scores."""
    return 1.0 / math.sqrt(D) if scale is None else checks.number(scale, "scale")


@dataclass(frozen=True)
class BlockMask:
    """A mask, and the blocks of keys that each block of queries sees under it. `ts.op.block_mask` makes one."""

    function: Func
    arrays: list[Any]
    seen: Sight
    tile: tuple[int, int]
    #: Queries and keys.
    lengths: tuple[int, int]
    #: See `block_mask.listed`. Of one batch and one head where the mask is the same for all.
    runs: Any
    others: Any
    #: Both, expanded to every batch and head of the arrays it was made for.
    spread: tuple[Any, Any]

    @property
    def visited(self) -> float:
        """The fraction of all blocks that attention visits."""
        runs = self.runs.astype("int64") if hasattr(self.runs, "astype") else self.runs.long()
        blocks = runs[..., 1] - runs[..., 0] + runs[..., 2] + runs[..., 4]
        return float(blocks.sum()) / max(arrays.size(self.others), 1)

    def check(self, given: Shaped, causal: Any, window: Any, tile: Any) -> None:
        """Refuses arrays and arguments that it was not made for."""
        B, H, Sq, Sk, _, _ = given.extents
        if causal is not False or window is not None or tile is not None:
            help = "`ts.op.block_mask` takes them, and attention takes them from it"
            raise _core.error(
                "E_ARGUMENT",
                "expected a block mask without `causal`, `window` and `tile` beside it, got one of them",
                help,
            )
        heads = [(made, n) for made, n in zip(self.runs.shape, (B, H)) if made not in (1, n)]
        if self.lengths != (Sq, Sk) or heads:
            got = f"{Sq} queries and {Sk} keys of {B}x{H} heads"
            wanted = f"{self.lengths[0]} and {self.lengths[1]}, of {self.runs.shape[0]}x{self.runs.shape[1]}"
            raise _core.error("E_SHAPE_MISMATCH", f"expected what the block mask was made for, {wanted}, got {got}", "make it anew")

    def rests_on(self) -> tuple:
        seen = (self.seen.lowest, self.seen.highest)
        return self.function, self.arrays, *seen, self.tile, self.lengths, self.spread


def bound(function: Any, name: str) -> tuple[Any, list[Any]]:
    """A function of the caller, and the arrays it reads."""
    function, given = function_of(function, name)
    return function, [arrays.given(x, name) for x in given]


def function_of(function: Any, name: str) -> tuple[Any, list[Any]]:
    """As `bound`, with the arrays as they were given."""
    if isinstance(function, BlockMask):
        help = "there, hand over the mask's function itself: it gives the same, of blocks that are all visited"
        raise _core.error("E_ARGUMENT", f"`{name}`: expected a function inside a trace, got a block mask", help)
    given = list(function.arrays.values()) if isinstance(function, Bound) else []
    function = function.function if isinstance(function, Bound) else function
    if not isinstance(function, Func):
        got = type(function).__name__
        help = "decorate it: `@ts.func`; `ts.bind(f, bias=array)` hands it arrays"
        raise _core.error("E_ARGUMENT", f"`{name}`: expected a `@ts.func`, got a {got}", help)
    if len(given) > 2:
        raise _core.error("E_ARGUMENT", f"`{name}`: expected at most two arrays, got {len(given)}", "stack some of them")
    # Captures are frozen: all kernels of one call, and a block mask and its lists, see the same values.
    return function.frozen(), given


def tiles(
    Sq: int, D: int, DV: int, itemsize: int, on: machine.Machine, edged: int, *, plain: bool = False, low: bool = False, units: bool = True
) -> tuple[int, int]:
    """Queries and keys of a block. The accumulator must fit in registers, and the operands in shared memory, of which each loop has
    its own. ``edged`` is on how many sides keys are masked, ``low`` whether on the left, ``units`` whether tensor cores may be
    used. On a CPU, larger blocks of queries share the work on each block of keys, but waste more at masked edges."""
    if not on.is_gpu:
        return (16 if Sq <= 16 else 64 if edged or Sq < 512 else 128), 64
    if itemsize > 2 or not units:
        chosen = (64, 64) if max(D, DV) <= 64 else (64, 32) if max(D, DV) <= 128 and edged < 2 else (32, 32)
        return fitting(*chosen, D, DV, itemsize, on, 2 + (low or edged > 1))
    # For short heads, exponentials take as long as MMAs: three warpgroups keep both units busy. Each thread has 160 registers:
    # scores (BN / 2), probabilities twice (BN / 4 each), accumulator (DV / 2) and about 22 others. With few queries two
    # warpgroups are better filled. Rows of 96 bytes are stored in several pieces, which do not divide among three warpgroups.
    pieces = any(32 < n <= 48 for n in (D, DV))
    if on.warpgroup_mma and plain and max(D, DV) <= 64 and not pieces and Sq >= (2048 if edged else 1024):
        return 192, 96
    rows = 128 if Sq > 64 else 64
    return (rows, 128) if max(D, DV) <= 128 else (rows, 64)


def fitting(BM: int, BN: int, D: int, DV: int, itemsize: int, on: machine.Machine, loops: int) -> tuple[int, int]:
    """The same tiles, or the next smaller ones that fit into shared memory without tensor cores: each loop stores queries, keys,
    values and scores, with 10 % for row padding."""
    while BN > 8:
        each = itemsize * (BM * D + BN * D + BN * DV) + max(itemsize, 4) * BM * BN
        if loops * each * 11 // 10 + 4096 <= on.shared_bytes:
            break
        BM, BN = (BM, BN // 2) if BN >= BM else (BM // 2, BN)
    return BM, BN


def in_order() -> bool:
    """Whether additions keep the order of `strict`, which rules out tensor cores."""
    return current_profile() == PROFILES.index("strict")


def unit(D: int, DV: int, itemsize: int, on: machine.Machine) -> int:
    """The multiple that head tiles are padded to, 0 for no padding. Tensor cores take 1- and 2-byte elements in multiples of 16,
    8-byte elements in multiples of 8."""
    if not on.is_gpu or itemsize == 4 or in_order():
        return 0
    by = 16 if itemsize <= 2 else 8
    return by if D % by or DV % by else 0


@dataclass(frozen=True)
class Shaped:
    """Arrays as ``(B, H, S, D)``, and the layout they were given in."""

    q: Any
    k: Any
    v: Any
    rank: int
    turned: bool
    #: For messages.
    shapes: str

    @property
    def extents(self) -> tuple[int, int, int, int, int, int]:
        """``B, H, Sq, Sk, D, DV``."""
        B, H, Sq, D = self.q.shape
        return B, H, Sq, self.k.shape[2], D, self.v.shape[3]

    def tiles(self, tile: Any, seen: Sight, plain: bool = False) -> tuple[int, int]:
        """``plain``: without functions of the caller and without the logsumexp."""
        _, _, Sq, _, D, DV = self.extents
        low = seen.lowest is not None
        itemsize = arrays.dtype_of(self.q).itemsize
        chosen = tiles(Sq, D, DV, itemsize, machine.of(self.q), seen.edges, plain=plain, low=low, units=not in_order())
        return checks.pair(tile, "tile") or chosen

    def options(self, tile: tuple[int, int], keep: bool, scale: float, free: bool | None) -> Options:
        """How kernels compute it. ``free``: whether the online softmax may rescale lazily."""
        _, _, _, _, D, DV = self.extents
        by = unit(D, DV, arrays.dtype_of(self.q).itemsize, machine.of(self.q))
        return options_of(*tile, keep, scale >= SMALLEST, free is not False, by, checks.checked())


#: The same record for the same options: it is not made for every call.
options_of = functools.lru_cache(maxsize=256)(Options)


def shaped(q: Any, k: Any, v: Any, layout: str) -> Shaped:
    q, k, v = (checks.floating(x, name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    checks.word(layout, ("bhsd", "bshd"), "layout")
    shapes = f"{tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
    rank = q.ndim
    if rank not in (3, 4) or k.ndim != rank or v.ndim != rank:
        help = "shapes are (B, H, S, D), (B, S, H, D) with `layout=`, or (B*H, S, D)"
        raise _core.error("E_SHAPE_MISMATCH", f"expected q, k and v of rank 4, or all of rank 3, got {shapes}", help)
    kinds = [arrays.dtype_of(x) for x in (q, k, v)]
    if len(set(kinds)) > 1:
        raise _core.error(*of_one_dtype(kinds))
    turned = layout == "bshd" and rank == 4
    if rank == 3:
        q, k, v = (x.reshape(1, *x.shape) if arrays.strides(x) else x for x in (q, k, v))
    elif turned:
        q, k, v = (arrays.permuted(x, (0, 2, 1, 3)) for x in (q, k, v))
    if wrong := unfit(q.shape, k.shape, v.shape, shapes):
        raise _core.error("E_SHAPE_MISMATCH", *wrong)
    return Shaped(q, k, v, rank, turned, shapes)


def of_one_dtype(kinds: Sequence[Any]) -> tuple[str, str, str]:
    """The error for arrays of different dtypes."""
    got = ", ".join(map(str, kinds))
    return "E_TYPE", f"expected q, k and v of one dtype, got {got}", "convert some of them first"


def unfit(q: Sequence[int], k: Sequence[int], v: Sequence[int], shapes: str) -> tuple[str, str] | None:
    """The error message and help for shapes ``(B, H, S, D)`` that do not fit, given as ``shapes``; None where they fit."""
    (B, H, _, D), (KB, HK, Sk, KD), (VB, VH, VS, DV) = q, k, v
    got = f"the shapes of q, k and v are {shapes}"
    if KB != B or VB != B:
        return f"expected q, k and v of one batch, got {B}, {KB} and {VB}", got
    if VH != HK or VS != Sk:
        return f"expected k and v of one number of heads and one length, got {HK} and {VH} heads of {Sk} and {VS} keys", got
    if KD != D:
        return f"expected q and k of one head dim, got {D} and {KD}", got
    if H % HK if HK else H:
        return f"expected heads of q in multiples of {HK}, the heads of k, got {H}", f"each head of k and v serves as many of q; {got}"
    if not D or not DV:
        return f"expected heads of {'v' if D else 'q and k'} of at least one element, got none", got
    return None


def exact(free: Any) -> None:
    if free is not None and not isinstance(free, bool):
        got = checks.said(free)
        raise _core.error("E_TYPE", f"expected `lazy_rescale` to be True, False or None, got {got}", "leave it out")
