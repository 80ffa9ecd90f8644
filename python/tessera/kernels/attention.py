"""FlashAttention, forward: softmax(Q K^T scale) V by an online softmax over blocks of keys. Scores are never stored.

A group takes ``BM`` queries of one head and iterates over blocks of ``BN`` keys. With the maximum ``m`` and the sum ``l`` of the
scores before a block, and ``s`` those of the block (FlashAttention-2, algorithm 1),

    m' = max(m, max(s)),   p = exp(s - m'),   alpha = exp(m - m'),   l' = alpha l + sum(p),   acc' = alpha acc + p V,

and the result is ``acc / l``. Blocks that no query of the group may see are skipped; blocks that every query sees whole are not
masked. So a causal mask costs only its diagonal, and a window its two edges. Functions of the caller change scores (``score``)
and mask them (``mask``) at absolute positions.

The result of a query depends on that query, its keys and its values alone, not on how many other queries there are.
"""

from __future__ import annotations

import math

import tessera as ts

from .functions import Function, read

#: The smallest normal f32: a scale of at least this is above 0 in the kernel.
SMALLEST = 2.0**-126


@ts.struct
class Heads:
    """Queries, keys and values, and the results: ``O``, and the logsumexp of the scores where it is kept. Accumulators are of the
    dtype of ``LSE``."""

    Q: ts.Tensor["B", "H", "Sq", "D"]
    K: ts.Tensor["B", "HK", "Sk", "D"]
    V: ts.Tensor["B", "HK", "Sk", "DV"]
    O: ts.Tensor["B", "H", "Sq", "DV"]
    LSE: ts.Tensor["B", "H", "Sq", ts.f32]


@ts.struct
class Span:
    """Query ``i`` sees keys ``i + lowest`` (with ``low``) to ``i + highest`` (with ``high``)."""

    lowest: ts.i64
    highest: ts.i64
    low: bool = False
    high: bool = False


@ts.struct
class Options:
    """How attention is computed."""

    #: Queries and keys of a block.
    BM: int = 128
    BN: int = 128
    #: Whether the logsumexp is stored.
    keep: bool = False
    #: With a positive scale, the compiler may mask scores and take their maximum before it scales them.
    positive: bool = False
    lazy_rescale: bool = True
    #: Head tiles are padded with zeros to multiples of this; 0 for no padding.
    pad_to: int = 0
    #: Whether positions beyond the last query and key are clamped: checked mode reports reads of the caller's functions there.
    checked: bool = False


@ts.func
def padded(n, by):
    """The width of a tile for heads of ``n`` where it must be padded: the next multiple of ``by``. Otherwise 0."""
    return (n + by - 1) // by * by if by and n % by else 0


@ts.func
def rows_of(T, b, h, at, count, by):
    """Rows of a head, padded with zeros to a multiple of ``by`` elements."""
    wide = padded(T.shape[3], by)
    if wide:
        t = T[b, h, at:at + count, 0:wide]
    else:
        t = T[b, h, at:at + count, :]
    return t


@ts.func
def changed(s, score, b, h, q, k):
    """The scores that ``score`` makes of scores at positions that broadcast to their shape."""
    return ts.tile.pure(score.of, s, b, h, q, k, *read(score), like=s) if score.given else s


@ts.func
def sees(s, mask, b, h, q, k):
    """Which keys ``mask`` lets through."""
    return ts.tile.pure(mask.of, b, h, q, k, *read(mask), like=s, dtype=ts.bool)


@ts.func
def key_blocks(q0, seen, BM, BN):
    """The bounds of three loops over blocks of keys: those masked on the left, unmasked ones, those masked on the right. Blocks start
    at multiples of ``BN``."""
    begin = ts.tile.cast(0, ts.i64)
    end = Sk
    whole = begin
    edge = Sk // BN * BN
    if seen.high:
        end = min(Sk, max(0, q0 + BM + seen.highest))
        edge = min(edge, max(0, q0 + seen.highest + 1) // BN * BN)
    if seen.low:
        begin = max(0, min((q0 + seen.lowest) // BN * BN, end))
        whole = max(begin, min(ts.cdiv(q0 + BM - 1 + seen.lowest, BN) * BN, ts.cdiv(end, BN) * BN))
    return begin, whole, edge, end


@ts.func
def started(x, b, h, q0, BM, how):
    """The queries of a group, and its accumulator, sums and maxima before the first block."""
    q = rows_of(x.Q, b, h, q0, BM, how.pad_to)
    wide = padded(DV, how.pad_to)
    acc = ts.tile.zeros((BM, wide if wide else DV), x.LSE.dtype)
    m = ts.tile.full((BM,), -math.inf, x.LSE.dtype)
    l = ts.tile.zeros((BM,), x.LSE.dtype)
    return q, (acc, l, m)


@ts.func
def step(state, q, at, k0, call, edges, whole=False):
    """One iteration: a block of keys. ``edges`` says what masks it: its first keys, its last keys, the caller's mask. ``whole``: it
    does not reach beyond the last key."""
    acc, l, m = state
    b, h, hk, q0, BM, BN = at
    x, score, mask, scale, seen, how = call
    low, high, masked = edges
    place = ts.tile.arange(BN)[None, :]
    rows = q0 + ts.tile.arange(BM)[:, None]
    columns = k0 + place
    i, j = rows, columns
    if how.checked:
        i, j = ts.tile.minimum(rows, Sq - 1), ts.tile.minimum(columns, Sk - 1)
    s = ts.tile.mma(q, rows_of(x.K, b, hk, k0, BN, how.pad_to).T, accumulator=m.dtype) * scale
    s = changed(s, score, b, h, i, j)
    # Positions within the block are compared, in i32. One select for each score, not two.
    if whole:
        # The compiler proves that this masks nothing, and removes it.
        s = ts.tile.bounds_mask(s, cols=Sk - k0)
    if high:
        after = ts.tile.cast(ts.tile.clamp(rows + seen.highest + 1 - k0, 0, BN), ts.i32)
        if not whole:
            after = ts.tile.minimum(after, ts.tile.cast(ts.tile.clamp(Sk - k0, 0, BN), ts.i32))
        inside = place < after
        if masked:
            inside = inside & sees(s, mask, b, h, i, j)
        s = ts.tile.where(inside, s, -math.inf)
    elif masked:
        inside = sees(s, mask, b, h, i, j)
        if not whole:
            inside = (place < ts.tile.cast(ts.tile.clamp(Sk - k0, 0, BN), ts.i32)) & inside
        s = ts.tile.where(inside, s, -math.inf)
    elif not whole:
        s = ts.tile.bounds_mask(s, cols=Sk - k0)
    if low:
        first = ts.tile.clamp(rows + seen.lowest - k0, 0, BN)
        s = ts.tile.where(place >= ts.tile.cast(first, ts.i32), s, -math.inf)
    m, l, p, alpha = ts.tile.softmax_online(m, l, s)
    acc = ts.tile.softmax_accumulate(acc, alpha, p, rows_of(x.V, b, hk, k0, BN, how.pad_to))
    return acc, l, m


@ts.func
def finished(x, state, b, h, q0, BM, how):
    """Stores the results of a group."""
    acc, l, m = state
    wide = padded(DV, how.pad_to)
    if wide:
        x.O[b, h, q0:q0 + BM, 0:wide] = ts.tile.softmax_finish(acc, l)
    else:
        x.O[b, h, q0:q0 + BM, :] = ts.tile.softmax_finish(acc, l)
    if how.keep:
        x.LSE[b, h, q0:q0 + BM] = m + ts.tile.log(l)


@ts.func
def attended(x, score, mask, scale, seen, how, BM, BN):
    # The last grid axis varies fastest: concurrent groups read the keys of few heads, which stay in the L2 cache. Where later
    # queries see more keys, the compiler recognises it and schedules the longest blocks first.
    b, h, block = ts.tile.grid(B, H, ts.cdiv(Sq, BM))
    q0 = block * BM
    hk = h // (H // HK)
    if how.positive:
        scale = ts.tile.maximum(scale, SMALLEST)
    q, (acc, l, m) = started(x, b, h, q0, BM, how)
    at = b, h, hk, q0, BM, BN
    call = x, score, mask, scale, seen, how
    begin, whole, edge, end = key_blocks(q0, seen, BM, BN)
    if seen.low:
        for k0 in ts.tile.range(begin, whole, BN):
            acc, l, m = step((acc, l, m), q, at, k0, call, (True, seen.high, mask.given))
    for k0 in ts.tile.range(whole, edge, BN):
        acc, l, m = step((acc, l, m), q, at, k0, call, (False, False, mask.given), whole=True)
    for k0 in ts.tile.range(max(whole, edge), end, BN):
        acc, l, m = step((acc, l, m), q, at, k0, call, (seen.low, seen.high, mask.given))
    finished(x, (acc, l, m), b, h, q0, BM, how)


@ts.kernel
def forward(x: Heads, score: Function, mask: Function, scale: ts.f32, seen: Span, how: Options):
    attended(x, score, mask, scale, seen, how, how.BM, how.BN)


# Functions of the caller on scores in memory


@ts.func
def tile_of_scores(p, block, BM, BN):
    """The head of a group, its first query and key, and the positions of its tile."""
    h = p // ts.cdiv(Sq, BM)
    q0 = p % ts.cdiv(Sq, BM) * BM
    k0 = block * BN
    return h, q0, k0, q0 + ts.tile.arange(BM)[:, None], k0 + ts.tile.arange(BN)[None, :]


@ts.kernel
def apply_scores(S: ts.Tensor["B", "H", "Sq", "Sk"], T: ts.Tensor["B", "H", "Sq", "Sk"], score: Function, BM: int = 16, BN: int = 64):
    """Applies ``score_mod``."""
    b, p, block = ts.tile.grid(B, H * ts.cdiv(Sq, BM), ts.cdiv(Sk, BN))
    h, q0, k0, q, k = tile_of_scores(p, block, BM, BN)
    T[b, h, q0:q0 + BM, k0:k0 + BN] = changed(S[b, h, q0:q0 + BM, k0:k0 + BN], score, b, h, q, k)


@ts.kernel
def apply_mask(S: ts.Tensor["B", "H", "Sq", "Sk"], T: ts.Tensor["B", "H", "Sq", "Sk"], mask: Function, BM: int = 16, BN: int = 64):
    """Applies ``mask_mod``: masked scores become -inf."""
    b, p, block = ts.tile.grid(B, H * ts.cdiv(Sq, BM), ts.cdiv(Sk, BN))
    h, q0, k0, q, k = tile_of_scores(p, block, BM, BN)
    s = S[b, h, q0:q0 + BM, k0:k0 + BN]
    T[b, h, q0:q0 + BM, k0:k0 + BN] = ts.tile.where(sees(s, mask, b, h, q, k), s, -math.inf)
