"""A small GPT with its parameters and batches, for us and for JAX (`jax_gpt.py`)."""

import numpy as np

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
