"""Arguments of commands: kernels of files, and values by name."""

from __future__ import annotations

import ast
import difflib
from typing import Any

from ..kernel.kernel_fn import KernelFn
from .loading import Loaded, load


class Failure(Exception):
    """An error that the command line itself found."""


def kernel_of(text: str) -> KernelFn:
    """The kernel that ``FILE.py:KERNEL`` names."""
    file, colon, name = text.rpartition(":")
    if not colon or not file:
        raise Failure(f"expected FILE.py:KERNEL, got {text}")
    loaded = load_or_fail(file)
    if name not in loaded.kernels:
        raise Failure(_missing(name, file, loaded))
    return loaded.kernels[name]


def load_or_fail(file: str) -> Loaded:
    try:
        return load(file)
    except OSError as e:
        raise Failure(f"cannot read {file}: {e.strerror or e}") from None
    except SyntaxError as e:
        raise Failure(f"{e.filename}:{e.lineno}: {e.msg}") from None


def _missing(name: str, file: str, loaded: Loaded) -> str:
    broken = dict(loaded.errors)
    if name in broken:
        return f"the kernel `{name}` has errors:\n{broken[name]}"
    names = [*loaded.kernels, *broken]
    if loaded.stopped:
        return f"{file} could not be run to its end, and no kernel `{name}` came before:\n{loaded.stopped}"
    if not names:
        return f"{file} has no kernels"
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean `{near[0]}`?" if near else "."
    return f"{file} has no kernel `{name}`{hint} Its kernels: {', '.join(names)}"


def value_of(item: str) -> tuple[str, Any]:
    """``BM=64``, ``causal=True``, ``mode=fast``."""
    name, equals, text = item.partition("=")
    if not equals or not name:
        raise Failure(f"expected NAME=VALUE, got {item}")
    try:
        return name, ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return name, text
