"""`tessera.xp` has what the array API names; where a function is missing, the list says so and must shrink."""

import numpy as np
import pytest

import tessera as ts
from tessera import xp

NAMES = """e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril
triu zeros zeros_like astype broadcast_arrays broadcast_to can_cast finfo iinfo isdtype result_type bool int8 int16 int32 int64
uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 abs acos acosh add asin asinh atan atan2 atanh bitwise_and
bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1
floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and
logical_not logical_or logical_xor maximum minimum multiply negative not_equal positive pow real remainder round sign signbit sin
sinh square sqrt subtract tan tanh trunc take matmul matrix_transpose tensordot vecdot concat expand_dims flip moveaxis
permute_dims repeat reshape roll squeeze stack tile unstack argmax argmin nonzero searchsorted where unique_all unique_counts
unique_inverse unique_values argsort sort cumulative_sum max mean min prod std sum var all any""".split()

#: Complex numbers.
MISSING = {"complex64", "complex128", "conj", "imag", "real"}


def test_names():
    assert {n for n in NAMES if not hasattr(xp, n)} == MISSING


def test_the_namespace_of_a_traced_value():
    found = []
    ts.jit(lambda x: found.append(x.__array_namespace__()) or x)(np.ones(3))
    assert found == [xp]


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [("i8", "i16", "i16"), ("u8", "i8", "i16"), ("u32", "i32", "i64"), ("f16", "f32", "f32"), ("f16", "bf16", "f32"), ("i32", "f32", "f32"),
     ("bool", "i8", "i8"), ("f32", "f64", "f64")],
)  # fmt: skip
def test_promotion(a, b, want):
    assert str(xp.result_type(ts.dtype(a), ts.dtype(b))) == want
    assert str(xp.result_type(ts.dtype(b), ts.dtype(a))) == want
    got = ts.jit(lambda x, y: x + y)(ts.ones((2,), a), ts.ones((2,), b))
    assert got.dtype == ts.zeros((1,), want).dtype


def test_promotion_that_has_no_dtype():
    with pytest.raises(ts.TesseraError, match="i64 and u64"):
        xp.add(np.ones(2, np.int64), np.ones(2, np.uint64))


def test_questions_about_dtypes():
    assert xp.isdtype(xp.float32, "real floating") and not xp.isdtype(xp.int8, ("unsigned integer", "bool"))
    assert xp.finfo(xp.float32).eps == np.finfo(np.float32).eps
    assert xp.iinfo(xp.int8).max == 127
    assert xp.can_cast(xp.int8, xp.int32) and not xp.can_cast(xp.int32, xp.int8)


def test_searching():
    x, v = np.array([1.0, 2.0, 2.0, 5.0]), np.array([[0.0, 2.0], [5.0, 9.0]])
    for side in ("left", "right"):
        np.testing.assert_array_equal(xp.searchsorted(x, v, side=side), np.searchsorted(x, v, side=side))
    np.testing.assert_array_equal(xp.from_dlpack(x), x)


def test_integers():
    x = np.array([-7, 7, 3], np.int32)
    np.testing.assert_array_equal(xp.floor_divide(x, 2), x // 2)
    np.testing.assert_array_equal(xp.remainder(x, 3), x % 3)
    np.testing.assert_array_equal(xp.bitwise_xor(x, 5), x ^ 5)
    np.testing.assert_array_equal(xp.pow(x, np.array([2, 3, 0], np.int32)), x ** np.array([2, 3, 0]))
    np.testing.assert_array_equal(xp.bitwise_invert(x), ~x)
    np.testing.assert_array_equal(xp.meshgrid(x, x[:2])[1], np.meshgrid(x, x[:2])[1])
    assert xp.sum(x).dtype == np.int64


def test_results_as_large_as_values_say():
    x = np.array([[3, 0], [3, 1]])
    assert [a.tolist() for a in xp.nonzero(x)] == [[0, 1, 1], [0, 0, 1]]
    values, first, inverse, counts = xp.unique_all(x)
    assert (values.tolist(), first.tolist(), inverse.tolist(), counts.tolist()) == ([0, 1, 3], [1, 3, 0], [[2, 0], [2, 1]], [1, 1, 2])
    assert xp.unique_values(x).tolist() == [0, 1, 3] and xp.unique_counts(x).counts.tolist() == [1, 1, 2]
    assert xp.unique_inverse(x).inverse_indices.tolist() == [[2, 0], [2, 1]]
    for name in ("unique_all", "unique_counts", "unique_inverse", "unique_values"):
        with pytest.raises(ts.TesseraError, match=f"expected `{name}` outside a traced function"):
            ts.jit(getattr(xp, name))(x)


def test_numpy_dtypes_are_ours():
    assert ts.f32 == np.dtype("float32") and np.dtype("int8") == ts.i8 and hash(ts.i64) == hash(np.dtype("int64"))
    assert ts.f32 != np.dtype("float64") and ts.bf16 != np.dtype("float32") and ts.tf32 != np.dtype("float32")
    assert ts.f32 == "f32" and ts.f32 == "float32" and ts.f32 != "f64" and ts.f32 != "no dtype"  # names of NumPy's are equal to its dtypes too
    assert (ts.f32 @ ts.accum(ts.f32)) != np.dtype("float32")


def test_the_namespace_tells_of_itself():
    info = xp.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == xp.float32 and "complex64" not in info.dtypes()
    assert set(info.dtypes(kind="signed integer")) == {"int8", "int16", "int32", "int64"}
    assert xp.finfo(xp.float32).eps == 2.0**-23 and xp.iinfo(np.int8(3)).max == 127
    for call, words in ((lambda: xp.finfo(xp.int32), "real floating"), (lambda: xp.iinfo(xp.float32), "integral"),
                        (lambda: info.dtypes(kind="nope"), "expected a kind of dtypes")):  # fmt: skip
        with pytest.raises(ts.TesseraError, match=words):
            call()
