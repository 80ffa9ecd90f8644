"""A step of AdamW: parameters and both moments are updated in place.

    python examples/kernels/adam.py
"""

import numpy as np

import tessera as ts
from gallery import check

BETA1, BETA2, EPS, DECAY = 0.9, 0.999, 1e-8, 0.01


@ts.kernel
def adam(
    p: ts.Tensor["n", ts.f32],
    g: ts.Tensor["n", ts.bf16],
    m: ts.Tensor["n", ts.f32],
    v: ts.Tensor["n", ts.f32],
    step: ts.f32,
    rate: ts.f32,
):
    i = ts.tile.linear_id()
    m[i] = BETA1 * m[i] + (1.0 - BETA1) * g[i]
    v[i] = BETA2 * v[i] + (1.0 - BETA2) * g[i] * g[i]
    m_hat = m[i] / (1.0 - ts.tile.pow(BETA1, step))
    v_hat = v[i] / (1.0 - ts.tile.pow(BETA2, step))
    p[i] -= rate * (m_hat / (ts.tile.sqrt(v_hat) + EPS) + DECAY * p[i])
    return p, m, v


TOLERANCE = 1e-6
STEPS = 3
RATE = 0.01


def run(p, g, m, v):
    for step in range(1, STEPS + 1):
        adam(p, g, m, v, step, RATE)
    return p, m, v


def reference(p, g, m, v):
    p, g, m, v = (a.astype(np.float64) for a in (p, g, m, v))
    for step in range(1, STEPS + 1):
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g**2
        m_hat, v_hat = m / (1 - BETA1**step), v / (1 - BETA2**step)
        p = p - RATE * (m_hat / (np.sqrt(v_hat) + EPS) + DECAY * p)
    return p, m, v


def cases():
    rng = np.random.default_rng(0)
    for n in (0, 1, 31, 64, 65, 1000):
        zeros = np.zeros(n, np.float32)
        yield rng.standard_normal(n, dtype=np.float32), ts.array(rng.standard_normal(n), "bf16"), zeros, zeros.copy()


def main():
    check("adam", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
