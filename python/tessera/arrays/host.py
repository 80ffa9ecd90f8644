"""Tessera arrays in host memory: NumPy's memory and views, with the operators, methods and promotion of traced values.

`ts.xp`, `ts.nn`, `ts.random` and jitted functions return them, so that a line of Python means the same traced and run
immediately. NumPy takes them without a copy, and its own functions (``numpy.sin(x)``) return NumPy arrays."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

import numpy

from .. import _core
from ..base.caller import here
from ..base.promotion import promote_pair

#: The functions of `ts.xp` behind operators and methods, filled in by `xp._methods`, and `array` by `create`: this module is below them.
functions: dict[str, Callable] = {}


class HostArray(numpy.ndarray):
    """An array in host memory. ``numpy.asarray(x)`` and ``x.numpy()`` share its memory.

    Python's numbers take its dtype, an integer array beside a float array takes the float's, and no f64 comes of anything but
    f64 arrays. ``x += y`` binds ``x`` to a new array, as under `ts.jit`; ``x[i] = y`` writes in place."""

    __slots__ = ()
    #: Whether the array is weak: it takes the dtype of another array, as a Python number does.
    _weak = False

    def numpy(self) -> numpy.ndarray:
        """The same memory as an array of NumPy's."""
        return self.view(numpy.ndarray)

    def __str__(self) -> str:
        return str(self.view(numpy.ndarray))

    def __repr__(self) -> str:
        return numpy.array_repr(self.view(numpy.ndarray)).replace("array(", "Array(", 1)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's operators under their names promote as ours do; all other functions of NumPy's see its own arrays."""
        if any(hasattr(v, "_frame") for v in inputs):
            return NotImplemented  # a traced value, which knows what to do
        name = _UFUNCS.get(ufunc.__name__) if method == "__call__" and not options else None
        if name is not None and all(isinstance(v, (numpy.ndarray, numpy.generic, bool, int, float)) for v in inputs):
            return binary(name, *inputs)
        out = options.pop("out", None)
        if out is not None:
            options["out"] = tuple(plain(v) for v in out)
        made = getattr(ufunc, method)(*(plain(v) for v in inputs), **{k: plain(v) for k, v in options.items()})
        return made if out is None else out[0] if len(out) == 1 else out

    def __array_function__(self, function: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        return function(*plain(args), **plain(kwargs))

    def __getitem__(self, index: Any) -> Any:
        if hasattr(index, "_frame") or type(index) is tuple and any(hasattr(i, "_frame") for i in index):
            return functions["getitem"](self, index)
        made = super().__getitem__(index)
        return made if isinstance(made, numpy.ndarray) else numpy.asarray(made).view(type(self))

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.item(), digits) if self.ndim == 0 else functions["round"](self, digits)

    def to(self, device: Any) -> Any:
        """The elements on a device, such as ``"cuda:0"``."""
        return functions["array"](self, device=device)


class WeakArray(HostArray):
    """A weak array, computed from Python's numbers alone, such as ``xp.sqrt(2.0)``: it takes the dtype of other arrays."""

    __slots__ = ()
    _weak = True


class Array(abc.ABC):
    """Any array of Tessera's, in host memory, on a device, or a value that is being traced: for ``isinstance`` and annotations."""


Array.register(HostArray)
Array.register(_core.Array)

_UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "power": "pow", "floor_divide": "floordiv",
    "remainder": "mod", "matmul": "matmul", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge", "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "left_shift": "lshift",
    "right_shift": "rshift",
}  # fmt: skip
#: Operators for which NumPy gives the same bits as compiled code, once both operands have the promoted dtype.
_EXACT = {
    "add": numpy.add, "sub": numpy.subtract, "mul": numpy.multiply, "truediv": numpy.divide, "and": numpy.bitwise_and,
    "or": numpy.bitwise_or, "xor": numpy.bitwise_xor,
}  # fmt: skip
_COMPARISONS = {
    "eq": numpy.equal, "ne": numpy.not_equal, "lt": numpy.less, "le": numpy.less_equal, "gt": numpy.greater, "ge": numpy.greater_equal,
}  # fmt: skip


def unmasked(x: Any) -> Any:
    """Refuses masked arrays of NumPy's: their masks would be lost, and masked elements computed with."""
    if isinstance(x, numpy.ma.MaskedArray):
        raise _core.error("E_TYPE", "expected an array without a mask, got a masked array",
                          "write `x.filled(0)`, or give `x.data` and `x.mask` as two arrays: `xp.where(mask, 0, data)`", place=here())  # fmt: skip
    return x


def host(x: numpy.ndarray, weak: bool = False) -> HostArray:
    """The memory of an array of NumPy's as an array of ours."""
    return x.view(WeakArray if weak else HostArray)


def ours(x: Any) -> Any:
    """Results of NumPy's as arrays of ours: one, or several in a tuple."""
    if isinstance(x, tuple):
        made = [ours(v) for v in x]
        return type(x)(*made) if hasattr(x, "_fields") else tuple(made)
    return host(x) if isinstance(x, numpy.ndarray) else x


def followed(operation: Callable) -> Callable:
    """An operation that gives arrays of ours where it is given some."""

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = [unmasked(v) for v in (*args, *kwargs.values())]
        made = operation(*args, **kwargs)
        return ours(made) if any(isinstance(v, HostArray) for v in given) else made

    return call


def plain(x: Any) -> Any:
    """Trees of arguments with arrays of NumPy's for ours."""
    if isinstance(x, HostArray):
        return x.view(numpy.ndarray)
    kind = type(x)
    if kind is tuple or kind is list:
        return kind(plain(v) for v in x)
    if kind is dict:
        return {k: plain(v) for k, v in x.items()}
    return x


def binary(name: str, a: Any, b: Any) -> Any:
    """An operator on two arrays or numbers of which one is an array of ours."""
    exact = _EXACT.get(name) or _COMPARISONS.get(name)
    if exact is not None:
        made = _by_numpy(name, exact, a, b)
        if made is not None:
            return made
    return functions[name](a, b)


def _by_numpy(name: str, ufunc: Any, a: Any, b: Any) -> Any:
    kinds = (_kind(a), _kind(b))
    if kinds[0] is None or kinds[1] is None:
        return None
    if kinds[0] == kinds[1]:
        promoted, weak = kinds[0]
    else:
        promoted, weak = promote_pair(*kinds)
    # Weak floats are kept in f32; only inside a trace do they have more digits.
    dtype = _DTYPES["f32" if weak and promoted == "f64" else promoted]
    compares, bitwise = name in _COMPARISONS, name in ("and", "or", "xor")
    if name == "truediv" and dtype.kind != "f":
        dtype = _DTYPES["f32"]
    if dtype.kind == "b" and not (compares or bitwise) or dtype.kind == "f" and bitwise:
        return None  # refused, with our words
    try:
        with numpy.errstate(all="ignore"):
            made = ufunc(_operand(a, dtype), _operand(b, dtype))
    except (OverflowError, TypeError, ValueError):
        return None  # a number that the dtype does not hold, or shapes that do not broadcast: likewise
    return numpy.asarray(made).view(WeakArray if weak and not compares else HostArray)


def _kind(v: Any) -> tuple[str, bool] | None:
    """Dtype and weakness; `None` for what is not computed by NumPy."""
    if isinstance(v, HostArray):
        name = native(v.dtype)
        return None if name is None else (name, v._weak)
    if isinstance(v, (numpy.ndarray, numpy.generic)):
        name = native(unmasked(v).dtype)
        return None if name is None else (name, False)
    return ("bool", True) if isinstance(v, bool) else ("i64", True) if isinstance(v, int) else ("f64", True) if isinstance(v, float) else None


def _operand(v: Any, dtype: numpy.dtype) -> numpy.ndarray:
    if isinstance(v, (numpy.ndarray, numpy.generic)):
        v = numpy.asarray(v)
        return v if v.dtype is dtype else v.astype(dtype, copy=False)
    return numpy.array(v, dtype)


def native(dtype: numpy.dtype) -> str | None:
    """Our name of a dtype whose arithmetic NumPy does as the compiled code does, bit by bit; those of `ml_dtypes` promote in their
    own way. (A dtype's number is at hand, its hash is not.)"""
    return _NAMES.get(dtype.num) if dtype.isnative else None


_DTYPES = {
    name: numpy.dtype(code)
    for name, code in {
        "bool": "?", "i8": "i1", "i16": "i2", "i32": "i4", "i64": "i8", "u8": "u1", "u16": "u2", "u32": "u4", "u64": "u8",
        "f16": "f2", "f32": "f4", "f64": "f8",
    }.items()
}  # fmt: skip
_NAMES = {dtype.num: name for name, dtype in _DTYPES.items()} | {
    numpy.dtype(c).num: f"{'u' if c.isupper() else 'i'}{8 * numpy.dtype(c).itemsize}" for c in "bhilqBHILQ"
}
