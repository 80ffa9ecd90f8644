"""Statistics: clustering, mixtures, kernels, flows and Monte Carlo."""

from __future__ import annotations

import math

import numpy as np

from bench.ported.program import F, dense, normal, program


@program("k-means step")
class KMeans:
    def inputs(rng):
        centres = normal(rng, 32, 16, scale=3)
        return centres + normal(rng, 32, 16), centres[rng.integers(0, 32, 10_000)] + normal(rng, 10_000, 16)

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def step(centres, x):
            d = xp.sum((x[:, None, :] - centres[None, :, :]) ** 2, axis=-1)
            nearest = xp.argmin(d, axis=1)
            total = xp.segment_sum(x, nearest, num_segments=32)
            count = xp.segment_sum(xp.ones((x.shape[0],)), nearest, num_segments=32)
            return total / xp.maximum(count, 1.0)[:, None], xp.mean(xp.min(d, axis=1))

        return step

    def theirs():
        import jax
        import jax.numpy as jnp

        @jax.jit
        def step(centres, x):
            d = jnp.sum((x[:, None, :] - centres[None, :, :]) ** 2, axis=-1)
            nearest = jnp.argmin(d, axis=1)
            total = jax.ops.segment_sum(x, nearest, num_segments=32)
            count = jax.ops.segment_sum(jnp.ones((x.shape[0],)), nearest, num_segments=32)
            return total / jnp.maximum(count, 1.0)[:, None], jnp.mean(jnp.min(d, axis=1))

        return step


@program("mixture of Gaussians, EM step", bound=1e-4, why="exponentials of sums, and quotients of sums of them")
class Mixture:
    def inputs(rng):
        mean = normal(rng, 8, 4, scale=3)
        x = mean[rng.integers(0, 8, 5000)] + normal(rng, 5000, 4)
        return x, np.full(8, 1 / 8, F), mean + normal(rng, 8, 4, scale=0.5), np.ones((8, 4), F)

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def step(x, weight, mean, var):
            far = x[:, None, :] - mean[None]
            log_p = xp.log(weight) - 0.5 * xp.sum(far**2 / var + xp.log(2 * math.pi * var), axis=-1)
            total = xp.logsumexp(log_p, axis=1, keepdims=True)
            r = xp.exp(log_p - total)
            n = xp.sum(r, axis=0)
            mean = (r.T @ x) / n[:, None]
            var = xp.sum(r[..., None] * (x[:, None, :] - mean) ** 2, axis=0) / n[:, None]
            return n / x.shape[0], mean, var, xp.mean(total)

        return step

    def theirs():
        import jax
        import jax.numpy as jnp

        @jax.jit
        def step(x, weight, mean, var):
            far = x[:, None, :] - mean[None]
            log_p = jnp.log(weight) - 0.5 * jnp.sum(far**2 / var + jnp.log(2 * math.pi * var), axis=-1)
            total = jax.nn.logsumexp(log_p, axis=1, keepdims=True)
            r = jnp.exp(log_p - total)
            n = jnp.sum(r, axis=0)
            mean = (r.T @ x) / n[:, None]
            var = jnp.sum(r[..., None] * (x[:, None, :] - mean) ** 2, axis=0) / n[:, None]
            return n / x.shape[0], mean, var, jnp.mean(total)

        return step


@program("Gaussian process kernel, gradient", bound=1e-4, why="sums over 250,000 pairs")
class GaussianProcess:
    def inputs(rng):
        return normal(rng, 8, scale=0.1), normal(rng, 500, 8), normal(rng, 500)

    def ours():
        import tessera as ts
        from tessera import xp

        def energy(log_scale, x, y):
            d = (x[:, None, :] - x[None, :, :]) / xp.exp(log_scale)
            k = xp.exp(-0.5 * xp.sum(d**2, axis=-1)) + 1e-3 * xp.eye(x.shape[0])
            return y @ k @ y

        return ts.jit(ts.value_and_grad(energy))

    def theirs():
        import jax
        import jax.numpy as jnp

        def energy(log_scale, x, y):
            d = (x[:, None, :] - x[None, :, :]) / jnp.exp(log_scale)
            k = jnp.exp(-0.5 * jnp.sum(d**2, axis=-1)) + 1e-3 * jnp.eye(x.shape[0])
            return y @ k @ y

        return jax.jit(jax.value_and_grad(energy))


@program("normalizing flow gradient", bound=1e-4, why="six layers, each of which multiplies by exponentials of the one before")
class Flow:
    def inputs(rng):
        layers = [dense(rng, 4, 64, 8) for _ in range(6)]
        for layer in layers:
            layer[-1]["w"] *= F(0.1)
        return layers, normal(rng, 512, 8)

    def ours():
        import tessera as ts
        from tessera import xp

        def loss(layers, x):
            log_det = 0.0
            for hidden, out in layers:
                fixed, moved = xp.split(x, 2, axis=-1)
                shift, scale = xp.split(xp.tanh(fixed @ hidden["w"] + hidden["b"]) @ out["w"] + out["b"], 2, axis=-1)
                scale = xp.tanh(scale)
                log_det = log_det + xp.sum(scale, axis=-1)
                x = xp.concatenate([moved * xp.exp(scale) + shift, fixed], axis=-1)
            log_p = -0.5 * xp.sum(x**2 + math.log(2 * math.pi), axis=-1) + log_det
            return -xp.mean(log_p)

        return ts.jit(ts.value_and_grad(loss))

    def theirs():
        import jax
        import jax.numpy as jnp

        def loss(layers, x):
            log_det = 0.0
            for hidden, out in layers:
                fixed, moved = jnp.split(x, 2, axis=-1)
                shift, scale = jnp.split(jnp.tanh(fixed @ hidden["w"] + hidden["b"]) @ out["w"] + out["b"], 2, axis=-1)
                scale = jnp.tanh(scale)
                log_det = log_det + jnp.sum(scale, axis=-1)
                x = jnp.concatenate([moved * jnp.exp(scale) + shift, fixed], axis=-1)
            log_p = -0.5 * jnp.sum(x**2 + math.log(2 * math.pi), axis=-1) + log_det
            return -jnp.mean(log_p)

        return jax.jit(jax.value_and_grad(loss))


def _same_price(mine, other):
    """Each is a mean of its own draws, given with its standard error."""
    (a, e), (b, f) = ((float(p), float(s)) for p, s in (mine, other))
    assert abs(a - b) < 4 * math.hypot(e, f), (a, b, e, f)
    assert abs(e / f - 1) < 0.1, (e, f)


@program("Asian option by Monte Carlo", agree=_same_price, why="each draws its own numbers: prices within 4 standard errors")
class AsianOption:
    def inputs(rng):
        return np.uint32(7), F(100), F(0.2), F(0.03)

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def price(seed, spot, volatility, rate):
            paths, steps = 20_000, 50
            dt = 1.0 / steps
            z = ts.random.normal(ts.random.key(seed), (paths, steps))
            moves = (rate - 0.5 * volatility**2) * dt + volatility * math.sqrt(dt) * z
            s = spot * xp.exp(xp.cumsum(moves, axis=1))
            payoff = xp.exp(-rate) * xp.maximum(xp.mean(s, axis=1) - 100.0, 0.0)
            return xp.mean(payoff), xp.std(payoff) / math.sqrt(paths)

        return price

    def theirs():
        import jax
        import jax.numpy as jnp

        @jax.jit
        def price(seed, spot, volatility, rate):
            paths, steps = 20_000, 50
            dt = 1.0 / steps
            z = jax.random.normal(jax.random.key(seed), (paths, steps))
            moves = (rate - 0.5 * volatility**2) * dt + volatility * math.sqrt(dt) * z
            s = spot * jnp.exp(jnp.cumsum(moves, axis=1))
            payoff = jnp.exp(-rate) * jnp.maximum(jnp.mean(s, axis=1) - 100.0, 0.0)
            return jnp.mean(payoff), jnp.std(payoff) / math.sqrt(paths)

        return price
