"""Paired timing of our kernels and their peers, and the rows of the ledger.

Our kernel and its peer alternate in one process, on the same normally distributed data. Calls rotate through several sets of
arrays, and the L2 cache is flushed before each call. A workload with wrong results is not timed.
"""

import datetime
import functools
import math
import time

import numpy as np

from gpurun.compare import Mismatch
from gpurun.device import Skip
from gpurun.items import Item, first_line
from gpurun.stats import median, micro, ratio
from ledger import kernels, ledger, workloads
from ledger.recipe import hashes
from ledger.workloads import Held

from . import peers

#: Total bytes of the sets of arrays that calls rotate through.
ROTATED = 256 * 2**20
MOST_SETS = 32
#: Seconds of one sample of JAX, and of ours compared with it.
BATCH_SECONDS = 8e-3


class Bench:
    def __init__(self, device, seed, rounds, keep, about):
        self.device, self.seed, self.rounds, self.keep, self.about = device, seed, rounds, keep, about
        self.timer = device.timer()
        self.xp = workloads.TorchMath(device.torch) if device.is_cuda else workloads.NumpyMath
        self.available = peers.available(device)

    # Arrays and launches

    def arrays(self, work, fill):
        return {
            name: fill(name, declared) if declared.kind else self.device.empty(declared.shape, declared.dtype)
            for name, declared in work.arrays.items()
        }

    def normal_sets(self, work):
        rng = np.random.default_rng([self.seed, 3])
        count = max(2, min(MOST_SETS, -(-ROTATED // sum(a.bytes for a in work.arrays.values()))))
        return [self.arrays(work, lambda _, d: self.device.normal(d.shape, d.dtype, rng)) for _ in range(count)]

    def bound(self, work, arrays):
        """The launches of a workload on one set of arrays."""

        def argument(a):
            if isinstance(a, str):
                return arrays[a]
            return arrays[a[0]].reshape(a[1]) if isinstance(a, tuple) else a

        given = [s.recipe.arguments([argument(a) for a in s.args]) | s.recipe.constants() for s in work.steps]
        calls = [(s.recipe.make(), values) for s, values in zip(work.steps, given)]

        def run(index=0):
            for kernel, values in calls:
                kernel(**values)

        return run

    def ours(self, work, sets):
        runs = [self.bound(work, arrays) for arrays in sets]
        return lambda index: runs[index % len(runs)](index)

    # Correctness

    def checked(self, work):
        """Runs a workload on the ledger's inputs. Returns its arrays, the worst error and the bound on it there."""
        arrays = self.arrays(work, lambda name, declared: self.device.generated(declared, self.seed, name))
        self.bound(work, arrays)()
        self.device.synchronize()
        held = Held(work, arrays, self.device)
        height, width = work.grid
        result = arrays[work.output].reshape(work.grid)
        step = max(1, 2**24 // max(width, min(work.row_cost, 2**17)))
        worst = (-1.0, 0.0, 0.0, None)
        for start in range(0, height, step):
            rows = range(start, min(start + step, height))
            values, limit = work.reference(self.xp, held, rows, None)
            found = self.device.wide(result[rows.start : rows.stop])
            error, allowed = work.judge(self.xp, found, values, limit)
            used = self.xp.without_nan(error / (allowed + 1e-300)).reshape(-1)
            at = int(used.argmax())
            if float(used[at]) > worst[0]:
                numbers = [float(a.reshape(-1)[at]) for a in (error, allowed, found, values)]
                worst = (float(used[at]), *numbers[:2], ((start + at // width, at % width), *numbers[2:]))
        used, error, allowed, (place, found, right) = worst
        if not used <= 1.0:
            raise Mismatch(f"at {place} {found:.9g}, right is {right:.9g}, allowed {allowed:.3g}")
        return arrays, error, allowed

    # The ledger

    def row(self, work, arrays, error, allowed, times):
        result = arrays[work.output].reshape(work.grid)
        rows, columns = ledger.sampled(work.grid, self.seed)
        kept = self.device.wide(result[rows][:, columns])
        whole = self.device.to_host(arrays[work.output])
        config = {"config": work.steps[0].recipe.config} if work.kind == "gemm" else {}
        row = {
            "work": work.kind, "shape": list(work.shape), "dtype": work.dtype, "more": config, "seed": self.seed,
            "code": [self.code(step.recipe) for step in work.steps], **self.about,
            "date": datetime.date.today().isoformat(),
            "output": {"sha256": ledger.output_hash(whole), "exact": work.exact},
            "samples": {"rows": rows, "columns": columns, "values": kept.tolist()}, "error": error, "bound": allowed,
            "times": times,
        }  # fmt: skip
        ledger.validate(row)
        return row

    def code(self, recipe):
        """What ran, as the ledger keeps it."""
        emitted = recipe.emit()
        resources = {}
        if self.device.is_cuda:
            kernel = recipe.make()
            ran, resources = hashes(kernel), kernel.explain().fields["resources"]
            if ran != emitted and resources.get("variants") != "1":
                raise Skip(f"{recipe.name} ran with arrays of another layout than its recipe has")
            if ran != emitted:
                raise Mismatch(f"{recipe.name}: what ran is {ran}, what its recipe emits {emitted}")
        number = lambda name: int(resources[name]) if name in resources else None  # noqa: E731
        figures = {"registers": number("registers"), "spill_bytes": number("local_bytes")}
        return {"recipe": recipe.as_dict(), **emitted.as_dict(), **figures}

    # Times

    def compare(self, work, peer, sets):
        """A row for one peer."""
        ours = self.ours(work, sets)
        if peer == "jax":
            mine, theirs = self.by_host_clock(work, sets)
        else:
            make = {"copy": peers.copy, "eager": peers.eager, "compile": peers.compiled}[peer]
            other = make(self.device, work, sets)
            for index in range(3):
                ours(index), other(index)
            self.device.synchronize()
            mine, theirs = self.timer.samples([ours, other], self.rounds)
        speed, unit = (work.flops, "TFLOP/s") if work.flops else (work.bytes, "GB/s")
        scale = 1e-12 if work.flops else 1e-9
        return {
            "peer": peer, **ratio(mine, theirs), "unit": unit, "speed": scale * speed / median(mine),
            "peer_speed": scale * speed / median(theirs), "ours_us": micro(mine), "peer_us": micro(theirs),
            "clock": "host, batches" if peer == "jax" else "events" if self.device.is_cuda else "host",
        }  # fmt: skip

    def by_host_clock(self, work, sets):
        jax_run = peers.jax_batch(self.device, work, sets)
        ours = self.ours(work, sets)

        def our_run(count):
            for index in range(count):
                ours(index)
            self.device.synchronize()

        def seconds(run, count):
            start = time.perf_counter()
            run(count)
            return (time.perf_counter() - start) / count

        counts = []
        for run in (our_run, jax_run):
            run(4)
            counts.append(max(4, math.ceil(BATCH_SECONDS / seconds(run, 4))))
        samples = [[], []]
        for index in range(max(10, self.rounds // 3)):
            for i in (0, 1) if index % 2 else (1, 0):
                samples[i].append(seconds((our_run, jax_run)[i], counts[i]))
        return samples

    def work(self, work):
        """All rows of a work: one for each peer, and the ledger's."""
        arrays, error, allowed = self.checked(work)
        kept = {work.output: arrays.pop(work.output)}
        del arrays
        sets = self.normal_sets(work)
        rows, times = [], {}
        for peer in work.peers:
            if peer not in self.available:
                continue
            try:
                row = self.compare(work, peer, sets)
                rows.append({"status": "pass", **row})
                fields = ("ratio", "low", "high", "clock", "ours_us", "peer_us")
                times[peer] = {name: row[name] for name in fields}
            except Exception as error_:
                if not self.device.alive():
                    raise
                rows.append({"status": "error", "peer": peer, "why": f"{type(error_).__name__}: {first_line(error_)}"})
        if self.keep:
            try:
                rows.append({"status": "pass", "ledger": self.row(work, kept, error, allowed, times)})
            except (Mismatch, Skip) as error_:
                status = "skip" if isinstance(error_, Skip) else "fail"
                rows.append({"status": status, "peer": "ledger", "why": str(error_)})
        return {"rows": rows}

    @functools.cached_property
    def gemm(self):
        """The fastest of the candidates, and how fast each was."""
        found = {}
        for config in kernels.CANDIDATES:
            name = "x".join(str(v) for v in config.values())
            try:
                work = workloads.gemm(4096, 4096, 4096, "bf16", config=config)
                run = self.ours(work, [self.arrays(work, lambda _, d: self.device.normal(d.shape, d.dtype, _rng()))])
                run(0), run(1)
                (samples,) = self.timer.samples([run], 10)
                found[name] = (median(samples), config)
            except Exception as error:
                if not self.device.alive():
                    raise
                found[name] = (math.inf, config, first_line(error))
        best = min(found.values(), key=lambda f: f[0])
        shown = {n: f[2] if len(f) > 2 else f"{2 * 4096**3 / f[0] * 1e-12:.0f} TFLOP/s" for n, f in found.items()}
        return best[1], shown


def _rng():
    return np.random.default_rng(4)


def items(device, seed, rounds, keep, about):
    bench = Bench(device, seed, rounds, keep, about)
    table = workloads.timed() if device.is_cuda else workloads.tried()

    def run(work):
        if work.kind == "gemm" and device.is_cuda:
            work = workloads.gemm(*work.shape, work.dtype, config=bench.gemm[0])
        return bench.work(work)

    for work in table:
        yield Item(work.name, lambda work=work: run(work))
    if device.is_cuda:
        yield Item("gemm candidates", lambda: {"cases": len(kernels.CANDIDATES), "tried": bench.gemm[1]})
