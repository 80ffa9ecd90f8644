"""The report of a run: a short table, and all rows as JSON lines."""

import json
from collections import Counter
from pathlib import Path

#: Lines of failures that the table shows.
MOST = 25


def save(path, about, rows):
    lines = [{"about": about}, *rows]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def table(rows, about, times):
    out = ["\n" + place(about)]
    for phase, seconds in times.items():
        mine = [row for row in rows if row["phase"] == phase]
        count = Counter(row["status"] for row in mine)
        counts = ", ".join(f"{count[s]} {word}" for s, word in WORDS.items() if count[s])
        cases = sum(row.get("cases", 0) or 0 for row in mine)
        out.append(f"{phase}: {counts or 'nothing'}{f', {cases} cases' if cases else ''} in {seconds} s")
        out += LINES.get(phase, lambda rows: [])(mine)
    bad = [row for row in rows if row["status"] in ("fail", "error", "time")]
    out += [f"  {row['status']}: {row['name']} {row.get('peer', '')}: {row.get('why', '')[:200]}" for row in bad[:MOST]]
    if len(bad) > MOST:
        out.append(f"  and {len(bad) - MOST} more")
    return "\n".join(out)


def place(about):
    """Where it ran. Only a dry run names a host backend."""
    if about.get("gpu"):
        return f"{about['gpu']}, driver {about.get('driver')}"
    return f"the host ({about['backend']}): a trial" if about.get("backend") else "nothing ran"


WORDS = {"pass": "passed", "fail": "failed", "error": "errors", "skip": "skipped", "time": "not reached"}


def _bench(rows):
    found = [row for row in rows if row["status"] == "pass" and "ratio" in row]
    lines = [f"  {'work':<28} {'against':<8} {'ratio':>6} {'95% interval':>16} {'ours':>8} {'theirs':>8}"] if found else []
    for row in found:
        interval = f"[{row['low']:.3f}, {row['high']:.3f}]"
        speeds = f"{row['speed']:>8.4g} {row['peer_speed']:>8.4g} {row['unit']}"
        lines.append(f"  {row['name']:<28} {row['peer']:<8} {row['ratio']:>6.3f} {interval:>16} {speeds}")
    for row in rows:
        lines += [f"  {name}: {text}" for name, text in row.get("tried", {}).items()]
    return lines


def _launch(rows):
    return [f"  {row['name']:<26} {row['peer']:<44} {row['us']:>8.3f} us" for row in rows if "us" in row]


def _sanitize(rows):
    found = [row for row in rows if "passed" in row]
    return [f"  {row['name']}: {row['findings']} findings; {row['passed']} of {row['cases']} items passed" for row in found]


LINES = {"bench": _bench, "launch": _launch, "sanitize": _sanitize}
