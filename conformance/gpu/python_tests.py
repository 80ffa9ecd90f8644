"""The tests of `python/tests` that run on every backend, on the device: files of them in concurrent processes of pytest."""

import importlib.util
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "python" / "tests"
#: Processes: most of the time is spent on the host.
JOBS = 8
#: Files that compare whole programs with another meaning of them, or look at what the host does: they call few kernels.
LEFT_OUT = {"test_oracle", "test_cuda_absent", "test_errors", "test_clocks", "test_cost", "test_acceptance"}


def files(only=""):
    """The files with tests that run on each backend."""
    import re

    texts = {path: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("test_*.py")) if path.stem not in LEFT_OUT}
    takes = re.compile(r"def test_\w+\([^)]*\b(?:backend|everywhere)\b|usefixtures\(\"backend\"\)")
    return [path for path, text in texts.items() if takes.search(text) and re.search(only, path.stem)]


def run_all(options, seconds, folder):
    """Runs every file. Returns a row for each, and no description of the machine."""
    if importlib.util.find_spec("pytest") is None:
        return [{"phase": "tests", "name": "pytest", "status": "skip", "why": "there is no pytest"}], {}
    until = time.time() + seconds
    waiting, running, rows = files(options.only), {}, []
    jobs = options.jobs or (1 if options.dry_run else JOBS)
    while waiting or running:
        while waiting and len(running) < jobs and time.time() < until:
            path = waiting.pop(0)
            running[path] = start(path, options, folder), time.time()
        if time.time() >= until:
            rows += [{"phase": "tests", "name": path.stem, "status": "time"} for path in (*waiting, *running)]
            for process, _ in running.values():
                process.kill()
                process.wait()
            break
        for path, (process, began) in list(running.items()):
            if process.poll() is not None:
                del running[path]
                rows.append(row(path, process.returncode, folder) | {"seconds": round(time.time() - began, 1)})
                if rows[-1]["status"] in ("fail", "error"):
                    print(f"tests: {rows[-1]['name']}: {rows[-1].get('why', '')[:300]}", flush=True)
        time.sleep(0.05)
    return rows, {}


def start(path, options, folder):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conformance.gpu.on_device", "-p", "no:cacheprovider", "-p", "no:xdist",
               f"--junitxml={Path(folder, path.stem)}.xml", str(path)]  # fmt: skip
    env = {**os.environ, **({"TESSERA_DRY_RUN": "1"} if options.dry_run else {})}
    with Path(folder, f"{path.stem}.log").open("w") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env)


def row(path, code, folder):
    """A row of the report, from what pytest wrote."""
    out = {"phase": "tests", "name": path.stem}
    written = Path(folder, f"{path.stem}.xml")
    if not written.exists():
        words = Path(folder, f"{path.stem}.log").read_text(errors="replace").strip().splitlines()
        return out | {"status": "error", "why": f"pytest ended with {code}: {words[-1] if words else 'without a word'}"}
    suite = ElementTree.parse(written).getroot().find("testsuite")
    count = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    bad = [f"{case.get('name')}: {found.get('message', '')[:160]}" for case in suite.iter("testcase")
           for found in case if found.tag in ("failure", "error")]  # fmt: skip
    out |= {"cases": count["tests"] - count["skipped"], "skipped": count["skipped"]}
    if bad:
        return out | {"status": "fail", "why": f"{len(bad)} of {count['tests']} tests: " + " | ".join(bad[:12]), "all": bad}
    return out | ({"status": "pass"} if count["tests"] > count["skipped"] else {"status": "skip", "why": "no test of it runs on a device"})
