"""Attention with heads of any width. On GPUs, head dims are padded to what tensor cores take. For dtypes that they do not take,
blocks are as large as shared memory allows. Code is compiled here without a GPU; numbers are computed on the host with the same
tiles. Also f64 arrays, which accumulate in f64."""

import dataclasses
import inspect
import sys

import numpy as np
import pytest
from doc_blocks import ROOT
from test_attention import alibi, arrays, capped, close, even, reference

import tessera as ts
from tessera import xp
from tessera import _core
from tessera.transforms import composites
from tessera.kernels import attention_plan, machine

sys.path.append(str(ROOT))

from ledger.recorded_launches import without_memory, recorded  # noqa: E402

TARGETS = ("sm80", "sm90")
MASKS = {"causal": {"causal": True}, "left": {"window": (100, None)}, "both": {"window": (100, 20)}}


def emitted(target, D, DV, dtype, monkeypatch, Sq=1000, profile="default", **options):
    """The code of one launch for arrays of a GPU."""
    monkeypatch.setattr(machine, "of", lambda x: machine.target(target))
    q, k, v = (without_memory(shape, dtype) for shape in ((2, 4, Sq, D), (2, 2, 900, D), (2, 2, 900, DV)))
    with recorded(run=False) as found:
        inspect.unwrap(ts.op.flash_attention)(q, k, v, **options)
    (launch,) = found
    return dataclasses.replace(launch.recipe, target=target, profile=profile).compiled().inspect_ir("target")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("D", "DV"), [(33, 33), (40, 40), (100, 72), (136, 200), (255, 256)])
def test_narrow_floats_use_tensor_cores(target, mask, D, DV, monkeypatch):
    code = emitted(target, D, DV, "bf16", monkeypatch, return_lse=True, **MASKS[mask])
    # TMA needs rows that begin on multiples of 16 bytes.
    tma = target == "sm90" and D % 8 == DV % 8 == 0
    assert "wgmma.mma_async" in code if tma else "mma.sync" in code


@pytest.mark.parametrize("D", [16, 32, 40, 48, 56, 64])
def test_many_queries_of_short_heads_use_wgmma(D, monkeypatch):
    assert "wgmma.mma_async" in emitted("sm90", D, D, "bf16", monkeypatch, Sq=4096)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "D"), [("f32", 64), ("f32", 128), ("f32", 200), ("f32", 256), ("f64", 128), ("f64", 255), ("fp8_e4m3", 100)])
def test_dtypes_without_tensor_cores_fit(target, dtype, D, monkeypatch):
    for options in MASKS.values():
        assert emitted(target, D, D, dtype, monkeypatch, **options)


def test_tiles_that_fitted_are_as_they_were():
    hopper = machine.target("sm90")
    for D, edged, low, expected in [(64, 2, True, (64, 64)), (128, 1, False, (64, 32)), (128, 2, True, (32, 32)), (256, 0, False, (32, 32))]:
        assert attention_plan.tiles(1000, D, D, 4, hopper, edged, low=low) == expected
    # The loop before the whole blocks has its own memory.
    assert attention_plan.tiles(1000, 128, 128, 4, hopper, 1, low=True) == (32, 32)
    assert attention_plan.tiles(1000, 256, 256, 4, machine.target("sm80"), 2, low=True) == (16, 8)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(machine, "of", lambda x: machine.target("sm90"))


@pytest.mark.parametrize(("D", "DV"), [(33, 33), (40, 24), (72, 100), (255, 8)])
@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_wide_tiles_give_the_same(D, DV, backend, as_on_a_gpu):
    rng = np.random.default_rng(D)
    ts.runtime.select_backend(backend)
    try:
        for options in ({}, {"causal": True}, {"window": (9, 4)}, {"tile": (16, 32)}):
            q, k, v = arrays(rng, 1, 2, 1, 40, 50, D, DV, "f16")
            o, lse = ts.op.flash_attention(q, k, v, return_lse=True, **options)
            without_tile = {name: value for name, value in options.items() if name != "tile"}
            expected, sums = reference(q, k, v, **without_tile)
            assert o.shape == (1, 2, 40, DV) and o.dtype == q.dtype
            close(o, expected, 2e-3)
            close(lse, sums, 1e-3)
        blocks = ts.op.block_mask(even, q, k, v, tile=(16, 32))
        expected, _ = reference(q, k, v, mask=lambda h, i, j: (i + j) % 2 == 0)
        close(ts.op.flash_attention(q, k, v, mask_mod=blocks), expected, 2e-3)
    finally:
        ts.runtime.select_backend(None)


def test_what_lies_behind_a_head_is_not_read(as_on_a_gpu):
    """Heads that are parts of longer rows, with NaN behind them."""
    q, k, v = arrays(np.random.default_rng(3), 1, 2, 2, 30, 30, 40, 40, "f16")
    longer = [np.concatenate([x, np.full_like(x, np.nan)], -1)[..., :40] for x in (q, k, v)]
    assert (ts.op.flash_attention(*longer) == ts.op.flash_attention(q, k, v)).all()


def test_gradients_of_heads_of_any_width(monkeypatch):
    caps = dict(_core.capabilities("cuda:0"))
    monkeypatch.setattr(composites, "capabilities", lambda target: caps)
    args = arrays(np.random.default_rng(4), 1, 4, 2, 37, 45, 40, 24, "f16")

    def of(q, k, v):
        o = ts.op.flash_attention(q, k, v, causal=True).astype("f32")
        return (o * xp.sin(o + 1.0)).sum()

    def wanted(q, k, v):
        s = q @ xp.repeat(k, 2, 1).transpose(0, 1, 3, 2) / np.sqrt(40.0)
        e = xp.where(np.arange(45) <= np.arange(37)[:, None] + 8, xp.exp(s), 0.0)
        o = (e / e.sum(axis=-1, keepdims=True)) @ xp.repeat(v, 2, 1)
        return (o * xp.sin(o + 1.0)).sum()

    step = ts.jit(lambda *a: ts.grad(of, argnums=(0, 1, 2))(*a))
    assert "@keys" in step.compiled(*args).plan
    right = ts.grad(wanted, argnums=(0, 1, 2))(*(a.astype(np.float64) for a in args))
    for got, expected in zip(step(*args), right, strict=True):
        assert got.shape == expected.shape
        assert np.abs(got.astype(np.float64) - expected).max() <= 4e-3 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("backend", ["cpu", "interp"])
def test_double_precision(backend):
    rng = np.random.default_rng(5)
    slopes = rng.standard_normal(4)
    ts.runtime.select_backend(backend)
    try:
        q, k, v = arrays(rng, 2, 4, 2, 70, 90, 40, 24, "f64")
        for options, meant in (
            ({}, {}),
            ({"causal": True, "window": 20}, {"causal": True, "window": 20}),
            ({"score_mod": capped}, {"score": lambda s, h, i, j: 5 * np.tanh(s / 5)}),
            ({"score_mod": ts.bind(alibi, slopes=slopes)}, {"score": lambda s, h, i, j: s + slopes[h] * (j - i)}),
            ({"mask_mod": even, "scale": -0.3}, {"mask": lambda h, i, j: (i + j) % 2 == 0, "scale": -0.3}),
        ):
            o, lse = ts.op.flash_attention(q, k, v, return_lse=True, **options)
            expected, sums = reference(q, k, v, **meant)
            assert o.dtype == lse.dtype == np.float64
            close(o, expected, 1e-13)
            close(lse, sums, 1e-12)
    finally:
        ts.runtime.select_backend(None)


def test_double_precision_has_no_tables_and_is_not_measured():
    q, k, v = arrays(np.random.default_rng(6), 1, 2, 2, 20, 20, 16, 16, "f64")
    with pytest.raises(ts.UnsupportedError, match="tile="):
        ts.op.flash_attention(q, k, v, tile="tune")
    with pytest.raises(ts.UnsupportedError, match="a block mask"):
        ts.op.flash_attention(q, k, v, mask_mod=ts.op.block_mask(even, q, k, v))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("dtype", "D"), [("bf16", 64), ("bf16", 128), ("f16", 256), ("bf16", 100)])
def test_strict_fits_too(target, dtype, D, monkeypatch):
    """`strict` uses no tensor cores, whatever the dtype."""
    with ts.numerics.profile("strict"):
        for options in MASKS.values():
            code = emitted(target, D, D, dtype, monkeypatch, profile="strict", **options)
            assert "mma" not in code
