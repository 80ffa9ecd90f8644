"""The examples run, check themselves, and write plain text."""

import re
import subprocess
import sys

import pytest
from doc_blocks import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda p: p.name)
def test_example_runs(example):
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout and not done.stderr
    assert "\033" not in done.stdout, "no colour codes where the output is not a terminal"
    assert str(ROOT) not in done.stdout, "no path of this machine"
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_benchmarks_name_programs_that_exist():
    text = (ROOT / "bench" / "run.py").read_text(encoding="utf-8")
    programs = re.findall(r'"tessera-(\w+)", "(\w+)"\)', text)
    assert len(programs) == 2
    for crate, example in programs:
        assert (ROOT / "crates" / crate / "examples" / f"{example}.rs").is_file()
