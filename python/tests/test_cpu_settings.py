"""In the profile `strict` every setting of the CPU backend gives the bits that the interpreter gives."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from kernels import saxpy

SCRIPT = Path(__file__).with_name("strict_bits.py")
#: Each holds those before it.
STEPS = ["generic", "avx2", "avx512", "amx"]
HERE = STEPS[: STEPS.index(ts._core.processor()["host"]) + 1]


def run(*command, **environment):
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )


def strict_bits(**environment):
    done = run(str(SCRIPT), **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def expected():
    found = strict_bits(TESSERA_BACKEND="interp")
    assert found["backend"] == "interp" and len(found["bits"]) > 40
    return found["bits"]


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("isa", HERE)
def test_strict_results_have_the_bits_of_the_interpreter(isa, threads, expected):
    found = strict_bits(TESSERA_CPU=isa, TESSERA_THREADS=threads)
    assert found["backend"] == "cpu"
    different = {name: cases for name, cases in found["bits"].items() if cases != expected[name]}
    assert not different and found["bits"].keys() == expected.keys(), sorted(different)


#: For programs that use the kernels of these tests.
PATH = os.pathsep.join([str(SCRIPT.parent), str(Path(ts.__file__).parents[1])])
CALL = """
import numpy as np, tessera as ts
from kernels import saxpy
try:
    saxpy(np.ones(3, np.float32), np.zeros(3, np.float32), 2.0)
except ts.TesseraError as e:
    print(type(e).__name__, e.code, e.message)
"""


@pytest.mark.parametrize("name, value, message", [
    ("TESSERA_CPU", "sse2", 'LaunchError E_ARGUMENT expected one of generic, avx2, avx512, amx in TESSERA_CPU, got "sse2"'),
    ("TESSERA_THREADS", "0", 'LaunchError E_ARGUMENT expected 1 to 1024 in TESSERA_THREADS, got "0"'),
    ("TESSERA_THREADS", "many", 'LaunchError E_ARGUMENT expected 1 to 1024 in TESSERA_THREADS, got "many"'),
], ids=lambda text: text.split()[0])
def test_a_setting_that_is_none_is_refused(name, value, message):
    done = run("-c", CALL, PYTHONPATH=PATH, **{name: value})
    assert done.stdout == message + "\n", done.stderr


@pytest.mark.skipif(HERE == STEPS, reason="this processor has everything")
def test_instructions_that_the_processor_lacks_are_refused():
    done = run("-c", CALL, PYTHONPATH=PATH, TESSERA_CPU=STEPS[-1])
    assert done.stdout.startswith("DeviceError E_DRIVER TESSERA_CPU requests amx"), done.stderr


def test_a_setting_is_part_of_what_is_kept_on_disk(tmp_path):
    """The same kernel for other instructions is not found."""
    code = CALL + "print(saxpy.jit().resources['from_disk_cache'])"
    printed = [
        run("-c", code, PYTHONPATH=PATH, TESSERA_CPU=isa, TESSERA_CACHE_DIR=str(tmp_path)).stdout
        for isa in (HERE[0], HERE[-1], HERE[0])
    ]
    assert printed == ["false\n", "false\n" if len(HERE) > 1 else "true\n", "true\n"]


def test_the_number_of_threads_changes_no_bit():
    x, before = np.arange(1 << 18, dtype=np.float32), ts.runtime.threads()
    results = []
    try:
        for n in (1, 2, 3):
            ts.runtime.set_threads(n)
            y = np.ones_like(x)
            results.append(saxpy(x, y, 0.3).tobytes())
    finally:
        ts.runtime.set_threads(before)
    assert results[0] == results[1] == results[2]
