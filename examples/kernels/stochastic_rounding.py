"""Adam with weights in bf16 alone: stochastic rounding keeps the mean of updates that nearest rounding loses.

An update below half the distance between two numbers of bf16 changes nothing when it is rounded to nearest. Rounded up or down at
random, with the probability of what is dropped, it moves some of the weights, and their mean as much as in exact arithmetic.

    python examples/kernels/stochastic_rounding.py
"""

import numpy as np

import tessera as ts
from gallery import check

BLOCK, STEPS, RATE = 128, 32, 2.0**-12
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8


@ts.func
def adam(w, g, m, v, step, rate):
    """New moments and the weight in f32, before it is rounded."""
    m = BETA1 * m + (1.0 - BETA1) * g
    v = BETA2 * v + (1.0 - BETA2) * g * g
    m_hat, v_hat = m / (1.0 - ts.tile.pow(BETA1, step)), v / (1.0 - ts.tile.pow(BETA2, step))
    return w - rate * m_hat / (ts.tile.sqrt(v_hat) + EPS), m, v


@ts.kernel
def nearest_step(
    w: ts.Tensor["n", ts.bf16], g: ts.Tensor["n", ts.f32], m: ts.Tensor["n", ts.f32], v: ts.Tensor["n", ts.f32], step: ts.f32, rate: ts.f32
):
    i = ts.tile.program_id(0) * BLOCK
    new, m[i:i + BLOCK], v[i:i + BLOCK] = adam(w[i:i + BLOCK], g[i:i + BLOCK], m[i:i + BLOCK], v[i:i + BLOCK], step, rate)
    w[i:i + BLOCK] = new


@ts.kernel
def stochastic_step(
    w: ts.Tensor["n", ts.bf16], g: ts.Tensor["n", ts.f32], m: ts.Tensor["n", ts.f32], v: ts.Tensor["n", ts.f32], step: ts.f32, rate: ts.f32,
    seed: ts.i64,
):
    i = ts.tile.program_id(0) * BLOCK
    new, m[i:i + BLOCK], v[i:i + BLOCK] = adam(w[i:i + BLOCK], g[i:i + BLOCK], m[i:i + BLOCK], v[i:i + BLOCK], step, rate)
    w[i:i + BLOCK] = ts.tile.cast(new, ts.bf16 @ ts.stochastic_round(seed, at=i + ts.tile.arange(BLOCK)))


# The mean of n weights strays by 0.7 / sqrt(n) of the way: 0.04 for the 256 of the smallest case.
TOLERANCE = 0.15


def run(w, g):
    """How far the weights moved, as a part of the way that they should go: to nearest, and at random."""
    moved = []
    for step_by in (nearest_step, stochastic_step):
        new, m, v = w.copy(), np.zeros_like(g), np.zeros_like(g)
        for step in range(1, STEPS + 1):
            seed = (step,) if step_by is stochastic_step else ()
            step_by(new, g, m, v, step, RATE, *seed)
        far = w.astype(np.float64) - new.astype(np.float64)
        moved.append(np.mean(far * np.sign(g)) / (STEPS * RATE))
    return tuple(moved)


def reference(w, g):
    """To nearest, every weight stays where it is. A constant gradient moves each by the rate in every step, whatever its size."""
    return np.float64(0), np.float64(1)


def cases():
    rng = np.random.default_rng(0)
    for n in (256, 500, 1023, 2048):
        yield ts.array(rng.uniform(0.6, 1.9, n), "bf16"), rng.choice([-0.5, 0.25, 2.0], n).astype(np.float32)


def main():
    check("stochastic_rounding", run, reference, cases(), TOLERANCE)


if __name__ == "__main__":
    main()
