"""NVIDIA GPUs on a machine that has none: code is made and shown, calls say what is missing."""

import numpy as np
import pytest

import tessera as ts

MISSING = ts.runtime.backends()["ptx"]
pytestmark = pytest.mark.skipif(MISSING == "available", reason="this machine has a GPU: see test_cuda_fake.py and conformance/gpu/smoke.py")


@ts.kernel
def scale(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.program_id(0) * 64
    y[i : i + 64] = alpha * x[i : i + 64]
    return y


class OnDevice:
    """Stands for an array on a GPU; nothing looks into its memory."""

    def __init__(self, n=8, **more):
        table = {"shape": (n,), "typestr": "<f4", "data": (0x7F0000000000, False), "version": 3, "strides": None}
        self.__cuda_array_interface__ = {**table, **more}


def host(n=8):
    return np.zeros(n, np.float32)


def test_calls_with_arrays_of_a_device_name_what_is_missing():
    with pytest.raises(ts.DeviceError) as e:
        scale(OnDevice(), OnDevice(), 1.0)
    assert e.value.code == "E_DRIVER" and MISSING in str(e.value) and "`ptx` is not available" in str(e.value)


def test_mixed_places_name_each_argument():
    with pytest.raises(ts.LaunchError, match="`x` on cuda:0, `y` in host memory") as e:
        scale(OnDevice(), host(), 1.0)
    assert e.value.code == "E_LAUNCH_DEVICE_MISMATCH"


def test_wrong_shapes_are_reported_before_the_missing_device():
    with pytest.raises(ts.LaunchError, match="expected `n` to be 8"):
        scale(OnDevice(), OnDevice(7), 1.0)
    with pytest.raises(ts.KernelTypeError, match="got f16"):
        scale(OnDevice(typestr="<f2"), OnDevice(), 1.0)


@pytest.mark.parametrize("entries, words", [
    ({"typestr": "<c8"}, "type <c8"),
    ({"typestr": ">f4"}, "type >f4"),
    ({"mask": 1}, "masked"),
    ({"stream": 0}, "not 0"),
    ({"strides": (4, 4)}, "1 strides, got 2"),
    ({"shape": None}, "got less"),
])  # fmt: skip
def test_interfaces_that_cannot_be_used(entries, words):
    with pytest.raises(ts.LaunchError, match=words) as e:
        scale(OnDevice(**entries), OnDevice(), 1.0)
    assert e.value.code == "E_LAUNCH_BAD_LAYOUT"


def test_a_named_backend_must_reach_the_arrays(monkeypatch):
    for name in ("cpu", "x86"):
        ts.runtime.select_backend(name)
        try:
            with pytest.raises(ts.LaunchError, match=r"select_backend\(None\)"):
                scale(OnDevice(), OnDevice(), 1.0)
        finally:
            ts.runtime.select_backend(None)
    monkeypatch.setenv("TESSERA_BACKEND", "cpu")
    with pytest.raises(ts.LaunchError, match="unset TESSERA_BACKEND"):
        scale(OnDevice(), OnDevice(), 1.0)


def test_the_backend_cannot_be_selected_to_run_but_to_compile(monkeypatch):
    for name in ("ptx", "cuda", "cuda:1", "sm90", "hopper"):
        with pytest.raises(ts.DeviceError, match="`ptx` is not available"):
            ts.runtime.select_backend(name)
    monkeypatch.setenv("TESSERA_BACKEND", "ptx")
    assert scale.jit().explain().backend == "ptx"
    with pytest.raises(ts.DeviceError, match="TESSERA_BACKEND requests it"):
        scale(host(), host(), 1.0)


@pytest.mark.parametrize("target, arch", [("sm90", "sm_90a"), ("sm_90", "sm_90"), ("sm80", "sm_80"), ("ptx", "sm_90a"), ("ampere", "sm_80")])
def test_code_is_made_for_a_target(target, arch):
    compiled = scale.jit(target=target)
    text = compiled.inspect_ir("target")
    assert f".target {arch}\n" in text and ".entry" in text
    assert "staged." in compiled.inspect_ir("staged")
    assert compiled.resources["arch"] == arch and compiled.explain().backend == "ptx"
    # The portable levels are the same for every target.
    assert compiled.inspect_ir("tile") == scale.jit(target="cpu").inspect_ir("tile")


def test_code_for_a_target_is_made_once_and_apart():
    one, other = scale.jit(target="sm90"), scale.jit(target="sm80")
    assert one.inspect_ir("target") != other.inspect_ir("target")
    assert one.inspect_ir("target") == scale.jit(target="sm_90a").inspect_ir("target")
    with pytest.raises(ts.DeviceError, match="is not available"):
        one(host(), host(), 1.0)
    assert scale(host(), host(), 1.0) is not None


def test_code_is_made_for_arrays_that_lie_as_is_said():
    @ts.kernel
    def add(x: ts.Tensor["m", "n", ts.f16], y: ts.Tensor["m", "n", ts.f16]):
        m, n = ts.tile.program_id(0) * 32, ts.tile.program_id(1) * 32
        y[m : m + 32, n : n + 32] = y[m : m + 32, n : n + 32] + x[m : m + 32, n : n + 32]

    def text(layouts=None):
        return add.jit(target="sm90", layouts=layouts).inspect_ir("target")

    usual = text()
    assert usual == text({}) == text({"x": {}}) == text({"x": {"axis": 1, "align": 16}, "y": {"axis": -1}})
    others = [text({"x": {"axis": 0}}), text({"x": {"align": 2}}), text({"x": {"axis": None}}), text({"y": {"align": 2}})]
    assert len({usual, *others}) == 5
    assert "ld.global.v4" in usual and "ld.global.v4" not in text({"x": {"align": 2}, "y": {"align": 2}})
    # What was made for other arrays is not what the next one gets.
    assert text() == usual and add.jit(target="cpu", layouts={"x": {"axis": 0}}) is not None


@pytest.mark.parametrize("layouts, words", [
    ({"z": {}}, r"expected an array \(one of x, y\), got `z`"),
    ({"alpha": {}}, "got `alpha`"),
    ({"x": {"axis": 1}}, "expected an axis from -1 to 0, or None, as `axis`, got 1"),
    ({"x": {"axis": 0.5}}, "as `axis`, got 0.5"),
    ({"x": {"align": 2}}, "expected a power of two from 4 to 16 as `align`, got 2"),
    ({"x": {"align": 32}}, "got 32"),
    ({"x": {"align": None}}, "got None"),
    ({"x": {"strides": 4}}, "expected `axis` or `align`, got `strides`"),
    ({"x": 0}, "expected a dict of dicts"),
    ([("x", {})], "expected a dict of dicts"),
])  # fmt: skip
def test_layouts_that_cannot_be(layouts, words):
    with pytest.raises(ts.LaunchError, match=words) as e:
        scale.jit(target="sm90", layouts=layouts)
    assert e.value.code == "E_ARGUMENT"


def test_architectures_that_do_not_exist():
    with pytest.raises(ts.UnsupportedError, match="sm_90a.*got `sm42`"):
        scale.jit(target="sm42")


def test_a_kernel_can_be_bound_to_a_target():
    @ts.kernel(target="sm90")
    def bound(x: ts.Tensor["n", ts.f32]):
        i = ts.tile.program_id(0) * 64
        x[i : i + 64] = x[i : i + 64] + 1.0

    assert ".target sm_90a" in bound.inspect_ir("target") and "staged." in bound.inspect_ir("staged")
    with pytest.raises(ts.DeviceError, match="`target=` requests it"):
        bound(host())


def test_the_command_shows_code_for_a_target(tmp_path, capsys):
    from tessera.tools.cli import main

    file = tmp_path / "kernels_here.py"
    file.write_text(
        "import tessera as ts\n\n@ts.kernel\ndef add(x: ts.Tensor['n', ts.f32]):\n"
        "    i = ts.tile.program_id(0) * 64\n    x[i : i + 64] = x[i : i + 64] + 1.0\n"
    )
    assert main(["ir", f"{file}:add", "--level", "target", "--target", "sm80"]) == 0
    assert ".target sm_80" in capsys.readouterr().out
    assert main(["ir", f"{file}:add", "--level", "staged"]) == 1
    assert "no staged level" in capsys.readouterr().err


def test_capabilities_of_an_architecture_are_listed():
    hopper, ampere = ts.runtime.capabilities("sm90"), ts.runtime.capabilities("sm80")
    assert (hopper["backend"], hopper["arch"], hopper["warp_size"], hopper["device_count"]) == ("ptx", "sm_90a", 32, 0)
    assert hopper["tensorcore"]["bf16"] and not hopper["tensorcore"]["f32"] and hopper["wgmma"] and hopper["tma"]
    assert ampere["cp_async"] and not ampere["tma"] and not ampere["tensorcore"]["fp8_e4m3"]
    assert hopper["shared_bytes_per_block"] == 232448
    assert ts.runtime.capabilities("ptx")["arch"] == "sm_90a"


def test_devices_and_their_functions_say_what_is_missing():
    assert ts.runtime.devices() == []
    ts.runtime.synchronize()
    for call in (
        lambda: ts.empty(3, device="cuda:0"),
        lambda: ts.array([1.0], device="cuda"),
        lambda: ts.runtime.memory_stats("cuda:0"),
        lambda: ts.runtime.trim(),
        lambda: ts.runtime.synchronize("cuda:0"),
        lambda: ts.runtime.stream(),
        lambda: ts.runtime.capture_graph().__enter__(),
    ):
        with pytest.raises(ts.DeviceError) as e:
            call()
        assert e.value.code == "E_DRIVER"


def test_devices_have_names():
    assert isinstance(ts.empty((2, 3), device="cpu"), np.ndarray)
    assert isinstance(ts.full((2,), 3, "i32", device="cpu"), np.ndarray)
    for wrong in ("tpu", "cuda:x", 3):
        with pytest.raises(ts.LaunchError, match="expected a device"):
            ts.empty(3, device=wrong)
    with pytest.raises(ts.LaunchError, match="expected a device"):
        ts.runtime.memory_stats("cpu")
