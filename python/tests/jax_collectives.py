"""Collectives in JAX: values and gradients of one function of each, on four devices of the host. `python python/tests/jax_collectives.py`
writes `jax_collectives.json` with them, where JAX is installed; test_collectives.py holds ours against it."""

import json
import os
from pathlib import Path

import numpy as np

RANKS = 4
KEPT = Path(__file__).with_suffix(".json")
NAMES = ("all_reduce", "mean", "all_gather", "reduce_scatter", "all_to_all", "permute", "axis_index", "copies", "two_collectives")


def arguments():
    """An array that is split, one that all ranks have, and weights of the result."""
    rng = np.random.default_rng(25)
    return rng.standard_normal((RANKS * 4, RANKS)), rng.standard_normal((RANKS, RANKS)), rng.standard_normal((RANKS * 4, RANKS))


def answers():
    """By name: the loss, and its gradients by both arrays."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={RANKS}"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import Mesh, PartitionSpec as P

    jax.config.update("jax_enable_x64", True)
    mesh = Mesh(np.array(jax.devices()[:RANKS]), ("a",))
    pairs = [(0, 1), (1, 2), (3, 0)]
    bodies = {
        "all_reduce": lambda b, w: jnp.sin(b) * lax.psum(b**2, "a"),
        "mean": lambda b, w: b * lax.pmean(jnp.sin(b), "a"),
        "all_gather": lambda b, w: b * jnp.sum(jnp.sin(lax.all_gather(b, "a", axis=0, tiled=True)), 0),
        "reduce_scatter": lambda b, w: b * lax.psum_scatter(jnp.sin(b), "a", scatter_dimension=0, tiled=True),
        "all_to_all": lambda b, w: lax.all_to_all(jnp.sin(b), "a", split_axis=1, concat_axis=0, tiled=True).reshape(4, RANKS) * b,
        "permute": lambda b, w: lax.ppermute(jnp.sin(b), "a", pairs) + b**2,
        "axis_index": lambda b, w: jnp.sin(b * lax.axis_index("a")),
        "copies": lambda b, w: jnp.tanh(b @ w) + jnp.sum(w**2),
        "two_collectives": lambda b, w: jnp.tanh(b @ lax.psum(b.T @ jnp.sin(b @ w), "a")),
    }
    x, w, weights = arguments()
    out = {}
    for name in NAMES:
        mapped = jax.shard_map(bodies[name], mesh=mesh, in_specs=(P("a"), P()), out_specs=P("a"))
        loss, grads = jax.value_and_grad(lambda x, w, f=mapped: jnp.sum(weights * f(x, w)), argnums=(0, 1))(x, w)
        out[name] = [np.asarray(v).tolist() for v in (loss, *grads)]
    return out


if __name__ == "__main__":
    KEPT.write_text(json.dumps(answers()) + "\n")
