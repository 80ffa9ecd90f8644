"""Optimisers, random numbers, checkpoints, loaders: what training is made of."""

import numpy as np
import pytest
import safetensors.numpy

import tessera as ts
from tessera import nn, optim
from tessera.trace.execute import oracle

RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 4)).astype(np.float32)


def quadratic(w):
    return ((w - 1.0) ** 2).sum()


def steps(opt, count, w=W):
    params, state = {"w": w}, opt.init({"w": w})

    @ts.jit
    def step(params, state):
        grads = ts.grad(lambda p: quadratic(p["w"]))(params)
        return opt.update(params, grads, state)

    for _ in range(count):
        params, state = step(params, state)
    return params["w"], state


def numpy_steps(rule, count):
    w, m, v = W.astype(np.float64), 0.0, 0.0
    for t in range(1, count + 1):
        w, m, v = rule(w, 2 * (w - 1), m, v, t)
    return w


def adam(decay, decoupled):
    def rule(w, g, m, v, t):
        g = g + (0 if decoupled else decay * w)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        move = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8) + (decay * w if decoupled else 0)
        return w - 0.05 * move, m, v

    return rule


def sgd(w, g, m, v, t):
    m = 0.9 * m + g
    return w - 0.01 * (g + 0.9 * m), m, v


def lion(w, g, m, v, t):
    return w - 0.01 * (np.sign(0.9 * m + 0.1 * g) + 0.1 * w), 0.99 * m + 0.01 * g, v


@pytest.mark.parametrize(
    ("opt", "rule"),
    [
        (optim.SGD(lr=0.01, momentum=0.9, nesterov=True), sgd),
        (optim.SGD(lr=0.01), lambda w, g, m, v, t: (w - 0.01 * g, m, v)),
        (optim.Adam(lr=0.05, weight_decay=0.1), adam(0.1, False)),
        (optim.AdamW(lr=0.05, weight_decay=0.1), adam(0.1, True)),
        (optim.Lion(lr=0.01, weight_decay=0.1), lion),
    ],
)
def test_optimisers(opt, rule):
    got, state = steps(opt, 7)
    np.testing.assert_allclose(got, numpy_steps(rule, 7), rtol=2e-5, atol=2e-6)
    assert int(state["step"]) == 7
    assert got.dtype == np.float32


def test_narrow_parameters_have_a_master():
    got, state = steps(optim.SGD(lr=1e-4), 20, ts.array(W, "bf16"))
    assert state["master"]["w"].dtype == np.float32
    start = ts.array(W, "bf16").astype(np.float32)
    # In bf16 alone steps so small would be lost.
    np.testing.assert_allclose(state["master"]["w"], 1 + (start - 1) * (1 - 2e-4) ** 20, rtol=2e-3, atol=1e-4)
    assert (state["master"]["w"] != start).any()
    np.testing.assert_array_equal(got, state["master"]["w"].astype(got.dtype))


def test_schedules():
    at = lambda s, *steps: [float(s(np.int64(t))) for t in steps]  # noqa: E731
    assert at(optim.linear(0.0, 1.0, 10), 0, 5, 10, 20) == pytest.approx([0, 0.5, 1, 1])
    assert at(optim.cosine(1.0, 10), 0, 5, 10) == pytest.approx([1, 0.5, 0], abs=1e-6)
    assert at(optim.warmup_cosine(1.0, 4, 12), 0, 2, 4, 8, 12) == pytest.approx([0, 0.5, 1, 0.5, 0], abs=1e-6)
    assert at(optim.exponential(1.0, 0.5, 2), 0, 2, 4) == pytest.approx([1, 0.5, 0.25])


def test_clipping():
    grads = {"a": np.full(3, 3.0, np.float32), "b": np.full(1, 4.0, np.float32)}
    norm = float(optim.global_norm(grads))
    assert norm == pytest.approx(np.sqrt(43))
    clipped = optim.clip_by_global_norm(grads, 1.0)
    assert float(optim.global_norm(clipped)) == pytest.approx(1.0)
    same = optim.clip_by_global_norm(grads, 100.0)
    np.testing.assert_allclose(same["a"], grads["a"])
    np.testing.assert_array_equal(optim.clip_by_value(grads, 3.5)["b"], [3.5])


def test_loss_scaling():
    scaler = optim.LossScaler(start=8.0, interval=2)
    state = scaler.init()
    assert float(scaler.scale(np.float32(2), state)) == 16.0
    grads, ok = scaler.unscale({"w": np.full(2, 16.0, np.float16)}, state)
    assert bool(ok) and grads["w"].tolist() == [2.0, 2.0] and grads["w"].dtype == np.float32
    state = scaler.update(scaler.update(state, True), True)
    assert (float(state["scale"]), int(state["good"])) == (16.0, 0)
    _, ok = scaler.unscale({"w": np.full(2, np.inf, np.float16)}, state)
    state = scaler.update(state, ok)
    assert not bool(ok) and float(state["scale"]) == 8.0
    kept = scaler.choose(ok, {"w": np.ones(2)}, {"w": np.zeros(2)})
    assert kept["w"].tolist() == [0.0, 0.0]


# Random numbers


def test_random_words_are_those_of_the_tile_language():
    @ts.kernel
    def words(seed: ts.i64, out: ts.Out["n", ts.u32]):
        i = ts.tile.linear_id()
        if i < n:  # noqa: F821
            out[i] = ts.tile.philox(seed, i)
        return out

    want = np.empty(50, np.uint32)
    words(1234, want)
    np.testing.assert_array_equal(ts.random.bits(ts.random.key(1234), (5, 10)).reshape(-1), want)
    with oracle():
        np.testing.assert_array_equal(ts.random.bits(ts.random.key(1234), (50,)), want)


def test_distributions():
    key = ts.random.key(3)
    u = ts.random.uniform(key, (20000,), low=-1.0, high=3.0)
    assert -1 <= u.min() and u.max() < 3 and abs(u.mean() - 1) < 0.05
    z = ts.random.normal(key, (20000,), "f64", 2.0, 3.0)
    assert abs(z.mean() - 2) < 0.1 and abs(z.std() - 3) < 0.1 and z.dtype == np.float64
    assert abs(((z - 2) ** 4).mean() / 81 - 3) < 0.3
    t = ts.random.truncated_normal(key, shape=(5000,))
    assert np.abs(t).max() <= 2.0
    i = ts.random.randint(key, (20000,), 5, 9)
    assert sorted(set(i.tolist())) == [5, 6, 7, 8]
    assert abs(ts.random.bernoulli(key, 0.25, (20000,)).mean() - 0.25) < 0.02
    assert sorted(ts.random.permutation(key, 100).tolist()) == list(range(100))
    c = ts.random.categorical(key, np.tile(np.log(np.array([0.2, 0.8], np.float32)), (5000, 1)))
    assert abs(c.mean() - 0.8) < 0.03


def test_keys():
    keys = ts.random.split(ts.random.key(0), 100)
    assert len(set(keys.tolist())) == 100 and np.asarray(keys).dtype == np.uint64
    assert int(ts.random.fold_in(ts.random.key(0), 1)) != int(ts.random.fold_in(ts.random.key(0), 2))
    a, b = (ts.random.normal(k, (4,)) for k in keys[:2])
    assert not np.array_equal(a, b)
    np.testing.assert_array_equal(ts.jit(lambda k: ts.random.normal(k, (4,)))(keys[0]), a)


def test_dropout():
    x = np.ones((100, 100), np.float32)
    y = nn.dropout(ts.random.key(1), x, 0.25)
    assert abs((y == 0).mean() - 0.25) < 0.02
    np.testing.assert_allclose(y[y != 0], 1 / 0.75, rtol=1e-6)
    g = ts.grad(lambda v: nn.dropout(ts.random.key(1), v, 0.25).sum())(x)
    np.testing.assert_array_equal(g, y)


# Layers


@pytest.mark.parametrize(
    ("layer", "shape", "out"),
    [
        (nn.Linear(4, 3), (2, 4), (2, 3)), (nn.LayerNorm(4), (2, 4), (2, 4)), (nn.RMSNorm(4), (2, 4), (2, 4)),
        (nn.MLP(4, 8), (2, 3, 4), (2, 3, 4)), (nn.Attention(8, 2), (2, 3, 8), (2, 3, 8)),
        (nn.TransformerBlock(8, 2), (2, 3, 8), (2, 3, 8)), (nn.Conv2d(3, 4), (2, 3, 5, 5), (2, 4, 5, 5)),
        (nn.GroupNorm(2, 4), (2, 4, 3), (2, 4, 3)), (nn.Sequential(nn.Linear(4, 5), nn.relu, nn.Linear(5, 1)), (2, 4), (2, 1)),
    ],
)  # fmt: skip
def test_layers_have_gradients(layer, shape, out):
    params = layer.init(ts.random.key(0))
    x = RNG.standard_normal(shape).astype(np.float32)
    apply = ts.jit(lambda p, v: layer(p, v))
    assert apply(params, x).shape == out
    grads = ts.grad(lambda p: (layer(p, x) ** 2).mean())(params)
    assert all(np.isfinite(g).all() and g.shape == p.shape for g, p in zip(ts.tree.leaves(grads), ts.tree.leaves(params), strict=True))
    assert any(np.abs(g).max() > 0 for g in ts.tree.leaves(grads))


# Checkpoints and data


def test_checkpoints_are_exact(tmp_path):
    tree = {
        "a": [np.array([np.nan, -0.0, 1e-40], np.float32), ts.array([1.5, 2.5], "bf16")],
        "b": (np.arange(3), np.array(7, np.int64)), "c": None, "n": 3, "x": 0.1, "e": np.zeros((0, 3)),
        "f8": ts.array([0.5, 2.0], "fp8_e4m3"), "f4": ts.array([0.5, 2.0], "fp4_e2m1"), "t": np.array([True, False]),
    }  # fmt: skip
    ts.save(tmp_path / "c.safetensors", tree)
    back = ts.load(tmp_path / "c.safetensors")
    assert ts.tree.flatten(back)[1] == ts.tree.flatten(tree)[1]
    for a, b in zip(ts.tree.leaves(tree), ts.tree.leaves(back), strict=True):
        assert type(a) is type(b)
        if hasattr(a, "dtype"):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        else:
            assert a == b
    first = (tmp_path / "c.safetensors").read_bytes()
    ts.save(tmp_path / "d.safetensors", tree)
    assert (tmp_path / "d.safetensors").read_bytes() == first
    with pytest.raises(ts.TesseraError, match=r"expected `\['a'\]` in"):
        ts.save(tmp_path / "e.safetensors", {"a": np.zeros(3)})
        ts.load(tmp_path / "e.safetensors", like={"a": np.zeros(4)})


def test_files_of_others_can_be_read(tmp_path):
    safetensors.numpy.save_file({"w": W}, tmp_path / "o.safetensors")
    np.testing.assert_array_equal(ts.load(tmp_path / "o.safetensors")["w"], W)


def test_resuming_is_exact(tmp_path):
    text = "the quick brown fox jumps over the lazy dog. " * 8
    tokenizer = ts.data.CharTokenizer(text)
    table = nn.Embedding(tokenizer.size, 8)
    layer = nn.Sequential(nn.Linear(8, 16), nn.gelu, nn.Linear(16, tokenizer.size))
    opt = optim.AdamW(lr=1e-2)

    @ts.jit
    def step(params, state, tokens, targets):
        f = lambda p: nn.cross_entropy(layer(p["l"], table(p["t"], tokens)), targets)  # noqa: E731
        loss, grads = ts.value_and_grad(f)(params)
        return (*opt.update(params, grads, state), loss)

    def run(count, kept=None):
        loader = ts.data.TokenLoader(tokenizer.encode(text), 4, 16, seed=5)
        if kept is None:
            params = {"t": table.init(ts.random.key(0)), "l": layer.init(ts.random.key(1))}
            state = opt.init(params)
        else:
            params, state = kept["params"], kept["state"]
            loader.restore(kept["loader"])
        losses = []
        while loader.step < count:
            params, state, loss = step(params, state, *next(loader))
            losses.append(loss.tobytes())
        return losses, {"params": params, "state": state, "loader": loader.state()}

    whole, end = run(12)
    half, middle = run(6)
    ts.save(tmp_path / "m.safetensors", middle)
    rest, again = run(12, ts.load(tmp_path / "m.safetensors"))
    assert half + rest == whole
    assert len(set(whole)) == 12
    for a, b in zip(ts.tree.leaves(end["params"]), ts.tree.leaves(again["params"]), strict=True):
        assert a.tobytes() == b.tobytes()


def test_loaders():
    tokens = np.arange(100, dtype=np.uint16)
    loader = ts.data.TokenLoader(tokens, 3, 8, seed=1)
    x, y = next(loader)
    assert x.shape == (3, 8) and np.array_equal(x + 1, y)
    again = ts.data.TokenLoader(tokens, 3, 8, seed=1)
    np.testing.assert_array_equal(next(again)[0], x)
    assert not np.array_equal(next(loader)[0], x)
    tokenizer = ts.data.CharTokenizer("hello")
    assert tokenizer.decode(tokenizer.encode("hole")) == "hole"
    with pytest.raises(ts.TesseraError, match="'z'"):
        tokenizer.encode("z")


@pytest.mark.parametrize(
    "make,text",
    [
        (lambda: optim.Adam(lr="a"), "Adam: expected `lr` to be a number"),
        (lambda: optim.SGD(lr=-1.0), "SGD: expected `lr` to be a number of at least 0"),
        (lambda: optim.AdamW(lr=float("nan")), "AdamW: expected `lr`"),
        (lambda: optim.Lion(lr=None), "Lion: expected `lr`"),
        (lambda: optim.Adam(lr=np.ones(3)), "Adam: expected `lr`"),
        (lambda: optim.Adam(b1=1.0), "expected `b1` to be a number of at least 0 and below 1"),
        (lambda: optim.AdamW(b2="b"), "AdamW: expected `b2`"),
        (lambda: optim.Lion(b2=-0.1), "Lion: expected `b2`"),
        (lambda: optim.Adam(eps=-1e-8), "Adam: expected `eps`"),
        (lambda: optim.AdamW(weight_decay="x"), "AdamW: expected `weight_decay`"),
        (lambda: optim.SGD(momentum=2), "SGD: expected `momentum`"),
        (lambda: optim.SGD(nesterov=1), "SGD: expected `nesterov` to be True or False"),
        (lambda: optim.SGD(nesterov=True), "SGD: expected a momentum above 0"),
        (lambda: optim.Adam(master="yes"), "Adam: expected `master`"),
        (lambda: optim.LossScaler(backoff=1.5), "LossScaler: expected `backoff`"),
        (lambda: optim.LossScaler(interval=0.5), "LossScaler: expected `interval`"),
        (lambda: optim.cosine("a", 10), "cosine: expected `start`"),
        (lambda: optim.linear(0.0, 1.0, 0), "linear: expected `steps`"),
        (lambda: optim.exponential(1.0, 0.0), "exponential: expected `factor`"),
        (lambda: optim.warmup_cosine(1.0, 4, 2.5), "warmup_cosine: expected `steps`"),
    ],
)
def test_hyperparameters_are_refused_where_they_are_given(make, text):
    with pytest.raises(ts.TesseraError) as raised:
        make()
    assert text in raised.value.message
    assert raised.value.file == __file__ and raised.value.help
