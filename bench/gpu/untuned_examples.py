"""Untuned kernels of `examples/`, and a GEMM with more tile sizes, compared with cuDNN, FlashAttention and cuBLAS.
See docs/perf/untuned.md.

    PYTHONPATH=build/gpu python3 -m bench.gpu.untuned_examples --rounds 20 --out $OUT/untuned.json
    PYTHONPATH=build/gpu python3 -m bench.gpu.untuned_examples --only 'attention hd128' --all

It times what a first call without tuning records runs: the candidate that the cost model ranks first. With `--all` it also times
every candidate in the same rounds. Then the table also shows how far the choice is from the best candidate, and the rank
correlation of predicted and measured times. Single launches run in random order, with the L2 cache flushed before each. Results
are compared with float64 first.
"""

import argparse
import concurrent.futures
import json
import math
import multiprocessing
import random
import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples"))

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import tessera as ts  # noqa: E402
from gpurun.device import Cuda  # noqa: E402
from gpurun.stats import median, micro, ratio  # noqa: E402
from ledger.recipe import Recipe, found  # noqa: E402

#: Clock cycles that the device sleeps before each launch: longer than the host needs to enqueue it.
LEAD = 200_000
#: Tokens of an attention, and the width of all its heads together.
TOKENS, WIDTH = 16384, 2048
SIZES = ((3072,) * 3, (4096,) * 3, (5120,) * 3)
#: The largest relative error of a result.
ERROR = 6e-3


@dataclass(frozen=True)
class Attention:
    head: int
    causal: bool
    length: int

    path = "attention:attention"

    @property
    def name(self):
        return f"attention hd{self.head} {'causal' if self.causal else 'full'} {self.length // 1024}k"

    @property
    def dims(self):
        return {"D": self.head, "is_causal": self.causal}

    @property
    def flops(self):
        return 4 * TOKENS * WIDTH * self.length * (0.5 if self.causal else 1.0)

    def arrays(self):
        batch, heads = TOKENS // self.length, WIDTH // self.head
        return [torch.randn(batch * heads, self.length, self.head, device="cuda", dtype=torch.bfloat16) for _ in range(3)]

    def call(self, kernel, arrays):
        out = torch.empty_like(arrays[0])
        return lambda: kernel(*arrays, out, is_causal=self.causal)

    def peers(self, arrays):
        shape = TOKENS // self.length, WIDTH // self.head, self.length, self.head
        q, k, v = (x.view(shape) for x in arrays)

        def library(kind):
            def call():
                with sdpa_kernel(kind):
                    return F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)

            return call

        return {"cudnn": library(SDPBackend.CUDNN_ATTENTION), "flash": library(SDPBackend.FLASH_ATTENTION)}

    def error(self, out, arrays):
        q, k, v = (x[:1].double() for x in arrays)
        s = q @ k.transpose(-1, -2) / math.sqrt(self.head)
        if self.causal:
            s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -math.inf)
        right = s.softmax(-1) @ v
        return ((out[:1].double() - right).norm() / right.norm()).item()


@dataclass(frozen=True)
class Product:
    m: int
    n: int
    k: int

    path = "gemm:gemm"
    dims = {}
    #: The peer that computes exactly the same, reported beside the fastest one.
    same = "cublas f32 +="
    #: The result's elements before the call, and the part of them that remains in it.
    before, stays = 3.0, 3.0

    @property
    def name(self):
        return f"gemm {self.m}x{self.n}x{self.k}"

    @property
    def flops(self):
        return 2 * self.m * self.n * self.k

    def arrays(self):
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
        return [make(self.m, self.k), make(self.k, self.n)]

    def call(self, kernel, arrays):
        out = torch.full((self.m, self.n), self.before, device="cuda")
        return lambda: kernel(*arrays, out)

    def peers(self, arrays):
        out = torch.zeros(self.m, self.n, device="cuda", dtype=torch.bfloat16)
        wide = torch.zeros(self.m, self.n, device="cuda")
        return {
            "cublas": lambda: torch.matmul(*arrays, out=out),
            # With an f32 result, as ours; and added to the existing one.
            "cublas f32": lambda: torch.mm(*arrays, out_dtype=torch.float32, out=wide),
            "cublas f32 +=": lambda: torch.addmm(wide, *arrays, out_dtype=torch.float32, out=wide),
        }

    def error(self, out, arrays):
        right = arrays[0][:64].double() @ arrays[1].double() + self.stays
        return ((out[:64].double() - right).norm() / right.norm()).item()


class Wide(Product):
    path = "bench.gpu.untuned_gemm:gemm"
    same = "cublas f32"
    stays = 0.0

    @property
    def name(self):
        return f"wide gemm {self.m}x{self.n}x{self.k}"


def works(options):
    for head in (128, 64):
        for causal in (False, True):
            for length in (2048, 4096, 8192):
                yield Attention(head, causal, length)
    draw = random.Random(options.seed)
    # Log-uniform multiples of 8 elements: TMA needs rows of a multiple of 16 bytes.
    sizes = [*SIZES, *(tuple(8 * round(2 ** draw.uniform(7, 10)) for _ in range(3)) for _ in range(options.random))]
    for kind in (Product, Wide):
        for size in sizes:
            yield kind(*size)


def candidates(work):
    """The kernel's candidates, each as a text and a recipe that pins it."""
    plain = lambda value: value[1] if isinstance(value, tuple) else value  # noqa: E731
    for one in found(work.path).spec.candidates:
        config = {name: plain(value) for name, value in one.items()}
        yield " ".join(f"{n}={v}" for n, v in config.items()), Recipe(work.path, config={**work.dims, **config})


def settle(path, config, work):
    """Compiles a candidate in its own process. The disk cache keeps the code for other processes."""
    arrays = work.arrays()
    try:
        work.call(Recipe(path, config=config).make(), arrays)()
        torch.cuda.synchronize()
    except Exception:
        pass  # reported when it is timed


def run(work, options, timer):
    arrays = work.arrays()
    kernel = found(work.path)
    calls, refused = {"untuned": work.call(kernel, arrays)}, {}
    if options.all:
        calls |= {text: work.call(recipe.make(), arrays) for text, recipe in candidates(work)}
    for name in list(calls):
        try:
            error = work.error(calls[name](), arrays)
            if not error < ERROR:
                raise ArithmeticError(f"relative error {error:.2e}")
        except Exception as why:
            refused[name] = f"{type(why).__name__}: {str(why).splitlines()[0][:160]}"
            del calls[name]
    explained = kernel.explain().fields
    ours = list(calls)
    for name, call in work.peers(arrays).items():
        try:
            call()
        except Exception:  # a backend that does not take the shape
            continue
        calls[name] = call
    torch.cuda.synchronize()
    times = dict(zip(calls, timer.samples([lambda _, call=call: call() for call in calls.values()], options.rounds)))
    peer = min((n for n in calls if n not in ours), key=lambda n: median(times[n]))
    tera = lambda name: work.flops / median(times[name]) * 1e-12  # noqa: E731
    row = {"name": work.name, "peer": peer, "refused": refused, "us": {name: micro(t) for name, t in times.items()}}
    row["tuned"] = str(explained.get("tuned") or "")
    row["config"] = str(explained.get("config"))
    row["resources"] = {k: str(v) for k, v in dict(explained.get("resources") or {}).items()}
    if "untuned" in times:
        row["ratio"] = ratio(times["untuned"], times[peer])
        line = "{ratio:.3f} [{low:.3f}, {high:.3f}]".format(**row["ratio"])
        line += f"  {tera('untuned'):.0f} of {tera(peer):.0f} TFLOP/s ({peer})  {row['config']}"
    else:
        line = "refused"
    if "untuned" in times and times.get(getattr(work, "same", None)):
        row["same"] = ratio(times["untuned"], times[work.same])
        line += f", {row['same']['ratio']:.3f} of {work.same}"
    best = min((n for n in ours if n != "untuned"), key=lambda n: median(times[n]), default=None)
    if best and "untuned" in times:
        row["regret"] = ratio(times["untuned"], times[best])
        line += f"  | best {best}: {tera(best):.0f}, choice at {row['regret']['ratio']:.3f} of it"
    print(f"{work.name:<28} {line}", flush=True)
    if options.all:
        for name in sorted((n for n in ours if n != "untuned"), key=lambda n: median(times[n])):
            print(f"    {name:<44} {tera(name):6.1f}", flush=True)
    for name, why in refused.items():
        print(f"    {name}: {why}", flush=True)
    return row


def predicted(work):
    """Predicted seconds of each candidate. This runs a search, so later calls find tuning records."""
    arrays = work.arrays()
    out = work.call(found(work.path), arrays)()
    try:
        rows = found(work.path).tune(*arrays, out, budget_ms=400).rows
    except ts.TesseraError:  # none was measured in so short a time
        rows = found(work.path).tuning_report().rows
    return {words(row.config): row.predicted for row in rows if row.predicted}


def words(config):
    return frozenset(config.replace(",", "").split())


def correlation(row, seconds):
    """Spearman's, of predicted with measured times."""
    both = [(seconds[words(name)], median(us)) for name, us in row["us"].items() if words(name) in seconds]
    if len(both) < 3:
        return None
    ranks = [np.argsort(np.argsort(column)) for column in zip(*both)]
    return float(np.corrcoef(ranks)[0, 1])


def spread(rows, name):
    """The median, the fifth percentile and the least of a ratio."""
    seen = sorted(row[name]["ratio"] for row in rows if name in row)
    return "median {:.3f}, 5th percentile {:.3f}, least {:.3f}".format(*np.quantile(seen, (0.5, 0.05, 0))) if seen else "none"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--all", action="store_true", help="also time every candidate")
    parser.add_argument("--random", type=int, default=8, metavar="N", help="GEMMs of random sizes (8)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=8, help="processes that compile candidates in parallel")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    chosen = [work for work in works(options) if re.search(options.only, work.name)]
    if options.all and options.jobs > 1:
        first = {(work.path, json.dumps(work.dims)): work for work in chosen}
        with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
            list(pool.map(settle, *zip(*((w.path, r.config, w) for w in first.values() for _, r in candidates(w)))))
    device = Cuda()
    timer = device.timer(rng=np.random.default_rng(options.seed), write=True, lead=LEAD)
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    rows = []
    for work in chosen:
        rows.append(run(work, options, timer))
        if options.out:
            options.out.write_text(json.dumps(rows), encoding="utf-8")
    for kind in (Attention, Product, Wide):
        own = [(work, row) for work, row in zip(chosen, rows) if type(work) is kind]
        if not own:
            continue
        if options.all and kind is not Attention:
            for work, row in own:
                row["rank"] = correlation(row, predicted(work))
            ranks = sorted(row["rank"] for _, row in own if row["rank"] is not None)
            if ranks:
                print(f"{kind.__name__}: rank correlation of predictions, median {median(ranks):.3f}, least {ranks[0]:.3f}")
        for name, of in (("ratio", "the best peer"), ("same", "the peer with the same result"), ("regret", "the best candidate")):
            print(f"{kind.__name__}: of {of}: {spread([row for _, row in own], name)}")
    if options.out:
        options.out.write_text(json.dumps(rows), encoding="utf-8")
    seen = [row["ratio"]["ratio"] for row in rows if "ratio" in row]
    print(f"geometric mean of the ratios {math.exp(sum(map(math.log, seen)) / max(1, len(seen))):.3f}, least {min(seen, default=0):.3f}")


if __name__ == "__main__":
    main()
