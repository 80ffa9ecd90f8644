"""Masked arrays of NumPy's are refused: their masks would be lost, and masked elements computed with."""

import numpy as np
import pytest

import tessera as ts
from tessera import xp

X = np.arange(4, dtype=np.float32)
M = np.ma.masked_array(X.copy(), mask=[False, True, False, False])


@ts.kernel
def double(x: ts.Tensor["n", ts.f32], out: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:  # noqa: F821
        out[i] = 2 * x[i]


CALLS = {
    "jit": lambda: ts.jit(lambda x: x + 1)(M), "a tree": lambda: ts.jit(lambda t: t["m"] + 1)({"m": M}), "a captured array": lambda: ts.jit(lambda x: x + M)(X),
    "grad": lambda: ts.grad(lambda x: xp.sum(x * x))(M), "vmap": lambda: ts.vmap(lambda x: 2 * x)(M), "scan": lambda: ts.scan(lambda c, x: (c + x, x), 0.0, M),
    "xp": lambda: xp.sum(M), "asarray": lambda: xp.asarray(M), "array": lambda: ts.array(M), "an operator": lambda: xp.ones(4) + M,
    "softmax": lambda: ts.softmax(M[None]), "gelu": lambda: ts.gelu_safe(M), "layernorm": lambda: ts.layernorm(X[None], M, X),
    "a kernel": lambda: double(M), "an output of a kernel": lambda: double(X, M), "a checked kernel": lambda: double.check(M),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_masked_arrays_are_refused(name):
    with pytest.raises(ts.KernelTypeError, match="without a mask, got a masked") as caught:
        CALLS[name]()
    assert caught.value.code == "E_TYPE" and "`x.filled(0)`" in caught.value.help


def test_what_the_error_says_to_write_works():
    assert double(M.filled(0)).tolist() == [0, 0, 4, 6]
    assert ts.jit(lambda data, mask: xp.where(mask, 0, data))(M.data, M.mask).tolist() == [0, 0, 2, 3]
