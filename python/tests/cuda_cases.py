"""Calls on CUDA devices, run by `test_cuda_fake.py` with a fake driver (`fake_cuda.c`): streams are numbers,
and only kernels called `saxpy…` compute."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import types
import warnings

import fake_torch
import numpy as np
import pytest
from foreign_arrays import Foreign

import tessera as ts

CUDA = ctypes.CDLL("libcuda.so.1")
CUDA.fake_log.restype = ctypes.c_char_p


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.program_id(0) * 64
    y[i : i + 64] = alpha * x[i : i + 64] + y[i : i + 64]
    return y


@ts.kernel
def saxpy_one(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.program_id(0) * 64
    y[i : i + 64] = x[i : i + 64] + y[i : i + 64]
    return y


@ts.kernel
def doubled(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.program_id(0) * 64
    y[i : i + 64] = 2.0 * x[i : i + 64]


@ts.kernel.autotune(space=dict(T=[32, 4096]))
def tripled(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    T = ts.tile.context().T
    i = ts.tile.program_id(0) * T
    y[i : i + T] = 3.0 * x[i : i + T]


@pytest.fixture(autouse=True)
def log():
    """The launches and waits of a test, as lines."""
    CUDA.fake_clear()
    yield lambda: CUDA.fake_log().decode().splitlines()
    CUDA.fake_busy(0)
    CUDA.fake_fail(0)
    ts.runtime.select_backend(None)


def f32(n):
    return np.arange(n, dtype=np.float32)


def there(values, device="cuda:0"):
    return ts.array(values, device=device)


class Interface:
    """An array that only `__cuda_array_interface__` knows."""

    def __init__(self, array, **more):
        self.array, self.more = array, more

    @property
    def __cuda_array_interface__(self):
        return {**self.array.__cuda_array_interface__, "stream": None, **self.more}


# --- arrays ---


@pytest.mark.parametrize("dtype", ["f32", "bf16", "fp8_e4m3", "i64", "bool", "f16", "fp4"])
def test_arrays_go_there_and_back(dtype):
    values = ts.array([[0, 1, 1], [1, 0, 1]], dtype)
    array = there(values)
    assert (array.shape, array.dtype, array.device, array.ndim, array.size) == ((2, 3), ts.dtype(dtype), "cuda:0", 2, 6)
    back = array.numpy()
    assert back.dtype == values.dtype and back.tobytes() == values.tobytes()
    assert array.to("cpu").tobytes() == values.tobytes() and array.to("cuda:0") is array
    other = array.to("cuda:1")
    assert other.device == "cuda:1" and other.numpy().tobytes() == values.tobytes()


def test_checkpoints_copy_device_arrays_to_the_host_and_back(tmp_path):
    path = tmp_path / "run.safetensors"
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    tree = {"w": ts.array(host, device="cuda:0").T, "b": [ts.array([1, 2], "bf16", device="cuda:1")], "e": ts.empty((0, 2), device="cuda:0"), "n": 2}
    ts.save(path, tree)
    back = ts.load(path)
    assert isinstance(back["w"], np.ndarray) and isinstance(back["w"], ts.Array) and (back["w"] == host.T).all() and back["e"].shape == (0, 2)
    like = ts.load(path, like=tree)
    assert like["w"].device == "cuda:0" and (like["w"].numpy() == host.T).all()
    assert like["b"][0].device == "cuda:1" and like["b"][0].numpy().tobytes() == tree["b"][0].numpy().tobytes()


def test_arrays_are_made_with_values():
    assert (ts.zeros((2, 3), device="cuda").numpy() == 0).all()
    assert (ts.ones(4, "bf16", device="cuda:1").numpy() == 1).all()
    assert (ts.full(4, 7, "i32", device="cuda:0").numpy() == 7).all()
    assert ts.empty((2, 5), "fp4 @packed", device="cuda:0").shape == (2, 3)
    assert ts.empty(0, device="cuda:0").numpy().shape == (0,)
    assert repr(ts.empty(3, device="cuda:0")) == "<tessera array of f32 with shape (3,) on cuda:0>"
    assert isinstance(ts.empty(3, device="cpu"), np.ndarray)


INDICES = [
    np.s_[1], np.s_[-1], np.s_[:, 1], np.s_[1:3], np.s_[::-1], np.s_[..., 1:], np.s_[::2, ::-2], np.s_[2, 1], np.s_[:, None, 2],
    np.s_[5:5], np.s_[...], np.s_[3:1:-1],
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_slices_are_views(index):
    host = f32(20).reshape(4, 5)
    array = there(host)
    part, expected = array[index], host[index]
    assert part.shape == expected.shape and (part.numpy() == expected).all()
    host[index] = 9
    array[index] = 9
    assert (array.numpy() == host).all()


def test_views_of_arrays():
    host = f32(24).reshape(2, 3, 4)
    array = there(host)
    assert (array.T.numpy() == host.T).all()
    assert (array.transpose(1, 0, 2).numpy() == host.transpose(1, 0, 2)).all()
    assert (array.reshape(6, -1).numpy() == host.reshape(6, -1)).all()
    assert (array.view("i32").numpy() == host.view("i4")).all()
    assert (array[:1].broadcast_to((5, 3, 4)).numpy() == np.broadcast_to(host[:1], (5, 3, 4))).all()
    assert (array.copy().numpy() == host).all() and array.copy().data_ptr() != array.data_ptr()
    array[0] = array[1]
    assert (array.numpy()[0] == host[1]).all()
    for wrong in (lambda: array[3], lambda: array[0, 0, 0, 0], lambda: array["a"]):
        with pytest.raises(IndexError):
            wrong()
    for wrong in (lambda: array.reshape(5), lambda: array.T.reshape(24), lambda: array.view("f64")):
        with pytest.raises(ValueError):
            wrong()
    with pytest.raises(TypeError, match=r"\.numpy\(\)"):
        np.asarray(array)


def test_memory_is_kept_and_used_again():
    before = ts.runtime.memory_stats()
    array = ts.empty(1 << 20, "u8", device="cuda:0")
    address, inside = array.data_ptr(), ts.runtime.memory_stats()
    assert inside["in_use"] >= before["in_use"] + (1 << 20)
    del array
    after = ts.empty(1 << 20, "u8", device="cuda:0")
    assert after.data_ptr() == address and ts.runtime.memory_stats()["allocated"] == inside["allocated"]
    del after
    assert ts.runtime.trim() >= 1 << 20


def test_no_memory_is_an_error_and_the_process_goes_on():
    held = ts.empty(1 << 29, "u8", device="cuda:0")
    with pytest.raises(ts.ResourceError) as e:
        ts.empty(1 << 30, "u8", device="cuda:0")
    assert e.value.code == "E_OOM"
    assert (ts.zeros(8, device="cuda:0").numpy() == 0).all()
    del held


# --- calls ---


def test_calls_run_where_the_arrays_are(log):
    x, y = f32(100), np.ones(100, np.float32)
    on, out = there(x), there(y)
    for n, alpha in enumerate((2.0, 3, -1.5), 1):
        y += np.float32(alpha) * x
        assert saxpy(on, out, alpha) is out
        assert (out.numpy() == y).all() and len(log()) == n
    assert log()[0].startswith("launch tessera_saxpy stream=0 grid=2 ")
    found = saxpy.explain()
    assert found.backend == "ptx" and found.cache_hit and "launch" not in found.times
    assert saxpy.cost().seconds is None
    assert saxpy(x, np.zeros_like(x), 1.0)[3] == 3 and saxpy.explain().backend == "cpu"


def test_a_repeated_call_is_checked_as_the_first(monkeypatch):
    base = there(f32(300))
    saxpy(base[:100], base[100:200], 1.0)
    expected = f32(300)
    expected[100:200] += expected[:100]
    assert (base.numpy() == expected).all()
    with pytest.raises(ts.PrivilegeError, match="overlap"):
        saxpy(base[:100], base[50:150], 1.0)
    saxpy(base[3:103], base[200:], 1.0)  # other alignment
    expected[200:] += expected[3:103]
    assert (base.numpy() == expected).all()
    with pytest.raises(ts.LaunchError):
        saxpy(base[:100], base[100:201], 1.0)
    with pytest.raises(ts.LaunchError, match="range of f32"):
        saxpy(base[:100], base[100:200], 1e300)
    for for_reading in (base[100:101].broadcast_to((100,)), base[100:200].broadcast_to((100,))):
        with pytest.raises(ts.PrivilegeError, match="read-only"):
            saxpy(base[:100], for_reading, 1.0)
        with pytest.raises(ValueError, match="reading only"):
            for_reading[0] = 1
    with pytest.raises(ts.LaunchError) as e:
        saxpy(there(f32(100), "cuda:1"), base[100:200], 1.0)
    assert e.value.code == "E_LAUNCH_DEVICE_MISMATCH" and "`x` on cuda:1, `y` on cuda:0" in str(e.value)
    monkeypatch.setenv("TESSERA_CHECK", "1")
    saxpy(base[:100], base[100:200], 1.0)
    assert saxpy.explain().ran == "on the interpreter, checked"
    assert saxpy[2](base[:100], base[100:200], 1.0) is not None


def test_strides_and_grids_of_repeated_calls(log):
    x, y = there(f32(64)), there(f32(64))
    for view in (slice(None, None, 2), slice(None, None, -2), slice(None, None, 2)):
        expected = y.numpy()
        expected[view] += x.numpy()[view]
        saxpy(x[view], y[view], 1.0)
        assert (y.numpy() == expected).all()
    for _ in range(2):
        saxpy[1](x, y, 1.0)
        saxpy[(1,)](x, y, 1.0)
    assert len(log()) == 7


def test_results_that_are_left_out_are_made_there():
    made = doubled(there(f32(5)))
    assert isinstance(made, ts.Array) and made.device == "cuda:0" and made.shape == (5,)
    made = doubled(Interface(there(f32(5), "cuda:1")))
    assert isinstance(made, ts.Array) and made.device == "cuda:1"


@ts.kernel
def halved(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.grid(ts.cdiv(n, 64)) * 64
    y[i : i + 32] = x[i : i + 32]


def test_results_that_may_be_written_in_part_are_cleared_there(monkeypatch):
    def used(n):
        """Leaves memory behind that is not zero; of all kernels only `saxpy…` compute."""
        there(np.full(n, 7.0, np.float32)).numpy()

    x = there(f32(4096))
    used(4096)
    assert doubled(x).numpy().tolist() != [0.0] * 4096, "memory that is written whole is not cleared"
    for stream in (None, 31):
        used(4096)
        with ts.runtime.stream(stream) if stream else contextlib.nullcontext():
            assert halved(x).numpy().tolist() == [0.0] * 4096
    torch = fake_torch.install(monkeypatch, True)
    assert halved(torch.tensor(x)).array.numpy().tolist() == [0.0] * 4096


def test_misaligned_arrays_are_refused():
    array = there(np.zeros(64, np.uint8))
    misaligned = Interface(array, shape=(8,), typestr="<f4", data=(array.data_ptr() + 1, False), strides=None)
    with pytest.raises(ts.LaunchError, match="multiples of 4 bytes") as e:
        doubled(misaligned, there(f32(8)))
    assert e.value.code == "E_LAUNCH_BAD_LAYOUT" and "`x`" in str(e.value)


def test_a_launch_that_fails_tells_what_was_launched():
    x, y = there(f32(8)), there(f32(8))
    for _ in range(2):  # bound, then replayed
        saxpy(x, y, 1.0)
        CUDA.fake_fail(700)
        with pytest.raises(ts.DeviceError) as e:
            saxpy(x, y, 1.0)
        text = str(e.value)
        assert e.value.code == "E_ILLEGAL_ADDRESS" and e.value.file.endswith("cuda_cases.py"), text
        assert "`saxpy`" in text and "start the process anew" in text
    CUDA.fake_fail(700)
    with pytest.raises(ts.DeviceError, match=r"x: f32 \(8,\) on cuda:0, y: f32 \(8,\) on cuda:0, alpha: 1.0"):
        saxpy(x, y=y, alpha=1.0)


def test_a_device_that_fails_later_names_the_last_launch():
    array = there(f32(8))
    saxpy(array, there(f32(8)), 1.0)
    CUDA.fake_busy(716)
    with pytest.raises(ts.DeviceError) as e:
        array.numpy()
    assert e.value.code == "E_MISALIGNED_ACCESS" and "the last launch before was of `saxpy`" in str(e.value)
    assert e.value.file.endswith("cuda_cases.py") and "start the process anew" in str(e.value)


# --- code ---


def assembled(work):
    """How many pieces of code were assembled and loaded meanwhile."""
    before = CUDA.fake_links(), CUDA.fake_loads()
    work()
    return CUDA.fake_links() - before[0], CUDA.fake_loads() - before[1]


@pytest.mark.parametrize("cache", ["1", "0"])
def test_devices_of_one_architecture_share_code(cache, monkeypatch, log):
    monkeypatch.setenv("TESSERA_CACHE", cache)

    size = 64 if cache == "1" else 128

    @ts.kernel
    def scaled(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], by: ts.f32):
        i = ts.tile.program_id(0) * size
        y[i : i + size] = by * x[i : i + size]

    x, y = [there(f32(8), d) for d in ("cuda:0", "cuda:1")], [there(f32(8), d) for d in ("cuda:0", "cuda:1")]
    assert assembled(lambda: scaled(x[0], y[0], 2.0)) == (1, 1)
    assert not scaled.explain().cache_hit
    assert assembled(lambda: scaled(x[1], y[1], 2.0)) == (0, 1)
    assert scaled.explain().cache_hit
    assert [line.endswith("cuda:1") for line in log() if line.startswith("launch")] == [False, True]
    assert assembled(lambda: (scaled(x[0], y[0], 2.0), scaled(x[1], y[1], 2.0))) == (0, 0)


def test_devices_of_one_architecture_share_the_code_of_functions(log):
    def function(x):
        return ts.xp.sum(ts.xp.exp(x) * x)

    made = ts.jit(function)
    assert assembled(lambda: made(there(f32(4096))))[1] > 0
    links, loads = assembled(lambda: made(there(f32(4096), "cuda:1")))
    assert links == 0 and loads > 0
    assert any(line.endswith("cuda:1") for line in log())


# --- arrays in several places ---


def jitted_sum(x, y):
    return ts.xp.add(x, y)


CALLS = {
    "kernel": lambda x, y: saxpy(x, y, 1.0),
    "operation": lambda x, y: ts.op.bias_activation(x, y),
    "function": lambda x, y: ts.jit(jitted_sum)(x, y),
}


@pytest.mark.parametrize("what", CALLS)
def test_arrays_on_two_devices_are_refused(what, monkeypatch):
    x, y = there(f32(8)), there(f32(8), "cuda:1")
    if what == "operation":
        torch = fake_torch.install(monkeypatch, True)
        x, y = torch.tensor(x), torch.tensor(y)
    with pytest.raises(ts.LaunchError) as e:
        CALLS[what](x, y)
    text = str(e.value)
    assert e.value.code == "E_LAUNCH_DEVICE_MISMATCH" and "cuda:0" in text and "cuda:1" in text, text
    assert e.value.file.endswith(".py") and "help: " in text, text


@pytest.mark.parametrize("what, place, code, words", [
    ("kernel", (2, 7), "E_DRIVER", "`x` is on cuda:7"),
    ("kernel", (10, 0), "E_LAUNCH_DEVICE_MISMATCH", "`x` is on hip:0"),
    ("operation", (2, 7), "E_ARGUMENT", "on a device"),
    ("function", (2, 7), "E_DRIVER", "got cuda:7"),
])  # fmt: skip
def test_arrays_on_a_device_that_is_not_there_are_refused(what, place, code, words):
    x, y = (Foreign(says_device=place, device_type=place[0], device_id=place[1]) for _ in range(2))
    for array in (x, y):
        array.shape, array.dtype = (8,), np.dtype(np.float32)
    with pytest.raises((ts.DeviceError, ts.LaunchError)) as e:
        CALLS[what](x, y)
    text = str(e.value)
    assert e.value.code == code and words in text, text
    assert e.value.file.endswith("cuda_cases.py") and "help: " in text, text


# --- where things run ---


def test_host_arrays_are_copied_there_and_back_and_that_is_said_once():
    base = f32(40)
    expected = base.copy()
    expected[1::2] += 3 * expected[0::2]
    ts.runtime.select_backend("ptx")
    kernel = ts.kernel(saxpy.__wrapped__)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            kernel(base[0::2], base[1::2], 3.0)
            assert (base == expected).all()
            expected[1::2] += 3 * expected[0::2]
    assert ["W_HOST_COPY" in str(w.message) for w in caught] == [True]
    assert kernel.explain().ran == "on the backend, on copies of the arrays"
    y = np.zeros((20, 3), np.float32)
    kernel(f32(20)[::-1], y[:, 1], 2.0)
    assert (y[:, 1] == 2 * f32(20)[::-1]).all() and not y[:, 0].any() and not y[:, 2].any()


def test_a_device_can_be_selected(log):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for device in ("cuda:0", "cuda:1"):
            ts.runtime.select_backend(device)
            assert saxpy(f32(4), f32(4), 1.0).tolist() == [0, 2, 4, 6]
            assert log()[-1].endswith("cuda:1") == (device == "cuda:1")
    with pytest.raises(ts.LaunchError, match="arrays are on cuda:0, and `select_backend` requests cuda:1"):
        saxpy(there(f32(4)), there(f32(4)), 1.0)
    with pytest.raises(ts.DeviceError, match="below cuda:2"):
        ts.runtime.select_backend("cuda:7")


def test_a_backend_of_the_host_says_what_to_do_with_arrays_of_a_device(monkeypatch):
    x, y = there(f32(4)), there(f32(4))
    ts.runtime.select_backend("cpu")
    with pytest.raises(ts.LaunchError, match=r"select_backend\(None\)") as e:
        saxpy(x, y, 1.0)
    assert e.value.code == "E_LAUNCH_DEVICE_MISMATCH"
    ts.runtime.select_backend(None)
    monkeypatch.setenv("TESSERA_BACKEND", "cpu")
    with pytest.raises(ts.LaunchError, match="unset TESSERA_BACKEND"):
        saxpy(x, y, 1.0)
    monkeypatch.setenv("TESSERA_BACKEND", "interp")
    with pytest.warns(ts.TesseraWarning, match="W_HOST_COPY"):
        saxpy(x, y, 1.0)
    assert y.numpy().tolist() == [0, 2, 4, 6]


def test_checked_and_watched_runs_copy_to_the_host():
    base = there(f32(12))
    x, y = base[0::2], base[1::2]
    assert saxpy.check(x, y, 1.0)
    assert (base.numpy() == f32(12)).all()
    seen = []
    line = saxpy.spec.source.line + 3
    saxpy.interpret(x, y, 2.0, break_at=line, on_stop=lambda frame: seen.append(frame.line))
    expected = f32(12)
    expected[1::2] += 2 * expected[0::2]
    assert (base.numpy() == expected).all() and seen


def test_code_for_a_target_runs_only_where_it_can():
    x, y = there(f32(4)), there(f32(4))
    assert saxpy.jit(target="sm80")(x, y, 1.0).numpy().tolist() == [0, 2, 4, 6]
    assert saxpy.explain().resources["arch"] == "sm_80"
    with pytest.raises(ts.DeviceError, match="runs code for sm_100"):
        saxpy.jit(target="sm_100")(x, y, 1.0)
    either = saxpy.jit()
    assert either.explain().backend == "cpu"
    assert either(x, y, 1.0) is y and saxpy.explain().backend == "ptx"


# --- streams ---


def test_calls_are_on_the_stream_that_is_named(log):
    x, y = there(f32(4)), there(f32(4))
    with ts.runtime.stream(7):
        saxpy(x, y, 1.0)
        saxpy(x, y, 1.0)
    saxpy(x, y, 1.0)
    launches = [line for line in log() if line.startswith("launch")]
    assert [line.split()[2] for line in launches] == ["stream=7", "stream=7", "stream=0"]
    # The arrays were made on the default stream and used on the other one: each waits for the one before.
    assert [line for line in log() if line.startswith("wait")] == [
        "wait - stream=7 grid=0 threads=0", "wait - stream=0 grid=7 threads=0",
    ]  # fmt: skip


def test_streams_of_other_libraries_are_understood(log):
    torch_like = types.SimpleNamespace(cuda_stream=9)
    cupy_like = types.SimpleNamespace(ptr=10)
    standard = types.SimpleNamespace(__cuda_stream__=lambda: (0, 11))
    with ts.runtime.stream() as own, ts.runtime.stream(own):
        assert isinstance(own, ts.runtime.Stream) and own.device == "cuda:0" and own.handle
        own.synchronize()
    for stream, handle in ((torch_like, 9), (cupy_like, 10), (standard, 11), (own, own.handle)):
        with ts.runtime.stream(stream):
            doubled(there(f32(4)))
        assert f"stream={handle} " in log()[-1]
    with pytest.raises(ts.LaunchError, match="CUDA stream"):
        ts.runtime.stream("a")


def test_an_interface_tells_the_stream_of_its_data(log):
    x, y = there(f32(4)), there(f32(4))
    saxpy(Interface(x, stream=33), y, 1.0)
    assert log()[0] == "wait - stream=0 grid=33 threads=0" and log()[1].startswith("launch tessera_saxpy stream=0")
    assert y.numpy().tolist() == [0, 2, 4, 6]
    with pytest.raises(ts.LaunchError, match="not 0"):
        saxpy(Interface(x, stream=0), y, 1.0)


def test_dlpack_goes_both_ways(log):
    class Shared:
        """An array that only DLPack knows; remembers the streams that were requested."""

        def __init__(self, array):
            self.array, self.streams = array, []

        def __dlpack__(self, **options):
            self.streams.append(options.get("stream"))
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x, y = Shared(there(f32(8))), there(f32(8))
    saxpy(x, Shared(y), 1.0)
    with ts.runtime.stream(5):
        saxpy(x, Shared(y), 1.0)
    assert y.numpy().tolist() == (3 * f32(8)).tolist()
    assert x.streams == [1, 5]
    old = y.__dlpack__()
    assert "dltensor" in repr(old) and "versioned" in repr(y.__dlpack__(max_version=(1, 0)))
    with pytest.raises(BufferError):
        y.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        there(ts.array([1, 2], "fp4")).__dlpack__()
    assert not hasattr(there(ts.array([1, 2], "bf16")), "__cuda_array_interface__")


# --- other libraries ---


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "attributes"])
def test_tensors_are_used_in_place_on_their_current_stream(log, monkeypatch, exchange):
    torch = fake_torch.install(monkeypatch, exchange)
    x, y = torch.tensor(there(f32(16))), torch.tensor(there(f32(16)))
    for factor, stream in enumerate((0, 40, 41), 2):
        torch.stream = stream
        assert saxpy(x, y, 1.0) is y
        assert log()[-1].startswith(f"launch tessera_saxpy stream={stream} ")
        assert y.array.numpy().tolist() == (factor * f32(16)).tolist()
    with ts.runtime.stream(50):
        saxpy(x, y, 0.0)
    assert "stream=50 " in log()[-1]
    made = doubled(x)
    assert type(made) is type(x) and made.array.shape == (16,) and made.device == x.device
    with pytest.raises(ts.KernelTypeError, match="got bf16"):
        saxpy(torch.tensor(there(ts.array(f32(16), "bf16"))), y, 1.0)
    with pytest.raises(ts.LaunchError, match="`x` on cuda:1, `y` on cuda:0"):
        saxpy(torch.tensor(there(f32(16), "cuda:1")), y, 1.0)


def test_arrays_of_cupy_are_used_in_place(log, monkeypatch):
    cupy = fake_torch.install_cupy(monkeypatch)
    x, y = cupy.ndarray(there(f32(16))), cupy.ndarray(there(f32(16)))
    cupy.stream = 60
    assert saxpy(x, y, 1.0) is y and "stream=60 " in log()[-1]
    assert y.array.numpy().tolist() == (2 * f32(16)).tolist()
    made = doubled(x)
    assert type(made) is type(x)


def test_libraries_on_two_streams_wait_for_each_other(log, monkeypatch):
    torch, cupy = fake_torch.install(monkeypatch, True), fake_torch.install_cupy(monkeypatch)
    torch.stream, cupy.stream = 40, 60
    saxpy(torch.tensor(there(f32(16))), cupy.ndarray(there(f32(16))), 1.0)
    waits = [line for line in log() if not line.startswith("wait - stream=0")]
    assert [line.split(" threads")[0] for line in waits] == [
        "wait - stream=40 grid=60", waits[1].split(" threads")[0], "wait - stream=60 grid=40",
    ]  # fmt: skip
    assert waits[1].startswith("launch tessera_saxpy stream=40 ")


# --- graphs ---


def test_launches_are_recorded_and_done_again(log):
    x, y, there_before = there(f32(8)), there(f32(8)), there(f32(8))
    saxpy(x, y, 1.0)
    with ts.runtime.capture_graph() as graph:
        for _ in range(3):
            saxpy(x, y, 1.0)
    assert (y.numpy() == 2 * f32(8)).all() and (graph.nodes, graph.device) == (3, "cuda:0")
    del x
    for replay in range(2):
        graph.replay()
        assert (y.numpy() == (5 + 3 * replay) * f32(8)).all()
    with ts.runtime.stream(7):
        graph.replay()
    assert "replay tessera_saxpy stream=7" in log()[-1] and "wait - stream=7 grid=0 threads=0" in log()
    assert "3 operations" in repr(graph)
    before = len(log())
    with ts.runtime.capture_graph():
        saxpy(y, there_before, 1.0)
    assert log()[before:] == [], "nothing waits in a recording"


def test_a_compiled_function_is_one_graph_from_its_second_call_on(log):
    """Line 5 of the acceptance list: `@jit(capture_graph=True)` replays, with equal results."""

    def twice(x, y):
        return saxpy_one(x, saxpy_one(x, y))

    plain, captured = ts.jit(twice), ts.jit(twice, capture_graph=True)
    x, y = there(f32(8)), there(f32(8) + 1)
    want = plain(x, y).numpy()
    assert (want == 3 * f32(8) + 1).all()
    assert (captured(x, y).numpy() == want).all(), "the first call loads the code"
    for call in range(3):
        before, graphs = len(log()), CUDA.fake_graph_launches()
        result = captured(x, y)
        lines = [line for line in log()[before:] if line.startswith(("launch", "replay"))]
        assert CUDA.fake_graph_launches() == graphs + 1, call
        assert len(lines) > 1 and all(line.startswith("replay") for line in lines), lines
        assert (result.numpy() == want).all()
        assert (y.numpy() == f32(8) + 1).all(), "an argument is no result"
        del result
    assert captured.compiled(x, y).graphs >= 1 and plain.compiled(x, y).graphs == 0


def test_what_cannot_be_recorded_is_said():
    x = there(f32(8))
    doubled(x)

    def record(work):
        with pytest.raises(ts.LaunchError) as e:
            with ts.runtime.capture_graph() as graph:
                work()
        assert e.value.code == "E_CAPTURE", str(e.value)
        with pytest.raises(ts.LaunchError, match="has none"):
            graph.replay()

    record(lambda: doubled(x))  # a result would be made
    record(lambda: x.numpy())
    record(lambda: ts.runtime.capture_graph().__enter__())

    @ts.kernel
    def fresh(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.program_id(0) * 64
        x[i : i + 64] = x[i : i + 64] + 1.0

    record(lambda: fresh(x))  # its code is not there yet
    fresh(x)
    with ts.runtime.capture_graph() as graph:
        fresh(x)
    assert graph.nodes == 1


# --- TMA copies ---


@ts.kernel
def multiplied(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16], C: ts.Tensor["M", "N", ts.f16]):
    m, n = ts.tile.program_id(0) * 128, ts.tile.program_id(1) * 128
    acc = ts.tile.zeros((128, 128), ts.f32)
    for k in ts.tile.range(0, K, 64):
        acc = ts.tile.mma(A[m : m + 128, k : k + 64], B[k : k + 64, n : n + 128], accumulator=acc)
    C[m : m + 128, n : n + 128] = acc


def matrices(m=256, n=384, k=192):
    return [ts.zeros(shape, "f16", device="cuda:0") for shape in ((m, k), (k, n), (m, n))]


def address(array):
    return array.__cuda_array_interface__["data"][0]


def test_tensor_maps_are_of_the_arrays_of_each_launch(log):
    first, second = matrices(), matrices()

    def maps(arrays, run=multiplied):
        """The tensor maps of a launch by address, and how many were encoded for it."""
        CUDA.fake_clear()
        run(*arrays)
        lines = [line.split() for line in log()]
        found = {int(words[1].split("=")[1]): words[2:] for words in lines if words[0] == "map"}
        assert set(found) <= {address(array) for array in arrays}
        return found, sum(words[0] == "encode" for words in lines)

    # TMA counts axes from the contiguous one.
    rows, columns = ["dims=192,256", "stride=384"], ["dims=384,192", "stride=768"]
    for arrays, made in ((first, True), (first, False), (second, True), (second, False), (first, False)):
        found, count = maps(arrays)
        assert (found[address(arrays[0])], found[address(arrays[1])]) == (rows, columns)
        assert (count > 0) == made
    assert "A: boxes of " in multiplied.explain().resources["tma_copies"]

    # A recording keeps them, whatever is launched after it.
    with ts.runtime.capture_graph() as graph:
        multiplied(*second)
    multiplied(*first)
    assert maps(second, lambda *_: graph.replay())[0][address(second[0])] == rows

    # A column-major matrix has another map. Misaligned rows and empty matrices have none.
    transposed = ts.zeros((384, 192), "f16", device="cuda:0").T
    assert maps([first[0], transposed, first[2]])[0][address(transposed)] == ["dims=192,384", "stride=384"]
    odd = ts.zeros((256, 193), "f16", device="cuda:0")[:, :192]
    assert address(odd) not in maps([odd, *first[1:]])[0]
    empty = matrices(k=0)
    assert maps(empty)[0].keys() <= {address(empty[2])}
def test_groups_that_take_turns_have_memory_of_their_own():
    @ts.kernel
    def total(x: ts.Tensor["n", ts.f32], s: ts.Region[ts.reduce_sum, ts.Tensor[1, ts.f32]]):
        i = ts.tile.grid(ts.cdiv(n, 64)) * 64
        s[0] += ts.tile.sum(x[i : i + 64])

    x, s = there(f32(200)), there(f32(1))
    with ts.numerics.profile("strict"):
        total(x, s)
        before = ts.runtime.memory_stats()["in_use"]
        total(x, s)
        assert ts.runtime.memory_stats()["in_use"] == before, "it goes back to the pool"
        with ts.runtime.capture_graph() as graph:
            total(x, s)
        assert ts.runtime.memory_stats()["in_use"] > before, "the graph keeps it"
    graph.replay()
    del graph
    assert ts.runtime.memory_stats()["in_use"] == before


def test_a_launch_that_prints_is_waited_for():
    @ts.kernel
    def printing(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.program_id(0) * 64
        ts.tile.print("at", i)
        x[i : i + 64] = x[i : i + 64] + 1.0

    x = there(f32(8))
    printing(x)
    with pytest.raises(ts.LaunchError, match="has assertions or prints"):
        with ts.runtime.capture_graph():
            printing(x)


# --- the rest ---


def test_the_device_is_timed():
    x, y = there(f32(8)), there(f32(8))
    timing = ts.bench(saxpy, x, y, 1.0, repeat=5)
    assert timing.clock == "cuda:0" and len(timing.samples) == 5
    assert timing.median == pytest.approx(1e-3)  # the stand-in's clock goes on by that with each event
    assert "5 runs on cuda:0" in str(timing) and timing.spread == 0
    assert ts.bench(saxpy, x, y, 1.0, repeat=2, flush=True).clock == "cuda:0"
    assert ts.bench(saxpy, f32(8), f32(8), 1.0).clock == "host"


def test_devices_and_the_doctor(capsys):
    from tessera.tools.cli import main

    assert [d["device"] for d in ts.runtime.devices()] == ["cuda:0", "cuda:1"]
    assert ts.runtime.backends()["ptx"] == "available"
    found = ts.runtime.capabilities("ptx")
    assert (found["arch"], found["device_count"], found["wgmma"]) == ("sm_90a", 2, True)
    ts.runtime.synchronize()
    ts.runtime.synchronize("cuda:1")
    main(["doctor"])
    out = capsys.readouterr().out
    for words in ("Fake GPU 1, sm_90a (compute capability 9.0)", "132 multiprocessors", "takes PTX up to 9.0", "ptxas"):
        assert words in out, out


def test_waiting_can_be_interrupted():
    def stop(*_):
        raise KeyboardInterrupt

    array = there(f32(8))
    CUDA.fake_busy(600)
    old = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            array.numpy()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        CUDA.fake_busy(0)
    assert (array.numpy() == f32(8)).all()


def test_a_forked_child_gets_an_error_that_says_what_to_do():
    x, y = there(f32(8)), there(f32(8))
    saxpy(x, y, 1.0)
    child = os.fork()
    if child == 0:
        try:
            saxpy(x, y=y, alpha=1.0)
        except ts.DeviceError as e:
            os._exit(0 if "spawn" in str(e) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_assembled_code_is_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    kernel = ts.kernel(saxpy.__wrapped__)
    kernel(there(f32(8)), there(f32(8)), 1.0)
    entries = ts._core.cache_entries()["entries"]
    assert any(e["about"] == "saxpy for sm_90a on Fake GPU 0" for e in entries), entries


assert sys.platform.startswith("linux")


def tuned(**options):
    @ts.kernel.autotune(**({"space": dict(B=[64, 128, 256])} | options))
    def saxpy_tuned(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
        B = ts.tile.context().B
        i = ts.tile.program_id(0) * B
        y[i : i + B] = alpha * x[i : i + B] + y[i : i + B]
        return y

    return saxpy_tuned


def test_candidates_are_timed_by_the_device_on_copies(log, tmp_path):
    kernel = tuned(cache=tmp_path)
    x, y = there(f32(300)), there(f32(300))
    report = kernel.tune(x, y, 2.0, budget_ms=5000)
    assert (y.numpy() == f32(300)).all()
    assert {row.state for row in report.rows} == {"measured"}
    # The stand-in's clock goes on by a millisecond with each event, so that all candidates are as good.
    assert all(sample == pytest.approx(1e-3) for row in report.rows for sample in row.samples)
    assert report.chosen == "B=64"
    assert "device events" in report.json and "Fake GPU" in report.json and "CUDA 1" in report.json
    assert sum(line.startswith("launch") for line in log()) > 15
    kernel(x, y, 2.0)
    assert (y.numpy() == 3 * f32(300)).all()
    kernel(x, y, 1.0)
    assert (y.numpy() == 4 * f32(300)).all()


def test_what_cannot_fit_a_block_is_pruned_before_it_is_compiled(tmp_path):
    kernel = tuned(space=dict(B=[256], num_warps=[4, 64, 8]), cache=tmp_path)
    rows = {row.config: row for row in kernel.tune(there(f32(300)), there(f32(300)), 2.0).rows}
    pruned = rows["B=256, num_warps=64"]
    assert pruned.state == "pruned" and pruned.reason == "2048 threads in a block, of at most 1024"
    assert rows["B=256, num_warps=4"].state == rows["B=256, num_warps=8"].state == "measured"


def test_a_candidate_that_takes_the_device_with_it_is_left_out_by_the_next_search(tmp_path, monkeypatch):
    x, y = there(f32(300)), there(f32(300))
    # By an error that ends all work on the device,
    CUDA.fake_fail(700)
    kernel = tuned(cache=tmp_path)
    with pytest.raises(ts.LaunchError) as e:
        kernel.tune(x, y, 2.0)
    assert e.value.code == "E_TUNE_MEASURE_FAIL" and "E_ILLEGAL_ADDRESS" in str(e.value) and "begin a new process" in str(e.value)
    rows = kernel.tuning_report().rows
    (bad,) = [row for row in rows if row.state == "failed"]
    assert all(row.state == "skipped" and "the device was lost" in row.reason for row in rows if row is not bad)
    rows = {row.config: row for row in tuned(cache=tmp_path).tune(x, y, 2.0).rows}
    assert rows.pop(bad.config).state == "failed" and {row.state for row in rows.values()} == {"measured"}
    # or by one that ends the process.
    (path,) = tmp_path.glob("*.json")
    record = json.loads(path.read_text())
    record["rows"] = [{**record["rows"][0], "config": "B=128", "state": "started", "reason": "is running", "samples_s": []}]
    path.write_text(json.dumps({"tessera_tuning": [record]}))
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    assert ts.tuning.load(path) == 1
    rows = {row.config: row for row in tuned().tune(x, y, 2.0).rows}
    assert rows["B=128"].state == "failed" and "a process ended while it ran this" in rows["B=128"].reason
    assert rows["B=64"].state == "measured"


def test_calls_measure_on_their_device_and_are_repeated_with_what_was_found(log, tmp_path):
    kernel = tuned(budget_ms=2000, cache=tmp_path)
    x, y = there(f32(300), "cuda:1"), there(f32(300), "cuda:1")
    kernel(x, y, 1.0)
    assert (y.numpy() == 2 * f32(300)).all() and kernel.tuning_report().source == "measured"
    before = sum(line.startswith("launch") for line in log())
    kernel(x, y, 1.0)
    assert sum(line.startswith("launch") for line in log()) == before + 1


def test_the_cost_model_chooses_where_nothing_was_measured(monkeypatch, tmp_path):
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    x, y = there(f32(1 << 20)), there(f32(1 << 20))
    tripled(x, y)
    explained = tripled.explain()
    assert explained.config == {"T": 4096}
    assert explained.tuned.startswith("T=4096 predicted at ") and "; then T=32 at " in explained.tuned and "by the cost model" in explained.tuned
    # Elsewhere the first candidate is taken.
    for profile in ("strict", "deterministic"):
        with ts.numerics.profile(profile):
            tripled(x, y)
            assert tripled.explain().config == {"T": 32}
    host = f32(64)
    tripled(host, host.copy())
    assert tripled.explain().config == {"T": 32}
