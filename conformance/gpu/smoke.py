"""Smoke tests of launches, arrays, streams, graphs and errors on an NVIDIA GPU: one line each, exit status 1 if one fails.

    scripts/gpu-extension.sh
    PYTHONPATH=build/gpu python3 -m conformance.gpu.smoke [NAME...]

PyTorch, CuPy and JAX are used where they are installed. With names, only the checks whose names hold one of them.
"""

from __future__ import annotations

import os
import sys

import ctypes
import importlib
import signal
import statistics
import subprocess
import time
import traceback
import warnings

# By default JAX allocates most of the memory when it starts.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

import tessera as ts

CHECKS: list = []


class Skipped(Exception):
    """The check needs something that is not installed."""


def check(function):
    CHECKS.append(function)
    return function


def library(name: str):
    try:
        return importlib.import_module(name)
    except ImportError as e:
        raise Skipped(f"{name} is not installed: {e}") from None


def close(got, expected, tolerance: float = 1e-5) -> str:
    got, expected = np.asarray(got, np.float64), np.asarray(expected, np.float64)
    assert got.shape == expected.shape, f"shape {got.shape}, expected {expected.shape}"
    error = float(np.abs(got - expected).max() / max(1e-30, np.abs(expected).max())) if got.size else 0.0
    assert error <= tolerance, f"error {error:.2e}, allowed {tolerance:.0e}"
    return f"error {error:.1e}"


# --- kernels ---


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = alpha * x[i] + y[i]
    return y


@ts.kernel
def axpy_tiles(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.program_id(0) * 1024
    y[i : i + 1024] = alpha * x[i : i + 1024] + y[i : i + 1024]
    return y


@ts.kernel
def softmax(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    t = x[row, :]
    weights = ts.tile.exp(t - ts.tile.max(t))
    y[row, :] = weights / ts.tile.sum(weights)
    return y


def make_gemm(dtype):
    BM, BN, BK = 64, 64, 32

    @ts.kernel
    def gemm(A: ts.Tensor["M", "K", dtype], B: ts.Tensor["K", "N", dtype], C: ts.Out["M", "N", ts.f32]):
        m = ts.tile.program_id(0) * BM
        n = ts.tile.program_id(1) * BN
        acc = ts.tile.zeros((BM, BN), ts.f32)
        for k in ts.tile.range(0, K, BK):
            acc = ts.tile.mma(A[m : m + BM, k : k + BK], B[k : k + BK, n : n + BN], accumulator=acc)
        C[m : m + BM, n : n + BN] = acc
        return C

    return gemm


gemm_f32, gemm_bf16, gemm_f16 = make_gemm(ts.f32), make_gemm(ts.bf16), make_gemm(ts.f16)


@ts.kernel
def guarded(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    row = ts.tile.program_id(0)
    t = x[row, :]
    assert ts.tile.all(t >= 0.0), "expected no negative number"
    y[row, :] = t


@ts.kernel
def four(a: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32], c: ts.Tensor["n", ts.f32], d: ts.Tensor["n", ts.f32]):
    i = ts.tile.program_id(0) * 256
    d[i : i + 256] = a[i : i + 256] + b[i : i + 256] + c[i : i + 256]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- devices and our own arrays ---


@check
def devices():
    found = ts.runtime.devices()
    assert found, ts.runtime.backends()["ptx"]
    one = found[0]
    return f"{one['name']}, {one['arch']}, {one['multiprocessors']} multiprocessors, CUDA {one['cuda']}, PTX {one['ptx']}"


@check
def own_arrays():
    x = numbers(7, 33)
    for dtype in ("f32", "bf16", "f16", "fp8_e4m3", "i32", "bool"):
        host = ts.array(x, dtype)
        assert ts.array(host, device="cuda:0").numpy().tobytes() == host.tobytes(), dtype
    array = ts.array(x, device="cuda:0")
    assert (array[::2, ::-3].numpy() == x[::2, ::-3]).all() and (array.T.numpy() == x.T).all()
    array[1:3, 5] = 9
    x[1:3, 5] = 9
    assert (array.numpy() == x).all() and (ts.zeros((3, 5), device="cuda:0").numpy() == 0).all()
    return repr(array)


@check
def saxpy_lanes():
    for n in (1, 255, 256, 257, 100_003):
        x, y = numbers(n), numbers(n, seed=1)
        out = ts.array(y, device="cuda:0")
        assert saxpy(ts.array(x, device="cuda:0"), out, 2.5) is out
        error = close(out.numpy(), np.float32(2.5) * x + y, 1e-6)
    return error


@check
def saxpy_tiles_and_views():
    base = numbers(3000)
    array = ts.array(base, device="cuda:0")
    for view in (slice(0, 1000), slice(1, 1001), slice(0, 2000, 2), slice(999, None, -1), slice(3, 1003)):
        x, y = numbers(1000, seed=2), base[view][:1000].copy()
        out = array[view][:1000]
        axpy_tiles(ts.array(x, device="cuda:0"), out, -1.5)
        expected = np.float32(-1.5) * x[: len(y)] + y
        error = close(out.numpy(), expected, 1e-6)
        base[view][:1000] = expected
    close(array.numpy(), base, 1e-6)
    return error


@check
def softmax_rows():
    for m, n in ((5, 64), (33, 1000), (7, 4096)):
        x = numbers(m, n)
        weights = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
        error = close(softmax(ts.array(x, device="cuda:0")).numpy(), weights / weights.sum(1, keepdims=True), 1e-5)
    return error


@check
def gemms():
    errors = []
    for kernel, dtype, tolerance in ((gemm_f32, "f32", 1e-5), (gemm_bf16, "bf16", 1e-5), (gemm_f16, "f16", 1e-5)):
        for m, n, k in ((64, 64, 64), (130, 70, 100)):
            a, b = ts.array(numbers(m, k), dtype), ts.array(numbers(k, n, seed=1), dtype)
            got = kernel(ts.array(a, device="cuda:0"), ts.array(b, device="cuda:0")).numpy()
            errors.append(close(got, a.astype(np.float64) @ b.astype(np.float64), tolerance))
    return ", ".join(errors[1::2])


@check
def assertions():
    x = ts.array(np.abs(numbers(10, 100)), device="cuda:0")
    y = ts.empty((10, 100), device="cuda:0")
    guarded(x, y)
    assert (y.numpy() == x.numpy()).all()
    x[5, 50] = -1
    try:
        guarded(x, y)
    except ts.CheckError as e:
        assert e.code == "E_ASSERT" and "expected no negative number" in str(e) and e.line, str(e)
    else:
        raise AssertionError("the assertion was not raised")
    guarded(ts.zeros((3, 100), device="cuda:0"), ts.empty((3, 100), device="cuda:0"))
    return "raised with its line, and the device works on"


@check
def memory_runs_out():
    before = ts.runtime.memory_stats()
    try:
        ts.empty(2 * before["device_total"], "u8", device="cuda:0")
    except ts.ResourceError as e:
        assert e.code == "E_OOM", str(e)
        message = e.message
    else:
        raise AssertionError("there was memory for twice the device's")
    y = ts.zeros(1000, device="cuda:0")
    saxpy(ts.ones(1000, device="cuda:0"), y, 1.0)
    assert (y.numpy() == 1).all()
    trimmed = ts.runtime.trim()
    return f"{message}; works on; {trimmed} bytes trimmed"


@check
def host_arrays():
    x, base = numbers(1000), numbers(2000, seed=1)
    expected = base.copy()
    expected[::2] += np.float32(2) * x[::-1]
    ts.runtime.select_backend("ptx")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(2):
                fresh = base.copy()
                axpy_tiles(x[::-1], fresh[::2], 2.0)
        assert close(fresh, expected, 1e-6)
        assert sum("W_HOST_COPY" in str(w.message) for w in caught) == 1
        got = softmax(numbers(3, 100))
        assert isinstance(got, np.ndarray)
        return close(got.sum(1), np.ones(3))
    finally:
        ts.runtime.select_backend(None)


@check
def checked_and_interpreted():
    x, y = numbers(300), numbers(300, seed=1)
    a, b = ts.array(x, device="cuda:0"), ts.array(y, device="cuda:0")
    assert saxpy.check(a, b, 2.0) and (b.numpy() == y).all()
    saxpy.interpret(a, b, 2.0)
    return close(b.numpy(), np.float32(2) * x + y, 1e-6)


@check
def graphs():
    x, y = ts.ones(1000, device="cuda:0"), ts.zeros(1000, device="cuda:0")
    saxpy(x, y, 1.0)
    with ts.runtime.capture_graph() as graph:
        for _ in range(5):
            saxpy(x, y, 1.0)
    assert (y.numpy() == 1).all(), "the recording ran"
    for _ in range(3):
        graph.replay()
    assert (y.numpy() == 16).all()
    try:
        with ts.runtime.capture_graph():
            softmax(ts.empty((4, 4), device="cuda:0"))
    except ts.LaunchError as e:
        assert e.code == "E_CAPTURE", str(e)
    else:
        raise AssertionError("an allocation was recorded")
    saxpy(x, y, 1.0)
    assert (y.numpy() == 17).all()
    return repr(graph)


@check
def own_streams():
    x, y = ts.ones(1 << 22, device="cuda:0"), ts.zeros(1 << 22, device="cuda:0")
    with ts.runtime.stream() as stream:
        for _ in range(50):
            saxpy(x, y, 1.0)
    for _ in range(50):
        saxpy(x, y, 1.0)
    assert (y.numpy() == 100).all()
    return repr(stream)


# --- other libraries ---


@check
def torch_tensors():
    torch = library("torch")
    x, y = torch.randn(5000, device="cuda"), torch.randn(5000, device="cuda")
    expected = 2.5 * x + y
    for _ in range(3):
        out = y.clone()
        assert saxpy(x, out, 2.5) is out
        assert torch.allclose(out, expected, rtol=1e-5, atol=1e-5)
    made = softmax(torch.randn(10, 500, device="cuda"))
    assert isinstance(made, torch.Tensor) and made.is_cuda and torch.allclose(made.sum(1), torch.ones(10, device="cuda"))
    for dtype, kernel in ((torch.bfloat16, gemm_bf16), (torch.float16, gemm_f16)):
        a, b = torch.randn(200, 96, device="cuda", dtype=dtype), torch.randn(96, 150, device="cuda", dtype=dtype)
        error = close(kernel(a, b).cpu(), (a.double() @ b.double()).cpu(), 1e-5)
        close(kernel(b.T, a.T).cpu(), (b.T.double() @ a.T.double()).cpu(), 1e-5)
    leaf = torch.zeros(100, device="cuda", requires_grad=True)
    saxpy(torch.ones(100, device="cuda"), leaf, 3.0)
    assert (leaf.detach() == 3).all()
    host = softmax(torch.randn(3, 50))
    assert isinstance(host, torch.Tensor) and not host.is_cuda
    try:
        saxpy(torch.zeros(8, device="cuda"), torch.zeros(8), 1.0)
    except ts.LaunchError as e:
        assert e.code == "E_LAUNCH_DEVICE_MISMATCH" and "`x` on cuda:0, `y` in host memory" in str(e)
    else:
        raise AssertionError("arrays of two devices were accepted")
    exchange = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
    return f"{error}, torch {torch.__version__}, {'with' if exchange else 'without'} DLPack's functions in C"


@check
def torch_fp8():
    torch = library("torch")

    @ts.kernel
    def widen(x: ts.Tensor["n", ts.fp8_e4m3], y: ts.Tensor["n", ts.f32]):
        i = ts.tile.program_id(0) * 256
        y[i : i + 256] = ts.tile.cast(x[i : i + 256], ts.f32)

    x = torch.randn(1000, device="cuda").to(torch.float8_e4m3fn)
    y = torch.empty(1000, device="cuda")
    widen(x, y)
    assert (y == x.float()).all()
    return "equal"


@check
def torch_streams():
    torch = library("torch")
    x, y = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    saxpy(x, y, 1.0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for value in range(1, 4):
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)
            x.fill_(value)
            saxpy(x, y, 1.0)  # on the side stream, behind the fill
        side.synchronize()
        assert (y == value * (value + 1) // 2).all(), "the launch did not wait for what was before it on its stream"
    start = time.perf_counter()
    torch.cuda._sleep(200_000_000)
    saxpy(x, y, 1.0)
    returned = time.perf_counter() - start
    torch.cuda.synchronize()
    assert returned < 0.05, f"the call took {returned:.3f} s: it waited for the device"
    with ts.runtime.stream(side):
        saxpy(x, y, 0.0)
    torch.cuda.synchronize()
    return f"asynchronous: returned after {returned * 1e6:.0f} us"


@check
def torch_graph():
    torch = library("torch")
    x, y = torch.ones(1000, device="cuda"), torch.zeros(1000, device="cuda")
    saxpy(x, y, 1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        saxpy(x, y, 1.0)
    y.zero_()
    for _ in range(4):
        graph.replay()
    torch.cuda.synchronize()
    assert (y == 4).all()
    return "a graph of PyTorch holds our launch"


@check
def torch_shares_ours():
    torch = library("torch")
    array = ts.array(numbers(10, 10), device="cuda:0")
    tensor = torch.from_dlpack(array)
    tensor += 1
    torch.cuda.synchronize()
    return close(array.numpy(), numbers(10, 10) + 1)


@check
def cupy_arrays():
    cupy = library("cupy")
    x, y = cupy.asarray(numbers(3000)), cupy.asarray(numbers(3000, seed=1))
    expected = cupy.asnumpy(np.float32(2) * x + y)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        assert saxpy(x, y, 2.0) is y
    stream.synchronize()
    error = close(cupy.asnumpy(y), expected, 1e-6)
    made = softmax(cupy.asarray(numbers(5, 77)))
    assert isinstance(made, cupy.ndarray)
    close(cupy.asnumpy(made.sum(1)), np.ones(5))
    shared = cupy.from_dlpack(ts.array(numbers(4, 4), device="cuda:0"))
    close(cupy.asnumpy(shared), numbers(4, 4))
    strided = cupy.asarray(numbers(50, 8))
    close(cupy.asnumpy(softmax(strided.T)).sum(1), np.ones(8))
    return error


@check
def jax_arrays():
    jax = library("jax")
    x = jax.device_put(numbers(20, 300), jax.devices("gpu")[0])
    weights = np.exp(np.asarray(x, np.float64))
    for _ in range(20):
        made = softmax(x * 1.0)  # the argument is freed immediately
        assert isinstance(made, ts.Array)
    error = close(made.numpy(), weights / weights.sum(1, keepdims=True), 1e-5)
    try:
        saxpy(x[0], x[1], 1.0)
    except ts.PrivilegeError as e:
        assert e.code == "E_READ_ONLY", str(e)
    else:
        raise AssertionError("an array of JAX was written")
    return error


# --- what goes wrong ---


def child(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@check
def a_lost_device_is_explained():
    return child(f"""
import importlib.util, tessera as ts

spec = importlib.util.spec_from_file_location("smoke", {os.path.abspath(__file__)!r})
smoke = importlib.util.module_from_spec(spec)
spec.loader.exec_module(smoke)

class Wrong:
    __cuda_array_interface__ = dict(shape=(1000,), typestr="<f4", data=(0x1000, False), version=3)

y = ts.zeros(1000, device="cuda:0")
try:
    smoke.saxpy(Wrong(), y, 1.0)
    ts.runtime.synchronize()
except ts.DeviceError as e:
    assert e.code == "E_ILLEGAL_ADDRESS" and "start the process anew" in str(e), str(e)
    print(e.message)
else:
    raise SystemExit("no error")
try:
    smoke.saxpy(y, ts.zeros(1000, device="cuda:0"), 1.0)
except ts.DeviceError as e:
    assert "start the process anew" in str(e), str(e)
else:
    raise SystemExit("the device worked on")
""")


@check
def waiting_can_be_interrupted():
    torch = library("torch")

    def stop(*_):
        raise KeyboardInterrupt

    torch.cuda._sleep(6_000_000_000)
    old = signal.signal(signal.SIGALRM, stop)
    start = time.perf_counter()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        ts.runtime.synchronize()
    except KeyboardInterrupt:
        waited = time.perf_counter() - start
    else:
        raise AssertionError("the wait was not interrupted")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    torch.cuda.synchronize()
    assert waited < 1, f"after {waited:.2f} s"
    return f"after {waited:.2f} s"


@check
def a_forked_child_gets_an_error():
    y = ts.zeros(8, device="cuda:0")
    saxpy(y, ts.zeros(8, device="cuda:0"), 1.0)
    pid = os.fork()
    if pid == 0:
        try:
            saxpy(y, y=ts.zeros(8, device="cuda:0"), alpha=1.0)
        except ts.DeviceError as e:
            os._exit(0 if "spawn" in str(e) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return "the error says to spawn"


# --- times ---


def per_call(call, settle, rounds=30, count=200) -> float:
    """Host time of one call in microseconds; `count` is small enough that the device's queue has room."""
    times = []
    for _ in range(rounds):
        settle()
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count * 1e6)
    settle()
    return statistics.median(times)


NOTHING = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry nothing(.param .align 8 .b8 words[200]) { ret; }
\0"""


def raw_launch(settle) -> float:
    """Microseconds of `cuLaunchKernel` alone: a loop through ctypes, less the same loop with an empty grid, which the
    driver refuses immediately."""
    cuda = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), NOTHING) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"nothing") == 0
    words = (ctypes.c_char * 200)()
    params = (ctypes.c_void_p * 1)(ctypes.addressof(words))
    one, block, zero, none = ctypes.c_uint(1), ctypes.c_uint(256), ctypes.c_uint(0), ctypes.c_void_p()
    launch = cuda.cuLaunchKernel
    assert launch(function, one, one, one, block, one, one, zero, none, params, none) == 0
    whole = per_call(lambda: launch(function, one, one, one, block, one, one, zero, none, params, none), settle)
    empty = per_call(lambda: launch(function, zero, one, one, block, one, one, zero, none, params, none), settle)
    return whole - empty


def overhead(arrays, settle) -> str:
    four(*arrays)
    four(*arrays)
    ours, raw = per_call(lambda: four(*arrays), settle), raw_launch(settle)
    python = per_call(lambda: (lambda a, b, c, d: None)(*arrays), lambda: None)
    text = f"{ours:.2f} us a call, cuLaunchKernel alone {raw:.2f} us, difference {ours - raw:.2f} us (an empty Python call {python:.2f})"
    assert ours - raw < 3 * BUDGET, text
    return text + ("" if ours - raw <= BUDGET else f"; over the budget of {BUDGET} us")


#: What a cached launch with four arrays may cost beyond the driver's own part, in microseconds.
BUDGET = 1.5


@check
def overhead_own_arrays():
    return overhead([ts.zeros(1000, device="cuda:0") for _ in range(4)], lambda: ts.runtime.synchronize("cuda:0"))


@check
def overhead_torch():
    torch = library("torch")
    return overhead([torch.zeros(1000, device="cuda") for _ in range(4)], torch.cuda.synchronize)


@check
def overhead_of_reading_tensors():
    """The cost of each method to read a tensor's address and shape."""
    torch = library("torch")
    x = torch.zeros(1000, device="cuda")
    methods = {
        "attributes": lambda: (x.data_ptr(), x.shape, x.stride(), x.dtype, x.device),
        "__dlpack__": lambda: x.__dlpack__(stream=-1),
        "__cuda_array_interface__": lambda: x.__cuda_array_interface__,
        "_cuda_getCurrentRawStream": lambda: torch._C._cuda_getCurrentRawStream(0),
    }
    return ", ".join(f"{name} {per_call(method, lambda: None):.2f} us" for name, method in methods.items())


@check
def bench_times_the_device():
    x, y = ts.ones(1 << 26, device="cuda:0"), ts.ones(1 << 26, device="cuda:0")
    timing = ts.bench(saxpy, x, y, 1.0, repeat=20, flush=True)
    assert timing.clock == "cuda:0"
    return f"{timing}, {3 * x.nbytes / timing.median / 1e12:.2f} TB/s"


def main(names: list[str]) -> int:
    wanted = [c for c in CHECKS if not names or any(name in c.__name__ for name in names)]
    failed = 0
    for one in wanted:
        start = time.perf_counter()
        try:
            state, result = "ok  ", one()
        except Skipped as e:
            state, result = "skip", e
        except BaseException as e:  # noqa: BLE001 - one line each, whatever it is
            failed += 1
            state, result = "FAIL", f"{type(e).__name__}: {e}"
            if os.environ.get("SMOKE_TRACEBACK"):
                traceback.print_exc()
        first = str(result).strip().splitlines()
        shown = first[0] if state != "FAIL" else " | ".join(first[:12])
        print(f"{state} {one.__name__:<32} {time.perf_counter() - start:6.2f} s  {shown}", flush=True)
    print(f"{len(wanted) - failed} of {len(wanted)} passed or skipped")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
