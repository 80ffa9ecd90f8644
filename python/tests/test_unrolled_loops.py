"""Loops whose items are known at compile time, tuples that loops carry, and what is checked while a kernel is compiled."""

import numpy as np
import pytest
from oracle.fuzz import load
from oracle.run import Program, array

import tessera as ts

pytestmark = pytest.mark.usefixtures("backend")  # once on each

HEAD = """TAB = (3, 1, 2)
FLOATS = (0.5, -1.5)
PAIRS = ((0, 4), (1, 5), (2, 6))
ARR = np.array([5, 6, 7], np.int32)
ARR.flags.writeable = False

@ts.kernel{lanes}
def k(x: ts.Tensor[8, ts.i32], y: ts.Tensor[16, ts.i64]):
"""
X = np.array([2, 4, 1, 3, 5, 2, 7, 0], np.int32)


def text_of(body, lanes=""):
    return HEAD.format(lanes=lanes) + "".join(f"    {line}\n" for line in body.splitlines())


def after(body, lanes=0):
    """What a kernel leaves in `y`."""
    y = np.zeros(16, np.int64)
    load(text_of(body, f"(lanes={lanes})" if lanes else ""))["k"].launch(X.copy(), y, grid=lanes or 1)
    return y


def as_python(body):
    """What Python itself leaves there."""
    y = np.zeros(16, np.int64)
    Program(text_of(body)).launch("k", [array(X.copy()), array(y)], (1,))
    return y


def refused(body):
    with pytest.raises(ts.TesseraError) as caught:
        after(body)
    assert caught.value.help
    return caught.value.code, caught.value.help


# Results by hand; all bodies are compared with Python too.
BODIES = [
    ("for i in ts.static_range(4):\n    y[i] = i + 1\ny[5] = i", [1, 2, 3, 4, 0, 3]),
    ("for i in ts.static_range(3, -1, -1):\n    y[i] = 10 - i", [10, 9, 8, 7]),
    ("for i in ts.static_range(1, 8, step=3):\n    y[i] = i", [0, 1, 0, 0, 4, 0, 0, 7]),
    ("for i in ts.static_range(0):\n    y[i] = 1\nelse:\n    y[1] = 2", [0, 2]),
    ("for i in ts.static_range(5, 2):\n    y[i] = 1", [0]),
    ("for i in ts.static_range(len(TAB)):\n    y[i] = TAB[i]", [3, 1, 2]),
    ("for a in (1, 2, x[0]):\n    y[0] += a", [5]),
    ("for a in [1, 2, x[0]]:\n    y[0] += a", [5]),
    ("for a, b in ((1, x[1]), (x[0], 2)):\n    y[0] = y[0] * 100 + a * 10 + b", [1422]),
    ("for a, b in PAIRS:\n    y[a] = b", [4, 5, 6]),
    ("for a in TAB:\n    y[0] = y[0] * 10 + a", [312]),
    ("for a in ARR:\n    y[0] = y[0] * 10 + a", [567]),
    # The loop around it is elaborated again, with a variable that is a float by then.
    ("v = 0\nfor j in range(2):\n    for a in ARR:\n        y[0] = y[0] * 10 + a\n    v = v + 0.5\ny[1] = ts.tile.cast(v, ts.i64)", [567567, 1]),
    ("for a in FLOATS:\n    y[0] += ts.tile.cast(a * 10, ts.i64)", [-10]),
    ("for i, a in enumerate((x[2], 7)):\n    y[i] = a", [1, 7]),
    ("for i, (a, b) in enumerate(PAIRS):\n    y[i] = a * b", [0, 5, 12]),
    ("for a, b in zip((1, 2, 3), (x[0], x[1])):\n    y[a] = b", [0, 2, 4]),
    ("for a, b, c in zip(TAB, ARR, ts.static_range(9)):\n    y[a] = b * 10 + c", [0, 61, 72, 50]),
    ("for a in reversed(TAB):\n    y[0] = y[0] * 10 + a", [213]),
    ("for i, a in enumerate(reversed(TAB)):\n    y[i] = a", [2, 1, 3]),
    ("for i in reversed(ts.static_range(4)):\n    y[0] = y[0] * 10 + i", [3210]),
    ("for i in reversed(range(4)):\n    y[0] = y[0] * 10 + i\ny[1] = i", [3210, 0]),
    ("for i in reversed(range(1, 8, 3)):\n    y[0] = y[0] * 10 + i", [741]),
    ("for i in reversed(range(8, 1, -3)):\n    y[0] = y[0] * 10 + i", [258]),
    ("for i in reversed(range(x[0], x[0] + 5, 2)):\n    y[0] = y[0] * 10 + i", [642]),
    ("for i in reversed(range(x[7])):\n    y[0] = 1", [0]),
    ("for i in reversed(reversed(range(4))):\n    y[0] = y[0] * 10 + i", [123]),
    ("for i in ts.static_range(3):\n    i = i + x[0]\n    y[0] += i\ny[1] = i", [9, 4]),
    ("s = 0\nfor i in ts.static_range(3):\n    s += x[i]\ny[0] = s", [7]),
    ("s = x[0]\nfor i in ts.static_range(3):\n    if x[i] > 1:\n        s = s * 2 + i\n    else:\n        s -= i\ny[0] = s", [7]),
    ("x0 = x[0]\nfor a in (x[0], x[1]):\n    x[0] = 9\n    x[1] = 8\n    y[0] = y[0] * 10 + a", [24]),
    ("for i in ts.static_range(2):\n    for j in ts.static_range(i, 3):\n        y[i * 3 + j] = 1", [1, 1, 1, 0, 1, 1]),
    ("for j in range(2):\n    for e in (x[0], x[1]):\n        y[0] += e\n    y[1] = e", [12, 4]),
]
LEAVING = [
    ("for i in ts.static_range(5):\n    if x[i] > 3:\n        break\n    y[i] = 1\nelse:\n    y[9] = 1\ny[8] = i", [1, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
    ("for i in ts.static_range(5):\n    if x[i] > 30:\n        break\n    y[i] = 1\nelse:\n    y[9] = 1\ny[8] = i", [1, 1, 1, 1, 1, 0, 0, 0, 4, 1]),
    ("for i in ts.static_range(5):\n    if x[0] > i:\n        continue\n    if i == 4:\n        break\n    y[i] = 1\nelse:\n    y[9] = 1", [0, 0, 1, 1]),
    ("for i in ts.static_range(5):\n    if i == 2:\n        break\n    y[i] = 1\nelse:\n    y[9] = 1\ny[8] = i", [1, 1, 0, 0, 0, 0, 0, 0, 2, 0]),
    ("for a in (x[0], x[1], x[2]):\n    if a == 4:\n        continue\n    y[0] += a\nelse:\n    y[1] = 5", [3, 5]),
    ("for i in ts.static_range(3):\n    for k in range(3):\n        if x[k] == i:\n            break\n        y[0] += 1\n    else:\n        y[1] += 1\n        continue\n    y[2] += 1", [5, 1, 2]),
    ("for i in range(3):\n    for k in ts.static_range(3):\n        if x[k] == i:\n            break\n        y[0] += 1\n    else:\n        y[1] += 1\n        continue\n    y[2] += 1", [5, 1, 2]),
    ("for i in ts.static_range(4):\n    if x[i] == 1:\n        return\n    y[i] = 7", [7, 7]),
    ("v = x[0]\nfor i in ts.static_range(3):\n    v += 10\n    if x[i] > 2:\n        v += 1\n        break\n    v += 100\ny[0] = v", [123]),
]  # fmt: skip
TUPLES = [
    ("t = (x[0], x[1])\nfor i in range(3):\n    t = (t[1], t[0] + t[1])\ny[0], y[1] = t", [10, 16]),
    ("t = (x[0], 0)\nfor i in range(3):\n    t = (t[1] + x[i], t[0] + t[1])\ny[0], y[1] = t", [5, 10]),
    ("t = (0, 0)\nfor i in range(3):\n    t = (t[1] + 1, t[0] + i)\ny[0], y[1] = t", [3, 3]),
    ("t = (x[0], (x[1], x[2]))\nc = 0\nwhile c < 2:\n    c += 1\n    t = (t[1][0], (t[1][1], t[0] + 1))\ny[0] = t[0]\ny[1] = t[1][0]\ny[2] = t[1][1]", [1, 3, 5]),
    ("a = x[0:4]\nt = (a, a + 1)\nfor i in range(2):\n    t = (t[1], t[0] * 2)\ny[0:4] = t[0]\ny[4:8] = t[1]", [4, 8, 2, 6, 6, 10, 4, 8]),
    ("t = (x[0], x[1])\nif x[2] > 1:\n    t = (x[1], x[0])\nelse:\n    t = (x[3], t[0])\ny[0], y[1] = t", [3, 2]),
    ("t = (x[0], x[1])\nfor i in ts.static_range(3):\n    t = (t[1], t[0] + i)\ny[0], y[1] = t", [5, 4]),
]  # fmt: skip
LEFT = [
    ("t = (x[0], x[1])\nfor i in HEAD(3):\n    if x[i] > 2:\n        t = (t[1], t[0] + 1)\n        break\ny[0], y[1] = t", [4, 3]),
    ("t = (x[0], x[1])\nfor i in HEAD(3):\n    if x[i] > 2:\n        t = (t[1], t[0] + 1)\n        continue\n    t = (t[0] + 5, t[1])\ny[0], y[1] = t", [9, 8]),
    ("t = (x[0], x[1])\nfor i in HEAD(3):\n    t = (t[1], t[0] + 1)\n    if x[i] > 2:\n        break\ny[0], y[1] = t", [3, 5]),
    ("t = (x[0], (x[1], x[2]))\nfor i in HEAD(3):\n    if x[i] > 2:\n        t = (7, (t[0], 8))\n        break\ny[0] = t[0]\ny[1] = t[1][0]\ny[2] = t[1][1]", [7, 2, 8]),
]  # fmt: skip


@pytest.mark.parametrize("body, want", BODIES + LEAVING + TUPLES)
def test_loops_mean_what_python_says(body, want):
    found = after(body)
    assert found[: len(want)].tolist() == want
    assert found.tolist() == as_python(body).tolist()


@pytest.mark.parametrize("head", ["ts.static_range", "range"])
@pytest.mark.parametrize("body, want", LEFT)
def test_tuples_are_kept_where_a_loop_is_left(body, want, head):
    body = body.replace("HEAD", head)
    assert after(body)[: len(want)].tolist() == want == as_python(body)[: len(want)].tolist()


def test_a_while_that_is_left_keeps_its_tuple():
    body = "t = (x[0], x[1])\nc = 0\nwhile c < 3:\n    c += 1\n    if x[c] > 2:\n        t = (t[1], t[0] + 1)\n        break\ny[0], y[1] = t"
    assert after(body)[:2].tolist() == [4, 3]


@pytest.mark.parametrize(
    "body, want",
    [
        ("i = ts.tile.linear_id()\nfor j in ts.static_range(3):\n    y[i] = y[i] * 10 + x[j] * (j + 1)", [283] * 4),
        ("i = ts.tile.linear_id()\nfor j in ts.static_range(4):\n    if x[j] > i + 1:\n        break\n    y[i] += 1\nelse:\n    y[i + 8] = 1", [0, 1, 1, 4, 0, 0, 0, 0, 0, 0, 0, 1]),
        ("i = ts.tile.linear_id()\nt = (i, i + 1)\nfor j in range(i):\n    t = (t[1], t[0] + j)\ny[i] = t[0] * 100 + t[1]", [1, 201, 204, 505]),
        ("i = ts.tile.linear_id()\nfor j, v in enumerate(reversed(TAB)):\n    if i == j:\n        y[i] = v\n        continue\n    y[i] += 10", [22, 11, 3, 30]),
    ],
)  # fmt: skip
def test_lanes_unroll_too(body, want):
    assert after(body, lanes=4)[: len(want)].tolist() == want


# Shapes and constants that a round knows


@ts.kernel
def pyramid(x: ts.Tensor[16, ts.f32], y: ts.Out[4, ts.f32]):
    ts.tile.grid(1)
    for level in ts.static_range(4):
        size = 2**level
        y[level] = ts.tile.sum(x[0:size])
    return y


@ts.kernel
def halves(x: ts.Tensor[8, ts.f32], y: ts.Out[1, ts.f32]):
    ts.tile.grid(1)
    t = x[...]
    for step in (4, 2, 1):
        t = t[:step] + t[step:]
    y[0] = t[0]
    return y


@ts.kernel
def by_dtype(x: ts.Tensor[4, ts.f32], y: ts.Out[3, ts.f32]):
    ts.tile.grid(1)
    for i, dtype in enumerate((ts.f16, ts.bf16, ts.i32)):
        y[i] = ts.tile.cast(ts.tile.cast(x[0], dtype), ts.f32)
    return y


@ts.kernel
def taps(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], radius: int):
    i = ts.tile.linear_id()
    total = 0.0
    for d in ts.static_range(-radius, radius + 1):
        ts.static_assert(-4 < d < 4, "a small radius")
        total += x[i + d] * (radius + 1 - abs(d))
    y[i] = total
    return y


@ts.kernel
def columns(x: ts.Tensor["n", "K", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    total = 0.0
    for k in ts.static_range(COLUMNS):
        total += x[i, k] * (k + 1)
    y[i] = total
    return y


COLUMNS = 3


def test_rounds_know_extents():
    x = np.arange(16, dtype=np.float32)
    assert pyramid(x).tolist() == [0.0, 1.0, 6.0, 28.0]
    assert halves(x[:8]).tolist() == [28.0]
    x = np.array([3.1415927, 0, 0, 0], np.float32)
    assert by_dtype(x).tolist() == [3.140625, 3.140625, 3.0]
    x = np.arange(1, 6, dtype=np.float32)
    assert taps(x, radius=1).tolist() == [4.0, 8.0, 12.0, 16.0, 14.0]
    assert taps(x, radius=2).tolist() == [10.0, 18.0, 27.0, 30.0, 26.0]
    assert columns(np.array([[1, 2, 3], [4, 5, 6]], np.float32)).tolist() == [14.0, 32.0]


def test_bounds_of_parameters_are_checked_when_they_are_known():
    with pytest.raises(ts.TesseraError) as caught:
        taps(np.ones(3, np.float32), radius=4)
    assert caught.value.code == "E_ASSERT" and "a small radius" in str(caught.value)


def test_static_print_prints_while_compiling(capfd):
    after("ts.static_print('rounds', len(TAB), x[0], ts.f32)\nfor i in ts.static_range(2):\n    ts.static_print(i)\ny[0] = 1")
    out, err = capfd.readouterr()
    lines = [line.strip() for line in (out + err).splitlines()]
    assert any("rounds 3" in line and "i32" in line for line in lines) and "0" in lines and "1" in lines


# What is refused


@pytest.mark.parametrize(
    "body, code",
    [
        ("for i in ts.static_range(x[0]):\n    y[0] += 1", "E_TYPE"), ("for i in ts.static_range(0, 4, 0):\n    y[0] += 1", "E_ARGUMENT"),
        ("for i in ts.static_range(1, 2, 3, 4):\n    y[0] += 1", "E_ARGUMENT"), ("for i in ts.static_range(1.5):\n    y[0] += 1", "E_TYPE"),
        ("for i in ts.static_range(100000):\n    y[0] += 1", "E_TOO_LARGE"), ("for a in x:\n    y[0] += 1", "E_SYNTAX"),
        ("for a in x[0:4]:\n    y[0] += 1", "E_SYNTAX"), ("for a in None:\n    y[0] += 1", "E_SYNTAX"), ("for a in 3:\n    y[0] += 1", "E_SYNTAX"),
        ("for i, a in zip(range(x[0]), TAB):\n    y[i] = a", "E_UNSUPPORTED"), ("for i, a in enumerate(TAB, start=x[0]):\n    y[i] = a", "E_TYPE"),
        ("for i in reversed(TAB, TAB):\n    y[0] += i", "E_ARGUMENT"), ("ts.static_assert(len(TAB) == 2, 'two')", "E_ASSERT"),
        ("ts.static_assert(x[0] == 2)", "E_TYPE"), ("t = (x[0], x[1])\nfor i in range(3):\n    t = (t[0], t[1], 1)", "E_TYPE"),
        ("t = (x[0], x[1])\nfor i in range(3):\n    t = (t[0], t[1] * 0.5)\ny[0] = t[0]", "E_TYPE"), ("for a, b in TAB:\n    y[a] = b", "E_TYPE"),
        ("for a, b in ((1, 2, 3),):\n    y[a] = b", "E_TYPE"),
    ],
)  # fmt: skip
def test_loops_that_are_refused(body, code):
    assert refused(body)[0] == code


def test_helps_of_loops():
    assert "range" in refused("for i in ts.static_range(x[0]):\n    y[0] += 1")[1]
    assert "range" in refused("for i in ts.static_range(100000):\n    y[0] += 1")[1]


# Derivatives and transformations


@ts.kernel
def powers(x: ts.Tensor[4, ts.f32], y: ts.Out[4, ts.f32]):
    ts.tile.grid(1)
    t = x[...]
    total = t
    for k in ts.static_range(2, 4):
        t = t * x[...]
        total = total + t * k
    y[...] = total
    return y


def test_unrolled_loops_have_derivatives():
    x = np.array([0.5, 1.0, -2.0, 3.0], np.float32)
    np.testing.assert_allclose(powers(x), x + 2 * x**2 + 3 * x**3, rtol=1e-6)
    found = ts.grad(lambda v: ts.xp.sum(powers(v)))(x)
    np.testing.assert_allclose(np.asarray(found), 1 + 4 * x + 9 * x**2, rtol=1e-6)


def test_unrolled_loops_inside_jit_and_vmap():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    want = x + 2 * x**2 + 3 * x**3
    np.testing.assert_allclose(np.asarray(ts.jit(lambda v: powers(v))(x[0])), want[0])
    np.testing.assert_allclose(np.asarray(ts.vmap(powers)(x)), want)
