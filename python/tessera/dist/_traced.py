"""Arrays on meshes in functions that are being traced: arguments and results of `ts.jit` and of transforms."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

from ..base.caller import fail
from ..base.dtypes import DType
from ..trace.tracer import Gathered, Tracer, to_numpy
from ..tree import pytree
from . import _array
from ._array import DistArray, shard
from ._mesh import Mesh
from ._ranks import numbered, spec_of
from ._spec import ShardSpec, as_spec


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


class TracedArray:
    """An array on a mesh in a function that is being traced: it has a shape, a dtype and a placement, and no elements."""

    def __init__(self, value: Tracer, mesh: Mesh, spec: Any, requires_grad: bool = True) -> None:
        #: The mesh it is on.
        self.mesh = mesh
        #: Its placement.
        self.spec = as_spec(spec, value.ndim)
        self.requires_grad = requires_grad
        self._value = value

    @property
    def shape(self) -> tuple:
        """The extents of the whole array."""
        return self._value.shape

    @property
    def dtype(self) -> DType:
        """The dtype of the value."""
        return self._value.dtype

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return self._value.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def placements(self) -> tuple[str, ...]:
        """One word for each axis of the mesh: ``("S(0)", "R", "P(sum)")``."""
        return tuple(self.spec.placements(self.mesh, self.ndim))

    def reshard(self, spec: Any) -> TracedArray:
        """The same value in another placement."""
        wanted = as_spec(spec, self.ndim)
        numbered(wanted, self.mesh, [d if isinstance(d, int) else 1 for d in self.shape])
        return TracedArray(self._value, self.mesh, wanted, self.requires_grad)

    def full(self) -> Tracer:
        """The whole value, as a traced value without a placement."""
        return self._value

    def numpy(self) -> Any:
        raise fail("E_TYPE", f"expected elements of an array, got {self!r} while tracing", "`x.full()` is its whole value; or return it and convert the result")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def _no_operand(self) -> Exception:
        return _array.no_operand(self)

    def __getitem__(self, index: Any) -> Any:
        raise self._no_operand()

    def __bool__(self) -> bool:
        raise fail("E_TYPE", f"expected a value that is known while tracing, got {self!r} where Python needs a bool", "use `ts.cond` on `x.full()`")

    def __repr__(self) -> str:
        return f"TracedArray([{', '.join(map(str, self.shape))}], {self.dtype}, {self.spec!r} on {self.mesh!r})"


_array.refuse_operators(TracedArray)


def _into(x: DistArray | TracedArray) -> tuple[Any, Placement]:
    array = x._value if isinstance(x, TracedArray) else Gathered(x)
    return array, Placement(x.mesh, x.spec, x.ndim, x.requires_grad)


def _back(known: Placement, array: Any) -> Any:
    """The array that a value stands for. One of another rank than the placement (a row of a Jacobian) is in copies."""
    if not isinstance(array, Tracer) and not hasattr(array, "shape"):
        return array
    spec = known.spec if len(array.shape) == known.ndim else ShardSpec()
    if isinstance(array, Tracer):
        return TracedArray(array, known.mesh, spec, known.requires_grad)
    made = shard(to_numpy(array), spec, known.mesh)
    made.requires_grad = known.requires_grad
    return made


pytree.open_in_calls((DistArray, TracedArray), "DistArray", _into, _back)
