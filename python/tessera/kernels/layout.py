"""Views of arrays of any rank and strides as the shapes that kernels take, without a copy.

A row kernel takes ``[P, M, N]``: it works along ``N``, on several of ``M`` rows at a time, for each of ``P``. A column kernel
takes ``[P, N, B]``: it works along ``N`` too, with ``B`` contiguous in memory. Axes that can be merged in all arrays of a call
become one. Where more axes are left than a view has, `Layout.launches` gives several views, one launch each; that happens for
arrays of rank 4 or more with gaps along several axes.

Everything here is arithmetic on shapes and strides, and cached.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Any, Sequence

from . import arrays

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """A view of an array: its axes in another order, and merged."""

    #: The axes of the array, outermost first.
    order: Shape
    #: The merged shape. Its last ``rank`` axes are what a kernel takes; each position of the others is a launch.
    shape: Shape
    #: How many axes a kernel takes.
    rank: int
    #: The axis of the array that is worked along, and which of ``shape`` it is, from the end.
    worked: int | None = None
    place: int = 0

    def view(self, x: Any) -> Any:
        return arrays.permuted(x, self.order).reshape(self.shape)

    def view_without(self, x: Any) -> Any:
        """The same view of an array that lacks the axis worked along."""
        order = [a - (a > self.worked) for a in self.order if a != self.worked]
        at = len(self.shape) + self.place
        return arrays.permuted(x, order).reshape(self.shape[:at] + self.shape[at + 1 :])

    @property
    def sizes(self) -> Shape:
        """The shape that a kernel sees."""
        return self.shape[len(self.shape) - self.rank :]

    @property
    def columns(self) -> bool:
        """Whether it is a view for a kernel of columns."""
        return self.place == -2

    @functools.cached_property
    def launches(self) -> list[Shape]:
        """The index of the view for each launch: usually one, the empty index."""
        return list(itertools.product(*map(range, self.shape[: len(self.shape) - self.rank])))


def strides_with(x: Any, axis: int) -> Shape:
    """The strides of an array that lacks an axis, as if it were broadcast along it."""
    strides = arrays.strides(x)
    return (*strides[:axis], 0, *strides[axis:])


def _far(stride: int) -> float:
    """The distance of neighbours in memory. A broadcast axis (stride 0) counts as farthest: nothing is contiguous along it."""
    return abs(stride) or math.inf


def _merged(axes: Sequence[int], shape: Shape, strides: Sequence[Shape]) -> list[list[int]]:
    """Axes, outermost first, in runs that can be merged into one axis in every array."""
    groups: list[list[int]] = []
    for a in axes:
        if groups and all(s[groups[-1][-1]] == s[a] * shape[a] for s in strides):
            groups[-1].append(a)
        else:
            groups.append([a])
    return groups


def _split(shape: Shape, strides: Sequence[Shape], but: int | None = None) -> tuple[list[int], list[int]]:
    """The axes of one element, and the others sorted by the strides of the first array, outermost first."""
    ones = [a for a in range(len(shape)) if shape[a] == 1 and a != but]
    rest = [a for a in range(len(shape)) if shape[a] != 1 and a != but]
    return ones, sorted(rest, key=lambda a: -_far(strides[0][a]))


@functools.lru_cache(maxsize=4096)
def along(shape: Shape, strides: tuple[Shape, ...], axis: int, columns: bool = True) -> Layout:
    """The view for a kernel that works along an axis of arrays with this shape and these strides.

    It is a column view where another axis of the first array has a smaller stride, and ``columns`` allows it.
    """
    ones, rest = _split(shape, strides, axis)
    groups = _merged(rest, shape, strides)

    def size(group: list[int]) -> int:
        return math.prod(shape[a] for a in group)

    inner: list[int] = []
    if columns and groups and shape[axis] > 1 and _far(strides[0][groups[-1][-1]]) < _far(strides[0][axis]):
        inner = groups.pop()
    # The largest axis comes last: a kernel takes several rows of it at a time.
    groups.sort(key=size)
    order = (*ones, *itertools.chain(*groups), axis, *inner)
    tail = [shape[axis], size(inner)] if inner else [shape[axis]]
    lead = [1] * (3 - len(tail) - len(groups)) + [size(g) for g in groups]
    return Layout(order, (*lead, *tail), 3, axis, -len(tail))


@functools.lru_cache(maxsize=4096)
def pointwise(shape: Shape, strides: tuple[Shape, ...]) -> Layout:
    """The view for an elementwise kernel: as few axes as possible, at least one, in the memory order of the first array."""
    ones, rest = _split(shape, strides)
    groups = _merged(rest, shape, strides)
    sizes = tuple(math.prod(shape[a] for a in g) for g in groups) or (1,)
    return Layout((*ones, *itertools.chain(*groups)), sizes, len(sizes))


@functools.lru_cache(maxsize=4096)
def four(shape: Shape, strides: Shape) -> tuple[bool, Layout]:
    """The view ``[P, Q, M, N]`` of a merged array with several axes, for a kernel on tiles ``[M, N]``. ``N`` is the last axis;
    ``M`` is the axis along which the other array, with these strides, is closest in memory, or the largest axis where that is
    ``N`` too. The first result says whether the two differ. Each position of the axes left over is a launch."""
    last = len(shape) - 1
    near = min(range(last, -1, -1), key=lambda a: _far(strides[a]))
    others = sorted((a for a in range(last) if a != near), key=lambda a: shape[a])
    row = near if near != last else others.pop()
    order = (*others, row, last)
    return near != last, Layout(order, (*([1] * (2 - len(others))), *(shape[a] for a in order)), 4)


@functools.lru_cache(maxsize=4096)
def reduction(shape: Shape, strides: Shape, axes: frozenset[int]) -> tuple[Shape, Shape, tuple[bool, ...]]:
    """The axes of an array in the order of memory, their sizes when runs of reduced and of kept axes are merged, and which
    of those are reduced. There is always one."""
    ones, rest = _split(shape, (strides,))
    runs = [list(run) for _, run in itertools.groupby(rest, key=lambda a: a in axes)]
    groups = [group for run in runs for group in _merged(run, shape, (strides,))]
    sizes = [math.prod(shape[a] for a in g) for g in groups]
    reduced = [g[0] in axes for g in groups]
    if not any(reduced):
        sizes, reduced = [*sizes, 1], [*reduced, True]
    return (*ones, *itertools.chain(*groups)), tuple(sizes), tuple(reduced)
