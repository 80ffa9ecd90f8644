"""Each row of the table of errors on meshes, arrays, collectives and mappers: the code, its class, the user's line, the arithmetic in the text,
what to write, and that nothing is written half."""

import inspect
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import tessera as ts
from tessera import array, collective, dist, domain, xp
from tessera.dist import _implicit

ROOT = Path(__file__).resolve().parents[2]
CODES = dict(re.findall(r'^    ([EWN]_\w+) (\w+) "', (ROOT / "crates" / "diag" / "src" / "code.rs").read_text(encoding="utf-8"), re.M))
PLACEMENT, COMM = ("PlacementError", ValueError), ("CommError", RuntimeError)
#: Every row of the table. `None`: the code belongs to what this build has not, and is not known to it.
ROWS = {
    "E_MESH": PLACEMENT, "E_PLACEMENT": PLACEMENT, "E_UNEVEN": PLACEMENT, "E_MAPPER": PLACEMENT,
    "E_DESYNC": COMM, "E_CHECKPOINT": ("CheckpointError", RuntimeError),
    # Processes, their rendezvous and what becomes of them.
    "E_COMM_INIT": COMM, "E_TIMEOUT_COMM": COMM, "E_RANK_LOST": COMM, "E_NOT_ADDRESSABLE": PLACEMENT,
    # Pipelines of stages, and topologies.
    "E_PIPELINE": None, "E_TOPOLOGY": None,
}  # fmt: skip


def refused(code, call, *words):
    """Calls, and checks all that a refusal has."""
    with pytest.raises(ts.TesseraError) as found:
        call()
    error = found.value
    name, base = ROWS[code]
    assert error.code == code, error
    assert isinstance(error, getattr(dist, name)) and isinstance(error, getattr(ts, name)) and isinstance(error, base)
    for word in words:
        assert word in error.message, f"{word!r} in {error}"
    assert error.help, error
    # The user's line: inside the function that was called, or where it was written.
    lines, first = inspect.getsourcelines(call)
    assert error.file == __file__ and first <= error.line < first + len(lines), (error, first)
    written = Path(__file__).read_text(encoding="utf-8").splitlines()[error.line - 1]
    assert f"{error.line:>4} | {written.strip()}"[:40] in re.sub(r"\| +", "| ", str(error)), error
    return error


def warned(code, call, *words):
    """One warning at the user's line, and none where the same happens again."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        made = call()
    texts = [str(w.message) for w in found]
    assert len(texts) == 1 and texts[0].startswith(f"{code}: "), texts
    assert issubclass(found[0].category, ts.TesseraWarning)
    for word in words:
        assert word in texts[0], f"{word!r} in {texts[0]}"
    lines, first = inspect.getsourcelines(call)
    assert found[0].filename == __file__ and first <= found[0].lineno < first + len(lines)
    return made


def line(n):
    return dist.mesh(n, ("tp",), (n,))


def grid():
    return dist.mesh(6, ("dp", "tp"), (2, 3))


def test_the_table_is_that_of_this_build():
    for code, row in ROWS.items():
        assert (code in CODES) == (row is not None), f"{code}: write its tests here"
        assert row is None or CODES[code] == row[0].removesuffix("Error")
    assert {"W_VIRTUAL_DEVICE", "W_UNEVEN", "W_RESHARD", "W_MAPPER"} <= set(CODES)


@ts.kernel
def double(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], y: ts.Region[ts.write, ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = 2.0 * x[i]


def test_counts_names_and_axes_of_a_mesh():
    names = [f"cuda:{i}" for i in range(70)]
    refused("E_MESH", lambda: dist.mesh(names, ("dp", "tp", "pp"), (4, 9, 2)), "4 × 9 × 2 = 72 devices, got 70 devices")
    refused("E_MESH", lambda: dist.mesh(0, ("dp",), (1,)), "at least 1 device, got 0")
    refused("E_MESH", lambda: dist.mesh(4, ("dp", "dp"), (2, 2)), "`dp`")
    refused("E_MESH", lambda: dist.mesh(4, ("dp",), (2, 2)), "2", "1")
    refused("E_MESH", lambda: dist.mesh(2, ("dp", "tp"), (2, 0)), "at least 1, got (2, 0)")
    refused("E_MESH", lambda: dist.mesh(["tpu:0"], ("dp",), (1,)), "'tpu:0'")
    mesh = grid()
    refused("E_MESH", lambda: mesh.axis_size("ep"), "the mesh (dp, tp), got `ep`")
    refused("E_MESH", lambda: mesh.coords(6), "from 0 to 5, got 6")
    refused("E_MESH", lambda: mesh.rank((2, 0)), "within (2, 3)", "(2, 0)")
    refused("E_MESH", lambda: mesh.at(tp=3), "from 0 to 2, got 3")
    x = dist.tensor((4, 6), dist.spec("dp", "tp"), mesh)
    refused("E_MESH", lambda: x.parts("ep"), "`ep`")
    refused("E_MESH", lambda: collective.all_gather(x, "ep"), "`ep`")
    refused("E_MESH", lambda: ts.index_launch("ep")(double)(x, x), "`ep`")
    refused("E_MESH", lambda: x.local(6), "from 0 to 5, got 6")


def test_specs_that_do_not_fit_the_array_or_the_mesh():
    mesh = grid()
    refused("E_PLACEMENT", lambda: dist.tensor((4,), dist.spec("ep"), mesh), "`ep`")
    refused("E_PLACEMENT", lambda: dist.tensor((4,), dist.spec("dp", "tp"), mesh), "a dim of an array with 1 dim", "got 1")
    refused("E_PLACEMENT", lambda: dist.tensor((4, 4), dist.spec("dp", "dp"), mesh), "`dp`", "twice")
    refused("E_PLACEMENT", lambda: dist.tensor((4, 4), dist.spec("dp", sum=("dp",)), mesh), "`dp`", "twice")
    refused("E_PLACEMENT", lambda: dist.spec(sum=("dp",), max=("tp",)), "sum and max")
    refused("E_PLACEMENT", lambda: dist.ShardSpec(partition=("row",), mesh_axes=("dp", "tp")), "2 for 1")
    refused("E_PLACEMENT", lambda: array.from_domain(domain.Rect((4,)), "f32", dist.Block(("dp", "tp")), mesh), "2 axes for 1 dim")
    x = dist.shard(np.arange(8.0), dist.spec("dp"), mesh)
    before = x.numpy()
    refused("E_PLACEMENT", lambda: x.reshard(dist.spec("tp", "dp")), "got 1")
    refused("E_PLACEMENT", lambda: x.parts("tp"), "`dp`")
    assert x.placements == ("S(0)", "R") and np.array_equal(x.numpy(), before)


def test_collectives_on_a_wrong_state():
    mesh = grid()
    R, S = dist.replicate(np.zeros(6), mesh), dist.shard(np.zeros(6), dist.spec("tp"), mesh)
    P = dist.from_local([np.zeros(6)] * 6, dist.spec(max=("dp", "tp")), mesh)
    refused("E_PLACEMENT", lambda: collective.all_reduce(R, "tp"), "contributions along tp", "dp: R, tp: R")
    refused("E_PLACEMENT", lambda: collective.all_reduce(S, "tp"), "contributions along tp", "dp: R, tp: S(0)")
    refused("E_PLACEMENT", lambda: collective.all_reduce(P, "tp"), "contributions of `sum`", "dp: P(max), tp: P(max)")
    refused("E_PLACEMENT", lambda: collective.all_gather(R, "tp"), "split over tp", "dp: R, tp: R")
    refused("E_PLACEMENT", lambda: collective.all_gather(S, "dp"), "split over dp", "dp: R, tp: S(0)")
    refused("E_PLACEMENT", lambda: collective.reduce_scatter(S, "tp"), "contributions along tp", "tp: S(0)")
    refused("E_PLACEMENT", lambda: collective.all_to_all(R, "tp", 0), "split over tp", "tp: R")
    refused("E_PLACEMENT", lambda: collective.broadcast(S, "tp"), "copies along tp", "tp: S(0)")
    refused("E_PLACEMENT", lambda: collective.permute(S, "tp", [(0, 1)]), "a value of one rank", "tp: S(0)")
    refused("E_PLACEMENT", lambda: collective.all_reduce(np.zeros(6), "tp"), "DistArray")
    refused("E_PLACEMENT", lambda: collective.all_reduce(P, ("tp", "tp"), "max"), "once", "'tp', 'tp'")
    assert R.placements == ("R", "R") and S.placements == ("R", "S(0)") and P.placements == ("P(max)", "P(max)")


def test_programs_of_ranks_whose_states_are_wrong():
    mesh, x = line(2), np.zeros(4)

    def differs(b):
        return b * 2

    refused("E_PLACEMENT", lambda: dist.shard_map(lambda b: b * 2, mesh, dist.spec("tp"), None)(x), "along `tp`", "varies")

    def stuck(b):
        return ts.cond(xp.sum(b) > 0, lambda v: collective.all_reduce(v, "tp"), lambda v: v, b)

    with pytest.raises(ts.PlacementError, match="never arrive") as found:
        dist.shard_map(stuck, mesh, dist.spec("tp"), dist.spec("tp"))(x)
    assert found.value.code == "E_PLACEMENT" and found.value.file == __file__ and found.value.help


def test_meshes_are_not_mixed():
    a, b = dist.tensor((6,), dist.spec("tp"), line(3), init=1), dist.tensor((6,), dist.spec("tp"), line(2), init=2)
    two = "Mesh(tp=3)", "Mesh(tp=2)"
    refused("E_PLACEMENT", lambda: ts.index_launch("tp")(double)(a, b), *two)
    refused("E_PLACEMENT", lambda: ts.index_launch("tp", line(2))(double)(a, a), *two)
    refused("E_PLACEMENT", lambda: dist.shard(a, None, line(2)), *two)
    refused("E_PLACEMENT", lambda: dist.shard_map(lambda v: v, line(2), None, None)(a), *two)
    refused("E_PLACEMENT", lambda: a + b, *two)
    assert (a.numpy() == 1).all() and (b.numpy() == 2).all()


def test_blocks_that_have_to_be_even():
    nine = dist.ShardSpec(partition=("col",), mesh_axes=("tp",), require_even=True)
    refused("E_UNEVEN", lambda: dist.tensor((8192, 8192), nine, line(9)), "8192 elements of dim 1 over tp=9: 8 × 911 + 904")
    x = dist.tensor((10,), None, line(4), init=3)
    refused("E_UNEVEN", lambda: x.reshard(dist.ShardSpec(partition=("batch",), mesh_axes=("tp",), require_even=True)), "10 elements of dim 0 over tp=4")
    refused("E_UNEVEN", lambda: dist.shard_map(lambda b: b, line(4), dist.spec("tp"), dist.spec("tp"))(np.zeros(10)), "10 = 4 × 2 + 2")
    refused("E_UNEVEN", lambda: dist.shard_map(lambda b: collective.reduce_scatter(b, "tp"), line(4), None, dist.spec("tp"))(np.zeros(7)), "7 = 4 × 1 + 3")
    refused("E_UNEVEN", lambda: dist.shard_map(lambda b: collective.all_to_all(b, "tp", 0), line(4), None, dist.spec("tp"))(np.zeros(7)), "7 = 4 × 1 + 3")
    assert (x.numpy() == 3).all()


class Raising(ts.Mapper):
    def __init__(self, method):
        def raises(*args):
            raise KeyError("no policy")

        setattr(self, method, raises)


@pytest.mark.parametrize("method", ["place", "choose_collective", "choose_variant", "tunable", "report"])
def test_exceptions_of_mappers(method):
    mesh = line(3)
    x, y = dist.tensor((6,), dist.spec("tp"), mesh, init=1), dist.tensor((6,), dist.spec("tp"), mesh, init=-1)
    calls = {
        "place": lambda: dist.tensor((6,), dist.spec("tp"), line(3)),
        "choose_collective": lambda: x.reshard(None),
        "choose_variant": lambda: ts.index_launch("tp")(double)(x, y),
        "tunable": lambda: ts.index_launch("tp")(double)(x, y),
        "report": lambda: x.reshard(None),
    }
    with ts.runtime.set_mapper(Raising(method)):
        refused("E_MAPPER", calls[method], f"`{method}` of Raising raised KeyError: 'no policy'")
    # Refused before a task ran; nothing is left behind for later calls.
    assert (x.numpy() == 1).all() and (y.numpy() == -1).all()
    ts.index_launch("tp")(double)(x, y)
    assert (y.numpy() == 2).all()


def test_a_mapper_that_does_what_its_answer_is_for():
    """Its question would be put again in the answer, and so on."""
    mesh = line(3)
    x = dist.shard(np.arange(6, dtype=np.float32), dist.spec("tp"), mesh)
    y = dist.tensor((6,), dist.spec("tp"), mesh)
    summed = dist.shard_map(lambda b: collective.all_reduce(b, "tp"), mesh, dist.spec("tp"), None)
    works = {
        "resharding": lambda: x.reshard(None),
        "a collective": lambda: collective.all_gather(x, "tp"),
        "a program": lambda: summed(x),
        "an array on another mesh": lambda: dist.tensor((2,), None, line(2)),
        "a launch": lambda: ts.index_launch("tp")(double)(x, y),
    }
    # Questions while the work is done: by each kind of work, and each question.
    questions = {"choose_collective": lambda: x.reshard(None), "report": lambda: x.reshard(None), "place": lambda: dist.tensor((6,), None, line(3)),
             "choose_variant": lambda: ts.index_launch("tp")(double)(x, y), "tunable": lambda: ts.index_launch("tp")(double)(x, y)}  # fmt: skip
    for method, start in questions.items():
        for name, work in works.items():
            mapper = ts.Mapper()
            setattr(mapper, method, lambda *args, work=work: work() and None)
            with ts.runtime.set_mapper(mapper), pytest.raises(ts.PlacementError) as found:
                start()
            error = found.value
            assert error.code == "E_MAPPER" and f"`{method}` of Mapper" in error.message, (method, name, error)
            assert "before it has answered" in error.message and error.file == __file__ and error.help, (method, name, error)
            assert not np.any(y.numpy()), (method, name)
    # What asks nothing is no question: reading an array, and work before the mapper is set.
    mapper = ts.Mapper()
    mapper.choose_collective = lambda kind, size, nbytes: "ring" if x.numpy()[0] == 0 else "tree"
    with ts.runtime.set_mapper(mapper), dist.count() as c:
        x.reshard(None)
    assert [e.name for e in c.events] == ["ring"]


def test_mappers_that_place_on_the_mesh_that_is_being_placed():
    class Same(ts.Mapper):
        def place(self, region, mesh):
            dist.tensor((2,), None, mesh)

    with ts.runtime.set_mapper(Same()), pytest.raises(ts.PlacementError, match="`place` of Same .* before it has answered"):
        dist.tensor((6,), None, line(3))


def test_mappers_that_answer_what_is_not_known(monkeypatch):
    class Wrong(ts.Mapper):
        def choose_collective(self, kind, size):
            return "pigeon"

    x = dist.shard(np.arange(6.0), dist.spec("tp"), line(3))
    with ts.runtime.set_mapper(Wrong()):
        made = warned("W_MAPPER", lambda: x.reshard(None), "one of auto, ring, tree", "`choose_collective` of Wrong", "'pigeon'", "the default is used")
        assert np.array_equal(made.numpy(), np.arange(6.0))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x.reshard(None)
        monkeypatch.setenv("TESSERA_CHECK", "1")
        refused("E_MAPPER", lambda: x.reshard(None), "one of auto, ring, tree", "'pigeon'")
    with ts.runtime.set_mapper(dist.ReplayMapper([])):
        refused("E_MAPPER", lambda: x.reshard(None), "no answer to choose_collective")


def test_devices_that_are_played_by_others():
    mesh = warned("W_VIRTUAL_DEVICE", lambda: dist.mesh([f"cuda:{i}" for i in range(900, 972)], ("dp", "tp"), (8, 9)), "lacks 72 devices", "cuda:900 to cuda:971")
    assert mesh.is_virtual and mesh.size == 72


def test_uneven_blocks_give_a_warning():
    spec, mesh = dist.spec("uneven"), dist.mesh(9, ("uneven",), (9,))
    warned("W_UNEVEN", lambda: dist.tensor((10,), spec, mesh), "80 % above the mean (10 over uneven=9: 5 × 2 + 4 × 0)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dist.tensor((10,), spec, mesh)


def test_gathers_that_nobody_requested(monkeypatch):
    """A quarter of a device's memory is the limit; here devices are small."""
    mesh = line(4)
    given = np.arange(128, dtype=np.float32).reshape(8, 16)
    x = dist.shard(given, dist.spec("tp"), mesh)
    add = dist.shard_map(lambda v: v + 1, mesh, in_specs=None, out_specs=None)
    same = dist.shard_map(lambda v: v + 1, mesh, in_specs=dist.spec("tp"), out_specs=dist.spec("tp"))
    monkeypatch.setattr(_implicit, "device_bytes", lambda device: 4 * 512 - 4)
    arithmetic = "8 × 16 × 4 bytes = 512 bytes on a rank", "a quarter of the 2.0 KiB of the host", "(8, 16) of f32"
    made = warned("W_RESHARD", lambda: add(x), "shard_map of `lambda`", *arithmetic)
    assert np.array_equal(made.numpy(), given + 1)
    y = dist.tensor((8, 16), None, mesh)

    def assign():
        y[...] = x

    warned("W_RESHARD", assign, "`x[...] = y`", *arithmetic)
    assert np.array_equal(y.numpy(), given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Once for each way; not where no more is held, where it was requested, or where it is not large.
        add(x)
        same(x)
        add(x.reshard(None))
        monkeypatch.setattr(_implicit, "device_bytes", lambda device: 4 * 512)
        add(dist.shard(given, dist.spec(None, "tp"), mesh))


def test_arrays_that_memory_does_not_hold():
    mesh = line(3)
    for shape, size in (((2**50,), 2**52), ((2**40, 2**40), 2**82)):
        with pytest.raises(ts.ResourceError) as found:
            dist.tensor(shape, dist.spec("tp"), mesh)
        assert found.value.code == "E_OOM" and f"{size} bytes" in found.value.message and found.value.file == __file__ and found.value.help
    for shape in ((2**63, 2), 10**30):
        with pytest.raises(ts.ShapeError, match="expected extents that 63 bits hold"):
            dist.tensor(shape, dist.spec("tp"), mesh)


def test_gathers_that_programs_need(monkeypatch):
    """In functions that are compiled the line is that of the op; what the function says itself is no surprise."""
    mesh = line(4)
    given = np.arange(128, dtype=np.float32).reshape(8, 16)
    rows, columns = dist.shard(given, dist.spec("tp"), mesh), dist.shard(given, dist.spec(None, "tp"), mesh)
    monkeypatch.setattr(_implicit, "device_bytes", lambda device: 4 * 512 - 4)
    words = "gathers a value along `tp`: 512 bytes", "a quarter of the 2.0 KiB of the host"

    def sorts(x):
        return xp.sort(x * 2, axis=0)

    made = ts.jit(sorts)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert np.array_equal(np.asarray(made(rows)), np.sort(2 * given, axis=0))
        made(rows)
    (only,) = found
    assert str(only.message).startswith("W_RESHARD: ") and all(w in str(only.message) for w in words), only.message
    first = inspect.getsourcelines(sorts)[1]
    assert only.filename == __file__ and only.lineno == first + 1
    warned("W_RESHARD", lambda: xp.sort(rows, axis=0), *words)
    warned("W_RESHARD", lambda: xp.unique(rows), "`unique` brings an array (8, 16) of f32", "512 bytes on a rank")

    in_copies = ts.jit(lambda x: x + 1, mesh=mesh, in_specs=dist.spec())
    warned("W_RESHARD", lambda: in_copies(rows), "`in_specs` of `ts.jit` brings an array (8, 16) of f32", "8 × 16 × 4 bytes = 512 bytes on a rank")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Where each rank sorts its columns, where the function says so, and where it is not large.
        ts.jit(sorts)(columns)
        ts.jit(lambda x: xp.sort(dist.constrain(x, None), axis=0))(rows)
        ts.jit(lambda x: x + 1, out_specs=dist.spec(), mesh=mesh)(rows)
        ts.jit(lambda x: dist.shard_map(lambda v: collective.all_gather(v, "tp"), mesh, dist.spec("tp"), None)(x))(rows)
        monkeypatch.setattr(_implicit, "device_bytes", lambda device: 4 * 512)
        ts.jit(lambda x: xp.sort(x, axis=0))(rows)


def test_checkpoints_that_are_incomplete(tmp_path):
    path = tmp_path / "weights"
    ts.save(path, {"w": np.arange(6.0)})
    file = next(p for p in [path, *path.rglob("*")] if p.is_file())
    file.write_bytes(file.read_bytes()[:-8])
    refused("E_CHECKPOINT", lambda: ts.load(path), "")


def test_ranks_that_disagree_are_an_error_of_communication():
    """No program that is traced can do this; `crates/comm/tests/suite/desync.rs` has the cases."""
    assert issubclass(ts.CommError, RuntimeError) and issubclass(ts.CommError, ts.TesseraError) and dist.CommError is ts.CommError


def test_mappers_that_answer_with_arrays_lists_and_large_numbers():
    mesh = line(3)
    x = dist.shard(np.arange(6, dtype=np.float32), dist.spec("tp"), mesh)
    y = dist.tensor((6,), dist.spec("tp"), mesh)
    calls = {
        "place": (lambda: dist.tensor((6,), dist.spec("tp"), line(3)), '"local_switch", "spread" or the numbers 0 to 2'),
        "choose_collective": (lambda: x.reshard(None), "one of auto, ring"),
        "choose_variant": (lambda: ts.index_launch("tp")(double)(x, y), "one of ptx, tile_ir"),
        "tunable": (lambda: ts.index_launch("tp")(double)(x, y), "a number from 1 to 2147483647"),
    }
    for method, (call, words) in calls.items():
        for answer in (np.array(["ring", "tree"]), ["ring"], {"a": 1}, 2**70, 0, -1, 1.5, True, object):
            mapper = ts.Mapper()
            setattr(mapper, method, lambda *args, answer=answer: answer)
            with ts.runtime.set_mapper(mapper):
                warned("W_MAPPER", call, words, "the default is used")
    assert np.array_equal(y.numpy(), 2 * np.arange(6))
    mapper = ts.Mapper()
    mapper.tunable = lambda name, default: np.int64(2)
    with ts.runtime.set_mapper(mapper), warnings.catch_warnings():
        warnings.simplefilter("error")
        ts.index_launch("tp")(double)(x, y)
    refused("E_MAPPER", lambda: dist.ReplayMapper([{"method": "place", "args": object(), "answer": 1}]), "the log of a `RecordingMapper`")
