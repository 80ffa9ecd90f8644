"""Assembly text in kernels: real instructions on the CPU against NumPy, PTX as it is emitted and assembled, the other meaning everywhere else."""

import os
import pickle
import platform
import re
import subprocess
import sysconfig
import textwrap
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from oracle.fuzz import load as load_module

x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the texts are for x86_64")

def load(text, name):
    return load_module(text)[name]


SEED = int(os.environ.get("TESSERA_FUZZ_SEED", "20776"))
#: The least that vector instructions need.
HAS_AVX2 = "avx2" in Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else False


@pytest.fixture
def cpu(monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", "cpu")


@ts.kernel
def group(x: ts.Tensor["m", "n"], y: ts.Tensor["m", "n"], TEXT: str):
    i, j = ts.tile.grid(ts.cdiv(m, 4), ts.cdiv(n, 16))
    y[i * 4 : i * 4 + 4, j * 16 : j * 16 + 16] = ts.target.asm(TEXT, x[i * 4 : i * 4 + 4, j * 16 : j * 16 + 16], dtype=y.dtype, target="x86_64")


@ts.kernel
def lane(x: ts.Tensor["m", "n"], y: ts.Tensor["m", "n"], TEXT: str):
    i = ts.tile.linear_id()
    for j in range(n):
        y[i, j] = ts.target.asm(TEXT, x[i, j], dtype=y.dtype, target="x86_64")


def bits(name, f):
    """A function of the bits of an array, as an array of its dtype."""
    return lambda x: f(x.view(name)).view(x.dtype)


def rotated(x, by, width):
    return (x >> x.dtype.type(by)) | (x << x.dtype.type(width - by))


def popcount(x):
    return np.array([int(v).bit_count() for v in x.ravel()], x.dtype).reshape(x.shape)


#: Text, dtype, NumPy, whether it needs AVX.
INSTRUCTIONS = [
    ("popcntl $1, $0", "uint32", popcount, True),
    ("popcntq $1, $0", "uint64", popcount, True),
    ("movl $1, $0; rorl $$7, $0", "uint32", lambda x: rotated(x, 7, 32), False),
    ("movw $1, $0\nrorw $$3, $0", "uint16", lambda x: rotated(x, 3, 16), False),
    ("movb $1, $0; rorb $$3, $0", "uint8", lambda x: rotated(x, 3, 8), False),
    ("movl $1, %ecx; roll %cl, %ecx; movl %ecx, $0", "uint32", lambda x: np.where(x & 31, (x << (x & 31)) | (x >> ((32 - (x & 31)) & 31)), x), False),
    ("movl $1, $0; bswapl $0", "uint32", lambda x: x.byteswap(), False),
    ("movq $1, $0; bswapq $0", "uint64", lambda x: x.byteswap(), False),
    ("movb $1, $0; negb $0 # the sign", "int8", np.negative, False),
    ("movw $1, $0; notw $0", "int16", np.invert, False),
    ("movq $1, $0; negq $0", "int64", np.negative, False),
    ("leal 1($1,$1,2), $0", "int32", lambda x: x * 3 + 1, False),
    ("movb $1, $0; xorb $$1, $0", "bool", np.logical_not, False),
    ("vroundss $$1, $1, $1, $0", "float32", np.floor, True),
    ("vroundsd $$2, $1, $1, $0", "float64", np.ceil, True),
    ("sqrtss $1, $0", "float32", np.sqrt, False),
    ("movsd $1, $0; addsd $1, $0", "float64", lambda x: x + x, False),
    ("movw $1, $0; xorw $$0x8000, $0", "float16", np.negative, False),
    ("xorl $0, $0\n1:\n incl $0\n cmpl $1, $0\n jb 1b", "uint32", lambda x: np.maximum(x, 1), False),
]


def random_array(rng, dtype, shape, small=False):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        return np.abs(rng.standard_normal(shape) * 10).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(0, 50, shape).astype(dtype) if small else rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


@x86
@pytest.mark.parametrize("kernel", [group, lane], ids=["group", "lane"])
@pytest.mark.parametrize("text, dtype, f, avx", INSTRUCTIONS, ids=[re.sub(r"\W+", "_", i[0])[:20] + i[1] for i in INSTRUCTIONS])
def test_instructions_compute_what_numpy_does(cpu, kernel, text, dtype, f, avx):
    if avx and not HAS_AVX2:
        pytest.skip("the processor lacks AVX2")
    print(f"TESSERA_FUZZ_SEED={SEED}")
    rng = np.random.default_rng([SEED, len(text)])
    for _ in range(2):
        shape = tuple(int(n) for n in rng.integers(1, 40, 2))
        x = random_array(rng, dtype, shape, small="jb" in text)
        y = np.zeros_like(x)
        kernel(x, y, TEXT=text)
        with np.errstate(all="ignore"):
            want = f(x)
        np.testing.assert_array_equal(y.view(np.uint8), np.ascontiguousarray(want.astype(dtype)).view(np.uint8), err_msg=f"seed {SEED}, shape {shape}")


@x86
def test_bf16_and_narrow_floats_are_their_bits(cpu):
    import ml_dtypes

    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        x = np.linspace(0.5, 3, 40).astype(dtype).reshape(5, 8)
        y = np.zeros_like(x)
        text = "movw $1, $0; xorw $$0x8000, $0" if x.itemsize == 2 else "movb $1, $0; xorb $$0x80, $0"
        group(x, y, TEXT=text)
        assert (y.astype(np.float32) == -x.astype(np.float32)).all()


@ts.func
def wide_slow(a, b):
    return a * b, ts.tile.mulhi(a, b)


WIDE = "movq $2, %rax; mulq $3; movq %rax, $0; movq %rdx, $1"


@x86
@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("used", ["both", "first", "second", "none"])
def test_several_results(used):
    @ts.kernel
    def wide(a: ts.Tensor["n", ts.u64], b: ts.Tensor["n", ts.u64], lo: ts.Tensor["n", ts.u64], hi: ts.Tensor["n", ts.u64], USED: str):
        i = ts.tile.grid(ts.cdiv(n, 8)) * 8
        p, q = ts.target.asm(WIDE, a[i : i + 8], b[i : i + 8], dtype=(ts.u64, ts.u64), target="x86_64", otherwise=wide_slow)
        lo[i : i + 8] = p if USED == "both" or USED == "first" else a[i : i + 8]
        hi[i : i + 8] = q if USED == "both" or USED == "second" else b[i : i + 8]

    rng = np.random.default_rng(SEED)
    a, b = (rng.integers(0, 2**64, 29, dtype=np.uint64) for _ in range(2))
    lo, hi = np.zeros_like(a), np.zeros_like(a)
    wide(a, b, lo, hi, USED=used)
    products = [int(x) * int(y) for x, y in zip(a, b, strict=True)]
    assert lo.tolist() == ([p % 2**64 for p in products] if used in ("both", "first") else a.tolist())
    assert hi.tolist() == ([p >> 64 for p in products] if used in ("both", "second") else b.tolist())


# Effects


@ts.func
def stamp(x):
    return ts.tile.cast(x * 0 + 1, ts.u64)


@x86
def test_effects_happen_once_in_order(cpu):
    # The time stamp counter only grows: two runs of a pure text could be one.
    @ts.kernel
    def group_times(x: ts.Tensor["n", ts.u64], first: ts.Tensor["n", ts.u64], second: ts.Tensor["n", ts.u64]):
        ts.tile.grid(1)
        t = x[0:8]
        a = ts.target.asm("rdtsc # %edx\n shlq $$32, %rdx\n orq %rdx, %rax\n movq %rax, $0 # $1", t, dtype=ts.u64, target="x86_64", pure=False)
        b = ts.target.asm("rdtsc # %edx\n shlq $$32, %rdx\n orq %rdx, %rax\n movq %rax, $0 # $1", t, dtype=ts.u64, target="x86_64", pure=False)
        first[0:8] = a
        second[0:8] = b

    x = np.zeros(8, np.uint64)
    first, second = np.zeros(8, np.uint64), np.zeros(8, np.uint64)
    group_times(x, first, second)
    times = np.concatenate([first, second])
    assert (np.diff(times.astype(np.int64)) > 0).all() and (times > 0).all()


@x86
def test_effects_are_under_conditions(cpu):
    @ts.kernel
    def guarded(x: ts.Tensor["n", ts.u32], y: ts.Tensor["n", ts.u32]):
        i = ts.tile.linear_id()
        r = x[i]
        if x[i] != 0:
            # Division by zero would end the process.
            r = ts.target.asm("xorl %edx, %edx; movl $$1000, %eax; divl $1; movl %eax, $0", x[i], dtype=ts.u32, target="x86_64", pure=False)
        y[i] = r

    x = np.array([0, 1, 2, 0, 3, 0, 0, 7] * 9, np.uint32)
    y = np.zeros_like(x)
    guarded(x, y)
    assert y.tolist() == [0 if v == 0 else 1000 // v for v in x.tolist()]

    @ts.kernel
    def groups(x: ts.Tensor["n", ts.u32], y: ts.Tensor["n", ts.u32]):
        i = ts.tile.program_id(0)
        r = x[i]
        if r != 0:
            r = ts.target.asm("xorl %edx, %edx; movl $$1000, %eax; divl $1; movl %eax, $0", r, dtype=ts.u32, target="x86_64", pure=False)
        y[i] = r

    y[:] = 0
    groups(x, y)
    assert y.tolist() == [0 if v == 0 else 1000 // v for v in x.tolist()]


@x86
def test_effects_without_results_are_kept(cpu):
    @ts.kernel
    def paused(x: ts.Tensor["n", ts.u32], y: ts.Out["n", ts.u32]):
        i = ts.tile.grid(ts.cdiv(n, 8)) * 8
        for _ in range(3):
            ts.target.asm("pause", dtype=None, target="x86_64", pure=False)
            ts.target.asm("pause # $0", x[i : i + 8], dtype=None, target="x86_64", pure=False)
        y[i : i + 8] = x[i : i + 8]
        return y

    x = np.arange(20, dtype=np.uint32)
    assert (paused(x) == x).all()
    assert paused.inspect_ir("target").count("pause") >= 2


# The other meaning


@ts.func
def tripled(x):
    return x * 3.0


@ts.func
def nested(x):
    return ts.target.asm("movaps $1, $0; addss $1, $0; addss $1, $0", x, dtype=ts.f32, target="x86_64", otherwise=tripled)


@ts.kernel
def triple(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.grid(ts.cdiv(n, 32)) * 32
    y[i : i + 32] = ts.target.asm("mul.f32 $0, $1, 0f40400000;", x[i : i + 32], dtype=ts.f32, otherwise=nested)
    return y


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("profile", ["default", "deterministic", "strict"])
def test_what_the_text_is_not_for_runs_otherwise(profile):
    x = np.arange(50, dtype=np.float32)
    with ts.numerics.profile(profile):
        assert (triple(x) == 3 * x).all()
        assert triple.check(x)


def test_a_text_is_chosen_by_target_and_architecture():
    @ts.func
    def same(x):
        return x + 0.0

    @ts.kernel
    def newest(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        a = ts.target.asm("neg.f32 $0, $1; // from ninety", x[i], dtype=ts.f32, arch="sm_90", otherwise=same)
        y[i] = ts.target.asm("neg.f32 $0, $1; // exactly", a, dtype=ts.f32, arch="sm_90a", otherwise=same)
        return y

    shown = {target: newest.jit(target=target).inspect_ir("target") for target in ("sm80", "sm90", "sm100")}
    assert [("from ninety" in text, "exactly" in text) for text in shown.values()] == [(False, False), (True, True), (True, False)]
    with ts.numerics.profile("strict"):
        assert "from ninety" not in newest.jit(target="sm90").inspect_ir("target")
    assert "from ninety" in newest.jit(target="sm90").inspect_ir("tile")


def test_otherwise_is_needed_where_the_text_does_not_run(monkeypatch):
    @ts.kernel
    def only(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, arch="sm_90")
        return y

    x = np.ones(3, np.float32)
    for backend in ("interp", "cpu", "ptx-emulated"):
        with pytest.raises(ts.UnsupportedError, match="ptx from sm_90 on") as error, pytest.MonkeyPatch.context() as patch:
            patch.setenv("TESSERA_BACKEND", backend)
            only(x)
        assert error.value.code == "E_UNSUPPORTED" and "otherwise=" in error.value.help and "ts.target.asm" in str(error.value)
    assert "neg.f32" in only.jit(target="sm90").inspect_ir("target")
    with pytest.raises(ts.UnsupportedError, match="sm_80"):
        only.jit(target="sm80")
    with ts.numerics.profile("strict"), pytest.raises(ts.UnsupportedError, match="strict"):
        only.jit(target="sm90")


# Errors, at the user's line


def refused(body, dtype="ts.f32", extra=""):
    source = f"""
    @ts.func
    def f(x):
        return x

    {extra}

    @ts.kernel
    def k(x: ts.Tensor["n", {dtype}], y: ts.Tensor["n", {dtype}]):
        i = ts.tile.linear_id()
        y[i] = {body}
    """
    with pytest.raises(ts.TesseraError) as error:
        load(textwrap.dedent(source), "k")
    return error.value


WRONG = [
    ('ts.target.asm("neg.f32 $0, $2;", x[i], dtype=ts.f32)', "E_ARGUMENT", r"got \$2"),
    ('ts.target.asm("neg.f32 $0, $99999999999999999999999;", x[i], dtype=ts.f32)', "E_ARGUMENT", "after"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], x[i], dtype=ts.f32)', "E_ARGUMENT", r"read \$2"),
    ('ts.target.asm("neg.f32 t, $1;", x[i], dtype=ts.f32)', "E_ARGUMENT", r"write \$0"),
    ('ts.target.asm("{ neg.f32 $0, $1;", x[i], dtype=ts.f32)', "E_ARGUMENT", "closed"),
    ('ts.target.asm("neg.f32 $0, $1; }", x[i], dtype=ts.f32)', "E_ARGUMENT", "one more"),
    ('ts.target.asm("neg.f32 $0, $1; } .entry evil() {", x[i], dtype=ts.f32)', "E_ARGUMENT", "one more"),
    ('ts.target.asm("neg.f32 $0, $1; /*", x[i], dtype=ts.f32)', "E_ARGUMENT", "comment"),
    ('ts.target.asm(".pragma \\"x; neg.f32 $0, $1;", x[i], dtype=ts.f32)', "E_ARGUMENT", "quotation"),
    ('ts.target.asm("neg.f32 $0, $1;\\0", x[i], dtype=ts.f32)', "E_ARGUMENT", "control character"),
    ('ts.target.asm("neg.f32 $0, %f1 $", x[i], dtype=ts.f32)', "E_ARGUMENT", "after"),
    ('ts.target.asm("{ .reg .b32 %r<4>; mov.b32 %r1, $1; mov.b32 $0, %r1; }", x[i], dtype=ts.f32)', "E_ARGUMENT", "own"),
    ('ts.target.asm("l: vmovaps $1, $0", x[i], dtype=ts.f32, target="x86_64")', "E_ARGUMENT", "labels"),
    ('ts.target.asm("\\"l\\": vmovaps $1, $0", x[i], dtype=ts.f32, target="x86_64")', "E_ARGUMENT", "labels"),
    ('ts.target.asm("1: l : vmovaps $1, $0", x[i], dtype=ts.f32, target="x86_64")', "E_ARGUMENT", "labels"),
    ('ts.target.asm("vmovaps $1, $0; .section .data", x[i], dtype=ts.f32, target="x86_64")', "E_ARGUMENT", "directives"),
    ('ts.target.asm(".intel_syntax noprefix\\nvmovaps $0, $1", x[i], dtype=ts.f32, target="x86_64")', "E_ARGUMENT", "directives"),
    ('ts.target.asm("1: .macro m\\n.endm\\nvmovaps $1, $0", x[i], dtype=ts.f32, target="x86_64")', "E_ARGUMENT", "directives"),
    ('ts.target.asm("push %rsp; vmovaps $1, $0", x[i], dtype=ts.f32, target="x86_64")', "E_ARGUMENT", "stack"),
    ('ts.target.asm(x[i], x[i], dtype=ts.f32)', "E_ARGUMENT", "known at compile time"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, target="spirv")', "E_ARGUMENT", "among"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, target="sm_90")', "E_ARGUMENT", "among"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, arch="avx2")', "E_ARGUMENT", "architecture"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, arch="sm_9")', "E_ARGUMENT", "architecture"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i])', "E_ARGUMENT", "expected results"),
    ('ts.target.asm("", pure=False)', "E_ARGUMENT", "empty"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=7)', "E_TYPE", "dtype"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.i4)', "E_UNSUPPORTED_DTYPE", "registers"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, pack=0)', "E_ARGUMENT", "pack"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, pack=2)', "E_ARGUMENT", r"write \$1|read \$2"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, pack=2, pure=False)', "E_UNSUPPORTED", "effects"),
    ('ts.target.asm("movl $1, $0", x[i], dtype=ts.f32, target="x86_64", pack=2)', "E_UNSUPPORTED", "x86_64"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, otherwise=3)', "E_TYPE", "ts.func"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.i32, otherwise=f)', "E_TYPE", "i32"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=(ts.f32, ts.f32), otherwise=f)[0]', "E_ARGUMENT", r"read \$2"),
    ('ts.target.asm("neg.f32 $0, $2; mov.b32 $1, $2;", x[i], dtype=(ts.f32, ts.f32), otherwise=f)[0]', "E_TYPE", "2 values"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, otherwise=g)', "E_UNSUPPORTED", "only computes"),
    ('ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, constraints="=r,r")', "E_ARGUMENT", "constraints"),
    ('ts.target.nothing("neg.f32 $0, $1;")', "E_NAME", "nothing"),
    ('ts.tile.inline_asm_elementwise("neg.f32 $0, $1;")', "E_NAME", "inline_asm"),
]
LOOP = """@ts.func
    def g(x):
        for _ in ts.tile.range(0, 3):
            x = x + 1.0
        return x
"""


@pytest.mark.parametrize("body, code, words", WRONG, ids=range(len(WRONG)))
def test_errors_are_at_the_line(body, code, words):
    error = refused(body, extra=LOOP)
    assert error.code == code, error
    assert re.search(words, error.message), error.message
    assert error.line and error.help


@x86
def test_the_assembler_of_the_cpu_is_heard(cpu):
    @ts.kernel
    def k(x: ts.Tensor["n", ts.u32], y: ts.Out["n", ts.u32]):
        i = ts.tile.linear_id()
        a = ts.target.asm("movl $1, $0", x[i], dtype=ts.u32, target="x86_64")
        y[i] = ts.target.asm("popcount $1, $0", a, dtype=ts.u32, target="x86_64")
        return y

    for _ in range(2):
        with pytest.raises(ts.ToolError, match="AT&T") as error:
            k(np.ones(4, np.uint32))
        assert error.value.code == "E_TARGET_CODEGEN" and "popcount" in str(error.value)
        shown = Path(__file__).read_text(encoding="utf-8").splitlines()[error.value.line - 1]
        assert "popcount $1, $0" in shown
    # The process and its machines go on.
    assert (triple(np.ones(4, np.float32)) == 3).all()


@x86
def test_names_that_nothing_defines_are_an_error_of_the_text(cpu):
    @ts.kernel
    def k(x: ts.Tensor["n", ts.u32], y: ts.Out["n", ts.u32]):
        i = ts.tile.linear_id()
        a = ts.target.asm("movl $1, $0; .byte 0x90; .p2align 2; .rept 2; incl $0; .endr", x[i], dtype=ts.u32, target="x86_64")
        y[i] = ts.target.asm("movl nowhere(%rip), $0 # $1", a, dtype=ts.u32, target="x86_64")
        return y

    for _ in range(2):
        with pytest.raises(ts.ToolError, match="symbol") as error:
            k(np.ones(4, np.uint32))
        assert error.value.code == "E_TARGET_CODEGEN" and "nowhere" in Path(__file__).read_text(encoding="utf-8").splitlines()[error.value.line - 1]


def test_the_other_meaning_is_of_one_lane():
    source = """
    @ts.func
    def f(x):
        return ts.tile.group.reduce(x, "sum")

    @ts.kernel(lanes=32)
    def k(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = ts.target.asm("neg.f32 $0, $1;", x[i], dtype=ts.f32, otherwise=f)
    """
    with pytest.raises(ts.UnsupportedError, match="group_reduce") as error:
        load(textwrap.dedent(source), "k")
    assert error.value.code == "E_UNSUPPORTED"


def test_outside_kernels_it_is_an_error():
    with pytest.raises(ts.UnsupportedError, match="inside a kernel"):
        ts.target.asm("nop", dtype=None)
    with pytest.raises(AttributeError, match="ams"):
        ts.target.ams
    assert pickle.loads(pickle.dumps(ts.target.asm)) is ts.target.asm


# Inside everything else


@ts.func
def doubled(x):
    return x + x


DOUBLE = "movaps $1, $0; addss $1, $0"


@x86
@pytest.mark.usefixtures("backend")
def test_texts_in_loops_branches_and_functions():
    @ts.func
    def twice(x):
        return ts.target.asm(DOUBLE, x, dtype=ts.f32, target="x86_64", otherwise=doubled)

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.grid(ts.cdiv(n, 16)) * 16
        t = x[i : i + 16]
        for _ in range(3):
            t = twice(t)
        if i > 0:
            t = twice(t)
        scale = twice(ts.tile.cast(i, ts.f32)) if i > 16 else 1.0
        y[i : i + 16] = ts.tile.where(x[i : i + 16] > 20.0, twice(t), t) + scale * 0.0
        return y

    x = np.arange(40, dtype=np.float32)
    i = np.arange(40)
    assert (k(x) == x * 8 * np.where(i >= 16, 2, 1) * np.where(x > 20, 2, 1)).all()


@x86
@pytest.mark.usefixtures("backend")
def test_texts_in_combiners_and_reductions():
    @ts.func
    def greater_slow(a, b):
        return ts.tile.maximum(a, b)

    @ts.func
    def greater(a, b):
        return ts.target.asm("movss $1, $0; maxss $2, $0", a, b, dtype=ts.f32, target="x86_64", otherwise=greater_slow)

    @ts.kernel
    def k(x: ts.Tensor["m", 12, ts.f32], y: ts.Out["m", ts.f32], z: ts.Out["m", 12, ts.f32], s: ts.Out["m", ts.f32]):
        i = ts.tile.program_id(0)
        t = x[i, :]
        y[i] = ts.tile.reduce(t, greater)
        z[i, :] = ts.tile.associative_scan(t, greater)
        s[i] = ts.tile.sum(greater(t, ts.tile.fill(t, 0.0)))
        return y, z, s

    x = np.random.default_rng(SEED).standard_normal((7, 12)).astype(np.float32)
    y, z, s = k(x)
    assert (y == x.max(1)).all() and (z == np.maximum.accumulate(x, 1)).all()
    np.testing.assert_allclose(s, np.maximum(x, 0).sum(1), rtol=1e-5)


@x86
@pytest.mark.usefixtures("backend")
def test_texts_in_a_matmul_and_broadcasts():
    @ts.kernel
    def k(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["K", "N", ts.f32], bias: ts.Tensor["N", ts.f32], c: ts.Out["M", "N", ts.f32]):
        m, n = ts.tile.grid(ts.cdiv(M, 16), ts.cdiv(N, 16))
        acc = ts.tile.zeros((16, 16), ts.f32)
        for k0 in range(0, K, 16):
            acc = ts.tile.mma(a[m * 16 : m * 16 + 16, k0 : k0 + 16], b[k0 : k0 + 16, n * 16 : n * 16 + 16], accumulator=acc)
        row = bias[n * 16 : n * 16 + 16]
        c[m * 16 : m * 16 + 16, n * 16 : n * 16 + 16] = ts.target.asm("movaps $1, $0; addss $2, $0; addss $3, $0", acc, row[None, :], 1.0, dtype=ts.f32, target="x86_64", otherwise=summed)
        return c

    rng = np.random.default_rng(SEED)
    a, b, bias = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((20, 33), (33, 18), (18,)))
    assert (k(a, b, bias) == a @ b + bias + 1).all()


@ts.func
def summed(a, b, c):
    return a + b + c


def test_what_a_text_makes_of_padding_is_not_known():
    source = """
    @ts.func
    def f(x):
        return x

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out[1, ts.f32]):
        ts.tile.grid(1)
        y[0] = ts.tile.sum(ts.target.asm("neg.f32 $0, $1;", x[0:16], dtype=ts.f32, otherwise=f))
        return y
    """
    with pytest.raises(ts.TesseraError) as error:
        load(textwrap.dedent(source), "k")
    assert error.value.code == "E_RAGGED"


@x86
def test_empty_tiles_and_arrays(cpu):
    @ts.kernel
    def k(x: ts.Tensor["n", 0, ts.f32], z: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.program_id(0)
        t = ts.target.asm(DOUBLE, x[i, :], dtype=ts.f32, target="x86_64")
        ts.target.asm("pause # $0", x[i, :], target="x86_64", pure=False)
        y[i] = ts.tile.sum(t) + ts.target.asm(DOUBLE, z[i], dtype=ts.f32, target="x86_64")
        return y

    z = np.arange(5, dtype=np.float32)
    assert (k(np.zeros((5, 0), np.float32), z) == 2 * z).all()
    assert k(np.zeros((0, 0), np.float32), z[:0]).shape == (0,)


@x86
def test_long_texts_and_many_operands(cpu):
    MANY = "movaps $1, $0\n" + "addss $1, $0\n" * 3000
    LONG = MANY * 20

    @ts.kernel
    def many(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = ts.target.asm("# joined\n" + MANY, x[i], dtype="f32", target="x86_64")
        return y

    x = np.arange(5, dtype=np.float32)
    assert (many(x) == 3001 * x).all()
    with pytest.raises(ts.TesseraError, match="65536 bytes"):

        @ts.kernel
        def long(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
            i = ts.tile.linear_id()
            y[i] = ts.target.asm(LONG, x[i], dtype=ts.f32, target="x86_64")
            return y

    SUM = "xorq $0, $0" + "".join(f"; addq ${n}, $0" for n in range(1, 18))

    @ts.kernel
    def crowded(x: ts.Tensor["n", ts.i64], y: ts.Out["n", ts.i64]):
        i = ts.tile.linear_id()
        v = x[i]
        y[i] = ts.target.asm(SUM, v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7, v + 8, v + 9, v * 2, v * 3, v * 4, v * 5, v * 6, v * 7, v * 8, dtype=ts.i64, target="x86_64")
        return y

    # More values than the processor has registers.
    with pytest.raises(ts.ToolError, match="AT&T"):
        crowded(np.arange(4))


@x86
def test_pure_texts_without_use_are_removed(cpu):
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        ts.target.asm("ud2 # $0 $1", x[i], dtype=ts.f32, target="x86_64")
        y[i] = x[i]
        return y

    assert (k(np.ones(5, np.float32)) == 1).all()


@x86
def test_texts_are_passed_as_functions_and_into_the_library(cpu):
    @ts.func
    def relu_slow(v):
        return ts.tile.maximum(v, 0.0)

    @ts.func
    def relu(v):
        return ts.target.asm("xorps $0, $0; maxss $1, $0", v, dtype=ts.f32, target="x86_64", otherwise=relu_slow)

    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], f: ts.Fn, y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = f(x[i])
        return y

    x = np.random.default_rng(SEED).standard_normal(9).astype(np.float32)
    assert (k(x, relu) == np.maximum(x, 0)).all()
    a = np.random.default_rng(SEED).integers(-3, 4, (70, 50)).astype(np.float32)
    assert (ts.op.matmul(a, a.T, epilogue=relu) == np.maximum(a @ a.T, 0)).all()


# Transforms


@ts.func
def squared(x):
    return x * x


@ts.kernel
def squares(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.grid(ts.cdiv(n, 8)) * 8
    y[i : i + 8] = ts.target.asm("mul.f32 $0, $1, $1;", x[i : i + 8], dtype=ts.f32, otherwise=squared)
    return y


def test_derivatives_are_those_of_the_other_meaning(cpu):
    x = np.arange(11, dtype=np.float32)
    np.testing.assert_array_equal(ts.grad(lambda v: squares(v).sum())(x), 2 * x)
    primal, tangent = ts.jvp(squares, (x,), (np.ones_like(x),))
    assert (primal == x * x).all() and (tangent == 2 * x).all()
    assert (ts.jit(lambda v: squares(v) + 1)(x) == x * x + 1).all()
    rows = np.stack([x, x + 1])
    assert (ts.vmap(squares)(rows) == rows * rows).all()
    assert (ts.grad(lambda v: ts.grad(lambda w: squares(w).sum())(v).sum())(x) == 2).all()


def test_without_another_meaning_there_is_no_derivative(cpu):
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id()
        y[i] = ts.target.asm(DOUBLE, x[i], dtype=ts.f32, target="x86_64")
        return y

    with pytest.raises(ts.UnsupportedError, match="otherwise") as error:
        ts.grad(lambda v: k(v).sum())(np.ones(3, np.float32))
    assert "custom_vjp" in error.value.help


def test_kernels_with_texts_are_pickled_and_tuned(cpu):
    x = np.arange(11, dtype=np.float32)
    assert (pickle.loads(pickle.dumps(triple))(x) == 3 * x).all()

    @ts.kernel.autotune(space=dict(BLOCK=[8, 16]), key=["n"])
    def tuned(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        B = ts.tile.context().BLOCK
        i = ts.tile.grid(ts.cdiv(n, B)) * B
        y[i : i + B] = ts.target.asm("mul.f32 $0, $1, $1;", x[i : i + B], dtype=ts.f32, otherwise=squared)
        return y

    tuned.tune(x)
    assert (tuned(x) == x * x).all()


def test_the_text_is_in_the_hash():
    @ts.kernel
    def k(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], TEXT: str, PURE: bool):
        i = ts.tile.linear_id()
        y[i] = ts.target.asm(TEXT, x[i], dtype=ts.f32, otherwise=squared, pure=PURE)
        return y

    texts = ["mul.f32 $0, $1, $1;", "add.f32 $0, $1, $1;"]
    hashes = {ts.ir.parse(k.jit(TEXT=t, PURE=p, target="sm90").inspect_ir("tile")).hash() for t in texts for p in (True, False)}
    assert len(hashes) == 4


# PTX


def tools():
    folder = Path(sysconfig.get_path("purelib"), "nvidia", "cu13", "bin")
    found = Path(os.environ.get("TESSERA_PTXAS", folder / "ptxas"))
    return found if found.is_file() else None


def assembled(text, arch, tmp_path):
    """Runs NVIDIA's assembler where it is installed (`scripts/assemblers.sh`)."""
    ptxas = tools()
    if ptxas is None:
        if os.environ.get("TESSERA_NEED_TOOLS"):
            pytest.fail("ptxas is not installed: run scripts/assemblers.sh")
        return
    source = tmp_path / "k.ptx"
    source.write_text(text)
    done = subprocess.run([ptxas, f"-arch={arch}", "-o", tmp_path / "k.cubin", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr + text


#: Texts of several dtypes, by the dtype of value and result.
OF_DTYPES = [
    ("ts.i8", "add.s16 $0, $1, 1;", {}),
    ("ts.u8", "not.b16 $0, $1;", {}),
    ("ts.u8", "prmt.b32 $0, $1, 0, 0x0123;", {"pack": 4}),
    ("ts.i16", "neg.s16 $0, $1;", {}),
    ("ts.f16", "neg.f16 $0, $1;", {}),
    ("ts.f16", "mul.f16x2 $0, $1, $1;", {"pack": 2}),
    ("ts.bf16", "{ .reg .b16 t; neg.bf16 t, $1; mov.b16 $0, t; }", {}),
    ("ts.bf16", "neg.bf16x2 $0, $1;", {"pack": 2}),
    ("ts.f8_e4m3", "xor.b16 $0, $1, 128;", {}),
    ("ts.i32", "popc.b32 $0, $1;", {}),
    ("ts.u32", "{\n\t.reg .pred p;\nagain:\n\tsetp.eq.u32 p, $1, 0;\n\t@p bra done;\ndone:\n\tmov.b32 $0, $1;\n}", {}),
    ("ts.f32", "tanh.approx.f32 $0, $1; // \"odd\" { comment", {}),
    ("ts.f32", "{ add.f32 $0, $2, $3; mul.f32 $1, $2, $3; }", {"pack": 2}),
    ("ts.i64", "neg.s64 $0, $1;", {}),
    ("ts.f64", "sqrt.rn.f64 $0, $1;", {}),
    ("ts.bool", "not.pred $0, $1;", {}),
]


@pytest.mark.parametrize("target, arch", [("sm80", "sm_80"), ("sm90", "sm_90a"), ("sm100", "sm_100a")])
@pytest.mark.parametrize("style", ["group", "lane"])
def test_ptx_is_what_the_assembler_takes(target, arch, style, tmp_path):
    for number, (dtype, text, more) in enumerate(OF_DTYPES):
        options = "".join(f", {name}={value}" for name, value in more.items())
        start = "i = ts.tile.linear_id()" if style == "lane" else "i = ts.tile.grid(ts.cdiv(n, 97)) * 97"
        at = "i" if style == "lane" else "i:i + 97"
        for pure in ("True", "False"):
            if pure == "False" and more:
                continue
            source = f"""
            @ts.kernel
            def k{number}(x: ts.Tensor["n", {dtype}], y: ts.Tensor["n", {dtype}]):
                {start}
                y[{at}] = ts.target.asm(TEXT, x[{at}], dtype={dtype}, pure={pure}{options})
            """
            kernel = load(f"TEXT = {text!r}\n" + textwrap.dedent(source), f"k{number}")
            ptx = kernel.jit(target=target).inspect_ir("target")
            assert all(piece in ptx for piece in re.split(r"\$\d", text) if piece), ptx
            assembled(ptx, arch, tmp_path)


@pytest.mark.parametrize("target, arch", [("sm80", "sm_80"), ("sm90", "sm_90a")])
def test_ptx_of_scalars_effects_and_branches(target, arch, tmp_path):
    @ts.kernel
    def groups(x: ts.Tensor["n", ts.u32], y: ts.Out["n", ts.u32]):
        i = ts.tile.grid(ts.cdiv(n, 64)) * 64
        s = ts.target.asm("mov.u32 $0, %smid;", dtype=ts.u32, pure=False)
        ts.target.asm("nanosleep.u32 $0;", s, pure=False)
        t = x[i : i + 64]
        a, b = ts.target.asm("{ add.u32 $0, $2, $3; mul.lo.u32 $1, $2, $3; }", t, s, dtype=(ts.u32, ts.u32), pure=False)
        if i > 64:
            ts.target.asm("membar.gl;", pure=False)
        y[i : i + 64] = a + b + ts.target.asm("mov.u32 $0, %laneid;", dtype=ts.u32)
        return y

    @ts.kernel(lanes=64)
    def lanes(x: ts.Tensor["n", ts.u32], y: ts.Out["n", ts.u32]):
        i = ts.tile.linear_id()
        r = x[i]
        if r > 3:
            r, q = ts.target.asm("{ add.u32 $0, $2, 1; sub.u32 $1, $2, 1; }", r, dtype=(ts.u32, ts.u32), pure=False)
            if q > 9:
                ts.target.asm("nanosleep.u32 $0;", q, pure=False)
        y[i] = r + ts.target.asm("mov.u32 $0, %laneid;", dtype=ts.u32)
        return y

    for kernel in (groups, lanes):
        assembled(kernel.jit(target=target).inspect_ir("target"), arch, tmp_path)


def test_a_matmul_keeps_its_form_with_a_text_in_its_epilogue(tmp_path):
    @ts.func
    def relu_slow(x):
        return ts.tile.maximum(x, 0.0)

    def with_epilogue(TEXT):
        @ts.func
        def relu(x):
            return ts.target.asm(TEXT, x, dtype=ts.f32, otherwise=relu_slow) if TEXT != "" else relu_slow(x)

        @ts.kernel
        def k(a: ts.Tensor["M", "K", ts.bf16], b: ts.Tensor["K", "N", ts.bf16], c: ts.Tensor["M", "N", ts.bf16]):
            m, n = ts.tile.grid(ts.cdiv(M, 128), ts.cdiv(N, 128))
            acc = ts.tile.zeros((128, 128), ts.f32)
            for k0 in range(0, K, 64):
                acc = ts.tile.mma(a[m * 128 : m * 128 + 128, k0 : k0 + 64], b[k0 : k0 + 64, n * 128 : n * 128 + 128], accumulator=acc)
            c[m * 128 : m * 128 + 128, n * 128 : n * 128 + 128] = relu(acc)

        return k.jit(M=4096, N=4096, K=4096, target="sm90").inspect_ir("target")

    plain, text = with_epilogue(""), with_epilogue("max.f32 $0, $1, 0f00000000;")
    counted = [
        {name: len(re.findall(pattern, ptx)) for name, pattern in dict(wgmma=r"wgmma\.mma_async", tma=r"cp\.async\.bulk\.tensor", shared=r"st\.shared", shuffles=r"shfl").items()}
        for ptx in (plain, text)
    ]
    assert counted[0] == counted[1] and counted[0]["wgmma"] > 0
    assembled(text, "sm_90a", tmp_path)
