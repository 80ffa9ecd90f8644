"""The gradients of attention: scores are computed again from the queries, the keys and the sums that the forward kernel kept.

With ``p = exp(s - lse)`` and ``delta = sum(dO * O) - dLSE`` for each query, ``ds = p * (dO V^T - delta)``; then ``dV = p^T dO``,
``dK = ds^T Q`` and ``dQ = ds K``, the last two times the scale. One kernel takes a block of keys and walks over the queries that
see some of them, of every head that shares the keys; the other takes a block of queries and walks over the keys that they see.
Each element is written by one group, in one order: the bits are the same every time.

In the kernel of keys scores are held with keys as rows, so that weights are the left factors of the products that they enter.
``LSE`` comes times log2(e), and as inf for queries that see nothing: their weights are then zeros.
"""

from __future__ import annotations

import math

import tessera as ts

from .attention import any_score


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
def weights(s, lse, q, k, factor, lowest, highest, low, high, b, h, mask, Z, W, masks):
    """2 ** (factor * s - lse) for the pairs that count; ``q`` and ``k`` are positions."""
    t = s * factor - lse
    if low:
        t = ts.tile.where(k >= q + lowest, t, -math.inf)
    if high:
        t = ts.tile.where(k <= q + highest, t, -math.inf)
    if masks == 0:
        t = ts.tile.where(mask(b, h, q, k), t, -math.inf)
    elif masks == 1:
        t = ts.tile.where(mask(b, h, q, k, Z), t, -math.inf)
    elif masks == 2:
        t = ts.tile.where(mask(b, h, q, k, Z, W), t, -math.inf)
    return ts.tile.exp2(t)


@ts.func
def of_keys(
    dk, dv, k, v, Q, DO, LSE, DELTA, b, h, q0, k0, factor, lowest, highest, low, high, BM, BN, wide, mask, Z, W, masks
):
    """What one block of queries adds to the gradients of a block of keys. Queries beyond the last are zeros and add none."""
    q = Q[b, h, q0:q0 + BM, :]
    do = DO[b, h, q0:q0 + BM, :]
    lse = LSE[b, h, q0:q0 + BM]
    delta = DELTA[b, h, q0:q0 + BM]
    rows = k0 + ts.tile.arange(BN)[:, None]
    columns = q0 + ts.tile.arange(BM)[None, :]
    s = ts.tile.mma(k, q.T, accumulator=wide)
    p = weights(s, lse[None, :], columns, rows, factor, lowest, highest, low, high, b, h, mask, Z, W, masks)
    dp = ts.tile.mma(v, do.T, accumulator=wide)
    dv = ts.tile.mma(ts.tile.cast(p, do.dtype), do, dv)
    ds = p * (dp - delta[None, :])
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
    Z,
    W,
    scale: float,
    lowest: int = 0,
    highest: int = 0,
    low: bool = False,
    high: bool = False,
    mask: ts.Fn = any_score,
    masks: int = -1,
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
    factor = scale * 1.4426950408889634
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
                dk, dv = of_keys(
                    dk, dv, k, v, Q, DO, LSE, DELTA, b, h, q0, k0, factor, lowest, highest, low, True, BM, BN, wide, mask, Z, W,
                    masks,
                )  # fmt: skip
        for q0 in ts.tile.range(whole, edge, BM):
            dk, dv = of_keys(
                dk, dv, k, v, Q, DO, LSE, DELTA, b, h, q0, k0, factor, lowest, highest, False, False, BM, BN, wide, mask, Z, W,
                masks,
            )  # fmt: skip
        if low:
            for q0 in ts.tile.range(max(whole, edge), end, BM):
                dk, dv = of_keys(
                    dk, dv, k, v, Q, DO, LSE, DELTA, b, h, q0, k0, factor, lowest, highest, True, high, BM, BN, wide, mask, Z, W,
                    masks,
                )  # fmt: skip
    DK[b, hk, k0:k0 + BN, :] = dk * scale
    DV_[b, hk, k0:k0 + BN, :] = dv


@ts.func
def of_queries(
    dq, q, do, lse, delta, K, V, b, h, hk, q0, k0, factor, lowest, highest, low, high, last, BM, BN, wide, mask, Z, W, masks
):
    """What one block of keys adds to the gradients of a block of queries."""
    k = K[b, hk, k0:k0 + BN, :]
    v = V[b, hk, k0:k0 + BN, :]
    rows = q0 + ts.tile.arange(BM)[:, None]
    columns = k0 + ts.tile.arange(BN)[None, :]
    s = ts.tile.mma(q, k.T, accumulator=wide)
    if last:
        s = ts.tile.bounds_mask(s, cols=K.shape[2] - k0)
    p = weights(s, lse[:, None], rows, columns, factor, lowest, highest, low, high, b, h, mask, Z, W, masks)
    dp = ts.tile.mma(do, v.T, accumulator=wide)
    ds = p * (dp - delta[:, None])
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
    Z,
    W,
    scale: float,
    lowest: int = 0,
    highest: int = 0,
    low: bool = False,
    high: bool = False,
    mask: ts.Fn = any_score,
    masks: int = -1,
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
    factor = scale * 1.4426950408889634
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
            dq = of_queries(
                dq, q, do, lse, delta, K, V, b, h, hk, q0, k0, factor, lowest, highest, True, high, True, BM, BN, wide, mask, Z, W,
                masks,
            )  # fmt: skip
    for k0 in ts.tile.range(whole, edge, BN):
        dq = of_queries(
            dq, q, do, lse, delta, K, V, b, h, hk, q0, k0, factor, lowest, highest, False, False, False, BM, BN, wide, mask, Z, W,
            masks,
        )  # fmt: skip
    for k0 in ts.tile.range(max(whole, edge), end, BN):
        dq = of_queries(
            dq, q, do, lse, delta, K, V, b, h, hk, q0, k0, factor, lowest, highest, low, high, True, BM, BN, wide, mask, Z, W,
            masks,
        )  # fmt: skip
    DQ[b, h, q0:q0 + BM, :] = dq * scale
