"""The form of the library's kernels: options in records, files of one page of thought."""

import ast
import inspect
from pathlib import Path

import pytest

import tessera
from tessera.kernel.kernel_fn import KernelFn

FOLDER = Path(tessera.__file__).parent / "kernels"
FILES = sorted(FOLDER.glob("*.py"))
#: Positional parameters of a function or kernel.
MOST_PARAMETERS = 8
#: Lines of a file, and of the kernels that a reader begins with.
MOST_LINES = 300
SHORT = {"attention.py": 250, "attention_backward.py": 250, "block_mask.py": 250, "gemm.py": 250}


def long_signatures(source):
    """Functions with too many positional parameters: name and number."""
    found = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
            count = len(names) - (names[:1] in (["self"], ["cls"]))
            if count > MOST_PARAMETERS:
                found[getattr(node, "name", "lambda")] = count
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_no_signature_has_more_than_eight_positional_parameters(path):
    assert not long_signatures(path.read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_files_are_short(path):
    assert len(path.read_text().splitlines()) <= SHORT.get(path.name, MOST_LINES)


def test_what_is_too_long_is_found():
    names = "a, b, c, d, e, f, g, h"
    assert long_signatures(f"def ok({names}, *, i=0): pass\nclass C:\n    def ok(self, {names}): pass") == {}
    assert long_signatures(f"@ts.kernel\ndef k({names}, i: int = 0): pass") == {"k": 9}
    assert long_signatures(f"f = lambda {names}, i: 0") == {"lambda": 9}


def test_kernels_of_the_library_are_found():
    """Those that the test above is about."""
    from tessera.kernels import attention, gemm

    found = [k for module in (attention, gemm) for k in vars(module).values() if isinstance(k, KernelFn)]
    assert len(found) == 10 and all(len(inspect.signature(k).parameters) <= MOST_PARAMETERS for k in found)
