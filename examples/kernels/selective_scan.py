"""The selective scan of Mamba: h[t] = a[t] h[t-1] + b[t] x[t], y[t] = c[t] h[t], by `associative_scan` over blocks of time.

    python examples/kernels/selective_scan.py
"""

import numpy as np

import tessera as ts
from gallery import check


@ts.func
def step(a, b, c, d):
    return a * c, c * b + d


@ts.kernel
def selective_scan(
    a: ts.Tensor["T", "D", ts.f32],
    bx: ts.Tensor["T", "D", ts.f32],
    c: ts.Tensor["T", "D", ts.f32],
    y: ts.Out["T", "D", ts.f32],
    BT: int = 32,
    BD: int = 16,
):
    d = ts.tile.program_id(0) * BD
    state = ts.tile.zeros((BD,))
    for t in ts.tile.range(0, T, BT):
        decay, added = ts.tile.associative_scan((a[t:t + BT, d:d + BD], bx[t:t + BT, d:d + BD]), step, axis=0)
        h = decay * state[None, :] + added
        y[t:t + BT, d:d + BD] = c[t:t + BT, d:d + BD] * h
        state = h[-1]
    return y


TOLERANCE = 1e-4

run = selective_scan


def reference(a, bx, c):
    h = np.zeros(a.shape[1])
    out = np.zeros(a.shape)
    for t in range(len(a)):
        h = a[t].astype(np.float64) * h + bx[t]
        out[t] = c[t] * h
    return out


def cases():
    rng = np.random.default_rng(0)
    for shape in ((0, 4), (1, 1), (32, 16), (65, 33), (200, 5)):
        yield rng.uniform(0.5, 1, shape).astype(np.float32), *rng.standard_normal((2, *shape), dtype=np.float32)


def main():
    check("selective_scan", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
