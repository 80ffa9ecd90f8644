"""The mesh whose rank is being traced, and placements by the numbers of dims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .. import _core
from ..base.caller import fail
from ..trace.tracer import Tracer, one
from ._mesh import Mesh
from ._spec import ShardSpec

_inside: ContextVar[tuple[Mesh, ...]] = ContextVar("tessera rank", default=())


@contextmanager
def rank_of(mesh: Mesh) -> Iterator[None]:
    """What is traced inside is the program of one rank of the mesh."""
    token = _inside.set((*_inside.get(), mesh))
    try:
        yield
    finally:
        _inside.reset(token)


def inside() -> Mesh | None:
    """The mesh whose rank is being traced."""
    known = _inside.get()
    return known[-1] if known else None


def mesh_of_rank(what: str) -> Mesh:
    """The mesh of the program of a rank; an error outside one."""
    mesh = inside()
    if mesh is None:
        raise fail("E_PLACEMENT", f"{what}: expected a DistArray, or a value in the program of a rank, got neither",
                   "call it in a function that `dist.shard_map` runs for each rank, or on an array that `dist.shard` placed")  # fmt: skip
    return mesh


def names_of(axis: Any, what: str) -> tuple[str, ...]:
    """A mesh axis, or several, as names."""
    names = (axis,) if isinstance(axis, str) else tuple(axis) if isinstance(axis, (tuple, list)) else None
    if names is None or not names or not all(isinstance(a, str) for a in names):
        raise fail("E_TYPE", f"{what}: expected the name of a mesh axis, or a tuple of names, got {axis!r}", 'write `axis="tp"` or `axis=("dp", "tp")`')
    return names


def axes_attrs(mesh: Mesh, axis: Any, what: str) -> dict[str, Any]:
    """Axes and their extents, as an op has them."""
    names = names_of(axis, what)
    twice = next((a for i, a in enumerate(names) if a in names[:i]), None)
    if twice is not None:
        raise fail("E_PLACEMENT", f"{what}: expected each mesh axis once, got `{twice}` twice", "leave out the repeated axis")
    return {"axes": list(names), "sizes": [mesh.axis_size(a) for a in names]}


def axis_index(axis: str | Sequence[str]) -> Tracer:
    """The coordinate of this rank along an axis, or its row-major position along several: in the program of a rank."""
    mesh = inside()
    if mesh is None:
        raise fail("E_PLACEMENT", "axis_index: expected the program of a rank, got a call outside one", "call it in a function that `dist.shard_map` runs for each rank")
    return one("axis_index", [], axes_attrs(mesh, axis, "axis_index"))


def axis_size(axis: str | Sequence[str]) -> int:
    """How many ranks there are along an axis, or along several: in the program of a rank."""
    mesh = inside()
    if mesh is None:
        raise fail("E_PLACEMENT", "axis_size: expected the program of a rank, got a call outside one", "elsewhere it is `mesh.axis_size(axis)`")
    return mesh.axis_size(names_of(axis, "axis_size"))


#: For each dim the axes that split it, coarsest first, with the block that is dealt in cycles.
Splits = dict[int, tuple[tuple[str, ...], int]]


def numbered(spec: ShardSpec, mesh: Mesh, shape: Sequence[int]) -> tuple[Splits, tuple[str, tuple[str, ...]] | None]:
    """A spec by the numbers of dims of an array, checked against it and the mesh; contributions as operator and axes."""
    _core.PlacedArray(mesh._grid, spec._core, list(shape), [])
    splits, combine, *_ = spec._fields
    ndim = len(shape)
    words = {"row": -2, "col": -1, "batch": 0}
    found: Splits = {}
    for dim, name, names, block in splits:
        if names:
            found[(words[name] if dim is None else dim) % ndim] = tuple(names), block
    return found, (combine[0], tuple(combine[1])) if combine and combine[1] else None


def spec_of(splits: Splits, combine: tuple[str, tuple[str, ...]] | None) -> ShardSpec:
    """The spec that `numbered` takes apart."""
    rows = [(dim, "", list(names), block) for dim, (names, block) in sorted(splits.items()) if names]
    return ShardSpec._of(rows, (combine[0], list(combine[1])) if combine and combine[1] else None)
