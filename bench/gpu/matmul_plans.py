"""Measured times of the plans that the cost model compares for `ts.op.matmul`, beside its predictions, at drawn shapes.

    PYTHONPATH=build/gpu python3 -m bench.gpu.matmul_plans --seed 1 --count 40 --out $OUT/plans.jsonl
    python -m bench.gpu.matmul_plans --show plans.jsonl

Plans of one shape alternate in one process, with the second-level cache flushed before each. The regret of a shape is the time of
the plan that is chosen over that of the fastest.
"""

import argparse
import json
import math
import random
import statistics
from pathlib import Path

from bench.drawn import programs

#: Plans of a shape that are measured: the best by prediction, and always the best of each split-K factor.
PLANS = 8


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--seed", type=int)
    option("--count", type=int, default=40)
    option("--rounds", type=int, default=9)
    option("--dtypes", default="bf16,f32")
    option("--most-tiles", type=int, default=264, help="only shapes of at most this number of tiles of 128x128 (0: all)")
    option("--out", type=Path, metavar="FILE")
    option("--show", type=Path, metavar="FILE", help="prints the table of kept rows, and runs nothing")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def shapes(options):
    draw = programs.Draw(f"{options.seed} plans")
    left = options.count
    while left:
        dtype = draw.choice(options.dtypes.split(","))
        M, N, K = (max(8, draw.length(8, 16384) // 8 * 8) for _ in range(3))
        tiles = math.ceil(M / 128) * math.ceil(N / 128)
        if 2.0 * M * N * K <= (5e11 if dtype == "f32" else 4e12) and (not options.most_tiles or tiles <= options.most_tiles):
            left -= 1
            yield dtype, M, N, K


def picked(ranked):
    """The chosen plan, the best of each split-K factor, and the next best."""
    first, best = {}, []
    for row in ranked:
        first.setdefault(row[2], row)
    for row in [ranked[0], *first.values(), *ranked]:
        if row not in best:
            best.append(row)
    return best[: max(PLANS, len(first))]


def run(options):
    import tessera as ts
    from bench.drawn.borrowed import median
    from bench.drawn.gpu import Gpu
    from tessera import _core
    from tessera.kernels import gemm_plan

    on, rows = Gpu(options.seed), []
    for dtype, M, N, K in shapes(options):
        of = getattr(ts, dtype)
        torch, kind = on.torch, on.device.dtype(dtype)
        a, b = (torch.randn(shape, device="cuda").to(kind) for shape in ((M, K), (K, N)))
        chosen = gemm_plan.planned(a[None], b[None], None, "default")
        m, n = (N, M) if chosen.swapped else (M, N)
        tile, *_, ranked = _core.matmul_schedule(1, M, N, K, of, of.itemsize, 128, (None, None), True)
        runs, predicted = {}, {}
        for bm, bn, split, seconds, _ in picked(ranked):
            count = math.ceil(m / bm) * math.ceil(n / bn) * split
            same = (bm, bn, split) == tuple(ranked[0][:3])
            pins = {"tile": tile if same else (bm, bn, tile[2]), "split": split, "persistent": count > on.processors}
            name = f"{pins['tile'][0]}x{pins['tile'][1]}x{tile[2]}/{split}"
            runs[name] = lambda iteration=0, pins=pins: ts.op.matmul(a, b, tile=pins)  # noqa: B023
            predicted[name] = 1e6 * seconds
        runs["torch"] = lambda iteration=0: torch.mm(a, b)  # noqa: B023
        for name in list(runs):
            try:
                on.settle(runs[name])
            except ts.TesseraError as error:
                print(f"{name}: {error}".splitlines()[0], flush=True)
                del runs[name]
        times = on.times(runs, options.rounds, 0.5)
        us = {name: round(1e6 * median(samples), 2) for name, samples in times.items()}
        row = {"dtype": dtype, "shape": (M, N, K), "us": us, "predicted": {n: round(predicted[n], 2) for n in us if n in predicted}}
        rows.append(row)
        print(line(row), flush=True)
        on.free()
        if options.out:
            options.out.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    return rows


def line(row):
    ours = {name: t for name, t in row["us"].items() if name != "torch"}
    best = min(ours, key=ours.get)
    each = "  ".join(f"{n} {t:.1f} ({row['predicted'][n]:.1f})" for n, t in ours.items())
    regret = next(iter(ours.values())) / ours[best]
    return f"{regret:.2f} {row['dtype']} {'x'.join(map(str, row['shape']))} torch {row['us'].get('torch', 0):.1f}: {each}"


def show(rows):
    regrets, errors = [], []
    for row in rows:
        ours = {name: t for name, t in row["us"].items() if name != "torch"}
        regrets.append(next(iter(ours.values())) / min(ours.values()))
        errors += [(name.endswith("/1"), row["predicted"][name] / t) for name, t in ours.items()]
    print(f"regret: median {statistics.median(regrets):.3f}, mean {statistics.fmean(regrets):.3f}, worst {max(regrets):.2f} of {len(rows)} shapes")
    for whole, what in ((True, "one launch"), (False, "split-K")):
        of = sorted(e for w, e in errors if w == whole)
        if of:
            ends = of[len(of) // 20], of[-1 - len(of) // 20]
            print(f"predicted over measured, {what}: 5% {ends[0]:.2f}, median {statistics.median(of):.2f}, 95% {ends[1]:.2f} of {len(of)}")


def main(arguments=None):
    options = parse(arguments)
    if options.show:
        rows = [json.loads(text) for text in options.show.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            print(line(row))
    else:
        print(f"seed {options.seed}", flush=True)
        rows = run(options)
    show(rows)


if __name__ == "__main__":
    main()
