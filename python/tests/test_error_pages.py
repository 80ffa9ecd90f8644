"""Every code has a page whose program gives exactly the text that it shows, and no text leaks internals."""

from __future__ import annotations

import re

import pytest
from doc_blocks import BLESS, ROOT, check_text, python_blocks, run

import tessera as ts

FOLDER = ROOT / "docs" / "errors"
INDEX = FOLDER / "README.md"
PAGES = sorted(p for p in FOLDER.glob("*.md") if p != INDEX)
#: Codes that no program of this build can give on purpose, and why.
NOT_SHOWN = {
    "E_CAPTURE": "a graph must be recorded on a device",
    "E_COMM_INIT": "processes must fail to start",
    "E_DESYNC": "ranks of one program always agree: it takes damaged memory, or programs that differ",
    "E_ILLEGAL_ADDRESS": "a kernel must fail on a device",
    "E_MISALIGNED_ACCESS": "a kernel must fail on a device",
    "E_NOT_ADDRESSABLE": "another process must have a block",
    "E_OOM": "memory must run out on a device",
    "E_RANK_LOST": "a process must end that others need",
    "E_TARGET_CODEGEN": "a device's assembler must refuse what we give it",
    "E_TIMEOUT": "a kernel must take too long on a device",
    "E_TIMEOUT_COMM": "a process must not arrive for minutes",
    "E_UNKNOWN": "a fault of the compiler",
    "W_DTYPE_FALLBACK": "needs a target that lacks a dtype",
    "W_HOST_COPY": "arrays must be copied to a device",
    "W_RESHARD": "an array must take a quarter of the machine's memory",
}

_ROW = re.compile(r'^    ([EWN]_\w+) \w+ "(.*)"$', re.M)
CODES = dict(_ROW.findall((ROOT / "crates" / "diag" / "src" / "code.rs").read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_page_shows_its_error_and_the_fix(page) -> None:
    code = page.stem
    assert code in CODES, f"no code is called {code}"
    text = page.read_text(encoding="utf-8")
    assert text.startswith(f"# {code}\n\n{CODES[code]} "), "the page begins with the code and its summary"
    blocks = python_blocks(page)
    if code in NOT_SHOWN:
        assert not blocks
        return
    wrong, repaired = blocks
    assert wrong.expected is not None, "the first program is followed by the text it gives"
    if code.startswith("E_"):
        assert {c for _, c in wrong.marks} == {code}
    shown = run(wrong)
    check_text(wrong, shown)
    assert code in shown
    assert not repaired.marks
    run(repaired)


def test_every_code_has_a_page() -> None:
    pages = {p.stem for p in PAGES}
    missing = set(CODES) - pages - set(NOT_SHOWN)
    assert not missing, f"no page for {sorted(missing)}"
    assert set(NOT_SHOWN) <= set(CODES)


def index() -> str:
    """`docs/errors/README.md`, from the table of codes."""
    lines = [
        "# Errors, warnings and notes",
        "",
        "<!-- Written by python/tests/test_error_pages.py from the table of codes: run it with TESSERA_BLESS=1. -->",
        "",
        "Codes that begin with `E_` are raised, those with `W_` are Python warnings, and those with `N_` are notes in",
        "`.explain()`. Each page has a program that gives the code, the text of the message, and the fix.",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    shown = {p.stem for p in PAGES}
    lines += [f"| {f'[`{c}`]({c}.md)' if c in shown else f'`{c}`'} | {CODES[c]} |" for c in sorted(CODES)]
    return "\n".join(lines) + "\n"


def test_index_is_current() -> None:
    if BLESS:
        INDEX.write_text(index(), encoding="utf-8")
    assert INDEX.read_text(encoding="utf-8") == index(), "run with TESSERA_BLESS=1 to rewrite the index"


#: What belongs to the compiler's insides and must not reach a user.
FORBIDDEN = re.compile(
    r"""\b(?:Val|Attr|Type|Const|DType|TileOp|ScalarFn|DimExpr|Option|Some|None\(|Vec|Arc|Box|Poison)::
      | \b(?:OpId|ValueId|BlockId|RegionId|Func<|Vec<|Option<|Arc<|Box<|Rc<|Diagnostic\s*\{)
      | \bunwrap\b | \bpanick?ed\b | \.rs\b | \btessera_\w+ | \bcrates?/
      | \b(?:u|i)size\b | \bf(?:32|64)::
    """,
    re.X,
)
_SOURCE_LINE = re.compile(r"^ *\d* \| .*$", re.M)


def texts() -> list[tuple[str, str, str]]:
    """Every rendered text of the documentation, with the program that gives it."""
    out = []
    for page in [*PAGES, ROOT / "docs" / "language.md", ROOT / "docs" / "debugging.md"]:
        for block in python_blocks(page):
            if block.marks or (block.expected and page.parent.name == "errors"):
                out.append((block.id, block.text, run(block)))
    return out


def test_no_text_shows_the_insides_of_the_compiler() -> None:
    known = set(ts.tile.__all__)
    for name, program, text in texts():
        message = _SOURCE_LINE.sub("", text)
        leak = FORBIDDEN.search(message)
        assert not leak, f"{name}: {leak[0]!r} in\n{text}"
        # A Rust `Debug` of text: one line, and no field names.
        assert "{ " not in message, f"{name}: braces in\n{text}"
        # The names of IR ops are those of the language, or do not appear.
        for op in re.findall(r"(?<![\w.-])(?:ts\.)?tile\.(\w+)", message):
            assert op in known or f"tile.{op}" in program, f"{name}: `tile.{op}` is no function, in\n{text}"
        # IR types have no place in a message either.
        assert not re.search(r"\b(?:tile|view|buf)<", message), f"{name}: an IR type in\n{text}"


def test_every_error_says_what_was_expected_or_what_is_wrong() -> None:
    for name, _, text in texts():
        first = text.partition("\n")[0]
        assert re.match(r"(error|note)\[\w+\]: \S|\w+: \S", first), f"{name}: {first}"
        assert len(first) < 240, f"{name}: the first line is long: {first}"
        assert not first.endswith("."), f"{name}: {first}"
