"""The problems in JAX, compiled by XLA. Of several formulations of one, the fastest counts."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from bench.kernels_cpu import LAYERNORM_EPS, RMSNORM_EPS

from .case import Contender
from .timing import fastest

# On one core, dispatch to another thread only costs time.
jax.config.update("jax_cpu_enable_async_dispatch", False)


class Call:
    """A compiled function that is given a new buffer for its result with each call."""

    form = "new result"

    def __init__(self, function, inputs):
        self.function, self.inputs, self.out = jax.jit(function), inputs, None

    def __call__(self):
        self.out = self.function(*self.inputs).block_until_ready()


class CallInto(Call):
    """One that writes over its latest result, as the other contenders do: a donated buffer."""

    form = "result donated"

    def __init__(self, function, inputs, start=None):
        super().__init__(function, inputs)
        self.start = start
        if start is None:
            shape = jax.eval_shape(function, *inputs)
            self.start = np.zeros(shape.shape, shape.dtype)
            whole = lambda *args: function(*args[:-1])  # noqa: E731
        else:
            whole = function
        self.function = jax.jit(whole, donate_argnums=len(inputs), keep_unused=True)
        self.reset()

    def reset(self):
        self.out = jnp.array(self.start)

    def __call__(self):
        self.out = self.function(*self.inputs, self.out).block_until_ready()


def contender(forms, inputs, work):
    """The fastest of the functions in `forms`, each tried with a new result and with a donated one."""
    inputs = [jnp.array(x) for x in inputs]
    calls = [(f"{form}, {kind.form}", kind(f, inputs)) for form, f in forms.items() for kind in (Call, CallInto)]
    index, least = fastest([call for _, call in calls])
    form, best = calls[index]
    tried = {name: seconds for (name, _), seconds in zip(calls, least)}
    return Contender(best, lambda: best.out, work, form=form, tried=tried)


def saxpy(alpha, x, y, work):
    call = CallInto(lambda x, y: alpha * x + y, [jnp.array(x)], start=y)
    return Contender(call, lambda: call.out, work, reset=call.reset, form="y donated")


def gemm(a, b, work, dtype=None):
    """`a @ b`, in the dtype of the operands or in another."""
    form = {"a @ b": lambda a, b: a @ b} if dtype is None else {
        "matmul": lambda a, b: jnp.matmul(a, b, preferred_element_type=dtype)
    }  # fmt: skip
    return contender(form, (a, b), work)


def gelu_formula(x, w):
    t = x + w
    return 0.5 * t * (1 + jnp.tanh(math.sqrt(2 / math.pi) * (t + 0.044715 * t * t * t))) * x


def softmax_formula(x):
    weights = jnp.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def layernorm_formula(x, scale, shift):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred * centred).mean(-1, keepdims=True) + LAYERNORM_EPS) * scale + shift


def layernorm_two_sums(x, scale, shift):
    """One pass over the row; it cancels where the mean is large, which it is not here."""
    mean = x.mean(-1, keepdims=True)
    variance = (x * x).mean(-1, keepdims=True) - mean * mean
    return (x - mean) * jax.lax.rsqrt(variance + LAYERNORM_EPS) * scale + shift


def rmsnorm_formula(x, scale):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + RMSNORM_EPS) * scale


GELU = {"formula": gelu_formula, "jax.nn": lambda x, w: jax.nn.gelu(x + w, approximate=True) * x}
SOFTMAX = {"formula": softmax_formula, "jax.nn": jax.nn.softmax}
LAYERNORM = {"two passes": layernorm_formula, "one pass": layernorm_two_sums}
RMSNORM = {"formula": rmsnorm_formula}


def scores(q, k, is_causal):
    s = jnp.einsum("bqd,bkd->bqk", q, k) * (1 / math.sqrt(q.shape[-1]))
    return jnp.where(jnp.tri(s.shape[-1], dtype=bool), s, -jnp.inf) if is_causal else s


def attention_softmax(q, k, v, is_causal):
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(scores(q, k, is_causal)), v)


def attention_late_division(q, k, v, is_causal):
    s = scores(q, k, is_causal)
    weights = jnp.exp(s - s.max(-1, keepdims=True))
    return jnp.einsum("bqk,bkd->bqd", weights, v) / weights.sum(-1, keepdims=True)


def attention_of_jax(q, k, v, is_causal):
    """`jax.nn` wants ``(batch, length, heads, depth)``."""
    turned = (x.transpose(1, 0, 2)[None] for x in (q, k, v))
    return jax.nn.dot_product_attention(*turned, is_causal=is_causal)[0].transpose(1, 0, 2)


def attention(q, k, v, is_causal, work):
    forms = {"softmax": attention_softmax, "division at the end": attention_late_division, "jax.nn": attention_of_jax}
    forms = {name: functools.partial(f, is_causal=is_causal) for name, f in forms.items()}
    return contender(forms, (q, k, v), work)
