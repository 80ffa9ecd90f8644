"""The import graph of `python/tessera`, read from its source: no cycle between modules, packages in one direction, few names at the top.

Imports inside functions count; those under `TYPE_CHECKING` do not. `ARCHITECTURE.md` has the table of packages."""

import ast
import functools
import graphlib
import importlib
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tessera as ts
from tessera.base import former_names

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "tessera"
#: Kernels are written as users write them, and loaded only when they are needed: these may `import tessera`.
WRITTEN_AS_USERS_DO = ("tessera.kernels.", "tessera.tools.doctor_kernel")
MOST_AT_THE_TOP = 25


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(("tessera", *path.relative_to(PACKAGE).with_suffix("").parts))
        found[name.removesuffix(".__init__")] = path
    return found | {"tessera._core": PACKAGE / "_core.pyi"}


MODULES = modules()


def only_for_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name | ast.Attribute) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported(name: str, source: str, is_package: bool) -> set[str]:
    """Modules of the package that a module imports; `tessera` for a name of the package itself."""
    home, found = name.split(".") if is_package else name.split(".")[:-1], set()

    def visit(node: ast.AST) -> None:
        if only_for_checkers(node):
            for other in node.orelse:
                visit(other)
            return
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names if a.name.split(".")[0] == "tessera")
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*home[: len(home) - node.level + 1], *filter(None, [node.module])]) if node.level else node.module or ""
            if base.split(".")[0] == "tessera":
                found.update(f"{base}.{a.name}" if f"{base}.{a.name}" in MODULES else base for a in node.names)
        elif isinstance(node, ast.Call) and "import_module" in (getattr(node.func, "attr", None), getattr(node.func, "id", None)) and node.args:
            # A text, or one that begins with a constant: `f"tessera.kernels.{name}"` is an import of `tessera.kernels`.
            text = node.args[0].values[0] if isinstance(node.args[0], ast.JoinedStr) else node.args[0]
            if isinstance(text, ast.Constant) and str(text.value).split(".")[0] == "tessera":
                found.add(text.value.rstrip("."))
        for inner in ast.iter_child_nodes(node):
            visit(inner)

    visit(ast.parse(source))
    return found - {name}


@functools.cache
def graph() -> dict[str, set[str]]:
    return {name: imported(name, path.read_text(encoding="utf-8"), path.name == "__init__.py") for name, path in MODULES.items() if path.suffix == ".py"}


def top(name: str) -> str:
    return (name.split(".") + [""])[1]


def table() -> dict[str, list[str]]:
    """What each package may import, of the table in `ARCHITECTURE.md`, in its order."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = text.partition("| package | holds | imports |\n|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    found = {}
    for row in rows:
        names, _, imports = row.strip("| ").split(" | ") if not row.endswith("| |") else (*row.strip("| ").split(" | "), "")
        for name in re.findall(r"`(\w+)`", names):
            found[name] = re.findall(r"`(\w+)`", imports)
    return found


def test_no_module_imports_itself_through_others():
    graphlib.TopologicalSorter({a: bs - {"tessera"} for a, bs in graph().items()}).prepare()


def test_packages_import_what_the_table_says():
    seen: dict[str, set[str]] = {}
    for name, others in graph().items():
        if name not in ("tessera", "tessera.__main__"):
            seen.setdefault(top(name), set()).update(top(o) for o in others if top(o) not in ("", top(name)))
    documented = table()
    assert {name: set(documented.get(name, ())) for name in seen} == seen


def test_the_table_is_in_order_and_whole():
    documented = list(table().items())
    for at, (name, others) in enumerate(documented):
        assert set(others) <= {n for n, _ in documented[:at]}, name
    assert {top(name) for name in MODULES} - {"", "__main__"} == {name for name, _ in documented}


def test_no_module_imports_the_whole_package():
    wrong = [name for name, others in graph().items() if "tessera" in others and not name.startswith(WRITTEN_AS_USERS_DO)]
    assert wrong == []


def test_few_names_are_at_the_top():
    # `__main__` is how the command begins, and no name that anyone imports.
    assert len({top(name) for name in MODULES} - {"", "__main__"}) <= MOST_AT_THE_TOP


def test_imports_that_are_found():
    source = """
from . import prim, _core
from .tracer import Tracer
from .. import xp, no_module
import tessera.nn, os
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from ..optim import Adam
def f():
    from ..kernels import gemm
    importlib.import_module(f"tessera.op.{f}")
"""
    got = imported("tessera.trace.jit", source, False)
    assert got == {f"tessera.{n}" for n in ("trace.prim", "trace", "trace.tracer", "xp", "nn", "kernels.gemm", "op")} | {"tessera"}
    assert "tessera.trace.prim" in imported("tessera.trace", "from . import prim", True)


def test_rarely_needed_modules_are_not_loaded():
    loaded = "import sys, tessera; print(*[m for m in sys.modules if m.startswith(('tessera.kernels', 'tessera.tools.cli', 'tessera.tools.doctor'))])"
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout.strip() == ""


def test_internal_packages_are_no_names_of_the_package():
    assert not {"arrays", "base", "tools", "trace", "transforms"} & {*dir(ts), *ts.__all__}
    with pytest.raises(AttributeError, match="write `xp.trace`"):
        ts.trace  # noqa: B018


def test_former_names_of_modules_are_found():
    for old, new in former_names._MODULES.items():
        assert importlib.import_module(f"tessera.{old}") is sys.modules[f"tessera.{new}"]
    # As pickles of 0.1 have them.
    assert pickle.loads(b"ctessera._dtypes\ndtype\n(Vf32\ntR.") is ts.f32
    for name in ("_functional gelu", "_losses focal_loss", "_host_array HostArray", "_control_more ShapeDtypeStruct", "_schedule Schedule", "_tree TreeDef"):
        module, _, found = name.partition(" ")
        pickle.loads(f"ctessera.{module}\n{found}\n.".encode())
    x = ts.xp.arange(3)
    old = pickle.dumps(x, 0).replace(b"tessera.arrays.host", b"tessera._host_array")
    assert b"_host_array" in old and np.array_equal(pickle.loads(old), x)
