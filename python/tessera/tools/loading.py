"""Runs a user's file for its kernels, and keeps going where one of them has errors."""

from __future__ import annotations

import os
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ..base.errors import TesseraError
from ..kernel import decorators
from ..kernel.kernel_fn import KernelFn


@dataclass
class Loaded:
    """The kernels of a file that are in order, and the errors of the others, in order."""

    kernels: dict[str, KernelFn] = field(default_factory=dict)
    errors: list[tuple[str, TesseraError]] = field(default_factory=list)
    #: What ended the file early, if something did.
    stopped: str | None = None


class Broken:
    """Stands for a kernel with errors, so that the file can go on."""

    kind_name = "kernel with errors"

    def __init__(self, name: str) -> None:
        self.name = name


def load(file: str) -> Loaded:
    """Runs ``file`` as an import would, with `__name__` not `"__main__"`.

    Raises `OSError` for a file that cannot be read and `SyntaxError` for one that is no Python.
    """
    path = os.path.abspath(file)
    # Under the name that the user gave, which is what errors then show.
    code = compile(Path(path).read_bytes(), file, "exec")
    loaded = Loaded()
    made: list[KernelFn] = []
    plain = decorators.make

    def make(fn: Any, scope: dict[str, Any], **options: Any) -> Any:
        try:
            kernel = plain(fn, scope, **options)
        except TesseraError as e:
            loaded.errors.append((getattr(fn, "__name__", "?"), e))
            return Broken(getattr(fn, "__name__", "?"))
        made.append(kernel)
        return kernel

    namespace: dict[str, Any] = {"__name__": Path(path).stem, "__file__": path, "__builtins__": __builtins__}
    with patch.object(decorators, "make", make), patch.object(sys, "path", [os.path.dirname(path), *sys.path]):
        try:
            exec(code, namespace)
        except KeyboardInterrupt:
            raise
        except BaseException:
            loaded.stopped = _trace(file)
    # Kernels of other files that this one imports are not its own.
    own = [k for k in made if os.path.abspath(k.spec.source.file) == path]
    loaded.kernels = {k.name: k for k in own}
    return loaded


def _trace(file: str) -> str:
    """The traceback from the user's file on."""
    kind, error, tb = sys.exc_info()
    while tb is not None and tb.tb_frame.f_code.co_filename != file:
        tb = tb.tb_next
    return "".join(traceback.format_exception(kind, error, tb)).rstrip()
