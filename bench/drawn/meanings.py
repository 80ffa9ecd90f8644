"""The functions that drawn expressions are made of, in NumPy, JAX and PyTorch, and as functions of the tile language.

One expression has several meanings: in float64 it is the reference, in the dtype of the arrays it is what a user of the framework
would write, and where it is a part of a kernel's source the tile functions are meant.
"""

import math

EPS = 1e-5

#: In front of every source. Functions of rows work on tiles of whole rows.
TILE_SOURCE = '''\
import math

import tessera as ts


@ts.func
def relu(t):
    return ts.tile.maximum(t, 0.0)


@ts.func
def silu(t):
    return t * ts.tile.sigmoid(t)


@ts.func
def gelu(t):
    return 0.5 * t * (1.0 + ts.tile.erf(t * math.sqrt(0.5)))


@ts.func
def gelu_tanh(t):
    return 0.5 * t * (1.0 + ts.tile.tanh(math.sqrt(2.0 / math.pi) * (t + 0.044715 * t * t * t)))


@ts.func
def tanh(t):
    return ts.tile.tanh(t)


@ts.func
def sigmoid(t):
    return ts.tile.sigmoid(t)


@ts.func
def square(t):
    return t * t


@ts.func
def absolute(t):
    return ts.tile.abs(t)


@ts.func
def softmax(t):
    w = ts.tile.exp(t - ts.tile.max(t, axis=1)[:, None])
    return w / ts.tile.sum(w, axis=1)[:, None]


@ts.func
def rmsnorm(t):
    return t * ts.tile.rsqrt(ts.tile.mean(t * t, axis=1) + 1e-5)[:, None]


@ts.func
def layernorm(t):
    c = t - ts.tile.mean(t, axis=1)[:, None]
    return c * ts.tile.rsqrt(ts.tile.mean(c * c, axis=1) + 1e-5)[:, None]


'''


class ArrayNames:
    """NumPy's and JAX's, which share their names."""

    def __init__(self, xp, erf):
        self.xp, self.erf = xp, erf
        self.tanh, self.square, self.absolute = xp.tanh, xp.square, xp.abs

    def names(self):
        return {name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name not in ("xp", "names")}

    def relu(self, x):
        return self.xp.maximum(x, 0)

    def sigmoid(self, x):
        return 1 / (1 + self.xp.exp(-x))

    def silu(self, x):
        return x * self.sigmoid(x)

    def gelu(self, x):
        return 0.5 * x * (1 + self.erf(x * math.sqrt(0.5)))

    def gelu_tanh(self, x):
        return 0.5 * x * (1 + self.xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))

    def softmax(self, x):
        w = self.xp.exp(x - x.max(-1, keepdims=True))
        return w / w.sum(-1, keepdims=True)

    def log_softmax(self, x):
        s = x - x.max(-1, keepdims=True)
        return s - self.xp.log(self.xp.exp(s).sum(-1, keepdims=True))

    def rmsnorm(self, x, scale=1):
        return x / self.xp.sqrt((x * x).mean(-1, keepdims=True) + EPS) * scale

    def layernorm(self, x, scale=1, shift=0):
        c = x - x.mean(-1, keepdims=True)
        return c / self.xp.sqrt((c * c).mean(-1, keepdims=True) + EPS) * scale + shift

    def matmul(self, a, b):
        return a @ b

    def reduced(self, x, op, axis):
        return getattr(x, op)(axis)

    def transposed(self, x, axes):
        return self.xp.ascontiguousarray(x.transpose(axes)) if hasattr(self.xp, "ascontiguousarray") else x.transpose(axes)

    def padded(self, x, r):
        return self.xp.pad(x, r)

    def taken(self, x, rows):
        return self.xp.take(x, rows, axis=0)

    def taken_along(self, x, columns):
        return self.xp.take_along_axis(x, columns, axis=1)

    def attention(self, q, k, v, causal=False, window=0, cap=0.0, slope=0.0):
        xp = self.xp
        if q.ndim == 4 and q.shape[1] != k.shape[1]:
            k, v = (xp.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
        s = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
        apart = xp.arange(k.shape[-2])[None, :] - xp.arange(q.shape[-2])[:, None] - (k.shape[-2] - q.shape[-2])
        s = cap * xp.tanh(s / cap) if cap else s
        s = s - slope * abs(apart) if slope else s
        if causal or window:
            seen = (apart <= 0) & (apart > -window if window else True)
            s = xp.where(seen, s, -xp.inf)
        return self.softmax(s) @ v


class TorchNames:
    """PyTorch's, each as its users write it."""

    def __init__(self, torch):
        F = torch.nn.functional
        self.torch, self.F = torch, F
        self.relu, self.silu, self.gelu = F.relu, F.silu, F.gelu
        self.tanh, self.sigmoid, self.square, self.absolute = torch.tanh, torch.sigmoid, torch.square, torch.abs
        self.matmul = torch.matmul

    def names(self):
        return {name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name != "names"}

    def gelu_tanh(self, x):
        return self.F.gelu(x, approximate="tanh")

    def softmax(self, x):
        return self.torch.softmax(x, -1)

    def log_softmax(self, x):
        return self.torch.log_softmax(x, -1)

    def rmsnorm(self, x, scale=None):
        return self.F.rms_norm(x, x.shape[-1:], scale, EPS)

    def layernorm(self, x, scale=None, shift=None):
        return self.F.layer_norm(x, x.shape[-1:], scale, shift, EPS)

    def reduced(self, x, op, axis):
        return getattr(self.torch, {"max": "amax", "min": "amin"}.get(op, op))(x, dim=axis)

    def transposed(self, x, axes):
        return x.permute(axes).contiguous()

    def padded(self, x, r):
        return self.F.pad(x, (r, r, r, r))

    def taken(self, x, rows):
        return x.index_select(0, rows)

    def taken_along(self, x, columns):
        return x.gather(1, columns.long())

    def attention(self, q, k, v, causal=False, window=0, cap=0.0, slope=0.0):
        torch = self.torch
        if q.ndim == 4 and q.shape[1] != k.shape[1]:
            k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        rows, columns = (torch.arange(n, device=q.device) for n in (q.shape[-2], k.shape[-2]))
        apart = columns[None, :] - rows[:, None] - (k.shape[-2] - q.shape[-2])
        s = cap * torch.tanh(s / cap) if cap else s
        s = s - slope * apart.abs() if slope else s
        if causal or window:
            hidden = (apart > 0) | (apart <= -window if window else False)
            s = s.masked_fill(hidden, -math.inf)
        return torch.softmax(s, -1).to(v.dtype) @ v


def numpy_names():
    import numpy as np

    return ArrayNames(np, np.vectorize(math.erf, otypes=[np.float64])).names()


def jax_names():
    import jax

    return ArrayNames(jax.numpy, jax.scipy.special.erf).names()


def torch_names(torch):
    return TorchNames(torch).names()


def load(text, name):
    """The names that a source defines. Its lines are kept where Python looks for them."""
    import linecache

    file = f"<wild {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    found = {"__name__": file}
    exec(compile(text, file, "exec"), found)
    return found
