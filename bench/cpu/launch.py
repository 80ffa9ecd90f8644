"""The overhead of a cached launch from Python."""

from statistics import median

from bench.kernels_cpu import add_three

from . import arrays
from .case import Must
from .report import Row
from .timing import calls_for, interval, quiet, seconds

MUST = Must(4, at_most=True)
#: Elements of each array. The budget is for the launch; a thousand show what the work adds.
WORKS = {"launch, 1 element": 1, "launch, 1024 elements": 1024}


def run(report, names, rounds):
    report.heading(f"Cached launch from Python with 4 arrays, median of {rounds} samples", "figure: time of one call")
    for name in names:
        n = WORKS[name]
        operands = [arrays.random(n, seed=i) for i in range(3)] + [arrays.zeros(n)]
        call = lambda: add_three(*operands)  # noqa: E731
        try:
            with quiet():
                count = calls_for(call)
                samples = [1e6 * seconds(call, count) for _ in range(rounds)]
            if not (operands[3] == operands[0] + operands[1] + operands[2]).all():
                raise ArithmeticError("the result is wrong")
        except Exception as error:
            report.fail(name, "", error)
            continue
        remark = f"best {min(samples):.3g} us"
        must = MUST if n == 1 else None
        row = Row("launch", name, "", median(samples), "us", *interval(samples), remark, must, {"samples_us": samples})
        report.add(row)
