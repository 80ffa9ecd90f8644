"""Masks whose bound is compared with the slice they mask: a bound that is known to end beyond the tensor is refused."""

import re

import numpy as np
import pytest
from oracle.fuzz import load

import tessera as ts


def kernel(body, head='x: ts.Tensor["N", ts.f32], v: ts.Out["cdiv(N, 16)", ts.f32]'):
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return load(f"@ts.kernel\ndef k({head}):\n{lines}    return v\n")["k"]


SLICE = "p = ts.tile.program_id(0)\nt = x[p * 16:p * 16 + 16]\n"
RIGHT = [
    "v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=N - p * 16))",
    "s = p * 16\nv[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=N - s))",
    "v[p] = ts.tile.max(ts.tile.where(p * 16 + ts.tile.arange(16) < N, t, -math.inf))",
    "v[p] = ts.tile.max(ts.tile.where(ts.tile.arange(16) <= N - p * 16 - 1, t, -math.inf))",
    "v[p] = ts.tile.max(ts.tile.where(N > ts.tile.arange(16) + 16 * p, t, -math.inf))",
    "v[p] = ts.tile.max(ts.tile.where(p * 16 + ts.tile.arange(16) >= N, -math.inf, t))",
    # Below both is below the one that counts.
    "v[p] = ts.tile.max(ts.tile.where((ts.tile.arange(16) < N) & (p * 16 + ts.tile.arange(16) < N), t, -math.inf))",
    "v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=min(N, N - p * 16)))",
]
#: The bound, and how far it goes beyond the tensor.
WRONG = [
    "v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=N))",
    "v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=N - p * 16 + 1))",
    "v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=N - p * 8))",
    "v[p] = ts.tile.max(ts.tile.where(ts.tile.arange(16) < N, t, -math.inf))",
    "v[p] = ts.tile.max(ts.tile.where(p * 16 + ts.tile.arange(16) <= N, t, -math.inf))",
    "v[p] = ts.tile.max(ts.tile.where(ts.tile.arange(16) >= N, -math.inf, t))",
]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("mask", RIGHT)
def test_bounds_that_end_with_the_tensor(mask):
    k = kernel(SLICE + mask)
    for n in (1, 16, 20, 33):
        assert k(-np.ones(n, np.float32)).tolist() == [-1] * -(-n // 16)


@pytest.mark.parametrize("mask", WRONG)
def test_bounds_that_end_beyond_it(mask):
    with pytest.raises(ts.TesseraError) as caught:
        kernel(SLICE + mask)
    assert caught.value.code == "E_RAGGED"
    assert "cols=N - p * 16" in caught.value.help
    assert "counts from the start of the tile" in str(caught.value)


@pytest.mark.parametrize("mask", WRONG)
def test_the_help_is_right_when_it_is_copied(mask):
    with pytest.raises(ts.TesseraError) as caught:
        kernel(SLICE + mask)
    bound = re.search("cols=(N[^,)]*)", caught.value.help)[1]
    k = kernel(SLICE + f"v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols={bound}))")
    assert k(-np.ones(20, np.float32)).tolist() == [-1, -1]


@pytest.mark.parametrize("mask", [
    "v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=m))",
    "v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=ends[p] - p * 16))",
    "v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=L - p * 16))",
    "v[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=8))",
])  # fmt: skip
def test_what_cannot_be_decided_is_taken_as_it_is_written(mask):
    head = 'x: ts.Tensor["N", ts.f32], m: ts.i32, ends: ts.Tensor["L", ts.i32], v: ts.Out["cdiv(N, 16)", ts.f32]'
    k = kernel(SLICE + mask, head)
    assert k(-np.ones(16, np.float32), 16, np.full(16, 16, np.int32)).tolist() == [-1]


def test_bounds_of_rows():
    head = 'x: ts.Tensor["M", 8, ts.f32], v: ts.Out["cdiv(M, 4)", ts.f32]'
    body = "p = ts.tile.program_id(0)\nt = x[p * 4:p * 4 + 4, :]\nv[p] = ts.tile.max(ts.tile.bounds_mask(t, rows={}))"
    assert kernel(body.format("M - p * 4"), head)(-np.ones((5, 8), np.float32)).tolist() == [-1, -1]
    with pytest.raises(ts.TesseraError, match="M - p \\* 4"):
        kernel(body.format("M"), head)


def test_a_tile_that_was_merged_has_another_origin():
    """Its positions are not those of the slice: nothing is known of the bound."""
    head = 'x: ts.Tensor["M", 8, ts.f32], v: ts.Out["cdiv(M, 4)", ts.f32]'
    body = "p = ts.tile.program_id(0)\nt = ts.tile.reshape(x[p * 4:p * 4 + 4, :], (32,))\nv[p] = ts.tile.max(ts.tile.bounds_mask(t, cols=M * 8 - p * 32))"
    assert kernel(body, head)(-np.ones((5, 8), np.float32)).tolist() == [-1, -1]


EMPTY = {
    "one tile": "v[r] = ts.tile.reduce(x[r, :], larger)",
    "a function of the language": "v[r] = ts.tile.reduce(x[r, :], ts.tile.maximum)",
    "two tiles": "a, i = ts.tile.reduce((x[r, :], ts.tile.arange(N)), first_largest)\nv[r] = a",
    "the second of two": "a, i = ts.tile.reduce((x[r, :], ts.tile.arange(N)), first_largest)\nv[r] = ts.tile.cast(i, ts.f32)",
    "all elements": "v[r] = ts.tile.reduce(x[:, :], larger)",
    "kept axes": "v[r:r + 1] = ts.tile.reduce(x[r, :], larger, axis=0, keepdims=True)",
}


def reduction(body, extent='"N"'):
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    text = f"@ts.kernel\ndef k(x: ts.Tensor[3, {extent}, ts.f32], v: ts.Out[3, ts.f32]):\n    r = ts.tile.grid(3)\n{lines}    return v\n"
    given = """
@ts.func
def larger(a, b):
    return ts.tile.maximum(a, b)

@ts.func
def first_largest(a, i, b, j):
    other = b > a
    return ts.tile.where(other, b, a), ts.tile.where(other, j, i)

"""
    return load(given + text)["k"]


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("form", EMPTY)
def test_an_own_combiner_has_nothing_to_give_for_no_elements(form):
    k = reduction(EMPTY[form])
    k(np.ones((3, 4), np.float32))
    with pytest.raises(ts.TesseraError) as caught:
        k(np.ones((3, 0), np.float32))
    assert caught.value.code == "E_SHAPE_MISMATCH" and "at least one element" in str(caught.value) and caught.value.help


def test_it_is_refused_when_the_extent_is_known():
    with pytest.raises(ts.TesseraError) as caught:
        reduction(EMPTY["one tile"], "0").jit(target="sm_90a")
    assert caught.value.code == "E_SHAPE_MISMATCH"


@pytest.mark.usefixtures("backend")
def test_an_empty_scan_is_an_empty_tile():
    k = load("""
@ts.func
def larger(a, b):
    return ts.tile.maximum(a, b)

@ts.kernel
def k(x: ts.Tensor[3, "N", ts.f32], v: ts.Out[3, "N", ts.f32]):
    r = ts.tile.grid(3)
    v[r, :] = ts.tile.associative_scan(x[r, :], larger)
    return v
""")["k"]
    assert k(np.ones((3, 0), np.float32)).shape == (3, 0)
    assert k(np.ones((3, 2), np.float32)).tolist() == [[1, 1]] * 3


def test_argmax_of_nothing_is_named():
    k = load("""
@ts.kernel
def k(x: ts.Tensor[3, "N", ts.f32], v: ts.Out[3, ts.i32]):
    r = ts.tile.grid(3)
    v[r] = ts.tile.argmax(x[r, :])
    return v
""")["k"]
    with pytest.raises(ts.TesseraError, match="for the `argmax`"):
        k(np.ones((3, 0), np.float32))
