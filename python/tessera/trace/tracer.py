"""Tracing: a function is called with tracers, and what it does to them becomes Graph IR.

A `Frame` is a function that is being traced. Frames are stacked: the gradient of a function is taken by tracing it in a frame of
its own, and the values that it captures from enclosing frames become parameters. Captured arrays become inputs of the outermost
function, with the contents they had when the function was traced."""

from __future__ import annotations

import functools
import math
import operator
import threading
from contextlib import contextmanager
from typing import Any

import numpy

from .. import _core
from ..arrays.create import narrowed, numpy_dtype
from ..arrays.host import Array, HostArray, native, unmasked
from ..base.caller import fail, here
from ..base.dtypes import DType, dtype as as_dtype
from ..base.promotion import Weak, kind
from .dims import Dim, Sizes
from .operands import check_fits

_NUMBERS = (bool, int, float, numpy.generic)
#: Constants of more elements than this are inputs, not text in the module.
_MOST_TEXT = 16


class _Stack(threading.local):
    def __init__(self) -> None:
        self.frames: list[Frame] = []


#: Those of this thread, the innermost last.
frames = _Stack()


class Frame:
    """A function that is being traced."""

    def __init__(self, name: str, program: Any, parent: Frame | None, sizes: Sizes | None = None) -> None:
        # The functions around this one are not in the program yet.
        taken = {f.name for f in frames.frames if f.program is program}
        self.name, number = program.fresh(name), 0
        while self.name in taken:
            number += 1
            self.name = program.fresh(f"{name}_{number}")
        self.program = program
        self.parent = parent
        #: The extents that the trace leaves open: one for all frames of it.
        self.sizes: Sizes = sizes if sizes is not None else parent.sizes if parent is not None else Sizes()
        self.builder = _core.GraphBuilder(self.name)
        self.open = True
        #: Values captured from the parent: (theirs, ours), in the order of the parameters.
        self.captured: list[tuple[Tracer, Tracer]] = []
        #: Arrays that became inputs: only in the outermost frame.
        self.arrays: list[tuple[Any, Tracer]] = []
        #: Kernels that are called: only in the outermost frame.
        self.kernels: dict[str, Any] = {}
        #: The composites by the names of their decompositions: only in the outermost frame.
        self.composites: dict[str, Any] = {}
        #: Where the kernel of a composite is traced: the machine that it is for, None for the host.
        self.target: str | None = None
        #: The captures of the kernels and functions that are called: only in the outermost frame.
        self.watches: dict[int, Any] = {}
        #: Traces shared by several calls; notes on the choices that were made: only in the outermost frame.
        self.shared: dict[Any, Any] = {}
        self.notes: list[str] = []
        #: The mesh of its arrays, where they are on one: only in the outermost frame.
        self.mesh: Any = None
        #: Values that a kernel overwrote: by which, and where.
        self.consumed: dict[int, tuple[str, Any]] = {}
        self._seen: dict[int, Tracer] = {}
        self._names: dict[str, int] = {}

    def param(self, name: str, shape: tuple, dtype: str, weak: bool = False) -> Tracer:
        clean = "".join(c if c.isalnum() and c.isascii() or c == "_" else "_" for c in name).strip("_") or "x"
        if clean[0].isdigit():
            clean = "x" + clean
        used = self._names[clean] = self._names.get(clean, -1) + 1
        value = self.builder.param(f"{clean}_{used}" if used else clean, (list(shape), dtype))
        return Tracer(self, value, shape, dtype, weak)

    def lift(self, x: Tracer) -> Tracer:
        """The tracer as a value of this frame."""
        if x._frame is self:
            return x
        known = self._seen.get(id(x))
        if known is not None:
            return known
        if self.parent is None or not x._frame.open:
            raise leaked(x)
        theirs = self.parent.lift(x)
        known = self._seen.get(id(theirs))
        if known is None:
            known = self.param("outer", theirs.shape, str(theirs._dtype), theirs._weak)
            self.captured.append((theirs, known))
            self._seen[id(theirs)] = known
        self._seen[id(x)] = known
        return known

    def array(self, x: numpy.ndarray) -> Tracer:
        """An array as an input of the outermost function."""
        if self.parent is not None:
            return self.lift(self.parent.array(x))
        for held, tracer in self.arrays:
            if held[0] is x or _same_memory(held[0], x):
                return tracer
        tracer = self.param("array", x.shape, str(as_dtype(x.dtype)))
        self.arrays.append(((x, numpy.array(x)), tracer))
        return tracer

    def finish(self, results: list[Tracer]) -> None:
        results = [self.lift(r) for r in results]
        self.builder.finish(self.program, [r._value for r in results], here())
        self.open = False


def _same_memory(a: numpy.ndarray, b: numpy.ndarray) -> bool:
    """Whether two views show the same elements: arrays of ours are a new view of NumPy's each time they are used."""
    return a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides and a.ctypes.data == b.ctypes.data


def leaked(x: Tracer) -> Exception:
    made = x._place
    where = f"; it was made at {made!r}" if made is not None else ""
    return fail(
        "E_GRAPH_INVALID",
        f"expected a value of the function that is being traced, got one of `{x._frame.name}`, whose trace is over{where}",
        "a traced value must not be kept in a global, an attribute or a list outside the function: return it instead",
    )


def outermost() -> Frame | None:
    """The outermost function that is being traced."""
    frame = current()
    while frame is not None and frame.parent is not None:
        frame = frame.parent
    return frame


def rests_on(watch: Any) -> None:
    """Records that the trace depends on these captured values."""
    frame = outermost()
    if frame is not None and len(watch):
        frame.watches[id(watch)] = watch


def current() -> Frame | None:
    """The innermost function that is being traced."""
    return frames.frames[-1] if frames.frames else None


@contextmanager
def tracing(name: str, program: Any = None, sizes: Sizes | None = None):
    """A frame for what is traced inside it: nested in the current one unless a program is given."""
    parent = current() if program is None else None
    if parent is None and program is None:
        program = _core.Program(name)
    frame = Frame(name, program if program is not None else parent.program, parent, sizes)  # type: ignore[union-attr]
    frames.frames.append(frame)
    _core.trace_opened()
    try:
        yield frame
    finally:
        _core.trace_closed()
        frames.frames.pop()
        frame.open = False


#: The operators behind NumPy's functions, with a traced value on the left and on the right.
#: Functions of `ts.xp` that tracers need, filled in by `xp._methods`: this module is below them.
functions: dict[str, Any] = {}
_OPERATORS = {
    "add": ("add", "radd"), "subtract": ("sub", "rsub"), "multiply": ("mul", "rmul"), "divide": ("truediv", "rtruediv"),
    "power": ("pow", "rpow"), "floor_divide": ("floordiv", "rfloordiv"), "remainder": ("mod", "rmod"), "matmul": ("matmul", "rmatmul"),
    "equal": ("eq", "eq"), "not_equal": ("ne", "ne"), "less": ("lt", "gt"), "less_equal": ("le", "ge"), "greater": ("gt", "lt"),
    "greater_equal": ("ge", "le"), "bitwise_and": ("and", "rand"), "bitwise_or": ("or", "ror"), "bitwise_xor": ("xor", "rxor"),
    "left_shift": ("lshift", "rlshift"), "right_shift": ("rshift", "rrshift"),
}  # fmt: skip


class Tracer:
    """An abstract value of a traced function: it has a shape and a dtype, and no elements."""

    __slots__ = ("_frame", "_value", "shape", "_dtype", "_place", "__weakref__")
    __array_priority__ = 1000

    def __init__(self, frame: Frame, value: int, shape: tuple, dtype: str, weak: bool = False, place: Any = None) -> None:
        self._frame, self._value = frame, value
        # Graph IR gives open extents as text.
        self.shape = tuple(frame.sizes.dim(d) if type(d) is str else d for d in shape)
        self._dtype = Weak(dtype) if weak else str(dtype)
        self._place = place if place is not None else here()

    @property
    def _weak(self) -> bool:
        return type(self._dtype) is Weak

    @property
    def dtype(self) -> DType:
        # A weak float has all digits of Python's until it is promoted with an array, and is f32 without one.
        return as_dtype("f32" if self._weak and self._dtype == "f64" else self._dtype)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def device(self) -> str:
        return "traced"

    def __repr__(self) -> str:
        return f"Tracer<[{', '.join(map(str, self.shape))}], {self._dtype}>"

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a value without axes has no length")
        return self.shape[0]

    def __iter__(self):
        if not self.shape:
            raise TypeError("a value without axes is not iterable")
        return (self[i] for i in range(self.shape[0]))

    def _concrete(self, what: str, help: str) -> Exception:
        return fail("E_TYPE", f"expected a value that is known while tracing, got {self!r} where Python needs {what}", help)

    def __bool__(self) -> bool:
        raise self._concrete("a bool", "use `ts.where` or `ts.cond`; under jit, mark arguments that decide with static_argnums")

    def __int__(self) -> int:
        raise self._concrete("an int", "mark the argument with static_argnums, or compute with the traced value")

    __index__ = __int__

    def __float__(self) -> float:
        raise self._concrete("a float", "for `math.sin(x)` write `ts.xp.sin(x)`; to get a number, return the value from the traced function and convert the result")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise self._concrete("a NumPy array", "use the functions of `tessera.xp`, or return the value and convert the result")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's operators on arrays and traced values are traced; its other functions, and writes into its arrays, are refused."""
        if options.get("out") is not None:
            raise fail(
                "E_UNSUPPORTED",
                "expected no traced value to be written into a NumPy array: under jit a function has no side effects on arrays",
                "return the value, and add it to the array outside the traced function",
            )
        if method == "__call__" and not options and ufunc.__name__ in _OPERATORS:
            left, right = inputs
            on_left, on_right = _OPERATORS[ufunc.__name__]
            if isinstance(left, Tracer):
                return getattr(left, f"__{on_left}__")(right)
            return getattr(right, f"__{on_right}__")(left)
        raise self._by_numpy(ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}")

    def __array_function__(self, function: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        """NumPy functions on what is known while tracing, such as shapes, work."""
        name = function.__name__
        if name in ("ndim", "shape", "size") and len(args) == 1 and not kwargs:
            return getattr(args[0], name)
        raise self._by_numpy(name)

    def _by_numpy(self, name: str) -> Exception:
        ours = f"use `xp.{name}` of `tessera.xp`" if hasattr(Tracer.__array_namespace__(self), name) else "use the functions of `tessera.xp`"
        return self._concrete(f"an array of NumPy's, for `numpy.{name}`", f"{ours}, or return the value and convert the result")

    def __setitem__(self, index: Any, value: Any) -> None:
        raise fail(
            "E_UNSUPPORTED",
            "expected no assignment into a traced value: under jit a function has no side effects on arrays",
            "write `x = x.at[index].set(value)`",
        )

    def __hash__(self) -> int:
        raise self._concrete("a hash, as the key of a dict, in a set or for a cache",
                             "use a name or a number as the key, and the traced value as what is stored under it")  # fmt: skip

    def __format__(self, how: str) -> str:
        if how:
            raise self._concrete(f"text, for `{how}`", 'print it where it runs: `ts.debug.print("{x:.3f}", x=x)`')
        return repr(self)


Array.register(Tracer)


def emit(op: str, operands: list[Tracer], attrs: dict | None = None, *, groups: dict | None = None,
         results: list | None = None, weak: bool | None = None) -> list[Tracer]:  # fmt: skip
    """Adds an op to the current function. By default a result is weak if all operands are weak and have its dtype."""
    frame = current()
    if frame is None:
        x = next((t for t in [*operands, *(v for g in (groups or {}).values() for v in g)]), None)
        raise leaked(x) if x is not None else fail("E_ARGUMENT", "expected a function that is being traced", "call it inside a function under `ts.jit`")
    ids = [frame.lift(x)._value for x in operands]
    lists = {k: [frame.lift(x)._value for x in v] for k, v in groups.items()} if groups else None
    place = here()
    if frame.consumed:
        _check_versions(frame, [*ids, *(i for g in (lists or {}).values() for i in g)])
    if results:
        results = [(extents(shape), dtype) for shape, dtype in results]
    made = frame.builder.append(op, ids, lists, attrs, results, place)
    if weak is None:
        given = [*operands, *(x for g in groups.values() for x in g)] if groups else operands
        weak_ones = {x._dtype for x in given if x._weak}
        if weak_ones:
            weak_ones -= {x._dtype for x in given if not x._weak}
        elif results:
            weak_ones = {dtype for _, dtype in results if type(dtype) is Weak}
        return [Tracer(frame, v, shape, dtype, dtype in weak_ones, place) for v, shape, dtype in made]
    return [Tracer(frame, v, shape, dtype, weak, place) for v, shape, dtype in made]


def known(*extents: Any) -> None:
    """Refuses extents that are values of the trace."""
    for extent in extents:
        if isinstance(extent, Tracer):
            raise fail(
                "E_DYNAMIC_EXTENT",
                f"expected extents that are known while tracing, got {extent!r}",
                "take the extent from `x.shape`, or name the argument in `static_argnums` of `ts.jit`",
            )


def extents(shape: Any) -> list:
    """A shape that the builder takes: whole numbers of 0 and more, and extents that the trace leaves open."""
    shape = list(shape)
    for i, d in enumerate(shape):
        if type(d) is int and d >= 0 or isinstance(d, Dim):
            continue
        known(d)
        try:
            shape[i] = d = operator.index(d)
        except TypeError:
            raise fail("E_TYPE", f"expected extents to be integers, got {d!r}", "write a tuple of integers: `(2, 3)`") from None
        if d < 0:
            raise fail("E_SHAPE_MISMATCH", f"expected extents of 0 and more, got {d} in [{', '.join(map(str, shape))}]",
                       "only `reshape` takes -1, for what is left")  # fmt: skip
    return shape


def _check_versions(frame: Frame, ids: list[int]) -> None:
    for i in ids:
        if i in frame.consumed:
            kernel, place = frame.consumed[i]
            raise fail(
                "E_GRAPH_INVALID",
                f"expected the newest version of an array, got the one that the kernel `{kernel}` wrote over at {place!r}",
                "use what the kernel returns, or pass it a copy: `x + 0`",
            )


def one(op: str, operands: list[Tracer], attrs: dict | None = None, **more: Any) -> Tracer:
    """`emit` for an op with one result."""
    return emit(op, operands, attrs, **more)[0]


class Gathered:
    """The elements of an array that is in several memories, for a call: gathered when they are read."""

    def __init__(self, array: Any) -> None:
        self.shape, self.dtype = array.shape, array.dtype
        self._array = array

    def blocks(self, splits: list[list[str]], known: dict[str, Any]) -> list[numpy.ndarray] | None:
        """Its block on each rank, where these are even blocks of neighbouring elements in host memory, each dim split over these axes; None
        where they are others. ``known`` keeps what was found for arrays in the same placement."""
        return self._array._even(splits, known)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray:
        # Copies are not copied: calls read what they are given, and do not keep it.
        copies = self.blocks([[] for _ in self.shape], {})
        made = self._array.full() if copies is None else copies[0]
        return made if dtype is None else made.astype(dtype, copy=False)


class Blocks:
    """An array that a program left in blocks: one for each rank, the same one for ranks that share it. ``known`` keeps what is found of its
    placement for later calls of the program."""

    def __init__(self, shape: tuple[int, ...], dtype: str, splits: list[list[str]], of_rank: list[numpy.ndarray], known: dict[str, Any]) -> None:
        self.shape, self.dtype, self.splits, self.of_rank, self.known = shape, dtype, splits, of_rank, known


def is_array(x: Any) -> bool:
    """Whether something is an array or a number that a trace may take."""
    if type(x) is numpy.ndarray or type(x) is HostArray:
        return True
    return isinstance(x, (Tracer, numpy.ndarray, *_NUMBERS, Dim, Gathered)) or hasattr(x, "__dlpack__") or isinstance(x, _core.Array)


def to_numpy(x: Any) -> numpy.ndarray:
    """An array of any library as a NumPy array."""
    if type(x) is numpy.ndarray:
        return x
    if isinstance(x, numpy.ndarray):
        return x.view(numpy.ndarray) if isinstance(x, HostArray) else unmasked(x)
    if isinstance(x, _core.Array):
        return x.numpy()
    if isinstance(x, numpy.generic):
        return numpy.asarray(x)
    if hasattr(x, "detach"):
        x = x.detach().cpu()
        if str(x.dtype) == "torch.bfloat16":
            return x.view(_torch_i16(x)).numpy().view(numpy_dtype("bf16"))
    if type(x).__module__.partition(".")[0] == "cupy":
        return x.get()
    return numpy.asarray(x)


def _torch_i16(x: Any) -> Any:
    """NumPy has no bf16 of its own: PyTorch hands over the bits."""
    import torch

    return torch.int16


def _name_of(dtype: numpy.dtype) -> str:
    """Our name of a NumPy dtype."""
    return native(dtype) or _other_name(dtype)


@functools.lru_cache
def _other_name(dtype: numpy.dtype) -> str:
    return str(as_dtype(dtype))


@functools.lru_cache(maxsize=64)
def _dtype_name(dtype: Any) -> str | None:
    """Our name of another library's dtype: `torch.float32` is a name behind a dot."""
    name = str(dtype).rpartition(".")[2]
    return str(as_dtype(name)) if _core.is_dtype_name(name) else None


def aval(x: Any) -> tuple[tuple, str, bool]:
    """Shape, dtype and weakness of a traced value, an array or a number."""
    if type(x) is numpy.ndarray:
        return x.shape, _name_of(x.dtype), False
    if isinstance(x, (Tracer, HostArray)):
        name = x._dtype if isinstance(x, Tracer) else _name_of(x.dtype)
        return x.shape, Weak(name) if x._weak else name, x._weak
    if isinstance(x, bool):
        return (), "bool", True
    if isinstance(x, (int, Dim)):
        return (), "i64", True
    if isinstance(x, float) and not isinstance(x, numpy.generic):
        return (), "f64", True
    if not isinstance(x, (numpy.ndarray, numpy.generic)):
        if not hasattr(x, "dtype"):
            listed = isinstance(x, (list, tuple))
            raise fail("E_TYPE", f"expected an array or a number, got {'None' if x is None else type(x).__name__}",
                       "make it an array: `xp.asarray(values)`" if listed else "give an array or a number")  # fmt: skip
        named = _dtype_name(x.dtype)
        if named is not None:
            return tuple(x.shape), named, False
    array = to_numpy(x)
    return array.shape, _name_of(array.dtype), False


def splat(value: Any, shape: tuple, dtype: str, weak: bool = False) -> Tracer:
    """A constant whose elements are all ``value``; weak where the dtype is a weak value's."""
    weak = weak or type(dtype) is Weak
    number: Any = bool(value) if dtype == "bool" else float(value) if kind(dtype) == 2 else int(value)
    if kind(dtype) == 1:
        check_fits(number, dtype)
    if not isinstance(number, (bool, float)) and not -(1 << 63) <= number < 1 << 63:
        # By its bits: attributes hold signed numbers.
        data = numpy.asarray(number, numpy_dtype(dtype)).tobytes()
        made = one("const", [], {"data": data}, results=[([], dtype)], weak=weak)
        return made if shape == () else one("broadcast", [made], {"dims": []}, results=[(list(shape), dtype)], weak=weak)
    return one("const", [], {"value": number}, results=[(list(shape), dtype)], weak=weak)


def dense(x: numpy.ndarray) -> Tracer:
    """A constant with these elements."""
    frame = current()
    flat = numpy.ascontiguousarray(x)
    if flat.size and x.size and (flat.reshape(-1).view(numpy.uint8).reshape(flat.size, -1) ==
                      flat.reshape(-1)[:1].view(numpy.uint8)).all() and x.dtype.kind in "biuf":  # fmt: skip
        return splat(flat.reshape(-1)[0].item(), x.shape, str(as_dtype(x.dtype)))
    if flat.size > _MOST_TEXT and frame is not None:
        return frame.array(x)
    return one("const", [], {"data": flat.tobytes()}, results=[(list(x.shape), str(as_dtype(x.dtype)))])


def as_tracer(x: Any, dtype: str | None = None) -> Tracer:
    """A value of the current function: arrays and numbers become constants or inputs."""
    if isinstance(x, Tracer):
        return x
    if isinstance(x, (bool, int, float)) and not isinstance(x, numpy.generic):
        _, natural, _ = aval(x)
        return splat(x, (), dtype or natural, weak=dtype is None)
    if isinstance(x, Dim):
        made = one("dim", [], {"name": x}, results=[([], "i64")], weak=True)
        return made if dtype in (None, "i64") else one("cast", [made], results=[([], dtype)])
    if (captured := getattr(type(x), "_as_tracer", None)) is not None and current() is not None:
        return captured(x)
    if not is_array(x) and not isinstance(x, (list, tuple)):
        raise fail(
            "E_TYPE",
            f"expected an array or a number, got {type(x).__name__}",
            "pass arrays and numbers; close over everything else, or name it in `static_argnums`",
        )
    if isinstance(x, (list, tuple)) and any(isinstance(v, Tracer) for v in _flat(x)):
        return functions["stack"]([as_tracer(v) for v in x])
    made = to_numpy(x)
    return dense(narrowed(made, x) if isinstance(x, (list, tuple)) else made)


def _flat(x: Any):
    for v in x:
        if isinstance(v, (list, tuple)):
            yield from _flat(v)
        else:
            yield v


def weakened(values: list[Tracer], weak: list[bool]) -> list[Tracer]:
    """New values, marked as weak where what they stand for is."""
    for value, mark in zip(values, weak, strict=True):
        value._dtype = Weak(value._dtype) if mark else str(value._dtype)
    return values


def is_tracing(*values: Any) -> bool:
    """Whether a function is being traced."""
    return current() is not None or any(isinstance(v, Tracer) for v in values)
