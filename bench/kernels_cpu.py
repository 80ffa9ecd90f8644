"""The kernels that `make bench-cpu` times, written as a user would write them.

The tile sizes stand at the top; nothing else depends on them.
"""

import math

import tessera as ts

#: Rows, columns and depth of the tiles of a matmul.
GEMM_F32 = (128, 192, 64)
GEMM_BF16 = (128, 192, 64)
#: Queries and keys of a block of attention.
ATTENTION = (128, 64)
#: Elements of a tile in elementwise group kernels.
ELEMENTWISE = 4096

LAYERNORM_EPS = 1e-5
RMSNORM_EPS = 1e-6


def make_gemm(dtype, tile):
    BM, BN, BK = tile

    @ts.kernel
    def gemm(A: ts.Tensor["M", "K", dtype], B: ts.Tensor["K", "N", dtype], C: ts.Out["M", "N", ts.f32]):
        m = ts.tile.program_id(0) * BM
        n = ts.tile.program_id(1) * BN
        acc = ts.tile.zeros((BM, BN), ts.f32)
        for k in ts.tile.range(0, K, BK):
            acc = ts.tile.mma(A[m:m + BM, k:k + BK], B[k:k + BK, n:n + BN], accumulator=acc)
        C[m:m + BM, n:n + BN] = acc
        return C

    return gemm


gemm_f32 = make_gemm(ts.f32, GEMM_F32)
gemm_bf16 = make_gemm(ts.bf16, GEMM_BF16)


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()
    y[i] = alpha * x[i] + y[i]
    return y


@ts.func
def gelu(x):
    """The tanh form; the peers compute the same formula."""
    return 0.5 * x * (1.0 + ts.tile.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


@ts.kernel
def gelu_lanes(x: ts.Tensor["n", ts.f32], w: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = gelu(x[i] + w[i]) * x[i]
    return y


@ts.kernel
def gelu_tiles(x: ts.Tensor["n", ts.f32], w: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    start = ts.tile.program_id(0) * ELEMENTWISE
    t = x[start:start + ELEMENTWISE]
    y[start:start + ELEMENTWISE] = gelu(t + w[start:start + ELEMENTWISE]) * t
    return y


@ts.kernel
def softmax(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    t = x[row, :]
    weights = ts.tile.exp(t - ts.tile.max(t))
    y[row, :] = weights / ts.tile.sum(weights)
    return y


@ts.kernel
def layernorm(
    x: ts.Tensor["M", "N", ts.f32],
    scale: ts.Tensor["N", ts.f32],
    shift: ts.Tensor["N", ts.f32],
    y: ts.Out["M", "N", ts.f32],
):
    row = ts.tile.program_id(0)
    t = x[row, :]
    centred = t - ts.tile.mean(t)
    variance = ts.tile.mean(centred * centred)
    y[row, :] = centred * ts.tile.rsqrt(variance + LAYERNORM_EPS) * scale[:] + shift[:]
    return y


@ts.kernel
def rmsnorm(x: ts.Tensor["M", "N", ts.f32], scale: ts.Tensor["N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    t = x[row, :]
    y[row, :] = t * ts.tile.rsqrt(ts.tile.mean(t * t) + RMSNORM_EPS) * scale[:]
    return y


@ts.kernel
def attention(
    Q: ts.Tensor["BH", "S", "D", ts.f32],
    K: ts.Tensor["BH", "S", "D", ts.f32],
    V: ts.Tensor["BH", "S", "D", ts.f32],
    O: ts.Out["BH", "S", "D", ts.f32],
    is_causal: bool,
):
    BM, BN = ATTENTION
    bh = ts.tile.program_id(0)
    q0 = ts.tile.program_id(1) * BM
    q = Q[bh, q0:q0 + BM, :]
    acc = ts.tile.zeros((BM, D), ts.f32)
    m = ts.tile.full((BM,), -math.inf, ts.f32)  # the largest score of each row so far
    l = ts.tile.zeros((BM,), ts.f32)  # the sum of the weights of each row so far
    hi = min(S, q0 + BM) if is_causal else S  # blocks above the diagonal are skipped
    for k0 in ts.tile.range(0, hi, BN):
        s = ts.tile.mma(q, K[bh, k0:k0 + BN, :], transpose_b=True) * (1.0 / math.sqrt(D))
        s = ts.tile.bounds_mask(s, cols=S - k0)  # keys beyond the end get no weight
        if is_causal:
            s = ts.tile.causal_mask(s, q0, k0)
        m_new = ts.tile.maximum(m, ts.tile.row_max(s))
        alpha = ts.tile.exp(m - m_new)
        p = ts.tile.exp(s - m_new[:, None])
        l = alpha * l + ts.tile.row_sum(p)
        acc = alpha[:, None] * acc + ts.tile.mma(p, V[bh, k0:k0 + BN, :])
        m = m_new
    O[bh, q0:q0 + BM, :] = acc / l[:, None]
    return O


@ts.kernel
def add_three(a: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32], c: ts.Tensor["n", ts.f32], d: ts.Out["n", ts.f32]):
    """Four arrays and next to no work: what a launch costs."""
    i = ts.tile.linear_id()
    d[i] = a[i] + b[i] + c[i]
    return d


@ts.kernel
def cumsum(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    y[row, :] = ts.tile.cumsum(x[row, :])
    return y


def make_histograms(dtype):
    """Counts of values below `b`: by atomics and into a reduce region, by tiles and by lanes."""
    BLOCK = ELEMENTWISE

    @ts.kernel
    def atomic_tiles(x: ts.Tensor["n", dtype], h: ts.Tensor["b", dtype]):
        start = ts.tile.grid(ts.cdiv(n, BLOCK)) * BLOCK
        ts.tile.atomic_add(h[ts.tile.load(x[start:start + BLOCK], other=-1)], 1)
        return h

    @ts.kernel
    def atomic_lanes(x: ts.Tensor["n", dtype], h: ts.Tensor["b", dtype]):
        i = ts.tile.linear_id()
        if i < n:
            ts.tile.atomic_add(h[x[i]], 1)
        return h

    @ts.kernel
    def region_tiles(x: ts.Tensor["n", dtype], h: ts.Region[ts.reduce_sum, ts.Tensor["b", dtype]]):
        start = ts.tile.grid(ts.cdiv(n, BLOCK)) * BLOCK
        h[ts.tile.load(x[start:start + BLOCK], other=-1)] += 1
        return h

    @ts.kernel
    def region_lanes(x: ts.Tensor["n", dtype], h: ts.Region[ts.reduce_sum, ts.Tensor["b", dtype]]):
        i = ts.tile.linear_id()
        if i < n:
            h[x[i]] += 1
        return h

    return {"atomics, tiles": atomic_tiles, "atomics, lanes": atomic_lanes,
            "region, tiles": region_tiles, "region, lanes": region_lanes}  # fmt: skip


@ts.kernel
def add_two(a: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32], c: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    c[i] = a[i] + b[i]
    return c
