"""Dtypes, policies and annotations."""

import copy
import pickle

import pytest
import tessera
import tessera as ts
from tessera import Region, Tensor, accum, fp8_e4m3, fp32, loss_scale, read, stochastic_round
from tessera.kernel.builtins import FUNCTIONS


def test_all_spellings_of_a_dtype_are_one_object():
    assert ts.f32 is ts.fp32 is ts.float32 is ts.dtype("float32")
    assert ts.i64 is ts.int64 and ts.fp6 is ts.fp6_e3m2 and ts.bool is ts.dtype("bool")


def test_policies_apply_left_to_right_and_round_trip_as_text():
    t = fp8_e4m3 @accum(fp32) @loss_scale(128.0)
    assert str(t) == "fp8_e4m3 @accum(f32) @loss_scale(128.0)"
    assert ts.dtype(str(t)) == t == fp8_e4m3 @loss_scale(128) @accum("fp32")
    assert hash(ts.dtype(str(t))) == hash(t)
    assert str(ts.bf16 @stochastic_round @ts.saturate(False)) == "bf16 @stochastic_round @saturate(false)"
    assert str(ts.fp4 @ts.packed @ts.compute(ts.bf16)) == "fp4_e2m1 @compute(bf16) @packed"
    assert str(ts.f16 @ts.round("rtz") @ts.scale("delayed")) == 'f16 @round("rtz") @scale("delayed")'


@pytest.mark.parametrize("make, code", [
    (lambda: ts.dtype("fp7"), "E_UNSUPPORTED_DTYPE"),
    (lambda: ts.dtype(object()), "E_UNSUPPORTED_DTYPE"),
    (lambda: ts.bf16 @accum(fp32) @accum(fp32), "E_TYPE"),
    (lambda: ts.bf16 @ts.packed, "E_TYPE"),
    (lambda: accum("fp9"), "E_UNSUPPORTED_DTYPE"),
    (lambda: Tensor["n", "fp7"], "E_UNSUPPORTED_DTYPE"),
    (lambda: Tensor["n", 1.5], "E_TYPE"),
    (lambda: ts.Out["n", "?", ts.f32], "E_TYPE"),
])
def test_bad_types_are_refused_with_a_code(make, code):
    with pytest.raises(ts.TesseraError) as e:
        make()
    assert e.value.code == code


def test_an_unknown_dtype_lists_near_names():
    with pytest.raises(TypeError, match="fp6.*fp4"):
        ts.dtype("fp7")


def test_tensor_prints_and_reads_back():
    t = Tensor["B", "D", fp8_e4m3 @accum(fp32)]
    assert str(t) == """Tensor["B", "D", 'fp8_e4m3 @accum(f32)']"""
    assert eval(str(t)) == t == Tensor["B", "D", "fp8_e4m3 @accum(fp32)"]
    assert Tensor["B*H", 64, ..., ts.bf16].dims == ("B*H", "64", "?")
    assert Tensor["M", "f32"].dtype is ts.f32 and Tensor["M", "N"].dtype is None


def test_regions_take_objects_and_strings_and_an_optional_type():
    assert Region[read] == Region["read"]
    assert Region[ts.reduce].privilege is ts.reduce_sum and Region["update"].privilege is ts.read_write
    assert Region[read, Tensor["n", ts.f32]].dims == ("n",)
    with pytest.raises(ValueError, match="reduce_max"):
        Region["reed"]


def test_types_survive_pickling_and_copying():
    t = ts.bf16 @accum(fp32)
    assert pickle.loads(pickle.dumps(t)) == t == copy.deepcopy(t)
    assert pickle.loads(pickle.dumps(ts.f32)) is ts.f32
    tensor = Tensor["n", t]
    assert pickle.loads(pickle.dumps(tensor)) == tensor


def test_star_import_hides_no_builtin():
    assert "bool" not in tessera.__all__ and "round" not in tessera.__all__


def test_arrays_by_dtype_name():
    assert ts.zeros((2, 3), ts.bf16).dtype.name == "bfloat16"
    assert ts.empty(4, "fp8_e4m3").dtype.name == "float8_e4m3fn"
    assert ts.array([1.0, 2.5]).dtype.name == "float32" and ts.array([1, 2], "i8").dtype.name == "int8"
    assert ts.zeros((2, 5), "fp4 @packed").shape == (2, 3)
    assert ts.array([1.0, 2.0, 3.0], "fp4 @packed").tolist() == [0x42, 0x05]
    assert ts.ones(3, "i32").tolist() == [1, 1, 1]


def test_every_name_of_a_dtype_and_of_the_language_is_exported():
    for name in tessera._core.dtype_names():
        assert getattr(ts, name) == ts.dtype(name)
    for name, function in FUNCTIONS.items():
        if name in ("round", "stochastic_round"):
            continue  # items of a policy outside kernels
        found = ts
        for part in name.split("."):
            found = getattr(found, part)
        assert found is function
