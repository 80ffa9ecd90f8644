"""Tasks that run when those before them are done. `_core.TaskOrder` says who waits for whom; threads take what is ready."""

from __future__ import annotations

import _thread
import atexit
import contextvars
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from .. import _core
from . import _mapper

#: (storage, positions of each dim, privilege), as `_core` takes them.
Use = tuple[int, Any, str]


class Task:
    """Work that was submitted. ``name`` says what it is in errors."""

    __slots__ = ("number", "run", "context", "missing", "next", "error", "state", "launch")

    def __init__(self, run: Callable[[], None], launch: Any) -> None:
        self.run = run
        self.context = contextvars.copy_context()
        self.number = -1
        self.missing = 0
        self.next: list[Task] = []
        self.error: BaseException | None = None
        self.state = "waiting"
        self.launch = launch


class Tasks:
    """The tasks of the process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._order = _core.TaskOrder()
        self._live: dict[int, Task] = {}
        self._ready: deque[Task] = deque()
        self._threads = 0
        self._idle = 0
        #: Errors that nobody has seen.
        self._unseen: list[tuple[int, Any, BaseException]] = []

    def submit(self, rows: Iterable[tuple[Callable[[], None], list[Use], Any]]) -> list[Task]:
        """Takes up tasks in program order."""
        made = []
        with self._changed:
            most = _mapper.tunable("launch_threads", max(2, min(16, os.cpu_count() or 2)))
            for run, uses, launch in rows:
                task = Task(run, launch)
                task.number, before = self._order.add(uses)
                self._live[task.number] = task
                for number in before:
                    self._live[number].next.append(task)
                task.missing = len(before)
                made.append(task)
                if not before:
                    self._ready.append(task)
            for _ in range(min(len(self._ready) - self._idle, most - self._threads)):
                self._threads += 1
                # Without a frame of Python's library below: that would be taken for the user's line.
                _thread.start_new_thread(self._work, ())
            if self._ready:
                self._changed.notify(len(self._ready))
        return made

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._ready:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                task = self._ready.popleft()
                task.state = "running"
            self._run(task)
            del task

    def _finish(self, task: Task, error: BaseException | None) -> None:
        with self._changed:
            if error is not None:
                if not getattr(task.launch, "reported", False):
                    self._unseen.append((task.number, task.launch, error))
            stack = [(task, "failed" if error is not None else "done")]
            while stack:
                ended, state = stack.pop()
                if ended.state in ("failed", "done", "cancelled"):
                    continue
                ended.state, ended.error = state, error
                ended.run = _nothing
                self._live.pop(ended.number, None)
                self._order.done(ended.number)
                for other in ended.next:
                    if error is not None:
                        stack.append((other, "cancelled"))
                        continue
                    other.missing -= 1
                    if other.missing == 0 and other.state == "waiting":
                        self._ready.append(other)
                ended.next = []
            self._changed.notify_all()

    def wait_for(self, use: Use) -> None:
        """Waits until elements can be used; raises what went wrong before that."""
        with self._changed:
            tasks = [self._live[n] for n in self._order.waits(use)] if self._live else []
        if tasks:
            self.wait(tasks)
        # What went wrong before, and was not waited for, may have left the elements as they were.
        self.raise_unseen()

    def _help(self, pending: Callable[[], bool]) -> None:
        """Runs ready tasks on this thread as long as something is pending, and waits where none is ready. Short tasks are so run without a
        change of threads."""
        while True:
            task = None
            try:
                with self._changed:
                    if not pending():
                        return
                    if not self._ready:
                        # With a limit, so that a signal is seen.
                        self._changed.wait(0.2)
                        continue
                    task = self._ready.popleft()
                    task.state = "running"
                self._run(task)
            except BaseException as stopped:
                # A signal between two steps: nobody else would end the task.
                if task is not None:
                    self._finish(task, stopped)
                raise

    def _run(self, task: Task) -> None:
        error: BaseException | None = None
        try:
            task.context.run(task.run)
        except BaseException as raised:  # noqa: BLE001 - it is raised where someone waits
            error = raised
        self._finish(task, error)

    def wait(self, tasks: list[Task]) -> None:
        self._help(lambda: any(t.state in ("waiting", "running") for t in tasks))
        with self._changed:
            failed = next((t.error for t in tasks if t.error is not None), None)
            if failed is not None:
                self._seen(failed)
        if failed is not None:
            raise failed

    def _seen(self, error: BaseException) -> None:
        """An error is raised: others of its launch are not raised again."""
        for _, launch, other in self._unseen:
            if other is error and launch is not None:
                launch.reported = True
        self._unseen = [e for e in self._unseen if e[2] is not error and not getattr(e[1], "reported", False)]

    def wait_all(self) -> None:
        """Waits for all tasks; raises the first error that nobody has seen."""
        self._help(lambda: bool(self._live))
        self.raise_unseen()

    def raise_unseen(self) -> None:
        """Raises an error of earlier tasks that nobody has waited for."""
        if not self._unseen:
            return
        with self._changed:
            error = min(self._unseen, key=lambda e: e[0])[2] if self._unseen else None
            if error is not None:
                self._seen(error)
        if error is not None:
            raise error

    def at_exit(self) -> None:
        with self._changed:
            while self._live and self._threads:
                self._changed.wait(0.2)
            unseen = sorted(self._unseen, key=lambda e: e[0])
        for _, _, error in unseen:
            print(f"a task failed, and nobody waited for it:\n{error}", file=sys.stderr)


def _nothing() -> None:
    pass


TASKS = Tasks()
atexit.register(TASKS.at_exit)
if hasattr(os, "register_at_fork"):
    # Threads are not in a child, and neither are their tasks.
    os.register_at_fork(after_in_child=TASKS._reset)


def wait() -> None:
    """Waits for all tasks of index launches, and raises the first error that nobody has seen."""
    TASKS.wait_all()


def leaving(failing: bool) -> None:
    """What happens at the end of ``with mesh:``; an error that is being raised is not replaced."""
    try:
        TASKS.wait_all()
    except Exception:
        if not failing:
            raise
