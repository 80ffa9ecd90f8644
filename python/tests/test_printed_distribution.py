"""What the overview and the guide print about meshes, domains, regions, launches, collectives and mappers, as they print it."""

import numpy as np
import pytest

import tessera
import tessera as ts

MAPPER = '''\
class MyMapper(tessera.Mapper):
    def place(self, region, mesh):
        if region.axis == "tp":
            return "local_switch"
    def choose_collective(self, kind, size):
        return "sharp_ring" if size <= 72 else "tree"
    def choose_variant(self, op, arch):
        return "tile_ir" if arch.is_blackwell else "ptx"

tessera.runtime.set_mapper(MyMapper())
'''
DOMAIN = '''\
D = tessera.domain.Rect((B, S, Dm))
dist = tessera.dist.Block(mesh_axes=("dp","tp"))
X = tessera.array.from_domain(D, dtype="bf16", distribution=dist)
'''
LAUNCH = '''\
tessera.index_launch(axis="tp")(gemm_tile)(A.parts("tp"), B.parts("tp"), C.parts("tp"))
'''
MESH_OF_72 = '''\
from tessera import dist

# Create a 72-GPU mesh: 4 (dp) × 9 (tp) × 2 (pp)
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
    dtype="fp8_e4m3"
)
'''
MESH_OF_8 = '''\
# Create mesh for distributed execution
mesh = ts.dist.mesh(
    devices=[f"cuda:{i}" for i in range(8)],
    axes=("dp", "tp"),  # Data parallel and tensor parallel
    shape=(4, 2)        # 4-way DP, 2-way TP
)

# Distributed tensor with sharding
W = ts.dist.tensor(
    shape=(8192, 8192),
    layout=ts.ShardSpec(partition=("col",), mesh_axes=("tp",)),
    mesh=mesh,
    dtype="bf16 @accum(f32)"  # BF16 storage, FP32 accumulation
)
'''
virtual = pytest.mark.filterwarnings("ignore:W_VIRTUAL_DEVICE", "ignore:W_UNEVEN")


def run(text, **names):
    """The names that a text leaves behind."""
    names.update(tessera=tessera, ts=ts)
    exec(compile(text, "printed", "exec"), names)
    return names


@ts.kernel
def gemm_tile(
    A: ts.Region[ts.read, ts.Tensor["M", "K", ts.f32]], B: ts.Region[ts.read, ts.Tensor["K", "N", ts.f32]], C: ts.Region[ts.write, ts.Tensor["M", "N", ts.f32]]
):
    j = ts.tile.linear_id()
    if j < N:
        for i in range(M):
            acc = 0.0
            for k in range(K):
                acc = acc + A[i, k] * B[k, j]
            C[i, j] = acc
    return C


def test_the_mapper():
    before = ts.runtime.set_mapper(None)
    try:
        made = run(MAPPER)
        mapper = ts.runtime.set_mapper(None)
        assert mapper == mapper and type(mapper.mapper).__name__ == "MyMapper" and isinstance(mapper.mapper, ts.Mapper)
        with ts.runtime.set_mapper(ts.dist.RecordingMapper(made["MyMapper"]())) as previous:
            assert previous is None
        recording = ts.dist.RecordingMapper(made["MyMapper"]())
        with ts.numerics.profile("deterministic"), ts.runtime.set_mapper(recording):
            x = ts.dist.shard(np.arange(146, dtype=np.float32), ts.dist.spec("tp"), ts.dist.mesh(73, ("tp",), (73,)))
            got = x.reshard(None).numpy()
        assert np.array_equal(got, np.arange(146))
        assert [(r["method"], r["answer"]) for r in recording.log] == [("place", "local_switch"), ("choose_collective", "tree")]
    finally:
        ts.runtime.set_mapper(before)


@pytest.mark.filterwarnings("ignore:W_UNEVEN")
@pytest.mark.parametrize("ranks", [None, (1, 1), (2, 3), (3, 2), (4, 9)])
def test_domains_and_distributions(ranks):
    """On one device, and under a mesh that is ambient."""
    sizes = dict(B=6, S=10, Dm=5)
    if ranks is None:
        made = run(DOMAIN, **sizes)
        assert made["X"].mesh.shape == (1, 1)
    else:
        with ts.dist.mesh(ranks[0] * ranks[1], ("dp", "tp"), ranks) as mesh:
            made = run(DOMAIN, **sizes)
        assert made["X"].mesh == mesh and made["X"].local(0).shape == (-(-6 // ranks[0]), -(-10 // ranks[1]), 5)
    X = made["X"]
    assert X.shape == (6, 10, 5) and X.dtype == ts.bf16 and X.placements == ("S(0)", "S(1)") and not np.any(X.numpy())


@pytest.mark.filterwarnings("ignore:W_UNEVEN")
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_launches_over_parts(ranks):
    """Columns of B and C are dealt, A is everywhere."""
    rng = np.random.default_rng(ranks)
    a, b = rng.standard_normal((4, 7)).astype(np.float32), rng.standard_normal((7, 11)).astype(np.float32)
    mesh, columns = ts.dist.mesh(ranks, ("tp",), (ranks,)), ts.dist.spec(None, "tp")
    A, B, C = ts.dist.replicate(a, mesh), ts.dist.shard(b, columns, mesh), ts.dist.tensor((4, 11), columns, mesh)
    run(LAUNCH, gemm_tile=gemm_tile, A=A, B=B, C=C)
    np.testing.assert_allclose(C.numpy(), a @ b, atol=1e-5)


@virtual
def test_the_mesh_of_72():
    made = run(MESH_OF_72)
    W = made["W"]
    assert [W.local(r).shape[1] for r in range(0, 18, 2)] == [911] * 8 + [904] and W.local(0).shape[0] == 8192
    assert W.placements == ("R", "S(1)", "R") and W.local(0).nbytes == 8192 * 911


@virtual
def test_the_mesh_of_8():
    W = run(MESH_OF_8)["W"]
    assert W.local(7).shape == (8192, 4096) and W.placements == ("R", "S(1)") and "accum" in str(W.dtype)


def test_the_table_of_the_overview():
    """Its cells on distribution: `ShardSpec(…)`, `def step(W: Region[read], Y: Region[write])`, `all_gather(y_local, axis="tp")`."""
    from tessera import Region, ShardSpec, dist, read, write
    all_gather = ts.collective.all_gather

    @ts.kernel
    def step(W: Region[read], Y: Region[write]):
        i = ts.tile.linear_id()
        if i < W.shape[0]:
            Y[i] = 2 * W[i]

    mesh = dist.mesh(3, ("tp",), (3,))
    W = dist.shard(np.arange(6, dtype=np.float32), ShardSpec(partition=("batch",), mesh_axes=("tp",)), mesh)
    Y = dist.tensor((6,), dist.spec("tp"), mesh)
    tessera.index_launch(axis="tp")(step)(W, Y)
    assert np.array_equal(Y.numpy(), 2 * np.arange(6))
    assert dist.tensor((6, 2), ShardSpec(partition=("row",), mesh_axes=("tp",)), mesh).placements == ("S(0)",)
    assert np.array_equal(all_gather(Y, axis="tp").local(2), Y.numpy())
    gathered = dist.shard_map(lambda y_local: all_gather(y_local, axis="tp"), mesh, dist.spec("tp"), None)
    assert np.array_equal(gathered(Y).numpy(), Y.numpy())


def test_privileges_are_enforced_where_a_kernel_is_written_and_where_it_is_called():
    with pytest.raises(ts.PrivilegeError) as found:

        @ts.kernel
        def writes(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]]):
            x[ts.tile.linear_id()] = 1.0

    assert found.value.code == "E_PRIVILEGE" and found.value.file == __file__
    with pytest.raises(ts.PrivilegeError) as found:

        @ts.kernel
        def reads(x: ts.Region[ts.write, ts.Tensor["n", ts.f32]], y: ts.Region[ts.write, ts.Tensor["n", ts.f32]]):
            y[ts.tile.linear_id()] = x[ts.tile.linear_id()]

    assert found.value.code == "E_PRIVILEGE" and found.value.file == __file__

    @ts.kernel
    def both(x: ts.Region[ts.write, ts.Tensor["n", ts.f32]], y: ts.Region[ts.write, ts.Tensor["n", ts.f32]]):
        i = ts.tile.linear_id()
        if i < n:
            x[i] = 1.0
            y[i] = 2.0

    one = np.zeros(4, np.float32)
    with pytest.raises(ts.PrivilegeError) as found:
        both(one, one)
    assert found.value.code == "E_PRIVILEGE" and not one.any()
    x = ts.dist.tensor((4,), ts.dist.spec("tp"), ts.dist.mesh(2, ("tp",), (2,)))
    with pytest.raises(ts.PrivilegeError) as found:
        ts.index_launch("tp")(both)(x, x)
    assert found.value.code == "E_PRIVILEGE" and "`x`" in found.value.message and "`y`" in found.value.message and not x.numpy().any()
