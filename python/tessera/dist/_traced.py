"""Arrays on meshes in functions that are being traced: arguments and results of `ts.jit`, of transforms, and of functions that run
immediately. The trace is one of whole arrays; a placement is an op that changes no value (`graph.shard`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..base.caller import fail
from ..trace import placing
from ..trace.tracer import Blocks, Frame, Gathered, Tracer, as_tracer, aval, current, is_array, one, outermost, to_numpy
from ..tree import pytree
from . import _implicit
from ._array import DistArray, from_blocks, replicate, shard
from ._mesh import Mesh, chosen
from ._ranks import Splits, inside, numbered, spec_of
from ._spec import Distribution, ShardSpec, as_spec


class Placement(NamedTuple):
    """What a trace knows of an array on a mesh beside its shape and dtype: a part of the key of the trace."""

    mesh: Mesh
    spec: ShardSpec
    ndim: int
    requires_grad: bool

    def without(self, axis: int) -> Placement:
        """Of the array at a position along a dim."""
        splits, combine = numbered(self.spec, self.mesh, [1] * self.ndim)
        kept = {d - (d > axis): s for d, s in splits.items() if d != axis}
        return self._replace(spec=spec_of(kept, combine), ndim=self.ndim - 1)

    def stacked(self, axis: int) -> Placement:
        """Of arrays in this placement along one more dim, which is not split."""
        splits, combine = numbered(self.spec, self.mesh, [1] * self.ndim)
        return self._replace(spec=spec_of({d + (d >= axis): s for d, s in splits.items()}, combine), ndim=self.ndim + 1)


def extents(shape: tuple) -> list[int]:
    """The extents that are known while tracing, and 1 for the others."""
    return [d if isinstance(d, int) else 1 for d in shape]


def _belongs(mesh: Mesh) -> None:
    """Says that the arrays of the trace are on this mesh; an error where they are on another."""
    frame = outermost()
    if frame is None:
        return
    if frame.mesh is not None and frame.mesh != mesh:
        raise _two_meshes(frame.mesh, mesh)
    frame.mesh = mesh


def _two_meshes(one: Mesh, other: Mesh) -> Exception:
    return fail("E_PLACEMENT", f"expected arrays on one mesh in a function, got arrays on {one!r} and on {other!r}",
                "`dist.shard(x.numpy(), spec, mesh)` brings an array to another mesh, before the call")  # fmt: skip


def _pinned(x: Tracer, mesh: Mesh, splits: Splits, priority: int) -> Tracer:
    """The value, placed as its splits say. Ranks compute on blocks of neighbouring elements: what is dealt in cycles outside programs is in
    copies in them, and an axis that the blocks of coarser axes leave uneven is none of the program's (`may_split` of the partitioner)."""
    split: list[list[str]] = [[] for _ in x.shape]
    for dim, (names, block) in splits.items():
        if not block:
            split[dim] = list(names)
    attrs = {"axes": list(mesh.axes), "sizes": list(mesh.shape), "split": split} | ({"priority": priority} if priority else {})
    return one("shard", [x], attrs, weak=x._weak)


class TracedArray(Tracer):
    """An array on a mesh in a function that is being traced: a traced value with a placement."""

    __slots__ = ("mesh", "spec", "requires_grad", "_plain")

    def __init__(self, value: Tracer, mesh: Mesh, spec: Any, requires_grad: bool = True, pinned: bool = True) -> None:
        """``pinned``: the program places it. Of a value whose placement the program has already, only the array knows it."""
        spec = as_spec(spec, value.ndim)
        splits, _ = numbered(spec, mesh, extents(value.shape))
        _belongs(mesh)
        plain = _pinned(value, mesh, splits, spec.priority) if pinned else value
        super().__init__(plain._frame, plain._value, plain.shape, str(plain._dtype), plain._weak, plain._place)
        #: The mesh it is on.
        self.mesh = mesh
        #: Its placement.
        self.spec = spec
        self.requires_grad = requires_grad
        # Frames know values by identity, so there is one without a placement.
        self._plain = plain

    @property
    def placements(self) -> tuple[str, ...]:
        """One word for each axis of the mesh: ``("S(0)", "R", "P(sum)")``."""
        return tuple(self.spec.placements(self.mesh, self.ndim))

    def reshard(self, spec: Any) -> TracedArray:
        """The same value in another placement."""
        return constrain(self, spec)

    def full(self) -> Tracer:
        """The value without a placement that results would keep."""
        return self._plain

    def _placed_alike(self, made: Tracer) -> TracedArray:
        """A value of this shape in this placement; along axes with contributions, in copies."""
        splits, _ = numbered(self.spec, self.mesh, extents(self.shape))
        return TracedArray(made, self.mesh, spec_of(splits, None), self.requires_grad)

    def __repr__(self) -> str:
        return f"TracedArray([{', '.join(map(str, self.shape))}], {self.dtype}, {self.spec!r} on {self.mesh!r})"


def constrain(x: Any, spec: Any, mesh: Mesh | None = None) -> Any:
    """The same value in this placement. In a function that is traced it says where the program has the value, and the rest follows; outside it is
    `reshard`, or `shard` of an array of the host. ``mesh`` is that of the array, of the function's arguments, or the ambient one."""
    if inside() is not None:
        raise fail("E_PLACEMENT", "constrain: expected a function on whole arrays, got the program of a rank", "a rank has its block alone: place the results with `out_specs`")
    on = mesh if mesh is not None else getattr(x, "mesh", None)
    frame = outermost()
    if on is None and frame is not None:
        on = frame.mesh
    on = chosen(on, _axes_of(spec))
    if isinstance(x, (DistArray, TracedArray)) and x.mesh != on:
        raise fail("E_PLACEMENT", f"constrain: expected an array on {on!r}, got one on {x.mesh!r}", "leave `mesh` out: it is the array's own")
    if frame is None:
        return x.reshard(spec) if isinstance(x, DistArray) else shard(x, spec, on)
    value = as_tracer(x)
    return TracedArray(value.full() if isinstance(value, TracedArray) else value, on, spec, getattr(x, "requires_grad", True))


def _axes_of(spec: Any) -> tuple[str, ...]:
    if isinstance(spec, Distribution):
        return as_spec(spec, len(spec.mesh_axes)).axes
    return spec.axes if isinstance(spec, ShardSpec) else ()


class _Given:
    """An array of the host as an argument whose placement `ts.jit` was given."""

    def __init__(self, array: Any, mesh: Mesh, spec: ShardSpec) -> None:
        self.array, self.mesh, self.spec = array, mesh, spec


def _into(x: DistArray | TracedArray | _Given) -> tuple[Any, Placement]:
    if isinstance(x, _Given):
        return x.array, Placement(x.mesh, x.spec, len(aval(x.array)[0]), True)
    array = x.full() if isinstance(x, TracedArray) else Gathered(x)
    return array, Placement(x.mesh, x.spec, x.ndim, x.requires_grad)


def _back(known: Placement, array: Any) -> Any:
    """The array that a value stands for. One of another rank than the placement (a row of a Jacobian) is in copies."""
    if not isinstance(array, Tracer) and not hasattr(array, "shape"):
        return array
    same = len(array.shape) == known.ndim
    if isinstance(array, Tracer):
        # What a transform traces inside a function is placed where it comes from.
        frame = current()
        return TracedArray(array, known.mesh, known.spec, known.requires_grad, frame is not None and frame.parent is None) if same else array
    spec = known.spec if same else ShardSpec()
    made = from_blocks(array, spec, known.mesh) if type(array) is Blocks else shard(to_numpy(array), spec, known.mesh)
    made.requires_grad = known.requires_grad
    return made


pytree.open_in_calls((DistArray, TracedArray, _Given), "DistArray", _into, _back)


def _captured(x: DistArray) -> Tracer:
    """An array on a mesh that a traced function has from outside: with the contents it had when the function was traced."""
    frame, outer = current(), outermost()
    assert frame is not None and outer is not None
    key = "array on a mesh", x._storage
    if key not in outer.shared:
        outer.shared[key] = x.full()
    value = frame.array(outer.shared[key])
    return value if inside() is not None else TracedArray(value, x.mesh, x.spec, x.requires_grad)


DistArray._as_tracer = _captured  # type: ignore[attr-defined]


def _results(frame: Frame, form: Any, tracers: list[Tracer], profile: int, args: list | None) -> Any:
    """The form of results where the arguments are on a mesh: each is an array on it, in the placement that it was given or the compiler chose."""
    mesh = frame.mesh
    if mesh is None:
        return form
    found = frame.program.placements(frame.name, profile, args)
    splits = found[2] if found is not None else [[] for _ in tracers]

    def placement(at: int) -> Placement:
        by_dim = {d: (tuple(names), 0) for d, names in enumerate(splits[at]) if names}
        spec = spec_of(by_dim, None)
        # The user chose the placements that this one follows from, and was warned of uneven blocks there.
        spec.is_chosen = True
        return Placement(mesh, spec, tracers[at].ndim, True)

    return pytree.open_all(form, TracedArray, placement)


class _Specs:
    """What `ts.jit` does with arguments and results, where their placements are given."""

    def __init__(self, mesh: Mesh | None, in_specs: Any, out_specs: Any) -> None:
        if mesh is not None and not isinstance(mesh, Mesh):
            raise fail("E_TYPE", f"expected a mesh, got {type(mesh).__name__}", "`dist.mesh(devices, axes, shape)` makes one")
        self.given, self.in_specs, self.out_specs = mesh, in_specs, out_specs

    def mesh(self) -> Mesh | None:
        named = (*axes_in(self.in_specs), *axes_in(self.out_specs))
        return chosen(self.given, named) if self.given is not None or named else None

    def arguments(self, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Arguments in the placements that `in_specs` says; those without one, and arguments by name, as they are."""
        mesh = self.mesh()
        if mesh is None or self.in_specs is None:
            return args, kwargs
        leaves, form = pytree.flatten(args)
        found = spread(self.in_specs, args, "in_specs", "jit")
        return pytree.unflatten(form, [_at(x, s, mesh) for x, s in zip(leaves, found, strict=True)]), kwargs

    def results(self, result: Any) -> Any:
        mesh = self.mesh()
        if mesh is None:
            return result
        _belongs(mesh)
        if self.out_specs is None:
            return result
        leaves, form = pytree.flatten(result)
        found = spread(self.out_specs, result, "out_specs", "jit")
        return pytree.unflatten(form, [x if s is None else constrain(x, s, mesh) for x, s in zip(leaves, found, strict=True)])


def _at(x: Any, spec: Any, mesh: Mesh) -> Any:
    """An argument in the placement that it has to have."""
    if spec is None or not (is_array(x) or isinstance(x, DistArray)):
        return x
    if current() is not None:
        return constrain(x, spec, mesh)
    if isinstance(x, DistArray):
        wanted = as_spec(spec, x.ndim)
        if x.mesh != mesh or x.spec.placements(mesh, x.ndim) == wanted.placements(mesh, x.ndim) and x.spec == wanted:
            return x
        _implicit.gathers(x, wanted, mesh, "`in_specs` of `ts.jit`")
        return x.reshard(wanted)
    shape = aval(x)[0]
    wanted = as_spec(spec, len(shape))
    numbered(wanted, mesh, list(shape))
    return _Given(x, mesh, wanted)


def axes_in(specs: Any) -> tuple[str, ...]:
    """The axes that a tree of specs names."""
    if isinstance(specs, dict):
        return tuple(a for v in specs.values() for a in axes_in(v))
    if isinstance(specs, (tuple, list)):
        return tuple(a for v in specs for a in axes_in(v))
    return _axes_of(specs)


def spread(specs: Any, tree: Any, what: str, by: str) -> list:
    """A spec for each leaf of a tree; ``specs`` is one for all or a tree above."""
    leaves = pytree.leaves(tree)
    if specs is None or isinstance(specs, (ShardSpec, Distribution)):
        return [specs] * len(leaves)
    if isinstance(specs, (tuple, list)) and isinstance(tree, (tuple, list)) and len(specs) == len(tree):
        return [v for a, t in zip(specs, tree, strict=True) for v in spread(a, t, what, by)]
    if isinstance(specs, dict) and isinstance(tree, dict) and specs.keys() == tree.keys():
        return [v for k in pytree._sorted_keys(tree) for v in spread(specs[k], tree[k], what, by)]
    kind = "result" if what == "out_specs" else "argument"
    raise fail("E_ARGUMENT", f"{by}: expected `{what}` to be one spec, or a tree of them like the {kind}s, got {specs!r}",
               f"write `{what}=dist.spec(\"dp\")`, or a tuple with an entry for each {kind} and None for {'copies' if by == 'shard_map' else 'those that the compiler places'}")  # fmt: skip


def _on_host(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Calls a function of arrays in one memory; its results are copies on the mesh of its arguments."""
    meshes: list[Mesh] = []

    def host(x: Any) -> Any:
        if not isinstance(x, DistArray):
            return x
        meshes.append(x.mesh)
        if x.mesh != meshes[0]:
            raise _two_meshes(meshes[0], x.mesh)
        _implicit.gathers(x, None, x.mesh, f"`{getattr(fn, '__name__', 'a function')}`")
        return x.full()

    given, rest = pytree.map(host, (args, kwargs))
    return pytree.map(lambda v: replicate(v, meshes[0]) if is_array(v) and hasattr(v, "shape") else v, fn(*given, **rest))


placing.functions.update(results=_results, jit=_Specs, gathered=_on_host)
