"""Loops on one core, compared with XLA: `scan`, `while_loop` and `fori_loop` with bodies of one to ten small ops, a Kalman filter,
Hamiltonian Monte Carlo, and gathers and scatters of many rows.

usage: PYTHONPATH=python:. build/bench-venv/bin/python -m bench.loops_cpu [--rounds N] [--only WORD]

Results are compared before anything is timed. The two alternate. A figure is the median over the rounds of our time over XLA's
(less is better), with the minimum and the maximum."""

from __future__ import annotations

import argparse
import statistics
import sys
import types

from bench.cpu import environment

if __name__ == "__main__":
    environment.use_one_core()

import numpy as np  # noqa: E402

from bench.cpu.timing import paired  # noqa: E402

STEPS = 1000


def namespaces():
    """The same functions under the same names: of JAX, and ours."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    import tessera as ts

    theirs = types.SimpleNamespace(
        xp=jnp, scan=lax.scan, while_loop=lax.while_loop, fori_loop=lax.fori_loop, cond=lax.cond, grad=jax.grad, jit=jax.jit,
        update=lambda x, u, i: lax.dynamic_update_slice(x, u, (i,)), done=jax.block_until_ready,
    )  # fmt: skip
    ours = types.SimpleNamespace(
        xp=ts.xp, scan=ts.scan, while_loop=ts.while_loop, fori_loop=ts.fori_loop, cond=ts.cond, grad=ts.grad, jit=ts.jit,
        update=lambda x, u, i: ts.dynamic_update_slice(x, u, (i,)), done=lambda x: x,
    )  # fmt: skip
    return ours, theirs


F = np.float32


def normal(*shape, scale=1.0):
    return (np.random.default_rng(len(shape)).standard_normal(shape) * scale).astype(F)


def body(n, ops):
    """A body of that many elementwise ops on a vector."""

    def make(t):
        def step(c, x):
            for k in range(ops):
                c = [lambda v: v * F(0.9), lambda v: v + x, lambda v: t.xp.tanh(v), lambda v: v * v, lambda v: v - F(0.1)][k % 5](c)
            return c, c

        return lambda c, xs: t.scan(step, c, xs)

    return make, (normal(n) if n else F(1), normal(STEPS, n) if n else normal(STEPS))


def newton(t):
    return lambda a: t.while_loop(lambda c: c[0] < STEPS, lambda c: (c[0] + 1, F(0.5) * (c[1] + a / c[1])), (0, a))


def collatz(t):
    def run(n):
        test = lambda c: c[0] != 1  # noqa: E731
        step = lambda c: (t.xp.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1)  # noqa: E731
        return t.while_loop(test, step, (n, n * 0))

    return run


def heat(t):
    return lambda v: t.fori_loop(0, STEPS, lambda i, c: F(0.25) * t.xp.roll(c, 1) + F(0.5) * c + F(0.25) * t.xp.roll(c, -1), v)


def branches(t):
    return lambda v: t.fori_loop(0, STEPS, lambda i, c: t.cond(i % 3 == 0, lambda a: a + 1, lambda a: a * F(0.5), c), v)


def rnn(t):
    return lambda h, w, xs: t.scan(lambda h, x: (t.xp.tanh(w @ h + x), h), h, xs)


def rnn_gradient(t):
    return t.grad(lambda w, h, xs: t.xp.sum(t.scan(lambda h, x: (t.xp.tanh(w @ h + x), h), h, xs)[1]))


def kalman(t):
    def run(f, h, q, r, x, p, zs):
        eye = np.eye(4, dtype=F)

        def step(state, z):
            x, p = state
            x = f @ x
            p = f @ p @ f.T + q
            s = h @ p @ h.T + r
            det = s[0, 0] * s[1, 1] - s[0, 1] * s[1, 0]
            inverse = t.xp.stack([t.xp.stack([s[1, 1], -s[0, 1]]), t.xp.stack([-s[1, 0], s[0, 0]])]) / det
            k = p @ h.T @ inverse
            x = x + k @ (z - h @ x)
            p = (eye - k @ h) @ p
            return (x, p), x

        return t.scan(step, (x, p), zs)

    return run


def kalman_arguments():
    f = np.eye(4, dtype=F)
    f[0, 2] = f[1, 3] = 0.1
    h = np.eye(2, 4, dtype=F)
    return f, h, np.eye(4, dtype=F) * F(0.01), np.eye(2, dtype=F), np.zeros(4, F), np.eye(4, dtype=F), normal(STEPS, 2)


def hmc(t):
    def run(q, momenta, data):
        def energy(q):
            return F(0.5) * t.xp.sum(q * q) + F(0.5) * t.xp.sum((data @ q) ** 2) * F(0.01)

        force = t.grad(energy)

        def step(q, p):
            def leap(i, s):
                q, p = s
                p = p - F(0.01) * force(q)
                q = q + F(0.02) * p
                return q, p - F(0.01) * force(q)

            new, back = t.fori_loop(0, 10, leap, (q, p))
            old = energy(q) + F(0.5) * t.xp.sum(p * p)
            now = energy(new) + F(0.5) * t.xp.sum(back * back)
            return t.xp.where(now - old < F(0.5), new, q), now

        return t.scan(step, q, momenta)

    return run


def fill(t):
    return lambda v: t.fori_loop(0, 256, lambda i, c: t.update(c, t.xp.reshape(t.xp.sum(c[:8]) * F(0.1), (1,)), i), v)


def scatter(t):
    return lambda x, i, u: x.at[i].add(u)


def gather(t):
    return lambda x, i: x[i]


ROWS = np.random.default_rng(5).integers(0, 4096, 100_000).astype(np.int32)
PROGRAMS = {
    **{f"scan {n or 'scalar'} {ops} ops": body(n, ops) for n in (0, 8, 100) for ops in (1, 3, 10)},
    "newton while": (newton, (F(2),)),
    "collatz while": (collatz, (np.int32(6171),)),
    "heat": (heat, (normal(64),)),
    "branches": (branches, (normal(8),)),
    "rnn 16": (rnn, (normal(16), normal(16, 16, scale=0.3), normal(STEPS, 16))),
    "rnn 16 gradient": (rnn_gradient, (normal(16, 16, scale=0.3), normal(16), normal(STEPS, 16))),
    "kalman": (kalman, kalman_arguments()),
    "hmc": (hmc, (normal(10), normal(200, 10), normal(20, 10))),
    "fill": (fill, (normal(256),)),
    "scatter-add 100k rows": (scatter, (normal(4096, 16), ROWS, normal(100_000, 16))),
    "scatter-add 100k numbers": (scatter, (normal(4096), ROWS, normal(100_000))),
    "gather 100k rows": (gather, (normal(4096, 16), ROWS)),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    import jax

    ours, theirs = namespaces()
    all_ratios = []
    for name, (make, arguments) in PROGRAMS.items():
        if given.only not in name:
            continue
        mine, other = ours.jit(make(ours)), theirs.jit(make(theirs))
        placed = [jax.numpy.asarray(a) for a in arguments]
        for a, b in zip(jax.tree.leaves(mine(*arguments)), jax.tree.leaves(other(*placed)), strict=True):
            a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3 * max(1.0, float(np.abs(b).max())), err_msg=name)
        times = paired(lambda: mine(*arguments), lambda: theirs.done(other(*placed)), given.rounds)
        ratios = [1 / r for r in times.ratios()]
        all_ratios.append(statistics.median(ratios))
        print(
            f"{name:26s} {statistics.median(ratios):6.2f} of XLA's time [{min(ratios):.2f}, {max(ratios):.2f}]"
            f"  {statistics.median(times.ours) * 1e6:9.1f} us  {statistics.median(times.theirs) * 1e6:9.1f} us",
            flush=True,
        )
    if all_ratios:
        print(f"median {statistics.median(all_ratios):.2f}, worst {max(all_ratios):.2f} of {len(all_ratios)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
