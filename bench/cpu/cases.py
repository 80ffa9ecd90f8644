"""The problems of the comparison, and the libraries that solve them."""

import math
from dataclasses import dataclass

import numpy as np

import tessera as ts
from bench import kernels_cpu as kernels
from tessera.kernels import attention as library_attention

from . import arrays, peer_mkl, peer_numpy
from .case import Case, Contender, Must, Peer, Problem

ALPHA = 1.5
#: Half a unit in the last place of f32, relative.
ROUNDING = 2.0**-24


@dataclass(frozen=True)
class Sizes:
    gemm: tuple
    elements: int
    rows: tuple
    attention: tuple
    large_gemm: int
    compile_gemm: int
    growth_saxpy: tuple
    growth_gemm: tuple


FULL = Sizes(
    gemm=((512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (1000, 1000, 1000), (4096, 4096, 64)),
    elements=64 * 2**20,
    rows=((32 * 1024, 1024), (1024, 32 * 1024)),
    attention=(8, 1024, 64),
    large_gemm=2048,
    compile_gemm=256,
    growth_saxpy=tuple(2**e for e in range(10, 29)),
    growth_gemm=(64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096),
)
#: For a trial of the benchmark itself: its figures mean nothing.
QUICK = Sizes(
    gemm=((64, 64, 64), (50, 50, 50), (256, 256, 16)),
    elements=2**14,
    rows=((64, 128), (4, 2000)),
    attention=(2, 160, 64),
    large_gemm=128,
    compile_gemm=64,
    growth_saxpy=(2**10, 2**12),
    growth_gemm=(64, 96),
)


def xla():
    """Loaded when the first case wants it: processes that time only Tessera do without."""
    from . import peer_xla

    return peer_xla


def ours(kernel, inputs, out, work, **constants):
    memory = sum(x.nbytes for x in (*inputs, out))
    return Contender(lambda: kernel(*inputs, out, **constants), lambda: out, work, memory)


class Given:
    """An operation that gives a new array with each call."""

    def __init__(self, call, work, memory):
        self.call, self.work, self.memory, self.out = call, work, memory, None

    def __call__(self):
        self.out = self.call()

    def contender(self):
        return Contender(self, lambda: self.out, self.work, self.memory)


def binary_size(n):
    """`64 Mi` for 2**26."""
    for unit, size in (("Mi", 2**20), ("Ki", 2**10)):
        if n >= size and n % size == 0:
            return f"{n // size} {unit}"
    return str(n)


def gemm(m, n, k, dtype):
    bf16 = dtype == arrays.BF16
    kernel = kernels.gemm_bf16 if bf16 else kernels.gemm_f32
    work = 2.0 * m * n * k
    # What MKL's two rows and XLA's must show; both of XLA's forms stand for "its better form".
    mkl_must, xla_must = (Must(1.1), Must(1.0)) if bf16 else (Must(0.97), None)

    def build():
        a, b = arrays.random((m, k), dtype, 1), arrays.random((k, n), dtype, 2)

        def expected(part):
            left, right = a[part].astype(np.float64), b.astype(np.float64)
            # The error bound of f32 accumulation in any order.
            return left @ right, (k + 2) * ROUNDING * (np.abs(left) @ np.abs(right)) + 1e-30

        peers = [Peer("MKL", lambda: peer_mkl.gemm(a, b, work), mkl_must)]
        if bf16:
            peers.append(Peer("XLA, f32 result", lambda: xla().gemm(a, b, work, np.float32), xla_must))
            peers.append(Peer("XLA, bf16 result", lambda: xla().gemm(a, b, work), xla_must))
        return Problem(ours(kernel, (a, b), arrays.zeros((m, n)), work), kernel, peers, m, expected)

    shape = f"{m}" if m == n == k else f"{m}x{n}x{k}"
    return Case(f"{'bf16' if bf16 else 'f32'} gemm {shape}", "GFLOP/s", build)


def saxpy(n, given=None):
    """`given` holds x, y and the array for the result, where several cases share them."""
    work = 12.0 * n  # x and y are read, y is written

    def build():
        x, y, out = given or (arrays.random(n, seed=1), arrays.random(n, seed=2), arrays.zeros(n))

        def expected(part):
            left, right = x[part].astype(np.float64), y[part].astype(np.float64)
            return ALPHA * left + right, 4 * ROUNDING * (np.abs(ALPHA * left) + np.abs(right)) + 1e-30

        contender = Contender(
            lambda: kernels.saxpy(x, out, ALPHA), lambda: out, work, 2 * x.nbytes, lambda: np.copyto(out, y)
        )  # fmt: skip
        peers = [
            Peer("copy", lambda: peer_numpy.copy(x), Must(0.9)),
            Peer("NumPy", lambda: peer_numpy.saxpy(ALPHA, x, y, work)),
            Peer("XLA", lambda: xla().saxpy(ALPHA, x, y, work)),
        ]
        return Problem(contender, kernels.saxpy, peers, n, expected)

    return Case(f"saxpy {binary_size(n)}", "GB/s", build)


def gelu(n, kernel, style):
    work = 12.0 * n

    def build():
        x, w = arrays.random(n, seed=1), arrays.random(n, seed=2)

        def expected(part):
            left = x[part].astype(np.float64)
            t = left + w[part].astype(np.float64)
            inner = math.sqrt(2 / math.pi) * (t + 0.044715 * t**3)
            # Near tanh = -1 the sum with 1 cancels: the error is absolute, not relative to the result.
            return 0.5 * t * (1 + np.tanh(inner)) * left, 1e-6 * (1 + np.abs(t * left))

        peers = [
            Peer("copy", lambda: peer_numpy.copy(x), Must(0.9)),
            Peer("NumPy", lambda: peer_numpy.gelu(x, w, work), Must(3)),
            Peer("XLA", lambda: xla().contender(xla().GELU, (x, w), work), Must(1.2)),
        ]
        return Problem(ours(kernel, (x, w), arrays.zeros(n), work), kernel, peers, n, expected)

    return Case(f"gelu(x+w)*x {binary_size(n)}, {style}", "GB/s", build)


def rows_case(name, m, n, kernel, weights, exact, in_numpy, forms):
    """A function of each row of an m x n array, with that many weight vectors."""
    work = 8.0 * m * n

    def build():
        inputs = [arrays.random((m, n), seed=1), *(arrays.random(n, seed=2 + i) for i in range(weights))]

        def expected(part):
            values = exact(*(x.astype(np.float64) for x in (inputs[0][part], *inputs[1:])))
            return values, 1e-5 * np.abs(values) + (1e-5 if weights else 0.0)

        peers = [
            Peer("XLA", lambda: xla().contender(getattr(xla(), forms), inputs, work), Must(2)),
            Peer("NumPy", lambda: peer_numpy.contender(in_numpy, inputs, (m, n), work), Must(5)),
        ]
        return Problem(ours(kernel, inputs, arrays.zeros((m, n)), work), kernel, peers, m, expected)

    return Case(f"{name} rows of {n}", "GB/s", build)


def softmax(m, n):
    def exact(x):
        weights = np.exp(x - x.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    return rows_case("softmax", m, n, kernels.softmax, 0, exact, peer_numpy.softmax, "SOFTMAX")


def layernorm(m, n):
    def exact(x, scale, shift):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + kernels.LAYERNORM_EPS) * scale + shift

    return rows_case("layernorm", m, n, kernels.layernorm, 2, exact, peer_numpy.layernorm, "LAYERNORM")


def rmsnorm(m, n):
    def exact(x, scale):
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + kernels.RMSNORM_EPS) * scale

    return rows_case("rmsnorm", m, n, kernels.rmsnorm, 1, exact, peer_numpy.rmsnorm, "RMSNORM")


def attention(heads, length, depth, is_causal, library=False):
    """With ``library`` it is `ts.op.flash_attention`, whose kernel has every option, and a new result with each call."""
    pairs = length * (length + 1) / 2 if is_causal else length * length
    work = 4.0 * heads * pairs * depth

    def build():
        q, k, v = (arrays.random((heads, length, depth), seed=1 + i) for i in range(3))

        def expected(part):
            left, keys, values = (x[part].astype(np.float64) for x in (q, k, v))
            s = left @ keys.transpose(0, 2, 1) / math.sqrt(depth)
            if is_causal:
                s = np.where(np.tri(length, dtype=bool), s, -np.inf)
            weights = np.exp(s - s.max(-1, keepdims=True))
            return weights / weights.sum(-1, keepdims=True) @ values, 1e-5

        peers = [Peer("XLA", lambda: xla().attention(q, k, v, is_causal, work), Must(1.5))]
        if library:
            contender = Given(lambda: ts.op.flash_attention(q, k, v, is_causal), work, 4 * q.nbytes)
            return Problem(contender.contender(), library_attention.forward, peers, heads, expected)
        contender = ours(kernels.attention, (q, k, v), arrays.zeros(q.shape), work, is_causal=is_causal)
        return Problem(contender, kernels.attention, peers, heads, expected)

    kind = "causal" if is_causal else "full"
    name = "flash_attention" if library else "attention"
    return Case(f"{name} {heads}x{length}x{depth} {kind}", "GFLOP/s", build)


def compared(sizes):
    """The cases that are timed against peers, on one core."""
    for dtype in (np.dtype(np.float32), arrays.BF16):
        yield from (gemm(*shape, dtype) for shape in sizes.gemm)
    yield saxpy(sizes.elements)
    yield gelu(sizes.elements, kernels.gelu_lanes, "lanes")
    yield gelu(sizes.elements, kernels.gelu_tiles, "tiles")
    for make in (softmax, layernorm, rmsnorm):
        yield from (make(*shape) for shape in sizes.rows)
    for is_causal in (True, False):
        yield attention(*sizes.attention, is_causal)
        yield attention(*sizes.attention, is_causal, library=True)


def scaled(sizes):
    """The cases whose speed with several threads is compared with that of one."""
    n = sizes.large_gemm
    yield gemm(n, n, n, np.dtype(np.float32))
    yield gemm(n, n, n, arrays.BF16)
    yield softmax(*sizes.rows[0])
    for is_causal in (True, False):
        yield attention(*sizes.attention, is_causal)
        yield attention(*sizes.attention, is_causal, library=True)
    yield saxpy(sizes.elements)
