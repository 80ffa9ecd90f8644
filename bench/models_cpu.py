"""Whole functions on one core, compared with XLA: a GPT block forward and backward, a chain of elementwise ops around a norm,
64 tokens of a small GPT with a cache of keys and values, and the time to trace and compile a training step of 12 layers.

usage: scripts/bench-peers.sh bench.models_cpu [--rounds N] [--only block|chain|wide-chain|decode|compile] [--cpu-time] [--out FILE]

Results are compared before anything is timed. Both run in every round, in random order. A figure is the median of the ratios
(XLA's time over ours) over the rounds, with its 95% confidence interval. Each compilation runs in a new process with empty
caches."""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import time

from bench.cpu import environment

if __name__ == "__main__":
    environment.use_one_core()

import numpy as np  # noqa: E402

from bench.cpu.timing import Paired, calls_for, interval, quiet  # noqa: E402

#: The required ratio of XLA's time over ours; for compilation, seconds.
BARS = {"block": 1.2, "chain": 2.0, "wide-chain": 2.0, "decode": 1.0, "compile": 5.0}
BATCH, LENGTH, SIZE, HEADS = 4, 256, 256, 4
LAYERS, VOCABULARY = 12, 512
#: Of the model that decodes: layers, and tokens in a call.
DECODER, TOKENS = 4, 64


def block_parameters(rng):
    def normal(*shape):
        return (rng.standard_normal(shape) * 0.02).astype(np.float32)

    def linear(a, b):
        return {"w": normal(a, b), "b": normal(b)}

    def norm():
        return {"scale": 1 + normal(SIZE), "shift": normal(SIZE)}

    return {"norm1": norm(), "attention": {"qkv": linear(SIZE, 3 * SIZE), "out": linear(SIZE, SIZE)}, "norm2": norm(),
            "mlp": {"up": linear(SIZE, 4 * SIZE), "down": linear(4 * SIZE, SIZE)}}  # fmt: skip


# --- the same functions in JAX ---


def jax_norm(p, x):
    import jax.numpy as jnp
    from jax import lax

    far = x - jnp.mean(x, -1, keepdims=True)
    return far * lax.rsqrt(jnp.mean(far * far, -1, keepdims=True) + 1e-5) * p["scale"] + p["shift"]


def jax_block(p, x):
    import jax
    import jax.numpy as jnp

    def linear(p, x):
        return x @ p["w"] + p["b"]

    b, t, _ = x.shape
    wide = linear(p["attention"]["qkv"], jax_norm(p["norm1"], x))
    q, k, v = jnp.moveaxis(wide.reshape(b, t, 3, HEADS, SIZE // HEADS), 2, 0).swapaxes(2, 3)
    s = q @ k.swapaxes(-1, -2) / math.sqrt(SIZE // HEADS)
    y = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((t, t), bool)), s, -jnp.inf), -1) @ v
    x = x + linear(p["attention"]["out"], y.swapaxes(1, 2).reshape(b, t, SIZE))
    h = jax.nn.gelu(linear(p["mlp"]["up"], jax_norm(p["norm2"], x)), approximate=False)
    return x + linear(p["mlp"]["down"], h)


def block():
    import jax

    import tessera as ts

    rng = np.random.default_rng(0)
    params = block_parameters(rng)
    x = rng.standard_normal((BATCH, LENGTH, SIZE)).astype(np.float32)
    r = rng.standard_normal(x.shape).astype(np.float32)
    layer = ts.nn.TransformerBlock(SIZE, HEADS)
    ours = ts.jit(lambda p, x, r: ts.value_and_grad(lambda p, x: (layer(p, x) * r).sum(), argnums=(0, 1))(p, x))
    theirs = jax.jit(lambda p, x, r: jax.value_and_grad(lambda p, x: (jax_block(p, x) * r).sum(), argnums=(0, 1))(p, x))
    return _pair(ours, theirs, (params, x, r), 2e-3)


def chain(columns=SIZE):
    """On the activations of the block, or for `wide` on those inside its MLP."""
    import jax

    import tessera as ts
    from tessera import nn

    rng = np.random.default_rng(1)
    x, r = (rng.standard_normal((BATCH * LENGTH, columns)).astype(np.float32) for _ in range(2))
    p = {"scale": rng.standard_normal(columns).astype(np.float32), "shift": rng.standard_normal(columns).astype(np.float32)}

    def mine(p, x, r):
        return nn.gelu(nn.layernorm((x + r) * 0.5, p["scale"], p["shift"]), True) + x

    def other(p, x, r):
        return jax.nn.gelu(jax_norm(p, (x + r) * 0.5), approximate=True) + x

    return _pair(ts.jit(mine), jax.jit(other), (p, x, r), 1e-4)


def decode():
    """Greedy decoding: a loop of one token each, whose keys and values go to a cache."""
    import types

    import jax
    import jax.numpy as jnp

    import tessera as ts

    def norm(t, p, x):
        far = x - t.xp.mean(x, -1, keepdims=True)
        return far / t.xp.sqrt(t.xp.mean(far * far, -1, keepdims=True) + np.float32(1e-5)) * p["scale"] + p["shift"]

    def linear(p, x):
        return x @ p["w"] + p["b"]

    def token(t, params, caches, last, place):
        x = (params["tokens"][last] + params["places"][place]).reshape(1, SIZE)
        past, new = t.xp.arange(LENGTH) <= place, []
        for p, (keys, values) in zip(params["blocks"], caches, strict=True):
            q, k, v = linear(p["attention"]["qkv"], norm(t, p["norm1"], x)).reshape(3, HEADS, 1, SIZE // HEADS)
            keys, values = t.update(keys, k, (0, place, 0)), t.update(values, v, (0, place, 0))
            s = q @ t.xp.swapaxes(keys, 1, 2) / np.float32(math.sqrt(SIZE // HEADS))
            s = t.xp.where(past, s, np.float32(-1e30))
            e = t.xp.exp(s - t.xp.max(s, -1, keepdims=True))
            y = (e / t.xp.sum(e, -1, keepdims=True)) @ values
            x = x + linear(p["attention"]["out"], y.reshape(1, SIZE))
            h = linear(p["mlp"]["up"], norm(t, p["norm2"], x))
            x = x + linear(p["mlp"]["down"], h * (np.float32(0.5) * (1 + t.xp.tanh(np.float32(0.7978846) * (h + np.float32(0.044715) * h * h * h)))))
            new.append((keys, values))
        scores = norm(t, params["norm"], x) @ params["tokens"].T
        return t.xp.argmax(scores[0]).astype("int32"), new, scores[0]

    def whole(t):
        def run(params, caches, first):
            def step(carry, place):
                last, caches = carry
                last, caches, scores = token(t, params, caches, last, place)
                return (last, caches), (last, t.xp.max(scores))

            return t.scan(step, (first, caches), t.xp.arange(TOKENS, dtype="int32"))[1]

        return run

    rng = np.random.default_rng(3)
    params, _, _ = step_arguments()
    params = {**params, "blocks": [block_parameters(rng) for _ in range(DECODER)]}
    empty = lambda: np.zeros((HEADS, LENGTH, SIZE // HEADS), np.float32)  # noqa: E731
    args = params, [(empty(), empty()) for _ in range(DECODER)], np.int32(1)
    mine = types.SimpleNamespace(xp=ts.xp, scan=ts.scan, update=ts.dynamic_update_slice)
    other = types.SimpleNamespace(xp=jnp, scan=jax.lax.scan, update=jax.lax.dynamic_update_slice)
    return _pair(ts.jit(whole(mine)), jax.jit(whole(other)), args, 1e-3)


def _pair(ours, theirs, args, bound):
    """Two functions of no arguments that do the same work, with results that were compared."""
    import jax

    jax.config.update("jax_cpu_enable_async_dispatch", False)
    there = jax.tree_util.tree_map(jax.numpy.asarray, args)
    mine, other = jax.tree_util.tree_leaves(ours(*args)), jax.tree_util.tree_leaves(theirs(*there))
    for a, b in zip(mine, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound * max(1.0, float(np.abs(b).max())))
    return lambda: ours(*args), lambda: jax.block_until_ready(theirs(*there))


def timed(pair, rounds, clock):
    """Both in random order, round by round."""
    order = random.Random(0)
    with quiet():
        counts = [calls_for(run, 5e-3) for run in pair]
        samples = [[], []]
        for _ in range(rounds):
            for i in order.sample([0, 1], 2):
                start = clock()
                for _ in range(counts[i]):
                    pair[i]()
                samples[i].append((clock() - start) / counts[i])
    return Paired(*samples)


# --- compilation, each in a new process ---


def compile_ours():
    import tessera as ts
    from tessera import nn

    blocks = [nn.TransformerBlock(SIZE, HEADS) for _ in range(LAYERS)]
    final, optimiser = nn.LayerNorm(SIZE), ts.optim.AdamW(lr=1e-3)

    def loss_of(params, tokens, targets):
        x = nn.embedding(params["tokens"], tokens) + params["places"]
        for layer, part in zip(blocks, params["blocks"], strict=True):
            x = layer(part, x)
        return nn.cross_entropy(final(params["norm"], x) @ params["tokens"].T, targets)

    @ts.jit
    def step(params, state, tokens, targets):
        loss, grads = ts.value_and_grad(loss_of)(params, tokens, targets)
        params, state = optimiser.update(params, grads, state)
        return params, state, loss

    params, tokens, targets = step_arguments()
    state = optimiser.init(params)
    start = time.perf_counter()
    made = step.compiled(params, state, tokens, targets)
    taken = time.perf_counter() - start
    loss = float(step(params, state, tokens, targets)[2])
    return taken, loss, dict(made.stats)


def compile_theirs():
    import jax
    import jax.numpy as jnp

    def loss_of(params, tokens, targets):
        x = params["tokens"][tokens] + params["places"]
        for part in params["blocks"]:
            x = jax_block(part, x)
        log_p = jax.nn.log_softmax(jax_norm(params["norm"], x) @ params["tokens"].T)
        return -jnp.take_along_axis(log_p, targets[..., None], -1).mean()

    def step(params, m, v, count, tokens, targets):
        loss, grads = jax.value_and_grad(loss_of)(params, tokens, targets)
        tree, count = jax.tree_util.tree_map, count + 1
        m = tree(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = tree(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        c1, c2 = 1 - 0.9**count, 1 - 0.999**count
        move = lambda w, m, v: w - 1e-3 * ((m / c1) / (jnp.sqrt(v / c2) + 1e-8) + 0.01 * w)  # noqa: E731
        return tree(move, params, m, v), m, v, count, loss

    params, tokens, targets = step_arguments()
    zeros = jax.tree_util.tree_map(np.zeros_like, params)
    # The first use of the library is not part of the compilation.
    jax.jit(lambda x: x + 1)(np.float32(1)).block_until_ready()
    start = time.perf_counter()
    args = (params, zeros, zeros, np.float32(0), tokens, targets)
    run = jax.jit(step).lower(*args).compile()
    return time.perf_counter() - start, float(run(*args)[4]), {}


def step_arguments():
    rng = np.random.default_rng(2)
    params = {
        "tokens": (rng.standard_normal((VOCABULARY, SIZE)) * 0.02).astype(np.float32),
        "places": (rng.standard_normal((LENGTH, SIZE)) * 0.02).astype(np.float32),
        "blocks": [block_parameters(rng) for _ in range(LAYERS)],
        "norm": block_parameters(rng)["norm1"],
    }
    tokens, targets = rng.integers(0, VOCABULARY, (2, 1, LENGTH)).astype(np.int32)
    return params, tokens, targets


def compiling(rounds):
    """Seconds of each compilation in a new process, in random order."""
    order, taken, losses = random.Random(1), {"ours": [], "theirs": []}, {}
    for _ in range(rounds):
        for who in order.sample(["ours", "theirs"], 2):
            start = environment.child("bench.models_cpu", "--compile", who, threads=1, TESSERA_CACHE="0")
            done = subprocess.run(**start, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stdout + done.stderr)
            spent, loss, stats = json.loads(done.stdout.splitlines()[-1])
            taken[who].append(spent)
            losses[who] = loss, stats
    assert math.isclose(losses["ours"][0], losses["theirs"][0], rel_tol=1e-4), losses
    return taken, losses["ours"][1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", choices=list(BARS))
    parser.add_argument("--cpu-time", action="store_true", help="count the time on the processor: for a machine with other work")
    parser.add_argument("--out")
    parser.add_argument("--compile", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        print(json.dumps(compile_ours() if options.compile == "ours" else compile_theirs()))
        return
    kept = {"machine": environment.describe(), "clock": "processor" if options.cpu_time else "wall", "rows": {}}
    for name, make in (("block", block), ("chain", chain), ("wide-chain", lambda: chain(4 * SIZE)), ("decode", decode)):
        if options.only in (None, name):
            found = timed(make(), options.rounds, time.process_time if options.cpu_time else time.perf_counter)
            ratios = found.ratios()
            low, high = interval(ratios)
            middle = statistics.median(ratios)
            mine, other = (statistics.median(s) * 1e3 for s in (found.ours, found.theirs))
            verdict = "reaches" if middle >= BARS[name] else "MISSES"
            print(f"{name:10} {middle:5.2f} times XLA ({low:.2f} to {high:.2f}), {mine:.2f} ms beside {other:.2f} ms: "
                  f"{verdict} {BARS[name]}", flush=True)  # fmt: skip
            kept["rows"][name] = {"ours": found.ours, "theirs": found.theirs, "ratio": middle, "interval": [low, high]}
    if options.only in (None, "compile"):
        taken, stats = compiling(max(3, options.rounds // 8))
        mine, other = (statistics.median(taken[w]) for w in ("ours", "theirs"))
        verdict = "below" if mine < BARS["compile"] else "MISSES"
        print(f"compile    {mine:.2f} s ({min(taken['ours']):.2f} to {max(taken['ours']):.2f}), JAX {other:.2f} s "
              f"({min(taken['theirs']):.2f} to {max(taken['theirs']):.2f}): {verdict} {BARS['compile']} s; {stats}")  # fmt: skip
        kept["rows"]["compile"] = {**taken, "stats": stats}
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
