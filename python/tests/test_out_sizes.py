"""Sizes of outputs by expression and by keyword, arrays without axes, and empty extents."""

import math
import random
import types

import numpy as np
import pytest

import tessera as ts

F = np.float32
BLOCK = 4


@ts.kernel
def sums(x: ts.Tensor["N", ts.f32], y: ts.Out["(N + BLOCK - 1) // BLOCK", ts.f32]):
    p = ts.tile.program_id(0)
    y[p] = ts.tile.sum(x[p * BLOCK : p * BLOCK + BLOCK])


def wanted(x, block):
    padded = np.concatenate([x, np.zeros(-len(x) % block, F)])
    return padded.reshape(-1, block).sum(1)


@pytest.mark.usefixtures("backend")
def test_a_captured_constant_is_part_of_a_size(monkeypatch):
    for n in (1, 4, 5, 9, 9, 0):
        x = np.arange(n, dtype=F)
        np.testing.assert_array_equal(sums(x), wanted(x, 4))
    monkeypatch.setitem(globals(), "BLOCK", 2)
    np.testing.assert_array_equal(sums(np.arange(5, dtype=F)), wanted(np.arange(5, dtype=F), 2))


@pytest.mark.usefixtures("backend")
def test_a_compile_time_parameter_is_part_of_a_size():
    @ts.kernel
    def k(x: ts.Tensor["N", ts.f32], B: int, y: ts.Out["cdiv(N, B)", ts.f32], z: ts.Out["B", ts.f32]):
        p = ts.tile.grid(ts.cdiv(N, B))
        y[p] = ts.tile.sum(x[p * B : p * B + B])
        z[p] = 1.0
        return y, z

    x = np.arange(7, dtype=F)
    for _ in range(3):
        for b in (7, 4, 7):
            y, z = k(x, b)
            np.testing.assert_array_equal(y, wanted(x, b))
            assert z.shape == (b,)


def test_a_default_of_a_parameter_is_part_of_a_size():
    @ts.kernel
    def k(x: ts.Tensor["N", ts.f32], y: ts.Out["N * R", ts.f32], R: int = 3):
        p = ts.tile.grid(N)
        y[p * R : p * R + R] = ts.tile.full((R,), x[p], ts.f32)

    assert k(np.ones(2, F)).tolist() == [1] * 6
    assert k(np.ones(2, F), R=1).tolist() == [1, 1]
    np.testing.assert_array_equal(ts.jit(lambda x: k(x, R=2))(np.ones(2, F)), [1] * 4)


@pytest.mark.usefixtures("backend")
def test_a_size_by_keyword():
    @ts.kernel
    def spread(x: ts.Tensor["N", ts.f32], y: ts.Out["N", "K", ts.f32], z: ts.Out["max(K - 1, 0)", ts.i32]):
        p, q = ts.tile.grid(N, K)
        y[p, q] = x[p] + q
        if p == 0 and q < K - 1:
            z[q] = K
        return y, z

    x = np.arange(3, dtype=F)
    for count in (1, 4, 4, 0):
        y, z = spread(x, K=count)
        np.testing.assert_array_equal(y, x[:, None] + np.arange(count, dtype=F))
        assert z.tolist() == [count] * max(count - 1, 0)
    y, z = ts.jit(lambda x: spread(x, K=2))(x)
    assert y.shape == (3, 2) and z.tolist() == [2]
    # A size that an argument gives may be said again.
    assert spread(x, N=3, K=1)[0].shape == (3, 1)


def test_random_expressions_mean_what_python_says():
    draw = random.Random(11)

    def expression(depth):
        if depth == 0 or draw.random() < 0.2:
            return draw.choice(["N", "M", "N", str(draw.randint(0, 9))])
        a, b = expression(depth - 1), expression(depth - 1)
        form = draw.choice(["({} + {})", "{} + {}", "({} - {})", "{} * ({})", "({}) // (1 + {})", "({}) % (2 + {})", "min({}, {})", "max({}, {})"])
        return form.format(a, b)

    for _ in range(60):
        text = expression(3)
        n, m = draw.randint(0, 6), draw.randint(1, 5)
        size = eval(text, {"N": n, "M": m})
        annotation = ts.Out[text, ts.f32]

        @ts.kernel
        def k(x: ts.Tensor["N", "M", ts.f32], y: annotation):
            i = ts.tile.grid(1)
            if i > 0:
                y[0] = 1.0

        x = np.zeros((n, m), F)
        if 0 <= size < 10**6:
            assert k(x).shape == (size,), text
            assert ts.jit(k)(x).shape == (size,), text
        elif size < 0:
            with pytest.raises(ts.LaunchError, match="at least 0, got"):
                k(x)


def test_an_output_that_is_given_must_fit_the_expression():
    x = np.arange(9, dtype=F)
    y = np.zeros(3, F)
    assert sums(x, y) is None and y.tolist() == [6, 22, 8]
    with pytest.raises(ts.LaunchError, match=r"`y`: expected `\(N \+ 4 - 1\) // 4` to be 3 along axis 0, got 4") as e:
        sums(x, np.zeros(4, F))
    assert e.value.code == "E_LAUNCH_INVALID_SHAPE"


@pytest.mark.parametrize("text", ["N / 2", "N ** 2", "f(N)", "N +", "(N", "min(N)", "N if N else 1", "N[0]", "2.5 * N + 1", "-", "N // 2 // " * 200 + "1"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ts.KernelTypeError, match="expected a size|expected a dimension") as e:
        ts.Out[text, ts.f32]
    assert e.value.code == "E_TYPE" and e.value.help


def test_arrays_that_are_given_have_no_expressions():
    with pytest.raises(ts.KernelTypeError, match="the name of a size or a product") as e:
        ts.Tensor["N + 1", ts.f32]
    assert "ts.Out" in e.value.help


def test_sizes_that_are_not_known_or_wrong_are_refused():
    @ts.kernel
    def k(x: ts.Tensor["N", ts.f32], y: ts.Out["N - 3", "K + 1", ts.f32]):
        p, q = ts.tile.grid(N, K + 1)
        y[p, q] = x[p]

    x = np.ones(5, F)
    cases = [
        (dict(), "E_ARGUMENT", "`y` must be given"),
        (dict(K=-1), "E_ARGUMENT", "`K`: expected a size of at least 0, got the integer -1"),
        (dict(K=2.5), "E_ARGUMENT", "`K`: expected a size"),
        (dict(K=1, N=7), "E_LAUNCH_INVALID_SHAPE", "expected `N` to be 7 along axis 0, as given by name: `N=7`, got 5"),
        (dict(K=1, L=7), "E_ARGUMENT", "has no parameter `L`"),
        (dict(y=np.zeros((2, 3), F)), "E_LAUNCH_INVALID_SHAPE", "`K` has no value"),
    ]
    for given, code, words in cases:
        with pytest.raises(ts.TesseraError, match=words) as e:
            k(x, **given)
        assert e.value.code == code and e.value.help
    with pytest.raises(ts.TesseraError, match="at least 0, got -1"):
        k(x[:2], K=1)
    for given in (dict(), dict(K=-1), dict(K=2.5)):
        with pytest.raises(ts.TesseraError):
            ts.jit(lambda x: k(x, **given))(x)


# Arrays without axes.


@ts.kernel
def point(s: ts.Tensor[ts.f32], o: ts.Out[ts.f32]):
    g = ts.tile.grid(1)
    o[()] = s[()] * 2.0 + g


@ts.kernel
def point_lane(x: ts.Tensor["n", ts.f32], s: ts.Tensor[ts.f32], total: ts.Region[ts.reduce_sum, ts.Out[ts.f32]]):
    i = ts.tile.grid(n)
    ts.tile.accumulate(total[()], x[i] * s[...])
    return total


@pytest.mark.usefixtures("backend")
def test_arrays_without_axes():
    for value in (3.0, 4.0, 5.0):
        out = point(np.array(value, F))
        assert out.shape == () and out == 2 * value
        o = np.zeros((), F)
        assert point(np.array(value, F), o) is None and o == 2 * value
    total = point_lane(np.arange(5, dtype=F), np.array(2.0, F))
    assert total.shape == () and total == 20


def test_arrays_without_axes_in_traces():
    s = np.array(3.0, F)
    assert ts.jit(point)(s) == 6 and ts.jit(point)(s).shape == ()
    assert ts.grad(lambda s: point(s))(s) == 2
    assert ts.vmap(point)(np.arange(4, dtype=F)).tolist() == [0, 2, 4, 6]

    @ts.kernel
    def change(s: ts.Tensor[ts.f32]):
        g = ts.tile.grid(1)
        s[()] = s[()] + 1.0 + g
        return s

    assert ts.jit(lambda s: change(s) * 2)(s) == 8
    assert change(np.array(1.0, F)) == 2


def test_the_shape_of_an_array_without_axes():
    @ts.kernel
    def k(s: ts.Tensor[ts.f32], x: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        if i < n:
            x[i] = len(s.shape) + ts.tile.cast(s[()], s.dtype)
        return x

    assert k(np.array(3.0, F), np.zeros(2, F)).tolist() == [3, 3]


def test_other_arrays_for_one_without_axes_are_refused():
    point(np.array(1.0, F))
    for given, code in ((np.ones(1, F), "E_LAUNCH_INVALID_SHAPE"), (3.0, "E_ARGUMENT"), (np.array(1.0), "E_TYPE")):
        with pytest.raises(ts.TesseraError, match="`s`") as e:
            point(given)
        assert e.value.code == code and e.value.help
    with pytest.raises(ts.LaunchError, match="rank 1 or more"):
        sums(np.array(1.0, F))
    with pytest.raises(ts.ShapeError, match="no index for `s`") as e:

        @ts.kernel
        def k(s: ts.Tensor[ts.f32]):
            g = ts.tile.grid(1)
            s[0] = 1.0

    assert "s[()]" in e.value.help


# Empty extents.


@ts.struct
class Parts:
    xs: list[ts.Tensor["n", "k", ts.f32]]
    b: ts.Tensor["m", ts.f32] | None = None
    y: ts.Out["n * 2", "m + k", ts.f32] = None


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("n, m, k", [(0, 3, 2), (2, 0, 0), (2, 0, 1), (0, 0, 0), (1, 2, 0)])
def test_empty_extents_everywhere(n, m, k):
    @ts.kernel
    def fill(p: Parts):
        i, j = ts.tile.grid(n * 2, m + k)
        p.y[i, j] = 1.0

    for _ in range(2):
        y = fill(Parts([np.zeros((n, k), F)] * 2, np.zeros(m, F)))
        assert y.shape == (2 * n, m + k) and (y == 1).all()


def test_math_stays_math():
    """A name in a size does not hide a module of Python's."""
    cfg = types.SimpleNamespace(PI=math.pi)

    @ts.kernel
    def k(x: ts.Tensor["N", ts.f32], y: ts.Out["N + 1", ts.f32]):
        i = ts.tile.linear_id()
        if i < N + 1:
            y[i] = cfg.PI

    assert k(np.zeros(1, F)).tolist() == [F(math.pi)] * 2
