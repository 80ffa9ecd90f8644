"""Calls of jitted functions on CUDA devices that are replayed, run by `test_cuda_fake.py` with a fake driver."""

import fake_torch
import numpy as np
import pytest
from cuda_cases import CUDA, f32, log, saxpy_one, there

import tessera as ts

__all__ = ["log"]


def replayed(f, *args):
    """The result of a call, and whether it was replayed."""
    before = f._calls.counts()[1]
    return f(*args), f._calls.counts()[1] - before == 1


def missed(f, *args):
    """The result of a call that must take the full path."""
    result, was = replayed(f, *args)
    assert not was
    return result


def hit(f, *args):
    result, was = replayed(f, *args)
    assert was
    return result


def twice(x, y):
    return saxpy_one(x, saxpy_one(x, y))


@pytest.mark.parametrize("captured", [False, True])
def test_calls_of_functions_are_replayed_with_other_arrays(log, captured):
    f = ts.jit(twice, capture_graph=captured)
    kept = [missed(f, there(f32(8)), there(f32(8)))]
    for n in range(8):
        x, y = there(f32(8) + n), there(f32(8) * n)
        kept.append(hit(f, x, y))
        assert (kept[-1].numpy() == 2 * x.numpy() + y.numpy()).all(), n
    assert (kept[0].numpy() == 3 * f32(8)).all()
    assert len({a.data_ptr() for a in kept}) == len(kept), "each call has a result of its own"
    x, y = there(f32(8)), there(f32(8))
    expected = (3 * f32(8)).tolist()
    for _ in range(12):
        assert hit(f, x, y).numpy().tolist() == expected
    if captured:
        CUDA.fake_clear()
        before = CUDA.fake_graph_launches()
        hit(f, x, y)
        assert CUDA.fake_graph_launches() == before + 1 and all(line.startswith("replay") for line in log())


def test_what_a_recording_does_not_cover_takes_the_full_path(monkeypatch):
    f = ts.jit(twice)
    x, y = there(f32(8)), there(f32(8))
    missed(f, x, y), hit(f, x, y)
    base = there(f32(64))
    for a, b in (
        (there(f32(16)), there(f32(16))),
        (x, there(f32(8).reshape(8))[::-1]),
        (base[0:16:2], y),
        (base[1:9], y),
        (there(f32(8), "cuda:1"), there(f32(8), "cuda:1")),
        (f32(8), f32(8)),
    ):
        missed(f, a, b)
    assert missed(f, x, f32(8)).device == "cuda:0", "a part in host memory"
    assert (hit(f, x, y).numpy() == 3 * f32(8)).all()
    assert (hit(f, there(f32(8), "cuda:1"), there(f32(8), "cuda:1")).numpy() == 3 * f32(8)).all()
    assert (hit(f, base[1:9], y).numpy() == f32(8) + 2 * f32(64)[1:9]).all()
    with pytest.raises(ts.LaunchError):
        f(x, there(f32(8), "cuda:1"))
    with ts.numerics.profile("strict"):
        missed(f, x, y), hit(f, x, y)
    with ts.runtime.oracle():
        missed(f, x, y)
    monkeypatch.setenv("TESSERA_OFF", "queues")
    missed(f, x, y)
    monkeypatch.delenv("TESSERA_OFF")
    f.cache_clear()
    missed(f, x, y), hit(f, x, y)


def test_a_function_that_is_another_takes_the_full_path():
    scale = 2

    @ts.kernel
    def saxpy_scaled(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        i = ts.tile.program_id(0) * 64
        y[i : i + 64] = x[i : i + 64] * scale + y[i : i + 64]
        return y

    f = ts.jit(lambda x, y: saxpy_scaled(x, y))
    x, y = there(f32(8)), there(f32(8))
    missed(f, x, y), hit(f, x, y)
    scale = 3
    missed(f, x, y), hit(f, x, y)


def test_replayed_calls_are_on_the_stream_that_is_named(log):
    f = ts.jit(twice)
    x, y = there(f32(8)), there(f32(8))
    missed(f, x, y)
    with ts.runtime.stream(7):
        missed(f, x, y)  # in use on another stream
        CUDA.fake_clear()
        result = hit(f, x, y)
        assert [line.split()[2] for line in log()] == ["stream=7"] * len(log()) and len(log()) > 1
    CUDA.fake_clear()
    missed(f, x, result)
    assert "wait - stream=0 grid=7 threads=0" in log()
    hit(f, x, result)


def test_a_recording_of_the_callers_takes_the_full_path(log):
    f = ts.jit(twice)
    x, y = there(f32(8)), there(f32(8))
    out = f(x, y)
    hit(f, x, y)
    with pytest.raises(ts.LaunchError) as e:
        with ts.runtime.capture_graph():
            f(x, y)  # a result would be made
    assert e.value.code == "E_CAPTURE"
    assert (hit(f, x, y).numpy() == out.numpy()).all()


def test_tensors_of_pytorch_are_replayed_on_its_current_stream(log, monkeypatch):
    torch = fake_torch.install(monkeypatch, True)
    f = ts.jit(twice)
    x, y = torch.tensor(there(f32(8))), torch.tensor(there(f32(8)))
    missed(f, x, y)
    for stream in (0, 40, 41):
        torch.stream = stream
        CUDA.fake_clear()
        result = hit(f, x, y)
        assert type(result) is type(x) and (result.array.numpy() == 3 * f32(8)).all()
        launches = [line.split()[2] for line in log() if line.startswith("launch")]
        assert launches and set(launches) == {f"stream={stream}"}
    missed(f, x, there(f32(8)))
    torch = fake_torch.install(monkeypatch, False)
    x, y = torch.tensor(there(f32(8))), torch.tensor(there(f32(8)))
    assert type(missed(f, x, y)) is type(missed(f, x, y)) is type(x), "attributes in Python are not read"


def test_captured_arrays_and_numbers_are_arguments_too(log):
    held = ts.array(f32(8))
    f = ts.jit(lambda x, a: (saxpy_one(x, held), a))
    for n, (x, a) in enumerate([(f32(8), np.float32(1.5)), (f32(8) + 1, np.float32(-2)), (f32(8) + 2, np.float32(3.25))]):
        (y, number), was = replayed(f, there(x), a)
        assert was == (n > 0) and (y.numpy() == x + f32(8)).all()
        assert number.numpy() == a and number.shape == ()
    missed(f, there(f32(8)), 2)
    y, number = hit(f, there(f32(8)), 7)
    assert number.numpy() == 7
    with ts.runtime.stream(9):
        x = there(f32(8))
        CUDA.fake_clear()
        assert (hit(f, x, 1)[0].numpy() == 2 * f32(8)).all()
        assert "wait - stream=9 grid=0 threads=0" in log(), "the array that the trace holds was in use elsewhere"


def test_donated_arrays_give_their_memory_in_replayed_calls():
    f = ts.jit(lambda x, y: x + y, donate_argnums=0)
    for n in range(3):
        x, y = there(f32(8)), there(f32(8))
        result, was = replayed(f, x, y)
        assert was == (n > 0) and result.data_ptr() == x.data_ptr()
    base = there(f32(32))
    for a, b in ((x, x), (base[:8], base[4:12]), (base[:8], base[4:12])):
        assert f(a, b).data_ptr() not in (a.data_ptr(), b.data_ptr()), "memory that another argument has is not written over"
    assert replayed(f, base[:8], base[8:16])[0].data_ptr() == base.data_ptr()
    kept = ts.jit(lambda x, y: x + y)
    missed(kept, x, y)
    assert hit(kept, x, y).data_ptr() not in (x.data_ptr(), y.data_ptr())


@pytest.mark.parametrize("captured", [False, True])
def test_a_replayed_call_that_fails_leaves_nothing(captured):
    f = ts.jit(twice, capture_graph=captured)
    x, y = there(f32(8)), there(f32(8))
    missed(f, x, y)
    if not captured:
        hit(f, x, y)
        before = ts.runtime.memory_stats()["in_use"]
        CUDA.fake_fail(700)
        with pytest.raises(ts.DeviceError) as e:
            f(x, y)
        assert e.value.code == "E_ILLEGAL_ADDRESS" and "saxpy_one" in str(e.value) and e.value.file.endswith("cuda_cases.py"), str(e.value)
        assert ts.runtime.memory_stats()["in_use"] == before
    held = ts.empty((1 << 30) - (64 << 20), "u8", device="cuda:0")
    large = ts.jit(twice, capture_graph=captured)
    u, v = there(f32(1 << 20)), there(f32(1 << 20))
    made = [large(u, v)]
    with pytest.raises(ts.ResourceError) as e:
        for _ in range(32):
            made.append(hit(large, u, v))
    assert e.value.code == "E_OOM"
    del held, made
    assert (hit(large, u, v).numpy() == 3 * f32(1 << 20)).all()
    assert (hit(f, x, y).numpy() == 3 * f32(8)).all()


def test_launches_of_replayed_calls_are_counted_and_named():
    f = ts.jit(twice)
    x, y = there(f32(8)), there(f32(8))
    missed(f, x, y)
    before = ts._core.device_launches()[0]
    hit(f, x, y)
    count = ts._core.device_launches()[0] - before
    before = ts._core.device_launches()[0]
    ts.jit(twice)(x, y)
    assert count == ts._core.device_launches()[0] - before > 1
    hit(f, x, y)
    CUDA.fake_busy(716)
    with pytest.raises(ts.DeviceError) as e:
        x.numpy()
    assert "the last launch before was of `saxpy_one" in str(e.value), str(e.value)
