"""Values and derivatives that JAX gives for every row of `graph_ops`, kept in ``jax_values.npz``: computing them takes over a
minute and 500 MB of packages. ``scripts/jax-values.sh`` writes the file with the pinned JAX; a test with the pinned packages
that finds other arguments than the file's says so."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import graph_ops
import numpy as np

FILE = Path(__file__).with_suffix(".npz")
WHAT = ("value", "tangent", "gradient", "forward", "reverse")


def key(op: graph_ops.Op, shapes: tuple) -> str:
    return f"{op.name} {'x'.join(str(list(s)) for s in shapes)}"


def digest(op: graph_ops.Op, shapes: tuple) -> str:
    """A hash of the arguments of a case."""
    args, weights, along = graph_ops.question(op, shapes)
    found = hashlib.sha256()
    for a in (*args, weights, *along):
        found.update(f"{a.shape}{a.dtype}".encode() + np.ascontiguousarray(a).tobytes())
    return found.hexdigest()[:16]


@functools.cache
def _kept() -> tuple[dict, np.ndarray]:
    with np.load(FILE) as file:
        rows = [line.split("\t") for line in str(file["index"]).splitlines()]
        return {row[0]: row[1:] for row in rows}, file["numbers"]


def answers(op: graph_ops.Op, shapes: tuple) -> dict[str, list[np.ndarray]]:
    """JAX's results for a case, by the names in `WHAT`."""
    index, numbers = _kept()
    again = "run scripts/jax-values.sh, which computes them with JAX again"
    assert key(op, shapes) in index, f"no values of JAX are kept for {key(op, shapes)}: {again}"
    hashed, at, *shown = index[key(op, shapes)]
    assert hashed == digest(op, shapes), f"the values of JAX kept for {key(op, shapes)} are of other arguments: {again}"
    out, place = {}, int(at)
    for part in shown:
        name, *arrays = part.split(" ")
        out[name] = []
        for text in arrays:
            shape = tuple(int(d) for d in text.split(",") if d)
            size = int(np.prod(shape, dtype=np.int64))
            out[name].append(numbers[place : place + size].reshape(shape))
            place += size
    return out


def write() -> None:
    import jax_ops

    lines, numbers, at = [], [], 0
    for op, shapes in graph_ops.cases():
        found = jax_ops.answers(op, *graph_ops.question(op, shapes))
        row = [key(op, shapes), digest(op, shapes), str(at)]
        for name in WHAT:
            if name in found:
                row.append(" ".join([name, *(",".join(map(str, a.shape)) + ("," if a.ndim < 2 else "") for a in found[name])]))
                for a in found[name]:
                    numbers.append(np.asarray(a, np.float64).reshape(-1))
                    at += a.size
        lines.append("\t".join(row))
    np.savez_compressed(FILE, index=np.array("\n".join(lines)), numbers=np.concatenate(numbers))
    print(f"{len(lines)} cases, {at} numbers, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    write()
