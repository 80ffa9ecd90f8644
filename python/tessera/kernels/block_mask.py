"""Block-sparse attention masks: which blocks of keys each block of queries sees, computed once and used by many calls.

A mask is a function of the caller, and the arrays it reads are on the device. So kernels evaluate it there, block by block.
Attention skips a block in which no query sees a key, and does not mask one in which every query sees every key. In each row of
blocks, the longest run of whole blocks is a range for a loop; the remaining nonempty blocks are a list. Document masks,
prefixes and windows are such runs except at their edges. Rows are sorted longest first: a dynamic tile scheduler then ends with
short ones.
"""

from __future__ import annotations

import ast
import math
from typing import Any

import tessera as ts

from .. import _core
from ..kernel.func import Func
from . import arrays, checks
from .attention import SMALLEST, BlockMask, any_score, bound, padded, rows_of, sees, shaped, sight, step


@ts.func
def every_key(b, h, q, k):
    return k >= 0


@ts.kernel
def states(
    S: ts.Tensor["B", "H", "NQ", "NK", ts.i32],
    Z,
    W,
    Sq: ts.i64,
    Sk: ts.i64,
    lowest: ts.i64,
    highest: ts.i64,
    mask: ts.Fn = every_key,
    masks: int = 0,
    low: bool = False,
    high: bool = False,
    BM: int = 128,
    BN: int = 128,
    checked: bool = False,
):
    """For each block: 2 where every query sees every key, 1 where some do, 0 where none does. Queries beyond the last do not
    count."""
    bh, i, j = ts.tile.grid(B * H, NQ, NK)
    b = bh // H
    h = bh % H
    q = i * BM + ts.tile.arange(BM)[:, None]
    k = j * BN + ts.tile.arange(BN)[None, :]
    one = ts.tile.full((BM, BN), 1, ts.i32)
    none = ts.tile.full((BM, BN), 0, ts.i32)
    if checked:
        # As `attention.step` does.
        seen = ts.tile.where(sees(one, b, h, ts.tile.minimum(q, Sq - 1), ts.tile.minimum(k, Sk - 1), mask, Z, W, masks), one, none)
    else:
        seen = ts.tile.where(sees(one, b, h, q, k, mask, Z, W, masks), one, none)
    seen = ts.tile.where(k < Sk, seen, none)
    if low:
        seen = ts.tile.where(k >= q + lowest, seen, none)
    if high:
        seen = ts.tile.where(k <= q + highest, seen, none)
    some = ts.tile.max(ts.tile.where(q < Sq, seen, none))
    all = ts.tile.min(ts.tile.where(q < Sq, seen, one))
    S[b, h, i, j] = some + some * all


@ts.kernel
def costs(S: ts.Tensor["B", "H", "NQ", "NK", ts.i32], T: ts.Tensor["B", "H", "NQ", ts.i32], C: int = 256):
    """The estimated cost of each row of blocks: a masked block costs 1.5 times an unmasked one."""
    b, h, i = ts.tile.grid(B, H, NQ)
    total = ts.tile.cast(0, ts.i32)
    for c in ts.tile.range(0, NK, C):
        s = ts.tile.load(S, (b, h, i, c + ts.tile.arange(C)), mask=c + ts.tile.arange(C) < NK, other=0)
        total = total + ts.tile.sum(ts.tile.where(s == 1, 3, s))
    T[b, h, i] = total


@ts.kernel
def ranked(T: ts.Tensor["B", "H", "NQ", ts.i32], P: ts.Tensor["B", "H", "NQ", ts.i32], C: int = 256):
    """The rank of each row of blocks by cost, longest first."""
    b, h, i = ts.tile.grid(B, H, NQ)
    own = T[b, h, i]
    before = ts.tile.cast(0, ts.i32)
    for c in ts.tile.range(0, NQ, C):
        place = ts.tile.cast(c, ts.i32) + ts.tile.cast(ts.tile.arange(C), ts.i32)
        t = ts.tile.load(T, (b, h, c + ts.tile.arange(C)), mask=c + ts.tile.arange(C) < NQ, other=-1)
        earlier = (t > own) | ((t == own) & (place < ts.tile.cast(i, ts.i32)))
        before = before + ts.tile.sum(ts.tile.cast(earlier, ts.i32))
    P[b, h, i] = before


@ts.kernel
def listed(
    S: ts.Tensor["B", "H", "NQ", "NK", ts.i32],
    P: ts.Tensor["B", "H", "NQ", ts.i32],
    R: ts.Tensor["B", "H", "NQ", 5, ts.i32],
    L: ts.Tensor["B", "H", "NQ", "NK", ts.i32],
    ragged: ts.i32,
    C: int = 256,
):
    """For each row of blocks, stored at its rank: the begin and end of its longest run of whole blocks, the number of other
    blocks, the row's index, and whether it sees the last block; then the list of the other blocks. With ``ragged`` the last
    block reaches beyond the last key, and is not in that list."""
    b, h, i = ts.tile.grid(B, H, NQ)
    row = ts.tile.cast(P[b, h, i], ts.i64)
    place = ts.tile.cast(ts.tile.arange(C), ts.i32)
    after = ts.tile.cast(0, ts.i32)  # the position after the latest block that is not whole
    longest = ts.tile.cast(0, ts.i32)
    begin = ts.tile.cast(0, ts.i32)
    for c in ts.tile.range(0, NK, C):
        at = ts.tile.cast(c, ts.i32) + place
        s = ts.tile.load(S, (b, h, i, c + ts.tile.arange(C)), mask=c + ts.tile.arange(C) < NK, other=0)
        since = ts.tile.maximum(ts.tile.scan(ts.tile.where(s == 2, 0, at + 1), "max"), after)
        run = at + 1 - since
        most = ts.tile.max(run)
        if most > longest:
            longest = most
            begin = ts.tile.min(ts.tile.where(run == most, since, 2147483647))
        after = ts.tile.max(since)
    count = ts.tile.cast(0, ts.i32)
    for c in ts.tile.range(0, NK - ts.tile.cast(ragged, ts.i64), C):
        at = ts.tile.cast(c, ts.i32) + place
        s = ts.tile.load(S, (b, h, i, c + ts.tile.arange(C)), mask=c + ts.tile.arange(C) < NK - ragged, other=0)
        other = (s > 0) & ((at < begin) | (at >= begin + longest))
        before = ts.tile.cumsum(ts.tile.cast(other, ts.i32))
        ts.tile.store(L, (b, h, row, ts.tile.cast(count + before - 1, ts.i64)), at, mask=other, unique=True)
        count = count + ts.tile.max(before)
    R[b, h, row, 0] = begin
    R[b, h, row, 1] = begin + longest
    R[b, h, row, 2] = count
    R[b, h, row, 3] = ts.tile.cast(i, ts.i32)
    R[b, h, row, 4] = ragged * ts.tile.minimum(S[b, h, i, NK - 1], 1)


@ts.kernel
def forward(
    Q: ts.Tensor["B", "H", "Sq", "D"],
    K: ts.Tensor["B", "HK", "Sk", "D"],
    V: ts.Tensor["B", "HK", "Sk", "DV"],
    O: ts.Tensor["B", "H", "Sq", "DV"],
    LSE: ts.Tensor["B", "H", "Sq", ts.f32],
    R: ts.Tensor["B", "H", "NQ", 5, ts.i32],
    L: ts.Tensor["B", "H", "NQ", "NK", ts.i32],
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
    ragged: bool = False,
    BM: int = 128,
    BN: int = 128,
    num_warps: int = 0,
    num_stages: int = 0,
    lazy_rescale: bool = True,
    by: int = 0,
    checked: bool = False,
):
    """As `attention.forward`, over the blocks of a table. With ``ragged`` the last block of keys reaches beyond the last key."""
    # Heads vary fastest: under most masks they have equal work, and the longest rows come first.
    b, place, h = ts.tile.grid(B, ts.cdiv(Sq, BM), H)
    q0 = max(0, ts.tile.cast(R[b, h, place, 3], ts.i64)) * BM
    hk = h // (H // HK)
    if positive:
        scale = ts.tile.maximum(scale, SMALLEST)
    DVP = padded(DV, by)
    sides = (padded(D, by), DVP, Q.shape[2] if checked else None)
    q = rows_of(Q, b, h, q0, BM, sides[0])
    acc = ts.tile.zeros((BM, DVP if DVP else DV), ts.f32)
    m = ts.tile.full((BM,), -math.inf, ts.f32)
    l = ts.tile.zeros((BM,), ts.f32)
    begin = max(0, ts.tile.cast(R[b, h, place, 0], ts.i64)) * BN
    # Clamped to the last whole block of keys: the compiler then proves that these blocks need no mask.
    end = min(ts.tile.cast(R[b, h, place, 1], ts.i64) * BN, Sk // BN * BN)
    count = ts.tile.cast(R[b, h, place, 2], ts.i64)
    for k0 in ts.tile.range(begin, end, BN):
        acc, m, l = step(
            acc, m, l, q, K, V, sides, b, h, hk, q0, k0, scale, lowest, highest, BM, BN, False, False, scores, X, Y, changes,
            mask, Z, W, -1,
        )  # fmt: skip
    # The list never holds a ragged last block: the bound states it for the compiler.
    for i in ts.tile.range(0, min(count, Sk // BN)):
        k0 = max(0, min(ts.tile.cast(L[b, h, place, i], ts.i64) * BN, Sk // BN * BN - BN))
        acc, m, l = step(
            acc, m, l, q, K, V, sides, b, h, hk, q0, k0, scale, lowest, highest, BM, BN, low, high, scores, X, Y, changes,
            mask, Z, W, masks, True,
        )  # fmt: skip
    if ragged:
        edge = max(0, Sk // BN * BN)
        for k0 in ts.tile.range(edge, edge + ts.tile.cast(R[b, h, place, 4], ts.i64), BN):
            acc, m, l = step(
                acc, m, l, q, K, V, sides, b, h, hk, q0, k0, scale, lowest, highest, BM, BN, low, high, scores, X, Y, changes,
                mask, Z, W, masks,
            )  # fmt: skip
    if DVP:
        O[b, h, q0:q0 + BM, 0:DVP] = ts.tile.softmax_finish(acc, l)
    else:
        O[b, h, q0:q0 + BM, :] = ts.tile.softmax_finish(acc, l)
    if keep:
        LSE[b, h, q0:q0 + BM] = m + ts.tile.log(l)


# Arguments of a call


def depends(function: Func) -> tuple[bool, bool]:
    """Whether a mask may depend on the batch, and on the head: whether its source uses those parameters."""
    names = function.parameters
    used = {node.id for node in ast.walk(function.parsed()) if isinstance(node, ast.Name)}
    return len(names) < 1 or names[0] in used, len(names) < 2 or names[1] in used


def make(mask_mod: Any, q: Any, k: Any, v: Any, causal: Any, window: Any, layout: str, tile: Any) -> BlockMask:
    given = shaped(q, k, v, layout)
    B, H, Sq, Sk, _, _ = given.extents
    seen = sight(causal, window, Sq, Sk)
    mask, more = bound(mask_mod, "mask_mod")
    BM, BN = given.tiles(tile, seen)
    each = [n if own else 1 for n, own in zip((B, H), depends(mask))]
    rows, columns = ts.cdiv(Sq, BM), ts.cdiv(Sk, BN)
    state, others = (arrays.empty((*each, rows, columns), ts.i32, given.q) for _ in range(2))
    runs = arrays.empty((*each, rows, 5), ts.i32, given.q)
    if arrays.size(state):
        Z, W = (more + [given.q, given.q])[:2]
        low, high = seen.lowest is not None, seen.highest is not None
        states(state, Z, W, Sq, Sk, seen.lowest or 0, seen.highest or 0, mask, len(more), low, high, BM, BN, checks.checked())
        cost, rank = (arrays.empty((*each, rows), ts.i32, given.q) for _ in range(2))
        costs(state, cost)
        ranked(cost, rank)
        listed(state, rank, runs, others, int(Sk % BN != 0))
    elif arrays.size(runs):
        raise _core.error("E_SHAPE_MISMATCH", "expected at least one key, got none", f"the shapes are {given.shapes}")
    spread = tuple(arrays.expand(x, (B, H, *x.shape[2:])) for x in (runs, others))
    return BlockMask(mask, more, seen, (BM, BN), (Sq, Sk), runs, others, spread)
