"""Every function of whole arrays, with its NumPy reference and the arguments to try: the table that the tests of Graph IR
walk. ``domain`` is the range of random arguments; ``smooth`` whether there is a derivative to compare with differences."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, Callable

import numpy as np
import xp_cases

from tessera import nn, xp
from tessera._core import real_functions
from tessera.trace import prim as _p

# No shape is left out: empty, of extent one, stretched, without axes.
ONE = [((3, 4),), ((),), ((0, 3),), ((1, 1),), ((5,),)]
TWO = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((0, 3), (1, 3)), ((1,), (1,))]


@dataclass(frozen=True)
class Op:
    name: str
    fn: Callable
    reference: Callable
    shapes: list = field(default_factory=lambda: ONE)
    domain: tuple[float, float] = (-2.0, 2.0)
    smooth: bool = True
    ints: tuple[int, ...] = ()
    bound: float = 1e-12
    #: Whether the function takes arrays of any extents above one, as long as equal ones stay equal.
    any_extent: bool = True


#: Labels of four sequences, a pair of equal ones among them; how many steps and labels of each count.
CTC_LABELS, CTC_STEPS, CTC_COUNTS = np.array([[1, 2], [1, 1], [2, 0], [1, 2]]), np.array([5, 5, 4, 3]), np.array([2, 2, 1, 0])


def ctc_paths(steps, labels, classes=3):
    """All alignments of the labels with this many steps: a repeated class counts once, and 0 is a blank."""
    for path in itertools.product(range(classes), repeat=steps):
        if [a for i, a in enumerate(path) if a and (i == 0 or path[i - 1] != a)] == list(labels):
            yield path


def _ctc(x):
    log_p = x - np.log(np.exp(x).sum(-1, keepdims=True))
    total = [sum(np.exp(sum(row[t, c] for t, c in enumerate(path))) for path in ctc_paths(n, labels[:m]))
             for row, labels, n, m in zip(log_p, CTC_LABELS, CTC_STEPS, CTC_COUNTS, strict=True)]  # fmt: skip
    return -np.log(total).mean()


def _batchnorm(x, w, b=None):
    axes, column = (0, *range(2, x.ndim)), (-1, *[1] * (x.ndim - 2))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)
    return y * w.reshape(column) + (0 if b is None else b.reshape(column))


def _focal(x, t):
    each = np.log1p(np.exp(x)) - x * t
    return ((1 - np.exp(-each)) ** 2 * each).mean()


def _apart(a, b):
    return np.sqrt(((a - b) ** 2).sum(-1) + 1e-12)


def _contrastive(a, b, s):
    d = _apart(a, b)
    return (s * d**2 + (1 - s) * np.maximum(1 - d, 0) ** 2).mean() / 2


def _info_nce(q, k):
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-12) for x in (q, k))
    return -np.log(np.diagonal(_softmax(q @ k.T / 0.1))).mean()


_erf = np.vectorize(math.erf, otypes=[float])


def _softmax(x, axis=-1):
    e = np.exp(x - (x.max(axis, keepdims=True) if x.size else 0))
    return e / e.sum(axis, keepdims=True)


def _layernorm(x, w=None, b=None):
    far = x - x.mean(-1, keepdims=True)
    y = far / np.sqrt((far * far).mean(-1, keepdims=True) + 1e-5)
    return y * (1 if w is None else w) + (0 if b is None else b)


def _attention(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    s = np.where(np.tril(np.ones(s.shape[-2:], bool), s.shape[-1] - s.shape[-2]), s, -np.inf)
    return _softmax(s) @ v


def _conv2d(x, w):
    n, _, h, wd = x.shape
    o, _, kh, kw = w.shape
    out = np.zeros((n, o, h - kh + 1, wd - kw + 1))
    for i in range(out.shape[2]):
        for j in range(out.shape[3]):
            out[:, :, i, j] = np.einsum("nchw,ochw->no", x[:, :, i : i + kh, j : j + kw], w)
    return out


def _pool(x, fn):
    n, c, h, w = x.shape
    return fn(x.reshape(n, c, h // 2, 2, w // 2, 2), axis=(3, 5))


def _cross_entropy(x, labels):
    log_p = np.log(_softmax(x))
    return -np.take_along_axis(log_p, labels[..., None], -1).mean()


_ACTIVATIONS = {
    "relu6": lambda x: np.clip(x, 0, 6), "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "celu": lambda x: np.where(x > 0, x, np.expm1(x)), "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6, "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "soft_sign": lambda x: x / (1 + np.abs(x)), "log_sigmoid": lambda x: -np.log1p(np.exp(-x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
}  # fmt: skip


def _drawn(op: Op) -> tuple:
    """Shapes by chance: any rank for functions of elements, else the first shapes with other extents."""
    # The name is the seed: a new row leaves the others as they are.
    rng = np.random.default_rng(list(op.name.encode()))
    if op.shapes is ONE:
        return (tuple(int(d) for d in rng.integers(1, 6, rng.integers(0, 5))),)
    if op.shapes is TWO:
        full = [int(d) for d in rng.integers(1, 6, rng.integers(1, 5))]
        cut = [full[int(rng.integers(0, len(full) + 1)) :], full]
        # Every extent is there in one of the two at least.
        parts = [tuple(1 if rng.random() < 0.25 else d for d in cut[0]), tuple(cut[1])]
        return tuple(parts[:: int(rng.choice([-1, 1]))])
    names = {d: int(rng.integers(2, 7)) for shape in op.shapes[0] for d in shape if d > 1}
    return tuple(tuple(names.get(d, d) for d in shape) for shape in op.shapes[0])


def cases() -> list[tuple[Op, tuple]]:
    """Every row with every shape: those that are written, and one by chance where any extents will do."""
    out = []
    for op in OPS:
        shapes = [*op.shapes, *([_drawn(op)] if op.any_extent else [])]
        out += [(op, s) for s in dict.fromkeys(shapes)]
    return out


def unary(name: str, reference: Any, low: float = -2.0, high: float = 2.0, smooth: bool = True) -> Op:
    return Op(name, getattr(xp, name), reference, ONE, (low, high), smooth)


def binary(name: str, reference: Any, low: float = -2.0, high: float = 2.0, smooth: bool = True) -> Op:
    return Op(name, getattr(xp, name), reference, TWO, (low, high), smooth)


def _real(name: str) -> Op:
    """The row of a real function that is NumPy's of the same name, on the first range where it and its derivative are finite."""
    reference = getattr(np, name)
    for low, high in ((-2.0, 2.0), (0.3, 3.0), (-0.9, 0.9), (1.2, 3.0)):
        with np.errstate(all="ignore"):
            at = reference(np.linspace(low, high, 1001))
        if np.isfinite(at).all() and np.abs(np.diff(at)).max() < 0.1:
            return unary(name, reference, low, high)
    raise ValueError(f"no range for {name}: write a row of OPS")


OPS = [
    *(unary(n, getattr(np, n)) for n in ("exp", "exp2", "expm1", "sin", "cos", "tanh", "sinh", "cosh", "negative", "square", "asinh")),
    *(unary(n, getattr(np, n), 0.3, 3.0) for n in ("log", "log2", "log1p", "log10", "sqrt", "reciprocal", "abs")),
    *(unary(n, getattr(np, n), -0.9, 0.9) for n in ("tan", "asin", "acos", "atan", "atanh")),
    unary("acosh", np.arccosh, 1.2, 3.0), unary("erf", _erf), unary("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
    unary("rsqrt", lambda x: 1 / np.sqrt(x), 0.3, 3.0), unary("positive", np.positive),
    *(unary(n, getattr(np, n), smooth=False) for n in ("floor", "ceil", "round", "trunc", "sign", "isnan", "isinf", "isfinite", "signbit")),
    *(binary(n, getattr(np, n)) for n in ("add", "subtract", "multiply", "maximum", "minimum", "hypot", "logaddexp")),
    *(binary(n, getattr(np, n), 0.5, 3.0) for n in ("divide", "atan2", "pow", "copysign")),
    *(binary(n, getattr(np, n), smooth=False) for n in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
                                                      "floor_divide", "remainder", "logical_and", "logical_or", "logical_xor")),
    unary("logical_not", np.logical_not, smooth=False),
    Op("clip", lambda x: xp.clip(x, -1.0, 1.0), lambda x: np.clip(x, -1, 1)),
    Op("where", lambda x, y: xp.where(x > y, x, y * 2), lambda x, y: np.where(x > y, x, y * 2), TWO),
    Op("power of a number", lambda x: x**3 + x**2.0, lambda x: x**3 + x**2),
    Op("fma", lambda x, y: xp.fma(x, y, x), lambda x, y: x * y + x, TWO),
    # Reductions and scans.
    *(Op(f"{n}{axis}", lambda x, n=n, axis=axis: getattr(xp, n)(x, axis), lambda x, n=n, axis=axis: getattr(np, n)(x, axis=axis),
         # The deviation of one element has no derivative: the root of zero.
         [((3, 4),), ((2, 3),)] if n == "std" else [((3, 4),), ((1, 5),), ((2, 3),)], (0.5, 2.0))
      for n in ("sum", "prod", "max", "min", "mean", "var", "std")
      for axis in (None, 0, -1)),
    Op("sum of nothing", lambda x: xp.sum(x, 0), lambda x: x.sum(0), [((0, 3),), ((3, 0),)]),
    Op("sum, axes kept", lambda x: xp.sum(x, (0, 2), keepdims=True), lambda x: x.sum((0, 2), keepdims=True), [((2, 3, 4),)]),
    *(Op(n, lambda x, n=n: getattr(xp, n)(x, -1), lambda x, n=n: getattr(np, n)(x, -1), [((3, 4),), ((1,),)], smooth=False)
      for n in ("argmax", "argmin", "any", "all", "argsort", "count_nonzero")),
    Op("sort", lambda x: xp.sort(x, 0), lambda x: np.sort(x, 0), [((5, 3),), ((1, 2),), ((0, 2),)]),
    Op("sort, descending", lambda x: xp.sort(x, descending=True), lambda x: -np.sort(-x), [((3, 5),)]),
    Op("top_k", lambda x: xp.top_k(x, 2)[0], lambda x: -np.sort(-x)[..., :2], [((3, 5),)], any_extent=False),
    Op("cumulative_sum", lambda x: xp.cumulative_sum(x, -1), lambda x: np.cumsum(x, -1), [((3, 4),), ((1,),), ((2, 0),)]),
    Op("cumulative_prod", lambda x: xp.cumulative_prod(x, 0), lambda x: np.cumprod(x, 0), [((3, 4),), ((1,),)], (0.5, 2.0)),
    Op("logsumexp", lambda x: xp.logsumexp(x, -1), lambda x: np.log(np.exp(x).sum(-1)), [((3, 4),), ((1, 1),)]),
    # Shapes.
    Op("reshape", lambda x: xp.reshape(x, (-1, 2)), lambda x: x.reshape(-1, 2), [((3, 4),), ((1, 2),)], any_extent=False),
    Op("permute_dims", lambda x: xp.permute_dims(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1), [((2, 3, 4),), ((1, 0, 2),)]),
    Op("swapaxes", lambda x: xp.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1), [((2, 3, 4),)]),
    Op("moveaxis", lambda x: xp.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1), [((2, 3, 4),)]),
    Op("expand_dims", lambda x: xp.expand_dims(x, 1), lambda x: np.expand_dims(x, 1), [((3, 4),)]),
    Op("squeeze", lambda x: xp.squeeze(x, 1), lambda x: np.squeeze(x, 1), [((3, 1, 2),)]),
    Op("broadcast_to", lambda x: xp.broadcast_to(x, (2, 3, 4)), lambda x: np.broadcast_to(x, (2, 3, 4)), [((3, 1),), ((),), ((4,),)], any_extent=False),
    Op("concat", lambda x, y: xp.concat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), [((3, 2), (3, 4)), ((3, 0), (3, 1))]),
    Op("stack", lambda x, y: xp.stack([x, y], -1), lambda x, y: np.stack([x, y], -1), [((3, 2), (3, 2)), ((), ())]),
    Op("split", lambda x: xp.split(x, 2, 1)[1], lambda x: np.split(x, 2, 1)[1], [((3, 4),)], any_extent=False),
    Op("flip", lambda x: xp.flip(x, 0), lambda x: np.flip(x, 0), [((3, 4),), ((0,),)]),
    Op("roll", lambda x: xp.roll(x, 2, 1), lambda x: np.roll(x, 2, 1), [((3, 5),)]),
    Op("tile", lambda x: xp.tile(x, (2, 3)), lambda x: np.tile(x, (2, 3)), [((2, 3),), ((3,),)]),
    Op("repeat", lambda x: xp.repeat(x, 3, 0), lambda x: np.repeat(x, 3, 0), [((2, 3),)]),
    Op("pad", lambda x: xp.pad(x, [(1, 0), (2, 1)]), lambda x: np.pad(x, [(1, 0), (2, 1)]), [((2, 3),), ((1, 0),)]),
    Op("matrix_transpose", xp.matrix_transpose, lambda x: np.swapaxes(x, -1, -2), [((2, 3, 4),), ((1, 0),)]),
    Op("broadcast_arrays", lambda x, y: xp.broadcast_arrays(x, y)[0] * y, lambda x, y: np.broadcast_arrays(x, y)[0] * y, TWO),
    Op("unstack", lambda x: xp.unstack(x, axis=1)[2], lambda x: x[:, 2], [((3, 4),)], any_extent=False),
    Op("meshgrid", lambda x, y: xp.meshgrid(x, y)[0] * xp.meshgrid(x, y)[1], lambda x, y: np.meshgrid(x, y)[0] * np.meshgrid(x, y)[1], [((3,), (4,))]),
    Op("astype", lambda x: xp.astype(x * x, "f64") + x, lambda x: x * x + x, ONE),
    Op("dynamic_slice", lambda x, i: _p.dynamic_slice(x, [i, i], (2, 2)), lambda x, i: _part(x, i), [((4, 3), ())], ints=(1,), any_extent=False),
    Op("tril", xp.tril, np.tril, [((4, 4),), ((2, 3, 5),)]), Op("triu", xp.triu, np.triu, [((4, 4),)]),
    # Indexing.
    Op("x[1]", lambda x: x[1], lambda x: x[1], [((3, 4),)], any_extent=False),
    Op("x[..., None, ::2]", lambda x: x[..., None, ::2], lambda x: x[..., None, ::2], [((3, 5),), ((2, 3, 1),)]),
    Op("x[::-2, 1:-1]", lambda x: x[::-2, 1:-1], lambda x: x[::-2, 1:-1], [((5, 4),), ((1, 2),)], any_extent=False),
    Op("x[i]", lambda x, i: x[i], lambda x, i: x[i], [((4, 3), (5,)), ((4, 3), (2, 2))], ints=(1,)),
    Op("x[:, i]", lambda x, i: x[:, i], lambda x, i: x[:, i], [((2, 4, 3), (5,))], ints=(1,)),
    Op("x[i, :, i]", lambda x, i: x[i, :, i], lambda x, i: x[i, :, i], [((4, 3, 4), (5,))], ints=(1,)),
    Op("take", lambda x, i: xp.take(x, i, 1), lambda x, i: np.take(x, i, 1), [((3, 4), (2, 2))], ints=(1,)),
    Op("take_along_axis", xp.take_along_axis, lambda x, i: np.take_along_axis(x, i, -1), [((3, 4), (3, 2)), ((4,), (7,))], ints=(1,)),
    Op("at.add", lambda x, i: xp.at(x)[i].add(2.0 * x[0]), lambda x, i: _added(x, i, 2.0 * x[0]), [((4, 3), (5,))], ints=(1,)),
    Op("at.set", lambda x: xp.at(x)[1:, 0].set(7.0), lambda x: _set(x), [((3, 2),)], any_extent=False),
    # Products.
    Op("matmul", xp.matmul, np.matmul, [((3, 4), (4, 5)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((4,), (4, 5)),
                                        ((3, 4), (4,)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 2)), ((2, 0), (0, 3))]),
    Op("tensordot", lambda a, b: xp.tensordot(a, b, 2), lambda a, b: np.tensordot(a, b, 2), [((2, 3, 4), (3, 4, 5))]),
    Op("vecdot", xp.vecdot, lambda a, b: (a * b).sum(-1), [((3, 4), (3, 4)), ((3, 4), (4,))]),
    Op("outer", xp.outer, np.outer, [((3,), (4,))]),
    *(Op(f"einsum {s}", lambda *a, s=s: xp.einsum(s, *a), lambda *a, s=s: np.einsum(s, *a), [shapes]) for s, shapes in [
        ("bqd,bkd->bqk", ((2, 3, 4), (2, 5, 4))), ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))), ("ii->i", ((3, 3),)),
        ("ij->", ((2, 3),)), ("...ij,...jk->...ik", ((2, 2, 3), (2, 3, 4))), ("i,j->ij", ((2,), (3,)))]),
    # Models.
    Op("softmax", nn.softmax, _softmax, [((3, 4),), ((1, 1),)]),
    Op("log_softmax", nn.log_softmax, lambda x: np.log(_softmax(x)), [((3, 4),)]),
    Op("layernorm", nn.layernorm, _layernorm, [((3, 4),), ((3, 4), (4,), (4,)), ((2, 3, 5), (5,))]),
    Op("rmsnorm", nn.rmsnorm, lambda x, w=1.0: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w, [((3, 4),), ((3, 4), (4,))]),
    Op("groupnorm", lambda x: nn.groupnorm(x, 2), lambda x: _layernorm(x.reshape(x.shape[0], 2, -1)).reshape(x.shape), [((2, 4, 3),)], any_extent=False),
    Op("gelu", nn.gelu, lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))), ONE),
    Op("gelu, tanh", lambda x: nn.gelu(x, True), lambda x: x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))), ONE),
    Op("silu", nn.silu, lambda x: x / (1 + np.exp(-x))), Op("relu", nn.relu, lambda x: np.maximum(x, 0)),
    *[Op(name, getattr(nn, name), reference) for name, reference in _ACTIVATIONS.items()],
    Op("glu", nn.glu, lambda x: np.split(x, 2, -1)[0] / (1 + np.exp(-np.split(x, 2, -1)[1])), [((3, 4),), ((2, 0),), ((6,),)], any_extent=False),
    Op("softplus", nn.softplus, lambda x: np.log1p(np.exp(x))), Op("leaky_relu", nn.leaky_relu, lambda x: np.where(x > 0, x, x * 0.01)),
    Op("elu", nn.elu, lambda x: np.where(x > 0, x, np.expm1(x))),
    Op("cross_entropy", nn.cross_entropy, _cross_entropy, [((3, 4), (3,)), ((2, 3, 4), (2, 3))], ints=(1,)),
    Op("mse_loss", nn.mse_loss, lambda a, b: ((a - b) ** 2).mean(), [((3, 4), (3, 4))]),
    Op("l1_loss", nn.l1_loss, lambda a, b: np.abs(a - b).mean(), [((3, 4), (3, 4))]),
    Op("huber_loss", nn.huber_loss, lambda a, b: _huber(np.abs(a - b)).mean(), [((3, 4), (3, 4))]),
    Op("smooth_l1_loss", nn.smooth_l1_loss, lambda a, b: _huber(np.abs(a - b)).mean(), [((3, 4), (3, 4))]),
    Op("binary_cross_entropy", nn.binary_cross_entropy, lambda x, t: (np.log1p(np.exp(x)) - x * t).mean(), [((3, 4), (3, 4))]),
    Op("nll_loss", nn.nll_loss, lambda x, i: -np.take_along_axis(x, i[..., None], -1).mean(), [((3, 4), (3,))], ints=(1,)),
    Op("kl_div", nn.kl_div, lambda x, t: (t * (np.log(t) - x)).mean(), [((3, 4), (3, 4))], (0.2, 1.5)),
    Op("instancenorm", nn.instancenorm, lambda x: _layernorm(x.reshape(*x.shape[:2], -1)).reshape(x.shape), [((2, 3, 4),)], any_extent=False),
    Op("batchnorm", nn.batchnorm, _batchnorm, [((5, 3), (3,), (3,)), ((2, 3, 4), (3,))], any_extent=False),
    Op("weightnorm", nn.weightnorm, lambda v, g: v * (g / np.sqrt((v * v).sum(-1)))[:, None], [((3, 4), (3,))]),
    Op("swiglu", nn.swiglu, lambda x, g: x * g / (1 + np.exp(-g)), [((3, 4), (3, 4))]),
    Op("focal_loss", nn.focal_loss, _focal, [((3, 4), (3, 4))], (0.1, 0.9)),
    Op("contrastive_loss", nn.contrastive_loss, _contrastive, [((3, 4), (3, 4), (3,))]),
    Op("triplet_loss", nn.triplet_loss, lambda a, b, c: np.maximum(_apart(a, b) - _apart(a, c) + 1, 0).mean(), [((3, 4), (3, 4), (3, 4))]),
    Op("info_nce_loss", nn.info_nce_loss, _info_nce, [((3, 4), (3, 4))], bound=1e-10),
    Op("ctc_loss", lambda x: nn.ctc_loss(nn.log_softmax(x), CTC_LABELS, CTC_STEPS, CTC_COUNTS), _ctc, [((4, 5, 3),)], any_extent=False),
    Op("embedding", nn.embedding, lambda t, i: t[i], [((4, 3), (2, 5))], ints=(1,)),
    Op("attention", lambda q, k, v: nn.attention(q, k, v, causal=True), _attention, [((2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3))], any_extent=False),
    Op("conv2d", nn.conv2d, _conv2d, [((2, 3, 5, 6), (4, 3, 3, 2)), ((1, 1, 3, 3), (1, 1, 3, 3))], any_extent=False),
    Op("conv1d", nn.conv1d, lambda x, w: _conv2d(x[:, :, None], w[:, :, None])[:, :, 0], [((2, 3, 6), (4, 3, 2))], any_extent=False),
    Op("conv3d", nn.conv3d, lambda x, w: _conv2d(x[:, :, 0], w[:, :, 0])[:, :, None], [((1, 2, 1, 4, 3), (2, 2, 1, 2, 2))], any_extent=False),
    Op("max_pool", lambda x: nn.max_pool(x, 2), lambda x: _pool(x, np.max), [((2, 3, 4, 6),)], any_extent=False),
    Op("avg_pool", lambda x: nn.avg_pool(x, 2), lambda x: _pool(x, np.mean), [((2, 3, 4, 6),)], any_extent=False),
]  # fmt: skip
OPS += [_real(name) for name, arity, _ in real_functions() if arity == 1 and not any(op.name == name for op in OPS)]


#: Functions of arrays that have no row, and why.
LEFT_OUT = {
    **dict.fromkeys(("arange", "eye", "linspace", "full", "full_like", "ones_like", "zeros_like", "empty_like", "ones", "zeros",
                     "empty", "asarray", "one_hot"), "makes an array of numbers that are not arguments"),
    **dict.fromkeys(("bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
                     "searchsorted"), "gives integers of integers or positions: no derivative; values in test_array_api.py"),
    **dict.fromkeys(("can_cast", "finfo", "iinfo", "isdtype", "result_type", "from_dlpack"), "tells of dtypes, or brings an array in"),
    **dict.fromkeys(("nonzero", "unique_all", "unique_counts", "unique_inverse", "unique_values"),
                    "the number of results depends on values: outside traces only, test_array_api.py"),
    **{name: "is a composition: values and derivatives in test_xp_more.py" for case in xp_cases.CASES for name in case.names.split()},
    **dict.fromkeys(("lgamma", "gammaln", "digamma", "polygamma", "erfinv"), "values and derivatives in test_xp_special.py"),
    **dict.fromkeys(("segment_sum", "segment_prod", "segment_max", "segment_min", "bincount", "argwhere", "flatnonzero", "extract", "compress",
                     "unique", "union1d", "intersect1d", "setdiff1d", "setxor1d"), "is a composition: test_xp_more.py"),
    **dict.fromkeys(("broadcast_shapes", "promote_types", "ndim", "shape", "size", "iterable", "isscalar", "issubdtype", "isrealobj",
                     "iscomplexobj"), "tells of shapes and dtypes: test_xp_more.py"),
    **dict.fromkeys(("argpartition", "lexsort"), "give positions: no derivative; values in test_running_and_order.py"),
    **dict.fromkeys(("cummax", "cummin", "cumlogsumexp", "partition"), "values and derivatives in test_running_and_order.py"),
    **dict.fromkeys(("cumsum", "cumprod"), "are cumulative_sum and cumulative_prod, of all elements without an axis: test_narrow_and_negative.py"),
    "getitem": "is what `x[...]` does, which has rows",
    "put_along_axis": "is the reverse of take_along_axis, whose second derivatives go through it",
    "dropout": "draws from a key: test_training.py",
    **dict.fromkeys(("conv_transpose", "rope"), "is a composition: values and derivatives in test_nn_more.py"),
    "standardize": "is layernorm without factors, over any axes: values and derivatives in test_xp_compositions.py",
    **dict.fromkeys(("leaf", "static"), "declares a field of a module: test_nn_more.py"),
    "tanh": "is xp.tanh", "sigmoid": "is xp.sigmoid", "hard_swish": "is hard_silu", "swish": "is silu",
}  # fmt: skip

#: Primitives that no row uses, and why.
LEFT_OUT_PRIMITIVES = {
    "popcount": "a function of kernels; `xp` has no name for it",
    "clz": "a function of kernels; `xp` has no name for it",
    "ctz": "a function of kernels; `xp` has no name for it",
    "brev": "a function of kernels; `xp` has no name for it",
    "mulhi": "a function of kernels; `xp` has no name for it",
    "funnel_shift": "a function of kernels; `xp` has no name for it",
    "kernel_call": "test_kernel_derivatives.py",
    **dict.fromkeys(("cond", "while", "call"), "control flow and calls: test_control_flow.py, test_transforms.py"),
    "dim": "extents are known where a function is traced; crates/autodiff tests symbols",
    "opt_barrier": "is made by transforms: the identity, in crates/autodiff",
    "window_argreduce": "gives positions; made by the derivative of max_pool",
    "philox": "gives random integers: test_training.py",
    "manual": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "vary": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "own": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "all_reduce": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "all_gather": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "reduce_scatter": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "all_to_all": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "permute": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "from_rank": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "axis_index": "programs of ranks: test_collectives.py, and random ones in crates/autodiff",
    "shard": "places a value, which stays what it is: test_sharded_programs.py",
    **dict.fromkeys(("clamp", "shl", "shr"), "made by no function of arrays: crates/autodiff has its rule, or integers have none"),
}  # fmt: skip


def _part(x, i):
    # Where the part would leave the array it is moved inside.
    a, b = (min(int(i), n - 2) for n in x.shape)
    return x[a : a + 2, b : b + 2]


def _huber(d):
    return np.where(d < 1, d * d / 2, d - 0.5)


def _added(x, i, values):
    out = x.copy()
    np.add.at(out, i, values)
    return out


def _set(x):
    out = x.copy()
    out[1:, 0] = 7.0
    return out


def floats(op: Op, args: list) -> list:
    """Those of the arguments that derivatives are taken by."""
    return [a for k, a in enumerate(args) if k not in op.ints]


def question(op: Op, shapes: tuple) -> tuple[list, np.ndarray, tuple]:
    """Inputs of the checks of a row: arguments, weights that reduce its results to one number, and a direction."""
    args, rng = arguments(op, shapes), np.random.default_rng(7)
    weights = np.asarray(rng.standard_normal(np.shape(op.reference(*args))))
    return args, weights, tuple(np.asarray(rng.standard_normal(a.shape)) for a in floats(op, args))


def arguments(op: Op, shapes: tuple, seed: int = 0) -> list[np.ndarray]:
    """Random arguments in f64, far enough apart that no function has a kink there; positions where integers are required."""
    rng = np.random.default_rng(seed)
    out = []
    for k, shape in enumerate(shapes):
        if k in op.ints:
            first = out[0].shape
            most = first[-1] if op.name in ("cross_entropy", "nll_loss", "take_along_axis") else first[0] if op.name != "x[:, i]" else first[1]
            out.append(rng.integers(0, min(most, 4), shape))
        else:
            low, high = op.domain
            out.append(np.asarray(rng.uniform(low, high, shape)))
    return out
