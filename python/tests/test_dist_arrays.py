"""Meshes, placements and arrays on them: the snippets of the documents, properties against NumPy, and every refusal."""

import os
import pickle
import random
import subprocess
import sys
import time
import warnings

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import array, dist, domain

SEED = int(os.environ.get("TESSERA_FUZZ_SEED") or time.time() // 86400)
MESHES = [(1,), (2,), (3,), (5,), (7,), (11,), (12,), (2, 2), (2, 3), (3, 2), (5, 2), (2, 2, 3), (3, 1, 2), (4, 3)]
DTYPES = ["f32", "f64", "bf16", "f16", "fp8_e4m3", "fp8_e5m2", "i8", "u16", "i32", "i64", "bool"]


def a_mesh(rng):
    shape = rng.choice(MESHES)
    return dist.mesh(int(np.prod(shape)), ("dp", "tp", "pp")[: len(shape)], shape)


def a_spec(rng, mesh, ndim, ops=("sum", "max", "min", "prod")):
    axes, dims, entries = list(mesh.axes), list(range(ndim)), [None] * ndim
    rng.shuffle(axes)
    rng.shuffle(dims)
    while axes and dims and rng.random() < 0.75:
        taken = tuple(axes.pop() for _ in range(rng.randint(1, len(axes))))
        how = rng.choice([None, None, dist.Cyclic, lambda a: dist.BlockCyclic(a, 2), lambda a: dist.BlockCyclic(a, 3)])
        entries[dims.pop()] = taken if how is None else how(taken)
    more = {rng.choice(ops): tuple(axes)} if axes and ops and rng.random() < 0.4 else {}
    return dist.spec(*entries, **more)


def values(rng, shape, dtype):
    made = np.random.default_rng(rng.randrange(2**32))
    if dtype == "bool":
        return np.asarray(made.integers(0, 2, shape)).astype(bool)
    kind = ts.empty((), dtype).dtype
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return np.asarray(made.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True))
    x = np.asarray(made.standard_normal(shape) * 10).astype(kind)
    x[made.random(shape) < 0.1] = -0.0
    return x


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()


def test_resharding_keeps_every_bit():
    """1,000 random pairs of placements: between copies and splits, and from a value to contributions and back."""
    print(f"TESSERA_FUZZ_SEED={SEED}")
    rng = random.Random(SEED)
    for case in range(1000):
        mesh, dtype = a_mesh(rng), rng.choice(DTYPES)
        shape = tuple(rng.choice([0, 1, 2, 3, 5, 8, 13]) for _ in range(rng.randrange(4)))
        ops = ("max", "min") if dtype == "bool" else ("sum", "max", "min", "prod")
        x = values(rng, shape, dtype)
        one, two = a_spec(rng, mesh, len(shape), ops), a_spec(rng, mesh, len(shape), ops)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a = dist.shard(x, one, mesh)
            b = a.reshard(two)
        what = f"case {case} of seed {SEED}: {dtype} {shape} {one} to {two} on {mesh}"
        assert same_bits(a.numpy(), x), what
        assert same_bits(b.numpy(), x), what
        assert same_bits(b.reshard(one).numpy(), x), what
        for rank in range(mesh.size):
            if all(s != "P" for s in "".join(b.placements)):
                where = b.index(rank)
                block = x[np.ix_(*(np.arange(n)[i] for n, i in zip(shape, where)))] if shape else x
                assert same_bits(np.asarray(b.local(rank)), block), f"{what}, rank {rank}"


def test_parts_of_any_placement_read_and_write_the_value():
    rng = random.Random(SEED + 2)
    for case in range(300):
        mesh = a_mesh(rng)
        shape = tuple(rng.choice([1, 2, 3, 5, 8]) for _ in range(rng.randint(1, 3)))
        x, spec = values(rng, shape, "f32"), a_spec(rng, mesh, len(shape))
        axes = tuple(rng.sample(mesh.axes, rng.randint(1, len(mesh.axes))))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a = dist.shard(x, spec, mesh)
        what = f"case {case} of seed {SEED + 2}: parts of {spec} along {axes} on {mesh}"
        contributed = [n for n, s in zip(mesh.axes, a.placements) if s.startswith("P")]
        if all(s == "R" or n not in axes for n, s in zip(mesh.axes, a.placements)) and a.placements.count("R") < len(mesh.axes):
            with pytest.raises(ts.PlacementError, match="E_PLACEMENT"):
                a.parts(axes)
            continue
        parts = a.parts(axes)
        assert [p.coords for p in parts] == list(np.ndindex(*(mesh.axis_size(n) for n in axes))), what
        for p in parts:
            where = np.ix_(*(np.arange(n)[i] for n, i in zip(shape, p.index)))
            if not set(contributed) & set(axes) or all(c == 0 for n, c in zip(axes, p.coords) if n in contributed):
                assert same_bits(p.numpy(), x[where]), what
            if not set(contributed) & set(axes):
                p[...] = -x[where]
                x[where] = -x[where]
                assert same_bits(a.numpy(), x), what


def test_contributions_are_combined_as_numpy_does():
    rng = random.Random(SEED + 1)
    for _ in range(60):
        n = rng.choice([1, 2, 3, 5, 9, 72])
        mesh = dist.mesh(n, ("tp",), (n,))
        op = rng.choice(["sum", "max", "min", "prod"])
        blocks = [np.random.default_rng(rng.randrange(2**32)).integers(-3, 4, (3, 2)).astype(np.float32) for _ in range(n)]
        x = dist.from_local(blocks, dist.spec(**{op: ("tp",)}), mesh)
        expected = getattr(np, op)(np.stack(blocks), axis=0)
        assert np.array_equal(x.numpy(), expected), (op, n)
        assert np.array_equal(x.reshard(dist.spec("tp")).numpy(), expected)


def test_narrow_contributions_are_combined_in_f32_and_rounded_once():
    blocks = [np.full(4, v, ml_dtypes.bfloat16) for v in (1.0, 2.0**-9, 2.0**-9, 2.0**-9, 2.0**-9)]
    mesh = dist.mesh(5, ("tp",), (5,))
    x = dist.from_local(blocks, dist.spec(sum=("tp",)), mesh)
    assert x.local(0).dtype == np.float32
    whole = np.sum([b.astype(np.float32) for b in blocks], axis=0)
    assert same_bits(x.numpy(), whole.astype(ml_dtypes.bfloat16))
    assert x.numpy()[0] != 1.0  # as sums in bf16 would give


@pytest.mark.parametrize("dtype", ["f16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp6_e3m2", "fp6_e2m3", "fp4_e2m1", "i4", "i8", "u8"])
@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
def test_contributions_that_the_dtype_does_not_hold(dtype, op):
    """Intermediate sums are f32 (of integers, wrap): the last rounding alone saturates, as a cast does."""
    kind = ts.empty((), dtype).dtype
    most = {"f16": 60000.0, "bf16": 1e38, "fp8_e4m3": 448.0, "fp8_e5m2": 57344.0, "fp6_e3m2": 28.0, "fp6_e2m3": 7.5, "fp4_e2m1": 6.0}.get(dtype, 7 if dtype == "i4" else 100)
    rows = [[most, most, 1, 0, most], [most, -most, 2, 0, 1], [-most, most, 3, 1, 1], [most, 1, 1, 0, 1]]
    blocks = [np.asarray(np.asarray(r, np.float32) if kind.kind not in "u" else np.abs(r), np.float32).astype(kind) for r in rows]
    x = dist.from_local(blocks, dist.spec(**{op: ("tp",)}), dist.mesh(4, ("tp",), (4,)))
    whole = dtype.startswith(("i", "u"))
    wide = np.stack([b.astype(np.int64 if whole else np.float32) for b in blocks])
    with np.errstate(all="ignore"):
        expected = getattr(np, op)(wide, axis=0)
    if whole:
        bits = 4 if dtype == "i4" else 8
        low = 0 if dtype == "u8" else -(2 ** (bits - 1))
        expected = (expected - low) % 2**bits + low
    elif dtype not in ("f16", "bf16"):
        expected = np.clip(expected, -most, most)
    with np.errstate(all="ignore"):
        expected = expected.astype(kind)
    for made in (x.numpy(), x.reshard(None).local(3), x.reshard(dist.spec("tp")).numpy()):
        assert same_bits(np.asarray(made), expected), (made, expected)
    # As a program of ranks and a cast have it.
    if op != "prod" and not whole:
        program = dist.shard_map(lambda b: ts.collective.all_reduce(b[0], "tp", op), x.mesh, dist.spec("tp"), None)
        assert np.array_equal(program(np.stack(blocks)).numpy().astype(np.float32), expected.astype(np.float32), equal_nan=True)


def test_what_changes_no_value_is_held_by_every_dtype():
    mesh = dist.mesh(3, ("tp",), (3,))
    for dtype in (*DTYPES, "fp6_e3m2", "fp6_e2m3", "fp4_e2m1", "i4"):
        for op in ("sum", "prod", "max", "min"):
            x = dist.tensor((4,), dist.spec(**{op: ("tp",)}), mesh, dtype, init=1)
            assert x.numpy().tobytes() == ts.array(np.ones(4), dtype).tobytes() == x.reshard(dist.spec("tp")).numpy().tobytes(), (dtype, op)


TEASER = r"""
import re, warnings
import numpy as np
from tessera import dist
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    # Create a 72-GPU mesh: 4 (dp) x 9 (tp) x 2 (pp)
    mesh = dist.mesh(
        devices=[f"cuda:{i}" for i in range(72)],
        axes=("dp","tp","pp"),
        shape=(4,9,2)
    )
    # Shard weights across tensor-parallel axis
    W = dist.tensor(
        shape=(8192, 8192),
        layout=dist.ShardSpec(partition=("col",), mesh_axes=("tp",)),
        mesh=mesh,
        dtype="fp8_e4m3",
        init=1.0
    )
codes = [str(w.message).partition(":")[0] for w in found]
widths = [W.local(r).shape[1] for r in range(0, 18, 2)]
assert widths == [911] * 8 + [904], widths
assert all(W.local(r).size == 8192 * widths[mesh.coords(r)[1]] and (W.local(r) == 1).all() for r in (0, 17, 71))
# Not `ru_maxrss`, which a process takes over from the one that started it.
print(codes, int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1]) // 1024)
"""


def test_the_array_of_the_teaser_takes_less_than_200_mb():
    """As printed; virtual devices, one warning, and all memory of the process."""
    done = subprocess.run([sys.executable, "-c", TEASER], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    codes, resident = done.stdout.rsplit(" ", 1)
    assert codes == "['W_VIRTUAL_DEVICE']"
    assert int(resident) < 200, f"{resident} MB"


def test_the_snippet_on_domains_runs_on_any_mesh():
    B, S, Dm = 6, 4, 5
    D = domain.Rect((B, S, Dm))
    how = ts.dist.Block(mesh_axes=("dp", "tp"))
    X = array.from_domain(D, dtype="bf16", distribution=how)
    assert X.mesh.shape == (1, 1) and X.local(0).shape == (6, 4, 5)
    with dist.mesh(6, ("dp", "tp"), (2, 3)) as mesh:
        X = ts.array.from_domain(D, dtype="bf16", distribution=how, fill=lambda index: index[0].start)
        assert X.mesh == mesh == dist.current_mesh() and X.placements == ("S(0)", "S(1)")
        assert [X.local(r).shape for r in range(6)] == [(3, 2, 5), (3, 2, 5), (3, 0, 5)] * 2
        assert np.array_equal(X.numpy()[:, 0, 0], [0, 0, 0, 3, 3, 3])
    assert dist.current_mesh() is None
    X = ts.array.from_domain(D, "i32", dist.Cyclic(("dp", None)), mesh, fill="ones")
    assert X.index(0) == (slice(0, 5, 2), slice(0, 4), slice(0, 5)) and X.numpy().sum() == 120
    assert (D.shape, D.rank, D.volume, D.numel, D == domain.Rect((6, 4, 5))) == ((6, 4, 5), 3, 120, 120, True)
    assert dist.Rect is domain.Rect and ts.ShardSpec is dist.ShardSpec and ts.Mapper is dist.Mapper


def test_meshes_are_values():
    mesh = dist.mesh(12, ("dp", "tp", "pp"), (2, 3, 2))
    assert mesh == dist.Mesh(12, ("dp", "tp", "pp"), (2, 3, 2)) and hash(mesh) == hash(dist.mesh(12, ("dp", "tp", "pp"), (2, 3, 2)))
    assert mesh != dist.mesh(12, ("dp", "tp", "pp"), (3, 2, 2))
    assert (mesh.axis_size("tp"), mesh.axis_size(("tp", "pp")), mesh.coords(11), mesh.rank((1, 2, 1))) == (3, 6, (1, 2, 1), 11)
    assert mesh.group("pp")[0] == (0, 1) and mesh.group(("pp", "tp"))[1] == (6, 8, 10, 7, 9, 11)
    part = mesh.at(pp=1)
    assert (part.axes, part.shape, part.size, part.parent == mesh, repr(part)) == (("dp", "tp"), (2, 3), 6, True, "Mesh(dp=2, tp=3) at {pp = 1}")
    assert pickle.loads(pickle.dumps(mesh)) == mesh and pickle.loads(pickle.dumps(part)) == part
    spec = dist.spec("dp", None, ("tp", "pp"), priority=2)
    assert pickle.loads(pickle.dumps(spec)) == spec
    with dist.mesh(["cpu:0"], ("dp",), (1,)) as one:
        assert not one.is_virtual and one.local_ranks == (0,)


def test_specs_are_equal_if_they_mean_the_same():
    spec = dist.ShardSpec
    assert spec(partition=("row", "col"), mesh_axes=("dp", "tp")) == spec(partition=(-1, -2), mesh_axes=("tp", "dp"), priority=3)
    assert spec(replicate=True) == spec() == dist.spec(None, None) and hash(spec()) == hash(dist.spec(None))
    assert spec(partition=("batch",), mesh_axes=("dp",), require_even=True) == dist.spec("dp")
    assert spec(reduce="sum", mesh_axes=("tp",)) == dist.spec(sum=("tp",)) != dist.spec(max=("tp",))
    assert spec(partition=(0,), mesh_axes=(("dp", "tp"),)) != spec(partition=(0,), mesh_axes=(("tp", "dp"),))
    assert dist.spec(dist.Block(("tp",))) == dist.spec("tp") != dist.spec(dist.Cyclic(("tp",))) == dist.spec(dist.BlockCyclic(("tp",), 1))
    mesh = dist.mesh(8, ("dp", "tp", "ep"), (2, 2, 2))
    assert dist.spec("dp", None, sum=("ep",)).placements(mesh, 2) == ("S(0)", "R", "P(sum)")
    assert repr(dist.spec("dp", None, ("tp", "ep"), priority=1)) == "ShardSpec([{dp}, {}, {tp, ep}] @1)"


def test_writing_and_parts():
    mesh = dist.mesh(6, ("dp", "tp"), (2, 3))
    x = dist.tensor((4, 7), dist.spec(None, "tp"), mesh, init=lambda index: np.arange(7, dtype=np.float32)[index[1]])
    parts = x.parts("tp")
    assert [p.shape for p in parts] == [(4, 3), (4, 3), (4, 1)] and parts[2].index == (slice(0, 4), slice(6, 7))
    parts[1][...] = 9
    assert np.array_equal(x.numpy()[0], [0, 1, 2, 9, 9, 9, 6]) and np.array_equal(parts[1], np.full((4, 3), 9))
    assert all((x.local(r) == 9).all() for r in (1, 4))
    x[...] = np.arange(28).reshape(4, 7)
    assert np.array_equal(np.asarray(x), np.arange(28, dtype=np.float32).reshape(4, 7))
    with pytest.raises(ValueError):
        x.local(0)[0, 0] = 1
    # Copies give one view for each coordinate; both axes give single blocks.
    assert len(dist.replicate(np.ones(3), mesh).parts("tp")) == 3
    y = dist.shard(np.arange(24).reshape(4, 6), dist.spec("dp", "tp"), mesh)
    assert [p.shape for p in y.parts(("dp", "tp"))] == [(2, 2)] * 6
    assert np.array_equal(y.parts("tp")[1].numpy(), np.arange(24).reshape(4, 6)[:, 2:4])
    y.parts("tp")[1][...] = -1
    assert (y.numpy()[:, 2:4] == -1).all() and (y.numpy() == -1).sum() == 8
    # Contributions: the value is what is written.
    z = dist.tensor((3,), dist.spec(sum=("tp",)), mesh, init=5.0)
    assert [z.local(r)[0] for r in range(3)] == [5.0, 0.0, 0.0] and np.signbit(z.local(1)).all()
    z[...] = 7
    assert np.array_equal(z.numpy(), [7, 7, 7])
    assert [p.numpy()[0] for p in z.parts("tp")] == [7.0, 0.0, 0.0]


def test_counts_of_collectives():
    mesh = dist.mesh(6, ("dp", "tp"), (2, 3))
    x = dist.shard(np.ones((6, 6), np.float32), dist.spec("dp", sum=("tp",)), mesh)
    with dist.count() as c:
        x.reshard(dist.spec())
        x.numpy()
    assert (c["all_gather"], c["all_reduce"], c["all_to_all"], c.launches) == (1, 1, 0, 0)
    assert c.nbytes == 6 * 6 * 4 + 3 * 6 * 4
    with dist.count() as c:
        dist.shard(np.ones((6, 6), np.float32), dist.spec("dp"), mesh).reshard(dist.spec(None, "dp"))
    assert [(e.kind, e.axes, e.size) for e in c.events] == [("all_to_all", ("dp",), 2)]


def test_pictures():
    mesh = dist.mesh(6, ("dp", "tp"), (2, 3))
    picture = dist.tensor((4, 7), dist.spec("dp", "tp"), mesh).draw()
    assert "0:3" in picture and "6:7" in picture and len(picture.splitlines()) == 8
    assert picture.svg().startswith("<svg") and picture.svg().count("<rect") == 6
    assert "sum 1: " in dist.tensor((4,), dist.spec(sum=("tp",)), mesh).draw()


def refused(code, text, call):
    with pytest.raises(ts.TesseraError) as found:
        call()
    assert found.value.code == code and text in found.value.message, found.value
    assert found.value.help and found.value.line is not None and found.value.file == __file__
    return found.value


def test_refusals_have_the_arithmetic_and_the_line():
    mesh = dist.mesh(72, ("dp", "tp", "pp"), (4, 9, 2))
    error = refused("E_MESH", "expected 4 × 9 × 2 = 72 devices, got 70 devices", lambda: dist.mesh([f"cuda:{i}" for i in range(70)], ("dp", "tp", "pp"), (4, 9, 2)))
    assert isinstance(error, ts.PlacementError) and isinstance(error, ValueError) and dist.PlacementError is ts.PlacementError
    refused("E_MESH", "named twice", lambda: dist.mesh(4, ("dp", "dp"), (2, 2)))
    refused("E_MESH", 'expected the name of a device', lambda: dist.mesh(["gpu0"], ("dp",), (1,)))
    refused("E_MESH", "from 0 to 71, got 72", lambda: mesh.coords(72))
    refused("E_MESH", "from 0 to 1, got 2", lambda: mesh.at(pp=2))
    refused("E_MESH", "got `ep`", lambda: mesh.axis_size("ep"))
    refused("E_MESH", "within (4, 9, 2)", lambda: mesh.rank((4, 0, 0)))
    x = dist.tensor((8, 8), dist.spec("dp"), mesh)
    refused("E_MESH", "got `ep`", lambda: x.parts("ep"))
    refused("E_PLACEMENT", "it has parts along `dp`", lambda: x.parts("tp"))
    refused("E_PLACEMENT", "got `ep`", lambda: dist.tensor((8, 8), dist.spec("ep"), mesh))
    refused("E_PLACEMENT", "used twice", lambda: x.reshard(dist.spec("dp", "dp")))
    refused("E_PLACEMENT", "expected a dim of an array with 2 dims, got 2", lambda: x.reshard(dist.spec(None, None, "dp")))
    refused("E_PLACEMENT", "got sum and max", lambda: dist.spec(sum=("dp",), max=("tp",)))
    refused("E_PLACEMENT", "got 2 for 1", lambda: dist.ShardSpec(partition=("row",), mesh_axes=("dp", "tp")))
    refused("E_PLACEMENT", "expected an operator", lambda: dist.ShardSpec(reduce="mean", mesh_axes=("dp",)))
    refused("E_PLACEMENT", "3 axes for 2 dims", lambda: array.from_domain(domain.Rect((2, 2)), "f32", dist.Block(("dp", "tp", "pp")), mesh))
    refused("E_PLACEMENT", "expected the mesh of the array", lambda: dist.shard(x, dist.spec(), dist.mesh(2, ("dp",), (2,))))
    refused("E_PLACEMENT", "expected equal copies on the ranks 0 and 1", lambda: dist.from_local([np.zeros(2), np.ones(2)], dist.spec(), dist.mesh(2, ("dp",), (2,))))
    even = dist.ShardSpec(partition=("col",), mesh_axes=("tp",), require_even=True)
    refused("E_UNEVEN", "8192 elements of dim 1 over tp=9: 8 × 911 + 904", lambda: dist.tensor((8192, 8192), even, mesh))
    refused("E_TYPE", "expected a tuple of mesh axes, got 'dp'", lambda: dist.Block("dp"))
    refused("E_SHAPE_MISMATCH", "expected a block of shape (2,) on rank 0, got (3,)", lambda: dist.from_local([np.zeros(3)] * 4, dist.spec("dp"), dist.mesh(4, ("dp",), (4,)), shape=(8,)))
    refused("E_SHAPE_MISMATCH", "expected a value of shape (8, 8), got (3,)", lambda: x.__setitem__(..., np.ones(3)))
    refused("E_UNSUPPORTED", "expected `x[...] = value`", lambda: x.__setitem__(0, 1))
    refused("E_UNSUPPORTED", "an element to itself", lambda: dist.tensor((8,), None, mesh, dtype="fp4 @packed"))
    refused("E_TYPE", "expected a distribution", lambda: array.from_domain(domain.Rect((2,)), "f32", dist.spec("dp")))
    assert not np.any(x.numpy())


def test_warnings_come_once():
    with pytest.warns(ts.TesseraWarning, match=r"W_VIRTUAL_DEVICE: .* lacks 2 devices of the mesh \(cuda:900 to cuda:901\)"):
        mesh = dist.mesh(["cuda:900", "cuda:901"], ("dp",), (2,))
    assert mesh.is_virtual
    nine, spec = dist.mesh(9, ("uneven",), (9,)), dist.spec("uneven")
    with pytest.warns(ts.TesseraWarning, match=r"W_UNEVEN: the largest block is 80 % above the mean \(10 over uneven=9: 5 × 2 \+ 4 × 0\)"):
        dist.tensor((10,), spec, nine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.tensor((10,), spec, nine)
        dist.tensor((8192,), spec, nine)
