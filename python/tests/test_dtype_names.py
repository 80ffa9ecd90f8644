"""Dtypes as users of NumPy and JAX write them: called, compared, handed to NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import xp


@pytest.mark.parametrize("made, value, dtype", [
    (xp.float32(0.5), 0.5, "float32"), (xp.int32(3), 3, "int32"), (ts.f32(0.5), 0.5, "float32"), (xp.int32(2.7), 2, "int32"),
    (xp.bool(2), True, "bool"), (xp.float16(np.int64(3)), 3.0, "float16"), (ts.bf16(1.5), 1.5, "bfloat16"), (ts.u64(2**64 - 1), 2**64 - 1, "uint64"),
])  # fmt: skip
def test_called_a_dtype_makes_an_array(made, value, dtype):
    assert isinstance(made, ts.Array) and made.shape == () and made.dtype.name == dtype and made == value


def test_called_with_arrays_lists_and_traced_values():
    assert xp.float32([1, 2]).tolist() == [1.0, 2.0] and xp.int32(np.float32([1.5, 2])).dtype == np.int32
    assert ts.tree.map(xp.float16, {"a": np.arange(2)})["a"].dtype == np.float16
    out = ts.jit(lambda x: (xp.bfloat16(x), xp.float32([x, 2.0]), x + xp.float32(1)))(np.float16(3))
    assert [v.dtype.name for v in out] == ["bfloat16", "float32", "float32"] and out[1].tolist() == [3.0, 2.0]
    assert ts.vmap(xp.int32)(np.float32([1.5, 2.5])).tolist() == [1, 2]


def test_called_in_a_trace_numbers_stay_known():
    double = ts.jit(lambda x: ts.fori_loop(0, xp.int32(3), lambda i, c: c * 2, x))
    assert double(1.0) == 8 and ts.grad(double)(1.0) == 8
    assert ts.jit(lambda x: xp.zeros(int(xp.int32(3))) + x)(1.0).shape == (3,)


def test_a_result_of_a_call_is_not_weak():
    assert (xp.float32(1) + xp.ones(2, xp.float16)).dtype == np.float32


@pytest.mark.parametrize("make", [lambda: xp.int8(300), lambda: xp.uint8(-1), lambda: xp.asarray(300, dtype=xp.int8), lambda: ts.array([1, 300], ts.i8),
                                  ts.jit(lambda: xp.asarray(300, xp.int8)), ts.jit(lambda: xp.int8(300)),
                                  lambda: xp.asarray(1j), lambda: xp.float32("3"), lambda: xp.float32(1j)])  # fmt: skip
def test_what_a_dtype_does_not_hold_is_refused(make):
    with pytest.raises(ts.KernelTypeError, match="E_TYPE"):
        make()


def test_arrays_wrap_as_in_numpy():
    assert xp.asarray(np.int64(300), xp.int8) == 44 and xp.int8(np.array([300])).tolist() == [44]


@pytest.mark.parametrize("dtype, numpy_dtype", [(ts.f32, np.float32), (ts.bf16, ml_dtypes.bfloat16), (ts.i8, np.int8), (ts.bool, np.bool_),
                                                (ts.fp8_e4m3, ml_dtypes.float8_e4m3fn), (ts.f64, float)])  # fmt: skip
def test_equal_to_what_numpy_calls_it(dtype, numpy_dtype):
    exact = np.dtype(numpy_dtype)
    assert dtype == numpy_dtype and dtype == exact and exact == dtype and dtype == exact.name and not dtype != exact
    assert np.dtype(dtype) is exact and hash(dtype) == hash(exact) and np.zeros(2, dtype).dtype == exact
    assert xp.zeros(2, dtype).dtype == dtype and xp.zeros(2, dtype).dtype in (ts.i4, dtype)
    assert ts.jit(lambda x: x.dtype == numpy_dtype and x.dtype == exact and x.dtype.kind == exact.kind)(xp.zeros(2, dtype))


def test_not_equal_to_others():
    assert ts.f32 != np.float64 and ts.f32 != "f64" and ts.f32 != None and ts.f32 != 3 and ts.f32 != object  # noqa: E711
    # The elements of tf32 are f32, and the dtype is another; so is one with a policy.
    assert ts.tf32 != np.float32 and np.dtype(np.float32) != ts.tf32 and (ts.bf16 @ ts.accum(ts.f32)) != np.dtype(ml_dtypes.bfloat16)
    with pytest.raises(TypeError):
        np.dtype(ts.tf32)


def test_limits_of_numpy_dtypes():
    assert xp.finfo(np.float32).eps == np.finfo(np.float32).eps and xp.iinfo(np.int8).max == 127
    assert xp.finfo(np.zeros(2, np.float16)).max == 65504
