"""Errors for names of other libraries and for misspelt ones say what to write, and what they say exists."""

from __future__ import annotations

import importlib
import re

import pytest

import tessera as ts
from tessera import nn, optim, random, tree, xp
from tessera.base import foreign_names


@pytest.mark.parametrize("module", foreign_names.WORDS)
def test_suggested_names_exist(module):
    owner = importlib.import_module(module)
    for name, words in foreign_names.WORDS[module].items():
        assert name not in vars(owner), f"{module}.{name} is there"
        for path in re.findall(r"`((?:ts|xp|nn|optim|random|tree)\.[\w.]+)", words):
            found = {"ts": ts, "xp": xp, "nn": nn, "optim": optim, "random": random, "tree": tree}[path.partition(".")[0]]
            for part in path.split(".")[1:]:
                found = getattr(found, part)


@pytest.mark.parametrize("module, name, suggestion", [
    (ts, "numpy", "ts.xp"), (ts, "lax", "ts.scan"), (ts, "tree_map", "ts.tree.map"), (ts, "config", "ts.runtime.knobs()"), (ts, "Linear", "ts.nn.Linear"),
    (ts, "sum", "`xp.sum` in traced functions and outside; in a kernel `ts.tile.sum`"), (ts, "sort", "`xp.sort`"), (ts, "valu_and_grad", "`value_and_grad`"),
    (xp, "arrange", "`arange`"), (xp, "clamp", "`xp.clip`"), (xp, "softmax", "ts.nn.softmax"), (xp, "scan", "ts.scan"), (xp, "complex64", "no complex"),
    (nn, "Dense", "nn.Linear"), (nn, "ReLU", "`relu`"), (nn, "Linaer", "`Linear`"), (random, "randn", "random.normal(key, shape)"),
    (optim, "adamw", "optim.AdamW"), (optim, "lion", "`Lion`"), (optim, "apply_updates", "opt.update"), (tree, "tree_leaves", "tree.leaves"), (tree, "mapp", "`map`"),
])  # fmt: skip
def test_names_that_are_not_there(module, name, suggestion):
    with pytest.raises(AttributeError, match=f"'{name}'") as caught:
        getattr(module, name)
    assert suggestion in str(caught.value)
    assert not hasattr(module, name) and not hasattr(module, "__wrapped__")


def test_names_that_jitted_functions_do_not_have():
    f = ts.jit(lambda x: x)
    for name, words in foreign_names.JITTED.items():
        with pytest.raises(AttributeError, match=name) as caught:
            getattr(f, name)
        assert words in str(caught.value)
        for method in re.findall(r"`f\.(\w+)\(", words):
            assert callable(getattr(f, method))
    assert not hasattr(f, "numpy")
