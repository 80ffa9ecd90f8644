"""New arrays."""

from __future__ import annotations

from typing import Any

import numpy

from ..arrays.create import array, numpy_dtype
from ..arrays.host import HostArray, host, unmasked
from ..base.dtypes import dtype as as_dtype
from ..base.promotion import kind
from ..trace import on_mesh, placing, prim as p
from ..trace.jit import eager
from ..trace.tracer import as_tracer, aval, current, fail, known

_FLOAT = "f32"


def _shape(shape: Any) -> tuple:
    return tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)


def _natural(value: Any) -> str:
    return {"f64": _FLOAT}.get(aval(value)[1], aval(value)[1]) if isinstance(value, (bool, int, float)) else aval(value)[1]


@on_mesh.traced()
def asarray(obj: Any, /, dtype: Any = None, *, device: Any = None, copy: Any = None) -> Any:
    """A value as an array; Python's floats become f32."""
    if current() is not None:
        x = as_tracer(obj)
        wanted = x.dtype if dtype is None else dtype
        # A number as it is written, so that one that the dtype does not hold is refused and not cut.
        return p.cast(obj if isinstance(obj, (bool, int)) else x, wanted)
    if isinstance(obj, HostArray) and not copy and dtype is None:
        return obj
    if isinstance(obj, numpy.ndarray) and not copy and (dtype is None or numpy_dtype(as_dtype(dtype)) == obj.dtype):
        return unmasked(obj).view(HostArray)
    return host(array(obj, None if dtype is None else as_dtype(dtype)))


def from_dlpack(x: Any, /, *, device: Any = None, copy: Any = None) -> Any:
    """An array of another library, without a copy where that is possible."""
    if not hasattr(x, "__dlpack__"):
        raise fail("E_TYPE", f"expected an array in one memory, got {type(x).__name__}", "`xp.asarray` takes lists and numbers; an array on a mesh has `x.numpy()`")
    made = host(numpy.from_dlpack(x))
    return made.copy() if copy else made


@eager
def full(shape: Any, fill_value: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """An array of one value."""
    if isinstance(fill_value, (bool, int, float)):
        return p.splat(fill_value, _shape(shape), p.name_of(dtype) if dtype is not None else _natural(fill_value))
    return p.broadcast_to(p.cast(fill_value, dtype) if dtype is not None else as_tracer(fill_value), _shape(shape))


def zeros(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """An array of zeros."""
    return full(shape, 0, dtype=dtype or _FLOAT)


def ones(shape: Any, dtype: Any = None, *, device: Any = None) -> Any:
    """An array of ones."""
    return full(shape, 1, dtype=dtype or _FLOAT)


empty = zeros


@on_mesh.traced()
def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """An array of one value, of the shape and dtype of another unless said."""
    own, natural, _ = aval(x)
    return placing.as_placed(x, full(own if shape is None else shape, fill_value, dtype=dtype or natural))


def zeros_like(x: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """An array of zeros, of the shape and dtype of another unless said."""
    return full_like(x, 0, dtype=dtype, shape=shape)


def ones_like(x: Any, dtype: Any = None, shape: Any = None, *, device: Any = None) -> Any:
    """An array of ones, of the shape and dtype of another unless said."""
    return full_like(x, 1, dtype=dtype, shape=shape)


empty_like = zeros_like


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None) -> Any:
    """Numbers from ``start`` to ``stop`` by ``step``."""
    return _arange(*(v.item() if isinstance(v, (numpy.generic, numpy.ndarray)) and v.ndim == 0 else v for v in (start, stop, step)), dtype)


@eager
def _arange(start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    first, last = (0, start) if stop is None else (start, stop)
    known(first, last, step)
    count = max(int(numpy.ceil((last - first) / step)), 0)
    whole = all(isinstance(v, int) for v in (first, last, step))
    wanted = p.name_of(dtype) if dtype is not None else "i64" if whole else _FLOAT
    inner = "i64" if whole else "f64"
    out = p.iota((count,), 0, inner)
    if step != 1:
        out = p.ew("mul", out, step)
    if first != 0:
        out = p.ew("add", out, first)
    return p.cast(out, wanted)


def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0, *,
             device: Any = None) -> Any:  # fmt: skip
    """``num`` numbers from ``start`` to ``stop`` at even distances; of arrays, along a new axis. With ``retstep`` the distance too."""
    made = _linspace(start, stop, num, endpoint, dtype, axis)
    return (made, (stop - start) / max(num - 1 if endpoint else num, 1)) if retstep else made


@eager
def _linspace(start: Any, stop: Any, num: int, endpoint: bool, dtype: Any, axis: int) -> Any:
    steps = max(num - 1 if endpoint else num, 1)
    shape = p.broadcast_shapes(aval(start)[0], aval(stop)[0])
    at = p.reshape(p.iota((num,), 0, "f64"), [num] + [1] * len(shape))
    distance = (stop - start) / steps
    out = p.ew("add", p.ew("mul", at, p.cast(distance, "f64") if shape else distance), p.cast(start, "f64") if shape else start)
    if endpoint and num > 1:
        out = p.select(p.ew("eq", at, float(num - 1)), stop, out)
    wanted = p.name_of(dtype) if dtype is not None else _FLOAT if not any(aval(v)[1:] == ("f64", False) for v in (start, stop)) else "f64"
    if kind(wanted) == 1:
        out = p.ew("floor", out)
    place = p.axis_of(axis, len(shape) + 1)
    return p.cast(p.transpose(out, [*range(1, place + 1), 0, *range(place + 1, len(shape) + 1)]), wanted)


@eager
def eye(n_rows: int, n_cols: int | None = None, k: int = 0, dtype: Any = None, *, device: Any = None) -> Any:
    """Ones on a diagonal."""
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    on = p.ew("eq", p.ew("add", p.iota(shape, 0), k), p.iota(shape, 1))
    return p.cast(on, dtype or _FLOAT)


def _triangle(x: Any, k: int, lower: bool) -> Any:
    x = as_tracer(x)
    shape = x.shape[-2:]
    keep = p.ew("ge" if lower else "le", p.ew("add", p.iota(shape, 0), k), p.iota(shape, 1))
    return p.select(p.broadcast_to(keep, x.shape), x, p.splat(0, (), x._dtype))


@eager
def tril(x: Any, k: int = 0) -> Any:
    """The lower triangle; zero above."""
    return _triangle(x, k, True)


@eager
def triu(x: Any, k: int = 0) -> Any:
    """The upper triangle; zero below."""
    return _triangle(x, k, False)


@eager
def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False, copy: bool = True) -> list:
    """Coordinates of a grid; with ``sparse`` of extent 1 along the axes of the others."""
    lists = [a if (a := as_tracer(v)).ndim == 1 else p.reshape(a, [-1]) for v in arrays]
    if indexing not in ("xy", "ij"):
        raise fail("E_ARGUMENT", f'meshgrid: expected `indexing` to be "xy" or "ij", got {indexing!r}', 'leave it out for "xy"')
    order = list(range(len(lists)))
    if indexing == "xy" and len(lists) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(lists)
    for i, a in enumerate(lists):
        shape[order[i]] = a.shape[0]
    bare = [p.reshape(a, [a.shape[0] if d == order[i] else 1 for d in range(len(lists))]) for i, a in enumerate(lists)]
    return bare if sparse else [p.broadcast_to(a, shape) for a in bare]
