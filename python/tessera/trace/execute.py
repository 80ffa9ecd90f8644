"""Running traced functions: compiled by default, or op by op by the interpreter of Graph IR (backend ``interp``)."""

from __future__ import annotations

import contextvars
import math
from collections.abc import Callable
from typing import Any

import numpy

from .._core import Array, aligned_empty, device_of_dlpack, dim_value, scoped_settings, settings
from ..arrays.create import _upload as upload, allocation_beside, for_result, numpy_dtype
from ..arrays.device_names import dlpack_device
from ..arrays.host import HostArray, WeakArray, host
from ..base.dtypes import dtype as as_dtype
from ..base.error_location import placed
from ..base.numeric_profile import current as profile_now
from .tracer import Blocks, Gathered, Tracer, aval, fail, leaked, to_numpy

#: How many compiled sizes a traced function with open extents keeps; the oldest is dropped first.
MOST_SIZES = 256
#: "compiled" or "oracle"; the second is the reference that results are compared with.
_mode: contextvars.ContextVar[str] = contextvars.ContextVar("tessera_graph_mode", default="compiled")


#: Called with each program that runs, with a memo that lives as long as the program, and with its code; None where there is none. While
#: there is one, no call is replayed. Who adds one calls `_core.scoped_settings`.
observers: list[Callable[[Any, str, dict, Any], None]] = []

#: Called with code that was compiled.
on_compiled: list[Callable[[Any], None]] = []


#: What traces depend on beside their arguments, such as the mesh of a `with` statement: each gives None, or a value that is part of the key. Who
#: sets such a value calls `_core.scoped_settings`.
surroundings: list[Callable[[], Any]] = []


def surrounded() -> tuple:
    """The values of `surroundings`; an empty tuple where all are None."""
    for around in surroundings:
        if around() is not None:
            return tuple([other() for other in surroundings])
    return ()


class oracle:
    """Inside ``with ts.runtime.oracle():`` functions are evaluated op by op by the definition of each op."""

    def __enter__(self) -> None:
        scoped_settings()
        self._token = _mode.set("oracle")

    def __exit__(self, *_: Any) -> None:
        _mode.reset(self._token)


def compiles() -> bool:
    """Whether functions run as compiled code here."""
    return _mode.get() == "compiled"


class Runner:
    """A traced function that is ready to run, on host arrays or on those of a device."""

    def __init__(
        self, program: Any, func: str, kernels: dict[str, Any] | None = None, backend: str | None = None,
        profile: int | None = None, capture: bool = False, plan: str | None = None, weak: list[bool] | None = None,
        composites: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        """``kernels`` are those of the trace, which the kernels of its ``composites`` are added to."""
        self.plan, self._called, self._composites = plan, kernels, composites
        self.program, self.func, self.backend, self.profile, self.capture = program, func, backend, profile, capture
        params, results = program.signature(func)
        self.params = [(tuple(s), d, numpy_dtype(d)) for s, d in params]
        self.results = [(tuple(s), d, numpy_dtype(d)) for s, d in results]
        #: Which results are weak: computed from Python's numbers alone.
        self.weak = weak if weak is not None else [False] * len(self.results)
        #: Whether extents are left open: code is then made for each size that comes.
        self.is_open = any(isinstance(d, str) for shape, _, _ in self.params for d in shape)
        self._shapes: dict[tuple, list[tuple]] = {}
        self._compiled: dict[tuple[int, str | None, tuple | None, int], Any] = {}
        self._gifts: dict[int, list[tuple[int, int]]] = {}
        #: The mesh that results are on: they may be left in blocks.
        self.mesh: Any = None
        self._boundaries: dict[int, Any] = {}

    @property
    def _kernels(self) -> _Kernels | None:
        return _Kernels(self._called, self) if self._called else None

    def _provider(self, device: str | None, profile: int) -> Callable | None:
        """Gives the function that stands for a composite where this one is compiled; for a block of it on a rank the decomposition for the
        extents of the block too."""
        if not (known := self._composites):
            return None
        target = device or self.backend

        def provide(decomposition: str, types: list, is_block: bool) -> tuple[str | None, str | None]:
            if (site := known.get(decomposition)) is None or (made := site.provide(types, target, profile)) is None:
                return None, None
            if not is_block:
                return made, None
            again = site.again(types, profile)
            return (None, None) if again is None else (made, again)

        return provide

    @property
    def _on_blocks(self) -> Callable | None:
        """Gives the kernel of a user's for the blocks of a rank."""
        if not (known := self._called):
            return None
        return lambda label, types: known[label][1].on_blocks(types)

    def compiled(self, device: str | None = None, sizes: tuple | None = None) -> Any:
        """The code for the numeric profile that holds here, for the device that has the arrays, and for arguments of these
        shapes where extents are left open."""
        profile = profile_now() if self.profile is None else self.profile
        key = (profile, device, sizes, settings())
        found = self._compiled.get(key)
        if found is None:
            args = None if sizes is None else [(list(s), d) for s, (_, d, _) in zip(sizes, self.params, strict=True)]
            # What is missing for a device is found before there is code that has lines.
            found = placed(self.program.compile)(self.func, self.backend, False, profile, device, self.plan, args, self._provider(device, profile),
                                                    self._on_blocks)  # fmt: skip
            for call in on_compiled:
                call(found)
            if len(self._compiled) >= MOST_SIZES:
                gone = self._compiled.pop(next(iter(self._compiled), None), None)
                self._gifts.pop(id(gone), None)
                self._boundaries.pop(id(gone), None)
            self._compiled[key] = found
        return found

    def made(self) -> list[tuple[int | None, tuple | None]]:
        """The devices and shapes that there is code for."""
        return list(dict.fromkeys((device, sizes) for _, device, sizes, _ in self._compiled))

    def sizes(self, arrays: list[Any]) -> tuple | None:
        """The shapes that code is made for: none where the function says all of them."""
        return tuple(tuple(aval(a)[0]) for a in arrays) if self.is_open else None

    def shapes(self, sizes: tuple | None) -> list[tuple]:
        """The results for arguments of these shapes."""
        if sizes is None:
            return self.results
        found = self._shapes.get(sizes)
        if found is None:
            if len(self._shapes) >= MOST_SIZES:
                self._shapes.clear()
            values = {d: n for (shape, _, _), given in zip(self.params, sizes, strict=True)
                      for d, n in zip(shape, given, strict=True) if isinstance(d, str) and d.isidentifier()}  # fmt: skip
            found = self._shapes[sizes] = [
                (tuple(dim_value(d, values) if isinstance(d, str) else d for d in shape), dtype, kind)
                for shape, dtype, kind in self.results
            ]
        return found

    def __call__(self, arrays: list[Any], donated: tuple[int, ...] = ()) -> list[Any]:
        device = device_of(arrays)
        sizes = self.sizes(arrays)
        if device is not None and _mode.get() != "oracle":
            made = self.compiled(device, sizes)
            if made.on_device:
                return self._on_device(made, arrays, device, donated, self.shapes(sizes))
        if self.mesh is not None and _mode.get() != "oracle" and (found := self._boundary(sizes)) is not None:
            return self._in_blocks(found, arrays, sizes)
        ready = [_row_major(a, t) for a, t in zip(arrays, self.params, strict=True)]
        if _mode.get() == "oracle":
            inputs = [((list(a.shape), d), a.tobytes()) for a, (_, d, _) in zip(ready, self.params, strict=True)]
            made = self.program.evaluate(self.func, inputs, self._kernels)
            return [host(numpy.frombuffer(bytearray(b), numpy_dtype(d)).reshape(s), w) for (s, d, b), w in zip(made, self.weak, strict=True)]
        outputs = [aligned_empty(WeakArray if w else HostArray, s, kind) for (s, _, kind), w in zip(self.shapes(sizes), self.weak, strict=True)]
        self.compiled(None, sizes).run(ready, outputs, self._kernels)
        return outputs

    def _boundary(self, sizes: tuple | None) -> Any:
        """Where a program of ranks takes and leaves blocks; None where it takes whole arrays."""
        made = self.compiled(None, sizes)
        if id(made) not in self._boundaries:
            self._boundaries[id(made)] = self._bounded(made.boundary)
        return self._boundaries[id(made)]

    def _bounded(self, found: Any) -> Any:
        """What a program says of its boundary, for the ranks of the mesh: it has a rank for each position along the axes that it splits something
        over. First for each of its ranks one of the mesh."""
        if found is None:
            return None
        axes, extents, takes, leaves = found
        if any([a not in self.mesh.axes or self.mesh.axis_size(a) != n for a, n in zip(axes, extents, strict=True)]):
            return None
        ranks = []
        for rank in range(self.mesh.size):
            at = dict(zip(self.mesh.axes, self.mesh.coords(rank), strict=True))
            place = 0
            for axis, extent in zip(axes, extents, strict=True):
                place = place * extent + at[axis]
            ranks.append(place)
        if self.mesh._are_several and ranks != list(range(math.prod(extents))):
            # Processes play the ranks of the mesh, and this program has others: each runs all of it on whole arrays.
            return None
        first = [ranks.index(place) for place in range(math.prod(extents))]
        made = [(splits, tuple(block), [of_rank[place] for place in ranks], {}) for splits, block, of_rank in leaves]
        return first, [(splits, {}) for splits in takes], made

    def _in_blocks(self, boundary: Any, arrays: list[Any], sizes: tuple | None) -> list[Any]:
        """Runs a program of ranks: blocks of arguments are used where they are, and each block of a result is made once."""
        first, takes, leaves = boundary
        ready: list[Any] = []
        for a, of, (splits, known) in zip(arrays, self.params, takes, strict=True):
            blocks = a.blocks(splits, known) if type(a) is Gathered and splits is not None else None
            ready.append(_row_major(a, of) if blocks is None else [blocks[rank] for rank in first])
        outputs = []
        several, own = self.mesh._are_several, self.mesh.local_ranks
        for (shape, name, kind), (splits, extents, of_rank, known) in zip(self.shapes(sizes), leaves, strict=True):
            here = {of_rank[rank] for rank in own} if several else range(max(of_rank) + 1)
            made = [aligned_empty(HostArray, extents, kind) if at in here else None for at in range(max(of_rank) + 1)]
            if several:
                # A rank of another process may have the same block: it has memory of its own for it.
                outputs.append(Blocks(shape, name, splits, [made[at] if rank in own else None for rank, at in enumerate(of_rank)], known))
                continue
            outputs.append(Blocks(shape, name, splits, [made[at] for at in of_rank], known))
        if several and not own:
            return outputs
        self.compiled(None, sizes).run_blocks(ready, [[out.of_rank[rank] for rank in first] for out in outputs], several)
        return outputs

    def ran(self, arrays: list[Any]) -> Any:
        """The code that these arrays run; None where each op is evaluated by its definition."""
        return None if _mode.get() == "oracle" else self.compiled(device_of(arrays), self.sizes(arrays))

    def _donations(self, made: Any) -> list[tuple[int, int]]:
        """Which results may be written over which arguments; found once, for every step of a plan is looked at."""
        found = self._gifts.get(id(made))
        if found is None:
            found = self._gifts[id(made)] = made.donations
        return found

    def _on_device(self, made: Any, arrays: list[Any], device: str, donated: tuple[int, ...], results: list[tuple]) -> list[Any]:
        like = next(a for a in arrays if held_by(a) is not None)
        ready = [on_device(a, t[2], device) for a, t in zip(arrays, self.params, strict=True)]
        given = {r: ready[a] for r, a in self._given(made, arrays, donated).items()}
        outputs = [given[i] if i in given else for_result(s, as_dtype(d), "write", like, device)
                   for i, (s, d, _) in enumerate(results)]  # fmt: skip
        made.run(ready, outputs, self._kernels, self.capture)
        return outputs

    def _given(self, made: Any, arrays: list[Any], donated: tuple[int, ...]) -> dict[int, int]:
        """The results that are written over donated arguments, each with its argument. One that shares memory with another argument
        keeps it."""
        if not donated:
            return {}
        spans = [_span(a) for a in arrays]
        alone = {a for a in donated if spans[a] is not None and not any(_share(spans[a], s) for i, s in enumerate(spans) if i != a)}
        return {r: a for r, a in self._donations(made) if a in alone}

    def makes(self, device: str, arrays: list[Any], held: list[Any], donated: tuple[int, ...]) -> tuple[list[Any], bool] | None:
        """How call replay makes the results of a call on a device: the number of the argument whose memory each takes, a call of the
        arguments' library, a function of the argument of a number, or None for an array of ours; and whether launches are captured. None where a donated argument keeps its
        memory because of this call's arrays."""
        sizes = self.sizes(arrays + held)
        like = next(a for a in arrays + held if held_by(a) is not None)
        run = self.compiled(device, sizes)
        given = self._given(run, arrays + held, donated)
        if donated and len(given) < sum(a in donated for _, a in self._donations(run)):
            return None
        made = [given[i] if i in given else allocation_beside(s, as_dtype(d), like, arrays) for i, (s, d, _) in enumerate(self.shapes(sizes))]
        return made, self.capture


def _span(x: Any) -> tuple[int, int] | None:
    """The addresses of an array without gaps on a device; None where it has none or they are not known."""
    if held_by(x) is None:
        return None
    if isinstance(x, Array):
        return (x.data_ptr(), x.data_ptr() + x.nbytes) if _is_dense(x) else None
    if hasattr(x, "data_ptr") and hasattr(x, "element_size"):
        return x.data_ptr(), x.data_ptr() + x.numel() * x.element_size()
    interface = getattr(x, "__cuda_array_interface__", None)
    if interface is None:
        return None
    return interface["data"][0], interface["data"][0] + math.prod(interface["shape"]) * numpy.dtype(interface["typestr"]).itemsize


def _share(a: tuple[int, int], b: tuple[int, int] | None) -> bool:
    return b is not None and a[0] < b[1] and b[0] < a[1]


def held_by(x: Any) -> str | None:
    """The name of the device that holds an array; ``None`` for the host."""
    if type(x) is numpy.ndarray or isinstance(x, (numpy.ndarray, numpy.generic, bool, int, float, Gathered)):
        return None
    if (cuda := getattr(x, "is_cuda", None)) is not None:
        # PyTorch says so in a tenth of the time.
        return f"cuda:{x.get_device()}" if cuda else None
    if isinstance(x, Tracer):
        raise leaked(x)
    kind, number = dlpack_device(x)
    return device_of_dlpack(kind, number)


def device_of(arrays: list[Any]) -> str | None:
    """The one device of all arrays that are on one."""
    found: str | None = None
    for x in arrays:
        here = held_by(x)
        if here is not None and found is not None and here != found:
            raise fail("E_LAUNCH_DEVICE_MISMATCH", f"expected arrays on one device, got arrays on {found} and {here}",
                       "copy them to one of the devices first")  # fmt: skip
        found = here if found is None else found
    return found


def on_device(x: Any, kind: numpy.dtype, device: str) -> Any:
    """An array row by row on the device. Those of the host are copied there."""
    if held_by(x) is None:
        host = to_numpy(x)
        return upload(numpy.ascontiguousarray(host.astype(kind, copy=False)).reshape(host.shape), device)
    if hasattr(x, "is_contiguous"):
        x = x.detach() if x.requires_grad else x
        return x if x.is_contiguous() else x.contiguous()
    if hasattr(x, "flags") and not getattr(x.flags, "c_contiguous", True):
        return x.copy(order="C")
    if isinstance(x, Array) and not _is_dense(x):
        return upload(numpy.ascontiguousarray(x.numpy()), device)
    return x


def _is_dense(x: Array) -> bool:
    step = x.itemsize
    for extent, stride in zip(reversed(x.shape), reversed(x.strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def _row_major(array: Any, wanted: tuple) -> numpy.ndarray:
    made = to_numpy(array)
    if made.dtype != wanted[2]:
        try:
            made = made.astype(wanted[2])
        except OverflowError:  # of Python's numbers, which have no end
            raise fail("E_ARGUMENT", f"expected numbers that {wanted[2]} holds, got {array}", "give a float, or a smaller number") from None
    return made if made.flags.c_contiguous else numpy.ascontiguousarray(made).reshape(made.shape)


class _Kernels:
    """Runs the kernels that a function calls."""

    def __init__(self, kernels: dict[str, Any], runner: Runner) -> None:
        self._kernels, self._runner = kernels, runner

    def __call__(self, name: str, config: str | None, privileges: list[str], arrays: list) -> list[bytes]:
        made = [numpy.frombuffer(data, numpy_dtype(dtype)).reshape(shape) for shape, dtype, data in arrays]
        if name in self._kernels:
            self._kernels[name][1](made)
        else:
            # One that a transform made of them.
            runner = self._runner
            profile = profile_now() if runner.profile is None else runner.profile
            backend = "interp" if _mode.get() == "oracle" else runner.backend
            runner.program.run_kernel(name, made, backend, profile)
        return [a.tobytes() for a in made]

    def on_device(self, name: str, arrays: list) -> None:
        """The same on arrays of a device, on the stream that is named."""
        self._kernels[name][1](arrays)
