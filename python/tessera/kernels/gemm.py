"""Matmul kernels (GEMM) with fused epilogues: plain, batched, split-K, block-scaled and grouped.

A group computes one tile of the result: a loop of MMAs along ``K``, then the epilogue on the accumulator. Where there are too
few tiles for all multiprocessors, several groups share the ``K`` range of a tile (split-K). Each writes its partial sums, and a
second launch adds them in a fixed order. `gemm_plan` chooses the tiles, `matmul` launches the kernels.
"""

from __future__ import annotations

import tessera as ts

from .functions import Function, spans


@ts.struct
class Epilogue(Function):
    """What is done with the accumulator: a function of it and of arrays ``[P, rows, columns]`` that broadcast to the result."""

    arrays: tuple[ts.Tensor["?", "?", "?"], ...]


@ts.struct
class Tile:
    """The tile of the result ``BM`` by ``BN``, the step ``BK`` along ``K``, and the schedule: see `gemm_plan.Plan`."""

    BM: int = 128
    BN: int = 128
    BK: int = 64
    num_warps: int = 0
    num_stages: int = 0
    cluster_m: int = 0
    cluster_n: int = 0
    warp_specialization: str = ""
    persistent: int = 1
    precision: str = "default"


@ts.func
def finished(acc, epilogue, p, m, n, BM, BN):
    """The tile of the result at ``m, n`` of matrix ``p``."""
    tiles = ()
    for x, kind in zip(epilogue.arrays, epilogue.kinds):
        i, R, j, C = spans(kind, m, BM, n, BN)
        tiles = (*tiles, x[p, i:i + R, j:j + C])
    return epilogue.of(acc, *tiles)


@ts.func
def block(x, p, i, j, R, C):
    """A tile of a matrix, or of matrix ``p`` of a batch."""
    if len(x.shape) == 2:
        t = x[i:i + R, j:j + C]
    else:
        t = x[p, i:i + R, j:j + C]
    return t


@ts.func
def summed(A, B, at, bounds, zero, sides, precision):
    """The accumulator of the tile at ``p, m, n`` over ``K`` within ``bounds``."""
    p, m, n = at
    BM, BN, BK = sides
    acc = ts.tile.zeros((BM, BN), zero.dtype)
    for k in ts.tile.range(bounds[0], bounds[1], BK):
        acc = ts.tile.mma(block(A, p, m, k, BM, BK), block(B, p, k, n, BK, BN), accumulator=acc, precision=precision)
    return acc


@ts.kernel
def product(
    A: ts.Tensor["M", "K"], B: ts.Tensor["K", "N"], epilogue: Epilogue, C: ts.Tensor["M", "N"], zero, tile: Tile
):  # fmt: skip
    m = ts.tile.program_id(0) * tile.BM
    n = ts.tile.program_id(1) * tile.BN
    acc = summed(A, B, (0, m, n), (0, K), zero, (tile.BM, tile.BN, tile.BK), tile.precision)
    C[m:m + tile.BM, n:n + tile.BN] = finished(acc, epilogue, 0, m, n, tile.BM, tile.BN)


@ts.kernel
def products(
    A: ts.Tensor["P", "M", "K"], B: ts.Tensor["P", "K", "N"], epilogue: Epilogue, C: ts.Tensor["P", "M", "N"], zero, tile: Tile
):  # fmt: skip
    """A batched matmul: one for each ``p``."""
    m = ts.tile.program_id(0) * tile.BM
    n = ts.tile.program_id(1) * tile.BN
    p = ts.tile.program_id(2)
    acc = summed(A, B, (p, m, n), (0, K), zero, (tile.BM, tile.BN, tile.BK), tile.precision)
    C[p, m:m + tile.BM, n:n + tile.BN] = finished(acc, epilogue, p, m, n, tile.BM, tile.BN)


@ts.kernel
def parts(
    A: ts.Tensor["P", "M", "K"], B: ts.Tensor["P", "K", "N"], C: ts.Tensor["S", "P", "M", "N"], zero, chunk: ts.i64, tile: Tile
):  # fmt: skip
    """Split-K: the partial sums of each of ``S`` chunks of ``K``."""
    pm, pn, sp = ts.tile.grid(ts.cdiv(M, tile.BM), ts.cdiv(N, tile.BN), S * P)
    m = pm * tile.BM
    n = pn * tile.BN
    s = sp // P
    p = sp % P
    bounds = s * chunk, min(K, s * chunk + chunk)
    acc = summed(A, B, (p, m, n), bounds, zero, (tile.BM, tile.BN, tile.BK), tile.precision)
    C[s, p, m:m + tile.BM, n:n + tile.BN] = acc


@ts.kernel
def combined(X: ts.Tensor["S", "P", "M", "N"], epilogue: Epilogue, C: ts.Tensor["P", "M", "N"], BM: int = 4, BN: int = 256):
    """Split-K: adds the partial sums of the chunks in order, then applies the epilogue."""
    pn, pm, p = ts.tile.grid(ts.cdiv(N, BN), ts.cdiv(M, BM), P)
    m = pm * BM
    n = pn * BN
    acc = X[0, p, m:m + BM, n:n + BN]
    for s in ts.tile.range(1, S):
        acc = acc + X[s, p, m:m + BM, n:n + BN]
    C[p, m:m + BM, n:n + BN] = finished(acc, epilogue, p, m, n, BM, BN)


@ts.kernel
def block_scaled(
    A: ts.Tensor["P", "M", "K"],
    B: ts.Tensor["P", "K", "N"],
    SA: ts.Tensor["P", "M", "KB", ts.f32],
    SB: ts.Tensor["P", "KB", "NB", ts.f32],
    epilogue: Epilogue,
    C: ts.Tensor["P", "M", "N"],
    tile: Tile,
):
    """Block-scaled matmul. Rows of ``A`` have a scale for every ``BK`` elements, ``B`` one for every square block of ``BK``. The MMA
    of each block is scaled before it is added to the accumulator."""
    m = ts.tile.program_id(0) * tile.BM
    n = ts.tile.program_id(1) * tile.BK
    p = ts.tile.program_id(2)
    acc = ts.tile.zeros((tile.BM, tile.BK), ts.f32)
    for k in ts.tile.range(0, K, tile.BK):
        # Each block is added in f32 here: no other promotion is needed.
        part = ts.tile.mma(A[p, m:m + tile.BM, k:k + tile.BK], B[p, k:k + tile.BK, n:n + tile.BK], accumulator=ts.f32, precision="fast")
        at = k // tile.BK
        acc = ts.tile.fma(part, (SA[p, m:m + tile.BM, at] * SB[p, at, n // tile.BK])[:, None], acc)
    C[p, m:m + tile.BM, n:n + tile.BK] = finished(acc, epilogue, p, m, n, tile.BM, tile.BK)


@ts.kernel
def dealt(
    sizes: ts.Tensor["G"],
    table: ts.Tensor["S", 3, ts.i64],
    BM: int = 128,
    W: int = 128,
):
    """The tile table of a grouped matmul. Each row tile has ``BM`` rows of one group of ``sizes``; its entry is the group, the
    first row and the end of the group's rows. Tiles after the last group have group -1."""
    p, _ = ts.tile.grid(ts.cdiv(S, W), 1)
    at = p * W + ts.tile.arange(W)
    left = ts.tile.cast(at, ts.i64)
    which = ts.tile.full((W,), -1, ts.i64)
    begin = ts.tile.zeros((W,), ts.i64)
    end = ts.tile.zeros((W,), ts.i64)
    row = ts.tile.cast(0, ts.i64)
    for g in ts.tile.range(0, G):
        rows = ts.tile.cast(sizes[g], ts.i64)
        tiles = ts.cdiv(rows, BM)
        here = (which < 0) & (left < tiles)
        which = ts.tile.where(here, g, which)
        begin = ts.tile.where(here, row + left * BM, begin)
        row = row + rows
        end = ts.tile.where(here, row, end)
        left = left - tiles
    begin = ts.tile.where(which < 0, row + left * BM, begin)
    inside = at < S
    ts.tile.store(table, (at, 0), which, mask=inside, unique=True)
    ts.tile.store(table, (at, 1), begin, mask=inside, unique=True)
    ts.tile.store(table, (at, 2), end, mask=inside, unique=True)


@ts.func
def put_rows(C, t, begin, end, n, BM, BN):
    """Stores the rows of a tile that come before ``end``."""
    rows = begin + ts.tile.arange(BM)
    ts.tile.store(C, (rows[:, None], n + ts.tile.arange(BN)[None, :]), t, mask=(rows < end)[:, None], unique=True)


@ts.kernel
def grouped(
    A: ts.Tensor["T", "K"],
    B: ts.Tensor["G", "K", "N"],
    table: ts.Tensor["S", 3, ts.i64],
    C: ts.Tensor["T", "N"],
    zero,
    epilogue: ts.Fn,
    tile: Tile,
):
    """Grouped matmul: rows of ``A`` times the matrix of their group, by the tile table of `dealt`. Rows of no group are zeros.
    Consecutive groups of threads take tiles of the same rows, which are then read from memory once."""
    pn, at = ts.tile.grid(ts.cdiv(N, tile.BN), S)
    n = pn * tile.BN
    which = table[at, 0]
    begin = table[at, 1]
    end = table[at, 2]
    if which >= 0:
        acc = summed(A, B, (which, begin, n), (0, K), zero, (tile.BM, tile.BN, tile.BK), tile.precision)
        if begin + tile.BM <= end:
            C[begin:begin + tile.BM, n:n + tile.BN] = epilogue(acc)
        else:
            put_rows(C, epilogue(acc), begin, end, n, tile.BM, tile.BN)
    elif begin < T:
        put_rows(C, ts.tile.zeros((tile.BM, tile.BN), C.dtype), begin, T, n, tile.BM, tile.BN)
