"""`ts.jit`: what is traced, when it is traced again, and what comes out."""

import dataclasses

import fake_torch
import numpy as np
import pytest

import tessera as ts
from tessera import xp
from tessera.trace.execute import oracle

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_trees_in_and_out():
    @ts.jit
    def f(tree, pair):
        return {"sum": tree["a"] + pair[0], "same": (tree["b"][0], pair[1])}

    out = f({"a": X, "b": [X * 2]}, (X, 3.0))
    np.testing.assert_array_equal(out["sum"], X + X)
    np.testing.assert_array_equal(out["same"][0], X * 2)
    assert float(out["same"][1]) == 3.0


def test_dataclasses_are_trees():
    @dataclasses.dataclass
    class State:
        w: object
        n: object

    out = ts.jit(lambda s: State(s.w * 2, s.n + 1))(State(X, np.int64(4)))
    assert isinstance(out, State)
    assert int(out.n) == 5


def test_one_trace_for_one_signature_and_reasons_for_more():
    calls = []

    @ts.jit
    def f(x, flag="a"):
        calls.append(1)
        return x * 2

    f(X), f(X + 1), f(X)
    assert len(calls) == 1
    f(X[:2])
    f(X.astype(np.float64))
    f(X, flag="b")
    assert len(calls) == 4
    assert "[3, 4] f32 to [2, 4] f32" in f.retraces[0]
    assert "f32 to [3, 4] f64" in f.retraces[1]


def test_many_traces_are_said():
    f = ts.jit(lambda x: x + 1)
    with oracle(), pytest.warns(ts.TesseraWarning, match="W_RESPECIALISE"):
        for n in range(20):
            f(np.zeros(n, np.float32))


def test_static_arguments():
    @ts.jit(static_argnums=1, static_argnames="scale")
    def f(x, n, scale=1):
        for _ in range(n):
            x = x * scale
        return x

    np.testing.assert_array_equal(f(X, 3, scale=2), X * 8)


def test_numbers_are_weak():
    assert ts.jit(lambda x, a: x * a)(X, 2.5).dtype == np.float32
    assert ts.jit(lambda x, a: x * a)(X.astype(np.float64), 0.1)[0, 1] == 0.1
    assert ts.jit(lambda x: x + 1)(np.arange(3, dtype=np.int8)).dtype == np.int8
    assert ts.jit(lambda x: x * 2.5)(np.arange(3, dtype=np.int32)).dtype == np.float32


def test_arrays_around_the_function_are_inputs():
    w = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
    f = ts.jit(lambda x: x @ w)
    np.testing.assert_allclose(f(X), X @ w, rtol=1e-6)
    assert "data =" not in f.trace(X)


def test_arguments_stay_as_they_are():
    x = X.copy()
    ts.jit(lambda x: x.at[0].set(5.0))(x)
    np.testing.assert_array_equal(x, X)


def test_views_and_strides():
    f = ts.jit(lambda x: x + 1)
    np.testing.assert_array_equal(f(X.T), X.T + 1)
    np.testing.assert_array_equal(f(X[::-1, ::2]), X[::-1, ::2] + 1)


def test_jit_inside_jit():
    inner = ts.jit(lambda x: x * 3)
    np.testing.assert_array_equal(ts.jit(lambda x: inner(x) + 1)(X), X * 3 + 1)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i8", "i32", "i64", "u8", "u32"])
def test_dtypes(dtype):
    x = ts.array(np.arange(6).reshape(2, 3), dtype)
    got = ts.jit(lambda a: (a + a, a.sum(), a.astype("f32")))(x)
    assert got[0].dtype == x.dtype
    np.testing.assert_array_equal(got[2], np.arange(6).reshape(2, 3))
    assert float(got[1]) == 15


def test_results_follow_the_inputs(monkeypatch):
    torch = fake_torch.install_on_host(monkeypatch)
    ones = np.ones(3, np.float32)
    out = ts.jit(lambda x: x * 2)(torch.Tensor(ones))
    assert isinstance(out, torch.Tensor) and out.dtype == "torch.float32" and out.numpy().tolist() == [2, 2, 2]
    # NumPy has no bf16 of its own: bits go in and come back.
    half = torch.from_numpy(ts.array(ones, "bf16").view(np.int16)).view(torch.bfloat16)
    for out in ts.jit(lambda x, n: (x * 2, x.astype("bf16") + n))(half, 1):
        assert isinstance(out, torch.Tensor) and out.dtype == "torch.bfloat16"
        assert out.array.view(ts.array(ones, "bf16").dtype).tolist() == [2, 2, 2]


def test_runs_are_equal():
    f = ts.jit(lambda x: xp.tanh(x @ x.T).sum(), deterministic=True)
    assert len({f(X).tobytes() for _ in range(5)}) == 1


def test_options():
    f = lambda x: (x @ x.T).sum()  # noqa: E731
    want = f(X)
    for options in ({"numerics": "strict"}, {"deterministic": True}, {"capture_graph": True}, {"target": "interp"}):
        made = ts.jit(**options)(f)
        assert made(X) == made(X) == pytest.approx(want)
    with pytest.raises(ts.TesseraError, match="expected a profile"):
        ts.jit(f, numerics="loose")
    with pytest.raises(ts.UnsupportedError, match="no `seed`"):
        ts.jit(f, seed=1)


def test_functions_of_the_library_run_eagerly():
    np.testing.assert_array_equal(xp.add(X, 1), X + 1)
    assert xp.arange(4).tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(xp.linspace(0, 1, 5), np.linspace(0, 1, 5))
    np.testing.assert_array_equal(xp.eye(3, 4, k=1), np.eye(3, 4, 1))


def test_old_ops_are_compositions_inside_a_trace():
    def f(x, labels):
        y = ts.op.layernorm(ts.op.gelu(x))
        return ts.op.cross_entropy(y, labels) + ts.op.sum(ts.op.softmax(y)) + ts.op.mean(y) + ts.op.rmsnorm(y).max()

    labels = np.array([0, 1, 3], np.int32)
    y = ts.op.layernorm(ts.op.gelu(X))
    want = ts.op.cross_entropy(y, labels) + ts.op.sum(ts.op.softmax(y)) + ts.op.mean(y) + ts.op.rmsnorm(y).max()
    assert float(ts.jit(f)(X, labels)) == pytest.approx(float(want), rel=1e-5)


# Branches and loops


@pytest.mark.parametrize("mode", ["oracle", "compiled"])
def test_control_flow(mode):
    from contextlib import nullcontext

    with oracle() if mode == "oracle" else nullcontext():
        f = ts.jit(lambda p, x: ts.cond(p, lambda a: a * 2, lambda a: a - 1, x))
        np.testing.assert_array_equal(f(True, X), X * 2)
        np.testing.assert_array_equal(f(False, X), X - 1)
        g = ts.jit(lambda n: ts.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, np.float32(1)))[1])
        assert float(g(5)) == 32.0
        carry, ys = ts.jit(lambda xs: ts.scan(lambda c, x: (c + x, c * 2), np.zeros(4, np.float32), xs))(X)
        np.testing.assert_array_equal(carry, X.sum(0))
        np.testing.assert_array_equal(ys, 2 * np.stack([np.zeros(4), X[0], X[0] + X[1]]))
        h = ts.jit(lambda x: ts.fori_loop(0, 3, lambda i, v: v + x[i], np.zeros(4, np.float32)))
        np.testing.assert_array_equal(h(X), X.sum(0))
        part = ts.jit(lambda x, i: ts.dynamic_slice(x, (i, 1), (1, 2)))
        np.testing.assert_array_equal(part(X, 2), X[2:3, 1:3])


# Kernels


@ts.kernel
def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
    i = ts.tile.linear_id()
    if i < n:  # noqa: F821
        y[i] = alpha * x[i] + y[i]
    return y


def test_a_kernel_is_a_part_of_the_function():
    @ts.jit
    def f(x, y, a):
        return saxpy(x * 2, y, a) + 1

    x, y = np.arange(6, dtype=np.float32), np.ones(6, np.float32)
    for interpreted in (False, True):
        with oracle() if interpreted else np.errstate():
            np.testing.assert_array_equal(f(x, y, 3.0), 6 * x + 2)
    np.testing.assert_array_equal(y, np.ones(6))
    assert "graph.kernel_call" in f.trace(x, y, 3.0)


def test_what_a_kernel_wrote_over_is_gone():
    with pytest.raises(ts.TesseraError, match="newest version") as raised:
        ts.jit(lambda x, y: saxpy(x, y, 1.0) + y)(np.ones(3, np.float32), np.ones(3, np.float32))
    assert raised.value.file == __file__


def test_a_kernel_says_what_does_not_fit():
    with pytest.raises(ts.TesseraError, match="to be f32, got f64"):
        ts.jit(lambda x: saxpy(x, x, 1.0))(np.ones(3))
    with pytest.raises(ts.ShapeError, match="extent n = 3"):
        ts.jit(lambda x, y: saxpy(x, y, 1.0))(np.ones(3, np.float32), np.ones(4, np.float32))


def test_a_plan_is_read_changed_and_fed_back():
    def f(x):
        y = ts.xp.exp(x) + 1.0
        return ts.xp.sum(y * 2.0)

    x = np.arange(12, dtype=np.float32).reshape(3, 4) / 8
    first = ts.jit(f)
    text = first.compiled(x).plan
    assert text.startswith("module @f : schedule {version = 1}") and str(ts.ir.parse(text)) == text
    # The exponentials get memory of their own: one word is another.
    line = next(line for line in text.splitlines() if "sched.fused {op = exp}" in line)
    changed = text.replace(line, line.replace("sched.fused", "sched.store"))
    second = ts.jit(f, plan=changed)
    name = line.split()[0]
    made = second.compiled(x).plan
    assert f"{name} = sched.store" in made and f"{name} = sched.store" not in text
    np.testing.assert_allclose(second(x), first(x), rtol=1e-6)
    # As printed, it is what it was; changed back, it is the first one.
    assert ts.jit(f, plan=made).compiled(x).plan == made
    back = "\n".join(li.replace("sched.store", "sched.fused") if li.split()[:1] == [name] else li for li in made.splitlines())
    assert ts.jit(f, plan=back).compiled(x).plan == text


def test_an_error_in_a_plan_is_reported_at_its_line():
    def f(x):
        return ts.xp.sum(ts.xp.exp(x) * 2.0)

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    text = ts.jit(f).compiled(x).plan
    lines = text.splitlines()

    def error(text):
        with pytest.raises(ts.TesseraError) as found:
            ts.jit(f, plan=text).compiled(x)
        return found.value

    place = next(i for i, line in enumerate(lines) if "sched.store" in line)
    unknown = "  %nothing = sched.store : view<[3], f32, read_write>"
    got = error("\n".join([*lines[:place], unknown, *lines[place:]]))
    assert got.code == "E_NAME" and "expected a value of @f, got %nothing" in str(got) and got.line == place + 1
    place = next(i for i, line in enumerate(lines) if "sched.launch" in line)
    wrong = lines[place].replace("grid = [", "grid = [7, ").replace(", 1]", "]", 1)
    got = error("\n".join([*lines[:place], wrong, *lines[place + 1:]]))
    assert got.code == "E_ARGUMENT" and got.line == place + 1 and "steps follow from what has memory" in str(got)
    got = error("\n".join([*lines[:place], *lines[place + 1:]]))
    assert "before it is read" in str(got) or "expected `sched.launch" in str(got)
    got = error(text.replace("writes = [", "writes = [9, ", 1))
    assert "expected `writes` to name arguments below" in str(got) and got.line == place + 1
    got = error(text + "nonsense")
    assert got.code == "E_SYNTAX" and got.line == len(lines) + 1
    with pytest.raises(ts.TesseraError, match="expected `plan` to be the text of a plan, got int"):
        ts.jit(f, plan=3)


def test_places_of_donated_arguments():
    with pytest.raises(ts.TesseraError, match="expected `donate_argnums` to be places of arguments, got 'x'"):
        ts.jit(lambda x: x, donate_argnums="x")
    with pytest.raises(ts.TesseraError, match="places of the 1 positional arguments of `<lambda>`, got 5"):
        ts.jit(lambda x: x * 2, donate_argnums=5)
    with pytest.raises(ts.TesseraError, match="names of arguments of `<lambda>`, got `y`"):
        ts.jit(lambda x: x * 2, donate_argnames="y")
    with pytest.raises(ts.TesseraError, match="static or donated, got `x` as both"):
        ts.jit(lambda x: x * 2, donate_argnames="x", static_argnums=0)
    x, pair = np.ones(3, np.float32), (np.ones(2, np.float32), np.ones(2, np.float32))
    for f in (ts.jit(lambda a, b: (a, b), donate_argnames="b"), ts.jit(lambda a, b: (a, b), donate_argnums=1)):
        # The leaves of `b`, by place and by name.
        assert f._given((x, pair), {}) == f._given((x,), {"b": pair}) == {1, 2} and f._given((), {"a": x, "b": pair}) == {1, 2}
        assert f(x, b=pair)[1][0].tolist() == [1, 1]


def test_places_of_static_arguments():
    """Against JAX: an argument is static however it is handed over, and places and names are those of the signature."""
    def f(x, n=2):
        return x * n if n > 1 else x

    x = np.float32(1.0)
    for g in (ts.jit(f, static_argnums=1), ts.jit(f, static_argnames="n"), ts.jit(f, static_argnums=-1), ts.jit(f, static_argnums=[1])):
        assert [g(x), g(x, 3), g(x, n=3), g(x=x, n=1), g(x, n=4), g(x, 1)] == [2.0, 3.0, 3.0, 1.0, 4.0, 1.0]
    for bad in (5, -3, (0, 2)):
        with pytest.raises(ts.TesseraError, match="`static_argnums` to be places of the 2 positional arguments of `f`"):
            ts.jit(f, static_argnums=bad)
    with pytest.raises(ts.TesseraError, match="names of arguments of `f`, got `zz`") as caught:
        ts.jit(f, static_argnames="zz")
    assert caught.value.code == "E_ARGUMENT" and "`x`, `n`" in caught.value.help
    for more in ({"static_argnums": "a"}, {"static_argnums": 1.5}, {"static_argnames": 3}):
        with pytest.raises(ts.TesseraError, match="expected `static_arg"):
            ts.jit(f, **more)
    assert ts.jit(lambda x, *rest: x * rest[1], static_argnums=2)(x, 2.0, 5) == 5.0
    assert ts.jit(lambda x, **more: x * more["k"], static_argnames="k")(x, k=3) == 3.0


def test_python_integers_beyond_64_bits_are_refused():
    f = ts.jit(lambda x, p=None: x + 0)
    assert f(7) == f(7) == 7 and f(2**63 - 1) == 2**63 - 1 and f(-(2**63)) == -(2**63)
    for v in (2**63, 2**64 - 1, 2**64, 2**70, -(2**63) - 1):
        with pytest.raises(ts.TesseraError, match=f"number that i64 holds.*for `x`, got {v}"):
            f(v)
    with pytest.raises(ts.TesseraError, match=r"for `p\['a'\]\[0\]`, got 9223372036854775808"):
        f(1.0, p={"a": [2**63]})
    with pytest.raises(ts.TesseraError, match="for `n`, got 9223372036854775808"):
        ts.grad(lambda x, n: x * n)(np.float32(1.0), 2**63)
    assert ts.jit(lambda x: x)(np.uint64(2**63)) == 2**63
    for values in (2**65, [1, 2**65]):
        with pytest.raises(ts.TesseraError, match="numbers that 64 bits hold"):
            ts.xp.asarray(values)


@ts.kernel
def picked(x: ts.Tensor["n", ts.f32], i: ts.Tensor["n", ts.i32], y: ts.Out["n", ts.f32]):
    j = ts.tile.linear_id()
    y[j] = x[i[j]]


def test_arrays_that_are_left_to_a_kernel_come_back_from_a_trace_too():
    x, i = np.arange(4, dtype=np.float32), np.array([2, 0, 3, 1], np.int32)
    assert ts.jit(lambda x: picked(x, i) + 1.0)(x).tolist() == (picked(x, i) + 1.0).tolist() == [3.0, 1.0, 4.0, 2.0]
    w = np.array([1.0, 2.0, 4.0, 8.0], np.float32)
    assert ts.grad(lambda x: ts.xp.sum(picked(x, i) * w))(x).tolist() == [2.0, 8.0, 1.0, 4.0]


@dataclasses.dataclass(frozen=True)
class Fixed:
    w: object
    n: object = dataclasses.field(metadata={"static": True})


def test_static_fields_that_are_equal_and_not_the_same():
    """1, True and 1.0 are equal, and so are zeros of both signs; what is traced with one of them is not that of another."""
    f = ts.jit(lambda p: p.w * 0.0 + KINDS.index(repr(p.n)))
    for n in (1, True, 1.0, 0.0, -0.0, (1, 2.0), (1.0, 2), Fixed(0, 1), Fixed(0, True)):
        assert f(Fixed(np.ones(1, np.float32), n))[0] == KINDS.index(repr(n))
    assert len(f.retraces) == len(KINDS) - 1


KINDS = [repr(n) for n in (1, True, 1.0, 0.0, -0.0, (1, 2.0), (1.0, 2), Fixed(0, 1), Fixed(0, True))]


def test_traced_values_are_no_keys():
    for f in (lambda x: {x: 1.0}, lambda x: [{"a": {x.sum(): x}}], lambda x: Fixed(x, x.sum())):
        with pytest.raises(ts.TesseraError, match="as the key of a dict") as caught:
            ts.jit(f)(X)
        assert caught.value.code == "E_TYPE" and caught.value.help


def test_elements_of_numpys_arrays_are_not_assigned():
    def f(x):
        y = np.zeros(3, np.float32)
        y[0] = x.sum()
        return y

    with pytest.raises(ts.TesseraError, match="known while tracing") as caught:
        ts.jit(f)(X)
    assert caught.value.line == f.__code__.co_firstlineno + 2


def test_static_arguments_that_are_compared_by_identity():
    """Their contents need not be hashable."""

    @dataclasses.dataclass(eq=False)
    class Sizes:
        of: list

    f = ts.jit(lambda x, sizes: x * sizes.of[0], static_argnums=1)
    two, three = Sizes([2.0]), Sizes([3.0])
    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(np.asarray(f(x, two)), 2 * x)
    np.testing.assert_array_equal(np.asarray(f(x, three)), 3 * x)


def test_the_profile_of_a_function_holds_while_it_is_traced():
    """What is chosen while tracing, as the tiles of attention are, may depend on it."""
    seen = []

    def f(x):
        seen.append(str(ts.numerics.profile()))
        return x * 2.0

    x = np.ones(3, np.float32)
    ts.jit(f, numerics="strict")(x)
    with ts.numerics.profile("deterministic"):
        ts.jit(f)(x)
    assert seen == ["strict", "deterministic"]
