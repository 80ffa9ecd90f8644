"""A hash table in an array, with open addressing: lanes claim slots with compare-and-swap, and add the
values of equal keys.

    python examples/kernels/hash_table.py
"""

import numpy as np

import tessera as ts
from gallery import check

FREE = 2**32 - 1  # the key of a free slot


@ts.func
def first_slot(key, size):
    return (key * 2654435761 >> 7) % size


@ts.kernel
def insert(
    keys: ts.Tensor["n", ts.uint32],
    values: ts.Tensor["n", ts.int32],
    slots: ts.Tensor["size", ts.uint32],
    sums: ts.Tensor["size", ts.int32],
):
    i = ts.tile.linear_id()
    if i >= n:
        return
    key = keys[i]
    at = int(first_slot(key, size))
    found = ts.tile.atomic_cas(slots[at], FREE, key)
    while found != FREE and found != key:
        at = (at + 1) % size
        found = ts.tile.atomic_cas(slots[at], FREE, key)
    ts.tile.atomic_add(sums[at], values[i])


@ts.kernel
def look_up(
    keys: ts.Tensor["n", ts.uint32],
    slots: ts.Tensor["size", ts.uint32],
    sums: ts.Tensor["size", ts.int32],
    found: ts.Out["n", ts.int32],
):
    i = ts.tile.linear_id()
    if i >= n:
        return
    at = int(first_slot(keys[i], size))
    while slots[at] != keys[i] and slots[at] != FREE:
        at = (at + 1) % size
    found[i] = sums[at] if slots[at] == keys[i] else -1


TOLERANCE = 0.0


def run(keys, values, queries, size):
    slots, sums = np.full(size, FREE, np.uint32), np.zeros(size, np.int32)
    insert(keys, values, slots, sums)
    return look_up(queries, slots, sums)


def reference(keys, values, queries, size):
    sums = {}
    for key, value in zip(keys.tolist(), values.tolist()):
        sums[key] = sums.get(key, 0) + value
    return np.array([sums.get(key, -1) for key in queries.tolist()], np.int32)


def cases():
    rng = np.random.default_rng(0)
    for n, most, size in ((0, 9, 4), (1, 9, 2), (100, 30, 64), (1000, 2**31, 1024), (5000, 700, 1009)):
        keys = rng.integers(0, most, n, dtype=np.uint32)
        values = rng.integers(0, 1000, n, dtype=np.int32)
        yield keys, values, np.concatenate([keys, rng.integers(0, most, 50, dtype=np.uint32)]), size


def main():
    check("hash_table", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
