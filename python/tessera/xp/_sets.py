"""Functions whose results are as large as values say. They run outside of traced functions only, on NumPy arrays."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy

from .._trace import Tracer, fail, to_numpy

UniqueAll = namedtuple("UniqueAll", "values indices inverse_indices counts")
UniqueCounts = namedtuple("UniqueCounts", "values counts")
UniqueInverse = namedtuple("UniqueInverse", "values inverse_indices")


def _values(x: Any, name: str) -> numpy.ndarray:
    if isinstance(x, Tracer):
        raise fail(
            "E_UNSUPPORTED",
            f"expected `{name}` outside of a traced function: how large its result is depends on the values of its argument",
            "call it on arrays, before `ts.jit`; inside, use `where`, `sort` or a mask, whose shapes are known",
        )
    return to_numpy(x)


def nonzero(x: Any, /) -> tuple:
    """The positions of elements that are not zero, an array for each axis."""
    return numpy.nonzero(_values(x, "nonzero"))


def unique_all(x: Any, /) -> UniqueAll:
    """Each value once, where it stands first, which of them each element is, and how often each stands."""
    x = _values(x, "unique_all")
    values, first, inverse, counts = numpy.unique(x, True, True, True, equal_nan=False)
    return UniqueAll(values, first, inverse.reshape(x.shape), counts)


def unique_counts(x: Any, /) -> UniqueCounts:
    """Each value once, and how often it stands."""
    return UniqueCounts(*numpy.unique(_values(x, "unique_counts"), return_counts=True, equal_nan=False))


def unique_inverse(x: Any, /) -> UniqueInverse:
    """Each value once, and which of them each element is."""
    x = _values(x, "unique_inverse")
    values, inverse = numpy.unique(x, return_inverse=True, equal_nan=False)
    return UniqueInverse(values, inverse.reshape(x.shape))


def unique_values(x: Any, /) -> numpy.ndarray:
    """Each value once."""
    return numpy.unique(_values(x, "unique_values"), equal_nan=False)
