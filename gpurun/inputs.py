"""Reproducible inputs: every machine computes the same element from its position alone (a counter-based generator).

The ledger's outputs are checked on machines without a GPU and with other library versions, so inputs come from integer
arithmetic in this file and not from a library's generator. It works on int64 arrays of NumPy and of PyTorch: multiplication
wraps around, and right shifts are masked because they copy the sign.
"""

import hashlib

import numpy as np

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def _key(seed, name):
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "little", signed=True)


def words(places, seed, name):
    """64 random bits for each position. `places` is an int64 array, not a scalar."""
    z = places * _GOLDEN + _key(seed, name)
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _FIRST
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SECOND
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def values(places, seed, name, kind):
    """Integers that give the elements when divided by `scale(kind)`; the quotients are exact in f32.

    - `bell`: the sum of four uniform numbers, close to normal, with a standard deviation of 1.15.
    - `bell4`, `bell16`: the same, 4 and 16 times as wide.
    - `positive`: the same around 4, so that a missing term of a sum changes it visibly.
    - `integers`: -3 to 3. `units`: -1 to 1.
    - `queries D`, `keys D S`: bells, except for the first of `D` elements, which makes scores grow with every 128 of `S`
      keys: by 40 powers of two where D is 128.
    - `documents N S`: for each of `S` tokens, which of N documents it is in.
    """
    if kind.startswith("documents "):
        return sum((places >= cut) + 0 * places for cut in _cuts(seed, name, *map(int, kind.split()[1:])))
    bits = words(places, seed, name)
    if kind in WHOLE:
        most = WHOLE[kind]
        return (bits & 0xFFFF) % (2 * most + 1) - most
    word, *sizes = kind.split()
    assert word in ("bell", "bell4", "bell16", "positive", "queries", "keys"), kind
    total = sum((bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
    found = total if word == "positive" else total - 2 * 0xFFFF
    if sizes:
        width = int(sizes[0])
        one = int(scale(kind))
        step = 4 * one if word == "queries" else places // width % int(sizes[1]) // 128 * 80 * one
        first = (places % width == 0) + 0 * places
        return found * (1 - first) + step * first
    return found


def _cuts(seed, name, count, length):
    """Random distinct positions where documents other than the first begin."""
    drawn = words(np.arange(64 * count, dtype=np.int64), seed, f"{name}, cuts") % (length - 1) + 1
    return list(dict.fromkeys(drawn.tolist()))[: count - 1]


#: Kinds whose sums are exact, and the greatest number of each.
WHOLE = {"integers": 3, "units": 1}


def scale(kind):
    return 1.0 if kind in WHOLE or kind.startswith("documents ") else {"bell4": 2.0**13, "bell16": 2.0**11}.get(kind, 2.0**15)
