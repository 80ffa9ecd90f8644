"""Calls on CUDA devices with a fake driver: everything around launches, not what kernels compute."""

import ast
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CASES = [HERE / "cuda_cases.py", HERE / "cuda_replay_cases.py"]
NODES = [node for cases in CASES for node in ast.parse(cases.read_text("utf-8")).body]
NAMES = [node.name for node in NODES if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]


@pytest.fixture(scope="session")
def outcome(tmp_path_factory):
    """Runs the cases in a process of their own, where the stand-in is found in the place of the driver."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.fail("the tests need a C compiler, which linking Rust needs too")
    folder = tmp_path_factory.mktemp("fake_cuda")
    command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1")]
    subprocess.run([*command, str(HERE / "fake_cuda.c")], check=True)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": path, "TESSERA_CACHE_DIR": str(folder / "cache")}
    results = folder / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={results}", *map(str, CASES)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=HERE.parents[1])
    assert results.exists(), done.stdout + done.stderr
    found: dict[str, list[str]] = {}
    for case in xml.parse(results).iter("testcase"):
        failures = [f"{case.get('name')}\n{part.text}" for part in case if part.tag in ("failure", "error")]
        found.setdefault(case.get("name", "").split("[")[0], []).extend(failures)
    assert found, done.stdout + done.stderr
    return found


@pytest.mark.parametrize("name", NAMES)
def test_case(name, outcome):
    assert name in outcome, "the process ended before it"
    assert not outcome[name], "\n".join(outcome[name])
