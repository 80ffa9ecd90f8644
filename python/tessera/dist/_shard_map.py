"""The local view: a function of one rank, run for all ranks of a mesh."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy

from .. import _core
from ..arrays.create import numpy_dtype
from ..base.caller import fail, here
from ..base.dtypes import dtype as dtype_of
from ..trace import prim
from ..trace.jit import Jitted, _name, _names, jit
from ..trace.tracer import Tracer, as_tracer, aval, current, is_array, one, splat, to_numpy, tracing, weakened
from ..tree import pytree
from . import _blocks, _implicit, _processes
from ._array import DistArray, shard
from ._mesh import Mesh, chosen
from ._ranks import Splits, inside, numbered, rank_of
from ._spec import Distribution, ShardSpec, as_spec
from ._traced import TracedArray, axes_in, spread


def shard_map(f: Callable, mesh: Mesh | None = None, in_specs: Any = None, out_specs: Any = None, *, pad: bool = False) -> Callable:
    """``f`` as the program of one rank: it is given the blocks of its arguments by ``in_specs``, and gives blocks of the results by
    ``out_specs`` (trees like the arguments and results, or one spec for all; None: copies, as are arguments by name). Collectives in it go along axes of the mesh.

    Blocks are equal (`E_UNEVEN`), or filled up with zeros where ``pad``, and cut off again in results. What a spec calls contributions
    (``sum=``) a rank gets as its own, and results of ranks are combined. A result that differs between ranks where its spec says copies
    is `E_PLACEMENT`. Arguments may be DistArrays, and results are: outside a trace always, under `ts.jit` and transforms where an argument is.

    Derivatives of the whole are those of the program on all ranks. A derivative inside ``f`` is by the rank's own values: combine it with
    `collective.all_reduce`.
    """
    fn = f._fn if isinstance(f, Jitted) else f
    if not callable(fn):
        raise fail("E_TYPE", f"shard_map: expected a function of one rank's blocks, got {fn!r:.80}", "write `dist.shard_map(f, mesh, in_specs=…, out_specs=…)`")

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        on = chosen(mesh, axes_in(in_specs) + axes_in(out_specs))
        if inside() is not None:
            raise fail("E_PLACEMENT", "shard_map: expected a call outside a rank's program, got one inside", "name all axes in one mesh, and use them in one program")
        if current() is not None:
            return _mapped(fn, on, in_specs, out_specs, pad, args, kwargs)
        return outside(on, args, kwargs)

    programs: dict[Mesh, Jitted] = {}

    def outside(on: Mesh, args: tuple, kwargs: dict) -> Any:
        """Runs now: arrays of the mesh go in as whole values, and results are placed."""
        leaves, form = pytree.flatten((args, kwargs))
        wanted = spread(in_specs, args, "in_specs", "shard_map") + [None] * len(pytree.leaves(kwargs))
        for x, spec in zip(leaves, wanted, strict=True):
            if isinstance(x, DistArray):
                _same_mesh(x, on)
                _implicit.gathers(x, spec, on, f"shard_map of `{_name(fn)}`")
        if on not in programs:

            def whole(*args: Any, **kwargs: Any) -> Any:
                return _mapped(fn, on, in_specs, out_specs, pad, args, kwargs)

            whole.__name__ = _name(fn)
            programs[on] = jit(whole)
        if _processes.are_several():
            # Each process has blocks, and plays its ranks on them.
            leaves = [shard(x, s, on) if isinstance(x, (numpy.ndarray, _core.Array)) else x for x, s in zip(leaves, wanted, strict=True)]
            inner_args, inner_kwargs = pytree.unflatten(form, leaves)
            result = programs[on](*inner_args, **inner_kwargs)
            values, out_form = pytree.flatten(result)
            found = spread(out_specs, result, "out_specs", "shard_map")
            return pytree.unflatten(out_form, [v if isinstance(v, DistArray) else shard(to_numpy(v), s, on) for v, s in zip(values, found, strict=True)])
        inner_args, inner_kwargs = pytree.unflatten(form, [x.full() if isinstance(x, DistArray) else x for x in leaves])
        result = programs[on](*inner_args, **inner_kwargs)
        values, out_form = pytree.flatten(result)
        found = spread(out_specs, result, "out_specs", "shard_map")
        return pytree.unflatten(out_form, [shard(to_numpy(v), s, on) for v, s in zip(values, found, strict=True)])

    call.__annotations__ = {}
    return call


def _same_mesh(x: DistArray | TracedArray, mesh: Mesh) -> None:
    if x.mesh != mesh:
        raise fail("E_PLACEMENT", f"shard_map: expected arrays on {mesh!r}, got one on {x.mesh!r}", "`dist.shard(x.numpy(), spec, mesh)` brings it to another mesh")


def _axes_by_dim(splits: Splits, ndim: int) -> list[list[str]]:
    return [list(splits[d][0]) if d in splits else [] for d in range(ndim)]


def _placed(spec: Any, mesh: Mesh, shape: tuple, what: str) -> tuple[Splits, Any]:
    splits, combine = numbered(as_spec(spec, len(shape)), mesh, [d if isinstance(d, int) else 1 for d in shape])
    if any(block for _, block in splits.values()):
        raise fail("E_UNSUPPORTED", f"{what}: expected blocks of neighbouring elements, got a cyclic placement", "reshard it to `dist.Block` first")
    return splits, combine


class _Padding:
    """How dims were filled up: by the axes that split them and the extent that they have now."""

    def __init__(self) -> None:
        self.cuts: dict[tuple[tuple[str, ...], int], set[int]] = {}

    def fill(self, x: Tracer, splits: Splits, mesh: Mesh, pad: bool) -> Tracer:
        """The value with dims that the ranks divide."""
        hi = [0] * x.ndim
        for dim, (names, _) in splits.items():
            ranks, n = mesh.axis_size(names), x.shape[dim]
            if not isinstance(n, int):
                raise fail("E_UNSUPPORTED", f"shard_map: expected an extent that is known while tracing, got {n} for dim {dim}, which is split",
                           "leave the name of the extent out of the annotation: the function is then traced for each size")  # fmt: skip
            block = -(-n // ranks)
            if block * ranks != n and not pad:
                along = ", ".join(f"{a}={mesh.axis_size(a)}" for a in names)
                raise fail("E_UNEVEN", f"shard_map: expected equal blocks, got {n} elements of dim {dim} over {along}: {n} = {ranks} × {n // ranks} + {n % ranks}",
                           "give an extent that the ranks divide, or `pad=True`: zeros fill up the last blocks")  # fmt: skip
            hi[dim] = block * ranks - n
            self.cuts.setdefault((names, block * ranks), set()).add(n)
        return prim.pad(x, [0] * x.ndim, hi) if any(hi) else x

    def cut(self, x: Tracer, splits: Splits, dims: list[int]) -> Tracer:
        """A result without what was filled up."""
        limit = list(dims)
        for dim, (names, _) in splits.items():
            known = self.cuts.get((names, dims[dim]), set())
            if len(known) > 1:
                shown = " and ".join(map(str, sorted(known)))
                raise fail("E_UNEVEN", f"shard_map: expected one extent to cut dim {dim} of a result to, got {shown} elements over {' and '.join(names)}",
                           "give arguments of one extent, or cut the result yourself")  # fmt: skip
            limit[dim] = next(iter(known), dims[dim])
        return prim.slice_(x, [0] * len(limit), limit, [1] * len(limit))


def _own(x: Tracer, combine: tuple[str, tuple[str, ...]], mesh: Mesh) -> Tracer:
    """A value as contributions: the first rank's, and what changes nothing on the others."""
    op, names = combine
    of = _blocks.accumulation(dtype_of(x._dtype))
    wide = prim.cast(x, of)
    first = one("axis_index", [], {"axes": list(names), "sizes": [mesh.axis_size(a) for a in names]})
    neutral = _blocks.identity(op, numpy_dtype(of))
    return prim.select(prim.ew("eq", first, 0), wide, splat(neutral.item(), x.shape, str(of)))


def _mapped(fn: Callable, mesh: Mesh, in_specs: Any, out_specs: Any, pad: bool, args: tuple, kwargs: dict) -> Any:
    """The program of a rank, as an op of the function that is being traced."""
    leaves, form = pytree.flatten((args, kwargs))
    # Arrays on meshes, as they are beside their placement: bringing them to the placements of the specs changes no value.
    on_mesh = [x for x in leaves if isinstance(x, (DistArray, TracedArray))]
    for x in on_mesh:
        _same_mesh(x, mesh)
    leaves = [x.full() if isinstance(x, (DistArray, TracedArray)) else x for x in leaves]
    specs = spread(in_specs, args, "in_specs", "shard_map") + [None] * len(pytree.leaves(kwargs))
    frame = current()
    assert frame is not None
    padding = _Padding()
    operands, ins, blocks, combines = [], [], [], []
    for leaf, spec in zip(leaves, specs, strict=True):
        if not is_array(leaf):
            continue
        x = as_tracer(leaf)
        splits, combine = _placed(spec, mesh, x.shape, "shard_map")
        x = padding.fill(x, splits, mesh, pad)
        operands.append(x)
        ins.append(_axes_by_dim(splits, x.ndim))
        blocks.append((tuple(d // mesh.axis_size(splits[i][0]) if i in splits else d for i, d in enumerate(x.shape)), *aval(x)[1:]))
        combines.append(combine)
    names = [n for n, leaf in zip(_names(fn, args, kwargs), leaves, strict=True) if is_array(leaf)]
    with tracing(_name(fn)) as inner, rank_of(mesh):
        params = [inner.param(n, *a) for n, a in zip(names, blocks, strict=True)]
        own = iter(_own(p, c, mesh) if c else p for p, c in zip(params, combines, strict=True))
        inner_args, inner_kwargs = pytree.unflatten(form, [next(own) if is_array(v) else v for v in leaves])
        result = fn(*inner_args, **inner_kwargs)
        out, out_form = pytree.flatten(result)
        found = spread(out_specs, result, "out_specs", "shard_map")
        results, outs, out_splits = [], [], []
        for value, spec in zip(out, found, strict=True):
            value = inner.lift(as_tracer(value))
            splits, combine = _placed(spec, mesh, value.shape, "shard_map")
            if combine:
                attrs = {"axes": list(combine[1]), "sizes": [mesh.axis_size(a) for a in combine[1]], "op": combine[0]}
                value = one("all_reduce", [value], attrs)
            results.append(value)
            outs.append(_axes_by_dim(splits, value.ndim))
            out_splits.append(splits)
        weak = [r._weak for r in results]
        inner.finish(results)
    captured = [theirs for theirs, _ in inner.captured]
    operands += captured
    ins += [[[] for _ in c.shape] for c in captured]
    attrs = {"axes": list(mesh.axes), "sizes": list(mesh.shape), "in": ins, "out": outs}
    place = here()
    given = frame.builder.open("manual", [], {"values": [frame.lift(x)._value for x in operands]}, attrs, place)
    try:
        made = frame.builder.inline(inner.program, inner.name, [v for v, _, _ in given], place)
        closed = frame.builder.close([v for v, _, _ in made])
    except BaseException:
        frame.builder.abandon()
        raise
    values = [Tracer(frame, v, s, d, False, place) for v, s, d in closed]
    weakened(values, weak)
    cut = [padding.cut(v, s, list(v.shape)) for v, s in zip(values, out_splits, strict=True)]
    if on_mesh:
        return pytree.unflatten(out_form, [TracedArray(v, mesh, s) for v, s in zip(cut, found, strict=True)])
    return pytree.unflatten(out_form, cut)
