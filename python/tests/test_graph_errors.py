"""What users do wrong with whole functions: each error names their line and says what to do."""

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp

X = np.ones((3, 4), np.float32)


def refused(kind, text, fn, *args, line=None):
    with pytest.raises(ts.TesseraError) as raised:
        fn(*args)
    error = raised.value
    assert isinstance(error, kind)
    assert text in str(error)
    assert error.file == __file__, error.file
    if line is not None:
        assert line in open(__file__).read().splitlines()[error.line - 1]
    return error


def test_a_loss_with_axes():
    error = refused(ts.ShapeError, "to give one float to differentiate, got [3, 4] f32", ts.grad(lambda x: x * 2), X)
    assert ".sum()" in error.help


def test_a_loss_of_integers():
    refused(ts.KernelTypeError, "one float to differentiate", ts.grad(lambda x: (x > 0).sum()), X)


def test_gradients_of_integers():
    error = refused(ts.KernelTypeError, "got i64 for argument 0 of `lambda`", ts.grad(lambda x: x.sum()), np.arange(3))
    assert "argnums" in error.help


KEPT = []


def test_a_value_that_left_its_trace():
    ts.jit(lambda x: KEPT.append(x * 2) or x)(X)
    error = refused(ts.TesseraError, "whose trace is over", ts.jit(lambda x: x + KEPT[0]), X, line="KEPT[0]")
    assert "return it" in error.help
    assert "test_graph_errors.py" in error.message


def test_assignment_into_a_traced_value():
    def f(x):
        x[0] = 1.0  # this line
        return x

    error = refused(ts.UnsupportedError, "no side effects", ts.jit(f), X, line="# this line")
    assert ".at[index].set" in error.help


def test_python_branches_on_traced_values():
    def f(x):
        if x.sum() > 0:  # a branch
            return x
        return -x

    error = refused(ts.KernelTypeError, "where Python needs a bool", ts.jit(f), X, line="# a branch")
    assert "ts.cond" in error.help
    refused(ts.KernelTypeError, "where Python needs a float", ts.jit(lambda x: float(x.sum())), X)
    refused(ts.KernelTypeError, "where Python needs a NumPy array", ts.jit(lambda x: np.sin(np.asarray(x))), X)


def test_a_shape_deep_inside_a_model():
    model = nn.Sequential(nn.Linear(4, 8), nn.gelu, nn.Linear(9, 2))

    def loss(params, x):
        return model(params, x).sum()  # the call

    params = model.init(ts.random.key(0))
    error = refused(ts.ShapeError, "Linear(9, 2): expected a last axis of 9, got shape [3, 8]", ts.grad(loss), params, X, line="# the call")
    assert "change the layer" in error.help


def test_shapes_of_operators():
    refused(ts.ShapeError, "got [3, 4] and [3]", ts.jit(lambda x: x + x[:, 0]), X)
    refused(ts.ShapeError, "got [3, 4] and [3, 4]", ts.jit(lambda x: x @ x), X)
    refused(ts.ShapeError, "got [3, 4] to [5] with 5", ts.jit(lambda x: x.reshape(5)), X)
    refused(ts.ShapeError, "einsum: expected one extent for `j`", ts.jit(lambda x: xp.einsum("ij,jk->ik", x, x)), X)


def test_masks_have_no_known_extent():
    error = refused(ts.TesseraError, "not known while tracing", ts.jit(lambda x: x[x > 0]), X)
    assert "xp.where" in error.help


def test_results_that_are_no_arrays():
    with pytest.raises(ts.TesseraError, match=r"got str at result\['name'\]"):
        ts.jit(lambda x: {"name": "n", "x": x})(X)


def test_carried_values_keep_their_types():
    refused(ts.ShapeError, "expected carry to stay f32 of shape [4]", ts.jit(lambda x: ts.scan(lambda c, v: (x, v), x[0], x)), X)


def test_cotangents():
    _, pull = ts.vjp(lambda x: x * 2, X)
    refused(ts.ShapeError, "cotangent of shape [3, 4]", pull, np.ones(3, np.float32))
    refused(ts.KernelTypeError, "cotangent of f32", pull, np.ones((3, 4)))


def test_custom_rules_use_arguments_only():
    def f(w, x):
        g = ts.custom_vjp(lambda v: v * w)
        g.defvjp(lambda v: (v, ()), lambda kept, d: (d,))
        return g(x).sum()

    error = refused(ts.UnsupportedError, "uses its arguments only", ts.grad(f), X, X)
    assert "pass the value" in error.help


def test_a_value_kept_from_a_trace_is_named_also_beside_a_number():
    kept = []

    @ts.jit
    def keeps(x):
        kept.append(x)
        return x

    keeps(np.ones(3, np.float32))
    for use in (lambda: kept[0] + 1, lambda: 1 - kept[0], lambda: ts.xp.exp(kept[0])):
        with pytest.raises(ts.TesseraError) as caught:
            use()
        assert caught.value.code == "E_GRAPH_INVALID" and "return it instead" in caught.value.help


def test_functions_of_numpy_on_traced_values():
    x = np.arange(1, 5, dtype=np.float32)

    def error(fn):
        with pytest.raises(ts.TesseraError) as found:
            ts.jit(fn)(x)
        return found.value

    for call, name in ((np.sin, "sin"), (np.sum, "sum"), (lambda t: np.concatenate([t, t]), "concatenate"), (np.add.reduce, "add.reduce")):
        got = error(call)
        assert got.code == "E_TYPE" and f"`numpy.{name}`" in str(got) and "tessera.xp" in got.help
    assert "use `xp.sin`" in error(np.sin).help

    def summed(t):
        total = np.zeros(4, np.float32)
        total += t
        return total

    got = error(summed)
    assert got.code == "E_UNSUPPORTED" and "no side effects on arrays" in str(got) and "total += t" in str(got)
    # Its operators are ours, whichever side the array is on.
    both = ts.jit(lambda t: (x + t, x - t, t - x, x / t, x @ t, x < t, np.float32(2) * t, np.add(t, x), x**t, x // t, x % t))
    wanted = (x + x, x - x, x - x, x / x, x @ x, x < x, 2 * x, x + x, x**x, x // x, x % x)
    for got, right in zip(both(x), wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-6)
    assert ts.jit(lambda t: t * np.ndim(t) + np.shape(t)[0])(x).tolist() == (x + 4).tolist()


def test_whole_numbers_that_are_too_large():
    error = refused(ts.TesseraError, "for `x`, got 1180591620717411303424", ts.jit(lambda x: x * 2), 2**70)
    assert "a float" in error.help


@pytest.mark.parametrize(
    "f", [lambda n: ts.xp.zeros((n,)), lambda n: ts.xp.arange(n), lambda n: ts.xp.arange(0, 9, n), lambda n: ts.xp.broadcast_to(1.0, (n, 2))]
)
def test_extents_that_are_values_of_the_trace_are_refused(f):
    with pytest.raises(ts.TesseraError) as caught:
        ts.jit(f)(3)
    assert caught.value.code == "E_DYNAMIC_EXTENT"
    assert "static_argnums" in caught.value.help
    assert ts.jit(f, static_argnums=0)(3) is not None


def test_conditions_are_one_value():
    x = np.ones(3, np.float32)
    for f in (lambda x: ts.cond(x > 0, lambda: 1.0, lambda: 2.0), lambda x: ts.while_loop(lambda v: v > 0, lambda v: v - 1, x)):
        with pytest.raises(ts.TesseraError, match="one value, got an array of shape") as caught:
            ts.jit(f)(x)
        assert "xp.where" in caught.value.help


B, I8, U8, I64 = np.array([True, False]), np.ones(2, np.int8), np.ones(2, np.uint8), np.ones(2, np.int64)

#: A function, its argument, the error message, and the help.
OPERANDS = [
    (lambda a: a + a, B, "expected numbers for `+`, got bools", "`a | b`"),
    (lambda a: a - a, B, "expected numbers for `-`, got bools", "`a ^ b`"),
    (lambda a: a * a, B, "expected numbers for `*`, got bools", "`a & b`"),
    (lambda a: -a, B, "expected numbers for `-`, got bools", "`~a`"),
    (lambda a: abs(a), B, "expected numbers for `abs`, got bools", "a.astype(ts.i32)"),
    (lambda a: a // a, B, "expected numbers for `//`, got bools", "a.astype(ts.i32)"),
    (lambda a: a << a, B, "expected integers for `<<`, got bool", "x.astype(ts.i32)"),
    (lambda a: a >> 1, X, "expected integers for `>>`, got f32", "x.astype(ts.i32)"),
    (lambda a: a & a, X, "expected integers or bools for `&`, got f32", "(x > 0) & (y > 0)"),
    (lambda a: ~a, X, "expected integers or bools for `~`, got f32", "`~(x > 0)`"),
    (lambda a: a + 200, I8, "expected a number that i8 holds, -128 to 127, got 200", "x.astype(ts.i16)"),
    (lambda a: a + -1, U8, "expected a number that u8 holds, 0 to 255, got -1", "x.astype(ts.i16)"),
    (lambda a: xp.where(a > 0, a, 70000), U8, "expected a number that u8 holds, 0 to 255, got 70000", "x.astype(ts.i32)"),
    (lambda a: a + 2**63, I64, "expected a number that i64 holds", "x.astype(ts.u64)"),
    (lambda a: a * 2**70, I64, "expected a number that i64 holds", "x.astype(ts.f32)"),
    (lambda a: a == None, X, "expected an array or a number beside `==`, got None", "`x is None`"),  # noqa: E711
    (lambda a: None != a, X, "expected an array or a number beside `!=`, got None", "`x is not None`"),  # noqa: E711
    (lambda a: a + None, X, "expected an array or a number beside `+`, got None", "give an array or a number"),
    (lambda a: "n" + a, X, "expected an array or a number beside `+`, got str", "give an array or a number"),
    (lambda a: a * [1, 2, 3, 4], X, "expected an array or a number beside `*`, got list", "xp.asarray(values)"),
    (lambda a: a * 1j, X, "expected an array or a number beside `*`, got complex", "complex numbers are not supported"),
    (lambda a: xp.add(a, None), X, "expected an array or a number, got None", "give an array or a number"),
    (lambda a: xp.add(a, [1.0]), X, "expected an array or a number, got list", "xp.asarray(values)"),
    (lambda a: hash(a), X, "where Python needs a hash", "use a name or a number as the key"),
    (lambda a: {a: 1}, X, "where Python needs a hash, as the key of a dict", "use a name or a number as the key"),
    (lambda a: f"{a:.2f}", X, "where Python needs text, for `.2f`", "ts.debug.print"),
]


@pytest.mark.parametrize("at", range(len(OPERANDS)))
def test_what_operators_take(at):
    fn, x, message, help = OPERANDS[at]
    error = refused(ts.KernelTypeError, message, ts.jit(fn), x, line="lambda a:")
    assert help in error.help
    for internal in ("const:", "add:", "mul:", "shl:", "operand", "NoneType"):
        assert internal not in str(error)


def test_values_that_fit_are_taken():
    """The ends of every dtype, by value; an operand that is no number may use its own operators."""
    for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64):
        ends = np.iinfo(dtype)
        for n in (int(ends.min), int(ends.max)):
            got = ts.jit(lambda a, n=n: xp.where(a > 0, n, a))(np.ones(1, dtype))
            assert got.dtype == dtype and int(got[0]) == n

    class Own:
        def __radd__(self, other):
            return other * 2

        def __eq__(self, other):
            return other

    np.testing.assert_array_equal(ts.jit(lambda a: a + Own())(X), 2 * X)
    np.testing.assert_array_equal(ts.jit(lambda a: a == Own())(X), X)
