"""Every public name of `ts.nn`, `ts.optim`, `ts.random`, `ts.tree` and `ts.data` stands in its reference page, and every function of `ts`
in some page. Pages with a table of signatures have that of what there is, with defaults."""

import importlib
import inspect
import re
import types

import pytest
from doc_blocks import BLESS, ROOT

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
    owned = (f"tessera.{name}", "tessera.xp")
    own = [n for n in public(module) if getattr(vars(module)[n], "__module__", "").startswith(owned) and n not in MADE_BY]
    assert missing(own, (DOCS / f"reference-{name}.md").read_text(encoding="utf-8")) == []


def test_functions_of_the_package():
    pages = "\n".join(p.read_text(encoding="utf-8") for p in sorted(DOCS.rglob("*.md")))
    functions = [n for n in public(ts) if isinstance(vars(ts)[n], types.FunctionType)]
    assert len(functions) > 40 and missing(functions, pages) == []


MARK = "<!-- The table is written by python/tests/test_reference_names.py: run it with TESSERA_BLESS=1. -->\n"
#: The names of `ts` and `ts.debug` in `docs/reference-transforms.md`, in its order.
TRANSFORMS = (
    "jit eval_shape ShapeDtypeStruct grad value_and_grad jvp vjp linearize jacfwd jacrev hessian hvp stop_gradient gradcheck checkpoint "
    "checkpoint_name custom_vjp custom_jvp vmap scan fori_loop while_loop cond switch map associative_scan dynamic_slice "
    "dynamic_slice_in_dim dynamic_update_slice dynamic_update_slice_in_dim reduce_window save load profile bench"
).split()


def shown_default(value) -> str:
    return getattr(value, "__name__", None) or re.sub(r"<(\S+) object at 0x\w+>", "…", repr(value))


def signature(fn) -> str:
    parts, star = [], False
    for p in inspect.signature(fn).parameters.values():
        if p.kind is p.KEYWORD_ONLY and not star:
            parts.append("*")
            star = True
        star = star or p.kind is p.VAR_POSITIONAL
        mark = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        parts.append(f"{mark}{p.name}" + ("" if p.default is p.empty else f"={shown_default(p.default)}"))
    return f"({', '.join(parts)})"


def row(name: str, fn) -> str:
    # The first sentence of what it says of itself.
    doc = " ".join((inspect.getdoc(fn) or "").split("\n\n")[0].split())
    doc = re.split(r"\.(?: |$)", doc, maxsplit=1)[0].rstrip(":").replace("``", "`").replace("|", "\\|")
    return f"| `{name}{signature(fn)}` | {doc} |"


def tables() -> dict[str, list]:
    out = {"transforms": [(n, getattr(ts, n)) for n in TRANSFORMS] + [(f"debug.{n}", getattr(ts.debug, n)) for n in ts.debug.__all__]}
    for name in ("nn", "optim"):
        module = importlib.import_module(f"tessera.{name}")
        found = [(n, vars(module)[n]) for n in public(module) if n not in MADE_BY and callable(vars(module)[n])]
        out[name] = sorted(found, key=lambda r: (not isinstance(r[1], type), r[0].lower()))
    return out


@pytest.mark.parametrize("name", ["transforms", "nn", "optim"])
def test_signatures_with_defaults_are_current(name):
    page = DOCS / f"reference-{name}.md"
    text = page.read_text(encoding="utf-8")
    head, mark, _ = text.partition(MARK)
    want = head + MARK + "\n" + "\n".join(["| name | what it does |", "|---|---|", *(row(*r) for r in tables()[name])]) + "\n"
    if BLESS:
        page.write_text(want, encoding="utf-8")
        return
    assert mark and text == want, "run with TESSERA_BLESS=1"
