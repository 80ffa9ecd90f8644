"""Matmul kernels (GEMM) with fused epilogues: plain, batched, split-K, block-scaled and grouped.

A group computes one tile of the result: a loop of MMAs along ``K``, then the epilogue on the accumulator. Where there are too
few tiles for all multiprocessors, several groups share the ``K`` range of a tile (split-K). Each writes its partial sums, and a
second launch adds them in a fixed order.

The transposed matmul ``B^T A^T`` is computed instead, on the same memory, in two cases: the result has few rows, or the
operands are tf32 and the right matrix is not contiguous along ``K``. WGMMA reads a tf32 operand from shared memory only with
``K`` contiguous, and the left operand can come from registers.

TMA needs rows that start at multiples of 16 bytes. Other matrices are copied first where the matmul is long enough to pay for
the copy: see `plan`.
"""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass, replace
from typing import Any, Sequence

import tessera as ts

from .. import _core
from ..base.numeric_profile import profile
from . import arrays, checks, elementwise, pad, schedule


@ts.func
def epilogue_tile(x, p, m, n, BM, BN, kind):
    """The part of an epilogue operand that belongs to a tile of the result. Its ``kind`` says how it broadcasts: "r" has one
    row, "c" one column, "1" one element."""
    if kind == "1":
        t = x[p, 0:1, 0:1]
    elif kind == "r":
        t = x[p, 0:1, n:n + BN]
    elif kind == "c":
        t = x[p, m:m + BM, 0:1]
    else:
        t = x[p, m:m + BM, n:n + BN]
    return t


@ts.func
def finished(acc, e, f, g, p, m, n, BM, BN, epilogue, count, ke, kf, kg):
    if count == 0:
        t = epilogue(acc)
    elif count == 1:
        t = epilogue(acc, epilogue_tile(e, p, m, n, BM, BN, ke))
    elif count == 2:
        t = epilogue(acc, epilogue_tile(e, p, m, n, BM, BN, ke), epilogue_tile(f, p, m, n, BM, BN, kf))
    else:
        t = epilogue(
            acc,
            epilogue_tile(e, p, m, n, BM, BN, ke),
            epilogue_tile(f, p, m, n, BM, BN, kf),
            epilogue_tile(g, p, m, n, BM, BN, kg),
        )
    return t


@ts.func
def block(x, several, p, i, j, R, C):
    """A tile of a matrix, or of matrix ``p`` of a batch."""
    if several == 0:
        t = x[i:i + R, j:j + C]
    else:
        t = x[p, i:i + R, j:j + C]
    return t


@ts.func
def summed(A, B, several_a, several_b, p, m, n, first, last, zero, BM, BN, BK, precision):
    """The accumulator of a tile over ``K`` from ``first`` to ``last``. ``several_a`` and ``several_b`` are 1 for a batch."""
    acc = ts.tile.zeros((BM, BN), zero.dtype)
    for k in ts.tile.range(first, last, BK):
        acc = ts.tile.mma(
            block(A, several_a, p, m, k, BM, BK), block(B, several_b, p, k, n, BK, BN), accumulator=acc, precision=precision
        )
    return acc


@ts.kernel
def product(
    A: ts.Tensor["M", "K"],
    B: ts.Tensor["K", "N"],
    E: ts.Tensor["?", "?", "?"],
    F: ts.Tensor["?", "?", "?"],
    G: ts.Tensor["?", "?", "?"],
    C: ts.Tensor["M", "N"],
    zero,
    epilogue: ts.Fn = ts.identity,
    count: int = 0,
    BM: int = 128,
    BN: int = 128,
    BK: int = 64,
    num_warps: int = 0,
    num_stages: int = 0,
    cluster_m: int = 0,
    cluster_n: int = 0,
    warp_specialization: str = "",
    persistent: int = 1,
    ke: str = "-",
    kf: str = "-",
    kg: str = "-",
    precision: str = "default",
):
    m = ts.tile.program_id(0) * BM
    n = ts.tile.program_id(1) * BN
    acc = summed(A, B, 0, 0, 0, m, n, 0, K, zero, BM, BN, BK, precision)
    C[m:m + BM, n:n + BN] = finished(acc, E, F, G, 0, m, n, BM, BN, epilogue, count, ke, kf, kg)


@ts.kernel
def products(
    A: ts.Tensor["P", "M", "K"],
    B: ts.Tensor["P", "K", "N"],
    E: ts.Tensor["?", "?", "?"],
    F: ts.Tensor["?", "?", "?"],
    G: ts.Tensor["?", "?", "?"],
    C: ts.Tensor["P", "M", "N"],
    zero,
    epilogue: ts.Fn = ts.identity,
    count: int = 0,
    BM: int = 128,
    BN: int = 128,
    BK: int = 64,
    num_warps: int = 0,
    num_stages: int = 0,
    cluster_m: int = 0,
    cluster_n: int = 0,
    warp_specialization: str = "",
    persistent: int = 1,
    ke: str = "-",
    kf: str = "-",
    kg: str = "-",
    precision: str = "default",
):
    """A batched matmul: one for each ``p``."""
    m = ts.tile.program_id(0) * BM
    n = ts.tile.program_id(1) * BN
    p = ts.tile.program_id(2)
    acc = summed(A, B, 1, 1, p, m, n, 0, K, zero, BM, BN, BK, precision)
    C[p, m:m + BM, n:n + BN] = finished(acc, E, F, G, p, m, n, BM, BN, epilogue, count, ke, kf, kg)


@ts.kernel
def parts(
    A: ts.Tensor["P", "M", "K"],
    B: ts.Tensor["P", "K", "N"],
    C: ts.Tensor["S", "P", "M", "N"],
    zero,
    chunk: ts.i64,
    BM: int = 128,
    BN: int = 128,
    BK: int = 64,
    num_warps: int = 0,
    num_stages: int = 0,
    cluster_m: int = 0,
    cluster_n: int = 0,
    warp_specialization: str = "",
    persistent: int = 1,
    precision: str = "default",
):
    """Split-K: the partial sums of each of ``S`` chunks of ``K``."""
    pm, pn, sp = ts.tile.grid(ts.cdiv(M, BM), ts.cdiv(N, BN), S * P)
    m = pm * BM
    n = pn * BN
    s = sp // P
    p = sp % P
    acc = summed(A, B, 1, 1, p, m, n, s * chunk, min(K, s * chunk + chunk), zero, BM, BN, BK, precision)
    C[s, p, m:m + BM, n:n + BN] = acc


@ts.kernel
def combined(
    X: ts.Tensor["S", "P", "M", "N"],
    E: ts.Tensor["?", "?", "?"],
    F: ts.Tensor["?", "?", "?"],
    G: ts.Tensor["?", "?", "?"],
    C: ts.Tensor["P", "M", "N"],
    epilogue: ts.Fn = ts.identity,
    count: int = 0,
    BM: int = 4,
    BN: int = 256,
    ke: str = "-",
    kf: str = "-",
    kg: str = "-",
):
    """Split-K: adds the partial sums of the chunks in order, then applies the epilogue."""
    pn, pm, p = ts.tile.grid(ts.cdiv(N, BN), ts.cdiv(M, BM), P)
    m = pm * BM
    n = pn * BN
    acc = X[0, p, m:m + BM, n:n + BN]
    for s in ts.tile.range(1, S):
        acc = acc + X[s, p, m:m + BM, n:n + BN]
    C[p, m:m + BM, n:n + BN] = finished(acc, E, F, G, p, m, n, BM, BN, epilogue, count, ke, kf, kg)


@ts.kernel
def block_scaled(
    A: ts.Tensor["P", "M", "K"],
    B: ts.Tensor["P", "K", "N"],
    SA: ts.Tensor["P", "M", "KB", ts.f32],
    SB: ts.Tensor["P", "KB", "NB", ts.f32],
    E: ts.Tensor["?", "?", "?"],
    F: ts.Tensor["?", "?", "?"],
    G: ts.Tensor["?", "?", "?"],
    C: ts.Tensor["P", "M", "N"],
    epilogue: ts.Fn = ts.identity,
    count: int = 0,
    BM: int = 128,
    block: int = 128,
    num_warps: int = 0,
    num_stages: int = 0,
    ke: str = "-",
    kf: str = "-",
    kg: str = "-",
):
    """Block-scaled matmul. Rows of ``A`` have a scale for every ``block`` elements, ``B`` one for every square block. The MMA of
    each block is scaled before it is added to the accumulator."""
    m = ts.tile.program_id(0) * BM
    n = ts.tile.program_id(1) * block
    p = ts.tile.program_id(2)
    acc = ts.tile.zeros((BM, block), ts.f32)
    for k in ts.tile.range(0, K, block):
        # Each block is added in f32 here: no other promotion is needed.
        part = ts.tile.mma(A[p, m:m + BM, k:k + block], B[p, k:k + block, n:n + block], accumulator=ts.f32, precision="fast")
        at = k // block
        acc = ts.tile.fma(part, (SA[p, m:m + BM, at] * SB[p, at, n // block])[:, None], acc)
    C[p, m:m + BM, n:n + block] = finished(acc, E, F, G, p, m, n, BM, block, epilogue, count, ke, kf, kg)


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
    epilogue: ts.Fn = ts.identity,
    BM: int = 128,
    BN: int = 128,
    BK: int = 64,
    num_warps: int = 0,
    num_stages: int = 0,
):
    """Grouped matmul: rows of ``A`` times the matrix of their group, by the tile table of `dealt`. Rows of no group are zeros.
    Consecutive groups of threads take tiles of the same rows, which are then read from memory once."""
    pn, at = ts.tile.grid(ts.cdiv(N, BN), S)
    n = pn * BN
    which = table[at, 0]
    begin = table[at, 1]
    end = table[at, 2]
    if which >= 0:
        acc = summed(A, B, 0, 1, which, begin, n, 0, K, zero, BM, BN, BK, "default")
        if begin + BM <= end:
            C[begin:begin + BM, n:n + BN] = epilogue(acc)
        else:
            put_rows(C, epilogue(acc), begin, end, n, BM, BN)
    elif begin < T:
        put_rows(C, ts.tile.zeros((BM, BN), C.dtype), begin, T, n, BM, BN)


# What runs for which shape


#: How many of the plans that were not chosen are shown.
RUNNERS_UP = 3


@dataclass(frozen=True)
class Predicted:
    """What the cost model predicts: the seconds of the chosen plan, what limits it, and the next best plans, each as rows and
    columns of a tile, chunks of ``K`` and seconds."""

    seconds: float
    limit: str
    others: tuple[tuple[int, int, int, float], ...] = ()

    def __str__(self) -> str:
        text = f"predicted {1e6 * self.seconds:.1f} us (mostly {self.limit})"
        others = [f"{bm}x{bn}{f' in {s} chunks' if s > 1 else ''} {1e6 * t:.1f} us" for bm, bn, s, t in self.others]
        return text + (f"; then {', '.join(others)}" if others else "")


@dataclass(frozen=True)
class Plan:
    """How a matmul is computed. ``str(plan)`` is what a user reads."""

    tile: tuple[int, int, int]
    #: Chunks of ``K``; more than 1 are combined by a second launch.
    split: int = 1
    #: Whether the transposed matrices are multiplied.
    swapped: bool = False
    #: Operands that are first copied to rows that start at multiples of 128 bytes.
    padded: tuple[str, ...] = ()
    #: Operands that are first copied so that they are contiguous along ``K``.
    turned: tuple[str, ...] = ()
    num_warps: int = 0
    num_stages: int = 0
    #: CTAs of a cluster along the rows and columns of tiles: operands they share are loaded once (multicast). 0: the compiler's choice.
    cluster_m: int = 0
    cluster_n: int = 0
    #: "pingpong": warpgroups take whole tiles in turn; "cooperative": they divide each.
    warp_specialization: str = ""
    #: Whether groups are persistent, and take one tile after another. False where all tiles are resident together.
    persistent: bool = True
    #: The prediction, where the cost model chose.
    predicted: Predicted | None = None

    def __str__(self) -> str:
        words = ["tiles of " + "x".join(map(str, self.tile))]
        if self.swapped:
            words.append("of the transposed matrices")
        if self.split > 1:
            words.append(f"K in {self.split} chunks that a second launch adds up")
        if self.cluster_m > 1 or self.cluster_n > 1:
            words.append(f"clusters of {max(self.cluster_m, 1)}x{max(self.cluster_n, 1)} tiles")
        if self.padded:
            once = " in one launch" if len(self.padded) > 1 else ""
            words.append(f"{' and '.join(self.padded)} copied to rows on multiples of 128 bytes first{once}")
        if self.turned:
            words.append(f"{' and '.join(self.turned)} copied along K first")
        return ", ".join(words) + (f"; {self.predicted}" if self.predicted else "")


def neighbours(M: int, N: int, bm: int, bn: int) -> tuple[int, int]:
    """The shape of a cluster along both sides of the result: two CTAs that share the loads of the wider matrix. Tiles along that
    side must come in pairs, or number more than 16, where a single one left over costs little."""
    pairs = lambda n: n % 2 == 0 or n > 16  # noqa: E731
    rows, columns = -(-M // bm), -(-N // bn)
    if bn >= bm and pairs(rows):
        return 2, 1
    return (1, 2) if pairs(columns) else (0, 0)


@functools.lru_cache(maxsize=4096)
def group_tile(T: int, G: int, N: int, K: int, of: Any) -> tuple[int, int, int]:
    """The tile of a grouped matmul of ``T`` rows in ``G`` groups: rows by the mean size of a group, and the width that is fastest
    by the cost model."""
    bm = 128 if T >= 128 * G else 64
    # A group ends in the middle of a tile, on the average.
    bn = _core.grouped_columns(bm, T // bm + -(-G // 2), N, K, of)
    return bm, bn, max(128 // of.itemsize, 16)


#: Bytes of a cache line of a GPU.
LINE = 128
#: Groups that occupy a large GPU once.
GROUPS = schedule.GROUPS // 2
#: Up to this many rows, the transposed matmul is computed: tiles are longer along their rows.
FEW_ROWS = 64
#: Multiply-adds of a group that are unrolled: the code of its threads has to fit in the instruction cache.
UNROLLED = 2048 * 256
#: From this side of the result on, matrices whose rows are not aligned to 16 bytes are always copied: each row is read many times.
WORTH_PADDING = 256
#: Bytes of a matrix up to which a copy of it takes no longer than a launch.
SHORT_COPY = 16 * 2**20
#: A ``K`` below which a product with a short side is over before a copy pays.
SHORT_K = 128
#: Bytes of a row below which it does not matter where rows begin.
SHORT_ROW = 64
#: Asynchronous copies of the first number of bytes keep a pipeline full; of fewer than the second there are none, and elements are read one by one.
ASYNC_BYTES = (8, 4)


@functools.lru_cache(maxsize=4096)
def plan(
    P: int,
    M: int,
    N: int,
    K: int,
    of: Any,
    on_device: bool,
    aligned: tuple[bool, bool],
    strict: bool,
    row_bytes: int = LINE,
    out_bytes: int | None = None,
    one_by_one: bool = False,
    rows_on: tuple[int, int] = (8, 8),
) -> Plan:
    """How ``[P, M, K]`` by ``[P, K, N]`` of a dtype is computed. ``aligned`` says which operands have rows that start at multiples
    of 16 bytes, ``row_bytes`` the alignment of those that do, ``rows_on`` of those that do not. The cost model chooses tiles,
    chunks and pipeline stages. ``one_by_one``: threads multiply, without tensor cores."""
    depth = max(128 // of.itemsize, 16)
    if not on_device:
        return Plan((128, 128, depth))
    swapped = M <= FEW_ROWS and N > M
    m, n = (N, M) if swapped else (M, N)
    padded: tuple[str, ...] = ()
    # Threads read f32 matrices in place: copies of 4 bytes are asynchronous too.
    if not one_by_one and (K >= SHORT_K or min(M, N) >= WORTH_PADDING):
        sizes = {"A": P * M * K * of.itemsize, "B": P * K * N * of.itemsize}
        odd = [(name, on) for name, good, on in zip("AB", aligned, rows_on) if not good]
        # Both or neither, in one launch: an operand that is not pipelined delays the other.
        if any(_worth_copying(M, N, sizes[name], on, of.itemsize) for name, on in odd):
            padded = tuple(name for name, _ in odd)
    found = _core.matmul_plans(P, m, n, K, of, of.itemsize if out_bytes is None else out_bytes, row_bytes, not strict)
    (bm, bn, split, once, stages, seconds, limit), *others = found
    # Few columns: the long matrix is read once, with a deeper K step; narrow tiles where there are too few of them.
    if n <= FEW_ROWS:
        depth *= 2 if K > depth else 1
        while bn > 16 and 2 * P * -(-m // bm) * -(-n // bn) * split <= GROUPS:
            bn //= 2
    elif one_by_one:
        # A power of two: tiles begin where wide reads may.
        depth = min(depth, max(16, 1 << (UNROLLED // (bm * bn)).bit_length() - 1))
    # Rows that start inside cache lines take two requests each, which limits the speed: a cluster of two shares them.
    clustered = row_bytes % LINE != 0 and not padded and split == 1 and not strict and n > FEW_ROWS
    pair = neighbours(m, n, bm, bn) if clustered else (0, 0)
    predicted = Predicted(seconds, limit, tuple((*row[:3], row[5]) for row in others[:RUNNERS_UP]))
    more = {"cluster_m": pair[0], "cluster_n": pair[1], "persistent": not once}
    if any(pair) and stages:
        more["num_stages"] = stages
    return Plan((bm, bn, depth), split, swapped, padded, **more, predicted=predicted)


def _worth_copying(M: int, N: int, size: int, rows_on: int, itemsize: int) -> bool:
    """Whether a matrix of ``size`` bytes with rows on multiples of ``rows_on``, and not of 16, is copied to better rows first."""
    wide, least = ASYNC_BYTES
    return min(M, N) >= WORTH_PADDING or itemsize == 2 and (rows_on < least or rows_on < wide and size <= SHORT_COPY)


def _rows_on(x: Any) -> int:
    """On multiples of how many bytes all rows begin: 16, or one of `ASYNC_BYTES`, or 1. Short rows count as wide enough."""
    wide, least = ASYNC_BYTES
    found = next((n for n in (16, wide, least) if is_aligned(x, n)), 1)
    along = next((n for axis, n in enumerate(x.shape) if n > 1 and arrays.lies_along(x, axis)), 1)
    return wide if found == least and along * arrays.itemsize(x) < SHORT_ROW else found


def is_aligned(x: Any, to: int = 16) -> bool:
    """Whether every row starts at a multiple of ``to`` bytes, and one of the last two axes is contiguous."""
    each = arrays.itemsize(x)
    unit = each if arrays.strides_in_elements(x) else 1
    steps = [s * unit for s, n in zip(arrays.strides(x), x.shape) if n > 1]
    return arrays.address(x) % to == 0 and all(s > 0 and (s == each or s % to == 0) for s in steps)


def transposed_operands(a: Any, b: Any, precision: str) -> tuple[str, ...]:
    """Operands that tensor cores cannot read from memory with their strides: only 16-bit elements may be contiguous along the
    axis other than ``K``."""
    narrow = arrays.itemsize(a) == 1 or precision == "tf32"
    if not narrow or not arrays.on_device(a) or min(a.shape[-2], b.shape[-1]) < WORTH_PADDING:
        return ()
    return tuple(name for name, x, axis in (("A", a, -1), ("B", b, -2)) if not arrays.lies_along(x, axis))


# Operations


@functools.lru_cache(maxsize=256)
def epilogue_of(activation: Any, biased: bool, residual: bool, scaled: bool) -> Any:
    """``activation(scale * acc + bias) + residual`` as one function, without the operands that are not given."""
    if scaled and biased and residual:

        @ts.func
        def done(acc, scale, bias, rest):
            return activation(acc * scale + bias) + rest

    elif scaled and biased:

        @ts.func
        def done(acc, scale, bias):
            return activation(acc * scale + bias)

    elif scaled and residual:

        @ts.func
        def done(acc, scale, rest):
            return activation(acc * scale) + rest

    elif biased and residual:

        @ts.func
        def done(acc, bias, rest):
            return activation(acc + bias) + rest

    elif scaled:

        @ts.func
        def done(acc, scale):
            return activation(acc * scale)

    elif biased:

        @ts.func
        def done(acc, bias):
            return activation(acc + bias)

    elif residual:

        @ts.func
        def done(acc, rest):
            return activation(acc) + rest

    else:
        return activation
    return done


@ts.func
def with_beta(acc, alpha, beta, c):
    return alpha * acc + beta * c


@ts.func
def with_alpha(acc, alpha):
    return alpha * acc


def turned(x: Any) -> Any:
    """A view with the last two axes exchanged."""
    x = arrays.given(x, "matrix")
    if x.ndim < 2:
        got = f"shape {tuple(x.shape)}"
        raise _core.error("E_SHAPE_MISMATCH", f"expected a matrix to transpose, got {got}", "give it two axes")
    return arrays.permuted(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


#: The accumulator's dtype for operands of these dtypes; f32 for others.
_SUMS = {"f64": ts.f64, "i8": ts.i32, "u8": ts.i32}


def sums_of(a: Any, b: Any) -> Any:
    return _SUMS.get(a.name) or _SUMS.get(b.name) or ts.f32


def _matrices(a: Any, b: Any, precision: str | None) -> tuple[Any, Any, str, Any, tuple[int, ...], tuple[bool, bool]]:
    """Both operands as matrices, the precision and dtype of the accumulator, the batch axes, and which operand is a vector."""
    a, b = arrays.given(a, "a"), arrays.given(b, "b")
    of = _dtypes(a, b)
    mode = _precision(precision, arrays.dtype_of(a))
    if not a.ndim or not b.ndim:
        got = f"{tuple(a.shape)} and {tuple(b.shape)}"
        raise _core.error("E_SHAPE_MISMATCH", f"expected matrices or vectors, got shapes {got}", "multiply numbers with `*`")
    vector = (a.ndim == 1, b.ndim == 1)
    a = a.reshape(1, -1) if vector[0] else a
    b = b.reshape(-1, 1) if vector[1] else b
    if a.shape[-1] != b.shape[-2]:
        raise _core.error(
            "E_SHAPE_MISMATCH",
            f"expected the last axis of `a` to be as long as the next to last of `b`, got {tuple(a.shape)} and {tuple(b.shape)}",
            "transpose one of them, or look where its shape comes from",
        )
    batch = elementwise._broadcast([tuple(a.shape[:-2]), tuple(b.shape[:-2])])
    return a, b, mode, of, batch, vector


def _count(batch: Sequence[int]) -> int:
    return functools.reduce(operator.mul, batch, 1)


def _dtypes(a: Any, b: Any) -> Any:
    da, db = arrays.dtype_of(a), arrays.dtype_of(b)
    narrow = ("fp8_e4m3", "fp8_e5m2")
    if da != db and not (da.name in narrow and db.name in narrow):
        raise _core.error("E_TYPE", f"expected matrices of one dtype, got {da} and {db}", "convert one of them first")
    if da.name not in _MULTIPLIED:
        known = ", ".join(_MULTIPLIED)
        raise _core.error("E_TYPE", f"expected matrices of one of {known}, got {da}", "convert both first")
    return sums_of(da, db)


#: The dtypes that kernels multiply.
_MULTIPLIED = ("f64", "f32", "tf32", "bf16", "f16", "fp8_e4m3", "fp8_e5m2", "i8", "u8")


#: Values of ``precision``, by the dtype of the matrices.
_MODES = {"f32": ("f32", "tf32"), "fp8_e4m3": ("f32", "fast"), "fp8_e5m2": ("f32", "fast")}


def _precision(given: str | None, of: Any) -> str:
    known = _MODES.get(of.name, ())
    if given is None or given == "default":
        return "default"
    if given not in known:
        names = ", ".join(repr(name) for name in ("default", *known))
        raise _core.error("E_ARGUMENT", f"`precision`: expected one of {names} for matrices of {of}, got {given!r}", "leave it out")
    return given


def _batched(x: Any, batch: tuple[int, ...], P: int) -> Any:
    """``[P, rows, columns]`` without a copy where strides allow it."""
    return arrays.expand(x, (*batch, *x.shape[-2:])).reshape(P, *x.shape[-2:])


def planned(a: Any, b: Any, tile: Any, precision: str) -> Plan:
    """How ``[P, M, K]`` by ``[P, K, N]`` is computed, given the strides and alignment of these arrays."""
    (P, M, K), N = a.shape, b.shape[-1]
    strict = str(profile()) == "strict"
    short = (M == 1 and K > 1, N == 1 and K > 1)
    aligned = (is_aligned(a) and not short[0], is_aligned(b) and not short[1])
    rows_on = tuple(1 if s else _rows_on(x) for x, s in zip((a, b), short))
    good_rows = [x for x, good in zip((a, b), aligned) if good]
    row_bytes = LINE if all(is_aligned(x, LINE) for x in good_rows) else 16
    of, on_device = ts.tf32 if precision == "tf32" else arrays.dtype_of(a), arrays.on_device(a)
    turned = transposed_operands(a, b, precision)
    if precision == "tf32" and turned == ("B",):
        # The left matrix may have any strides: its elements go through registers.
        chosen = plan(P, N, M, K, of, on_device, aligned[::-1], strict, row_bytes)
        chosen = replace(chosen, swapped=True, padded=tuple("AB"["BA".index(name)] for name in chosen.padded))
        turned = ()
    else:
        one_by_one = of.itemsize == 4 and precision != "tf32"
        chosen = plan(P, M, N, K, of, on_device, aligned, strict, row_bytes, one_by_one=one_by_one, rows_on=rows_on)
        turned = tuple(name for name in turned if name != "A" or precision != "tf32")
    if tile is not None:
        chosen = _pinned(chosen, tile)
    padded = tuple(name for name in chosen.padded if name not in turned)
    return replace(chosen, turned=turned, padded=padded)


def explain(a: Any, b: Any, tile: Any = None, precision: str | None = None) -> Plan:
    """The plan that `multiply` would use for these arrays. Nothing is computed."""
    a, b, mode, _, batch, _ = _matrices(a, b, precision)
    P = _count(batch)
    return planned(_batched(a, batch, P), _batched(b, batch, P), None if tile == "tune" else tile, mode)


def _laid_out(a: Any, b: Any, chosen: Plan) -> tuple[Any, Any]:
    """The matrices in the memory layout that the plan needs."""
    given = {"A": a, "B": b}
    for name, axis in (("A", -1), ("B", -2)):
        if name in chosen.turned:
            given[name] = pad.along(given[name], axis)
    # A vector becomes a column of rows of its own: no tensor map has neighbours along an axis of one element.
    vectors = {name: axis for name, axis in (("A", -2), ("B", -1)) if name in chosen.padded and given[name].shape[axis] == 1}
    for name, axis in vectors.items():
        given[name] = pad.along(given[name], axis)
    if rest := [name for name in chosen.padded if name not in vectors]:
        given.update(zip(rest, pad.on_good_rows(*(given[name] for name in rest))))
    return given["A"], given["B"]


def _zero(of: Any) -> Any:
    """Zero of this dtype. A Python float is passed for f32: call replay is faster with it."""
    return 0.0 if of == ts.f32 else arrays.scalar(0, of)


def _pinned(chosen: Plan, tile: Any) -> Plan:
    """A plan with the fields that the caller gives: ``(BM, BN, BK)`` or a dict of fields of `Plan`."""
    fields = dict(tile) if isinstance(tile, dict) else {"tile": tile}
    known = set(Plan.__dataclass_fields__) - {"predicted"}
    if unknown := sorted(set(fields) - known):
        got = ", ".join(unknown)
        raise _core.error("E_ARGUMENT", f"`tile`: expected fields of {', '.join(sorted(known))}, got {got}", "leave it out")
    sides = fields.get("tile", chosen.tile)
    if isinstance(sides, str):
        raise _core.error("E_ARGUMENT", f"`tile`: expected three positive integers or \"tune\", got {sides!r}", "leave it out")
    sides = tuple(sides)
    if len(sides) != 3 or any(not isinstance(n, int) or n < 1 for n in sides):
        raise _core.error("E_ARGUMENT", f"`tile`: expected three positive integers, got {sides}", "write `tile=(128, 256, 64)`")
    return Plan(**{**chosen.__dict__, "predicted": None, **fields, "tile": sides})


def grouped_product(a: Any, b: Any, sizes: Any, activation: Any, out_dtype: Any, tile: Any) -> Any:
    """Grouped matmul: rows of ``a`` in groups of ``sizes``, each times its own matrix of ``b``."""
    a, b = arrays.given(a, "a"), arrays.given(b, "b")
    _dtypes(a, b)
    if a.ndim != 2 or b.ndim != 3 or a.shape[1] != b.shape[1]:
        raise _core.error(
            "E_SHAPE_MISMATCH",
            f"expected `a` of shape [rows, K] and `b` of [groups, K, N], got {tuple(a.shape)} and {tuple(b.shape)}",
            "the K of both must be equal",
        )
    sizes = arrays.given(sizes, "sizes")
    if tuple(sizes.shape) != (b.shape[0],):
        raise _core.error(
            "E_SHAPE_MISMATCH",
            f"`sizes`: expected one for each of {b.shape[0]} groups, got shape {tuple(sizes.shape)}",
            "it says how many rows of `a` each group has",
        )
    (T, K), (G, _, N) = a.shape, b.shape
    of = checks.out_dtype(out_dtype, arrays.dtype_of(a), floats=False)
    c = arrays.empty((T, N), of, a)
    zero = _zero(sums_of(arrays.dtype_of(a), arrays.dtype_of(b)))
    if arrays.size(c):
        chosen = Plan(group_tile(T, G, N, K, arrays.dtype_of(a)))
        chosen = _pinned(chosen, tile) if tile is not None else chosen
        # At most: the full tiles of all rows, one partial tile for each group, and one for rows of no group.
        table = arrays.empty((T // chosen.tile[0] + G + 1, 3), ts.i64, a)
        dealt(sizes, table, chosen.tile[0])
        grouped(a, b, table, c, zero, activation, *chosen.tile, chosen.num_warps, chosen.num_stages)
    return c
