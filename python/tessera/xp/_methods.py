"""Operators and methods of traced values and of arrays: the same names mean the same, traced and run immediately."""

from __future__ import annotations

from typing import Any

import numpy

from .. import _core, runtime
from ..arrays import host as _host
from ..arrays.create import array as _made
from ..arrays.host import HostArray
from ..dist._array import DistArray
from ..trace.dims import Dim
from ..trace.tracer import _OPERATORS as _UFUNCS, Tracer, as_tracer, fail, functions as _traced_functions, is_array
from . import _calculus, _creation, _diagonals, _elementwise as e, _index, _joins, _linalg, _manipulate as m, _numbers, _reduce as r, _sets, _statistics
from ._arguments import _leaves


def _beside(x: Any, other: Any, written: str) -> Any:
    """What an operator of a traced value gives beside something that is no array: an error for what has no operators of its own."""
    if not isinstance(x, Tracer) or not isinstance(other, (type(None), str, bytes, list, tuple, dict, set, complex)):
        return NotImplemented
    if other is None and written in ("==", "!="):
        is_it = "x is None" if written == "==" else "x is not None"
        help = f"write `{is_it}`: whether a value is there is known while tracing"
    elif isinstance(other, (list, tuple)):
        help = "make it an array: `xp.asarray(values)`"
    elif isinstance(other, complex):
        help = "complex numbers are not supported: keep the real and the imaginary part in two arrays"
    else:
        help = "give an array or a number"
    raise fail("E_TYPE", f"expected an array or a number beside `{written}`, got {'None' if other is None else type(other).__name__}", help)


def _binary(fn: Any, swapped: bool = False, written: str = "") -> Any:
    def method(self: Tracer, other: Any) -> Any:
        if not is_array(other):
            return _beside(self, other, written)
        return fn(other, self) if swapped else fn(self, other)

    return method


_WRITTEN = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "and": "&", "or": "|",
    "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_OPERATORS = {
    "add": e.add, "sub": e.subtract, "mul": e.multiply, "truediv": e.divide, "floordiv": e.floor_divide, "mod": e.remainder,
    "pow": e.pow, "matmul": _linalg.matmul, "and": e.bitwise_and, "or": e.bitwise_or, "xor": e.bitwise_xor,
    "lshift": e.bitwise_left_shift, "rshift": e.bitwise_right_shift,
}  # fmt: skip
_COMPARISONS = {
    "eq": e.equal, "ne": e.not_equal, "lt": e.less, "le": e.less_equal, "gt": e.greater, "ge": e.greater_equal,
}  # fmt: skip
for _name, _fn in _OPERATORS.items():
    for _kind in (Tracer, _core.Array):
        setattr(_kind, f"__{_name}__", _binary(_fn, written=_WRITTEN[_name]))
        setattr(_kind, f"__r{_name}__", _binary(_fn, swapped=True, written=_WRITTEN[_name]))
for _name, _fn in _COMPARISONS.items():
    for _kind in (Tracer, _core.Array):
        setattr(_kind, f"__{_name}__", _binary(_fn, written=_WRITTEN[_name]))
_host.functions.update(_OPERATORS | _COMPARISONS | {"getitem": _index.getitem})


def _immediate(name: str, swapped: bool = False) -> Any:
    """An operator of arrays in host memory."""

    def method(self: HostArray, other: Any) -> Any:
        if isinstance(other, Tracer) or isinstance(other, _core.Array):
            return NotImplemented
        if isinstance(other, (list, tuple)):
            other = _host.host(_made(other))
        elif not is_array(other):
            return NotImplemented
        return _host.binary(name, other, self) if swapped else _host.binary(name, self, other)

    return method


for _name in _OPERATORS:
    setattr(HostArray, f"__{_name}__", _immediate(_name))
    setattr(HostArray, f"__r{_name}__", _immediate(_name, swapped=True))
    # A new array, as under jit: others that share the memory keep what they see.
    setattr(HostArray, f"__i{_name}__", _immediate(_name))
for _name in _COMPARISONS:
    setattr(HostArray, f"__{_name}__", _immediate(_name))
HostArray.__hash__ = None  # type: ignore[assignment]
for _name, _fn in {"neg": e.negative, "abs": e.abs, "invert": e.bitwise_invert, "pos": e.positive}.items():
    for _kind in (Tracer, HostArray, _core.Array):
        setattr(_kind, f"__{_name}__", (lambda fn: lambda self: fn(self))(_fn))
for _kind in (Tracer, HostArray, _core.Array):
    _kind.__divmod__ = lambda self, other: _numbers.divmod(self, other)  # type: ignore[attr-defined,union-attr]
    _kind.__rdivmod__ = lambda self, other: _numbers.divmod(other, self)  # type: ignore[attr-defined,union-attr]
for _kind in (Tracer, _core.Array):
    _kind.real = property(lambda self: self, doc="The array: there are no complex numbers.")  # type: ignore[attr-defined,union-attr]
    _kind.conj = _kind.conjugate = lambda self: self  # type: ignore[attr-defined,union-attr]
Tracer.view = lambda self, dtype: _numbers.view(self, dtype)  # type: ignore[attr-defined]
Tracer.itemsize = property(lambda self: self.dtype.itemsize)  # type: ignore[attr-defined]
Tracer.nbytes = property(lambda self: self.size * self.dtype.itemsize)  # type: ignore[attr-defined]


def _rounded(self: Any, digits: int | None = None) -> Any:
    """As Python rounds: to integers, unless digits are given."""
    return m.astype(_numbers.around(self), "i64") if digits is None else _numbers.around(self, digits)


Tracer.__round__ = _rounded  # type: ignore[attr-defined]
_host.functions["round"] = _rounded
_traced_functions["stack"] = m.stack
Tracer.__getitem__ = lambda self, index: _index.getitem(self, index)  # type: ignore[attr-defined]
_view_of = _core.Array.__getitem__


def _device_item(self: Any, index: Any) -> Any:
    """A part of an array of a device: a view where it is named by numbers and slices, elements at positions otherwise."""
    for one in index if isinstance(index, tuple) else (index,):
        if isinstance(one, (list, bool)) or (is_array(one) and getattr(one, "ndim", 0) > 0):
            return _index.getitem(self, index)
    return _view_of(self, index)


_core.Array.__getitem__ = _device_item  # type: ignore[method-assign,assignment]


def _device_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's operators with a number or an array on the left are ours; its functions would copy to the host, and are refused."""
    if method == "__call__" and not options and ufunc.__name__ in _UFUNCS and not isinstance(inputs[0], _core.Array):
        return getattr(inputs[1], f"__{_UFUNCS[ufunc.__name__][1]}__")(inputs[0])
    return self.__array__()


_core.Array.__array_ufunc__ = _device_ufunc  # type: ignore[attr-defined]


def _variadic(fn: Any) -> Any:
    def method(self: Tracer, *shape: Any, **more: Any) -> Any:
        return fn(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, Dim)) else shape, **more)

    return method


def _transposed(self: Tracer, *axes: Any) -> Any:
    if not axes:
        return m.permute_dims(self)
    return m.permute_dims(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)


#: Methods that compute; arrays in host memory have NumPy's own for those that only give another view.
_COMPUTE = {
    "astype": m.astype, "sum": r.sum, "mean": r.mean, "max": r.max, "min": r.min, "prod": r.prod, "var": r.var, "std": r.std,
    "argmax": r.argmax, "argmin": r.argmin, "all": r.all, "any": r.any, "take": _index.take, "clip": e.clip, "round": _numbers.around,
    "cumsum": r.cumsum, "cumprod": r.cumprod, "dot": _calculus.dot, "sort": r.sort, "argsort": r.argsort,
    "repeat": m.repeat, "diagonal": _diagonals.diagonal, "trace": _diagonals.trace, "nonzero": _sets.nonzero,
    "searchsorted": r.searchsorted, "ptp": _statistics.ptp,
}  # fmt: skip
_VIEWS = {
    "reshape": _variadic(m.reshape), "transpose": _transposed, "swapaxes": m.swapaxes, "squeeze": m.squeeze,
    "flatten": _joins.ravel, "ravel": _joins.ravel, "copy": lambda self: self,
}  # fmt: skip


def _method(fn: Any) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return fn(self, *args, **kwargs)

    method.__doc__ = fn.__doc__
    return method


for _name, _fn in (_COMPUTE | _VIEWS).items():
    setattr(Tracer, _name, _method(_fn))
for _name, _fn in _COMPUTE.items():
    for _kind in (HostArray, _core.Array):
        setattr(_kind, _name, _method(_fn))
# Arrays of a device have views of their own for the rest.
for _name in ("swapaxes", "squeeze", "flatten", "ravel"):
    setattr(_core.Array, _name, _method(_VIEWS[_name]))
_core.Array.item = lambda self, *at: self.numpy().item(*at)  # type: ignore[attr-defined]
_core.Array.tolist = lambda self: self.numpy().tolist()  # type: ignore[attr-defined]


def _selects(name: str) -> Any:
    """A reduction that gives elements, positions or truth: NumPy gives the same in a moment."""
    whole, base = getattr(HostArray, name), getattr(numpy.ndarray, name)

    def method(self: HostArray, *args: Any, **kwargs: Any) -> Any:
        if self.size == 0 or _host.native(self.dtype) is None:
            return whole(self, *args, **kwargs)
        return numpy.asarray(base(self.view(numpy.ndarray), *args, **kwargs)).view(type(self) if name in ("max", "min") else HostArray)

    method.__doc__ = whole.__doc__
    return method


for _name in ("max", "min", "argmax", "argmin", "all", "any"):
    setattr(HostArray, _name, _selects(_name))
Tracer.T = property(lambda self: m.permute_dims(self))  # type: ignore[attr-defined]
for _kind in (Tracer, _core.Array):
    _kind.mT = property(lambda self: _linalg.matrix_transpose(self))  # type: ignore[attr-defined,union-attr]
for _kind in (Tracer, HostArray, _core.Array):
    _kind.at = property(lambda self: _index.at(self))  # type: ignore[attr-defined,union-attr]


def give_namespace(module: Any) -> None:
    """Makes ``module``, which is `tessera.xp`, the namespace of all arrays."""

    def namespace(self: Any, *, api_version: Any = None) -> Any:
        return module

    for kind in (Tracer, HostArray, _core.Array, DistArray):
        kind.__array_namespace__ = namespace  # type: ignore[attr-defined,union-attr]


def _item(self: Tracer, *_: Any) -> Any:
    raise self._concrete("an item", "return the value from the traced function and convert the result")


Tracer.item = Tracer.tolist = Tracer.numpy = _item  # type: ignore[attr-defined]


def _ready(self: Any) -> Any:
    """The array, once it is computed: calls on the CPU return when they are done, work of a device is waited for."""
    if isinstance(self, _core.Array):
        runtime.synchronize()
    return self


for _kind in (Tracer, HostArray, _core.Array):
    _kind.block_until_ready = _ready  # type: ignore[attr-defined,union-attr]


def _as_dtype(self: _core.DType, x: Any) -> Any:
    """The value as an array of this dtype: ``xp.float32(0.5)`` is ``xp.asarray(0.5, dtype=xp.float32)``."""
    if isinstance(x, (list, tuple)) and any(isinstance(v, Tracer) for v in _leaves(x)):
        x = as_tracer(x)
    # What is known while tracing stays known: it may be an extent or a number of steps.
    return _creation.asarray(x, self) if isinstance(x, Tracer) else _host.host(_made(x, self))


_core.DType.__call__ = _as_dtype  # type: ignore[method-assign]
