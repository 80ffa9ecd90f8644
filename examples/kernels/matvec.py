"""Matrix times vector, and vector times matrix, in bf16 with f32 sums.

    python examples/kernels/matvec.py
"""

import numpy as np

import tessera as ts
from gallery import check

BM, BN = 16, 64


@ts.kernel
def matvec(A: ts.Tensor["M", "N", ts.bf16], x: ts.Tensor["N", ts.bf16], y: ts.Out["M", ts.f32]):
    m0 = ts.tile.program_id(0) * BM
    acc = ts.tile.zeros((BM, BN), ts.f32)
    for n0 in ts.tile.range(0, N, BN):
        v = x[n0:n0 + BN]
        acc += A[m0:m0 + BM, n0:n0 + BN] * v[None, :]
    y[m0:m0 + BM] = ts.tile.row_sum(acc)  # one reduction at the end
    return y


@ts.kernel
def vecmat(x: ts.Tensor["M", ts.bf16], A: ts.Tensor["M", "N", ts.bf16], y: ts.Out["N", ts.f32]):
    n0 = ts.tile.program_id(0) * BN
    acc = ts.tile.zeros((BN,), ts.f32)
    for m0 in ts.tile.range(0, M, BM):
        v = x[m0:m0 + BM]
        acc += ts.tile.sum(v[:, None] * A[m0:m0 + BM, n0:n0 + BN], axis=0)
    y[n0:n0 + BN] = acc
    return y


TOLERANCE = 1e-5


def run(A, x, z):
    return matvec(A, x), vecmat(z, A)


def reference(A, x, z):
    A, x, z = (a.astype(np.float64) for a in (A, x, z))
    return A @ x, z @ A


def cases():
    rng = np.random.default_rng(0)
    for m, n in ((1, 1), (3, 0), (31, 64), (65, 33), (20, 1000)):
        A, x, z = (ts.array(rng.standard_normal(s), "bf16") for s in ((m, n), n, m))
        yield A, x, z


def main():
    check("matvec", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
