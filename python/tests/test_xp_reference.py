"""`docs/reference-xp.md`: its table is that of the functions there are, and its blocks run."""

import inspect

import pytest
from doc_blocks import BLESS, ROOT, Block, check_text, python_blocks, run

from tessera import xp

PAGE = ROOT / "docs" / "reference-xp.md"
MARK = "<!-- The table is written by python/tests/test_xp_reference.py: run it with TESSERA_BLESS=1. -->\n"


@pytest.mark.parametrize("block", python_blocks(PAGE), ids=lambda b: b.id)
def test_block(block: Block) -> None:
    check_text(block, run(block))


def _signature(fn) -> str:
    given = inspect.signature(fn)
    bare = [p.replace(annotation=p.empty) for p in given.parameters.values()]
    shown = str(given.replace(parameters=bare, return_annotation=given.empty)).replace(", /", "")
    return shown.replace("6.283185307179586", "2 * pi").replace("p_", "p")


def table() -> str:
    public = {n: v for n, v in sorted(vars(xp).items()) if not n.startswith("_") and callable(v) and not isinstance(v, type) and hasattr(v, "__name__")}
    first: dict = {}
    for name, fn in public.items():
        first.setdefault(id(fn), fn.__name__ if getattr(xp, fn.__name__, None) is fn else name)
    rows = ["| function | what it does |", "|---|---|"]
    for name, fn in public.items():
        if first[id(fn)] != name:
            rows.append(f"| `{name}` | Another name for `{first[id(fn)]}`. |")
            continue
        doc = " ".join(inspect.getdoc(fn).split()).replace("``", "`").replace("|", "\\|")
        assert doc, f"xp.{name} has no docstring"
        rows.append(f"| `{name}{_signature(fn)}` | {doc} |")
    return "\n".join(rows) + "\n"


def test_table_is_of_the_functions_there_are():
    text = PAGE.read_text(encoding="utf-8")
    head, _, _ = text.partition(MARK)
    want = head + MARK + "\n" + table()
    if BLESS:
        PAGE.write_text(want, encoding="utf-8")
        return
    assert text == want, "run with TESSERA_BLESS=1"
