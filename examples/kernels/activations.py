"""GELU (exact and by tanh) and SwiGLU, elementwise.

    python examples/kernels/activations.py
"""

import math

import numpy as np

import tessera as ts
from gallery import check


@ts.func
def gelu(x):
    return 0.5 * x * (1.0 + ts.tile.erf(x * math.sqrt(0.5)))


@ts.func
def gelu_tanh(x):
    return 0.5 * x * (1.0 + ts.tile.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


@ts.kernel
def elementwise(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], function: ts.Fn):
    start = ts.tile.program_id(0) * 256
    y[start:start + 256] = function(x[start:start + 256])
    return y


@ts.kernel
def swiglu(gate: ts.Tensor["n", ts.f32], value: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    y[i] = gate[i] * ts.tile.sigmoid(gate[i]) * value[i]
    return y


TOLERANCE = 1e-6


def run(x, value):
    return elementwise(x, function=gelu), elementwise(x, function=gelu_tanh), swiglu(x, value)


def reference(x, value):
    x = x.astype(np.float64)
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    erf = np.array([math.erf(v) for v in x * math.sqrt(0.5)])
    return 0.5 * x * (1 + erf), 0.5 * x * (1 + np.tanh(inner)), x / (1 + np.exp(-x)) * value


def cases():
    rng = np.random.default_rng(0)
    for n in (0, 1, 31, 256, 257, 1000):
        x, value = 3 * rng.standard_normal((2, n), dtype=np.float32)
        yield x, value


def main():
    check("activations", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
