"""Cases of the library's operations: arrays of every dtype and layout, and the expected results in float64.

A case is one call of one operation. Its inputs depend on no other call, so it can run on a device and again on the interpreter,
whose bits `strict` must reproduce.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Callable

import ml_dtypes
import numpy as np

import tessera as ts

from gpurun.compare import wide
from gpurun.error_bounds import U

BF16 = ml_dtypes.bfloat16
FLOATS = (np.float32, BF16, np.float16)
SMALL = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
#: Aligned, odd, tiny, without elements, wide, tall, of higher rank.
SHAPES = ((16, 256), (7, 333), (1, 1), (3, 1), (0, 4), (5, 1025), (300, 3), (2, 3, 5))


@dataclass(frozen=True)
class Case:
    name: str
    #: From `(op, *args)` to the results.
    call: Callable
    args: tuple
    #: From `args` to the exact value of each result and its error bound before rounding; None requires equality.
    expect: Callable
    more: dict = field(default_factory=dict)


def normal(rng, shape, dtype=np.float32, scale=1.0, shift=0.0):
    return (scale * rng.standard_normal(shape) + shift).astype(dtype)


def layouts(rng, x):
    """The array in several memory layouts, by name, with the same elements."""
    yield "rows", x
    if x.ndim > 1:
        yield "columns", np.asfortranarray(x)
    apart = np.zeros((*x.shape, 2), x.dtype)
    apart[..., 0] = x
    yield "every second", apart[..., 0]
    # A part of a much larger array: large strides that are no powers of two, and any alignment.
    large = np.zeros([n + int(rng.integers(1, 40)) for n in x.shape[:-1]] + [x.shape[-1] + 1237] if x.ndim else [1], x.dtype)
    if x.ndim:
        corner = tuple(slice(int(a), int(a) + n) for a, n in zip(rng.integers(0, 2, x.ndim), x.shape))
        large[corner] = x
        yield "a part", large[corner]
        yield "backwards", np.ascontiguousarray(x[::-1])[::-1]


# Expected results


def _softmax(x, axis):
    x = wide(x)
    with np.errstate(invalid="ignore"):
        shifted = x - x.max(axis, keepdims=True, initial=-np.inf)
        log = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)) if x.size else x
    return np.exp(log), log


def softmax(x, axis):
    rel = 4 * U * (x.shape[axis] + 8)

    def expect(x):
        y, log = _softmax(x, axis)
        return [(y, rel * y), (log, rel + 4 * U * np.abs(log))]

    return Case("softmax", lambda op, x, **t: (op.softmax(x, axis, **t), op.log_softmax(x, axis, **t)), (x,), expect)


def softmax_backward(rng, x, axis):
    n = x.shape[axis]
    y, log = (v.astype(np.float32) for v in _softmax(x, axis))
    dy = normal(rng, x.shape, x.dtype)

    def expect(dy, y, log):
        g, t, w = wide(dy), wide(y), np.exp(wide(log))
        inner = (g * t).sum(axis, keepdims=True)
        size = np.abs(t) * (np.abs(g) + np.abs(g * t).sum(axis, keepdims=True))
        size_log = np.abs(g) + w * np.abs(g).sum(axis, keepdims=True) * (1 + np.abs(wide(log)))
        return [(t * (g - inner), (n + 8) * U * size), (g - w * g.sum(axis, keepdims=True), (n + 8) * U * size_log)]

    def call(op, dy, y, log, **t):
        t = {"out_dtype": "f32", **t}
        return op.softmax_backward(dy, y, axis, **t), op.log_softmax_backward(dy, log, axis, **t)

    return Case("softmax_backward", call, (dy, y, log), expect)


def _normed(x, scale, shift, eps, centre):
    x = wide(x)
    mean = x.mean(-1, keepdims=True) * centre
    rstd = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + eps)
    return (x - mean) * rstd * wide(scale) + (0.0 if shift is None else wide(shift)), mean, rstd


def norm(rng, x, centre):
    n = x.shape[-1]
    scale, shift = normal(rng, n), normal(rng, n) if centre else None
    args = (x, scale, shift) if centre else (x, scale)

    def expect(x, scale, shift=None):
        y, mean, rstd = _normed(x, scale, shift, 1e-5, centre)
        size = (np.abs(wide(x)) + np.abs(mean)) * rstd * np.abs(wide(scale))
        # The largest number of a row may dwarf its deviation.
        spread = (n + 16) * U * (1 + np.abs(wide(x)).max(-1, initial=0.0) * rstd[..., 0])
        stats = [(mean[..., 0], (n + 2) * U * np.abs(wide(x)).mean(-1))] if centre else []
        return [(y, (n + 16) * U * (size + np.abs(y))), *stats, (rstd[..., 0], spread * rstd[..., 0])]

    def call(op, x, scale, *shift, **t):
        if centre:
            return op.layernorm(x, scale, *shift, return_stats=True, **t)
        return op.rmsnorm(x, scale, 1e-5, return_stats=True, **t)

    return Case("layernorm" if centre else "rmsnorm", call, args, expect)


def norm_backward(rng, x, centre):
    n, rows = x.shape[-1], math.prod(x.shape[:-1])
    axes = tuple(range(x.ndim - 1))
    scale, dy = normal(rng, n), normal(rng, x.shape, x.dtype)
    _, mean, rstd = (v.astype(np.float32) for v in _normed(x, scale, None, 1e-5, centre))
    stats = (mean[..., 0], rstd[..., 0]) if centre else (rstd[..., 0],)

    def expect(dy, x, scale, *stats):
        dy, x, scale = wide(dy), wide(x), wide(scale)
        rstd = wide(stats[-1])[..., None]
        mean = wide(stats[0])[..., None] if centre else 0.0
        normal_, dn = (x - mean) * rstd, dy * scale
        dx = rstd * (dn - centre * dn.mean(-1, keepdims=True) - normal_ * (dn * normal_).mean(-1, keepdims=True))
        size = np.abs(dn) + np.abs(dn).mean(-1, keepdims=True) + np.abs(normal_) * np.abs(dn * normal_).mean(-1, keepdims=True)
        most = 1 + (np.abs(x) + np.abs(mean)) * rstd
        out = [(dx, (n + 16) * 4 * U * rstd * size * most)]
        out += [((dy * normal_).sum(axes), (rows + n + 16) * 4 * U * (np.abs(dy) * most).sum(axes))]
        return out + ([(dy.sum(axes), (rows + 16) * U * np.abs(dy).sum(axes))] if centre else [])

    def call(op, dy, x, scale, *stats, **t):
        back = op.layernorm_backward if centre else op.rmsnorm_backward
        return back(dy, x, *stats, scale, **t)

    return Case("layernorm_backward" if centre else "rmsnorm_backward", call, (dy, x, scale, *stats), expect)


def cross_entropy(rng, x):
    n = x.shape[-1]
    labels = rng.integers(0, n, x.shape[:-1]).astype([np.int32, np.int64][int(rng.integers(2))])
    if labels.size > 1:
        labels.flat[int(rng.integers(labels.size))] = -100

    def loss_of(x, labels):
        _, log = _softmax(x, -1)
        keep = labels != -100
        at = np.where(keep, labels, 0)[..., None].astype(np.int64)
        return np.where(keep, -np.take_along_axis(log, at, -1)[..., 0], 0.0), keep, at, log

    def expect(x, labels):
        loss, keep, _, _ = loss_of(x, labels)
        bound = 4 * U * (n + 8) + 4 * U * np.abs(loss)
        x = wide(x)
        top = x.max(initial=0.0)
        lse = np.log(np.exp(x - top).sum(-1)) + top
        out = [(loss, bound), (lse, 4 * U * (n + 8) + 2 * U * np.abs(x).max(initial=0.0))]
        with np.errstate(invalid="ignore"):
            mean = loss.sum() / np.float64(keep.sum())
        return out + [(mean, (bound.sum() + loss.size * U * loss.sum()) / max(keep.sum(), 1))]

    def call(op, x, labels, **t):
        loss, lse = op.cross_entropy(x, labels, reduction="none", return_lse=True, **t)
        return loss, lse, op.cross_entropy(x, labels, out_dtype="f32", **t)

    return Case("cross_entropy", call, (x, labels), expect)


def cross_entropy_backward(rng, x):
    n = x.shape[-1]
    labels = rng.integers(0, n, x.shape[:-1]).astype(np.int64)
    g = normal(rng, labels.shape)
    shifted = wide(x) - wide(x).max(initial=0.0)
    lse = (np.log(np.exp(shifted).sum(-1)) + wide(x).max(initial=0.0)).astype(np.float32)

    def expect(g, x, labels, lse):
        x, g = wide(x), wide(g)[..., None]
        weights = np.exp(x - wide(lse)[..., None])
        grad = weights.copy()
        at = labels[..., None]
        np.put_along_axis(grad, at, np.take_along_axis(grad, at, -1) - 1, -1)
        bound = weights * (8 * U + 4 * U * (np.abs(x) + np.abs(wide(lse))[..., None])) + 2 * U * np.abs(grad)
        return [(grad * g, bound * np.abs(g))]

    def call(op, g, x, labels, lse, **t):
        return (op.cross_entropy_backward(g, x, labels, lse, reduction="none", **t),)

    return Case("cross_entropy_backward", call, (g, x, labels, lse), expect)


def reductions(x, axis):
    """Sums, means and products within their bounds."""

    def expect(x):
        x = wide(x)
        exact, size = x.sum(axis), np.abs(x).sum(axis)
        n = x.size // max(exact.size, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.asarray(exact) / n if n else np.full(np.shape(exact), np.nan)
        small = np.exp2(np.clip(x, -4, 4) / max(n, 1)).astype(np.float32)
        product = wide(small).prod(axis)
        return [(exact, (n + 2) * U * size), (mean, (n + 3) * U * size / max(n, 1)), (product, (n + 2) * U * product)]

    n = max(x.size // max(np.asarray(wide(x).sum(axis)).size, 1), 1)
    small = np.exp2(np.clip(wide(x), -4, 4) / n).astype(np.float32)

    def call(op, x, small, **t):
        return op.sum(x, axis, **t), op.mean(x, axis, **t), op.prod(small, axis, **t)

    return Case("reductions", call, (x, small), lambda x, small: expect(x))


def extremes(x, axis, places=True):
    names = ("max", "min", *(("argmax", "argmin") if places and not isinstance(axis, tuple) else ()))

    def expect(x):
        with np.errstate(invalid="ignore"):
            return [(np.asarray(getattr(np, name)(x, axis=axis)), None) for name in names]

    return Case("extremes", lambda op, x, **t: tuple(getattr(op, name)(x, axis, **t) for name in names), (x,), expect)


def integers(x, axis):
    def expect(x):
        kind = np.uint64 if x.dtype == np.uint64 else np.int64
        return [(np.asarray(x.sum(axis, dtype=kind)), None), (np.asarray(x.mean(axis, dtype=np.float64)), 1e-12)]

    return Case("integers", lambda op, x, **t: (op.sum(x, axis, **t), op.mean(x, axis, **t)), (x,), expect)


def transpose(x, axes=None):
    return Case("transpose", lambda op, x, **t: (op.transpose(x, axes, **t),), (x,), lambda x: [(np.transpose(x, axes), None)])


@ts.func
def chain(x, w):
    return 0.5 * (x + w) * (1.0 + ts.tile.tanh(x + w)) * x


def elementwise(rng, x, other):
    """Broadcast against each other."""
    w = normal(rng, other, x.dtype)

    def expect(x, w):
        x, w = wide(x), wide(w)
        t = x + w
        erf = np.vectorize(math.erf, otypes=[np.float64])
        gelu = 0.5 * x * (1 + erf(x / math.sqrt(2)))
        return [
            (0.5 * t * (1 + np.tanh(t)) * x, 16 * U * np.abs(x) * np.abs(t) * (1 + np.abs(t))),
            (1.5 * x + w, 2 * U * (np.abs(1.5 * x) + np.abs(w))),
            (gelu, 16 * U * np.abs(x) * (1 + np.abs(x))),
        ]

    def call(op, x, w, **t):
        return op.elementwise(chain, x, w, **t), op.saxpy(1.5, x, w), op.gelu(x)

    return Case("elementwise", call, (x, w), expect)


def casts(x, to):
    def expect(x):
        return [(x.astype(np.float32).astype(to), None), (x, None)]

    def call(op, x):
        return op.elementwise(ts.identity, x, out_dtype=ts.dtype(to)), op.elementwise(ts.identity, x)

    return Case("casts", call, (x,), expect)


def safe(x):
    n = x.shape[-1]

    def expect(x):
        y, _ = _softmax(x, -1)
        return [(y, 4 * U * (n + 8) * y)]

    return Case("safe", lambda op, x: (op.softmax_safe(x),), (x,), expect, {"numpy": True})


# The cases


def fixed(seed):
    """Every operation on every kind of shape and dtype, in an order that begins with the plainest."""
    rng = np.random.default_rng([seed, 1])
    for dtype in FLOATS:
        for shape in SHAPES if dtype is np.float32 else SHAPES[:3]:
            x = normal(rng, shape, dtype, 2.0, 0.5)
            rows = shape[-1] > 1 and x.size > 0
            yield shape, softmax(x, -1), {}
            yield shape, softmax(x, 0), {}
            yield shape, softmax_backward(rng, x, -1), {}
            for centre in (True, False):
                if rows:
                    yield shape, norm(rng, x, centre), {}
                    yield shape, norm_backward(rng, x, centre), {}
            if x.size:
                yield shape, cross_entropy(rng, x), {}
                yield shape, cross_entropy_backward(rng, x), {}
            yield shape, reductions(x, None), {}
            yield shape, reductions(x, -1), {}
            yield shape, reductions(x, 0), {}
            if x.size:
                yield shape, extremes(x, -1), {}
                yield shape, extremes(x, 0), {}
                yield shape, extremes(x, None), {}
            yield shape, transpose(x), {}
            yield shape, elementwise(rng, x, shape[-1:]), {}
            yield shape, safe(x), {}
    yield from _kinds(rng)
    yield from _tiles(rng)
    yield from _long(rng)


def _kinds(rng):
    """Other dtypes, other ranks, numbers that are none."""
    for dtype in (np.int8, np.int32, np.int64, np.uint8, np.bool_):
        x = (4 * rng.standard_normal((9, 70))).astype(dtype)
        yield x.shape, integers(x, -1), {}
        yield x.shape, extremes(x, 0), {}
        yield x.shape, transpose(x), {}
    x = normal(rng, (3, 50), np.float64)
    yield x.shape, Case("f64", lambda op, x: (op.softmax(x), op.sum(x, 0)), (x,),
                        lambda x: [(_softmax(x, -1)[0], 1e-15), (x.sum(0), 1e-14)]), {}  # fmt: skip
    for dtype in (*SMALL, *FLOATS):
        x = normal(rng, (17, 65), dtype, 2.0)
        yield x.shape, casts(x, np.float32), {}
        yield x.shape, casts(x.astype(np.float32), dtype), {}
        yield x.shape, transpose(x), {}
    x = normal(rng, (3, 4, 5, 6))
    for axes in ((1, 0, 3, 2), (3, 0, 1, 2), None):
        yield x.shape, transpose(x, axes), {}
    yield x.shape, reductions(x, (0, 2)), {}
    yield x.shape, softmax(x, 1), {}
    x = normal(rng, (3, 40))
    x[0, 30] = x[0, 33] = np.nan
    x[1], x[2, 5:9] = -np.inf, np.inf
    yield x.shape, extremes(x, 1), {}
    yield x.shape, extremes(np.ascontiguousarray(x.T), 0), {}
    masked = np.full((3, 11), -np.inf, np.float32)
    masked[0, 9], masked[1, 2], masked[2, 0] = 1.0, 2.0, 0.0
    case = Case("masked", lambda op, x: (op.softmax(x, 1),), (masked,), lambda x: [(_softmax(x, 1)[0], 0.0)])
    yield masked.shape, case, {}


def _tiles(rng):
    """Tiles that shapes this small would not get: several rows, and pieces."""
    x = normal(rng, (9, 133), np.float32, 2.0)
    for tiles in ({"rows": 4}, {"block": 32}):
        for case in (softmax(x, -1), softmax(x, 0), norm(rng, x, True), norm_backward(rng, x, True), cross_entropy(rng, x)):
            yield x.shape, case, tiles
        yield x.shape, reductions(x, -1), tiles
        yield x.shape, extremes(x, -1), tiles
        yield x.shape, transpose(x), tiles


def _long(rng):
    """Rows that several warps, several blocks and several launches share."""
    for n, dtype in ((4096, BF16), (8192, BF16), (32768, BF16), (131072, BF16), (20000, np.float32), (131072, np.float32)):
        x = normal(rng, (3, n), dtype, 2.0)
        yield x.shape, softmax(x, -1), {}
        yield x.shape, norm(rng, x, True), {}
        yield x.shape, norm(rng, x, False), {}
    for shape in ((3, 9000), (9000, 3), (70000,)):
        x = normal(rng, shape)
        yield shape, reductions(x, -1), {}
        yield shape, reductions(x, 0), {}
        yield shape, extremes(x, -1), {}
    x = normal(rng, (4500, 8))
    yield x.shape, norm_backward(rng, x, True), {}


def drawn(rng):
    """A case of random rank, sizes, dtype, axis and layout."""
    rank = int(rng.integers(1, 5))
    sizes = (1, 2, 3, 5, 8, 13, 16, 31, 64, 100, 257) if rank < 3 else (1, 2, 3, 5, 8, 13)
    shape = tuple(int(n) for n in rng.choice(sizes, rank))
    x = normal(rng, shape, FLOATS[int(rng.integers(3))], 2.0, 0.5)
    kinds = list(layouts(rng, x.transpose(rng.permutation(rank))))
    layout, x = kinds[int(rng.integers(len(kinds)))]
    axis = int(rng.integers(rank))
    makers: list[Callable[[], Any]] = [
        lambda: softmax(x, axis), lambda: softmax_backward(rng, x, axis), lambda: reductions(x, axis),
        lambda: extremes(x, axis), lambda: transpose(x), lambda: elementwise(rng, x, x.shape[-1:]), lambda: reductions(x, None),
    ]  # fmt: skip
    if x.shape[-1] > 1:
        makers += [lambda: norm(rng, x, True), lambda: norm(rng, x, False), lambda: norm_backward(rng, x, True),
                   lambda: cross_entropy(rng, x)]  # fmt: skip
    return f"{x.dtype} {x.shape} {layout}", makers[int(rng.integers(len(makers)))]()
