"""Runs the items of a program on an NVIDIA GPU, in separate processes, and reports the results.

A program is a table of phases; `python -m conformance.gpu.check` and `python -m bench.gpu.run` are two. At the end it prints a
short table. `--out` gets all rows, one JSON object per line.
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

#: Restarts of a phase after a process was lost.
RESTARTS = 6


@dataclass(frozen=True)
class Phase:
    #: Time limit in seconds.
    seconds: float
    #: From `(options, device)` to its items, always in the same order.
    items: Callable | None = None
    #: An item that writes nothing for this many seconds counts as hanging.
    silence: float = 40
    #: Processes that share the items, on a GPU.
    jobs: int = 1
    #: Instead of `items`, for a phase that starts its processes itself: from `(options, seconds, folder)` to its rows and a
    #: description of the machine.
    run: Callable | None = None


@dataclass(frozen=True)
class Program:
    #: Its name for `python -m`.
    module: str
    #: What it does, in one line.
    about: str
    #: By name, in the order in which they run.
    phases: dict[str, Phase]
    #: Gets the parser, for options that only this program has.
    add_options: Callable = lambda parser: None
    #: From options to the arguments that pass this program's own options to its worker processes.
    worker_arguments: Callable = lambda options: []


def parse(program):
    parser = argparse.ArgumentParser(prog=f"python -m {program.module}", description=program.about)
    option = parser.add_argument
    option("--what", default=",".join(program.phases), help="phases, separated by commas (all)")
    option("--only", default="", metavar="REGEX", help="only items whose name matches")
    option("--out", type=Path, metavar="FILE", help="write all rows here, one JSON object per line")
    option("--seconds", type=float, metavar="N", help="time limit of each phase")
    option("--seed", type=int, default=1, metavar="N", help="seed of all random numbers (1)")
    option("--jobs", type=int, metavar="N", help="processes that share the items of a phase that allows it")
    option("--commit", default="", help="the commit to record (default: from git)")
    option("--dry-run", action="store_true", help="run on the host with NumPy, to try this program")
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
            # In its own process group: compilers that it starts end with it.
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self.read, self.current, self.heard = 0, None, time.monotonic()

    def poll(self):
        over = self.process.poll() is not None
        self.take()
        if over:
            self.ended(self.process.returncode)
        elif time.monotonic() - self.heard > self.silence + (30 if self.current is None else 0):
            self.lost(f"no output for {self.silence} seconds: it hangs")
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
            self.add({"status": "error", "name": self.name(), "why": "it was not restarted"})
            self.finished = True
        else:
            self.start(self.current[0] + 1)

    def stop(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def run_phase(program, phase, options, folder):
    """The rows of a phase and the description of the machine."""
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
    """Runs the phases and prints the table. Returns whether something failed. `take` gets the rows of each phase first."""
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
