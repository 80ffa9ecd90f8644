"""The command `tessera`."""

import os
import re
import subprocess
import sys

import pytest

import tessera as ts
from tessera.tools.cli import main

GOOD = '''
import tessera as ts

@ts.kernel
def double(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    x[i] = x[i] + x[i]

@ts.kernel.autotune(space=dict(B=[4, 8]))
def rows(x: ts.Tensor["m", "k", ts.f32], y: ts.Tensor["m", ts.f32], flip: bool = False):
    B = ts.tile.context().B
    p = ts.tile.program_id(0)
    y[p * B : p * B + B] = ts.tile.row_sum(x[p * B : p * B + B, :])
'''
BAD = GOOD + '''
@ts.kernel
def broken(x: ts.Tensor["n", ts.f32]):
    x[0] = nothing

@ts.kernel
def wrong(x: ts.Region["read", ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    x[i] = 1.0
'''


@pytest.fixture
def run(tmp_path, capsys):
    def run(*arguments, text=GOOD):
        (tmp_path / "kernels_here.py").write_text(text)
        status = main([a.replace("FILE", str(tmp_path / "kernels_here.py")) for a in arguments])
        return status, *capsys.readouterr()

    return run


def test_the_module_prints_the_version_too():
    out = subprocess.run([sys.executable, "-m", "tessera", "--version"], capture_output=True, text=True)
    assert out.stdout == f"tessera {ts.__version__}\n" and out.returncode == 0


def test_doctor_finds_a_kernel_that_runs(run, monkeypatch):
    monkeypatch.setenv("TESSERA_VERIFY", "1")
    monkeypatch.setenv("TESSERA_NOTHING", "1")
    status, out, _ = run("doctor")
    assert status == 0 and out.rstrip().endswith("all is well")
    for words in ("numpy", "ml_dtypes", "interp                   available", "cpu                      available", "ptx",
                  "does not contain", "warp_size", "saxpy of 1000 elements   right, on cpu",
                  "TESSERA_VERIFY           '1'", "does not know it"):
        assert words in out, out


def test_doctor_tells_of_the_processor_and_the_cache(tmp_path):
    cache = str(tmp_path / "cache")

    def doctor(**environment):
        command = [sys.executable, "-m", "tessera", "doctor"]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})

    out = doctor(TESSERA_CPU="generic", TESSERA_THREADS="3", TESSERA_CACHE_DIR=cache).stdout
    for row in (r"instructions +generic \((TESSERA_CPU says so; there is (avx2|avx512|amx)|the most there is)\)",
                r"vectors +128 bits", r"tensor cores +none", r"threads +3 \(of \d+ cores\)", r"LLVM +19\.1",
                rf"directory +{re.escape(cache)}", r"kept +0, 0 B of at most 1.0 GiB"):
        assert re.search(row, out), (row, out)
    wrong = doctor(TESSERA_CPU="sse")
    assert wrong.returncode == 1 and 'in TESSERA_CPU, got "sse"' in wrong.stdout


def test_doctor_says_what_is_wrong(run, monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", "ptx")
    status, out, _ = run("doctor")
    assert status == 1 and "something is wrong" in out and "`ptx` is not available" in out


def test_ir_is_printed_open_and_for_values(run):
    status, out, _ = run("ir", "FILE:double")
    assert status == 0 and ts.ir.parse(out).name == "double" and "view<[n], f32" in out
    status, out, _ = run("ir", "FILE:rows", "k=16", "B=8", "flip=True")
    assert status == 0 and "tile<8x16xf32>" in out
    assert "kernels_here.py" in run("ir", "FILE:double", "--locs")[1]
    assert ": schedule" in run("ir", "FILE:double", "--level", "schedule")[1]


def test_ir_of_what_is_not_there_names_what_is_near(run):
    status, _, err = run("ir", "FILE:doubel")
    assert status == 2 and "did you mean `double`?" in err and "rows" in err
    assert "expected FILE.py:KERNEL" in run("ir", "FILE"[:0] + "double")[2]
    assert "cannot read nowhere.py" in run("ir", "nowhere.py:k")[2]
    assert "expected a level" in run("ir", "FILE:double", "--level", "assembly")[2]
    status, _, err = run("ir", "FILE:rows", "B=8")
    assert status == 1 and "E_SPECIALIZE" in err
    assert "expected NAME=VALUE" in run("ir", "FILE:rows", "8")[2]


def test_check_lists_kernels_and_reports_every_error(run):
    status, out, _ = run("check", "FILE")
    assert status == 0 and "ok      double" in out and "2 kernels, no errors" in out
    status, out, _ = run("check", "FILE", text=BAD)
    assert status == 1 and "ok      rows" in out and "4 kernels, 2 with errors" in out
    assert "E_NAME" in out and "E_PRIVILEGE" in out and "x[i] = 1.0" in out
    assert "has errors" in run("ir", "FILE:wrong", text=BAD)[2]


def test_check_of_a_file_that_cannot_be_run(run):
    status, out, _ = run("check", "FILE", text=GOOD + "\n1 / 0\n")
    assert status == 1 and "ok      double" in out and "ZeroDivisionError" in out
    status, _, err = run("check", "FILE", text="def (")
    assert status == 2 and "kernels_here.py:1" in err


ACC = "[reg 0,1 8,0; lane 0,2 0,4 1,0 2,0 4,0; warp 16,0 0,8; repeat 2,2]"


def test_a_layout_is_drawn_from_its_text(run):
    status, out, _ = run("layout", ACC, "--shape", "64x32")
    assert status == 0 and out.startswith(ACC + "\n\n")
    for row in ("tile        64x32, a box of 32x16 repeated 2x2", "registers   16 in each thread",
                "threads     128 in 4 warps", "vector      1 along dim 0, 2 along dim 1", "copies      none",
                "padding     none"):
        assert row + "\n" in out, out
    assert run("layout", "#" + ACC, "--shape", "64x32") == (0, out, "")
    picture = out.partition("T<thread>:<register>\n")[2].splitlines()
    assert len(picture) == 33 and picture[0].split()[:4] == ["T0:0", "T0:1", "T1:0", "T1:1"]
    assert picture[0].split()[8] == "T64:0" and picture[16].split()[0] == "T32:0"


@pytest.mark.parametrize("words", [
    ["coalesced", "--shape", "128x64"],
    ["coalesced", "--shape", "100x60", "--contiguous", "0", "--vector", "4", "--warps", "8"],
    ["coalesced", "--shape", "64", "--ctas", "2", "--cta-dim", "0"],
    ["mma_acc", "--shape", "64x64"],
    ["mma_a", "--shape", "64x64", "--warps", "4x1", "--k", "64", "--bits", "8"],
    ["mma_a", "--shape", "64x64", "--blocks"],
    ["mma_b", "--shape", "64x48", "--bits", "64", "--k", "8"],
], ids=" ".join)
def test_a_constructed_layout_says_the_text_that_gives_it_again(run, words):
    status, out, err = run("layout", *words)
    assert status == 0, err
    text, tile = out.splitlines()[0], re.search(r"^tile +([\dx]+)", out, re.M)[1]
    assert run("layout", text, "--shape", tile) == (0, out, "")


PRODUCT = '''
import tessera as ts

@ts.kernel
def product(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.f32]):
    i, j = ts.tile.program_id(0) * 64, ts.tile.program_id(1) * 64
    acc = ts.tile.zeros((64, 64), ts.f32)
    for k in range(0, K, 32):
        acc = ts.tile.mma(A[i : i + 64, k : k + 32], B[k : k + 32, j : j + 64], acc)
    C[i : i + 64, j : j + 64] = acc
'''


def test_the_layouts_of_staged_ir_are_drawn_as_they_stand_there(run):
    status, staged, err = run("ir", "FILE:product", "--level", "staged", "--target", "sm80", text=PRODUCT)
    assert status == 0, err
    found = set(re.findall(r"([\dx]+)x(bf16|f32),? (#\[[^\]]*\])", staged))
    assert {text[:4] for _, _, text in found} == {"#[re", "#[or"}, staged
    for shape, dtype, text in sorted(found):
        bytes = ["--bytes", "2" if dtype == "bf16" else "4"]
        status, out, err = run("layout", *["shared"] * text.startswith("#[order"), text, "--shape", shape, *bytes)
        assert status == 0 and out.startswith(text[1:] + "\n"), err


def test_a_layout_tells_of_copies_and_padding(run):
    out = run("layout", "mma_a", "--shape", "60x64")[1]
    assert "copies      warp bit 1: each element is held 2 times" in out and "T0:0*" in out
    assert "padding     128 of 2048 positions" in out
    out = run("layout", "coalesced", "--shape", "8x8", "--ctas", "2")[1]
    assert "of each of 2 ctas" in out and "cta bit 0" in out and "C0.T0:0*" in out


def test_shared_memory_is_drawn_by_banks(run):
    words = ["layout", "shared", "[order 1,0; swizzle 4,3,3]", "--shape", "64x64", "--bytes", "2"]
    status, out, _ = run(*words)
    assert status == 0 and "memory      8192 bytes, aligned to 1024" in out
    assert "pieces of 16 bytes change places within 128, by address bit 7 and up" in out
    picture = out.partition("<bank>+<which 128 bytes>\n")[2].splitlines()
    assert [line.split()[0] for line in picture[:3]] == ["0+0", "4+1", "8+2"]
    columns = "[reg 0,1; lane 1,0 2,0 4,0 8,0 16,0; warp 32,0; repeat 1,32]"
    assert "8 elements at a time, 64 wavefronts, no bank conflicts" in run(*words, "--convert", columns)[1]
    words[2] = "[order 1,0]"
    assert "512 wavefronts, up to 28 bank conflicts in one access" in run(*words, "--convert", columns)[1]
    rows = run("layout", "coalesced", "--shape", "64x64")[1].splitlines()[0]
    assert "8 elements at a time, 64 wavefronts, no bank conflicts" in run(*words, "--convert", rows)[1]


def test_a_conversion_says_how_data_would_move_and_what_it_costs(run):
    def moved(to, *options):
        status, out, err = run("layout", ACC, "--shape", "64x32", "--convert", to, *options)
        assert status == 0, err
        return out

    assert "move        nothing" in moved(ACC) and "cost        nothing" in moved(ACC)
    other = ACC.replace("reg 0,1 8,0", "reg 8,0 0,1")
    assert "move        between the registers of each thread" in moved(other)
    out = moved(ACC.replace("lane 0,2 0,4", "lane 0,4 0,2"))
    assert "move        between the lanes of each warp, by shuffles" in out
    assert "cost        64 shuffles; about 64 cycles, for elements of 4 bytes" in out
    out = moved(ACC.replace("warp 16,0 0,8", "warp 0,8 16,0"), "--bytes", "2")
    assert "between the warps of a cta, through shared memory" in out
    assert re.search(r"cost +4096 bytes, \d+ wavefronts, .*2 barriers; about \d+ cycles, for elements of 2 bytes", out)


BIG = "9" * 30


@pytest.mark.parametrize("words, code, message", [
    ([], "E_ARGUMENT", "expected a layout, got nothing"),
    (["colaesced", "--shape", "8x8"], "E_ARGUMENT", "one of coalesced, mma_acc, mma_a, mma_b, shared, got `colaesced`"),
    (["coalesced"], "E_ARGUMENT", "expected the tile's shape, got nothing"),
    (["coalesced", "mma_a", "--shape", "8x8"], "E_ARGUMENT", "expected one layout, got `mma_a`"),
    (["coalesced", "--shape", "8by8"], "E_ARGUMENT", "joined by `x` in --shape, got `8by8`"),
    (["coalesced", "--shape", "0x8"], "E_ARGUMENT", "got `0x8`"),
    (["coalesced", "--shape", BIG], "E_ARGUMENT", f"got `{BIG}`"),
    (["coalesced", "--shape", "4096x4096"], "E_ARGUMENT", "a tile of at most 262144 elements"),
    (["coalesced", "--shape", "1x1x1x1x1x1x1x1x1"], "E_ARGUMENT", "at most 8 dims"),
    (["coalesced", "--shape", "8x8", "--warps", "3"], "E_ARGUMENT", "a power of two up to 32 in --warps, got `3`"),
    (["coalesced", "--shape", "8x8", "--warps", "2x2"], "E_ARGUMENT", "in --warps, got `2x2`"),
    (["coalesced", "--shape", "8x8", "--vector", "0"], "E_ARGUMENT", "the nearest that fits is 1"),
    (["coalesced", "--shape", "8x8", "--ctas", "64"], "E_ARGUMENT", "the nearest that fits is 16"),
    (["coalesced", "--shape", "8x8", "--contiguous", "2"], "E_ARGUMENT", "a dim from 0 to 1 in --contiguous, got `2`"),
    (["coalesced", "--shape", "8x8", "--k", "16"], "E_ARGUMENT", "options that coalesced takes, got `--k`"),
    (["mma_acc", "--shape", "8x8x8"], "E_SHAPE_MISMATCH", "an accumulator of 2 dims for mma_acc, got 8x8x8"),
    (["mma_acc", "--shape", "8x8", "--warps", "4"], "E_ARGUMENT", "as in `--warps 2x2`"),
    (["mma_acc", "--shape", "8x8", "--warps", "3x1"], "E_ARGUMENT", "two powers of two"),
    (["mma_a", "--shape", "8x8", "--bits", "24"], "E_ARGUMENT", "4, 8, 16, 32 or 64 in --bits, got `24`"),
    (["mma_b", "--shape", "8x8", "--k", "0"], "E_ARGUMENT", "a positive integer in --k, got `0`"),
    (["mma_b", "--shape", "8x8", "--k", "4000000000"], "E_ARGUMENT", "in --shape and --k, got `4000000000x8`"),
    (["shared", "--shape", "8x8", "--bytes", "2"], "E_ARGUMENT", "the text of shared memory, got nothing"),
    (["shared", "[order 1,0]", "--shape", "8x8"], "E_ARGUMENT", "the bytes of an element, got nothing"),
    (["shared", "[order 1,0]", "--shape", "8x8", "--bytes", "3"], "E_ARGUMENT", "got `3`"),
    (["shared", "[order 1,1]", "--shape", "8x8", "--bytes", "2"], "E_SHAPE_MISMATCH", "names each of 2 dims once"),
    (["shared", "[order 1,0; swizzle 0,1,1]", "--shape", "8x8", "--bytes", "2"], "E_SYNTAX", "a swizzle of whole elements"),
    (["shared", "[order 1,0; swizzle 4294967295,3,3]", "--shape", "8x8", "--bytes", "2"], "E_SYNTAX", "a swizzle"),
    (["shared", "[order 1,0; pad 4294967295]", "--shape", "8x8", "--bytes", "2"], "E_ARGUMENT", "pad and panel count"),
    (["[reg 0,1", "--shape", "64x32"], "E_SYNTAX", "a layout in brackets, got `[reg 0,1`"),
    (["[reg 0,1; loan 1]", "--shape", "64x32"], "E_SYNTAX", "one of reg, lane, warp, cta, repeat, order, got `loan 1`"),
    ([ACC, "--shape", "64"], "E_SHAPE_MISMATCH", "expected one number for each of 1 dims, got 2"),
    ([ACC, "--shape", "64x64"], "E_SHAPE_MISMATCH", "expected 4 repeats along dim 1, got 2"),
    ([ACC.replace(" 4,0", ""), "--shape", "64x32"], "E_SYNTAX", "expected 5 lane vectors, got 4"),
    ([ACC.replace("8,0;", "0,0;"), "--shape", "64x32"], "E_SYNTAX", "positions of the box held"),
    ([ACC.replace("16,0", "16,0" + " 0,0" * 30), "--shape", "64x32"], "E_ARGUMENT", "at most 32 warps"),
    ([ACC.replace("8,0;", "8,0" + " 0,0" * 20 + ";"), "--shape", "64x32"], "E_ARGUMENT", "registers in all threads"),
    ([ACC, "--shape", "64x32", "--convert", "[]"], "E_SYNTAX", "expected one of reg"),
    ([ACC, "--shape", "64x32", "--convert", "[lane 0,1 0,2 0,4 0,8 0,16; repeat 64,1]"], "E_SHAPE_MISMATCH",
     "a layout of 4 warps in 1 cta, got 1 warp in 1 cta"),
])
def test_a_wrong_layout_is_reported_and_never_a_panic(run, words, code, message):
    status, out, err = run("layout", *words)
    assert (status, out) == (1, "") and err.startswith(f"error[{code}]: expected ") and message in err, err


def test_a_reader_that_has_enough_is_no_error():
    """`tessera doctor | head -1`: the reader ends before all is written."""
    command = f"{sys.executable} -u -m tessera doctor | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("tessera ") and done.stderr == ""
