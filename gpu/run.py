"""Checks, times and looks over our kernels on a machine with an NVIDIA GPU. See docs/perf/nvidia.md.

    scripts/gpu-extension.sh                                            here: builds build/gpu
    PYTHONPATH=build/gpu python3 gpu/run.py --out $OUT/run.jsonl        there
    PYTHONPATH=build/gpu python3 gpu/run.py --what bench --only softmax --ledger $OUT/ledger.jsonl
    python gpu/run.py --what check --dry-run                            on the host, without a GPU

A short table comes last; `--out` gets everything, a JSON object a line.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # not this folder, whose names are many libraries' too

from gpu import report, sanitize  # noqa: E402

PHASES = ("check", "bench", "launch", "sanitize")
#: Seconds that a phase may take.
SECONDS = {"check": 120, "bench": 150, "launch": 40, "sanitize": 200}
#: An item that says nothing for so long hangs.
SILENCE = {"check": 40, "bench": 75, "launch": 40}
#: How often a phase is taken up again after a process was lost.
RESTARTS = 6


def parse():
    parser = argparse.ArgumentParser(prog="gpu/run.py", description=__doc__.splitlines()[0])
    option = parser.add_argument
    option("--what", default="check,bench,launch,sanitize", help="phases, with commas between (all)")
    option("--only", default="", metavar="REGEX", help="only items in whose name this is found")
    option("--out", type=Path, metavar="FILE", help="where everything goes, a JSON object a line")
    option("--ledger", type=Path, nargs="?", const=ROOT / "gpu" / "ledger.jsonl", metavar="FILE",
           help="the benchmark also makes rows of the ledger and puts them into this file (gpu/ledger.jsonl)")  # fmt: skip
    option("--seconds", type=float, metavar="N", help="the most that each phase may take")
    option("--seed", type=int, default=1, metavar="N", help="of all random numbers (1)")
    option("--rounds", type=int, metavar="N", help="pairs of samples of each comparison (60)")
    option("--jobs", type=int, metavar="N", help="processes that check side by side (4)")
    option("--commit", default="", help="what the ledger says ran (asked from git)")
    option("--dry-run", action="store_true", help="on the host with NumPy, to try this program")
    for name, kind in (("--worker", str), ("--rows", Path), ("--begin", int), ("--job", int), ("--until", float)):
        option(name, type=kind, default=None if kind is not int else 0, help=argparse.SUPPRESS)
    option("--tiny", action="store_true", help=argparse.SUPPRESS)
    option("--marks", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.what = options.what.split(",")
    if unknown := set(options.what) - set(PHASES):
        parser.error(f"expected phases ({', '.join(PHASES)}), got {', '.join(sorted(unknown))}")
    options.rounds = options.rounds or (6 if options.dry_run else 60)
    options.jobs = options.jobs or (1 if options.dry_run or options.worker else 4)
    options.until = options.until or float("inf")
    options.commit = options.commit or commit()
    return options


def commit():
    """What git says, where it is; sources that differ from it are told."""

    def git(*args):
        try:
            done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True)
        except OSError:
            return ""
        return done.stdout.strip() if done.returncode == 0 else ""

    found = git("rev-parse", "--short=12", "HEAD")
    if not found:
        return os.environ.get("TESSERA_COMMIT", "unknown")
    return f"{found} with changes" if git("status", "--porcelain", "crates", "python", "gpu") else found


class Worker:
    """One process of a phase after another, until all its items are done."""

    def __init__(self, phase, options, job, jobs, until, folder):
        self.phase, self.options, self.job, self.jobs, self.until, self.folder = phase, options, job, jobs, until, folder
        self.rows, self.about, self.restarts, self.finished = [], {}, 0, False
        self.start(0)

    def command(self, begin):
        o = self.options
        return [
            sys.executable, __file__, "--worker", self.phase, "--rows", self.path, "--begin", begin, "--job", self.job,
            "--jobs", self.jobs, "--until", self.until, "--only", o.only, "--seed", o.seed, "--rounds", o.rounds,
            "--commit", o.commit, *(["--dry-run"] if o.dry_run else []), *(["--ledger"] if o.ledger else []),
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
        elif time.monotonic() - self.heard > SILENCE[self.phase] + (30 if self.current is None else 0):
            self.lost(f"nothing was heard for {SILENCE[self.phase]} seconds: it hangs")
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
        from gpu.worker import LOST

        if code == 0:
            self.finished = True
        elif code == LOST and self.current:
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


def run_phase(phase, options, folder):
    """The rows of a phase, and what it says about the machine."""
    seconds = options.seconds or SECONDS[phase]
    if phase == "sanitize":
        return sanitize.run_all(options, seconds, folder)
    jobs = options.jobs if phase == "check" else 1
    until = time.time() + seconds
    workers = [Worker(phase, options, job, jobs, until, folder) for job in range(jobs)]
    try:
        while not all(w.finished for w in workers):
            for worker in workers:
                if not worker.finished:
                    worker.poll()
            time.sleep(0.02)
    finally:
        for worker in workers:
            worker.stop()
    return [row for w in workers for row in w.rows], next((w.about for w in workers if w.about), {})


def main():
    options = parse()
    if options.worker:
        from gpu import worker

        return worker.main(options)
    rows, about, ledger_rows, times = [], {}, [], {}
    with tempfile.TemporaryDirectory(prefix="tessera-gpu-") as folder:
        for phase in options.what:
            start = time.monotonic()
            found, told = run_phase(phase, options, folder)
            about |= told
            times[phase] = round(time.monotonic() - start, 1)
            ledger_rows += [row.pop("ledger") for row in found if "ledger" in row]
            rows += found
            if options.out:
                report.save(options.out, {**about, "seed": options.seed, "commit": options.commit, "times": times}, rows)
    if options.ledger:
        from gpu import ledger

        if options.dry_run and options.ledger == ledger.LEDGER:
            sys.exit("error: a trial run writes nothing into the ledger: name another file")
        ledger.save(ledger.merged(ledger.load(options.ledger), ledger_rows), options.ledger)
    print(report.table(rows, about, times))
    if options.ledger:
        print(f"{len(ledger_rows)} rows for the ledger in {options.ledger}")
    return any(row["status"] in ("fail", "error") for row in rows)


if __name__ == "__main__":
    sys.exit(main())
