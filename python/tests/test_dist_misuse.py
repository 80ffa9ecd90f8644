"""What users of meshes may get wrong: each is refused with a code, at their line, before anything is written."""

import asyncio
import copy
import json
import pickle
import threading
import warnings

import numpy as np
import pytest

import tessera as ts
from tessera import array, dist, domain, index_launch


@ts.kernel
def axpy(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], y: ts.Tensor["n", ts.f32], a: ts.f32):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = a * x[i] + y[i]
    return y


@ts.kernel
def positive(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], y: ts.Region[ts.write, ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    if i < n:
        assert x[i] > 0.0
        y[i] = x[i]


@pytest.fixture
def mesh():
    return dist.mesh(6, ("dp", "tp"), (2, 3))


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ts.TesseraWarning)
        yield


def refused(code, text, call):
    with pytest.raises(ts.TesseraError) as found:
        call()
    assert found.value.code == code and text in found.value.message, found.value
    assert found.value.help and found.value.file == __file__ and found.value.line


def test_meshes_of_nothing_that_is_one():
    make = dist.mesh
    refused("E_MESH", "expected at least 1 device, got -1", lambda: make(-1, ("a",), (1,)))
    refused("E_TYPE", "expected a count or a list of devices, got 2.5", lambda: make(2.5, ("a",), (1,)))
    refused("E_TYPE", "expected a count or a list of devices, got 'cpu:0'", lambda: make("cpu:0", ("a",), (1,)))
    refused("E_TYPE", "expected a count or a list of devices, got None", lambda: make(None, ("a",), (1,)))
    refused("E_TYPE", "expected a tuple of names as `axes`, got None", lambda: make(1, None, (1,)))
    refused("E_TYPE", "expected a tuple of names as `axes`, got (3,)", lambda: make(1, (3,), (1,)))
    refused("E_MESH", "expected extents of at least 1, got None", lambda: make(1, ("a",), None))
    refused("E_MESH", "expected extents of at least 1, got (2.0,)", lambda: make(2, ("a",), (2.0,)))
    refused("E_MESH", f"got ({2**64},)", lambda: make(1, ("a",), (2**64,)))
    refused("E_MESH", "expected at most 1048576 ranks", lambda: make(2**62, ("a",), (2**62,)))
    refused("E_MESH", "expected 2 × 3 = 6 devices, got 1 device", lambda: make(1, ("a", "b"), (2, 3)))


def test_questions_that_a_mesh_cannot_answer(mesh):
    for rank in (-1, 6, "x", 1.5, None, True):
        refused("E_MESH", f"expected a rank from 0 to 5, got {rank!r}", lambda rank=rank: mesh.coords(rank))
    for coords in (3, "ab", (1,), (1.0, 2.0), (2, 0), None):
        refused("E_MESH", "expected coordinates within (2, 3)", lambda coords=coords: mesh.rank(coords))
    for axis in (3, None, ("dp", 3), ()):
        refused("E_TYPE", "expected the name of a mesh axis", lambda axis=axis: mesh.group(axis))
        refused("E_TYPE", "expected the name of a mesh axis", lambda axis=axis: mesh.axis_size(axis))
    refused("E_MESH", "the axis `dp` is named twice", lambda: mesh.group(("dp", "dp")))
    refused("E_MESH", "the axis `dp` is named twice", lambda: mesh.axis_size(("dp", "dp")))
    refused("E_MESH", "expected a coordinate of `dp` as a number, got 'x'", lambda: mesh.at(dp="x"))
    refused("E_MESH", "expected a coordinate of `dp` as a number", lambda: mesh.at(dp=2**70))
    refused("E_MESH", "`dp` is fixed in this part of the mesh", lambda: mesh.at(dp=0).at(dp=1))


def test_a_mesh_of_a_million_ranks_is_a_mesh():
    big = dist.mesh(2**20, ("a", "b"), (2**10, 2**10))
    assert big.size == 2**20 and big.coords(2**20 - 1) == (1023, 1023) and big == dist.mesh(2**20, ("a", "b"), (2**10, 2**10))
    assert big != dist.mesh(2**20, ("a", "b"), (2**11, 2**9)) and hash(big) == hash(pickle.loads(pickle.dumps(big)))
    x = dist.tensor((5, 3000), dist.spec(None, "b"), big.at(a=7), init=lambda at: np.arange(3000)[at[1]])
    assert np.array_equal(x.numpy()[4], np.arange(3000)) and x.local(1000).shape == (5, 0)
    with pytest.raises(ts.PlacementError, match="from 0 to 1048575"):
        big.coords(2**20)


def test_specs_and_domains_that_are_none(mesh):
    spec = dist.ShardSpec
    refused("E_TYPE", "expected a tuple as `mesh_axes`, got None", lambda: spec(partition=("col",), mesh_axes=None))
    refused("E_TYPE", "expected a tuple as `partition`, got 3", lambda: spec(partition=3, mesh_axes=("tp",)))
    refused("E_TYPE", "expected a dim as a number or a name", lambda: spec(partition=(2**70,), mesh_axes=("tp",)))
    refused("E_TYPE", "expected the name of a mesh axis", lambda: spec(reduce="sum", reduce_axes=(3,)))
    refused("E_TYPE", "expected a mesh, got None", lambda: dist.spec("dp").placements(None, 1))
    refused("E_PLACEMENT", "expected a dim of an array with 0 dims", lambda: dist.tensor((), dist.spec("dp"), mesh))
    for axes in (None, 3, (3,), (("dp", 4),)):
        refused("E_TYPE", "expected", lambda axes=axes: dist.Block(axes))
    refused("E_PLACEMENT", "expected a block of at least one element", lambda: dist.BlockCyclic(("tp",), 2**80))
    assert dist.BlockCyclic(("tp",), np.int64(2)) == dist.BlockCyclic(("tp",), 2)
    for dims in (None, "ab", (2.0,), (), (0, 3), (-1,), (2**70,)):
        refused("E_SHAPE_MISMATCH", "expected extents ", lambda dims=dims: domain.Rect(dims))
    for shape in (None, "ab", (-1,), (2.5,), (2**70,)):
        refused("E_SHAPE_MISMATCH", "expected extents ", lambda shape=shape: dist.tensor(shape, None, mesh))


def test_arrays_that_do_not_fit(mesh):
    refused("E_TYPE", "expected blocks of one dtype, got float32 on rank 0 and int32 on rank 1",
            lambda: dist.from_local([np.ones(2, np.float32), np.ones(2, np.int32)], dist.spec("a"), dist.mesh(2, ("a",), (2,))))  # fmt: skip
    refused("E_TYPE", "expected a list of blocks", lambda: dist.from_local(None, None, mesh))
    assert dist.from_local([np.ones(2)], dist.Block(("dp",))).mesh.axes == ("dp",)
    x = dist.tensor((4, 6), dist.spec("dp", "tp"), mesh, init=1)
    for axis in (None, 0, (), ("dp", 1)):
        refused("E_TYPE", "expected the name of a mesh axis", lambda axis=axis: x.parts(axis))
    for question in (bool, int, float):
        refused("E_PLACEMENT", "expected one element that every rank has", lambda question=question: question(x))
        assert question(dist.replicate(3, mesh)) == question(3)
    for other in (None, "a", [1, 2], {}):
        with pytest.raises(TypeError):
            x + other
    with pytest.raises(ValueError, match="makes a copy"):
        np.asarray(x, copy=False)
    assert {x: 1}[x] == 1 and np.asarray(x, dtype="i4").dtype == np.int32


def test_copies_are_arrays_of_their_own(mesh):
    x = dist.shard(np.arange(24.0).reshape(4, 6), dist.spec("dp", sum=("tp",)), mesh)
    for made in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x))):
        assert made.mesh == mesh and made.spec == x.spec and np.array_equal(made.numpy(), x.numpy())
        made[...] = 0
        assert x.numpy()[3, 5] == 23


def test_one_wrong_part_stops_the_launch_before_any_task_runs(mesh):
    """The last task alone does not fit, and the first have written nothing."""
    launch = index_launch("tp")(axpy)
    x, y = dist.tensor((6,), dist.spec("tp"), mesh, init=1), dist.tensor((6,), dist.spec("tp"), mesh)
    odd = dist.tensor((7,), dist.spec(dist.BlockCyclic(("tp",), 2)), mesh, init=1)  # 3 + 2 + 2

    def part(code, call, rank):
        with pytest.raises(ts.TesseraError) as found:
            call()
        assert found.value.code == code and f"part (tp={rank}), rank {rank}" in str(found.value), found.value
        assert __file__ in str(found.value)
        dist.wait()
        assert not y.numpy().any()

    assert [p.shape for p in odd.parts("tp")] == [(3,), (2,), (2,)]
    part("E_LAUNCH_INVALID_SHAPE", lambda: launch(odd.parts("tp")[::-1], y, 1.0), 2)
    part("E_ARGUMENT", lambda: launch(x, y), 0)
    part("E_ARGUMENT", lambda: launch(None, y, 1.0), 0)
    part("E_ARGUMENT", lambda: launch((p for p in x.parts("tp")), y, 1.0), 0)
    part("E_TYPE", lambda: launch(dist.tensor((6,), dist.spec("tp"), mesh, "f64"), y, 1.0), 0)
    part("E_LAUNCH_INVALID_SHAPE", lambda: launch(dist.tensor((6, 1), dist.spec("tp"), mesh), y, 1.0), 0)
    part("E_LAUNCH_GEOMETRY", lambda: launch(x, y, 1.0, grid="a"), 0)
    refused("E_TYPE", "expected the name of a mesh axis", lambda: index_launch(()))
    refused("E_TYPE", "expected the name of a mesh axis", lambda: index_launch(None))
    refused("E_TYPE", "expected a mesh, got str", lambda: index_launch("tp", "mesh"))
    launch(x, y, 2.0)
    assert (y.numpy() == 2).all()


def test_reading_what_a_failed_task_should_have_written_raises_its_error(mesh):
    """Also when the task has ended long before, and when another array is read."""
    x, y = dist.shard(np.array([1, -1, 1], np.float32), dist.spec("tp"), mesh), dist.tensor((3,), dist.spec("tp"), mesh)
    from tessera.dist._tasks import TASKS

    for read in (lambda: y.numpy(), lambda: y.local(0), lambda: y.parts("tp")[0].numpy(), lambda: x.reshard(None), lambda: y.__setitem__(..., 1)):
        index_launch("tp")(positive)(x, y)
        while len(TASKS):
            pass
        with pytest.raises(ts.CheckError, match="part \\(tp=1\\), rank 1"):
            read()
        dist.wait()


def test_ambient_meshes_of_threads_and_tasks():
    """One mesh object is entered by several threads together, and left in another order."""
    shared, failures = dist.mesh(3, ("tp",), (3,)), []
    both = threading.Barrier(4, timeout=20)

    def work(i):
        try:
            assert dist.current_mesh() is None
            with shared:
                both.wait()
                with dist.mesh(2, ("dp",), (2,)) as inner:
                    assert dist.current_mesh() is inner
                    both.wait()
                assert dist.current_mesh() is shared
                x, y = (dist.tensor((6,), dist.spec("tp"), init=v) for v in (1, 0))
                for _ in range(10):
                    index_launch("tp")(axpy)(x, y, 1.0)
                assert (y.numpy() == 10).all()
            assert dist.current_mesh() is None
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures, failures

    async def one(i):
        with dist.mesh(i + 1, ("tp",), (i + 1,)) as mine:
            await asyncio.sleep(0.01 * (3 - i))
            assert dist.current_mesh() is mine

    async def all_of_them():
        await asyncio.gather(*(one(i) for i in range(3)))

    asyncio.run(all_of_them())


def test_launches_of_several_threads_on_one_array(mesh):
    x, total = dist.tensor((6,), dist.spec("tp"), mesh, init=1), dist.tensor((6,), dist.spec("tp"), mesh)
    launch = index_launch("tp")(axpy)
    threads = [threading.Thread(target=lambda: [launch(x, total, 1.0) for _ in range(40)]) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert (total.numpy() == 160).all()


def test_mappers_that_are_none(tmp_path):
    refused("E_TYPE", "expected a mapper, got 3", lambda: ts.runtime.set_mapper(3))
    refused("E_MAPPER", "expected the log of a `RecordingMapper`, got the row {'x': 1}", lambda: dist.ReplayMapper([{"x": 1}]))
    refused("E_MAPPER", "got NoneType in place of a list", lambda: dist.ReplayMapper(None))
    (tmp_path / "log").write_text("{")
    refused("E_MAPPER", "got no JSON", lambda: dist.ReplayMapper(tmp_path / "log"))
    (tmp_path / "log").write_text(json.dumps([]))
    assert dist.ReplayMapper(str(tmp_path / "log")) is not None and ts.runtime.set_mapper(None) == None  # noqa: E711


def test_extents_that_64_bits_hold_and_their_product_does_not(mesh):
    """The elements and bytes are counted without overflow."""
    refused("E_OOM", f"{2**82} bytes", lambda: dist.tensor((2**40, 2**40), None, mesh))


def test_arrays_of_no_elements(mesh):
    for shape, spec in (((0,), dist.spec("tp")), ((0, 5), dist.spec("dp", "tp")), ((3, 0), dist.spec("tp", sum=("dp",)))):
        x = dist.tensor(shape, spec, mesh)
        assert x.numpy().shape == shape and x.reshard(None).local(5).shape == shape and "a cell lists the ranks" in x.draw()
        if x.ndim == 1:
            assert len(index_launch("tp")(axpy)(x, dist.tensor(shape, spec, mesh), 1.0)) == 3
    dist.wait()
    assert array.from_domain(domain.Rect(1), "f32", dist.Block(("dp",)), mesh).local(5).shape == (0,)
