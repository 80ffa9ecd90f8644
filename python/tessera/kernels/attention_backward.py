"""FlashAttention, backward: scores are recomputed from queries, keys and the logsumexp that the forward kernel stored.

With ``p = exp(s - lse)`` and ``delta = sum(dO * O) - dLSE`` for each query, ``ds = p * (dO V^T - delta)``; then ``dV = p^T dO``,
``dK = ds^T Q`` and ``dQ = ds K``, the last two times the scale. Where a function of the caller changes scores, ``s`` is its
result, and ``ds`` is multiplied by its derivative.

Kernel `keys` takes a block of keys and iterates over the queries that see some of them, of every head that shares the keys.
Kernel `queries` takes a block of queries and iterates over the keys that they see. One group writes each element, in one
order: the result has the same bits every time.

Kernel `keys` holds scores transposed, with keys as rows: the probabilities are then the left operand of the MMAs that use them.
``LSE`` is given times log2(e), and as inf for queries that see nothing: their probabilities are then zero.
"""

from __future__ import annotations

import math

import tessera as ts

from .attention import key_blocks, sees
from .functions import Function, read


def tiles_of_keys(D: int, DV: int, itemsize: int) -> tuple[int, int, int]:
    """Queries and keys of a block, and warps. Registers hold two accumulators of keys by head dim, and two blocks of scores."""
    if itemsize > 2:
        return (32, 32, 4) if max(D, DV) <= 64 else (16, 32, 4)
    return (64, 128, 8) if max(D, DV) <= 128 else (16, 64, 4)


def tiles_of_queries(Sq: int, D: int, DV: int, itemsize: int) -> tuple[int, int, int]:
    """Queries and keys of a block, and warps. Registers hold one accumulator of queries by head dim, and two blocks of scores."""
    if itemsize > 2:
        return (64, 32, 8) if max(D, DV) <= 64 else (32, 16, 4)
    if max(D, DV) > 128:
        return 64, 64, 4
    return (128, 128, 8) if Sq > 64 else (64, 64, 4)


@ts.struct
class Saved:
    """The arguments of the forward kernel, the gradient of its result, ``LSE`` and ``delta``. Accumulators are of the dtype of ``LSE``."""

    Q: ts.Tensor["B", "H", "Sq", "D"]
    K: ts.Tensor["B", "HK", "Sk", "D"]
    V: ts.Tensor["B", "HK", "Sk", "DV"]
    DO: ts.Tensor["B", "H", "Sq", "DV"]
    LSE: ts.Tensor["B", "H", "Sq"]
    DELTA: ts.Tensor["B", "H", "Sq"]


@ts.struct
class Scores:
    """How scores are made. Query ``i`` sees the keys from ``i + lowest`` (with ``low``) to ``i + highest`` (with ``high``)."""

    scale: float
    lowest: int = 0
    highest: int = 0
    low: bool = False
    high: bool = False


@ts.struct
class Blocks:
    """Queries and keys of a block, and warps; 0 is the compiler's choice."""

    BM: int = 64
    BN: int = 64
    num_warps: int = 0


@ts.func
def value_and_grad_of(s, score, b, h, q, k):
    """The scores that ``score_mod`` returns, and its derivative."""
    return ts.tile.value_and_grad(score.of, s, b, h, q, k, *read(score))


@ts.kernel
def derived(S: ts.Tensor["M", "N"], T: ts.Tensor["M", "N"], score: Function, BM: int = 16, BN: int = 64):
    """The derivative of ``score_mod`` alone: compiling this kernel checks that it has one."""
    i, j = ts.tile.grid(ts.cdiv(M, BM), ts.cdiv(N, BN))
    rows = i * BM + ts.tile.arange(BM)[:, None]
    columns = j * BN + ts.tile.arange(BN)[None, :]
    _, T[i * BM:i * BM + BM, j * BN:j * BN + BN] = value_and_grad_of(
        S[i * BM:i * BM + BM, j * BN:j * BN + BN], score, i, j, rows, columns
    )  # fmt: skip


@ts.func
def logarithms(s, lse, at, q, k, edges, call):
    """The base-2 logarithms of the probabilities, -inf for masked pairs, and the derivative of ``score_mod``. ``q`` and ``k`` are
    positions that broadcast to the shape of ``s``."""
    b, h = at
    low, high = edges
    score, mask, scores = call
    grad = 1.0
    if not score.given:
        t = s * (scores.scale * 1.4426950408889634) - lse
    else:
        t, grad = value_and_grad_of(s * scores.scale, score, b, h, q, k)
        t = t * 1.4426950408889634 - lse
    if low:
        t = ts.tile.where(k >= q + scores.lowest, t, -math.inf)
    if high:
        t = ts.tile.where(k <= q + scores.highest, t, -math.inf)
    if mask.given:
        t = ts.tile.where(sees(s, mask, b, h, q, k), t, -math.inf)
    return t, grad


@ts.func
def gradients(p, dp, delta, grad, score):
    """The gradients of the scores."""
    ds = p * (dp - delta)
    if score.given:
        # The derivative of a masked score may be anything.
        ds = ts.tile.where(p > 0.0, ds * grad, 0.0)
    return ds


@ts.func
def of_keys(state, kv, x, at, q0, edges, call, blocks):
    """Adds one block of queries to the gradients of a block of keys. Queries beyond the last are zeros and add nothing, provided
    their probabilities are finite: without ``score_mod`` they are 1."""
    dk, dv = state
    k, v = kv
    b, h, k0 = at
    score, _, _ = call
    q = x.Q[b, h, q0:q0 + blocks.BM, :]
    do = x.DO[b, h, q0:q0 + blocks.BM, :]
    lse = x.LSE[b, h, q0:q0 + blocks.BM]
    delta = x.DELTA[b, h, q0:q0 + blocks.BM]
    rows = k0 + ts.tile.arange(blocks.BN)[:, None]
    columns = q0 + ts.tile.arange(blocks.BM)[None, :]
    s = ts.tile.mma(k, q.T, accumulator=x.LSE.dtype)
    t, grad = logarithms(s, lse[None, :], (b, h), columns, rows, edges, call)
    if score.given:
        t = ts.tile.bounds_mask(t, cols=Sq - q0)
    p = ts.tile.exp2(t)
    dp = ts.tile.mma(v, do.T, accumulator=x.LSE.dtype)
    dv = ts.tile.mma(ts.tile.cast(p, do.dtype), do, dv)
    ds = gradients(p, dp, delta[None, :], grad, score)
    dk = ts.tile.mma(ts.tile.cast(ds, q.dtype), q, dk)
    return dk, dv


@ts.kernel
def keys(
    x: Saved,
    DK: ts.Tensor["B", "HK", "Sk", "D"],
    DV_: ts.Tensor["B", "HK", "Sk", "DV"],
    score: Function,
    mask: Function,
    scores: Scores,
    blocks: Blocks,
    shared: int = 1,
):
    """``shared`` heads of queries share one head of keys (grouped-query attention)."""
    b, hk, block = ts.tile.grid(B, HK, ts.cdiv(Sk, blocks.BN))
    k0 = block * blocks.BN
    kv = x.K[b, hk, k0:k0 + blocks.BN, :], x.V[b, hk, k0:k0 + blocks.BN, :]
    dk = ts.tile.zeros((blocks.BN, D), x.LSE.dtype)
    dv = ts.tile.zeros((blocks.BN, DV), x.LSE.dtype)
    call = score, mask, scores
    # Blocks of queries start at multiples of BM: first those masked on the right, then unmasked ones, then those masked on the left.
    begin = ts.tile.cast(0, ts.i64)
    end = Sq
    whole = begin
    edge = end
    if scores.high:
        begin = max(0, min((k0 - scores.highest) // blocks.BM * blocks.BM, Sq))
        whole = max(begin, min(ts.cdiv(k0 + blocks.BN - 1 - scores.highest, blocks.BM) * blocks.BM, ts.cdiv(Sq, blocks.BM) * blocks.BM))
    if scores.low:
        end = min(Sq, max(0, k0 + blocks.BN - scores.lowest))
        edge = max(whole, min(Sq, max(0, k0 - scores.lowest + 1) // blocks.BM * blocks.BM))
    for g in ts.tile.range(0, shared, 1):
        at = b, hk * shared + g, k0
        if scores.high:
            for q0 in ts.tile.range(begin, min(whole, end), blocks.BM):
                dk, dv = of_keys((dk, dv), kv, x, at, q0, (scores.low, True), call, blocks)
        for q0 in ts.tile.range(whole, edge, blocks.BM):
            dk, dv = of_keys((dk, dv), kv, x, at, q0, (False, False), call, blocks)
        if scores.low:
            for q0 in ts.tile.range(max(whole, edge), end, blocks.BM):
                dk, dv = of_keys((dk, dv), kv, x, at, q0, (True, scores.high), call, blocks)
    DK[b, hk, k0:k0 + blocks.BN, :] = dk * scores.scale
    DV_[b, hk, k0:k0 + blocks.BN, :] = dv


@ts.func
def of_queries(dq, queries, x, at, k0, edges, call, blocks):
    """Adds one block of keys to the gradients of a block of queries. ``edges`` says what masks it: its first keys, its last keys, the
    end of the keys."""
    q, do, lse, delta = queries
    b, h, hk, q0 = at
    low, high, last = edges
    score, _, _ = call
    k = x.K[b, hk, k0:k0 + blocks.BN, :]
    v = x.V[b, hk, k0:k0 + blocks.BN, :]
    rows = q0 + ts.tile.arange(blocks.BM)[:, None]
    columns = k0 + ts.tile.arange(blocks.BN)[None, :]
    s = ts.tile.mma(q, k.T, accumulator=x.LSE.dtype)
    t, grad = logarithms(s, lse[:, None], (b, h), rows, columns, (low, high), call)
    if last:
        t = ts.tile.bounds_mask(t, cols=Sk - k0)
    dp = ts.tile.mma(do, v.T, accumulator=x.LSE.dtype)
    ds = gradients(ts.tile.exp2(t), dp, delta[:, None], grad, score)
    return ts.tile.mma(ts.tile.cast(ds, k.dtype), k, dq)


@ts.kernel
def queries(x: Saved, DQ: ts.Tensor["B", "H", "Sq", "D"], score: Function, mask: Function, scores: Scores, blocks: Blocks):
    b, h, block = ts.tile.grid(B, H, ts.cdiv(Sq, blocks.BM))
    q0 = block * blocks.BM
    at = b, h, h // (H // HK), q0
    call = score, mask, scores
    q = x.Q[b, h, q0:q0 + blocks.BM, :]
    do = x.DO[b, h, q0:q0 + blocks.BM, :]
    of_block = q, do, x.LSE[b, h, q0:q0 + blocks.BM], x.DELTA[b, h, q0:q0 + blocks.BM]
    dq = ts.tile.zeros((blocks.BM, D), x.LSE.dtype)
    begin, whole, edge, end = key_blocks(q0, scores, blocks.BM, blocks.BN)
    if scores.low:
        for k0 in ts.tile.range(begin, whole, blocks.BN):
            dq = of_queries(dq, of_block, x, at, k0, (True, scores.high, True), call, blocks)
    for k0 in ts.tile.range(whole, edge, blocks.BN):
        dq = of_queries(dq, of_block, x, at, k0, (False, False, False), call, blocks)
    for k0 in ts.tile.range(max(whole, edge), end, blocks.BN):
        dq = of_queries(dq, of_block, x, at, k0, (scores.low, scores.high, True), call, blocks)
    DQ[b, h, q0:q0 + blocks.BM, :] = dq * scores.scale
