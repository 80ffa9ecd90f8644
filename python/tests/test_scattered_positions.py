"""Positions of scatter updates: the scatter kernel counts negative ones from the end. Also the alignment of results in memory."""

from __future__ import annotations

import numpy as np
import pytest

import tessera as ts
from tessera import xp

RNG = np.random.default_rng(41)


def expected(x, i, u, mode):
    out = np.array(x)
    for where, row in zip(i.tolist(), u, strict=True):
        at = where + len(out) if where < 0 else where
        if mode == "clip":
            at = min(max(at, 0), len(out) - 1)
        if 0 <= at < len(out):
            out[at] += row
    return out


@pytest.mark.parametrize("profile", ["default", "strict"])
@pytest.mark.parametrize("mode", ["drop", "clip"])
@pytest.mark.parametrize("width", [None, 1, 16, 37])
@pytest.mark.parametrize("kind", ["int32", "int64", "int8"])
def test_positions_from_the_end(kind, width, mode, profile):
    rest = () if width is None else (width,)
    x = RNG.integers(-9, 9, (50, *rest)).astype(np.float32)
    i = RNG.integers(-70, 70, 3000).astype(kind)
    u = RNG.integers(-9, 9, (3000, *rest)).astype(np.float32)
    f = ts.jit(lambda x, i, u: x.at[i].add(u, mode=mode), numerics=profile)
    np.testing.assert_array_equal(np.asarray(f(x, i, u)), expected(x, i, u, mode))
    # Positions have no memory of their own: the copy of the old array and the updates are all.
    assert f.compiled(x, i, u).plan.count("sched.launch") == 2


def test_positions_of_batches_and_of_other_blocks():
    x = RNG.integers(-9, 9, (3, 20, 5)).astype(np.float32)
    i = RNG.integers(-20, 20, (3, 40)).astype(np.int32)
    u = RNG.integers(-9, 9, (3, 40, 5)).astype(np.float32)
    want = np.stack([expected(*one, "drop") for one in zip(x, i, u, strict=True)])
    add = ts.jit(ts.vmap(lambda x, i, u: x.at[i].add(u)))
    np.testing.assert_array_equal(np.asarray(add(x, i, u)), want)

    @ts.jit
    def often(x, i, u):
        at = xp.where(i < 0, i + 20, i)  # made outside the loop, and used in it
        return ts.fori_loop(0, 3, lambda _, x: x.at[at].add(u).at[i].add(u), x)

    want = x[0]
    for _ in range(6):
        want = expected(want, i[0], u[0], "drop")
    np.testing.assert_array_equal(np.asarray(often(x[0], i[0], u[0])), want)


def test_a_choice_that_is_no_wrap_stays():
    x = np.zeros(10, np.float32)
    i = np.arange(-10, 10, dtype=np.int32)
    u = np.ones(20, np.float32)
    by_seven = ts.jit(lambda x, i, u: x.at[xp.where(i < 0, i + 7, i)].add(u))
    moved = np.where(i < 0, i + 7, i)
    np.testing.assert_array_equal(np.asarray(by_seven(x, i, u)), expected(x, moved, u, "drop"))
    below_two = ts.jit(lambda x, i, u: x.at[xp.where(i < 2, i + 10, i)].add(u))
    moved = np.where(i < 2, i + 10, i)
    np.testing.assert_array_equal(np.asarray(below_two(x, i, u)), expected(x, moved, u, "drop"))
