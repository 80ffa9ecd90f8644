"""C = A @ B in bf16 with an f32 result, one tile of C per group. The autotuner chooses among many tile sizes."""

import tessera as ts


@ts.kernel.autotune(space=dict(BM=[64, 128, 256], BN=[64, 128, 256], BK=[32, 64], num_warps=[4, 8]))
def gemm(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    t = ts.tile.context()
    m0 = ts.tile.program_id(0) * t.BM
    n0 = ts.tile.program_id(1) * t.BN
    acc = ts.tile.zeros((t.BM, t.BN), ts.f32)
    for k0 in ts.tile.range(0, K, t.BK):
        acc = ts.tile.mma(A[m0:m0 + t.BM, k0:k0 + t.BK], B[k0:k0 + t.BK, n0:n0 + t.BN], accumulator=acc)
    C[m0:m0 + t.BM, n0:n0 + t.BN] = acc
    return C
