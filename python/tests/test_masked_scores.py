"""Running softmaxes whose masks write a large finite number: a row may have seen nothing but such numbers so far."""

import math

import numpy as np
import pytest

import tessera as ts

WINDOW = 16


def kernel(hidden):
    @ts.kernel
    def windowed(
        q: ts.Tensor["S", "D", ts.bf16], k: ts.Tensor["S", "D", ts.bf16], v: ts.Tensor["S", "D", ts.bf16], out: ts.Out["S", "D", ts.bf16],
        num_warps: int = 4,
    ):  # fmt: skip
        q0 = ts.tile.program_id(0) * 64
        q_t = q[q0:q0 + 64, :]
        acc = ts.tile.zeros((64, D), ts.f32)
        m = ts.tile.full((64,), hidden, ts.f32)
        l = ts.tile.zeros((64,), ts.f32)
        for k0 in ts.tile.range(max(0, q0 - (WINDOW - 1)) // 64 * 64, min(S, q0 + 64), 64):
            s = ts.tile.mma(q_t, k[k0:k0 + 64, :], transpose_b=True) * (1.0 / math.sqrt(D))
            s = ts.tile.bounds_mask(s, cols=S - k0, value=hidden)
            apart = (k0 + ts.tile.arange(64))[None, :] - (q0 + ts.tile.arange(64))[:, None]
            s = ts.tile.where((apart <= 0) & (apart > -WINDOW), s, hidden)
            m_new = ts.tile.maximum(m, ts.tile.row_max(s))
            alpha = ts.tile.exp(m - m_new)
            p = ts.tile.exp(s - m_new[:, None])
            l = alpha * l + ts.tile.row_sum(p)
            acc = alpha[:, None] * acc + ts.tile.mma(ts.tile.cast(p, ts.bf16), v[k0:k0 + 64, :])
            m = m_new
        out[q0:q0 + 64, :] = ts.tile.cast(acc / l[:, None], ts.bf16)
        return out

    return windowed


@pytest.mark.parametrize("hidden", [-1e9, -1e30, -3e38])
@pytest.mark.parametrize("backend", ["cpu", "ptx-emulated"])
def test_rows_that_saw_only_masked_scores_so_far(backend, hidden):
    rng = np.random.default_rng(0)
    q, k, v = (ts.array(rng.standard_normal((150, 64)), "bf16") for _ in range(3))
    wide = [x.astype(np.float64) for x in (q, k, v)]
    scores = wide[0] @ wide[1].T / 8.0
    apart = np.arange(150)[None, :] - np.arange(150)[:, None]
    weights = np.where((apart <= 0) & (apart > -WINDOW), np.exp(scores), 0.0)
    right = weights / weights.sum(-1, keepdims=True) @ wide[2]
    if ts.runtime.backends()[backend] != "available":
        pytest.skip(f"{backend}: {ts.runtime.backends()[backend]}")
    ts.runtime.select_backend(backend)
    try:
        found = kernel(hidden)(q, k, v).astype(np.float64)
    finally:
        ts.runtime.select_backend(None)
    assert np.abs(found - right).max() < 2e-2
