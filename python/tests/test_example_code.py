"""PTX of every kernel in examples/kernels, for each generation of NVIDIA GPUs: NVIDIA's assembler accepts it without spills."""

import concurrent.futures
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from doc_blocks import ROOT
from tessera.kernel.kernel_fn import KernelFn

sys.path.append(str(ROOT))

from conformance.gpu import example_kernels  # noqa: E402

TARGETS = ("sm80", "sm90", "sm100")
#: Where spills are wrong.
TIGHT = ("sm80", "sm90")
#: `module.kernel` of what may spill there, and why it does.
SPILLS: dict[str, str] = {}
#: Assemblers that run at a time.
JOBS = 2


def assembler():
    found = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin" / "ptxas"
    if not os.access(found, os.X_OK):
        why = f"{found} is not there: `scripts/assemblers.sh` installs it"
        pytest.fail(why) if os.environ.get("TESSERA_NEED_TOOLS") else pytest.skip(why)
    return found


class Called:
    """Which kernels a file calls, with the configuration of the latest call that launched anything."""

    def __init__(self):
        self.kernels = {}

    def take(self, kernel, args, kwargs):
        given = dict(zip((param[0] for param in kernel.spec.params), args)) | kwargs
        functions = {param[0] for param in kernel.spec.params if param[1] == "function"}
        explained = kernel.explain()
        if 0 in explained.grid:
            return
        config = {name: value for name, value in explained.config.items() if name not in functions}
        config |= {name: given[name] for name in functions if name in given}
        self.kernels[kernel.name] = kernel, config


@pytest.fixture(scope="module")
def called():
    """By file."""
    before = KernelFn.__call__, KernelFn.launch
    found = {}

    def taken(kernel, *args, grid=None, **kwargs):
        result = before[1](kernel, *args, grid=grid, **kwargs)
        found[name].take(kernel, args, kwargs)
        return result

    KernelFn.__call__ = KernelFn.launch = taken
    try:
        for name in example_kernels.names():
            found[name] = Called()
            module = example_kernels.load(name)
            for args in example_kernels.some(list(module.cases())):
                module.run(*args)
    finally:
        KernelFn.__call__, KernelFn.launch = before
    return found


def kernels_of(name):
    """The kernels that a file defines."""
    return {thing.name for thing in vars(example_kernels.load(name)).values() if isinstance(thing, KernelFn)}


def test_every_kernel_is_called(called):
    for name, calls in called.items():
        assert set(calls.kernels) >= kernels_of(name), name


def assembled(tool, folder, target, name, kernel, config):
    """What the assembler says of a kernel."""
    text = kernel.jit(target=target, **config).inspect_ir("target")
    arch = re.search(r"^\.target (\w+)", text, re.M)[1]
    ptx = folder / f"{name}.{target}.ptx"
    ptx.write_text(text, encoding="utf-8")
    command = [tool, f"-arch={arch}", "-v", "-o", ptx.with_suffix(".cubin"), ptx]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{name} for {target}: {said}"
    assert "Used" in said, said
    return sum(int(n) for n in re.findall(r"(\d+) bytes spill", said))


@pytest.mark.parametrize("target", TARGETS)
def test_assembler_takes_every_example(target, called, tmp_path):
    tool = assembler()
    work = [(f"{name}.{label}", *call) for name, calls in called.items() for label, call in calls.kernels.items()]
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        spilled = dict(pool.map(lambda w: (w[0], assembled(tool, tmp_path, target, *w)), work))
    assert len(spilled) > 50
    if target in TIGHT:
        assert {name: size for name, size in spilled.items() if size and name not in SPILLS} == {}


def test_spills_that_are_known_name_kernels(called):
    names = {f"{name}.{label}" for name, calls in called.items() for label in calls.kernels}
    assert set(SPILLS) <= names and all(SPILLS.values())
