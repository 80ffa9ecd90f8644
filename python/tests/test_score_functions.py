"""Score and mask functions inside attention's kernels, forward and backward. The compiler derives them where the kernels call
them. Functions are traced as for a device; the resulting code runs on the host."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from test_attention import alibi

import tessera as ts
from tessera import xp
from tessera import _core
from tessera.transforms import composites
from tessera.kernels import attention_backward
from tessera.kernels.functions import Function


@ts.func
def soft_cap(s, b, h, q, k):
    return 3.0 * ts.tile.tanh(s / 3.0)


@ts.func
def biased(s, b, h, q, k, bias, gain):
    return s * gain[h] + bias[h, q, k]


@ts.func
def huge_away(s, b, h, q, k):
    """At zero, the score of padding beyond the arrays, neither it nor its derivative is finite."""
    return ts.tile.where(q < 37, s, 1.0 / s)


@ts.func
def third(b, h, q, k):
    return (q + k) % 3 != 0


@ts.func
def documents(b, h, q, k, of):
    return of[b, q] == of[b, k]


@ts.func
def near_by(b, h, q, k, reach, other):
    return ts.tile.cast(ts.tile.abs(q - k), ts.f32) <= reach[h] + other[h]


@ts.func
def branched(s, b, h, q, k):
    if h % 2 == 0:
        s = s * 0.5
    return s


HEADS, KEY_HEADS, QUERIES, KEYS = 4, 2, 37, 45
RNG = np.random.default_rng(7)
SLOPES = np.array([0.1, 0.2, 0.0, -0.1], np.float32)
BIAS = RNG.standard_normal((HEADS, QUERIES, KEYS)).astype(np.float32)
GAIN = np.array([1.0, 0.5, -1.0, 2.0], np.float32)
OF = np.stack([np.arange(50) // 10, np.arange(50) // 7]).astype(np.int32)
REACH = np.array([3.0, 4.0, 10.0, 50.0], np.float32)
OTHER = np.array([1.0, 0.0, 2.0, 0.5], np.float32)

CASES = {
    "soft cap": {"score_mod": soft_cap},
    "soft cap, causal": {"score_mod": soft_cap, "causal": True},
    "alibi in a window": {"score_mod": ts.bind(alibi, slopes=SLOPES), "causal": True, "window": 9},
    "a bias of pairs": {"score_mod": ts.bind(biased, bias=BIAS, gain=GAIN), "causal": "top_left"},
    "not finite beyond the arrays": {"score_mod": huge_away},
    "a mask": {"mask_mod": third},
    "documents": {"mask_mod": ts.bind(documents, of=OF), "causal": True},
    "a mask of floats": {"mask_mod": ts.bind(near_by, reach=REACH, other=OTHER)},
    "both, two sides": {"score_mod": soft_cap, "mask_mod": ts.bind(documents, of=OF), "window": (7, 4)},
    "window": {"window": (7, 4)},
    "from the top": {"causal": "top_left", "window": (12, None)},
}


def scored(name, s):
    """The scores that a case makes of these, and which count."""
    q, k = np.arange(QUERIES)[:, None], np.arange(KEYS)[None, :]
    options = CASES[name]
    seen = np.ones((QUERIES, KEYS), bool)
    score, mask = options.get("score_mod"), options.get("mask_mod")
    score, mask = (getattr(f, "function", f) for f in (score, mask))
    if score is soft_cap:
        s = 3.0 * xp.tanh(s / 3.0)
    elif score is alibi:
        s = s + SLOPES[:, None, None].astype(np.float64) * (k - q)
    elif score is biased:
        s = s * GAIN[:, None, None].astype(np.float64) + BIAS.astype(np.float64)
    if mask is third:
        seen = (q + k) % 3 != 0
    elif mask is documents:
        seen = (OF[:, :QUERIES, None] == OF[:, None, :KEYS])[:, None]
    elif mask is near_by:
        seen = np.abs(q - k) <= (REACH + OTHER)[:, None, None]
    gap = k - q - (0 if options.get("causal") == "top_left" else KEYS - QUERIES)
    window = options.get("window")
    left, right = (None, None) if window is None else window if isinstance(window, tuple) else (window - 1, window - 1)
    right = 0 if options.get("causal") else right
    seen = seen & (True if left is None else gap >= -left) & (True if right is None else gap <= right)
    return s, seen


def reference(name):
    """The same in float64, of other ops."""

    def of(q, k, v):
        k, v = xp.repeat(k, HEADS // KEY_HEADS, 1), xp.repeat(v, HEADS // KEY_HEADS, 1)
        s, seen = scored(name, q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1]))
        e = xp.where(seen, xp.exp(xp.where(seen, s, 0.0)), 0.0)
        total = e.sum(axis=-1, keepdims=True)
        return loss_of((e / xp.where(total > 0, total, 1.0)) @ v)

    return of


def loss_of(out):
    return (out * xp.sin(out + 1.0)).sum()


def inputs(dtype):
    rng = np.random.default_rng(1)
    shapes = (2, HEADS, QUERIES, 16), (2, KEY_HEADS, KEYS, 16), (2, KEY_HEADS, KEYS, 8)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


@pytest.fixture
def device(monkeypatch):
    caps = dict(_core.capabilities("cuda:0"))
    monkeypatch.setattr(composites, "capabilities", lambda target: caps)


@pytest.mark.parametrize("dtype, bound", [(np.float32, 2e-6), (np.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)])
@pytest.mark.parametrize("name", CASES)
def test_gradients_by_kernels_against_float64(name, dtype, bound, device):
    args = inputs(dtype)

    def of(q, k, v):
        return loss_of(ts.op.flash_attention(q, k, v, **CASES[name]).astype("f32"))

    both = ts.jit(lambda *a: ts.grad(of, argnums=(0, 1, 2))(*a))
    text = both.compiled(*args).plan
    assert "@keys" in text and "@queries" in text
    wanted = ts.grad(reference(name), argnums=(0, 1, 2))(*(a.astype(np.float64) for a in args))
    for got, right in zip(both(*args), wanted, strict=True):
        assert got.dtype == dtype
        assert np.abs(got.astype(np.float64) - right).max() <= bound * max(1.0, np.abs(right).max())


def test_other_transforms_take_what_it_means(device):
    args = inputs(np.float32)
    f = lambda q, k, v: loss_of(ts.op.flash_attention(q, k, v, score_mod=soft_cap, mask_mod=third))  # noqa: E731
    plain = lambda q, k, v: loss_of(composed(q, k, v))  # noqa: E731

    def composed(q, k, v):
        k, v = xp.repeat(k, 2, 1), xp.repeat(v, 2, 1)
        s = 3.0 * xp.tanh(q @ k.transpose(0, 1, 3, 2) / 4.0 / 3.0)
        seen = (np.arange(QUERIES)[:, None] + np.arange(KEYS)) % 3 != 0
        e = xp.where(seen, xp.exp(s), 0.0)
        return (e / e.sum(axis=-1, keepdims=True)) @ v

    def close(got, wanted):
        for g, w in zip(ts.tree.leaves(got), ts.tree.leaves(wanted), strict=True):
            assert np.abs(g - w).max() <= 2e-4 * max(1.0, np.abs(w).max())

    tangents = [a[::-1].copy() for a in args]
    close(ts.jvp(f, tuple(args), tuple(tangents)), ts.jvp(plain, tuple(args), tuple(tangents)))

    def twice(fn):
        return ts.grad(lambda q, k, v: (ts.grad(fn)(q, k, v) ** 2).sum(), argnums=(0, 1, 2))

    close(twice(f)(*args), twice(plain)(*args))
    many = [np.stack([a, -a]) for a in args]
    close(ts.vmap(ts.grad(f, argnums=(0, 1, 2)))(*many), ts.vmap(ts.grad(plain, argnums=(0, 1, 2)))(*many))


def test_the_derivative_by_what_a_function_reads_is_that_of_the_composition(device):
    args = [*inputs(np.float32), SLOPES]

    def of(q, k, v, slopes):
        return loss_of(ts.op.flash_attention(q, k, v, score_mod=ts.bind(alibi, slopes=slopes), causal=True))

    def wanted(q, k, v, slopes):
        k, v = xp.repeat(k, 2, 1), xp.repeat(v, 2, 1)
        gap = np.arange(KEYS)[None] - np.arange(QUERIES)[:, None]
        s = q @ k.transpose(0, 1, 3, 2) / 4.0 + slopes[:, None, None] * gap
        e = xp.where(gap <= KEYS - QUERIES, xp.exp(s - 6.0), 0.0)
        return loss_of((e / e.sum(axis=-1, keepdims=True)) @ v)

    # If the derivative by `slopes` is requested, the attention kernels do not run; otherwise they do.
    for places, kernels in (((0, 1, 2, 3), False), ((3,), False), ((0, 1, 2), True)):
        both = ts.jit(lambda *a: ts.grad(of, argnums=places)(*a))  # noqa: B023
        right = ts.grad(wanted, argnums=places)(*(a.astype(np.float64) for a in args))
        assert ("@keys" in both.compiled(*args).plan) == kernels
        for g, w in zip(ts.tree.leaves(both(*args)), ts.tree.leaves(right), strict=True):
            assert np.abs(g - w).max() <= 1e-5 * max(1.0, np.abs(w).max())
    assert "where the derivative by an array that `alibi` reads is requested" in both.explain(*args)


def test_a_missing_derivative_is_reported(device):
    args = inputs(np.float32)
    # A table that is read at positions has no derivative: that is an error only if it is requested.
    of = lambda q, k, v, bias: ts.op.flash_attention(q, k, v, score_mod=ts.bind(biased, bias=bias, gain=GAIN)).sum()  # noqa: E731
    assert np.isfinite(ts.grad(of)(*args, BIAS)).all()
    with pytest.raises(ts.UnsupportedError, match="gathers elements by a tile of positions"):
        ts.grad(of, argnums=3)(*args, BIAS)
    branching = ts.jit(lambda *a: ts.grad(lambda q, k, v: ts.op.flash_attention(q, k, v, score_mod=branched).sum())(*a))
    explained = branching.explain(*args)
    assert "the derivative of `branched`" in explained and "got a branch over it" in explained
    wanted = ts.grad(lambda q, k, v: ts.op.flash_attention(q * np.array([0.5, 1] * 2, np.float32)[:, None, None], k, v).sum())(*args)
    assert np.abs(branching(*args) - wanted).max() <= 1e-5


@pytest.mark.parametrize("shared", [1, 2])
def test_kernels_with_functions_in_float64(shared):
    """The kernels alone, whose sums are in the dtype of the logarithms."""
    (H, Sq, Sk, D) = 2, 37, 45, 8
    rng = np.random.default_rng(3)
    q, do = (rng.standard_normal((1, H, Sq, D)) for _ in range(2))
    k, v = (rng.standard_normal((1, H // shared, Sk, D)) for _ in range(2))

    def composed(q, k, v):
        s = 3.0 * xp.tanh(q @ xp.repeat(k, shared, 1).transpose(0, 1, 3, 2) * 0.4 / 3.0)
        seen = ((np.arange(Sq)[:, None] + np.arange(Sk)) % 3 != 0) & (np.arange(Sk) <= np.arange(Sq)[:, None] + 8)
        e = xp.where(seen, xp.exp(s), 0.0)
        total = e.sum(axis=-1, keepdims=True)
        return (e / total) @ xp.repeat(v, shared, 1), xp.log(total)[..., 0]

    (out, lse), pull = ts.vjp(composed, q, k, v)
    wanted = pull((do, np.zeros_like(lse)))
    got = [np.full_like(x, np.nan) for x in (q, k, v)]
    delta, lse = (do * out).sum(-1), lse * math.log2(math.e)
    saved, scores = attention_backward.Saved(q, k, v, do, lse, delta), attention_backward.Scores(0.4, highest=8, high=True)
    rest = Function.filled(soft_cap, [], 2, q), Function.filled(third, [], 2, q), scores, attention_backward.Blocks(16, 32)
    attention_backward.keys(saved, got[1], got[2], *rest, shared=shared)
    attention_backward.queries(saved, got[0], *rest)
    for g, w in zip(got, wanted, strict=True):
        assert np.abs(g - w).max() <= 1e-13
