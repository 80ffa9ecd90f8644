"""Programs on an NVIDIA GPU, beside PyTorch."""

import contextlib
import functools
import time

from . import meanings
from .borrowed import Cuda, median
from .machine import Machine
from .programs import MIB

#: Clocks that the device sleeps before each call, at least, and for each second that the host takes to issue the call: times are the
#: device's, and never those of a device that waits for the host.
LEAD, CLOCKS = 200_000, 4e9


class Gpu(Machine):
    def __init__(self, seed, compiled=True):
        import numpy as np
        import torch

        self.torch, self.device, self.compiled = torch, Cuda(), compiled
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.timer = self.device.timer(rng=np.random.default_rng(seed), write=True, lead=LEAD)
        self.names = meanings.torch_names(torch)
        self.native = {**self.names, "torch": torch, "sdpa": self.sdpa, "blas": self.blas, "taps": self.taps}
        self.native["scaled_dot_product_attention"] = torch.nn.functional.scaled_dot_product_attention
        self.native["one"] = torch.ones((), device="cuda")
        self.processors = torch.cuda.get_device_properties(0).multi_processor_count

    def describe(self):
        return self.device.describe()

    # Arrays

    def array(self, a, program, place):
        torch = self.torch
        generator = torch.Generator("cuda").manual_seed(1000003 * program.seed + 1009 * program.index + place)
        shape = (*a.shape[:-2], a.shape[-1], a.shape[-2]) if a.turned else a.shape
        if a.values.startswith("below"):
            made = torch.randint(0, int(a.values.split()[1]), shape, device="cuda", generator=generator)
        else:
            made = torch.randn(shape, device="cuda", generator=generator)
            made = 1 + 0.1 * made if a.values == "weights" else made
        made = made.to(self.device.dtype(a.dtype))
        return made.transpose(-1, -2) if a.turned else made

    def empty(self, a):
        return self.torch.full(a.shape, float("nan"), device="cuda", dtype=self.device.dtype(a.dtype))

    def zeroed(self, x):
        return x.zero_()

    def wide(self, x):
        return x.double() if x.is_floating_point() else x

    def index(self, picked):
        return self.torch.tensor(picked, device="cuda")

    def row_max(self, x):
        return x.amax(-1, keepdim=True)

    def first(self, wrong):
        return self.torch.nonzero(wrong)[0].tolist()

    def check(self, program, arrays, result):
        # PyTorch takes no rows out of arrays of one byte a float.
        given = {n: x.to(self.torch.bfloat16) if x.element_size() == 1 else x for n, x in arrays.items()}
        super().check(program, given, result)

    # Peers

    def blas(self, library):
        self.torch.backends.cuda.preferred_blas_library(library)

    def sdpa(self, kind, call):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
        with sdpa_kernel(backend[kind]):
            return call()

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def _taps(self, r, places, weights, dtype):
        made = self.torch.zeros(1, 1, 2 * r + 1, 2 * r + 1, device="cuda", dtype=dtype)
        for (i, j), w in zip(places, weights):
            made[0, 0, r + i, r + j] = w
        return made

    def taps(self, r, places, weights):
        return self._taps(r, tuple(places), tuple(weights), self.stored)

    def peers(self, program, arrays, out):
        self.stored = next(iter(arrays.values())).dtype
        names = {**self.native, **arrays, "out": self.torch.empty_like(out)}
        found = {name: eval(f"lambda iteration=0: {text}", names) for name, text in program.torch.items()}
        direct = program.torch and program.flops and "conv2d" not in program.torch and "addmm" not in program.torch
        if not direct and not program.dtype.startswith("fp8"):
            found["eager"] = eval(f"lambda iteration=0: {program.meaning}", names)
            if self.compiled:
                self.torch._dynamo.reset()
                text = f"lambda {', '.join(arrays)}: {program.meaning}"
                function = self.torch.compile(eval(text, dict(self.native)), dynamic=False)
                given = list(arrays.values())
                found["compile"] = lambda iteration=0: function(*given)
        return found

    def copy(self, program):
        """Half of the program's bytes read, half written."""
        size = max(1, program.bytes // 2)
        source, target = (self.torch.ones(size, dtype=self.torch.uint8, device="cuda") for _ in range(2))
        return lambda iteration=0: target.copy_(source)

    # Times

    def settle(self, run):
        run()
        self.torch.cuda.synchronize()

    def host_seconds(self, run):
        """What the host takes to issue a call."""
        taken = []
        for _ in range(3):
            self.torch.cuda.synchronize()
            start = time.perf_counter()
            run()
            taken.append(time.perf_counter() - start)
        return min(taken)

    def times(self, runs, rounds, seconds):
        self.hosts = {name: self.host_seconds(run) for name, run in runs.items()}
        self.timer.lead = LEAD + int(CLOCKS * max(self.hosts.values()))
        found = dict(zip(runs, self.timer.samples(list(runs.values()), rounds, seconds)))
        self.timer.lead = LEAD
        return found

    def free(self):
        self.torch.cuda.empty_cache()

    def alive(self):
        return self.device.alive()

    def memory_full(self, error):
        return isinstance(error, self.torch.OutOfMemoryError)

    @functools.cached_property
    def roof(self):
        """Bytes a second of a large copy, and operations a second of a large matmul by dtype."""
        torch = self.torch
        source, target = (torch.ones(512 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2))
        seconds = median(self.timer.samples([lambda iteration: target.copy_(source)], 8)[0])
        found = {"bytes": 2 * source.numel() / seconds}
        for name, n in (("bf16", 8192), ("f16", 8192), ("f32", 4096), ("fp8_e4m3", 8192)):
            a, b = (torch.randn(n, n, device="cuda").to(self.device.dtype(name)) for _ in range(2))
            one = self.native["one"]
            if name.startswith("fp8"):
                run = lambda iteration: torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)  # noqa: B023, E731
            else:
                run = lambda iteration: a @ b  # noqa: B023, E731
            with contextlib.suppress(Exception):
                run(0)
                found[name] = 2.0 * n**3 / median(self.timer.samples([run], 6)[0])
        return found
