"""Paged attention for decoding: one query per sequence, keys and values in pages, grouped-query heads (GQA).

A table lists the pages of each sequence in order; its length says how many keys of the last page are valid.

    python examples/kernels/paged_decode.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check

PAGE = 16


@ts.kernel
def decode(
    Q: ts.Tensor["batch", "heads", "D", ts.f32],
    K: ts.Tensor["pages", PAGE, "kv_heads", "D", ts.f32],
    V: ts.Tensor["pages", PAGE, "kv_heads", "D", ts.f32],
    table: ts.Tensor["batch", "most", ts.int32],
    lengths: ts.Tensor["batch", ts.int32],
    scale: ts.f32,
    O: ts.Out["batch", "heads", "D", ts.f32],
):
    b, h = ts.tile.grid(batch, kv_heads)
    rep = heads // kv_heads  # query heads that share the keys and values of one
    q = Q[b, h * rep : h * rep + rep, :] * scale
    m = ts.tile.full((rep,), -math.inf)
    l = ts.tile.zeros((rep,))
    acc = ts.tile.zeros((rep, D))
    length = lengths[b]
    for i in range(ts.cdiv(length, PAGE)):
        page = table[b, i]
        s = ts.tile.mma(q, K[page, :, h, :], transpose_b=True)
        s = ts.tile.bounds_mask(s, cols=length - i * PAGE)
        m, l, p, alpha = ts.tile.softmax_online(m, l, s)
        acc = ts.tile.softmax_accumulate(acc, alpha, p, V[page, :, h, :])
    O[b, h * rep : h * rep + rep, :] = ts.tile.softmax_finish(acc, l)
    return O


TOLERANCE = 1e-4


def run(Q, K, V, table, lengths):
    return decode(Q, K, V, table, lengths, 1 / math.sqrt(Q.shape[-1]))


def reference(Q, K, V, table, lengths):
    batch, heads, D = Q.shape
    rep = heads // K.shape[2]
    out = np.zeros(Q.shape)
    for b, length in enumerate(lengths):
        if length == 0:
            continue
        pages = table[b, : -(-length // PAGE)]
        k, v = (np.repeat(x[pages].reshape(-1, *x.shape[2:])[:length], rep, axis=1).astype(np.float64) for x in (K, V))
        s = np.einsum("hd,khd->hk", Q[b], k) / math.sqrt(D)
        p = np.exp(s - s.max(-1, keepdims=True))
        out[b] = np.einsum("hk,khd->hd", p / p.sum(-1, keepdims=True), v)
    return out


def case(rng, kv_heads, rep, D, lengths):
    """Sequences of these lengths, their pages in any order."""
    lengths = np.array(lengths, np.int32)
    counts = -(-lengths // PAGE)
    pages, most = int(counts.sum()) + 3, int(counts.max(initial=0)) + 1
    free = iter(rng.permutation(pages))
    table = np.zeros((len(lengths), most), np.int32)
    for row, used in zip(table, counts):
        row[:used] = [next(free) for _ in range(used)]
    K, V = rng.standard_normal((2, pages, PAGE, kv_heads, D), dtype=np.float32)
    return rng.standard_normal((len(lengths), kv_heads * rep, D), dtype=np.float32), K, V, table, lengths


def cases():
    rng = np.random.default_rng(0)
    yield case(rng, 2, 1, 8, [])
    yield case(rng, 1, 1, 8, [1])
    yield case(rng, 2, 4, 16, [16, 5, 33])
    yield case(rng, 3, 2, 32, [0, 100])
    yield case(rng, 1, 8, 64, [17, 64, 3, 50])


def main():
    check("paged_decode", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
