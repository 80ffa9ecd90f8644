"""Arrays on meshes as arguments and results of `ts.jit`, derivatives and `vmap` of functions that call `dist.shard_map`."""

import warnings

import numpy as np
import pytest

import tessera as ts
from tessera import collective, dist, xp
from tessera.arrays.create import numpy_dtype

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.TesseraWarning)
        yield


@pytest.fixture
def mesh():
    return dist.mesh(6, ("dp", "tp"), (3, 2))


def layers(mesh):
    def layer(x, w1, w2):
        return collective.all_reduce(xp.tanh(x @ w1) @ w2, "tp")

    return dist.shard_map(layer, mesh, (dist.spec("dp"), dist.spec(None, "tp"), dist.spec("tp")), dist.spec("dp"))


def values():
    return [RNG.standard_normal(s) for s in ((9, 4), (4, 8), (8, 5))]


def placed(mesh, x, w1, w2):
    return dist.shard(x, dist.spec("dp"), mesh), dist.shard(w1, dist.spec(None, "tp"), mesh), dist.shard(w2, dist.spec("tp"), mesh)


def test_jit_takes_and_gives_arrays_on_meshes(mesh):
    f, (x, w1, w2) = layers(mesh), values()
    jitted = ts.jit(lambda *a: f(*a))
    for arrays in (placed(mesh, x, w1, w2), (dist.shard(x, dist.spec(None, "tp"), mesh), w1, w2), (dist.replicate(x, mesh), w1, w2)):
        y = jitted(*arrays)
        assert isinstance(y, dist.DistArray) and y.placements == ("S(0)", "R") and y.mesh == mesh
        np.testing.assert_array_equal(y.numpy(), f(x, w1, w2).numpy())
        with ts.runtime.oracle():
            np.testing.assert_allclose(jitted(*arrays).numpy(), y.numpy(), rtol=1e-12, atol=1e-14)
    # Arrays of the host give arrays of the host.
    assert not isinstance(jitted(x, w1, w2), dist.DistArray)


def test_placements_are_part_of_the_key(mesh):
    traced = []

    def once(x):
        traced.append(x.placements)
        return dist.shard_map(lambda b: b * 2, mesh, dist.spec("tp"), dist.spec("tp"))(x)

    f = ts.jit(once)
    x = np.arange(12.0)
    for spec in (dist.spec("tp"), dist.spec("dp"), dist.spec("tp"), None, dist.spec(sum=("dp",)), dist.spec(dist.Cyclic(("tp",)))):
        for _ in range(2):
            y = f(dist.shard(x, spec, mesh))
            assert y.numpy().tolist() == (2 * x).tolist() and y.placements == ("R", "S(0)")
    assert traced == [("R", "S(0)"), ("S(0)", "R"), ("R", "R"), ("P(sum)", "R"), ("R", "S(0)")]
    other = dist.mesh(4, ("dp", "tp"), (2, 2))
    with pytest.raises(ts.PlacementError, match="expected arrays on Mesh") as found:
        f(dist.shard(x, dist.spec("tp"), other))
    assert found.value.code == "E_PLACEMENT" and found.value.help


def test_trees_of_arrays_and_numbers(mesh):
    double = dist.shard_map(lambda t: {"w": t["w"] * 2, "b": t["b"] + 1}, mesh, ({"w": dist.spec("dp"), "b": None},), {"w": dist.spec("dp"), "b": None})

    @ts.jit
    def f(tree, k):
        made = double(tree["arrays"])
        return [made["w"], k + 1, {"same": tree["arrays"]["w"], "b": made["b"].reshard(dist.spec("tp"))}]

    w = dist.shard(np.arange(6.0), dist.spec("tp"), mesh)
    y, k, rest = f({"arrays": {"w": w, "b": np.ones(4)}}, 3)
    assert y.numpy().tolist() == [0, 2, 4, 6, 8, 10] and k == 4
    # An argument that is returned keeps its placement.
    assert rest["same"].placements == ("R", "S(0)") and rest["same"].numpy().tolist() == w.numpy().tolist()
    assert rest["b"].placements == ("R", "S(0)") and rest["b"].numpy().tolist() == [2] * 4


def test_gradients_have_the_placement_of_the_argument(mesh):
    f, (x, w1, w2) = layers(mesh), values()

    def loss(x, w1, w2):
        return xp.mean(f(x, w1, w2).full() ** 2)

    def plain(x, w1, w2):
        return xp.mean((xp.tanh(x @ w1) @ w2) ** 2)

    wanted = ts.grad(plain, argnums=(0, 1, 2))(x, w1, w2)
    arrays = placed(mesh, x, w1, w2)
    for made in (ts.grad(loss, argnums=(0, 1, 2)), ts.grad(loss), ts.jit(ts.grad(loss, argnums=(0, 1, 2))), ts.jit(ts.grad(loss)),
                 lambda *a: ts.value_and_grad(loss)(*a)[1]):  # fmt: skip
        for got, want, of in zip(made(*arrays), wanted, arrays, strict=True):
            assert isinstance(got, dist.DistArray) and got.placements == of.placements
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-10, atol=1e-13)
    # Those of arrays of the host are where the compiler has them.
    mixed = ts.grad(loss, argnums=(0, 1))(arrays[0], w1, w2)
    assert mixed[0].placements == arrays[0].placements and mixed[1].mesh == mesh
    np.testing.assert_allclose(mixed[1].numpy(), wanted[1], rtol=1e-10, atol=1e-13)


def test_a_loss_may_be_an_array_that_every_rank_has(mesh):
    def rank(x):
        return collective.all_reduce(xp.sum(x * x), ("dp", "tp"))

    loss = dist.shard_map(rank, mesh, dist.spec(("dp", "tp")), None)
    x = dist.shard(np.arange(12.0), dist.spec("tp"), mesh)
    value, gradient = ts.value_and_grad(loss)(x)
    assert isinstance(value, dist.DistArray) and float(value) == 506
    assert gradient.numpy().tolist() == (2 * np.arange(12.0)).tolist() and gradient.placements == ("R", "S(0)")
    with pytest.raises(ts.TesseraError, match="to give one float to differentiate"):
        ts.grad(dist.shard_map(lambda x: x, mesh, dist.spec("tp"), dist.spec("tp")))(x)


def test_vjp_and_jvp(mesh):
    f, (x, w1, w2) = layers(mesh), values()
    arrays = placed(mesh, x, w1, w2)

    def plain(x, w1, w2):
        return xp.tanh(x @ w1) @ w2

    y, pull = ts.vjp(f, *arrays)
    want, pull_plain = ts.vjp(plain, x, w1, w2)
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-10, atol=1e-13)
    ct = RNG.standard_normal((9, 5))
    for got, expected, of in zip(pull(dist.shard(ct, dist.spec("dp"), mesh)), pull_plain(ct), arrays, strict=True):
        assert got.placements == of.placements
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10, atol=1e-13)
    tangents = [RNG.standard_normal(a.shape) for a in (x, w1, w2)]
    _, dy = ts.jvp(f, arrays, placed(mesh, *tangents))
    _, expected = ts.jvp(plain, (x, w1, w2), tuple(tangents))
    assert dy.placements == ("S(0)", "R")
    np.testing.assert_allclose(dy.numpy(), expected, rtol=1e-10, atol=1e-13)
    # Tangents may be arrays of the host.
    _, dy = ts.jvp(f, arrays, tuple(tangents))
    np.testing.assert_allclose(dy.numpy(), expected, rtol=1e-10, atol=1e-13)


def test_vmap_moves_the_dims_of_placements(mesh):
    f, (_, w1, w2) = layers(mesh), values()
    many = RNG.standard_normal((7, 9, 4))
    want = np.tanh(many @ w1) @ w2
    _, w1, w2 = placed(mesh, many[0], w1, w2)
    y = ts.vmap(f, (0, None, None))(dist.shard(many, dist.spec(None, "dp"), mesh), w1, w2)
    assert y.placements == ("S(1)", "R")
    np.testing.assert_allclose(y.numpy(), want, rtol=1e-12)
    inner = []

    def seen(x, w1, w2):
        inner.append(x.placements)
        return f(x, w1, w2)

    y = ts.jit(ts.vmap(seen, (2, None, None), 2))(dist.shard(np.moveaxis(many, 0, 2), dist.spec(None, "tp"), mesh), w1, w2)
    assert inner == [("R", "S(1)")] and y.placements == ("S(0)", "R")
    np.testing.assert_allclose(np.moveaxis(y.numpy(), 2, 0), want, rtol=1e-12)


def test_control_flow_carries_placed_arrays(mesh):
    step = dist.shard_map(lambda b: b * 0.5 + collective.all_reduce(b, "tp"), mesh, dist.spec("tp"), dist.spec("tp"))

    @ts.jit
    def f(x):
        return ts.fori_loop(0, 3, lambda i, c: step(c), x)

    def once(v):
        return v * 0.5 + np.tile(v.reshape(2, -1).sum(0), 2)

    x = RNG.standard_normal(8)
    y = f(dist.shard(x, dist.spec("tp"), mesh))
    np.testing.assert_allclose(y.numpy(), once(once(once(x))), rtol=1e-12)
    assert y.placements == ("R", "S(0)")


def refused(code, text, call):
    with pytest.raises(ts.TesseraError) as found:
        call()
    assert found.value.code == code and text in found.value.message, found.value
    assert found.value.help and found.value.file == __file__ and found.value.line


def test_what_traced_arrays_refuse(mesh):
    x = dist.shard(np.arange(6.0), dist.spec("tp"), mesh)
    refused("E_TYPE", "expected a value that is known while tracing", lambda: ts.jit(lambda v: np.asarray(v))(x))
    refused("E_PLACEMENT", "expected a dim of an array with 1 dim, got 1", lambda: ts.jit(lambda v: v.reshard(dist.spec("tp", "tp")))(x))
    refused("E_PLACEMENT", "expected an axis of the mesh (dp, tp), got `zz`", lambda: ts.jit(lambda v: v.reshard(dist.spec("zz")))(x))


def test_arrays_captured_by_a_jitted_function(mesh):
    w = dist.shard(np.arange(6.0), dist.spec("tp"), mesh)
    f = dist.shard_map(lambda a, b: a + b, mesh, dist.spec("dp"), dist.spec("dp"))
    x = dist.shard(np.ones(6), dist.spec("dp"), mesh)
    y = ts.jit(lambda v: f(v, w))(x)
    assert y.numpy().tolist() == [1, 2, 3, 4, 5, 6]


def test_random_placements_in_and_out():
    """What a function computes does not depend on where its arguments are."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        shape = tuple(int(n) for n in rng.integers(1, 4, 2))
        mesh = dist.mesh(int(np.prod(shape)), ("dp", "tp"), shape)

        def spec(rng=rng):
            choices = [None, dist.spec("dp"), dist.spec(None, "tp"), dist.spec("tp", "dp"), dist.spec(("dp", "tp")), dist.spec(None, ("tp", "dp")),
                       dist.spec("dp", sum=("tp",)), dist.spec(dist.Cyclic(("tp",)))]  # fmt: skip
            return choices[int(rng.integers(len(choices)))]

        x = rng.integers(-9, 9, (36, 36)).astype(rng.choice(["f4", "f8", "i4", "i8"]))
        f = ts.jit(dist.shard_map(lambda b: b * 3 + dist.axis_size("dp"), mesh, dist.spec("dp", "tp"), dist.spec("dp", "tp")))
        y = f(dist.shard(x, spec(), mesh))
        assert y.dtype == dist.shard(x, None, mesh).dtype and np.array_equal(y.numpy(), x * 3 + shape[0]), seed
        assert y.placements == ("S(0)", "S(1)") or 1 in shape


def test_contributions_may_travel_in_a_narrower_dtype():
    mesh = dist.mesh(4, ("tp",), (4,))
    x = RNG.standard_normal((8, 3)).astype("f4")
    bf16 = x.astype(numpy_dtype(ts.bf16)).astype("f4")
    tp = dist.spec("tp")
    sums = bf16.reshape(4, 2, 3).astype("f8").sum(0)
    for wire, rel in (("bf16", 2**-8), ("f16", 2**-11)):
        with dist.count() as c:
            got = dist.shard_map(lambda b: collective.all_reduce(b, "tp", wire=wire), mesh, tp, None)(x)
        assert got.numpy().dtype == np.float32 and c["all_reduce"] == 1 and c.nbytes == 2 * 3 * 2
        if wire == "bf16":
            np.testing.assert_allclose(got.numpy(), sums, rtol=rel)
            assert (got.numpy().view("u4") & 0xFFFF == 0).all()  # bf16 has the upper half
        part = dist.shard_map(lambda b: collective.reduce_scatter(b[0], "tp", wire=wire), mesh, dist.spec("tp"), tp)(x.reshape(4, 2, 3).repeat(2, 1))
        assert part.shape == (4, 3) and part.dtype == ts.f32
    exact = dist.shard_map(lambda b: collective.all_reduce(b, "tp"), mesh, tp, None)(x)
    assert not np.array_equal(exact.numpy(), got.numpy())

    def call(wire, of=x):
        return lambda: dist.shard_map(lambda b: collective.all_reduce(b, "tp", wire=wire), mesh, tp, None)(of)

    refused("E_TYPE", "expected a float that is narrower than the value (f32) as `wire`, got f32", call("f32"))
    refused("E_TYPE", "as `wire`, got i8", call("i8"))
    refused("E_TYPE", "narrower than the value (i32)", call("bf16", np.ones(4, "i4")))
    parts = dist.from_local([x[0]] * 4, dist.spec(sum=("tp",)), mesh)
    refused("E_UNSUPPORTED", "got it for an array", lambda: collective.all_reduce(parts, "tp", wire="bf16"))
