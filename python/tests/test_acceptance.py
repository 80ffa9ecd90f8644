"""The claims of the overview: what it prints runs, is right at ragged sizes, or is refused with a useful error."""

import linecache
import math
import subprocess
import sys

import numpy as np
import pytest

import tessera as ts
from doc_blocks import ROOT
from kernels import attention
from printed_examples import ATTENTION, GEMM, SAXPY

pytestmark = pytest.mark.usefixtures("backend")  # once on each


def define(text, name):
    """Runs printed source, as a file would be run, and gives the kernel that it defines."""
    file = f"<printed {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace = {"__name__": "printed", "ts": ts, "math": math}
    exec(compile(text, file, "exec"), namespace)
    return namespace[name]


@pytest.fixture(scope="module")
def saxpy():
    return define(SAXPY, "saxpy")


@pytest.fixture(scope="module")
def gemm():
    return define(GEMM, "gemm")


@pytest.mark.parametrize("n", [1, 31, 1000, 4097])
def test_the_first_printed_example_runs_unchanged(saxpy, n):
    x, y = np.random.default_rng(n).integers(-100, 100, (2, n)).astype(np.float32)
    expected = 3 * x + y
    assert saxpy(x, y, 3.0) is y
    assert (y == expected).all()


SIZES = [(64, 64, 32), (100, 70, 50), (1, 1, 1), (257, 129, 65)]


@pytest.mark.parametrize("m, n, k", SIZES)
def test_the_second_printed_example_is_exact_on_small_integers(gemm, m, n, k):
    rng = np.random.default_rng(k)
    a, b, c = rng.integers(-8, 9, (m, k)), rng.integers(-8, 9, (k, n)), rng.integers(-8, 9, (m, n))
    result = ts.array(c, "f32")
    gemm(ts.array(a, "bf16"), ts.array(b, "bf16"), result)
    assert (result == c + a @ b).all()


@pytest.mark.parametrize("m, n, k", SIZES)
def test_the_second_printed_example_is_within_the_bound_of_f32(gemm, m, n, k):
    rng = np.random.default_rng(k)
    a, b = ts.array(rng.standard_normal((m, k)), "bf16"), ts.array(rng.standard_normal((k, n)), "bf16")
    c = ts.array(rng.standard_normal((m, n)), "f32")
    wide_a, wide_b, wide_c = (x.astype(np.float64) for x in (a, b, c))
    gemm(a, b, c)
    bound = (k + 2) * 2.0**-24 * (abs(wide_a) @ abs(wide_b) + abs(wide_c))
    assert (abs(c - (wide_c + wide_a @ wide_b)) <= bound).all()


def place(text, marker, within):
    """Line and column, from 1, of ``within`` in the line of printed source that holds ``marker``."""
    line = next(i for i, row in enumerate(text.splitlines(), 1) if marker in row)
    return line, text.splitlines()[line - 1].index(within) + 1


def test_the_fourth_printed_example_is_refused_at_every_fault():
    with pytest.raises(ts.ShapeError) as refused:
        define(ATTENTION, "flash_attention")
    found = {(d.code, d.line, d.column) for d in refused.value.diagnostics if d.code.startswith("E_")}

    def at(code, marker, within):
        return code, *place(ATTENTION, marker, within)

    assert found == {
        at("E_SHAPE_MISMATCH", "cp_async(smem_q", "Q[q_block"),
        at("E_SHAPE_MISMATCH", "cp_async(smem_k", "K[kv_block"),
        at("E_SHAPE_MISMATCH", "cp_async(smem_v", "V[kv_block"),
        at("E_RAGGED", "m_new = ts.tile.row_max", "ts.tile.row_max"),
        at("E_SHAPE_MISMATCH", "p = ts.tile.exp", "scores - m_i_new"),
        at("E_SHAPE_MISMATCH", "acc = alpha * acc", "alpha * acc"),
        at("E_TYPE", "acc = alpha * acc", "ts.tile.mma(p"),
        at("E_GRAPH_INVALID", "return ts.tile.cast", "ts.tile.cast"),
    }
    text = str(refused.value)
    for help in ("Q[bh, q_block:q_block+BM, :]", "m_i_new[:, None]", "alpha[:, None]", "ts.tile.cast(p, ts.bf16)"):
        assert help in text


@pytest.mark.parametrize("causal", [True, False])
def test_the_corrected_attention_at_a_long_sequence(causal):
    """The shorter lengths are in `test_kernels.py`."""
    rng = np.random.default_rng(0)
    q, k, v = (ts.array(rng.standard_normal((2, 1024, 64)), "bf16") for _ in range(3))
    o = np.zeros_like(q)
    attention(q, k, v, o, causal)
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(64)
    if causal:
        scores = np.where(np.tri(1024, dtype=bool), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    assert abs(o.astype(np.float64) - p / p.sum(-1, keepdims=True) @ v).max() < 2e-2


def test_the_line_that_verifies_an_installation_needs_no_gpu():
    script = "import tessera; print(tessera.__version__)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT / "python")
    assert (done.returncode, done.stdout.strip()) == (0, ts.__version__), done.stderr


def test_a_captured_function_gives_equal_results_when_it_is_called_again():
    """Line 5 on the host, where launches are recorded and done again; on a device `cuda_cases.py` counts graph launches."""

    def step(x, w):
        return ts.nn.gelu(x @ w) + x

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 7)), rng.standard_normal((7, 7))
    captured = ts.jit(step, capture_graph=True)
    want = ts.jit(step)(x, w)
    for _ in range(3):
        assert captured(x, w).tobytes() == want.tobytes()
    other = rng.standard_normal((5, 7))
    assert captured(other, w).tobytes() == ts.jit(step)(other, w).tobytes(), "new arrays, not the recorded ones"
    assert captured.retraces == []


def test_the_derivative_that_is_printed():
    """Line 24: the value and the derivative of `x*x + 2x` at 3."""
    y, pull = ts.vjp(lambda x: x * x + 2 * x, 3.0)
    assert (float(y), float(pull(1.0)[0])) == (15.0, 8.0)
