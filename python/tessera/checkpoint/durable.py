"""Files that are there whole or not at all, whatever ends the program or the machine.

A file is written under a name of its own beside its target, synced, and renamed over it; then the folder is synced. A reader
finds the old file or the new one. A crash at any point leaves the old one, and after `write_whole` returns a power cut leaves
the new one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

#: What a file system says that cannot sync folders.
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EBADF)
#: More than some systems take in one call.
_MOST = 1 << 30


class Files:
    """The operations that files are written by. Tests put a recording in its place, and cut the power after each of them."""

    def create(self, path: str) -> int:
        """A new file that only its owner may open; never one that is there, nor what a link leads to."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        return os.open(path, flags, 0o600)

    def write(self, handle: int, data: memoryview) -> None:
        while data:
            data = data[os.write(handle, data[:_MOST]) :]

    def chmod(self, handle: int, mode: int) -> None:
        if hasattr(os, "fchmod"):
            os.fchmod(handle, mode)

    def fsync(self, handle: int) -> None:
        full = getattr(fcntl, "F_FULLFSYNC", None)
        if full is None:
            os.fsync(handle)
        else:  # macOS, whose `fsync` leaves data in the cache of the drive
            fcntl.fcntl(handle, full)

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def fsync_dir(self, folder: str) -> None:
        """Does nothing where folders cannot be opened or synced: there is no more to be had there."""
        if os.name == "nt":
            return
        try:
            handle = os.open(folder or ".", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except PermissionError:  # a folder to write in and not to list
            return
        try:
            os.fsync(handle)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise
        finally:
            os.close(handle)

    def unlink(self, path: str) -> None:
        os.unlink(path)


#: What `write_whole` works with.
FILES = Files()


def write_whole(path: str, parts: Iterable[memoryview]) -> None:
    """Makes ``path`` a file of these parts. Where something fails, ``path`` is what it was, and nothing is left beside it."""
    files = FILES
    folder, name = os.path.split(path)
    # The part of the name tells whose it is, should the program be killed before the rename.
    fresh = os.path.join(folder, f".{name[:32]}-{secrets.token_hex(8)}.tmp")
    handle: int | None = None
    try:
        handle = files.create(fresh)
        for part in parts:
            files.write(handle, part)
        files.chmod(handle, _mode(path))
        files.fsync(handle)
        # Some file systems tell of a failed write only here.
        closing, handle = handle, None
        files.close(closing)
        files.rename(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            if handle is not None:
                files.close(handle)
        with contextlib.suppress(OSError):
            files.unlink(fresh)
        raise
    files.fsync_dir(folder)


def _mode(path: str) -> int:
    """The permissions of the file that is replaced, else those of a new one."""
    with contextlib.suppress(OSError):
        found = os.lstat(path).st_mode
        if stat.S_ISREG(found):
            return stat.S_IMODE(found) & 0o777
    return 0o666 & ~_umask()


def _umask() -> int:
    """Read without setting it where the system tells it: setting it and back would show in other threads."""
    with contextlib.suppress(OSError, ValueError):
        with open("/proc/self/status", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("Umask:"):
                    return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
