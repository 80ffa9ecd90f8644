"""Index launches: a kernel once for each coordinate along axes of a mesh, with privileges that are checked and kept in order."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from .. import _core
from ..arrays.create import numpy_dtype
from ..base.caller import fail, here
from ..base.errors import TesseraError
from ..base.numeric_profile import current as profile_now
from ..kernel.kernel_fn import Elaboration, KernelFn
from ..trace.tracer import current as tracing
from . import _blocks, _events, _given, _mapper
from ._array import DistArray, Part, _numbers, _stored
from ._mesh import Mesh, current_mesh, on_leaving, unit, warn
from ._tasks import TASKS, in_context, leaving, threads

on_leaving.append(leaving)

#: Storage of the arrays of the host, whose positions are addresses.
_HOST = 2**62
#: The one element of a storage without dims.
_ALL = _core.Positions([])
#: Arrays of the host with more separate pieces than this are taken as the span that they lie in.
_MOST_PIECES = 4096


def index_launch(axis: str | Sequence[str], mesh: Mesh | None = None) -> Callable[[Any], Callable[..., list]]:
    """Runs a kernel once for each coordinate along an axis, or along several: ``index_launch("tp")(kernel)(A.parts("tp"), B, C)``.

    An argument is a list of parts, a DistArray (its parts along the axis), or anything else, which all tasks get. Arguments of one
    launch may not interfere (``E_PRIVILEGE``). Launches that interfere run in program order, others together. A parameter that a
    kernel reduces into folds into each part; given as a DistArray every task contributes to the whole array, whose old contents count
    once. Gives a list of results, in the order of coordinates, and returns when the tasks are submitted: reading an array waits.
    """
    axes = _given.axes(axis)
    if mesh is not None and not isinstance(mesh, Mesh):
        raise fail("E_TYPE", f"expected a mesh, got {type(mesh).__name__}", "`dist.mesh(devices, axes, shape)` makes one")

    def of(kernel: Any) -> Callable[..., list]:
        if not isinstance(kernel, KernelFn):
            raise fail("E_TYPE", f"expected a kernel, got {kernel!r}", "write `index_launch(\"tp\")(kernel)(x, y)`, with a function under `@ts.kernel`")

        def launch(*args: Any, grid: Any = None, **kwargs: Any) -> list:
            return _Launch(axes, mesh, kernel, args, kwargs, grid).submit()

        return launch

    return of


@dataclass
class _Argument:
    """An argument of all tasks."""

    name: str
    privilege: str
    #: One value for each task, and what is given back for it.
    values: list[Any]
    shown: list[Any]
    #: The array that all tasks contribute to.
    whole: DistArray | None = None
    #: Of such, the contributions.
    buffers: list[numpy.ndarray] = field(default_factory=list)


class _Names:
    """What the tasks of a launch are called in errors."""

    def __init__(self, kernel: str, axes: tuple[str, ...], mesh: Mesh) -> None:
        self.kernel, self.axes, self.mesh, self.place = kernel, axes, mesh, here()

    def at(self, task: int) -> str:
        coords = numpy.unravel_index(task, [self.mesh.axis_size(a) for a in self.axes])
        return "part (" + ", ".join(f"{a}={c}" for a, c in zip(self.axes, coords, strict=True)) + ")"

    def rank(self, task: int) -> int:
        """The lowest rank at the coordinates of a task."""
        coords = numpy.unravel_index(task, [self.mesh.axis_size(a) for a in self.axes])
        at = dict(zip(self.axes, map(int, coords), strict=True))
        return self.mesh.rank([at.get(a, 0) for a in self.mesh.axes])

    def named(self, error: BaseException, task: int) -> BaseException:
        if not isinstance(error, TesseraError):
            return error
        where = f", launched at {self.place!r}" if self.place is not None else ""
        note = f"  = note: in the kernel `{self.kernel}`, {self.at(task)}, rank {self.rank(task)}{where}"
        made = type(error)(f"{error}\n{note}", error.diagnostics)
        made.notes = (*error.notes, note.partition("note: ")[2])
        made.rank = self.rank(task)  # type: ignore[attr-defined]
        return made


#: Names of parameters, and their privileges and dtypes, by kernel.
_Facts = tuple[list[str], dict[str, str], dict[str, Any]]
_known: weakref.WeakKeyDictionary[Any, _Facts] = weakref.WeakKeyDictionary()


def _facts(of: Elaboration) -> _Facts:
    found = _known.get(of)
    if found is None:
        params = of.spec.params
        names = [row[0] for row in params]
        # What is not declared, and what the body does with it is known only with its dtype, has its privilege from each task's code.
        declared = [row[2][2] if row[1] == "tensor" else None for row in params]
        known = zip(names, declared, of.kernel.privileges(), strict=True)
        privileges = {name: said or does or "" for name, said, does in known}
        dtypes = {row[0]: row[2][1] if row[1] == "tensor" else None for row in params}
        found = _known[of] = names, privileges, dtypes
    return found


class _Launch:
    def __init__(self, axes: tuple[str, ...], mesh: Mesh | None, kernel: KernelFn, args: tuple, kwargs: dict, grid: Any) -> None:
        if tracing():
            raise fail("E_UNSUPPORTED", "an index launch cannot be traced", "call it outside `ts.jit`")
        TASKS.raise_unseen()
        self.axes, self.grid = axes, grid
        self.kernel, given, kwargs = kernel.apart(args, kwargs)
        self.elaboration, self.profile = self.kernel.now(), profile_now()
        names, privileges, self.dtypes = _facts(self.elaboration)
        if len(given) > len(names):
            raise fail("E_ARGUMENT", f"`{kernel.name}` takes {len(names)} arguments, got {len(given)}", f"its parameters are {', '.join(names)}")
        unknown = [n for n in kwargs if n not in names[len(given) :]]
        if unknown:
            raise fail("E_ARGUMENT", f"`{kernel.name}` has no open parameter `{unknown[0]}`", f"its parameters are {', '.join(names)}")
        bound = [*zip(names, given, strict=False), *((n, kwargs[n]) for n in names if n in kwargs)]
        self.mesh = self._mesh(mesh, [v for _, v in bound])
        self.count = self.mesh.axis_size(axes)
        self.tasks = _Names(self.kernel.name, axes, self.mesh)
        #: How many arguments go by position.
        self.leading = next((at for at, (n, _) in enumerate(bound) if n != names[at]), len(bound))
        #: Whether tasks use arrays of the host.
        self.on_host = False
        self.arguments = [self._argument(n, privileges[n], v) for n, v in bound]

    def _mesh(self, mesh: Mesh | None, values: list[Any]) -> Mesh:
        found: list[Mesh] = []
        for value in values:
            inner = value if isinstance(value, (list, tuple)) else [value]
            for v in inner:
                of = v.mesh if isinstance(v, DistArray) else v.array.mesh if isinstance(v, Part) else None
                if of is not None and of not in found:
                    found.append(of)
        if mesh is not None and any(m != mesh for m in found) or len(found) > 1:
            text = " and ".join(repr(m) for m in dict.fromkeys([*([mesh] if mesh else []), *found]))
            raise fail("E_PLACEMENT", f"expected arrays of one mesh, got {text}", "put all arrays of a launch on one mesh")
        return mesh or (found[0] if found else current_mesh() or unit(self.axes))

    def _argument(self, name: str, privilege: str, value: Any) -> _Argument:
        if isinstance(value, DistArray):
            if privilege.startswith("reduce_"):
                return self._whole(name, privilege, value)
            return _Argument(name, privilege, *self._parts(name, value))
        if isinstance(value, (list, tuple)) and any(isinstance(v, (Part, DistArray)) for v in value):
            if len(value) != self.count:
                over = ", ".join(f"{a}={self.mesh.axis_size(a)}" for a in self.axes)
                raise fail("E_ARGUMENT", f"expected {self.count} parts as `{name}` ({over}), got {len(value)}", f"`x.parts({self.axes!r})` gives one for each coordinate")
            for v in value:
                self._check(name, v)
            return _Argument(name, privilege, [v._held for v in value], list(value))
        if isinstance(value, (list, tuple)) and self.dtypes.get(name) is not None and any(isinstance(v, numpy.ndarray) for v in value):
            raise fail("E_ARGUMENT", f"expected parts of an array on a mesh as `{name}`, got a list of arrays of the host",
                       "`dist.from_local(blocks, spec, mesh)` makes an array on a mesh of them; its `.parts(axis)` are arguments")  # fmt: skip
        if isinstance(value, Part):
            self._check(name, value)
            held = value._held
        elif isinstance(value, numpy.ndarray):
            held = _core.Held(_HOST, _core.Positions([_addresses(value)]), value)
            self.on_host = True
        else:
            held = value
        return _Argument(name, privilege, [held] * self.count, [value] * self.count)

    def _parts(self, name: str, x: DistArray) -> tuple[list[Any], list[Any]]:
        """The parts of an array, checked once."""
        known = x._held.get(self.axes)
        if known is None:
            parts = x.parts(self.axes)
            for part in parts:
                self._check(name, part)
            known = x._held[self.axes] = [p._held for p in parts], parts
        return known

    def _check(self, name: str, part: Any) -> None:
        if not isinstance(part, Part):
            raise fail("E_ARGUMENT", f"expected parts as `{name}`, got {type(part).__name__} among them", "`x.parts(axis)` gives a list of parts")
        if len(part._blocks) != 1:
            axes = {a for a, s in zip(part.array.mesh.axes, part.array.placements, strict=True) if s != "R"} - set(part.axes)
            others = ", ".join(f"`{a}`" for a in part.array.mesh.axes if a in axes)
            both = (*part.axes, *(a for a in part.array.mesh.axes if a in axes))
            raise fail("E_PLACEMENT", f"expected parts of one block as `{name}`, got parts that are still split over {others}",
                       f"launch over both: `index_launch({both!r})`, or reshard the array")  # fmt: skip

    def _whole(self, name: str, privilege: str, x: DistArray) -> _Argument:
        op = x._placed.combine
        if op is not None and f"reduce_{op}" != privilege:
            raise fail("E_PLACEMENT", f"expected contributions of `{privilege}` as `{name}`, got {x._placed.spec()!r}", "reshard the array first, or reduce with its operator")
        wanted = self.dtypes.get(name)
        kind = numpy_dtype(_blocks.accumulation(x.dtype) if wanted is None else wanted)
        start = _blocks.identity(privilege[len("reduce_") :], kind)
        buffers = [_blocks.on(_blocks.filled(x.shape, start, kind), x.mesh.player(self.tasks.rank(t))) for t in range(self.count)]
        held = [_core.Held(next(_numbers), _ALL, b) for b in buffers]
        return _Argument(name, privilege, held, [x] * self.count, x, buffers)

    def submit(self) -> list:
        rows = [(a.name, a.privilege, a.whole is not None, a.values, a.shown) for a in self.arguments]
        launch = _core.IndexLaunch(rows, self.count, self.tasks)
        conflict = launch.conflict()
        if conflict is not None:
            raise self._refused(launch, *conflict)
        if _mapper.current() is not None:
            _mapper.choose_variant(self.kernel.name, str(_core.capabilities(None).get("arch", "cpu")))
        launch.prepare(self.elaboration.kernel, self.leading, self.grid, self.profile)
        if not all(a.privilege for a in self.arguments):
            conflict = launch.conflict()
            if conflict is not None:
                raise self._refused(launch, *conflict)
        for text in self.elaboration.kernel.take_warnings():
            warn(text)
        whole = [a for a in self.arguments if a.whole is not None]
        # Behind the tasks, what they contributed is combined.
        last = [(in_context(functools.partial(self._fold, a)), a) for a in whole]
        group = launch.submit(TASKS, [(fold, a.whole._use("read_write"), a.values) for fold, a in last], threads())  # type: ignore[union-attr]
        _events.launch(self.axes, self.count, self.kernel.name)
        found = launch.results()
        # Arrays without a mesh are read without waiting; those that a call on a device leaves out are made when it runs.
        if found is None or self.on_host or not found[1]:
            try:
                TASKS.wait(group)
            finally:
                launch.join()
            found = found or launch.results()
        assert found is not None
        return found[0]

    def _refused(self, launch: Any, first: tuple[int, int], second: tuple[int, int]) -> Exception:
        (t, i), (u, j) = first, second
        a, b = self.arguments[i], self.arguments[j]
        text = f"`{self.kernel.name}` {_does(launch.does(t, i))} `{a.name}` of {self.tasks.at(t)} and {_does(launch.does(u, j))} `{b.name}` of {self.tasks.at(u)}, which share elements"
        return fail("E_PRIVILEGE", f"tasks of one launch have no order: {text}",
                    "give each task a part of its own; where accumulation is intended, declare `Region[reduce_sum]`")  # fmt: skip

    def _fold(self, a: _Argument) -> None:
        """Combines what the tasks contributed, and adds it to the old contents."""
        x, op = a.whole, a.privilege[len("reduce_") :]
        assert x is not None
        wide = numpy_dtype(_blocks.accumulation(x.dtype))
        # The order is that of the mesh's ranks, whatever the order of the axes of the launch.
        order = sorted(range(self.count), key=self.tasks.rank)
        total = _blocks.combined(op, [_blocks.cast(_blocks.host(a.buffers[t]), wide) for t in order])
        for block, (_, runs, contribution) in zip(x._blocks, x._rows, strict=True):
            if contribution:
                continue
            old = _blocks.cast(_blocks.host(block), wide)
            _blocks.store(block, _blocks.cast(_blocks.combined(op, [old, total[_blocks.places(runs)]]), _stored(x)))
        a.values, a.buffers = [], []
        states = x.placements
        if any(s.startswith("P(") for s in states):
            return
        kind = "reduce_scatter" if any(s.startswith("S(") for s in states) else "all_reduce"
        _events.collective(kind, self.axes, self.count, total.nbytes)


def _does(privilege: str) -> str:
    return {"read": "reads", "write": "writes", "read_write": "reads and writes"}.get(privilege) or f"folds ({privilege}) into"


def _addresses(x: numpy.ndarray) -> list[tuple[int, int, int]]:
    """The bytes of an array as runs."""
    if x.size == 0:
        return []
    address = x.__array_interface__["data"][0]
    dims = sorted(((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1), reverse=True)
    address += sum(s * (n - 1) for s, n in zip(x.strides, x.shape, strict=True) if s < 0)
    span = sum(s * (n - 1) for s, n in dims) + x.itemsize
    inner = x.itemsize
    while dims and dims[-1][0] == inner:
        inner *= dims.pop()[1]
    pieces = 1
    for _, n in dims:
        pieces *= n
    nested = all(s >= below for (s, _), below in zip(dims, [*(s * n for s, n in dims[1:]), inner], strict=False))
    if pieces > _MOST_PIECES or not nested:
        return [(address, 1, span)]
    starts = numpy.array([address])
    for s, n in dims:
        starts = (starts[:, None] + numpy.arange(n) * s).reshape(-1)
    return [(int(start), 1, inner) for start in starts]


