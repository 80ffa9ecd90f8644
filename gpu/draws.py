"""Inputs that every machine makes alike, each element by its place alone.

The ledger's outputs are checked on machines that have no GPU and other versions of every library, so inputs come from
integer arithmetic written here and from no generator of a library. It is written for arrays of int64, NumPy's and
PyTorch's alike: products wrap around, and shifts are masked because those of signed numbers copy the sign.
"""

import hashlib

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def _key(seed, name):
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "little", signed=True)


def words(places, seed, name):
    """64 random bits for each place of an array: `places` is int64, of any shape but a single number."""
    z = places * _GOLDEN + _key(seed, name)
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _FIRST
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _SECOND
    return z ^ ((z >> 31) & ((1 << 33) - 1))


def values(places, seed, name, kind):
    """Integers whose quotient by `scale(kind)` is the element: exact in f32.

    `bell` is the sum of four uniform numbers, much like a normal one, with a deviation of 1.15; `positive` is the same
    about 4, so that no part of a sum goes unnoticed; `integers` are -3 to 3.
    """
    bits = words(places, seed, name)
    if kind == "integers":
        return (bits & 0xFFFF) % 7 - 3
    assert kind in ("bell", "positive"), kind
    total = sum((bits >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
    return total - 2 * 0xFFFF if kind == "bell" else total


def scale(kind):
    return 1.0 if kind == "integers" else 2.0**15
