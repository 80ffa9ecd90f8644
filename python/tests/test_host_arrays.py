"""Arrays of ours in host memory: eager results equal those of a jitted function, for every dtype."""

import copy
import itertools
import math
import operator
import pickle

import ml_dtypes
import numpy as np
import pytest
import tessera as ts
from tessera import nn, xp
from tessera.arrays.host import HostArray

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float32", "float64"]
BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow, operator.eq, operator.ne,
    operator.lt, operator.le, operator.gt, operator.ge, operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
]  # fmt: skip


def array(dtype, values=(3, 1, 2)):
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    return xp.asarray(np.array(values, np.float32).astype(kind))


def outcome(run):
    """What an expression gives: dtype and bits, or that it is refused."""
    try:
        made = run()
    except (ts.TesseraError, TypeError) as error:
        return getattr(error, "code", None) or "TypeError"
    made = np.asarray(made)
    return str(made.dtype), made.shape, made.tobytes()


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
def test_operators_give_the_same_eagerly_and_under_jit(op):
    operands = [array(d) for d in DTYPES] + [True, 2, 2.5, xp.sqrt(4.0), np.arange(3), np.float64(1.5)]
    differ = []
    for a, b in itertools.product(operands, operands):
        if not (isinstance(a, HostArray) or isinstance(b, HostArray)):
            continue
        now = outcome(lambda: op(a, b))
        traced = outcome(lambda: ts.jit(lambda x, y: op(x, y), target="interp")(a, b))
        if now != traced:
            differ.append((np.asarray(a).dtype, np.asarray(b).dtype, now[:2], traced[:2]))
    assert not differ


def test_what_gives_arrays():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    key = ts.random.key(0)
    made = [
        xp.ones(2), xp.asarray([1.0]), xp.asarray(x), xp.arange(3), xp.sum(x), xp.from_dlpack(x), *xp.nonzero(x), xp.unique(x),
        *xp.unique_all(x), xp.sqrt(2.0), xp.mgrid[0:2], ts.random.normal(key, (2,)), ts.random.key_data(key), nn.relu(x),
        nn.Linear(3, 4).init(key)["w"], ts.jit(lambda a: a + 1)(x), ts.grad(lambda a: xp.sum(a * a))(x), *ts.vjp(xp.sin, x)[1](x),
        ts.vmap(xp.sum)(x), ts.cond(True, lambda a: a, lambda a: -a, x), ts.fori_loop(0, 2, lambda i, a: a * 2, x),
    ]  # fmt: skip
    for n, a in enumerate(made):
        assert isinstance(a, HostArray) and isinstance(a, ts.Array) and isinstance(a, np.ndarray), n
    with ts.runtime.oracle():
        assert isinstance(xp.sum(x), HostArray)


def test_operations_follow_their_arrays():
    x = np.ones((2, 4), np.float32)
    for op in (ts.op.softmax, ts.op.sum, ts.op.gelu, ts.op.relu, ts.op.logsumexp, ts.op.softmax_safe):
        assert type(op(x)) is np.ndarray
        assert type(op(xp.asarray(x))) is HostArray
    assert type(ts.op.matmul(x, x.T)) is np.ndarray and type(ts.op.matmul(x, xp.asarray(x).T)) is HostArray


def test_no_f64_comes_of_python_numbers():
    assert xp.sqrt(2.0).dtype == np.float32
    assert ts.jit(lambda a: a * 2)(1.5).dtype == np.float32
    assert ts.grad(lambda a: a * a)(3.0).dtype == np.float32
    assert ts.cond(True, lambda: 1.0, lambda: 2.0).dtype == np.float32
    assert ts.jit(lambda: xp.asarray([1.0, 2.0]))().dtype == np.float32
    assert ts.jit(lambda a: a + [1.0, 2.0] if False else xp.add(a, xp.asarray([0.5])))(np.float32(1)).dtype == np.float32
    assert (xp.ones(2) + np.arange(2)).dtype == (ts.jit(lambda: xp.ones(2) + np.arange(2))()).dtype == np.float32
    assert xp.asarray([np.float64(1)]).dtype == ts.jit(lambda: xp.asarray([np.float64(1)]))().dtype == np.float64
    assert ts.eval_shape(lambda a: a * 2, 1.5).dtype == ts.float32


def test_f64_keeps_the_digits_of_python_numbers():
    x = np.ones(1, np.float64)
    assert ts.jit(lambda a, r: a * r)(x, 0.1)[0] == 0.1
    assert (xp.asarray(x) * 0.1)[0] == 0.1


def test_what_comes_of_numbers_alone_gives_way():
    half = xp.asarray(np.ones(3, np.float16))
    root = xp.sqrt(4.0)
    assert (half * root).dtype == (root * half).dtype == ts.jit(lambda a: a * xp.sqrt(4.0))(half).dtype == np.float16
    assert ts.jit(lambda a, r: a * r)(half, root).dtype == np.float16
    # In short calls too, where arrays of NumPy's of the same shape do not give way.
    f = ts.jit(lambda a, r: a * r)
    for _ in range(3):
        assert f(half, root).dtype == np.float16
        assert f(half, np.asarray(root)).dtype == np.float32
    again = ts.jit(lambda r: r * 2)
    for _ in range(3):
        assert (half * again(1.5)).dtype == np.float16


def test_numpy_shares_the_memory():
    x = xp.ones(4)
    seen = np.asarray(x)
    assert np.shares_memory(seen, x) and np.shares_memory(x.numpy(), x) and type(x.numpy()) is np.ndarray
    seen[1] = 5
    assert x.tolist() == [1, 5, 1, 1]
    assert type(np.sin(x)) is np.ndarray and type(np.sum(x)) is np.float32
    assert type(np.concatenate([x, x])) is np.ndarray
    out = np.empty(4, np.float32)
    np.add(x, 1, out=out)
    assert out.tolist() == [2, 6, 2, 2]
    assert np.add(x, np.arange(4)).dtype == np.float32


def test_augmented_assignment_binds_a_new_array():
    x = xp.ones(3)
    y = x
    y += 1
    y *= 2
    assert x.tolist() == [1, 1, 1] and y.tolist() == [4, 4, 4]
    x[0] = 7
    assert x.tolist() == [7, 1, 1]


def test_parts_are_arrays():
    x = xp.asarray([1.5, 2.5])
    assert isinstance(x[0], HostArray) and x[0].shape == () and float(x[0]) == 1.5
    assert [type(v) for v in x] == [HostArray] * 2
    assert (x[0] * np.arange(2)).dtype == np.float32
    assert f"{x[0]:.2f}" == "1.50" and round(x[0], 1) == 1.5 and math.sqrt(x[0]) == math.sqrt(1.5)
    assert isinstance(x.T, HostArray) and isinstance(x.reshape(2, 1), HostArray)
    assert int(ts.jit(lambda i: x.astype("int32")[i])(1)) == 2


def test_methods_are_those_of_traced_values():
    x = xp.asarray(np.arange(6, dtype=np.float32).reshape(2, 3) - 2)
    for call in (
        lambda a: a.sum(0), lambda a: a.mean(), lambda a: a.max(1), lambda a: a.min(), lambda a: a.argmax(0), lambda a: a.std(1),
        lambda a: a.astype("bfloat16"), lambda a: a.astype(ts.int8), lambda a: a.at[0].add(1.0), lambda a: a.cumsum(1), lambda a: a.clip(-1, 1),
        lambda a: a.mT, lambda a: (a > 0).any(1), lambda a: a.astype("int8").sum(), lambda a: a.all(), lambda a: a.prod(0), lambda a: a.round(),
        lambda a: a.dot(a.T), lambda a: -a, lambda a: abs(a), lambda a: ~a.astype("int32"), lambda a: a.take(xp.asarray([1, 0]), 1),
        lambda a: a.var(0), lambda a: a.squeeze(), lambda a: a.ravel(), lambda a: a.max(0, keepdims=True),
    ):  # fmt: skip
        now, traced = call(x), ts.jit(call)(x)
        assert isinstance(now, HostArray) and now.dtype == traced.dtype and now.shape == traced.shape
        np.testing.assert_allclose(np.asarray(now, np.float64), np.asarray(traced, np.float64), rtol=1e-6)


def test_arrays_of_a_device_have_the_methods_of_traced_values():
    from tessera.trace.tracer import Tracer

    missing = {name for name in dir(Tracer) if not name.startswith("_") and not hasattr(ts._core.Array, name)}
    assert not missing


def test_reductions_that_select_see_nan_as_the_compiled_code_does():
    x = xp.asarray([1.0, np.nan, 3.0])
    for call in (lambda a: a.max(), lambda a: a.min(), lambda a: a.argmax(), lambda a: a.argmin(), lambda a: a.any(), lambda a: a.all()):
        assert outcome(lambda: call(x)) == outcome(lambda: ts.jit(call)(x))


def test_lists_are_arrays_and_none_is_none():
    x = xp.asarray([1.0, 2.0])
    assert (x == [1.0, 2.0]).all() and (x + [1, 2]).tolist() == [2, 4]
    assert (x == None) is False and (x != None) is True  # noqa: E711
    with pytest.raises(TypeError):
        x + None


def test_copies_pickles_and_prints():
    x = xp.asarray([1.0, 2.0])
    for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(y) is HostArray and y.tolist() == [1, 2]
    assert repr(x) == "Array([1., 2.], dtype=float32)" and str(x) == "[1. 2.]"
    assert str(x - 0.2) == str(np.asarray(x) - np.float32(0.2)) and str(x.astype("bfloat16")) == "[1 2]"
    with pytest.raises(TypeError):
        hash(x)


def test_array_is_found_by_array_api_users():
    assert xp.ones(2).__array_namespace__() is xp
    assert ts.jit(lambda a: a.__array_namespace__().sin(a))(xp.ones(2)).shape == (2,)


def test_kernels_take_them():
    @ts.kernel
    def scale(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):  # noqa: F821
        i = ts.tile.program_id(0)
        y[i] = x[i] * 2

    x, y = xp.ones(4), xp.zeros(4)
    scale[4](x, y)
    assert y.tolist() == [2, 2, 2, 2]
