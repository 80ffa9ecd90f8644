"""Kernels that several tests use."""

import math

import tessera as ts


@ts.kernel
def saxpy(
    x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32
) -> ts.Tensor["n", ts.f32]:
    """Simple SAXPY: y = alpha * x + y"""
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y


@ts.kernel
def shift(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n - 1:
        y[i] = x[i + 1]
    return y


# With unbound `tile_*` names, as the overview prints it.
@ts.kernel
def gemm(A: ts.Tensor["M", "K", ts.bf16],
         B: ts.Tensor["K", "N", ts.bf16],
         C: ts.Tensor["M", "N", ts.f32]) -> ts.Tensor["M", "N", ts.f32]:
    """Matrix multiplication using tensor cores"""
    # Allocate shared memory tiles
    smem_a = ts.tile.alloc_shared((64, 32), ts.bf16, swizzle="xor")
    smem_b = ts.tile.alloc_shared((32, 64), ts.bf16, swizzle="xor")
    
    # Load tiles asynchronously
    ts.tile.cp_async(smem_a, A[tile_m:tile_m+64, tile_k:tile_k+32])
    ts.tile.cp_async(smem_b, B[tile_k:tile_k+32, tile_n:tile_n+64])
    ts.tile.barrier()
    
    # Compute using tensor cores
    acc = ts.tile.mma(smem_a, smem_b, accumulator=ts.f32)
    
    # Store result
    C[tile_m:tile_m+64, tile_n:tile_n+64] += acc
    return C


@ts.kernel.autotune(space=dict(BLOCK_M=[64, 128], BLOCK_N=[64, 128], num_warps=[4, 8]))
def attention(Q: ts.Tensor["BH", "S", "D", ts.bf16], K: ts.Tensor["BH", "S", "D", ts.bf16],
              V: ts.Tensor["BH", "S", "D", ts.bf16], O: ts.Tensor["BH", "S", "D", ts.bf16],
              is_causal: bool = True):
    t = ts.tile.context()
    BM, BN = t.BLOCK_M, t.BLOCK_N
    bh = ts.tile.program_id(0)
    q0 = ts.tile.program_id(1) * BM
    sq = ts.tile.alloc_shared((BM, D), ts.bf16)
    sk = ts.tile.alloc_shared((BN, D), ts.bf16)
    sv = ts.tile.alloc_shared((BN, D), ts.bf16)
    acc = ts.tile.zeros((BM, D), ts.f32)            # fresh for every q block
    m = ts.tile.full((BM,), -math.inf, ts.f32)
    l = ts.tile.zeros((BM,), ts.f32)
    ts.tile.cp_async(sq, Q[bh, q0:q0 + BM, :])
    hi = min(S, q0 + BM) if is_causal else S        # skip blocks above the diagonal
    for k0 in ts.tile.range(0, hi, BN):
        ts.tile.cp_async(sk, K[bh, k0:k0 + BN, :])
        ts.tile.cp_async(sv, V[bh, k0:k0 + BN, :])
        ts.tile.barrier()
        s = ts.tile.mma(sq, sk.T) * (1.0 / math.sqrt(D))
        s = ts.tile.bounds_mask(s, cols=S - k0)     # ragged tail -> -inf
        if is_causal:
            s = ts.tile.causal_mask(s, q0, k0)
        m_new = ts.tile.maximum(m, ts.tile.row_max(s))
        alpha = ts.tile.exp(m - m_new)
        p = ts.tile.exp(s - m_new[:, None])
        l = alpha * l + ts.tile.row_sum(p)          # no second correction factor
        acc = alpha[:, None] * acc + ts.tile.mma(ts.tile.cast(p, ts.bf16), sv)
        m = m_new
    O[bh, q0:q0 + BM, :] = ts.tile.cast(acc / l[:, None], ts.bf16)
    return O
