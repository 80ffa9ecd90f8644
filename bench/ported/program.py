"""What a ported program is: arguments of NumPy, the function in either library, and how close the results must be."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

F = np.float32


@dataclass(frozen=True)
class Program:
    """`ours()` and `theirs()` import their library and give its jitted function of `inputs(rng)`.

    `bound` is how far an element may be off, in parts of the largest magnitude of its array; `why` says what it allows for.
    `agree(ours, theirs)` replaces that comparison where the two draw numbers of their own."""

    name: str
    inputs: Callable[[np.random.Generator], tuple]
    ours: Callable[[], Callable]
    theirs: Callable[[], Callable]
    bound: float
    why: str
    agree: Callable[[list, list], None] | None

    def arguments(self) -> tuple:
        return self.inputs(np.random.default_rng(19))

    def compare(self, mine: list, other: list) -> float:
        """Raises where the results differ; gives the largest distance in parts of an array's largest magnitude."""
        mine, other = ([np.asarray(leaf) for leaf in leaves] for leaves in (mine, other))
        assert [a.shape for a in mine] == [b.shape for b in other], f"{self.name}: {[(a.shape, b.shape) for a, b in zip(mine, other)]}"
        if self.agree:
            self.agree(mine, other)
            return 0.0
        worst = 0.0
        for i, (a, b) in enumerate(zip(mine, other, strict=True)):
            a, b = a.astype(np.float64), b.astype(np.float64)
            assert np.isfinite(b).all(), f"{self.name}: result {i} is not finite"
            off = float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-30))
            assert off <= self.bound, f"{self.name}: result {i} of shape {a.shape} is off by {off:.2e}, more than {self.bound:.0e}"
            worst = max(worst, off)
        return worst


PROGRAMS: dict[str, Program] = {}


def program(name: str, *, bound: float = 2e-5, why: str = "sums in another order", agree: Any = None) -> Callable[[type], type]:
    """Adds a class with `inputs`, `ours` and `theirs` to `PROGRAMS`."""

    def add(cls: type) -> type:
        PROGRAMS[name] = Program(name, cls.inputs, cls.ours, cls.theirs, bound, why, agree)
        return cls

    return add


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (rng.standard_normal(shape) * scale).astype(F)


def dense(rng: np.random.Generator, *sizes: int) -> list[dict]:
    """Parameters of a chain of dense layers."""
    return [{"w": normal(rng, a, b, scale=a**-0.5), "b": normal(rng, b, scale=0.1)} for a, b in itertools.pairwise(sizes)]


def zeros_like(tree: Any) -> Any:
    """The same tree with zeros."""
    if isinstance(tree, dict):
        return {k: zeros_like(v) for k, v in tree.items()}
    return [zeros_like(v) for v in tree] if isinstance(tree, list) else np.zeros_like(tree)
