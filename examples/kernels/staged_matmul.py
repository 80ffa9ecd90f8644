"""Matrix multiplication with a three-stage pipeline written by hand: copy groups in flight, waits by count.

    python examples/kernels/staged_matmul.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def staged_matmul(
    A: ts.Tensor["M", "K", ts.f16],
    B: ts.Tensor["K", "N", ts.f16],
    C: ts.Out["M", "N", ts.f32],
    BM: int = 64,
    BN: int = 64,
    BK: int = 32,
):
    m = ts.tile.program_id(0) * BM
    n = ts.tile.program_id(1) * BN
    a = ts.tile.alloc_shared((3, BM, BK), ts.f16)
    b = ts.tile.alloc_shared((3, BK, BN), ts.f16)
    for s in range(2):
        ts.tile.cp_async(a[s], A[m:m + BM, s * BK:s * BK + BK])
        ts.tile.cp_async(b[s], B[s * BK:s * BK + BK, n:n + BN])
        ts.tile.cp_commit_group()
    acc = ts.tile.zeros((BM, BN))
    for k in range(0, K, BK):
        ts.tile.cp_wait_group(1)
        ts.tile.barrier()
        if k + 2 * BK < K:
            ts.tile.cp_async(a[(k // BK + 2) % 3], A[m:m + BM, k + 2 * BK:k + 3 * BK])
            ts.tile.cp_async(b[(k // BK + 2) % 3], B[k + 2 * BK:k + 3 * BK, n:n + BN])
        ts.tile.cp_commit_group()
        acc = ts.tile.mma(a[k // BK % 3], b[k // BK % 3], acc)
    C[m:m + BM, n:n + BN] = acc
    return C


TOLERANCE = 3e-5

run = staged_matmul


def reference(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


def cases():
    rng = np.random.default_rng(0)
    for m, k, n in ((1, 1, 1), (64, 32, 64), (64, 64, 64), (100, 97, 33), (128, 256, 65), (3, 0, 5)):
        yield rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)


def main():
    check("staged_matmul", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
