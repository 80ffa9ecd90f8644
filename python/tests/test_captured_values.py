"""Values made before a branch or a loop mean the same inside it: a reduction made outside is a reduction there too.

Each result is compared with the interpreter of Graph IR, which uses no plans, and some with NumPy.
"""

import numpy as np
import pytest

import tessera as ts

xp = ts.xp
X = np.arange(1, 7, dtype=np.float32).reshape(2, 3) / 4
I = np.array([[0, 2, 1], [1, 1, 0]])

FORMS = {
    "sum": lambda x: xp.sum(x),
    "sum of rows": lambda x: xp.sum(x, axis=0),
    "sum of columns": lambda x: xp.sum(x, axis=1, keepdims=True),
    "mean": lambda x: xp.mean(x),
    "prod": lambda x: xp.prod(x, axis=0),
    "max": lambda x: xp.max(x, axis=1, keepdims=True),
    "min": lambda x: xp.min(x),
    "softmax": lambda x: ts.op.softmax(x),
    "norm": lambda x: x / xp.sqrt(xp.sum(x * x, axis=-1, keepdims=True)),
    "variance": lambda x: xp.var(x, axis=1, keepdims=True),
    "argmax": lambda x: xp.astype(xp.argmax(x, axis=1, keepdims=True), xp.float32),
    "argmin": lambda x: xp.astype(xp.argmin(x, axis=0), xp.float32),
    "cumulative sum": lambda x: xp.cumulative_sum(x, axis=1),
    "cumulative sum from the end": lambda x: xp.flip(xp.cumulative_sum(xp.flip(x, axis=1), axis=1), axis=1),
    "matmul": lambda x: x @ xp.matrix_transpose(x) @ x,
    "vector product": lambda x: x @ xp.ones((3, 3)),
    "transpose": lambda x: xp.matrix_transpose(xp.matrix_transpose(x) * 2),
    "view": lambda x: xp.flip(x),
    "reshape of a result": lambda x: xp.reshape(xp.reshape(x, (3, 2)) * 3, (2, 3)),
    "part": lambda x: x[:, 1:2] + x[1:, :],
    "repeated scalar": lambda x: xp.broadcast_to(x[0, 0], (2, 3)),
    "constant": lambda x: xp.ones((2, 3)),
    "positions": lambda x: xp.astype(xp.arange(3), xp.float32),
    "gather": lambda x: xp.take_along_axis(x, I, axis=1),
    "gather of a repeated scalar": lambda x: xp.take_along_axis(xp.broadcast_to(xp.sum(x), (2, 3)), I, axis=1),
    "sort": lambda x: xp.sort(xp.flip(x, axis=1), axis=1),
    "pad": lambda x: xp.concat([x[:, :1], x[:, 1:] * 2], axis=1),
}
CONTROL = {
    "cond": lambda s, x: ts.cond(xp.sum(x) > 0, lambda a: a * s, lambda a: a, x),
    "else": lambda s, x: ts.cond(xp.sum(x) < 0, lambda a: a, lambda a: a * s, x),
    "fori_loop": lambda s, x: ts.fori_loop(0, 3, lambda i, a: a * 0.5 + s, x),
    "scan": lambda s, x: sum(xp.sum(v) for v in ts.scan(lambda c, _: (c + s, c * s), x, length=3)),
    "nested": lambda s, x: ts.fori_loop(
        0, 2, lambda i, a: ts.cond(i > 0, lambda b: b + s, lambda b: ts.fori_loop(0, 2, lambda j, d: d + s * 2, b), a), x
    ),
}


@pytest.mark.parametrize("backend", ["cpu", "interp"])
@pytest.mark.parametrize("control", [*CONTROL, "while_loop"])
def test_a_captured_value_is_what_it_is_outside(backend, control):
    def every_form(x):
        made = {name: form(x) for name, form in FORMS.items()}
        if control == "while_loop":
            loop = lambda s: ts.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + s), (0, x))[1]  # noqa: E731
            return {name: loop(s) for name, s in made.items()}
        return {name: CONTROL[control](s, x) for name, s in made.items()}

    def total(x):
        return sum(xp.sum(v) for v in every_form(x).values())

    with ts.runtime.oracle():
        expected = ts.jit(every_form)(X)
        slope = ts.jit(ts.grad(total))(X) if control != "while_loop" else None
    ts.runtime.select_backend(backend)
    try:
        got = ts.jit(every_form)(X)
        for name, value in expected.items():
            np.testing.assert_allclose(np.asarray(got[name]), np.asarray(value), rtol=1e-5, err_msg=name)
        if slope is not None:
            np.testing.assert_allclose(np.asarray(ts.jit(ts.grad(total))(X)), np.asarray(slope), rtol=1e-4)
    finally:
        ts.runtime.select_backend(None)


def test_a_sum_multiplies_in_a_branch():
    f = ts.jit(lambda p, x: ts.cond(p, lambda a: a * xp.sum(x), lambda a: a, x))
    g = ts.jit(lambda p, x: (lambda s: ts.cond(p, lambda a: a * s, lambda a: a, x))(xp.sum(x)))
    for h in (f, g):
        np.testing.assert_allclose(np.asarray(h(True, X)), X * X.sum(), rtol=1e-6)
        np.testing.assert_array_equal(np.asarray(h(False, X)), X)


def test_a_matmul_before_a_loop_of_matmuls():
    m, w = np.array([[0.5, 1], [0, 0.25]], np.float32), np.array([1, 2], np.float32)

    def f(m, w):
        y = m @ w
        return ts.fori_loop(0, 3, lambda i, p: y + m @ p, w)

    expected = w
    for _ in range(3):
        expected = m @ w + m @ expected
    np.testing.assert_allclose(np.asarray(ts.jit(f)(m, w)), expected, rtol=1e-6)


def test_kernels_in_a_loop_take_views_of_captured_views():
    @ts.kernel
    def double(x: ts.Tensor["n", "m", ts.f32], y: ts.Out["n", "m", ts.f32]):
        y[:, :] = x[:, :] * 2.0
        return y

    def f(x):
        t = xp.matrix_transpose(x)
        return ts.fori_loop(0, 2, lambda i, a: a + double(t), xp.zeros((3, 2)))

    np.testing.assert_array_equal(np.asarray(ts.jit(f)(X)), 4 * X.T)


@pytest.mark.parametrize("where", [slice(0, 0), np.zeros(0, np.int64)])
def test_a_scatter_of_nothing_is_its_operand(where):
    for f in (lambda x: x.at[where].max(1.0), lambda x: x.at[where].add(1.0), lambda x: x.at[where].set(1.0)):
        np.testing.assert_array_equal(np.asarray(ts.jit(f)(X)), X)


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_strict_sums_over_several_axes_take_them_in_row_major_order(backend):
    x = np.random.default_rng(0).standard_normal((20, 5, 3)).astype(np.float32)
    forms = [
        lambda x: xp.sum(x.T),
        lambda x: xp.sum(xp.take(x, np.array([0, 1, 1, 0]), axis=0)),
        lambda x: xp.sum(xp.broadcast_to(x[:, :1], x.shape)),
        lambda x: xp.sum(x, axis=(0, 2)),
        lambda x: xp.sum(xp.permute_dims(x, (1, 2, 0)), axis=(0, 2)),
    ]
    with ts.numerics.profile("strict"):
        for f in forms:
            with ts.runtime.oracle():
                expected = np.asarray(ts.jit(f)(x))
            ts.runtime.select_backend(backend)
            try:
                np.testing.assert_array_equal(np.asarray(ts.jit(f)(x)), expected)
            finally:
                ts.runtime.select_backend(None)


def test_parts_at_computed_positions_inside_loops():
    def f(a, i):
        part = lambda v, n: xp.max(ts.dynamic_slice(v, [n], (3,)))  # noqa: E731
        first = ts.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[1] + part(a, c[0] + i)), (0, 0.0))[1]
        rows = ts.fori_loop(0, 3, lambda n, p: xp.broadcast_to(xp.reshape(ts.dynamic_slice(p, [n], (4,)), (4, 1))[2, 0], (8,)), a)
        return first, rows

    a = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.float32)
    # A part that would leave the array is moved back inside.
    first, rows = ts.jit(f)(a, 3)
    assert first == sum(a[min(n + 3, 5) : min(n + 3, 5) + 3].max() for n in range(4))
    expected = a
    for n in range(3):
        expected = np.full(8, expected[n : n + 4][2])
    np.testing.assert_array_equal(np.asarray(rows), expected)


@pytest.mark.parametrize("unroll", [1, 2, 3, 7, 50, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_several_steps_an_iteration(unroll, reverse):
    xs = {"a": np.arange(7, dtype=np.float32), "b": np.arange(14, dtype=np.float32).reshape(7, 2)}

    def step(c, x):
        return c * 0.5 + x["a"] + xp.sum(x["b"]), {"c": c, "v": x["b"] * c}

    carry, ys = ts.jit(lambda xs: ts.scan(step, 1.0, xs, reverse=reverse, unroll=unroll))(xs)
    c, rows = np.float32(1), [None] * 7
    for i in range(7)[:: -1 if reverse else 1]:
        rows[i] = (c, xs["b"][i] * c)
        c = np.float32(c * 0.5 + xs["a"][i] + xs["b"][i].sum())
    np.testing.assert_allclose(np.asarray(carry), c, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(ys["c"]), [r[0] for r in rows], rtol=1e-6)
    np.testing.assert_allclose(np.asarray(ys["v"]), np.stack([r[1] for r in rows]), rtol=1e-6)
    total, _ = ts.jit(lambda: ts.scan(lambda c, _: (c + 1, None), 0, length=5, reverse=reverse, unroll=unroll))()
    assert total == 5
