"""Shared buffers with stages, filled ahead of their reads: against NumPy, lifted where it can be shown, memory elsewhere."""

import random
import re

import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts

on_each = pytest.mark.usefixtures("backend")


def kernel(text):
    return load("@ts.kernel\n" + text)["k"]


def notes(k):
    return [str(note) for note in k.explain().notes if "N_BUFFER_IN_MEMORY" in str(note)]


PLAIN = """
def k(A: ts.Tensor["M", "K", ts.f16], B: ts.Tensor["K", "N", ts.f16], C: ts.Out["M", "N", ts.f32], BM: int = 64, BN: int = 64, BK: int = 64):
    m = ts.tile.program_id(0) * BM
    n = ts.tile.program_id(1) * BN
    acc = ts.tile.zeros((BM, BN))
    for t in range(0, K, BK):
        acc = ts.tile.mma(A[m:m + BM, t:t + BK], B[t:t + BK, n:n + BN], acc)
    C[m:m + BM, n:n + BN] = acc
    return C
"""
HEAD = PLAIN.partition("    acc")[0]
TAIL = "    C[m:m + BM, n:n + BN] = acc\n    return C\n"


def staged(loop, prologue, stages=3, head=HEAD):
    allocate = f"    sa = ts.tile.alloc_shared(({stages}, BM, BK), ts.f16)\n    sb = ts.tile.alloc_shared(({stages}, BK, BN), ts.f16)\n"
    lines = [*prologue.strip("\n").splitlines(), "acc = ts.tile.zeros((BM, BN))", *loop.strip("\n").splitlines()]
    return head + allocate + "".join(f"    {line}\n" for line in lines) + TAIL


def copies(stage, start):
    return (f"ts.tile.cp_async(sa[{stage}], A[m:m + BM, {start}:{start} + BK]); "
            f"ts.tile.cp_async(sb[{stage}], B[{start}:{start} + BK, n:n + BN])")  # fmt: skip


#: The ways people write it: a prologue, and a loop.
FORMS = {
    "position": (f"{copies(0, '0')}\n{copies(1, 'BK')}", f"""
for t in range(0, K, BK):
    i = t // BK
    {copies("(i + 2) % 3", "(t + 2 * BK)")}
    acc = ts.tile.mma(sa[i % 3], sb[i % 3], acc)
"""),
    "count": (f"for s in range(2):\n    {copies('s', '(s * BK)')}", f"""
for i in range(ts.cdiv(K, BK)):
    {copies("(i + 2) % 3", "((i + 2) * BK)")}
    acc = ts.tile.mma(sa[i % 3], sb[i % 3], acc)
"""),
    "read first": (f"for s in ts.static_range(3):\n    {copies('s', '(s * BK)')}", f"""
for i in range(ts.cdiv(K, BK)):
    acc = ts.tile.mma(sa[i % 3], sb[i % 3], acc)
    {copies("i % 3", "((i + 3) * BK)")}
"""),
    "carried": (f"{copies(0, '0')}\n{copies(1, 'BK')}\nread = 0\nwrite = 2", f"""
for t in range(0, K, BK):
    {copies("write", "(t + 2 * BK)")}
    acc = ts.tile.mma(sa[read], sb[read], acc)
    read = (read + 1) % 3
    write = (write + 1) % 3
"""),
    "one carried stage": (f"{copies(0, '0')}\n{copies(1, 'BK')}\nstage = 0", f"""
for t in range(0, K, BK):
    {copies("(stage + 2) % 3", "(t + 2 * BK)")}
    acc = ts.tile.mma(sa[stage], sb[stage], acc)
    stage = (stage + 1) % 3
"""),
    "carried and guarded": (f"{copies(0, '0')}\n{copies(1, 'BK')}\nstage = 0", f"""
for t in range(0, K, BK):
    acc = ts.tile.mma(sa[stage], sb[stage], acc)
    if t + 2 * BK < K:
        {copies("(stage - 1) % 3", "(t + 2 * BK)")}
    stage = (stage + 1) % 3
"""),
    "the next stage is named": (f"{copies(0, '0')}\nstage = 0", f"""
for t in range(0, K, BK):
    after = (stage + 1) % 3
    {copies("after", "(t + BK)")}
    acc = ts.tile.mma(sa[stage], sb[stage], acc)
    stage = after
"""),
    "a remainder of a remainder": (f"{copies(0, '0')}\n{copies(1, 'BK')}\nstage = 0", f"""
for t in range(0, K, BK):
    after = (stage + 1) % 3
    {copies("(after + 1) % 3", "(t + 2 * BK)")}
    acc = ts.tile.mma(sa[stage], sb[stage], acc)
    stage = after
"""),
    "guarded": (f"{copies(0, '0')}\nif BK < K:\n    {copies(1, 'BK')}", f"""
for t in range(0, K, BK):
    if t + 2 * BK < K:
        {copies("(t // BK + 2) % 3", "(t + 2 * BK)")}
    acc = ts.tile.mma(sa[t // BK % 3], sb[t // BK % 3], acc)
"""),
    "waits by count": (f"for s in range(2):\n    {copies('s', '(s * BK)')}\n    ts.tile.cp_commit_group()", f"""
for t in range(0, K, BK):
    ts.tile.cp_wait_group(1)
    ts.tile.barrier()
    if t + 2 * BK < K:
        {copies("(t // BK + 2) % 3", "(t + 2 * BK)")}
    ts.tile.cp_commit_group()
    acc = ts.tile.mma(sa[t // BK % 3], sb[t // BK % 3], acc)
"""),
}  # fmt: skip


def matrices(m, k, n, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n)))


@on_each
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("depth", [1, 64, 65, 128, 200, 576])
def test_a_product_by_hand(form, depth):
    prologue, loop = FORMS[form]
    k = kernel(staged(loop, prologue))
    a, b = matrices(70, depth, 33)
    np.testing.assert_array_equal(k(a, b), a.astype(np.float32) @ b.astype(np.float32))
    assert not notes(k)


@pytest.mark.parametrize("form", FORMS)
def test_its_code_is_that_of_the_loop_without_stages(form):
    prologue, loop = FORMS[form]

    def code(text):
        compiled = kernel(text).jit(target="sm_90a", BM=64, BN=64, BK=64)
        assert "mbarrier" in compiled.inspect_ir("target")
        lines = (re.sub(r"//.*", "", line).strip() for line in compiled.inspect_ir("target").splitlines())
        text = "\n".join(line for line in lines if line and not line.startswith((".file", ".loc", ".reg")))
        # Registers and labels are numbered in the order in which they appear.
        order = dict.fromkeys(re.findall(r"%[a-z]+\d+|\$L\d+", text))
        names = {name: f"{re.sub(r'[0-9]', '', name)}{i}" for i, name in enumerate(order)}
        return re.sub(r"%[a-z]+\d+|\$L\d+", lambda m: names[m[0]], text).splitlines()

    if "cdiv" in loop:
        plain = PLAIN.replace("range(0, K, BK)", "range(ts.cdiv(K, BK))").replace("t:t + BK", "t * BK:t * BK + BK")
    else:
        plain = PLAIN
    assert code(staged(loop, prologue)) == code(plain)


# What cannot be lifted stays memory, and means the same.

ROWS = """
def k(x: ts.Tensor["T", 16, ts.f32], z: ts.Tensor["T", 16, ts.f32], n: ts.i32, y: ts.Out["T", 16, ts.f32]):
    ts.tile.grid(1)
    s = ts.tile.alloc_shared((3, 16), ts.f32)
"""
KEPT = {
    "another tensor first": ("another block", "z", """
ts.tile.cp_async(s[0], z[0, :])
ts.tile.cp_async(s[1], x[1, :])
for t in range(T):
    ts.tile.cp_async(s[(t + 2) % 3], x[t + 2, :])
    y[t, :] = s[t % 3]
"""),
    "another row first": ("another block", "row 2", """
ts.tile.cp_async(s[0], x[2, :])
ts.tile.cp_async(s[1], x[1, :])
for t in range(T):
    ts.tile.cp_async(s[(t + 2) % 3], x[t + 2, :])
    y[t, :] = s[t % 3]
"""),
    "a stage of run time": ("does not follow", "x", """
ts.tile.cp_async(s[0], x[0, :])
ts.tile.cp_async(s[1], x[1, :])
for t in range(T):
    ts.tile.cp_async(s[(t + 2) % 3], x[t + 2, :])
    y[t, :] = s[(t + n) % 3]
"""),
    "stages by twos": ("do not go through|does not go through|follow", "x", """
ts.tile.cp_async(s[0], x[0, :])
for t in range(T):
    ts.tile.cp_async(s[t % 2], x[t, :])
    y[t, :] = s[t % 2]
"""),
    "two copies": ("more than once", "x", """
for t in range(T):
    ts.tile.cp_async(s[t % 3], z[t, :])
    ts.tile.cp_async(s[t % 3], x[t, :])
    y[t, :] = s[t % 3]
"""),
    "a condition that may fail": ("under a condition", "even", """
ts.tile.cp_async(s[0], z[0, :])
ts.tile.cp_async(s[1], z[0, :])
ts.tile.cp_async(s[2], z[0, :])
for t in range(T):
    if t + n < T:
        ts.tile.cp_async(s[t % 3], x[t, :])
    y[t, :] = s[t % 3]
"""),
    "a stage that is written": ("written, not copied", "x", """
for t in range(T):
    ts.tile.cp_async(s[t % 3], z[t, :])
    s[t % 3] = x[t, :]
    y[t, :] = s[t % 3]
"""),
    "the tensor is written": ("writes the tensor", "changed", """
ts.tile.cp_async(s[0], x[0, :])
for t in range(T):
    ts.tile.cp_async(s[(t + 1) % 3], x[t + 1, :])
    if t + 1 < T:
        x[t + 1, :] = s[t % 3] * 0.0
    y[t, :] = s[t % 3]
"""),
}  # fmt: skip


@on_each
@pytest.mark.parametrize("case", KEPT)
def test_what_stays_in_memory(case):
    why, want, body = KEPT[case]
    k = kernel(ROWS + "".join(f"    {line}\n" for line in [*body.strip().splitlines(), "return y"]))
    x, z = np.random.default_rng(0).standard_normal((2, 7, 16), np.float32)
    answer = x.copy()
    if want == "z":
        answer[0] = z[0]
    elif want == "row 2":
        answer[0] = x[2]
    elif want == "even":
        # Three rows from the end the stage still holds what came before.
        answer[4:] = x[1:4]
    got = k(x.copy(), z, 3 if want == "even" else 0)
    np.testing.assert_array_equal(got, answer)
    (note,) = notes(k)
    assert re.search(why, str(note)), note


MEMORY = """
def k(A: ts.Tensor[16, "K", ts.f32], B: ts.Tensor["K", 16, ts.f32], first: ts.i32, C: ts.Out[16, 16, ts.f32]):
    ts.tile.grid(1)
    sa = ts.tile.alloc_shared((2, 16, 16), ts.f32)
    sb = ts.tile.alloc_shared((2, 16, 16), ts.f32)
    ts.tile.cp_async(sa[first], A[:, 0:16])
    ts.tile.cp_async(sb[first], B[0:16, :])
    acc = ts.tile.zeros((16, 16))
    for t in range(ts.cdiv(K, 16)):
        at = (t + 1) * 16
        ts.tile.cp_async(sa[(t + 1 + first) % 2], A[:, at:at + 16])
        ts.tile.cp_async(sb[(t + 1 + first) % 2], B[at:at + 16, :])
        acc = ts.tile.mma(sa[(t + first) % 2], sb[(t + first) % 2], acc)
    C[...] = acc
    return C
"""


@on_each
@pytest.mark.parametrize("depth", [1, 16, 37, 100])
def test_a_ragged_product_of_stages_in_memory(depth):
    """What copies leave behind the end of a tensor are zeros, lifted or not."""
    k = kernel(MEMORY)
    a, b = (m.astype(np.float32) for m in matrices(16, depth, 16))
    np.testing.assert_array_equal(k(a, b, 0), a @ b)
    assert len(notes(k)) == 2


# Maxima of ragged stages: the mask ends where the tensor does.

MAXIMA = """
def k(x: ts.Tensor["N", ts.f32], v: ts.Out["cdiv(N, 16)", ts.f32], o: ts.Tensor[1, ts.i32]):
    ts.tile.grid(1)
    b = ts.tile.alloc_shared((2, 16), ts.f32)
    st = 0
    ts.tile.cp_async(b[0], x[0:16])
    for t in range(ts.cdiv(N, 16)):
        nx = (st + 1) % 2
        ts.tile.cp_async(b[nx], x[t * 16 + 16:t * 16 + 32])
        v[t] = ts.tile.max(READ)
        st = nx
    return v
"""


@on_each
@pytest.mark.parametrize("stage", ["st", "t % 2", "(t + o[0]) % 2"])
def test_the_bound_of_a_stage_counts_from_its_copy(stage):
    x, o = -np.ones(20, np.float32), np.zeros(1, np.int32)
    k = kernel(MAXIMA.replace("READ", f"ts.tile.bounds_mask(b[{stage}], cols=N - t * 16)"))
    assert k(x, o=o).tolist() == [-1, -1]
    for read in (f"b[{stage}]", f"ts.tile.bounds_mask(b[{stage}], cols=N)"):
        with pytest.raises(ts.TesseraError) as caught:
            kernel(MAXIMA.replace("READ", read))
        assert caught.value.code == "E_RAGGED"
        assert "`b =" not in caught.value.help
        wanted = "cols=N - start" if "o" in stage else "cols=N - t * 16"
        assert wanted in caught.value.help


@pytest.mark.parametrize("fault", ["one group too many", "no wait", "a commit under a condition"])
def test_a_read_that_nobody_waited_for(fault):
    """With a commit under a condition the last groups are missing, and the wait by count waits for too few."""
    prologue, loop = FORMS["waits by count"]
    if fault == "one group too many":
        loop = loop.replace("cp_wait_group(1)", "cp_wait_group(2)")
    elif fault == "no wait":
        loop = loop.replace("    ts.tile.cp_wait_group(1)\n", "")
    else:
        loop = loop.replace("    ts.tile.cp_commit_group()\n", "").replace("n:n + BN])", "n:n + BN]); ts.tile.cp_commit_group()")
    with pytest.raises(ts.TesseraError) as caught:
        kernel(staged(loop, prologue))(*matrices(64, 256, 64))
    assert caught.value.code == "E_UNWAITED"
    assert caught.value.help


@pytest.mark.parametrize("stage", [3, 7])
def test_a_stage_that_is_not_there(stage):
    with pytest.raises(ts.TesseraError) as caught:
        kernel(ROWS + f"    ts.tile.cp_async(s[{stage}], x[0, :])\n    y[0, :] = s[0]\n    return y\n")
    assert caught.value.code == "E_SHAPE_MISMATCH"
    assert caught.value.help


@pytest.mark.parametrize("mode", ["rne", "up", "down"])
def test_a_rounding_of_a_cast_to_an_integer(mode):
    """Such a cast truncates; the rounding was ignored."""
    with pytest.raises(ts.TesseraError) as caught:
        load(f'''
@ts.kernel
def k(x: ts.Tensor[4, ts.f32], y: ts.Out[4, ts.i32]):
    ts.tile.grid(1)
    y[:] = ts.tile.cast(x[:], ts.i32 @ ts.round("{mode}"))
    return y
''')["k"]
    assert caught.value.code == "E_TYPE"
    assert caught.value.help


# Random pipelines


def pipeline(seed):
    """A kernel that reads rows through stages, and the rows it reads, from its trip count."""
    r = random.Random(seed)
    stages = r.randint(2, 5)
    step = r.choice([1, 1, 2, 3])
    lo = r.choice([0, 0, 1, 4]) * step
    first = r.random() < 0.3  # reads come before the copy
    ahead = r.randint(1, stages) if first else r.randint(0, stages - 1)
    shift = r.randint(0, 2 * stages)
    offset = r.randint(0, 3)
    faulty = r.random() < 0.15
    rows = [f"x[(lo + {i} * {step}) * 2 + {offset}, :]" for i in range(ahead)]
    if faulty and rows:
        at = r.randrange(len(rows))
        rows[at] = f"x[{r.randint(0, 9)}, :]"
    body = [f"lo = {lo}"]
    fills = [f"ts.tile.cp_async(s[{(i + shift) % stages}], {row})" for i, row in enumerate(rows)]
    body += fills
    copy = f"ts.tile.cp_async(s[(t // {step} - {lo // step} + {ahead + shift}) % {stages}], x[(t + {ahead * step}) * 2 + {offset}, :])"
    if r.random() < 0.3:
        copy = f"if t + {ahead * step} < n: {copy}"
    read = f"y[t, :] = s[(t // {step} - {lo // step} + {shift}) % {stages}] + 1.0"
    body += [f"for t in range({lo}, n, {step}):", *(f"    {line}" for line in ([read, copy] if first else [copy, read]))]
    text = f"""
def k(x: ts.Tensor["T", 4, ts.f32], y: ts.Tensor["U", 4, ts.f32], n: ts.i32):
    ts.tile.grid(1)
    s = ts.tile.alloc_shared(({stages}, 4), ts.f32)
""" + "".join(f"    {line}\n" for line in body)

    def meaning(x, n):
        y = np.zeros((40, 4), np.float32)
        held = {}

        def row(i):
            return x[i] if 0 <= i < len(x) else np.zeros(4, np.float32)

        scope = {"lo": lo}
        for i, source in enumerate(rows):
            held[(i + shift) % stages] = row(eval(source[2:-4], scope))
        for t in range(lo, n, step):
            def fill():
                if "if t" not in copy or t + ahead * step < n:
                    held[(t // step - lo // step + ahead + shift) % stages] = row((t + ahead * step) * 2 + offset)
            if not first:
                fill()
            y[t] = held[(t // step - lo // step + shift) % stages] + 1
            if first:
                fill()
        return y

    return text, meaning, faulty and bool(rows)


@on_each
@pytest.mark.parametrize("seed", range(25))
def test_random_pipelines(seed):
    text, meaning, faulty = pipeline(seed)
    k = kernel(text)
    for n in (0, 1, 2, 7, 19):
        x = np.random.default_rng(n).standard_normal((30, 4), np.float32)
        y = np.zeros((40, 4), np.float32)
        k(x, y, n)
        np.testing.assert_array_equal(y, meaning(x, n), err_msg=text)
    if not faulty:
        assert not notes(k), f"{text}\n{notes(k)}"
