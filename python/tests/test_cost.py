"""What `.cost()` counts and `.explain()` shows of it, and threads."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

import tessera as ts
from kernels import attention, saxpy, shift


@ts.kernel
def product(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    m = ts.tile.program_id(0) * 32
    n = ts.tile.program_id(1) * 64
    acc = ts.tile.zeros((32, 64), ts.f32)
    for k in ts.tile.range(0, K, 16):
        acc = ts.tile.mma(A[m:m + 32, k:k + 16], B[k:k + 16, n:n + 64], accumulator=acc)
    C[m:m + 32, n:n + 64] = acc
    return C


def launched(m, n, k, run=product):
    run(np.ones((m, k), np.float32), np.ones((k, n), np.float32), np.zeros((m, n), np.float32))
    return product.cost()


def test_a_gemm_is_two_flops_for_each_product(backend):
    m, n, k = 96, 128, 48
    cost = launched(m, n, k)
    assert cost.flops == 2 * m * n * k and cost.exact and cost.tiles == (3, 2, 1)
    assert cost.bytes == 4 * (m * k + k * n + m * n)
    # Each of the two columns of tiles reads A, each of the three rows B.
    assert cost.traffic == 4 * (2 * m * k + 3 * k * n + m * n)
    assert cost.intensity == cost.flops / cost.bytes
    assert cost.seconds > 0
    assert cost.gflops == pytest.approx(cost.flops / cost.seconds / 1e9)
    assert cost.gbytes_per_s == pytest.approx(cost.bytes / cost.seconds / 1e9)
    assert "Gflop/s" in str(cost) and pickle.loads(pickle.dumps(cost)) == cost


def test_padding_is_work_and_no_bytes():
    cost = launched(33, 1, 1)
    assert cost.flops == 2 * 64 * 64 * 16 and cost.bytes == 4 * (33 + 1 + 33)


def test_work_is_counted_without_data():
    compiled = product.jit()
    cost = compiled.cost(M=64, N=64, K=1024)
    assert cost.flops == 2 * 64 * 64 * 1024 and cost.seconds is cost.gflops is cost.gbytes_per_s is None
    assert compiled.cost(M=32, N=64, K=0).flops == 0
    assert product.jit(K=160).cost(M=32, N=64).flops == 2 * 32 * 64 * 160
    launched(32, 64, 16, compiled)
    assert compiled.cost().flops == 2 * 32 * 64 * 16 and compiled.cost().seconds > 0


def test_sizes_that_do_not_fit_are_refused():
    compiled = product.jit(M=8)
    for sizes, message in (
        ({"N": 8}, "`K` has no value"),
        ({"Q": 8}, "one of K, M, N.* got `Q`"),
        ({"K": -1}, "at least 0 for `K`, got -1"),
        ({"K": 1.5}, "got 1.5"),
        ({"M": 9, "N": 8, "K": 8}, "M = 8, got 9"),
    ):
        with pytest.raises(ts.TesseraError, match=message):
            compiled.cost(**sizes)
    shift.cache_clear()
    with pytest.raises(ts.LaunchError, match="nothing was launched"):
        shift.cost()


def test_lanes_beyond_a_guard_do_nothing():
    x = np.ones(1001, np.float32)
    saxpy(x, x.copy(), 2.0)
    cost = saxpy.cost()
    assert (cost.flops, cost.bytes, cost.traffic, cost.exact) == (2 * 1001, 12 * 1001, 12 * 1001, True)
    shift(x, x.copy())
    assert shift.cost().traffic == 8 * 1000
    saxpy[10](x, x.copy(), 2.0)
    assert saxpy.cost().flops == 20


def test_blocks_above_the_diagonal_are_not_counted():
    compiled = {causal: attention.jit(D=64, is_causal=causal).cost(BH=2, S=640) for causal in (True, False)}
    assert all(cost.exact for cost in compiled.values())
    # Ten blocks of queries see 1 to 10 blocks of keys, or all ten; the rest is one division for each element.
    rest = 2 * 640 * 64
    assert (compiled[True].flops - rest) * 100 == (compiled[False].flops - rest) * 55


def test_loops_that_depend_on_data_make_an_estimate():
    @ts.kernel
    def powers(x: ts.Tensor["n", ts.f32], counts: ts.Tensor["n", ts.i32]):
        i = ts.tile.linear_id()
        for _ in ts.tile.range(0, counts[i], 1):
            x[i] = x[i] * 2.0

    powers(np.ones(8, np.float32), np.full(8, 3, np.int32))
    cost = powers.cost()
    assert not cost.exact and cost.flops == 8 and str(cost).startswith("about 8 flops")


def test_explain_shows_the_work_and_the_code():
    launched(96, 128, 48)
    explained = product.explain()
    cost = product.cost()
    assert (explained.flops, explained.bytes, explained.traffic) == (cost.flops, cost.bytes, cost.traffic)
    assert f"work: {cost.flops} flops, {cost.bytes} bytes ({cost.traffic} as written)" in explained
    assert {"isa", "vector_bits", "threads", "from_disk_cache", "llvm_instructions"} <= explained.resources.keys()
    assert "compile for cpu" in explained.times and "launch" in explained.times
    product.jit()
    assert product.explain().flops is None


@pytest.fixture
def threads():
    before = ts.runtime.threads()
    yield
    ts.runtime.set_threads(before)


def test_threads_are_reported_and_set(threads, monkeypatch):
    for n in (1, 3):
        ts.runtime.set_threads(n)
        assert ts.runtime.threads() == n
        launched(256, 256, 128)
        assert product.explain().resources["threads"] == str(n)
    # A launch that is over before another thread has woken has only one.
    launched(16, 16, 16)
    assert product.explain().resources["threads"] == "1"
    # The environment has its say at the start only.
    monkeypatch.setenv("TESSERA_THREADS", "7")
    assert ts.runtime.threads() == 3
    ts.runtime.set_threads(None)
    assert ts.runtime.threads() >= 1
    for bad in (0, -1, 5000):
        with pytest.raises(ts.LaunchError, match=f"1 to 1024 threads, got {bad}"):
            ts.runtime.set_threads(bad)


def test_the_environment_says_how_many_threads_there_are_at_first(monkeypatch):
    code = "import tessera as ts; print(ts.runtime.threads()); ts.runtime.set_threads(2); print(ts.runtime.threads())"
    monkeypatch.setenv("TESSERA_THREADS", "5")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert out.stdout == "5\n2\n", out.stderr
