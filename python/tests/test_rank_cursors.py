"""Programs whose ranks diverge run rank by rank, on the transport inside the process: the same results as the interpreter's."""

import os

import numpy as np
import pytest

import tessera as ts
from tessera import collective, dist, xp
from tessera.arrays.create import numpy_dtype

SEED = int(os.environ.get("TESSERA_FUZZ_SEED", "3"))


def is_rank_by_rank(f, *args):
    return ".ranks_" in f.compiled(*args).plan


def same(f, *args):
    """The compiled function against the interpreter, which runs each rank by itself; bit for bit under `strict`."""
    f = ts.jit(f)
    assert is_rank_by_rank(f, *args), f.compiled(*args).plan
    got = f(*args)
    with ts.runtime.oracle():
        wanted = f(*args)
    for a, b in zip(ts.tree.leaves(got), ts.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    with ts.numerics.profile("strict"):
        exact = f(*args)
        with ts.runtime.oracle():
            wanted = f(*args)
    for a, b in zip(ts.tree.leaves(exact), ts.tree.leaves(wanted), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes()
    return got


def test_branches_that_differ_between_ranks():
    mesh = dist.mesh(6, ("dp", "tp"), (3, 2))
    every = dist.spec(("dp", "tp"))

    def rank(x):
        y = ts.cond(dist.axis_index(("dp", "tp")) % 2 == 0, lambda b: xp.sin(b) * 2, lambda b: b - 1, x)
        return collective.all_reduce(y, "tp"), y

    x = np.random.default_rng(SEED).standard_normal((12, 5)).astype("f4")
    sums, own = same(dist.shard_map(rank, mesh, every, (dist.spec("dp"), every)), x)
    blocks = x.reshape(6, 2, 5)
    want = np.stack([np.sin(b) * 2 if r % 2 == 0 else b - 1 for r, b in enumerate(blocks)])
    np.testing.assert_allclose(own, want.reshape(12, 5), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(sums, want.reshape(3, 2, 2, 5).sum(1).reshape(6, 5), rtol=1e-5, atol=1e-6)


def test_trip_counts_that_differ_between_ranks():
    mesh = dist.mesh(5, ("tp",), (5,))

    def rank(x):
        n = dist.axis_index("tp") * 3
        _, y = ts.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.5 + 1), (n * 0, x))
        return collective.all_gather(y, "tp")

    x = np.arange(10.0)
    got = same(dist.shard_map(rank, mesh, dist.spec("tp"), None), x)
    want = x.copy()
    for r in range(5):
        for _ in range(3 * r):
            want[2 * r : 2 * r + 2] = want[2 * r : 2 * r + 2] * 0.5 + 1
    np.testing.assert_allclose(got, want, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["bool", "i1", "i4", "i8", "u1", "u4", "f2", "f4", "f8", "bf16"])
def test_every_collective_and_dtype(dtype):
    mesh = dist.mesh(4, ("dp", "tp"), (2, 2))
    both = ("dp", "tp")
    rng = np.random.default_rng([SEED, len(dtype)])
    x = rng.integers(0, 2 if dtype == "bool" else 5, (8, 12)).astype(numpy_dtype(ts.bf16) if dtype == "bf16" else dtype)

    def rank(x):
        x = ts.cond(dist.axis_index("tp") == 1, lambda b: xp.flip(b, 0), lambda b: b, x)
        out = [collective.all_reduce(x, a, op) for a in ("dp", both) for op in ("sum", "max", "min", "prod")]
        out += [collective.all_gather(x, ("tp", "dp"), 1), collective.all_to_all(x, both, 1, 0), collective.all_to_all(x, "tp", 1, 1),
                collective.reduce_scatter(x, "tp", "sum", 1), collective.broadcast(x, both, 2), collective.permute(x, "tp", [(0, 1)]),
                collective.all_gather(collective.all_reduce(x, both)[:1], "dp")]  # fmt: skip
        return [collective.all_gather(v, both) for v in out]

    same(dist.shard_map(rank, mesh, dist.spec(both), None), x)


def test_gradients_of_programs_that_diverge():
    mesh = dist.mesh(3, ("tp",), (3,))

    def rank(x, w):
        y = ts.cond(xp.sum(x) > 0, lambda: xp.tanh(x @ w), lambda: (x @ w) ** 2)
        return collective.all_reduce(xp.sum(y), "tp")

    f = dist.shard_map(rank, mesh, (dist.spec("tp"), None), None)
    rng = np.random.default_rng(SEED)
    x, w = rng.standard_normal((6, 4)), rng.standard_normal((4, 3))
    gx, gw = same(ts.grad(lambda x, w: f(x, w), argnums=(0, 1)), x, w)
    for a, g in ((x, gx), (w, gw)):
        for _ in range(6):
            at, h = tuple(rng.integers(0, n) for n in a.shape), 1e-6
            up, down = a.copy(), a.copy()
            up[at] += h
            down[at] -= h
            values = [float(f(*(v if a is x else x, v if a is w else w))) for v in (up, down)]
            np.testing.assert_allclose(g[at], (values[0] - values[1]) / (2 * h), rtol=1e-4, atol=1e-6)


def test_ranks_that_do_the_same_stay_one_function():
    mesh = dist.mesh(4, ("tp",), (4,))
    f = ts.jit(dist.shard_map(lambda b: collective.all_reduce(ts.cond(b.shape[0] > 0, xp.sin, xp.cos, b), "tp"), mesh, dist.spec("tp"), None))
    assert ".ranks_" not in f.compiled(np.arange(8.0)).plan


def test_collectives_in_loops_of_programs_that_diverge():
    """Ranks run one by one, and synchronise in each iteration, as the interpreter has them do."""
    mesh = dist.mesh(4, ("tp",), (4,))

    def rank(b):
        b = ts.cond(dist.axis_index("tp") == 0, xp.sin, xp.cos, b)
        return ts.fori_loop(0, 3, lambda i, c: c + collective.all_reduce(c, "tp"), b)

    g = ts.jit(dist.shard_map(rank, mesh, dist.spec("tp"), dist.spec("tp")))
    assert ".ranks_" in g.compiled(np.arange(8.0)).plan
    got = g(np.arange(8.0))
    with ts.runtime.oracle():
        np.testing.assert_allclose(got, g(np.arange(8.0)), rtol=1e-12)


def in_loops(b):
    b = ts.cond(dist.axis_index("tp") == 1, xp.sin, lambda v: v * 2, b)
    return ts.fori_loop(0, 4, lambda i, c: c * 0.5 + collective.all_reduce(c, "tp") / 3, b)


def in_branches(b):
    b = ts.while_loop(lambda c: xp.sum(c) < 5 + dist.axis_index("tp"), lambda c: c + 0.7, b)
    total = collective.all_reduce(xp.sum(b), "tp")
    there = [(0, 1), (1, 2), (2, 0)]
    return ts.cond(total > 17.5, lambda v: v + collective.all_reduce(v, "tp"), lambda v: collective.permute(v, "tp", there), b)


def behind_branches(b):
    def body(carried):
        i, v = carried
        v = ts.cond(dist.axis_index("tp") > i, lambda w: w * 1.5, lambda w: w - 1, v)
        return i + 1, v + collective.all_reduce(v, "tp", "max")

    return ts.while_loop(lambda c: c[0] < 3, body, (xp.asarray(0), b))[1]


def in_nested_loops(b):
    def inner(i, c):
        return c + collective.all_reduce(ts.cond(dist.axis_index("tp") == i, lambda v: v * 3, lambda v: v, c), "tp") / 7

    return ts.fori_loop(0, 2, lambda i, c: ts.fori_loop(0, 3, inner, c), b)


def several_kinds(b):
    def body(i, c):
        c = collective.reduce_scatter(collective.all_gather(c, "tp"), "tp") / 3
        return ts.cond(dist.axis_index("tp") == 0, lambda v: v + 1, lambda v: v * v, c)

    return collective.all_gather(ts.fori_loop(0, 2, body, b), "tp")[: b.shape[0]] * 1.0


@pytest.mark.parametrize("rank", [in_loops, in_branches, behind_branches, in_nested_loops, several_kinds])
def test_collectives_in_loops_and_branches(rank):
    """Eager, jitted and interpreted are one; gradients of what has a reverse mode are those of finite differences."""
    mesh, split = dist.mesh(3, ("tp",), (3,)), dist.spec("tp")
    f = dist.shard_map(rank, mesh, split, split)
    rng = np.random.default_rng(25)
    for _ in range(3):
        x = rng.standard_normal(6)
        assert ".ranks_" in ts.jit(f).compiled(x).plan
        with ts.runtime.oracle():
            wanted = np.asarray(ts.jit(f)(x))
        np.testing.assert_allclose(np.asarray(f(x)), wanted, rtol=1e-12)
        np.testing.assert_allclose(np.asarray(ts.jit(f)(x)), wanted, rtol=1e-12)
    if rank in (in_branches, behind_branches):
        return
    found, step = np.asarray(ts.grad(lambda v: xp.sum(xp.sin(f(v))))(x)), 1e-5
    for at, e in enumerate(np.eye(6) * step):
        slope = (np.sin(np.asarray(f(x + e))).sum() - np.sin(np.asarray(f(x - e))).sum()) / (2 * step)
        assert abs(found[at] - slope) < 1e-5 * max(1, abs(slope))


def test_a_refused_call_leaves_the_next_one_as_it_is():
    mesh = dist.mesh(3, ("tp",), (3,))

    @ts.jit
    def f(x):
        return dist.shard_map(lambda b: ts.cond(dist.axis_index("tp") == 1, xp.sin, xp.cos, b), mesh, dist.spec("tp"), dist.spec("tp"))(x)

    for _ in range(3):
        assert f(np.arange(3.0)).tolist() == [1.0, np.sin(1.0), np.cos(2.0)]
    with pytest.raises(ts.PlacementError, match="E_UNEVEN"):
        f(np.arange(4.0))
    assert f(np.arange(6.0)).shape == (6,)


def test_a_program_in_a_loop_runs_again_and_again():
    mesh = dist.mesh(4, ("tp",), (4,))

    def rank(b):
        b = ts.cond(xp.sum(b) > 1, lambda: b * 0.5, lambda: b + 1)
        return b + collective.permute(b, "tp", [(0, 1), (1, 2), (2, 3), (3, 0)])

    step = dist.shard_map(rank, mesh, dist.spec("tp"), dist.spec("tp"))
    same(lambda x: ts.fori_loop(0, 5, lambda i, c: step(c), x), np.random.default_rng(SEED).standard_normal(8))


def test_random_programs():
    for seed in range(SEED, SEED + 12):
        rng = np.random.default_rng(seed)
        shape = tuple(int(n) for n in rng.integers(1, 4, 2))
        mesh, both = dist.mesh(int(np.prod(shape)), ("dp", "tp"), shape), ("dp", "tp")
        n = int(np.prod(shape))
        steps = [(int(rng.integers(7)), [("dp",), ("tp",), both, ("tp", "dp")][int(rng.integers(4))]) for _ in range(5)]

        def rank(x, y, steps=steps, n=n):
            for how, axis in steps:
                m = dist.axis_size(axis)
                at = dist.axis_index(both)
                if how == 0:
                    x = ts.cond((at + xp.sum(x) > 0), xp.sin, xp.cos, x)
                elif how == 1:
                    _, x = ts.while_loop(lambda c: c[0] < at, lambda c: (c[0] + 1, xp.tanh(c[1]) + y), (at * 0, x))
                elif how == 2:
                    x = x - 0.25 * collective.all_reduce(x, axis, "max")
                elif how == 3:
                    x = xp.tanh(collective.reduce_scatter(collective.all_gather(x, axis, 1), axis, "sum", 1))
                elif how == 4:
                    x = collective.all_to_all(collective.all_to_all(x, axis, 0, 1) * 0.5, axis, 1, 0)
                elif how == 5:
                    x = x + collective.permute(x, axis, [(k, (k + 1) % m) for k in range(m) if k % 3 != 1])
                else:
                    x = x * collective.broadcast(y, axis, m - 1) + at
            return ts.cond(at == 0, lambda: x, lambda: x * 2), collective.all_reduce(xp.sum(x), both)

        x, y = rng.standard_normal((n * n, 4)), rng.standard_normal((n, 4))
        f = dist.shard_map(rank, mesh, (dist.spec(both), None), (dist.spec(both), None))
        if n > 1:
            same(f, x, y)
