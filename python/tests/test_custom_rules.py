"""Rules of `custom_vjp` and `custom_jvp` that do not fit are refused at the line that returns."""

import numpy as np
import pytest

import tessera as ts
from tessera import xp

X, P = np.float32([1.0, 2.0, 3.0]), {"w": np.float32([4.0, 5.0, 6.0])}


def ruled(forward, backward):
    @ts.custom_vjp
    def f(x, p):
        return xp.sum(x * p["w"])

    f.defvjp(forward, backward)
    return ts.grad(lambda x, p: f(x, p), argnums=(0, 1))


def forward(x, p):
    return xp.sum(x * p["w"]), (x, p["w"])


def scalar(kept, g):
    wide = g * kept[1]
    return g, {"w": wide}  # HERE


def number(kept, g):
    return 0.0, None  # HERE


def short(kept, g):
    return g * xp.ones((2,)), None  # HERE


def other_key(kept, g):
    return None, {"q": g * kept[0]}  # HERE


def bare(kept, g):
    return g * kept[1], g * kept[0]  # HERE


def one_of_two(kept, g):
    return (g * kept[1],)  # HERE


def nothing(kept, g):
    return None  # HERE


def a_list(kept, g):
    return [g * kept[1], None]  # HERE


def integers(kept, g):
    return None, {"w": kept[0].astype("i32")}  # HERE


def a_word(kept, g):
    return "a", None  # HERE


REFUSED = {
    scalar: ("E_SHAPE_MISMATCH", "for `x` of its shape [3], got []"),
    number: ("E_SHAPE_MISMATCH", "for `x` of its shape [3], got []"),
    short: ("E_SHAPE_MISMATCH", "for `x` of its shape [3], got [2]"),
    other_key: ("E_ARGUMENT", "cotangent of `p` to be a tree like it: a dict with the key 'w', got one without 'w'"),
    bare: ("E_ARGUMENT", "cotangent of `p` to be a tree like it: a dict with the key 'w', got an array or a number"),
    one_of_two: ("E_ARGUMENT", "backward rule of `f` to give a tuple of 2, got a tuple of 1"),
    nothing: ("E_ARGUMENT", "a tuple of 2, got None"),
    a_list: ("E_ARGUMENT", "a tuple of 2, got a list of 2"),
    integers: ("E_TYPE", "cotangent of floats for `p['w']`, got i32[3]"),
    a_word: ("E_TYPE", "cotangent of floats for `x`, got str"),
}


def line_of(rule):
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    return next(n for n in range(rule.__code__.co_firstlineno, len(lines) + 1) if "# HERE" in lines[n - 1])


@pytest.mark.parametrize("rule", REFUSED, ids=lambda r: r.__name__)
def test_a_backward_rule_that_does_not_fit_is_refused_at_its_line(rule):
    code, text = REFUSED[rule]
    with pytest.raises(ts.TesseraError) as raised:
        ruled(forward, rule)(X, P)
    assert raised.value.code == code and text in raised.value.message
    assert raised.value.file == __file__ and raised.value.line == line_of(rule)


def no_pair(x, p):
    return xp.sum(x * p["w"])  # HERE


def other_results(x, p):
    return x * p["w"], x  # HERE


@pytest.mark.parametrize(("rule", "text"), [(no_pair, "to give a pair, got one value"), (other_results, "f32[], got f32[3]")])
def test_a_forward_rule_that_does_not_fit_is_refused_at_its_line(rule, text):
    with pytest.raises(ts.TesseraError) as raised:
        ruled(rule, scalar)(X, P)
    assert text in raised.value.message and raised.value.line == line_of(rule)


def test_none_stands_for_any_part_and_numbers_for_scalars():
    gx, gp = ruled(forward, lambda kept, g: (None, {"w": g * kept[0]}))(X, P)
    assert gx.tolist() == [0, 0, 0] and gp["w"].tolist() == [1, 2, 3]
    gx, gp = ruled(forward, lambda kept, g: (g * kept[1], {"w": None}))(X, P)
    assert gx.tolist() == [4, 5, 6] and gp["w"].tolist() == [0, 0, 0]
    f = ts.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (x * x, None), lambda kept, g: 3)
    assert ts.grad(f)(np.float32(2.0)) == 3.0


def test_defjvps_has_a_rule_for_each_argument():
    @ts.custom_jvp
    def f(x, y, z):
        return x * y + z

    f.defjvps(lambda t, ans, x, y, z: t * y * 10.0, None, lambda t, ans, x, y, z: t + 0.0 * ans)
    primals = tuple(np.float32(v) for v in (2.0, 3.0, 4.0))
    y, dy = ts.jvp(f, primals, (np.float32(1.0),) * 3)
    assert y == 10.0 and dy == 31.0
    assert [float(v) for v in ts.jit(ts.grad(f, argnums=(0, 1, 2)))(*primals)] == [30.0, 0.0, 1.0]
    rows = ts.vmap(ts.grad(f), in_axes=(0, None, None))(X, 3.0, 1.0)
    assert rows.tolist() == [30.0] * 3
    g = ts.custom_jvp(xp.sin)
    g.defjvps(lambda t, ans, x: xp.cos(x) * t)
    assert ts.grad(ts.grad(g))(np.float32(0.5)) == pytest.approx(-np.sin(0.5), rel=1e-6)
    with pytest.raises(ts.TesseraError, match="a rule for each of 3 arguments, got 1"):
        ts.jvp(ts.custom_jvp(lambda x, y, z: x).defjvps(None), primals, primals)
