"""Copies that fill pipelines of shared memory: all threads take part, whatever the extent."""

import re

import numpy as np
import pytest

import tessera as ts


@ts.kernel
def softmax(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
    m = ts.tile.program_id(0)
    t = x[m:m + 1, :]
    w = ts.tile.exp(t - ts.tile.max(t, axis=1)[:, None])
    y[m:m + 1, :] = w / ts.tile.sum(w, axis=1)[:, None]


@pytest.mark.parametrize("N", [12800, 15504, 16384, 13003])
def test_threads_share_the_copies_of_a_row_of_any_length(N):
    """With only the factors of two of an extent, 4 threads of 256 copied rows of 15504, and each had code for 969 copies."""
    align = next(a for a in (16, 8, 4) if 4 * N % a == 0)
    code = softmax.jit(target="sm_90a", layouts={"x": {"align": align}, "y": {"align": align}}, N=N)
    threads = int(code.explain().fields["resources"]["threads"])
    copies = len(re.findall(r"cp\.async\.c[ag]\.shared", code.inspect_ir("target")))
    assert copies, "rows of this length are expected to be copied ahead"
    # One set before the loop, one in it; the last copies of a thread may be padding.
    assert copies <= 2 * (-(-4 * N // (align * threads)) + 4), (copies, threads)


@pytest.mark.parametrize("N", [12292, 15504])
def test_the_copies_are_right(N):
    x = np.random.default_rng(N).standard_normal((2, N)).astype(np.float32)
    y = np.full_like(x, np.nan)
    ts.runtime.select_backend("ptx-emulated:sm_90a")
    try:
        softmax(x, y)
    finally:
        ts.runtime.select_backend(None)
    w = np.exp(x.astype(float) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, w / w.sum(1, keepdims=True), rtol=1e-5)
