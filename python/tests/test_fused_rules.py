"""Functions of models traced as for a device: attention kernels with their own backward pass, and derivative rules that save little
memory. The resulting code runs on the host and is compared with compositions of primitives."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp
from tessera import _core
from tessera.transforms import composites
from tessera.kernels import attention_backward, attention_plan
from tessera.kernels.functions import Function


def as_for_gpus(monkeypatch):
    """Kernels of composites are those for a GPU."""
    caps = dict(_core.capabilities("cuda:0"))
    monkeypatch.setattr(composites, "capabilities", lambda target: caps)


@pytest.fixture
def device(monkeypatch):
    as_for_gpus(monkeypatch)


def arrays(*shapes, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


CASES = {
    "plain": ((2, 2, 20, 8), (2, 2, 24, 8), (2, 2, 24, 8), {}),
    "causal": ((1, 2, 33, 16), (1, 2, 33, 16), (1, 2, 33, 16), {"causal": True}),
    "shared heads": ((1, 4, 20, 8), (1, 2, 30, 8), (1, 2, 30, 4), {"causal": True, "scale": 0.3}),
    "window": ((1, 1, 70, 8), (1, 1, 70, 8), (1, 1, 70, 8), {"causal": True, "window": 9}),
    "two sides": ((1, 1, 70, 8), (1, 1, 80, 8), (1, 1, 80, 8), {"window": (5, 3)}),
    "from the top": ((1, 1, 20, 8), (1, 1, 30, 8), (1, 1, 30, 8), {"causal": "top_left"}),
    "nothing seen": ((1, 1, 40, 8), (1, 1, 10, 8), (1, 1, 10, 8), {"causal": True}),
    "rank 3": ((3, 20, 8), (3, 20, 8), (3, 20, 8), {"causal": True}),
    "turned": ((1, 20, 2, 8), (1, 20, 2, 8), (1, 20, 2, 8), {"layout": "bshd"}),
    "scaled down": ((1, 2, 20, 8), (1, 2, 27, 8), (1, 2, 27, 8), {"scale": -0.4}),
    "one side": ((1, 1, 40, 8), (1, 1, 44, 8), (1, 1, 44, 8), {"window": (None, 3)}),
}


def loss(options):
    def of(q, k, v):
        out, lse = ts.op.flash_attention(q, k, v, return_lse=True, **options)
        seen = xp.isfinite(lse)
        return (out * xp.sin(out + 1.0)).sum() + xp.where(seen, xp.where(seen, lse, 0.0) ** 2, 0.0).sum() * 0.1

    return of


def near(got, wanted, bound=2e-5):
    got, wanted = (ts.tree.leaves(t) for t in (got, wanted))
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        assert np.abs(g - w).max(initial=0) <= bound * max(1.0, np.abs(w).max(initial=0)), np.abs(g - w).max()


@pytest.mark.parametrize("name", CASES)
def test_attention_and_its_gradients(name, monkeypatch):
    *shapes, options = CASES[name]
    args = arrays(*shapes)
    both = ts.jit(lambda *a: ts.value_and_grad(loss(options), argnums=(0, 1, 2))(*a))
    wanted = both(*args)
    as_for_gpus(monkeypatch)
    both.cache_clear()
    text = both.trace(*args)
    assert "name = attention_backward" in text and "graph.kernel_call" not in text
    near(both(*args), wanted)
    plan = both.compiled(*args).plan
    assert "sched.call" not in plan and "@queries" in plan
    with ts.runtime.oracle():
        near(both(*args), wanted)


def test_other_transforms_take_what_attention_means(device):
    options = {"causal": True}
    args = arrays((1, 2, 12, 4), (1, 2, 12, 4), (1, 2, 12, 4))
    tangents = arrays((1, 2, 12, 4), (1, 2, 12, 4), (1, 2, 12, 4), seed=1)

    def plain(q, k, v):
        s = xp.where(xp.tril(xp.ones((12, 12), dtype="bool")), q @ k.transpose(0, 1, 3, 2) * 0.5, -math.inf)
        e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
        total = e.sum(axis=-1, keepdims=True)
        out = (e / total) @ v
        lse = (xp.log(total) + xp.max(s, axis=-1, keepdims=True))[..., 0]
        return (out * xp.sin(out + 1.0)).sum() + (lse**2).sum() * 0.1

    f = loss(options)
    near(ts.jvp(f, tuple(args), tuple(tangents)), ts.jvp(plain, tuple(args), tuple(tangents)), 1e-4)
    near(ts.hvp(f, tuple(args), tuple(tangents)), ts.hvp(plain, tuple(args), tuple(tangents)), 1e-3)

    def twice(fn):
        return ts.grad(lambda q, k, v: (ts.grad(fn)(q, k, v) ** 2).sum(), argnums=(0, 1, 2))

    near(twice(f)(*args), twice(plain)(*args), 1e-3)
    many = [np.stack([a, a * 0.5, -a]) for a in args]
    near(ts.vmap(ts.grad(f, argnums=(0, 1, 2)))(*many), ts.vmap(ts.grad(plain, argnums=(0, 1, 2)))(*many), 1e-4)
    near(ts.grad(ts.checkpoint(f), argnums=(0, 1, 2))(*args), ts.grad(plain, argnums=(0, 1, 2))(*args), 1e-4)


def test_the_reason_why_attention_is_a_composition_is_reported(device):
    q, k, v = arrays((1, 2, 12, 4), (1, 2, 12, 4), (1, 2, 12, 4))
    masked = ts.jit(lambda q, k, v: nn.attention(q, k, v, mask=np.ones((12, 12), bool)))
    assert "a mask or a bias that is an array" in masked.explain(q, k, v)
    wide = ts.jit(lambda q, k, v: nn.attention(q, k, v))
    assert "note" not in wide.explain(q, k, v)
    assert "not f64" in wide.explain(*(x.astype(np.float64) for x in (q, k, v)))


@pytest.mark.parametrize("window", [None, 9, (5, 3)])
@pytest.mark.parametrize("heads", [(2, 2), (4, 2)])
def test_kernels_of_the_backward_pass_in_float64(window, heads):
    (H, HK), Sq, Sk, D, DV, scale = heads, 37, 45, 8, 16, 0.4
    q, k, v, do = arrays((1, H, Sq, D), (1, HK, Sk, D), (1, HK, Sk, DV), (1, H, Sq, DV), dtype=np.float64)
    seen = attention_plan.sight(window is not None and not isinstance(window, tuple), window, Sq, Sk)

    def composed(q, k, v):
        kk, vv = xp.repeat(k, H // HK, 1), xp.repeat(v, H // HK, 1)
        s = q @ kk.transpose(0, 1, 3, 2) * scale
        gap = np.arange(Sk)[None] - np.arange(Sq)[:, None]
        ok = (gap >= (seen.lowest if seen.lowest is not None else -Sk - Sq)) & (gap <= (seen.highest if seen.highest is not None else Sk))
        s = xp.where(ok, s, -math.inf)
        e = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
        total = e.sum(axis=-1, keepdims=True)
        return (e / total) @ vv, (xp.log(total) + xp.max(s, axis=-1, keepdims=True))[..., 0]

    (out, lse), pull = ts.vjp(composed, q, k, v)
    wanted = pull((do, np.zeros_like(lse)))
    delta = (do * out).sum(-1)
    got = [np.full_like(x, np.nan) for x in (q, k, v)]
    saved = attention_backward.Saved(q, k, v, do, lse * math.log2(math.e), delta)
    none, span = Function.filled(None, [], 2, q), seen.span
    rest = none, none, attention_backward.Scores(scale, span.lowest, span.highest, span.low, span.high), attention_backward.Blocks(16, 32)
    attention_backward.keys(saved, got[1], got[2], *rest, shared=H // HK)
    attention_backward.queries(saved, got[0], *rest)
    near(got, list(wanted), 1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "fn, shapes",
    [
        (lambda x: nn.gelu(x), [(3, 7)]),
        (lambda x: nn.gelu(x, approximate=True), [(3, 7)]),
        (lambda x: nn.silu(x), [(3, 7)]),
        (lambda x, w, b: nn.layernorm(x, w, b), [(2, 3, 7), (7,), (7,)]),
        (lambda x, w: nn.layernorm(x, w), [(3, 7), (7,)]),
        (lambda x: nn.layernorm(x), [(3, 7)]),
        (lambda x, w: nn.rmsnorm(x, w), [(3, 7), (7,)]),
        (lambda x: nn.rmsnorm(x), [(3, 7)]),
        (lambda x: nn.cross_entropy(x, np.array([[1, 0, -100], [6, 5, 2]])), [(2, 3, 7)]),
        (lambda x: nn.cross_entropy(x, np.array([3, 0, 5]), reduction="none"), [(3, 7)]),
    ],
)
def test_rules_give_the_derivatives_of_what_they_mean(fn, shapes, dtype, monkeypatch):
    args = arrays(*shapes, dtype=dtype)

    def total(*a):
        y = fn(*a)
        return (y * xp.sin(y + 1.0)).sum()

    places = tuple(range(len(args)))
    first = ts.value_and_grad(total, argnums=places)

    def twice(*a):
        return sum((g**2).sum() for g in ts.grad(total, argnums=places)(*a))

    wanted = first(*args), ts.grad(twice, argnums=places)(*args), ts.jvp(total, tuple(args), tuple(args))
    many = [np.stack([a, -a]) for a in args]
    batched = ts.vmap(first)(*many)
    as_for_gpus(monkeypatch)
    bound = 1e-12 if dtype == np.float64 else 2e-5
    near(first(*args), wanted[0], bound)
    near(ts.grad(twice, argnums=places)(*args), wanted[1], bound * 10)
    near(ts.jvp(total, tuple(args), tuple(args)), wanted[2], bound)
    near(ts.vmap(first)(*many), batched, bound)
    if dtype == np.float64:
        ts.gradcheck(total, *args)


def test_a_block_of_a_model_is_the_same(monkeypatch):
    block = nn.TransformerBlock(16, 2)
    params = ts.jit(block.init)(ts.random.key(0))
    (x,) = arrays((2, 12, 16))
    step = ts.value_and_grad(lambda p, x: (block(p, x) ** 2).mean())
    wanted = step(params, x)
    as_for_gpus(monkeypatch)
    near(step(params, x), wanted, 1e-5)
