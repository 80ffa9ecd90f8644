"""Several threads against one: two processes that stay alive and take turns, each with its own pool.

This module is also the program of those processes. It reads a line for each command and answers
with a line: `prepare NAME`, which checks the result too, and `time COUNT`.
"""

from . import environment  # first: it takes the cores

import json
import subprocess
import sys
from statistics import median

from . import cases
from .case import Must, check
from .report import Row
from .timing import Paired, alternate, calls_for, interval, quiet, seconds

SECTION = "scaling"
MUST = Must(1.7)


class Worker:
    """The other end of a process that runs Tessera with `threads` threads."""

    def __init__(self, threads, size):
        # Both have all cores: only the number of threads differs.
        setting = environment.child(__spec__.name, size, threads=2, TESSERA_THREADS=str(threads))
        self.process = subprocess.Popen(**setting, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process for {command} ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def run(report, names, threads, rounds, size):
    report.heading(
        f"{threads} threads against 1, median of {rounds} paired rounds",
        "figure: our speed with more threads over our speed with one; at the right the best of both",
    )
    for case in cases.scaled(sizes_of(size)):
        if case.name not in names:
            continue
        # New processes for each case: memory of one must not weigh on the next.
        workers = [Worker(n, size) for n in (threads, 1)]
        try:
            report.add(compare(case, workers, threads, rounds))
        except Exception as error:
            report.fail(case.name, "1 thread", error)
        finally:
            for worker in workers:
                worker.close()


def compare(case, workers, threads, rounds):
    ready = [worker.ask("prepare", case.name) for worker in workers]
    for answer in ready:
        environment.demand_same_library(answer["library"])
    samplers = [lambda w=w, a=a: w.ask("time", a["count"])["seconds"] for w, a in zip(workers, ready)]
    times = Paired(*alternate(samplers, rounds))
    ratios = times.ratios()
    low, high = interval(ratios)
    best = [1e-9 * ready[0]["work"] / min(samples) for samples in (times.ours, times.theirs)]
    data = {"ours_s": times.ours, "theirs_s": times.theirs, "threads": threads, "explain": ready[0]["explain"]}
    remark = f"{best[0]:.4g} / {best[1]:.4g} {case.unit}"
    return Row(SECTION, case.name, "1 thread", median(ratios), "x", low, high, remark, MUST, data)


def sizes_of(size):
    return {"full": cases.FULL, "quick": cases.QUICK}[size]


def serve(size):
    """The program of a worker."""
    ours = None
    for line in sys.stdin:
        command, value = json.loads(line)
        try:
            if command == "prepare":
                problem = next(c for c in cases.scaled(sizes_of(size)) if c.name == value).build()
                check(problem.ours, problem)
                ours = problem.ours
                answer = {"count": calls_for(ours.run), "work": ours.work, "explain": str(problem.kernel.explain())}
                answer["library"] = environment.library()
            else:
                with quiet():
                    answer = {"seconds": seconds(ours.run, value)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
