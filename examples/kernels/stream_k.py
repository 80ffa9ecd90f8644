"""Stream-K matmul: all groups do the same number of iterations.

The k iterations of all tiles form one sequence, and each group takes an equal part of it. If several groups share a tile, the
one with its last iterations adds the accumulators of the others and stores the result. It waits for groups with lower tickets
only; those have already started.

    python examples/kernels/stream_k.py
"""

import numpy as np

import tessera as ts
from gallery import check

BM, BN, BK = 32, 32, 16
GROUPS = 6


@ts.kernel
def product(
    A: ts.Tensor["M", "K", ts.f32],
    B: ts.Tensor["K", "N", ts.f32],
    C: ts.Out["M", "N", ts.f32],
    ticket: ts.Tensor[1, ts.int32],
    ready: ts.Tensor["groups", ts.int32],
    sums: ts.Tensor["groups", BM, BN, ts.f32],
):
    ts.tile.grid(groups)
    group = ts.tile.atomic_add(ticket[0], 1)
    across = ts.cdiv(N, BN)
    steps = ts.cdiv(K, BK)
    total = ts.cdiv(M, BM) * across * steps
    at = group * total // groups
    end = (group + 1) * total // groups
    while at < end:
        tile, first = at // steps, at % steps
        last = min(first + end - at, steps)
        m, n = tile // across * BM, tile % across * BN
        acc = ts.tile.zeros((BM, BN), ts.f32)
        for step in range(first, last):
            k = step * BK
            acc = ts.tile.mma(A[m : m + BM, k : k + BK], B[k : k + BK, n : n + BN], accumulator=acc)
        if last < steps:  # the next group continues this tile
            sums[group, :, :] = acc
            ts.tile.atomic_exchange(ready[group], 1, order="release")
        else:
            # Add the accumulators of the groups before, back to the start of the tile.
            other = group
            while other * total // groups > tile * steps:
                other -= 1
                while ts.tile.atomic_add(ready[other], 0, order="acquire") == 0:
                    pass
                acc += sums[other, :, :]
            C[m : m + BM, n : n + BN] = acc
        at += last - first
    return C


TOLERANCE = 1e-4


def run(A, B):
    iterations = ts.cdiv(A.shape[0], BM) * ts.cdiv(B.shape[1], BN) * ts.cdiv(A.shape[1], BK)
    groups = min(GROUPS, iterations)  # every group has work
    return product(
        A,
        B,
        ticket=np.zeros(1, np.int32),
        ready=np.zeros(groups, np.int32),
        sums=np.zeros((groups, BM, BN), np.float32),
    )


def reference(A, B):
    return A.astype(np.float64) @ B.astype(np.float64)


def cases():
    rng = np.random.default_rng(0)
    for M, N, K in ((0, 4, 4), (1, 1, 1), (32, 32, 200), (33, 70, 50), (64, 96, 64), (100, 20, 300)):
        yield rng.standard_normal((M, K), dtype=np.float32), rng.standard_normal((K, N), dtype=np.float32)


def main():
    check("stream_k", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
