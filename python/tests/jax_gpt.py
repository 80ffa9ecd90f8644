"""The small GPT of `gpt_case.py` written for JAX, and what training it gave, kept in ``jax_gpt.npz``: ``scripts/jax-values.sh``
writes it with the pinned JAX."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from gpt_case import HEADS, SIZE, batches, parameters

FILE = Path(__file__).with_suffix(".npz")
RUNS = {"f64": (np.float64, 50), "f32": (np.float32, 20)}


def train(params, batch_list):
    """The losses, and the parameters after the last step."""
    import jax

    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

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


def write() -> None:
    import jax

    kept = {}
    for name, (dtype, steps) in RUNS.items():
        losses, params = train(parameters(dtype), batches(steps))
        kept[f"{name} losses"] = np.array(losses)
        # In the order of the keys, as ours are.
        kept[f"{name} parameters"] = np.concatenate([np.asarray(p).reshape(-1) for p in jax.tree_util.tree_leaves(params)])
    np.savez_compressed(FILE, **kept)


if __name__ == "__main__":
    write()
