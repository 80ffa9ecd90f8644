"""Attention with an online softmax: one block of queries for each group, any sequence length.

    python examples/attention.py
"""

import math

import numpy as np

import tessera as ts


@ts.kernel.autotune(space=dict(BLOCK_M=[64, 128], BLOCK_N=[64, 128], num_warps=[4, 8]))
def attention(
    Q: ts.Tensor["BH", "S", "D", ts.bf16],
    K: ts.Tensor["BH", "S", "D", ts.bf16],
    V: ts.Tensor["BH", "S", "D", ts.bf16],
    O: ts.Out["BH", "S", "D", ts.bf16],
    is_causal: bool = True,
):
    t = ts.tile.context()
    BM, BN = t.BLOCK_M, t.BLOCK_N
    bh = ts.tile.program_id(0)
    q0 = ts.tile.program_id(1) * BM
    sq = ts.tile.alloc_shared((BM, D), ts.bf16)
    sk = ts.tile.alloc_shared((BN, D), ts.bf16)
    sv = ts.tile.alloc_shared((BN, D), ts.bf16)
    acc = ts.tile.zeros((BM, D), ts.f32)
    m = ts.tile.full((BM,), -math.inf, ts.f32)  # the largest score of each row so far
    l = ts.tile.zeros((BM,), ts.f32)  # the sum of the weights of each row so far
    ts.tile.cp_async(sq, Q[bh, q0:q0 + BM, :])
    hi = min(S, q0 + BM) if is_causal else S  # blocks above the diagonal are skipped
    for k0 in ts.tile.range(0, hi, BN):
        ts.tile.cp_async(sk, K[bh, k0:k0 + BN, :])
        ts.tile.cp_async(sv, V[bh, k0:k0 + BN, :])
        ts.tile.barrier()
        s = ts.tile.mma(sq, sk.T) * (1.0 / math.sqrt(D))
        s = ts.tile.bounds_mask(s, cols=S - k0)  # keys beyond the end get no weight
        if is_causal:
            s = ts.tile.causal_mask(s, q0, k0)
        m_new = ts.tile.maximum(m, ts.tile.row_max(s))
        alpha = ts.tile.exp(m - m_new)
        p = ts.tile.exp(s - m_new[:, None])
        l = alpha * l + ts.tile.row_sum(p)
        acc = alpha[:, None] * acc + ts.tile.mma(ts.tile.cast(p, ts.bf16), sv)
        m = m_new
    O[bh, q0:q0 + BM, :] = ts.tile.cast(acc / l[:, None], ts.bf16)
    return O


def reference(Q, K, V, is_causal):
    q, k, v = (x.astype(np.float64) for x in (Q, K, V))
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
    if is_causal:
        scores = np.where(np.tri(q.shape[1], dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def main():
    rng = np.random.default_rng(0)
    for length in (1, 63, 64, 65, 200):
        for is_causal in (True, False):
            Q, K, V = (ts.array(rng.standard_normal((2, length, 64)), "bf16") for _ in range(3))
            O = attention(Q, K, V, is_causal=is_causal)
            error = np.abs(O.astype(np.float64) - reference(Q, K, V, is_causal)).max()
            assert error < 2e-2
            print(f"attention  S={length:<4} {'causal' if is_causal else 'full':<7} largest error {error:.1e}")


if __name__ == "__main__":
    main()
