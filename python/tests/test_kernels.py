"""Kernels end to end: the canonical programs, specialisation, inspection."""

import math
import os
import pickle
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import tessera as ts
from kernels import attention, gemm, saxpy

BF16 = ml_dtypes.bfloat16


def normal(seed, *shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("n", [0, 1, 31, 1000, 4097])
def test_saxpy_updates_in_place_and_returns_the_array(n, backend):
    x, y = normal(0, n), normal(1, n)
    expected = np.float32(1.5) * x + y
    assert saxpy(x, y, 1.5) is y
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("m, n, k", [(64, 64, 32), (100, 70, 50), (1, 1, 1), (257, 129, 65), (0, 5, 3), (5, 3, 0)])
def test_the_printed_gemm_adds_the_product(m, n, k, backend):
    a, b, c = normal(0, m, k, dtype=BF16), normal(1, k, n, dtype=BF16), normal(2, m, n)
    product = a.astype("f8") @ b.astype("f8")
    expected = c + product
    bound = (k + 2) * 2.0**-24 * (abs(a.astype("f8")) @ abs(b.astype("f8")) + abs(c))
    gemm(a, b, c)
    assert (abs(c - expected) <= bound + 2.0**-24 * abs(expected)).all()


def test_accumulation_is_in_fp32(backend):
    ones = np.ones((1, 2**20), BF16)
    c = np.zeros((1, 1), np.float32)
    assert gemm(ones, ones.T, c)[0, 0] == 2**20


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("s", [1, 63, 64, 65, 200])
def test_attention_is_near_float64(s, causal, backend):
    q, k, v = (normal(i, 2, s, 32, dtype=BF16) for i in range(3))
    o = np.zeros_like(q)
    attention(q, k, v, o, causal)
    q, k, v = (a.astype("f8") for a in (q, k, v))
    scores = q @ k.transpose(0, 2, 1) / math.sqrt(32)
    if causal:
        scores = np.where(np.tril(np.ones((s, s), bool)), scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    assert abs(o.astype("f8") - p / p.sum(-1, keepdims=True) @ v).max() < 2e-2


def strict_bits(kernel, *args):
    """What a kernel writes into its arguments in the profile `strict`."""
    args = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with ts.numerics.profile("strict"):
        kernel(*args)
    return [a.tobytes() for a in args if isinstance(a, np.ndarray)]


@pytest.mark.parametrize("args", [
    (saxpy, normal(0, 1001), normal(1, 1001), 1.5),
    (gemm, normal(0, 70, 45, dtype=BF16), normal(1, 45, 100, dtype=BF16), normal(2, 70, 100)),
    (attention, *(normal(i, 2, 100, 32, dtype=BF16) for i in range(3)), np.zeros((2, 100, 32), BF16)),
], ids=lambda args: args[0].name)  # fmt: skip
def test_strict_results_have_the_same_bits_on_both_backends(args, monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", "interp")
    expected = strict_bits(*args)
    monkeypatch.setenv("TESSERA_BACKEND", "cpu")
    assert strict_bits(*args) == expected
    assert args[0].explain().backend == "cpu"


@pytest.mark.parametrize("kernel", [saxpy, gemm, attention], ids=lambda k: k.name)
def test_every_level_is_text_that_reads_back(kernel):
    compiled = kernel.jit(**({"D": 64} if kernel is attention else {}))
    interpreted = kernel.jit(target="interp", **({"D": 64} if kernel is attention else {}))
    for level in ("graph", "schedule", "sched", "tile", "target"):
        # The target of the CPU is LLVM IR.
        text = (interpreted if level == "target" else compiled).inspect_ir(level)
        module = ts.ir.parse(text)
        module.verify()
        assert str(module) == text and module.name == kernel.name
    assert "define" in compiled.inspect_ir("target")
    for level in ("graph", "schedule", "tile"):
        text = ts.inspect_ir(kernel, level=level)
        assert str(ts.ir.parse(text)) == text
    assert "loc(" in compiled.inspect_ir("tile", locs=True)


def test_unknown_levels_list_the_known_ones():
    with pytest.raises(ValueError, match="graph, schedule, tile, target"):
        saxpy.inspect_ir("llvm")
    with pytest.raises(ts.UnsupportedError) as e:
        saxpy.inspect_ir("staged")
    assert e.value.code == "E_UNSUPPORTED"


def test_hashes_are_the_same_in_every_process():
    script = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import tessera as ts, kernels\n"
        "import hashlib\n"
        "for k, dims in (kernels.saxpy, {}), (kernels.gemm, {}), (kernels.attention, {'D': 64}):\n"
        "    c, i = k.jit(**dims), k.jit(target='interp', **dims)\n"
        "    print(*(ts.ir.parse(c.inspect_ir(l)).hash() for l in ('graph', 'schedule', 'tile')))\n"
        "    print(ts.ir.parse(i.inspect_ir('target')).hash())\n"
        "    print(c.explain().target_hash, hashlib.sha1(c.inspect_ir('target').encode()).hexdigest())\n"
    )
    paths = [os.path.dirname(__file__), os.path.dirname(os.path.dirname(ts.__file__))]
    runs = [
        subprocess.run(
            [sys.executable, "-c", script, *paths],
            capture_output=True, text=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1] and len(runs[0].split()) == 18


def test_jit_needs_the_dims_of_tile_shapes_and_pins_the_rest():
    with pytest.raises(ts.ShapeError, match="`D`") as e:
        attention.jit(S=128)
    assert e.value.code == "E_SPECIALIZE"
    with pytest.raises(ts.LaunchError, match="one of .*BLOCK_M.*got `BLOCK_Q`"):
        attention.jit(D=64, BLOCK_Q=1)
    compiled = gemm.jit(M=8)
    assert compiled.config == {"M": 8}
    a, b = np.ones((8, 4), BF16), np.ones((4, 3), BF16)
    assert (compiled(a, b, np.zeros((8, 3), np.float32)) == 4).all()
    with pytest.raises(ts.ShapeError, match="M = 8, got 7"):
        compiled(a[:7], b, np.zeros((7, 3), np.float32))


def test_compiled_constants_need_no_repeating():
    compiled = attention.jit(D=16, is_causal=False, BLOCK_M=128)
    assert compiled.config["BLOCK_M"] == 128 and compiled.config["is_causal"] is False
    q = normal(0, 1, 5, 16, dtype=BF16)
    o = compiled(q, q, q, np.zeros_like(q))
    assert (o == attention(q, q, q, np.zeros_like(q), is_causal=False)).all()
    with pytest.raises(ts.ShapeError, match="is_causal"):
        compiled(q, q, q, o, is_causal=True)


def test_explain_tells_what_ran():
    saxpy.cache_clear()
    assert "nothing was compiled" in saxpy.explain()
    x = np.ones(10, np.float32)
    saxpy(x, x.copy(), 1)
    first = saxpy.explain()
    assert (first.backend, first.lanes, first.cache_hit) == ("cpu", (10, 256), False)
    assert "launch" in first.times and first.tile_hash in first
    assert pickle.loads(pickle.dumps(first)).fields == first.fields
    saxpy[4](x, x.copy(), 1)
    second = saxpy.explain()
    # What is known of the kernel's own grid does not hold for the caller's.
    assert not second.cache_hit and second.lanes == (4, 256) and "from the caller" in second
    saxpy[7](x, x.copy(), 1)
    assert saxpy.explain().cache_hit
    gemm(np.ones((1, 1), BF16), np.ones((1, 1), BF16), np.zeros((1, 1), np.float32))
    assert "N_IMPLICIT_TILE" in gemm.explain() and gemm.explain().grid == (1, 1, 1)


def test_a_grid_of_the_caller_wins():
    y = np.zeros(8, np.float32)
    saxpy[3](np.ones(8, np.float32), y, 1)
    assert y.tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    saxpy.launch(np.ones(8, np.float32), y, 1, grid=0)
    assert y.sum() == 3


def test_an_output_may_be_left_out():
    @ts.kernel
    def outer(a: ts.Tensor["M", ts.f32], b: ts.Tensor["N", ts.f32], o: ts.Out["M", "N", ts.bf16]):
        i, j = ts.tile.grid(M, N)
        o[i, j] = a[i] * b[j]
        return o

    a, b = normal(0, 3), normal(1, 5)
    o = outer(a, b)
    assert o.dtype == BF16 and (o == np.outer(a, b).astype(BF16)).all()
    given = np.zeros((3, 5), BF16)
    assert outer(a, b, given) is given and outer(a, b, o=given) is given


def test_arrays_without_a_shape_or_dtype_take_any():
    @ts.kernel
    def negate(x):
        i = ts.tile.linear_id()
        if i < x.shape[0]:
            x[i] = -x[i]
        return x

    @ts.kernel
    def first_row(x: ts.Tensor["?", "N"], y: ts.Tensor["N"]):
        i = ts.tile.linear_id()
        if i < N:
            y[i] = x[0, i]
        return y

    assert negate(np.arange(3)).tolist() == [0, -1, -2]
    assert negate(np.arange(3, dtype=np.float16)).tolist() == [0, -1, -2]
    for dtype in ("f4", "i8"):
        assert first_row(np.arange(6, dtype=dtype).reshape(2, 3), np.zeros(3, dtype)).tolist() == [0, 1, 2]


def test_product_dims_bind_only_the_product():
    @ts.kernel
    def k(x: ts.Tensor["B*H", ts.f32], y: ts.Tensor["B", ts.f32], z: ts.Tensor["H", ts.f32]):
        i = ts.tile.linear_id()
        if i < B:
            y[i] = x[i]

    k(np.ones(6, np.float32), np.zeros(2, np.float32), np.zeros(3, np.float32))
    with pytest.raises(ts.LaunchError, match=r"`B\*H` to be 6"):
        k(np.ones(7, np.float32), np.zeros(2, np.float32), np.zeros(3, np.float32))


def test_constraints_hold_for_every_call():
    @ts.kernel(require=[ts.constraint.Divisible("n", 4), ts.constraint.Range("n", 1, 64)])
    def a(x: ts.Tensor["n", ts.f32]):
        x[ts.tile.linear_id()] = 1.0

    @ts.kernel
    def b(x: ts.Tensor["n", ts.f32], y: ts.Tensor["m", ts.f32]):
        """Doc."""
        ts.require(ts.constraint.Derived("n", "2*m"),
                   ts.constraint.Equal("m", 2))
        x[ts.tile.linear_id()] = 1.0

    a(np.zeros(8, np.float32))
    for n in (6, 128):
        with pytest.raises(ts.ShapeError) as e:
            a(np.zeros(n, np.float32))
        assert e.value.code == "E_SPECIALIZE"
    with pytest.raises(ts.ShapeError, match="multiple of 4, got n = 5"):
        a.jit(n=5)
    b[4](np.zeros(4, np.float32), np.zeros(2, np.float32))
    with pytest.raises(ts.ShapeError, match=r"`2\*m`"):
        b[4](np.zeros(5, np.float32), np.zeros(2, np.float32))


def test_the_first_legal_candidate_runs():
    @ts.kernel.autotune(configs=[{"B": 3}, {"B": 4}])
    def k(x: ts.Tensor["n", ts.f32]):
        t = ts.tile.context()
        i = ts.tile.program_id(0) * t.B
        x[i:i + t.B] = ts.tile.full((t.B,), 1.0, ts.f32) + ts.tile.zeros((4,), ts.f32)

    k.jit()
    assert k.explain().config == {"B": 4} and "B=3" in k.explain().rejected[0]


def test_tuning_spaces_are_checked():
    with pytest.raises(ts.LaunchError, match="space="):
        ts.kernel.autotune(space={"B": [1]}, configs=[{"B": 1}])
    for odd in ({"B": 3}, [1, 2], {"B": "64"}):
        with pytest.raises(ts.LaunchError, match="list of values"):
            ts.kernel.autotune(space=odd)
    with pytest.raises(ts.LaunchError) as e:
        ts.kernel.autotune(space={"B": []})
    assert e.value.code == "E_TUNE_SPACE_EMPTY"


def test_bench_times_calls():
    x = np.ones(4, np.float32)
    assert ts.bench(saxpy, x, x.copy(), 1.0, repeat=3).median > 0


@pytest.mark.parametrize("name", ["bool", "i8", "u16", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp6", "fp4", "int4"])
def test_small_dtypes_pass_through_a_kernel(name, backend):
    @ts.kernel
    def copy(x: ts.Tensor["n"], y: ts.Tensor["n"]):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = x[i]
        return y

    x = ts.array([0, 1, 1, 0], name)
    assert (copy(x, ts.zeros(4, name)) == x).all()


@pytest.mark.parametrize("text, code, message", [
    ("ts.constraint.Range('b', 1, TOO_MANY)", "E_NAME", "name 'TOO_MANY' is not defined"),
    ("ts.constraint.Range('b', 1, 2)()", "E_TYPE", "'Range' object is not callable"),
    ("1 / 0", "E_TYPE", "division by zero"),
])  # fmt: skip
def test_a_constraint_that_python_refuses_is_an_error_of_ours(text, code, message):
    source = f"def k(x: ts.Tensor['b', ts.f32]):\n    ts.require({text})\n    x[0] = 1.0\n"
    names = {"ts": ts}
    exec(source, names)
    with pytest.raises(ts.TesseraError, match=re.escape(message)) as e:
        ts.kernel(source=source)(names["k"])
    assert e.value.code == code and e.value.line == 2 and e.value.help
