"""Meshes: named grids of devices, as values."""

from __future__ import annotations

import functools
import re
import threading
import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from .. import _core
from ..base.caller import fail, here
from ..base.errors import TesseraWarning
from ..trace.execute import surroundings
from ..trace.tracer import outermost
from . import _given, _processes

_DEVICE = re.compile(r"([a-z]+):(\d+)")
_ambient: ContextVar[tuple[Mesh, ...]] = ContextVar("tessera mesh", default=())
#: What to do when a mesh is left: waits for the tasks; filled in by `_launch`.
on_leaving: list[Any] = []


def warn(text: str, at: tuple[str, int] | None = None) -> None:
    """A warning at a line, or at that of the user's call."""
    if at is None:
        place = here()
        at = (place.file, place.line) if place is not None and place.file is not None else None
    if at is None:
        warnings.warn(text, TesseraWarning, stacklevel=2)
    else:
        warnings.warn_explicit(text, TesseraWarning, *at)


class Mesh:
    """A grid of devices with named axes. Ranks are row-major over the axes.

    ``devices`` is a list of names such as ``"cuda:3"``, or a count of ranks that share the host. A name may occur several times. A device
    that this machine lacks is played by one that it has (``W_VIRTUAL_DEVICE``). Meshes are values: two with the same axes, extents and
    devices are equal. ``with mesh:`` makes it the mesh of calls that name none; leaving it waits for their tasks.
    """

    def __init__(self, devices: int | Sequence[str], axes: Sequence[str], shape: Sequence[int]) -> None:
        if not isinstance(axes, (tuple, list)) or not all(isinstance(a, str) for a in axes):
            fix = f'write `axes=("{axes}",)`' if isinstance(axes, str) else 'write `axes=("dp", "tp")`'
            raise fail("E_TYPE", f"expected a tuple of names as `axes`, got {axes!r}", fix)
        _processes.init()
        sizes = _given.extents(shape, 1, "E_MESH", "an axis that is not used has extent 1")
        names = _devices(devices)
        if isinstance(names, int):
            # Ranks that share the host: the grid is checked before as many names are made.
            self._set(_core.MeshGrid.of_host(list(axes), list(sizes), names))
            self._players: list[str | None] = [None] * names
            self.is_virtual = names > 1
            return
        self._set(_core.MeshGrid(list(axes), list(sizes), names))
        self._players = players = _players(names)
        if _processes.are_several() and any(players):
            raise fail("E_UNSUPPORTED", f"expected ranks in host memory in several processes, got {names[0]}", "write `devices=8`, or run the program in one process: it drives all devices")
        absent = [n for n, p in zip(names, players, strict=True) if not _is_played_by_itself(n, p)]
        self.is_virtual = bool(absent) or len(set(players)) < len(players)
        if absent:
            span = absent[0] if len(absent) == 1 else f"{absent[0]} to {absent[-1]}"
            others = ", ".join(sorted({p or "the host" for n, p in zip(names, players, strict=True) if not _is_played_by_itself(n, p)}))
            one = len(absent) == 1
            text = f"W_VIRTUAL_DEVICE: this machine lacks {len(absent)} device{'' if one else 's'} of the mesh ({span}); {others} play{'s' if ',' not in others else ''} {'it' if one else 'them'}"
            warn(text)

    def _set(self, grid: Any) -> None:
        self._grid = grid
        self._hash = hash(grid)
        #: Names of the axes.
        self.axes: tuple[str, ...] = tuple(grid.axes)
        #: Extents of the axes.
        self.shape: tuple[int, ...] = tuple(grid.extents)
        #: The number of ranks.
        self.size: int = grid.size
        self._placing = threading.Lock()
        #: Whether an array was put on it: the devices of its ranks are settled.
        self._is_placed = False

    @functools.cached_property
    def devices(self) -> tuple[str, ...]:
        """The name of each rank's device."""
        return tuple(self._grid.devices)

    @property
    def local_ranks(self) -> tuple[int, ...]:
        """The ranks that this process plays: all of them, or where there are several processes neighbouring ones."""
        return tuple(_processes.played(self.size))

    @property
    def _are_several(self) -> bool:
        """Whether several processes play the ranks."""
        return _processes.are_several()

    def axis_size(self, axis: str | Sequence[str]) -> int:
        """The extent of an axis, or of several together."""
        size = 1
        for name in (axis,) if isinstance(axis, str) else _given.axes(axis):
            size *= self.shape[self.axes.index(name) if name in self.axes else self._grid.axis(name)]
        return size

    def coords(self, rank: int) -> tuple[int, ...]:
        """The coordinates of a rank."""
        return tuple(self._grid.coords(self._checked(rank)))

    def rank(self, coords: Sequence[int]) -> int:
        """The rank at coordinates."""
        at = _given.integers(coords)
        if at is None or len(at) != len(self.shape) or not all(0 <= c < n for c, n in zip(at, self.shape, strict=True)):
            raise fail("E_MESH", f"expected coordinates within {self.shape}, got {coords!r}", f"there is one for each of the axes {self.axes}")
        return self._grid.rank(list(at))

    def group(self, axis: str | Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """The ranks that differ only along an axis, or along several: one tuple for each position along the others."""
        return tuple(tuple(g) for g in self._grid.groups(list(_given.axes(axis))))

    def at(self, **coords: int) -> Mesh:
        """The part of the mesh where these axes have these coordinates: ``mesh.at(pp=1)``. It remembers the whole."""
        fixed = {name: _given.integer(c) for name, c in coords.items()}
        wrong = next((name for name, c in fixed.items() if c is None), None)
        if wrong is not None:
            raise fail("E_MESH", f"expected a coordinate of `{wrong}` as a number, got {coords[wrong]!r}", "write `mesh.at(pp=1)`")
        grid = self._grid.at(list(fixed.items()))
        made = Mesh.__new__(Mesh)
        made._set(grid)
        same = len(set(self._players)) == 1
        made._players = self._players[: grid.size] if same else [self._players[r] for r in _ranks_inside(self, grid)]
        made.is_virtual = self.is_virtual
        return made

    @property
    def parent(self) -> Mesh | None:
        """The whole mesh of a part; None of a whole one."""
        if not self._grid.is_part:
            return None
        whole = self._grid.whole()
        made = Mesh.__new__(Mesh)
        made._set(whole)
        made._players = _players(list(made.devices))
        made.is_virtual = self.is_virtual
        return made

    def _checked(self, rank: int) -> int:
        at = _given.integer(rank)
        if at is None or not 0 <= at < self.size:
            raise fail("E_MESH", f"expected a rank from 0 to {self.size - 1}, got {rank!r}", f"{self!r} has {self.size} rank{'' if self.size == 1 else 's'}")
        return at

    def player(self, rank: int) -> str | None:
        """The device that plays a rank, as a mapper may have placed it; None for the host."""
        return self._players[rank]

    @property
    def _is_on_host(self) -> bool:
        return not any(self._players)

    def __enter__(self) -> Mesh:
        frame = outermost()
        known = None if frame is None else frame.mesh or current_mesh()
        if known is not None and known != self:
            raise fail("E_PLACEMENT", f"expected one mesh in a function that is traced, got {self!r} where it is on {known!r}",
                       "enter the mesh around the call: a jitted function is traced for each mesh")  # fmt: skip
        # The stack is one for each thread and each task of `asyncio`, so nothing of it is kept here.
        _core.scoped_settings()
        _ambient.set((*_ambient.get(), self))
        return self

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        _ambient.set(_ambient.get()[:-1])
        for wait in on_leaving:
            wait(raised)

    def __eq__(self, other: object) -> bool:
        return other is self or isinstance(other, Mesh) and self._grid == other._grid

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        if self._grid.is_part:
            fixed = dict(re.findall(r"(\w+) = (\d+)", repr(self._grid).partition(" at ")[2]))
            return _part, (self.parent, {name: int(c) for name, c in fixed.items()})
        on_host = all(d == "cpu:0" for d in self.devices)
        return Mesh, (self.size if on_host else list(self.devices), self.axes, self.shape)

    def __repr__(self) -> str:
        inside = ", ".join(f"{a}={n}" for a, n in zip(self.axes, self.shape, strict=True))
        fixed = repr(self._grid).partition(" at ")[2]
        return f"Mesh({inside})" + (f" at {fixed}" if fixed else "")


def _part(whole: Mesh, fixed: dict[str, int]) -> Mesh:
    return whole.at(**fixed)


def _ranks_inside(mesh: Mesh, grid: Any) -> list[int]:
    """Ranks of a mesh that a part of it has."""
    places = {mesh._grid.whole_rank(r): r for r in range(mesh.size)}
    return [places[grid.whole_rank(r)] for r in range(grid.size)]


def _devices(given: Any) -> int | list[str]:
    """A count of ranks on the host, or names."""
    count = _given.integer(given)
    if count is not None:
        if count < 1:
            raise fail("E_MESH", f"expected at least 1 device, got {count}", "a count is the product of the extents")
        return count
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise fail("E_TYPE", f"expected a count or a list of devices, got {given!r}", 'write `devices=8`, or `devices=["cuda:0", "cuda:1"]`')
    return [_named(d) for d in given]


def _named(device: Any) -> str:
    found = _DEVICE.fullmatch(str(device))
    if found is None or found[1] != "cpu" and found[1] not in _core.platforms():
        kinds = ", ".join(f'"{k}:0"' for k in ("cpu", *_core.platforms()))
        raise fail("E_MESH", f"expected the name of a device, got {device!r}", f"devices are called {kinds}, with any number")
    return str(device)


def _players(names: list[str]) -> list[str | None]:
    """Who plays each device: itself where it is here, else one of its kind by its number, else the host."""
    here = list(_core.device_names())
    found: list[str | None] = []
    for name in names:
        kind, number = _DEVICE.fullmatch(name).groups()  # type: ignore[union-attr]
        same = [d for d in here if d.startswith(kind + ":")]
        found.append(same[int(number) % len(same)] if same else None)
    return found


def _is_played_by_itself(name: str, player: str | None) -> bool:
    return name == (player or "cpu:0")


def current_mesh() -> Mesh | None:
    """The mesh of the innermost ``with mesh:``."""
    known = _ambient.get()
    return known[-1] if known else None


# A function that is traced under a mesh may use it.
surroundings.append(current_mesh)


def unit(axes: Sequence[str]) -> Mesh:
    """One device, with axes of extent 1."""
    return Mesh(1, axes, (1,) * len(axes))


def chosen(mesh: Mesh | None, axes: Sequence[str]) -> Mesh:
    """The mesh of a call: the given one, else the ambient one, else one device."""
    if mesh is not None and not isinstance(mesh, Mesh):
        raise fail("E_TYPE", f"expected a mesh, got {type(mesh).__name__}", "`dist.mesh(devices, axes, shape)` makes one")
    return mesh or current_mesh() or unit(tuple(dict.fromkeys(axes)))


def mesh(devices: int | Sequence[str], axes: Sequence[str], shape: Sequence[int]) -> Mesh:
    """A `Mesh` of these devices: ``dist.mesh(8, ("dp", "tp"), (4, 2))``."""
    return Mesh(devices, axes, shape)
