"""Records the launches of a library operation as recipes, while it runs or without running it.

The kernels and their configurations depend on shapes, dtypes and layouts of arrays, not on their elements. So on a machine
without a GPU an operation is called with arrays that have no memory, and its launches are recorded instead of executed.
"""

import contextlib
import dataclasses
import itertools
from dataclasses import dataclass

import numpy as np

from tessera.arrays.create import numpy_dtype
from tessera.kernel.func import Func
from tessera.kernel.kernel_fn import KernelFn
from tessera.kernels import arrays, elementwise, matmul

from . import recipe as recipes
from .recipe import Recipe

#: The address of arrays without memory, aligned like a GPU's allocations.
_BUFFER = np.zeros(1024, np.uint8)
_AT = -_BUFFER.__array_interface__["data"][0] % 512


def without_memory(shape, dtype, transposed=False):
    """A row-major array without memory (with `transposed`, column-major). Its elements must not be accessed."""
    dtype = numpy_dtype(dtype)
    stored = list(shape[:-2]) + [shape[-1], shape[-2]] if transposed else list(shape)
    strides = [dtype.itemsize] * len(stored)
    for axis in reversed(range(len(stored) - 1)):
        strides[axis] = strides[axis + 1] * stored[axis + 1]
    whole = np.lib.stride_tricks.as_strided(_BUFFER[_AT : _AT + dtype.itemsize].view(dtype), stored, strides)
    return whole.swapaxes(-1, -2) if transposed else whole


@dataclass
class Launch:
    recipe: Recipe
    #: Hashes and resources of the kernel that ran; empty if none ran.
    ran: recipes.Emitted | None = None
    resources: dict = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def recorded(run=True):
    """Yields a list of the launches made inside the block. Without `run` none is executed, and all arrays count as a GPU's."""
    found = []
    call, on_device = KernelFn.__call__, arrays.on_device

    def record(self, *args, **kwargs):
        launch = Launch(recipe_of(self, args, kwargs))
        result = None
        if run:
            result = call(self, *args, **kwargs)
            launch.ran, launch.resources = recipes.hashes(self), self.explain().fields["resources"]
        found.append(launch)
        return result

    KernelFn.__call__ = record
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
        if kind == "any" or about[0] is None:
            types[name] = f"{dtype}[{len(value.shape)}]"
        elif about[1] is None:
            types[name] = dtype
        if kind == "tensor" and about[0] is not None:
            sizes |= {dim: int(n) for dim, n in zip(about[0], value.shape) if isinstance(dim, str)}
        if layout := layout_of(value):
            layouts[name] = layout
    config |= {dim: sizes[dim] for dim in kernel.now().kernel.static_dims() if dim in sizes}
    return Recipe(f"{kernel.__module__}:{kernel.__name__}", types, config, layouts=layouts)


def layout_of(x):
    """The layout of an array, as `jit(layouts=…)` takes it; empty for the default. See `ArrayClass` of the compiler."""
    size, rank = arrays.itemsize(x), len(x.shape)
    strides = [s * (size if arrays.strides_in_elements(x) else 1) for s in arrays.strides(x)]
    near = [a for a in range(rank) if (a == rank - 1 if x.shape[a] <= 1 else strides[a] == size)]
    if len(near) > 1:
        raise ValueError(f"an array of shape {tuple(x.shape)} is contiguous along {len(near)} axes")
    others = [strides[a] for a in range(rank) if a not in near and x.shape[a] > 1]
    align = next(n for n in (16, 8, 4, 2, 1) if all(at % n == 0 for at in (arrays.address(x), *others)))
    axis = near[0] if near else None
    usual = axis == rank - 1 and align == 16
    return {} if usual or not rank else {"axis": axis, "align": align}


def named(function):
    """The name of a function in recipes."""
    name = getattr(function, "__name__", None) or function.name
    for path in (f"{getattr(function, '__module__', None)}:{name}", f"tessera:{name}"):
        with contextlib.suppress(AttributeError, ImportError):
            has = recipes.found(path)
            # Operations hold functions frozen at their definition.
            if has is function or isinstance(has, Func) and has.frozen() is function:
                return {"function": path}
    # An epilogue: the library makes one of each kind.
    for activation, *parts in itertools.product(elementwise.ACTIVATIONS.values(), *[(False, True)] * 3):
        if any(parts) and matmul.epilogue_of(activation, *parts) is function:
            return {"function": "tessera.kernels.matmul:epilogue_of", "of": [named(activation), *parts]}
    raise ValueError(f"no module has {function!r} as an attribute")
