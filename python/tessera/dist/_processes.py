"""This process among those of a program. ``tessera run`` starts several; so does any launcher that sets ``RANK``, ``WORLD_SIZE``,
``MASTER_ADDR`` and ``MASTER_PORT``."""

from __future__ import annotations

import atexit

from .. import _core
from ..base.caller import fail

#: The number of this process and how many there are, once they are known.
_known: list[tuple[int, int]] = []


def init(timeout: float = 30) -> None:
    """Joins the other processes of the program, which all have to come within ``timeout`` seconds. The first mesh does it too; in a process
    that no launcher started there is nothing to do."""
    if _known:
        return
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise fail("E_TYPE", f"init: expected `timeout` in seconds, got {timeout!r}", "write such as `dist.init(timeout=30)`")
    _known.append(_core.processes_join(float(timeout)))
    if _known[0][1] > 1:
        # Others hear of a process that ends, and do not wait for it.
        atexit.register(_core.processes_leave)


def rank() -> int:
    """The number of this process. Each plays neighbouring ranks of a mesh: ``mesh.local_ranks``."""
    init()
    return _known[0][0]


def world_size() -> int:
    """How many processes the program has."""
    init()
    return _known[0][1]


def shutdown() -> None:
    """Ends the part of this process: later collectives are errors. The end of the program does it too."""
    if _known and _known[0][1] > 1:
        _core.processes_leave()


def played(size: int) -> range:
    """The ranks that this process plays, of a mesh with ``size`` ranks."""
    init()
    me, world = _known[0]
    each = -(-size // world)
    return range(min(size, me * each), min(size, (me + 1) * each))


def are_several() -> bool:
    """Whether other processes play ranks too."""
    return bool(_known) and _known[0][1] > 1
