"""Runs kernel calls with host arrays on the device: each array is copied there with the same strides and alignment.

The examples' `run` functions and the safe operations make NumPy arrays in between. Here each of their calls is intercepted and
runs on the GPU instead. After every call, memory around the arrays is checked for writes out of bounds.
"""

import os
import warnings
from contextlib import contextmanager

import numpy as np

from tessera.arrays import create as _create
from tessera.dist import _launch, _mesh
from tessera.kernel import kernel_fn
from tessera.kernel.kernel_fn import KernelFn
from tessera.kernels import arrays as library

from gpurun.compare import Mismatch
from gpurun.device import POISON, Placed, poison


class Damage(Mismatch):
    """A kernel wrote outside its arrays."""


class Mover:
    def __init__(self, device, exact=False):
        self.device, self.exact = device, exact

    def call(self, launch, kernel, args, kwargs, grid):
        placed = {}

        def there(value):
            if not isinstance(value, np.ndarray):
                return value
            # The same array twice is one array.
            if id(value) not in placed:
                placed[id(value)] = (value, Placed(self.device, value, self.exact))
            return placed[id(value)][1].array

        args = [there(a) for a in args]
        if not placed and not any(isinstance(v, np.ndarray) for v in kwargs.values()) and self.device.is_cuda:
            return self._without_arrays(launch, kernel, args, kwargs, grid)
        with self.selected():
            result = launch(kernel, *args, grid=grid, **{name: there(a) for name, a in kwargs.items()})
        self.device.synchronize()
        for host, copy in placed.values():
            self._bring_back(kernel, host, copy)
        back = {id(copy.array): host for host, copy in placed.values()}
        one = lambda r: r if r is None else back[id(r)] if id(r) in back else self.device.to_host(r)  # noqa: E731
        return tuple(one(r) for r in result) if isinstance(result, tuple) else one(result)

    def _without_arrays(self, launch, kernel, args, kwargs, grid):
        """No array says where such a call is to run: the backend is named, and its results are in host memory."""
        before = os.environ.get("TESSERA_BACKEND")
        os.environ["TESSERA_BACKEND"] = "ptx"
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "W_HOST_COPY: the arrays are in host memory")
                return launch(kernel, *args, grid=grid, **kwargs)
        finally:
            os.environ.pop("TESSERA_BACKEND")
            if before is not None:
                os.environ["TESSERA_BACKEND"] = before

    @contextmanager
    def selected(self):
        """Inside the block arrays of the device are not taken to a backend of the host, which the caller may have named."""
        if not self.device.is_cuda:
            yield
            return
        named = os.environ.pop("TESSERA_BACKEND", None)
        try:
            yield
        finally:
            if named is not None:
                os.environ["TESSERA_BACKEND"] = named

    def _bring_back(self, kernel, host, copy):
        memory = copy.fetch()
        if (memory == copy.before).all():
            return
        if damage := copy.damage(memory):
            raise Damage(f"{kernel.name}, an array of {host.dtype} {host.shape} with strides {host.strides}: {damage}")
        host[...] = copy.elements(memory)


@contextmanager
def on(device, exact=False):
    """Inside the block, kernels that get host arrays run on the device."""
    mover = Mover(device, exact)
    call, launch = KernelFn.__call__, KernelFn.launch

    def taken(kernel, *args, grid=None, **kwargs):
        # Inside a trace a call is an op of the function.
        if kernel_fn.frames.frames and kernel_fn.takes_part(args, kwargs):
            return call(kernel, *args, **kwargs) if grid is None else launch(kernel, *args, grid=grid, **kwargs)
        return mover.call(launch, kernel, args, kwargs, grid)

    # Ranks of meshes that a test counts are on the device, and so are the blocks of their arrays.
    devices, submit = _mesh._devices, _launch._Launch.submit

    def counted(given):
        found = devices(given)
        return ["cuda:0"] * found if isinstance(found, int) and device.is_cuda else found

    def submitted(launched):
        with mover.selected():
            return submit(launched)

    KernelFn.__call__ = KernelFn.launch = taken
    _mesh._devices, _launch._Launch.submit = counted, submitted
    try:
        yield mover
    finally:
        KernelFn.__call__, KernelFn.launch = call, launch
        _mesh._devices, _launch._Launch.submit = devices, submit


@contextmanager
def poisoned(device):
    """Inside the block, arrays that Tessera allocates for results are filled with NaN."""
    places = [(_create, "empty"), (_create, "_of_torch")]
    places += [(library, name) for name in ("empty", "empty_like", "empty_as")]
    before = [(module, name, getattr(module, name)) for module, name in places if hasattr(module, name)]

    def filled(make):
        def made(*args, **kwargs):
            array = make(*args, **kwargs)
            if isinstance(array, np.ndarray):
                return poison(array)
            if device.is_cuda and isinstance(array, device.torch.Tensor) and array.numel():
                # Without gaps, whatever the order of its axes.
                array.as_strided((array.numel(),), (1,)).view(device.torch.uint8).fill_(POISON)
            return array

        return made

    for module, name, make in before:
        setattr(module, name, filled(make))
    try:
        yield
    finally:
        for module, name, make in before:
            setattr(module, name, make)
