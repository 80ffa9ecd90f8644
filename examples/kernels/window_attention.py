"""Causal attention in which a query sees the last `window` keys only: online softmax over the blocks that matter.

    python examples/kernels/window_attention.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check

BM, BN = 32, 32


@ts.kernel
def window_attention(
    Q: ts.Tensor["BH", "S", "D", ts.bf16],
    K: ts.Tensor["BH", "S", "D", ts.bf16],
    V: ts.Tensor["BH", "S", "D", ts.bf16],
    window: ts.int32,
    O: ts.Out["BH", "S", "D", ts.f32],
):
    bh = ts.tile.program_id(0)
    q0 = ts.tile.program_id(1) * BM
    q = Q[bh, q0:q0 + BM, :]
    acc = ts.tile.zeros((BM, D), ts.f32)
    m = ts.tile.full((BM,), -1e30, ts.f32)  # not -inf: a block may hold no key for some rows, and -inf - -inf is NaN
    l = ts.tile.zeros((BM,), ts.f32)
    first = max(0, q0 - window + 1) // BN * BN
    for k0 in ts.tile.range(first, min(S, q0 + BM), BN):
        s = ts.tile.mma(q, K[bh, k0:k0 + BN, :], transpose_b=True) * (1.0 / math.sqrt(D))
        rows = q0 + ts.tile.arange(BM)[:, None]
        columns = k0 + ts.tile.arange(BN)[None, :]
        seen = (columns <= rows) & (columns > rows - window)
        s = ts.tile.where(seen & (columns < S), s, -math.inf)
        m_new = ts.tile.maximum(m, ts.tile.row_max(s))
        alpha = ts.tile.exp(m - m_new)
        p = ts.tile.exp(s - m_new[:, None])
        l = alpha * l + ts.tile.row_sum(p)
        acc = alpha[:, None] * acc + ts.tile.mma(ts.tile.cast(p, ts.bf16), V[bh, k0:k0 + BN, :])
        m = m_new
    O[bh, q0:q0 + BM, :] = acc / l[:, None]
    return O


TOLERANCE = 1e-2  # the weights are rounded to bf16

run = window_attention


def reference(Q, K, V, window):
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    rows, columns = np.arange(q.shape[1])[:, None], np.arange(q.shape[1])[None, :]
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    scores = np.where((columns <= rows) & (columns > rows - window), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True, initial=-1e30))
    return weights / weights.sum(-1, keepdims=True) @ v


def cases():
    rng = np.random.default_rng(0)
    sizes = ((1, 0, 8, 4), (1, 1, 16, 1), (2, 31, 32, 5), (1, 65, 16, 64), (2, 200, 8, 40), (1, 100, 16, 1000))
    for bh, s, d, window in sizes:
        yield (*(ts.array(rng.standard_normal((bh, s, d)), "bf16") for _ in range(3)), window)


def main():
    check("window_attention", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
