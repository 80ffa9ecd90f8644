"""Arrays on meshes: blocks, and the ways from one placement to another."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from math import prod
from typing import Any

import numpy

from .. import _core
from ..arrays.create import array, numpy_dtype
from ..base.caller import fail
from ..base.dtypes import DType, dtype as dtype_of
from ..trace.tracer import Blocks, Tracer
from . import _blocks, _events, _given, _implicit, _mapper, _processes
from ._domain import Rect
from ._draw import Drawing, draw
from ._mesh import Mesh, chosen, warn
from ._spec import Distribution, ShardSpec, as_spec
from ._tasks import TASKS

_numbers = itertools.count()
#: How many placements a spec keeps, and of how many ranks at most.
_BOUND, _FEW = 64, 1024
#: The array that a task may read without waiting: the task stands behind those that write it.
in_order: ContextVar[int] = ContextVar("tessera array in order", default=-1)

BRINGS = "`x.full()` brings the whole value to every process: all of them call it"


class DistArray:
    """An array whose blocks are on the ranks of a mesh. A value: its placement changes where elements are, and nothing else.

    Ranks that hold copies of a block share its memory in a process.
    """

    def __init__(self, shape: tuple[int, ...], placed: Any, mesh: Mesh, spec: ShardSpec, of: DType, blocks: list[Any], requires_grad: bool, rows: Any = None) -> None:
        self._placed, self._blocks = placed, blocks
        self._rows = placed.blocks() if rows is None else rows
        self._storage = next(_numbers)
        #: What `parts` found, by axes.
        self._parts: dict[tuple[str, ...], list[Part]] = {}
        #: Their memory for launches, where each is one block, and the parts.
        self._held: dict[tuple[str, ...], tuple[list[Any], list[Part]]] = {}
        #: The extents of the whole array.
        self.shape: tuple[int, ...] = tuple(shape)
        #: The dtype of the value. Contributions are kept in the accumulation dtype.
        self.dtype = of
        #: The mesh it is on.
        self.mesh = mesh
        #: Its placement.
        self.spec = spec
        self.requires_grad = requires_grad

    @functools.cached_property
    def _block_of(self) -> dict[int, int]:
        return {rank: at for at, (ranks, _, _) in enumerate(self._rows) for rank in ranks}

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array."""
        return self.size * numpy_dtype(self.dtype).itemsize

    @property
    def placements(self) -> tuple[str, ...]:
        """One word for each axis of the mesh: ``("S(0)", "R", "P(sum)")``."""
        return tuple(self._placed.states())

    def index(self, rank: int) -> tuple[Any, ...]:
        """Where the block of a rank is: a slice for each dim, or an array of positions where one slice is not enough."""
        return _blocks.subscript(self._placed.index(self.mesh._checked(rank)))

    def local(self, rank: int) -> numpy.ndarray:
        """The block of a rank of this process, read-only, in host memory."""
        self._wait("read")
        block = self._blocks[self._block_of[self.mesh._checked(rank)]]
        if block is None:
            held = self.mesh.local_ranks
            got = f"ranks {held[0]} to {held[-1]} here" if held else "none here"
            raise fail("E_NOT_ADDRESSABLE", f"expected a rank of this process ({got}), got rank {rank}", BRINGS)
        view = _blocks.host(block).view()
        view.flags.writeable = False
        return view

    def numpy(self) -> numpy.ndarray:
        """The value, in host memory, of blocks that are all in this process. It never communicates."""
        self._wait("read")
        if any(b is None for b in self._blocks):
            raise fail("E_NOT_ADDRESSABLE", f"expected all blocks of {self!r} in this process, got some elsewhere", BRINGS)
        return _gathered(self, alone=True)

    def full(self) -> numpy.ndarray:
        """The value, in host memory. Where there are several processes it is a collective: all of them call it, and each gets the value."""
        return _gathered(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        return _as_array(self, dtype, copy)

    def __array_function__(self, function: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
        """NumPy's functions get the values: they would call methods of the same name with parameters of theirs, such as `out`."""
        return function(*_for_numpy(args), **_for_numpy(kwargs))

    def _number(self) -> numpy.ndarray:
        """The value of one element that every rank has: asking for it never communicates."""
        if self.size != 1 or any(s != "R" for s in self.placements):
            raise fail("E_PLACEMENT", f"expected one element that every rank has, got {self!r}", "`x.numpy()` gathers the value")
        held = self.mesh.local_ranks
        return self.local(held[0] if held else 0)

    def __bool__(self) -> bool:
        return bool(self._number())

    def __int__(self) -> int:
        return int(self._number().item())

    def __float__(self) -> float:
        return float(self._number().item())

    def reshard(self, spec: Any) -> DistArray:
        """The same value in another placement."""
        return reshard(self, spec)

    def _even(self, splits: list[list[str]], known: dict[str, Any]) -> list[numpy.ndarray] | None:
        """The block of each rank, as `tessera.trace.tracer.Gathered.blocks` says."""
        if known.get("rows") is not self._rows:
            if self._placed.combine or any([runs != even_block(self.mesh, self.shape, splits, ranks[0]) for ranks, runs, _ in self._rows]):
                return None
            known["rows"] = self._rows
        self._wait("read")
        found = [self._blocks[self._block_of[rank]] for rank in range(self.mesh.size)]
        return found if all([b is None or isinstance(b, numpy.ndarray) for b in self._blocks]) else None

    def parts(self, axis: str | Sequence[str]) -> list[Part]:
        """One view for each coordinate along an axis, or along several: what ranks there hold."""
        axes = _given.axes(axis)
        if _processes.are_several():
            raise fail("E_UNSUPPORTED", "expected one process for the parts of an array, got several", "`dist.shard_map` runs a function on the block of each rank; `x.local(rank)` is a block of this process")
        parts = self._parts.get(axes)
        if parts is None:
            parts = self._parts[axes] = [Part(self, axes, *row) for row in self._placed.parts(list(axes))]
        return list(parts)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is not Ellipsis and not (isinstance(index, slice) and index == slice(None)):
            raise fail("E_UNSUPPORTED", "expected `x[...] = value`, got an assignment to some elements",
                       "write to the parts, `for p in x.parts(axis): p[...] = value`, or assign the whole value")  # fmt: skip
        if isinstance(value, DistArray) and value.ndim == self.ndim:
            _implicit.gathers(value, self.spec, self.mesh, "`x[...] = y`")
        values = _values(value, self.shape, self.dtype)
        self._wait("write")
        op = self._placed.combine
        for block, (_, runs, contribution) in zip(self._blocks, self._rows, strict=True):
            if block is None:
                continue
            part = values[_blocks.places(runs)] if contribution == 0 else _blocks.identity(op, _stored(self))
            _blocks.store(block, part)

    @functools.cached_property
    def _positions(self) -> Any:
        return _core.Positions([[(0, 1, n)] for n in (self._placed.contributions, *self.shape)])

    def _use(self, privilege: str) -> tuple[int, Any, str]:
        return self._storage, self._positions, privilege

    def _wait(self, privilege: str) -> None:
        # Tasks know it by its positions and those of its parts: without any, no task uses it.
        if ("_positions" in self.__dict__ or self._parts) and self._storage != in_order.get():
            TASKS.wait_for(self._use(privilege))

    def __reduce__(self) -> tuple[Any, ...]:
        self._wait("read")
        if any(b is None for b in self._blocks):
            raise fail("E_NOT_ADDRESSABLE", "expected all blocks of an array in this process to copy or pickle it, got some elsewhere", BRINGS)
        return _again, (self.shape, self.mesh, self.spec, str(self.dtype), [_blocks.host(b) for b in self._blocks], self.requires_grad)

    def draw(self) -> Drawing:
        """A picture of the placement, as text; ``.svg()`` gives it as SVG."""
        return draw(self)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without dims")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DistArray({self.shape}, {self.dtype}, {self._placed.spec()!r} on {self.mesh!r})"


def even_block(mesh: Mesh, shape: tuple[int, ...], splits: list[list[str]], rank: int) -> list[_blocks.Runs]:
    """The positions that a rank has where each dim is split evenly over these axes."""
    found = []
    for extent, axes in zip(shape, splits, strict=True):
        place, count = 0, 1
        for axis in axes:
            size = mesh.axis_size(axis)
            place, count = place * size + mesh.coords(rank)[mesh.axes.index(axis)], count * size
        found.append([(place * (extent // count), 1, extent // count)])
    return found


class Part:
    """What is at one coordinate along axes of a mesh: a view of an array. Writing to it writes every copy."""

    def __init__(self, of: DistArray, axes: tuple[str, ...], coords: list[int], runs: list, blocks: list[int]) -> None:
        self._runs, self._blocks = runs, blocks
        #: The array.
        self.array = of
        #: The axes and the coordinates along them.
        self.axes, self.coords = axes, tuple(coords)
        self.shape: tuple[int, ...] = _blocks.extents(runs)
        self.dtype = of.dtype

    @property
    def index(self) -> tuple[Any, ...]:
        """Where it is in the array: a slice for each dim, or an array of positions where one slice is not enough."""
        return _blocks.subscript(self._runs)

    @property
    def rank(self) -> int:
        """The lowest rank that holds it."""
        return min(self.array._rows[b][0][0] for b in self._blocks)

    def numpy(self) -> numpy.ndarray:
        """The elements, in host memory."""
        self._wait("read")
        return self._read()

    def _read(self) -> numpy.ndarray:
        of = self.array
        op = of._placed.combine
        if len(self._blocks) == 1:
            only = _blocks.host(of._blocks[self._blocks[0]])
            return _blocks.cast(only, numpy_dtype(of.dtype)).copy()
        by_contribution: dict[int, numpy.ndarray] = {}
        for b in self._blocks:
            _, runs, contribution = of._rows[b]
            made = by_contribution.setdefault(contribution, numpy.empty(self.shape, _stored(of)))
            made[_blocks.places(_within(runs, self._runs))] = _blocks.host(of._blocks[b])
        values = [by_contribution[c] for c in sorted(by_contribution)]
        return _blocks.cast(_blocks.combined(op, values) if op else values[0], numpy_dtype(of.dtype))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        return _as_array(self, dtype, copy)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is not Ellipsis and not (isinstance(index, slice) and index == slice(None)):
            raise fail("E_UNSUPPORTED", "expected `part[...] = value`, got an assignment to some elements", "assign the whole part")
        values = _values(value, self.shape, self.dtype)
        self._wait("write")
        op = self.array._placed.combine
        first = min((self.array._rows[b][2] for b in self._blocks), default=0)
        for b in self._blocks:
            _, runs, contribution = self.array._rows[b]
            inside = values[_blocks.places(_within(runs, self._runs))]
            _blocks.store(self.array._blocks[b], inside if contribution == first else _blocks.identity(op, _stored(self.array)))

    def _block(self) -> Any:
        """The one block that it is, for a kernel that is called with it."""
        if len(self._blocks) != 1:
            raise fail("E_PLACEMENT", f"expected a part of one block, got one of {len(self._blocks)}: it is still split over other axes",
                       "take the parts along all axes that the array is split over")  # fmt: skip
        self._wait("write")
        return self.array._blocks[self._blocks[0]]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._block().__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self._block().__dlpack__(**options)

    @functools.cached_property
    def _positions(self) -> Any:
        held = sorted({self.array._rows[b][2] for b in self._blocks})
        return _core.Positions([[(c, 1, 1) for c in held], *self._runs])

    @functools.cached_property
    def _held(self) -> Any:
        """The memory of the one block that it is, for launches."""
        return _core.Held(self.array._storage, self._positions, self.array._blocks[self._blocks[0]])

    def _use(self, privilege: str) -> tuple[int, Any, str]:
        return self.array._storage, self._positions, privilege

    def _wait(self, privilege: str) -> None:
        TASKS.wait_for(self._use(privilege))

    def __repr__(self) -> str:
        at = ", ".join(f"{a}={c}" for a, c in zip(self.axes, self.coords, strict=True))
        return f"Part({at}, {self.shape} of {self.array!r})"


def _for_numpy(given: Any) -> Any:
    """What a function of NumPy is given, with values in the place of arrays on meshes."""
    if isinstance(given, (tuple, list)):
        made = [_for_numpy(v) for v in given]
        return made if isinstance(given, list) else tuple(made)
    if isinstance(given, dict):
        return {name: _for_numpy(v) for name, v in given.items()}
    return given.numpy() if isinstance(given, DistArray) else given


def _as_array(x: DistArray | Part, dtype: Any, copy: bool | None) -> numpy.ndarray:
    """What NumPy asks for: always a copy."""
    if copy is False:
        raise ValueError(f"{type(x).__name__} has its elements in blocks: gathering them makes a copy")
    made = x.numpy()
    return made if dtype is None else made.astype(dtype, copy=False)


def _again(shape: tuple[int, ...], mesh: Mesh, spec: ShardSpec, of: str, blocks: list[numpy.ndarray], requires_grad: bool) -> DistArray:
    """The array that was pickled or copied."""
    made = dtype_of(of)
    placed = place(shape, made, spec, mesh)
    held = [_blocks.on(numpy.array(b, order="C"), mesh.player(ranks[0])) for b, (ranks, _, _) in zip(blocks, placed.blocks(), strict=True)]
    return DistArray(shape, placed, mesh, spec, made, held, requires_grad)


def _within(runs: list, whole: list) -> list:
    """Places of positions among those of a part that has all of them."""
    found = []
    for inner, outer in zip(runs, whole, strict=True):
        if len(outer) == 1 and len(inner) == 1:
            (s, d, n), (start, step, _) = inner[0], outer[0]
            found.append([((s - start) // step, max(1, d // step), n)])
            continue
        known = _blocks._positions(outer)
        found.append([(int(i), 1, 1) for i in numpy.searchsorted(known, _blocks._positions(inner))])
    return found


def _stored(x: DistArray) -> numpy.dtype:
    """The dtype of the blocks."""
    return _stored_dtype(x.dtype, x._placed)


def _stored_dtype(of: DType, placed: Any) -> numpy.dtype:
    return numpy_dtype(_blocks.accumulation(of) if placed.combine else of)


def _values(value: Any, shape: tuple[int, ...], of: DType) -> numpy.ndarray:
    """What is assigned, in the array's shape and dtype."""
    if isinstance(value, DistArray):
        value = value.numpy()
    made = array(value, dtype_of(str(of).partition("@")[0].strip()))
    try:
        return numpy.broadcast_to(made, shape)
    except ValueError:
        raise fail("E_SHAPE_MISMATCH", f"expected a value of shape {shape}, got {made.shape}", "give a number, or an array that broadcasts to the shape") from None


def place(shape: Sequence[int], of: DType, spec: ShardSpec, mesh: Mesh, names: Sequence[str] = ()) -> Any:
    """Binds a spec to a mesh and a shape, with the warning for uneven blocks."""
    key = tuple(shape), mesh._grid, tuple(names)
    placed = spec._bound.get(key)
    if placed is None:
        placed = _core.PlacedArray(mesh._grid, spec._core, list(shape), list(names))
        imbalance = None if spec.is_chosen or key in spec._bound else placed.imbalance()
        if imbalance is not None and imbalance > 1.1:
            more = round((imbalance - 1) * 100)
            warn(f"W_UNEVEN: the largest block is {more} % above the mean ({placed.extents_text()})")
        if len(spec._bound) >= _BOUND:
            spec._bound.clear()
        # Those of many ranks are large, and made again; that they are uneven is said once.
        spec._bound[key] = placed if mesh.size <= _FEW else None
    itemsize = numpy_dtype(of).itemsize
    _mapper.place(mesh, tuple(shape), str(of), prod(shape) * itemsize, "read_write")
    return placed


def _made(shape: tuple[int, ...], placed: Any, mesh: Mesh, spec: ShardSpec, of: DType, block: Callable[[list, int, int], numpy.ndarray], requires_grad: bool) -> DistArray:
    """An array with blocks by positions, contribution and rank. Blocks are row-major."""
    def made(ranks: list[int], runs: list, contribution: int) -> Any:
        rank = _here(ranks, mesh)
        return None if rank is None else _blocks.on(numpy.asarray(block(runs, contribution, rank), order="C"), mesh.player(rank))

    try:
        blocks = [made(*row) for row in placed.blocks()]
    except MemoryError:
        raise _too_large(shape, of, placed) from None
    return DistArray(shape, placed, mesh, spec, of, blocks, requires_grad)


def _here(ranks: list[int], mesh: Mesh) -> int | None:
    """The lowest of some ranks that this process plays."""
    if not _processes.are_several():
        return ranks[0]
    return next((r for r in ranks if r in _processes.played(mesh.size)), None)


def _too_large(shape: tuple[int, ...], of: DType, placed: Any) -> Exception:
    held = sum(prod(_blocks.extents(runs)) for _, runs, _ in placed.blocks()) * _stored_dtype(of, placed).itemsize
    return fail("E_OOM", f"expected memory for the blocks of an array {shape} of {of} in {placed.spec()!r}: {held} bytes, got less",
                "split more dims, or over more axes; copies of a block share memory")  # fmt: skip


def _checked_shape(shape: Any) -> tuple[int, ...]:
    return _given.extents(shape, 0, "E_SHAPE_MISMATCH", "write `shape=(8192, 8192)`")


def _checked_dtype(spec: Any) -> DType:
    made = dtype_of(spec)
    if made.packed:
        raise fail("E_UNSUPPORTED", f"expected a dtype with an element to itself, got {made}", "elements that share a byte cannot be placed apart: leave out `packed`")
    return made


def _fits(shape: tuple[int, ...], of: DType, placed: Any) -> None:
    """An error where no block could be counted in bytes; NumPy counts an extent of 0 as 1."""
    if prod(max(n, 1) for n in shape) * _stored_dtype(of, placed).itemsize >= 2**63:
        raise _too_large(shape, of, placed)


def _initial(shape: tuple[int, ...], of: DType, placed: Any, mesh: Mesh, spec: ShardSpec, init: Any, requires_grad: bool) -> DistArray:
    _fits(shape, of, placed)
    stored, op = _stored_dtype(of, placed), placed.combine
    whole = None if init is None or callable(init) or _is_number(init) else _values(init, shape, of)

    def block(runs: list, contribution: int, rank: int) -> numpy.ndarray:
        sizes = _blocks.extents(runs)
        if op and contribution > 0:
            return _blocks.filled(sizes, _blocks.identity(op, stored), stored)
        if init is None:
            return numpy.zeros(sizes, stored)
        if whole is not None:
            return _blocks.cast(numpy.array(whole[_blocks.places(runs)], order="C"), stored)
        if callable(init):
            return _blocks.cast(numpy.array(_values(init(_blocks.subscript(runs)), sizes, of)), stored)
        return _blocks.cast(numpy.array(_values(init, sizes, of)), stored)

    return _made(shape, placed, mesh, spec, of, block, requires_grad)


def _is_number(v: Any) -> bool:
    return isinstance(v, (bool, int, float, numpy.generic))


def tensor(
    shape: Sequence[int] | int,
    layout: Any = None,
    mesh: Mesh | None = None,
    dtype: Any = "f32",
    init: Any = None,
    requires_grad: bool = True,
    *,
    placement: Any = None,
    memory_layout: str = "row_major",
) -> DistArray:
    """An array in a placement (``layout``, also ``placement``). ``init`` is its value: None (zeros), a number, an array, or a function
    from the positions of a block to its elements."""
    if layout is not None and placement is not None:
        raise fail("E_ARGUMENT", "expected `layout` or `placement`, got both", "they are the same: give one")
    if memory_layout != "row_major":
        raise fail("E_UNSUPPORTED", f"expected the memory layout \"row_major\", got {memory_layout!r}", "blocks are row-major; `layout` is the placement")
    sizes, of = _checked_shape(shape), _checked_dtype(dtype)
    spec = as_spec(layout if placement is None else placement, len(sizes))
    on = chosen(mesh, spec.axes)
    return _initial(sizes, of, place(sizes, of, spec, on), on, spec, init, requires_grad)


def shard(x: Any, spec: Any, mesh: Mesh | None = None) -> DistArray:
    """An array of the host, or one on a mesh, in a placement."""
    if isinstance(x, DistArray):
        if mesh is not None and mesh != x.mesh:
            raise fail("E_PLACEMENT", f"expected the mesh of the array, {x.mesh!r}, got {mesh!r}", "`dist.shard(x.numpy(), spec, mesh)` goes through the host")
        return reshard(x, spec)
    values = array(x)
    of = _checked_dtype(values.dtype.name)
    wanted = as_spec(spec, values.ndim)
    on = chosen(mesh, wanted.axes)
    return _initial(values.shape, of, place(values.shape, of, wanted, on), on, wanted, values, True)


def from_blocks(x: Blocks, spec: ShardSpec, mesh: Mesh) -> DistArray:
    """An array of blocks that a program made and that nobody else has. Where they are in another placement, they are copied into it."""
    known = x.known
    if known.get("spec") is not spec or known["mesh"] is not mesh:
        of = dtype_of(x.dtype)
        placed = place(x.shape, of, spec, mesh)
        rows = placed.blocks()
        fits, several = not placed.combine, _processes.are_several()
        for ranks, runs, _ in rows:
            block = x.of_rank[ranks[0]]
            fits = fits and all([x.of_rank[rank] is block or several for rank in ranks]) and runs == even_block(mesh, x.shape, x.splits, ranks[0])
        known.update(spec=spec, mesh=mesh, of=of, placed=placed, rows=rows, fits=fits)
    if not known["fits"]:
        if _processes.are_several():
            return _across(x, spec, mesh, known)
        whole = numpy.empty(x.shape, numpy_dtype(known["of"]))
        for rank, block in enumerate(x.of_rank):
            whole[_blocks.places(even_block(mesh, x.shape, x.splits, rank))] = block
        return shard(whole, spec, mesh)
    rows = known["rows"]
    held = [None if (rank := _here(ranks, mesh)) is None else _blocks.on(x.of_rank[rank], mesh.player(rank)) for ranks, _, _ in rows]
    return DistArray(x.shape, known["placed"], mesh, spec, known["of"], held, True, rows)


def _across(x: Blocks, spec: ShardSpec, mesh: Mesh, known: dict[str, Any]) -> DistArray:
    """An array of blocks of several processes, brought to another placement."""
    even = ShardSpec._of([(dim, "", list(axes), 0) for dim, axes in enumerate(x.splits) if axes])
    return reshard(from_blocks(Blocks(x.shape, x.dtype, x.splits, x.of_rank, {}), even, mesh), spec)


def replicate(x: Any, mesh: Mesh | None = None) -> DistArray:
    """A copy of an array on every rank."""
    return shard(x, None, mesh)


def from_local(blocks: Any, spec: Any, mesh: Mesh | None = None, shape: Sequence[int] | None = None, dtype: Any = None) -> DistArray:
    """An array of blocks that exist: ``blocks[rank]``, or ``blocks(rank)``. ``shape`` is that of the whole array; where it is left out it
    follows from blocks that are split evenly. Along contributions each block is one."""
    named = spec.axes if isinstance(spec, ShardSpec) else as_spec(spec, len(spec.mesh_axes)).axes if isinstance(spec, Distribution) else ()
    mesh = chosen(mesh, named)
    if not callable(blocks) and not isinstance(blocks, (list, tuple)):
        raise fail("E_TYPE", f"expected a list of blocks, or a function from a rank to its block, got {type(blocks).__name__}", "write `dist.from_local([b0, b1], spec)`")
    if not callable(blocks) and len(blocks) != mesh.size:
        raise fail("E_ARGUMENT", f"expected a block for each of {mesh.size} ranks, got {len(blocks)}", "give a list in the order of ranks")
    own = mesh.local_ranks
    if not own:
        # It plays no rank of the mesh.
        if shape is None or dtype is None:
            raise fail("E_ARGUMENT", "expected `shape` and `dtype` in a process that plays no rank of the mesh, got none", "give them in all processes")
        sizes, of = _checked_shape(shape), _checked_dtype(dtype)
        return _initial(sizes, of, place(sizes, of, as_spec(spec, len(sizes)), mesh), mesh, as_spec(spec, len(sizes)), None, True)
    given = {r: array(blocks(r) if callable(blocks) else blocks[r]) for r in own}
    first = given[own[0]]
    of = _checked_dtype(first.dtype.name if dtype is None else dtype)
    other = next((r for r in own if given[r].dtype != first.dtype), None)
    if dtype is None and other is not None:
        raise fail("E_TYPE", f"expected blocks of one dtype, got {first.dtype} on rank {own[0]} and {given[other].dtype} on rank {other}", "say which: `dtype=\"f32\"`")
    wanted = as_spec(spec, first.ndim)
    sizes = _whole(list(given.values()), wanted, mesh) if shape is None else _checked_shape(shape)
    placed = place(sizes, of, wanted, mesh)
    stored = _stored_dtype(of, placed)
    for everywhere, runs, _ in placed.blocks():
        ranks = [r for r in everywhere if r in given]
        for rank in ranks:
            if given[rank].shape != _blocks.extents(runs):
                raise fail("E_SHAPE_MISMATCH", f"expected a block of shape {_blocks.extents(runs)} on rank {rank}, got {given[rank].shape}",
                           f"the array has the shape {sizes} in the placement {placed.spec()!r}")  # fmt: skip
            if rank != ranks[0] and given[rank].tobytes() != given[ranks[0]].tobytes():
                raise fail("E_PLACEMENT", f"expected equal copies on the ranks {ranks[0]} and {rank}, got blocks that differ",
                           "a spec with `sum=` says that blocks are contributions")  # fmt: skip
    return _made(sizes, placed, mesh, wanted, of, lambda runs, c, rank: _blocks.cast(given[rank], stored).copy(), True)


def _whole(given: list[numpy.ndarray], spec: ShardSpec, mesh: Mesh) -> tuple[int, ...]:
    """The shape of the whole: the extents of blocks times the ranks that a dim is split over."""
    counted = list(given[0].shape)
    probe = _core.PlacedArray(mesh._grid, spec._core, [1] * len(counted), [])
    if any(g.shape != given[0].shape for g in given):
        raise fail("E_SHAPE_MISMATCH", "expected `shape`, because blocks differ in shape; got none", "give the shape of the whole array: `shape=(8192, 8192)`")
    states = probe.states()
    for axis, state in zip(mesh.axes, states, strict=True):
        if state.startswith("S("):
            counted[int(state[2:-1])] *= mesh.axis_size(axis)
    return tuple(counted)


def reshard(x: DistArray, spec: Any) -> DistArray:
    """The same value in another placement. Every bit is kept between copies and splits, and from a value to contributions and back."""
    if isinstance(x, Tracer) and hasattr(x, "reshard"):
        return x.reshard(spec)
    if not isinstance(x, DistArray):
        raise fail("E_TYPE", f"expected a DistArray, got {type(x).__name__}", "`dist.shard(x, spec)` places an array of the host")
    wanted = as_spec(spec, x.ndim)
    placed = place(x.shape, x.dtype, wanted, x.mesh)
    x._wait("read")
    rows = placed.blocks()
    blocks = _exchanged(x, placed, _stored_dtype(x.dtype, placed))
    for kind, axes in x._placed.collectives(placed) if _events.are_seen() else ():
        before, after = (max((_blocks.host(b).nbytes for b in bs if b is not None), default=0) for bs in (x._blocks, blocks))
        _events.collective(kind, tuple(axes), x.mesh.axis_size(axes), after if kind == "all_gather" else before)
    if not x.mesh._is_on_host:
        blocks = [_blocks.on(b, x.mesh.player(ranks[0])) for b, (ranks, _, _) in zip(blocks, rows, strict=True)]
    return DistArray(x.shape, placed, x.mesh, wanted, x.dtype, blocks, x.requires_grad, rows)


def _exchanged(x: DistArray, placed: Any, stored: numpy.dtype, everyone: bool = False, alone: bool = False) -> list[Any]:
    """The blocks of an array in another placement, in host memory; of other processes None. With ``everyone`` each process gets all;
    ``alone``, this one makes all of them from what it has, which are all blocks of the array."""
    source = _stored(x)
    several = _processes.are_several() and not alone
    rows = placed.blocks()
    held = [not several or everyone or _here(ranks, x.mesh) is not None for ranks, _, _ in rows]
    try:
        new = iter(_blocks.empty([s for s, is_here in zip(placed.shapes(), held, strict=True) if is_here], source))
    except MemoryError:
        raise _too_large(x.shape, x.dtype, placed) from None
    made: list[Any] = [next(new) if is_here else None for is_here in held]
    given = [b if b is None else _blocks.host(b) for b in x._blocks]
    if several:
        kind, filled = x._placed.fill_between(placed, given, made, source.itemsize, everyone)
    else:
        kind, filled = x._placed.fill(placed, given, made)
    if kind != "combined" and source == stored and all(filled):
        return made
    for at, (_, _, contribution) in enumerate(rows):
        if made[at] is None:
            continue
        if not filled[at]:
            # No elements, or a contribution that is no value's.
            fill = _blocks.identity(placed.combine, stored) if placed.combine and (kind != "kept" or contribution) else 0
            made[at] = _blocks.filled(made[at].shape, fill, stored)
            continue
        value = _blocks.cast(made[at], numpy_dtype(x.dtype)) if kind == "combined" else made[at]
        made[at] = _blocks.cast(value, stored)
    return made


def _gathered(x: DistArray, alone: bool = False) -> numpy.ndarray:
    """The value of an array in host memory. In one process no rank gets anything, so this is no collective."""
    x._wait("read")
    everywhere = _core.PlacedArray(x.mesh._grid, ShardSpec._of([])._core, list(x.shape), [])
    return _exchanged(x, everywhere, numpy_dtype(x.dtype), True, alone)[0]


def from_domain(domain: Rect, dtype: Any, distribution: Distribution, mesh: Mesh | None = None, fill: Any = "zeros") -> DistArray:
    """An array over a domain, dealt by a distribution. ``fill`` is ``"zeros"``, ``"ones"``, ``"empty"``, a number, or a function from the
    positions of a block to its elements."""
    if not isinstance(domain, Rect):
        raise fail("E_TYPE", f"expected a domain, got {type(domain).__name__}", "write `domain.Rect((4, 8))`")
    if not isinstance(distribution, Distribution):
        raise fail("E_TYPE", f"expected a distribution, got {distribution!r}", 'write `dist.Block(mesh_axes=("dp",))`')
    fills = {"zeros": None, "empty": None, "ones": 1}
    if isinstance(fill, str) and fill not in fills:
        raise fail("E_ARGUMENT", f"expected a fill (zeros, ones, empty, a number or a function), got {fill!r}", 'write `fill="ones"`')
    init = fills[fill] if isinstance(fill, str) else fill
    of, spec = _checked_dtype(dtype), distribution.spec(domain.rank)
    on = chosen(mesh, spec.axes)
    return _initial(domain.shape, of, place(domain.shape, of, spec, on), on, spec, init, True)
