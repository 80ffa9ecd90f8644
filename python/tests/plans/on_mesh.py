"""Programs on arrays on a mesh: the mesh, the placements of arguments and results, and what the program pins are drawn from the seed of
the program, whatever its text is, so that a smaller text keeps them."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np

import tessera as ts
from tessera import dist

from .values import Case

AXES = ("x", "y", "z")
#: 1 to 12 ranks.
SHAPES = [(1,), (2,), (3,), (4,), (5,), (7,), (8,), (12,), (1, 2), (2, 2), (2, 3), (3, 2), (4, 2), (2, 4), (3, 3), (5, 2), (3, 4), (6, 2), (2, 2, 2), (2, 3, 2), (1, 3, 2)]


def mesh_of(seed: int) -> dist.Mesh:
    shape = random.Random(f"mesh {seed}").choice(SHAPES)
    return dist.mesh(int(np.prod(shape)), AXES[: len(shape)], shape)


def spec_of(key: str, mesh: dist.Mesh, rank: int, pin: bool = False) -> dist.ShardSpec:
    """A placement: even and uneven, several axes on a dim; beside pins also dealt in cycles, and contributions."""
    rng = random.Random(key)
    dims: list[list[str]] = [[] for _ in range(rank)]
    left = []
    for axis in rng.sample(mesh.axes, len(mesh.axes)):
        if rank and rng.random() < 0.75:
            dims[rng.randrange(rank)].append(axis)
        else:
            left.append(axis)
    entries: list[Any] = [tuple(d) or None for d in dims]
    if not pin:
        for i, d in enumerate(dims):
            if len(d) == 1 and rng.random() < 0.1:
                entries[i] = dist.Cyclic((d[0],)) if rng.random() < 0.5 else dist.BlockCyclic((d[0],), 2)
        if left and rng.random() < 0.2:
            return dist.spec(*entries, sum=tuple(left))
    return dist.spec(*entries, priority=rng.choice((0, 0, 0, 1)))


class _Pins:
    """`pin(x, number)` of a program: places a value inside. On one device it is nothing."""

    def __init__(self, mesh: dist.Mesh) -> None:
        self.mesh = mesh

    def __call__(self, x: Any, number: int) -> Any:
        return dist.constrain(x, spec_of(f"pin {number}", self.mesh, x.ndim, True), self.mesh)


def results(case: Case, variants: int, profile: str, load: Any) -> list[list[np.ndarray]]:
    """What the program gives on its mesh, as arrays of the host."""
    mesh, rng = mesh_of(case.seed), random.Random(f"how {case.seed}")
    with ts.numerics.profile(profile), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fn = load(case.text, {"pin": _Pins(mesh)})
        outs = None
        if rng.random() < 0.3:
            # The results of the text that there is now: a smaller one may have fewer.
            shapes = ts.eval_shape(load(case.text), *case.arguments(0))
            outs = tuple(spec_of(f"result {case.seed} {i}", mesh, len(s.shape), True) for i, s in enumerate(shapes))
        run = ts.jit(fn, mesh=mesh, out_specs=outs)
        specs = [spec_of(f"argument {case.seed} {a.name}", mesh, len(a.shape)) if rng.random() < 0.8 else None for a in case.args]
        made = []
        for k in range(variants):
            given = case.arguments(k)
            placed = [a if s is None else dist.shard(a, s if s.reduce is None or a.dtype != bool else None, mesh) for a, s in zip(given, specs, strict=True)]
            got = run(*placed)
            for i, r in enumerate(got):
                if not isinstance(r, dist.DistArray):
                    raise AssertionError(f"result {i} is {type(r).__name__}, expected an array on the mesh")
            made.append([np.array(r.numpy()) for r in got])
    return made


def described(case: Case) -> str:
    """Where the arguments are, for the report of a failure."""
    mesh, rng = mesh_of(case.seed), random.Random(f"how {case.seed}")
    rng.random()
    specs = {a.name: spec_of(f"argument {case.seed} {a.name}", mesh, len(a.shape)) if rng.random() < 0.8 else None for a in case.args}
    return f"{mesh!r}: " + ", ".join(f"{n} {s!r}" for n, s in specs.items() if n in case.text)
