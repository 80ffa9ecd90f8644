"""Derivatives at kinks, ties and ends against JAX's, which `docs/op-derivatives.md` lists."""

import jax_kinks
import numpy as np
import pytest

import tessera as ts
from tessera import nn, xp

KEPT = jax_kinks.kept()


def test_every_row_has_answers():
    assert set(KEPT) == set(jax_kinks.ROWS), "run scripts/jax-values.sh, which asks JAX again"
    # A row that is no longer different leaves the list.
    for name, (ours, _) in jax_kinks.DIFFERENT.items():
        assert not np.allclose(ours, KEPT[name], rtol=1e-5), name


@pytest.mark.parametrize("name", jax_kinks.ROWS)
@pytest.mark.parametrize("mode", ["compiled", "interpreted", "forward"])
def test_derivatives_at_kinks(name, mode):
    fn, points = jax_kinks.ROWS[name]
    value = lambda v: fn(xp, nn, v)  # noqa: E731
    if mode == "forward":
        def first(v):
            return ts.jvp(value, (v,), (np.float32(1),))[1]
    else:
        first = ts.grad(value)
    second = ts.grad(first) if mode != "forward" else lambda v: ts.jvp(first, (v,), (np.float32(1),))[1]
    both = ts.jit(lambda v: (first(v), second(v)))
    for at, want in zip(points, jax_kinks.DIFFERENT.get(name, (KEPT[name],))[0], strict=True):
        if mode == "interpreted":
            with ts.runtime.oracle():
                got = both(np.float32(at))
        else:
            got = both(np.float32(at))
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(g), w, rtol=2e-5, atol=2e-6, err_msg=f"{name} at {at}")
