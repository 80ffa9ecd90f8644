"""The library's matmul and attention kernels for Hopper, assembled by NVIDIA's assembler without a GPU: registers, spills, WGMMA
instructions, and no warning that WGMMAs are serialised (C75xx).

`library_code.txt` has a row for each kernel; `TESSERA_BLESS=1` writes it. Spills and warnings of the assembler may only
decrease: blessing refuses an increase.
"""

import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from doc_blocks import BLESS, ROOT

sys.path.append(str(ROOT))

from ledger import op_workloads  # noqa: E402

KEPT = Path(__file__).with_name("library_code.txt")
HEAD = "# What the assembler makes of the library's kernels for sm_90a. Written by test_library_code.py with TESSERA_BLESS=1.\n"
#: WGMMA instructions of the hardware.
WGMMA = ("HGMMA", "QGMMA", "IGMMA")
WORKS = {
    "matmul bf16": lambda: op_workloads.matmul(4096, 4096, 4096, "bf16"),
    "matmul bf16, B by columns": lambda: op_workloads.matmul(4096, 4096, 4096, "bf16", b="column"),
    "matmul bf16 1024": lambda: op_workloads.matmul(1024, 1024, 1024, "bf16"),
    "matmul bf16, rows at odd addresses": lambda: op_workloads.matmul(4095, 4095, 4095, "bf16", b="column"),
    "matmul bf16, 16 rows": lambda: op_workloads.matmul(16, 4096, 14336, "bf16"),
    "matmul bf16, bias and gelu": lambda: op_workloads.matmul(8192, 8192, 4096, "bf16", epilogue=True),
    "matmul fp8": lambda: op_workloads.matmul(8192, 8192, 8192, "fp8_e4m3", b="column"),
    "matmul fp8, fast": lambda: op_workloads.matmul(8192, 8192, 8192, "fp8_e4m3", b="column", mode="fast"),
    "matmul tf32": lambda: op_workloads.matmul(4096, 4096, 4096, "tf32", b="column"),
    "matmul int8": lambda: op_workloads.matmul(4096, 4096, 4096, "int8", b="column"),
    **{
        f"attention {d} {'causal' if causal else 'full'}": lambda d=d, causal=causal: op_workloads.attention(
            4, 2048 // d, 2048 // d, 4096, 4096, d, "bf16", causal=causal
        )
        for d in (64, 128)
        for causal in (False, True)
    },
}


def tools():
    folder = Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"
    found = folder / "ptxas", folder / "nvdisasm"
    if not all(os.access(tool, os.X_OK) for tool in found):
        why = f"{folder} has not both of ptxas and nvdisasm: `scripts/assemblers.sh` installs them"
        pytest.fail(why) if os.environ.get("TESSERA_NEED_TOOLS") else pytest.skip(why)
    return found


def assembled(name, folder):
    """The rows of a work's kernels."""
    ptxas, nvdisasm = tools()
    rows = []
    for step in WORKS[name]().steps:
        kernel = step.recipe.compiled()
        stem = folder / re.sub(r"\W+", "_", f"{name} {step.recipe.name}")
        ptx, cubin = stem.with_suffix(".ptx"), stem.with_suffix(".cubin")
        ptx.write_text(kernel.inspect_ir("target"), encoding="utf-8")
        command = [ptxas, "-arch=sm_90a", "-v", "-o", cubin, ptx]
        done = subprocess.run(command, capture_output=True, text=True)
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{name}: {said}"
        text = subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout
        rows.append(row(f"{name}: {step.recipe.name}", said, text))
    return rows


def row(name, said, code):
    """The row of one kernel: the assembler's report, and the WGMMA instructions in its code."""
    number = lambda pattern: sum(int(n) for n in re.findall(pattern, said))  # noqa: E731
    registers = number(r"Used (\d+) registers")
    spilled, filled = number(r"(\d+) bytes spill stores"), number(r"(\d+) bytes spill loads")
    serialised = len(re.findall(r"C75\d\d", said))
    names = collections.Counter(re.findall(r"^\s*(?:/\*[0-9a-f]+\*/)?\s*(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]+)", code, re.M))
    wgmmas = [f"{names[op]} {op}" for op in WGMMA if names[op]]
    facts = [f"{registers} registers", f"{spilled} bytes spilled", f"{filled} bytes filled", f"{serialised} serialised", *wgmmas]
    return f"{name}: {', '.join(facts)}"


def kept():
    lines = KEPT.read_text(encoding="utf-8").splitlines() if KEPT.exists() else []
    return {key(line): line for line in lines if line and not line.startswith("#")}


def key(line):
    return ": ".join(line.split(": ")[:2])


def figures(line):
    """What may only fall."""
    return {word: int(n) for n, word in re.findall(r"(\d+) (bytes spilled|bytes filled|serialised)", line)}


def risen(before, after):
    return [f"{word} {old} -> {figures(after)[word]}" for word, old in figures(before).items() if figures(after)[word] > old]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = tmp_path_factory.mktemp("code")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return [line for found in pool.map(lambda name: assembled(name, folder), WORKS) for line in found]


def test_nothing_spills_or_waits_more_than_it_did(rows):
    before = kept()
    worse = {key(line): risen(before[key(line)], line) for line in rows if key(line) in before}
    assert not {name: what for name, what in worse.items() if what}
    new = [line for line in rows if key(line) not in before and any(figures(line).values())]
    assert not new or BLESS, f"new kernels that spill or wait: {new}"
    if BLESS:
        KEPT.write_text(HEAD + "".join(f"{line}\n" for line in rows), encoding="utf-8")


def test_the_code_is_as_it_is_kept(rows):
    known = set(kept().values())
    changed = [line for line in rows if line not in known]
    gone = sorted(known - set(rows))
    assert not changed and not gone, "TESSERA_BLESS=1 writes these:\n" + "\n".join([*("+ " + c for c in changed), *("- " + g for g in gone)])


def test_matmul_and_attention_use_wgmma(rows):
    """Kernels with MMAs have WGMMA instructions; kernels that only copy or add have none."""
    others = ("one", "two", "combined", "area", "copy", "line")
    for line in rows:
        name = key(line).rpartition(": ")[2]
        assert any(op in line for op in WGMMA) != (name in others), line
    assert not [line for line in rows if not re.search(r" 0 serialised", line)]


def test_rows_are_read_from_what_the_tools_say():
    said = (
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
        "    24 bytes stack frame, 20 bytes spill stores, 28 bytes spill loads\nptxas info    : Used 168 registers, used 9 barriers\n"
    )
    code = "        /*0010*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR4] ;\n        /*0020*/              @!P0 STG.E desc[UR4][R2.64], R0 ;\n"
    found = row("work: kernel", said, code)
    assert found == "work: kernel: 168 registers, 20 bytes spilled, 28 bytes filled, 1 serialised, 1 HGMMA"
    assert risen(found, found.replace("20 bytes", "24 bytes")) == ["bytes spilled 20 -> 24"] and not risen(found, found)
    assert key(found) == "work: kernel"
