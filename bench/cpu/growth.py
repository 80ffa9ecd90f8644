"""Time per element as sizes grow, and whether odd sizes are much slower than their even neighbours."""

import numpy as np

from . import arrays, cases
from .case import Must, check
from .report import Row
from .timing import alternate, calls_for, quiet, seconds

#: An odd size may take this much of its even neighbour's time for each element.
MUST = Must(1.15, at_most=True)
#: The even sizes at which that is promised; elsewhere a slow odd size is only reported.
PROMISED = (1024, 4096)
#: Samples are short here: the minimum of many counts, not the median.
SAMPLE_SECONDS = 2e-4
#: The largest size whose upper neighbour is timed too; beyond it they cost minutes.
LARGEST_WITH_BOTH = {"saxpy": 2**28, "f32 gemm": 2048, "bf16 gemm": 2048}


def saxpys(group):
    """Cases on the same arrays: the largest take 1 GiB each."""
    n = max(group)
    x, y, out = arrays.random(n, seed=1), arrays.random(n, seed=2), arrays.zeros(n)
    return [cases.saxpy(size, (x[:size], y[:size], out[:size])) for size in group]


def gemms(dtype):
    return lambda group: [cases.gemm(n, n, n, dtype) for n in group]


#: For each work: the field of its sizes, the cases of a few of them, the elements of a size, and their name.
WORKS = {
    "saxpy": ("growth_saxpy", saxpys, lambda n: n, "element"),
    "f32 gemm": ("growth_gemm", gemms(np.dtype(np.float32)), lambda n: n**3, "multiply-add"),
    "bf16 gemm": ("growth_gemm", gemms(arrays.BF16), lambda n: n**3, "multiply-add"),
}


def run(report, works, sizes, runs):
    """Gives, for each work, the points to plot: size and nanoseconds for each element."""
    report.heading(
        f"Growth: even sizes and their odd neighbours, least of {runs} runs in turns",
        "figure: the worst odd neighbour's time for each element over the even size's",
    )
    curves = {}
    for work in works:
        field, make, elements, unit = WORKS[work]
        points = curves[work] = {"unit": unit, "points": []}
        for n in getattr(sizes, field):
            group = [n - 1, n] + [n + 1] * (n <= LARGEST_WITH_BOTH[work])
            name = f"{work} {n}"
            try:
                least, samples = measure(make(group), runs)
            except Exception as error:
                report.fail(name, "", error)
                continue
            per_element = {size: 1e9 * t / elements(size) for size, t in zip(group, least)}
            points["points"] += per_element.items()
            worst, ratio = max(((s, t / per_element[n]) for s, t in per_element.items() if s != n), key=lambda p: p[1])
            remark = f"{per_element[n]:.3g} ns / {unit}" + ("" if MUST.met(ratio) else ", cliff")
            data = {"sizes": group, "least_s": least, "samples_s": samples, "ns_per_element": per_element}
            must = MUST if n in PROMISED else None
            report.add(Row("growth", name, f"{worst}", ratio, "x", remark=remark, must=must, data=data))
    return curves


def measure(group, runs):
    """The least seconds of each case, and all samples; every result is checked first."""
    problems = [case.build() for case in group]
    for problem in problems:
        check(problem.ours, problem)
    with quiet():
        calls = [p.ours.run for p in problems]
        counts = [calls_for(call, SAMPLE_SECONDS) for call in calls]
        samples = alternate([lambda r=r, c=c: seconds(r, c) for r, c in zip(calls, counts)], runs)
    return [min(s) for s in samples], samples
