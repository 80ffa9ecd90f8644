"""Layers with states, recurrent layers, transposed convolutions, attention to a context, rotary positions, and modules, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp

KEY = ts.random.key(3)


def rand(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def as_double(tree):
    return ts.tree.map(lambda v: np.asarray(v, np.float64), tree)


def numeric(f, x, eps=1e-6):
    """Central differences in f64."""
    x = np.array(x, np.float64)
    out = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[i] += eps
        down[i] -= eps
        out[i] = (f(up) - f(down)) / (2 * eps)
    return out


# Batch normalisation


def test_running_statistics_are_a_state():
    norm = nn.BatchNorm(3, momentum=0.2)
    params, state = norm.init(KEY), norm.init_state()
    params = {"scale": rand(3), "shift": rand(3, seed=1)}
    step = ts.jit(lambda p, x, s: norm(p, x, s, train=True))
    mean, var = np.zeros(3), np.ones(3)
    for i in range(3):
        x = rand(4, 3, 5, seed=i) * 2 + 1
        y, state = step(params, x, state)
        m, v = x.mean((0, 2)), x.var((0, 2))
        want = (x - m[:, None]) / np.sqrt(v[:, None] + 1e-5) * params["scale"][:, None] + params["shift"][:, None]
        np.testing.assert_allclose(y, want, rtol=2e-5, atol=2e-5)
        mean, var = mean * 0.8 + m * 0.2, var * 0.8 + x.var((0, 2), ddof=1) * 0.2
    np.testing.assert_allclose(state["mean"], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state["var"], var, rtol=1e-5)
    x = rand(2, 3, 5, seed=9)
    want = (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-5) * params["scale"][:, None] + params["shift"][:, None]
    np.testing.assert_allclose(norm(params, x, state), want, rtol=2e-5, atol=2e-5)


def test_batch_norm_has_the_derivative_of_its_result_alone():
    norm, x, w = nn.BatchNorm(3), rand(6, 3), rand(6, 3, seed=2)
    params, state = norm.init(KEY), norm.init_state()

    def loss(p, v):
        y, new = norm(p, v, state, train=True)
        return xp.sum(y * w) + xp.sum(new["mean"])

    gp, gx = ts.grad(loss, argnums=(0, 1))(params, x)

    def reference(v):
        return (((v - v.mean(0)) / np.sqrt(v.var(0) + 1e-5)) * w).sum()

    np.testing.assert_allclose(gx, numeric(reference, x), rtol=2e-3, atol=2e-4)
    np.testing.assert_allclose(gp["shift"], w.sum(0), rtol=1e-5)
    with pytest.raises(ts.TesseraError, match="expected the state"):
        norm(params, x, train=True)
    with pytest.raises(ts.ShapeError, match="3, …"):
        norm(params, rand(2, 4), state, train=True)


@pytest.mark.parametrize("train", [False, True])
def test_batch_norm_without_its_state_is_refused(train):
    norm, x = nn.BatchNorm(3), rand(6, 3)
    params = norm.init(KEY)
    with pytest.raises(ts.TesseraError, match=r"BatchNorm\(3\): expected the state") as error:
        norm(params, x, train=train)
    assert error.value.code == "E_ARGUMENT" and "norm.init_state()" in error.value.help and "nn.batchnorm" in error.value.help
    by_batch = nn.batchnorm(x, params["scale"], params["shift"])
    np.testing.assert_allclose(by_batch, norm(params, x, norm.init_state(), train=True)[0], rtol=1e-6)


def test_the_state_of_a_sequential_goes_in_and_comes_out():
    """Against the layers one by one, nested and with a key."""
    first, second, drop = nn.BatchNorm(3, momentum=0.3), nn.BatchNorm(4), nn.Dropout(0.5)
    inner = nn.Sequential(nn.Linear(3, 4), drop, second)
    net = nn.Sequential(nn.Sequential(nn.relu), first, inner, xp.tanh)
    params, state = net.init(KEY), net.init_state()
    assert ts.tree.structure(state) == ts.tree.structure([{}, first.init_state(), [{}, {}, second.init_state()], {}])
    step = ts.jit(lambda p, x, s, k: net(p, x, k, s, train=True))
    one, two = first.init_state(), second.init_state()
    for i in range(3):
        x, key = rand(8, 3, seed=i) * 2 + 1, ts.random.fold_in(KEY, i)
        y, state = step(params, x, state, key)
        want, one = first(params[1], nn.relu(x), one, train=True)
        want = nn.Linear(3, 4)(params[2][0], want)
        want = drop({}, want, key=ts.random.fold_in(ts.random.fold_in(key, 2), 1))
        want, two = second(params[2][2], want, two, train=True)
        np.testing.assert_allclose(y, xp.tanh(want), rtol=2e-5, atol=2e-5)
    for got, kept in ((state[1], one), (state[2][2], two)):
        np.testing.assert_allclose(got["mean"], kept["mean"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got["var"], kept["var"], rtol=1e-5, atol=1e-6)
    x = rand(5, 3, seed=9)
    want = second(params[2][2], nn.Linear(3, 4)(params[2][0], first(params[1], nn.relu(x), one)), two)
    np.testing.assert_allclose(net(params, x, state=state), np.tanh(want), rtol=2e-5, atol=2e-5)
    grads = ts.grad(lambda p: xp.sum(xp.square(net(p, x, KEY, state, train=True)[0])))(params)
    assert float(xp.max(xp.abs(grads[1]["scale"]))) > 0


def test_a_sequential_without_its_state_is_refused():
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.BatchNorm(3)))
    params = net.init(KEY)
    with pytest.raises(ts.TesseraError, match="expected the state of its layers") as error:
        net(params, rand(4, 3))
    assert "model.init_state()" in error.value.help and "train=True" in error.value.help
    with pytest.raises(ts.TesseraError, match="expected states for 2 layers, got 1"):
        net(params, rand(4, 3), state=[{}])
    plain = nn.Sequential(nn.Linear(3, 3))
    y, state = plain(plain.init(KEY), rand(4, 3), train=True)
    assert y.shape == (4, 3) and ts.tree.leaves(state) == []


# Recurrent layers


def lstm(p, x, h, c, reverse=False):
    ys = []
    for t in range(x.shape[1])[:: -1 if reverse else 1]:
        i, f, g, o = np.split(x[:, t] @ p["w_x"] + p["b_x"] + h @ p["w_h"] + p["b_h"], 4, -1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        ys.append(h)
    return np.stack(ys[:: -1 if reverse else 1], 1), (h, c)


def gru(p, x, h, reverse=False):
    ys = []
    for t in range(x.shape[1])[:: -1 if reverse else 1]:
        xr, xz, xn = np.split(x[:, t] @ p["w_x"] + p["b_x"], 3, -1)
        hr, hz, hn = np.split(h @ p["w_h"] + p["b_h"], 3, -1)
        z = sigmoid(xz + hz)
        h = (1 - z) * np.tanh(xn + sigmoid(xr + hr) * hn) + z * h
        ys.append(h)
    return np.stack(ys[:: -1 if reverse else 1], 1), h


@pytest.mark.parametrize("reverse", [False, True])
def test_lstm(reverse):
    layer, x = nn.LSTM(3, 4, reverse=reverse), rand(2, 5, 3)
    params = layer.init(KEY)
    y, (h, c) = ts.jit(layer)(params, x)
    want, (wh, wc) = lstm(as_double(params), x, np.zeros((2, 4)), np.zeros((2, 4)), reverse)
    for got, ref in ((y, want), (h, wh), (c, wc)):
        np.testing.assert_allclose(got, ref, rtol=1e-5, atol=1e-6)
    # From a state of its own, and step by step.
    start = (rand(2, 4, seed=1), rand(2, 4, seed=2))
    y, last = layer(params, x, start)
    want, _ = lstm(as_double(params), x, *start, reverse)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    state = start
    for t in range(5)[:: -1 if reverse else 1]:
        state, out = layer.step(params, state, x[:, t])
    np.testing.assert_allclose(out, last[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
def test_gru(reverse):
    layer, x = nn.GRU(3, 4, reverse=reverse), rand(2, 5, 3)
    params = layer.init(KEY)
    y, h = ts.jit(layer)(params, x)
    want, last = gru(as_double(params), x, np.zeros((2, 4)), reverse)
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(h, last, rtol=1e-5, atol=1e-6)
    with pytest.raises(ts.ShapeError, match="batch, time, 3"):
        layer(params, rand(2, 5, 7))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_recurrent_layers_have_derivatives(kind):
    layer, x, w = getattr(nn, kind)(2, 3), rand(2, 4, 2), rand(2, 4, 3, seed=5)
    params = layer.init(KEY)
    got = ts.jit(ts.grad(lambda p, v: xp.sum(layer(p, v)[0] * w), argnums=(0, 1)))(params, x)

    def reference(p, v):
        made = lstm(p, v, np.zeros((2, 3)), np.zeros((2, 3))) if kind == "LSTM" else gru(p, v, np.zeros((2, 3)))
        return (made[0] * w).sum()

    wide = as_double(params)
    np.testing.assert_allclose(got[1], numeric(lambda v: reference(wide, v), x), rtol=1e-3, atol=1e-5)
    for name in wide:
        np.testing.assert_allclose(got[0][name], numeric(lambda v: reference({**wide, name: v}, x), wide[name]), rtol=1e-3, atol=1e-5)


# Convolutions


def transposed(x, w, stride, padding, output_padding, dilation, groups):
    """Every element of the input puts the window, times itself, into the result."""
    n = x.ndim - 2
    out_each = w.shape[1]
    size = [(x.shape[2 + i] - 1) * stride[i] + (w.shape[2 + i] - 1) * dilation[i] + 1 + output_padding[i] for i in range(n)]
    y = np.zeros((x.shape[0], out_each * groups, *size))
    each = x.shape[1] // groups
    for at in np.ndindex(*x.shape[2:]):
        for k in np.ndindex(*w.shape[2:]):
            to = tuple(a * s + j * d for a, s, j, d in zip(at, stride, k, dilation))
            for g in range(groups):
                part = x[(slice(None), slice(g * each, (g + 1) * each), *at)] @ w[(slice(g * each, (g + 1) * each), slice(None), *k)]
                y[(slice(None), slice(g * out_each, (g + 1) * out_each), *to)] += part
    cut = tuple(slice(p, s - p) for p, s in zip(padding, size))
    return y[(slice(None), slice(None), *cut)]


CASES = [
    ((2, 4, 5), (4, 3, 3), (1,), (0,), (0,), (1,), 1),
    ((2, 4, 5), (4, 3, 4), (3,), (1,), (2,), (1,), 2),
    ((1, 2, 4, 3), (2, 3, 3, 2), (2, 1), (1, 0), (1, 0), (1, 2), 1),
    ((1, 4, 3, 3), (4, 1, 2, 3), (2, 2), (0, 1), (0, 0), (2, 1), 4),
    ((1, 2, 2, 3, 2), (2, 2, 2, 2, 2), (1, 2, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1), 1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transposed_convolution(case):
    xs, ws, stride, padding, more, dilation, groups = case
    x, w = rand(*xs), rand(*ws, seed=1)
    b = rand(ws[1] * groups, seed=2)

    def run(x, w, b):
        return nn.conv_transpose(x, w, b, stride=stride, padding=padding, output_padding=more, dilation=dilation, groups=groups)

    want = transposed(x, w, stride, padding, more, dilation, groups) + b.reshape(-1, *[1] * (len(xs) - 2))
    got = ts.jit(run)(x, w, b)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    # It is linear in each: its derivative is what it does to a cotangent, which the reference says too.
    ct = rand(*want.shape, seed=3)
    gx, gw = ts.grad(lambda x, w: xp.sum(run(x, w, b) * ct), argnums=(0, 1))(x, w)
    dot = (gx * x).sum()
    np.testing.assert_allclose(dot, (transposed(x, w, stride, padding, more, dilation, groups) * ct).sum(), rtol=1e-3)
    np.testing.assert_allclose((gw * w).sum(), dot, rtol=1e-3)


def test_layers_of_convolutions():
    x1, x3 = rand(2, 4, 8), rand(1, 2, 3, 4, 5)
    one = nn.Conv1d(4, 6, 3, stride=2, groups=2)
    p1 = one.init(KEY)
    assert p1["w"].shape == (6, 2, 3) and one(p1, x1).shape == (2, 6, 4)
    padded = np.pad(x1, ((0, 0), (0, 0), (0, 1)))
    want = np.stack([np.einsum("bck,ock->bo", padded[:, :2, 2 * i : 2 * i + 3], np.asarray(p1["w"])[:3]) for i in range(4)], -1)
    np.testing.assert_allclose(np.asarray(one(p1, x1))[:, :3], want, rtol=1e-5, atol=1e-5)
    three = nn.Conv3d(2, 5, (1, 2, 3), padding="valid")
    p3 = three.init(KEY)
    y = three(p3, x3)
    assert y.shape == (1, 5, 3, 3, 3)
    np.testing.assert_allclose(y[0, :, 1, 2, 0], np.einsum("cdhw,ocdhw->o", x3[0, :, 1:2, 2:4, 0:3], np.asarray(p3["w"])), rtol=1e-4, atol=1e-5)
    up = nn.ConvTranspose(4, 3, 4, stride=2)
    assert up(up.init(KEY), rand(2, 4, 5, 6)).shape == (2, 3, 10, 12)
    for window, stride in ((3, 1), (3, 2), (2, 3), (5, 2)):
        flat = nn.ConvTranspose(2, 3, window, stride=stride, axes=1, bias=False)
        assert flat(flat.init(KEY), rand(1, 2, 7)).shape == (1, 3, 7 * stride)
    with pytest.raises(ts.ShapeError, match="axes=1"):
        up(up.init(KEY), rand(2, 4, 5))
    with pytest.raises(ts.ShapeError, match="groups to divide"):
        nn.Conv1d(4, 6, groups=4).init(KEY)


# Attention


def rotated(x, at, base=10000.0, interleaved=False):
    half = x.shape[-1] // 2
    angle = np.asarray(at)[:, None] * base ** (-np.arange(half) / half)
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    c, s = a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle)
    if interleaved:
        return np.stack([c, s], -1).reshape(x.shape)
    return np.concatenate([c, s], -1)


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_positions(interleaved):
    x = rand(2, 3, 6, 8)
    np.testing.assert_allclose(nn.rope(x, interleaved=interleaved), rotated(x, np.arange(6), interleaved=interleaved), rtol=1e-5, atol=1e-5)
    at = np.array([4, 0, 9, 9, 1, 2])
    np.testing.assert_allclose(nn.rope(x, at, 500.0, interleaved=interleaved), rotated(x, at, 500.0, interleaved), rtol=1e-4, atol=1e-5)
    # Products of two depend on the distance alone.
    q, k = rand(1, 8), rand(1, 8, seed=1)
    dots = [float((np.asarray(nn.rope(q, np.array([i + 3]), interleaved=interleaved)) * np.asarray(nn.rope(k, np.array([i]), interleaved=interleaved))).sum()) for i in (0, 5, 20)]
    np.testing.assert_allclose(dots, dots[0], rtol=1e-4)
    # A rotation keeps lengths, so that half the square has the value itself as its derivative.
    g = ts.grad(lambda v: xp.sum(xp.square(nn.rope(v, interleaved=interleaved))) * 0.5)(x)
    np.testing.assert_allclose(g, x, rtol=1e-4, atol=1e-5)
    with pytest.raises(ts.ShapeError, match="even size"):
        nn.rope(rand(3, 5))


def attention(q, k, v, mask=None):
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize("rotary", [False, True])
def test_attention_to_a_context(rotary):
    layer = nn.CrossAttention(8, 4, kv_heads=2, context_size=6, rotary=rotary)
    x, context, mask = rand(2, 5, 8), rand(2, 7, 6, seed=1), rand(2, 1, 5, 7, seed=2) > -0.5
    params = layer.init(KEY)
    p = as_double(params)

    def reference(x, context):
        def heads(part, y, n):
            made = y @ part["w"] + part["b"]
            return made.reshape(2, y.shape[1], n, 2).transpose(0, 2, 1, 3)

        q, k, v = heads(p["q"], x, 4), heads(p["k"], context, 2), heads(p["v"], context, 2)
        if rotary:
            q, k = rotated(q, np.arange(5)), rotated(k, np.arange(7))
        y = attention(q, np.repeat(k, 2, 1), np.repeat(v, 2, 1), mask)
        return y.transpose(0, 2, 1, 3).reshape(2, 5, 8) @ p["out"]["w"] + p["out"]["b"]

    np.testing.assert_allclose(ts.jit(layer)(params, x, context, mask=mask), reference(x, context), rtol=1e-4, atol=1e-5)
    g = ts.grad(lambda c: xp.sum(xp.square(layer(params, x, c, mask=mask))))(context)
    np.testing.assert_allclose(g, numeric(lambda c: (reference(x, c) ** 2).sum(), context), rtol=2e-3, atol=1e-4)
    with pytest.raises(ts.TesseraError, match="expected a context"):
        layer(params, x)


def test_self_attention_is_causal_if_requested():
    layer = nn.MultiHeadAttention(8, 2, causal=True, rotary=True)
    params, x = layer.init(KEY), rand(1, 6, 8)
    changed = x.copy()
    changed[:, 4:] += 1
    a, b = layer(params, x), layer(params, changed)
    np.testing.assert_allclose(a[:, :4], b[:, :4], rtol=1e-6, atol=1e-7)
    assert np.abs(np.asarray(a)[:, 4:] - np.asarray(b)[:, 4:]).max() > 1e-2


# Modules


class Affine(nn.Module):
    w: ts.Array
    b: ts.Tensor["n", ts.f32]
    act: Callable = xp.tanh
    name: str = "affine"

    def __call__(self, x):
        return self.act(x @ self.w + self.b)


class Net(nn.Module):
    layers: list[Affine]
    linear: nn.Linear
    params: dict
    scale: Any
    depth: int

    def __init__(self, key, sizes):
        keys = ts.random.split(key, len(sizes))
        self.layers = [Affine(ts.random.normal(keys[i], (a, b), std=a**-0.5), xp.zeros((b,))) for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
        self.linear = nn.Linear(sizes[-1], 1)
        self.params = self.linear.init(keys[-1])
        self.scale = np.float32(1.5)
        self.depth = len(sizes)

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.linear(self.params, x) * self.scale


def reference_net(net, x):
    for layer in net.layers:
        x = np.tanh(x @ np.asarray(layer.w) + np.asarray(layer.b))
    return (x @ np.asarray(net.params["w"]) + np.asarray(net.params["b"])) * net.scale


def test_a_module_is_a_tree():
    net = Net(KEY, (3, 4, 5))
    assert Affine._leaves == ("w", "b") and Affine._static == ("act", "name")
    assert Net._leaves == ("layers", "params", "scale") and Net._static == ("linear", "depth")
    assert len(ts.tree.leaves(net)) == 7
    assert ts.tree.paths(net)[:2] == [".layers[0].w", ".layers[0].b"]
    twice = ts.tree.map(lambda v: np.asarray(v) * 2, net)
    assert type(twice) is Net and twice.depth == 3
    np.testing.assert_array_equal(twice.layers[1].w, np.asarray(net.layers[1].w) * 2)
    assert "Affine(w=" in repr(net)


def test_modules_go_through_transforms():
    net, x, y = Net(KEY, (3, 4)), rand(6, 3), rand(6, 1, seed=1)
    forward = ts.jit(lambda m, v: m(v))
    np.testing.assert_allclose(forward(net, x), reference_net(net, x), rtol=1e-5, atol=1e-6)
    # Other weights are no constants of the trace.
    other = net.replace(scale=np.float32(-2.0))
    np.testing.assert_allclose(forward(other, x), reference_net(other, x), rtol=1e-5, atol=1e-6)
    assert forward.retraces == []
    grads = ts.jit(ts.grad(lambda m: xp.mean(xp.square(m(x) - y))))(net)
    assert type(grads) is Net

    def loss(w):
        moved = net.replace(layers=[net.layers[0].replace(w=w)])
        return ((reference_net(moved, x) - y) ** 2).mean()

    np.testing.assert_allclose(grads.layers[0].w, numeric(loss, net.layers[0].w), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(ts.vmap(net)(x), reference_net(net, x), rtol=1e-5, atol=1e-6)
    # Several networks in one batch.
    many = ts.vmap(lambda k: Net(k, (3, 4)))(ts.random.split(KEY, 5))
    out = ts.vmap(lambda m: m(x))(many)
    assert many.layers[0].w.shape == (5, 3, 4) and out.shape == (5, 6, 1)


def test_modules_are_trained_and_saved(tmp_path):
    net, x = Net(KEY, (3, 8)), rand(32, 3)
    y = np.sin(x.sum(1, keepdims=True)).astype(np.float32)
    opt = ts.optim.Adam(lr=0.02)
    state = opt.init(net)

    @ts.jit
    def step(net, state):
        loss, grads = ts.value_and_grad(lambda m: xp.mean(xp.square(m(x) - y)))(net)
        return *opt.update(net, grads, state), loss

    losses = []
    for _ in range(60):
        net, state, loss = step(net, state)
        losses.append(float(loss))
    assert losses[-1] < 0.2 * losses[0]
    ts.save(tmp_path / "net.safetensors", {"net": net, "opt": state})
    back = ts.load(tmp_path / "net.safetensors", like={"net": net, "opt": state})
    np.testing.assert_array_equal(back["net"].layers[0].w, net.layers[0].w)
    assert type(back["net"]) is Net
    alone = ts.load(tmp_path / "net.safetensors")
    assert type(alone["net"]) is Net and ts.tree.structure(alone) == ts.tree.structure(back)


def test_a_jitted_method_sees_the_values_of_its_module():
    class Scaled(nn.Module):
        s: ts.Array
        calls: int = 0

        @ts.jit
        def run(self, x):
            return x * self.s

    one = Scaled(np.float32(2.0))
    assert one.run(np.float32(3.0)) == 6.0
    assert one.replace(s=np.float32(5.0)).run(np.float32(3.0)) == 15.0


def test_static_fields_make_traces_of_their_own():
    class Power(nn.Module):
        w: ts.Array
        n: int

        def __call__(self, x):
            return x**self.n * self.w

    run = ts.jit(lambda m, x: m(x))
    assert run(Power(np.float32(1.0), 2), np.float32(3.0)) == 9.0
    assert run(Power(np.float32(1.0), 3), np.float32(3.0)) == 27.0


def test_modules_inherit():
    class Wider(Affine):
        extra: ts.Array = nn.leaf(default=None)
        size: int = 4

        def __call__(self, x):
            return super().__call__(x) * self.size

    made = Wider(rand(2, 2), np.zeros(2, np.float32))
    assert Wider._leaves == ("w", "b", "extra") and "size" in Wider._static
    np.testing.assert_allclose(made(rand(1, 2)), np.tanh(rand(1, 2) @ rand(2, 2)) * 4, rtol=1e-5)


def test_what_a_module_refuses():
    net = Affine(rand(2, 2), np.zeros(2, np.float32))
    with pytest.raises(ts.TesseraError, match="modules do not change"):
        net.w = rand(2, 2)
    with pytest.raises(ts.TesseraError, match="hold no arrays"):
        Affine(rand(2, 2), np.zeros(2, np.float32), name=np.zeros(3))

    class Own(nn.Module):
        w: ts.Array

        def __init__(self, wrong):
            if wrong:
                self.v = 1

    with pytest.raises(ts.TesseraError, match="no annotation"):
        Own(True)
    with pytest.raises(ts.TesseraError, match="give a value to `w`"):
        Own(False)

    class Sizes(nn.Module):
        sizes: set

    with pytest.raises(ts.TesseraError, match="that can be compared"):
        Sizes({1})
    with pytest.raises(ts.TesseraError, match="its fields are"):
        net.replace(nothing=1)
