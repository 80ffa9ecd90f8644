"""NVIDIA's compute-sanitizer on the conformance kernels: memcheck on all, racecheck on those that use shared memory.

It runs the items of `check.py` in a process under the tool. Item names in the output show which item a finding belongs to. Every
array is its own allocation of exactly its size, so an access one byte out of bounds is found.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from gpurun.worker import MARK

#: The program whose items are run.
PROGRAM = "conformance.gpu.check"

#: The items of each tool.
TOOLS = {
    "memcheck": r"^(op|example|gemm)",
    "racecheck": r"^gemm|^op (softmax|layernorm|rmsnorm|cross_entropy|reductions)$"
    r"|^example (softmax|layernorm|sort|fft|transpose|histogram|group_scan|batched_matmul|window_attention)$",
}
#: Processes of each tool: most of the time is spent on the host.
JOBS = 5
#: Final states of a process, from best to worst.
SEVERITY = ("skip", "pass", "time", "error", "fail")
_FINDING = re.compile(
    r"^========= (?:Invalid|Misaligned|Error: |Warning: Race|Race reported|Program hit|Barrier error|Leaked)", re.M
)
_SUMMARY = re.compile(r"^========= (?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", re.M)


def run_all(options, seconds, folder):
    """Runs all tools concurrently, each in several processes that share the items. Returns the rows and the description of
    the machine."""
    until = time.time() + seconds
    jobs = 1 if options.dry_run else JOBS
    runs = {tool: [start(tool, options, job, jobs, until, folder) for job in range(jobs)] for tool in TOOLS}
    rows = [row for tool, started in runs.items() for row in together(tool, [finish(tool, *one, until) for one in started], options)]
    described = (about(ran) for started in runs.values() for _, _, ran in started)
    return rows, next(filter(None, described), {})


def about(ran):
    """The description of the machine, from the first line of a process's rows."""
    lines = ran.read_text(encoding="utf-8").splitlines() if ran.exists() else []
    return next((found["device"] for found in map(json.loads, lines) if "device" in found), {})


def start(tool, options, job, jobs, until, folder):
    """Starts one tool on its share of the items. Returns the process (None without the tool) and the files of its output
    and its rows."""
    log, ran = (Path(folder, f"{tool}-{job}.{end}") for end in ("txt", "jsonl"))
    worker = [sys.executable, "-m", PROGRAM, "--worker", "check", "--rows", str(ran)]
    worker += ["--seed", str(options.seed), "--until", str(until - 15), "--job", str(job), "--jobs", str(jobs)]
    worker += ["--tiny", "--marks", "--only", options.only or TOOLS[tool], *(["--dry-run"] if options.dry_run else [])]
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "20", *worker]
    if options.dry_run:
        command = worker
    elif shutil.which("compute-sanitizer") is None:
        return None, log, ran
    # PyTorch asks the driver for every allocation.
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("w") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env), log, ran


def finish(tool, process, log, ran, until):
    """The rows of one process, after it ends or times out; the last is its total."""
    if process is None:
        return [{"phase": "sanitize", "name": tool, "status": "skip", "why": "there is no compute-sanitizer"}]
    try:
        code = process.wait(max(until - time.time(), 1))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        code = None
    rows = parse(tool, log.read_text(errors="replace"), code)
    lines = [json.loads(line) for line in ran.read_text().splitlines()] if ran.exists() else []
    ends = [line["row"]["status"] for line in lines if "row" in line]
    rows[-1]["passed"] = ends.count("pass")
    if rows[-1]["status"] == "pass" and "time" in ends:
        rows[-1] |= {"status": "time", "why": f"{ends.count('time')} items were not reached"}
    return rows


def together(tool, parts, options):
    """The findings of all processes of a tool, and one total of their totals."""
    rows, totals = [row for part in parts for row in part[:-1]], [part[-1] for part in parts]
    worst = max(totals, key=lambda total: SEVERITY.index(total["status"]))
    total = {**worst, "why": "; ".join(sorted({t["why"] for t in totals if t["why"]}))}
    for count in ("cases", "passed", "findings"):
        counts = [t[count] for t in totals if t.get(count) is not None]
        total[count] = sum(counts) if counts else None
    if options.dry_run and total["status"] == "error":
        total |= {"status": "skip", "why": "a trial run has no such tool"}
    elif total["status"] == "pass" and not total["passed"]:
        total |= {"status": "error", "why": "no item ran"}
    return [*rows, total]


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
        status, why = "time", "the time limit was reached before it ended"
    elif total is None:
        status, why = "error", f"no summary; exit code {code}: {text.strip().splitlines()[-1] if text.strip() else 'no output'}"
    elif total:
        status, why = "fail", f"{total} findings"
    rows.append({"phase": "sanitize", "name": tool, "status": status, "cases": items, "findings": total, "why": why})
    return rows
