"""Clones the checkout, runs `make demo` and `make test` there twice each, and writes how long they took into README.md.

    make first-minutes                             # three quarters of an hour
    make first-minutes FIRST="--only demo"         # only `make demo`; the row of `make test` stays
    make first-minutes FIRST=--once                # no second `make test`

The clone has what is committed. The times of its steps become scripts/first-times.txt, from which `make demo` and `make test` tell how long
the rest takes.
"""

import argparse
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- begin of first-minutes -->\n", "<!-- end of first-minutes -->\n"
COMMANDS = ("demo", "test")
HEAD = "| command | first run on a clean clone | its CPU time | later runs |\n|---|---|---|---|\n"


def spoken(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def row(command, first, cpu, later):
    return f"| `make {command}` | {spoken(first)} | {spoken(cpu)} | {spoken(later) if later else 'not measured'} |\n"


def rows(section):
    """The rows of a section of README.md, by command."""
    return {found[1]: found[0] for found in re.finditer(r"\| `make (\w+)` \| .* \| .* \| .* \|\n", section)}


def section(page):
    return page.split(BEGIN)[1].split(END)[0]


def caption(others):
    machine = f"{system()}, {os.cpu_count()} cores of {processor()}, {memory()} GB"
    versions = f"Rust {version('rustc')}, Python {platform.python_version()}"
    return (
        f"\n({machine}; {versions}; {date.today()}. Compilers, LLVM and downloads were there; `make test`\n"
        f"came after `make demo`, in its clone. Other programs took {others:.0%} of the processors' time; CPU time is that of all processes.\n"
        "Written by `make first-minutes`.)\n"
    )


def system():
    found = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return " ".join(found.get(name, "").strip('"') for name in ("NAME", "VERSION_ID")).replace(" GNU/Linux", "").strip()


def processor():
    names = [line.split(":")[1] for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return re.sub(r"\((R|TM)\)| CPU|@.*", "", names[0]).strip() if names else platform.machine()


def memory():
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)


def version(program):
    return subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]


def busy():
    """Seconds of all processors, of all programs."""
    user, nice, kernel, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + kernel + irq + softirq) / os.sysconf("SC_CLK_TCK")


def used():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def run(clone, command):
    """The seconds of wall and CPU time of a target in the clone."""
    # What belongs to this checkout or this shell must not reach the clone.
    strange = ("CARGO_TARGET_DIR", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    environment = {name: value for name, value in os.environ.items() if name not in strange and not name.startswith("TESSERA_")}
    start, cpu = time.monotonic(), used()
    print(f"\n== make {command} in {clone}", flush=True)
    if subprocess.run(["make", command], cwd=clone, env=environment, stdin=subprocess.DEVNULL).returncode:
        sys.exit(f"error: `make {command}` failed in a clean clone.")
    return time.monotonic() - start, used() - cpu


def steps(clone):
    """`SECONDS CPU-SECONDS TITLE` of each step of the last run in the clone."""
    lines = (clone / "build/setup/times").read_text().splitlines()
    return {line.split(maxsplit=2)[2]: line for line in lines}


def measure(clone, commands, again):
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", ROOT, clone], check=True)
    start, busy_before, used_before = time.monotonic(), busy(), used()
    first, times = {}, {}
    for command in commands:
        first[command] = run(clone, command)
        # What a later command finds done already counts with its first time.
        times = {**steps(clone), **times}
    later = {command: run(clone, command)[0] if command in again else None for command in commands}
    passed = time.monotonic() - start
    others = max(0, busy() - busy_before - (used() - used_before)) / (passed * os.cpu_count())
    return {command: row(command, *first[command], later[command]) for command in commands}, times, others


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=COMMANDS[:1], help="measure one command")
    parser.add_argument("--once", action="store_true", help="run the tests once")
    parser.add_argument("--keep", action="store_true", help="keep the clone")
    options = parser.parse_args()
    changed = subprocess.run(["git", "status", "--porcelain", "-uno"], cwd=ROOT, capture_output=True, text=True).stdout
    if changed:
        print(f"not committed, and so not in the clone:\n{changed}", flush=True)
    folder = Path(tempfile.mkdtemp(prefix="tessera-first-minutes-"))
    try:
        with_rows, times, others = measure(
            folder / "tessera", [options.only] if options.only else COMMANDS, COMMANDS[:1] if options.once else COMMANDS
        )
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    readme = ROOT / "README.md"
    page = readme.read_text()
    old = section(page)
    found = {**rows(old), **with_rows}
    new = HEAD + "".join(found[command] for command in COMMANDS) + caption(others)
    readme.write_text(page.replace(old, new))
    kept = ROOT / "scripts/first-times.txt"
    before = {line.split(maxsplit=2)[2]: line for line in kept.read_text().splitlines()} if kept.exists() else {}
    kept.write_text("".join(f"{line}\n" for line in {**before, **times}.values()))
    print(f"\n{new}")


if __name__ == "__main__":
    main()
