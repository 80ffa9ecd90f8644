"""Simulation, linear algebra and other numerics."""

from __future__ import annotations

import numpy as np

from bench.ported.program import F, normal, program


@program("PCA by power iteration", bound=1e-3, why="40 iterations; the gap between components is what is left of an error")
class PCA:
    def inputs(rng):
        return (normal(rng, 2000, 100) * np.linspace(3, 0.1, 100, dtype=F),)

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def components(x):
            x = x - xp.mean(x, axis=0)
            found = []
            for _ in range(3):

                def body(i, v, x=x):
                    v = x.T @ (x @ v)
                    return v / xp.sqrt(xp.sum(v * v))

                v = ts.fori_loop(0, 40, body, xp.ones((100,)) / 10.0)
                found.append(xp.sum((x @ v) ** 2) / x.shape[0])
                x = x - xp.outer(x @ v, v)
            return xp.stack(found)

        return components

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        @jax.jit
        def components(x):
            x = x - jnp.mean(x, axis=0)
            found = []
            for _ in range(3):

                def body(i, v, x=x):
                    v = x.T @ (x @ v)
                    return v / jnp.sqrt(jnp.sum(v * v))

                v = lax.fori_loop(0, 40, body, jnp.ones((100,)) / 10.0)
                found.append(jnp.sum((x @ v) ** 2) / x.shape[0])
                x = x - jnp.outer(x @ v, v)
            return jnp.stack(found)

        return components


@program("PageRank")
class PageRank:
    def inputs(rng):
        return tuple(rng.integers(0, 2000, (2, 20_000)).astype(np.int32))

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def rank(source, target):
            n = 2000
            degree = xp.segment_sum(xp.ones(source.shape), source, num_segments=n)

            def body(i, r):
                share = xp.where(degree > 0, r / xp.maximum(degree, 1.0), 0.0)
                lost = xp.sum(xp.where(degree > 0, 0.0, r))
                return 0.15 / n + 0.85 * (xp.segment_sum(share[source], target, num_segments=n) + lost / n)

            return ts.fori_loop(0, 50, body, xp.full((n,), 1.0 / n))

        return rank

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        @jax.jit
        def rank(source, target):
            n = 2000
            degree = jax.ops.segment_sum(jnp.ones(source.shape), source, num_segments=n)

            def body(i, r):
                share = jnp.where(degree > 0, r / jnp.maximum(degree, 1.0), 0.0)
                lost = jnp.sum(jnp.where(degree > 0, 0.0, r))
                return 0.15 / n + 0.85 * (jax.ops.segment_sum(share[source], target, num_segments=n) + lost / n)

            return lax.fori_loop(0, 50, body, jnp.full((n,), 1.0 / n))

        return rank


@program("conjugate gradients", bound=1e-3, why="stops at a residual of 1e-4; one rounding more or less is one in that")
class ConjugateGradients:
    def inputs(rng):
        a = normal(rng, 400, 400)
        return (a @ a.T / 400 + 0.1 * np.eye(400, dtype=F)).astype(F), normal(rng, 400)

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def solve(a, b):
            def more(state):
                _, _, _, rr, k = state
                return (rr > 1e-8 * xp.sum(b * b)) & (k < 400)

            def body(state):
                x, r, p, rr, k = state
                ap = a @ p
                alpha = rr / xp.dot(p, ap)
                x, r = x + alpha * p, r - alpha * ap
                new = xp.dot(r, r)
                return x, r, r + (new / rr) * p, new, k + 1

            return ts.while_loop(more, body, (xp.zeros_like(b), b, b, xp.dot(b, b), 0))[0]

        return solve

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        @jax.jit
        def solve(a, b):
            def more(state):
                _, _, _, rr, k = state
                return (rr > 1e-8 * jnp.sum(b * b)) & (k < 400)

            def body(state):
                x, r, p, rr, k = state
                ap = a @ p
                alpha = rr / jnp.dot(p, ap)
                x, r = x + alpha * p, r - alpha * ap
                new = jnp.dot(r, r)
                return x, r, r + (new / rr) * p, new, k + 1

            return lax.while_loop(more, body, (jnp.zeros_like(b), b, b, jnp.dot(b, b), 0))[0]

        return solve


@program("Newton, Kepler's equation", bound=1e-5, why="stops at steps below 1e-6")
class Newton:
    def inputs(rng):
        return (rng.random(20_000) * 6).astype(F), (rng.random(20_000) * 0.8).astype(F)

    def ours():
        import tessera as ts
        from tessera import xp

        def f(x, m, e):
            return x - e * xp.sin(x) - m

        slope = ts.vmap(ts.grad(f))

        @ts.jit
        def anomaly(m, e):
            def more(state):
                _, step, k = state
                return (xp.max(xp.abs(step)) > 1e-6) & (k < 10)

            def body(state):
                x, _, k = state
                step = f(x, m, e) / slope(x, m, e)
                return x - step, step, k + 1

            return ts.while_loop(more, body, (m, xp.ones_like(m), 0))[0]

        return anomaly

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        def f(x, m, e):
            return x - e * jnp.sin(x) - m

        slope = jax.vmap(jax.grad(f))

        @jax.jit
        def anomaly(m, e):
            def more(state):
                _, step, k = state
                return (jnp.max(jnp.abs(step)) > 1e-6) & (k < 10)

            def body(state):
                x, _, k = state
                step = f(x, m, e) / slope(x, m, e)
                return x - step, step, k + 1

            return lax.while_loop(more, body, (m, jnp.ones_like(m), 0))[0]

        return anomaly


@program("Lorenz by RK4", bound=1e-3, why="chaos: after 300 steps either is up to 1.3e-4 from the same run in f64")
class Lorenz:
    def inputs(rng):
        return (normal(rng, 500, 3) + np.array([0, 0, 25], F),)

    def ours():
        import tessera as ts
        from tessera import xp

        def f(s):
            x, y, z = s[:, 0], s[:, 1], s[:, 2]
            return xp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z], axis=-1)

        @ts.jit
        def run(start):
            h = 0.01

            def step(s, _):
                k1 = f(s)
                k2 = f(s + h / 2 * k1)
                k3 = f(s + h / 2 * k2)
                k4 = f(s + h * k3)
                s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
                return s, s

            return ts.scan(step, start, None, length=300)[1]

        return run

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        def f(s):
            x, y, z = s[:, 0], s[:, 1], s[:, 2]
            return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z], axis=-1)

        @jax.jit
        def run(start):
            h = 0.01

            def step(s, _):
                k1 = f(s)
                k2 = f(s + h / 2 * k1)
                k3 = f(s + h / 2 * k2)
                k4 = f(s + h * k3)
                s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
                return s, s

            return lax.scan(step, start, None, length=300)[1]

        return run


@program("N-body", bound=1e-4, why="100 steps in which close bodies pull hard")
class NBody:
    def inputs(rng):
        return normal(rng, 128, 3), normal(rng, 128, 3, scale=0.1), (rng.random(128) + 0.5).astype(F) / 128

    def ours():
        import tessera as ts
        from tessera import xp

        def pull(x, mass):
            d = x[None, :, :] - x[:, None, :]
            r2 = xp.sum(d * d, axis=-1) + 1e-2
            return xp.sum(d * (mass[None, :] * r2**-1.5)[..., None], axis=1)

        @ts.jit
        def run(x, v, mass):
            def step(i, state):
                x, v = state
                v = v + 0.005 * pull(x, mass)
                x = x + 0.01 * v
                return x, v + 0.005 * pull(x, mass)

            return ts.fori_loop(0, 100, step, (x, v))

        return run

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        def pull(x, mass):
            d = x[None, :, :] - x[:, None, :]
            r2 = jnp.sum(d * d, axis=-1) + 1e-2
            return jnp.sum(d * (mass[None, :] * r2**-1.5)[..., None], axis=1)

        @jax.jit
        def run(x, v, mass):
            def step(i, state):
                x, v = state
                v = v + 0.005 * pull(x, mass)
                x = x + 0.01 * v
                return x, v + 0.005 * pull(x, mass)

            return lax.fori_loop(0, 100, step, (x, v))

        return run


@program("heat equation, 256x256")
class Heat:
    def inputs(rng):
        return (rng.random((256, 256)).astype(F),)

    def ours():
        import tessera as ts

        @ts.jit
        def run(u):
            def step(i, u):
                near = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
                return u.at[1:-1, 1:-1].add(0.2 * (near - 4 * u[1:-1, 1:-1]))

            return ts.fori_loop(0, 100, step, u)

        return run

    def theirs():
        import jax
        from jax import lax

        @jax.jit
        def run(u):
            def step(i, u):
                near = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
                return u.at[1:-1, 1:-1].add(0.2 * (near - 4 * u[1:-1, 1:-1]))

            return lax.fori_loop(0, 100, step, u)

        return run


@program("game of life, 256x256", bound=0, why="integers")
class Life:
    def inputs(rng):
        return ((rng.random((256, 256)) < 0.3).astype(np.int32),)

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def run(board):
            def step(i, b):
                near = sum(xp.roll(b, (y, x), axis=(0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0))
                return xp.where((near == 3) | ((b == 1) & (near == 2)), 1, 0).astype("i32")

            return ts.fori_loop(0, 100, step, board)

        return run

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        @jax.jit
        def run(board):
            def step(i, b):
                near = sum(jnp.roll(b, (y, x), axis=(0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1) if (y, x) != (0, 0))
                return jnp.where((near == 3) | ((b == 1) & (near == 2)), 1, 0).astype(jnp.int32)

            return lax.fori_loop(0, 100, step, board)

        return run


def _few_differ(mine, other):
    """Rounding decides when a point near the set escapes."""
    assert np.mean(mine[0] != other[0]) < 5e-3, np.mean(mine[0] != other[0])


@program("Mandelbrot, 400x300", agree=_few_differ, why="fewer than 1 in 200 counts may differ: a rounding moves points beside the set")
class Mandelbrot:
    def inputs(rng):
        return np.linspace(-2, 0.6, 400, dtype=F), np.linspace(-1.2, 1.2, 300, dtype=F)

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def counts(re, im):
            a, b = xp.meshgrid(re, im)

            def step(i, state):
                x, y, n = state
                x2, y2 = x * x, y * y
                inside = x2 + y2 < 4.0
                x, y = xp.where(inside, x2 - y2 + a, x), xp.where(inside, 2 * x * y + b, y)
                return x, y, n + inside.astype("i32")

            return ts.fori_loop(0, 100, step, (xp.zeros_like(a), xp.zeros_like(b), xp.zeros(a.shape, dtype="i32")))[2]

        return counts

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        @jax.jit
        def counts(re, im):
            a, b = jnp.meshgrid(re, im)

            def step(i, state):
                x, y, n = state
                x2, y2 = x * x, y * y
                inside = x2 + y2 < 4.0
                x, y = jnp.where(inside, x2 - y2 + a, x), jnp.where(inside, 2 * x * y + b, y)
                return x, y, n + inside.astype(jnp.int32)

            return lax.fori_loop(0, 100, step, (jnp.zeros_like(a), jnp.zeros_like(b), jnp.zeros(a.shape, jnp.int32)))[2]

        return counts


@program("FIR filter by convolve")
class Convolve:
    def inputs(rng):
        return normal(rng, 20_000), np.hanning(101).astype(F)

    def ours():
        import tessera as ts
        from tessera import xp

        return ts.jit(lambda x, taps: xp.convolve(x, taps / xp.sum(taps), mode="same"))

    def theirs():
        import jax
        import jax.numpy as jnp

        return jax.jit(lambda x, taps: jnp.convolve(x, taps / jnp.sum(taps), mode="same"))


@program("Hessian of an MLP", bound=1e-4, why="second derivatives are sums of products of sums")
class Hessian:
    def inputs(rng):
        return normal(rng, 32), normal(rng, 32, 64, scale=0.2), normal(rng, 64, 64, scale=0.2), normal(rng, 64)

    def ours():
        import tessera as ts
        from tessera import xp

        def f(x, a, b, c):
            return xp.tanh(xp.tanh(x @ a) @ b) @ c

        return ts.jit(ts.hessian(f))

    def theirs():
        import jax
        import jax.numpy as jnp

        def f(x, a, b, c):
            return jnp.tanh(jnp.tanh(x @ a) @ b) @ c

        return jax.jit(jax.hessian(f))


@program("tridiagonal solver under vmap", bound=1e-4, why="100 steps of elimination and as many of substitution")
class Tridiagonal:
    def inputs(rng):
        lower, upper, right = (normal(rng, 256, 100) for _ in range(3))
        return lower, (4 + rng.random((256, 100))).astype(F), upper, right

    def ours():
        import tessera as ts

        def solve(lower, main, upper, right):
            def forward(carry, row):
                c, d = carry
                a, b, u, r = row
                w = b - a * c
                c, d = u / w, (r - a * d) / w
                return (c, d), (c, d)

            def backward(x, row):
                c, d = row
                x = d - c * x
                return x, x

            _, (cs, ds) = ts.scan(forward, (0.0, 0.0), (lower, main, upper, right))
            return ts.scan(backward, 0.0, (cs, ds), reverse=True)[1]

        return ts.jit(ts.vmap(solve))

    def theirs():
        import jax
        from jax import lax

        def solve(lower, main, upper, right):
            def forward(carry, row):
                c, d = carry
                a, b, u, r = row
                w = b - a * c
                c, d = u / w, (r - a * d) / w
                return (c, d), (c, d)

            def backward(x, row):
                c, d = row
                x = d - c * x
                return x, x

            _, (cs, ds) = lax.scan(forward, (0.0, 0.0), (lower, main, upper, right))
            return lax.scan(backward, 0.0, (cs, ds), reverse=True)[1]

        return jax.jit(jax.vmap(solve))
