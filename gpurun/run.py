"""Runs the items of a program on a machine with an NVIDIA GPU, in processes of their own, and reports what they gave.

A program is a table of phases: `python -m conformance.gpu.check` and `python -m bench.gpu.run` are two. A short table comes
last; `--out` gets everything, a JSON object a line.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from . import report, worker
from .commit import commit

#: How often a phase is taken up again after a process was lost.
RESTARTS = 6


@dataclass(frozen=True)
class Phase:
    #: Seconds that it may take.
    seconds: float
    #: Of `(options, device)`: its items, always in the same order.
    items: Callable | None = None
    #: An item that reports nothing for this many seconds hangs.
    silence: float = 40
    #: Processes that share the items, on a GPU.
    jobs: int = 1
    #: In place of `items`, for a phase that starts its processes itself. Of `(options, seconds, folder)`: its rows, and what
    #: they report about the machine.
    run: Callable | None = None


@dataclass(frozen=True)
class Program:
    #: What `python -m` takes.
    module: str
    #: What it does, in a line.
    about: str
    #: By name, in the order in which they run.
    phases: dict[str, Phase]
    #: Gets the parser, for options that only this program has.
    add_options: Callable = lambda parser: None
    #: Of options: arguments that give a process of a phase the options that only this program has.
    worker_arguments: Callable = lambda options: []


def parse(program):
    parser = argparse.ArgumentParser(prog=f"python -m {program.module}", description=program.about)
    option = parser.add_argument
    option("--what", default=",".join(program.phases), help="phases, with commas between (all)")
    option("--only", default="", metavar="REGEX", help="only items in whose name this is found")
    option("--out", type=Path, metavar="FILE", help="where everything goes, a JSON object a line")
    option("--seconds", type=float, metavar="N", help="the most that each phase may take")
    option("--seed", type=int, default=1, metavar="N", help="of all random numbers (1)")
    option("--jobs", type=int, metavar="N", help="processes that share the items of a phase that allows it")
    option("--commit", default="", help="what is recorded as the commit that ran (git reports it)")
    option("--dry-run", action="store_true", help="on the host with NumPy, to try this program")
    program.add_options(parser)
    for name, kind in (("--worker", str), ("--rows", Path), ("--begin", int), ("--job", int), ("--until", float)):
        option(name, type=kind, default=None if kind is not int else 0, help=argparse.SUPPRESS)
    option("--tiny", action="store_true", help=argparse.SUPPRESS)
    option("--marks", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.what = options.what.split(",")
    if unknown := set(options.what) - set(program.phases):
        parser.error(f"expected phases ({', '.join(program.phases)}), got {', '.join(sorted(unknown))}")
    options.jobs = options.jobs or (1 if options.worker else None)
    options.until = options.until or float("inf")
    options.commit = options.commit or commit()
    return options


class Worker:
    """One process of a phase after another, until all its items are done."""

    def __init__(self, program, phase, options, job, jobs, until, folder):
        self.program, self.phase, self.options, self.job, self.jobs = program, phase, options, job, jobs
        self.until, self.folder, self.silence = until, folder, program.phases[phase].silence
        self.rows, self.about, self.restarts, self.finished = [], {}, 0, False
        self.start(0)

    def command(self, begin):
        o = self.options
        return [
            sys.executable, "-m", self.program.module, "--worker", self.phase, "--rows", self.path, "--begin", begin,
            "--job", self.job, "--jobs", self.jobs, "--until", self.until, "--only", o.only, "--seed", o.seed,
            "--commit", o.commit, *(["--dry-run"] if o.dry_run else []), *self.program.worker_arguments(o),
        ]  # fmt: skip

    def start(self, begin):
        self.path = Path(self.folder, f"{self.phase}-{self.job}-{self.restarts}.jsonl")
        self.log = self.path.with_suffix(".log")
        command = [str(c) for c in self.command(begin)]
        with self.log.open("w") as log:
            # A group of its own: compilers that it starts end with it.
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self.read, self.current, self.heard = 0, None, time.monotonic()

    def poll(self):
        over = self.process.poll() is not None
        self.take()
        if over:
            self.ended(self.process.returncode)
        elif time.monotonic() - self.heard > self.silence + (30 if self.current is None else 0):
            self.lost(f"nothing was heard for {self.silence} seconds: it hangs")
        elif time.time() > self.until + 20:
            self.stop()
            self.add({"status": "time", "name": self.name(), "why": "it did not end when the time was over"})
            self.finished = True

    def take(self):
        """Reads what the process has written so far."""
        if not self.path.exists():
            return
        with self.path.open(encoding="utf-8") as file:
            file.seek(self.read)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self.read += len(whole.encode())
        for line in whole.splitlines():
            self.heard = time.monotonic()
            found = json.loads(line)
            if "begin" in found:
                self.current = (found["begin"], found["name"])
            elif "row" in found:
                self.add(found["row"])
            elif "device" in found:
                self.about = found["device"]
            else:
                self.current = None

    def add(self, row):
        row = {"phase": self.phase, **row}
        self.rows.append(row)
        if row["status"] in ("fail", "error"):
            print(f"{self.phase}: {row['name']}: {row['status']}: {row.get('why', '')[:300]}", flush=True)

    def name(self):
        return self.current[1] if self.current else "start"

    def ended(self, code):
        if code == 0:
            self.finished = True
        elif code == worker.LOST and self.current:
            self.again()
        else:
            self.lost(f"the process ended with {code}: {self.last_words()}")

    def last_words(self):
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else "without a word"

    def lost(self, why):
        self.stop()
        self.add({"status": "error", "name": self.name(), "why": why})
        if self.current is None:
            self.finished = True
        else:
            self.again()

    def again(self):
        self.restarts += 1
        if self.restarts > RESTARTS or time.time() > self.until:
            self.add({"status": "error", "name": self.name(), "why": "it was not taken up again"})
            self.finished = True
        else:
            self.start(self.current[0] + 1)

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def run_phase(program, phase, options, folder):
    """The rows of a phase, and what it reports about the machine."""
    about = program.phases[phase]
    seconds = options.seconds or about.seconds
    if about.run is not None:
        return about.run(options, seconds, folder)
    jobs = 1 if about.jobs == 1 else options.jobs or (1 if options.dry_run else about.jobs)
    until = time.time() + seconds
    workers = [Worker(program, phase, options, job, jobs, until, folder) for job in range(jobs)]
    try:
        while not all(w.finished for w in workers):
            for w in workers:
                if not w.finished:
                    w.poll()
            time.sleep(0.02)
    finally:
        for w in workers:
            w.stop()
    return [row for w in workers for row in w.rows], next((w.about for w in workers if w.about), {})


def main(program, options, take=lambda rows: None):
    """Runs the phases and prints the table; gives whether something failed. `take` gets the rows of each phase first."""
    if options.worker:
        return worker.main(options, program.phases[options.worker].items)
    rows, about, times = [], {}, {}
    with tempfile.TemporaryDirectory(prefix="tessera-gpu-") as folder:
        for phase in options.what:
            start = time.monotonic()
            found, reported = run_phase(program, phase, options, folder)
            about |= reported
            times[phase] = round(time.monotonic() - start, 1)
            take(found)
            rows += found
            if options.out:
                report.save(options.out, {**about, "seed": options.seed, "commit": options.commit, "times": times}, rows)
    print(report.table(rows, about, times))
    return any(row["status"] in ("fail", "error") for row in rows)
