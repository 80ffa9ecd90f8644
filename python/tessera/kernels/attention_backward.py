"""The gradients of attention: scores are computed again from the queries, the keys and the sums that the forward kernel kept.

With ``p = exp(s - lse)`` and ``delta = sum(dO * O) - dLSE`` for each query, ``ds = p * (dO V^T - delta)``; then ``dV = p^T dO``,
``dK = ds^T Q`` and ``dQ = ds K``, the last two times the scale. Where a function of the caller's changes scores, ``s`` is what it
gives, and ``ds`` goes times its derivative. One kernel takes a block of keys and walks over the queries that
see some of them, of every head that shares the keys; the other takes a block of queries and walks over the keys that they see.
Each element is written by one group, in one order: the bits are the same every time.

In the kernel of keys scores are held with keys as rows, so that weights are the left factors of the products that they enter.
``LSE`` comes times log2(e), and as inf for queries that see nothing: their weights are then zeros.
"""

from __future__ import annotations

import math

import tessera as ts

from .attention import any_score, sees


def tiles_of_keys(D: int, DV: int, itemsize: int) -> tuple[int, int, int]:
    """Queries and keys of a block, and warps: two sums of keys by head dim are held, and two blocks of scores."""
    if itemsize > 2:
        return (32, 32, 4) if max(D, DV) <= 64 else (16, 32, 4)
    return (64, 128, 8) if max(D, DV) <= 128 else (16, 64, 4)


def tiles_of_queries(Sq: int, D: int, DV: int, itemsize: int) -> tuple[int, int, int]:
    """Queries and keys of a block, and warps: one sum of queries by head dim is held, and two blocks of scores."""
    if itemsize > 2:
        return (64, 32, 8) if max(D, DV) <= 64 else (32, 16, 4)
    if max(D, DV) > 128:
        return 64, 64, 4
    return (128, 128, 8) if Sq > 64 else (64, 64, 4)


@ts.func
def slopes(s, b, h, q, k, scores, X, Y, changes):
    """Scores as a function changes them, and its derivative."""
    if changes == 0:
        t, slope = ts.tile.slope(scores, s, b, h, q, k)
    elif changes == 1:
        t, slope = ts.tile.slope(scores, s, b, h, q, k, X)
    else:
        t, slope = ts.tile.slope(scores, s, b, h, q, k, X, Y)
    return t, slope


@ts.kernel
def derived(S: ts.Tensor["M", "N"], T: ts.Tensor["M", "N"], X, Y, scores: ts.Fn, changes: int = 0, BM: int = 16, BN: int = 64):
    """The derivative of a function of scores by itself: what is asked of it is asked here."""
    i, j = ts.tile.grid(ts.cdiv(M, BM), ts.cdiv(N, BN))
    rows = i * BM + ts.tile.arange(BM)[:, None]
    columns = j * BN + ts.tile.arange(BN)[None, :]
    _, T[i * BM:i * BM + BM, j * BN:j * BN + BN] = slopes(
        S[i * BM:i * BM + BM, j * BN:j * BN + BN], i, j, rows, columns, scores, X, Y, changes
    )  # fmt: skip


@ts.func
def logarithms(s, lse, b, h, q, k, scale, low, high, seen, mods):
    """Of the weights the logarithms to 2, -inf for pairs that do not count, and the derivative of what changes the scores. ``q``
    and ``k`` are positions that broadcast to the shape of ``s``."""
    lowest, highest = seen
    scores, X, Y, changes, mask, Z, W, masks = mods
    slope = 1.0
    if changes < 0:
        t = s * (scale * 1.4426950408889634) - lse
    else:
        t, slope = slopes(s * scale, b, h, q, k, scores, X, Y, changes)
        t = t * 1.4426950408889634 - lse
    if low:
        t = ts.tile.where(k >= q + lowest, t, -math.inf)
    if high:
        t = ts.tile.where(k <= q + highest, t, -math.inf)
    if masks >= 0:
        t = ts.tile.where(sees(s, b, h, q, k, mask, Z, W, masks), t, -math.inf)
    return t, slope


@ts.func
def gradients(p, dp, delta, slope, mods):
    """Of the scores."""
    ds = p * (dp - delta)
    if mods[3] >= 0:
        # Whatever the derivative is where nothing is seen.
        ds = ts.tile.where(p > 0.0, ds * slope, 0.0)
    return ds


@ts.func
def of_keys(dk, dv, k, v, Q, DO, LSE, DELTA, b, h, q0, k0, scale, low, high, BM, BN, wide, seen, mods):
    """What one block of queries adds to the gradients of a block of keys. Queries beyond the last are zeros and add none, if their
    weights are finite: without a function of scores they are 1."""
    q = Q[b, h, q0:q0 + BM, :]
    do = DO[b, h, q0:q0 + BM, :]
    lse = LSE[b, h, q0:q0 + BM]
    delta = DELTA[b, h, q0:q0 + BM]
    rows = k0 + ts.tile.arange(BN)[:, None]
    columns = q0 + ts.tile.arange(BM)[None, :]
    s = ts.tile.mma(k, q.T, accumulator=wide)
    t, slope = logarithms(s, lse[None, :], b, h, columns, rows, scale, low, high, seen, mods)
    if mods[3] >= 0:
        t = ts.tile.bounds_mask(t, cols=Q.shape[2] - q0)
    p = ts.tile.exp2(t)
    dp = ts.tile.mma(v, do.T, accumulator=wide)
    dv = ts.tile.mma(ts.tile.cast(p, do.dtype), do, dv)
    ds = gradients(p, dp, delta[None, :], slope, mods)
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
    have one head of keys."""
    b, hk, block = ts.tile.grid(B, HK, ts.cdiv(Sk, BN))
    k0 = block * BN
    k = K[b, hk, k0:k0 + BN, :]
    v = V[b, hk, k0:k0 + BN, :]
    wide = LSE.dtype
    dk = ts.tile.zeros((BN, D), wide)
    dv = ts.tile.zeros((BN, DV), wide)
    seen = (lowest, highest)
    mods = (scores, X, Y, changes, mask, Z, W, masks)
    # Blocks of queries begin at multiples of BM: with an edge on the right of what they see, whole ones, an edge on the left.
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
    """What one block of keys adds to the gradients of a block of queries."""
    k = K[b, hk, k0:k0 + BN, :]
    v = V[b, hk, k0:k0 + BN, :]
    rows = q0 + ts.tile.arange(BM)[:, None]
    columns = k0 + ts.tile.arange(BN)[None, :]
    s = ts.tile.mma(q, k.T, accumulator=wide)
    t, slope = logarithms(s, lse[:, None], b, h, rows, columns, scale, low, high, seen, mods)
    if last:
        t = ts.tile.bounds_mask(t, cols=K.shape[2] - k0)
    dp = ts.tile.mma(do, v.T, accumulator=wide)
    ds = gradients(ts.tile.exp2(t), dp, delta[:, None], slope, mods)
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
