"""Programs of ranks in one process: arrays on meshes go in and out by their blocks, and what ranks have alike is computed once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tessera as ts
from tessera import dist, xp
from tessera.dist import _array


@pytest.fixture(autouse=True)
def rank_by_rank(monkeypatch):
    monkeypatch.setenv("TESSERA_OFF", "rank_rows")


def step(w, moment, x):
    value, grad = ts.value_and_grad(lambda w: xp.mean(xp.tanh(x @ w) ** 2))(w)
    moment = 0.9 * moment + grad * grad
    return value, w - 0.1 * grad / (xp.sqrt(moment) + 1e-3), moment


def operands():
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in [(12, 24), (12, 24), (16, 12)]]


SPECS = {
    "copies": (dist.spec(), dist.spec("dp")),
    "columns": (dist.spec(None, "tp"), dist.spec("dp")),
    "rows": (dist.spec("tp", None), dist.spec("dp", "tp")),
    "both": (dist.spec("dp", "tp"), dist.spec("dp")),
    "one dim over both": (dist.spec(None, ("dp", "tp")), dist.spec("dp")),
}


def placed(mesh, name):
    weights, data = SPECS[name]
    w, moment, x = operands()
    return dist.shard(w, weights, mesh), dist.shard(np.abs(moment), weights, mesh), dist.shard(x, data, mesh)


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (2, 3)])
def test_arrays_on_meshes_go_in_and_out_by_their_blocks(shape, name, monkeypatch):
    mesh = dist.mesh(int(np.prod(shape)), ("dp", "tp"), shape)
    given = placed(mesh, name)
    run = ts.jit(step)
    first = run(*given)
    with monkeypatch.context() as patch:
        # Nothing is gathered and nothing is cut.
        for function in ("_gathered", "shard", "_made"):
            patch.setattr(_array, function, lambda *_: pytest.fail("a whole array was made"))
        again = run(given[0], first[2], given[2])
    w, moment, x = operands()
    expected = ts.jit(step)(w, np.asarray(first[2]), x)
    for got, want, before in zip(again[1:], expected[1:], given[:2], strict=True):
        assert got.placements == before.placements
        np.testing.assert_allclose(got.numpy(), want, rtol=2e-5, atol=2e-6)
        held = {id(got._blocks[got._block_of[rank]]) for rank in range(mesh.size)}
        # Ranks that have copies share them.
        assert len(held) == len({str(got.index(rank)) for rank in range(mesh.size)})


@pytest.mark.filterwarnings("ignore:W_UNEVEN")
def test_other_placements_are_gathered():
    """Blocks in cycles, uneven ones and contributions are none of a program's."""
    mesh = dist.mesh(4, ("dp", "tp"), (2, 2))
    w, moment, x = operands()
    specs = [dist.spec(dist.Cyclic(("dp",))), dist.spec(sum=("dp",)), dist.spec(None, ("dp",))]
    for spec in specs:
        got = ts.jit(step)(dist.shard(w, spec, mesh), dist.replicate(np.abs(moment), mesh), dist.shard(x, dist.spec("tp"), mesh))
        for one, want in zip(got, ts.jit(step)(w, np.abs(moment), x), strict=True):
            np.testing.assert_allclose(np.asarray(one), want, rtol=2e-5, atol=2e-6)
    odd = np.arange(35, dtype=np.float32).reshape(7, 5)
    got = ts.jit(lambda a: xp.sum(a, 1) * 2)(dist.shard(odd, dist.spec("dp", "tp"), mesh))
    np.testing.assert_array_equal(np.asarray(got), odd.sum(1) * 2)


def launches(monkeypatch, off):
    monkeypatch.setenv("TESSERA_OFF", off)
    mesh = dist.mesh(4, ("dp", "tp"), (4, 1))
    run, given = ts.jit(step), placed(mesh, "copies")
    run(*given)
    with ts.profile() as profile:
        run(*given)
    events = profile.trace()["traceEvents"]
    return Counter(e["cat"] for e in events if "cat" in e), [np.asarray(v) for v in run(*given)]


def test_what_ranks_have_alike_is_computed_once(monkeypatch):
    """The update of weights that are in copies, behind the sum of gradients."""
    alone, one = launches(monkeypatch, "rank_rows,rank_share")
    shared, other = launches(monkeypatch, "rank_rows")
    assert alone["group"] % 4 == 0 and shared["collective"] == alone["collective"]
    # Four ranks update the weights, or one of them.
    assert shared["group"] <= alone["group"] - 3
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)
