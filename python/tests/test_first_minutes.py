"""`make first-minutes` writes a table of README.md and the times of steps: both are there in the form that it and the scripts read."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("first_minutes", ROOT / "scripts/first_minutes.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_readme_has_a_row_for_each_command_between_the_markers(script):
    section = script.section((ROOT / "README.md").read_text())
    assert section.startswith(script.HEAD)
    rows = script.rows(section)
    assert list(rows) == list(script.COMMANDS)
    time = r"(\d+ min )?\d+ s"
    assert all(re.fullmatch(rf"\| `make \w+` \| {time} \| {time} \| ({time}|not measured) \|\n", row) for row in rows.values())
    assert re.search(r"\n\(.*cores of .* GB; Rust [\d.]+, Python [\d.]+; \d{4}-\d\d-\d\d\.", section)


def test_rows_are_read_as_they_are_written(script):
    row = script.row("demo", 200.4, 390.6, 3)
    assert row == "| `make demo` | 3 min 20 s | 6 min 31 s | 3 s |\n"
    assert script.rows(script.HEAD + row) == {"demo": row}


def test_every_step_has_its_time():
    times = ROOT / "scripts/first-times.txt"
    if not times.exists():
        pytest.skip("`make first-minutes` has not written it yet")
    titles = [line.split(maxsplit=2)[2] for line in times.read_text().splitlines()]
    assert len(set(titles)) == len(titles)
    scripts = [(ROOT / "scripts" / name).read_text() for name in ("setup.sh", "build.sh", "test.sh")]
    plans = re.findall(r"(?:SETUP\+?|PLAN)=\((.*)\)", "\n".join(scripts))
    # What another list stands for begins with a dollar sign.
    planned = {title for plan in plans for title in re.findall(r'"([^"]*)"', plan) if not title.startswith("$")}
    assert planned == set(titles)
