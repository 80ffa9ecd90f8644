"""The exceptions of Tessera: one class for each kind of failure, with the same fields."""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple


class Diagnostic(NamedTuple):
    """One thing that went wrong, or that is worth knowing."""

    code: str
    message: str
    file: str | None
    line: int | None
    column: int | None
    notes: tuple[str, ...]
    help: str | None
    text: str

    def __str__(self) -> str:
        return self.text


class TesseraError(Exception):
    """The base class of all errors of Tessera.

    ``code`` is the name to search for (``E_SHAPE_MISMATCH``), ``message`` one line, ``file``,
    ``line`` and ``column`` the place in the user's source or IR text, ``notes`` and ``help`` what
    else there is to say, and ``diagnostics`` everything that was found: errors are collected, and
    the fields are those of the first one.
    """

    code: str
    message: str
    file: str | None
    line: int | None
    column: int | None
    notes: tuple[str, ...]
    help: str | None
    diagnostics: tuple[Diagnostic, ...]

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(text)
        errors = [d for d in diagnostics if d.code.startswith("E_")] or list(diagnostics)
        first = errors[0] if errors else Diagnostic("E_UNKNOWN", text, None, None, None, (), None, text)
        self.diagnostics = tuple(diagnostics)
        self.code, self.message, self.notes, self.help = first.code, first.message, first.notes, first.help
        self.file, self.line, self.column = first.file, first.line, first.column
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __reduce__(self):
        return type(self), (self._text, self.diagnostics)


class KernelSyntaxError(TesseraError, SyntaxError):
    """The source of a kernel, or IR text, is not what the language allows."""

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(text, diagnostics)
        # What Python prints of an uncaught SyntaxError. `lineno` stays empty: our text has the place.
        self.msg = text


class KernelTypeError(TesseraError, TypeError):
    """A value has a type that the operation does not take."""


class ShapeError(TesseraError, ValueError):
    """Shapes, ranks or sizes do not fit each other."""


class PrivilegeError(TesseraError):
    """A parameter is accessed as its privilege does not allow, or arguments overlap."""


class LaunchError(TesseraError, ValueError):
    """A call does not fit the kernel."""


class UnsupportedError(TesseraError, NotImplementedError):
    """The construct is reserved, or not supported here."""


class ResourceError(TesseraError):
    """A kernel needs more of a resource than there is."""


class DeviceError(TesseraError, RuntimeError):
    """A device or its driver is missing or failed."""


class ToolError(TesseraError):
    """An external tool failed."""


class CheckError(TesseraError):
    """Checked execution found a fault."""


class CheckpointError(TesseraError, RuntimeError):
    """A checkpoint cannot be written or read: the tree holds what a file cannot, the file is damaged, or of other arrays."""


class PlacementError(TesseraError, ValueError):
    """A mesh cannot be, or a placement does not fit an array, a mesh, or what is done with the array."""


class CommError(TesseraError, RuntimeError):
    """Ranks of a mesh could not synchronise."""

    @property
    def rank(self) -> int | None:
        """The number of the process that is lost, or that has not arrived; None where it is none."""
        found = re.search(r"\bprocess(?:es)? (\d+)", self.message) if self.code in ("E_RANK_LOST", "E_TIMEOUT_COMM") else None
        return None if found is None else int(found[1])


class MissingFileError(CheckpointError, FileNotFoundError):
    """A file that is to be read, or the folder that one is to be written in, is not there."""

    def __init__(self, text: str, diagnostics: tuple[Diagnostic, ...] = ()) -> None:
        super().__init__(text, diagnostics)
        self.errno, self.strerror = errno.ENOENT, os.strerror(errno.ENOENT)


class InternalError(TesseraError):
    """A fault of the compiler itself."""


class Refusal(Exception):
    """Why a tree or a file is refused, and what to write, where neither the file's name nor the user's line is known: `ts.save`
    and `ts.load` make a `CheckpointError` of it."""

    def __init__(self, message: str, help: str) -> None:
        super().__init__(message)
        self.message, self.help = message, help


class TesseraWarning(UserWarning):
    """A warning of Tessera; its message begins with the code."""


# Users know them by the package, and so do tracebacks.
for _class in [TesseraError, *TesseraError.__subclasses__(), MissingFileError, TesseraWarning, Diagnostic]:
    _class.__module__ = "tessera"
