"""Placements in the words of users: specs and distributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core
from ..base.caller import fail
from . import _given
from ._mesh import Mesh

_OPERATORS = ("sum", "max", "min", "prod")


class Distribution:
    """How the elements of dims are dealt to the ranks along axes of a mesh: axis i splits dim i, ``None`` skips a dim."""

    #: Elements that are dealt at a time; 0: one block a rank.
    block = 0

    def __init__(self, mesh_axes: Sequence[Any] = ()) -> None:
        if not isinstance(mesh_axes, (tuple, list)):
            fix = f'write `("{mesh_axes}",)`' if isinstance(mesh_axes, str) else 'write `dist.Block(mesh_axes=("dp", "tp"))`'
            raise fail("E_TYPE", f"expected a tuple of mesh axes, got {mesh_axes!r}", fix)
        self.mesh_axes = tuple(axis if axis is None else _entry(axis) for axis in mesh_axes)

    def spec(self, ndim: int) -> ShardSpec:
        """The spec for arrays with this many dims."""
        if len(self.mesh_axes) > ndim:
            dims = f"{ndim} dim{'s' if ndim != 1 else ''}"
            raise fail("E_PLACEMENT", f"expected at most one mesh axis for each dim, got {len(self.mesh_axes)} axes for {dims}",
                       "leave out the axes that split no dim, or use `None` to skip a dim")  # fmt: skip
        return ShardSpec._of([(dim, "", _axes(axis), self.block) for dim, axis in enumerate(self.mesh_axes) if axis is not None])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and (self.mesh_axes, self.block) == (other.mesh_axes, other.block)

    def __hash__(self) -> int:
        return hash((self.mesh_axes, self.block))

    def __repr__(self) -> str:
        more = f", {self.block}" if self.block > 1 else ""
        return f"{type(self).__name__}({self.mesh_axes!r}{more})"


class Block(Distribution):
    """One block for each rank: of n elements over R ranks, rank r has ``ceil(n / R)`` from ``r * ceil(n / R)`` on; the last may have
    fewer, or none."""


class Cyclic(Distribution):
    """Element i is on rank ``i mod R``."""

    block = 1


class BlockCyclic(Distribution):
    """Blocks of ``block`` elements are dealt to the ranks in order."""

    def __init__(self, mesh_axes: Sequence[Any], block: int) -> None:
        super().__init__(mesh_axes)
        size = _given.integer(block)
        if size is None or size < 1:
            raise fail("E_PLACEMENT", f"expected a block of at least one element, got {block!r}", 'write `dist.BlockCyclic(("tp",), 128)`')
        self.block = size


class Replicated(Distribution):
    """Every rank has all elements."""

    def __init__(self) -> None:
        super().__init__(())


def _entry(axis: Any) -> Any:
    """An axis as it was written, or a tuple of axes."""
    names = _axes(axis)
    return axis if isinstance(axis, str) else tuple(names)


def _axes(axis: Any) -> list[str]:
    found = (axis,) if isinstance(axis, str) else axis
    if not isinstance(found, (tuple, list)) or not all(isinstance(a, str) for a in found):
        raise fail("E_TYPE", f"expected the name of a mesh axis, or a tuple of names, got {axis!r}", '`("dp", "tp")` splits over both, coarsest first')
    return list(found)


class ShardSpec:
    """Where an array is on a mesh. ``partition[i]`` is split over ``mesh_axes[i]``.

    An entry of ``partition`` is ``"row"`` (dim -2), ``"col"`` (-1), ``"batch"`` (0), the name of a dim, or a number. An entry of
    ``mesh_axes`` is an axis, a tuple of axes, coarsest first, or a distribution. With ``reduce="sum"`` (``"max"``, ``"min"``, ``"prod"``)
    each rank along ``reduce_axes`` holds a contribution, and the value is their combination. Axes that are not named hold copies.
    ``require_even`` refuses blocks of different extents. Specs are equal if they mean the same.
    """

    def __init__(
        self,
        partition: Sequence[int | str] | None = None,
        mesh_axes: Sequence[Any] = (),
        replicate: bool = False,
        reduce: str | None = None,
        reduce_axes: Sequence[str] | None = None,
        priority: int = 0,
        require_even: bool = False,
    ) -> None:
        for name, given in (("partition", partition), ("mesh_axes", mesh_axes), ("reduce_axes", reduce_axes)):
            if isinstance(given, str):
                raise fail("E_TYPE", f"expected a tuple as `{name}`, got {given!r}", f'write `{name}=("{given}",)`')
            if not isinstance(given, (tuple, list)) and (given is not None or name == "mesh_axes"):
                raise fail("E_TYPE", f"expected a tuple as `{name}`, got {given!r}", 'write `partition=("row", "col"), mesh_axes=("dp", "tp")`')
        axes, dims = tuple(mesh_axes), tuple(partition or ())
        if replicate and (dims or axes or reduce):
            raise fail("E_PLACEMENT", "expected `replicate=True` alone, got a partition or contributions beside it", "leave `replicate` out")
        if partition is None and axes and reduce is None:
            raise fail("E_PLACEMENT", f"expected a dim for each of the mesh axes {axes}, got no `partition`", '`partition=("col",)` splits the last dim')
        if partition is not None and len(dims) != len(axes):
            raise fail("E_PLACEMENT", f"expected one entry of `mesh_axes` for each of `partition`, got {len(axes)} for {len(dims)}",
                       'a tuple splits a dim over several axes: `mesh_axes=(("dp", "tp"),)`')  # fmt: skip
        if reduce_axes is not None and reduce is None:
            raise fail("E_PLACEMENT", "expected `reduce` beside `reduce_axes`, got none", 'write `reduce="sum"`')
        if reduce is not None and reduce_axes is None:
            if partition is not None:
                raise fail("E_PLACEMENT", "expected the axes that hold contributions, got none", 'write `reduce_axes=("tp",)`')
            reduce_axes = [a for axis in axes for a in _axes(axis)]
        if reduce_axes is not None:
            reduce_axes = [a for axis in reduce_axes for a in _axes(axis)]
        splits = []
        for dim, axis in zip(dims, axes, strict=bool(dims)) if dims else ():
            block = axis.block if isinstance(axis, Distribution) else 0
            names = [a for inner in axis.mesh_axes if inner is not None for a in _axes(inner)] if isinstance(axis, Distribution) else _axes(axis)
            number = _given.integer(dim)
            if number is None and not isinstance(dim, str):
                raise fail("E_TYPE", f"expected a dim as a number or a name, got {dim!r}", 'write "row", "col", "batch", or a number')
            splits.append((None, dim, names, block) if number is None else (number, "", names, block))
        self._make(splits, None if reduce is None else (str(reduce), list(reduce_axes or ())), priority, require_even)

    def _make(self, splits: list[tuple], combine: tuple[str, list[str]] | None, priority: int, require_even: bool) -> None:
        if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority < 2**32:
            raise fail("E_PLACEMENT", f"expected a priority from 0 on, got {priority!r}", "0 is the most urgent")
        self._core = _core.PlacementSpec(splits, combine, priority, bool(require_even))
        # Specs are in the keys of calls, once for each argument.
        self._hash = hash(self._core)
        self._fields = (splits, combine, priority, bool(require_even))
        #: Placements of arrays by it, by shape, mesh and names of dims.
        self._bound: dict[tuple, Any] = {}
        #: Whether the compiler chose it: then there is no `W_UNEVEN`.
        self.is_chosen = False
        self.reduce = None if combine is None else combine[0]
        self.priority, self.require_even = priority, bool(require_even)

    @classmethod
    def _of(cls, splits: list[tuple], combine: Any = None, priority: int = 0, require_even: bool = False) -> ShardSpec:
        made = cls.__new__(cls)
        made._make(splits, combine, priority, require_even)
        return made

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that it names."""
        splits, combine, _, _ = self._fields
        return (*(a for *_, names, _ in splits for a in names), *(combine[1] if combine else ()))

    def placements(self, mesh: Mesh, ndim: int) -> tuple[str, ...]:
        """One word for each axis of a mesh: ``("S(0)", "R", "P(sum)")``."""
        if not isinstance(mesh, Mesh):
            raise fail("E_TYPE", f"expected a mesh, got {mesh!r}", "`dist.mesh(devices, axes, shape)` makes one")
        return tuple(_core.PlacedArray(mesh._grid, self._core, [1] * ndim, []).states())

    def __eq__(self, other: object) -> bool:
        return other is self or isinstance(other, ShardSpec) and self._core == other._core

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardSpec._of, self._fields

    def __repr__(self) -> str:
        return f"ShardSpec({self._core!r})"


def spec(*entries: Any, sum: Any = (), max: Any = (), min: Any = (), prod: Any = (), priority: int = 0) -> ShardSpec:
    """A spec with one entry for each dim: ``dist.spec("dp", None, ("tp", "pp"), sum=("ep",))``.

    An entry is an axis, a tuple of axes, a distribution, or None; missing ones are None.
    """
    given = [(name, _axes(axes)) for name, axes in zip(_OPERATORS, (sum, max, min, prod), strict=True) if axes]
    if len(given) > 1:
        raise fail("E_PLACEMENT", f"expected one operator for contributions, got {' and '.join(n for n, _ in given)}", "all contributions of an array are combined alike")
    splits = []
    for dim, entry in enumerate(entries):
        if isinstance(entry, Distribution):
            splits.append((dim, "", [a for inner in entry.mesh_axes if inner is not None for a in _axes(inner)], entry.block))
        elif entry is not None:
            splits.append((dim, "", _axes(entry), 0))
    return ShardSpec._of(splits, given[0] if given else None, priority)


def as_spec(given: Any, ndim: int) -> ShardSpec:
    """A spec of what a user gives as a placement: a spec, a distribution, or None for copies."""
    if given is None:
        return ShardSpec._of([])
    if isinstance(given, Distribution):
        return given.spec(ndim)
    if isinstance(given, ShardSpec):
        return given
    raise fail("E_TYPE", f"expected a placement, got {given!r}", 'write `dist.ShardSpec(partition=("col",), mesh_axes=("tp",))` or `dist.spec(None, "tp")`')
