"""Dropout from a seed: whether an element is dropped depends only on the seed and its position, not on tile sizes.

    python examples/kernels/dropout.py
"""

import numpy as np

import tessera as ts
from gallery import check

BM, BN = 8, 64


@ts.kernel
def dropout_tiles(x: ts.Tensor["M", "N", ts.f32], p: float, seed: ts.i64, y: ts.Out["M", "N", ts.f32]):
    m = ts.tile.program_id(0) * BM
    n = ts.tile.program_id(1) * BN
    y[m:m + BM, n:n + BN] = ts.tile.dropout(x[m:m + BM, n:n + BN], p, seed, at=(m, n), shape=(M, N))
    return y


@ts.kernel
def dropout_lanes(x: ts.Tensor["M", "N", ts.f32], p: float, seed: ts.i64, y: ts.Out["M", "N", ts.f32]):
    i = ts.tile.linear_id()
    if i < M * N:
        keep = ts.tile.philox(seed, i) >= round(p * 2**32)
        y[i // N, i % N] = x[i // N, i % N] * (1.0 / (1.0 - p)) if keep else 0.0
    return y


TOLERANCE = 1e-6


def philox(seed, counter):
    """The first word of Philox4x32-10."""
    mask = np.uint64(0xFFFFFFFF)
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    c = [counter & mask, counter >> np.uint64(32), np.zeros_like(counter), np.zeros_like(counter)]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> np.uint64(32) ^ c[1] ^ key[0], b & mask, a >> np.uint64(32) ^ c[3] ^ key[1], a & mask]
        key = [(k + np.uint64(w)) & mask for k, w in zip(key, (0x9E3779B9, 0xBB67AE85))]
    return c[0]


def run(x, p, seed):
    return dropout_tiles(x, p, seed), dropout_lanes(x, p, seed)


def reference(x, p, seed):
    keep = philox(seed, np.arange(x.size, dtype=np.uint64)).reshape(x.shape) >= round(p * 2**32)
    y = np.where(keep, x.astype(np.float64) / (1 - p), 0)
    return y, y


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 3), (1, 1), (31, 64), (9, 65), (3, 1000)):
        for p, seed in ((0.1, 7), (0.75, 2**40 + 3)):
            yield rng.standard_normal((m, n), dtype=np.float32), p, seed
    yield np.ones((5, 5), np.float32), 0.0, 1


def main():
    check("dropout", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
