"""Kernels called with traced values: a call becomes one op of the graph. The arrays that the kernel writes come back as new
values, and the old ones may not be used again (LANGUAGE 5)."""

from __future__ import annotations

import operator
from typing import Any

import numpy

from ..arrays.create import _identity as _neutral, _shape, _stored, numpy_dtype
from ..base.annotations import names_in
from ..base.caller import here
from ..base.dtypes import dtype as as_dtype
from ..base.numeric_profile import current as profile_now
from ..trace import prim as p
from ..trace.tracer import Frame, Tracer, as_tracer, current, emit, fail, is_array, one, rests_on, splat
from .capture import capture
from .func import Func


def _bind(kernel: Any, args: tuple, kwargs: dict) -> tuple[dict[str, Any], dict[str, int]]:
    """The arguments by parameter, and the sizes that are given by name."""
    names = [q[0] for q in kernel.spec.params]
    sizes: dict[str, int] = {}
    if len(args) > len(names):
        raise fail(
            "E_ARGUMENT",
            f"expected at most {len(names)} arguments for `{kernel.name}`, got {len(args)}",
            "leave out those at the end",
        )
    bound = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names and _is_size(kernel, name):
            if isinstance(value, bool) or not isinstance(value, (int, numpy.integer)) or value < 0:
                raise fail("E_ARGUMENT", f"`{name}`: expected a size of at least 0, got {value!r}", f"write `{name}=7`")
            sizes[name] = int(value)
            continue
        if name not in names:
            raise fail(
                "E_ARGUMENT",
                f"expected a parameter of `{kernel.name}`, got `{name}`",
                "leave it out, or use the name of a parameter",
            )
        if name in bound:
            raise fail(
                "E_ARGUMENT",
                f"expected `{name}` of `{kernel.name}` once, got it twice",
                "it is given by place already: leave out the keyword",
            )
        bound[name] = value
    return bound, sizes


def _is_size(kernel: Any, name: str) -> bool:
    return any(name in names_in(dim) for _, kind, info, _ in kernel.spec.params if kind == "tensor" for dim in info[0] or ())


_IN_SIZES = {"__builtins__": {}, "min": min, "max": max, "cdiv": lambda a, b: -(-a // b)}


def _extent(text: Any, dims: dict[str, int], kernel: Any) -> int:
    if isinstance(text, int):
        return text
    try:
        size = int(eval(text, _IN_SIZES, dims))
    except Exception:
        open = [name for name in names_in(text) if name not in dims]
        help = f"give the size by name: `{open[0]}=…`, or pass an array for it" if open else "pass an array for it"
        raise fail("E_SHAPE_MISMATCH", f"expected the extent `{text}` of an `Out` of `{kernel.name}` to follow from its arguments", help) from None
    if size < 0:
        help = "check the sizes of the arguments, or write `max(0, …)` around it"
        raise fail("E_SHAPE_MISMATCH", f"expected the extent `{text}` of an `Out` of `{kernel.name}` to be at least 0, got {size}", help)
    return size


def _symbols(dims: list | None, shape: tuple, bound: dict[str, int], name: str, kernel: Any) -> None:
    if dims is None or Ellipsis in dims:
        return
    if len(dims) != len(shape):
        raise fail(
            "E_SHAPE_MISMATCH",
            f"expected `{name}` of `{kernel.name}` to have {len(dims)} axes, got {p.show(shape)}",
            "reshape the array, or change the kernel's annotation",
        )
    for d, extent in zip(dims, shape, strict=True):
        if isinstance(d, int) and d != extent or isinstance(d, str) and bound.get(d, extent) != extent:
            wanted = d if isinstance(d, int) else f"{d} = {bound[d]}"
            raise fail(
                "E_SHAPE_MISMATCH",
                f"expected `{name}` of `{kernel.name}` to have the extent {wanted}, got {p.show(shape)}",
                "pass an array of this extent, or name the extent in the annotation",
            )
        if isinstance(d, str) and d.isidentifier():
            bound[d] = extent


def _root(frame: Frame) -> Frame:
    while frame.parent is not None:
        frame = frame.parent
    return frame


def call(kernel: Any, args: tuple, kwargs: dict, grid: Any, outs: dict[str, tuple[tuple, str]] | None = None) -> Any:
    """Adds the call to the current function. With ``outs``, the shapes and dtypes of its results, the kernel is compiled as a part of
    the function, for its target and with this schedule. Otherwise it is launched as outside a trace, with its tuned candidate.
    Results in records are named by their paths, and None in the records."""
    frame = current()
    assert frame is not None
    kernel, args, kwargs = kernel.apart(args, kwargs)
    bound, sizes = _bind(kernel, args, kwargs)
    made = kernel.now()
    placed = outs is not None
    for name, (shape, dtype) in (outs or {}).items():
        bound[name] = splat(0, shape, dtype)
    dims: dict[str, Any] = dict(sizes)
    # Arrays without axes: in compiled code they have one axis of one element.
    points: dict[str, Tracer] = {}
    values: dict[str, Tracer] = {}
    fixed: dict[str, Any] = {}
    late: list[tuple[str, Any]] = []
    # Where another array says that a size is odd, the last byte has one element: packed arrays come last.
    packed: list[tuple[str, list | None, tuple]] = []
    for name, kind, info, default in made.spec.params:
        given = bound.get(name)
        if given is None and name in made.spec.optional and (name in bound or default == (None,)):
            fixed[name] = None
        elif kind == "tensor" and given is None and (name not in bound or info[3]):
            if not info[3]:
                raise fail("E_ARGUMENT", f"expected an array for `{name}` of `{kernel.name}`", "give it by place or by name")
            late.append((name, info))
        elif kind == "tensor":
            x = as_tracer(given)
            if info[1] is not None and as_dtype(x._dtype).name != _stored(info[1]).name:
                raise fail("E_TYPE", f"expected `{name}` of `{kernel.name}` to be {info[1]}, got {x._dtype}",
                           f"convert it with `.astype({_stored(info[1]).name!r})`")  # fmt: skip
            if info[1] is not None and info[1].packed:
                packed.append((name, info[0], x.shape))
            else:
                _symbols(info[0], x.shape, dims, name, kernel)
            values[name] = x
            if info[0] == []:
                points[name] = x
                values[name] = p.reshape(x, (1,))
        elif isinstance(given, Tracer) or (kind in ("any", "scalar") and name in bound and is_array(given) and numpy.ndim(given)):
            if kind not in ("any", "scalar"):
                raise fail("E_TYPE", f"expected `{name}` of `{kernel.name}` to be known while tracing, got {given!r}",
                           "compile-time parameters are plain Python values")  # fmt: skip
            values[name] = p.cast(given, info) if kind == "scalar" else as_tracer(given)
        elif kind == "scalar" and name in bound:
            # A number that the kernel gets when it runs: it may be differentiated, and stays the same for all calls.
            values[name] = _known(given, info)
        elif name in bound:
            # A function as it is now: what it captures is a part of the trace.
            fixed[name] = given.frozen() if isinstance(given, Func) else given
        elif not default:
            raise fail(
                "E_ARGUMENT",
                f"expected a value for `{name}` of `{kernel.name}`",
                "give it by place or by name, or give the parameter a default",
            )
    for name, axes, shape in packed:
        last = axes[-1] if axes else None
        odd = last if isinstance(last, int) else dims.get(last)
        size = 2 * shape[-1]
        _symbols(axes, (*shape[:-1], odd if odd is not None and odd + 1 == size and odd % 2 else size), dims, name, kernel)
    known = dims | _integers(made.spec, bound) if late else dims
    for name, info in late:
        shape = tuple(_extent(d, known, kernel) for d in info[0])
        values[name] = splat(_identity(info[2], info[1]), _shape(shape, info[1]) or (1,), str(_stored(info[1])))
        if not shape:
            points[name] = values[name]
    traced = for_sizes(kernel, dims, values, fixed, grid, made)
    written = {n: w for n, w in traced.params if w != "read"}
    order = [q[0] for q in kernel.spec.params if q[0] in values]
    # Arrays that a kernel captures outside a trace are operands of the op inside.
    for name, dtype, extents, contents in traced.tables:
        values[name] = one("const", [], {"data": contents}, results=[(extents, dtype)])
        order.append(name)
    privileges = [written.get(n, "read") for n in order]
    label = _register(_root(frame), kernel, made, order, fixed, grid, traced, placed)
    operands = [frame.lift(values[n]) for n in order]
    attrs: dict[str, Any] = {"kernel": label, "privileges": privileges}
    # An `Out` that the caller left out starts empty where it is written whole, and as zeros elsewhere.
    whole = traced.covered({n: [operator.index(d) for d in x.shape] for n, x in values.items()}) if late else []
    names = {n for n, _ in late if n in whole} | {*(outs or ())}
    if fresh := [i for i, (n, w) in enumerate(zip(order, privileges, strict=True)) if n in names and w == "write"]:
        attrs["fresh"] = fresh
    if placed:
        attrs["views"] = True
    if (rule := _factors(kernel, made.spec, order, written, values, points, sizes, grid)) is not None:
        attrs |= rule
    results = emit("kernel_call", [], attrs, groups={"values": operands}, weak=False)
    new = dict(zip([n for n, w in zip(order, privileges, strict=True) if w != "read"], results, strict=True))
    for n in new:
        for x in (values[n], points[n]) if n in points else (values[n],):
            frame.consumed[x._value if x._frame is frame else frame.lift(x)._value] = (kernel.name, here())
    # As outside a trace: the parameters that the kernel returns, and the `Out` parameters that the caller left out.
    returned = [*traced.returns, *(n for n in (*(n for n, _ in late), *(outs or ())) if n not in traced.returns)]
    new = {n: p.reshape(x, ()) if n in points else x for n, x in new.items()}
    out = [new.get(n, points.get(n, values.get(n, fixed.get(n)))) for n in returned]
    return None if not out else out[0] if len(out) == 1 else tuple(out)


def _factors(
    kernel: Any, spec: Any, order: list[str], written: dict[str, str], values: dict[str, Tracer], points: dict, sizes: dict, grid: Any
) -> dict[str, Any] | None:  # fmt: skip
    """How ranks may split its arrays, as attributes of the op; None where it runs on whole arrays."""
    parallel, contract = spec.split
    if not (parallel or contract) or grid is not None:
        return None
    dims = {name: info[0] for name, kind, info, _ in spec.params if kind == "tensor"}
    if any(info[1] is not None and info[1].packed for _, kind, info, _ in spec.params if kind == "tensor"):
        return None
    alone = [d for axes in dims.values() for d in axes or ()]
    # A name in an expression, given as a size, or twice in one array is not that of blocks.
    inside = {n for d in alone if isinstance(d, str) and not d.isidentifier() for n in names_in(d)} | set(sizes)
    inside |= {d for axes in dims.values() for d in axes or () if isinstance(d, str) and axes.count(d) > 1}
    free = {d for d in (*parallel, *contract) if d not in inside}

    def row(name: str) -> str:
        axes, rank = dims.get(name), values[name].ndim
        if name in points or axes is None or len(axes) != rank:
            return " ".join("_" * rank)
        return " ".join(d if isinstance(d, str) and d in free else "_" for d in axes)

    results = [row(n) for n in order if n in written]
    named = {d for text in results for d in text.split()}
    if any(d in named for d in contract):
        raise fail("E_ARGUMENT", f"expected `contract=` of `{kernel.name}` to name dims that no result has, got {next(d for d in contract if d in named)!r}",
                   "name it in `parallel=`")  # fmt: skip
    return {"sharding": f"{', '.join(map(row, order))} -> {', '.join(results)}"} | (
        {"contract": [d for d in contract if d in free]} if contract else {})


def _integers(spec: Any, bound: dict[str, Any]) -> dict[str, Any]:
    """The compile-time integers of a call, which sizes may be made of."""
    rows = {name: default for name, kind, info, default in spec.params if kind == "const" and info == "int"}
    return {name: bound.get(name, *default) for name, default in rows.items() if name in bound or default}


def _identity(privilege: str | None, dtype: Any) -> Any:
    return _neutral(privilege or "write", dtype) or 0


def _known(given: Any, dtype: Any) -> Tracer:
    """A number that a kernel takes. One that is known is a constant with contents, so that it can be a part of the kernel's code."""
    if not isinstance(given, (bool, int, float, numpy.generic)):
        return p.cast(as_tracer(given), dtype)
    value = numpy.asarray(given).astype(numpy_dtype(str(dtype)))
    return one("const", [], {"data": value.tobytes()}, results=[([], str(dtype))])


def for_sizes(
    kernel: Any, dims: dict[str, int], values: dict[str, Tracer], fixed: dict[str, Any], grid: Any, made: Any = None
) -> Any:
    """The kernel for these sizes: which parameters it writes, with which privileges, and which it returns. ``made`` is the
    present elaboration of the kernel, where the caller has it."""
    made = made or kernel.now()
    rests_on(made.watch)
    constants = {n: capture(v) for n, v in fixed.items() if _is_constant(kernel, n)}
    extents = None if grid is None else [int(g) for g in (grid if isinstance(grid, (tuple, list)) else (grid,))]
    arrays = {n: (str(as_dtype(x._dtype)), [operator.index(d) for d in x.shape]) for n, x in values.items()}
    # Sizes that are left open become numbers here: a kernel in a function is for the sizes at hand.
    given = {**{n: operator.index(d) for n, d in dims.items()}, **constants}
    return made.kernel.traced(given, arrays, extents, profile_now())


def _is_constant(kernel: Any, name: str) -> bool:
    return any(q[0] == name and (q[1] in ("const", "function") or name in kernel.spec.optional) for q in kernel.spec.params)


def _register(
    root: Frame, kernel: Any, made: Any, order: list[str], fixed: dict, grid: Any, traced: Any, placed: bool
) -> str:
    """A name for the kernel with what is fixed of this call."""
    scalars = {q[0] for q in kernel.spec.params if q[1] in ("scalar", "any")}
    points = {q[0] for q in kernel.spec.params if q[1] == "tensor" and q[2][0] == []}
    tables = {name for name, *_ in traced.tables}

    def as_given(n: str, a: Any) -> Any:
        return a.reshape(()) if n in points else _number(a) if n in scalars and a.ndim == 0 else a

    def run(arrays: list) -> None:
        given = {n: as_given(n, a) for n, a in zip(order, arrays, strict=True) if n not in tables}
        made.call((), {**given, **fixed}, grid, profile_now())

    # The sizes belong to it: its derivatives are made for them.
    key = (made.kernel, tuple(order), tuple(sorted((k, repr(v)) for k, v in fixed.items())), repr(grid), placed, traced.ir)
    for label, (known, _) in root.kernels.items():
        if known == key:
            return label
    label, number = kernel.name, 0
    while label in root.kernels:
        number += 1
        label = f"{kernel.name}_{number}"

    def on_blocks(types: list) -> str:
        """The name of the same kernel for the blocks of a rank."""
        shapes = dict(zip(order, types, strict=True))
        dims: dict[str, Any] = {}
        for name, kind, info, _ in made.spec.params:
            if kind == "tensor" and name in shapes and name not in points:
                _symbols(info[0], tuple(shapes[name][0]), dims, name, kernel)
        constants = {n: capture(v) for n, v in fixed.items() if _is_constant(kernel, n)}
        arrays = {n: (d, list(s)) for n, (s, d) in shapes.items() if n not in tables}
        again = made.kernel.traced({**dims, **constants}, arrays, None, profile_now())
        return _register(root, kernel, made, order, fixed, grid, again, placed)

    run.on_blocks = on_blocks  # type: ignore[attr-defined]
    root.kernels[label] = (key, run)
    root.program.add_kernel(label, traced, order, placed)
    return label


def _number(x: Any) -> Any:
    """An array without axes as a number; one of a device is waited for."""
    return x[()] if isinstance(x, numpy.ndarray) else x.numpy()[()]


def takes_part(args: tuple, kwargs: dict) -> bool:
    """Whether a call of a kernel belongs to a trace."""
    return current() is not None and any(isinstance(v, Tracer) for v in (*args, *kwargs.values()))
