"""Collectives on arrays against NumPy: 1 to 9 ranks, every operator and dtype, extents that the ranks do not divide; and the gradient through
each collective against finite differences."""

import warnings

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import collective, dist, xp

pytestmark = pytest.mark.filterwarnings("ignore:W_UNEVEN")
FLOATS = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp8_e5m2": ml_dtypes.float8_e5m2, "f32": np.float32, "f64": np.float64}
WHOLE = {"bool": np.bool_, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16, "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64, "i4": ml_dtypes.int4}
#: The largest numbers of the dtypes that saturate.
MOST = {"fp8_e4m3": 448.0, "fp8_e5m2": 57344.0}
OPERATORS = ("sum", "max", "min", "prod")


def line(n):
    return dist.mesh(n, ("tp",), (n,))


def draw(rng, shape, name):
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if name in WHOLE:
        return rng.integers(0 if name.startswith("u") else -7, 8, shape).astype(WHOLE[name])
    # Quarters of small numbers: sums of nine are exact in f32 whatever their order, products of nine are rounded.
    return (rng.integers(-12, 13, shape) / 4).astype(FLOATS[name])


def combined(op, blocks, name):
    """NumPy's result in the accumulation dtype, stored once."""
    if name == "bool":
        return np.any(blocks, axis=0) if op in ("sum", "max") else np.all(blocks, axis=0)
    if name in WHOLE:
        bits = 4 if name == "i4" else np.dtype(WHOLE[name]).itemsize * 8
        wide = getattr(np, op)(np.stack(blocks).astype(object), axis=0)
        low = 0 if name.startswith("u") else -(2 ** (bits - 1))
        return np.asarray((wide - low) % 2**bits + low, dtype=object).astype(np.uint64 if name == "u64" else np.int64).astype(WHOLE[name])
    wide = np.float64 if name == "f64" else np.float32
    made = getattr(np, op)(np.stack(blocks).astype(wide), axis=0)
    if name in MOST:
        made = np.clip(made, -MOST[name], MOST[name])
    return made.astype(FLOATS[name])


def equal(got, wanted, name, op):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    if op == "prod" and name in ("f16", "bf16", "f32", "f64"):
        # The order of roundings is ours.
        relative = {"f16": 2e-3, "bf16": 2e-2, "f32": 1e-6, "f64": 1e-15}[name]
        np.testing.assert_allclose(got.astype(np.float64), wanted.astype(np.float64), rtol=relative)
    else:
        assert (got == wanted).all(), (name, op, got, wanted)


@pytest.mark.parametrize("n", range(1, 10))
def test_every_operator_and_dtype(n):
    mesh, rng = line(n), np.random.default_rng([25, n])
    for name in (*FLOATS, *WHOLE):
        for op in OPERATORS:
            shape = (int(rng.integers(1, 2 * n + 2)), 3)
            blocks = [draw(rng, shape, name) for _ in range(n)]
            x = dist.from_local(blocks, dist.spec(**{op: ("tp",)}), mesh)
            wanted = combined(op, blocks, name)
            whole, split = collective.all_reduce(x, "tp", op), collective.reduce_scatter(x, "tp", op)
            assert whole.placements == ("R",) and split.placements == ("S(0)",)
            equal(whole.numpy(), wanted, name, op)
            assert split.numpy().tobytes() == whole.numpy().tobytes()
            assert b"".join(split.local(r).tobytes() for r in range(n)) == whole.local(n - 1).tobytes()
            assert collective.reduce_scatter_async(x, "tp", op, dim=1).wait().numpy().tobytes() == whole.numpy().tobytes()


@pytest.mark.parametrize("n", range(1, 10))
def test_every_move(n):
    mesh, rng = line(n), np.random.default_rng([26, n])
    for name in (*FLOATS, *WHOLE):
        shape = tuple(int(v) for v in rng.integers(0, 2 * n + 2, 2))
        given = draw(rng, shape, name)
        x = dist.shard(given, dist.spec("tp"), mesh)
        gathered, turned = collective.all_gather(x, "tp"), collective.all_to_all(x, "tp", 1)
        assert gathered.placements == ("R",) and turned.placements == ("S(1)",)
        for made in (gathered, turned, collective.broadcast(gathered, "tp", n - 1), collective.all_to_all(turned, "tp", 0)):
            assert made.numpy().tobytes() == given.tobytes() and made.dtype == x.dtype
        size = -(-shape[1] // n)
        for r in range(n):
            assert turned.local(r).tobytes() == given[:, size * r : size * (r + 1)].tobytes()


@pytest.mark.parametrize("n", (1, 2, 3, 5, 8))
def test_arrays_programs_of_ranks_and_jitted_functions_give_the_same_bits(n):
    """Of numbers whose sums are rounded, and of NaN and infinities."""
    mesh, rng, S = line(n), np.random.default_rng([28, n]), dist.spec("tp")
    with ts.numerics.profile("strict"):
        for name in (*FLOATS, "i8", "bool"):
            for op in OPERATORS:
                given = draw(rng, (n, 2 * n, 3), name)
                if name in FLOATS:
                    given = (rng.standard_normal(given.shape) * 3).astype(FLOATS[name])
                    if name not in MOST:
                        given[rng.integers(n), 0, 0], given[rng.integers(n), 1, 0] = np.nan, -np.inf
                x = dist.from_local(list(given), dist.spec(**{op: ("tp",)}), mesh)
                whole, split = collective.all_reduce(x, "tp", op), collective.reduce_scatter(x, "tp", op)
                for call, out, wanted in (
                    (lambda b, op=op: collective.all_reduce(b[0], "tp", op), None, whole),
                    (lambda b, op=op: collective.reduce_scatter(b[0], "tp", op), S, split),
                ):
                    rank = dist.shard_map(call, mesh, S, out)
                    for made in (rank(given), ts.jit(rank)(dist.shard(given, S, mesh))):
                        assert made.placements == wanted.placements
                        a, b = made.numpy(), wanted.numpy()
                        unknown = np.isnan(a.astype("f4"))
                        assert a.dtype == b.dtype and (unknown == np.isnan(b.astype("f4"))).all(), (name, op)
                        assert a[~unknown].tobytes() == b[~unknown].tobytes(), (name, op)
                made = ts.jit(lambda v, op=op: (collective.all_reduce(v, "tp", op), collective.reduce_scatter(v, "tp", op)))(x)
                assert [v.placements for v in made] == [("R",), ("S(0)",)]
                assert all(v.numpy().tobytes() == whole.numpy().tobytes() for v in made)


@pytest.mark.parametrize("n", (1, 3, 4))
def test_moves_in_jitted_functions(n):
    """They are those of arrays, and in a derivative too; a value that the compiler places has no placement to start from."""
    mesh, rng = line(n), np.random.default_rng([29, n])
    given = rng.standard_normal((n + 1, 4)).astype(np.float32)
    x = dist.shard(given, dist.spec("tp"), mesh)
    for call in (lambda v: ts.all_gather(v, "tp"), lambda v: ts.all_to_all(v, "tp", 1), lambda v: ts.broadcast(ts.all_gather(v, "tp"), "tp", n - 1),
                 lambda v: collective.all_gather_async(v, axis="tp", dim=0).wait()):  # fmt: skip
        made, wanted = ts.jit(call)(x), call(x)
        assert made.placements == wanted.placements and made.numpy().tobytes() == given.tobytes()
        slope = ts.grad(lambda v, call=call: xp.sum(xp.sin(call(v))))(x)
        assert slope.placements == x.placements
        np.testing.assert_allclose(slope.numpy(), np.cos(given), rtol=1e-6)
    if n > 1:
        with pytest.raises(ts.PlacementError, match=r"all_gather: expected an array whose placement is known") as found:
            ts.jit(lambda v: ts.all_gather(v * 2, "tp"))(x)
        assert found.value.file == __file__ and "dist.constrain" in found.value.help
    placed = ts.jit(lambda v: ts.all_gather(dist.constrain(v * 2, dist.spec("tp")), "tp"))(x)
    assert placed.placements == ("R",) and (placed.numpy() == 2 * given).all()
    with pytest.raises(ts.PlacementError, match=r"all_reduce: expected an array that holds contributions along tp, got tp: S\(0\)"):
        ts.jit(lambda v: ts.all_reduce(v, "tp"))(x)


@pytest.mark.parametrize("n", range(1, 10))
def test_uneven_extents_in_programs(n):
    """Filled up with zeros, and cut again."""
    mesh, rng = line(n), np.random.default_rng([27, n])
    S = dist.spec("tp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for m in (1, n, n + 1, 3 * n - 1):
            x = rng.integers(-9, 9, (m, 2)).astype(np.float32)

            def run(f, out):
                return dist.shard_map(f, mesh, S, out, pad=True)(x).numpy()  # noqa: B023

            assert (run(lambda b: collective.all_reduce(xp.sum(b, 0), "tp"), None) == x.sum(0)).all()
            assert (run(lambda b: collective.all_gather(b, "tp"), None)[:m] == x).all()
            assert (run(lambda b: collective.reduce_scatter(collective.all_gather(b, "tp"), "tp"), S) == n * x).all()
            there = run(lambda b: collective.all_to_all(collective.all_to_all(xp.concatenate([b] * dist.axis_size("tp"), 1), "tp", 1), "tp", 0, 1), S)
            assert (there == np.concatenate([x] * n, 1)).all()


BODIES = {
    "all_reduce": lambda b: xp.sin(b) * collective.all_reduce(b**2, "tp"),
    "mean": lambda b: b * collective.all_reduce(xp.sin(b), "tp", "mean"),
    "max": lambda b: xp.sin(b) * collective.all_reduce(b, "tp", "max"),
    "min": lambda b: xp.sin(b) + collective.all_reduce(b * b, "tp", "min"),
    "all_gather": lambda b: b * xp.sum(xp.sin(collective.all_gather(b, "tp")), 0),
    "reduce_scatter": lambda b: xp.sum(b) * collective.reduce_scatter(xp.sin(collective.all_gather(b, "tp")), "tp"),
    "scatter_max": lambda b: xp.sum(b) * collective.reduce_scatter(xp.sin(xp.concatenate([b] * dist.axis_size("tp"))), "tp", "max"),
    "all_to_all": lambda b: xp.sum(collective.all_to_all(xp.concatenate([xp.sin(b)] * dist.axis_size("tp"), 1), "tp", 1) ** 3) * b,
    "permute": lambda b: collective.permute(xp.sin(b), "tp", [(i, i + 1) for i in range(dist.axis_size("tp") - 1)]) + b**2,
    "broadcast": lambda b: b**2 * collective.broadcast(xp.sin(b), "tp", dist.axis_size("tp") - 1),
    "axis_index": lambda b: xp.sin(b * dist.axis_index("tp")),
}


@pytest.mark.parametrize("name", BODIES)
def test_gradients_against_finite_differences(name):
    for n in (1, 2, 3):
        rng = np.random.default_rng([28, n])
        f = dist.shard_map(BODIES[name], line(n), dist.spec("tp"), dist.spec("tp"))
        x, weights = rng.standard_normal((2 * n, 2)), rng.standard_normal((2 * n, 2))

        def loss(v):
            return xp.sum(weights * f(v))  # noqa: B023

        found, step = np.asarray(ts.grad(loss)(x)), 1e-5
        for at in np.ndindex(x.shape):
            lower, upper = x.copy(), x.copy()
            lower[at] -= step
            upper[at] += step
            slope = (float(loss(upper)) - float(loss(lower))) / (2 * step)
            assert abs(found[at] - slope) < 1e-6 * max(1, abs(slope)), (name, n, at, found[at], slope)
        tangent = rng.standard_normal(x.shape)
        assert np.isclose(float(ts.jvp(loss, (x,), (tangent,))[1]), (found * tangent).sum())
