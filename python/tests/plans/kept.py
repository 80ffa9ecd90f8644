"""Programs with JAX's numbers, kept in ``python/tests/jax_plans.npz``: ``scripts/jax-values.sh`` writes them.

The file has the text of each program, its arguments, and for each f64 result a weighted sum of its elements, which a wrong element
changes. It does not depend on the generator.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path

import numpy as np

from .values import Arg, Case

FILE = Path(__file__).resolve().parent.parent / "jax_plans.npz"
COUNT = 300


def digest(x: np.ndarray) -> list[float]:
    """Two weighted sums of the elements, and of their sizes."""
    flat = np.nan_to_num(np.asarray(x, np.float64).reshape(-1), nan=7.0, posinf=1e6, neginf=-1e6)
    at = np.arange(flat.size)
    return [float(flat @ np.cos(at)), float(flat @ np.cos(1.7 * at + 1)), float(np.abs(flat).sum())]


def write() -> None:
    from . import run
    from .generate import generate

    texts, numbers = [], []
    seed = 0
    while len(texts) < COUNT:
        case = generate(seed)
        seed += 1
        if case.not_jax:
            continue
        there = run.wide(case)
        numbers.append([digest(a) for a in run.by_jax(case, 1)[0]])
        texts.append({"text": there.text, "seed": case.seed, "args": [[a.name, a.dtype, list(a.shape), a.whole, a.bound] for a in case.args]})
        print(f"\r{len(texts)} of {COUNT}", end="", file=sys.stderr, flush=True)
    packed = np.frombuffer(zlib.compress(json.dumps(texts).encode(), 9), np.uint8)
    sizes = np.array([len(n) for n in numbers])
    np.savez_compressed(FILE, programs=packed, sizes=sizes, numbers=np.array([d for n in numbers for d in n]))
    print(f"\n{FILE.name}: {FILE.stat().st_size} bytes", file=sys.stderr)


def read() -> list[tuple[Case, np.ndarray]]:
    """The programs, in f64, and what JAX's results come to."""
    with np.load(FILE) as kept:
        texts = json.loads(zlib.decompress(kept["programs"].tobytes()))
        parts = np.split(kept["numbers"], np.cumsum(kept["sizes"])[:-1])
    out = []
    for program, numbers in zip(texts, parts):
        args = [Arg(name, dtype, tuple(shape), whole, bound) for name, dtype, shape, whole, bound in program["args"]]
        out.append((Case(program["text"], args, program["seed"]), numbers))
    return out


if __name__ == "__main__":
    write()
