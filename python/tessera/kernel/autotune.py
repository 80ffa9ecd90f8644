"""Autotuning of one kernel: options, reports, and the progress bar of a search."""

from __future__ import annotations

import math
import numbers
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import _core
from .schedule import caller

#: The defaults: the choice depends on all dims, calls do not measure, the metric is the median, and records are in the shared
#: directory.
DEFAULTS: tuple[list[str] | None, float | None, str, str | None] = (None, None, "latency_ms", None)

#: The metric of a candidate's times: the median, or the 90th percentile.
METRICS = ("latency_ms", "p90_ms")


def options(key: Sequence[str] | None, budget_ms: float | None, metric: str, cache: Any) -> tuple:
    """The options of ``@ts.kernel.autotune`` as the compiler takes them."""
    listed = isinstance(key, (list, tuple, set, frozenset)) and all(isinstance(name, str) for name in key)
    if key is not None and not listed:
        raise _core.error("E_ARGUMENT", f"expected a list of dims in `key=`, got {key!r}", 'write `key=["M", "N"]`', *caller())
    number = isinstance(budget_ms, numbers.Real) and not isinstance(budget_ms, bool)
    if budget_ms is not None and not (number and 0 < budget_ms < math.inf):
        what = f"expected milliseconds above 0 in `budget_ms=`, got {budget_ms!r}"
        raise _core.error("E_ARGUMENT", what, "write `budget_ms=2000`", *caller())
    if metric not in METRICS:
        what = f"expected a metric in `metric=` ({', '.join(METRICS)}), got {metric!r}"
        raise _core.error("E_ARGUMENT", what, 'write `metric="latency_ms"`', *caller())
    if cache is not None and not isinstance(cache, (str, os.PathLike)):
        what = f"expected a directory in `cache=`, got {cache!r}"
        raise _core.error("E_ARGUMENT", what, "leave it out for the one of all kernels", *caller())
    where = None if cache is None else str(Path(os.fspath(cache)).absolute())
    return None if key is None else list(key), None if budget_ms is None else float(budget_ms), metric, where


@dataclass(frozen=True)
class Candidate:
    """One candidate of a tuned kernel."""

    #: The tunables: ``BM=64, BN=128``.
    config: str
    #: ``measured``, ``failed``, ``pruned``, ``skipped``, or ``started`` where a process ended while it ran.
    state: str
    #: The metric, in seconds; None where it was not measured.
    seconds: float | None
    #: All samples in order, outliers included.
    samples: tuple[float, ...]
    #: The cost model's prediction, in seconds.
    predicted: float | None
    #: Why it was not measured, or not to the end.
    reason: str
    #: Figures of the compiled code.
    resources: Mapping[str, str] = field(default_factory=dict)


class TuningReport(str):
    """The candidates of a kernel and their times, as text: one table for each kind of call, latest last.

    The attributes are those of the latest.
    """

    #: The candidate that runs, or None.
    chosen: str | None
    #: ``measured`` by this process, ``stored`` by an earlier one, or ``nothing``.
    source: str
    rows: list[Candidate]
    #: The record as JSON.
    json: str
    _svg: str

    def __new__(cls, found: list[dict[str, Any]]) -> TuningReport:
        self = super().__new__(cls, "\n\n".join(one["text"] for one in found) or "nothing was tuned yet")
        last = found[-1] if found else {"chosen": None, "source": "nothing", "rows": [], "json": "", "svg": ""}
        self._found = found
        self.chosen, self.source, self.json, self._svg = last["chosen"], last["source"], last["json"], last["svg"]
        self.rows = [Candidate(**{**row, "samples": tuple(row["samples"])}) for row in last["rows"]]
        return self

    _found: list[dict[str, Any]]

    def svg(self, path: Any = None) -> str:
        """The latest table as a picture with every sample; ``path`` also gets it as a file."""
        if path is not None:
            Path(path).write_text(self._svg, encoding="utf-8")
        return self._svg

    def _repr_svg_(self) -> str | None:
        return self._svg or None

    def __reduce__(self) -> tuple[Any, ...]:
        return TuningReport, (self._found,)


#: The width of the bar in characters.
_BAR = 24


def progress(kernel: str, phase: str, part: float, left: int, best: tuple[str, float] | None) -> None:
    """Shows the progress of a search on a terminal; the compiler calls it."""
    out = sys.stderr
    if out is None or not out.isatty():
        return
    if phase == "done":
        out.write("\r\x1b[K")
    else:
        full = round(_BAR * min(max(part, 0.0), 1.0))
        text = f"tuning {kernel}: {phase} [{'#' * full}{'.' * (_BAR - full)}] {left} left"
        if best is not None:
            text += f", best {best[0]} at {best[1] * 1e3:.3f} ms"
        out.write(f"\r\x1b[K{text[:160]}")
    out.flush()


for _class in (Candidate, TuningReport):
    _class.__module__ = "tessera"
