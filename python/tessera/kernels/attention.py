"""Attention over blocks of keys, with a running maximum and sum: scores are never stored.

A group takes ``BM`` queries of one head and walks over blocks of ``BN`` keys. Keys that no query of the group may see are
not visited; blocks that all of them see whole are not masked. So a causal mask costs its diagonal, and a window costs its
two edges. Functions of the caller's change scores and mask them at absolute positions.

A row's result depends on its own query, keys and values alone, and not on how many others there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Sequence

import tessera as ts

from .. import _core
from ..base.numeric_profile import PROFILES
from ..base.numeric_profile import current as current_profile
from ..kernel.func import Bound, Func
from . import arrays, checks


#: The smallest number with all its bits: a scale is above 0 when it is in the kernel.
SMALLEST = 2.0**-126


@ts.func
def any_score(s, b, h, q, k):
    return s


@ts.func
def changed(s, b, h, q, k, scores, X, Y, count):
    if count == 0:
        t = ts.tile.pure(scores, s, b, h, q, k, like=s)
    elif count == 1:
        t = ts.tile.pure(scores, s, b, h, q, k, X, like=s)
    else:
        t = ts.tile.pure(scores, s, b, h, q, k, X, Y, like=s)
    return t


@ts.func
def sees(s, b, h, q, k, mask, Z, W, count):
    """Which keys a mask leaves, of places that broadcast to the shape of ``s``."""
    if count == 0:
        t = ts.tile.pure(mask, b, h, q, k, like=s, dtype=ts.bool)
    elif count == 1:
        t = ts.tile.pure(mask, b, h, q, k, Z, like=s, dtype=ts.bool)
    else:
        t = ts.tile.pure(mask, b, h, q, k, Z, W, like=s, dtype=ts.bool)
    return t


@ts.func
def padded(n, by):
    """How wide a tile for heads of ``n`` is where it is wider: the next multiple of ``by``; else 0."""
    return (n + by - 1) // by * by if by and n % by else 0


@ts.func
def rows_of(T, b, h, at, count, wide):
    """Rows of a head, with zeros behind them where their width is given."""
    if wide:
        t = T[b, h, at:at + count, 0:wide]
    else:
        t = T[b, h, at:at + count, :]
    return t


@ts.func
def step(
    acc, m, l, q, K, V, sides, b, h, hk, q0, k0, scale, lowest, highest, BM, BN, low, high, scores, X, Y, changes, mask, Z, W,
    masks, whole=False,
):  # fmt: skip
    """One block of keys: query ``i`` sees those from ``i + lowest`` (with ``low``) to ``i + highest`` (with ``high``).
    ``sides`` are the widths of `rows_of`, of keys and of values, and how many queries there are where functions of the caller's
    must get no place beyond the last query and key: what they give for those does not count, but that they read there is told
    in checked mode. ``whole``: the block does not reach beyond the last key."""
    place = ts.tile.arange(BN)[None, :]
    rows = q0 + ts.tile.arange(BM)[:, None]
    columns = k0 + place
    if sides[2] is None:
        i, j = rows, columns
    else:
        i, j = ts.tile.minimum(rows, sides[2] - 1), ts.tile.minimum(columns, K.shape[2] - 1)
    s = ts.tile.mma(q, rows_of(K, b, hk, k0, BN, sides[0]).T, accumulator=m.dtype) * scale
    s = changed(s, b, h, i, j, scores, X, Y, changes)
    # Places within the block are compared: short numbers. One choice for each score, and not two.
    if whole:
        # The compiler sees that this hides nothing.
        s = ts.tile.bounds_mask(s, cols=K.shape[2] - k0)
    if high:
        after = ts.tile.cast(ts.tile.clamp(rows + highest + 1 - k0, 0, BN), ts.i32)
        if not whole:
            after = ts.tile.minimum(after, ts.tile.cast(ts.tile.clamp(K.shape[2] - k0, 0, BN), ts.i32))
        inside = place < after
        if masks >= 0:
            inside = inside & sees(s, b, h, i, j, mask, Z, W, masks)
        s = ts.tile.where(inside, s, -math.inf)
    elif masks >= 0:
        inside = sees(s, b, h, i, j, mask, Z, W, masks)
        if not whole:
            inside = (place < ts.tile.cast(ts.tile.clamp(K.shape[2] - k0, 0, BN), ts.i32)) & inside
        s = ts.tile.where(inside, s, -math.inf)
    elif not whole:
        s = ts.tile.bounds_mask(s, cols=K.shape[2] - k0)
    if low:
        first = ts.tile.clamp(rows + lowest - k0, 0, BN)
        s = ts.tile.where(place >= ts.tile.cast(first, ts.i32), s, -math.inf)
    m, l, p, alpha = ts.tile.softmax_online(m, l, s)
    acc = ts.tile.softmax_accumulate(acc, alpha, p, rows_of(V, b, hk, k0, BN, sides[1]))
    return acc, m, l


@ts.func
def attended(
    Q, K, V, O, LSE, X, Y, Z, W, scale, lowest, highest, scores, mask, changes, masks, low, high, keep, positive, BM, BN, sides, wide
):  # fmt: skip
    """Query ``i`` sees the keys from ``i + lowest`` (with ``low``) to ``i + highest`` (with ``high``). Sums are kept in ``wide``."""
    B, H, Sq = Q.shape[0], Q.shape[1], Q.shape[2]
    HK, Sk, DV = K.shape[1], K.shape[2], V.shape[3]
    # The last axis is walked first: groups that run at once read the keys of few heads. Where late queries see more keys,
    # the compiler sees it, and lets the longest begin first.
    b, h, block = ts.tile.grid(B, H, ts.cdiv(Sq, BM))
    q0 = block * BM
    hk = h // (H // HK)
    if positive:
        # The compiler may then mask scores, and take their maximum, before they are scaled.
        scale = ts.tile.maximum(scale, SMALLEST)
    q = rows_of(Q, b, h, q0, BM, sides[0])
    acc = ts.tile.zeros((BM, sides[1] if sides[1] else DV), wide)
    m = ts.tile.full((BM,), -math.inf, wide)
    l = ts.tile.zeros((BM,), wide)
    # Blocks begin at multiples of BN: first those with an edge on the left, then whole ones, then an edge on the right.
    begin = ts.tile.cast(0, ts.i64)
    end = Sk
    whole = begin
    edge = Sk // BN * BN
    if high:
        end = min(Sk, max(0, q0 + BM + highest))
        edge = min(edge, max(0, q0 + highest + 1) // BN * BN)
    if low:
        begin = max(0, min((q0 + lowest) // BN * BN, end))
        whole = max(begin, min(ts.cdiv(q0 + BM - 1 + lowest, BN) * BN, ts.cdiv(end, BN) * BN))
        for k0 in ts.tile.range(begin, whole, BN):
            acc, m, l = step(
                acc, m, l, q, K, V, sides, b, h, hk, q0, k0, scale, lowest, highest, BM, BN, True, high, scores, X, Y, changes,
                mask, Z, W, masks,
            )  # fmt: skip
    for k0 in ts.tile.range(whole, edge, BN):
        acc, m, l = step(
            acc, m, l, q, K, V, sides, b, h, hk, q0, k0, scale, lowest, highest, BM, BN, False, False, scores, X, Y, changes,
            mask, Z, W, masks, True,
        )  # fmt: skip
    for k0 in ts.tile.range(max(whole, edge), end, BN):
        acc, m, l = step(
            acc, m, l, q, K, V, sides, b, h, hk, q0, k0, scale, lowest, highest, BM, BN, low, high, scores, X, Y, changes,
            mask, Z, W, masks,
        )  # fmt: skip
    if sides[1]:
        O[b, h, q0:q0 + BM, 0:sides[1]] = ts.tile.softmax_finish(acc, l)
    else:
        O[b, h, q0:q0 + BM, :] = ts.tile.softmax_finish(acc, l)
    if keep:
        LSE[b, h, q0:q0 + BM] = m + ts.tile.log(l)


@ts.kernel
def forward(
    Q: ts.Tensor["B", "H", "Sq", "D"],
    K: ts.Tensor["B", "HK", "Sk", "D"],
    V: ts.Tensor["B", "HK", "Sk", "DV"],
    O: ts.Tensor["B", "H", "Sq", "DV"],
    LSE: ts.Tensor["B", "H", "Sq", ts.f32],
    X,
    Y,
    Z,
    W,
    scale: ts.f32,
    lowest: ts.i64,
    highest: ts.i64,
    scores: ts.Fn = any_score,
    mask: ts.Fn = any_score,
    changes: int = 0,
    masks: int = -1,
    low: bool = False,
    high: bool = False,
    keep: bool = False,
    positive: bool = False,
    BM: int = 128,
    BN: int = 128,
    num_warps: int = 0,
    num_stages: int = 0,
    free_reference: bool = True,
    by: int = 0,
    checked: bool = False,
):
    """Tiles of heads are multiples of ``by`` wide: zeros stand behind those that are not."""
    attended(
        Q, K, V, O, LSE, X, Y, Z, W, scale, lowest, highest, scores, mask, changes, masks, low, high, keep, positive, BM, BN,
        (padded(D, by), padded(DV, by), Q.shape[2] if checked else None), ts.f32,
    )  # fmt: skip


@ts.kernel
def apply_scores(
    S: ts.Tensor["B", "H", "Sq", "Sk"],
    T: ts.Tensor["B", "H", "Sq", "Sk"],
    X,
    Y,
    scores: ts.Fn,
    changes: int = 0,
    BM: int = 16,
    BN: int = 64,
):
    """A function of scores on scores that are in memory."""
    b, p, block = ts.tile.grid(B, H * ts.cdiv(Sq, BM), ts.cdiv(Sk, BN))
    h = p // ts.cdiv(Sq, BM)
    q0 = p % ts.cdiv(Sq, BM) * BM
    k0 = block * BN
    rows = q0 + ts.tile.arange(BM)[:, None]
    columns = k0 + ts.tile.arange(BN)[None, :]
    T[b, h, q0:q0 + BM, k0:k0 + BN] = changed(S[b, h, q0:q0 + BM, k0:k0 + BN], b, h, rows, columns, scores, X, Y, changes)


@ts.kernel
def apply_mask(
    S: ts.Tensor["B", "H", "Sq", "Sk"],
    T: ts.Tensor["B", "H", "Sq", "Sk"],
    Z,
    W,
    mask: ts.Fn,
    masks: int = 0,
    BM: int = 16,
    BN: int = 64,
):
    """Scores that are in memory with those masked that do not count."""
    b, p, block = ts.tile.grid(B, H * ts.cdiv(Sq, BM), ts.cdiv(Sk, BN))
    h = p // ts.cdiv(Sq, BM)
    q0 = p % ts.cdiv(Sq, BM) * BM
    k0 = block * BN
    rows = q0 + ts.tile.arange(BM)[:, None]
    columns = k0 + ts.tile.arange(BN)[None, :]
    s = S[b, h, q0:q0 + BM, k0:k0 + BN]
    T[b, h, q0:q0 + BM, k0:k0 + BN] = ts.tile.where(sees(s, b, h, rows, columns, mask, Z, W, masks), s, -math.inf)


# What a call asks for


@dataclass(frozen=True)
class Sight:
    """Which keys query ``i`` sees: from ``i + lowest`` to ``i + highest``, where they are given."""

    lowest: int | None
    highest: int | None

    @property
    def edges(self) -> int:
        """On how many sides keys are masked."""
        return (self.lowest is not None) + (self.highest is not None)


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
        # Beyond all queries and keys there is nothing to see.
        left, reach = (None if side is None else min(side - (not pair), Sq + Sk) for side in sides)
        right = reach if right is None else right
    return Sight(None if left is None else offset - left, None if right is None else offset + right)


def scaled(scale: Any, D: int) -> float:
    """What scores are multiplied by."""
    return 1.0 / math.sqrt(D) if scale is None else checks.number(scale, "scale")


@dataclass(frozen=True)
class BlockMask:
    """A mask and the blocks of keys that it leaves to each block of queries; `ts.op.block_mask` makes them."""

    function: Func
    arrays: list[Any]
    seen: Sight
    tile: tuple[int, int]
    #: Queries and keys.
    lengths: tuple[int, int]
    #: See `block_mask.listed`; of one batch and one head where the mask is the same for all.
    runs: Any
    others: Any
    #: The same for every batch and head of the arrays it was made for.
    spread: tuple[Any, Any]
    #: What `kernel.replay` found of it.
    told: list = field(default_factory=list, compare=False, repr=False)

    @property
    def visited(self) -> float:
        """The part of all blocks that attention visits."""
        runs = self.runs.astype("int64") if hasattr(self.runs, "astype") else self.runs.long()
        blocks = runs[..., 1] - runs[..., 0] + runs[..., 2] + runs[..., 4]
        return float(blocks.sum()) / max(arrays.size(self.others), 1)

    def check(self, given: Shaped, causal: Any, window: Any, tile: Any) -> None:
        """Whether it was made for such arrays."""
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
    """A function of the caller's, and the arrays it reads."""
    function, given = function_of(function, name)
    return function, [arrays.given(x, name) for x in given]


def function_of(function: Any, name: str) -> tuple[Any, list[Any]]:
    """The same, with the arrays as they came."""
    if isinstance(function, BlockMask):
        help = "there, hand over the mask's function itself: it gives the same, of blocks that are all visited"
        raise _core.error("E_ARGUMENT", f"`{name}`: expected a function inside of a trace, got a block mask", help)
    given = list(function.arrays.values()) if isinstance(function, Bound) else []
    function = function.function if isinstance(function, Bound) else function
    if not isinstance(function, Func):
        got = type(function).__name__
        help = "decorate it: `@ts.func`; `ts.bind(f, bias=array)` hands it arrays"
        raise _core.error("E_ARGUMENT", f"`{name}`: expected a `@ts.func`, got a {got}", help)
    if len(given) > 2:
        raise _core.error("E_ARGUMENT", f"`{name}`: expected at most two arrays, got {len(given)}", "stack some of them")
    # All kernels of one call, and a block mask with the blocks that were listed for it, have one set of what it captures.
    return function.frozen(), given


#: GPUs of this generation multiply by warpgroups of 64 queries, and give the registers of the others to those.
HOPPER = 9


def tiles(
    Sq: int, D: int, DV: int, itemsize: int, generation: int, edged: int, plain: bool = False, low: bool = False, units: bool = True
) -> tuple[int, int]:
    """Queries and keys of a block: so many that the sums of a group fit in registers, and what it reads in shared memory, which
    each loop has for itself; ``edged`` is on how many sides keys are masked, ``low`` whether on the left, ``units``
    whether matrix units may multiply.
    On a CPU (of no generation) more queries share what is done to each block of keys, and more of the blocks at an edge is hidden."""
    if not generation:
        return (16 if Sq <= 16 else 64 if edged or Sq < 512 else 128), 64
    if itemsize > 2 or not units:
        chosen = (64, 64) if max(D, DV) <= 64 else (64, 32) if max(D, DV) <= 128 and edged < 2 else (32, 32)
        return fitting(*chosen, D, DV, itemsize, generation, 2 + (low or edged > 1))
    # Exponentials take as long as products of such short rows: three warpgroups keep both busy. Each has 160 registers, for
    # scores (BN / 2), weights twice (BN / 4 each), sums (DV / 2) and some 22 others. Few queries fill two better. Rows of 96
    # bytes lie in several pieces, of which three warpgroups have no part each.
    pieces = any(32 < n <= 48 for n in (D, DV))
    if generation == HOPPER and plain and max(D, DV) <= 64 and not pieces and Sq >= (2048 if edged else 1024):
        return 192, 96
    rows = 128 if Sq > 64 else 64
    return (rows, 128) if max(D, DV) <= 128 else (rows, 64)


#: Bytes of shared memory that a block may have: of the generation, and of any other.
SHARED = {HOPPER: 232448}
LEAST_SHARED = 166912


def fitting(BM: int, BN: int, D: int, DV: int, itemsize: int, generation: int, loops: int) -> tuple[int, int]:
    """The same tiles, or the next smaller ones of which what matrix units do not take fits into shared memory: in each loop
    queries, keys, values and scores, with what keeps their rows apart."""
    most = SHARED.get(generation, LEAST_SHARED)
    while BN > 8:
        each = itemsize * (BM * D + BN * D + BN * DV) + max(itemsize, 4) * BM * BN
        if loops * each * 11 // 10 + 4096 <= most:
            break
        BM, BN = (BM, BN // 2) if BN >= BM else (BM // 2, BN)
    return BM, BN


def in_order() -> bool:
    """Whether every product is added in order, which matrix units do not."""
    return current_profile() == PROFILES.index("strict")


def unit(D: int, DV: int, itemsize: int, generation: int) -> int:
    """What tiles of heads are multiples of, where heads are not: matrix units of GPUs take elements of two bytes and one by
    sixteen, those of eight by eight, and what is behind the last element of a head reads as zeros."""
    if not generation or itemsize == 4 or in_order():
        return 0
    by = 16 if itemsize <= 2 else 8
    return by if D % by or DV % by else 0


@dataclass(frozen=True)
class Shaped:
    """Arrays as ``(B, H, S, D)``, and how they came."""

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
        """``plain``: without functions of the caller's and without the logarithm of the sums."""
        _, _, Sq, _, D, DV = self.extents
        low = seen.lowest is not None
        itemsize = arrays.dtype_of(self.q).itemsize
        chosen = tiles(Sq, D, DV, itemsize, arrays.generation(self.q), seen.edges, plain, low, not in_order())
        return checks.pair(tile, "tile") or chosen

    @property
    def widths(self) -> tuple[int, ...]:
        """The last arguments of kernels; none where heads are as wide as their tiles, and launches are not checked."""
        _, _, _, _, D, DV = self.extents
        by = unit(D, DV, arrays.dtype_of(self.q).itemsize, arrays.generation(self.q))
        return (by, True) if checks.checked() else (by,) if by else ()


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
    """The error of arrays that have several dtypes."""
    got = ", ".join(map(str, kinds))
    return "E_TYPE", f"expected q, k and v of one dtype, got {got}", "convert some of them first"


def unfit(q: Sequence[int], k: Sequence[int], v: Sequence[int], shapes: str) -> tuple[str, str] | None:
    """What is wrong with shapes ``(B, H, S, D)``, which came as ``shapes``, and what to do."""
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
        raise _core.error("E_TYPE", f"expected `free_reference` to be True, False or None, got {got}", "leave it out")
