"""Models on meshes: the collectives that placements of the literature ask for, counted, and training that gives what one device gives."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tessera as ts
from tessera import dist, nn, xp

BATCH, LENGTH, SIZE, HEADS, LAYERS, WORDS = 8, 16, 32, 4, 2, 48


def block(p, x, sequence=None):
    """A transformer block whose queries, keys and values have weights of their own. ``sequence`` places what is between the products."""

    def between(h):
        return h if sequence is None else dist.constrain(h, sequence)

    b, t, size = x.shape
    h = between(nn.layernorm(x, p["norm1"]["scale"], p["norm1"]["shift"]))

    def heads(w):
        return xp.transpose(xp.reshape(h @ w, (b, t, HEADS, size // HEADS)), (0, 2, 1, 3))

    q, k, v = heads(p["q"]), heads(p["k"]), heads(p["v"])
    scores = q @ xp.swapaxes(k, 2, 3) / np.float32(np.sqrt(size // HEADS))
    mask = xp.tril(xp.ones((t, t), "bool"))
    mixed = nn.softmax(xp.where(mask, scores, np.float32(-1e30))) @ v
    joined = xp.reshape(xp.transpose(mixed, (0, 2, 1, 3)), (b, t, size))
    x = x + between(joined @ p["out"])
    h = between(nn.layernorm(x, p["norm2"]["scale"], p["norm2"]["shift"]))
    return x + between(xp.tanh(h @ p["up"]) @ p["down"])


def model(params, tokens, sequence=None):
    x = params["table"][tokens]
    if sequence is not None:
        x = dist.constrain(x, sequence)
    for p in params["blocks"]:
        x = block(p, x, sequence)
    return x


def loss(params, tokens, targets, sequence=None):
    logits = model(params, tokens, sequence) @ params["table"].T
    return nn.cross_entropy(logits, targets)


def arrays(seed=0):
    rng = np.random.default_rng(seed)

    def w(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def norm():
        return {"scale": np.ones(SIZE, np.float32), "shift": np.zeros(SIZE, np.float32)}

    one = lambda: {  # noqa: E731
        "q": w(SIZE, SIZE), "k": w(SIZE, SIZE), "v": w(SIZE, SIZE), "out": w(SIZE, SIZE), "up": w(SIZE, 4 * SIZE),
        "down": w(4 * SIZE, SIZE), "norm1": norm(), "norm2": norm(),
    }  # fmt: skip
    return {"table": w(WORDS, SIZE), "blocks": [one() for _ in range(LAYERS)]}


def batch(seed=1):
    rng = np.random.default_rng(seed)
    return tuple(rng.integers(0, WORDS, (BATCH, LENGTH)).astype(np.int32) for _ in range(2))


COLUMNS, ROWS = dist.spec(None, "tp"), dist.spec("tp", None)
MEGATRON = {"q": COLUMNS, "k": COLUMNS, "v": COLUMNS, "up": COLUMNS, "out": ROWS, "down": ROWS}


def placed(tree, mesh, specs, name=""):
    if isinstance(tree, dict):
        return {k: placed(v, mesh, specs, k) for k, v in tree.items()}
    if isinstance(tree, list):
        return [placed(v, mesh, specs, name) for v in tree]
    return dist.shard(tree, specs(name, tree), mesh)


def megatron(name, _):
    return MEGATRON.get(name, dist.spec())


def counted(compiled, at_least=0):
    """How many collectives there are by kind and axis, of values of some size."""
    return Counter((c.kind, c.axis) for c in compiled.collectives if c.nbytes >= at_least)


def test_tensor_parallel_blocks_have_the_collectives_of_the_paper():
    """Two all_reduces a layer forward, two more backward; the embedding is in copies."""
    mesh = dist.mesh(2, ("tp",), (2,))
    params, (tokens, targets) = placed(arrays(), mesh, megatron), batch()
    forward = counted(ts.jit(lambda p, t: model(p, t)).compiled(params, tokens))
    assert forward == {("all_reduce", "tp"): 2 * LAYERS}
    both = ts.jit(ts.value_and_grad(loss, argnums=0)).compiled(params, tokens, targets)
    assert counted(both) == {("all_reduce", "tp"): 4 * LAYERS}
    # Each of them is of one array of activations.
    assert {c.nbytes for c in both.collectives} == {BATCH * LENGTH * SIZE * 4}


def test_sequence_parallel_blocks_gather_and_scatter():
    """With activations split along the sequence each all_reduce is a reduce_scatter and an all_gather."""
    mesh = dist.mesh(2, ("tp",), (2,))
    # Fewer tokens than a weight has rows: it is the activations that are gathered.
    params, (tokens, _) = placed(arrays(), mesh, megatron), [x[:2, :8] for x in batch()]
    sequence = dist.spec(None, "tp", None)
    forward = counted(ts.jit(lambda p, t: model(p, t, sequence)).compiled(params, tokens))
    assert forward == {("reduce_scatter", "tp"): 2 * LAYERS, ("all_gather", "tp"): 2 * LAYERS}


def test_data_parallel_steps_sum_gradients_once():
    mesh = dist.mesh(4, ("dp",), (4,))
    params = placed(arrays(), mesh, lambda *_: dist.spec())
    tokens, targets = (dist.shard(x, dist.spec("dp"), mesh) for x in batch())
    both = ts.jit(ts.value_and_grad(loss, argnums=0)).compiled(params, tokens, targets)
    sizes = Counter(c.nbytes for c in both.collectives if c.nbytes > 8)
    assert {c.kind for c in both.collectives} == {"all_reduce"}
    wanted = Counter(x.nbytes for x in ts.tree.leaves(arrays()))
    # The table has two gradients, of what it embeds and of what it scores, which are added before.
    assert sizes == wanted


def test_fully_sharded_steps_gather_weights_and_scatter_gradients():
    mesh = dist.mesh(4, ("dp",), (4,))
    params = placed(arrays(), mesh, lambda _, x: dist.spec("dp", priority=2))
    tokens, targets = (dist.shard(x, dist.spec("dp"), mesh) for x in batch())
    both = ts.jit(ts.value_and_grad(loss, argnums=0)).compiled(params, tokens, targets)
    assert {c.kind for c in both.collectives if c.nbytes > 8} == {"all_gather", "reduce_scatter"}
    scattered = Counter(c.nbytes for c in both.collectives if c.kind == "reduce_scatter")
    assert scattered == Counter(x.nbytes for x in ts.tree.leaves(arrays()))
    # Each weight is gathered once.
    gathered = Counter(c.nbytes for c in both.collectives if c.kind == "all_gather")
    assert gathered == Counter(x.nbytes for x in ts.tree.leaves(arrays()))


@pytest.mark.parametrize("shape", [(4, 2), (2, 3), (1, 4)])
def test_training_gives_the_losses_of_one_device(shape):
    """Data and tensor parallel, with heads that three ranks do not divide; the same bits under `strict`."""
    mesh = dist.mesh(int(np.prod(shape)), ("dp", "tp"), shape)
    optimiser = ts.optim.AdamW(lr=1e-2)
    data = [batch(seed) for seed in range(3)]

    def losses(profile, on_mesh):
        @ts.jit(numerics=profile)
        def step(params, state, tokens, targets):
            value, grads = ts.value_and_grad(loss, argnums=0)(params, tokens, targets)
            params, state = optimiser.update(params, grads, state)
            return value, params, state

        params = placed(arrays(), mesh, megatron) if on_mesh else arrays()
        state, out = optimiser.init(params), []
        for given in data:
            given = [dist.shard(x, dist.spec("dp"), mesh) for x in given] if on_mesh else given
            value, params, state = step(params, state, *given)
            out.append(float(np.asarray(value)))
        return np.array(out)

    np.testing.assert_allclose(losses("default", True), losses("default", False), rtol=0, atol=1e-5)
    assert (losses("strict", True) == losses("strict", False)).all()
