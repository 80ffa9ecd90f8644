"""RMS norm of bf16 rows of any length, in pieces of 256: one compilation serves every size.

    python examples/kernels/rmsnorm.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.kernel
def rmsnorm(
    x: ts.Tensor["M", "N", ts.bf16], scale: ts.Tensor["N", ts.f32], y: ts.Out["M", "N", ts.bf16], eps: float = 1e-6
):
    row = ts.tile.program_id(0)
    total = 0.0
    for start in ts.tile.range(0, N, 256):
        t = x[row, start:start + 256]  # arithmetic on bf16 is done in f32
        total += ts.tile.sum(t * t)
    r = ts.tile.rsqrt(total / N + eps)
    for start in ts.tile.range(0, N, 256):
        y[row, start:start + 256] = x[row, start:start + 256] * r * scale[start:start + 256]
    return y


TOLERANCE = 2.0**-8 * 1.01  # half a unit in the last place of bf16

run = rmsnorm


def reference(x, scale):
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((0, 5), (1, 1), (31, 64), (5, 65), (3, 1000)):
        yield ts.array(rng.standard_normal((m, n)), "bf16"), rng.standard_normal(n, dtype=np.float32)


def main():
    check("rmsnorm", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
