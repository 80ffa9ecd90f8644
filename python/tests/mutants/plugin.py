"""Runs the tests of a group against each mutant of a sample, in one pytest process.

Tests are collected once. A run without faults records which lines each test reaches and how long it takes. For every mutant a child
process is forked. It replaces the code of the function with the faulty code and runs the tests that reach its line, the shortest
first, up to the first that fails. Faults outside functions (defaults, tables, classes) are made while the module is imported, in a
new process (`imported.py`).
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from .groups import PACKAGE, ROOT, TESTS, Group
from .operators import Mutant, mutated

STATE = ROOT / "build" / "mutants"
#: A test hangs because of a fault if it takes SLOWER times as long as usual plus GRACE seconds.
SLOWER, GRACE = 5.0, 10.0
#: Exit statuses of a child.
SURVIVED, KILLED, NOT_SWAPPED = 0, 1, 3


@dataclass
class Outcome:
    mutant: Mutant
    #: `killed`, `stopped` (it ran too long, or died), `survived` or `unreached`.
    word: str
    by: str = ""


class Seen:
    """Remembers the first failure and how long tests took."""

    def __init__(self) -> None:
        self.failed: str | None = None
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed and self.failed is None:
            self.failed = report.nodeid


class Loop:
    """Takes the place of pytest's loop over the tests."""

    def __init__(self, group: Group, sample: list[Mutant], jobs: int, say) -> None:
        self.group, self.sample, self.jobs, self.say = group, sample, jobs, say
        self.outcomes: list[Outcome] = []
        self.log = open(os.devnull, "w")
        self.own = {str(path): str(path.relative_to(PACKAGE)) for path in group.files()}
        # As they were when the sample was drawn: they may be edited meanwhile.
        self.sources = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in group.files()}
        # Functions that run while modules are imported, such as decorators, have done their work before their code could be exchanged.
        self.early: set[str] = set()
        sys.settrace(self.tracing(lambda: self.early))

    def tracing(self, into: Callable[[], set]) -> Callable:
        """A function for `sys.settrace` that keeps the lines of our modules."""
        names = self.own

        def local(frame, event, _):
            if event == "line":
                into().add(f"{names[frame.f_code.co_filename]}:{frame.f_lineno}")
            return local

        def on_call(frame, event, _):
            if frame.f_code.co_filename not in names:
                return None
            if frame.f_code.co_name != "<module>":
                into().add(f"{names[frame.f_code.co_filename]}:{frame.f_lineno}")
                return local
            return None

        return on_call

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        sys.settrace(None)
        self.session = session
        self.sample = [replace(m, in_function=m.in_function and f"{m.module}:{m.line}" not in self.early) for m in self.sample]
        self.items = {item.nodeid: item for item in session.items}
        shared = STATE / "shared"
        for name in ("cache", "config"):
            (shared / name).mkdir(parents=True, exist_ok=True)
            (shared / name).chmod(0o700)
        # Compiled kernels are the same for all children: the folders that `conftest.py` sets are shared.
        factory = session.config._tmp_path_factory
        made = factory.mktemp
        factory.mktemp = lambda name, numbered=True: shared / name if name in ("cache", "config") else made(name, numbered)
        factory.getbasetemp()
        self.reached, self.seconds = self.baseline()
        if any(not mutant.in_function for mutant in self.sample):
            self.control()
        self.run_all()
        return True

    # Without faults

    def baseline(self) -> tuple[dict[str, set], dict[str, float]]:
        """Which tests reach which lines, and how long each takes; of every file of tests, kept until it or a module changes."""
        code = hashlib.sha256(b"".join(path.read_bytes() for path in [*self.group.files(), TESTS / "conftest.py"]))
        reached: dict[str, set] = {}
        seconds: dict[str, float] = {}
        for file in sorted({item.path for item in self.items.values()}):
            mine = [nodeid for nodeid, item in self.items.items() if item.path == file]
            stamp = hashlib.sha256(code.digest() + file.read_bytes() + repr(mine).encode()).hexdigest()[:24]
            kept = STATE / f"reach-{file.stem}-{stamp}.json"
            if not kept.exists():
                self.say(f"  {file.name} without faults …")
                STATE.mkdir(parents=True, exist_ok=True)
                status = 1
                for _ in range(2):  # tests that race with other processes may fail once on a busy machine
                    if status:
                        pid = os.fork()
                        if not pid:
                            self.child_baseline(mine, kept)
                        _, status = os.waitpid(pid, 0)
                if not kept.exists():
                    failed = kept.with_suffix(".failed")
                    what = failed.read_text() if failed.exists() else f"{file.name} (status {status})"
                    pytest.exit(f"fails without any fault: {what}", 1)
            found = json.loads(kept.read_text())
            seconds |= found["seconds"]
            for nodeid, lines in found["lines"].items():
                for line in lines:
                    reached.setdefault(line, set()).add(nodeid)
        return reached, seconds

    def child_baseline(self, mine: list[str], kept: Path) -> None:
        self.quiet()
        seen = Seen()
        self.session.config.pluginmanager.register(seen)
        lines: dict[str, set] = {}
        now: set = set()
        on_call = self.tracing(lambda: now)

        # Twice: the first run compiles kernels, so only the times of the second count. The second has the order of mutant runs.
        for attempt in range(2):
            mine = sorted(mine, key=lambda nodeid: seen.seconds.get(nodeid, 0.0))
            seen.seconds.clear()
            for nodeid, following in zip(mine, [*mine[1:], None]):
                now = lines.setdefault(nodeid, set())
                if attempt == 0:
                    import threading

                    threading.settrace(on_call)
                    sys.settrace(on_call)
                item = self.items[nodeid]
                item.ihook.pytest_runtest_protocol(item=item, nextitem=self.items.get(following))
                sys.settrace(None)
                if seen.failed:
                    kept.with_suffix(".failed").write_text(seen.failed)
                    os._exit(1)
        kept.write_text(json.dumps({"seconds": seen.seconds, "lines": {n: sorted(v) for n, v in lines.items()}}))
        os._exit(0)

    def control(self) -> None:
        """A module that is imported without a fault passes its tests: what kills the others is their fault."""
        module = self.sample[0].module
        tests = sorted(self.items, key=lambda nodeid: self.seconds.get(nodeid, 0.0))[: len(self.items) // 2]
        if self.imported(module, -1, tests, STATE / "control").returncode:
            pytest.exit("the tests fail in a new process without any fault", 1)

    # With them

    def tests_of(self, mutant: Mutant) -> list[str]:
        """The tests that reach a fault, the shortest first."""
        found = self.reached.get(f"{mutant.module}:{mutant.line}", set()) if mutant.in_function else set()
        if mutant.in_function and not found:
            # A statement of several lines counts by its first line in one release and by another in the next.
            found = set().union(*(self.reached.get(f"{mutant.module}:{mutant.line + d}", set()) for d in (-2, -1, 1, 2)))
        if not mutant.in_function:
            found = set(self.items)
        return sorted(found, key=lambda nodeid: self.seconds.get(nodeid, 0.0))

    def run_all(self) -> None:
        waiting = list(self.sample)
        running: dict[int, tuple[Mutant, Path, float]] = {}
        while waiting or running:
            while waiting and len(running) < self.jobs:
                mutant = waiting.pop(0)
                tests = self.tests_of(mutant)
                if not tests:
                    self.done(Outcome(mutant, "unreached"))
                    continue
                report = STATE / f"by-{os.getpid()}-{len(self.outcomes)}-{mutant.at}"
                limit = time.monotonic() + 300 + 4 * SLOWER * sum(self.seconds.get(t, 1.0) for t in tests)
                running[self.start(mutant, tests, report)] = (mutant, report, limit)
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                now = time.monotonic()
                for late, (_, _, limit) in running.items():
                    if now > limit:
                        os.killpg(late, signal.SIGKILL)
                time.sleep(0.02)
                continue
            if pid not in running:
                continue
            mutant, report, _ = running.pop(pid)
            by = report.read_text() if report.exists() else ""
            report.unlink(missing_ok=True)
            code = os.waitstatus_to_exitcode(status)
            if code == NOT_SWAPPED:
                waiting.insert(0, replace(mutant, in_function=False))
                continue
            word = {SURVIVED: "survived", KILLED: "killed"}.get(code, "stopped")
            self.done(Outcome(mutant, word, by))

    def done(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.say(f"  {len(self.outcomes):4}/{len(self.sample)} {outcome.word:9} {outcome.mutant.name}")

    def start(self, mutant: Mutant, tests: list[str], report: Path) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            self.quiet()
            factory = self.session.config._tmp_path_factory
            factory._basetemp = factory._basetemp / f"mutant-{os.getpid()}"
            factory._basetemp.mkdir()
            if not mutant.in_function:
                self.import_with(mutant, tests, report)
            if not swap(mutant, self.sources[mutant.module]):
                os._exit(NOT_SWAPPED)
            seen = Seen()
            self.session.config.pluginmanager.register(seen)
            for nodeid, following in zip(tests, [*tests[1:], None]):
                # By default the signal ends the process, in whatever loop it is. Its own time counts: the machine may be busy.
                signal.signal(signal.SIGPROF, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_PROF, GRACE + SLOWER * self.seconds.get(nodeid, 1.0))
                report.write_text(nodeid)
                item = self.items[nodeid]
                item.ihook.pytest_runtest_protocol(item=item, nextitem=self.items.get(following))
                if seen.failed:
                    os._exit(KILLED)
            report.unlink()
            os._exit(SURVIVED)
        except BaseException:
            os._exit(KILLED)

    def import_with(self, mutant: Mutant, tests: list[str], report: Path) -> None:
        """In a new process, whose import of the module makes the faulty one."""
        done = self.imported(mutant.module, mutant.at, tests, report)
        os._exit(SURVIVED if done.returncode == 0 else KILLED)

    def imported(self, module: str, at: int, tests: list[str], report: Path) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "mutants.imported", module, str(at), str(report), *tests]
        return subprocess.run(command, input=self.sources[module], text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{TESTS}"},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip

    def quiet(self) -> None:
        for stream in (1, 2):
            os.dup2(self.log.fileno(), stream)
        resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))


def codes(code: types.CodeType):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)


def swap(mutant: Mutant, source: str) -> bool:
    """Puts faulty code into all functions that hold the right code."""
    path = PACKAGE / mutant.module
    right = list(codes(compile(source, str(path), "exec")))
    wrong = list(codes(compile(mutated(source, mutant.at), str(path), "exec")))
    if [c.co_name for c in right] != [c.co_name for c in wrong]:
        return False
    other = {(a.co_qualname, a.co_firstlineno, a.co_code, a.co_consts): b for a, b in zip(right, wrong) if a != b}
    found = False
    for thing in gc.get_objects():
        if isinstance(thing, types.FunctionType) and thing.__code__.co_filename == str(path):
            mine = thing.__code__
            new = other.get((mine.co_qualname, mine.co_firstlineno, mine.co_code, mine.co_consts))
            if new is not None:
                try:
                    thing.__code__ = new
                except ValueError:  # other variables are captured
                    return False
                found = True
    return found
