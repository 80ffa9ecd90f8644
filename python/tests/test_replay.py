"""Call replay of kernels and of operations: what a call rests on is changed, one thing at a time, and the new meaning is seen."""

from __future__ import annotations

import dataclasses
import gc
import threading
import warnings
from collections import OrderedDict, namedtuple

import numpy as np
import pytest

import tessera as ts
from tessera.kernel.schedule import FORMER_KEYWORDS

BLOCK = 8
FACTOR = 2.0
TABLE = np.array([1.0, 2.0, 4.0], np.float32)
TABLE.flags.writeable = False


@ts.kernel
def scaled(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32], a: ts.f32 = 1.0):
    i = ts.tile.program_id(0) * BLOCK
    y[i:i + BLOCK] = x[i:i + BLOCK] * a * FACTOR


@ts.kernel
def looked_up(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]):
    i = ts.tile.program_id(0) * 8
    y[i:i + 8] = x[i:i + 8] + TABLE[1]


@ts.func
def inner(v):
    return v * FACTOR


@ts.kernel
def through(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32], f: ts.Fn = inner):
    i = ts.tile.program_id(0) * 8
    y[i:i + 8] = f(x[i:i + 8])


@ts.kernel
def anything(x: ts.Tensor["N"], y: ts.Tensor["N", ts.f32], a):
    i = ts.tile.program_id(0) * 8
    y[i:i + 8] = ts.tile.cast(x[i:i + 8] * a, ts.f32)


def row(n: int = 16, start: int = 0) -> np.ndarray:
    return np.arange(start, start + n, dtype=np.float32)


def test_a_captured_number_is_compared(monkeypatch):
    x, y = row(), np.zeros(16, np.float32)
    for factor in (2.0, 2.0, 3.0, 2.0, -0.0, 0.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            scaled(x, y)
            np.testing.assert_array_equal(y, x * np.float32(factor))
            assert np.signbit(y[1]) == np.signbit(factor)


def test_a_captured_array_is_compared(monkeypatch):
    x, y = row(), np.zeros(16, np.float32)
    for values in ([1, 2, 4], [1, 5, 4], [1, 2, 4]):
        table = np.array(values, np.float32)
        table.flags.writeable = False
        monkeypatch.setitem(globals(), "TABLE", table)
        for _ in range(2):
            looked_up(x, y)
            np.testing.assert_array_equal(y, x + values[1])


def test_a_closure_is_compared():
    def made(step):
        @ts.kernel
        def k(x: ts.Tensor["N", ts.f32], y: ts.Tensor["N", ts.f32]):
            i = ts.tile.program_id(0) * 8
            y[i:i + 8] = x[i:i + 8] + step

        def change(to):
            nonlocal step
            step = to

        return k, change

    k, change = made(1.0)
    x, y = row(), np.zeros(16, np.float32)
    for step in (1.0, 1.0, 2.5, 1.0):
        change(step)
        for _ in range(2):
            k(x, y)
            np.testing.assert_array_equal(y, x + np.float32(step))


def test_what_a_function_argument_captures_is_compared(monkeypatch):
    x, y = row(), np.zeros(16, np.float32)
    for factor in (2.0, 5.0, 2.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            through(x, y)
            np.testing.assert_array_equal(y, x * np.float32(factor))
            through(x, y, inner)
            np.testing.assert_array_equal(y, x * np.float32(factor))


def test_numbers_by_place_by_name_and_by_default():
    x, y = row(), np.zeros(16, np.float32)
    for _ in range(2):
        for a in (1.5, 2, True, np.float32(0.25), np.float64(0.5), np.int32(3), 7.0):
            scaled(x, y, a)
            np.testing.assert_array_equal(y, x * np.float32(a) * 2)
            scaled(x, y, a=a)
            np.testing.assert_array_equal(y, x * np.float32(a) * 2)
            scaled(y=y, a=a, x=x)
            np.testing.assert_array_equal(y, x * np.float32(a) * 2)
        scaled(x, y)
        np.testing.assert_array_equal(y, x * 2)


def test_a_number_that_does_not_fit_is_refused_after_one_that_did():
    x, y = row(), np.zeros(16, np.float32)
    scaled(x, y, 1)
    with pytest.raises(ts.TesseraError):
        scaled(x, y, "1")
    with pytest.raises(ts.TesseraError):
        scaled(x, y, 1j)
    scaled(x, y, 2)
    np.testing.assert_array_equal(y, x * 4)


def test_numbers_of_python_and_of_numpy_are_programs_of_their_own():
    x, y = row(), np.zeros(16, np.float32)
    for _ in range(2):
        for a in (2, 2.0, True, np.float32(2), np.float64(2), np.int64(2)):
            anything(x, y, a)
            np.testing.assert_array_equal(y, x * np.float32(a))


def test_dtypes_shapes_strides_and_alignments():
    for _ in range(2):
        for dtype in (np.float32, np.float64, np.int32, np.float16):
            for n in (8, 16, 19):
                x, y = np.arange(n).astype(dtype), np.zeros(n, np.float32)
                anything(x, y, 2.0)
                np.testing.assert_array_equal(y, x.astype(np.float32) * 2)
        for of in (row(32)[::2], row(20)[1:17], row(20)[3:19], row(16)[::-1]):
            y = np.zeros(16, np.float32)
            scaled(of, y)
            np.testing.assert_array_equal(y, of * 2)


def test_an_array_that_may_not_be_written():
    x, y = row(), np.zeros(16, np.float32)
    scaled(x, y)
    y.flags.writeable = False
    with pytest.raises(ts.TesseraError):
        scaled(x, y)
    assert not (y == 0).all()


def test_one_array_twice_and_overlapping_ones():
    x, y = row(), np.zeros(16, np.float32)
    scaled(x, y)
    held = row(24)
    with pytest.raises(ts.TesseraError):
        scaled(held[:16], held[4:20])
    np.testing.assert_array_equal(held, row(24))
    scaled(x, y)
    np.testing.assert_array_equal(y, x * 2)


def test_a_subclass_of_an_array_is_looked_at_anew():
    x, y = row(), np.zeros(16, np.float32)
    scaled(x, y)
    masked = np.ma.masked_array(row(), mask=[True] + [False] * 15)
    with pytest.raises(ts.TesseraError):
        scaled(masked, y)


def test_memory_that_is_freed_and_used_again():
    y = np.zeros(1 << 12, np.float32)
    for start in range(20):
        x = row(1 << 12, start)
        scaled(x, y)
        np.testing.assert_array_equal(y, x * 2)
        del x
        gc.collect()


def test_a_class_of_the_same_name_is_another():
    results = []
    for fields in ("a b", "b a"):
        Pair = namedtuple("Pair", fields)

        @ts.jit
        def f(p):
            return p.a - p.b

        for _ in range(3):
            results.append(float(f(Pair(row(1, 5), row(1, 3)))[0]))
    assert results == [2.0] * 3 + [-2.0] * 3


def test_threads_call_the_same_kernel_and_operation():
    faults = []

    def work(seed):
        x, y = row(64, seed), np.zeros(64, np.float32)
        z = x.reshape(4, 16)
        wanted = np.exp(z - z.max(-1, keepdims=True))
        wanted /= wanted.sum(-1, keepdims=True)
        for step in range(50):
            scaled(x, y, float(step))
            if not np.array_equal(y, x * np.float32(step) * 2):
                faults.append((seed, step))
            if not np.allclose(ts.op.softmax(z), wanted, atol=1e-6):
                faults.append((seed, step, "softmax"))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not faults


# Operations


def replayed(operation, *args, **kwargs):
    """The results of three calls; the later ones must be replays."""
    out = [operation(*args, **kwargs)]
    kept = recordings(operation)
    out += [operation(*args, **kwargs) for _ in range(2)]
    assert recordings(operation) == kept, "a call like the first was recorded again"
    return out


def recordings(operation):
    while not hasattr(operation, "recordings"):
        operation = operation.__wrapped__
    return operation.recordings()


X = np.linspace(-2, 3, 6 * 40, dtype=np.float32).reshape(6, 40)
W = np.linspace(0.5, 1.5, 40, dtype=np.float32)
LABELS = np.array([3, 1, 4, 1, 5, 9])
Q = np.linspace(-1, 1, 2 * 2 * 32 * 16, dtype=np.float32).reshape(2, 2, 32, 16)

CALLS = {
    "softmax": (X,), "log_softmax": (X,), "softmax_backward": (X, X), "layernorm": (X, W, W), "rmsnorm": (X, W),
    "cross_entropy": (X, LABELS), "sum": (X, 1), "mean": (X, 0), "max": (X, 1), "min": (X,), "prod": (X, 1), "argmax": (X, 1), "argmin": (X, 0),
    "transpose": (X,), "gelu": (X,), "bias_activation": (X, W), "saxpy": (2.0, X, X), "matmul": (X, X.T.copy()), "gemm": (X, X.T.copy()),
    "flash_attention": (Q, Q, Q), "softmax_safe": (X,), "logsumexp_safe": (X,), "layernorm_safe": (X,), "rmsnorm_safe": (X, W), "gelu_safe": (X,),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_operations_are_replayed_on_arrays_of_the_host(name):
    operation, args = getattr(ts.op, name), CALLS[name]
    before = recordings(operation)[1]
    first, *later = replayed(operation, *args)
    assert recordings(operation)[1] > before, "the call cannot be replayed"
    for one in later:
        np.testing.assert_array_equal(one, first)
        assert type(one) is type(first) and one.dtype == first.dtype and one.strides == first.strides
        assert not np.shares_memory(one, first)
    # Other elements at other addresses.
    moved = [np.flip(a).copy() if isinstance(a, np.ndarray) and a.dtype == np.float32 else a for a in args]
    with ts.numerics.profile("deterministic"):
        wanted = operation(*moved)
    np.testing.assert_allclose(operation(*moved), wanted, rtol=2e-5, atol=2e-5)


def test_an_operation_on_arrays_of_ours_gives_such():
    for _ in range(3):
        found = ts.op.softmax(ts.array(X))
        assert type(found) is type(ts.array(X))
        np.testing.assert_allclose(found, ts.op.softmax(X), atol=1e-7)


def test_the_constants_of_an_operation_are_compared():
    for _ in range(2):
        for axis in (0, 1, -1):
            np.testing.assert_allclose(ts.op.sum(X, axis), X.sum(axis), rtol=1e-5, atol=1e-5)
        for alpha in (1, 2, 2.0, True, 0.5):
            np.testing.assert_allclose(ts.op.saxpy(alpha, X, X), alpha * X + X, rtol=1e-6)
        for keepdims in (False, True):
            assert ts.op.mean(X, 1, keepdims=keepdims).shape == ((6, 1) if keepdims else (6,))


def test_the_layouts_of_an_operation_are_compared():
    for _ in range(2):
        for x in (X, X.T, X[:, ::2], X[::-1], X.astype(np.float64), X[:, 1:], np.asfortranarray(X), X[:0]):
            y = x - x.max(-1, keepdims=True) if x.size else x
            wanted = np.exp(y) / np.exp(y).sum(-1, keepdims=True)
            np.testing.assert_allclose(ts.op.softmax(x), wanted, rtol=1e-4, atol=1e-6)


def test_one_array_twice_in_an_operation():
    a, b = np.eye(32, dtype=np.float32) * 2, np.ones((32, 32), np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(ts.op.matmul(a, b), a @ b)
        np.testing.assert_array_equal(ts.op.matmul(a, a), a @ a)
        np.testing.assert_array_equal(ts.op.matmul(b, a), b @ a)


def test_a_number_in_an_array_that_the_host_reads():
    for value in (1.0, 2.0, 3.0):
        alpha = np.array(value, np.float32)
        for _ in range(2):
            np.testing.assert_allclose(ts.op.saxpy(alpha, X, X), value * X + X, rtol=1e-6)
            np.testing.assert_allclose(ts.op.rmsnorm(X, W, float(alpha)), ts.op.rmsnorm(X, W, value))


def test_the_function_of_an_operation_and_what_it_captures(monkeypatch):
    for factor in (2.0, 4.0, 2.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        for _ in range(2):
            np.testing.assert_allclose(ts.op.elementwise(inner, X), X * np.float32(factor))


def test_the_profile_and_the_backend_of_an_operation(monkeypatch):
    first = ts.op.sum(X)
    for _ in range(2):
        with ts.numerics.profile("strict"):
            np.testing.assert_allclose(ts.op.sum(X), first, rtol=1e-5)
        monkeypatch.setenv("TESSERA_BACKEND", "interp")
        np.testing.assert_allclose(ts.op.sum(X), first, rtol=1e-5)
        monkeypatch.delenv("TESSERA_BACKEND")
        np.testing.assert_array_equal(ts.op.sum(X), first)
    kept = recordings(ts.op.sum)[0]
    ts.op.sum(X)
    assert recordings(ts.op.sum)[0] == kept


def test_an_operation_that_is_refused_is_refused_again():
    for _ in range(3):
        with pytest.raises(ts.TesseraError) as found:
            ts.op.softmax(X, 2)
        assert found.value.code
    np.testing.assert_allclose(ts.op.softmax(X).sum(-1), 1, rtol=1e-5)


# Trees of traced functions


def test_the_order_of_keys_and_the_class_of_a_dict_in_a_tree():
    @ts.jit
    def f(p):
        return p["a"] - p["b"]

    a, b = row(4, 9), row(4)
    for _ in range(3):
        for tree in ({"a": a, "b": b}, {"b": b, "a": a}, OrderedDict(a=a, b=b), OrderedDict(b=b, a=a)):
            np.testing.assert_array_equal(f(tree), a - b)


def test_numbers_of_traced_functions_keep_their_kinds():
    @ts.jit
    def f(x, n):
        return x * n

    x = row(4)
    for _ in range(3):
        for n in (2, 3, 2.5, True, np.float32(4), np.float64(4), np.int32(5), np.float16(2)):
            found = f(x, n)
            np.testing.assert_array_equal(found, x * np.float32(n))
    with pytest.raises(ts.TesseraError):
        f(x, 1 << 70)
    np.testing.assert_array_equal(f(x, 1), x)


def test_a_number_that_the_host_reads_from_the_front_of_an_array():
    for value in (1.0, 3.0, 5.0):
        b = np.abs(np.random.default_rng(5).standard_normal((40, 40))).astype(np.float32)
        b[0, 0] = value
        got = ts.op.rmsnorm(b, None, b[0, 0, ...])
        want = b / np.sqrt((b.astype(np.float64) ** 2).mean(-1, keepdims=True) + value)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_objects_of_others_are_not_taken_for_ours():
    @dataclasses.dataclass(frozen=True)
    class Layer:
        api_name: str
        width: int

    class Parts:
        def __init__(self, width):
            self.width = width

        def rests_on(self):
            return ()

    f = ts.jit(lambda x, layer: x * layer.width, static_argnums=1)
    x = np.arange(4, dtype=np.float32)
    for make in (lambda w: Layer("users", w), Parts):
        assert [float(f(x, make(w))[1]) for w in (2, 3, 2)] == [2.0, 3.0, 2.0]


def test_a_former_keyword_warns_in_every_call():
    (former,) = FORMER_KEYWORDS
    q = np.ones((1, 1, 16, 16), np.float32)
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(DeprecationWarning, match=former):
                ts.op.flash_attention(q, q, q, **{former: True})
