"""Kernels of users in programs on meshes: on the blocks of ranks where `parallel=` and `contract=` say so, else on whole arrays. The oracle is
NumPy on whole arrays."""

from __future__ import annotations

import itertools
import warnings

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import dist, xp


@ts.kernel(parallel=("M", "N"), contract="K")
def product(a: ts.Tensor["M", "K", ts.f32], b: ts.Tensor["K", "N", ts.f32], c: ts.Out["M", "N", ts.f32]):
    i = ts.tile.grid(M)
    acc = ts.tile.zeros((N,), ts.f32)
    for k in ts.tile.range(K):
        acc = acc + b[k, :] * a[i, k]
    c[i, :] = acc


@ts.kernel(parallel="M", contract="K")
def added(a: ts.Tensor["M", "K", ts.f32], y: ts.Tensor["M", ts.f32]):
    i = ts.tile.grid(M)
    acc = y[i]
    for k in ts.tile.range(K):
        acc = acc + a[i, k]
    y[i] = acc
    return y


@ts.kernel(parallel=("M",))
def halves(a: ts.Tensor["M", "K", ts.bf16], y: ts.Out["M", "K", ts.bf16]):
    i = ts.tile.grid(M)
    y[i, :] = a[i, :] * 0.5


@ts.kernel
def whole(a: ts.Tensor["M", "K", ts.f32], y: ts.Out["M", "K", ts.f32]):
    i = ts.tile.grid(M)
    y[i, :] = a[i, :] * 3.0


@pytest.fixture(params=["rows", "rank by rank"], autouse=True)
def plans(request, monkeypatch):
    """Programs of ranks as rows of one function, and each rank by itself."""
    if request.param != "rows":
        monkeypatch.setenv("TESSERA_OFF", "rank_rows")
    return request.param


A = np.random.default_rng(1).integers(-4, 5, (6, 12)).astype(np.float32)
B = np.random.default_rng(2).integers(-4, 5, (12, 8)).astype(np.float32)


def kinds(f, *args):
    return sorted(c.kind for c in f.compiled(*args).collectives)


MESH = ("dp", "tp"), (2, 3)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (("dp", None), (None, None), []),
        (("tp", None), (None, "dp"), []),
        ((None, "tp"), ("tp", None), ["all_reduce"]),
        (("dp", "tp"), ("tp", None), ["all_reduce"]),
    ],
)
def test_a_product_runs_on_blocks(plans, a, b, wanted):
    mesh = dist.mesh(6, *MESH)
    x, w = dist.shard(A, dist.spec(*a), mesh), dist.shard(B, dist.spec(*b), mesh)
    f = ts.jit(lambda x, w: product(x, w))
    np.testing.assert_array_equal(f(x, w).numpy(), A @ B)
    assert kinds(f, x, w) == wanted
    assert "sharding" not in f.compiled(x, w).spmd
    if plans == "rank by rank":
        assert 'of = "product' in f.compiled(x, w).rank_plan


def test_random_placements_give_the_product():
    """Uneven ones too: what a kernel cannot take in blocks is whole."""
    random = np.random.default_rng(20261119)
    axes = [None, "dp", "tp", ("dp", "tp")]
    rows = [(p, q) for p, q in itertools.product(axes, axes) if len({*np.atleast_1d(p or ())} & {*np.atleast_1d(q or ())}) == 0]
    for _ in range(6):
        m, k, n = (int(random.choice([3, 4, 6, 12, 5])) for _ in range(3))
        x = random.integers(-4, 5, (m, k)).astype(np.float32)
        w = random.integers(-4, 5, (k, n)).astype(np.float32)
        mesh = dist.mesh(6, *MESH)
        specs = [dist.spec(*rows[random.integers(len(rows))]) for _ in range(2)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ts.TesseraWarning)
            placed = [dist.shard(v, s, mesh) for v, s in zip((x, w), specs, strict=True)]
        f = ts.jit(lambda a, b: product(a, b) + 1.0)
        np.testing.assert_array_equal(f(*placed).numpy(), x @ w + 1.0, err_msg=f"{(m, k, n)} {specs}")


def test_what_an_array_held_is_added_once():
    mesh = dist.mesh(3, ("tp",), (3,))
    x = dist.shard(A, dist.spec(None, "tp"), mesh)
    start = np.arange(6, dtype=np.float32)


    f = ts.jit(lambda x, y: added(x, y + 0.0))
    np.testing.assert_array_equal(f(x, dist.replicate(start, mesh)).numpy(), start + A.sum(1))
    assert kinds(f, x, dist.replicate(start, mesh)) == ["all_reduce"]


def test_contributions_of_narrow_results_are_added_in_f32():
    @ts.kernel(parallel="M", contract="K")
    def sums(a: ts.Tensor["M", "K", ts.f32], y: ts.Out["M", ts.bf16]):
        i = ts.tile.grid(M)
        y[i] = ts.tile.sum(a[i, :])

    mesh = dist.mesh(3, ("tp",), (3,))
    # Each contribution is a number of bf16; added in bf16, 256 + 1 + 1 would be 256.
    x = dist.shard(np.array([[256.0, 1.0, 1.0]], np.float32), dist.spec(None, "tp"), mesh)
    f = ts.jit(lambda x: sums(x))
    assert f(x).numpy().astype(np.float32).tolist() == [258.0] and kinds(f, x) == ["all_reduce"]
    with ts.numerics.profile("strict"):
        g = ts.jit(lambda x: sums(x))
        assert g(x).numpy().astype(np.float32).tolist() == [258.0] and kinds(g, x) == ["all_gather"]


def test_narrow_results_and_kernels_for_whole_arrays():
    mesh = dist.mesh(2, ("dp",), (2,))
    x = dist.shard(A.astype(ml_dtypes.bfloat16), dist.spec("dp"), mesh)
    f = ts.jit(lambda x: halves(x))
    np.testing.assert_array_equal(f(x).numpy().astype(np.float32), A * 0.5)
    assert not f.compiled(x).collectives
    y = dist.shard(A, dist.spec("dp"), mesh)
    g = ts.jit(lambda y: whole(y))
    np.testing.assert_array_equal(g(y).numpy(), A * 3.0)
    assert kinds(g, y) == ["all_gather"] and "N_WHOLE_KERNEL: `whole`" in g.compiled(y).explain()


def test_blocks_that_are_not_equal_are_gathered_and_noted():
    mesh = dist.mesh(4, ("dp",), (4,))
    f = ts.jit(lambda a, b: product(a, b))
    x = dist.shard(A, dist.spec("dp"), mesh)
    np.testing.assert_array_equal(f(x, B).numpy(), A @ B)
    (note,) = [line for line in f.compiled(x, B).explain().splitlines() if "N_WHOLE_KERNEL" in line]
    assert kinds(f, x, B) == ["all_gather"] and "`product` runs on whole arrays" in note and "equal blocks" in note
    y = dist.shard(A[:4], dist.spec("dp"), mesh)
    assert not kinds(f, y, B) and "N_WHOLE_KERNEL" not in f.compiled(y, B).explain()


def test_a_call_outside_a_function_says_where_to_write_it():
    x = dist.shard(A, dist.spec("dp"), dist.mesh(2, ("dp",), (2,)))
    with pytest.raises(ts.TesseraError, match="E_ARGUMENT") as error:
        whole(x)
    assert "ts.jit" in str(error.value) and "ts.index_launch" in str(error.value)


def test_gradients_run_on_whole_arrays():
    mesh = dist.mesh(2, ("dp",), (2,))
    x, w = dist.shard(A, dist.spec("dp"), mesh), dist.replicate(B, mesh)
    got = ts.jit(ts.grad(lambda x, w: xp.sum(product(x, w) * product(x, w)), argnums=(0, 1)))(x, w)
    np.testing.assert_allclose(got[0].numpy(), 2 * (A @ B) @ B.T)
    np.testing.assert_allclose(got[1].numpy(), 2 * A.T @ (A @ B))


def test_names_are_checked():
    def kernel(**given):
        @ts.kernel(**given)
        def k(a: ts.Tensor["M", "K", ts.f32], y: ts.Out["M", ts.f32]):
            i = ts.tile.grid(M)
            y[i] = ts.tile.sum(a[i, :])

        return k

    for given in ({"parallel": "Q"}, {"contract": 3}, {"parallel": "M", "contract": ("M",)}):
        with pytest.raises(ts.TesseraError, match="E_ARGUMENT"):
            kernel(**given)
    mesh = dist.mesh(2, ("dp",), (2,))
    with pytest.raises(ts.TesseraError, match="contract.*no result has"):
        ts.jit(lambda x: kernel(contract="M")(x))(dist.shard(A, dist.spec("dp"), mesh))
