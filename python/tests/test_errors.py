"""Every failure is a typed exception with its code, place and hint."""

import pickle
import sys
import warnings

import numpy as np
import pytest
import tessera as ts

BASES = {
    "KernelSyntaxError": SyntaxError, "KernelTypeError": TypeError, "ShapeError": ValueError,
    "PrivilegeError": Exception, "LaunchError": ValueError, "UnsupportedError": NotImplementedError,
    "ResourceError": Exception, "DeviceError": RuntimeError, "ToolError": Exception,
    "CheckError": Exception, "CheckpointError": RuntimeError, "PlacementError": ValueError, "CommError": RuntimeError, "InternalError": Exception,
}  # fmt: skip


@pytest.mark.parametrize("name, base", BASES.items())
def test_every_class_is_a_tessera_error_and_its_python_base(name, base):
    assert issubclass(getattr(ts, name), (ts.TesseraError)) and issubclass(getattr(ts, name), base)


def test_an_error_in_a_kernel_has_its_place_and_hint():
    with pytest.raises(ts.KernelSyntaxError) as e:
        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            x[i] = alhpa * x[i]

    error = e.value
    assert (error.code, error.file) == ("E_NAME", __file__)
    assert error.line == sys._getframe().f_lineno - 4 and error.column == 20
    assert "alhpa" in str(error) and "^" in str(error) and error.help
    assert pickle.loads(pickle.dumps(error)).line == error.line


def test_errors_are_collected():
    with pytest.raises(ts.TesseraError) as e:
        @ts.kernel
        def k(x: ts.Tensor["n", ts.f32]):
            i = ts.tile.linear_id()
            x[i] = one
            x[i] = two

    assert [d.code for d in e.value.diagnostics] == ["E_NAME", "E_NAME"]
    assert "one" in str(e.value) and "two" in str(e.value)


def test_functions_of_the_language_say_that_they_need_a_kernel():
    with pytest.raises(ts.UnsupportedError, match="inside a kernel"):
        ts.tile.exp(1.0)
    with pytest.raises(ts.UnsupportedError, match="inside a kernel"):
        ts.identity(1.0)
    with pytest.raises(ts.UnsupportedError, match="inside a kernel"):
        ts.require()
    assert ts.cdiv(7, 2) == 4
    with pytest.raises(AttributeError, match="linear_id"):
        ts.tile.linear_ids
    with pytest.raises(AttributeError, match="kernel"):
        ts.kernal


def test_backends_are_known_missing_or_unknown(monkeypatch):
    assert ts.runtime.backends()["interp"] == "available"
    with pytest.raises(ts.DeviceError, match="not available.*") as e:
        ts.runtime.select_backend("rocm")
    assert e.value.code == "E_DRIVER" and "interp" in e.value.help
    with pytest.raises(ts.DeviceError, match="one of interp, cpu"):
        ts.runtime.select_backend("fpga")
    monkeypatch.setenv("TESSERA_BACKEND", "ptx")
    with pytest.raises(ts.DeviceError, match="ptx"):
        ts.runtime.capabilities()
    monkeypatch.delenv("TESSERA_BACKEND")
    assert ts.runtime.capabilities()["backend"] == "cpu"
    ts.runtime.select_backend("interp")
    try:
        assert ts.runtime.capabilities()["backend"] == "interp"
    finally:
        ts.runtime.select_backend(None)


def test_capabilities_have_the_documented_keys():
    for backend in ("cpu", "interp"):
        caps = ts.runtime.capabilities(backend)
        assert {"backend", "tensorcore", "warp_size", "cp_async", "shared_bytes_per_block"} <= caps.keys()
        assert caps["warp_size"] == 32 and caps["tensorcore"]["f32"] is False
        assert caps["tensorcore"]["bf16"] is (caps["arch"] == "amx")


@pytest.mark.parametrize("text, line, column", [
    ("module @m : tile {version = 1}\n\nfunc @f( {", 3, 10),
    ("module @m : nowhere {version = 1}\n", 1, 13),
    ("func @f() {kind = group} {\n  tile.nothing\n}\n", 2, None),
])
def test_malformed_ir_is_reported_with_line_and_column(text, line, column):
    with pytest.raises(ts.KernelSyntaxError) as e:
        ts.ir.parse(text)
    assert e.value.line == line and column in (None, e.value.column)


def test_a_parameter_with_many_values_is_warned_of_once():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], step: int):
        i = ts.tile.linear_id()
        x[i] = x[i] + step

    x = ts.zeros(4)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for step in range(12):
            k(x, step)
    assert [w.category for w in seen] == [ts.TesseraWarning]
    assert str(seen[0].message).startswith("W_RESPECIALISE: ") and "`step: ts.i64`" in str(seen[0].message)
    assert seen[0].filename == __file__


@ts.kernel
def counting(x: ts.Tensor["n", ts.f32], by: ts.i64, y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    ts.tile.assert_(x[i] > 0.0, "positive numbers only")
    for j in range(0, 4, by):
        y[i] = x[i]


@pytest.mark.usefixtures("backend")
def test_what_goes_wrong_inside_a_kernel_is_a_check_error():
    good = np.ones(8, np.float32)
    for code, x, by in [("E_ASSERT", -good, 1), ("E_ASSERT", good, 0)]:
        traced = ts.jit(lambda x, by=by: counting(x, by))
        for call in [counting, counting.launch, counting.jit(n=8), lambda x, by, f=traced: f(x)]:
            with pytest.raises(ts.CheckError) as caught:
                call(x, by)
            assert caught.value.code == code and caught.value.line


def test_a_wrong_argument_inside_a_body_is_a_type_error():
    with pytest.raises(ts.KernelTypeError) as caught:

        @ts.kernel
        def count(x: ts.Tensor["n", ts.i32]):
            ts.tile.atomic_add(x[0], 1, order="sometimes")

    assert caught.value.code == "E_ARGUMENT" and caught.value.line
    assert isinstance(caught.value, TypeError) and not isinstance(caught.value, ts.LaunchError)
