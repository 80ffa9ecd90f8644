"""Every Python block of the documentation runs, and is refused where it says so."""

from __future__ import annotations

import re

import pytest
from doc_blocks import BLESS, ROOT, Block, blocks_of, check_text, fresh_namespace, python_blocks, run

import tessera as ts

LANGUAGE = ROOT / "docs" / "language.md"
PARAMETERS = ROOT / "docs" / "parameters.md"
DEBUGGING = ROOT / "docs" / "debugging.md"
TUNING = ROOT / "docs" / "tuning.md"
SCHEDULES = ROOT / "docs" / "schedules.md"
FUNCTIONS = ROOT / "docs" / "functions.md"
TRITON = ROOT / "docs" / "coming-from-triton.md"
CUDA = ROOT / "docs" / "coming-from-cuda.md"
MODELS = ROOT / "docs" / "models.md"
JAX = ROOT / "docs" / "coming-from-jax.md"
PYTORCH = ROOT / "docs" / "coming-from-pytorch.md"
SHARP = ROOT / "docs" / "sharp-edges.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
DISTRIBUTION = ROOT / "docs" / "distribution.md"
COLLECTIVES = ROOT / "docs" / "collectives.md"
README = ROOT / "README.md"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


#: Pages whose blocks run each by itself.
REFERENCES = sorted((ROOT / "docs").glob("reference-*.md"))
BLOCKS = [b for page in (LANGUAGE, PARAMETERS, DEBUGGING, TUNING, TRITON, CUDA, JAX, PYTORCH, SHARP, *REFERENCES) for b in python_blocks(page)]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda b: b.id)
def test_block(block: Block) -> None:
    check_text(block, run(block))


def test_a_kernel_prints_what_the_page_shows(capfd) -> None:
    """What a kernel prints does not go through Python, so the page shows it in its text."""
    (block,) = [b for b in python_blocks(DEBUGGING) if 'print("row"' in b.text]
    shown = run(block) + capfd.readouterr().out
    documented = re.findall(r"`(sums\[\d\]: .*?)`", DEBUGGING.read_text(encoding="utf-8").replace("\n", " "))
    assert documented and shown.splitlines() == documented


def test_every_rule_of_the_language_has_an_example_and_a_refusal() -> None:
    sections = re.split(r"^## ", LANGUAGE.read_text(encoding="utf-8"), flags=re.M)[1:]
    for section in sections:
        title = section.partition("\n")[0]
        if title.startswith("What comes later"):
            continue
        bodies = re.findall(r"^```python\n(.*?)^```", section, re.M | re.S)
        refused = [b for b in bodies if "# refused:" in b]
        assert refused and len(refused) < len(bodies), f"the rule {title!r} lacks an example or a refusal"


@pytest.mark.parametrize(("page", "theirs"), [(TRITON, "py"), (CUDA, "cuda")], ids=["triton", "cuda"])
def test_six_kernels_stand_beside_their_originals(page, theirs) -> None:
    kernels = page.read_text(encoding="utf-8").partition("## Six kernels")[2]
    sections = re.split(r"^### ", kernels, flags=re.M)[1:]
    assert len(sections) >= 6
    for section in sections:
        title = section.partition("\n")[0]
        assert re.findall(r"^```(\w+)$", section, re.M)[:2] == [theirs, "python"], f"{title!r}: the original, then ours"


@pytest.mark.parametrize("page", [TRITON, CUDA], ids=["triton", "cuda"])
def test_tables_of_names_are_what_the_compiler_says(page) -> None:
    """Functions on the right exist; errors for names on the left say what to write instead."""
    rows = [line.split("|")[1:4] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) > 25
    for theirs, ours, more in rows:
        for path in re.findall(r"ts\.((?:\w+\.)*\w+)", ours + more):
            found = ts
            for part in path.split("."):
                found = getattr(found, part)
        for name in re.findall(r"`(tl\.[\w.]+|__\w+|atomic[A-Z]\w+|threadIdx|blockIdx|blockDim|gridDim|printf|\w+f)\b", theirs):
            known = name in UNANSWERED or ts._core.instead_of(name) is not None
            assert known, f"{page.name}: an error for `{name}` would not say what to write"


@pytest.mark.parametrize("page", [JAX, PYTORCH], ids=["jax", "pytorch"])
def test_tables_of_models_name_what_exists(page) -> None:
    rows = [line.split("|")[1:4] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(rows) > 35
    for _, ours, more in rows:
        for path in re.findall(r"\bts\.((?:\w+\.)*\w+)", ours + more):
            found = ts
            for part in path.split("."):
                found = getattr(found, part)


def test_pytorch_idioms_stand_beside_their_originals() -> None:
    idioms = PYTORCH.read_text(encoding="utf-8").partition("## Six idioms")[2].partition("\n## ")[0]
    sections = re.split(r"^### ", idioms, flags=re.M)[1:]
    assert len(sections) == 6
    for section in sections:
        title = section.partition("\n")[0]
        assert re.findall(r"^```(\w+)$", section, re.M)[:2] == ["py", "python"], f"{title!r}: the original, then ours"


#: Names of the tables that cannot stand in a Python kernel, so that no error can be about them.
UNANSWERED = {"__global__", "__device__", "__restrict__"}


def test_retired_words_have_their_successors_in_the_glossary() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \| (.*?) \|$", text.partition("## Retired words")[2], re.M)[2:]
    assert len(rows) > 25 and all(old and new for old, new in rows)
    defined = re.findall(r"^\*\*(.+?)\.\*\*", text, re.M)
    assert len(defined) == len(set(defined)) and len(defined) > 50, "each term is defined once"


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


def test_models_are_one_session() -> None:
    """What is refused is the end of its block, and the session goes on."""
    namespace = fresh_namespace()
    for block in python_blocks(MODELS):
        check_text(block, run(block, namespace))


@pytest.mark.parametrize("page", [DISTRIBUTION, COLLECTIVES], ids=["arrays", "collectives"])
def test_distribution_is_one_session(page) -> None:
    namespace = fresh_namespace()
    for block in python_blocks(page):
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
        "Functions marked *reserved* are kept for later and give `E_UNSUPPORTED`. Their meaning in a kernel is explained",
        "in [language.md](language.md).",
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
