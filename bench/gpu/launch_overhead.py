"""Launch overhead: a cached launch from Python, the driver's own function, and a node of a CUDA graph."""

import ctypes
import math
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import tessera as ts

from gpurun.compare import Mismatch
from gpurun.device import Skip
from gpurun.items import Item
from gpurun.stats import median, micro
from ledger.recipe import Recipe

#: Single launches of which the least counts.
SINGLE = 10_000
#: Launches of one sample: few enough that the driver's queue has room for them.
BATCH = 200
ROUNDS = 40
NODES = 1000
ELEMENTS = 256

#: A loop in C around the driver's function, without Python.
LOOP = """
typedef int launch_t(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int loop(launch_t *launch, void *function, unsigned threads, void *stream, void *words, int count) {
    void *params[1] = {words};
    for (int i = 0; i < count; i++) {
        int code = launch(function, 1, 1, 1, threads, 1, 1, 0, stream, params, 0);
        if (code) return code;
    }
    return 0;
}
"""


@ts.kernel
def add_three(
    a: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32], c: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]
):
    i = ts.tile.program_id(0) * 256
    y[i:i + 256] = a[i:i + 256] + b[i:i + 256] + c[i:i + 256]


class Raw:
    """The same code, loaded and launched only with the driver's functions."""

    def __init__(self, recipe, arrays, stream):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        text = recipe.compiled().inspect_ir("target")
        self.threads = int(re.search(r"\.maxntid (\d+)", text)[1])
        entry = re.search(r"\.entry (\w+)\(", text)[1]
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), text.encode())
        self._call("cuModuleGetFunction", ctypes.byref(self.function), module, entry.encode())
        self.words = self._words(text, arrays)
        self.params = (ctypes.c_void_p * 1)(ctypes.addressof(self.words))
        self.stream = ctypes.c_void_p(stream)

    @staticmethod
    def _words(text, arrays):
        """The kernel's parameters as crates/target/src/frame.rs lays them out: the launch, then each array, then sizes."""
        words = [0, 1, 1, 1, 1, 1, 0, 1]
        for a in arrays:
            words += [a.data_ptr(), a.numel(), a.element_size()]
        room = int(re.search(r"\.b8 \w+\[(\d+)\]", text)[1]) // 8
        words += [arrays[0].numel()] * (room - len(words))
        return (ctypes.c_uint64 * room)(*words)

    def _call(self, name, *args):
        if code := getattr(self.cuda, name)(*args):
            raise RuntimeError(f"{name} failed with {code}")

    def from_python(self, count):
        launch, none = self.cuda.cuLaunchKernel, ctypes.c_void_p()
        for _ in range(count):
            launch(self.function, 1, 1, 1, self.threads, 1, 1, 0, self.stream, self.params, none)

    def from_c(self):
        """The loop, or None where there is no C compiler."""
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
            source.write_text(LOOP)
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True, timeout=60)
            loop = ctypes.CDLL(str(library)).loop
        launch = ctypes.cast(self.cuda.cuLaunchKernel, ctypes.c_void_p)

        def run(count):
            if code := loop(launch, self.function, self.threads, self.stream, ctypes.byref(self.words), count):
                raise RuntimeError(f"cuLaunchKernel failed with {code}")

        return run


def items(device, seed):
    yield Item("cached launch, 4 arrays", lambda: cached(device))
    yield Item("graph node", lambda: graph(device))


def _arrays(device):
    rng = np.random.default_rng(5)
    arrays = [device.normal((ELEMENTS,), "f32", rng) for _ in range(3)]
    return [*arrays, device.empty((ELEMENTS,), "f32")]


def _right(device, arrays):
    a, b, c, y = (device.to_host(x).astype(np.float64) for x in arrays)
    if not np.abs(y - (a + b + c)).max() < 1e-5:
        raise Mismatch("the result of the launch is wrong")


def cached(device):
    arrays = _arrays(device)
    recipe = Recipe("bench.gpu.launch_overhead:add_three")

    def ours(count):
        for _ in range(count):
            add_three(*arrays)

    ours(3)
    device.synchronize()
    _right(device, arrays)
    runs = {"ours": ours}
    if device.is_cuda:
        torch = device.torch
        raw = Raw(recipe, arrays, torch.cuda.current_stream().cuda_stream)
        arrays[3].zero_()
        raw.from_python(1)
        device.synchronize()
        _right(device, arrays)
        runs["cuLaunchKernel by ctypes"] = raw.from_python
        try:
            if (loop := raw.from_c()) is not None:
                loop(1)
                runs["cuLaunchKernel in C"] = loop
        except (OSError, subprocess.SubprocessError):
            pass  # the loop through ctypes remains

        def torch_add(count):
            for _ in range(count):
                torch.add(arrays[0], arrays[1], out=arrays[3])

        runs["torch.add"] = torch_add
    samples = {name: [] for name in runs}
    batch, rounds = (BATCH, ROUNDS) if device.is_cuda else (20, 5)
    for index in range(rounds):
        for name in runs if index % 2 else reversed(runs):
            device.synchronize()
            start = time.perf_counter()
            runs[name](batch)
            samples[name].append((time.perf_counter() - start) / batch)
            device.synchronize()
    rows = [{"status": "pass", "peer": name, "us": 1e6 * median(s), "samples_us": micro(s)} for name, s in samples.items()]
    floor = "cuLaunchKernel in C" if "cuLaunchKernel in C" in runs else "cuLaunchKernel by ctypes"
    if floor in samples:
        over = median([a - b for a, b in zip(samples["ours"], samples[floor])])
        rows.append({"status": "pass", "peer": f"ours over {floor}", "us": 1e6 * over, "samples_us": []})
        least = least_of(device, lambda: add_three(*arrays), SINGLE)
        rows.append({"status": "pass", "peer": f"ours, least of {SINGLE}", "us": 1e6 * least, "samples_us": []})
        above = least - min(samples[floor])
        rows.append({"status": "pass", "peer": f"that over the least of {floor}", "us": 1e6 * above, "samples_us": []})
    return {"rows": rows}


def least_of(device, call, count):
    """Seconds of the shortest of `count` single calls, by the host's clock."""
    clock, least = time.perf_counter_ns, math.inf
    for index in range(count):
        if index % BATCH == 0:
            device.synchronize()
        start = clock()
        call()
        least = min(least, clock() - start)
    return 1e-9 * least


def graph(device):
    if not device.is_cuda:
        raise Skip("only GPUs have graphs")
    torch = device.torch
    arrays = _arrays(device)
    add_three(*arrays)
    device.synchronize()
    with ts.runtime.capture_graph() as recorded:
        for _ in range(NODES):
            add_three(*arrays)
    arrays[3].zero_()
    recorded.replay()
    device.synchronize()
    _right(device, arrays)
    theirs = torch.cuda.CUDAGraph()
    with torch.cuda.graph(theirs):
        for _ in range(NODES):
            torch.add(arrays[0], arrays[1], out=arrays[3])
    samples = {"ours": [], "torch.add": []}
    for index in range(20):
        for name, run in (("ours", recorded.replay), ("torch.add", theirs.replay)):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            run()
            end.record()
            end.synchronize()
            if index > 1:
                samples[name].append(start.elapsed_time(end) * 1e-3 / NODES)
    return {
        "rows": [{"status": "pass", "peer": name, "us": 1e6 * median(s), "samples_us": micro(s)} for name, s in samples.items()]
    }
