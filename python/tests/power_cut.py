"""A file system in memory that records what is done to it, and what a power cut may leave after each operation.

What is not synced may be lost, and may reach the disk in any order: each write wholly, in part or not at all, each change of a folder
or not. Data is safe after `fsync`, names are after `fsync_dir`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tessera.checkpoint.durable import Files


class Recorded(Files):
    """Records the operations of `Files`; nothing reaches a disk."""

    def __init__(self) -> None:
        self.log: list[tuple] = []
        self.handles = itertools.count()

    def create(self, path):
        handle = next(self.handles)
        self.log.append(("create", path, handle))
        return handle

    def write(self, handle, data):
        self.log.append(("write", handle, bytes(data)))

    def chmod(self, handle, mode):
        pass

    def fsync(self, handle):
        self.log.append(("fsync", handle))

    def close(self, handle):
        pass

    def rename(self, old, new):
        self.log.append(("rename", old, new))

    def fsync_dir(self, folder):
        self.log.append(("fsync_dir", folder))

    def unlink(self, path):
        self.log.append(("unlink", path))


def after_cut(log: list[tuple], path: str, before: bytes | None) -> Iterator[bytes | None]:
    """All that ``path`` may hold when the power is cut after these operations; `None` where there is no such file."""
    names: dict[str, int | str] = {} if before is None else {path: "before"}
    safe, loose = {}, {}  # by handle: what is on the disk, and the writes that may be
    pending: list[tuple] = []  # changes of folders
    for kind, *what in log:
        if kind == "create":
            safe[what[1]], loose[what[1]] = b"", []
            pending.append((kind, *what))
        elif kind == "write":
            loose[what[0]].append(what[1])
        elif kind == "fsync":
            safe[what[0]] += b"".join(loose[what[0]])
            loose[what[0]] = []
        elif kind == "fsync_dir":
            names, pending = _changed(names, pending, log), []
        else:
            pending.append((kind, *what))
    seen = set()
    for chosen in itertools.product([False, True], repeat=len(pending)):
        found = _changed(names, [p for p, c in zip(pending, chosen, strict=True) if c], log).get(path)
        if found in seen:
            continue
        seen.add(found)
        if found is None:
            yield None
        elif found == "before":
            yield before
        else:
            yield from _written(safe[found], loose[found])


def _changed(names: dict, changes: list[tuple], log: list[tuple]) -> dict:
    """The names of a folder after some of the changes to it. A rename that reaches the disk needs no entry under the old name."""
    made = {path: handle for kind, path, *handle in log if kind == "create" for handle in handle}
    out = dict(names)
    for kind, *what in changes:
        if kind == "create":
            out[what[0]] = what[1]
        elif kind == "rename":
            out[what[1]] = made[what[0]]
            out.pop(what[0], None)
        else:
            out.pop(what[0], None)
    return out


def _written(safe: bytes, loose: list[bytes]) -> Iterator[bytes]:
    for parts in itertools.product([0.0, 0.5, 1.0], repeat=len(loose)):
        data, place = bytearray(safe), len(safe)
        for part, write in zip(parts, loose, strict=True):
            kept = write[: int(len(write) * part)]
            if kept:
                data[len(data) : place] = bytes(max(0, place - len(data)))
                data[place : place + len(kept)] = kept
            place += len(write)
        yield bytes(data)
