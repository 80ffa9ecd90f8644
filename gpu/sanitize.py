"""NVIDIA's compute-sanitizer over the conformance kernels: bad accesses everywhere, races in what shares memory.

The run is this program again, one item after another, in a process that the tool watches; the names of items in its output
say whose a finding is. Every array has memory of its own, as long as it is, so that leaving it by one byte is seen.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

#: Which tool looks at which items.
TOOLS = {
    "memcheck": r"^(op|example|gemm)",
    "racecheck": r"^gemm|^op (softmax|layernorm|rmsnorm|cross_entropy|reductions)$"
    r"|^example (softmax|layernorm|sort|fft|transpose|histogram|group_scan|batched_matmul|window_attention)$",
}
MARK = "@@ item "
_FINDING = re.compile(
    r"^========= (?:Invalid|Misaligned|Error: |Warning: Race|Race reported|Program hit|Barrier error|Leaked)", re.M
)
_SUMMARY = re.compile(r"^========= (?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", re.M)


def run_all(options, seconds, folder):
    """Rows of all tools."""
    rows = []
    for tool in TOOLS:
        limit = seconds / len(TOOLS)
        given = ["--seed", str(options.seed), "--until", str(time.time() + limit - 15)]
        given += ["--dry-run"] if options.dry_run else []
        rows += run(tool, options, given, limit, folder)
    return rows


def run(tool, options, given, limit, folder):
    """Rows of one tool."""
    log, ran = (Path(folder, f"{tool}.{end}") for end in ("txt", "jsonl"))
    worker = [sys.executable, str(Path(__file__).with_name("run.py")), "--worker", "check", "--rows", str(ran), *given]
    worker += ["--tiny", "--marks", "--only", options.only or TOOLS[tool]]
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "20", *worker]
    if options.dry_run:
        command = worker
    elif shutil.which("compute-sanitizer") is None:
        return [{"phase": "sanitize", "name": tool, "status": "skip", "why": "there is no compute-sanitizer"}]
    # Every allocation is one of the driver's.
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("w") as out:
        try:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=limit, env=env).returncode
        except subprocess.TimeoutExpired:
            code = None
    rows = parse(tool, log.read_text(errors="replace"), code)
    lines = [json.loads(line) for line in ran.read_text().splitlines()] if ran.exists() else []
    passed = sum(line["row"]["status"] == "pass" for line in lines if "row" in line)
    rows[-1] |= {"passed": passed}
    if options.dry_run and code == 0:
        rows[-1] |= {"status": "skip", "why": "a trial run has no such tool"}
    elif rows[-1]["status"] == "pass" and not passed:
        rows[-1] |= {"status": "error", "why": "nothing ran that could be looked at"}
    return rows


def parse(tool, text, code):
    """A row for each item with findings, and one for all."""
    parts = text.split(MARK)
    rows, items = [], 0
    for part in parts[1:]:
        name, _, rest = part.partition("\n")
        items += 1
        if found := _FINDING.findall(rest):
            first = next(line for line in rest.splitlines() if _FINDING.match(line))
            where = next((line.strip("= ") for line in rest.splitlines() if re.match(r"=========\s+(at|by)\s", line)), "")
            why = f"{len(found)} findings: {first.strip('= ')} {where}".strip()
            row = {"phase": "sanitize", "name": f"{tool}: {name.strip()}", "status": "fail", "findings": len(found)}
            rows.append({**row, "why": why})
    totals = [int(a or b) for a, b in _SUMMARY.findall(text)]
    total = sum(totals) if totals else None
    status, why = "pass", ""
    if code is None:
        status, why = "time", "the time was over before it was through"
    elif total is None:
        status, why = "error", f"no summary; exit code {code}: {text.strip().splitlines()[-1] if text.strip() else 'no output'}"
    elif total:
        status, why = "fail", f"{total} findings"
    rows.append({"phase": "sanitize", "name": tool, "status": status, "cases": items, "findings": total, "why": why})
    return rows
