"""What functions of models mean, against Python, NumPy and the values that JAX gives."""

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp

X = np.array([0.5, 1.5, -2.0, 3.0, 0.7, 1.1], np.float32)


# The pullback of `vjp`


def test_pull_of_one_argument_gives_a_tuple():
    y, pull = ts.vjp(lambda x: x * x, X)
    got = pull(np.ones_like(X))
    assert isinstance(got, tuple) and len(got) == 1
    np.testing.assert_array_equal(got[0], 2 * X)


def test_pull_of_several_arguments_and_of_trees_has_one_entry_each():
    _, pull = ts.vjp(lambda p, x: (p["w"] * x).sum(), {"w": X}, X + 1)
    got = pull(1.0)
    assert isinstance(got, tuple) and len(got) == 2
    np.testing.assert_array_equal(got[0]["w"], X + 1)
    _, pull = ts.vjp(lambda p: (p["w"] * 2.0).sum(), {"w": X})
    (only,) = pull(1.0)
    np.testing.assert_array_equal(only["w"], np.full_like(X, 2))


def test_pull_inside_a_trace_gives_a_tuple():
    @ts.jit
    def f(x):
        _, pull = ts.vjp(lambda v: v * v, x)
        return pull(xp.ones_like(x))

    got = f(X)
    assert isinstance(got, tuple) and len(got) == 1
    np.testing.assert_array_equal(got[0], 2 * X)


def test_gradients_are_bare_for_one_number_and_tuples_for_tuples():
    def f(x, y):
        return (x * y).sum()

    assert not isinstance(ts.grad(f)(X, X), tuple)
    assert not isinstance(ts.grad(f, argnums=1)(X, X), tuple)
    for argnums in ((0,), [1], (0, 1)):
        got = ts.grad(f, argnums=argnums)(X, X)
        assert isinstance(got, tuple) and len(got) == len(argnums)
        assert isinstance(ts.jacrev(f, argnums=argnums)(X, X), tuple)
    _, got = ts.value_and_grad(f, argnums=(1,))(X, X)
    assert isinstance(got, tuple) and len(got) == 1


# Derivatives at kinks, and values at the edges


KINKS = {
    "relu": (ts.nn.relu, 0.0, 0.0), "leaky_relu": (ts.nn.leaky_relu, 0.0, 1.0), "elu": (ts.nn.elu, 0.0, 1.0),
    "elu_alpha": (lambda x: ts.nn.elu(x, 0.5), 0.0, 0.5), "softplus": (ts.nn.softplus, 0.0, 0.5), "silu": (ts.nn.silu, 0.0, 0.5),
    "gelu": (ts.nn.gelu, 0.0, 0.5), "abs": (xp.abs, 0.0, 0.0), "sqrt": (xp.sqrt, 0.0, np.inf), "clip_low": (lambda x: xp.clip(x, 0.0, 1.0), 0.0, 0.5),
    "clip_high": (lambda x: xp.clip(x, 0.0, 1.0), 1.0, 0.5), "clip_inside": (lambda x: xp.clip(x, 0.0, 1.0), 0.5, 1.0),
    "maximum": (lambda x: xp.maximum(x, 1.0), 1.0, 0.5), "minimum": (lambda x: xp.minimum(x, 1.0), 1.0, 0.5), "sign": (xp.sign, 0.0, 0.0),
    "asinh": (xp.asinh, 0.0, 1.0), "atanh": (xp.atanh, 0.0, 1.0), "square": (lambda x: x**2, 0.0, 0.0), "power_0": (lambda x: x**0, 0.0, 0.0),
    "reciprocal": (lambda x: x**-1, 2.0, -0.25), "remainder": (lambda x: xp.remainder(x, 2.0), 4.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", KINKS)
def test_derivative_at_a_kink(name):
    fn, at, wanted = KINKS[name]
    at = np.float32(at)
    assert float(ts.grad(fn)(at)) == wanted
    assert float(ts.jit(ts.grad(fn))(at)) == wanted
    assert float(ts.jvp(fn, (at,), (np.float32(1),))[1]) == wanted


def test_relu_keeps_nan_and_has_no_derivative_below():
    x = np.array([np.nan, -1, -0.0, 0, 2, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(ts.nn.relu(x), np.maximum(x, 0))
    np.testing.assert_array_equal(ts.grad(lambda v: ts.nn.relu(v).sum())(x[1:]), np.array([0, 0, 0, 1, 1, 0], np.float32))


def test_elu_has_a_finite_derivative_far_out():
    x = np.array([-200, -1, 1, 200], np.float32)
    np.testing.assert_allclose(ts.grad(lambda v: ts.nn.elu(v).sum())(x), [0, np.exp(-1), 1, 1], rtol=1e-6)


def test_asinh_agrees_with_numpy_with_its_sign():
    x = np.array([-np.inf, -3, -1e-30, -0.0, 0, 1e-8, 2, np.inf, np.nan], np.float32)
    got = xp.asinh(x)
    np.testing.assert_allclose(got, np.arcsinh(x), rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(got)[:-1], np.signbit(x)[:-1])


def test_activation_of_a_fused_bias_has_no_derivative_at_zero():
    zeros = np.zeros((4, 8), np.float32)
    got = ts.grad(lambda x: ts.op.bias_activation(x, np.zeros(8, np.float32), "relu").sum())(zeros)
    np.testing.assert_array_equal(got, zeros)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("target", ["cpu", "interp"])
def test_sum_of_nothing_is_a_plain_zero(dtype, target):
    def plain(v):
        v = np.asarray(v)
        assert not np.signbit(v.astype(np.float64)).any() and not v.any()

    empty = np.zeros((3, 0), dtype)
    plain(ts.jit(lambda x: x.sum(), target=target)(empty))
    plain(ts.jit(lambda x: x.sum(axis=1), target=target)(empty))
    plain(ts.jit(lambda x: x[:, 2:2].sum(axis=1) * 1, target=target)(np.ones((3, 5), dtype)))
    plain(xp.sum(empty))
    with ts.runtime.oracle():
        plain(ts.jit(lambda x: x.sum(axis=1))(empty))


def test_hypot_of_infinities_is_infinite():
    inf, nan = np.inf, np.nan
    a, b = (np.array(v, np.float32) for v in ([inf, inf, nan, -inf, nan, 0, 3, 3e38], [inf, nan, -inf, 1, 1, 0, -4, 1e38]))
    np.testing.assert_allclose(xp.hypot(a, b), np.hypot(a, b), rtol=1e-6)
    assert xp.hypot(np.array([3]), np.array([4])) == 5.0
    np.testing.assert_allclose(ts.grad(xp.hypot, argnums=(0, 1))(np.float32(3), np.float32(4)), [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_signbit_sees_the_sign_of_zeros_and_nans(dtype):
    x = np.array([-np.nan, np.nan, -0.0, 0.0, -1, 1, -np.inf, np.inf], dtype)
    np.testing.assert_array_equal(xp.signbit(x), np.signbit(x))
    np.testing.assert_array_equal(ts.jit(xp.signbit)(x[2:]), np.signbit(x[2:]))


def test_integers_to_negative_powers():
    x = np.array([2, 1, -1, 0, -1])
    with pytest.raises(ts.TesseraError, match="at least 0 for integers, got -1"):
        xp.pow(x, -1)
    with pytest.raises(ts.TesseraError, match="astype"):
        ts.jit(lambda v: v**-2)(x)
    # As JAX has it where the exponents are not known.
    np.testing.assert_array_equal(xp.pow(x, np.array([-1, -1, -1, -1, -2])), [0, 1, -1, 0, 1])
    np.testing.assert_allclose(xp.pow(x[:3].astype(np.float32), -1), [0.5, 1, -1])


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32])
def test_powers_of_integers_wrap_around_as_products_do(dtype):
    base, n = np.array([2, 3, 5, 1, 0, 7], dtype), np.array([6, 33, 70, 9, 0, 100], dtype)
    np.testing.assert_array_equal(xp.pow(base, n), np.power(base, n))
    np.testing.assert_array_equal(xp.pow(base, 33), np.power(base, dtype(33)))


# Positions outside


I = np.array
V = I([1, 2, 3], np.float32)


def changed(*pairs):
    out = V.copy()
    for at, value in pairs:
        out[at] = value
    return out


@pytest.mark.parametrize("i, where", [(5, None), (3, None), (-4, None), (-1, 2), (0, 0), (2, 2), (-3, 0)])
def test_writing_outside_is_left_out(i, where):
    wanted = V if where is None else changed((where, 9))
    np.testing.assert_array_equal(xp.at(V)[I([i])].set(9.0), wanted)
    np.testing.assert_array_equal(ts.jit(lambda x, i: x.at[i].set(9.0))(V, i), wanted)
    np.testing.assert_array_equal(ts.jit(lambda x, i: x.at[i].max(9.0))(V, i), wanted)
    with ts.runtime.oracle():
        np.testing.assert_array_equal(ts.jit(lambda x, i: x.at[i].set(9.0))(V, i), wanted)


def test_rows_outside_are_left_out_forward_and_in_gradients():
    table, rows = np.zeros((3, 2), np.float32), I([0, 7, -1, -5])
    new = np.arange(8, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(xp.at(table)[rows].add(new), [[0, 1], [0, 0], [4, 5]])
    np.testing.assert_array_equal(ts.grad(lambda u: (xp.at(table)[rows].add(u) * 2.0).sum())(new), [[2, 2], [0, 0], [2, 2], [0, 0]])
    np.testing.assert_array_equal(ts.grad(lambda t: xp.at(t)[rows].set(new).sum())(table), [[0, 0], [1, 1], [0, 0]])


@pytest.mark.parametrize("mode, written, read", [
    ("drop", [1, 2, 9], [np.nan, 3, np.nan]), ("fill", [1, 2, 9], [np.nan, 3, np.nan]), ("clip", [9, 2, 9], [3, 3, 1]),
])  # fmt: skip
def test_modes_say_what_happens_outside(mode, written, read):
    at = I([5, -1, -5])
    np.testing.assert_array_equal(xp.at(V)[at].set(9.0, mode=mode), written)
    np.testing.assert_array_equal(xp.at(V)[at].get(mode=mode), read)
    np.testing.assert_array_equal(ts.jit(lambda x, i: x.at[i].get(mode=mode))(V, at), read)


def test_known_integers_outside_are_refused_unless_a_mode_says_otherwise():
    for wrong in (lambda x: x[5], lambda x: x.at[5].set(0.0), lambda x: x.at[-4].add(0.0)):
        with pytest.raises(ts.ShapeError, match="expected an index between -3 and 2"):
            ts.jit(wrong)(V)
    np.testing.assert_array_equal(xp.at(V)[5].set(9.0, mode="drop"), V)
    np.testing.assert_array_equal(xp.at(V)[5].set(9.0, mode="clip"), changed((2, 9)))
    assert np.isnan(xp.at(V)[5].get(mode="fill")) and xp.at(V)[5].get(mode="fill", fill_value=4.0) == 4.0


def test_promised_positions_are_used_and_unknown_modes_are_refused():
    np.testing.assert_array_equal(xp.at(V)[I([2, -3])].set(9.0, mode="promise_in_bounds"), changed((0, 9), (2, 9)))
    np.testing.assert_array_equal(xp.at(V)[I([2, -3])].get(mode="promise_in_bounds"), [3, 1])
    with pytest.raises(ts.TesseraError, match="drop.*got 'raise'"):
        xp.at(V)[I([0])].set(1.0, mode="raise")


def test_take_fills_clips_or_wraps():
    at = I([5, -1, -5])
    np.testing.assert_array_equal(xp.take(V, at), [np.nan, 3, np.nan])
    np.testing.assert_array_equal(xp.take(V, at, fill_value=0.0), [0, 3, 0])
    np.testing.assert_array_equal(xp.take(V, at, mode="clip"), np.take(V, at, mode="clip"))
    np.testing.assert_array_equal(xp.take(V, at, mode="wrap"), np.take(V, at, mode="wrap"))
    assert xp.take(I([1, 2], np.int32), I([5])) == np.iinfo(np.int32).min and xp.take(I([1, 2], np.uint8), I([5])) == 255
    with pytest.raises(ts.TesseraError, match="fill, clip, wrap or"):
        xp.take(V, at, mode="raise")


#: JAX's `jnp.take_along_axis(x, i, axis, mode=…)` of x = 0..11 in rows of 4 and these positions; `None` is what it does by itself. It has no "wrap".
ALONG = I([[0, -1, 4], [3, -4, -5], [7, 1, -9]], np.int32)
ALONG_JAX = {
    None: [[0, 3, np.nan], [7, 4, np.nan], [np.nan, 9, np.nan]], "fill": [[0, 3, np.nan], [7, 4, np.nan], [np.nan, 9, np.nan]],
    "clip": [[0, 3, 3], [7, 4, 4], [11, 9, 8]], "wrap": [[0, 3, 0], [7, 4, 7], [11, 9, 11]],
}  # fmt: skip


@pytest.mark.parametrize("mode", ALONG_JAX)
def test_positions_along_an_axis_outside(mode):
    x, want = np.arange(12, dtype=np.float32).reshape(3, 4), np.float32(ALONG_JAX[mode])
    for ours in (lambda x, i: xp.take_along_axis(x, i, 1, mode=mode), lambda x, i: xp.take_along_axis(x.T, i.T, 0, mode=mode).T):
        np.testing.assert_array_equal(ours(x, ALONG), want)
        np.testing.assert_array_equal(ts.jit(ours)(x, ALONG), want)
        with ts.runtime.oracle():
            np.testing.assert_array_equal(ts.jit(ours)(x, ALONG), want)
    # Rows of a table by the same rule, negative positions too.
    table = np.arange(4, dtype=np.float32)[:, None]
    for look_up in (lambda i: nn.embedding(table, i, mode=mode), lambda i: xp.take(table, i, 0, mode=mode)):
        first = np.where(ALONG < 0, 0, want - np.float32([[0], [4], [8]])) if mode == "clip" else want - np.float32([[0], [4], [8]])
        np.testing.assert_array_equal(look_up(ALONG)[..., 0], first)
    integers = xp.take_along_axis(x.astype(np.int16), ALONG, 1, mode=mode)
    np.testing.assert_array_equal(integers, np.where(np.isnan(want), np.iinfo(np.int16).min, np.nan_to_num(want)).astype(np.int16))


def test_what_is_filled_in_has_no_derivative():
    """Central differences would be 0 there; duplicates add up."""
    x, w = np.arange(12, dtype=np.float32).reshape(3, 4), np.float32([[1, 2, 4], [8, 16, 32], [64, 128, 256]])
    at = I([[0, 0, 4], [3, -4, -5], [7, 1, -9]], np.int32)
    got = ts.grad(lambda v: xp.sum(xp.take_along_axis(v, at, 1, fill_value=0.0) * w))(x)
    np.testing.assert_array_equal(got, np.float32([[3, 0, 0, 0], [16, 0, 0, 8], [0, 128, 0, 0]]))
    table = np.ones((3, 2), np.float32)
    got = ts.grad(lambda t: xp.sum(xp.where(xp.isnan(rows := nn.embedding(t, I([2, 3, -1, -4]))), 0.0, rows)))(table)
    np.testing.assert_array_equal(got, np.float32([[0, 0], [0, 0], [2, 2]]))


def test_writes_along_an_axis_outside():
    x, at = np.zeros((2, 3), np.float32), I([[0, 3], [-1, -4]])
    np.testing.assert_array_equal(xp.put_along_axis(x, at, 9.0, 1), np.float32([[9, 0, 0], [0, 0, 9]]))
    np.testing.assert_array_equal(xp.put_along_axis(x, at, 9.0, 1, mode="clip"), np.float32([[9, 0, 9], [9, 0, 9]]))


def test_a_label_that_is_no_class_is_seen():
    log_p = np.log(np.full((3, 2), 0.5, np.float32))
    for loss in (nn.nll_loss, nn.cross_entropy):
        assert np.isnan(loss(log_p, I([0, 1, 2]))) and np.isfinite(loss(log_p, I([0, 1, 1])))
    assert np.isfinite(nn.cross_entropy(log_p, I([0, 1, -100])))


def test_positions_need_the_axes_of_the_array():
    with pytest.raises(ts.TesseraError, match="expected positions with the 2 axes") as error:
        xp.take_along_axis(np.ones((2, 3), np.float32), I([0, 1]), 1)
    assert "i[:, None]" in error.value.help


@pytest.mark.parametrize("index", [
    (I([0, 3, 3]),), (slice(None), I([2, 0])), (slice(None), slice(None), I([4, -1])), (I([0, 1]), slice(None), I([2, 3])),
    (I([[0], [2]]), I([[0, 1, 2]])), (slice(None), I([[0, 1], [2, 0]])), (I([0, 3]), 1), (slice(1, 3), I([0, 2])), (I([0, 2]), None),
    (..., I([1, 1, 3])), (2, I([0, 1])), (slice(None, None, -1), I([1])),
], ids=str)  # fmt: skip
def test_adding_at_positions_is_numpys(index):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 3, 5)).astype(np.float32)
    new = rng.standard_normal(x[index].shape).astype(np.float32)
    wanted = x.copy()
    np.add.at(wanted, index, new)
    add = ts.jit(lambda x, v: x.at[index].add(v))
    np.testing.assert_allclose(add(x, new), wanted, rtol=1e-5)
    wanted = x.copy()
    np.subtract.at(wanted, index, new)
    np.testing.assert_allclose(ts.jit(lambda x, v: x.at[index].subtract(v))(x, new), wanted, rtol=1e-5, atol=1e-6)
    wanted = x.copy()
    wanted[index] = 2
    np.testing.assert_array_equal(ts.jit(lambda x: x.at[index].set(2.0))(x), wanted)
    np.testing.assert_allclose(ts.jit(ts.grad(lambda v: (xp.at(x)[index].add(v) * x).sum()))(new), x[index], rtol=1e-6)


def test_masks_that_are_known_choose_elements():
    x, m = np.arange(12, dtype=np.float32).reshape(3, 4), I([True, False, True])
    for index in (m, (m, slice(1, None)), (slice(None), [True, False, True, True]), x > 3, (..., I([True, False, True, False])),
                  (m, I([0, 1])), (None, m)):  # fmt: skip
        np.testing.assert_array_equal(ts.jit(lambda x, i=index: x[i])(x), x[index])
        np.testing.assert_array_equal(xp.getitem(x, index), x[index])
        wanted = x.copy()
        wanted[index] = -1
        np.testing.assert_array_equal(ts.jit(lambda x, i=index: x.at[i].set(-1.0))(x), wanted)
    with pytest.raises(ts.ShapeError, match=r"\[3\], got \[2\]"):
        ts.jit(lambda x: x[m[:2]])(x)


def test_traced_masks_choose_where_one_number_is_written():
    np.testing.assert_array_equal(ts.jit(lambda x: x.at[x > 1.5].set(0.0))(V), [1, 0, 0])
    np.testing.assert_array_equal(ts.jit(lambda x: x.at[x > 1.5].add(5.0))(V), [1, 7, 8])
    np.testing.assert_array_equal(ts.grad(lambda x: x.at[x > 1.5].multiply(5.0).sum())(V), [1, 5, 5])
    with pytest.raises(ts.TesseraError, match="how many elements"):
        ts.jit(lambda x: x[x > 1.5])(V)


# What is an argument


class Model:
    def __init__(self, w):
        self.w = w

    @ts.jit
    def method(self, x):
        return x * self.w


def test_objects_that_are_no_trees_are_refused_as_arguments():
    """Its `w` would be the one of the first call for ever."""
    model = Model(2.0)
    with pytest.raises(ts.KernelTypeError, match="got Model for `self`") as caught:
        model.method(X)
    assert "static_argnums" in caught.value.help and "tree" in caught.value.help
    with pytest.raises(ts.KernelTypeError, match=r"got Model for `p\['m'\]`"):
        ts.jit(lambda p, x: x)({"m": model}, X)
    with pytest.raises(ts.KernelTypeError, match="got method for `f`"):
        ts.jit(lambda f, x: f(x))(Model.__init__.__get__(model), X)


def test_objects_that_are_trees_are_followed():
    class Tree:
        def __init__(self, w):
            self.w = w

        @ts.jit
        def method(self, x):
            return x * self.w

    ts.tree.register(Tree, lambda t: ((t.w,), None), lambda _, children: Tree(*children))
    tree = Tree(np.float32(2))
    np.testing.assert_array_equal(tree.method(X), X * 2)
    tree.w = np.float32(3)
    np.testing.assert_array_equal(tree.method(X), X * 3)


def test_static_arguments_and_values_that_cannot_change_are_constants():
    h = ts.jit(lambda x, kind: x * len(kind))
    np.testing.assert_array_equal(h(X, "ab"), X * 2)
    np.testing.assert_array_equal(h(X, "abc"), X * 3)
    f = ts.jit(lambda x, kind: x * len(kind), static_argnames=("kind",))
    np.testing.assert_array_equal(f(X, kind="ab"), X * 2)
    g = ts.jit(lambda m, x: x * m.w, static_argnums=0)
    np.testing.assert_array_equal(g(Model(3.0), X), X * 3)
    model = Model(5.0)
    np.testing.assert_array_equal(ts.jit(lambda x: x * model.w)(X), X * 5)


def test_vmap_of_an_annotated_function_compiles():
    def f(x: ts.Tensor["d"], y: ts.Tensor["d"]) -> ts.Tensor["d"]:  # noqa: F821
        return x * 2 + y

    many = np.stack([X, X + 1])
    wanted = many * 2 + X
    np.testing.assert_array_equal(ts.jit(ts.vmap(f, in_axes=(0, None)))(many, X), wanted)
    np.testing.assert_array_equal(ts.vmap(ts.jit(f), in_axes=(0, None))(many, X), wanted)
    np.testing.assert_array_equal(ts.jit(ts.grad(lambda x: ts.vmap(f)(x, x).sum()))(many), np.full_like(many, 3))


# Rules that call their own function


def test_rule_of_custom_jvp_may_call_its_function():
    @ts.custom_jvp
    def f(x):
        return xp.exp(x)

    @f.defjvp
    def rule(primals, tangents):
        y = f(primals[0])
        return y, 3.0 * y * tangents[0]

    x = np.float32(0.5)
    y, dy = ts.jvp(f, (x,), (np.float32(1),))
    np.testing.assert_allclose([y, dy], [np.exp(0.5), 3 * np.exp(0.5)], rtol=1e-6)
    np.testing.assert_allclose(ts.jit(ts.grad(f))(x), 3 * np.exp(0.5), rtol=1e-6)
    np.testing.assert_allclose(ts.vmap(ts.grad(f))(X), 3 * np.exp(X), rtol=1e-6)
    # The rule holds again where the rule calls the function, as in JAX: 9, 27 and 81 times.
    orders = [f]
    for n in range(1, 5):
        orders.append(ts.grad(orders[-1]))
        for g in (orders[n], ts.jit(orders[n])):
            np.testing.assert_allclose(g(x), 3**n * np.exp(0.5), rtol=1e-6)
    np.testing.assert_allclose(ts.jvp(orders[1], (x,), (np.float32(1),))[1], 9 * np.exp(0.5), rtol=1e-6)
    np.testing.assert_allclose(ts.vmap(orders[2])(X), 9 * np.exp(X), rtol=1e-6)
    np.testing.assert_allclose(ts.grad(lambda v: ts.fori_loop(0, 2, lambda i, c: orders[1](c), v))(x), _twice(0.5), rtol=1e-5)


def _twice(x):
    """The derivative of g(g(x)) where g = 3 f and f' = 3 f."""
    g = 3 * np.exp(x)
    return 3 * g * 3 * 3 * np.exp(g)


def test_second_derivative_of_what_has_none_by_its_text():
    """The text is a loop without reverse mode; JAX gives the root, 1 / 2y, and -1 / 4y**3."""

    @ts.custom_jvp
    def root(x):
        return ts.while_loop(lambda y: xp.abs(y * y - x) > 1e-5, lambda y: 0.5 * (y + x / y), x)

    @root.defjvp
    def rule(primals, tangents):
        y = root(*primals)
        return y, tangents[0] / (2.0 * y)

    x, y = np.float32(4.0), 2.0
    np.testing.assert_allclose([root(x), ts.grad(root)(x), ts.grad(ts.grad(root))(x)], [y, 1 / (2 * y), -1 / (4 * y**3)], rtol=1e-5)
    np.testing.assert_allclose(ts.jit(ts.hessian(root))(x), -1 / (4 * y**3), rtol=1e-5)


def test_rules_of_custom_vjp_may_call_their_function():
    """The forward rule calls it: the second derivative takes the rule there too, as JAX does: 2 * 2 * 5."""

    @ts.custom_vjp
    def f(x):
        return 7.0 * x

    f.defvjp(lambda x: (f(x), x), lambda x, ct: (ct * f(x) * 2.0,))
    slope = ts.custom_vjp(lambda x: 7.0 * x)
    slope.defvjp(lambda x: (slope(x), None), lambda _, ct: (5.0 * ct,))
    x = np.float32(3.0)
    assert ts.grad(f)(x) == 42.0
    # The derivative of 2 f(x) by the rule: 2 * (2 f(x)).
    assert ts.grad(ts.grad(f))(x) == 84.0
    assert ts.grad(slope)(x) == 5.0 and ts.grad(lambda v: ts.grad(lambda u: slope(u) * u)(v))(x) == 10.0


# Integers that are differentiated by


def test_vjp_has_no_cotangents_of_integers():
    """As JAX's, which gives `float0`: arrays, NumPy's numbers and Python's own."""
    for n in (2, np.int32(2), np.array(2), True):
        y, pull = ts.vjp(lambda x, n: x * n, np.float32(3), n)
        assert y == 3 * int(n) and pull(np.float32(1)) == (float(n), None)
        assert ts.jit(lambda x, n: ts.vjp(lambda x, n: x * n, x, n)[1](np.float32(1))[0])(np.float32(3), n) == float(n)
    y, pull = ts.vjp(lambda n: n * 2.5, 3)
    assert y == 7.5 and pull(1.0) == (None,)
    y, pull = ts.vjp(lambda t: t["a"] * t["n"], {"a": 3.0, "n": 2})
    assert pull(1.0) == ({"a": 2.0, "n": None},)
    # `grad` of Python's own integers means floats, and a tangent that is given says that its argument moves.
    assert ts.grad(lambda v: v * v)(3) == 6.0 and ts.jvp(lambda v: v * v, (3,), (1.0,))[1] == 6.0


# Layers and schedules


def test_dropout_in_a_sequence_drops_with_a_key():
    net = ts.nn.Sequential(ts.nn.Dropout(0.5), lambda x: x, ts.nn.Dropout(0.5), ts.nn.relu)
    params = net.init(ts.random.key(0))
    ones = np.ones((64, 64), np.float32)
    np.testing.assert_array_equal(net(params, ones), ones)
    got = np.asarray(net(params, ones, key=ts.random.key(1)))
    assert set(np.unique(got)) == {0.0, 4.0}
    # Two layers drop each for itself: a quarter is left.
    assert 0.2 < (got != 0).mean() < 0.3
    np.testing.assert_array_equal(got, ts.jit(net)(params, ones, ts.random.key(1)))
    assert (got != net(params, ones, key=ts.random.key(2))).any()
    inner = ts.nn.Sequential(net, ts.nn.Linear(64, 3))
    params = inner.init(ts.random.key(0))
    assert (np.asarray(inner(params, ones, key=ts.random.key(1))) != inner(params, ones)).any()


def test_sequence_says_how_many_parameters_it_has():
    with pytest.raises(ts.TesseraError, match="for 1 layers, got 0"):
        ts.nn.Sequential(ts.nn.relu)([], X)


def test_schedules_begin_at_step_zero():
    opt = ts.optim.SGD(lambda step: xp.asarray(step, dtype="f32") + 1.0)
    params = {"w": np.zeros(1, np.float32)}
    state = opt.init(params)
    seen = []
    for _ in range(3):
        before = np.asarray(params["w"])[0]
        params, state = opt.update(params, {"w": np.ones(1, np.float32)}, state)
        seen.append(before - np.asarray(params["w"])[0])
    assert seen == [1, 2, 3]


# What errors say


def refused(kind, words, fn, line=None):
    with pytest.raises(kind) as caught:
        fn()
    assert words in caught.value.message, caught.value.message
    assert caught.value.help
    if line is not None:
        import linecache

        assert caught.value.file == __file__ and line in linecache.getline(__file__, caught.value.line)
    for word in ("Tracer", "TreeDef", "leaf", "aval", "frame"):
        assert word not in caught.value.message
    return caught.value


def test_a_carry_that_changes_names_its_path_and_line():
    def grows(carry, x):
        wider = xp.concat([carry["b"], carry["b"]])  # here
        return {"a": carry["a"], "b": wider}, x

    def other(carry, x):
        return {"a": carry["a"], "c": carry["b"]}, x

    run = ts.jit(lambda f, x: ts.scan(f, {"a": 1.0, "b": x}, x)[0], static_argnums=0)
    refused(ts.ShapeError, "scan: expected carry['b'] to stay f32 of shape [6], got f32 of shape [12]", lambda: run(grows, X), "# here")
    refused(ts.TesseraError, "at carry a dict with the keys 'a', 'b', got one without 'b'", lambda: run(other, X), '"c": carry["b"]}, x')


def test_a_loop_value_or_branch_that_changes_is_named():
    def half(i, v):
        return v + 0.5  # here

    error = refused(ts.ShapeError, "fori_loop: expected value to stay i64 of shape [], got f32 of shape []",
                    lambda: ts.jit(lambda x: ts.fori_loop(0, 3, half, np.int64(0)) + x)(X), "# here")  # fmt: skip
    assert "what it starts with" in error.help
    # Python's own numbers take the dtype that is carried, where they fit.
    assert ts.jit(lambda x: ts.fori_loop(0, 3, lambda i, v: 0.5, 0) + x)(X)[0] == 1.0
    assert ts.jit(lambda x: ts.fori_loop(0, 3, lambda i, v: 1, 0.0) + x)(X)[0] == 1.5
    loop = ts.jit(lambda x: ts.while_loop(lambda v: v[1] < 3, lambda v: (v[0],), (x, 1)))
    refused(ts.TesseraError, "while_loop: expected the value to keep its form, at value a tuple of 2, got a tuple of 1", lambda: loop(X))
    branch = ts.jit(lambda x: ts.cond(x[0] > 0, lambda v: {"a": v}, lambda v: {"a": v.sum()}, x))
    refused(ts.ShapeError, "cond: expected result['a'] to be f32 of shape [6] in both branches, got f32 of shape [] in the second",
            lambda: branch(X))  # fmt: skip


def test_trees_that_do_not_match_show_the_first_difference():
    params, grads = {"l": [{"w": X, "b": X}]}, {"l": [{"w": X}]}
    opt = ts.optim.SGD(0.1)
    refused(ts.TesseraError, "at ['l'][0] a dict with the keys 'b', 'w', got one without 'b'", lambda: opt.update(params, grads, opt.init(params)))
    pairs = [
        ({"w": [1, 2]}, {"w": [1]}, "at ['w'] a list of 2, got a list of 1"), ((1, {"k": {}}), (1, {"k": None}), "at [1]['k'] a dict with no keys, got None"),
        ({"a": 1}, [1], "a dict with the key 'a', got a list of 1"), ({"a": 1}, {"a": 1, "b": 2}, "a dict with the key 'a', got one with 'b'"),
    ]  # fmt: skip
    for one, other, words in pairs:
        refused(ts.TesseraError, f"expected trees of one form, {words}", lambda one=one, other=other: ts.tree.map(lambda a, b: a, one, other))
    refused(ts.TesseraError, "of the form of the result, a dict with the key 'a', got an array or a number",
            lambda: ts.vjp(lambda x: {"a": x}, X)[1](X))  # fmt: skip
    refused(ts.TesseraError, "tangents of the form of the arguments, at [0] a dict with the key 'a', got", lambda: ts.jvp(lambda p: p["a"], ({"a": X},), (X,)))


def test_missing_checkpoint_is_a_missing_file(tmp_path):
    path = tmp_path / "nothing.safetensors"
    with pytest.raises(FileNotFoundError) as caught:
        ts.load(path)
    assert isinstance(caught.value, ts.TesseraError) and str(path) in str(caught.value) and caught.value.filename == str(path)
    assert caught.value.errno == 2 and caught.value.help
