"""``tessera run``: starts a program in several processes of this host, and ends all of them when one fails."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from .. import _core
from .arguments import Failure

#: Seconds after the first failure or signal: when the others get SIGTERM, and when SIGKILL.
_TERM, _KILL = 3.0, 6.0
#: Seconds for the processes to find each other.
_START = 300.0


def add(commands: Any) -> None:
    """Puts the command among the others."""
    one = commands.add_parser("run", help="runs a Python program in several processes, which play the ranks of its meshes")
    one.add_argument("-n", type=int, required=True, metavar="N", dest="count", help="how many processes")
    one.add_argument("--timeout", type=float, metavar="S", help="how long a collective waits for a process that has not arrived; 300 seconds by default")
    one.add_argument("file", metavar="FILE.py")
    one.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the program")
    one.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """The exit status is that of the first process that failed: of one that a signal ended, 128 and the signal's number."""
    if not Path(options.file).is_file():
        raise Failure(f"cannot read {options.file}: no such file")
    if not 1 <= options.count <= 128:
        raise Failure(f"expected 1 to 128 processes, got {options.count}")
    if options.timeout is not None and not options.timeout > 0:
        raise Failure(f"expected a positive --timeout, got {options.timeout:g}")
    launch = _Launch(options.count)
    handled = {s: signal.signal(s, launch.signalled) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        launch.start([sys.executable, options.file, *options.arguments], options.timeout)
        return launch.finish()
    finally:
        launch.end()
        for number, before in handled.items():
            signal.signal(number, before)


class _Launch:
    """Processes and the threads that read what they print."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._printing = threading.Lock()
        self._status = 0
        #: When the first failure or signal was seen, and how far the end has come since.
        self._since: float | None = None
        self._signals = 0
        token = secrets.token_hex(16)
        self._coordinator = _core.Coordinator(count, token, _START)
        self._named = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._coordinator.port), "TESSERA_TOKEN": token,
                       "TESSERA_COORDINATOR": "launcher", "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}  # fmt: skip

    def start(self, command: list[str], timeout: float | None) -> None:
        each = max(1, len(os.sched_getaffinity(0)) // self._count) if hasattr(os, "sched_getaffinity") else 1
        shared = {"TESSERA_THREADS": str(each), "PYTHONUNBUFFERED": "1", **os.environ, **self._named}
        if timeout is not None:
            shared["TESSERA_COMM_TIMEOUT"] = repr(timeout)
        for rank in range(self._count):
            own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            # A session of its own: a signal goes to it and to what it starts, once.
            process = subprocess.Popen(command, env=own, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
            self._processes.append(process)
            for source, target in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
                reader = threading.Thread(target=self._read, args=(rank, source, target), daemon=True)
                reader.start()
                self._readers.append(reader)

    def _read(self, rank: int, source: IO[bytes], target: IO[str]) -> None:
        """Prints the lines of a process with its number in front."""
        prefix = f"[{rank}] "
        for line in source:
            with self._printing:
                try:
                    target.write(prefix + line.decode(errors="replace").rstrip("\n") + "\n")
                    target.flush()
                except (OSError, ValueError):
                    # Nobody reads any more: the process must not wait for somebody who does.
                    continue

    def signalled(self, number: int, _: Any) -> None:
        """Hands a signal on; the processes may clean up, for a while."""
        self._failed(128 + number)
        self._send(number)

    def _failed(self, status: int) -> None:
        if self._since is None:
            self._since, self._status = time.monotonic(), status

    def _send(self, number: int) -> None:
        for process in self._processes:
            try:
                # The group is there as long as one of its processes is: also of a process that has ended.
                os.killpg(process.pid, number)
            except (ProcessLookupError, PermissionError):
                continue

    def finish(self) -> int:
        """Waits for all; after a failure not for long."""
        while True:
            codes = [p.poll() for p in self._processes]
            for code in codes:
                if code:
                    self._failed(code if code > 0 else 128 - code)
            if all(code is not None for code in codes):
                return self._status
            if self._since is not None:
                past = time.monotonic() - self._since
                for step, (after, number) in enumerate(((_TERM, signal.SIGTERM), (_KILL, signal.SIGKILL))):
                    if past > after and self._signals <= step:
                        self._signals = step + 1
                        self._send(number)
            time.sleep(0.02)

    def end(self) -> None:
        """Leaves nothing behind."""
        if any(p.poll() is None for p in self._processes) or self._since is not None:
            self._send(signal.SIGKILL)
        for process in self._processes:
            process.wait()
        for reader in self._readers:
            # A process that was started by one of them may hold the pipe.
            reader.join(timeout=1)
        self._coordinator.close()
