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

from .attention import any_score, sees


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


@ts.func
def value_and_grad_of(s, b, h, q, k, scores, X, Y, changes):
    """The scores that ``score_mod`` returns, and its derivative."""
    if changes == 0:
        t, grad = ts.tile.value_and_grad(scores, s, b, h, q, k)
    elif changes == 1:
        t, grad = ts.tile.value_and_grad(scores, s, b, h, q, k, X)
    else:
        t, grad = ts.tile.value_and_grad(scores, s, b, h, q, k, X, Y)
    return t, grad


@ts.kernel
def derived(S: ts.Tensor["M", "N"], T: ts.Tensor["M", "N"], X, Y, scores: ts.Fn, changes: int = 0, BM: int = 16, BN: int = 64):
    """The derivative of ``score_mod`` alone: compiling this kernel checks that it has one."""
    i, j = ts.tile.grid(ts.cdiv(M, BM), ts.cdiv(N, BN))
    rows = i * BM + ts.tile.arange(BM)[:, None]
    columns = j * BN + ts.tile.arange(BN)[None, :]
    _, T[i * BM:i * BM + BM, j * BN:j * BN + BN] = value_and_grad_of(
        S[i * BM:i * BM + BM, j * BN:j * BN + BN], i, j, rows, columns, scores, X, Y, changes
    )  # fmt: skip


@ts.func
def logarithms(s, lse, b, h, q, k, scale, low, high, seen, mods):
    """The base-2 logarithms of the probabilities, -inf for masked pairs, and the derivative of ``score_mod``. ``q`` and ``k`` are
    positions that broadcast to the shape of ``s``."""
    lowest, highest = seen
    scores, X, Y, changes, mask, Z, W, masks = mods
    grad = 1.0
    if changes < 0:
        t = s * (scale * 1.4426950408889634) - lse
    else:
        t, grad = value_and_grad_of(s * scale, b, h, q, k, scores, X, Y, changes)
        t = t * 1.4426950408889634 - lse
    if low:
        t = ts.tile.where(k >= q + lowest, t, -math.inf)
    if high:
        t = ts.tile.where(k <= q + highest, t, -math.inf)
    if masks >= 0:
        t = ts.tile.where(sees(s, b, h, q, k, mask, Z, W, masks), t, -math.inf)
    return t, grad


@ts.func
def gradients(p, dp, delta, grad, mods):
    """The gradients of the scores."""
    ds = p * (dp - delta)
    if mods[3] >= 0:
        # The derivative of a masked score may be anything.
        ds = ts.tile.where(p > 0.0, ds * grad, 0.0)
    return ds


@ts.func
def of_keys(dk, dv, k, v, Q, DO, LSE, DELTA, b, h, q0, k0, scale, low, high, BM, BN, wide, seen, mods):
    """Adds one block of queries to the gradients of a block of keys. Queries beyond the last are zeros and add nothing, provided
    their probabilities are finite: without ``score_mod`` they are 1."""
    q = Q[b, h, q0:q0 + BM, :]
    do = DO[b, h, q0:q0 + BM, :]
    lse = LSE[b, h, q0:q0 + BM]
    delta = DELTA[b, h, q0:q0 + BM]
    rows = k0 + ts.tile.arange(BN)[:, None]
    columns = q0 + ts.tile.arange(BM)[None, :]
    s = ts.tile.mma(k, q.T, accumulator=wide)
    t, grad = logarithms(s, lse[None, :], b, h, columns, rows, scale, low, high, seen, mods)
    if mods[3] >= 0:
        t = ts.tile.bounds_mask(t, cols=Q.shape[2] - q0)
    p = ts.tile.exp2(t)
    dp = ts.tile.mma(v, do.T, accumulator=wide)
    dv = ts.tile.mma(ts.tile.cast(p, do.dtype), do, dv)
    ds = gradients(p, dp, delta[None, :], grad, mods)
    dk = ts.tile.mma(ts.tile.cast(ds, q.dtype), q, dk)
    return dk, dv


@ts.kernel
def keys(
    Q: ts.Tensor["B", "H", "Sq", "D"],
    K: ts.Tensor["B", "HK", "Sk", "D"],
    V: ts.Tensor["B", "HK", "Sk", "DV"],
    DO: ts.Tensor["B", "H", "Sq", "DV"],
    LSE: ts.Tensor["B", "H", "Sq"],
    DELTA: ts.Tensor["B", "H", "Sq"],
    DK: ts.Tensor["B", "HK", "Sk", "D"],
    DV_: ts.Tensor["B", "HK", "Sk", "DV"],
    X,
    Y,
    Z,
    W,
    scale: float,
    lowest: int = 0,
    highest: int = 0,
    scores: ts.Fn = any_score,
    mask: ts.Fn = any_score,
    changes: int = -1,
    masks: int = -1,
    low: bool = False,
    high: bool = False,
    shared: int = 1,
    BM: int = 64,
    BN: int = 64,
    num_warps: int = 0,
    num_stages: int = 0,
):
    """Query ``i`` sees the keys from ``i + lowest`` (with ``low``) to ``i + highest`` (with ``high``); ``shared`` heads of queries
    share one head of keys (grouped-query attention)."""
    b, hk, block = ts.tile.grid(B, HK, ts.cdiv(Sk, BN))
    k0 = block * BN
    k = K[b, hk, k0:k0 + BN, :]
    v = V[b, hk, k0:k0 + BN, :]
    wide = LSE.dtype
    dk = ts.tile.zeros((BN, D), wide)
    dv = ts.tile.zeros((BN, DV), wide)
    seen = (lowest, highest)
    mods = (scores, X, Y, changes, mask, Z, W, masks)
    # Blocks of queries start at multiples of BM: first those masked on the right, then unmasked ones, then those masked on the left.
    begin = ts.tile.cast(0, ts.i64)
    end = Sq
    whole = begin
    edge = end
    if high:
        begin = max(0, min((k0 - highest) // BM * BM, Sq))
        whole = max(begin, min(ts.cdiv(k0 + BN - 1 - highest, BM) * BM, ts.cdiv(Sq, BM) * BM))
    if low:
        end = min(Sq, max(0, k0 + BN - lowest))
        edge = max(whole, min(Sq, max(0, k0 - lowest + 1) // BM * BM))
    for g in ts.tile.range(0, shared, 1):
        h = hk * shared + g
        if high:
            for q0 in ts.tile.range(begin, min(whole, end), BM):
                dk, dv = of_keys(dk, dv, k, v, Q, DO, LSE, DELTA, b, h, q0, k0, scale, low, True, BM, BN, wide, seen, mods)
        for q0 in ts.tile.range(whole, edge, BM):
            dk, dv = of_keys(dk, dv, k, v, Q, DO, LSE, DELTA, b, h, q0, k0, scale, False, False, BM, BN, wide, seen, mods)
        if low:
            for q0 in ts.tile.range(max(whole, edge), end, BM):
                dk, dv = of_keys(dk, dv, k, v, Q, DO, LSE, DELTA, b, h, q0, k0, scale, True, high, BM, BN, wide, seen, mods)
    DK[b, hk, k0:k0 + BN, :] = dk * scale
    DV_[b, hk, k0:k0 + BN, :] = dv


@ts.func
def of_queries(dq, q, do, lse, delta, K, V, b, h, hk, q0, k0, scale, low, high, last, BM, BN, wide, seen, mods):
    """Adds one block of keys to the gradients of a block of queries."""
    k = K[b, hk, k0:k0 + BN, :]
    v = V[b, hk, k0:k0 + BN, :]
    rows = q0 + ts.tile.arange(BM)[:, None]
    columns = k0 + ts.tile.arange(BN)[None, :]
    s = ts.tile.mma(q, k.T, accumulator=wide)
    t, grad = logarithms(s, lse[:, None], b, h, rows, columns, scale, low, high, seen, mods)
    if last:
        t = ts.tile.bounds_mask(t, cols=K.shape[2] - k0)
    dp = ts.tile.mma(do, v.T, accumulator=wide)
    ds = gradients(ts.tile.exp2(t), dp, delta[:, None], grad, mods)
    return ts.tile.mma(ts.tile.cast(ds, k.dtype), k, dq)


@ts.kernel
def queries(
    Q: ts.Tensor["B", "H", "Sq", "D"],
    K: ts.Tensor["B", "HK", "Sk", "D"],
    V: ts.Tensor["B", "HK", "Sk", "DV"],
    DO: ts.Tensor["B", "H", "Sq", "DV"],
    LSE: ts.Tensor["B", "H", "Sq"],
    DELTA: ts.Tensor["B", "H", "Sq"],
    DQ: ts.Tensor["B", "H", "Sq", "D"],
    X,
    Y,
    Z,
    W,
    scale: float,
    lowest: int = 0,
    highest: int = 0,
    scores: ts.Fn = any_score,
    mask: ts.Fn = any_score,
    changes: int = -1,
    masks: int = -1,
    low: bool = False,
    high: bool = False,
    BM: int = 64,
    BN: int = 64,
    num_warps: int = 0,
    num_stages: int = 0,
):
    """Query ``i`` sees the keys from ``i + lowest`` (with ``low``) to ``i + highest`` (with ``high``)."""
    b, h, block = ts.tile.grid(B, H, ts.cdiv(Sq, BM))
    q0 = block * BM
    hk = h // (H // HK)
    q = Q[b, h, q0:q0 + BM, :]
    do = DO[b, h, q0:q0 + BM, :]
    lse = LSE[b, h, q0:q0 + BM]
    delta = DELTA[b, h, q0:q0 + BM]
    wide = LSE.dtype
    dq = ts.tile.zeros((BM, D), wide)
    seen = (lowest, highest)
    mods = (scores, X, Y, changes, mask, Z, W, masks)
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
            dq = of_queries(dq, q, do, lse, delta, K, V, b, h, hk, q0, k0, scale, True, high, True, BM, BN, wide, seen, mods)
    for k0 in ts.tile.range(whole, edge, BN):
        dq = of_queries(dq, q, do, lse, delta, K, V, b, h, hk, q0, k0, scale, False, False, False, BM, BN, wide, seen, mods)
    for k0 in ts.tile.range(max(whole, edge), end, BN):
        dq = of_queries(dq, q, do, lse, delta, K, V, b, h, hk, q0, k0, scale, low, high, True, BM, BN, wide, seen, mods)
    DQ[b, h, q0:q0 + BM, :] = dq * scale
