"""Tile sizes of library kernels, by shape.

On a GPU, a group holds its tile in registers. A large tile gives every thread several wide loads in flight; a small one lets
several groups be resident on a multiprocessor. On a CPU, the tile is in the L1 cache. The functions here make that trade, and
do nothing else: numbers in, numbers out. ``rows=`` and ``block=`` of an operation override them.

Tile extents are compile-time values, so each is one of a few: most new shapes need no new compilation.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

#: Bytes of the tile of a group that takes several rows: 4096 elements of 2 bytes, 2048 of 4.
TILE = 8 * 1024
#: Bytes of a row up to which a reduction loads it whole: all of its loads are in flight together.
ROW = 32 * 1024
#: Bytes of a piece that a reduction keeps in flight while it adds up the piece before. Four such groups saturate a
#: multiprocessor.
STREAM = 16 * 1024
#: The most bytes of a row that a group holds whole, so that it is read once: 131072 elements of 2 bytes.
WHOLE = 256 * 1024
#: Bytes of a piece of a row that is too long for that: 16384 elements of 2 bytes, 8192 of 4.
PIECE = 32 * 1024
#: Groups that keep a large GPU busy: with fewer, each group takes a smaller tile.
GROUPS = 264
#: Groups that are resident together on a large GPU when each streams a long chunk: there is no second wave.
SHARES = 2 * GROUPS
#: Numbers of parts that a row is split into, for a second launch to combine. The last is never exceeded.
PARTS = (16, 64, 256, 512, 1024)

ROWS = (1024, 128, 32, 8, 4, 2, 1)
COLUMNS = (256, 128, 64, 32, 16, 8, 4)
STRIPS = (4, 16, 32, 64, 128, 256, 1024)
PIECES = (16384, 8192, 4096)


@dataclass(frozen=True)
class Tile:
    """``whole``: the tile holds the whole axis that the kernel works along, for ``rows`` rows (or ``columns`` columns).
    Otherwise the kernel loops over pieces of ``block``."""

    whole: bool
    rows: int = 1
    columns: int = 1
    block: int = 0


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _several(count: int, bytes_each: int, times: int, choices: tuple[int, ...]) -> int:
    """How many of ``count`` rows a group takes: as many as fit into a tile, while enough groups are left."""
    for n in choices:
        if n * bytes_each <= TILE and (n == 1 or times * _cdiv(count, n) >= GROUPS):
            return n
    return choices[-1]


@functools.lru_cache(maxsize=4096)
def rows(P: int, M: int, N: int, itemsize: int, held: int = 1, rows: int | None = None, block: int | None = None) -> Tile:
    """For kernels along ``N`` of ``[P, M, N]`` that hold ``held`` arrays while they work.

    | a row has (2 bytes, one array) | tile |
    |---|---|
    | up to 4096 elements | whole, several rows |
    | up to 131072 elements | whole, one row |
    | more | pieces of 16384 elements, read twice |
    """
    if block is not None:
        return Tile(False, block=block)
    if rows is not None:
        return Tile(True, rows=rows)
    if N * itemsize * held <= WHOLE:
        return Tile(True, rows=_several(M, N * itemsize * held, P, ROWS))
    return Tile(False, block=next(b for b in (*PIECES, 0) if b * itemsize <= PIECE) or PIECES[-1])


@functools.lru_cache(maxsize=4096)
def columns(P: int, N: int, B: int, itemsize: int, held: int = 1, rows: int | None = None, block: int | None = None) -> Tile:
    """For kernels along ``N`` of ``[P, N, B]``: ``N`` whole with 4 to 256 columns, or pieces of ``block`` by ``columns``."""
    if rows is not None:
        return Tile(True, columns=rows)
    if block is None:
        # A width is less than twice the array's, and has at least 64 contiguous bytes where the array has them.
        fitting = [c for c in COLUMNS if c < 2 * B] or [COLUMNS[-1]]
        fitting = [c for c in fitting if c * itemsize >= 64] or fitting[:1]
        wide = [c for c in fitting if c * N * itemsize * held <= TILE and P * _cdiv(B, c) >= GROUPS]
        width = wide[0] if wide else fitting[-1]
        if width * N * itemsize * held <= WHOLE:
            return Tile(True, columns=width)
    tile = strip(P, N, B, itemsize)
    return Tile(False, columns=tile.columns, block=block or tile.block)


@functools.lru_cache(maxsize=4096)
def strip(P: int, N: int, B: int, itemsize: int) -> Tile:
    """Tiles ``[block, columns]`` of 4096 elements that go down ``N`` of ``[P, N, B]``: 128 columns, fewer where ``B`` is
    smaller, more where ``N`` is too small for the rows of a tile."""
    narrow = next((c for c in STRIPS if c >= B), STRIPS[-1])
    short = next((c for c in STRIPS[4:] if 4096 // c <= N), STRIPS[-1])
    wide = min(narrow, short)
    return Tile(False, columns=wide, block=4096 // wide)


def piece(itemsize: int) -> int:
    """Elements of a piece of a row that is only read."""
    return max(STREAM // max(itemsize, 2), 2048)


@functools.lru_cache(maxsize=4096)
def chunks(groups: int, N: int, block: int) -> tuple[int, int]:
    """The number of chunks that an axis of ``N``, read in pieces of ``block``, is split into, and the length of a chunk. Each chunk
    takes ``groups`` groups. Fewer than eight chunks are not worth a second launch."""
    wanted = min(_cdiv(SHARES, groups), N // block)
    wanted = wanted if wanted >= 8 else 1
    length = _cdiv(_cdiv(N, wanted), block) * block
    return _cdiv(N, length), length


def parts(chunks: int) -> int:
    """The number of parts to allocate where a row is split into this many chunks."""
    return next(n for n in PARTS if n >= chunks)


@functools.lru_cache(maxsize=4096)
def shares(P: int, M: int, N: int, rows: int) -> tuple[int, int] | None:
    """How many groups share ``M`` rows, ``rows`` at a time, and how many rows each has, for kernels that keep sums over rows beside
    the rows themselves. None where rows are too long or too few for that. With 16 rows a group, the sums are a small part of the
    memory traffic."""
    if N > 8192 or P * M < 16 * GROUPS:
        return None
    each = _cdiv(_cdiv(P * M, GROUPS), rows) * rows
    return _cdiv(M, each), each


@functools.lru_cache(maxsize=4096)
def line(n: int, itemsize: int, block: int | None = None) -> int:
    """The tile of an elementwise kernel on ``n`` contiguous elements."""
    if block is not None:
        return block
    most = 4096 if itemsize <= 4 else 2048
    return next((b for b in (most, 2048, 1024) if b <= most and _cdiv(n, b) >= GROUPS), 1024)


@functools.lru_cache(maxsize=4096)
def area(M: int, N: int) -> tuple[int, int]:
    """The tile ``[R, C]`` of an elementwise kernel on ``[M, N]``: 4096 elements, as wide as ``N`` up to 1024."""
    wide = next((c for c in (32, 64, 128, 256, 512) if c >= N), 1024)
    return 4096 // wide, wide


@functools.lru_cache(maxsize=4096)
def square(M: int, N: int, itemsize: int) -> tuple[int, int]:
    """The tile of a transpose of ``[M, N]``: 128 by 128 for 2 bytes, else 64 by 64 up to 4 bytes, and 32 by 32 above. Where the
    array is narrower, the tile is narrower and longer."""
    side = 128 if itemsize == 2 else 64 if itemsize <= 4 else 32
    m, n = (next((t for t in (4, 8, 16, 32, 64) if t >= size), side) for size in (M, N))
    m, n = min(m, side), min(n, side)
    longer = side * side // (m * n)
    return (min(m * longer, 256), n) if m > n else (m, min(n * longer, 256))
