"""`xp.matmul` inside `ts.jit` beside `ts.op.matmul`, at shapes, dtypes and transpositions that `bench/wild.py` draws from a seed.

    PYTHONPATH=build/gpu python3 bench/traced_matmul.py --count 12 --out $OUT/traced.jsonl     on a machine with a GPU
    PYTHONPATH=python python bench/traced_matmul.py --cpu --count 12

Both alternate in one process, on a GPU with the second-level cache flushed before each, and their results are compared. Memory
is the same: where a matrix is transposed, the traced function does it. A ratio is the median over the rounds of the time of
`ts.op.matmul` over that of the traced function, with its 95% bootstrap confidence interval.
"""

import argparse
import json
import random
import statistics
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import tessera as ts  # noqa: E402
from bench.drawn import programs  # noqa: E402
from tessera import xp  # noqa: E402


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--seed", type=int, help="of shapes (a new one, which is printed)")
    option("--count", type=int, default=12)
    option("--cpu", action="store_true")
    option("--rounds", type=int, default=15)
    option("--out", type=Path, metavar="FILE", help="rows as JSON, one a line")
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def drawn(seed, count, limits):
    """Matmuls of `bench/wild.py` without their epilogues; not those of fp8, which have another result dtype."""
    index = -1
    while count:
        index += 1
        program = programs.draw(seed, index, limits, family="matmul")
        if not program.dtype.startswith("fp8"):
            count -= 1
            yield program


def traced(program, a, b):
    """A call of the jitted function on the memory of both matrices."""
    turned = [program.arrays[name].turned for name in "ab"]
    given = [x.T if t else x for t, x in zip(turned, (a, b))]

    @ts.jit
    def function(a, b):
        a, b = (xp.matrix_transpose(x) if t else x for t, x in zip(turned, (a, b)))
        return xp.matmul(a, b)

    return lambda iteration=0: function(*given)


def run(program, on, rounds):
    import numpy as np

    from bench.drawn.borrowed import median, ratio

    a, b = (on.array(program.arrays[name], program, place) for place, name in enumerate("ab"))
    runs = {"ours": lambda iteration=0: ts.op.matmul(a, b), "ours traced": traced(program, a, b)}
    got = [np.asarray(on.wide(call()).cpu() if hasattr(a, "cpu") else on.wide(call())) for call in runs.values()]
    scale = abs(got[0]).max() + 1e-30
    assert np.isfinite(got[0]).all() and abs(got[0] - got[1]).max() <= 2e-2 * scale, program.title
    for call in runs.values():
        on.settle(call)
    times = on.times(runs, rounds, 2.0)
    return {
        "name": program.name, "title": program.title, "plan": ts.op.matmul.explain(a, b),
        "us": {name: 1e6 * median(samples) for name, samples in times.items()}, **ratio(times["ours traced"], times["ours"]),
    }  # fmt: skip


def main(arguments=None):
    options = parse(arguments)
    print(f"seed {options.seed}", flush=True)
    if options.cpu:
        from bench.drawn.cpu import Cpu as Machine
    else:
        from bench.drawn.gpu import Gpu as Machine
    on, rows = Machine(options.seed), []
    for program in drawn(options.seed, options.count, programs.CPU if options.cpu else programs.GPU):
        row = run(program, on, options.rounds)
        rows.append(row)
        op, function = row["us"]["ours"], row["us"]["ours traced"]
        print(f"{row['ratio']:.3f} [{row['low']:.3f}, {row['high']:.3f}]  op {op:9.1f} us  traced {function:9.1f} us  {row['title']}", flush=True)
        on.free()
        if options.out:
            options.out.write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")
    ratios = [row["ratio"] for row in rows]
    print(f"least {min(ratios):.3f}, median {statistics.median(ratios):.3f} of {len(rows)}")


if __name__ == "__main__":
    main()
