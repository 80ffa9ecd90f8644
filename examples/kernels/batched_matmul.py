"""A batch of bf16 matmuls with f32 accumulation; the caller's function is the epilogue.

    python examples/kernels/batched_matmul.py
"""

import numpy as np

import tessera as ts
from gallery import check

BM, BN, BK = 32, 32, 16


@ts.kernel
def batched_matmul(
    A: ts.Tensor["B", "M", "K", ts.bf16],
    W: ts.Tensor["B", "K", "N", ts.bf16],
    C: ts.Out["B", "M", "N", ts.f32],
    epilogue: ts.Fn = ts.identity,
):
    b = ts.tile.program_id(0)
    m0 = ts.tile.program_id(1) * BM
    n0 = ts.tile.program_id(2) * BN
    acc = ts.tile.zeros((BM, BN), ts.f32)
    for k in ts.tile.range(0, K, BK):
        acc = ts.tile.mma(A[b, m0:m0 + BM, k:k + BK], W[b, k:k + BK, n0:n0 + BN], accumulator=acc)
    C[b, m0:m0 + BM, n0:n0 + BN] = epilogue(acc)
    return C


@ts.func
def relu(x):
    return ts.tile.maximum(x, 0.0)


TOLERANCE = 1e-5


def run(A, W):
    return batched_matmul(A, W), batched_matmul(A, W, epilogue=relu)


def reference(A, W):
    C = A.astype(np.float64) @ W.astype(np.float64)
    return C, np.maximum(C, 0)


def cases():
    rng = np.random.default_rng(0)
    for b, m, n, k in ((0, 2, 2, 2), (1, 1, 1, 1), (2, 31, 33, 16), (3, 64, 5, 65), (1, 3, 3, 0)):
        yield ts.array(rng.standard_normal((b, m, k)), "bf16"), ts.array(rng.standard_normal((b, k, n)), "bf16")


def main():
    check("batched_matmul", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
