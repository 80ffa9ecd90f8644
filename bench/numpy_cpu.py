"""Scans, histograms and small calls on one thread, compared with NumPy.

usage: PYTHONPATH=python python -m bench.numpy_cpu [--rounds N] [--only PATTERN] [--cpu-time]

Results are compared before anything is timed. The two alternate. A figure is the median of the ratios (NumPy's time over ours) over
the rounds, with its 95% confidence interval. The ratio of the minimum times is printed too; other load on the machine disturbs it
less. Histograms are compared with `np.bincount` of int64, which needs no copy, whatever dtype ours counts."""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time

from bench.cpu import environment

if __name__ == "__main__":
    environment.use_one_core()

import numpy as np  # noqa: E402

import tessera as ts  # noqa: E402
from bench import kernels_cpu as kernels  # noqa: E402
from bench.cpu import timing  # noqa: E402

VALUES = 2_000_000
#: The required ratio, by the prefix of the name.
BARS = {"cumsum": 2.0, "histogram, atomics": 1.0, "histogram, region": 2.0}


def cumsums():
    for m, n in ((4096, 4096), (1000, 1000), (65536, 64), (64, 262144), (1, 4194304)):
        x = np.random.default_rng(0).standard_normal((m, n), dtype=np.float32)
        ours, theirs = np.empty_like(x), np.empty_like(x)

        def check(x=x, ours=ours):
            kernels.cumsum(x, ours)
            bound = (np.arange(x.shape[1]) + 3) * 2.0**-24 * np.cumsum(np.abs(x), 1, dtype=np.float64)
            assert (np.abs(ours - np.cumsum(x, 1, dtype=np.float64)) <= bound).all()

        yield (f"cumsum {m}x{n}", check, lambda x=x, y=ours: kernels.cumsum(x, y), lambda x=x, y=theirs: np.cumsum(x, 1, out=y))


def histograms():
    made = {name: kernels.make_histograms(getattr(ts, name)) for name in ("i32", "i64")}
    rng = np.random.default_rng(1)
    for kind, values in (
        ("uniform, 256 bins", rng.integers(0, 256, VALUES)),
        ("uniform, 65536 bins", rng.integers(0, 65536, VALUES)),
        ("normal, 256 bins", np.clip(rng.normal(128, 20, VALUES), 0, 255).astype(np.int64)),
        ("one value, 256 bins", np.full(VALUES, 7)),
    ):
        bins = 65536 if "65536" in kind else 256
        for dtype, forms in made.items():
            x = values.astype({"i32": np.int32, "i64": np.int64}[dtype])
            for form, kernel in forms.items():
                counts = np.zeros(bins, x.dtype)

                def check(kernel=kernel, x=x, bins=bins):
                    np.testing.assert_array_equal(kernel(x, np.zeros(bins, x.dtype)), np.bincount(x, minlength=bins))

                yield (f"histogram, {form}, {dtype}, {kind}", check, lambda k=kernel, x=x, h=counts: k(x, h),
                       lambda v=values, bins=bins: np.bincount(v, minlength=bins))  # fmt: skip


def calls():
    a, b, c = (np.ones(10, np.float32) for _ in range(3))
    check = lambda: np.testing.assert_array_equal(kernels.add_two(a, b), a + b)  # noqa: E731
    yield "call, 10 elements, into an array", check, lambda: kernels.add_two(a, b, c), lambda: np.add(a, b, out=c)
    yield "call, 10 elements, a new array", check, lambda: kernels.add_two(a, b), lambda: np.add(a, b)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--only", default="", help="a regular expression found in the name")
    parser.add_argument("--cpu-time", action="store_true", help="count the time on the processor: for a machine with other work")
    options = parser.parse_args()
    if options.cpu_time:
        timing.time.perf_counter = time.thread_time
    ts.runtime.set_threads(1)
    missed = 0
    for group in (cumsums, histograms, calls):
        for name, check, ours, theirs in group():
            if not re.search(options.only, name):
                continue
            check()
            found = timing.paired(ours, theirs, options.rounds)
            ratios = found.ratios()
            (low, high), middle = timing.interval(ratios), statistics.median(ratios)
            mine, other = (1e6 * statistics.median(s) for s in (found.ours, found.theirs))
            least = min(found.theirs) / min(found.ours)
            bar = next((bar for start, bar in BARS.items() if name.startswith(start)), None)
            verdict = "" if bar is None else f"  {'reaches' if middle >= bar else 'MISSES'} {bar:g}"
            missed += "MISSES" in verdict
            print(f"{name:50} {middle:6.2f} [{low:.2f}, {high:.2f}], least times {least:5.2f}  {mine:10.1f} us beside {other:10.1f} us{verdict}", flush=True)
    return missed > 0


if __name__ == "__main__":
    sys.exit(main())
