"""Names of the last release work and warn at the user's line."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import tessera as ts
from tessera.kernel.clocks import Visit
from tessera.kernel.schedule import FORMER_PASSES

Q = np.ones((1, 2, 16, 16), np.float32)


@ts.func
def square(v):
    return v * v


@ts.kernel
def gemm(A: ts.Tensor["M", "K", ts.bf16], B: ts.Tensor["K", "N", ts.bf16], C: ts.Tensor["M", "N", ts.bf16]):
    m, n = ts.tile.program_id(0) * 64, ts.tile.program_id(1) * 64
    acc = ts.tile.zeros((64, 64), ts.f32)
    for k in ts.tile.range(0, K, 64):
        acc = ts.tile.mma(A[m:m + 64, k:k + 64], B[k:k + 64, n:n + 64], accumulator=acc)
    C[m:m + 64, n:n + 64] = acc


def derivative():
    @ts.kernel
    def derived(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32], f: ts.Fn):
        start = ts.tile.program_id(0) * 16
        _, y[start:start + 16] = ts.tile.slope(f, x[start:start + 16])
        return y

    return derived(np.arange(3, dtype=np.float32), f=square).tolist()


CASES = [
    (lambda: ts.Schedule(roles="pingpong"), "roles", lambda: ts.Schedule(warp_specialization="pingpong")),
    (lambda: ts.Schedule(free_reference=False), "free_reference", lambda: ts.Schedule(lazy_rescale=False)),
    (lambda: ts.Schedule(warp_specialization="pingpong", warps=4).derive(roles=None), "roles", lambda: ts.Schedule(warps=4)),
    (lambda: ts.Schedule(warp_specialization="pingpong")["roles"], "roles", lambda: "pingpong"),
    (lambda: ts.Schedule(off="split"), "split", lambda: ts.Schedule(off="loop_splitting")),
    (lambda: ts.op.flash_attention(Q, Q, Q, free_reference=False).tolist(), "free_reference", Q.tolist),
    (lambda: ts.nn.attention(Q, Q, Q, free_reference=False).tolist(), "free_reference", Q.tolist),
    (derivative, "ts.tile.slope", lambda: [0, 2, 4]),
    (lambda: Visit("producer", 0, 1, 2, 3, 4, 5, 6).turns, "turns", lambda: 4),
]


@pytest.mark.parametrize(("former", "name", "now"), CASES, ids=range(len(CASES)))
def test_a_former_name_gives_the_same_and_warns_here(former, name, now) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        got = former()
    assert [(w.category, w.filename) for w in found] == [(DeprecationWarning, __file__)]
    assert str(found[0].message).startswith(f"W_DEPRECATED: `{name}` is now ")
    assert got == now()


@pytest.mark.parametrize(("former", "now"), FORMER_PASSES.items())
def test_the_compiler_has_the_same_former_names_of_passes(former, now, monkeypatch) -> None:
    monkeypatch.setenv("TESSERA_OFF", former)
    assert gemm.jit(target="sm90").schedule["off"] == (now,)


def test_wrong_uses_are_refused() -> None:
    with pytest.raises(TypeError, match="both `free_reference` and `lazy_rescale`"):
        ts.op.flash_attention(Q, Q, Q, free_reference=False, lazy_rescale=True)
    with pytest.raises(AttributeError, match="no attribute 'turned'"):
        Visit("producer", 0, 1, 2, 3, 4, 5, 6).turned
    with pytest.raises(ts.TesseraError, match="expected passes that can be left out"):
        ts.Schedule(off="turned")
