"""For pytest: ``-p oracle.plugin`` compares every launch of the tests with the oracle.

A report of what was compared, and what was not and why, is written as JSON to the file that ``TESSERA_ORACLE_REPORT`` names.
"""

from __future__ import annotations

import json
import os
from typing import Any

from .watch import watching

_open: list[Any] = []


def pytest_configure(config: Any) -> None:
    held = watching(None)
    _open.append((held, held.__enter__()))


def pytest_unconfigure(config: Any) -> None:
    held, seen = _open.pop()
    held.__exit__(None, None, None)
    path = os.environ.get("TESSERA_ORACLE_REPORT")
    if path:
        report = {"compared": seen.compared, "lacking": {k: sorted(v) for k, v in seen.lacking.items()}, "wrong": seen.wrong}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(report, file)
