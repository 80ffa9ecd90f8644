"""Functions that are traced once for all sizes: names of extents in annotations, guards, what is said of them."""

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp
from tessera.trace.execute import oracle

RNG = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def test_one_trace_serves_every_size():
    calls = []

    @ts.jit
    def f(x: ts.Tensor["B", 16], w: ts.Tensor[16, "H"]):
        calls.append(1)
        return nn.gelu(x @ w).sum(-1) + x.mean(-1)

    for b, h in ((4, 8), (9, 8), (1, 3), (0, 5), (4, 8)):
        x, w = normal(b, 16), normal(16, h)
        got = f(x, w)
        with oracle():
            want = ts.jit(lambda x, w: nn.gelu(x @ w).sum(-1) + x.mean(-1))(x, w)
        assert got.shape == (b,)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
    assert len(calls) == 1 and f.retraces == []
    text = f.trace(normal(2, 16), normal(16, 2))
    assert "func @f(%x: tensor<[B, 16], f32>, %w: tensor<[16, H], f32>)" in text and "tensor<[B, H], f32>" in text
    said = f.explain()
    assert "f: traced once" in said and "for [B, 16] f32, [16, H] f32" in said and said.count("compiled for") == 4, said


def test_means_and_shapes_of_open_extents():
    """The extent as a number of the function, in means; shapes that are joined, cut, stretched and folded."""

    @ts.jit
    def f(x: ts.Tensor["n", "m"], y: ts.Tensor["n", "m"]):
        both = xp.concat([x, y], 0)
        flat = both.reshape(-1)
        halves = xp.stack([flat[: x.size], flat[x.size :]])
        back = halves.reshape(2 * x.shape[0], x.shape[1])
        return back.mean(0), back[1:].sum(), xp.zeros(x.shape) + x / x.shape[0], both.T.reshape(x.shape[1], 2, x.shape[0])

    for n, m in ((3, 4), (5, 2), (2, 7)):
        x, y = normal(n, m), normal(n, m)
        mean, rest, scaled, folded = f(x, y)
        both = np.concatenate([x, y])
        np.testing.assert_allclose(mean, both.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rest, both[1:].sum(), rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(scaled, x / n, rtol=1e-6)
        np.testing.assert_array_equal(folded, both.T.reshape(m, 2, n))
    assert f.retraces == [], f.explain()


def test_derivatives_and_maps_of_open_extents():
    @ts.jit
    def f(x: ts.Tensor["B", "D"], p: {"w": ts.Tensor["D", "H"], "b": ts.Tensor["H"]}):
        def loss(p, row):
            return (xp.tanh(row @ p["w"] + p["b"]) ** 2).sum()

        total = ts.grad(lambda p: ts.vmap(lambda row: loss(p, row))(x).mean())
        return total(p), ts.hvp(lambda w: loss({**p, "w": w}, x[0]), p["w"], p["w"])

    for b, d, h in ((3, 4, 5), (2, 6, 3)):
        x, p = normal(b, d, dtype=np.float64), {"w": normal(d, h, dtype=np.float64), "b": normal(h, dtype=np.float64)}
        grads, second = f(x, p)
        t = np.tanh(x @ p["w"] + p["b"])
        dz = 2 * t * (1 - t * t) / b
        np.testing.assert_allclose(grads["w"], x.T @ dz, rtol=1e-9)
        np.testing.assert_allclose(grads["b"], dz.sum(0), rtol=1e-9)
        assert second.shape == (d, h)
    assert f.retraces == [], f.explain()


def test_a_model_is_trained_at_several_lengths():
    block, norm = nn.TransformerBlock(16, 4), nn.LayerNorm(16)
    key = ts.random.key(0)
    params = {"block": block.init(key), "norm": norm.init(key), "table": normal(11, 16)}

    def loss_of(params, tokens, targets):
        x = nn.embedding(params["table"], tokens)
        return nn.cross_entropy(norm(params["norm"], block(params["block"], x)) @ params["table"].T, targets)

    def step(params, tokens: ts.Tensor["B", "T", ts.i32], targets: ts.Tensor["B", "T", ts.i32]):
        return ts.value_and_grad(loss_of)(params, tokens, targets)

    once, plain = ts.jit(step), ts.jit(lambda p, a, b: ts.value_and_grad(loss_of)(p, a, b))
    for b, t in ((2, 6), (3, 9), (1, 4)):
        tokens, targets = RNG.integers(0, 11, (2, b, t)).astype(np.int32)
        (loss, grads), (want, wanted) = once(params, tokens, targets), plain(params, tokens, targets)
        np.testing.assert_allclose(loss, want, rtol=1e-6)
        np.testing.assert_allclose(grads["table"], wanted["table"], rtol=1e-4, atol=1e-6)
    assert once.retraces == [], once.explain()


def test_a_question_that_sizes_answer_differently_is_a_guard():
    @ts.jit
    def f(x: ts.Tensor["n"]):
        if x.shape[0] > 4:
            return x * 2
        return x + 1

    x = normal(6)
    assert (f(x) == x * 2).all() and (f(x[:5]) == x[:5] * 2).all() and f.retraces == []
    assert (f(x[:3]) == x[:3] + 1).all()
    assert len(f.retraces) == 1 and "`n >= 5`" in f.retraces[0] and "does not hold with n = 3" in f.retraces[0], f.retraces
    assert __file__.rpartition("/")[2] in f.retraces[0]
    # Both traces are kept.
    assert (f(normal(8)).shape, f(normal(2)).shape, len(f.retraces)) == ((8,), (2,), 1)
    assert "while n >= 5" in f.explain() and "while n < 5" in f.explain(), f.explain()


def test_where_python_needs_the_number_the_trace_is_for_it_alone():
    @ts.jit
    def f(x: ts.Tensor["n", "m"]):
        total = 0.0
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total

    for n, m in ((3, 4), (3, 5), (2, 4)):
        x = normal(n, m)
        np.testing.assert_allclose(f(x), (x * np.arange(n)[:, None]).sum(0), rtol=1e-5, atol=1e-6)
    assert len(f.retraces) == 1 and "`n == 3`" in f.retraces[0]


def test_what_is_known_for_every_size_is_no_guard():
    @ts.jit
    def f(x: ts.Tensor["n"]):
        n = x.shape[0]
        assert n >= 0 and n + 1 > n and n != n + 1 and 2 * n == n + n and (6 * n) // 3 == 2 * n and (4 * n) % 2 == 0 and n != -1
        assert not n < 0 and n <= n and max(n, n) == n and -n + n == 0 and {n: 1}[x.shape[0]] == 1 and n // n == 1
        return x

    assert f(normal(3)).shape == (3,)
    assert "while n != 0" in f.explain() and f.explain().count("while") == 1, f.explain()


def test_shape_errors_are_in_symbols():
    @ts.jit
    def added(x: ts.Tensor["n"], y: ts.Tensor["m"]):
        return x + y

    for sizes in ((3, 4), (3, 3)):
        with pytest.raises(ts.TesseraError) as e:
            added(normal(sizes[0]), normal(sizes[1]))
        assert e.value.code == "E_SHAPE_MISMATCH" and "[n]" in str(e.value) and "[m]" in str(e.value), str(e.value)
        assert "return x + y" in str(e.value)

    @ts.jit
    def product(x: ts.Tensor["n", "k"], y: ts.Tensor[8, "n"]):
        return x @ y

    with pytest.raises(ts.TesseraError, match=r"\[n, k\].*\[8, n\]"):
        product(normal(4, 8), normal(8, 4))


def test_sizes_that_do_not_fit_the_names():
    @ts.jit
    def f(x: ts.Tensor["n", 4], y: ts.Tensor["n"], z: ts.Tensor["4*n"] = None):
        return x.sum(-1) + y

    def error(*args):
        with pytest.raises(ts.TesseraError) as e:
            f(*args)
        return e.value.code, str(e.value)

    code, text = error(normal(3, 4), normal(5))
    assert code == "E_SHAPE_MISMATCH" and "expected `n` to be 3, as in axis 0 of `x`, got 5 in axis 0 of `y`" in text, text
    assert "expected 4 in axis 1 of `x`" in error(normal(3, 5), normal(3))[1]
    assert "got [3]" in error(normal(3), normal(3))[1]
    assert "expected 4*n = 12 in axis 0 of `z`, got 11" in error(normal(3, 4), normal(3), normal(11))[1]
    assert f(normal(3, 4), normal(3), normal(12)).shape == (3,)

    @ts.jit
    def typed(x: ts.Tensor["n", ts.f32]):
        return x

    with pytest.raises(ts.TesseraError, match="expected `x` to be f32, as its annotation says, got f64"):
        typed(normal(3, dtype=np.float64))

    @ts.jit
    def unknown(x: ts.Tensor["a*b"]):
        return x

    with pytest.raises(ts.TesseraError, match="expected `a` of axis 0 of `x` to be the extent of an axis by itself"):
        unknown(normal(6))


def test_bindings_say_a_size_once_and_for_all():
    def f(x: ts.Tensor["n", "m"]):
        return x * x.shape[1]

    fixed = ts.jit(f, bindings={"m": 4})
    assert (fixed(normal(3, 4)).shape, fixed(normal(5, 4)).shape, fixed.retraces) == ((3, 4), (5, 4), [])
    assert "tensor<[n, 4], f32>" in fixed.trace(normal(3, 4))
    with pytest.raises(ts.TesseraError, match="expected `m` to be 4, as `bindings` says, got 5"):
        fixed(normal(3, 5))
    with pytest.raises(ts.TesseraError, match="expected `bindings`"):
        ts.jit(f, bindings={"m": "four"})


def test_the_oracle_takes_open_extents():
    @ts.jit
    def f(x: ts.Tensor["n", 3]):
        return xp.concat([x, x]).reshape(-1), x.mean()

    with oracle():
        for n in (2, 5):
            x = normal(n, 3)
            doubled, mean = f(x)
            assert (doubled == np.concatenate([x, x]).reshape(-1)).all() and mean == pytest.approx(x.mean(), rel=1e-5)
    assert f.retraces == []


def test_a_kernel_inside_is_for_the_sizes_at_hand():
    @ts.kernel
    def doubled(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.program_id(0) * 64
        y[i : i + 64] = 2.0 * x[i : i + 64]

    @ts.jit
    def f(x: ts.Tensor["n", ts.f32]):
        return doubled(x) + 1

    for n in (5, 70):
        x = normal(n)
        np.testing.assert_allclose(f(x), 2 * x + 1, rtol=1e-6)
