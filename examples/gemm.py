"""C += A @ B in bf16 with f32 accumulation, one tile of C for each group.

    python examples/gemm.py
"""

import numpy as np

import tessera as ts


@ts.kernel.autotune(space=dict(BM=[64, 128], BN=[64, 128], BK=[32, 64], num_stages=[2, 3]))
def gemm(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    t = ts.tile.context()
    m0 = ts.tile.program_id(0) * t.BM
    n0 = ts.tile.program_id(1) * t.BN
    a = ts.tile.alloc_shared((t.BM, t.BK), ts.bf16, swizzle="xor")
    b = ts.tile.alloc_shared((t.BK, t.BN), ts.bf16, swizzle="xor")
    acc = ts.tile.zeros((t.BM, t.BN), ts.f32)
    for k0 in ts.tile.range(0, K, t.BK):
        # Slices beyond the arrays read zeros, which add nothing to the accumulator.
        ts.tile.cp_async(a, A[m0:m0 + t.BM, k0:k0 + t.BK])
        ts.tile.cp_async(b, B[k0:k0 + t.BK, n0:n0 + t.BN])
        ts.tile.barrier()
        acc = ts.tile.mma(a, b, accumulator=acc)
    C[m0:m0 + t.BM, n0:n0 + t.BN] += acc  # nothing is written beyond the edge
    return C


def reference(A, B, C):
    return C.astype(np.float64) + A.astype(np.float64) @ B.astype(np.float64)


def error_bound(A, B, C):
    """What f32 accumulation in any order may lose."""
    terms = np.abs(A.astype(np.float64)) @ np.abs(B.astype(np.float64)) + np.abs(C)
    return (A.shape[1] + 2) * 2.0**-24 * terms


def main():
    rng = np.random.default_rng(0)
    for m, n, k in ((64, 64, 32), (100, 70, 50), (1, 1, 1), (257, 129, 65)):
        A = ts.array(rng.standard_normal((m, k)), "bf16")
        B = ts.array(rng.standard_normal((k, n)), "bf16")
        C = ts.array(rng.standard_normal((m, n)), "f32")
        expected, bound = reference(A, B, C), error_bound(A, B, C)
        gemm(A, B, C)
        error = np.abs(C - expected)
        assert (error <= bound).all()
        print(f"gemm  {f'{m}x{n}x{k}':<10}  largest error {error.max():.1e}, allowed there {bound.flat[error.argmax()]:.1e}")


if __name__ == "__main__":
    main()
