"""Every public name of `ts.nn`, `ts.optim`, `ts.random`, `ts.tree` and `ts.data` stands in its reference page, and every function of `ts`
in some page."""

import importlib
import re
import types

import pytest
from doc_blocks import ROOT

import tessera as ts

DOCS = ROOT / "docs"
#: Classes that functions of lower case make.
MADE_BY = {"Accumulate", "Chain"}


def public(module: types.ModuleType) -> list[str]:
    return sorted(n for n, v in vars(module).items() if not n.startswith("_") and not isinstance(v, types.ModuleType) and n != "annotations")


def missing(names: list[str], text: str) -> list[str]:
    words = set(re.findall(r"\w+", text))
    return [n for n in names if n not in words]


@pytest.mark.parametrize("name", ["nn", "optim", "random", "tree", "data"])
def test_names_of_a_module(name):
    module = importlib.import_module(f"tessera.{name}")
    # What a module of one file imports from others is none of its names.
    owned = (f"tessera.{name}", "tessera._functional", "tessera._losses", "tessera._tree", "tessera.xp")
    own = [n for n in public(module) if getattr(vars(module)[n], "__module__", "").startswith(owned) and n not in MADE_BY]
    assert missing(own, (DOCS / f"reference-{name}.md").read_text(encoding="utf-8")) == []


def test_functions_of_the_package():
    pages = "\n".join(p.read_text(encoding="utf-8") for p in sorted(DOCS.rglob("*.md")))
    functions = [n for n in public(ts) if isinstance(vars(ts)[n], types.FunctionType)]
    assert len(functions) > 40 and missing(functions, pages) == []
