"""Programs that users of JAX and NumPy wrote: each silently gave another result, or a useless error."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp


def refused(code: str, f, *args) -> str:
    with pytest.raises(ts.TesseraError) as caught:
        f(*args)
    assert code in str(caught.value), str(caught.value)
    return str(caught.value)


def test_traced_values_are_arrays_too():
    assert ts.jit(lambda x: x * isinstance(x, ts.Array))(np.float32(2)) == 2
    assert isinstance(xp.zeros(3), ts.Array) and not isinstance(np.zeros(3), ts.Array)


def test_whole_numbers_become_floats_where_the_body_makes_them_so():
    for run in (
        lambda: ts.fori_loop(0, 3, lambda i, c: c + 0.5, 0),
        lambda: ts.scan(lambda c, x: (c + 0.5, None), 0, None, length=3)[0],
    ):
        assert run() == 1.5 and run().dtype == np.float32
    assert ts.while_loop(lambda c: c < 3, lambda c: c + 0.5, 0) == 3.0
    assert ts.fori_loop(0, 3, lambda i, c: c + 1, 0).dtype == np.int64


@pytest.mark.parametrize("loss", [nn.mse_loss, nn.l1_loss, nn.huber_loss, nn.smooth_l1_loss, nn.binary_cross_entropy])
def test_losses_take_no_pairs_of_all_elements(loss):
    a, b = np.ones((4, 1), np.float32), np.ones(4, np.float32)
    assert "reshape" in refused("E_SHAPE_MISMATCH", loss, a, b)
    assert loss(a, a).shape == () and loss(b, 1.0).shape == ()


@pytest.mark.parametrize("bound", [3.0, np.float32(2.5), np.zeros(2, np.int32), "3"])
def test_bounds_of_loops_are_integers(bound):
    assert "upper" in refused("E_TYPE", lambda: ts.fori_loop(0, bound, lambda i, c: c + 1, 0))
    if not isinstance(bound, str):
        refused("E_TYPE", ts.jit(lambda n: ts.fori_loop(0, n, lambda i, c: c + 1, 0)), np.asarray(bound))


def test_bounds_of_loops_of_any_integer():
    for n in (3, np.int32(3), np.array(3), xp.asarray(3)):
        assert ts.fori_loop(0, n, lambda i, c: c + i, 0) == 3
        assert ts.jit(lambda n: ts.fori_loop(0, n, lambda i, c: c + i, 0))(n) == 3


def test_floats_are_not_cut_into_arrays_of_integers():
    x = np.zeros(3, np.int32)
    refused("E_TYPE", lambda: ts.dynamic_update_slice(x, np.float32([1.7, 2.9]), (0,)))
    for method in ("set", "add", "multiply", "min", "max"):
        refused("E_TYPE", lambda method=method: getattr(xp.asarray(x).at[0], method)(5.7))
    np.testing.assert_array_equal(xp.asarray(x).at[0].set(5), [5, 0, 0])
    np.testing.assert_array_equal(xp.asarray(x, np.float32).at[0].set(5), [5, 0, 0])
    np.testing.assert_array_equal(xp.asarray(x).at[np.array([True, False, True])].add(2), [2, 0, 2])


def test_positions_of_slices_one_for_each_axis():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert "one for each axis" in refused("E_ARGUMENT", lambda: ts.dynamic_slice(x, 1, (1, 2)))
    refused("E_ARGUMENT", lambda: ts.dynamic_slice(x, (1,), (1, 2)))
    np.testing.assert_array_equal(ts.dynamic_slice(x, np.array([1, 1]), (1, 2)), x[1:, 1:])


def test_rolls_by_a_traced_number():
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for axis in (0, 1, 2, None):
        for by in (-5, 0, 3):
            np.testing.assert_array_equal(ts.jit(lambda x, k, axis=axis: xp.roll(x, k, axis=axis))(x, by), np.roll(x, by, axis))
    got = ts.jit(lambda x, k: xp.roll(x, (k, 1), axis=(0, 2)))(x, 1)
    np.testing.assert_array_equal(got, np.roll(x, (1, 1), (0, 2)))
    np.testing.assert_array_equal(ts.vmap(lambda x, k: xp.roll(x, k, axis=0))(x[0], np.arange(3)), [np.roll(r, k) for k, r in enumerate(x[0])])


def test_positions_beyond_i64():
    x, i = np.arange(5.0), np.array([2**64 - 1, 2**63, 1], np.uint64)
    np.testing.assert_array_equal(ts.jit(lambda i, x: x[i])(i, x), [4, 4, 1])
    np.testing.assert_array_equal(xp.take(x, i, mode="clip"), [4, 4, 1])
    np.testing.assert_array_equal(xp.take(x, i, mode="wrap"), x[(i % np.uint64(5)).astype(int)])
    np.testing.assert_array_equal(ts.jit(lambda i, x: x.at[i].set(-1.0))(i, x), [0, -1, 2, 3, 4])


def test_arguments_by_position_as_in_numpy():
    assert xp.zeros(3, xp.int32).dtype == np.int32 and xp.ones((2,), "f64").dtype == np.float64
    assert xp.full(2, 1, xp.float32).dtype == np.float32 and xp.arange(0, 6, 2, xp.float32).dtype == np.float32
    a = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.testing.assert_array_equal(xp.tril(a, -1), np.tril(a, -1))
    np.testing.assert_array_equal(xp.triu(a, 1), np.triu(a, 1))
    np.testing.assert_array_equal(xp.eye(3, 4, 1, xp.int32), np.eye(3, 4, 1, np.int32))
    np.testing.assert_allclose(xp.linspace(0, 1, 4, False), np.linspace(0, 1, 4, False), rtol=1e-6)
    assert xp.zeros_like(a, xp.int8).dtype == np.int8 and xp.asarray([1, 2], xp.float32).dtype == np.float32


def test_counters_that_went_through_a_step_are_loaded_where_a_number_was(tmp_path):
    path = tmp_path / "run.safetensors"
    step = ts.jit(lambda n, lr: (n + 1, lr * 0.5))
    n, lr = step(0, 0.5)
    ts.save(path, {"n": n, "lr": lr})
    got = ts.load(path, like={"n": 0, "lr": 0.1})
    assert got["n"] == 1 and got["lr"] == 0.25
    with pytest.raises(ts.CheckpointError, match="E_CHECKPOINT"):
        ts.load(path, like={"n": 0.5, "lr": 0.1})
    ts.save(path, {"n": np.zeros(2, np.int64)})
    with pytest.raises(ts.CheckpointError):
        ts.load(path, like={"n": 0})


def test_a_product_reads_behind_a_view_that_another_kernel_writes_later():
    """The transposed array is written for the gather of `top_k`, after the matmul ran: the matmul read memory that was not written yet."""
    x = np.random.default_rng(7).integers(-3, 4, (8, 8)).astype(np.float64)

    @ts.jit
    def f(x):
        best = xp.top_k(x, 8, axis=0)[0]
        whole = xp.reshape(x, (1, 8, 8))
        product = xp.concat([whole, whole], axis=1) @ x.T
        start = xp.take(whole, xp.reshape(xp.arange(1), ()), axis=0, mode="clip")
        return ts.fori_loop(1, 2, lambda _, p: xp.broadcast_to(xp.min(product), (8, 8)), start), best

    least, best = f(x)
    np.testing.assert_array_equal(np.asarray(least), (x @ x.T).min())
    np.testing.assert_array_equal(np.asarray(best), np.sort(x, axis=0)[::-1])


def marked_at(error: str, line: str) -> bool:
    """Whether an error shows a line of this file, and marks a part of it."""
    shown = next((i for i, text in enumerate(error.splitlines()) if line in text), None)
    return shown is not None and "^^" in error.splitlines()[shown + 1]


def changes_form(c, x):
    a = c["a"] + 1
    return {"a": a, "b": {"z": c["b"]}}, None


def test_a_carry_of_another_form_is_reported_where_the_body_returns_it():
    start = {"a": np.float32(0), "b": np.float32(1)}
    error = refused("E_ARGUMENT", lambda: ts.scan(changes_form, start, None, length=3))
    assert "carry['b']" in error and marked_at(error, 'return {"a": a, "b": {"z": c["b"]}}, None')
    error = refused("E_ARGUMENT", lambda: ts.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1], 1), (0, 1)))
    assert "value a tuple of 2, got a tuple of 3" in error and marked_at(error, "c[1], 1)")
    for n in (3, np.int32(3)):
        error = refused("E_ARGUMENT", lambda n: ts.jit(lambda n: ts.fori_loop(0, n, lambda i, c: [c[0], c[1]], (0, 1)))(n), n)
        assert "fori_loop" in error and "value a tuple of 2, got a list of 2" in error and marked_at(error, "[c[0], c[1]]")
    assert marked_at(refused("E_ARGUMENT", lambda: ts.cond(True, lambda v: (v, v), lambda v: v * 2, 1.0)), "v * 2")
    assert marked_at(refused("E_ARGUMENT", lambda: ts.scan(lambda c, x: c + x, 0.0, np.ones(3))), "c + x")
    assert marked_at(refused("E_TYPE", lambda: ts.scan(lambda c, x: ("no", x), 0.0, np.ones(3))), '("no", x)')


def test_what_can_be_scanned():
    step = lambda c, x: (c + x, c)
    for xs in ([1.0, 2.0], (np.float32(1), np.float32(2))):
        assert "xp.asarray(xs)" in refused("E_SHAPE_MISMATCH", lambda xs=xs: ts.scan(step, 0.0, xs))
    with pytest.raises(ts.TesseraError) as caught:
        ts.scan(step, np.zeros(2, np.float32), [np.ones(2, np.float32)] * 3)
    assert not hasattr(caught.value, "add_note") or any("xp.stack(xs)" in note for note in caught.value.__notes__)
    assert "3 at xs['a'], 4 at xs['b']" in refused("E_SHAPE_MISMATCH", lambda: ts.scan(step, 0.0, {"a": np.ones(3), "b": np.ones(4)}))
    assert "3 at xs, `length=4`" in refused("E_SHAPE_MISMATCH", lambda: ts.scan(step, 0.0, np.ones(3), length=4))
    assert "length=n" in refused("E_SHAPE_MISMATCH", lambda: ts.scan(step, 0.0, None))


def test_bounds_of_loops_say_what_to_write():
    assert "n[0]" in refused("E_TYPE", lambda: ts.fori_loop(0, np.zeros(2, np.int32), lambda i, c: c, 0))
    assert "astype" in refused("E_TYPE", lambda: ts.jit(lambda n: ts.fori_loop(0, n, lambda i, c: c, 0))(2.5))


def test_loops_of_a_traced_number_of_iterations():
    f = ts.jit(lambda lo, hi: ts.fori_loop(lo, hi, lambda i, c: (c[0] + i, c[1] * 2), (0, 1.0)))
    assert [v.item() for v in f(2, 5)] == [9, 8.0] and [v.item() for v in f(5, 2)] == [0, 1.0]
    assert ts.vmap(lambda n: ts.fori_loop(0, n, lambda i, c: c + i, 0))(np.array([1, 4])).tolist() == [0, 6]


def test_control_flow_by_the_keywords_of_jax():
    assert ts.cond(True, true_fun=lambda: 1, false_fun=lambda: 2) == 1
    assert ts.while_loop(cond_fun=lambda c: c < 3, body_fun=lambda c: c + 1, init_val=0) == 3
    assert ts.fori_loop(0, 3, body_fun=lambda i, c: c + i, init_val=0) == 3
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(ts.dynamic_slice(x, start_indices=(1, 1), slice_sizes=(1, 2)), x[1:, 1:])
    np.testing.assert_array_equal(ts.dynamic_update_slice(x, x[:1], start_indices=(1, 0)), [x[0], x[0]])


@pytest.mark.parametrize("call, code, message", [
    (lambda x: ts.dynamic_slice(x, (0, 0), (3, 3)), "E_SHAPE_MISMATCH", "0 to 2 along axis 0"),
    (lambda x: ts.dynamic_slice(x, (0.5, 0), (1, 1)), "E_TYPE", "one integer for each axis"),
    (lambda x: ts.dynamic_slice(x, ((0, 1), 0), (1, 1)), "E_TYPE", "got list"),
    (lambda x: ts.dynamic_slice(x, (0, 0), (1.5, 1)), "E_TYPE", "got 1.5"),
    (lambda x: ts.jit(lambda n: ts.dynamic_slice(x, (0, 0), (n, 1)))(2), "E_DYNAMIC_EXTENT", "static_argnums"),
    (lambda x: ts.dynamic_update_slice(x, x[0], (0, 0)), "E_SHAPE_MISMATCH", "update[None]"),
    (lambda x: ts.dynamic_update_slice(x, np.zeros((3, 3), np.float32), (0, 0)), "E_SHAPE_MISMATCH", "got [3, 3]"),
    (lambda x: xp.concat(x, x), "E_TYPE", "xp.concat([a, b], axis=0)"),
    (lambda x: ts.jit(lambda a: xp.concatenate(a, a))(x), "E_TYPE", "xp.concat([a, b], axis=0)"),
    (lambda x: xp.concat([x, x], (0,)), "E_TYPE", "axis=0"),
    (lambda x: xp.concat([x, x[0]]), "E_SHAPE_MISMATCH", "x[None]"),
    (lambda x: xp.concat([x, x[:, :2]]), "E_SHAPE_MISMATCH", "for array 1, [2, 2]"),
    (lambda x: xp.concat([1.0, 2.0]), "E_SHAPE_MISMATCH", "xp.stack"),
    (lambda x: xp.concat({"a": x}), "E_TYPE", "got dict"),
    (lambda x: xp.concat([]), "E_ARGUMENT", "got none"),
    (lambda x: xp.stack([]), "E_ARGUMENT", "got none"),
    (lambda x: xp.sum(x, axis="0"), "E_TYPE", "got '0'"),
])  # fmt: skip
def test_wrong_arguments_say_what_to_write(call, code, message):
    assert message in refused(code, call, np.zeros((2, 3), np.float32))


def test_axes_that_numpy_counted():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert xp.sum(x, axis=np.int64(1)).shape == (2,) and xp.expand_dims(x, np.int32(0)).shape == (1, 2, 3)
    assert xp.concat([x, x], axis=np.int64(1)).shape == (2, 6) and xp.concat([x, x], dtype=xp.float16).dtype == np.float16


@pytest.mark.parametrize("x, w, more, message", [
    ((1, 5, 8, 8), (4, 3, 3, 3), {}, "expected 3 channels of `x`"),
    ((1, 8, 8, 3), (4, 3, 3, 3), {}, 'layout="NHWC"'),
    ((1, 5, 8, 8), (3, 3, 5, 4), {}, "w.transpose(3, 2, 0, 1)"),
    ((1, 4, 8, 8), (3, 2, 3, 3), {"groups": 2}, "2 groups to divide"),
    ((1, 4, 8, 8), (4, 3, 3, 3), {"groups": 2}, "in each of 2 groups"),
])  # fmt: skip
def test_channels_of_convolutions(x, w, more, message):
    assert message in refused("E_SHAPE_MISMATCH", lambda: nn.conv2d(np.zeros(x, np.float32), np.zeros(w, np.float32), **more))


def test_paddings_of_convolutions_in_capitals():
    x, w = np.ones((1, 1, 5, 5), np.float32), np.ones((1, 1, 3, 3), np.float32)
    assert nn.conv2d(x, w, padding="SAME").shape == (1, 1, 5, 5) and nn.conv2d(x, w, padding="VALID").shape == (1, 1, 3, 3)
    assert "same" in refused("E_ARGUMENT", lambda: nn.conv2d(x, w, padding="full"))


@pytest.mark.parametrize("call, shape", [
    (lambda x, n: xp.zeros(n), (3,)), (lambda x, n: xp.zeros((n, 2)), (3, 2)), (lambda x, n: xp.full(n, np.int32(7)), (3,)),
    (lambda x, n: xp.reshape(x, (n, -1)), (3, 2)), (lambda x, n: x.reshape(n, 2), (3, 2)), (lambda x, n: xp.broadcast_to(x, (n, 2, 3)), (3, 2, 3)),
    (lambda x, n: xp.sum(x, axis=n - 2), (2,)), (lambda x, n: xp.arange(n), (3,)), (lambda x, n: xp.linspace(0, 1, n), (3,)),
    (lambda x, n: xp.eye(n), (3, 3)), (lambda x, n: xp.tile(x, n), (2, 9)), (lambda x, n: xp.split(x, n, axis=1)[0], (2, 1)),
    (lambda x, n: nn.one_hot(np.array([0, 1]), n), (2, 3)), (lambda x, n: xp.moveaxis(x, n - 3, n - 2), (3, 2)), (lambda x, n: xp.pad(x, n - 2), (4, 5)),
    (lambda x, n: xp.top_k(x, n - 2)[0], (2, 1)), (lambda x, n: xp.diag(x[0], n - 2), (4, 4)), (lambda x, n: ts.random.normal(ts.random.key(0), (n,)), (3,)),
    (lambda x, n: ts.random.split(ts.random.key(0), num=n), (3,)), (lambda x, n: xp.zeros(np.array([2, 3])), (2, 3)),
    (lambda x, n: ts.scan(lambda c, v: (c, c), 0.0, None, length=n)[1], (3,)), (lambda x, n: xp.transpose(x, np.array([1, 0])), (3, 2)),
])  # fmt: skip
def test_extents_axes_and_counts_that_numpy_counted(call, shape):
    x = xp.asarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    for n in (np.int64(3), np.int32(3), xp.asarray(3), np.array(3)):
        for _ in range(2):
            assert call(x, n).shape == shape
        assert ts.jit(lambda x, n=n: call(x, n))(x).shape == shape


def test_extents_that_are_none():
    for wrong in (2.0, "a", None, (2, 1.5)):
        assert "integers" in refused("E_TYPE", lambda: xp.zeros(wrong))
    assert "0 and more" in refused("E_SHAPE_MISMATCH", lambda: xp.ones((2, -1)))


def test_what_a_benchmark_of_jax_calls():
    f = ts.jit(lambda x: x.block_until_ready() * 2)
    assert f(xp.ones(2)).block_until_ready().tolist() == [2, 2]
    f.clear_cache()


def test_extents_that_are_traced():
    x = np.ones((4, 4), np.float32)
    for f in (lambda x, n: x.reshape(n, -1), lambda x, n: xp.broadcast_to(x, (n, 4, 4)), lambda x, n: xp.zeros((n, 2)), lambda x, n: xp.tile(x, n)):
        assert "static_argnums" in refused("E_DYNAMIC_EXTENT", ts.jit(f), x, 2)


def test_dropout_with_its_arguments_in_another_order():
    assert "nn.dropout(key, x, 0.1)" in refused("E_TYPE", lambda: nn.dropout(np.ones(3, np.float32), 0.5, ts.random.key(0)))


@pytest.mark.parametrize("f", [
    lambda x: x[True], lambda x: x[np.True_], lambda x: x[np.array(True)], lambda x: x[True, 1], lambda x: x[..., True], lambda x: x[[]],
    lambda x: x[1:, []],
])  # fmt: skip
def test_truths_and_nothing_as_indices(f):
    """`x[True]` was `x[1]` under jit, and `x[[]]` refused."""
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(np.asarray(ts.jit(f)(x)), f(x))
    np.testing.assert_array_equal(np.asarray(f(xp.asarray(x))), f(x))


def test_updates_by_truths_and_nothing():
    x = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(np.asarray(ts.jit(lambda x: x.at[True].add(1))(x)), x + 1)
    np.testing.assert_array_equal(np.asarray(ts.jit(lambda x: x.at[[]].add(1))(x)), x)
    for f in (lambda x: x[False], lambda x: x[True, np.array([0, 1])], lambda x: x.at[False].add(1)):
        assert "a single truth" in refused("E_UNSUPPORTED", lambda f=f: ts.jit(f)(x))


def of_kernel(expression: str, **names) -> str:
    """The error of a kernel that computes an expression of `x` and of indices `offsets`."""
    source = f"def k(x: ts.Tensor['n', ts.f32]):\n    offsets = ts.tile.arange(16)\n    y = {expression}\n    return x\n"
    space = {"ts": ts, **names}
    exec(source, space)
    return refused("E_", lambda: ts.kernel(source=source)(space["k"]))


def test_functions_of_whole_arrays_name_those_of_tiles():
    assert "`ts.xp.exp(x)` is `ts.tile.exp(x)`" in of_kernel("ts.xp.exp(x[:16])")
    assert "write `ts.tile.exp(x)`" in of_kernel("xp.exp(x[:16])", xp=xp)
    for text in (of_kernel("ts.tile.asinh(x[:16])"), of_kernel("xp.asinh(x[:16])", xp=xp)):
        assert "`ts.xp` does, for whole arrays outside a kernel" in text and "did you mean" not in text
    with pytest.raises(AttributeError, match="`ts.xp` does, for whole arrays outside a kernel"):
        ts.tile.asinh


STAGES = "    s = ts.tile.alloc_shared((2, 16), ts.f32)\n    for j in range(2):\n"


@pytest.mark.parametrize("line", ["ts.tile.wait_async(j)", "ts.tile.cp_async(s[j], x[0:16], stage=j)"])
def test_stages_of_waits_are_known_when_the_kernel_is_compiled(line):
    """The help spoke of the number of groups in flight; a stage of a copy was ignored."""
    source = f"def k(x: ts.Tensor['n', ts.f32]):\n{STAGES}        {line}\n"
    text = refused("E_ARGUMENT", lambda: ts.kernel(source=source)(exec_of(source)))
    assert "expected `stage` to be a compile-time integer" in text and "cp_wait_group(n)" in text


def exec_of(source: str):
    space = {"ts": ts}
    exec(source, space)
    return space["k"]


def test_tiles_of_several_shapes_are_not_combined():
    source = "def k(x: ts.Tensor[64, ts.f32]):\n    a, b = ts.tile.reduce((x[:], x[0:32]), two)\n    x[0] = a\n"
    space = {"ts": ts, "two": ts.func(source="def two(a, b, c, d):\n    return a + c, b + d\n")(lambda a, b, c, d: None)}
    exec(source, space)
    text = refused("E_SHAPE_MISMATCH", lambda: ts.kernel(source=source)(space["k"]))
    assert "expected tiles of one shape to combine, got (64,) and (32,)" in text and "where" not in text


def test_private_arrays_say_why_they_need_the_number_of_lanes():
    source = "def k(x: ts.Tensor['n', ts.f32]):\n    i = ts.tile.linear_id()\n    a = ts.tile.alloc_local((4,), ts.f32)\n    a[0] = x[i]\n    x[i] = a[0]\n"
    text = refused("E_ARGUMENT", lambda: ts.kernel(source=source)(exec_of(source)))
    assert "share memory of a size that must be known" in text and "lanes=64" in text


@pytest.mark.parametrize(
    "a, b, wanted",
    [("bf16", "fp4", "ts.tile.cast(y, ts.bf16)"), ("fp6_e3m2", "f16", "ts.tile.cast(x, ts.f16)"), ("f32", "i8", "ts.tile.cast(y, ts.f32)"), ("i8", "fp4", "fp4_e2m1")],
)
def test_pairs_of_matmuls(a, b, wanted):
    source = f"def k(a: ts.Tensor[16, 16, ts.{a}], b: ts.Tensor[16, 16, ts.{b}], c: ts.Tensor[16, 16, ts.f32]):\n"
    source += "    x, y = a[:, :], b[:, :]\n    c[:, :] = ts.tile.mma(x, y)\n"
    text = refused("E_TYPE", lambda: ts.kernel(source=source)(exec_of(source)))
    assert wanted in text
    if "fp" in a + b:
        assert "fp6_e3m2, fp6_e2m3, fp4_e2m1 with each other and with fp8" in text


def test_layers_in_kernels():
    assert "`ts.nn` take whole arrays" in of_kernel("ts.nn.relu(x[:16])")


def test_arrays_are_indexed_where_triton_adds_to_pointers():
    assert "`x[offsets]` a gather" in of_kernel("ts.tile.load(x + offsets)")


def test_pythons_math_in_traced_functions():
    import math

    assert "for `math.sin(x)` write `ts.xp.sin(x)`" in refused("E_TYPE", ts.jit(lambda x: math.sin(x)), np.float32(1))


def test_kernels_are_not_lambdas():
    assert "write a `def`" in refused("E_SYNTAX", ts.kernel, lambda x: x)
