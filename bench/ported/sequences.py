"""Dynamic programming and search along sequences."""

from __future__ import annotations

import numpy as np

from bench.ported.program import normal, program


@program("edit distance, 200x200", bound=0, why="integers")
class EditDistance:
    def inputs(rng):
        return tuple(rng.integers(0, 4, (2, 200)).astype(np.int32))

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def distance(a, b):
            first = xp.arange(b.shape[0] + 1, dtype="i32")

            def row(above, x):
                def cell(left, at):
                    y, up, corner = at
                    best = xp.minimum(xp.minimum(left, up) + 1, corner + (x != y).astype("i32"))
                    return best, best

                _, rest = ts.scan(cell, above[0] + 1, (b, above[1:], above[:-1]))
                return xp.concatenate([above[:1] + 1, rest]), None

            return ts.scan(row, first, a)[0][-1]

        return distance

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        @jax.jit
        def distance(a, b):
            first = jnp.arange(b.shape[0] + 1, dtype=jnp.int32)

            def row(above, x):
                def cell(left, at):
                    y, up, corner = at
                    best = jnp.minimum(jnp.minimum(left, up) + 1, corner + (x != y).astype(jnp.int32))
                    return best, best

                _, rest = lax.scan(cell, above[0] + 1, (b, above[1:], above[:-1]))
                return jnp.concatenate([above[:1] + 1, rest]), None

            return lax.scan(row, first, a)[0][-1]

        return distance


@program("HMM, forward and Viterbi", bound=1e-5, why="300 sums of logarithms; the path is integers and must be the same")
class HMM:
    def inputs(rng):
        def log_rows(x):
            return (x - np.log(np.exp(x).sum(-1, keepdims=True))).astype(np.float32)

        return log_rows(rng.standard_normal((32, 32))), log_rows(rng.standard_normal((300, 32))), log_rows(rng.standard_normal(32))

    def ours():
        import tessera as ts
        from tessera import xp

        @ts.jit
        def decode(moves, seen, start):
            def forward(alpha, o):
                return xp.logsumexp(alpha[:, None] + moves, axis=0) + o, None

            def best(score, o):
                each = score[:, None] + moves
                return xp.max(each, axis=0) + o, xp.argmax(each, axis=0)

            def back(state, pointers):
                state = pointers[state]
                return state, state

            alpha, _ = ts.scan(forward, start + seen[0], seen[1:])
            score, pointers = ts.scan(best, start + seen[0], seen[1:])
            last = xp.argmax(score)
            _, path = ts.scan(back, last, pointers, reverse=True)
            return xp.logsumexp(alpha), xp.max(score), xp.append(path, last)

        return decode

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        @jax.jit
        def decode(moves, seen, start):
            def forward(alpha, o):
                return jax.nn.logsumexp(alpha[:, None] + moves, axis=0) + o, None

            def best(score, o):
                each = score[:, None] + moves
                return jnp.max(each, axis=0) + o, jnp.argmax(each, axis=0)

            def back(state, pointers):
                state = pointers[state]
                return state, state

            alpha, _ = lax.scan(forward, start + seen[0], seen[1:])
            score, pointers = lax.scan(best, start + seen[0], seen[1:])
            last = jnp.argmax(score)
            _, path = lax.scan(back, last, pointers, reverse=True)
            return jax.nn.logsumexp(alpha), jnp.max(score), jnp.append(path, last)

        return decode


BEAMS, STEPS, WORDS = 4, 16, 2000


@program("beam search", bound=1e-4, why="scores are sums of 16 logarithms; the words are integers and must be the same")
class BeamSearch:
    def inputs(rng):
        params = {"embed": normal(rng, WORDS, 128), "cell": normal(rng, 128, 128, scale=0.08), "out": normal(rng, 128, WORDS, scale=0.3)}
        return params, normal(rng, 8, 128)

    def ours():
        import tessera as ts
        from tessera import nn, xp

        @ts.jit
        def search(params, start):
            batch = start.shape[0]
            h = xp.repeat(start[:, None], BEAMS, axis=1)
            scores = xp.tile(xp.array([0.0] + [-1e9] * (BEAMS - 1)), (batch, 1))
            words = xp.zeros((batch, BEAMS, STEPS), dtype="i32")

            def step(state, t):
                h, scores, words, last = state
                h = xp.tanh(params["embed"][last] + h @ params["cell"])
                total = scores[..., None] + nn.log_softmax(h @ params["out"], axis=-1)
                scores, flat = xp.top_k(total.reshape((batch, BEAMS * WORDS)), BEAMS)
                beam, last = flat // WORDS, (flat % WORDS).astype("i32")
                h = xp.take_along_axis(h, beam[..., None], axis=1)
                words = xp.take_along_axis(words, beam[..., None], axis=1).at[:, :, t].set(last)
                return (h, scores, words, last), None

            first = (h, scores, words, xp.zeros((batch, BEAMS), dtype="i32"))
            (_, scores, words, _), _ = ts.scan(step, first, xp.arange(STEPS))
            return scores, words

        return search

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        @jax.jit
        def search(params, start):
            batch = start.shape[0]
            h = jnp.repeat(start[:, None], BEAMS, axis=1)
            scores = jnp.tile(jnp.array([0.0] + [-1e9] * (BEAMS - 1)), (batch, 1))
            words = jnp.zeros((batch, BEAMS, STEPS), dtype=jnp.int32)

            def step(state, t):
                h, scores, words, last = state
                h = jnp.tanh(params["embed"][last] + h @ params["cell"])
                total = scores[..., None] + jax.nn.log_softmax(h @ params["out"], axis=-1)
                scores, flat = lax.top_k(total.reshape((batch, BEAMS * WORDS)), BEAMS)
                beam, last = flat // WORDS, flat % WORDS
                h = jnp.take_along_axis(h, beam[..., None], axis=1)
                words = jnp.take_along_axis(words, beam[..., None], axis=1).at[:, :, t].set(last)
                return (h, scores, words, last), None

            first = (h, scores, words, jnp.zeros((batch, BEAMS), dtype=jnp.int32))
            (_, scores, words, _), _ = lax.scan(step, first, jnp.arange(STEPS))
            return scores, words

        return search
