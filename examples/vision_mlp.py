"""Classifies shapes in small generated images with a convolution and an MLP.

    python examples/vision_mlp.py
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import tessera as ts
from tessera import nn

SHAPES = ("square", "disc", "cross", "stripes")
SIDE = 16


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Shapes of random place and size in noise."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(SHAPES), count)
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    out = np.empty((count, 1, SIDE, SIDE), np.float32)
    for i, label in enumerate(labels):
        cy, cx, r = rng.uniform(5, 11), rng.uniform(5, 11), rng.uniform(3, 5)
        dy, dx = np.abs(y - cy), np.abs(x - cx)
        mask = (
            (np.maximum(dy, dx) < r),
            (dy**2 + dx**2 < r**2),
            ((np.minimum(dy, dx) < r / 3) & (np.maximum(dy, dx) < r)),
            ((np.maximum(dy, dx) < r) & (((y + x) // 2) % 2 == 0)),
        )[label]
        out[i, 0] = mask + rng.normal(0, 0.3, mask.shape)
    return out, labels.astype(np.int32)


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--goal", type=float, default=0.9, help="exit with 1 if the accuracy is below it")
    args = p.parse_args()

    half = SIDE // 2
    model = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.relu, lambda x: nn.max_pool(x, 2), lambda x: x.reshape(x.shape[0], -1),
        nn.Linear(16 * half * half, 64), nn.gelu, nn.Linear(64, len(SHAPES)),
    )  # fmt: skip
    optimiser = ts.optim.Adam(lr=3e-3)

    def loss_of(params, x, labels):
        return nn.cross_entropy(model(params, x), labels)

    @ts.jit
    def step(params, state, x, labels):
        loss, grads = ts.value_and_grad(loss_of)(params, x, labels)
        params, state = optimiser.update(params, grads, state)
        return params, state, loss

    @ts.jit
    def accuracy(params, x, labels):
        return (model(params, x).argmax(-1) == labels).astype("f32").mean()

    params = ts.jit(model.init)(ts.random.key(0))
    state = optimiser.init(params)
    test = pictures(256, seed=1_000_000)
    start = time.perf_counter()
    for i in range(args.steps):
        params, state, loss = step(params, state, *pictures(args.batch, seed=i))
        if (i + 1) % max(args.steps // 5, 1) == 0:
            print(f"step {i + 1:4d}  loss {float(loss):.3f}  accuracy {float(accuracy(params, *test)):.3f}")
    final = float(accuracy(params, *test))
    print(f"{final:.1%} of unseen pictures are right after {time.perf_counter() - start:.1f} s")
    return 0 if final >= args.goal else 1


if __name__ == "__main__":
    raise SystemExit(main())
