"""A long run of all features concurrently: random kernels, jitted functions, saves, loads, threads, forks, interrupts and refusals.

Memory, descriptors, threads and files must stay flat: a series is printed, and a verdict at the end, which counts from the first fifth
of the run on.

    make soak MINUTES=10                              python -m soak --minutes 10 --seed 1
    python -m soak --minutes 2 --only kernels saves
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import linecache
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Callable

import numpy as np

import tessera as ts

#: What a series may rise by after the warm-up: kilobytes of memory, descriptors, threads, files of ours, objects of Python.
ALLOWED = {"rss_kb": 20_000, "fds": 0, "threads": 0, "files": 0, "objects": 2_000}
_LIBC = ctypes.CDLL(None)


# What is done

OPS = ["x[i] + {c}", "x[i] * {c}", "ts.tile.sin(x[i]) * {c}", "ts.tile.maximum(x[i], {c})", "x[i] - x[i] * {c}", "ts.tile.exp(-x[i] * x[i]) + {c}"]
_count = itertools.count()


def made(source: str, name: str) -> Any:
    """A function made from a text, which `inspect` can read while the function lives."""
    file = f"<soak {next(_count)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names: dict[str, Any] = {"ts": ts, "xp": ts.xp}
    exec(compile(source, file, "exec"), names)
    return names[name], file


def kernels(r: random.Random, _: Path) -> None:
    """A new kernel, called twice and dropped."""
    body = "".join(f"        x[i] = {r.choice(OPS).format(c=round(r.uniform(0.1, 2), 3))}\n" for _ in range(r.randint(1, 4)))
    fn, file = made(f"def k(x: ts.Tensor['n', ts.f32]):\n    i = ts.tile.linear_id()\n    if i < n:\n{body}", "k")
    try:
        kernel = ts.kernel(fn)
        for n in (r.randint(1, 500), r.randint(1, 500)):
            x = np.ones(n, np.float32)
            kernel(x)
            assert np.isfinite(x).all()
    finally:
        linecache.cache.pop(file, None)


def jits(r: random.Random, _: Path) -> None:
    """A jitted function that is dropped, with a gradient."""
    a, b = round(r.uniform(0.1, 2), 3), r.randint(1, 3)
    f = ts.jit(lambda x, w: (ts.xp.tanh(x @ w) * a).sum() + (w**b).sum())
    x, w = np.ones((r.randint(1, 9), 4), np.float32), np.ones((4, 3), np.float32)
    f(x, w)
    if r.random() < 0.3:
        ts.jit(ts.grad(lambda w: (ts.xp.sin(x @ w) * a).sum()))(w)


@ts.jit
def _kept_function(x, y):
    return (ts.xp.sqrt(x * x + y) - y).sum(-1)


@ts.kernel
def _kept_kernel(x: ts.Tensor["n", ts.f32], a: ts.f32):
    i = ts.tile.linear_id()
    if i < n:  # noqa: F821
        x[i] = x[i] * a + 1.0


def again(r: random.Random, _: Path) -> None:
    """What was compiled before, with sizes of a few kinds."""
    shape = (r.choice([1, 2, 3]), r.choice([4, 5]))
    for _ in range(50):
        _kept_function(np.ones(shape, np.float32), np.ones(shape, np.float32))
        _kept_kernel(np.ones(r.choice([8, 64]), np.float32), 0.5)
    # Large enough for all threads.
    _kept_kernel(np.ones(1 << 20, np.float32), 0.5)


def saves(r: random.Random, folder: Path) -> None:
    tree = {f"k{i}": [np.full(r.randint(0, 200), i, r.choice(["f4", "i8", "u1"])), (r.random(), "text", None)] for i in range(r.randint(1, 9))}
    path = folder / f"run{r.randrange(3)}.safetensors"
    ts.save(path, tree)
    back = ts.load(path)
    assert all((back[k][0] == v[0]).all() and back[k][1] == v[1] for k, v in tree.items())
    ts.load(path, like=tree)
    if r.random() < 0.2:
        path.write_bytes(path.read_bytes()[: r.randrange(100)])
        try:
            ts.load(path)
        except ts.CheckpointError:
            pass


def threads(r: random.Random, folder: Path) -> None:
    faults: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            own = random.Random(seed)
            for _ in range(3):
                own.choice([again, kernels, saves])(own, folder / f"t{seed % 4}")
        except BaseException as error:  # raised by the thread that waits
            faults.append(error)

    for i in range(4):
        (folder / f"t{i}").mkdir(exist_ok=True)
    running = [threading.Thread(target=work, args=(4 * r.randrange(10**6) + i,)) for i in range(4)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if faults:
        raise faults[0]


def forks(r: random.Random, folder: Path) -> None:
    """A child that computes as its parent does, and ends."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            (folder / "fork").mkdir(exist_ok=True)
            again(r, folder)
            saves(r, folder / "fork")
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + 60
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, f"a child ended with {status}"
            return
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError("a child hangs")
        time.sleep(0.005)


@ts.kernel
def _spin(x: ts.Tensor["n", ts.f32], rounds: ts.i64):
    i = ts.tile.linear_id()
    for _ in range(rounds):
        x[i] = x[i] + 1.0


def interrupts(r: random.Random, _: Path) -> None:
    """A launch that would take for ever, ended by Ctrl-C."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, r.uniform(0.001, 0.05))
    begin = time.monotonic()
    try:
        _spin[(8,)](np.zeros(64, np.float32), 2**60)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("nothing interrupted it")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert time.monotonic() - begin < 20


BROKEN = ["x[i] = y[i]", "x[i, i] = 1.0", "x = 3", "x[i] = 'a'", "return nothing", "while True:\n        pass", "x[i] = ts.tile.nothing(x)"]


def refusals(r: random.Random, _: Path) -> None:
    """Kernels, functions and calls that are wrong: errors hold frames, sources and arrays."""
    fn, file = made(f"def k(x: ts.Tensor['n', ts.f32]):\n    i = ts.tile.linear_id()\n    {r.choice(BROKEN)}\n", "k")
    for call in (lambda: ts.kernel(fn), lambda: _kept_kernel(np.ones(3, np.int8), 1.0), lambda: ts.jit(lambda x: x @ x)(np.ones((2, 3)))):
        try:
            call()
        except ts.InternalError:
            raise
        except ts.TesseraError as error:
            str(error)
    linecache.cache.pop(file, None)


ACTIVITIES: dict[str, Callable[[random.Random, Path], None]] = {
    "kernels": kernels, "jits": jits, "again": again, "saves": saves, "threads": threads, "forks": forks, "interrupts": interrupts, "refusals": refusals,
}  # fmt: skip


# What is measured


def measured(folder: Path) -> dict[str, int]:
    gc.collect()
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
    with open("/proc/self/statm") as statm:
        pages = int(statm.read().split()[1])
    return {
        "rss_kb": pages * os.sysconf("SC_PAGE_SIZE") // 1024, "fds": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task")),
        "files": sum(1 for _ in folder.rglob("*.tmp*")), "objects": len(gc.get_objects()),
    }  # fmt: skip


def rise(series: list[int]) -> float:
    """How much the median of the later half of a series exceeds that of the earlier half, scaled to the whole series."""
    half = len(series) // 2
    return 2.0 * (float(np.median(series[-half:])) - float(np.median(series[:half]))) if half else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time() // 86400))
    parser.add_argument("--only", nargs="+", choices=ACTIVITIES, default=list(ACTIVITIES))
    parser.add_argument("--samples", type=int, default=40)
    options = parser.parse_args()
    if not os.path.isdir("/proc/self/fd"):
        print("make soak needs /proc: Linux", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    r = random.Random(options.seed)
    print(f"soak: {options.minutes} minutes of {', '.join(options.only)}, SEED={options.seed}", flush=True)
    series: dict[str, list[int]] = defaultdict(list)
    counts: Counter = Counter()
    memory: dict[str, int] = defaultdict(int)
    with tempfile.TemporaryDirectory(prefix="tessera-soak-") as name:
        folder = Path(name)
        for activity in options.only:
            ACTIVITIES[activity](r, folder)
        begin = time.monotonic()
        length = options.minutes * 60
        for sample in range(options.samples):
            until = begin + length * (sample + 1) / options.samples
            while time.monotonic() < until:
                activity = r.choice(options.only)
                before = measured(folder)["rss_kb"] if sample >= options.samples // 5 and counts["measured"] % 7 == 0 else None
                ACTIVITIES[activity](r, folder)
                counts[activity] += 1
                counts["measured"] += 1
                if before is not None:
                    memory[activity] += measured(folder)["rss_kb"] - before
                    counts[f"{activity} measured"] += 1
            now = measured(folder)
            for key, value in now.items():
                series[key].append(value)
            print(f"  {time.monotonic() - begin:6.0f} s  " + "  ".join(f"{key} {value}" for key, value in now.items()), flush=True)
    print("done: " + ", ".join(f"{counts[name]} {name}" for name in options.only))
    print("memory by what was done (kB each, of every seventh): " + ", ".join(
        f"{name} {memory[name] / max(counts[f'{name} measured'], 1):.0f}" for name in options.only))  # fmt: skip
    grew = []
    for key, allowed in ALLOWED.items():
        up = rise(series[key][options.samples // 5 :])
        flat = up <= allowed
        grew += [] if flat else [key]
        print(f"{key}: {'flat' if flat else 'GROWS'} (rise of {up:.0f} after the warm-up, {up / max(length * 0.8 / 60, 1e-9):.0f} a minute; allowed {allowed})")
    print(f"soak: {'flat' if not grew else 'not flat: ' + ', '.join(grew)}, SEED={options.seed}")
    return int(bool(grew))


if __name__ == "__main__":
    sys.exit(main())
