"""Every Python block of the documentation runs, and is refused where it says so."""

from __future__ import annotations

import re

import pytest
from doc_blocks import BLESS, ROOT, Block, blocks_of, check_text, fresh_namespace, python_blocks, run

import tessera as ts

LANGUAGE = ROOT / "docs" / "language.md"
DEBUGGING = ROOT / "docs" / "debugging.md"
TUNING = ROOT / "docs" / "tuning.md"
SCHEDULES = ROOT / "docs" / "schedules.md"
FUNCTIONS = ROOT / "docs" / "functions.md"
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("block", [*python_blocks(LANGUAGE), *python_blocks(DEBUGGING), *python_blocks(TUNING)], ids=lambda b: b.id)
def test_block(block: Block) -> None:
    check_text(block, run(block))


def test_a_kernel_prints_what_the_page_tells(capfd) -> None:
    """What a kernel prints does not go through Python, so the page tells it in its text."""
    (block,) = [b for b in python_blocks(DEBUGGING) if 'print("row"' in b.text]
    shown = run(block) + capfd.readouterr().out
    told = re.findall(r"`(sums\[\d\]: .*?)`", DEBUGGING.read_text(encoding="utf-8").replace("\n", " "))
    assert told and shown.splitlines() == told


def test_every_rule_of_the_language_has_an_example_and_a_refusal() -> None:
    sections = re.split(r"^## ", LANGUAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    for section in sections:
        title = section.partition("\n")[0]
        if title.startswith("What comes later"):
            continue
        bodies = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
        refused = [b for b in bodies if "# refused:" in b]
        assert refused and len(refused) < len(bodies), f"the rule {title!r} lacks an example or a refusal"


def test_readme_blocks_run_in_order() -> None:
    """The README is one session: a block sees the names of those before it."""
    namespace = fresh_namespace()
    for block in python_blocks(README):
        if block.marks:
            check_text(block, run(block))
        else:
            check_text(block, run(block, namespace))


def test_schedules_are_one_session() -> None:
    namespace = fresh_namespace()
    for block in python_blocks(SCHEDULES):
        check_text(block, run(block, namespace))


def test_commands_of_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for block in blocks_of(README):
        if block.language != "sh":
            continue
        for line in block.text.splitlines():
            words = line.partition("#")[0].split()
            if words[:1] == ["make"]:
                assert re.search(rf"^{words[1]}:", makefile, re.M), f"make {words[1]} does not exist"
            for word in words:
                if word.endswith(".py"):
                    assert (ROOT / word).is_file(), f"{word} does not exist"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        file = page if not path else page.parent / path
        assert file.exists(), f"{page.name}: {target} leads nowhere"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.M)
            slugs = [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads]
            assert anchor in slugs, f"{page.name}: {target} leads to no heading"


def function_page() -> str:
    """`docs/functions.md`, from the compiler's own table."""
    lines = [
        "# Functions of the tile language",
        "",
        "<!-- Written by python/tests/test_docs.py from the compiler's table: run it with TESSERA_BLESS=1. -->",
        "",
        "Functions marked *reserved* are kept for later and give `E_UNSUPPORTED`. What they mean in a kernel is told in",
        "[language.md](language.md).",
        "",
        "| function | what it does |",
        "|---|---|",
    ]
    for name, signature, doc in sorted(ts._core.api(), key=lambda row: (row[0].startswith(("py.", "math.")), row[0])):
        shown = name.removeprefix("py.") if name.startswith(("py.", "math.")) else f"ts.{name}"
        text = re.sub(r"\s+", " ", doc).replace("|", "\\|")
        text = re.sub(r"^Reserved(: |\.$)", lambda m: "*reserved* " if m[1] == ": " else "*reserved*", text)
        lines.append(f"| `{shown}{signature}` | {text} |")
    return "\n".join(lines) + "\n"


def test_function_page_is_current() -> None:
    page = function_page()
    if BLESS:
        FUNCTIONS.write_text(page, encoding="utf-8")
    assert FUNCTIONS.read_text(encoding="utf-8") == page, "run with TESSERA_BLESS=1 to rewrite docs/functions.md"
