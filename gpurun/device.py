"""The device of a run: a GPU with PyTorch's tensors or, for a dry run, the host with NumPy's arrays."""

import math
import time

import ml_dtypes
import numpy as np

from . import inputs

#: Bytes on both sides of an array that no kernel may write. As floats they are NaN, so a kernel that reads them gives NaN.
GUARD = 256
POISON = 0xFF


class Skip(Exception):
    """This machine cannot run the item."""


def poison(array):
    """Overwrites every byte of the array. Its axes may be in any order in memory, without gaps."""
    if array.size:
        order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        array.transpose(order).reshape(-1).view(np.uint8)[...] = POISON
    return array


class Placed:
    """A copy of a host array on the device with the same strides, at the same address modulo 16.

    Bytes between its elements and on both sides of it are poisoned. With `exact` there are no bytes on its sides, so a memory
    checker finds accesses out of bounds.
    """

    def __init__(self, device, host, exact=False):
        reach = [(n - 1) * s for n, s in zip(host.shape, host.strides)] if host.size else []
        low = sum(r for r in reach if r < 0)
        self.span = sum(r for r in reach if r > 0) - low + host.itemsize if host.size else 0
        before = 0 if exact else GUARD + (host.__array_interface__["data"][0] + low) % 16
        total = before + self.span + (0 if exact else GUARD)
        self.shape, self.strides, self.dtype = host.shape, host.strides, host.dtype
        self.at = before - low
        # At least one element.
        memory = np.full(max(-(-total // 16) * 16 if not exact else total, host.itemsize), POISON, np.uint8)
        self.elements(memory)[...] = host
        self.before, self.device = memory, device
        self.memory = device.upload(memory)
        self.array = device.view(self.memory, self)

    def elements(self, memory):
        """The elements in a copy of the memory."""
        if not math.prod(self.shape):
            return np.empty(self.shape, self.dtype)
        return np.ndarray(self.shape, self.dtype, memory.data, self.at, self.strides)

    def fetch(self):
        """The memory as it is now."""
        return self.device.download(self.memory)

    def damage(self, memory):
        """A description of writes outside the elements, or an empty text."""
        changed = memory != self.before
        if changed.any() and math.prod(self.shape):
            steps = (*self.strides, 1)
            np.ndarray((*self.shape, self.dtype.itemsize), np.bool_, changed.data, self.at, steps)[...] = False
        places = np.flatnonzero(changed)
        if not places.size:
            return ""
        first = int(places[0]) - self.at
        return f"{places.size} bytes beside the elements were written, the first {first} bytes from the first element"


class Host:
    """NumPy's arrays, on the backend that host arrays run on."""

    name, is_cuda = "host", False

    def describe(self):
        import tessera as ts

        return {"gpu": None, "driver": None, "backend": ts.runtime.capabilities()["backend"]}

    def upload(self, memory):
        return memory.copy()

    def download(self, memory):
        return memory.copy()

    def view(self, memory, placed):
        return placed.elements(memory)

    def to_host(self, array):
        return np.asarray(array)

    def synchronize(self):
        pass

    def alive(self):
        return True

    def empty(self, shape, dtype):
        from tessera.arrays.create import numpy_dtype

        return poison(np.empty(shape, numpy_dtype(dtype)))

    def normal(self, shape, dtype, rng):
        from tessera.arrays.create import numpy_dtype

        return rng.standard_normal(shape, dtype=np.float32).astype(numpy_dtype(dtype))

    def generated(self, declared, seed, name):
        """An input of the ledger."""
        from tessera.arrays.create import numpy_dtype

        places = np.arange(math.prod(declared.shape), dtype=np.int64)
        whole = inputs.values(places, seed, name, declared.kind).astype(np.float32)
        made = (whole / np.float32(inputs.scale(declared.kind))).astype(numpy_dtype(declared.dtype)).reshape(declared.shape)
        return np.ascontiguousarray(made.swapaxes(-1, -2)).swapaxes(-1, -2) if declared.transposed else made

    def wide(self, array):
        return array.astype(np.float64)

    def timer(self, rng=None, **_):
        return HostTimer(rng)


class HostTimer:
    """Seconds of single calls, by the host's clock."""

    def __init__(self, rng=None):
        self.rng = rng

    def samples(self, runs, rounds, seconds=math.inf):
        out = [[] for _ in runs]
        until = time.perf_counter() + seconds
        for index in range(rounds):
            for i in order(len(runs), index, self.rng):
                start = time.perf_counter()
                runs[i](index)
                out[i].append(time.perf_counter() - start)
            if time.perf_counter() > until:
                break
        return out


def order(count, index, rng=None):
    """The order of `count` runs in a round: forwards and backwards alternately, or at random."""
    if rng is not None:
        return [int(i) for i in rng.permutation(count)]
    return range(count) if index % 2 else reversed(range(count))


class Cuda:
    """PyTorch's tensors on the first GPU."""

    name, is_cuda = "cuda", True

    def __init__(self):
        import torch

        self.torch = torch
        if not torch.cuda.is_available():
            raise Skip("PyTorch finds no GPU")
        self.device = torch.device("cuda:0")
        torch.cuda.set_device(self.device)
        torch.zeros(1, device=self.device)

    def describe(self):
        import subprocess

        properties = self.torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            driver = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.split()[0]
        except (OSError, IndexError, subprocess.TimeoutExpired):
            driver = f"CUDA {self.torch.version.cuda}"
        return {
            "gpu": properties.name, "driver": driver, "multiprocessors": properties.multi_processor_count,
            "l2_bytes": getattr(properties, "L2_cache_size", None), "memory_bytes": properties.total_memory,
            "torch": self.torch.__version__,
        }  # fmt: skip

    def dtype(self, name):
        """PyTorch's dtype for one of NumPy's or Tessera's."""
        from tessera.arrays.create import numpy_dtype

        name = name.name if isinstance(name, np.dtype) else numpy_dtype(name).name
        found = getattr(self.torch, name, None)
        if found is None:
            raise Skip(f"PyTorch has no {name}")
        return found

    def upload(self, memory):
        return self.torch.from_numpy(memory.copy()).to(self.device)

    def download(self, memory):
        return memory.cpu().numpy().copy()

    def view(self, memory, placed):
        size = placed.dtype.itemsize
        if not math.prod(placed.shape):
            return self.torch.empty(placed.shape, dtype=self.dtype(placed.dtype), device=self.device)
        if any(s % size for s in placed.strides) or placed.at % size:
            raise Skip("elements at addresses that are not multiples of their size")
        if any(s < 0 for s in placed.strides):
            return self._backwards(memory, placed)
        whole = memory[: memory.numel() // size * size].view(self.dtype(placed.dtype))
        return whole.as_strided(placed.shape, [s // size for s in placed.strides], placed.at // size)

    def _backwards(self, memory, placed):
        """PyTorch has no negative strides; CuPy does, for NumPy's own dtypes."""
        if placed.dtype.kind not in "biuf":
            raise Skip(f"neither PyTorch nor CuPy has negative strides for {placed.dtype}")
        import cupy

        whole = cupy.from_dlpack(memory)
        return cupy.ndarray(placed.shape, placed.dtype, whole.data + placed.at, strides=placed.strides)

    def to_host(self, array):
        if not isinstance(array, self.torch.Tensor):
            return array.get() if hasattr(array, "get") else array.numpy()
        tensor = array.detach()
        name = str(tensor.dtype).removeprefix("torch.")
        if hasattr(ml_dtypes, name):  # NumPy has none of these itself
            bits = self.torch.int16 if tensor.element_size() == 2 else self.torch.uint8
            return tensor.contiguous().view(bits).cpu().numpy().view(getattr(ml_dtypes, name))
        return tensor.cpu().numpy()

    def synchronize(self):
        self.torch.cuda.synchronize()

    def alive(self):
        """Whether the GPU still works for this process: after some errors it does not."""
        try:
            self.torch.cuda.synchronize()
            return float(self.torch.ones(2, device=self.device).sum()) == 2.0
        except Exception:
            return False

    def empty(self, shape, dtype):
        made = self.torch.empty(shape, dtype=self.dtype(dtype), device=self.device)
        if made.numel():
            made.view(-1).view(self.torch.uint8).fill_(POISON)
        return made

    def normal(self, shape, dtype, rng):
        torch = self.torch
        generator = torch.Generator(self.device).manual_seed(int(rng.integers(2**62)))
        return torch.randn(shape, dtype=torch.float32, device=self.device, generator=generator).to(self.dtype(dtype))

    def generated(self, declared, seed, name):
        """An input of the ledger."""
        places = self.torch.arange(math.prod(declared.shape), dtype=self.torch.int64, device=self.device)
        whole = inputs.values(places, seed, name, declared.kind).to(self.torch.float32)
        made = (whole / inputs.scale(declared.kind)).to(self.dtype(declared.dtype)).reshape(declared.shape)
        return made.transpose(-1, -2).contiguous().transpose(-1, -2) if declared.transposed else made

    def wide(self, array):
        return array.double()

    def timer(self, rng=None, **more):
        return CudaTimer(self, rng, **more)


class CudaTimer:
    """Seconds of single calls on the device, by events.

    Before each call 256 MiB are read. This flushes the L2 cache and leaves nothing in it to be written back. It also takes
    longer than the host needs to enqueue the events and the call, so the device never waits for a launch. `lead` adds a sleep
    of that many clock cycles, for calls that take the host longer. With `write` the 256 MiB are written instead.
    """

    FLUSH = 256 * 2**20

    def __init__(self, device, rng=None, write=False, lead=0):
        torch = self.torch = device.torch
        self.rng, self.write, self.lead = rng, write, lead
        self.junk = torch.zeros(self.FLUSH // 4, dtype=torch.float32, device=device.device)

    def flush(self):
        if self.write:
            self.junk.zero_()
        else:
            self.junk.sum()
        if self.lead:
            self.torch.cuda._sleep(self.lead)

    def samples(self, runs, rounds, seconds=math.inf):
        torch = self.torch
        marks = [[] for _ in runs]
        torch.cuda.synchronize()
        until = time.perf_counter() + seconds
        for index in range(rounds):
            for i in order(len(runs), index, self.rng):
                self.flush()
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                runs[i](index)
                end.record()
                marks[i].append((start, end))
            if index % 8 == 7:  # a long queue makes calls wait
                torch.cuda.synchronize()
                if time.perf_counter() > until:
                    break
        torch.cuda.synchronize()
        return [[start.elapsed_time(end) * 1e-3 for start, end in pairs] for pairs in marks]


def best(dry_run=False):
    return Host() if dry_run else Cuda()
