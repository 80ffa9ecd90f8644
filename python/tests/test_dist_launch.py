"""Index launches against their sequential execution, privileges, failures, and mappers."""

import itertools
import os
import random
import threading
import time
import warnings

import numpy as np
import pytest

import tessera as ts
from tessera import _core, dist, index_launch

SEED = int(os.environ.get("TESSERA_FUZZ_SEED") or time.time() // 86400)
SECONDS = float(os.environ.get("TESSERA_FUZZ_SECONDS") or 0)
PROGRAMS = int(os.environ.get("TESSERA_FUZZ_PROGRAMS") or 150)


@ts.kernel
def gemm_tile(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Tensor["M", "N", ts.f32]):
    m, n = ts.tile.program_id(0), ts.tile.program_id(1)
    acc = ts.tile.zeros((16, 16), ts.f32)
    for k in range(0, K, 16):
        acc = ts.tile.mma(A[m * 16 : m * 16 + 16, k : k + 16], B[k : k + 16, n * 16 : n * 16 + 16], acc)
    C[m * 16 : m * 16 + 16, n * 16 : n * 16 + 16] = acc
    return C


@ts.kernel
def axpy(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], y: ts.Tensor["n", ts.f32], a: ts.f32):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = a * x[i] + y[i]
    return y


@ts.kernel
def copy(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], y: ts.Region[ts.write, ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i]
    return y


@ts.kernel
def add_up(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], total: ts.Region[ts.reduce_sum, ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    if i < n:
        total[i] += x[i]
    return total


@ts.kernel
def largest(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], top: ts.Region[ts.reduce_max, ts.Tensor["n", ts.f32]]):
    i = ts.tile.grid(ts.cdiv(n, 8)) * 8
    ts.tile.accumulate(top[i : i + 8], x[i : i + 8])
    return top


@ts.kernel
def column_sums(x: ts.Region[ts.read, ts.Tensor["m", "n", ts.f32]], total: ts.Region[ts.reduce_sum, ts.Tensor["n", ts.f32]]):
    j = ts.tile.linear_id()
    if j < n:
        s = 0.0
        for r in range(m):
            s = s + x[r, j]
        total[j] += s
    return total


@ts.kernel
def positive(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], y: ts.Region[ts.write, ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    if i < n:
        assert x[i] > 0.0
        y[i] = x[i]
    return y


def test_the_snippet_of_the_guide():
    """tessera.index_launch(axis="tp")(gemm_tile)(A.parts("tp"), B.parts("tp"), C.parts("tp")) on an ambient, an explicit and the unit mesh."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((32, 32)).astype(np.float32) for _ in range(2))
    for mesh in (dist.mesh(2, ("tp",), (2,)), None):
        A = dist.shard(a, dist.spec(), mesh)
        if mesh is None:
            A = dist.shard(a, dist.spec(None, None, sum=()), dist.mesh(1, ("tp",), (1,)))
        B, C = dist.shard(b, dist.spec(None, "tp"), A.mesh), dist.tensor((32, 32), dist.spec(None, "tp"), A.mesh)
        with A.mesh:
            parts = index_launch(axis="tp")(gemm_tile)(A.parts("tp"), B.parts("tp"), C.parts("tp"), grid=(2, 2 // A.mesh.size))
        assert len(parts) == A.mesh.size and [p.coords for p in parts] == [(i,) for i in range(A.mesh.size)]
        assert np.allclose(C.numpy(), a @ b, atol=1e-4)
    X = ts.array.from_domain(ts.domain.Rect((7,)), "f32", dist.Block(("tp",)), fill="ones")
    Y = ts.array.from_domain(ts.domain.Rect((7,)), "f32", dist.Block(("tp",)))
    index_launch(axis="tp")(axpy)(X.parts("tp"), Y, 2.0)
    assert np.array_equal(Y.numpy(), np.full(7, 2.0))


@pytest.mark.parametrize("how", [dist.Block, dist.Cyclic, lambda axes: dist.BlockCyclic(axes, 3)])
def test_parts_of_any_distribution_are_arguments(how, backend):
    mesh = dist.mesh(5, ("tp",), (5,))
    x = ts.array.from_domain(ts.domain.Rect((23,)), "f32", how(("tp",)), mesh, fill=lambda i: np.arange(23, dtype=np.float32)[i])
    y = ts.array.from_domain(ts.domain.Rect((23,)), "f32", how(("tp",)), mesh)
    index_launch("tp")(axpy)(x, y, 3.0)
    assert np.array_equal(y.numpy(), 3 * np.arange(23))


def a_program(rng):
    """Launches over arrays whose values are small whole numbers: sums of any order are exact."""
    return [(rng.choice(["axpy", "copy", "add_up", "largest", "whole", "max_whole", "write"]), rng.randrange(4), rng.randrange(4)) for _ in range(rng.randint(2, 7))]


def sequential(program, arrays, axis_size, contributed):
    """What the program means, one launch after the other."""
    for op, a, b in program:
        x, y = arrays[a], arrays[b]
        if op == "axpy":
            arrays[b] = y + x
        elif op == "copy":
            arrays[b] = x.copy()
        elif op == "add_up":
            arrays[b] = y + x
        elif op in ("largest", "max_whole"):
            arrays[b] = np.maximum(y, x)
        elif op == "whole":
            arrays[b] = y + axis_size * x if contributed else y
        else:
            arrays[b] = np.full_like(y, a)


def test_random_programs_equal_their_sequential_execution():
    """2,000 programs with TESSERA_FUZZ_PROGRAMS=2000; for TESSERA_FUZZ_SECONDS in `make fuzz`."""
    print(f"TESSERA_FUZZ_SEED={SEED}")
    rng = random.Random(SEED)
    end = time.monotonic() + SECONDS
    for case in itertools.count():
        if case >= PROGRAMS and time.monotonic() > end:
            break
        ranks = rng.choice([1, 2, 3, 4, 7])
        mesh = dist.mesh(ranks * 2, ("dp", "tp"), (2, ranks))
        n = rng.choice([1, 5, 8, 12])
        how = rng.choice([dist.Block, dist.Cyclic, lambda a: dist.BlockCyclic(a, 2)])
        spec, copies = dist.spec(how(("tp",))), dist.spec()
        given = [np.array([rng.randint(-3, 3) for _ in range(n)], np.float32) for _ in range(4)]
        program = a_program(rng)
        expected = [g.copy() for g in given]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays = [dist.shard(g, spec, mesh) for g in given]
            with mesh:
                for op, a, b in program:
                    x, y = arrays[a], arrays[b]
                    if a == b and op != "write":
                        x = dist.shard(x.numpy(), spec, mesh)
                    if op == "axpy":
                        index_launch("tp")(axpy)(x, y, 1.0)
                    elif op == "copy":
                        index_launch("tp")(copy)(x.parts("tp"), y)
                    elif op == "add_up":
                        index_launch("tp")(add_up)(x, y.parts("tp"))
                    elif op == "largest":
                        index_launch("tp")(largest)(x, y.parts("tp"))
                    elif op == "whole":
                        index_launch("tp")(add_up)(x.reshard(copies), y)
                    elif op == "max_whole":
                        index_launch("tp")(largest)(x.reshard(copies), y)
                    else:
                        y[...] = a
            sequential(program, expected, ranks, True)
            for at, (array, value) in enumerate(zip(arrays, expected)):
                assert np.array_equal(array.numpy(), value), f"case {case} of seed {SEED}: array {at} of {program} on {ranks} ranks, {spec}"


def test_contributions_to_a_whole_array_go_where_it_is():
    mesh = dist.mesh(3, ("tp",), (3,))
    x = dist.shard(np.arange(12, dtype=np.float32).reshape(6, 2), dist.spec("tp"), mesh)
    expected = np.arange(12).reshape(6, 2).sum(0)
    for spec, kinds in ((dist.spec(), ["all_reduce"]), (dist.spec("tp"), ["reduce_scatter"]), (dist.spec(sum=("tp",)), [])):
        total = dist.tensor((2,), spec, mesh, init=10)
        with dist.count() as c:
            index_launch("tp")(column_sums)(x, total)
            dist.wait()
        assert np.array_equal(total.numpy(), 10 + expected), spec
        assert [e.kind for e in c.events if e.kind != "index_launch"] == kinds and c.launches == 1


def test_independent_launches_run_together_and_dependent_ones_in_order():
    """Two tasks that wait for each other finish only if they run at the same time."""
    tasks, barrier, order = _core.TaskQueue(), threading.Barrier(2, timeout=20), []
    elements = lambda start, count: _core.Positions([[(start, 1, count)]])
    tasks.submit([(barrier.wait, [(0, elements(i, 1), "write")]) for i in range(2)], 2)
    tasks.submit([(lambda n=n: (time.sleep(0.02 * (3 - n)), order.append(n)), [(1, elements(0, 4), "read_write")]) for n in range(3)], 2)
    tasks.wait_all()
    assert order == [0, 1, 2]


def test_a_failing_task_cancels_what_depends_on_it_and_names_kernel_part_and_rank():
    mesh = dist.mesh(6, ("dp", "tp"), (2, 3))
    x = dist.shard(np.array([1, 1, -1], np.float32), dist.spec("tp"), mesh)
    y, z, w = (dist.tensor((3,), dist.spec("tp"), mesh) for _ in range(3))
    index_launch("tp")(axpy)(x, w, 1.0)
    index_launch("tp")(positive)(x, y)
    with pytest.raises(ts.TesseraError) as found:
        # Where the task has failed already, the launch raises its error.
        index_launch("tp")(copy)(y, z)
        z.numpy()
    assert "in the kernel `positive`, part (tp=2), rank 2" in str(found.value) and found.value.rank == 2
    try:
        dist.wait()
    except ts.TesseraError:
        pass
    assert np.array_equal(w.numpy(), [1, 1, -1]) and z.numpy()[2] == 0


def test_errors_that_nobody_waited_for_are_raised_by_the_next_call():
    mesh = dist.mesh(2, ("tp",), (2,))
    x = dist.shard(np.array([-1, -1], np.float32), dist.spec("tp"), mesh)
    y = dist.tensor((2,), dist.spec("tp"), mesh)
    with pytest.raises(ts.TesseraError, match="rank 0"), mesh:
        index_launch("tp")(positive)(x.parts("tp"), y)
    dist.wait()  # a launch is reported once
    index_launch("tp")(positive)(x, y)
    time.sleep(0.3)
    with pytest.raises(ts.CheckError, match="launched at .*test_dist_launch.py"):
        index_launch("tp")(axpy)(x, dist.tensor((2,), dist.spec("tp"), mesh), 1.0)
    dist.wait()


def test_an_error_of_the_block_says_what_else_failed(capsys):
    mesh = dist.mesh(2, ("tp",), (2,))
    x = dist.shard(np.array([-1, -1], np.float32), dist.spec("tp"), mesh)
    with pytest.raises(KeyError) as found, mesh:
        index_launch("tp")(positive)(x, dist.tensor((2,), dist.spec("tp"), mesh))
        raise KeyError("a mistake of the user's")
    said = "".join(getattr(found.value, "__notes__", ())) + capsys.readouterr().err
    assert "a task failed meanwhile" in said and "in the kernel `positive`" in said
    dist.wait()


def refused(code, text, call):
    with pytest.raises(ts.TesseraError) as found:
        call()
    assert found.value.code == code and text in found.value.message, found.value
    assert found.value.help and found.value.file == __file__


def test_refused_launches_write_nothing():
    mesh = dist.mesh(6, ("dp", "tp"), (2, 3))
    x = dist.tensor((6,), dist.spec("tp"), mesh, init=1)
    y, r = dist.tensor((6,), dist.spec("tp"), mesh), dist.replicate(np.zeros(2, np.float32), mesh)
    both = dist.tensor((4, 6), dist.spec("dp", "tp"), mesh)
    launch = index_launch("tp")
    refused("E_PRIVILEGE", "`axpy` reads and writes `y` of part (tp=0) and reads and writes `y` of part (tp=1), which share elements", lambda: launch(axpy)(x, r.parts("tp"), 1.0))
    refused("E_PRIVILEGE", "reads `x` of part (tp=0) and writes `y` of part (tp=0)", lambda: launch(copy)(x.parts("tp"), x.parts("tp")))
    refused("E_PRIVILEGE", "writes `y`", lambda: index_launch("tp", mesh)(copy)(np.ones(3, np.float32), np.zeros(3, np.float32)))
    refused("E_ARGUMENT", "expected 3 parts as `y` (tp=3), got 2", lambda: launch(axpy)(x.parts("tp"), y.parts("tp")[:2], 1.0))
    refused("E_PLACEMENT", "still split over `dp`", lambda: launch(column_sums)(both, y))
    refused("E_PLACEMENT", "expected arrays of one mesh", lambda: launch(axpy)(x, dist.tensor((6,), dist.spec("tp"), dist.mesh(3, ("tp",), (3,))), 1.0))
    refused("E_PLACEMENT", "expected contributions of `reduce_max`", lambda: launch(largest)(x, dist.tensor((2,), dist.spec(sum=("tp",)), mesh)))
    refused("E_ARGUMENT", "got a list of arrays of the host", lambda: index_launch("tp", mesh)(copy)([np.ones(2, np.float32)] * 3, y))
    refused("E_MESH", "got `ep`", lambda: index_launch("ep")(axpy)(x, y, 1.0))
    refused("E_TYPE", "expected a kernel", lambda: launch(np.add))
    refused("E_ARGUMENT", "no open parameter `b`", lambda: launch(axpy)(x, y, b=1.0))
    assert not y.numpy().any() and not r.numpy().any() and (x.numpy() == 1).all()


def test_tasks_of_one_launch_may_fold_into_one_part():
    mesh = dist.mesh(4, ("tp",), (4,))
    x = dist.shard(np.arange(8, dtype=np.float32), dist.spec("tp"), mesh)
    total = dist.tensor((2,), None, mesh)
    index_launch("tp")(add_up)(x, total.parts("tp"))
    assert np.array_equal(total.numpy(), [12, 16])


def test_host_arrays_are_ready_when_the_launch_returns():
    mesh = dist.mesh(4, ("tp",), (4,))
    x = dist.shard(np.ones(8, np.float32), dist.spec("tp"), mesh)
    total = np.zeros(2, np.float32)
    assert all(t is total for t in index_launch("tp")(add_up)(x, total))
    assert np.array_equal(total, [4, 4])


@ts.struct
class Line:
    a: ts.f32
    b: ts.f32


@ts.kernel
def line(x: ts.Tensor["n", ts.f32], p: Line, y: ts.Out["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = p.a * x[i] + p.b
    return y


def test_records_and_results_that_are_left_out():
    mesh = dist.mesh(3, ("tp",), (3,))
    x, y = dist.tensor((6,), dist.spec("tp"), mesh, init=2), dist.tensor((6,), dist.spec("tp"), mesh)
    made = index_launch("tp")(line)(x, Line(3.0, 1.0))
    assert [m.tolist() for m in made] == [[7, 7]] * 3
    assert [p.coords for p in index_launch("tp")(line)(x.parts("tp"), Line(1.0, 1.0), y=y)] == [(0,), (1,), (2,)]
    assert np.array_equal(y, np.full(6, 3))


def test_a_part_is_an_argument_of_a_kernel():
    mesh = dist.mesh(6, ("dp", "tp"), (2, 3))
    x, y = dist.tensor((6,), dist.spec("tp"), mesh, init=2), dist.tensor((6,), dist.spec("tp"), mesh)
    index_launch("tp")(axpy)(x, y, 1.0)
    axpy(x.parts("tp")[1], y.parts("tp")[0], 1.0)
    assert np.array_equal(y.numpy(), [4, 4, 2, 2, 2, 2])
    both = dist.tensor((4, 6), dist.spec("dp", "tp"), mesh)
    with pytest.raises(ts.TesseraError, match="part of one block|array that can be shared"):
        column_sums(both.parts("tp")[0], np.zeros(2, np.float32))


class MyMapper(ts.Mapper):
    """As the guide prints it, with a list of its questions."""

    def __init__(self):
        self.questions = []

    def place(self, region, mesh):
        self.questions.append(("place", region.axis, region.shape, region.dtype, region.nbytes))
        if region.axis == "tp":
            return "local_switch"

    def choose_collective(self, kind, size):
        self.questions.append((kind, size))
        return "sharp_ring" if size <= 72 else "tree"

    def choose_variant(self, op, arch):
        self.questions.append((op, arch.is_blackwell))
        return "tile_ir" if arch.is_blackwell else "ptx"


def a_step(mesh):
    x = dist.shard(np.linspace(0, 1, 24, dtype=np.float32), dist.spec("tp"), mesh)
    total = dist.tensor((4,), None, mesh)
    index_launch("tp")(add_up)(x, total)
    return total.numpy(), x.reshard(dist.spec("dp")).numpy()


def test_a_user_mapper_answers_and_changes_no_result():
    mine = MyMapper()
    with ts.numerics.profile("deterministic"):
        before = a_step(dist.mesh(12, ("dp", "tp"), (2, 6)))
        with ts.runtime.set_mapper(mine) as previous:
            assert previous is None
            after = a_step(dist.mesh(12, ("dp", "tp"), (2, 6)))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(before, after))
    assert mine.questions == [
        ("place", "dp", (24,), "f32", 96), ("place", "tp", (24,), "f32", 96), ("add_up", False), ("all_reduce", 6), ("all_gather", 6),
    ]  # fmt: skip


def test_recordings_of_mappers_answer_again(tmp_path):
    recording = dist.RecordingMapper(MyMapper())
    with ts.runtime.set_mapper(recording):
        first = a_step(dist.mesh(12, ("dp", "tp"), (2, 6)))
    recording.save(tmp_path / "log.json")
    with ts.runtime.set_mapper(dist.ReplayMapper(tmp_path / "log.json")):
        again = a_step(dist.mesh(12, ("dp", "tp"), (2, 6)))
        assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again))
        with pytest.raises(ts.PlacementError, match="the recording has no answer") as found:
            dist.replicate(np.ones(3), dist.mesh(3, ("tp",), (3,)))
    assert found.value.code == "E_MAPPER"


def test_wrong_answers_and_exceptions_of_mappers(monkeypatch):
    class Wrong(ts.Mapper):
        def choose_collective(self, kind, size, nbytes):
            return "pigeon"

    class Raises:
        def place(self, region, mesh):
            raise KeyError(region.axis)

    mesh = dist.mesh(2, ("tp",), (2,))
    x = dist.shard(np.ones(4, np.float32), dist.spec("tp"), mesh)
    with ts.runtime.set_mapper(Wrong()):
        with pytest.warns(ts.TesseraWarning, match="W_MAPPER: .*'pigeon'; the default is used") as found:
            x.reshard(None)
            x.reshard(None)
        assert len(found) == 1
        monkeypatch.setenv("TESSERA_CHECK", "1")
        with pytest.raises(ts.PlacementError, match="pigeon") as error:
            x.reshard(None)
        assert error.value.code == "E_MAPPER"
        monkeypatch.delenv("TESSERA_CHECK")
    with ts.runtime.set_mapper(Raises()), pytest.raises(ts.PlacementError, match="`place` of Raises raised KeyError: 'tp'") as error:
        dist.replicate(np.ones(3), dist.mesh(2, ("tp",), (2,)))
    assert error.value.code == "E_MAPPER" and ts.runtime.set_mapper(None) == None  # noqa: E711


def test_the_devices_of_a_mesh_with_arrays_are_settled():
    mesh, mine = dist.mesh(12, ("dp", "tp"), (2, 6)), MyMapper()
    dist.replicate(np.ones(2), mesh)
    with ts.runtime.set_mapper(mine):
        dist.replicate(np.ones(2), mesh)
        assert mine.questions == []
        dist.replicate(np.ones(2), dist.mesh(12, ("dp", "tp"), (2, 6)))
    assert [q[:2] for q in mine.questions] == [("place", "dp"), ("place", "tp")]


def test_places_of_devices():
    from tessera.dist._mapper import order

    mesh = dist.mesh(8, ("dp", "tp"), (2, 4))
    assert order(mesh, {"dp": None, "tp": None}) == list(range(8))
    # Ranks along dp are on neighbouring devices, or the farthest apart.
    assert order(mesh, {"dp": "local_switch", "tp": None}) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert order(mesh, {"dp": "spread", "tp": None}) == list(range(8))
    assert order(mesh, {"dp": (1, 0), "tp": None}) == [4, 5, 6, 7, 0, 1, 2, 3]


def adds(dtype):
    @ts.kernel
    def add_up(x: ts.Region[ts.read, ts.Tensor["n", dtype]], total: ts.Region[ts.reduce_sum, ts.Tensor["n", dtype]]):
        i = ts.tile.linear_id()
        if i < n:
            total[i] += x[i]

    return add_up


@pytest.mark.parametrize("dtype", [ts.bf16, ts.f16, ts.f32, ts.f64, ts.i8, ts.i32])
def test_sums_over_ranks_are_in_the_accumulation_dtype_and_rounded_once(dtype):
    """Nine contributions, of which eight are below half a unit of the sum's last place."""
    small = 0.0 if str(dtype).startswith("i") else 2.0 ** (-9 if dtype == ts.bf16 else -12)
    given = ts.array(np.array([1.0] + [small] * 8), dtype)
    mesh = dist.mesh(9, ("tp",), (9,))
    wide = np.float64 if dtype == ts.f64 else np.float32
    expected = ts.array(given.astype(wide).sum(dtype=wide).reshape(1), dtype)
    total = dist.tensor((1,), None, mesh, dtype)
    index_launch("tp")(adds(dtype))(dist.shard(given, dist.spec("tp"), mesh), total)
    assert total.numpy().tobytes() == expected.tobytes() and (small == 0 or total.numpy()[0] != 1)
    contributions = dist.from_local([given[r : r + 1] for r in range(9)], dist.spec(sum=("tp",)), mesh)
    assert contributions.numpy().tobytes() == contributions.reshard(dist.spec("tp")).numpy().tobytes() == expected.tobytes()


def test_domains_parts_and_launches_on_ambient_explicit_and_unit_meshes():
    D, how = ts.domain.Rect((7,)), dist.Block(mesh_axes=("tp",))

    def run(mesh=None):
        X, Y = ts.array.from_domain(D, "f32", how, mesh, fill="ones"), ts.array.from_domain(D, "f32", how, mesh)
        parts = index_launch("tp", mesh)(axpy)(X.parts("tp"), Y.parts("tp"), 2.0)
        assert np.array_equal(Y.numpy(), np.full(7, 2))
        return Y.mesh, [p.shape for p in parts]

    four = dist.mesh(4, ("tp",), (4,))
    assert run(four) == (four, [(2,), (2,), (2,), (1,)])
    with dist.mesh(3, ("tp",), (3,)) as ambient:
        assert run() == (ambient, [(3,), (3,), (1,)]) and run(four)[0] == four
    assert run() == (dist.mesh(1, ("tp",), (1,)), [(7,)])


def test_launches_over_parts_that_overlap_are_ordered():
    """Parts along one axis and along another of one array: each task waits for all that share elements with it."""
    mesh = dist.mesh(6, ("dp", "tp"), (2, 3))
    x = dist.shard(np.zeros((4, 6), np.float32), dist.spec("dp", "tp"), mesh)
    one = dist.tensor((4, 6), dist.spec("dp", "tp"), mesh, init=1)
    for step in range(1, 6):
        index_launch(("dp", "tp"))(add_2d)(one, x)
        index_launch(("tp", "dp"))(add_2d)(one, x)
        x.parts("tp")[step % 3][...] = 2.0 * step
        assert (x.numpy() == 2 * step).all()


@ts.kernel(lanes=(8, 8))
def add_2d(x: ts.Region[ts.read, ts.Tensor["m", "n", ts.f32]], y: ts.Region[ts.read_write, ts.Tensor["m", "n", ts.f32]]):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    if i < m and j < n:
        y[i, j] = y[i, j] + x[i, j]


@ts.kernel
def open_regions(x: ts.Region[ts.read], y: ts.Region[ts.write]):
    i = ts.tile.linear_id()
    if i < x.shape[0]:
        y[i] = 2 * x[i]


@ts.kernel
def not_annotated(x, y):
    i = ts.tile.linear_id()
    if i < x.shape[0]:
        y[i] = 2 * x[i]


@ts.kernel
def open_sum(x: ts.Region[ts.read], total: ts.Region[ts.reduce_sum]):
    i = ts.tile.linear_id()
    if i < x.shape[0]:
        total[i] += x[i]


@pytest.mark.parametrize("kernel", [open_regions, not_annotated])
def test_parameters_that_the_call_settles_are_ordered_and_checked(kernel):
    """What such a kernel does with an array is known when its dtype is: reads waited for nothing, and conflicts were not seen."""
    mesh = dist.mesh(4, ("tp",), (4,))
    for dtype in ("f32", "bf16", "i32"):
        x, y = dist.tensor((64,), dist.spec("tp"), mesh, dtype, init=1), dist.tensor((64,), dist.spec("tp"), mesh, dtype)
        for _ in range(4):
            index_launch("tp")(kernel)(x, y)
            index_launch("tp")(kernel)(y, x)
            index_launch("tp")(kernel)(x, y)
            assert (y.numpy() == 8).all() and (x.numpy() == 4).all()
            x[...] = 1
            y[...] = 0
        with pytest.raises(ts.PrivilegeError, match=r"writes `y` of part \(tp=0\) and writes `y` of part \(tp=1\)"):
            index_launch("tp")(kernel)(x, y.parts("tp")[:1] * 4)
        with pytest.raises(ts.PrivilegeError, match=r"reads `x` of part \(tp=0\) and writes `y` of part \(tp=3\)"):
            index_launch("tp")(kernel)(x.parts("tp")[:1] * 4, x.parts("tp")[::-1])
        assert (x.numpy() == 1).all() and (y.numpy() == 0).all()
        # Reading one part from all tasks is none.
        index_launch("tp")(kernel)(x.parts("tp")[:1] * 4, y)
        assert (y.numpy() == 2).all()
    host = np.zeros(64, np.float32)
    index_launch("tp", dist.mesh(1, ("tp",), (1,)))(kernel)(np.ones(64, np.float32), host)
    assert (host == 2).all()


def test_contributions_by_a_parameter_that_the_call_settles():
    mesh = dist.mesh(3, ("tp",), (3,))
    for dtype in ("f32", "bf16"):
        x = dist.tensor((3, 4), dist.spec("tp"), mesh, dtype, init=1)
        total = dist.tensor((4,), None, mesh, dtype, init=10)
        flat = dist.from_local([x.local(r)[0] for r in range(3)], dist.spec("tp"), mesh)
        with dist.count() as c:
            index_launch("tp")(open_sum)(flat, total)
            dist.wait()
        assert (total.numpy() == 13).all() and c["all_reduce"] == 1
