"""Runs the Python blocks of a Markdown file.

A block may end in a refusal: every line that carries ``# refused: CODE`` (several codes are separated by
commas) must be the place of an error with that code, and there must be no other error. A ``text`` block
right after a Python block is what the block prints or, for a refusal, the error as it is shown;
``TESSERA_BLESS=1`` rewrites it. What a block sets in ``os.environ`` ends with the block.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts

ROOT = Path(__file__).resolve().parents[2]
#: What errors call the file of a block.
FILE = "example.py"
BLESS = os.environ.get("TESSERA_BLESS") == "1"

_FENCE = re.compile(r"^```(\w*)[ \t]*\n(.*?)^```[ \t]*$", re.M | re.S)
_REFUSED = re.compile(r"[ \t]*#[ \t]*refused:[ \t]*([A-Z_]+(?:[ \t]*,[ \t]*[A-Z_]+)*)")


@dataclass(frozen=True)
class Block:
    """One fenced block; ``line`` is where its text begins in the file, ``expected`` the text block after it."""

    path: Path
    language: str
    text: str
    line: int
    span: tuple[int, int]
    expected: "Block | None" = None

    @property
    def id(self) -> str:
        return f"{self.path.name}-line-{self.line}"

    @property
    def marks(self) -> list[tuple[int, str]]:
        """Each ``(line, code)`` that the block announces, lines counted from 1 in the block."""
        found = []
        for number, line in enumerate(self.text.splitlines(), 1):
            if match := _REFUSED.search(line):
                found += [(number, code.strip()) for code in match[1].split(",")]
        return sorted(found)


def blocks_of(path: Path) -> list[Block]:
    """Every fenced block of a file, Python blocks with the text block that follows them."""
    source = path.read_text(encoding="utf-8")
    found: list[Block] = []
    for match in _FENCE.finditer(source):
        line = source.count("\n", 0, match.start()) + 2
        found.append(Block(path, match[1], match[2], line, match.span(2)))
    out = []
    for block, following in zip(found, [*found[1:], None]):
        between = source[block.span[1] : following.span[0]] if following else ""
        adjacent = following is not None and following.language == "text" and between.split() == ["```", "```text"]
        expected = following if block.language == "python" and adjacent else None
        out.append(Block(block.path, block.language, block.text, block.line, block.span, expected))
    return out


def python_blocks(path: Path) -> list[Block]:
    return [b for b in blocks_of(path) if b.language == "python"]


def fresh_namespace() -> dict[str, Any]:
    return {"__name__": "example", "ts": ts, "np": np, "math": math}


def run(block: Block, namespace: dict[str, Any] | None = None) -> str:
    """Runs a block, checks its refusals, and gives what it printed or the text of its error."""
    namespace = fresh_namespace() if namespace is None else namespace
    text = _REFUSED.sub("", block.text)  # The marks are for the reader of the page, not part of the program.
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    out = io.StringIO()
    error: ts.TesseraError | None = None
    environment = dict(os.environ)
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(text, FILE, "exec", dont_inherit=True), namespace)
    except ts.TesseraError as raised:
        error = raised
    finally:
        os.environ.clear()
        os.environ.update(environment)
    if error is None:
        assert not block.marks, f"{block.id}: nothing was refused, expected {block.marks}"
        return out.getvalue()
    found = sorted(_places(error))
    assert found == block.marks, f"{block.id}: expected {block.marks}, got {found}\n\n{error}"
    return f"{error}\n"


def _places(error: ts.TesseraError) -> list[tuple[int, str]]:
    """The line and code of each error; an error without a line stands where the block raised it."""
    raised, trace = 0, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == FILE:
            raised = trace.tb_lineno
        trace = trace.tb_next
    errors = [d for d in error.diagnostics if d.code.startswith("E_")]
    places = [(d.line if d.file == FILE and d.line else raised, d.code) for d in errors]
    return places or [(raised, error.code)]


def check_text(block: Block, text: str) -> None:
    """Compares what a block gave with the text block after it, or rewrites that."""
    if block.expected is None:
        return
    if text == block.expected.text:
        return
    if BLESS:
        source = block.path.read_text(encoding="utf-8")
        # An earlier block of this file may have been rewritten: find the place again.
        now = next(b for b in blocks_of(block.path) if b.text == block.text and b.language == "python")
        assert now.expected is not None
        start, end = now.expected.span
        block.path.write_text(source[:start] + text + source[end:], encoding="utf-8")
        return
    assert text == block.expected.text, f"{block.id}: run with TESSERA_BLESS=1 to accept the new text"
