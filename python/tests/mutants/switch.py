"""`python -m mutants.switch CRATE`: mutation testing of a Rust crate, all mutants of a sample in one build.

A copy of the workspace under `build/mutants/tree` gets the faults, each behind `crate::__mutant(number)`, which compares with the
environment variable `TESSERA_MUTANT`. What does not compile is left out. Each of the crate's own tests then runs once without a fault, which
records the mutants that it reaches; for each mutant the tests that reach it run, the shortest first, up to the first failure.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from .groups import ROOT, equivalent
from .rust_slots import Fault, Reader, Slot, all_of

TREE, TARGET = ROOT / "build" / "mutants" / "tree", ROOT / "build" / "mutants" / "target"
SWITCH = """
#[doc(hidden)]
#[allow(clippy::all)]
pub fn __mutant(number: u32) -> bool {
    use std::io::Write;
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    static REACHED: std::sync::OnceLock<Option<std::sync::Mutex<(std::fs::File, std::collections::HashSet<u32>)>>> = std::sync::OnceLock::new();
    let reached = REACHED.get_or_init(|| {
        let file = std::env::var_os("TESSERA_MUTANT_REACHED")?;
        Some(std::sync::Mutex::new((std::fs::File::options().append(true).create(true).open(file).ok()?, Default::default())))
    });
    if let Some(reached) = reached {
        let mut reached = reached.lock().unwrap();
        if reached.1.insert(number) {
            writeln!(reached.0, "{number}").unwrap();
        }
    }
    *CHOSEN.get_or_init(|| std::env::var("TESSERA_MUTANT").ok().and_then(|v| v.parse().ok()).unwrap_or(0)) == number
}
"""
#: Which files of a crate, and which of its tests.
CRATES = {
    "autodiff": ("src/rules/*.rs", "src/scalar.rs"),
    "numerics": ("src/codec.rs", "src/block.rs", "src/int_math.rs", "src/float_math.rs", "src/round.rs", "src/canonical.rs", "src/reduce.rs"),
}


@dataclass
class Mutant:
    file: Path
    slot: Slot
    fault: Fault
    text: str

    @property
    def name(self) -> str:
        line = self.text.count("\n", 0, self.fault.start) + 1
        begin, end = self.text.rfind("\n", 0, self.fault.start) + 1, self.text.find("\n", self.fault.start)
        shown = " ".join(self.text[begin:end].split())
        what = f"{self.text[self.fault.start : self.fault.end]} -> {self.fault.after}" if self.fault.operator in ("swap", "one more", "one less") else self.fault.operator
        if self.fault.operator == "return immediately":
            what = f"return {self.fault.after} immediately"
        return f"{self.file.name}:{self.slot.function}: {' '.join(what.split())[:60]} in `{shown[:100]}` [{self.file.name}:{line}]"


def rendered(text: str, slots: list[Slot], start: int, end: int) -> str:
    out, at = [], start
    for slot in slots:
        out += [text[at : slot.start], switched(text, slot)]
        at = slot.end
    return "".join([*out, text[at:end]])


def switched(text: str, slot: Slot) -> str:
    live = [fault for fault in slot.faults if fault.number]
    plain = rendered(text, slot.inner, slot.start, slot.end)
    if not live:
        return plain
    mark = f"/*S{live[0].number}*/"
    if slot.kind == "entry":
        return "".join(f"/*M{f.number}*/ if crate::__mutant({f.number}) {{ return {f.after}; }} /*W{f.number}*/" for f in live)
    if slot.kind == "statement":
        return f"{mark} if !crate::__mutant({live[0].number}) {{ {plain} }} /*T{live[0].number}*/"
    branches = []
    for fault in live:
        whole = text[slot.start : fault.start] + fault.after + text[fault.end : slot.end]
        branches.append(f"if crate::__mutant({fault.number}) {{ /*M{fault.number}*/ {whole} /*W{fault.number}*/ }} else ")
    return f"({mark}{''.join(branches)}{{ {plain} }}/*T{live[0].number}*/)"


class Crate:
    def __init__(self, name: str) -> None:
        self.name, self.root = name, ROOT / "crates" / name
        self.files = {}
        for pattern in CRATES[name]:
            for path in sorted(self.root.glob(pattern)):
                text = path.read_text(encoding="utf-8")
                self.files[path] = (text, Reader(text).read())
        self.mutants = [Mutant(path, slot, fault, text) for path, (text, slots) in self.files.items() for slot in all_of(slots) for fault in slot.faults]

    def choose(self, count: int, seed: int) -> list[Mutant]:
        return random.Random(f"{self.name} {seed}").sample(self.mutants, min(count, len(self.mutants)))

    def write(self) -> None:
        for path, (text, slots) in self.files.items():
            (TREE / path.relative_to(ROOT)).write_text(rendered(text, slots, 0, len(text)), encoding="utf-8")
        root = "src/lib.rs"
        text = (self.root / root).read_text(encoding="utf-8")
        (TREE / "crates" / self.name / root).write_text("#![allow(arithmetic_overflow, unconditional_panic)]\n" + text + SWITCH, encoding="utf-8")

    def cargo(self, *words: str) -> list[dict]:
        command = ["cargo", *words, "--offline", "-p", f"tessera-{self.name}", "--message-format=json"]
        done = subprocess.run(command, cwd=TREE, env={**os.environ, "CARGO_TARGET_DIR": str(TARGET)}, capture_output=True, text=True)
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def compile(self, sample: list[Mutant], say) -> list[Mutant]:
        """Leaves out what does not compile, until all does."""
        for number, mutant in enumerate(sample, 1):
            mutant.fault.number = number
        left = list(sample)
        for _ in range(12):
            self.write()
            found = [m["message"] for m in self.cargo("check", "--lib") if m["reason"] == "compiler-message" and m["message"]["level"] == "error"]
            if not found:
                return left
            bad = {number for message in found for number in self.blamed(message)}
            if not bad:
                raise SystemExit("the copy does not compile, and no mutant is to blame:\n" + found[0].get("rendered", ""))
            say(f"  {len(bad)} do not compile")
            for mutant in left:
                if mutant.fault.number in bad:
                    mutant.fault.number = 0
            left = [mutant for mutant in left if mutant.fault.number]
        raise SystemExit("the mutants do not compile together")

    def blamed(self, message: dict) -> set[int]:
        """The faults whose text an error is in; else those of the smallest slot around it."""
        out = set()
        for span in message["spans"]:
            if not span["is_primary"] or not (TREE / span["file_name"]).exists():
                continue
            data = (TREE / span["file_name"]).read_bytes()
            for begin, end in (("M", "W"), ("S", "T")):
                around = []
                for m in re.finditer(rb"/\*%s(\d+)\*/" % begin.encode(), data):
                    stop = data.find(b"/*%s%s*/" % (end.encode(), m[1]), m.end())
                    if m.start() <= span["byte_start"] <= stop:
                        around.append((stop - m.start(), int(m[1])))
                if around:
                    number = min(around)[1]
                    out.add(number)
                    if begin == "S":
                        out |= self.of_slot(number)
                    break
        return out

    def of_slot(self, number: int) -> set[int]:
        for mutant in self.mutants:
            if mutant.fault.number == number:
                return {fault.number for fault in mutant.slot.faults if fault.number}
        return set()

    def programs(self) -> list[Path]:
        found = self.cargo("test", "--no-run")
        errors = [m["message"]["rendered"] for m in found if m["reason"] == "compiler-message" and m["message"]["level"] == "error"]
        if errors:
            raise SystemExit("the tests do not compile:\n" + errors[0])
        return [Path(m["executable"]) for m in found if m["reason"] == "compiler-artifact" and m.get("executable") and m["profile"]["test"]]


@dataclass
class Test:
    program: Path
    name: str
    seconds: float
    reached: set[int]


def ran(program: Path, name: str, crate: str, limit: float, **more: str) -> str:
    """How one test ends: `passed`, `failed` or `stopped`."""
    env = {**os.environ, "RUST_BACKTRACE": "0", "CARGO_MANIFEST_DIR": str(TREE / "crates" / crate), **more}
    env.setdefault("TESSERA_FUZZ_SEED", "1")
    env.setdefault("TESSERA_FUZZ_SECONDS", "1")
    run = subprocess.Popen([str(program), "--exact", name], cwd=TREE / "crates" / crate, env=env, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
    try:
        code = run.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        return "stopped"
    return "passed" if code == 0 else "failed" if code > 0 else "stopped"


def tests_of(programs: list[Path], crate: str) -> list[Test]:
    """All tests, the shortest first, with the mutants that each reaches."""
    out = []
    for program in programs:
        listed = subprocess.run([str(program), "--list", "--format", "terse"], capture_output=True, text=True, check=True).stdout
        for name in (line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")):
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "reached")
                begin = time.monotonic()
                if (word := ran(program, name, crate, 600, TESSERA_MUTANT="0", TESSERA_MUTANT_REACHED=str(file))) != "passed":
                    raise SystemExit(f"without any fault, {name} {word}")
                seconds = time.monotonic() - begin
                out.append(Test(program, name, seconds, set(map(int, file.read_text().split())) if file.exists() else set()))
    return sorted(out, key=lambda test: test.seconds)


def tested(tests: list[Test], crate: str, number: int) -> tuple[str, str]:
    """Runs the tests that reach a mutant up to the first failure."""
    for test in tests:
        if number in test.reached:
            word = ran(test.program, test.name, crate, 10 + 5 * test.seconds, TESSERA_MUTANT=str(number))
            if word != "passed":
                return "killed" if word == "failed" else word, test.name
    return "survived", ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutants.switch", description=__doc__.splitlines()[0])
    parser.add_argument("crates", nargs="*", help=f"of {', '.join(CRATES)}; all where none is named")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--at-least", type=float, default=0.0)
    options = parser.parse_args()
    say = lambda text: print(text, flush=True)  # noqa: E731
    low = False
    for name in options.crates or CRATES:
        crate = Crate(name)
        sample = crate.choose(options.count, options.seed)
        say(f"{name}: {len(sample)} mutants of {len(crate.mutants)}, seed {options.seed}")
        if options.list:
            say("\n".join(m.name for m in sample))
            continue
        TREE.mkdir(parents=True, exist_ok=True)
        for part in ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml"):
            if (ROOT / part).exists():
                shutil.copy2(ROOT / part, TREE / part)
        # `rsync` would do; only what differs is written, so that cargo builds only that anew.
        copy_changed(ROOT / "crates", TREE / "crates")
        known = equivalent()
        left = crate.compile(sample, say)
        say(f"  {len(left)} compile; building the tests")
        programs = crate.programs()
        tests = tests_of(programs, name)
        say(f"  {len(tests)} tests, {sum(test.seconds for test in tests):.1f} s without faults; {sum(bool(test.reached) for test in tests)} reach mutants")
        rows, killed, counted = [], 0, 0
        for at, mutant in enumerate(left, 1):
            if mutant.name.rpartition(" [")[0] in known:
                continue
            counted += 1
            word, by = tested(tests, name, mutant.fault.number)
            killed += word != "survived"
            rows.append({"name": mutant.name, "word": word, "by": by})
            say(f"  {at:4}/{len(left)} {word:9} {mutant.name}")
        score = 100.0 * killed / max(counted, 1)
        say(f"{name}: {score:.1f} % ({killed} of {counted})")
        say("\n".join(f"  survived  {row['name']}" for row in rows if row["word"] == "survived"))
        (TREE.parent / f"crate-{name}.json").write_text(json.dumps({"seed": options.seed, "score": score, "mutants": rows}, indent=1))
        low |= score < options.at_least
    return int(low)


def copy_changed(source: Path, target: Path) -> None:
    wanted = set()
    for path in source.rglob("*"):
        if path.is_file():
            other = target / path.relative_to(source)
            wanted.add(other)
            if not other.exists() or other.read_bytes() != path.read_bytes():
                other.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, other)
    for path in target.rglob("*"):
        if path.is_file() and path not in wanted:
            path.unlink()


if __name__ == "__main__":
    sys.exit(main())
