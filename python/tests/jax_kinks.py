"""First and second derivatives where functions have kinks, ties or ends: the rows, and what JAX gives for them, kept in
``jax_kinks.json``. ``scripts/jax-values.sh`` writes the file with the pinned JAX. A row is a function of ``(xp, nn, v)``, which
are `tessera.xp` and `tessera.nn` or `jax.numpy` and `jax.nn`, and the points to evaluate it at."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".json")
POINTS = (np.array([0.0, 1.0, 2.0], np.float32), np.array([0.0, 1.0, 3.0], np.float32))


def _named(name: str):
    return lambda xp, nn, v: getattr(nn, name)(v)


ROWS = {
    "maximum(v, 0)": (lambda xp, nn, v: xp.maximum(v, 0.0), (0.0,)),
    "minimum(v, 0)": (lambda xp, nn, v: xp.minimum(v, 0.0), (0.0,)),
    "maximum(v, v)": (lambda xp, nn, v: xp.maximum(v, v), (1.0,)),
    "fmax(v, 0)": (lambda xp, nn, v: xp.fmax(v, 0.0), (0.0,)),
    "fmax(0, v)": (lambda xp, nn, v: xp.fmax(xp.zeros(()), v), (0.0,)),
    "fmin(v, 0)": (lambda xp, nn, v: xp.fmin(v, 0.0), (0.0,)),
    "clip(v, 0, 1)": (lambda xp, nn, v: xp.clip(v, 0.0, 1.0), (-0.5, 0.0, 0.5, 1.0, 1.5)),
    "clip(v, 0, None)": (lambda xp, nn, v: xp.clip(v, 0.0, None), (0.0,)),
    "clip(v, None, 1)": (lambda xp, nn, v: xp.clip(v, None, 1.0), (1.0,)),
    "clip(v, 1, 1)": (lambda xp, nn, v: xp.clip(v, 1.0, 1.0), (1.0,)),
    "clip(0, v, 1)": (lambda xp, nn, v: xp.clip(xp.zeros(()), v, 1.0), (0.0,)),
    "max([v, 0, 0])": (lambda xp, nn, v: xp.max(xp.stack([v, v * 0, v * 0])), (0.0,)),
    "min([v, 2 v])": (lambda xp, nn, v: xp.min(xp.stack([v, 2 * v])), (0.0,)),
    "sort([v, 0])[1]": (lambda xp, nn, v: xp.sort(xp.stack([v, v * 0]))[1], (0.0,)),
    "median([v, v, 2 v])": (lambda xp, nn, v: xp.median(xp.stack([v, v, 2 * v])), (1.0,)),
    "ptp([v, 2 v])": (lambda xp, nn, v: xp.ptp(xp.stack([v, 2 * v])), (0.0, 1.0)),
    "abs": (lambda xp, nn, v: xp.abs(v), (0.0, -1.0)),
    "sign": (lambda xp, nn, v: xp.sign(v), (0.0,)),
    "heaviside(v, 0.5)": (lambda xp, nn, v: xp.heaviside(v, 0.5), (0.0,)),
    "copysign(v, 1)": (lambda xp, nn, v: xp.copysign(v, 1.0), (0.0, -2.0)),
    "copysign(v, -1)": (lambda xp, nn, v: xp.copysign(v, -1.0), (0.0, 2.0)),
    "remainder(v, 1)": (lambda xp, nn, v: xp.remainder(v, 1.0), (0.0, 1.0)),
    "fmod(v, 1)": (lambda xp, nn, v: xp.fmod(v, 1.0), (0.0, 1.0, -1.5)),
    "floor(v)": (lambda xp, nn, v: xp.floor(v), (0.0, 1.0)),
    "hypot(v, 0)": (lambda xp, nn, v: xp.hypot(v, 0.0), (0.0,)),
    "logaddexp(v, 0)": (lambda xp, nn, v: xp.logaddexp(v, 0.0), (0.0, 1.0)),
    "logaddexp(v, v)": (lambda xp, nn, v: xp.logaddexp(v, v), (0.5,)),
    "v ** 2.5": (lambda xp, nn, v: v**2.5, (0.0,)),
    "power(v, 0.0)": (lambda xp, nn, v: xp.power(v, 0.0), (0.0,)),
    "power(v, 1.0)": (lambda xp, nn, v: xp.power(v, 1.0), (0.0,)),
    "sqrt": (lambda xp, nn, v: xp.sqrt(v), (0.0,)),
    "sinc": (lambda xp, nn, v: xp.sinc(v), (0.0,)),
    "interp(v, [0, 1, 2], [0, 1, 3])": (lambda xp, nn, v: xp.interp(v, *POINTS), (-1.0, 0.0, 1.0, 2.0, 3.0)),
    "where(v > 0, v, 0)": (lambda xp, nn, v: xp.where(v > 0, v, 0.0), (0.0,)),
    **{f"nn.{n}": (_named(n), (-3.0, -1.0, 0.0, 1.0, 3.0, 6.0)) for n in
       ("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "hard_tanh", "hard_sigmoid", "hard_silu", "soft_sign", "softplus",
        "log_sigmoid", "silu", "mish", "squareplus")},
}  # fmt: skip

#: Where ours are others: first and second derivative at each point, and why.
DIFFERENT = {
    "abs": ([[0.0, 0.0], [-1.0, 0.0]], "the middle of both sides, as in PyTorch"),
    "hypot(v, 0)": ([[0.0, 0.0]], "of magnitudes"),
    "power(v, 0.0)": ([[0.0, 0.0]], "the power is 1 everywhere"),
    "power(v, 1.0)": ([[1.0, 0.0]], "the power is v"),
    "nn.celu": ([[0.049787067, 0.049787067], [0.36787944, 0.36787944], [1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], "of the side below 0, as of `elu`"),
}


def kept() -> dict[str, list]:
    """For each row and point the first and the second derivative that JAX gives."""
    return {name: [[math.nan if v is None else v for v in pair] for pair in row] for name, row in json.loads(FILE.read_text()).items()}


def page() -> list[str]:
    """The table of `docs/op-derivatives.md`."""
    def shown(pairs: list) -> str:
        return "; ".join(" ".join(f"{round(v, 4):g}" for v in pair) for pair in pairs)

    lines = [
        "## At kinks, ties and ends",
        "",
        "The first and the second derivative at each point, forward and reverse, interpreted and compiled, held against JAX's by",
        "`python/tests/test_kinks.py`; JAX's numbers are kept in `python/tests/jax_kinks.json`.",
        "",
        "| function | at | first and second derivative | JAX's, where ours are others |",
        "|---|---|---|---|",
    ]
    for name, row in kept().items():
        ours, why = DIFFERENT.get(name, (row, ""))
        points = ", ".join(f"{v:g}" for v in ROWS[name][1])
        lines.append(f"| `{name}` | {points} | {shown(ours)} | {f'{shown(row)}: ours are {why}' if why else ''} |")
    return lines


def write() -> None:
    import jax

    out = {}
    for name, (fn, points) in ROWS.items():
        first = jax.grad(lambda v, fn=fn: fn(jax.numpy, jax.nn, v))
        rows = [[float(first(np.float32(at))), float(jax.grad(first)(np.float32(at)))] for at in points]
        out[name] = [[None if math.isnan(v) else v for v in pair] for pair in rows]
    FILE.write_text("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in out.items()) + "\n}\n")
    print(f"{len(out)} functions, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    write()
