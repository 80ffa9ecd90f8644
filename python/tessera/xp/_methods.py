"""Operators and methods of traced values."""

from __future__ import annotations

from typing import Any

from . import _elementwise as e, _index, _linalg, _manipulate as m, _reduce as r
from .._dims import Dim
from .._operands import beside
from .._trace import Tracer, is_array


def _binary(fn: Any, swapped: bool = False, written: str = "") -> Any:
    def method(self: Tracer, other: Any) -> Any:
        if not is_array(other):
            return beside(self, other, written)
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
for _name, _fn in _OPERATORS.items():
    setattr(Tracer, f"__{_name}__", _binary(_fn, written=_WRITTEN[_name]))
    setattr(Tracer, f"__r{_name}__", _binary(_fn, swapped=True, written=_WRITTEN[_name]))
for _name, _fn in {
    "eq": e.equal, "ne": e.not_equal, "lt": e.less, "le": e.less_equal, "gt": e.greater, "ge": e.greater_equal,
}.items():  # fmt: skip
    setattr(Tracer, f"__{_name}__", _binary(_fn, written=_WRITTEN[_name]))
for _name, _fn in {"neg": e.negative, "abs": e.abs, "invert": e.bitwise_invert, "pos": e.positive}.items():
    setattr(Tracer, f"__{_name}__", (lambda fn: lambda self: fn(self))(_fn))
Tracer.__getitem__ = lambda self, index: _index.getitem(self, index)  # type: ignore[attr-defined]


def _variadic(fn: Any) -> Any:
    def method(self: Tracer, *shape: Any) -> Any:
        return fn(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], (int, Dim)) else shape)

    return method


def _transposed(self: Tracer, *axes: Any) -> Any:
    if not axes:
        return m.permute_dims(self)
    return m.permute_dims(self, axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)


for _name, _method in {
    "reshape": _variadic(m.reshape), "transpose": _transposed, "astype": m.astype, "swapaxes": m.swapaxes,
    "squeeze": m.squeeze, "sum": r.sum, "mean": r.mean, "max": r.max, "min": r.min, "prod": r.prod, "var": r.var,
    "std": r.std, "argmax": r.argmax, "argmin": r.argmin, "all": r.all, "any": r.any, "take": _index.take,
    "clip": e.clip, "round": e.round, "cumsum": r.cumulative_sum, "cumprod": r.cumulative_prod,
    "flatten": lambda self: m.reshape(self, [-1]), "ravel": lambda self: m.reshape(self, [-1]),
    "copy": lambda self: self,
}.items():  # fmt: skip
    setattr(Tracer, _name, (lambda fn: lambda self, *a, **k: fn(self, *a, **k))(_method))
Tracer.T = property(lambda self: m.permute_dims(self))  # type: ignore[attr-defined]
Tracer.mT = property(lambda self: _linalg.matrix_transpose(self))  # type: ignore[attr-defined]
Tracer.at = property(lambda self: _index.at(self))  # type: ignore[attr-defined]


def _namespace(self: Tracer, api_version: Any = None) -> Any:
    from .. import xp

    return xp


Tracer.__array_namespace__ = _namespace  # type: ignore[attr-defined]


def _item(self: Tracer, *_: Any) -> Any:
    raise self._concrete("an item", "return the value from the traced function and convert the result")


Tracer.item = Tracer.tolist = Tracer.numpy = _item  # type: ignore[attr-defined]
