"""Cases of the operations that run on tensor cores: matmul and attention, in every dtype and form.

Like the cases of `op_cases`, each is one call with its expected results in float64. Where integers are small enough that every
sum is exact, results must be equal.
"""

import ml_dtypes
import numpy as np

from gpurun.compare import wide
from gpurun.error_bounds import U, loss

from .op_cases import BF16, Case, normal

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
#: Whole tiles, a partial tile, strides that TMA does not take, one row, one column, an empty K.
SHAPES = ((256, 384, 192), (100, 72, 200), (257, 129, 65), (1, 300, 70), (130, 1, 64), (5, 7, 0))
#: Name in `error_bounds.loss`, dtype of the operands, dtype of the result, other options.
KINDS = (
    ("bf16", BF16, BF16, {}), ("f16", np.float16, np.float32, {}), ("f32", np.float32, np.float32, {}),
    ("tf32", np.float32, np.float32, {"precision": "tf32"}), ("fp8_e4m3", E4M3, BF16, {}), ("fp8_e5m2", E5M2, np.float32, {}),
    ("int8", np.int8, np.int32, {}),
)  # fmt: skip


def fixed(seed):
    """Cases under the name of their family, small ones last."""
    rng = np.random.default_rng([seed, 3])
    for kind in KINDS:
        for shape in SHAPES:
            for transposed in ((False, False), (False, True), (True, False)):
                yield shape, matmul(rng, shape, kind, transposed, exact=True), {}
        yield SHAPES[0], matmul(rng, SHAPES[0], kind, (False, True), exact=False), {}
    yield from _finished(rng)
    yield from _many(rng)
    yield from _attention(rng)


def _operands(rng, batch, shape, dtype, transposed, exact):
    m, n, k = shape
    draw = (lambda s: rng.integers(-3, 4, s).astype(np.float32)) if exact else rng.standard_normal
    a, b = (draw((*batch, *s)).astype(np.float32).astype(dtype) for s in ((m, k), (k, n)))
    # The same matrices in the other memory order.
    return tuple(np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) if swap else x for x, swap in zip((a, b), transposed))


def _sums(a, b):
    return wide(a) @ wide(b), np.abs(wide(a)) @ np.abs(wide(b))


def matmul(rng, shape, kind, transposed, exact, batch=()):
    name, dtype, out, more = kind
    a, b = _operands(rng, batch, shape, dtype, transposed, exact)

    def expect(a, b):
        right, size = _sums(a, b)
        return [(right.astype(np.float32).astype(out), None) if exact else (right, loss(name, shape[-1]) * size)]

    what = {np.float32: "f32", np.int32: "i32", BF16: "bf16"}[out]
    return Case(f"matmul {name}", lambda op, a, b, **t: (op.matmul(a, b, out_dtype=what, **more, **t),), (a, b), expect)


def _finished(rng):
    """Matmuls with an epilogue."""
    for shape in SHAPES[:3]:
        m, n, k = shape
        a, b = _operands(rng, (), shape, BF16, (False, True), False)
        bias, rest = normal(rng, n), normal(rng, (m, n), BF16)

        def expect(a, b, bias, rest, k=k):
            right, size = _sums(a, b)
            y = 0.5 * right + wide(bias)
            bound = (k + 4) * U * (size + np.abs(wide(bias)))
            return [(np.maximum(y, 0.0) + wide(rest), bound + 4 * U * np.abs(wide(rest)))]

        def call(op, a, b, bias, rest, **t):
            return (op.matmul(a, b, bias=bias, residual=rest, scale=0.5, activation="relu", **t),)

        yield shape, Case("matmul epilogue", call, (a, b, bias, rest), expect), {}

        def general(a, b, c, k=k):
            right, size = _sums(a, b)
            return [(2.0 * right - 3.0 * wide(c), (k + 4) * U * (2 * size + 3 * np.abs(wide(c))))]

        yield shape, Case("matmul epilogue", lambda op, a, b, c, **t: (op.gemm(a, b, c, 2.0, -3.0, **t),), (a, b, rest), general), {}


def _many(rng):
    """Batches, groups of rows, scales of blocks."""
    for batch, shape in (((3,), (130, 136, 72)), ((2, 2), (64, 64, 64)), ((3,), (33, 17, 9))):
        yield shape, matmul(rng, shape, KINDS[0], (False, True), True, batch), {}
    a, b = normal(rng, (300, 96), BF16), normal(rng, (4, 96, 136), BF16)
    sizes = np.array([100, 0, 130, 50], np.int64)

    def rows(a, b, sizes):
        ends = np.cumsum(sizes)
        right, size = np.zeros((300, 136)), np.zeros((300, 136))
        for g, (begin, end) in enumerate(zip(ends - sizes, ends)):
            right[begin:end], size[begin:end] = _sums(a[begin:end], b[g])
        return [(right, loss("bf16", 96) * size)]

    yield a.shape, Case("matmul groups", lambda op, a, b, sizes, **t: (op.grouped_gemm(a, b, sizes, **t),), (a, b, sizes), rows), {}
    a, b = _operands(rng, (1,), (192, 256, 384), E4M3, (False, True), False)
    sa, sb = (rng.random(s).astype(np.float32) + 0.5 for s in ((1, 192, 3), (1, 3, 2)))

    def scaled(a, b, sa, sb):
        wa, wb = wide(a) * np.repeat(wide(sa), 128, 2), wide(b) * np.repeat(np.repeat(wide(sb), 128, 1), 128, 2)
        return [(wa @ wb, (loss("fp8_e4m3", 384) + 8 * U) * (np.abs(wa) @ np.abs(wb)))]

    def call(op, a, b, sa, sb, **t):
        return (op.matmul(a, b, block_scales=(sa, sb), out_dtype="f32", **t),)

    yield (192, 256, 384), Case("matmul scaled", call, (a, b, sa, sb), scaled), {}


# Attention


def attention(rng, heads, lengths, dims, options, dtype=BF16, scale=1.0):
    """`heads` and `lengths` are those of queries and of keys, `dims` those of keys and of values."""
    (h, hk), (sq, sk), (d, dv) = heads, lengths, dims
    q, k, v = (normal(rng, s, dtype, f) for s, f in (((2, h, sq, d), scale), ((2, hk, sk, d), scale), ((2, hk, sk, dv), 1.0)))

    def expect(q, k, v):
        wq, wk, wv = wide(q), np.repeat(wide(k), h // hk, 1), np.repeat(wide(v), h // hk, 1)
        s = wq @ wk.swapaxes(-1, -2) / np.sqrt(d)
        at = np.arange(sk)[None, :] - np.arange(sq)[:, None]
        if options.get("causal"):
            s = np.where(at <= (0 if options["causal"] == "top_left" else sk - sq), s, -np.inf)
        if window := options.get("window"):
            s = np.where((at - (sk - sq) >= -window[0]) & (at - (sk - sq) <= window[1]), s, -np.inf)
        most = s.max(-1, keepdims=True, initial=-np.inf)
        p = np.exp(s - np.where(np.isinf(most), 0.0, most))
        total = p.sum(-1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            p = np.where(total > 0, p / total, 0.0)
            lse = (np.log(total) + np.where(np.isinf(most), 0.0, most))[..., 0]
        # The error of weights rounded to the operands' dtype, and of scores in their accumulation.
        rounding = 2.0**-8 if dtype is BF16 else 2.0**-11 if dtype is np.float16 else 0.0
        size = np.abs(wq) @ np.abs(wk).swapaxes(-1, -2) / np.sqrt(d)
        error = (d + 8) * U * size.max(initial=0.0) + (sk + 16) * U + 1.5 * rounding
        finite = np.where(np.isinf(lse), 0.0, np.abs(lse))
        return [(p @ wv, error * (p @ np.abs(wv))), (lse, (d + 8) * U * size.max(initial=0.0) + 8 * U * (finite + sk))]

    def call(op, q, k, v, **t):
        return op.flash_attention(q, k, v, return_lse=True, **options, **t)

    return Case("attention", call, (q, k, v), expect)


def _attention(rng):
    plain, causal = {}, {"causal": True}
    for heads, lengths, dims, options in (
        ((2, 2), (256, 256), (128, 128), plain), ((2, 2), (256, 256), (128, 128), causal), ((2, 2), (384, 384), (64, 64), causal),
        ((8, 1), (200, 333), (64, 64), causal), ((4, 2), (130, 70), (96, 96), plain), ((2, 2), (70, 130), (192, 128), causal),
        ((2, 2), (129, 257), (256, 256), plain), ((2, 2), (65, 300), (32, 32), {"window": (40, 0)}),
        ((2, 2), (300, 300), (128, 128), {"causal": True, "window": (64, 0)}), ((2, 2), (150, 60), (64, 64), causal),
        ((2, 2), (150, 60), (64, 64), {"causal": "top_left"}), ((1, 1), (1, 5), (40, 24), plain),
    ):  # fmt: skip
        yield lengths, attention(rng, heads, lengths, dims, options), {}
    yield (256, 256), attention(rng, (2, 2), (256, 256), (64, 64), causal, np.float16), {}
    yield (100, 90), attention(rng, (2, 2), (100, 90), (64, 64), plain, np.float32), {}
    # Scores that differ widely: lazy rescaling that does not follow the maximum loses everything.
    yield (512, 512), attention(rng, (2, 2), (512, 512), (128, 128), plain, scale=8.0), {}
