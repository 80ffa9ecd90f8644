"""Networks: training steps and parts of models."""

from __future__ import annotations

import numpy as np

from bench.ported.program import F, dense, normal, program, zeros_like


def jax_adam(params, grads, state, lr=1e-3):
    """Adam as it is written where optax is not installed."""
    import jax
    import jax.numpy as jnp

    t = state["step"] + 1
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, state["v"], grads)
    a, b = 1 - 0.9**t, 1 - 0.999**t
    params = jax.tree.map(lambda p, m, v: p - lr * (m / a) / (jnp.sqrt(v / b) + 1e-8), params, m, v)
    return params, {"step": t, "m": m, "v": v}


def adam_state(params):
    """What `optim.Adam.init` gives."""
    return {"step": np.asarray(0, np.int64), "m": zeros_like(params), "v": zeros_like(params)}


@program("logistic regression step")
class LogisticRegression:
    def inputs(rng):
        x = normal(rng, 5000, 200)
        y = np.sign(x @ normal(rng, 200) + normal(rng, 5000)).astype(F)
        return normal(rng, 200, scale=0.1), x, y

    def ours():
        import tessera as ts
        from tessera import xp

        def loss(w, x, y):
            return xp.mean(xp.logaddexp(0.0, -y * (x @ w))) + 1e-3 * xp.sum(w**2)

        @ts.jit
        def step(w, x, y):
            value, g = ts.value_and_grad(loss)(w, x, y)
            return w - 0.1 * g, value

        return step

    def theirs():
        import jax
        import jax.numpy as jnp

        def loss(w, x, y):
            return jnp.mean(jnp.logaddexp(0.0, -y * (x @ w))) + 1e-3 * jnp.sum(w**2)

        @jax.jit
        def step(w, x, y):
            value, g = jax.value_and_grad(loss)(w, x, y)
            return w - 0.1 * g, value

        return step


@program("MLP step, Adam", bound=2e-3, why="the first step of Adam moves by the sign of a gradient, whatever its size")
class MLPStep:
    def inputs(rng):
        params = dense(rng, 784, 512, 256, 10)
        return params, adam_state(params), normal(rng, 128, 784), rng.integers(0, 10, 128).astype(np.int32)

    def ours():
        import tessera as ts
        from tessera import nn, optim

        adam = optim.Adam(1e-3)

        def loss(params, x, y):
            for p in params[:-1]:
                x = nn.relu(x @ p["w"] + p["b"])
            return nn.cross_entropy(x @ params[-1]["w"] + params[-1]["b"], y)

        @ts.jit
        def step(params, state, x, y):
            value, grads = ts.value_and_grad(loss)(params, x, y)
            params, state = adam.update(params, grads, state)
            return params, state, value

        return step

    def theirs():
        import jax
        import jax.numpy as jnp

        def loss(params, x, y):
            for p in params[:-1]:
                x = jax.nn.relu(x @ p["w"] + p["b"])
            log_p = jax.nn.log_softmax(x @ params[-1]["w"] + params[-1]["b"])
            return -jnp.mean(jnp.take_along_axis(log_p, y[:, None], axis=-1))

        @jax.jit
        def step(params, state, x, y):
            value, grads = jax.value_and_grad(loss)(params, x, y)
            return *jax_adam(params, grads, state), value

        return step


@program("CNN step, SGD")
class CNNStep:
    def inputs(rng):
        params = {
            "conv1": normal(rng, 32, 1, 3, 3, scale=0.3), "bias1": normal(rng, 32, scale=0.1),
            "conv2": normal(rng, 64, 32, 3, 3, scale=0.06), "bias2": normal(rng, 64, scale=0.1),
            "head": dense(rng, 64 * 7 * 7, 10)[0],
        }  # fmt: skip
        return params, normal(rng, 32, 1, 28, 28), rng.integers(0, 10, 32).astype(np.int32)

    def ours():
        import tessera as ts
        from tessera import nn

        def loss(params, x, y):
            x = nn.max_pool(nn.relu(nn.conv2d(x, params["conv1"], params["bias1"], padding="same")), 2)
            x = nn.max_pool(nn.relu(nn.conv2d(x, params["conv2"], params["bias2"], padding="same")), 2)
            x = x.reshape((x.shape[0], -1))
            return nn.cross_entropy(x @ params["head"]["w"] + params["head"]["b"], y)

        @ts.jit
        def step(params, x, y):
            value, grads = ts.value_and_grad(loss)(params, x, y)
            return ts.tree.map(lambda p, g: p - 0.01 * g, params, grads), value

        return step

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        def pool(x):
            return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

        def loss(params, x, y):
            x = lax.conv_general_dilated(x, params["conv1"], (1, 1), "SAME") + params["bias1"][:, None, None]
            x = pool(jax.nn.relu(x))
            x = lax.conv_general_dilated(x, params["conv2"], (1, 1), "SAME") + params["bias2"][:, None, None]
            x = pool(jax.nn.relu(x)).reshape((x.shape[0], -1))
            log_p = jax.nn.log_softmax(x @ params["head"]["w"] + params["head"]["b"])
            return -jnp.mean(jnp.take_along_axis(log_p, y[:, None], axis=-1))

        @jax.jit
        def step(params, x, y):
            value, grads = jax.value_and_grad(loss)(params, x, y)
            return jax.tree.map(lambda p, g: p - 0.01 * g, params, grads), value

        return step


HEADS, WIDTH, TOKENS, VOCABULARY = 4, 128, 64, 1000


@program("GPT step, Adam", bound=2e-3, why="the first step of Adam moves by the sign of a gradient, whatever its size")
class GPTStep:
    def inputs(rng):
        def norm():
            return {"g": 1 + normal(rng, WIDTH, scale=0.1), "b": normal(rng, WIDTH, scale=0.1)}

        def block():
            qkv, out, up, down = (dense(rng, a, b)[0] for a, b in ((WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 512), (512, WIDTH)))
            return {"n1": norm(), "qkv": qkv, "out": out, "n2": norm(), "up": up, "down": down}

        params = {"embed": normal(rng, VOCABULARY, WIDTH, scale=0.1), "place": normal(rng, TOKENS, WIDTH, scale=0.1),
                  "blocks": [block(), block()], "norm": norm()}  # fmt: skip
        tokens = rng.integers(0, VOCABULARY, (8, TOKENS + 1)).astype(np.int32)
        return params, adam_state(params), tokens[:, :-1], tokens[:, 1:]

    def ours():
        import tessera as ts
        from tessera import nn, optim, xp

        adam = optim.Adam(1e-3)

        def linear(p, x):
            return x @ p["w"] + p["b"]

        def block(p, x):
            b, t, d = x.shape
            q, k, v = xp.split(linear(p["qkv"], nn.layernorm(x, p["n1"]["g"], p["n1"]["b"])), 3, axis=-1)
            q, k, v = (xp.transpose(a.reshape((b, t, HEADS, d // HEADS)), (0, 2, 1, 3)) for a in (q, k, v))
            s = q @ xp.swapaxes(k, -1, -2) / xp.sqrt(float(d // HEADS))
            s = xp.where(xp.tril(xp.ones((t, t), dtype=bool)), s, -xp.inf)
            y = xp.transpose(nn.softmax(s, axis=-1) @ v, (0, 2, 1, 3)).reshape((b, t, d))
            x = x + linear(p["out"], y)
            h = nn.layernorm(x, p["n2"]["g"], p["n2"]["b"])
            return x + linear(p["down"], nn.gelu(linear(p["up"], h), approximate=True))

        def loss(params, tokens, targets):
            x = params["embed"][tokens] + params["place"]
            for p in params["blocks"]:
                x = block(p, x)
            return nn.cross_entropy(nn.layernorm(x, params["norm"]["g"], params["norm"]["b"]) @ params["embed"].T, targets)

        @ts.jit
        def step(params, state, tokens, targets):
            value, grads = ts.value_and_grad(loss)(params, tokens, targets)
            params, state = adam.update(params, grads, state)
            return params, state, value

        return step

    def theirs():
        import jax
        import jax.numpy as jnp

        def linear(p, x):
            return x @ p["w"] + p["b"]

        def layernorm(p, x):
            mean = x.mean(-1, keepdims=True)
            var = x.var(-1, keepdims=True)
            return (x - mean) * jax.lax.rsqrt(var + 1e-5) * p["g"] + p["b"]

        def block(p, x):
            b, t, d = x.shape
            q, k, v = jnp.split(linear(p["qkv"], layernorm(p["n1"], x)), 3, axis=-1)
            q, k, v = (a.reshape((b, t, HEADS, d // HEADS)).transpose((0, 2, 1, 3)) for a in (q, k, v))
            s = q @ k.swapaxes(-1, -2) / jnp.sqrt(d // HEADS)
            s = jnp.where(jnp.tril(jnp.ones((t, t), dtype=bool)), s, -jnp.inf)
            y = (jax.nn.softmax(s, axis=-1) @ v).transpose((0, 2, 1, 3)).reshape((b, t, d))
            x = x + linear(p["out"], y)
            return x + linear(p["down"], jax.nn.gelu(linear(p["up"], layernorm(p["n2"], x))))

        def loss(params, tokens, targets):
            x = params["embed"][tokens] + params["place"]
            for p in params["blocks"]:
                x = block(p, x)
            log_p = jax.nn.log_softmax(layernorm(params["norm"], x) @ params["embed"].T)
            return -jnp.mean(jnp.take_along_axis(log_p, targets[..., None], axis=-1))

        @jax.jit
        def step(params, state, tokens, targets):
            value, grads = jax.value_and_grad(loss)(params, tokens, targets)
            return *jax_adam(params, grads, state), value

        return step


@program("LSTM gradient", bound=1e-4, why="64 steps, each with rounding of its own")
class LSTMGradient:
    def inputs(rng):
        params = {"x": normal(rng, 64, 512, scale=0.1), "h": normal(rng, 128, 512, scale=0.1), "b": normal(rng, 512, scale=0.1),
                  "out": normal(rng, 128, scale=0.1)}  # fmt: skip
        return params, normal(rng, 64, 32, 64), normal(rng, 32)

    def ours():
        import tessera as ts
        from tessera import nn, xp

        def loss(p, xs, y):
            def step(state, x):
                h, c = state
                i, f, g, o = xp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, axis=-1)
                c = nn.sigmoid(f) * c + nn.sigmoid(i) * xp.tanh(g)
                h = nn.sigmoid(o) * xp.tanh(c)
                return (h, c), None

            zero = xp.zeros((xs.shape[1], 128))
            (h, _), _ = ts.scan(step, (zero, zero), xs)
            return xp.mean((h @ p["out"] - y) ** 2)

        return ts.jit(ts.value_and_grad(loss))

    def theirs():
        import jax
        import jax.numpy as jnp
        from jax import lax

        def loss(p, xs, y):
            def step(state, x):
                h, c = state
                i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, axis=-1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), None

            zero = jnp.zeros((xs.shape[1], 128))
            (h, _), _ = lax.scan(step, (zero, zero), xs)
            return jnp.mean((h @ p["out"] - y) ** 2)

        return jax.jit(jax.value_and_grad(loss))


@program("softmax cross entropy, 8000 classes")
class CrossEntropy:
    def inputs(rng):
        return normal(rng, 256, 8000, scale=0.06), normal(rng, 256, 256), rng.integers(0, 8000, 256).astype(np.int32)

    def ours():
        import tessera as ts
        from tessera import nn, xp

        def loss(w, h, labels):
            log_p = nn.log_softmax(h @ w, axis=-1)
            return -xp.mean(xp.take_along_axis(log_p, labels[:, None], axis=-1))

        return ts.jit(ts.value_and_grad(loss, argnums=(0, 1)))

    def theirs():
        import jax
        import jax.numpy as jnp

        def loss(w, h, labels):
            log_p = jax.nn.log_softmax(h @ w, axis=-1)
            return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], axis=-1))

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))


@program("attention with padding")
class MaskedAttention:
    def inputs(rng):
        q, k, v = (normal(rng, 4, 8, 256, 64) for _ in range(3))
        return q, k, v, np.array([256, 200, 130, 77], np.int32)

    def ours():
        import tessera as ts
        from tessera import nn, xp

        @ts.jit
        def attend(q, k, v, lengths):
            s = xp.einsum("bhqd,bhkd->bhqk", q, k) / 8.0
            mask = xp.arange(k.shape[2])[None, :] < lengths[:, None]
            p = nn.softmax(xp.where(mask[:, None, None, :], s, -1e9), axis=-1)
            return xp.einsum("bhqk,bhkd->bhqd", p, v)

        return attend

    def theirs():
        import jax
        import jax.numpy as jnp

        @jax.jit
        def attend(q, k, v, lengths):
            s = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8.0
            mask = jnp.arange(k.shape[2])[None, :] < lengths[:, None]
            p = jax.nn.softmax(jnp.where(mask[:, None, None, :], s, -1e9), axis=-1)
            return jnp.einsum("bhqk,bhkd->bhqd", p, v)

        return attend


@program("VAE step, SGD")
class VAEStep:
    def inputs(rng):
        params = {"encode": dense(rng, 784, 256, 40), "decode": dense(rng, 20, 256, 784)}
        return params, (rng.random((128, 784)) < 0.3).astype(F), normal(rng, 128, 20)

    def ours():
        import tessera as ts
        from tessera import nn, xp

        def mlp(layers, x):
            first, last = layers
            return nn.relu(x @ first["w"] + first["b"]) @ last["w"] + last["b"]

        def loss(params, x, noise):
            mean, log_var = xp.split(mlp(params["encode"], x), 2, axis=-1)
            logits = mlp(params["decode"], mean + xp.exp(0.5 * log_var) * noise)
            fit = xp.sum(xp.maximum(logits, 0.0) - logits * x + xp.log1p(xp.exp(-xp.abs(logits))), axis=-1)
            kl = -0.5 * xp.sum(1 + log_var - mean**2 - xp.exp(log_var), axis=-1)
            return xp.mean(fit + kl)

        @ts.jit
        def step(params, x, noise):
            value, grads = ts.value_and_grad(loss)(params, x, noise)
            return ts.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value

        return step

    def theirs():
        import jax
        import jax.numpy as jnp

        def mlp(layers, x):
            first, last = layers
            return jax.nn.relu(x @ first["w"] + first["b"]) @ last["w"] + last["b"]

        def loss(params, x, noise):
            mean, log_var = jnp.split(mlp(params["encode"], x), 2, axis=-1)
            logits = mlp(params["decode"], mean + jnp.exp(0.5 * log_var) * noise)
            fit = jnp.sum(jnp.maximum(logits, 0.0) - logits * x + jnp.log1p(jnp.exp(-jnp.abs(logits))), axis=-1)
            kl = -0.5 * jnp.sum(1 + log_var - mean**2 - jnp.exp(log_var), axis=-1)
            return jnp.mean(fit + kl)

        @jax.jit
        def step(params, x, noise):
            value, grads = jax.value_and_grad(loss)(params, x, noise)
            return jax.tree.map(lambda p, g: p - 1e-3 * g, params, grads), value

        return step


@program("embedding step, SGD")
class EmbeddingStep:
    def inputs(rng):
        params = {"table": normal(rng, 10_000, 64), "head": dense(rng, 64, 5)[0]}
        return params, rng.integers(0, 10_000, (64, 50)).astype(np.int32), rng.integers(0, 5, 64).astype(np.int32)

    def ours():
        import tessera as ts
        from tessera import nn, xp

        def loss(params, tokens, labels):
            h = xp.mean(params["table"][tokens], axis=1)
            log_p = nn.log_softmax(h @ params["head"]["w"] + params["head"]["b"])
            return -xp.mean(xp.sum(log_p * nn.one_hot(labels, 5), axis=-1))

        @ts.jit
        def step(params, tokens, labels):
            value, grads = ts.value_and_grad(loss)(params, tokens, labels)
            return ts.tree.map(lambda p, g: p - 0.5 * g, params, grads), value

        return step

    def theirs():
        import jax
        import jax.numpy as jnp

        def loss(params, tokens, labels):
            h = jnp.mean(params["table"][tokens], axis=1)
            log_p = jax.nn.log_softmax(h @ params["head"]["w"] + params["head"]["b"])
            return -jnp.mean(jnp.sum(log_p * jax.nn.one_hot(labels, 5), axis=-1))

        @jax.jit
        def step(params, tokens, labels):
            value, grads = jax.value_and_grad(loss)(params, tokens, labels)
            return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads), value

        return step


@program("graph network gradient", bound=1e-4, why="sums over neighbours in another order, twice")
class GraphNetwork:
    def inputs(rng):
        params = [{"message": normal(rng, 128, 64, scale=0.1), "update": normal(rng, 128, 64, scale=0.1)} for _ in range(2)]
        source, target = rng.integers(0, 2000, (2, 10_000)).astype(np.int32)
        return params, normal(rng, 2000, 64), source, target, normal(rng, 2000, 64)

    def ours():
        import tessera as ts
        from tessera import nn, xp

        def loss(params, h, source, target, y):
            for p in params:
                messages = nn.relu(xp.concatenate([h[source], h[target]], axis=-1) @ p["message"])
                total = xp.segment_sum(messages, target, num_segments=h.shape[0])
                h = xp.tanh(xp.concatenate([h, total], axis=-1) @ p["update"])
            return xp.mean((h - y) ** 2)

        return ts.jit(ts.value_and_grad(loss))

    def theirs():
        import jax
        import jax.numpy as jnp

        def loss(params, h, source, target, y):
            for p in params:
                messages = jax.nn.relu(jnp.concatenate([h[source], h[target]], axis=-1) @ p["message"])
                total = jax.ops.segment_sum(messages, target, num_segments=h.shape[0])
                h = jnp.tanh(jnp.concatenate([h, total], axis=-1) @ p["update"])
            return jnp.mean((h - y) ** 2)

        return jax.jit(jax.value_and_grad(loss))
