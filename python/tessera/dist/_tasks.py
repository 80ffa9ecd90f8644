"""The queue of tasks of this process. `_core.TaskQueue` orders and runs them."""

from __future__ import annotations

import atexit
import contextvars
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

from .. import _core
from . import _mapper

#: (storage, positions of each dim, privilege), as `_core` takes them.
Use = tuple[int, Any, str]
#: The tasks that were submitted together.
Task = _core.TaskGroup
TASKS = _core.TaskQueue.of_process()
_THREADS = max(2, min(16, os.cpu_count() or 2))


def threads() -> int:
    """How many threads run tasks."""
    return _mapper.tunable("launch_threads", _THREADS)


def in_context(work: Callable[[], Any]) -> Callable[[], Any]:
    """A function as a task, with the context variables of here."""
    return functools.partial(contextvars.copy_context().run, work)


def wait() -> None:
    """Waits for all tasks of index launches, and raises the first error that nobody has seen."""
    TASKS.wait_all()


def leaving(raised: BaseException | None) -> None:
    """What happens at the end of ``with mesh:``; an error that is being raised is not replaced, and says what else failed."""
    try:
        TASKS.wait_all()
    except Exception as error:
        if raised is None:
            raise
        text = f"a task failed meanwhile:\n{error}"
        if hasattr(raised, "add_note"):
            raised.add_note(text)
        else:  # Python 3.10
            print(text, file=sys.stderr)


def _at_exit() -> None:
    for error in TASKS.finish():
        print(f"a task failed, and nobody waited for it:\n{error}", file=sys.stderr)


atexit.register(_at_exit)
