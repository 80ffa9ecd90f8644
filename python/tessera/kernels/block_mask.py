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
from .attention import SMALLEST, Heads, Options, Span, finished, sees, started, step
from .attention_plan import BlockMask, Shaped, bound, shaped, sight
from .functions import Function


@ts.kernel
def states(
    S: ts.Tensor["B", "H", "NQ", "NK", ts.i32],
    mask: Function,
    Sq: ts.i64,
    Sk: ts.i64,
    seen: Span,
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
        t = ts.tile.where(sees(one, mask, b, h, ts.tile.minimum(q, Sq - 1), ts.tile.minimum(k, Sk - 1)), one, none)
    else:
        t = ts.tile.where(sees(one, mask, b, h, q, k), one, none)
    t = ts.tile.where(k < Sk, t, none)
    if seen.low:
        t = ts.tile.where(k >= q + seen.lowest, t, none)
    if seen.high:
        t = ts.tile.where(k <= q + seen.highest, t, none)
    some = ts.tile.max(ts.tile.where(q < Sq, t, none))
    all = ts.tile.min(ts.tile.where(q < Sq, t, one))
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


@ts.struct
class Table:
    """The blocks of keys that each block of queries sees: what `listed` gives. With ``ragged`` the last block of keys reaches beyond
    the last key."""

    R: ts.Tensor["B", "H", "NQ", 5, ts.i32]
    L: ts.Tensor["B", "H", "NQ", "NK", ts.i32]
    ragged: bool = False


@ts.kernel
def forward(x: Heads, table: Table, score: Function, mask: Function, scale: ts.f32, seen: Span, how: Options):
    """As `attention.forward`, over the blocks of a table."""
    # Heads vary fastest: under most masks they have equal work, and the longest rows come first.
    b, place, h = ts.tile.grid(B, ts.cdiv(Sq, how.BM), H)
    q0 = max(0, ts.tile.cast(table.R[b, h, place, 3], ts.i64)) * how.BM
    hk = h // (H // HK)
    if how.positive:
        scale = ts.tile.maximum(scale, SMALLEST)
    q, (acc, l, m) = started(x, b, h, q0, how.BM, how)
    at = b, h, hk, q0, how.BM, how.BN
    call = x, score, mask, scale, seen, how
    begin = max(0, ts.tile.cast(table.R[b, h, place, 0], ts.i64)) * how.BN
    # Clamped to the last whole block of keys: the compiler then proves that these blocks need no mask.
    end = min(ts.tile.cast(table.R[b, h, place, 1], ts.i64) * how.BN, Sk // how.BN * how.BN)
    count = ts.tile.cast(table.R[b, h, place, 2], ts.i64)
    for k0 in ts.tile.range(begin, end, how.BN):
        acc, l, m = step((acc, l, m), q, at, k0, call, (False, False, False))
    # The list never holds a ragged last block: the bound states it for the compiler.
    for i in ts.tile.range(0, min(count, Sk // how.BN)):
        k0 = max(0, min(ts.tile.cast(table.L[b, h, place, i], ts.i64) * how.BN, Sk // how.BN * how.BN - how.BN))
        acc, l, m = step((acc, l, m), q, at, k0, call, (seen.low, seen.high, mask.given), whole=True)
    if table.ragged:
        edge = max(0, Sk // how.BN * how.BN)
        for k0 in ts.tile.range(edge, edge + ts.tile.cast(table.R[b, h, place, 4], ts.i64), how.BN):
            acc, l, m = step((acc, l, m), q, at, k0, call, (seen.low, seen.high, mask.given))
    finished(x, (acc, l, m), b, h, q0, how.BM, how)


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
        states(state, Function.filled(mask, more, 2, given.q), Sq, Sk, seen.span, BM, BN, checks.checked())
        cost, rank = (arrays.empty((*each, rows), ts.i32, given.q) for _ in range(2))
        costs(state, cost)
        ranked(cost, rank)
        listed(state, rank, runs, others, int(Sk % BN != 0))
    elif arrays.size(runs):
        raise _core.error("E_SHAPE_MISMATCH", "expected at least one key, got none", f"the shapes are {given.shapes}")
    spread = tuple(arrays.expand(x, (B, H, *x.shape[2:])) for x in (runs, others))
    return BlockMask(mask, more, seen, (BM, BN), (Sq, Sk), runs, others, spread)


def table_of(mask: BlockMask, given: Shaped) -> Table:
    """The table of a mask for every batch and head of the arrays."""
    heads = given.q.shape[:2]
    runs, others = mask.spread
    if tuple(runs.shape[:2]) != tuple(heads):
        runs, others = (arrays.expand(x, (*heads, *x.shape[2:])) for x in (mask.runs, mask.others))
    return Table(runs, others, given.extents[3] % mask.tile[1] != 0)
