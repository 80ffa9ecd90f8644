"""The table on the terminal, and the same with all samples as JSON."""

import datetime
import json
import os
import traceback
from dataclasses import asdict, dataclass, field

from .case import Must

#: A promised figure is the median of at least this many rounds.
LEAST_ROUNDS = 40


@dataclass(frozen=True)
class Row:
    """One figure of a workload, against a peer, and the value it must have."""

    section: str
    work: str
    against: str
    figure: float
    unit: str
    low: float | None = None
    high: float | None = None
    #: More that the line shows, such as absolute speeds.
    remark: str = ""
    must: Must | None = None
    #: Everything that was measured.
    data: dict = field(default_factory=dict)


class Report:
    def __init__(self, folder, machine, options):
        self.folder = folder
        self.started = datetime.datetime.now().astimezone()
        self.machine, self.options = machine, options
        self.rows, self.failures = [], []

    def why_not_judged(self):
        """Why no figure of this run is compared with what is promised, or an empty text."""
        if self.options["quick"]:
            return "a quick run has tiny sizes, to try the benchmark itself"
        if self.machine["tessera"]["backend"] != "cpu":
            return f"kernels run on {self.machine['tessera']['backend']}, not on the cpu backend"
        if self.options["rounds"] < LEAST_ROUNDS:
            return f"{self.options['rounds']} rounds are fewer than the {LEAST_ROUNDS} that are required"
        return ""

    def verdict(self, row):
        if row.must is None or self.why_not_judged():
            return ""
        return "met" if row.must.met(row.figure) else "MISSED"

    @property
    def stem(self):
        """What the names of this run's files begin with."""
        return self.folder / f"cpu-{self.started.date().isoformat()}"

    def introduce(self):
        m = self.machine
        print(f"{m['model']}, {m['cores']} cores, {m['memory']}; {' '.join(m['flags'])}")
        versions = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
        print(f"Tessera {m['tessera']['version']} at {m['tessera']['commit']}; Python {m['python']}, {versions}")
        if m["load"][0] > 0.5:
            print(f"Others use this machine (load {m['load'][0]:.1f}): what is not paired is not to be trusted.")
        if self.why_not_judged():
            print(f"No figure is judged: {self.why_not_judged()}.")

    def heading(self, title, *remarks):
        print(f"\n{title}")
        for remark in remarks:
            print(f"  {remark}")
        print(f"  {'work':<27} {'against':<16} {'figure':>10} {'95% interval':>16}  {'':<26} {'must':>7}", flush=True)

    def add(self, row):
        self.rows.append(row)
        figure = f"{row.figure:.3g}" if row.figure < 1000 else f"{row.figure:.0f}"
        spread = "" if row.low is None else f"[{row.low:.3g}, {row.high:.3g}]"
        must = "" if row.must is None else str(row.must)
        name, value = f"{row.work:<27} {row.against:<16}", f"{figure} {row.unit}"
        print(f"  {name} {value:>10} {spread:>16}  {row.remark:<26} {must:>7} {self.verdict(row)}".rstrip(), flush=True)
        self.save()

    def fail(self, work, against, error):
        """A line for what could not be measured; the run goes on and ends with an error."""
        text = next((line for line in str(error).splitlines() if line.strip()), "")
        print(f"  {work:<27} {against:<16} FAILED: {type(error).__name__}: {text}", flush=True)
        self.failures.append({"work": work, "against": against, "error": "".join(traceback.format_exception(error))})
        self.save()

    def save(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = [{**asdict(row), "must": row.must and str(row.must), "verdict": self.verdict(row)} for row in self.rows]
        record = {
            "started": self.started.isoformat(timespec="seconds"),
            "machine": self.machine,
            "options": self.options,
            "rows": rows,
            "failures": self.failures,
        }
        path = self.stem.with_suffix(".json")
        path.with_suffix(".new").write_text(json.dumps(rounded(record), indent=1) + "\n", encoding="utf-8")
        path.with_suffix(".new").replace(path)

    def conclude(self, plots):
        print()
        verdicts = [verdict for row in self.rows if (verdict := self.verdict(row))]
        if verdicts:
            print(f"{verdicts.count('met')} of {len(verdicts)} promised figures met")
        for path in (self.stem.with_suffix(".json"), *plots):
            print(os.path.relpath(path))
        if self.failures:
            print(f"{len(self.failures)} could not be measured; the JSON file has the errors")


def rounded(value):
    """The same with six significant digits: the samples are no more exact, and the file is half as long."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {str(key): rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(item) for item in value]
    return value
