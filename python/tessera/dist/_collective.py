"""Collectives: in programs of one rank, on values of that rank; elsewhere on arrays on meshes, where they change the placement and never
the value. It is ``ts.collective``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeGuard, TypeVar

from .. import _core
from ..arrays.create import numpy_dtype
from ..base.caller import fail
from ..base.dtypes import dtype as dtype_of
from ..base.promotion import is_float
from ..trace import prim
from ..trace.tracer import Tracer, as_tracer, current, one
from . import _blocks, _events, _processes
from ._array import DistArray, in_order, reshard
from ._mesh import Mesh, chosen
from ._ranks import Splits, axes_attrs, inside, mesh_of_rank, names_of, numbered, spec_of
from ._tasks import TASKS, Task, in_context, threads
from ._traced import TracedArray, extents

__all__ = [
    "Future", "all_gather", "all_gather_async", "all_reduce", "all_reduce_async", "all_to_all", "all_to_all_async", "allreduce", "barrier",
    "broadcast", "broadcast_async", "permute", "permute_async", "reduce_scatter", "reduce_scatter_async",
]  # fmt: skip

_OPERATORS = ("sum", "max", "min", "prod", "mean")
T = TypeVar("T")


class Future(Generic[T]):
    """The result of a collective that may still run."""

    def __init__(self, value: list[T], task: Task | None) -> None:
        self._value, self._task = value, task

    def wait(self) -> T:
        """The result, once it is there; raises what went wrong."""
        if self._task is not None:
            TASKS.wait(self._task)
        return self._value[0]

    def done(self) -> bool:
        """Whether `wait` would return immediately."""
        return self._task is None or self._task.state != "running"

    def __repr__(self) -> str:
        return f"Future({'done' if self.done() else 'running'})"


def _is_whole(x: Any) -> TypeGuard[DistArray | TracedArray]:
    """Whether it is an array on a mesh, also in a function that is traced; in the program of a rank such an array is a value."""
    return isinstance(x, DistArray) or isinstance(x, TracedArray) and inside() is None


def _operator(op: Any, what: str) -> str:
    if op not in _OPERATORS:
        raise fail("E_ARGUMENT", f"{what}: expected an operator (sum, max, min, prod or mean), got {op!r}", 'write `op="sum"`')
    return op


def _value(x: Any, what: str) -> Tracer:
    """A value of the rank whose program is traced."""
    if current() is not None and inside() is None and isinstance(x, Tracer):
        raise fail("E_PLACEMENT", f"{what}: expected an array whose placement is known, or a value in the program of a rank, got a value that the compiler places",
                   "say where it is, and what is around it follows: `dist.constrain(x, spec)`; for the program of a rank there is `dist.shard_map`")  # fmt: skip
    if current() is None or inside() is None:
        mesh_of_rank(what)
        raise fail("E_PLACEMENT", f"{what}: expected the trace of a rank's program, got a call outside it", "call it in the function itself, not in a callback")
    return as_tracer(x)


def _dim(x: Tracer | DistArray, dim: Any, what: str, name: str = "dim") -> int:
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise fail("E_TYPE", f"{what}: expected `{name}` to be the number of a dim, got {dim!r}", f"write such as `{name}=0`")
    ndim = x.ndim
    if not ndim:
        raise fail("E_SHAPE_MISMATCH", f"{what}: expected a value with dims, got one of shape ()", "give it a dim: `xp.reshape(x, (1,))`")
    if not -ndim <= int(dim) < ndim:
        raise fail("E_SHAPE_MISMATCH", f"{what}: expected `{name}` between {-ndim} and {ndim - 1}, got {dim}", "dims count from 0, or from -1 at the end")
    return int(dim) % ndim


def _even(x: Tracer, dim: int, attrs: dict[str, Any], what: str) -> None:
    n = 1
    for size in attrs["sizes"]:
        n *= size
    if isinstance(x.shape[dim], int) and x.shape[dim] % n:
        along = ", ".join(f"{a}={s}" for a, s in zip(attrs["axes"], attrs["sizes"], strict=True))
        raise fail("E_UNEVEN", f"{what}: expected dim {dim} to be a multiple of {n} ranks ({along}), got {x.shape[dim]} = {n} × {x.shape[dim] // n} + {x.shape[dim] % n}",
                   "pad the dim, or split another one")  # fmt: skip


def _reduced(op: str, code: str, x: Tracer, attrs: dict[str, Any]) -> Tracer:
    """A reduction over ranks; a mean is divided before it is stored."""
    if x._dtype == "bool" and op != "mean":
        # Whether any holds, or all: as contributions of bools are combined.
        op = {"sum": "or", "max": "or", "prod": "and", "min": "and"}[op]
    if op != "mean":
        return one(code, [x], {**attrs, "op": op}, weak=False)
    wide = _blocks.accumulation(dtype_of(x._dtype))
    floats = is_float(x._dtype)
    sums = one(code, [prim.cast(x, wide if floats else "f32")], {**attrs, "op": "sum"})
    n = 1
    for size in attrs["sizes"]:
        n *= size
    made = prim.ew("div", sums, float(n))
    return prim.cast(made, x._dtype) if floats else made


def _placed(x: DistArray | TracedArray) -> tuple[Splits, tuple[str, tuple[str, ...]] | None]:
    return numbered(x.spec, x.mesh, extents(x.shape))


def _is(x: DistArray | TracedArray) -> str:
    """What an array is along each axis, for errors."""
    return ", ".join(f"{a}: {s}" for a, s in zip(x.mesh.axes, x.placements, strict=True))


def _wrong(x: DistArray | TracedArray, what: str, wanted: str, hint: str) -> Exception:
    return fail("E_PLACEMENT", f"{what}: expected an array that {wanted}, got {_is(x)}", hint)


def _axes_of(x: DistArray | TracedArray, axis: Any, what: str) -> tuple[str, ...]:
    names = names_of(axis, what)
    for name in names:
        x.mesh.axis_size(name)
    if len(set(names)) != len(names):
        raise fail("E_PLACEMENT", f"{what}: expected each mesh axis once, got {names}", "leave out the repeated axis")
    return names


def _without(splits: Splits, dim: int, names: tuple[str, ...]) -> Splits:
    held, block = splits[dim]
    return {**splits, dim: (tuple(a for a in held if a not in names), block)}


def _with(x: DistArray | TracedArray, splits: Splits, dim: int, names: tuple[str, ...], what: str) -> Splits:
    held, block = splits.get(dim, ((), 0))
    if block:
        raise _wrong(x, what, f"has dim {dim} in blocks, or not split", "reshard it first: `x.reshard(spec)`")
    return {**splits, dim: ((*held, *names), 0)}


def _split_dim(x: DistArray | TracedArray, names: tuple[str, ...], what: str, dim: Any = None) -> int:
    """The dim that the axes split."""
    splits, _ = _placed(x)
    found = [d for d, (held, _) in splits.items() if all(a in held for a in names)]
    if not found:
        raise _wrong(x, what, f"is split over {' and '.join(names)}", "`x.placements` says what it is along each axis")
    if dim is not None and _dim(x, dim, what) != found[0]:
        raise _wrong(x, what, f"has dim {dim} split over {' and '.join(names)}", f"leave `dim` out: it is dim {found[0]}")
    return found[0]


def _contributions(x: DistArray | TracedArray, names: tuple[str, ...], op: str, what: str) -> tuple[str, tuple[str, ...]]:
    _, combine = _placed(x)
    if combine is None or not all(a in combine[1] for a in names):
        raise _wrong(x, what, f"holds contributions along {' and '.join(names)}", "an array in copies has its value already; `dist.from_local` with `sum=` makes contributions")
    if op != combine[0]:
        raise _wrong(x, what, f"holds contributions of `{op}`", f'its value is their `{combine[0]}`: write `op="{combine[0]}"`')
    return combine


def _left(combine: tuple[str, tuple[str, ...]], names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    return combine[0], tuple(a for a in combine[1] if a not in names)


def _wired(what: str, x: Any, wire: Any, run: Callable[[Any], Any]) -> Any:
    """``run`` of a value that travels in the dtype ``wire``: rounded before it is sent, and once more when it is combined."""
    if wire is None:
        return run(x)
    if _is_whole(x):
        raise fail("E_UNSUPPORTED", f"{what}: expected `wire` in the program of a rank, got it for an array", "cast the contributions before `dist.from_local`")
    x = _value(x, what)
    of = dtype_of(wire)
    if not is_float(x._dtype) or not is_float(str(of)) or numpy_dtype(of).itemsize >= numpy_dtype(x.dtype).itemsize:
        raise fail("E_TYPE", f"{what}: expected a float that is narrower than the value ({x._dtype}) as `wire`, got {of}", 'write `wire="bf16"`, or leave it out')
    return prim.cast(run(prim.cast(x, str(of))), x._dtype)


def all_reduce(x: Any, axis: str | Sequence[str], op: str = "sum", *, wire: Any = None) -> Any:
    """The values of all ranks along an axis, combined (``sum max min prod mean``), for all of them. Sums are combined in the accumulation
    dtype and stored once; under ``strict`` in the canonical order over coordinates. Of an array: contributions become copies. ``wire`` is a
    narrower dtype to send floats in, such as ``"bf16"``."""
    _operator(op, "all_reduce")
    if _is_whole(x) and wire is None:
        names = _axes_of(x, axis, "all_reduce")
        combine = _contributions(x, names, op, "all_reduce")
        return reshard(x, spec_of(_placed(x)[0], _left(combine, names)))

    def run(x: Any) -> Tracer:
        x = _value(x, "all_reduce")
        return _reduced(op, "all_reduce", x, axes_attrs(mesh_of_rank("all_reduce"), axis, "all_reduce"))

    return _wired("all_reduce", x, wire, run)


def allreduce(x: Any, axis: str | Sequence[str], op: str = "sum", *, wire: Any = None) -> Any:
    """`all_reduce`."""
    return all_reduce(x, axis, op, wire=wire)


def all_gather(x: Any, axis: str | Sequence[str], dim: int | None = None) -> Any:
    """The blocks of all ranks along an axis, joined along ``dim``, for all of them. Of an array: a split dim becomes whole."""
    if _is_whole(x):
        names = _axes_of(x, axis, "all_gather")
        at = _split_dim(x, names, "all_gather", dim)
        splits, combine = _placed(x)
        return reshard(x, spec_of(_without(splits, at, names), combine))
    x = _value(x, "all_gather")
    attrs = axes_attrs(mesh_of_rank("all_gather"), axis, "all_gather")
    return one("all_gather", [x], {**attrs, "dim": _dim(x, 0 if dim is None else dim, "all_gather")})


def reduce_scatter(x: Any, axis: str | Sequence[str], op: str = "sum", dim: int | None = None, *, wire: Any = None) -> Any:
    """The values of all ranks along an axis, combined as by `all_reduce`; each rank takes its own block of ``dim`` (0). Of an array:
    contributions become a split. ``wire`` is a narrower dtype to send floats in, such as ``"bf16"``."""
    _operator(op, "reduce_scatter")
    if _is_whole(x) and wire is None:
        names = _axes_of(x, axis, "reduce_scatter")
        combine = _contributions(x, names, op, "reduce_scatter")
        at = _dim(x, 0 if dim is None else dim, "reduce_scatter")
        return reshard(x, spec_of(_with(x, _placed(x)[0], at, names, "reduce_scatter"), _left(combine, names)))

    def run(x: Any) -> Tracer:
        x = _value(x, "reduce_scatter")
        attrs = axes_attrs(mesh_of_rank("reduce_scatter"), axis, "reduce_scatter")
        at = _dim(x, 0 if dim is None else dim, "reduce_scatter")
        _even(x, at, attrs, "reduce_scatter")
        return _reduced(op, "reduce_scatter", x, {**attrs, "dim": at})

    return _wired("reduce_scatter", x, wire, run)


def all_to_all(x: Any, axis: str | Sequence[str], split_dim: int, concat_dim: int | None = None) -> Any:
    """Cuts the block along ``split_dim``, one part for each rank along the axis, and joins what comes from each along ``concat_dim`` (0).
    Of an array: another dim is split."""
    if _is_whole(x):
        names = _axes_of(x, axis, "all_to_all")
        at = _split_dim(x, names, "all_to_all", concat_dim)
        splits, combine = _placed(x)
        to = _dim(x, split_dim, "all_to_all", "split_dim")
        return reshard(x, spec_of(_with(x, _without(splits, at, names), to, names, "all_to_all"), combine))
    x = _value(x, "all_to_all")
    attrs = axes_attrs(mesh_of_rank("all_to_all"), axis, "all_to_all")
    split = _dim(x, split_dim, "all_to_all", "split_dim")
    _even(x, split, attrs, "all_to_all")
    return one("all_to_all", [x], {**attrs, "split": split, "concat": _dim(x, 0 if concat_dim is None else concat_dim, "all_to_all", "concat_dim")})


def broadcast(x: Any, axis: str | Sequence[str], root: int = 0) -> Any:
    """The value of the rank at position ``root`` along the axis, for all of them. An array in copies is itself."""
    if _is_whole(x):
        names = _axes_of(x, axis, "broadcast")
        states = dict(zip(x.mesh.axes, x.placements, strict=True))
        if any(states[a] != "R" for a in names):
            raise _wrong(x, "broadcast", f"holds copies along {' and '.join(names)}", "blocks of a split array differ: `all_gather` joins them")
        _position(root, axes_attrs(x.mesh, axis, "broadcast"), "broadcast", "root")
        return x
    x = _value(x, "broadcast")
    attrs = axes_attrs(mesh_of_rank("broadcast"), axis, "broadcast")
    return one("from_rank", [x], {**attrs, "root": _position(root, attrs, "broadcast", "root")})


def _position(at: Any, attrs: dict[str, Any], what: str, name: str) -> int:
    n = 1
    for size in attrs["sizes"]:
        n *= size
    if isinstance(at, bool) or not hasattr(at, "__index__"):
        raise fail("E_TYPE", f"{what}: expected `{name}` to hold positions of ranks, got {at!r}", f"positions along the axis are numbers from 0 to {n - 1}")
    if not 0 <= int(at) < n:
        along = ", ".join(f"{a}={s}" for a, s in zip(attrs["axes"], attrs["sizes"], strict=True))
        raise fail("E_MESH", f"{what}: expected a rank from 0 to {n - 1} along {along} as `{name}`, got {int(at)}", "positions are counted along the axes alone")
    return int(at)


def permute(x: Any, axis: str | Sequence[str], pairs: Sequence[tuple[int, int]]) -> Any:
    """Sends the value along pairs (source, target) of positions along the axis; who receives nothing has zeros."""
    if _is_whole(x):
        raise _wrong(x, "permute", "is a value of one rank", "blocks of an array are sent in a function that `dist.shard_map` runs for each rank")
    x = _value(x, "permute")
    attrs = axes_attrs(mesh_of_rank("permute"), axis, "permute")
    rows = []
    if not isinstance(pairs, Iterable):
        raise fail("E_TYPE", f"permute: expected pairs (source, target), got {pairs!r}", "to the next of four: `[(0, 1), (1, 2), (2, 3), (3, 0)]`")
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise fail("E_TYPE", f"permute: expected pairs (source, target), got {pair!r}", "to the next of four: `[(0, 1), (1, 2), (2, 3), (3, 0)]`")
        rows.append([_position(p, attrs, "permute", "pairs") for p in pair])
    for at, name in enumerate(("send", "receive")):
        named = [r[at] for r in rows]
        twice = next((p for i, p in enumerate(named) if p in named[:i]), None)
        if twice is not None:
            raise fail("E_PLACEMENT", f"permute: expected each rank to {name} once, got {twice} twice", "`broadcast` sends one value to all")
    return one("permute", [x], {**attrs, "pairs": rows})


def barrier(mesh: Mesh | None = None) -> None:
    """Returns when every rank has arrived: when the tasks on the mesh are done, in all processes. It is no part of a program of a rank."""
    if inside() is not None:
        raise fail("E_PLACEMENT", "barrier: expected a call outside a rank's program, got one inside", "in a program the order of collectives follows from their values: leave it out")
    on = chosen(mesh, ())
    TASKS.wait_all()
    if _processes.are_several():
        _core.processes_barrier()
    _events.collective("barrier", on.axes, on.size, 0)


def _future(fn: Callable[..., Any]) -> Callable[..., Future]:
    @functools.wraps(fn)
    def start(x: Any, *args: Any, **kwargs: Any) -> Future:
        if not isinstance(x, DistArray) or _processes.are_several():
            # In a program the compiler orders what depends on the result. Processes call collectives in one order, which tasks have not.
            return Future([fn(x, *args, **kwargs)], None)
        value: list[Any] = []

        def run() -> None:
            in_order.set(x._storage)
            value.append(fn(x, *args, **kwargs))

        return Future(value, TASKS.submit([(in_context(run), [x._use("read")])], threads()))

    start.__name__ = start.__qualname__ = f"{fn.__name__}_async"
    start.__doc__ = f"`{fn.__name__}`, which may go on while the program does, in one process. Gives a `Future`."
    start.__annotations__ = {**fn.__annotations__, "return": "Future"}
    return start


all_reduce_async = _future(all_reduce)
all_gather_async = _future(all_gather)
reduce_scatter_async = _future(reduce_scatter)
all_to_all_async = _future(all_to_all)
broadcast_async = _future(broadcast)
permute_async = _future(permute)
