"""Leaves of trees that are saved: which there are, their bytes, and arrays of the class, dtype and byte order that they had.
All hosts that Tessera runs on are little-endian, as files are; arrays of NumPy's may be big-endian."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy

from .. import _core
from ..arrays.create import array as make_array, numpy_dtype
from ..arrays.host import HostArray, WeakArray
from ..base.dtypes import dtype as as_dtype
from ..base.errors import Refusal
from ..trace.eval_shape import ShapeDtypeStruct
from ..trace.tracer import Tracer, to_numpy
from .values import PLAIN, Opaque, exact_dtype

#: The classes that arrays are restored as: a NumPy array, a NumPy scalar, a host array, or a weak host array.
FORMS = ("numpy", "scalar", "host", "weak")


class Spec(NamedTuple):
    """An array as a file describes it."""

    dtype: str
    shape: tuple[int, ...]
    form: str = "numpy"
    big: bool = False

    def __str__(self) -> str:
        return f"{self.dtype} of shape {list(self.shape)}"


def spec_of(leaf: Any, at: str) -> Spec | None:
    """What a leaf is in a file: `None` for numbers and text. What files do not hold is refused."""
    kind = type(leaf)
    if kind in PLAIN:
        return None
    if isinstance(leaf, Tracer):
        raise Refusal(f"expected an array {at}, got a traced value", "save outside `ts.jit`: let the function return what is to be saved")
    if isinstance(leaf, numpy.ma.MaskedArray):
        raise Refusal(f"expected an array without a mask {at}, got a masked array",
                      "write `x.filled(0)`, or save `x.data` and `x.mask` as two arrays")  # fmt: skip
    if isinstance(leaf, _core.Array):
        return Spec(as_dtype(leaf.dtype).name, tuple(leaf.shape), "host")
    if not _is_array(leaf):
        raise Refusal(f"expected an array, a number or text {at}, got {_what(leaf)}", _instead(leaf))
    array = numpy_of(leaf, at)
    try:
        name = exact_dtype(array.dtype)
    except Opaque as other:
        raise Refusal(f"expected an array of a dtype that Tessera has {at}, got {other}",
                      "convert it: `x.astype(numpy.float32)`, or another dtype of `ts`") from None  # fmt: skip
    form = "weak" if kind is WeakArray else "host" if kind is HostArray else "scalar" if isinstance(leaf, numpy.generic) else "numpy"
    return Spec(name, array.shape, form, not array.dtype.isnative)


def wanted(leaf: Any, at: str) -> Spec:
    """What a leaf that is no number asks of a file."""
    found = Spec(leaf.dtype.name, leaf.shape, "host") if isinstance(leaf, ShapeDtypeStruct) else spec_of(leaf, at)
    assert found is not None
    return found


def _is_array(leaf: Any) -> bool:
    if isinstance(leaf, numpy.ndarray):
        # Other classes of arrays mean more than their elements: a unit, names of fields.
        return type(leaf) in (numpy.ndarray, numpy.memmap, HostArray, WeakArray)
    if isinstance(leaf, numpy.generic):
        return True
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and (hasattr(leaf, "__dlpack__") or hasattr(leaf, "__array_interface__"))


def _what(leaf: Any) -> str:
    if callable(leaf) and hasattr(leaf, "__name__"):
        return f"{'the class' if isinstance(leaf, type) else 'the function'} `{leaf.__name__}`"
    return f"a value of type {type(leaf).__name__}"


def _instead(leaf: Any) -> str:
    if isinstance(leaf, numpy.ndarray):
        return "save its elements: `numpy.asarray(x)`"
    for base in (bool, int, float, str, bytes, list, tuple):
        if isinstance(leaf, base):
            return f"write `{base.__name__}(x)`"
    if isinstance(leaf, (set, frozenset)):
        return "write `sorted(x)`"
    if callable(leaf) and hasattr(leaf, "__name__"):
        return "leave it out of the tree, or make it a static field: `nn.static()`"
    return f"write it as arrays, numbers and text, or make `{type(leaf).__name__}` a tree: `ts.tree.register`"


def numpy_of(leaf: Any, at: str) -> numpy.ndarray:
    """The elements of an array of any library, in host memory."""
    try:
        return to_numpy(leaf)
    except Exception as error:
        raise Refusal(f"expected to copy the array {at}, got {type(error).__name__}: {str(error).partition(chr(10))[0]}",
                      "give an array that NumPy or `ts.array` takes") from error  # fmt: skip


def data_of(leaf: Any, spec: Spec, at: str) -> memoryview:
    """The elements as a file holds them: row by row, little-endian."""
    array = numpy_of(leaf, at)
    if array.shape != spec.shape:
        raise Refusal(f"expected {spec} {at}, got the shape {list(array.shape)}: it changed while it was saved", "save a copy of the tree")
    flat = numpy.ascontiguousarray(array).reshape(-1)
    if spec.big:
        flat = flat.byteswap()
    return memoryview(flat.view(numpy.uint8))


def empty(spec: Spec) -> tuple[numpy.ndarray, memoryview]:
    """An array to read elements into, and its bytes."""
    made = numpy.empty(spec.shape, numpy_dtype(spec.dtype))
    return made, memoryview(made.reshape(-1).view(numpy.uint8))


def restored(read: numpy.ndarray, spec: Spec) -> Any:
    """What was saved, of the elements as they were read."""
    if spec.form == "scalar":
        return read[()]
    if spec.big:
        read = read.astype(read.dtype.newbyteorder(">"))
    return read if spec.form == "numpy" else read.view(WeakArray if spec.form == "weak" else HostArray)


def restored_like(read: numpy.ndarray, leaf: Any, at: str) -> Any:
    """The elements as an array of the class, byte order and device of another."""
    if isinstance(leaf, _core.Array):
        return make_array(read, device=leaf.device)
    return restored(read, wanted(leaf, at))
