"""The time to trace and compile a training step of GPT-2 124M: on one device, and on meshes of virtual ranks.

    PYTHONPATH=build/bench-package build/bench-venv/bin/python -m bench.sharded_compile [--rounds 5] [--layers 12]

Each measurement is a process of its own with an empty cache, which has compiled a small function before; they run in turn. A row is the median
over the rounds. "Partitioning" is the propagation of placements and the rewriting as the program of a rank.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings

MESHES = {"one device": None, "4x2 ranks": ((4, 2), ("dp", "tp")), "4x9x2 ranks": ((4, 9, 2), ("dp", "tp", "pp"))}
SIZE, HEADS, WORDS, BATCH, LENGTH = 768, 12, 50304, 8, 1024


def measure(name, layers):
    import numpy as np

    import tessera as ts
    from tessera import dist, nn, xp

    warnings.simplefilter("ignore", ts.TesseraWarning)
    mesh = None if MESHES[name] is None else dist.mesh(int(np.prod(MESHES[name][0])), MESHES[name][1], MESHES[name][0])
    columns, rows = dist.spec(None, "tp"), dist.spec("tp", None)
    specs = {"q": columns, "k": columns, "v": columns, "up": columns, "out": rows, "down": rows}

    def array(*shape, of="", dtype=np.float32):
        # No memory is touched.
        return np.zeros(shape, dtype) if mesh is None else dist.tensor(shape, specs.get(of, dist.spec()), mesh, "f32")

    def norm():
        return {"scale": array(SIZE), "shift": array(SIZE)}

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
        return x + nn.gelu(h @ p["up"]) @ p["down"]

    def loss(params, tokens, targets):
        x = params["table"][tokens] + params["places"]
        for p in params["blocks"]:
            x = block(p, x)
        x = nn.layernorm(x, params["norm"]["scale"], params["norm"]["shift"])
        return nn.cross_entropy(x @ params["table"].T, targets)

    def one():
        wide = {"up": array(SIZE, 4 * SIZE, of="up"), "down": array(4 * SIZE, SIZE, of="down"), "norm1": norm(), "norm2": norm()}
        return {n: array(SIZE, SIZE, of=n) for n in ("q", "k", "v", "out")} | wide

    params = {"table": array(WORDS, SIZE), "places": array(LENGTH, SIZE), "norm": norm(), "blocks": [one() for _ in range(layers)]}
    tokens = [np.zeros((BATCH, LENGTH), np.int32) for _ in range(2)]
    if mesh is not None:
        tokens = [dist.shard(x, dist.spec("dp"), mesh) for x in tokens]
    optimiser = ts.optim.AdamW(lr=1e-3)
    state = optimiser.init(params)

    @ts.jit
    def step(params, state, tokens, targets):
        value, grads = ts.value_and_grad(loss, argnums=0)(params, tokens, targets)
        params, state = optimiser.update(params, grads, state)
        return value, params, state

    ts.jit(lambda x: ts.grad(lambda x: xp.sum(xp.tanh(x @ x)))(x)).compiled(np.zeros((4, 4), np.float32))
    begin = time.perf_counter(), time.process_time()
    step.trace(params, state, *tokens)
    traced = time.perf_counter() - begin[0], time.process_time() - begin[1]
    made = step.compiled(params, state, *tokens)
    wall, cpu = time.perf_counter() - begin[0], time.process_time() - begin[1]
    print(wall, cpu, *traced, made.stats["partition_s"])


def main():
    given = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    given.add_argument("--rounds", type=int, default=5)
    given.add_argument("--layers", type=int, default=12)
    given.add_argument("--one", default="")
    given = given.parse_args()
    if given.one:
        measure(given.one, given.layers)
        return
    times = {name: [] for name in MESHES}
    for _ in range(given.rounds):
        for name in MESHES:
            with tempfile.TemporaryDirectory() as cache:
                call = [sys.executable, "-m", "bench.sharded_compile", "--one", name, "--layers", str(given.layers)]
                done = subprocess.run(call, env=os.environ | {"TESSERA_CACHE_DIR": cache}, capture_output=True, text=True, check=True)
            times[name].append([float(x) for x in done.stdout.split()])
    for name, rows in times.items():
        wall, cpu, traced, _, partition = [statistics.median(column) for column in zip(*rows, strict=True)]
        ratio = [statistics.median(a[i] / b[i] for a, b in zip(rows, times["one device"], strict=True)) for i in (0, 1)]
        print(f"{name:12} {wall:6.2f} s, {ratio[0]:.2f} of one device; processors {cpu:6.2f} s, {ratio[1]:.2f}; "
              f"tracing and placing {traced:.2f} s; partitioning {partition:.2f} s")  # fmt: skip


if __name__ == "__main__":
    main()
