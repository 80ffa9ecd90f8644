"""A custom kernel inside a model: a gated activation, `silu(a) * b`, written in the tile language and trained under `ts.jit`.
The result is compared with the same model of library functions. The compiler derives the kernel's gradient. To use a better
one, `ts.custom_vjp` takes a backward function, here a kernel written by hand.

    python examples/custom_kernel_in_model.py
"""

from __future__ import annotations

import numpy as np

import tessera as ts
from tessera import nn


@ts.kernel
def gate_forward(a: ts.Tensor["n", ts.f32], b: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = a[i] * ts.tile.sigmoid(a[i]) * b[i]
    return y


@ts.kernel
def gate_backward(
    a: ts.Tensor["n", ts.f32],
    b: ts.Tensor["n", ts.f32],
    dy: ts.Tensor["n", ts.f32],
    da: ts.Out["n", ts.f32],
    db: ts.Out["n", ts.f32],
):
    i = ts.tile.linear_id()
    if i < n:
        s = ts.tile.sigmoid(a[i])
        da[i] = dy[i] * b[i] * (s + a[i] * s * (1.0 - s))
        db[i] = dy[i] * a[i] * s
    return da, db


def gate(a, b):
    return gate_forward(a.reshape(-1), b.reshape(-1)).reshape(a.shape)


@ts.custom_vjp
def gate_by_hand(a, b):
    return gate(a, b)


def gate_fwd(a, b):
    return gate(a, b), (a, b)


def gate_bwd(kept, dy):
    a, b = kept
    da, db = gate_backward(a.reshape(-1), b.reshape(-1), dy.reshape(-1))
    return da.reshape(a.shape), db.reshape(b.shape)


gate_by_hand.defvjp(gate_fwd, gate_bwd)


def train(activation, steps: int = 60) -> list[float]:
    up, gated, down = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 1)
    optimiser = ts.optim.Adam(lr=1e-2)

    def init(key):
        keys = ts.random.split(key, 3)
        return {"up": up.init(keys[0]), "gated": gated.init(keys[1]), "down": down.init(keys[2])}

    def loss_of(params, x, y):
        hidden = activation(up(params["up"], x), gated(params["gated"], x))
        return nn.mse_loss(down(params["down"], hidden), y)

    @ts.jit
    def step(params, state, x, y):
        loss, grads = ts.value_and_grad(loss_of)(params, x, y)
        params, state = optimiser.update(params, grads, state)
        return params, state, loss

    params = ts.jit(init)(ts.random.key(0))
    state, losses = optimiser.init(params), []
    rng = np.random.default_rng(0)
    for _ in range(steps):
        x = rng.standard_normal((64, 8)).astype(np.float32)
        y = np.sin(x[:, :1]) * x[:, 1:2]
        params, state, loss = step(params, state, x, y)
        losses.append(float(loss))
    return losses


def main() -> int:
    derived, by_hand = train(gate), train(gate_by_hand)
    library = train(lambda a, b: nn.silu(a) * b)
    worst = max(abs(a - b) / b for mine in (derived, by_hand) for a, b in zip(mine, library, strict=True))
    for name, losses in (("the kernel", derived), ("custom_vjp", by_hand), ("the library", library)):
        print(f"with {name + ':':13} loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print(f"largest relative difference over all steps: {worst:.1e}")
    return 0 if worst < 1e-3 and derived[-1] < derived[0] / 2 else 1


if __name__ == "__main__":
    raise SystemExit(main())
