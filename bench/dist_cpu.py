"""Meshes in one process: resharding, contributions, index launches. `make bench-dist`; docs/perf/dist.md has results.

    PYTHONPATH=build/bench-package build/bench-venv/bin/python -m bench.dist_cpu [--rounds 15] [--only REGEX]

Each row is timed beside its peers, in turn, in one process; a figure is the median of the rounds. A result is compared with NumPy's
before it is timed. JAX has as many host devices as the mesh has ranks, where it is installed.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time
import warnings

RANKS = 8
os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={RANKS}")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np  # noqa: E402

import tessera as ts  # noqa: E402
from tessera import _core, dist  # noqa: E402

try:
    import jax
    from jax.sharding import Mesh as JaxMesh, NamedSharding, PartitionSpec as P
except ImportError:
    jax = None

warnings.simplefilter("ignore", ts.TesseraWarning)


@ts.kernel
def axpy(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], y: ts.Region[ts.read_write, ts.Tensor["n", ts.f32]], a: ts.f32):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = a * x[i] + y[i]


def once(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def timed(works, rounds, least=0.002):
    """The median time of each, run in turn; short ones are repeated within a round."""
    repeats = {}
    for name, work in works.items():
        work()
        repeats[name] = max(1, min(2000, int(least / max(min(once(work), once(work)), 1e-7))))
    times = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            n = repeats[name]
            times[name].append(once(lambda: [work() for _ in range(n)]) / n)
    return {name: statistics.median(t) for name, t in times.items()}


def same(ours, expected):
    if not np.array_equal(np.asarray(ours), expected):
        raise SystemExit("a result is not NumPy's: nothing is timed")


class Row:
    """``bar``: the peer, and how many times its time ours may take."""

    def __init__(self, name, works, bar, nbytes=0, per=1, unit="us"):
        self.name, self.works, self.bar, self.nbytes, self.per, self.unit = name, works, bar, nbytes, per, unit


def jax_array(values, entries):
    mesh = JaxMesh(np.array(jax.devices()), ("a",))
    return jax.device_put(values, NamedSharding(mesh, P(*entries)))


def reshard_rows():
    """64 MiB over 8 ranks. The peer is a copy of as many bytes into new memory."""
    mesh, x = dist.mesh(RANKS, ("a",), (RANKS,)), np.arange(2**24, dtype=np.float32).reshape(4096, 4096)
    specs = {
        "copies to rows": (dist.spec(), dist.spec("a"), (), ("a",)),
        "rows to copies": (dist.spec("a"), dist.spec(), ("a",), ()),
        "rows to columns": (dist.spec("a"), dist.spec(None, "a"), ("a",), (None, "a")),
        "rows to cyclic rows": (dist.spec("a"), dist.spec(dist.Cyclic(("a",))), None, None),
        "columns to cyclic columns": (dist.spec(None, "a"), dist.spec(None, dist.BlockCyclic(("a",), 64)), None, None),
    }
    for name, (before, after, jax_before, jax_after) in specs.items():
        placed = dist.shard(x, before, mesh)
        same(placed.reshard(after), x)
        works = {"tessera": lambda p=placed, a=after: p.reshard(a), "numpy copy": x.copy}
        if jax is not None and jax_before is not None:
            theirs = jax_array(x, jax_before)
            there = NamedSharding(theirs.sharding.mesh, P(*jax_after))
            works["jax"] = lambda t=theirs, s=there: jax.device_put(t, s).block_until_ready()
        # Elements that are not beside each other in both places are copied one by one.
        yield Row(f"reshard {name}", works, ("numpy copy", 4.0 if "cyclic col" in name else 1.25 if "columns" not in name else 2.0), nbytes=x.nbytes, unit="ms")
    small = dist.mesh(72, ("dp", "tp", "pp"), (4, 9, 2))
    y = np.arange(72 * 72, dtype=np.float32).reshape(72, 72)
    placed = dist.shard(y, dist.spec(("dp", "tp", "pp")), small)
    after = dist.spec(None, ("dp", "tp", "pp"))
    same(placed.reshard(after), y)
    yield Row("reshard rows to columns, 72 ranks, 20 KiB", {"tessera": lambda: placed.reshard(after), "numpy loop": lambda: [np.ascontiguousarray(y[:, i]) for i in range(72)]}, ("1 ms", 1.0))


def contribution_rows():
    mesh = dist.mesh(4, ("a",), (4,))
    blocks = [np.full(2**22, r + 1, np.float32) for r in range(4)]
    placed = dist.from_local(blocks, dist.spec(sum=("a",)), mesh)

    def added():
        total = blocks[0] + blocks[1]
        total += blocks[2]
        total += blocks[3]
        return total

    same(placed.reshard(dist.spec()), added())
    works = {"tessera": lambda: placed.reshard(dist.spec()), "numpy adds": added}
    if jax is not None:
        devices = JaxMesh(np.array(jax.devices()[:4]), ("a",))
        summed = jax.jit(jax.shard_map(lambda v: jax.lax.psum(v, "a"), mesh=devices, in_specs=P("a"), out_specs=P(None)))
        theirs = jax.device_put(np.stack(blocks), NamedSharding(devices, P("a")))
        works["jax"] = lambda: summed(theirs).block_until_ready()
    yield Row("contributions to copies, 16 MiB of 4 ranks", works, ("numpy adds", 1 / 0.7), nbytes=16 << 20, unit="ms")
    many = dist.mesh(72, ("a",), (72,))
    parts = [np.full(1024, r, np.float32) for r in range(72)]
    small = dist.from_local(parts, dist.spec(sum=("a",)), many)
    same(small.reshard(dist.spec()), np.sum(parts, axis=0))
    yield Row("contributions to copies, 4 KiB of 72 ranks", {"tessera": lambda: small.reshard(dist.spec()), "numpy adds": lambda: np.sum(parts, axis=0)}, ("1 ms", 1.0))


def program_rows():
    """Collectives in a jitted program: all_reduces of 4 KiB, each of the one before. 16 on 8 ranks are a small program, which is one function
    for all ranks; of the others ranks are cursors."""
    for n, count in ((RANKS, 16), (RANKS, 64), (72, 64)):
        mesh, split = dist.mesh(n, ("a",), (n,)), dist.spec("a")

        def rank(b, n=n, count=count):
            own = 1 - dist.axis_index("a") % 2 * 2
            for _ in range(count):
                b = ts.collective.all_reduce(b, "a") * own
            return b

        f = ts.jit(dist.shard_map(rank, mesh, split, split))
        own = 1 - np.arange(n) % 2 * 2
        x = np.tile(np.arange(n, dtype=np.float32)[:, None], (1, 1024))
        same(f(x), 0 * own[:, None] * x)
        works = {"tessera": lambda f=f, x=x: f(x), "numpy sums": lambda x=x, count=count: [x.sum(0) for _ in range(count)]}
        if jax is not None and n == RANKS:

            def theirs(b, count=count):
                own = 1 - jax.lax.axis_index("a") % 2 * 2
                for _ in range(count):
                    b = jax.lax.psum(b, "a") * own
                return b

            summed = jax.jit(jax.shard_map(theirs, mesh=JaxMesh(np.array(jax.devices()), ("a",)), in_specs=P("a"), out_specs=P("a")))
            there = jax_array(x, ("a",))
            works["jax"] = lambda: summed(there).block_until_ready()
        if n == RANKS:
            yield Row(f"all_reduce of 4 KiB, one of {count} in a jitted program, 8 ranks, each rank", works, ("3 us", 1.0), per=count * n)
        else:
            yield Row(f"all_reduce of 4 KiB, one of {count} in a jitted program, 72 ranks", works, ("1 ms", 1.0), per=count)


def launch_rows():
    mesh = dist.mesh(RANKS, ("a",), (RANKS,))
    launch = ts.index_launch("a")(axpy)
    for n, what in ((RANKS * 64, "64 elements a part"), (RANKS << 16, "65,536 elements a part")):
        x, y = dist.tensor((n,), dist.spec("a"), mesh, init=1), dist.tensor((n,), dist.spec("a"), mesh)
        xs, ys = ([np.ones(n // RANKS, np.float32) for _ in range(RANKS)] for _ in range(2))

        def alone(launch=launch, x=x, y=y):
            launch(x, y, 0.5)
            dist.wait()

        def chain(launch=launch, x=x, y=y):
            for _ in range(20):
                launch(x, y, 0.5)
            dist.wait()

        alone()
        same(y, np.full(n, 0.5, np.float32))
        works = {
            "tessera": alone,
            "kernel calls": lambda xs=xs, ys=ys: [axpy(a, b, 0.5) for a, b in zip(xs, ys)],
            "numpy loop": lambda xs=xs, ys=ys: [np.add(b, a * np.float32(0.5), out=b) for a, b in zip(xs, ys)],
        }
        chains = {"tessera": chain}
        if jax is not None:
            step = jax.jit(lambda a, b: 0.5 * a + b)
            a, b = jax_array(np.ones(n, np.float32), ("a",)), jax_array(np.ones(n, np.float32), ("a",))
            works["jax"] = lambda step=step, a=a, b=b: step(a, b).block_until_ready()

            def theirs(step=step, a=a, b=b):
                for _ in range(20):
                    b = step(a, b)
                b.block_until_ready()

            chains["jax"] = theirs
        peer = ("jax", 1.0) if jax is not None else ("kernel calls", 10.0)
        yield Row(f"index launch over 8 parts, {what}", works, peer)
        yield Row(f"20 launches that depend on each other, {what}, each", chains, peer if jax is not None else ("1 ms", 1.0), per=20)


def dependence_rows():
    """What the order of tasks costs, without running any: 72 parts, each with a reader and a writer."""
    mesh = dist.mesh(72, ("a",), (72,))
    x, y = dist.tensor((7200, 8), dist.spec("a"), mesh), dist.tensor((7200, 8), dist.spec("a"), mesh)
    tasks = [(int, [p._use("read"), q._use("read_write")]) for p, q in zip(x.parts("a"), y.parts("a"))]
    columns = [("x", "read", False, [p._held for p in x.parts("a")], x.parts("a")), ("y", "read_write", False, [p._held for p in y.parts("a")], y.parts("a"))]
    checked = _core.IndexLaunch(columns, 72, None)

    def ordered():
        # Without threads nothing runs, and tasks wait for those of the launches before.
        queue = _core.TaskQueue()
        for _ in range(4):
            queue.submit(tasks, 0)

    yield Row("order of 4 launches over 72 parts, each task", {"tessera": ordered}, ("10 us", 1.0), per=288)
    yield Row("conflicts in a launch over 72 parts, each task", {"tessera": checked.conflict}, ("10 us", 1.0), per=72)


TEASER = r"""
import re, sys, warnings
warnings.simplefilter("ignore")
from tessera import dist
mesh = dist.mesh(devices=[f"cuda:{i}" for i in range(72)], axes=("dp", "tp", "pp"), shape=(4, 9, 2))
W = dist.tensor(shape=(8192, 8192), layout=dist.ShardSpec(partition=("col",), mesh_axes=("tp",)), mesh=mesh, dtype="fp8_e4m3", init=1.0)
assert [W.local(2 * r).shape[1] for r in range(9)] == [911] * 8 + [904]
print(int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1]) // 1024)
"""


def teaser():
    done = subprocess.run([sys.executable, "-c", TEASER], capture_output=True, text=True, check=True)
    return int(done.stdout)


def shown(seconds, row):
    scale, digits = {"us": (1e6, 1), "ms": (1e3, 2)}[row.unit]
    return f"{seconds / row.per * scale:.{digits}f} {row.unit}"


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="bench.dist_cpu", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name has this")
    options = parser.parse_args(arguments)
    print(f"tessera {ts.__version__}, NumPy {np.__version__}, JAX {jax.__version__ if jax else 'is not installed'}, {os.cpu_count()} cores\n")
    missed = []
    for rows in (reshard_rows, contribution_rows, program_rows, launch_rows, dependence_rows):
        for row in rows():
            if not re.search(options.only, row.name):
                continue
            times = timed(row.works, options.rounds)
            peer, factor = row.bar
            number, _, unit = peer.partition(" ")
            limit = float(number) * {"us": 1e-6, "ms": 1e-3}[unit] * row.per if unit in ("us", "ms") else times[peer] * factor
            met = times["tessera"] <= limit
            text = f"{row.name}: {shown(times['tessera'], row)}"
            if row.nbytes:
                text += f" ({row.nbytes / times['tessera'] / 1e9:.1f} GB/s)"
            others = ", ".join(f"{name} {shown(t, row)}" for name, t in times.items() if name != "tessera")
            print(f"{'met   ' if met else 'MISSED'} {text}; {others or 'no peer'}; bar {shown(limit, row)}", flush=True)
            missed += [] if met else [row.name]
    if re.search(options.only, "teaser"):
        resident = teaser()
        print(f"{'met   ' if resident < 200 else 'MISSED'} the array of the 72-device example: {resident} MB resident; bar 200 MB")
        missed += [] if resident < 200 else ["teaser"]
    print(f"\n{len(missed)} missed" if missed else "\nall met")


if __name__ == "__main__":
    main()
