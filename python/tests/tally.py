"""What a generator of random programs drew, and what came of it."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter


def day() -> int:
    """The seed that holds today, unless ``TESSERA_FUZZ_SEED`` names one: the days since 1970."""
    return int(os.environ.get("TESSERA_FUZZ_SEED") or time.time() // 86400)


def arguments() -> argparse.ArgumentParser:
    """The options that the generators share."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=int, default=1_000_000_000)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int, default=day())
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--one", type=int, help="the seed of a single program, as it was printed")
    parser.add_argument("--stop-at", type=int, default=5)
    return parser


class Tally:
    """Counts of programs, of what they consist of (``unit``), and of their results."""

    def __init__(self, unit: str) -> None:
        self.unit = unit
        self.constructs: Counter = Counter()
        self.refusals: Counter = Counter()
        self.reasons: Counter = Counter()
        self.seconds: Counter = Counter()
        self.programs = self.size = self.agreed = 0
        self.broken: list[tuple[int, str]] = []
        self.failures: list[tuple[int, str]] = []

    def add(self, other: Tally) -> None:
        for name in ("constructs", "refusals", "reasons", "seconds"):
            getattr(self, name).update(getattr(other, name))
        for name in ("broken", "failures"):
            getattr(self, name).extend(getattr(other, name))
        self.programs += other.programs
        self.size += other.size
        self.agreed += other.agreed

    def report(self) -> str:
        lines = [f"{self.programs} programs, {self.size} {self.unit}, {self.agreed} agree, {len(self.failures)} differ"]
        lines.append("refused: " + (", ".join(f"{c} {n}" for c, n in self.refusals.most_common()) or "none"))
        lines += [f"  {n} times {reason}" for reason, n in self.reasons.most_common(5)]
        if self.broken:
            lines.append(f"not legal: {len(self.broken)}, such as {self.broken[0]}")
        lines.append("constructs: " + ", ".join(f"{n} {c}" for n, c in self.constructs.most_common()))
        lines.append("seconds: " + ", ".join(f"{n} {s:.1f}" for n, s in self.seconds.most_common()))
        return "\n".join(lines)
