"""Every kernel of examples/kernels gives what NumPy gives, on every case of its file."""

import importlib
import re
import sys

import numpy as np
import pytest
import tessera as ts
from doc_blocks import ROOT

FOLDER = ROOT / "examples" / "kernels"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "gallery")


@pytest.fixture(scope="module", autouse=True)
def folder_on_path():
    """As for a script that is run from its folder."""
    sys.path.insert(0, str(FOLDER))
    before = set(sys.modules)
    yield
    sys.path.remove(str(FOLDER))
    for name in set(sys.modules) - before:
        if name in NAMES or name == "gallery":
            del sys.modules[name]


@pytest.mark.parametrize("how", ["cpu", "interp", "checked"])
@pytest.mark.parametrize("name", NAMES)
def test_kernel(name, how, monkeypatch):
    if how == "checked":
        monkeypatch.setenv("TESSERA_CHECK", "1")  # no race, no element outside, nothing read before it is written
    else:
        monkeypatch.setenv("TESSERA_BACKEND", how)
    gallery = importlib.import_module("gallery")
    module = importlib.import_module(name)
    sizes = []
    for args in module.cases():
        error = gallery.largest_error(module.run, module.reference, args)
        shapes = [getattr(arg, "shape", arg) for arg in args]
        assert error <= module.TOLERANCE, f"error {error} with arguments {shapes}"
        sizes.append(shapes)
    assert len(sizes) >= 4, "several sizes"


def test_checked_runs_are_checked(monkeypatch):
    @ts.kernel
    def count(index: ts.Tensor["n", ts.int32], out: ts.Tensor["m", ts.f32]):
        i = ts.tile.linear_id()
        if i < n:
            out[index[i]] += 1.0

    index, out = np.zeros(8, np.int32), np.zeros(3, np.float32)
    count(index, out)
    monkeypatch.setenv("TESSERA_CHECK", "1")
    with pytest.raises(ts.TesseraError, match="E_RACE"):
        count(index, out)


def test_main_prints_one_line(capsys):
    importlib.import_module("softmax").main()
    out = capsys.readouterr().out
    assert re.fullmatch(r"softmax +7 cases +largest error \S+ +allowed \S+\n", out)


def test_readme_lists_every_kernel():
    rows = re.findall(r"^\| \[`(\w+)\.py`\]\((\w+)\.py\) \|", (FOLDER / "README.md").read_text(encoding="utf-8"), re.M)
    assert all(name == link for name, link in rows)
    assert sorted(name for name, _ in rows) == NAMES
