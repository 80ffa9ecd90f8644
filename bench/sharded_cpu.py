"""A training step of a small GPT on virtual ranks, beside the same step on one device.

    PYTHONPATH=build/bench-package build/bench-venv/bin/python -m bench.sharded_cpu [--rounds 15] [--only REGEX]

Losses are compared before anything is timed. All run in turn in one process; a row is the median over the rounds of the time on
the mesh, divided by that on one device in the same round. The time of all processors
is less disturbed by other work on the machine.
"""

import argparse
import re
import statistics
import time
import warnings

import numpy as np

import tessera as ts
from tessera import dist, nn, xp

BATCH, LENGTH, SIZE, HEADS, LAYERS, WORDS = 8, 64, 128, 4, 4, 512
#: The required ratio, for four ranks.
BAR = 1.3


def block(p, x):
    b, t, size = x.shape

    def heads(w):
        return xp.transpose(xp.reshape(h @ w, (b, t, HEADS, size // HEADS)), (0, 2, 1, 3))

    h = nn.layernorm(x, p["norm1"]["scale"], p["norm1"]["shift"])
    q, k, v = heads(p["q"]), heads(p["k"]), heads(p["v"])
    scores = q @ xp.swapaxes(k, 2, 3) / np.float32(np.sqrt(size // HEADS))
    mixed = nn.softmax(xp.where(xp.tril(xp.ones((t, t), "bool")), scores, np.float32(-1e30))) @ v
    x = x + xp.reshape(xp.transpose(mixed, (0, 2, 1, 3)), (b, t, size)) @ p["out"]
    h = nn.layernorm(x, p["norm2"]["scale"], p["norm2"]["shift"])
    return x + xp.tanh(h @ p["up"]) @ p["down"]


def loss(params, tokens, targets):
    x = params["table"][tokens]
    for p in params["blocks"]:
        x = block(p, x)
    return nn.cross_entropy(x @ params["table"].T, targets)


def parameters():
    rng = np.random.default_rng(0)

    def w(*shape):
        return (rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    def norm():
        return {"scale": np.ones(SIZE, np.float32), "shift": np.zeros(SIZE, np.float32)}

    def one():
        wide = {"up": w(SIZE, 4 * SIZE), "down": w(4 * SIZE, SIZE)}
        return {name: w(SIZE, SIZE) for name in ("q", "k", "v", "out")} | wide | {"norm1": norm(), "norm2": norm()}

    return {"table": w(WORDS, SIZE), "blocks": [one() for _ in range(LAYERS)]}


COLUMNS, ROWS = dist.spec(None, "tp"), dist.spec("tp", None)
MEGATRON = {"q": COLUMNS, "k": COLUMNS, "v": COLUMNS, "up": COLUMNS, "out": ROWS, "down": ROWS}


def placed(tree, mesh, specs, name=""):
    if isinstance(tree, dict):
        return {k: placed(v, mesh, specs, k) for k, v in tree.items()}
    if isinstance(tree, list):
        return [placed(v, mesh, specs, name) for v in tree]
    return dist.shard(tree, specs(name), mesh)


MESHES = {
    "dp 4": ((4, 1), lambda name: dist.spec()),
    "tp 4": ((1, 4), lambda name: MEGATRON.get(name, dist.spec())),
    "dp 2, tp 2": ((2, 2), lambda name: MEGATRON.get(name, dist.spec())),
    "fsdp 4": ((4, 1), lambda name: dist.spec("dp", priority=2)),
}


class Training:
    """A step, and what it goes on with."""

    def __init__(self, mesh=None, specs=None):
        optimiser = ts.optim.AdamW(lr=1e-3)

        @ts.jit
        def step(params, state, tokens, targets):
            value, grads = ts.value_and_grad(loss, argnums=0)(params, tokens, targets)
            params, state = optimiser.update(params, grads, state)
            return value, params, state

        rng = np.random.default_rng(1)
        self.data = [rng.integers(0, WORDS, (BATCH, LENGTH)).astype(np.int32) for _ in range(2)]
        self.params = parameters()
        if mesh is not None:
            self.params = placed(self.params, mesh, specs)
            self.data = [dist.shard(x, dist.spec("dp"), mesh) for x in self.data]
        self.state, self.step = optimiser.init(self.params), step

    def go(self):
        value, self.params, self.state = self.step(self.params, self.state, *self.data)
        return float(np.asarray(value))


def made(name):
    if name == "one device":
        return Training()
    shape, specs = MESHES[name]
    return Training(dist.mesh(4, ("dp", "tp"), shape), specs)


def main():
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rounds", type=int, default=15)
    given.add_argument("--only", default="")
    given = given.parse_args()
    warnings.simplefilter("ignore", ts.TesseraWarning)
    names = ["one device", *(name for name in MESHES if re.search(given.only, name))]
    steps = {name: made(name) for name in names}
    losses = {name: [step.go() for _ in range(3)] for name, step in steps.items()}
    for name, values in losses.items():
        np.testing.assert_allclose(values, losses["one device"], rtol=0, atol=1e-5, err_msg=name)
    times = {name: [] for name in names}
    for _ in range(given.rounds):
        for name, step in steps.items():
            start = time.perf_counter(), time.process_time()
            step.go()
            times[name].append((time.perf_counter() - start[0], time.process_time() - start[1]))
    for name in names:
        wall, cpu = zip(*times[name], strict=True)
        ratios = [statistics.median(a[i] / b[i] for a, b in zip(times[name], times["one device"], strict=True)) for i in (0, 1)]
        print(
            f"{name:12} {1e3 * statistics.median(wall):7.2f} ms (least {1e3 * min(wall):.2f}), {ratios[0]:.2f} of one device (bar {BAR}); "
            f"processors {1e3 * statistics.median(cpu):.2f} ms, {ratios[1]:.2f}"
        )


if __name__ == "__main__":
    main()
