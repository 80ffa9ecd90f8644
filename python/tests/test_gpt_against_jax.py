"""A small GPT, trained: the same model written for JAX gives the same losses and the same parameters (`jax_gpt.py`)."""

import math

import jax_gpt
import numpy as np
import pytest
from gpt_case import HEADS, LAYERS, SIZE, VOCABULARY, batches, parameters

import tessera as ts
from tessera import nn
from tessera.tree import pytree


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


@pytest.mark.parametrize(("dtype", "bound"), [("f64", 1e-9), ("f32", 1e-5)])
def test_training_equals_jax(dtype, bound):
    kind, steps = jax_gpt.RUNS[dtype]
    mine, params = ours(parameters(kind), batches(steps), dtype)
    with np.load(jax_gpt.FILE) as kept:
        losses, others = kept[f"{dtype} losses"], kept[f"{dtype} parameters"]
    assert mine[0] == pytest.approx(math.log(VOCABULARY), abs=1.0)
    np.testing.assert_allclose(mine, losses, rtol=bound, atol=bound)
    if dtype == "f64":
        found = np.concatenate([np.reshape(p, -1) for p in pytree.leaves(params)])
        np.testing.assert_allclose(found, others, rtol=1e-7, atol=1e-9)
    assert mine[-1] < mine[0]


@pytest.mark.jax
def test_kept_losses_are_those_of_jax():
    """A few steps, computed again."""
    losses, _ = jax_gpt.train(parameters(np.float64), batches(3))
    with np.load(jax_gpt.FILE) as kept:
        np.testing.assert_allclose(losses, kept["f64 losses"][:3], rtol=1e-12)
