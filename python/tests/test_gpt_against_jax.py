"""A small GPT, trained: the same model written for JAX gives the same losses. Skipped where JAX is not installed."""

import math

import numpy as np
import pytest

import tessera as ts
from tessera import nn

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy

VOCABULARY, LENGTH, SIZE, HEADS, LAYERS, BATCH = 17, 12, 16, 4, 2, 3


def parameters(dtype):
    rng = np.random.default_rng(0)

    def normal(*shape, std=0.2):
        return (rng.standard_normal(shape) * std).astype(dtype)

    def linear(a, b):
        return {"w": normal(a, b), "b": normal(b)}

    def norm():
        return {"scale": (1 + normal(SIZE)).astype(dtype), "shift": normal(SIZE)}

    block = lambda: {  # noqa: E731
        "norm1": norm(),
        "attention": {"qkv": linear(SIZE, 3 * SIZE), "out": linear(SIZE, SIZE)},
        "norm2": norm(),
        "mlp": {"up": linear(SIZE, 4 * SIZE), "down": linear(4 * SIZE, SIZE)},
    }
    return {"tokens": normal(VOCABULARY, SIZE), "places": normal(LENGTH, SIZE), "blocks": [block() for _ in range(LAYERS)],
            "norm": norm()}  # fmt: skip


def batches(steps):
    rng = np.random.default_rng(1)
    return [rng.integers(0, VOCABULARY, (2, BATCH, LENGTH)).astype(np.int32) for _ in range(steps)]


def ours(params, batch_list, dtype):
    blocks = [nn.TransformerBlock(SIZE, HEADS, dtype=dtype) for _ in range(LAYERS)]
    final = nn.LayerNorm(SIZE, dtype=dtype)
    optimiser = ts.optim.AdamW(lr=1e-2)

    def loss_of(params, tokens, targets):
        x = nn.embedding(params["tokens"], tokens) + params["places"]
        for block, part in zip(blocks, params["blocks"], strict=True):
            x = block(part, x)
        return nn.cross_entropy(final(params["norm"], x) @ params["tokens"].T, targets)

    @ts.jit
    def step(params, state, tokens, targets):
        loss, grads = ts.value_and_grad(loss_of)(params, tokens, targets)
        params, state = optimiser.update(params, grads, state)
        return params, state, loss

    state, losses = optimiser.init(params), []
    for tokens, targets in batch_list:
        params, state, loss = step(params, state, tokens, targets)
        losses.append(float(loss))
    return losses, params


def theirs(params, batch_list):
    def norm(p, x):
        far = x - x.mean(-1, keepdims=True)
        return far / jnp.sqrt((far * far).mean(-1, keepdims=True) + 1e-5) * p["scale"] + p["shift"]

    def linear(p, x):
        return x @ p["w"] + p["b"]

    def attend(p, x):
        b, t, _ = x.shape
        q, k, v = jnp.moveaxis(linear(p["qkv"], x).reshape(b, t, 3, HEADS, SIZE // HEADS), 2, 0).swapaxes(2, 3)
        s = q @ k.swapaxes(-1, -2) / math.sqrt(SIZE // HEADS)
        s = jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -jnp.inf)
        y = jax.nn.softmax(s, -1) @ v
        return linear(p["out"], y.swapaxes(1, 2).reshape(b, t, SIZE))

    def loss_of(params, tokens, targets):
        x = params["tokens"][tokens] + params["places"]
        for p in params["blocks"]:
            x = x + attend(p["attention"], norm(p["norm1"], x))
            h = jax.nn.gelu(linear(p["mlp"]["up"], norm(p["norm2"], x)), approximate=False)
            x = x + linear(p["mlp"]["down"], h)
        log_p = jax.nn.log_softmax(norm(params["norm"], x) @ params["tokens"].T)
        return -jnp.take_along_axis(log_p, targets[..., None], -1).mean()

    @jax.jit
    def step(params, m, v, count, tokens, targets):
        loss, grads = jax.value_and_grad(loss_of)(params, tokens, targets)
        count = count + 1
        tree = jax.tree_util.tree_map
        m = tree(lambda m, g: 0.9 * m + (1 - 0.9) * g, m, grads)
        v = tree(lambda v, g: 0.999 * v + (1 - 0.999) * g * g, v, grads)

        def move(w, m, v):
            kind = w.dtype
            c1, c2 = (1 - jnp.asarray(b, kind) ** count.astype(kind) for b in (0.9, 0.999))
            return w - 1e-2 * ((m / c1) / (jnp.sqrt(v / c2) + 1e-8) + 0.01 * w)

        return tree(move, params, m, v), m, v, count, loss

    zeros = jax.tree_util.tree_map(np.zeros_like, params)
    m, v, count, losses = zeros, zeros, jnp.asarray(0), []
    for tokens, targets in batch_list:
        params, m, v, count, loss = step(params, m, v, count, tokens, targets)
        losses.append(float(loss))
    return losses, params


@pytest.mark.parametrize(("dtype", "steps", "bound"), [("f64", 50, 1e-9), ("f32", 20, 1e-5)])
def test_training_equals_jax(dtype, steps, bound):
    params = parameters({"f64": np.float64, "f32": np.float32}[dtype])
    mine, my_params = ours(params, batches(steps), dtype)
    other, other_params = theirs(params, batches(steps))
    assert mine[0] == pytest.approx(math.log(VOCABULARY), abs=1.0)
    np.testing.assert_allclose(mine, other, rtol=bound, atol=bound)
    if dtype == "f64":
        jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), my_params, other_params)
    assert mine[-1] < mine[0]
