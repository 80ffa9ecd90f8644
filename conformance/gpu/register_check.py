"""Compares the compiler's prediction of registers with NVIDIA's assembler. Needs no GPU. See docs/perf/untuned.md.

    scripts/assemblers.sh
    .venv/bin/python -m conformance.gpu.register_check --random 40 --out build/registers.jsonl

Kernels: those of the ledger, every candidate of `examples/attention.py` and `examples/gemm.py`, and random ones (matmuls with
several accumulators and epilogues, attention, rows). For each it compares the maximum register pressure of tiles and the limit of
a thread (`tile_registers` of `.explain()`) with `ptxas -v`: registers, bytes of spill stores. With register reallocation the
assembler reports an even share, so those kernels count for spills only.
"""

import argparse
import importlib.util
import itertools
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples"))

import numpy as np  # noqa: E402

import tessera as ts  # noqa: E402
from ledger.ledger import LEDGER  # noqa: E402
from ledger.recipe import TARGET, Recipe  # noqa: E402

#: Bytes of spills without a measurable cost: kernels of the ledger have as many.
FEW = 200


def ptxas():
    found = sorted((ROOT / ".venv" / "lib").glob("python3*/site-packages/nvidia/cu13/bin/ptxas"))
    if not found:
        sys.exit("no assembler: run scripts/assemblers.sh")
    return found[0]


def ledger():
    seen = set()
    for line in LEDGER.read_text(encoding="utf-8").splitlines():
        for code in json.loads(line)["code"]:
            text = json.dumps(code["recipe"], sort_keys=True)
            if text not in seen:
                seen.add(text)
                yield f"ledger {code['recipe']['kernel'].partition(':')[2]} {len(seen)}", Recipe.of(code["recipe"])


def textbook():
    for head, causal, m, n, warps in itertools.product((64, 128), (False, True), (64, 128), (64, 128), (4, 8)):
        config = {"D": head, "is_causal": causal, "BLOCK_M": m, "BLOCK_N": n, "num_warps": warps}
        yield f"attention hd{head} {'causal' if causal else 'full'} {m}x{n} {warps} warps", Recipe("attention:attention", config=config)
    for m, n, k, stages in itertools.product((64, 128), (64, 128), (32, 64), (2, 3)):
        yield f"gemm {m}x{n}x{k} {stages} stages", Recipe("gemm:gemm", config={"BM": m, "BN": n, "BK": k, "num_stages": stages})


MATMUL = """
@ts.kernel.schedule(warps={warps})
def {name}(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], D: ts.Tensor["N", ts.f32], {outs}):
    m = ts.tile.program_id(0) * {m}
    n = ts.tile.program_id(1) * {n}
{begin}
    for k in ts.tile.range(0, K, {k}):
        a = A[m:m + {m}, k:k + {k}]
        b = B[k:k + {k}, n:n + {n}]
{body}
{end}
"""
ROWS = """
@ts.kernel.schedule(warps={warps})
def {name}(X: ts.Tensor["M", {n}, ts.{dtype}], Y: ts.Tensor["M", {n}, ts.{dtype}]):
    i = ts.tile.program_id(0) * {rows}
    x0 = ts.tile.cast(X[i:i + {rows}, :], ts.f32)
{chain}
    Y[i:i + {rows}, :] = ts.tile.cast({last}, ts.{dtype})
"""


def matmul(draw, name):
    m, n = draw.choice((64, 128)), draw.choice((32, 64, 128, 256))
    count = draw.choice((1, 1, 2, 3, 4))
    add = draw.random() < 0.3
    of = {
        "name": name, "m": m, "n": n, "k": draw.choice((32, 64)), "warps": draw.choice((2, 4, 4, 8, 8, 16)),
        "outs": ", ".join(f'C{i}: ts.Tensor["M", "N", ts.f32]' for i in range(count)),
        "begin": "\n".join(f"    c{i} = ts.tile.zeros(({m}, {n}), ts.f32)" for i in range(count)),
        "body": "\n".join(f"        c{i} = ts.tile.mma(a, b, accumulator=c{i})" for i in range(count)),
    }  # fmt: skip
    last = [f"    C{i}[m:m + {m}, n:n + {n}] {'+=' if add else '='} c{i}" for i in range(count)]
    if draw.random() < 0.4:
        last.insert(0, f"    c0 = ts.tile.tanh(c0 + D[n:n + {n}][None, :])")
    return MATMUL.format(**of, end="\n".join(last)), {}


def rows(draw, name):
    count, n = draw.randint(1, 6), draw.choice((512, 1024, 2048, 4096, 8192))
    chain = []
    for i in range(count):
        # Each stays live until the end: the last expression uses all of them.
        chain += [f"    x{i + 1} = ts.tile.exp(x{i} - ts.tile.row_max(x{i})[:, None])"]
    last = " + ".join(f"x{i} / ts.tile.row_sum(x{count})[:, None]" for i in range(count + 1))
    of = {"name": name, "n": n, "rows": draw.choice((1, 1, 2, 4)), "dtype": draw.choice(("f32", "bf16"))}
    return ROWS.format(**of, warps=draw.choice((1, 2, 4, 8, 16)), chain="\n".join(chain), last=last), {}


def drawn(count, seed, folder):
    draw = random.Random(seed)
    texts, out = ["import tessera as ts\n"], []
    for i in range(count):
        if i % 3 == 2:
            m, n, head = draw.choice((64, 128, 192)), draw.choice((32, 64, 96, 128, 192)), draw.choice((32, 64, 96, 128))
            config = {"D": head, "is_causal": draw.random() < 0.5, "BLOCK_M": m, "BLOCK_N": n, "num_warps": draw.choice((4, 8, 12))}
            out.append((f"random attention {i} {config}", Recipe("attention:attention", config=config)))
            continue
        text, config = (matmul if i % 3 else rows)(draw, f"k{i}")
        texts.append(text)
        out.append((f"random {text.split('(')[0].strip()[-30:]} {i}", Recipe(f"drawn_kernels:k{i}", config=config)))
    path = Path(folder) / "drawn_kernels.py"
    path.write_text("\n".join(texts), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("drawn_kernels", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["drawn_kernels"] = module
    spec.loader.exec_module(module)
    return out


def assembled(text, target, folder):
    path = Path(folder) / "kernel.ptx"
    path.write_text(text, encoding="utf-8")
    said = subprocess.run([ptxas(), "-v", f"-arch={target}", path, "-o", "/dev/null"], capture_output=True, text=True)
    words = said.stdout + said.stderr
    registers, spills = re.search(r"Used (\d+) registers", words), re.search(r"(\d+) bytes spill stores", words)
    if not registers:
        raise RuntimeError(words[-300:])
    return int(registers[1]), int(spills[1]) if spills else 0, "C7512" in words


def row(name, recipe, folder):
    try:
        kernel = recipe.compiled()
    except ts.TesseraError as error:
        return {"name": name, "refused": error.code}
    resources = dict(kernel.explain().fields["resources"])
    if "tile_registers" not in resources:
        return {"name": name, "refused": "a lane kernel"}
    tiles, limit = map(int, resources["tile_registers"].split(" of "))
    registers, spills, serial = assembled(kernel.inspect_ir("target"), recipe.target or TARGET, folder)
    reallocates = "setmaxnreg" in kernel.inspect_ir("target")
    return {"name": name, "tiles": tiles, "limit": limit, "registers": registers, "spills": spills, "serial": serial, "reallocates": reallocates}


def summarise(rows_):
    """Prints statistics of all rows."""
    known = [r for r in rows_ if "tiles" in r]
    print(f"{len(known)} kernels, {len(rows_) - len(known)} refused")
    plain = [r for r in known if not r["reallocates"] and r["registers"] < r["limit"] and not r["spills"]]
    if len(plain) > 2:
        x, y = (np.array([r[n] for r in plain], float) for n in ("tiles", "registers"))
        rank = lambda v: np.argsort(np.argsort(v))  # noqa: E731
        print(
            f"registers against tiles, {len(plain)} kernels with room: correlation {np.corrcoef(x, y)[0, 1]:.3f}, of ranks "
            f"{np.corrcoef(rank(x), rank(y))[0, 1]:.3f}; more than tiles by {np.median(y - x):.0f} in the median, "
            f"{np.quantile(y - x, 0.1):.0f} to {np.quantile(y - x, 0.9):.0f} in 8 of 10"
        )
    short = lambda r: r["tiles"] + 16 > r["limit"]  # noqa: E731
    for predicted, spilled in itertools.product((True, False), (True, False)):
        these = [r for r in known if short(r) == predicted and (r["spills"] > FEW) == spilled]
        print(f"  {'spills' if predicted else 'fits  '} predicted, {'spills' if spilled else 'fits  '} seen: {len(these)}")
        if predicted != spilled:
            for r in these[:20]:
                print(f"      {r['name']}: tiles {r['tiles']} of {r['limit']}, ptxas {r['registers']} and {r['spills']} bytes of spills")
    over = [r for r in known if r["spills"] > FEW]
    if len(over) > 2:
        x, y = (np.array(v, float) for v in ([r["tiles"] - r["limit"] for r in over], [r["spills"] for r in over]))
        print(f"bytes of spills against registers too few, {len(over)} kernels: correlation {np.corrcoef(x, y)[0, 1]:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--random", type=int, default=40, metavar="N", help="random kernels (40)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--out", type=Path, metavar="FILE", help="one row per line; rows that it holds already are not computed again")
    options = parser.parse_args()
    done = {}
    if options.out and options.out.exists():
        done = {r["name"]: r for r in map(json.loads, options.out.read_text(encoding="utf-8").splitlines())}
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, recipe in itertools.chain(drawn(options.random, options.seed, folder), textbook(), ledger()):
            if not re.search(options.only, name):
                continue
            one = done.get(name) or row(name, recipe, folder)
            found.append(one)
            if name not in done:
                print(json.dumps(one), flush=True)
                if options.out:
                    with options.out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(one) + "\n")
    summarise(found)


if __name__ == "__main__":
    main()
