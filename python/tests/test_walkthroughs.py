"""The pages that follow a kernel from source to SASS show what the compiler gives now.

An excerpt is a comment with a Python expression for a text, the pattern of its first line (``from``) or of each line (``like``) and a
number of lines, and the ``text`` block after it::

    <!-- excerpt of compiled.inspect_ir("tile"): 8 lines from /tile.for/ -->

The expression sees what the page's Python blocks define, and ``sass(compiled)``. ``TESSERA_BLESS=1`` rewrites the blocks.
"""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from doc_blocks import BLESS, ROOT, fresh_namespace, python_blocks, run

PAGES = sorted((ROOT / "docs").glob("how-*-becomes-a-hopper-kernel.md"))
EXCERPT = re.compile(r"<!-- excerpt of (?P<of>.+?): (?P<count>\d+) lines? (?P<how>from|like) /(?P<first>.+?)/ -->\n```text\n(?P<text>.*?)```", re.S)
#: Longer lines are cut.
WIDTH = 128


class NoAssembler(Exception):
    """There is no SASS without NVIDIA's assembler."""


def sass(compiled, folder: Path) -> str:
    tools = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
    if not all(os.access(tools / name, os.X_OK) for name in ("ptxas", "nvdisasm")):
        raise NoAssembler(f"{tools} has not both of ptxas and nvdisasm: `scripts/assemblers.sh` installs them")
    ptx, cubin = folder / "kernel.ptx", folder / "kernel.cubin"
    ptx.write_text(compiled.inspect_ir("target"), encoding="utf-8")
    subprocess.run([tools / "ptxas", "-arch=sm_90a", "-o", cubin, ptx], check=True, capture_output=True)
    listing = subprocess.run([tools / "nvdisasm", "-c", cubin], check=True, capture_output=True, text=True).stdout
    # Addresses and what the scheduler adds are left out.
    lines = (re.sub(r"^\s*/\*[0-9a-f]+\*/\s*", "    ", line) for line in listing.splitlines())
    return "\n".join(re.sub(r"\s*/\*.*", "", line).rstrip() for line in lines if line.strip())


def excerpt(text: str, how: str, first: str, count: int) -> str:
    lines = text.splitlines()
    places = [i for i, line in enumerate(lines) if re.search(first, line)]
    assert len(places) >= (1 if how == "from" else count), f"{len(places)} lines have /{first}/"
    found = lines[places[0] : places[0] + count] if how == "from" else [lines[i] for i in places[:count]]
    indent = min(len(line) - len(line.lstrip()) for line in found if line.strip())
    cut = (line[indent:] for line in found)
    return "".join(f"{line if len(line) <= WIDTH else line[: WIDTH - 1] + '…'}\n" for line in cut)


def test_there_are_pages() -> None:
    assert len(PAGES) == 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_excerpts_are_what_the_compiler_gives(page, tmp_path) -> None:
    names = fresh_namespace()
    for block in python_blocks(page):
        run(block, names)
    names["sass"] = lambda compiled: sass(compiled, tmp_path)
    before = page.read_text(encoding="utf-8")
    left_out = []

    def now(match: re.Match) -> str:
        try:
            text = eval(match["of"], names)  # noqa: S307: a page of this repository
        except NoAssembler as why:
            left_out.append(str(why))
            return match[0]
        shown = excerpt(text, match["how"], match["first"], int(match["count"]))
        return match[0][: match.start("text") - match.start()] + shown + "```"

    after = EXCERPT.sub(now, before)
    assert len(EXCERPT.findall(before)) >= 6
    if BLESS:
        page.write_text(after, encoding="utf-8")
    else:
        assert after == before, f"{page.name} shows other text than the compiler gives: run the test with TESSERA_BLESS=1"
    if left_out:
        pytest.skip(left_out[0]) if not os.environ.get("TESSERA_NEED_TOOLS") else pytest.fail(left_out[0])
