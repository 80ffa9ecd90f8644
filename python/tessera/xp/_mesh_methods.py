"""Python's operators, subscripts and methods on arrays on meshes: the functions of `ts.xp`, as on all arrays."""

from __future__ import annotations

from typing import Any

import numpy

from ..arrays.host import Array
from ..dist._array import DistArray
from ..trace.tracer import _OPERATORS as _UFUNCS, Tracer
from . import _index, _methods
from ._methods import _method, _rounded, _transposed

Array.register(DistArray)


def _binary(fn: Any, swapped: bool = False) -> Any:
    def method(self: DistArray, other: Any) -> Any:
        if other is None or isinstance(other, (str, bytes, list, tuple, dict, set, complex)):
            return NotImplemented
        return fn(other, self) if swapped else fn(self, other)

    return method


for _name, _fn in _methods._OPERATORS.items():
    setattr(DistArray, f"__{_name}__", _binary(_fn))
    setattr(DistArray, f"__r{_name}__", _binary(_fn, swapped=True))
for _name, _fn in _methods._COMPARISONS.items():
    setattr(DistArray, f"__{_name}__", _binary(_fn))
# Compared element by element, so equality is not identity; but arrays are keys by identity, as modules and caches use them.
DistArray.__hash__ = object.__hash__  # type: ignore[method-assign]
for _name in ("__neg__", "__abs__", "__invert__", "__pos__", "__divmod__", "__rdivmod__"):
    setattr(DistArray, _name, getattr(Tracer, _name))
for _name, _fn in (_methods._COMPUTE | _methods._VIEWS).items():
    if not hasattr(DistArray, _name):
        setattr(DistArray, _name, _method(_fn))
for _name in ("T", "mT", "at"):
    setattr(DistArray, _name, vars(Tracer)[_name])
DistArray.transpose = _transposed  # type: ignore[attr-defined]
DistArray.__round__ = _rounded  # type: ignore[attr-defined]
DistArray.__getitem__ = lambda self, index: _index.getitem(self, index)  # type: ignore[attr-defined]
DistArray.tolist = lambda self: self.numpy().tolist()  # type: ignore[attr-defined]
DistArray.item = lambda self: self._number().item()  # type: ignore[attr-defined]
DistArray.__iter__ = Tracer.__iter__  # type: ignore[attr-defined]


def _ufunc(self: DistArray, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's operators on arrays on meshes are ours; its other functions see their values."""
    if method == "__call__" and not options and ufunc.__name__ in _UFUNCS:
        left, right = inputs
        on_left, on_right = _UFUNCS[ufunc.__name__]
        if isinstance(left, DistArray):
            return getattr(left, f"__{on_left}__")(right)
        return getattr(right, f"__{on_right}__")(left)
    return getattr(ufunc, method)(*(numpy.asarray(v) if isinstance(v, DistArray) else v for v in inputs), **options)


DistArray.__array_ufunc__ = _ufunc  # type: ignore[attr-defined]
