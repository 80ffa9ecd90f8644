"""What a library operation launches, as recipes: while it runs, or for arrays that nobody has.

Which kernels run, and in which configuration, depends on shapes, dtypes and how arrays lie, and not on what is in them. So
on a machine without a GPU an operation is called with arrays that have no memory behind them, and its launches are recorded
instead of made.
"""

import contextlib
import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np

from tessera.arrays.create import numpy_dtype
from tessera.kernel.func import Func
from tessera.kernel.kernel_fn import KernelFn
from tessera.kernels import arrays, elementwise, gemm

from . import recipe as recipes
from .recipe import Recipe

#: Where arrays without memory begin: as good an address as a GPU's allocations have.
_BUFFER = np.zeros(1024, np.uint8)
_AT = -_BUFFER.__array_interface__["data"][0] % 512


def imagined(shape, dtype, turned=False):
    """An array that lies row by row (or with its last two axes exchanged), of which no element may be touched."""
    dtype = numpy_dtype(dtype)
    lying = list(shape[:-2]) + [shape[-1], shape[-2]] if turned else list(shape)
    strides = [dtype.itemsize] * len(lying)
    for axis in reversed(range(len(lying) - 1)):
        strides[axis] = strides[axis + 1] * lying[axis + 1]
    whole = np.lib.stride_tricks.as_strided(_BUFFER[_AT : _AT + dtype.itemsize].view(dtype), lying, strides)
    return whole.swapaxes(-1, -2) if turned else whole


@dataclass
class Launch:
    recipe: Recipe
    #: The hashes and the resources of what ran; none where nothing did.
    ran: recipes.Emitted | None = None
    resources: dict = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def recorded(run=True):
    """A list that gets every launch made inside; with `run` false none is made, and all arrays count as a GPU's."""
    found = []
    call, on_device = KernelFn.__call__, arrays.on_device

    def written(self, *args, **kwargs):
        launch = Launch(recipe_of(self, args, kwargs))
        result = None
        if run:
            result = call(self, *args, **kwargs)
            launch.ran, launch.resources = recipes.hashes(self), self.explain().fields["resources"]
        found.append(launch)
        return result

    KernelFn.__call__ = written
    if not run:
        arrays.on_device = lambda x: True
    try:
        yield found
    finally:
        KernelFn.__call__, arrays.on_device = call, on_device


def recipe_of(kernel, args, kwargs):
    """The recipe of a call."""
    given = dict(zip((param[0] for param in kernel.spec.params), args)) | kwargs
    types, layouts, config, sizes = {}, {}, {}, {}
    for name, kind, about, default in kernel.spec.params:
        value = given[name] if name in given else default[0] if default else None
        if kind in ("const", "function"):
            if name in given:
                config[name] = named(value) if kind == "function" else value
            continue
        if not hasattr(value, "shape") or not value.shape and isinstance(value, np.generic):
            if kind == "any":
                types[name] = arrays.dtype_of(value).name if isinstance(value, np.generic) else "f32"
            continue
        dtype = arrays.dtype_of(value).name
        if kind == "any":
            types[name] = f"{dtype}[{len(value.shape)}]"
        elif about[1] is None:
            types[name] = dtype
        if kind == "tensor":
            sizes |= {dim: int(n) for dim, n in zip(about[0], value.shape) if isinstance(dim, str)}
        if lies := lying(value):
            layouts[name] = lies
    config |= {dim: sizes[dim] for dim in kernel.now().kernel.static_dims() if dim in sizes}
    return Recipe(f"{kernel.__module__}:{kernel.__name__}", types, config, layouts=layouts)


def lying(x):
    """How an array lies, as `jit(layouts=…)` takes it; nothing where it lies as most do. See `ArrayClass` of the compiler."""
    size, rank = arrays.itemsize(x), len(x.shape)
    strides = [s * (size if arrays.strides_in_elements(x) else 1) for s in arrays.strides(x)]
    near = [a for a in range(rank) if (a == rank - 1 if x.shape[a] <= 1 else strides[a] == size)]
    if len(near) > 1:
        raise ValueError(f"an array of shape {tuple(x.shape)} has neighbours side by side along {len(near)} axes")
    others = [strides[a] for a in range(rank) if a not in near and x.shape[a] > 1]
    align = next(n for n in (16, 8, 4, 2, 1) if all(at % n == 0 for at in (arrays.address(x), *others)))
    axis = near[0] if near else None
    usual = axis == rank - 1 and align == 16
    return {} if usual or not rank else {"axis": axis, "align": align}


def named(function):
    """A function as recipes name it."""
    name = getattr(function, "__name__", None) or function.name
    for path in (f"{getattr(function, '__module__', None)}:{name}", f"tessera:{name}"):
        with contextlib.suppress(AttributeError, ImportError):
            has = recipes.found(path)
            # Operations hold functions as they are when they are made.
            if has is function or isinstance(has, Func) and has.frozen() is function:
                return {"function": path}
    # An epilogue: the library makes one of each kind.
    for activation, *parts in itertools.product(elementwise.ACTIVATIONS.values(), *[(False, True)] * 3):
        if any(parts) and gemm.epilogue_of(activation, *parts) is function:
            return {"function": "tessera.kernels.gemm:epilogue_of", "of": [named(activation), *parts]}
    raise ValueError(f"no module has {function!r} under a name of its own")
