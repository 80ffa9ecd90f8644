"""Stored tuning records: the candidates, where they were measured, and every sample.

A record holds for one kernel's source, build of Tessera, device, profile, sizes and dtypes. All processes of a user
share them, in ``tuning/`` of the directory that ``TESSERA_CACHE_DIR`` names.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

from . import _core
from .base.errors import TesseraWarning

__all__ = ["clear", "export", "load", "merge", "records"]


def records() -> list[dict[str, Any]]:
    """Every record: its ``subject``, and a row for each candidate."""
    found, faults = _core.tuning_list()
    for fault in faults:
        warnings.warn(fault, TesseraWarning, stacklevel=2)
    return [json.loads(text) for text in found]


def export(path: Any, kernel: str | None = None) -> int:
    """Writes all records, or those of the kernel of this name, into one file; says how many."""
    return _core.tuning_export(path, kernel)


def load(path: Any) -> int:
    """Adds the records of a file to those that are kept; says how many. Of two rows for one candidate the one with
    more samples stays. Kernels that run already look for them after ``k.cache_clear()``."""
    return _core.tuning_import(path)


def merge(out: Any, *paths: Any) -> int:
    """Makes one file of several, as `export` writes them; says how many records it holds. The order does not
    matter."""
    return _core.tuning_merge(out, list(paths))


def clear() -> int:
    """Removes all records that are kept; says how many."""
    return _core.tuning_clear()
