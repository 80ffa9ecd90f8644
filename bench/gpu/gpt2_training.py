"""Times a training step of GPT-2 124M (forward, backward, AdamW) and the same model in PyTorch under `torch.compile`: f32
parameters, bf16 matmuls. No speedup is required. ``python -m bench.gpu.gpt2_training [--layers N --batch N --steps N --graph]``."""

from __future__ import annotations

import argparse
import time

import numpy as np

import tessera as ts
from tessera import nn


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--length", type=int, default=1024)
    p.add_argument("--size", type=int, default=768)
    p.add_argument("--heads", type=int, default=12)
    p.add_argument("--vocabulary", type=int, default=50304)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--graph", action="store_true", help="record the launches into a CUDA graph")
    p.add_argument("--only", choices=("tessera", "torch"), default=None)
    p.add_argument("--target", default=None, help="compile only, for an architecture such as sm90: needs no GPU")
    p.add_argument("--times", action="store_true", help="also print the plan")
    return p.parse_args()


class Model:
    """GPT-2: embeddings, blocks, a norm, and the tied embedding table as the output layer."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a = a
        self.tokens, self.places = nn.Embedding(a.vocabulary, a.size), nn.Embedding(a.length, a.size)
        self.blocks = [nn.TransformerBlock(a.size, a.heads, dtype="bf16") for _ in range(a.layers)]
        self.norm = nn.LayerNorm(a.size, dtype="bf16")

    def init(self) -> dict:
        rng = np.random.default_rng(0)
        d = self.a.size

        def w(*shape: int) -> np.ndarray:
            return (0.02 * rng.standard_normal(shape)).astype(np.float32)

        # Only shapes are needed, and the values of norms. They are made on the device that has code.
        key = ts.random.key(0) if self.a.target else ts.array(np.asarray(ts.random.key(0)), device="cuda:0")

        def made(layer) -> dict:
            return ts.tree.map(lambda x: x.numpy() if isinstance(x, ts.Array) else x, ts.jit(layer.init)(key))

        shapes = made(nn.TransformerBlock(d, self.a.heads))

        def like(x: np.ndarray) -> np.ndarray:
            return w(*x.shape) if x.ndim > 1 else np.array(x)

        return {
            "tokens": {"table": w(self.a.vocabulary, d)}, "places": {"table": w(self.a.length, d)},
            "blocks": [ts.tree.map(like, shapes) for _ in range(self.a.layers)],
            "norm": ts.tree.map(like, made(nn.LayerNorm(d))),
        }  # fmt: skip

    def loss(self, params: dict, tokens, targets):
        params = ts.tree.map(lambda x: x.astype("bf16"), params)
        x = self.tokens(params["tokens"], tokens) + params["places"]["table"][: tokens.shape[1]]
        for block, part in zip(self.blocks, params["blocks"], strict=True):
            x = block(part, x)
        logits = self.norm(params["norm"], x) @ params["tokens"]["table"].T
        return nn.cross_entropy(logits, targets)


def tessera_step(a: argparse.Namespace):
    model = Model(a)
    optimiser = ts.optim.AdamW(lr=3e-4)

    @ts.jit(capture_graph=a.graph, target=a.target, donate_argnums=() if a.target else (0, 1))
    def step(params, state, tokens, targets):
        loss, grads = ts.value_and_grad(model.loss)(params, tokens, targets)
        params, state = optimiser.update(params, grads, state)
        return params, state, loss

    params = model.init()
    return step, params, optimiser.init(params)


def batches(a: argparse.Namespace, n: int):
    rng = np.random.default_rng(1)
    for _ in range(n):
        t = rng.integers(0, a.vocabulary, (a.batch, a.length + 1)).astype(np.int32)
        yield t[:, :-1].copy(), t[:, 1:].copy()


def run_tessera(a: argparse.Namespace):
    """`steps(n)`: runs n steps, waits for them, and returns the seconds that the host took to issue them."""
    step, params, state = tessera_step(a)
    if a.target:
        start = time.perf_counter()
        made = step.compiled(params, state, *next(iter(batches(a, 1))))
        print(f"trace and compile {time.perf_counter() - start:.1f} s, {made.stats}")
        if a.times:
            print(made.plan)
        return None
    import torch

    params, state = ts.tree.map(lambda x: torch.as_tensor(np.asarray(x), device="cuda"), (params, state))
    data = [tuple(torch.as_tensor(t, device="cuda") for t in b) for b in batches(a, 2)]
    start = time.perf_counter()
    params, state, loss = step(params, state, *data[0])
    print(f"tessera: first step {time.perf_counter() - start:.1f} s, loss {float(loss):.4f}", flush=True)
    print(f"tessera: {step.stats(params, state, *data[0])}", flush=True)

    def steps(n: int) -> float:
        nonlocal params, state, loss
        start = time.perf_counter()
        for i in range(n):
            params, state, loss = step(params, state, *data[i % 2])
        issued = time.perf_counter() - start
        torch.cuda.synchronize()
        return issued

    steps(3)
    return steps


def run_torch(a: argparse.Namespace):
    """The same in PyTorch."""
    import torch
    import torch.nn.functional as F

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.n1, self.n2 = torch.nn.LayerNorm(a.size), torch.nn.LayerNorm(a.size)
            self.qkv, self.out = torch.nn.Linear(a.size, 3 * a.size), torch.nn.Linear(a.size, a.size)
            self.up, self.down = torch.nn.Linear(a.size, 4 * a.size), torch.nn.Linear(4 * a.size, a.size)

        def forward(self, x):
            b, t, d = x.shape
            q, k, v = (y.view(b, t, a.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).split(d, 2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
            return x + self.down(F.gelu(self.up(self.n2(x))))

    class GPT(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = torch.nn.Embedding(a.vocabulary, a.size), torch.nn.Embedding(a.length, a.size)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(a.layers))
            self.norm = torch.nn.LayerNorm(a.size)

        def forward(self, t, targets):
            x = self.tokens(t) + self.places.weight[: t.shape[1]]
            for block in self.blocks:
                x = block(x)
            logits = self.norm(x) @ self.tokens.weight.T
            return F.cross_entropy(logits.view(-1, logits.shape[-1]).float(), targets.reshape(-1))

    model = GPT().cuda()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.02)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    compiled = torch.compile(model)
    data = [tuple(torch.as_tensor(t, device="cuda").long() for t in b) for b in batches(a, 2)]

    def step(i: int):
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(*data[i % 2])
        loss.backward()
        optimiser.step()
        return loss

    start = time.perf_counter()
    step(0)
    torch.cuda.synchronize()
    print(f"torch.compile: first step {time.perf_counter() - start:.1f} s", flush=True)

    def steps(n: int) -> float:
        start = time.perf_counter()
        for i in range(n):
            step(i)
        issued = time.perf_counter() - start
        torch.cuda.synchronize()
        return issued

    steps(3)
    return steps


def compare(a: argparse.Namespace, variants: dict) -> None:
    """Runs both in rounds, in random order. Prints median times and the median of the ratios per round."""
    rng = np.random.default_rng(2)
    took: dict[str, list[float]] = {name: [] for name in variants}
    issued: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(a.rounds):
        for name in rng.permutation(list(variants)):
            start = time.perf_counter()
            issued[name].append(variants[name](a.steps) / a.steps)
            took[name].append((time.perf_counter() - start) / a.steps)
    for name, times in took.items():
        each = float(np.median(times))
        spread = f"{min(times) * 1e3:.2f} to {max(times) * 1e3:.2f}"
        print(f"{name}: {each * 1e3:.2f} ms a step ({spread} of {a.rounds} rounds of {a.steps}; "
              f"{np.median(issued[name]) * 1e3:.2f} ms to issue), {a.batch * a.length / each:.0f} tokens/s", flush=True)  # fmt: skip
    if len(took) == 2:
        ratios = np.array(took["torch.compile"]) / np.array(took["tessera"])
        print(f"torch.compile / tessera: {np.median(ratios):.3f} ({ratios.min():.3f} to {ratios.max():.3f})", flush=True)


def main() -> None:
    a = parse()
    variants = {}
    if a.only != "torch" and (made := run_tessera(a)):
        variants["tessera"] = made
    if a.only != "tessera" and not a.target:
        variants["torch.compile"] = run_torch(a)
    if variants:
        compare(a, variants)


if __name__ == "__main__":
    main()
