"""Four f32 kernels and the same in NumPy, timed in one process.

    python examples/against_numpy.py
"""

import math
import time
from statistics import median

import numpy as np

import tessera as ts
from softmax_rows import softmax

C = math.sqrt(2 / math.pi)


@ts.kernel
def gelu(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    v = x[i]
    y[i] = 0.5 * v * (1.0 + ts.tile.tanh(C * (v + 0.044715 * v * v * v)))
    return y


@ts.kernel
def matmul(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], out: ts.Out["M", "N", ts.f32]):
    m = ts.tile.program_id(0) * 128
    n = ts.tile.program_id(1) * 192
    acc = ts.tile.zeros((128, 192), ts.f32)
    for k in ts.tile.range(0, K, 64):
        acc = ts.tile.mma(A[m:m + 128, k:k + 64], B[k:k + 64, n:n + 192], accumulator=acc)
    out[m:m + 128, n:n + 192] = acc
    return out


@ts.kernel
def attention(
    Q: ts.Tensor["H", "S", "D", ts.f32],
    K: ts.Tensor["H", "S", "D", ts.f32],
    V: ts.Tensor["H", "S", "D", ts.f32],
    O: ts.Out["H", "S", "D", ts.f32],
):
    h = ts.tile.program_id(0)
    q0 = ts.tile.program_id(1) * 128
    q = Q[h, q0:q0 + 128, :]
    acc = ts.tile.zeros((128, D), ts.f32)
    largest = ts.tile.full((128,), -math.inf, ts.f32)
    total = ts.tile.zeros((128,), ts.f32)
    for k0 in ts.tile.range(0, S, 64):
        s = ts.tile.mma(q, K[h, k0:k0 + 64, :], transpose_b=True) * (1.0 / math.sqrt(D))
        s = ts.tile.bounds_mask(s, cols=S - k0)
        new = ts.tile.maximum(largest, ts.tile.row_max(s))
        p = ts.tile.exp(s - new[:, None])
        scale = ts.tile.exp(largest - new)
        total = scale * total + ts.tile.row_sum(p)
        acc = scale[:, None] * acc + ts.tile.mma(p, V[h, k0:k0 + 64, :])
        largest = new
    O[h, q0:q0 + 128, :] = acc / total[:, None]
    return O


def numpy_gelu(x):
    return 0.5 * x * (1 + np.tanh(C * (x + 0.044715 * x * x * x)))


def numpy_softmax(x):
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def numpy_attention(q, k, v):
    return numpy_softmax(q @ k.transpose(0, 2, 1) / np.float32(math.sqrt(q.shape[-1]))) @ v


def problems(rng):
    """A name, the sizes, ours, theirs, and the arguments of both."""

    def normal(*shape):
        return rng.standard_normal(shape, dtype=np.float32)

    yield "softmax", "rows of 1024, 4096 of them", softmax, numpy_softmax, [normal(4096, 1024)]
    yield "gelu", "4 Mi elements", gelu, numpy_gelu, [normal(1 << 22)]
    yield "matmul", "1000x1000x1000", matmul, np.matmul, [normal(1000, 1000), normal(1000, 1000)]
    yield "attention", "8 heads, S=1000, D=64", attention, numpy_attention, [normal(8, 1000, 64) for _ in range(3)]


def alternate(ours, theirs, rounds):
    """Milliseconds of each call, in turn."""
    taken = [], []
    for _ in range(rounds):
        for times, run in zip(taken, (ours, theirs)):
            start = time.perf_counter()
            run()
            times.append((time.perf_counter() - start) * 1e3)
    return taken


def compare(rounds=9):
    """For each problem: name, size, the largest difference of the two results, the median times, and the median ratio."""
    for name, size, ours, theirs, args in problems(np.random.default_rng(0)):
        out, expected = ours(*args), theirs(*args)  # the first call compiles
        difference = float(np.abs(out - expected).max() / np.abs(expected).max())
        mine, other = alternate(lambda: ours(*args), lambda: theirs(*args), rounds)
        yield name, size, difference, median(mine), median(other), median(b / a for a, b in zip(mine, other))


def show():
    columns = "{:<10} {:<28} {:>10} {:>12} {:>12} {:>8}"
    print(columns.format("kernel", "size", "difference", "Tessera", "NumPy", "ratio"))
    for name, size, difference, mine, other, ratio in compare():
        assert difference < 1e-5, (name, difference)
        print(columns.format(name, size, f"{difference:.0e}", f"{mine:.2f} ms", f"{other:.2f} ms", f"{ratio:.1f}"))
    print("difference: the largest between the two, relative to the largest value. Times are medians of nine calls of each,")
    print("in turn; both make a new array for the result. ratio: NumPy's time over ours, the median of the rounds.")
    print(f"Tessera runs all of a kernel on {ts.runtime.threads()} threads; NumPy only its matmuls, and it writes")
    print("every step of the others to memory. make bench-cpu compares with MKL and XLA, with care.")


if __name__ == "__main__":
    show()
