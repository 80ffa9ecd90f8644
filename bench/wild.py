"""A benchmark that cannot be tuned to: shapes and kernel sources are drawn from a seed. See docs/perf/wild.md.

    PYTHONPATH=build/gpu python3 bench/wild.py --count 300 --jobs 12 --out $OUT/wild.jsonl           on a machine with a GPU
    PYTHONPATH=build/gpu python3 bench/wild.py --seed 7 --family 'matmul|rows' --minutes 5
    PYTHONPATH=build/gpu python3 bench/wild.py --untuned-vs-tuned 100
    PYTHONPATH=python build/bench-venv/bin/python bench/wild.py --cpu --minutes 10
    python bench/wild.py --show wild.jsonl                                                           of rows that were kept

Every result is held against float64 before it is timed; one that is wrong is a failure, printed with its seed and index, and
`--seed S --program I` runs it again. All runs of a program alternate in one process, on a GPU with the second-level cache
flushed before each. A ratio is the median over the rounds of the peer's time over ours.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # not this folder, whose names are many libraries' too

from bench.drawn import families, programs, report  # noqa: E402

#: Seconds without a row after which a process hangs.
SILENCE = 180
#: How often a process that was lost is started anew.
RESTARTS = 20


def parse(arguments=None):
    parser = argparse.ArgumentParser(prog="bench/wild.py", description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--seed", type=int, help="of shapes and sources (a new one, which is printed)")
    option("--count", type=int, metavar="N", help="programs (100, or as many as --minutes allows)")
    option("--minutes", type=float, metavar="N", help="no program is begun after so long")
    option("--family", default="", metavar="REGEX", help=f"of {', '.join(families.DRAWN)}")
    option("--program", type=int, metavar="I", help="only the program of this index")
    option("--untuned-vs-tuned", type=int, metavar="N", help="N programs with candidates: what is chosen untuned against the best of all")
    option("--cpu", action="store_true", help="one thread on one core, beside NumPy, MKL and XLA")
    option("--rounds", type=int, default=15)
    option("--jobs", type=int, default=1, metavar="N", help="processes that compile before anything is timed (1: none)")
    option("--no-compile", action="store_true", help="without torch.compile among the peers")
    option("--out", type=Path, metavar="FILE", help="rows as JSON, one a line; the first says what the run was")
    option("--each", action="store_true", help="also the ten worst of each family")
    option("--show", type=Path, nargs="+", metavar="FILE", help="prints the tables of kept rows, and runs nothing")
    for name in ("--worker", "--begin", "--share"):
        option(name, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(10**6)
    return options


def chosen(options):
    """Indices of the programs of a run."""
    if options.program is not None:
        yield options.program
        return
    count = options.untuned_vs_tuned or options.count or (10**9 if options.minutes else 100)
    index = -1
    while count:
        index += 1
        if re.search(options.family, families.at(index)) and (not options.untuned_vs_tuned or drawn(options, index).space):
            count -= 1
            yield index


def drawn(options, index):
    return programs.draw(options.seed, index, programs.CPU if options.cpu else programs.GPU)


def machine(options):
    if options.cpu:
        from bench.drawn.cpu import Cpu

        return Cpu(options.seed)
    from bench.drawn.gpu import Gpu

    return Gpu(options.seed, compiled=not options.no_compile)


# One program


def candidates(program):
    """Each candidate of the program's space, pinned."""
    found = [{}]
    for name, values in program.space.items():
        found = [{**one, name: value} for one in found for value in values]
    return found


def run(program, on, options, time_it=True):
    """The row of a program: checked, then timed beside its peers."""
    from bench.drawn.machine import Wrong, watched

    row = program.as_dict() | {"pitches": {name: a.pitch for name, a in (*program.arrays.items(), ("out", program.out)) if a.pitch}}
    try:
        arrays, out = on.arrays(program), on.empty(program.out)
        ours = on.ours(program, arrays, out)
        with watched() as launches:
            result = ours()
        on.check(program, arrays, result)
        del result
        row["launches"] = launches
        if program.call.startswith("ts.op.matmul"):
            import tessera as ts

            row["plan"] = ts.op.matmul.explain(arrays["a"], arrays["b"])
        runs, refused = {"ours": ours}, {}
        if options.untuned_vs_tuned:
            pinned = {" ".join(f"{n}={v}" for n, v in one.items()): one for one in candidates(program)}
            runs |= {f"ours {text}": on.ours(program, arrays, out, **one) for text, one in pinned.items()}
        else:
            runs |= on.peers(program, arrays, out)
            if not program.flops:
                runs["copy"] = on.copy(program)
        for name in list(runs):
            try:
                on.settle(runs[name])
            except Exception as error:  # a peer or a candidate that does not take the program
                if name == "ours" or not on.alive():
                    raise
                refused[name] = first_line(error)
                del runs[name]
        row["refused"] = refused
        if not time_it:
            return row
        row |= {"status": "timed", **figures(program, on, on.times(runs, options.rounds, 4.0))}
    except Wrong as error:
        row |= {"status": "wrong", "why": str(error)}
    except Exception as error:
        row |= {"status": "skip" if on.memory_full(error) else "error", "why": f"{type(error).__name__}: {first_line(error)}"}
    return row


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def figures(program, on, times):
    """What samples say: medians, ratios, and the part of the roof."""
    from bench.drawn.borrowed import median, ratio

    us = {name: 1e6 * median(samples) for name, samples in times.items()}
    floors = {"memory": program.bytes / on.roof["bytes"]}
    if program.flops and program.dtype in on.roof:
        floors["compute"] = program.flops / on.roof[program.dtype]
    bound = max(floors, key=floors.get)
    hosts = getattr(on, "hosts", {})
    found = {"us": us, "host_us": {name: 1e6 * t for name, t in hosts.items()}, "bound": bound, "roof": 1e6 * floors[bound] / us["ours"]}
    # Without a peer, as where candidates are compared, it is its own.
    found |= {"ours_us": us["ours"], "peer_us": us["ours"], "peer": "", "ratio": 1.0}
    tuned = [name for name in times if name.startswith("ours ")]
    if tuned:
        best = min(tuned, key=us.get)
        found |= {"best": best.removeprefix("ours "), "of_tuned": ratio(times["ours"], times[best])["ratio"]}
    peers = [name for name in times if name not in ("ours", "copy", *tuned)]
    if peers:
        peer = min(peers, key=us.get)
        both = ratio(times["ours"], times[peer])
        found |= {"peer": peer, "peer_us": us[peer], **both}
    if "copy" in times:
        found["of_copy"] = ratio(times["ours"], times["copy"])["ratio"]
    return found


# Processes


def worker(options):
    """Runs the programs from `--begin` on, or a share of them without timing, and writes a row for each."""
    on = machine(options)
    path, warm = Path(options.worker), options.share is not None
    share, shares = map(int, (options.share or "0/1").split("/"))
    until = float(options.minutes) if options.minutes else float("inf")
    with path.open("a", encoding="utf-8") as file:
        write = lambda row: (file.write(json.dumps(row) + "\n"), file.flush())  # noqa: E731
        if not warm:
            about = on.describe()
            write({"about": about, "roof": on.roof, "processors": on.processors})
        for place, index in enumerate(chosen(options)):
            if place < int(options.begin or 0) or place % shares != share:
                continue
            if time.time() > until:
                break
            program = drawn(options, index)
            write({"begin": place, "name": program.name, "title": program.title, "family": program.family})
            row = run(program, on, options, time_it=not warm)
            on.free()
            if not warm:
                write(row)
            if not on.alive():
                sys.exit(7)
    return 0


def spawned(options, path, **more):
    """A process of this program with the same options."""
    flags = ["--seed", options.seed, "--family", options.family, "--rounds", options.rounds, "--worker", path]
    for name in ("count", "program", "untuned_vs_tuned"):
        value = getattr(options, name)
        flags += [f"--{name.replace('_', '-')}", value] if value is not None else []
    flags += ["--cpu"] * options.cpu + ["--no-compile"] * options.no_compile
    flags += [part for name, value in more.items() for part in (f"--{name}", value)]
    from bench.cpu import environment

    # Libraries read how many threads they may have once, when they are loaded.
    one = {**environment.variables(1), environment.CORES_VARIABLE: str(environment.CORES[-1])} if options.cpu else {}
    with open(f"{path}.log", "w") as log:
        return subprocess.Popen([sys.executable, __file__, *map(str, flags)], stdout=log, stderr=log, env={**os.environ, **one})


def warm(options, folder, until):
    """Compiles everything in parallel, for the caches on disk; a failure is reported where it is timed."""
    if options.minutes and not options.count and not options.untuned_vs_tuned:
        return  # nobody knows how many
    made = [spawned(options, f"{folder}/warm{i}", share=f"{i}/{options.jobs}", minutes=until) for i in range(options.jobs)]
    for process in made:
        try:
            process.wait(max(1.0, until - time.time() + 30))
        except subprocess.TimeoutExpired:
            process.kill()


def follow(options, path, begin, until):
    """Rows of one process as they come; at the end, where it was lost, `{"go on": place}`."""
    process = spawned(options, path, begin=begin, minutes=until)
    read, begun, ended, heard = 0, None, True, time.time()
    while True:
        over = process.poll() is not None
        text = Path(path).read_text(encoding="utf-8") if Path(path).exists() else ""
        lines = text[read : text.rfind("\n") + 1]
        read += len(lines)
        for line in lines.splitlines():
            heard, row = time.time(), json.loads(line)
            if "begin" in row:
                begun, ended = row, False
            else:
                ended = True
                yield row
        if over and process.returncode == 0:
            return
        if over or time.time() - heard > SILENCE:
            process.kill()
            if begun is None:
                sys.exit(f"error: {last_words(path)}")
            if not ended:
                why = f"the process ended with {process.returncode}" if over else f"nothing was heard for {SILENCE} s"
                yield {**begun, "status": "error", "why": f"{why}: {last_words(path)}"}
            yield {"go on": begun["begin"] + 1}
            return
        time.sleep(0.05)


def last_words(path):
    lines = [line for line in Path(f"{path}.log").read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "without a word"


def tell(row):
    if row["status"] == "timed":
        peer = f"{row['ratio']:6.3f} of {row['peer']:<9}" if row["peer"] else f"{row['of_tuned']:6.3f} of {row['best']}"
        copy = f" {row['of_copy']:.3f} of a copy" if "of_copy" in row else ""
        print(f"{row['name']:<10} {peer} {row['ours_us']:9.1f} us{copy}  {row['title']}", flush=True)
    else:
        print(f"{row['name']:<10} {row['status']}: {row['title']}: {row['why']}", flush=True)


def main(arguments=None):
    options = parse(arguments)
    if options.worker:
        return worker(options)
    if options.show:
        kept = [json.loads(line) for path in options.show for line in path.read_text(encoding="utf-8").splitlines()]
        print(report.show([row for row in kept if "status" in row], kept[0].get("processors", 1), options.each))
        return 0
    print(f"seed {options.seed}", flush=True)
    until = time.time() + 60 * options.minutes if options.minutes else time.time() + 10**8
    rows, about = [], {"seed": options.seed, "arguments": sys.argv[1:]}
    with tempfile.TemporaryDirectory(prefix="tessera-wild-") as folder:
        if options.jobs > 1:
            warm(options, folder, time.time() + (until - time.time()) / 2)
        begin, restarts = 0, 0
        while begin is not None and restarts < RESTARTS:
            ended = None
            for row in follow(options, f"{folder}/rows{restarts}", begin, until):
                if "about" in row:
                    about |= row
                elif "go on" in row:
                    ended = row["go on"]
                else:
                    rows.append(row)
                    tell(row)
                if options.out:
                    options.out.write_text("".join(json.dumps(r) + "\n" for r in (about, *rows)), encoding="utf-8")
            begin, restarts = ended, restarts + 1
    print(report.show(rows, about.get("processors", 1), options.each))
    return any(row["status"] in ("wrong", "error") for row in rows)


if __name__ == "__main__":
    sys.exit(main())
