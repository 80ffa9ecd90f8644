"""A program that `test_processes.py` runs in one, two, three and four processes: every value that it computes goes into a file. Its arguments are
that file and a seed."""

import sys
import warnings

import numpy as np

import tessera as ts
from tessera import collective, dist, xp

warnings.simplefilter("ignore")  # Blocks are uneven on purpose.
out = {}
# Under `default` one process computes small programs as one function, and may round otherwise.
ts.numerics.profile("deterministic")
rng = np.random.default_rng(3)
a, b = (rng.standard_normal((10, 12)).astype("f4") for _ in range(2))
mesh = dist.mesh(4, ("dp", "tp"), (2, 2))
each = -(-4 // dist.world_size())
assert mesh.local_ranks == tuple(range(4))[dist.rank() * each : (dist.rank() + 1) * each]
specs = [dist.spec(), dist.spec("dp"), dist.spec("dp", "tp"), dist.spec(None, ("tp", "dp")), dist.spec("tp")]
# A value and its blocks in every placement, from every other.
x = dist.shard(a, specs[1], mesh)
for first in specs:
    for second in specs:
        x = x.reshard(first).reshard(second)
        for rank in mesh.local_ranks:
            assert (x.local(rank) == a[x.index(rank)]).all()
    assert (x.full() == a).all()
for rank in set(range(4)) - set(mesh.local_ranks):
    try:
        x.local(rank)
    except dist.PlacementError as error:
        assert error.code == "E_NOT_ADDRESSABLE"
# Values whose blocks are all here need no other process; others are an error, and no message.
if mesh.local_ranks:
    assert (dist.shard(a, dist.spec(), mesh).numpy() == a).all()
if set(range(4)) - set(mesh.local_ranks):
    rows = x.reshard(dist.spec("dp"))
    for ask in (lambda: rows.numpy(), lambda: np.asarray(rows), lambda: np.sum(rows)):
        try:
            ask()
        except dist.PlacementError as error:
            assert error.code == "E_NOT_ADDRESSABLE", error
        else:
            raise AssertionError("expected E_NOT_ADDRESSABLE")
# Uneven blocks, cycles, functions of positions, and writes.
odd = dist.tensor((7, 5), dist.spec(("dp", "tp")), mesh, init=lambda index: np.arange(35.0).reshape(7, 5)[index])
out["odd"] = odd.reshard(dist.spec(None, "tp")).full()
cyclic = dist.shard(a, dist.ShardSpec(partition=(0,), mesh_axes=(dist.BlockCyclic(("dp",), 2),)), mesh)
out["cyclic"] = cyclic.reshard(dist.spec("tp")).full()
odd[...] = 3.0
out["written"] = odd.full()
# Contributions, of which each rank has its own.
parts = dist.from_local(lambda rank: np.full((4, 3), 10.0**rank, "f4"), dist.spec(sum=("dp", "tp")), mesh, (4, 3), "f32")
out["all_reduce"] = collective.all_reduce(parts, ("dp", "tp")).full()
out["one_axis"] = collective.all_reduce(parts, "tp").full()
out["reduce_scatter"] = collective.reduce_scatter(parts, "dp").full()
y = dist.shard(b, dist.spec("dp"), mesh)
out["all_gather"] = collective.all_gather(y, "dp").full()
out["all_to_all"] = collective.all_to_all(y, "dp", 1).full()
futures = [collective.all_gather_async(y, "dp"), collective.all_reduce_async(parts, "tp")]
out["async"] = futures[1].wait().full()
assert (futures[0].wait().full() == b).all()
dist.barrier(mesh)
# Operators, functions that run immediately, and a jitted training step.
out["sum"] = (x + y).full()
out["product"] = (y @ dist.shard(a.T, dist.spec(None, "tp"), mesh)).full()
whole = dist.shard(np.float32([2.5]), dist.spec(), mesh)
assert not mesh.local_ranks or float(whole) == 2.5


@ts.jit
def step(w, v, batch):
    def loss(w, v):
        return xp.mean(xp.tanh(batch @ w) @ v)

    value, (dw, dv) = ts.value_and_grad(loss, argnums=(0, 1))(w, v)
    return value, w - 0.1 * dw, v - 0.1 * dv


w = dist.shard(rng.standard_normal((12, 8)).astype("f4"), dist.spec(None, "tp"), mesh)
v = dist.shard(rng.standard_normal((8, 1)).astype("f4"), dist.spec("tp"), mesh)
batch = dist.shard(rng.standard_normal((8, 12)).astype("f4"), dist.spec("dp"), mesh)
for round in range(3):
    value, w, v = step(w, v, batch)
    out[f"loss{round}"] = value.full()
out["w"], out["v"] = w.full(), v.full()
assert w.spec == dist.spec(None, "tp")


# Programs of one rank.
def neighbours(x):
    n = dist.axis_size("dp")
    gathered = collective.all_gather(collective.all_reduce(x * 2.0, "tp"), "dp")
    return collective.permute(x, "dp", [(i, (i + 1) % n) for i in range(n)]) + dist.axis_index("dp"), gathered


moved, gathered = dist.shard_map(neighbours, mesh, in_specs=dist.spec("dp"), out_specs=(dist.spec("dp"), dist.spec()))(y)
out["permute"], out["gathered"] = moved.full(), gathered.full()
both = ts.jit(dist.shard_map(lambda x: collective.broadcast(x, "tp", root=1), mesh, in_specs=dist.spec("dp", "tp"), out_specs=dist.spec("dp")))
out["broadcast"] = both(dist.shard(a, dist.spec("dp", "tp"), mesh)).full()
# A mesh with more ranks than the processes divide.
many = dist.mesh(9, ("dp",), (9,))
z = dist.shard(np.arange(27.0, dtype="f4"), dist.spec("dp"), many)
out["many"] = dist.shard_map(lambda x: collective.all_reduce(x, "dp"), many, in_specs=dist.spec("dp"), out_specs=dist.spec())(z).full()
# Random functions of arrays in random placements, immediate and jitted.
rng = np.random.default_rng(int(sys.argv[2]))
specs = [dist.spec(), dist.spec("dp"), dist.spec("tp", "dp"), dist.spec(None, "tp"), dist.spec(("dp", "tp")), dist.spec(None, ("tp", "dp"))]
arrays = [dist.shard(rng.standard_normal((8, 8)).astype("f4"), specs[i], mesh) for i in range(4)]
functions = [
    lambda a, b: a * b - a,
    lambda a, b: xp.tanh(a @ b),
    lambda a, b: a - xp.mean(b, axis=0, keepdims=True),
    lambda a, b: xp.transpose(xp.maximum(a, b)),
    lambda a, b: xp.concatenate([a[:4], b[4:]]),
    lambda a, b: xp.sort(a, axis=1),
    lambda a, b: xp.cumsum(a, axis=0) * 0.1,
    lambda a, b: ts.grad(lambda u: xp.sum(xp.tanh(u @ b)))(a),
    lambda a, b: ts.vmap(lambda u: xp.sum(u) * xp.exp(-u * u))(a),
]
jitted = [ts.jit(f) for f in functions]
for round in range(25):
    which, is_jitted = rng.integers(len(functions)), rng.integers(2)
    first, second = (arrays[i] for i in rng.integers(0, 4, 2))
    made = (jitted if is_jitted else functions)[which](first, second)
    spec = specs[rng.integers(len(specs))]
    arrays[rng.integers(4)] = made = made.reshard(spec) if rng.integers(2) else made
    out[f"{round}: function {which}"] = made.full()
if dist.rank() == 0:
    np.savez(sys.argv[1], **out)
