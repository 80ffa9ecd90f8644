"""Collectives and `dist.shard_map`: against NumPy, and derivatives against functions without a mesh."""

import json
import os
import subprocess
import sys

import jax_collectives
import numpy
import pytest

import tessera as ts
from tessera import collective, dist, xp

SEED = int(os.environ.get("TESSERA_FUZZ_SEED", "20776"))


def line(n, name="tp"):
    return dist.mesh(n, (name,), (n,))


def draw(rng, shape, dtype):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if numpy.dtype(dtype).kind in "iu":
        return rng.integers(0 if dtype.startswith("u") else -9, 10, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def canonical(op, values):
    """The canonical reduction over the ranks (docs/language.md, section 14): 64 lanes, then a tree."""

    def join(a, b):
        a, b = numpy.asarray(a), numpy.asarray(b)
        if op in ("sum", "prod"):
            bools, numbers = (numpy.logical_or, numpy.add) if op == "sum" else (numpy.logical_and, numpy.multiply)
            return (bools(a, b) if a.dtype == bool else numbers(a, b)).astype(a.dtype)
        # Of 0.0 and -0.0 the first is the larger one.
        first = numpy.signbit(b) if a.dtype.kind == "f" and op == "max" else numpy.signbit(a) if a.dtype.kind == "f" else False
        chosen = numpy.maximum(a, b) if op == "max" else numpy.minimum(a, b)
        return numpy.where(a == b, numpy.where(first, a, b), chosen).astype(a.dtype)

    lanes = []
    for at, value in enumerate(values):
        if at < 64:
            lanes.append(value)
        else:
            lanes[at % 64] = join(lanes[at % 64], value)
    for half in (32, 16, 8, 4, 2, 1):
        for at in range(half):
            if at + half < len(lanes):
                lanes[at] = join(lanes[at], lanes[at + half])
        lanes = lanes[:half] if len(lanes) > half else lanes
    return numpy.asarray(lanes[0])


DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def wide(dtype):
    return numpy.float32 if dtype == "float16" else numpy.dtype(dtype)


def reduced(op, values):
    """Under `strict` the canonical order, from the accumulation dtype stored once."""
    dtype = values[0].dtype
    return canonical(op, [v.astype(wide(dtype.name)) for v in values]).astype(dtype)


@pytest.mark.parametrize("n", range(1, 10))
def test_reductions_of_ranks(n):
    mesh = line(n)
    rng = numpy.random.default_rng([SEED, n])
    for dtype in DTYPES:
        for op in ("sum", "max", "min", "prod"):
            x = draw(rng, (n, 3), dtype)
            f = dist.shard_map(lambda b: collective.all_reduce(b, "tp", op), mesh, dist.spec("tp"), None)  # noqa: B023
            wanted = reduced(op, list(x))[None]
            with ts.numerics.profile("strict"):
                got = f(x).numpy()
            assert got.dtype == x.dtype
            assert got.tobytes() == wanted.tobytes(), (dtype, op)
            if x.dtype.kind == "f":
                bound = {"float16": 1e-3, "float32": 1e-6, "float64": 1e-15}[dtype] * n
                numpy.testing.assert_allclose(f(x).numpy(), wanted, rtol=bound, atol=bound)
            else:
                assert (f(x).numpy() == wanted).all()


@pytest.mark.parametrize("n", range(1, 10))
def test_moves_of_ranks(n):
    mesh = line(n)
    rng = numpy.random.default_rng([SEED, n, 1])
    for dtype in DTYPES:
        x = draw(rng, (2 * n, n), dtype)
        blocks = numpy.split(x, n)
        split, copies = dist.spec("tp"), None

        def run(f, out, x=x):
            return dist.shard_map(f, mesh, split, out)(x).numpy()

        assert (run(lambda b: collective.all_gather(b, "tp"), copies) == x).all()
        assert (run(lambda b: collective.all_gather(b, "tp", dim=1), copies) == numpy.concatenate(blocks, 1)).all()
        turned = [numpy.concatenate([b[:, r : r + 1] for b in blocks]) for r in range(n)]
        assert (run(lambda b: collective.all_to_all(b, "tp", 1), dist.spec(None, "tp")) == numpy.concatenate(turned, 1)).all()
        assert (run(lambda b: collective.broadcast(b, "tp", n - 1), copies) == blocks[n - 1]).all()
        pairs = [(s, (s + 1) % n) for s in range(n) if s % 3 != 1]
        sent = [numpy.zeros_like(blocks[0]) for _ in range(n)]
        for s, t in pairs:
            sent[t] = blocks[s]
        assert (run(lambda b: collective.permute(b, "tp", pairs), split) == numpy.concatenate(sent)).all()  # noqa: B023
        with ts.numerics.profile("strict"):
            for op in ("sum", "max", "min", "prod"):
                scattered = run(lambda b: collective.reduce_scatter(b, "tp", op, dim=1), dist.spec(None, "tp"))  # noqa: B023
                assert scattered.tobytes() == reduced(op, blocks).tobytes(), (dtype, op)


@pytest.mark.parametrize("dtype", ["bf16", "fp8_e4m3", "fp8_e5m2"])
def test_narrow_floats_are_combined_wide(dtype):
    mesh = line(5)
    x = ts.array(numpy.linspace(0.1, 3, 10, dtype="f").reshape(5, 2), dtype)
    f = dist.shard_map(lambda b: collective.all_reduce(b, "tp"), mesh, dist.spec("tp"), None)
    with ts.numerics.profile("strict"):
        got = f(x)
    rows = [numpy.asarray(x)[i].astype("f") for i in range(5)]
    wanted = ts.array(canonical("sum", rows)[None], dtype)
    assert got.numpy().tobytes() == numpy.asarray(wanted).tobytes()
    moved = dist.shard_map(lambda b: collective.all_gather(b, "tp"), mesh, dist.spec("tp"), None)(x)
    assert moved.numpy().tobytes() == numpy.asarray(x).tobytes()


def test_a_mean_is_stored_once():
    mesh = line(3)
    x = numpy.array([[60000.0], [60000.0], [3.0]], "float16")
    got = numpy.asarray(dist.shard_map(lambda b: collective.all_reduce(b, "tp", "mean"), mesh, dist.spec("tp"), None)(x))
    assert got == numpy.float16(numpy.float32(120003.0) / 3)
    n = numpy.arange(3, dtype="int32").reshape(3, 1)
    assert numpy.asarray(dist.shard_map(lambda b: collective.all_reduce(b, "tp", "mean"), mesh, dist.spec("tp"), None)(n)) == 1


@pytest.mark.parametrize("n", [2, 33, 64, 65, 130])
def test_contributions_are_combined_in_the_canonical_order(n):
    """More than 64 wrap around the lanes. Arrays are combined as programs under `strict` do it."""
    rng = numpy.random.default_rng([SEED, n, 2])
    mesh, S, P = line(n), dist.spec("tp"), dist.spec(sum=("tp",))
    for shape in [(1,), (3, 5), (7000,)]:
        rows = rng.standard_normal((n, *shape)).astype("f")
        wanted = canonical("sum", list(rows))
        assert collective.all_reduce(dist.from_local(list(rows), P, mesh), "tp").numpy().tobytes() == wanted.tobytes()
        with ts.numerics.profile("strict"):
            got = dist.shard_map(lambda b: collective.all_reduce(b[0], "tp"), mesh, S, None)(rows)
        assert got.numpy().tobytes() == wanted.tobytes()


def test_several_axes_are_row_major():
    mesh = dist.mesh(12, ("dp", "tp", "pp"), (2, 3, 2))
    x = numpy.arange(12.0)
    every = dist.spec(("dp", "tp", "pp"))
    place = dist.shard_map(lambda b: b * 0 + dist.axis_index(("pp", "dp")), mesh, every, every)(x)
    coords = [mesh.coords(r) for r in range(12)]
    assert numpy.asarray(place).tolist() == [c[2] * 2 + c[0] for c in coords]
    sums = dist.shard_map(lambda b: collective.all_reduce(b, ("pp", "dp")), mesh, every, dist.spec("tp"))(x)
    assert numpy.asarray(sums).tolist() == [sum(float(r) for r in range(12) if coords[r][1] == t) for t in range(3)]
    gathered = dist.shard_map(lambda b: collective.all_gather(b, ("pp", "dp")), mesh, every, dist.spec("tp"))(x)
    wanted = [float(mesh.rank((d, t, p))) for t in range(3) for p in range(2) for d in range(2)]
    assert numpy.asarray(gathered).tolist() == wanted
    assert dist.shard_map(lambda b: b * dist.axis_size(("dp", "pp")), mesh, every, every)(x).numpy()[1] == 4


def test_padding():
    mesh = line(4)
    x = numpy.arange(10.0, dtype="float32")
    got = dist.shard_map(lambda b: b * 2 + 1, mesh, dist.spec("tp"), dist.spec("tp"), pad=True)(x)
    assert got.shape == (10,) and (got.numpy() == x * 2 + 1).all()
    whole = dist.shard_map(lambda b: collective.all_gather(b, "tp"), mesh, dist.spec("tp"), None, pad=True)(x)
    assert whole.numpy().tolist() == [*range(10), 0, 0]


def test_contributions():
    mesh = line(3)
    x = numpy.arange(6.0, dtype="float32")
    P = dist.spec(sum=("tp",))
    assert (dist.shard_map(lambda b: b * 1, mesh, P, P)(x).numpy() == x).all()
    parts = dist.from_local([x, x * 2, x * 3], P, mesh)
    assert parts.placements == ("P(sum)",)
    assert (dist.shard_map(lambda b: b * 2, mesh, P, None if False else P)(parts).numpy() == x * 12).all()
    biggest = dist.shard_map(lambda b: b + dist.axis_index("tp"), mesh, None, dist.spec(max=("tp",)))(x)
    assert (biggest.numpy() == x + 2).all()


def test_results_are_placed_and_jitted_is_the_same():
    mesh = dist.mesh(6, ("dp", "tp"), (3, 2))
    rng = numpy.random.default_rng(SEED)
    X, W = rng.standard_normal((6, 4)).astype("f"), rng.standard_normal((4, 8)).astype("f")

    def layer(x, w):
        return xp.tanh(x @ w)

    f = dist.shard_map(layer, mesh, (dist.spec("dp"), dist.spec(None, "tp")), dist.spec("dp", "tp"))
    eager = f(dist.shard(X, dist.spec("dp"), mesh), W)
    assert isinstance(eager, dist.DistArray) and eager.placements == ("S(0)", "S(1)") and eager.mesh == mesh
    jitted = ts.jit(lambda x, w: f(x, w))(X, W)
    numpy.testing.assert_array_equal(eager.numpy(), numpy.asarray(jitted))
    numpy.testing.assert_allclose(eager.numpy(), numpy.tanh(X @ W), rtol=1e-5, atol=1e-6)


def test_a_jitted_function_is_traced_for_the_mesh_around_it():
    split = dist.spec("tp")

    @ts.jit
    def sums(x):
        return dist.shard_map(lambda b: collective.all_reduce(xp.sum(b), "tp") * 0 + dist.axis_size("tp"), in_specs=split)(x)

    x = numpy.zeros(6)
    for n in (2, 3, 2, 6):
        with line(n):
            assert sums(x) == n and sums(x) == n
    assert sums(x) == 1 and sums(x) == 1
    with line(3):
        assert sums(x) == 3
    assert "the mesh of the `with` statement" in sums.explain()


def mlp(W1, W2, x):
    return xp.tanh(x @ W1) @ W2


def test_gradients_of_tensor_and_data_parallel_code():
    mesh = dist.mesh(6, ("dp", "tp"), (3, 2))
    rng = numpy.random.default_rng([SEED, 4])
    W1, W2, x = (rng.standard_normal(s) for s in ((4, 6), (6, 5), (9, 4)))

    def plain(W1, W2, x):
        return xp.mean(mlp(W1, W2, x) ** 2)

    def rank(W1, W2, x):
        y = collective.all_reduce(mlp(W1, W2, x), "tp")
        return collective.all_reduce(xp.mean(y**2), "dp", "mean")

    sharded = dist.shard_map(rank, mesh, (dist.spec(None, "tp"), dist.spec("tp"), dist.spec("dp")), None)
    wanted = ts.value_and_grad(plain, argnums=(0, 1, 2))(W1, W2, x)
    got = ts.value_and_grad(lambda *a: sharded(*a), argnums=(0, 1, 2))(W1, W2, x)
    numpy.testing.assert_allclose(numpy.asarray(got[0]), numpy.asarray(wanted[0]), rtol=1e-12)
    for a, b in zip(got[1], wanted[1], strict=True):
        numpy.testing.assert_allclose(numpy.asarray(a), numpy.asarray(b), rtol=1e-10, atol=1e-13)
    direction = tuple(rng.standard_normal(v.shape) for v in (W1, W2, x))
    one, two = (ts.jvp(f, (W1, W2, x), direction)[1] for f in (plain, lambda *a: sharded(*a)))
    numpy.testing.assert_allclose(numpy.asarray(two), numpy.asarray(one), rtol=1e-10)
    hess = [ts.grad(lambda w, f=f: xp.sum(ts.grad(f)(w, W2, x) ** 2))(W1) for f in (plain, lambda *a: sharded(*a))]
    numpy.testing.assert_allclose(numpy.asarray(hess[1]), numpy.asarray(hess[0]), rtol=1e-9, atol=1e-12)
    many = numpy.stack([x, x * 2])
    a, b = (ts.vmap(f, in_axes=(None, None, 0))(W1, W2, many) for f in (plain, lambda *a: sharded(*a)))
    numpy.testing.assert_allclose(numpy.asarray(b), numpy.asarray(a), rtol=1e-12)


def model_at_random(rng):
    """A random model twice: of one rank, and without a mesh. Each layer is cut in another way."""
    sizes = tuple(int(v) for v in rng.integers(1, 4, 2))
    mesh = dist.mesh(sizes[0] * sizes[1], ("dp", "tp"), sizes)
    (dp, tp), every = sizes, mesh.size
    batch, width = dp * int(rng.integers(1, 3)), every * int(rng.integers(1, 3))
    whole, weights, specs = [], [], []
    cuts = [str(c) for c in rng.choice(["columns", "gathered", "scattered", "turned", "ring", "loop"], int(rng.integers(1, 5)))]
    for cut in cuts:
        weights.append(tuple(rng.standard_normal((width, width)) / width**0.5 for _ in range(2)))
        specs.append((dist.spec(("dp", "tp")),) * 2 if cut == "gathered" else (dist.spec(None, "tp"), dist.spec("tp")))
        whole.append(lambda h, a, b, cut=cut: xp.sin(xp.tanh(h @ a) @ b) if cut != "loop" else ts.fori_loop(0, 2, lambda i, c: xp.tanh(c @ a) @ b, h))

    def rank(weights, x):
        h = x
        for cut, (a, b) in zip(cuts, weights, strict=True):
            if cut == "gathered":
                h = xp.tanh(h @ collective.all_gather(a, ("dp", "tp"))) @ collective.all_gather(b, ("dp", "tp"))
            elif cut == "loop":
                h = ts.fori_loop(0, 2, lambda i, c, a=a, b=b: collective.all_reduce(xp.tanh(c @ a) @ b, "tp"), h)
                continue
            else:
                part = xp.tanh(h @ a) @ b
                if cut == "scattered":
                    h = collective.all_gather(collective.reduce_scatter(part, "tp", dim=1), "tp", dim=1)
                elif cut == "ring":
                    h, sent = part, part
                    for _ in range(tp - 1):
                        sent = collective.permute(sent, "tp", [(r, (r + 1) % tp) for r in range(tp)])
                        h = h + sent
                    # All ranks have the sum now, in different orders.
                    h = collective.broadcast(h, "tp")
                else:
                    h = collective.all_reduce(part, "tp")
            if cut == "turned":
                h = collective.all_to_all(xp.sin(collective.all_to_all(h, "dp", 1)), "dp", 0, 1)
            else:
                h = xp.sin(h)
        return collective.all_reduce(xp.mean(h**2), "dp", "mean")

    def plain(weights, x):
        h = x
        for layer, (a, b) in zip(whole, weights, strict=True):
            h = layer(h, a, b)
        return xp.mean(h**2)

    sharded = dist.shard_map(rank, mesh, (specs, dist.spec("dp")), None)
    return plain, sharded, weights, rng.standard_normal((batch, width)), (sizes, cuts)


@pytest.mark.parametrize("seed", range(12))
def test_random_models_are_those_without_a_mesh(seed):
    print("seed", SEED, seed)
    plain, sharded, weights, x, what = model_at_random(numpy.random.default_rng([SEED, seed, 11]))
    wanted = ts.value_and_grad(plain, argnums=(0, 1))(weights, x)
    got = ts.value_and_grad(lambda w, v: sharded(w, v), argnums=(0, 1))(weights, x)
    numpy.testing.assert_allclose(numpy.asarray(got[0]), numpy.asarray(wanted[0]), rtol=1e-11, err_msg=str(what))
    for a, b in zip(ts.tree.leaves(got[1]), ts.tree.leaves(wanted[1]), strict=True):
        numpy.testing.assert_allclose(numpy.asarray(a), numpy.asarray(b), rtol=1e-9, atol=1e-12, err_msg=str(what))
    numpy.testing.assert_allclose(sharded(weights, x).numpy(), numpy.asarray(wanted[0]), rtol=1e-11)


def test_fully_sharded_and_sequence_parallel_gradients():
    """Weights that are gathered, activations that are scattered."""
    mesh = line(3, "dp")
    rng = numpy.random.default_rng([SEED, 5])
    W, x = rng.standard_normal((6, 3)), rng.standard_normal((3, 6))

    def rank(W, x):
        whole = collective.all_gather(W, "dp")
        y = xp.sin(x @ whole)
        z = collective.reduce_scatter(collective.all_gather(y, "dp"), "dp", dim=1)
        return collective.all_reduce(xp.sum(z**2), "dp")

    def plain(W, x):
        # Each rank gives the whole of y to the sum.
        return xp.sum((3 * xp.sin(x @ W)) ** 2)

    sharded = dist.shard_map(rank, mesh, (dist.spec("dp"), dist.spec("dp")), None)
    for i in (0, 1):
        a = ts.grad(plain, argnums=i)(W, x)
        b = ts.grad(lambda *v: sharded(*v), argnums=i)(W, x)
        numpy.testing.assert_allclose(numpy.asarray(b), numpy.asarray(a), rtol=1e-10, atol=1e-12)


def test_loops_and_branches_in_a_rank():
    mesh = line(4)
    x = numpy.linspace(-1, 1, 8)

    def rank(b):
        b = ts.fori_loop(0, 3, lambda i, c: xp.tanh(c + collective.all_reduce(xp.sum(c), "tp")), b)
        return ts.cond(xp.sum(b) > 0, lambda v: v * 2, lambda v: v * 3, b)

    got = dist.shard_map(rank, mesh, dist.spec("tp"), dist.spec("tp"))(x).numpy()
    for _ in range(3):
        x = numpy.tanh(x + x.sum())
    rows = x.reshape(4, 2)
    wanted = numpy.where(rows.sum(1, keepdims=True) > 0, rows * 2, rows * 3).reshape(-1)
    numpy.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_collectives_of_arrays():
    """In the global view the placement changes, and not the value."""
    mesh = dist.mesh(6, ("dp", "tp"), (2, 3))
    x = numpy.arange(7 * 5, dtype="f").reshape(7, 5)
    X = dist.shard(x, dist.spec(("dp", "tp")), mesh)
    with dist.count() as c:
        Y = collective.all_gather(X, "tp")
        assert Y.placements == ("S(0)", "R") and (Y.numpy() == x).all()
        Z = collective.all_to_all(Y, "dp", split_dim=1)
        assert Z.placements == ("S(1)", "R") and (Z.numpy() == x).all()
    assert c["all_gather"] == 1 and c["all_to_all"] == 1
    P = dist.from_local([x * r for r in range(6)], dist.spec(sum=("dp", "tp")), mesh)
    total = x * 15
    S = collective.reduce_scatter(P, "tp", dim=1)
    assert S.placements == ("P(sum)", "S(1)") and (S.numpy() == total).all()
    R = collective.all_reduce(S, "dp")
    assert R.placements == ("R", "S(1)") and (R.numpy() == total).all()
    assert (ts.collective.allreduce(P, ("dp", "tp")).numpy() == total).all()
    assert collective.broadcast(R, "dp") is R
    with dist.count() as c:
        collective.barrier(mesh)
    assert c["barrier"] == 1


def test_programs_are_counted_and_ask_the_mapper_once():
    mesh = dist.mesh(6, ("dp", "tp"), (2, 3))
    x = numpy.zeros((6, 4), "f")
    questions, events = [], []

    class Mine(ts.Mapper):
        def choose_collective(self, kind, size, nbytes):
            questions.append((kind, size, nbytes))
            return "ring"

        def report(self, event):
            events.append(event["kind"])

    def rank(b):
        b = ts.fori_loop(0, 3, lambda i, c: collective.all_reduce(c, "tp"), b)
        collective.all_gather(b, "dp")  # nobody needs it
        return collective.broadcast(b, ("dp", "tp"), 1)

    f = dist.shard_map(rank, mesh, dist.spec(("dp", "tp")), None)
    f(x)
    jitted = ts.jit(lambda v: f(v) * 2)
    jitted(x), jitted(x)
    with dist.count() as c:
        f(x)
        jitted(x), jitted(x)
    assert (c["all_reduce"], c["broadcast"], c["all_gather"]) == (9, 3, 0)
    assert c.events[0].axes == ("tp",) and c.events[0].nbytes == 16 and c.events[0].size == 3
    with dist.count() as c:
        ts.grad(lambda v: xp.sum(dist.shard_map(lambda b: collective.all_gather(b, "tp"), mesh, dist.spec("tp"), None)(v) ** 2))(x)
    assert c["all_gather"] == 1
    with ts.runtime.set_mapper(Mine()):
        assert questions == []
        jitted(x), jitted(x)
        assert questions == [("all_reduce", 3, 16), ("broadcast", 6, 16)]
        assert events == ["all_reduce", "all_reduce", "all_reduce", "broadcast"] * 2
    with dist.count() as c:
        pass
    jitted(x)
    assert c.events == []


@ts.kernel
def doubled(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:  # noqa: F821
        x[i] = x[i] * 2
    return x


def test_futures():
    mesh = line(4)
    X = dist.shard(numpy.arange(9.0), dist.spec("tp"), mesh)
    future = collective.all_gather_async(X, "tp")
    assert isinstance(future, dist.Future)
    made = future.wait()
    assert future.done() and made.placements == ("R",) and (made.numpy() == numpy.arange(9.0)).all()
    inside = dist.shard_map(lambda b: collective.all_reduce_async(b, "tp").wait(), mesh, dist.spec("tp"), None)
    assert inside(numpy.arange(4.0)).numpy() == 6
    # In order with launches that write the array, before and after, however many there are.
    Y = dist.tensor((8,), dist.spec("tp"), mesh, init=1.0)
    found = []
    for _ in range(20):
        dist.index_launch("tp")(doubled)(Y.parts("tp"))
        found.append(collective.all_gather_async(Y, "tp"))
    assert [f.wait().numpy()[0] for f in found] == [2.0 ** (i + 1) for i in range(20)]
    failed = collective.all_reduce_async(X, "tp")
    with pytest.raises(ts.PlacementError, match="holds contributions"):
        failed.wait()


def test_a_derivative_inside_is_each_ranks_own():
    mesh = line(3)
    x, w = numpy.arange(6.0), numpy.array([2.0])

    def rank(w, x):
        return collective.all_reduce(ts.grad(lambda w: xp.sum((x * w) ** 2))(w), "tp")

    got = dist.shard_map(rank, mesh, (None, dist.spec("tp")), None)(w, x)
    numpy.testing.assert_allclose(got.numpy(), [2 * 2.0 * (x**2).sum()])


@ts.kernel
def scaled(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:  # noqa: F821
        y[i] = 2 * x[i] + 1
    return y


def test_kernels_checkpoints_rules_and_scans_in_a_rank():
    mesh = line(3)
    x = numpy.linspace(-1, 1, 12, dtype="f")

    @ts.custom_vjp
    def twice(v):
        return v * 2

    twice.defvjp(lambda v: (v * 2, None), lambda kept, ct: (ct * 2,))

    def rank(b):
        b = scaled(b)
        b = ts.checkpoint(lambda v: xp.tanh(v + collective.all_reduce(xp.sum(v), "tp")))(b)
        b = twice(b)
        last, steps = ts.scan(lambda c, v: (c + v, c * v), xp.sum(b) * 0, b)
        return steps + collective.all_gather(last[None], "tp").sum()

    f = dist.shard_map(rank, mesh, dist.spec("tp"), dist.spec("tp"))

    def plain(x):
        b = 2 * x + 1
        b = numpy.tanh(b + b.sum()) * 2
        rows = b.reshape(3, 4)
        before = numpy.cumsum(rows, 1) - rows
        return (before * rows + rows.sum()).reshape(-1)

    numpy.testing.assert_allclose(f(x).numpy(), plain(x.astype("f8")), rtol=1e-5)
    got = numpy.asarray(ts.grad(lambda v: xp.sum(f(v) ** 2))(x))
    h = 1e-6
    eye = numpy.eye(12)
    wanted = [((plain(x + h * e) ** 2).sum() - (plain(x - h * e) ** 2).sum()) / (2 * h) for e in eye]
    numpy.testing.assert_allclose(got, wanted, rtol=2e-3, atol=2e-3)


def test_transforms_around_a_program():
    mesh = line(4)
    split = dist.spec("tp")
    x = numpy.linspace(-1, 2, 8)
    f = dist.shard_map(lambda b: xp.tanh(b * collective.all_reduce(xp.sum(b), "tp")), mesh, split, split)

    def plain(v):
        return xp.tanh(v * xp.sum(v))

    def pair(make):
        got, wanted = (make(lambda v, g=g: g(v)) for g in (f, plain))
        numpy.testing.assert_allclose(numpy.asarray(got), numpy.asarray(wanted), rtol=1e-9, atol=1e-11)

    pair(lambda g: ts.grad(ts.checkpoint(lambda v: xp.sum(g(v) ** 2)))(x))
    pair(lambda g: ts.hessian(lambda v: xp.sum(g(v) ** 2))(x))
    pair(lambda g: ts.jacfwd(g)(x))
    pair(lambda g: ts.linearize(g, x)[1](x * 2))
    pair(lambda g: ts.vmap(ts.grad(lambda v: xp.sum(g(v))))(numpy.stack([x, x / 3])))
    pair(lambda g: ts.grad(lambda v: xp.sum(ts.fori_loop(0, 3, lambda i, c: g(c), v)))(x))
    pair(lambda g: ts.jit(lambda v: ts.cond(xp.sum(v) > 0, g, lambda c: c, v))(x))
    assert ts.gradcheck(lambda v: xp.sum(f(v)), x)


@pytest.mark.parametrize("name", jax_collectives.NAMES)
def test_values_and_gradients_are_those_of_jax(name):
    n = jax_collectives.RANKS
    pairs = [(0, 1), (1, 2), (3, 0)]
    bodies = {
        "all_reduce": lambda b, w: xp.sin(b) * collective.all_reduce(b**2, "a"),
        "mean": lambda b, w: b * collective.all_reduce(xp.sin(b), "a", "mean"),
        "all_gather": lambda b, w: b * xp.sum(xp.sin(collective.all_gather(b, "a")), 0),
        "reduce_scatter": lambda b, w: b * collective.reduce_scatter(xp.sin(b), "a"),
        "all_to_all": lambda b, w: collective.all_to_all(xp.sin(b), "a", 1).reshape(4, n) * b,
        "permute": lambda b, w: collective.permute(xp.sin(b), "a", pairs) + b**2,
        "axis_index": lambda b, w: xp.sin(b * dist.axis_index("a")),
        "copies": lambda b, w: xp.tanh(b @ w) + xp.sum(w**2),
        "two_collectives": lambda b, w: xp.tanh(b @ collective.all_reduce(b.T @ xp.sin(b @ w), "a")),
    }
    split = dist.spec("a")
    mapped = dist.shard_map(bodies[name], line(n, "a"), (split, None), split)
    x, w, weights = jax_collectives.arguments()
    loss, grads = ts.value_and_grad(lambda x, w: xp.sum(weights * mapped(x, w)), argnums=(0, 1))(x, w)
    kept = json.loads(jax_collectives.KEPT.read_text())[name]
    for ours, theirs in zip((loss, *grads), kept, strict=True):
        numpy.testing.assert_allclose(numpy.asarray(ours), theirs, rtol=1e-11, atol=1e-12)


@pytest.mark.jax
def test_kept_answers_are_those_of_jax():
    """Computed again, in a process that has as many devices as ranks."""
    code = "import jax_collectives, json; print(json.dumps(jax_collectives.answers()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=jax_collectives.KEPT.parent)
    kept = json.loads(jax_collectives.KEPT.read_text())
    for name, found in json.loads(done.stdout).items():
        for a, b in zip(found, kept[name], strict=True):
            numpy.testing.assert_allclose(a, b, rtol=1e-12)


def test_random_draws_are_same_where_their_keys_are():
    mesh = line(4)

    def rank(b):
        key = ts.random.key(7)
        own = ts.random.normal(ts.random.fold_in(key, dist.axis_index("tp")), (2,))
        return b * 0 + ts.random.normal(key, (2,)), b * 0 + own

    same, own = dist.shard_map(rank, mesh, dist.spec("tp"), dist.spec("tp"))(numpy.zeros(8, "f"))
    same, own = same.numpy().reshape(4, 2), own.numpy().reshape(4, 2)
    assert (same == same[0]).all()
    for r in range(4):
        wanted = ts.random.normal(ts.random.fold_in(ts.random.key(7), r), (2,))
        assert (own[r] == numpy.asarray(wanted)).all()


@pytest.fixture(params=["interp", "cpu", "ptx-emulated:sm_90a"])
def backend(request):
    ts.runtime.select_backend(request.param)
    yield request.param
    ts.runtime.select_backend(None)


@pytest.mark.parametrize("seed", range(4))
def test_compiled_programs_have_the_bits_of_ranks_run_one_by_one(seed, backend):
    """The interpreter runs every rank; the compiler makes one function of all."""
    from tessera.trace.execute import oracle

    rng = numpy.random.default_rng([SEED, seed, 9])
    sizes = tuple(int(v) for v in rng.integers(1, 4, 2))
    mesh = dist.mesh(sizes[0] * sizes[1], ("dp", "tp"), sizes)
    x = rng.integers(-4, 5, (4 * mesh.size, mesh.size)).astype("f")

    def rank(b):
        y = collective.all_reduce(b * 2, "tp") + dist.axis_index("dp")
        y = collective.all_to_all(y, ("tp", "dp"), 1)
        y = collective.all_gather(y, "dp", dim=1)
        return collective.permute(y, "dp", [(i, (i + 1) % sizes[0]) for i in range(sizes[0])])

    f = ts.jit(dist.shard_map(rank, mesh, dist.spec(("dp", "tp")), dist.spec(("tp", "dp"))))
    whole = ts.jit(lambda v: f(v))
    compiled = numpy.asarray(whole(x))
    assert whole.compiled(x).backend.startswith(backend.partition(":")[0])
    with oracle():
        one_by_one = numpy.asarray(ts.jit(lambda v: f(v))(x))
    assert compiled.tobytes() == one_by_one.tobytes()
