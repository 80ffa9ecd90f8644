"""FlashAttention, forward: an online softmax over blocks of keys. Scores are never stored.

A group takes ``BM`` queries of one head and iterates over blocks of ``BN`` keys. Blocks that no query of the group may see are
skipped; blocks that every query sees whole are not masked. So a causal mask costs only its diagonal, and a window its two
edges. Functions of the caller change scores (``score_mod``) and mask them (``mask_mod``) at absolute positions.

The result of a query depends on that query, its keys and its values alone, not on how many other queries there are.
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


#: The smallest normal f32: a scale of at least this is above 0 in the kernel.
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
    """Which keys a mask lets through, at positions that broadcast to the shape of ``s``."""
    if count == 0:
        t = ts.tile.pure(mask, b, h, q, k, like=s, dtype=ts.bool)
    elif count == 1:
        t = ts.tile.pure(mask, b, h, q, k, Z, like=s, dtype=ts.bool)
    else:
        t = ts.tile.pure(mask, b, h, q, k, Z, W, like=s, dtype=ts.bool)
    return t


@ts.func
def padded(n, by):
    """The width of a tile for heads of ``n`` where it must be padded: the next multiple of ``by``. Otherwise 0."""
    return (n + by - 1) // by * by if by and n % by else 0


@ts.func
def rows_of(T, b, h, at, count, wide):
    """Rows of a head, padded with zeros to ``wide`` elements unless that is 0."""
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
    """One iteration: a block of keys. Query ``i`` sees keys ``i + lowest`` (with ``low``) to ``i + highest`` (with ``high``).
    ``sides`` are the padded widths of keys and values (see `rows_of`), and in checked mode the number of queries: positions
    beyond the last query and key are then clamped, because checked mode reports reads of the caller's functions there.
    ``whole``: the block does not reach beyond the last key."""
    place = ts.tile.arange(BN)[None, :]
    rows = q0 + ts.tile.arange(BM)[:, None]
    columns = k0 + place
    if sides[2] is None:
        i, j = rows, columns
    else:
        i, j = ts.tile.minimum(rows, sides[2] - 1), ts.tile.minimum(columns, K.shape[2] - 1)
    s = ts.tile.mma(q, rows_of(K, b, hk, k0, BN, sides[0]).T, accumulator=m.dtype) * scale
    s = changed(s, b, h, i, j, scores, X, Y, changes)
    # Positions within the block are compared, in i32. One select for each score, not two.
    if whole:
        # The compiler proves that this masks nothing, and removes it.
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
    """Query ``i`` sees keys ``i + lowest`` (with ``low``) to ``i + highest`` (with ``high``). Accumulators are of dtype ``wide``."""
    B, H, Sq = Q.shape[0], Q.shape[1], Q.shape[2]
    HK, Sk, DV = K.shape[1], K.shape[2], V.shape[3]
    # The last grid axis varies fastest: concurrent groups read the keys of few heads, which stay in the L2 cache. Where later
    # queries see more keys, the compiler recognises it and schedules the longest blocks first.
    b, h, block = ts.tile.grid(B, H, ts.cdiv(Sq, BM))
    q0 = block * BM
    hk = h // (H // HK)
    if positive:
        # With a positive scale, the compiler may mask scores and take their maximum before it scales them.
        scale = ts.tile.maximum(scale, SMALLEST)
    q = rows_of(Q, b, h, q0, BM, sides[0])
    acc = ts.tile.zeros((BM, sides[1] if sides[1] else DV), wide)
    m = ts.tile.full((BM,), -math.inf, wide)
    l = ts.tile.zeros((BM,), wide)
    # Blocks start at multiples of BN: first those masked on the left, then unmasked ones, then those masked on the right.
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
    lazy_rescale: bool = True,
    by: int = 0,
    checked: bool = False,
):
    """Head tiles are padded with zeros to multiples of ``by``."""
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
    """Applies ``score_mod`` to scores in memory."""
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
    """Applies ``mask_mod`` to scores in memory: masked ones become -inf."""
    b, p, block = ts.tile.grid(B, H * ts.cdiv(Sq, BM), ts.cdiv(Sk, BN))
    h = p // ts.cdiv(Sq, BM)
    q0 = p % ts.cdiv(Sq, BM) * BM
    k0 = block * BN
    rows = q0 + ts.tile.arange(BM)[:, None]
    columns = k0 + ts.tile.arange(BN)[None, :]
    s = S[b, h, q0:q0 + BM, k0:k0 + BN]
    T[b, h, q0:q0 + BM, k0:k0 + BN] = ts.tile.where(sees(s, b, h, rows, columns, mask, Z, W, masks), s, -math.inf)


# Arguments of a call


@dataclass(frozen=True)
class Sight:
    """Which keys query ``i`` sees: from ``i + lowest`` to ``i + highest``, where they are given."""

    lowest: int | None
    highest: int | None

    @property
    def edges(self) -> int:
        """On how many sides keys are masked: 0 to 2."""
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
    #: The key that `kernel.replay` computed for it.
    replay_key: list = field(default_factory=list, compare=False, repr=False)

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


#: Compute capability 9: warpgroups issue WGMMA on 64 queries, and take registers from producer warps.
HOPPER = 9


def tiles(
    Sq: int, D: int, DV: int, itemsize: int, generation: int, edged: int, plain: bool = False, low: bool = False, units: bool = True
) -> tuple[int, int]:
    """Queries and keys of a block. The accumulator must fit in registers, and the operands in shared memory, of which each loop has
    its own. ``edged`` is on how many sides keys are masked, ``low`` whether on the left, ``units`` whether tensor cores may be
    used. On a CPU (generation 0), larger blocks of queries share the work on each block of keys, but waste more at masked edges."""
    if not generation:
        return (16 if Sq <= 16 else 64 if edged or Sq < 512 else 128), 64
    if itemsize > 2 or not units:
        chosen = (64, 64) if max(D, DV) <= 64 else (64, 32) if max(D, DV) <= 128 and edged < 2 else (32, 32)
        return fitting(*chosen, D, DV, itemsize, generation, 2 + (low or edged > 1))
    # For short heads, exponentials take as long as MMAs: three warpgroups keep both units busy. Each thread has 160 registers:
    # scores (BN / 2), probabilities twice (BN / 4 each), accumulator (DV / 2) and about 22 others. With few queries two
    # warpgroups are better filled. Rows of 96 bytes are stored in several pieces, which do not divide among three warpgroups.
    pieces = any(32 < n <= 48 for n in (D, DV))
    if generation == HOPPER and plain and max(D, DV) <= 64 and not pieces and Sq >= (2048 if edged else 1024):
        return 192, 96
    rows = 128 if Sq > 64 else 64
    return (rows, 128) if max(D, DV) <= 128 else (rows, 64)


#: Bytes of shared memory that a group may have: by generation, and for any other.
SHARED = {HOPPER: 232448}
LEAST_SHARED = 166912


def fitting(BM: int, BN: int, D: int, DV: int, itemsize: int, generation: int, loops: int) -> tuple[int, int]:
    """The same tiles, or the next smaller ones that fit into shared memory without tensor cores: each loop stores queries, keys,
    values and scores, with 10 % for row padding."""
    most = SHARED.get(generation, LEAST_SHARED)
    while BN > 8:
        each = itemsize * (BM * D + BN * D + BN * DV) + max(itemsize, 4) * BM * BN
        if loops * each * 11 // 10 + 4096 <= most:
            break
        BM, BN = (BM, BN // 2) if BN >= BM else (BM // 2, BN)
    return BM, BN


def in_order() -> bool:
    """Whether additions keep the order of `strict`, which rules out tensor cores."""
    return current_profile() == PROFILES.index("strict")


def unit(D: int, DV: int, itemsize: int, generation: int) -> int:
    """The multiple that head tiles are padded to, 0 for no padding. Tensor cores take 1- and 2-byte elements in multiples of 16,
    8-byte elements in multiples of 8."""
    if not generation or itemsize == 4 or in_order():
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
        chosen = tiles(Sq, D, DV, itemsize, arrays.generation(self.q), seen.edges, plain, low, not in_order())
        return checks.pair(tile, "tile") or chosen

    @property
    def widths(self) -> tuple[int, ...]:
        """The last arguments of kernels. None where heads need no padding and checked mode is off."""
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
