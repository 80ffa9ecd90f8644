"""Trains a small GPT on the characters of a text, on the CPU in less than three minutes, or on a GPU.

    python examples/train_gpt.py                 # 1000 steps; the loss falls below 1.0
    python examples/train_gpt.py --steps 2000 --checkpoint gpt.safetensors
    python examples/train_gpt.py --resume gpt.safetensors
    python examples/train_gpt.py --device cuda

The model is a function of a tree of arrays; `ts.value_and_grad` differentiates it, `ts.jit` makes one program of the whole
step. The plot of the loss is written as SVG beside the text form below."""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
import time
from pathlib import Path

import numpy as np

import tessera as ts
from tessera import nn

TEXT = Path(__file__).with_name("garden.txt")


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--steps", type=int, default=1000)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--size", type=int, default=64)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--text", type=Path, default=TEXT)
    p.add_argument("--dtype", default="f32")
    p.add_argument("--device", default="cpu", help='where it trains: "cpu", "cuda", "cuda:1"')
    p.add_argument("--losses", type=Path, default=None, help="where to write the loss of every step, one a line")
    p.add_argument("--goal", type=float, default=1.0, help="exit with 1 if the last losses are above it")
    p.add_argument("--plot", type=Path, default=None, help="where to write the loss as SVG")
    p.add_argument("--checkpoint", type=Path, default=None)
    p.add_argument("--resume", type=Path, default=None)
    p.add_argument("--sample", type=int, default=200, help="characters to write at the end")
    return p.parse_args()


def moved(tree, device: str):
    """The arrays of a tree on a device, or on the host again."""

    def one(x):
        if device == "cpu":
            return x.numpy() if isinstance(x, ts.Array) else x
        return ts.array(x, device=device) if isinstance(x, (np.ndarray, np.generic)) else x

    return ts.tree.map(one, tree)


class GPT:
    """Embeddings, blocks, a norm, and the table again to score characters."""

    def __init__(self, vocabulary: int, length: int, size: int, heads: int, layers: int, dtype: str) -> None:
        self.length = length
        self.tokens = nn.Embedding(vocabulary, size, dtype)
        self.places = nn.Embedding(length, size, dtype)
        self.blocks = [nn.TransformerBlock(size, heads, dtype=dtype) for _ in range(layers)]
        self.norm = nn.LayerNorm(size, dtype=dtype)

    def init(self, key):
        keys = ts.random.split(key, len(self.blocks) + 3)
        return {
            "tokens": self.tokens.init(keys[0]),
            "places": self.places.init(keys[1]),
            "blocks": [b.init(keys[3 + i]) for i, b in enumerate(self.blocks)],
            "norm": self.norm.init(keys[2]),
        }

    def __call__(self, params, tokens):
        x = self.tokens(params["tokens"], tokens) + params["places"]["table"][: tokens.shape[1]]
        for block, part in zip(self.blocks, params["blocks"], strict=True):
            x = block(part, x)
        return self.norm(params["norm"], x) @ params["tokens"]["table"].T


def bar(done: int, total: int, loss: float, rate: float) -> None:
    width = 30
    full = round(width * done / total)
    text = f"\r[{'#' * full}{'.' * (width - full)}] {done}/{total}  loss {loss:.3f}  {rate:.1f} steps/s"
    end = "\n" if done == total else ""
    if sys.stdout.isatty() or done == total or done % max(total // 10, 1) == 0:
        print(text if sys.stdout.isatty() else text.lstrip("\r"), end=end if sys.stdout.isatty() else "\n", flush=True)


def text_plot(losses: list[float], rows: int = 10, columns: int = 64) -> str:
    """The loss over the steps, in characters."""
    parts = np.array_split(np.asarray(losses), min(columns, len(losses)))
    means = [float(p.mean()) for p in parts]
    low, high = min(means), max(means)
    grid = [[" "] * len(means) for _ in range(rows)]
    for x, value in enumerate(means):
        y = 0 if high == low else round((high - value) / (high - low) * (rows - 1))
        grid[y][x] = "*"
    lines = ["".join(row) for row in grid]
    lines[0] = f"{high:5.2f} |" + lines[0]
    lines[-1] = f"{low:5.2f} |" + lines[-1]
    lines[1:-1] = ["      |" + line for line in lines[1:-1]]
    return "\n".join(lines)


def svg_plot(losses: list[float], path: Path) -> None:
    """The loss over the steps, as a picture."""
    width, height, edge = 640, 320, 40
    low, high = min(losses), max(losses)
    span = (high - low) or 1.0
    at = [
        f"{edge + i * (width - 2 * edge) / max(len(losses) - 1, 1):.1f},{edge + (high - v) / span * (height - 2 * edge):.1f}"
        for i, v in enumerate(losses)
    ]
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/>'
        f'<polyline fill="none" stroke="#2a6" stroke-width="1.5" points="{" ".join(at)}"/>'
        f'<text x="4" y="{edge}">{high:.2f}</text><text x="4" y="{height - edge}">{low:.2f}</text>'
        f'<text x="{width // 2 - 40}" y="{height - 10}">{len(losses)} steps</text></svg>\n'
    )


def main() -> int:
    args = parse()
    text = args.text.read_text()
    tokenizer = ts.data.CharTokenizer(text)
    loader = ts.data.TokenLoader(tokenizer.encode(text), args.batch, args.length, args.seed)
    model = GPT(tokenizer.size, args.length, args.size, args.heads, args.layers, args.dtype)
    schedule = ts.optim.warmup_cosine(args.lr, args.steps // 20, args.steps, args.lr / 10)
    optimiser = ts.optim.AdamW(lr=schedule, b2=0.99)

    if args.resume:
        kept = ts.load(args.resume)
        params, state, losses = kept["params"], kept["state"], kept["losses"].tolist()
        loader.restore(kept["loader"])
    else:
        params = ts.jit(model.init)(ts.random.key(args.seed))
        state, losses = optimiser.init(params), []
    count = sum(v.size for v in ts.tree.leaves(params))
    print(f"{count} parameters, {tokenizer.size} characters, {len(text)} of them in the text")

    params, state = moved((params, state), args.device)

    def loss_of(params, tokens, targets):
        return nn.cross_entropy(model(params, tokens), targets)

    @ts.jit
    def step(params, state, tokens, targets):
        loss, grads = ts.value_and_grad(loss_of)(params, tokens, targets)
        grads = ts.optim.clip_by_global_norm(grads, 1.0)
        params, state = optimiser.update(params, grads, state)
        return params, state, loss

    start = began = time.perf_counter()
    for done in range(loader.step, args.steps):
        tokens, targets = next(loader)
        params, state, loss = step(params, state, tokens, targets)
        losses.append(float(moved(loss, "cpu")))
        if done == 0:
            print(f"first step, with tracing and compiling: {time.perf_counter() - began:.1f} s")
            start = time.perf_counter()
        bar(done + 1, args.steps, losses[-1], done / max(time.perf_counter() - start, 1e-9))
    params, state = moved((params, state), "cpu")
    if args.losses:
        args.losses.write_text("".join(f"{v!r}\n" for v in losses))
    if args.checkpoint:
        kept = {"params": params, "state": state, "losses": np.asarray(losses), "loader": loader.state()}
        ts.save(args.checkpoint, kept)

    print(text_plot(losses))
    if args.plot:
        svg_plot(losses, args.plot)
    if args.sample:
        written = write(model, params, tokenizer, args)
        print("\n".join(textwrap.fill(line, 100) for line in written.splitlines()))
    last = float(np.mean(losses[-20:]))
    print(f"loss over the last steps: {last:.3f} (goal {args.goal}, chance {math.log(tokenizer.size):.3f})")
    return 0 if last <= args.goal else 1


def write(model: GPT, params, tokenizer, args: argparse.Namespace) -> str:
    """Characters from the model, one after another."""

    @ts.jit
    def following(params, window, at, key):
        logits = model(params, window)[0]
        return ts.random.categorical(key, ts.xp.take(logits, at, 0) * 1.4)

    out = list(tokenizer.encode("The "))
    key = ts.random.key(args.seed + 1)
    for i in range(args.sample):
        recent = out[-args.length :]
        window = np.zeros((1, args.length), np.int32)
        window[0, : len(recent)] = recent
        at = np.asarray(len(recent) - 1)
        out.append(int(following(params, window, at, np.asarray(int(key) + i))))
    return tokenizer.decode(out)


if __name__ == "__main__":
    raise SystemExit(main())
