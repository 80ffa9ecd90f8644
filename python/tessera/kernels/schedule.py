"""Tile sizes of library kernels, by shape.

On a GPU, a group holds its tile in registers. A large tile gives every thread several wide loads in flight; a small one lets
several groups be resident on a multiprocessor. On a CPU, the tile is in the L1 cache. The functions here make that trade, and
do nothing else: numbers in, numbers out. ``groups`` is how many groups keep the machine busy (`machine.Machine`). ``rows=`` and ``block=`` of an operation override them.

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
#: Groups that are resident together when each streams a long chunk, for one of `groups`: there is no second wave.
SHARES = 2
#: Warps of a group that computes element by element along rows: each thread has four wide loads in flight, and several groups
#: are resident.
LINE_WARPS = 4
#: Iterations of a group, each of which waits for its loads, that take as long as a launch does.
LAUNCH = 6
#: Iterations from which on a group streams, and all that matters is how many bytes are in flight.
STREAMED = 16
#: Numbers of parts that a row is split into, for a second launch to combine. The last is never exceeded.
PARTS = (16, 64, 256, 512, 1024)

#: Bytes of an array from which on two launches more are no matter; and of parts of one, which few groups read.
FOLDED, FOLDED_PARTS = 16 * 2**20, 2**16

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
    #: 0: the compiler's choice.
    warps: int = 0


@dataclass(frozen=True)
class Shares:
    """A row has ``chunks``, one for each group, of ``pieces`` tiles of ``block`` elements."""

    chunks: int
    pieces: int
    block: int


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _several(count: int, bytes_each: int, times: int, choices: tuple[int, ...], groups: int) -> int:
    """How many of ``count`` rows a group takes: as many as fit into a tile, while enough groups are left."""
    for n in choices:
        if n * bytes_each <= TILE and (n == 1 or times * _cdiv(count, n) >= groups):
            return n
    return choices[-1]


@functools.lru_cache(maxsize=4096)
def rows(
    P: int, M: int, N: int, itemsize: int, held: int = 1, rows: int | None = None, block: int | None = None, *, groups: int
) -> Tile:
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
        return Tile(True, rows=_several(M, N * itemsize * held, P, ROWS, groups))
    return Tile(False, block=next(b for b in (*PIECES, 0) if b * itemsize <= PIECE) or PIECES[-1])


@functools.lru_cache(maxsize=4096)
def columns(
    P: int, N: int, B: int, itemsize: int, held: int = 1, rows: int | None = None, block: int | None = None, *, groups: int
) -> Tile:
    """For kernels along ``N`` of ``[P, N, B]``: ``N`` whole with 4 to 256 columns, or pieces of ``block`` by ``columns``."""
    if rows is not None:
        return Tile(True, columns=rows)
    if block is None:
        # A width is less than twice the array's, and has at least 64 contiguous bytes where the array has them.
        fitting = [c for c in COLUMNS if c < 2 * B] or [COLUMNS[-1]]
        fitting = [c for c in fitting if c * itemsize >= 64] or fitting[:1]
        wide = [c for c in fitting if c * N * itemsize * held <= TILE and P * _cdiv(B, c) >= groups]
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
def chunks(each: int, N: int, block: int, *, groups: int) -> tuple[int, int]:
    """The number of chunks that an axis of ``N``, read in pieces of ``block``, is split into, and the length of a chunk. Each chunk
    takes ``each`` groups. Fewer than eight chunks are not worth a second launch."""
    wanted = min(_cdiv(SHARES * groups, each), N // block)
    wanted = wanted if wanted >= 8 else 1
    length = _cdiv(_cdiv(N, wanted), block) * block
    return _cdiv(N, length), length


@functools.lru_cache(maxsize=4096)
def gpu_strip(P: int, N: int, B: int, itemsize: int, *, groups: int) -> Tile:
    """As `strip`, for a GPU: rows of 128 bytes where the array has them, which gives more and smaller groups, with 8 to 16 elements
    for each thread, which is short code. Elements of 2 bytes that a group streams for long, or whose rows are few, have wide tiles."""
    size, warps = (4096, 8) if itemsize <= 2 else (1024, 4)
    wide = max(16, min(128 // itemsize, 64))
    wide = next(c for c in (4, 16, wide) if c >= min(B, wide))
    block = size // wide
    streamed = _cdiv(N, block) >= STREAMED * _cdiv(SHARES * groups * 4 // warps, P * _cdiv(B, wide))
    if itemsize <= 2 and B >= 128 and (streamed or N < block):
        tile = strip(P, N, B, itemsize)
        return Tile(False, columns=tile.columns, block=tile.block, warps=4)
    while itemsize > 2 and B > wide and block > max(8, N):
        block, wide = block // 2, wide * 2
    return Tile(False, columns=wide, block=block, warps=warps)


@functools.lru_cache(maxsize=4096)
def strips(each: int, N: int, tile: Tile, *, groups: int) -> tuple[int, int]:
    """As `chunks`, on a GPU, for tiles that ``each`` groups take down ``N``: the number that keeps the memory busy, where the iterations
    that this saves take longer than a second launch does."""
    iterations = _cdiv(N, tile.block)
    # No second wave.
    share = lambda all: _cdiv(iterations, max(1, min(all // each, iterations)))  # noqa: E731
    busy = SHARES * groups * 4 // tile.warps
    small = tile.block * tile.columns <= 1024
    # Groups with small tiles that stream for long are worth more parts: two groups are resident for one of the others.
    length = share(2 * busy) if small and share(2 * busy) >= STREAMED else share(busy)
    length = length if iterations - length >= LAUNCH else iterations
    return _cdiv(iterations, length), length * tile.block


@functools.lru_cache(maxsize=4096)
def folded(N: int, B: int, itemsize: int, least: int) -> int:
    """How many neighbouring rows of ``[N, B]`` a reduction down the columns takes as one row, where rows lie one after another:
    enough that rows begin at multiples of 16 bytes and fill a strip. 1 where rows are aligned, too few, or of less
    than ``least`` bytes together."""
    times = next(q for q in (1, 2, 4, 8, 16) if q * B * itemsize % 16 == 0)
    while times * B < STRIPS[4]:
        times *= 2
    return times if N >= 64 * times and N * B * itemsize >= least else 1


@functools.lru_cache(maxsize=4096)
def shared(rows: int, N: int, itemsize: int, *, groups: int) -> Shares | None:
    """How groups share each of a few long rows that are read twice: once for what is known of the whole row, and once for the
    result. None where the rows themselves keep the GPU busy."""
    if 2 * rows > groups:
        return None
    block = PIECES[-1] if itemsize <= 2 else PIECES[-1] // 2
    pieces = _cdiv(N, block)
    each = _cdiv(pieces, min(_cdiv(groups, rows), pieces))
    chunks = _cdiv(pieces, each)
    return Shares(chunks, each, block) if chunks >= 4 else None


def parts(chunks: int) -> int:
    """The number of parts to allocate where a row is split into this many chunks."""
    return next(n for n in PARTS if n >= chunks)


@functools.lru_cache(maxsize=4096)
def shares(P: int, M: int, N: int, rows: int, *, groups: int) -> tuple[int, int] | None:
    """How many groups share ``M`` rows, ``rows`` at a time, and how many rows each has, for kernels that keep sums over rows beside
    the rows themselves. None where rows are too long or too few for that. With 16 rows a group, the sums are a small part of the
    memory traffic."""
    if N > 8192 or P * M < 16 * groups:
        return None
    each = _cdiv(_cdiv(P * M, groups), rows) * rows
    return _cdiv(M, each), each


@functools.lru_cache(maxsize=4096)
def line(n: int, itemsize: int, block: int | None = None, *, groups: int) -> int:
    """The tile of an elementwise kernel on ``n`` contiguous elements."""
    if block is not None:
        return block
    most = 4096 if itemsize <= 4 else 2048
    return next((b for b in (most, 2048, 1024) if b <= most and _cdiv(n, b) >= groups), 1024)


@functools.lru_cache(maxsize=4096)
def area(M: int, N: int) -> tuple[int, int]:
    """The tile ``[R, C]`` of an elementwise kernel on ``[M, N]``: 4096 elements, as wide as ``N`` up to 1024."""
    wide = next((c for c in (32, 64, 128, 256, 512) if c >= N), 1024)
    return 4096 // wide, wide


def fits_whole(N: int, itemsize: int) -> bool:
    """Whether an elementwise kernel takes whole rows of ``N`` elements."""
    return N * itemsize <= TILE


def long_area(M: int) -> tuple[int, int]:
    """The tile of an elementwise kernel on rows that are too long to be taken whole, on a GPU: 2048 elements, 256 wide."""
    return (8, 256) if M >= 8 else (4, 512) if M >= 4 else (1, 2048)


@functools.lru_cache(maxsize=4096)
def square(M: int, N: int, itemsize: int, times: int = 1, *, groups: int) -> tuple[int, int]:
    """The tile of a transpose of ``[M, N]``: 128 by 128 for 2 bytes, else 64 by 64 up to 4 bytes, and 32 by 32 above. Where the
    array is narrower, the tile is narrower and longer. It is halved where there are too few of them for all groups."""
    side = 128 if itemsize == 2 else 64 if itemsize <= 4 else 32
    m, n = (min(_near(size) if itemsize == 2 else next((t for t in (4, 8, 16, 32, 64) if t >= size), side), side) for size in (M, N))
    longer = side * side // (m * n)
    m, n = (min(m * longer, 256), n) if m > n else (m, min(n * longer, 256))
    while m * n > 1024 and times * _cdiv(M, m) * _cdiv(N, n) < groups:
        m, n = (m // 2, n) if m > n else (m, n // 2)
    return m, n


def _near(size: int) -> int:
    """The longest side of a tile up to 64 that covers not much more of a short axis than others do; 128 for long axes."""
    if size > 64:
        return 128
    if size <= 8:
        return 4 if size <= 4 else 8
    covered = {t: _cdiv(size, t) * t for t in (64, 32, 16)}
    return next(t for t in covered if 16 * covered[t] <= 17 * min(covered.values()))
