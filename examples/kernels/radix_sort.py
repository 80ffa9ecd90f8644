"""A stable radix sort of keys and values, four bits at a time: count digits, scan the counts, scatter.

    python examples/kernels/radix_sort.py
"""

import numpy as np

import tessera as ts
from gallery import check

BLOCK, BITS = 256, 4
DIGITS = 1 << BITS


@ts.func
def digits_of(keys, start, n, shift):
    """Which digit each key of a block has, as a row of a matrix: true in one place, or in none beyond the end."""
    digit = ts.tile.cast((keys >> shift) & (DIGITS - 1), ts.int32)
    inside = start + ts.tile.arange(BLOCK) < n
    return (digit[:, None] == ts.tile.arange(DIGITS)[None, :]) & inside[:, None]


@ts.kernel
def count(keys: ts.Tensor["n", ts.uint32], shift: ts.uint32, counts: ts.Out[DIGITS, "blocks", ts.int32]):
    block = ts.tile.grid(blocks)
    start = block * BLOCK
    has = digits_of(keys[start : start + BLOCK], start, n, shift)
    counts[:, block] = ts.tile.sum(ts.tile.cast(has, ts.int32), axis=0)
    return counts


@ts.kernel
def add_up(counts: ts.Tensor["m", ts.int32], offsets: ts.Out["m", ts.int32]):
    """How many keys go before those of each digit and block."""
    before = 0
    for start in range(0, m, BLOCK):
        t = counts[start : start + BLOCK]
        offsets[start : start + BLOCK] = before + ts.tile.cumsum(t, exclusive=True)
        before += ts.tile.sum(t)
    return offsets


@ts.kernel
def move(
    keys: ts.Tensor["n", ts.uint32],
    values: ts.Tensor["n", ts.int32],
    shift: ts.uint32,
    offsets: ts.Tensor[DIGITS, "blocks", ts.int32],
    keys_out: ts.Out["n", ts.uint32],
    values_out: ts.Out["n", ts.int32],
):
    block = ts.tile.grid(blocks)
    start = block * BLOCK
    key = keys[start : start + BLOCK]
    has = digits_of(key, start, n, shift)
    rank = ts.tile.cumsum(ts.tile.cast(has, ts.int32), axis=0, exclusive=True)  # keys of the same digit before it
    place = offsets[:, block]
    to = ts.tile.sum(ts.tile.where(has, place[None, :] + rank, 0), axis=1)
    inside = ts.tile.any(has, axis=1)
    ts.tile.store(keys_out, to, key, mask=inside, unique=True)
    ts.tile.store(values_out, to, values[start : start + BLOCK], mask=inside, unique=True)
    return keys_out, values_out


TOLERANCE = 0.0


def run(keys, values):
    blocks = ts.cdiv(keys.shape[0], BLOCK)
    for shift in range(0, 32, BITS):
        counts = count(keys, shift, np.zeros((DIGITS, blocks), np.int32))
        offsets = add_up(np.reshape(counts, -1))
        keys, values = move(keys, values, shift, np.reshape(offsets, (DIGITS, blocks)))
    return keys, values


def reference(keys, values):
    order = np.argsort(keys, kind="stable")
    return keys[order], values[order]


def cases():
    rng = np.random.default_rng(0)
    for n, most in ((0, 1), (1, 2**32), (100, 5), (256, 2**32), (1000, 2**32), (3000, 300)):
        yield rng.integers(0, most, n, dtype=np.uint32), np.arange(n, dtype=np.int32)


def main():
    check("radix_sort", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
