"""What the generator knows about a value: its type and a bound on its numbers.

A value is *exact* where every step to it was: integers, bools, and floats that hold whole numbers within what their dtype
holds. Orders of sums do not matter for those, so positions, predicates, sorting and comparisons are made of exact values only,
and they are compared bit for bit everywhere. All others are *real*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

FLOATS = ("f32", "f64", "bf16", "f16")
INTS = ("i32", "i64", "u8")
#: Whole numbers up to here are exact.
LIMIT = {"f32": 2**24, "f64": 2**50, "bf16": 2**8, "f16": 2**11, "i32": 2**31 - 1, "i64": 2**50, "u8": 255, "bool": 1}
#: Real numbers stay below it.
REAL = 64.0
#: Elements of one value at most.
ELEMENTS = 4000


@dataclass(frozen=True)
class V:
    name: str
    dtype: str
    shape: tuple[int, ...]
    exact: bool
    bound: float
    origin: str = "argument"
    depth: int = 0

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


@dataclass(frozen=True)
class Arg:
    """An argument of the function: ``whole`` numbers, positions and the like, or numbers in between."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    whole: bool
    bound: int


@dataclass
class Case:
    """A program: ``f`` of the text, with arguments drawn from the seed."""

    text: str
    args: list[Arg]
    seed: int
    ops: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    #: Why its numbers under JAX would be others.
    not_jax: set[str] = field(default_factory=set)

    @property
    def bits(self) -> bool:
        """Whether ``strict`` promises the bits of the interpreter of Graph IR: the plan chooses the
        order of a sum over several axes, and derivatives have such sums."""
        return not any(self.counts.get(name) for name in ("derivatives", "sums over several axes"))

    def with_text(self, text: str) -> Case:
        return Case(text, self.args, self.seed, self.ops, self.counts, self.not_jax)

    def arguments(self, variant: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng([self.seed & 0xFFFFFFFF, self.seed >> 32, variant])
        out = []
        for a in self.args:
            if a.dtype == "bool":
                made: Any = rng.random(a.shape) < 0.5
            elif a.whole:
                low = 0 if a.dtype == "u8" else -a.bound
                made = rng.integers(low, a.bound, a.shape, endpoint=True)
            else:
                made = rng.uniform(-a.bound, a.bound, a.shape)
            out.append(np.asarray(made).astype(numpy_dtype(a.dtype)))
        return out


def numpy_dtype(name: str) -> np.dtype:
    import ml_dtypes

    known = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "bool": np.bool_}
    return np.dtype(known.get(name) or {"i32": np.int32, "i64": np.int64, "u8": np.uint8}[name])
