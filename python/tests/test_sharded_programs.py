"""Programs on sharded arrays: random ones against one device, the printed examples of distributed training, what is refused, and what
`explain` says."""

import os
import re

import ml_dtypes
import numpy as np
import pytest
from plans import fuzz, on_mesh, run
from plans.generate import generate

import tessera as ts
from tessera import dist, nn, xp

pytestmark = pytest.mark.filterwarnings("ignore:W_UNEVEN", "ignore:W_VIRTUAL_DEVICE")

#: Seconds of random programs in `make test`, by two processes.
SECONDS = float(os.environ.get("TESSERA_FUZZ_SECONDS") or 10)
RNG = np.random.default_rng(5)


def test_random_programs_on_meshes():
    """10,000 of them: `python -m plans.fuzz --backend mesh --programs 10000` from `python/tests`."""
    seed = fuzz.day()
    print(f"TESSERA_FUZZ_SEED={seed}, on mesh")
    tally = fuzz.spread(2, seed, 10**9, [("mesh", "strict"), ("mesh", "default")], SECONDS / 60, 3, without=frozenset(fuzz.KNOWN), variants=1)
    print(tally.report())
    assert not tally.failures, f"TESSERA_FUZZ_SEED={seed}\n" + "\n".join(text for _, text in tally.failures)
    assert tally.agreed > 0.8 * tally.programs and len(tally.broken) <= tally.programs // 100


def test_programs_for_meshes_are_of_all_kinds():
    wanted = "pin cond scan fori_loop while_loop vmap derivatives reduction matmul reshape transpose gather where concat slice sort cumulative_sum".split()
    counts = {n for seed in range(300) for n in generate(seed, small=True).counts}
    assert not [n for n in wanted if n not in counts]
    meshes = [on_mesh.mesh_of(seed) for seed in range(200)]
    assert {m.size for m in meshes} >= {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12}
    words = {s for k, m in enumerate(meshes) for s in on_mesh.spec_of(f"{k}", m, 2).placements(m, 2)}
    assert words >= {"R", "S(0)", "S(1)", "P(sum)"}


def test_a_wrong_result_on_a_mesh_is_found_and_made_small(monkeypatch):
    real = on_mesh.results

    def wrong(case, variants, profile, load):
        out = real(case, variants, profile, load)
        if "xp.sum" in case.text and on_mesh.mesh_of(case.seed).size > 2:
            out[0][0] = np.where(np.ones(out[0][0].shape, bool), out[0][0] + np.ones((), out[0][0].dtype), 0).astype(out[0][0].dtype)
        return out

    monkeypatch.setattr(on_mesh, "results", wrong)
    found = fuzz.go(3, 200, [("mesh", "default")], stop_at=1, say=None, shrink_for=3, variants=1)
    ((_, text),) = found.failures
    assert "xp.sum" in text and "Mesh(" in text and len(text.splitlines()) < 25


# The printed examples.

EXAMPLE_3 = '''
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

@ts.jit
@ts.autodiff
def train_step(x, y, W):
    """Training step with automatic gradient computation"""
    pred = ts.gemm(x, W)  # Automatically handles TP sharding
    loss = ts.mse(pred, y)
    return loss

# Gradients automatically handle distributed communication
grad_W = ts.grad(train_step)(x, y, W)
'''


@pytest.mark.parametrize(("dp", "tp"), [(4, 2), (1, 1), (2, 3)])
def test_the_third_printed_example(dp, tp, tmp_path):
    """Line 20 of the acceptance list: the gradient of W, as on one device. Small here, but for the extents as printed."""
    n = 256
    text = EXAMPLE_3.replace("8192", str(n)).replace("range(8)", f"range({dp * tp})").replace("(4, 2) ", f"({dp}, {tp}) ")
    x, y = (RNG.standard_normal((12, n)).astype(ml_dtypes.bfloat16) for _ in range(2))
    # W is zeros as printed; a value shows more.
    w = (RNG.standard_normal((n, n)) / 16).astype(ml_dtypes.bfloat16)
    (tmp_path / "example.py").write_text(text.replace("mesh=mesh,", "mesh=mesh, init=w,"))
    space = {"ts": ts, "x": x, "y": y, "w": w}
    exec(compile((tmp_path / "example.py").read_text(), str(tmp_path / "example.py"), "exec"), space)
    got, loss = space["grad_W"], lambda w: ts.mse(ts.gemm(x, w), y)
    assert isinstance(got, dist.DistArray) and got.dtype == ts.bf16 and got.placements == space["W"].placements
    want = np.asarray(ts.grad(loss)(w), np.float32)
    np.testing.assert_allclose(got.numpy().astype(np.float32), want, rtol=2**-6, atol=np.abs(want).max() * 2**-7)
    # Data parallel too, under `strict` with the bits of one device.
    step = ts.jit(ts.grad(lambda w, x, y: ts.mse(ts.gemm(x, w), y), argnums=0), numerics="strict")
    there = [dist.shard(v, dist.spec("dp"), space["mesh"]) for v in (x, y)]
    assert step(space["W"], *there).numpy().tobytes() == np.asarray(step(w, x, y)).tobytes()


def test_the_teaser_on_72_devices():
    """Line 2 of the acceptance list: as printed, but for the extent that X adds."""
    from tessera.op import gemm

    mesh = dist.mesh(devices=[f"cuda:{i}" for i in range(72)], axes=("dp", "tp", "pp"), shape=(4, 9, 2))
    W = dist.tensor(shape=(8192, 8192), layout=dist.ShardSpec(partition=("col",), mesh_axes=("tp",)), mesh=mesh, dtype="fp8_e4m3")
    assert [W.local(r).shape[1] for r in range(0, 18, 2)] == [911] * 8 + [904]
    some = (RNG.standard_normal((64, 64)) / 64).astype(ml_dtypes.float8_e4m3fn)
    W[...] = np.tile(some, (128, 128))
    X = ts.array(RNG.standard_normal((4, 8192)).astype(np.float32), "fp8_e4m3")
    Y = gemm(X, W)
    assert Y.placements == ("R", "S(1)", "R") and Y.dtype == W.dtype and [p.shape[1] for p in Y.parts("tp")] == [911] * 8 + [904]
    want = np.tile(np.asarray(X, np.float32).reshape(4, 128, 64).sum(1) @ some.astype(np.float32), 128)
    np.testing.assert_allclose(Y.numpy().astype(np.float32), want, rtol=2**-4, atol=2**-7)
    assert ts.jit(gemm).compiled(X, W).collectives == []


def mlp(x, up, down):
    h = nn.gelu(x @ up)
    return nn.softmax(h @ down)


def test_the_same_bits_on_every_mesh_and_backend_under_strict():
    """Lines 11 and 18 of the acceptance list: one function, its mesh changes from run to run."""
    args = [RNG.standard_normal(s).astype(np.float32) for s in ((12, 10), (10, 14), (14, 7))]
    strict = {name: ts.jit(mlp, numerics="strict", target=name) for name in ("cpu", "interp")}
    want, near = np.asarray(strict["interp"](*args)), ts.jit(mlp)
    for shape in ((1, 1), (2, 2), (3, 1), (1, 5), (4, 3)):
        mesh = dist.mesh(int(np.prod(shape)), ("dp", "tp"), shape)
        given = [dist.shard(a, s, mesh) for a, s in zip(args, (dist.spec("dp"), dist.spec(None, "tp"), dist.spec("tp")), strict=True)]
        for fn in strict.values():
            assert fn(*given).numpy().tobytes() == want.tobytes()
        np.testing.assert_allclose(near(*given).numpy(), want, rtol=1e-5, atol=1e-6)
    assert near.retraces and all("mesh" in why or "another form" in why for why in near.retraces)


def test_narrow_sums_over_ranks_are_kept_wide():
    """Line 25 of the acceptance list: the sum over ranks is that of f32, rounded once."""
    mesh = dist.mesh(8, ("tp",), (8,))
    for kind in (ml_dtypes.bfloat16, np.float16):
        x = RNG.standard_normal((4, 4096)).astype(kind)
        wide = x.astype(np.float64).sum(1)
        for profile in ("default", "strict"):
            got = ts.jit(lambda v: xp.sum(v, 1), numerics=profile)(dist.shard(x, dist.spec(None, "tp"), mesh)).numpy()
            np.testing.assert_allclose(got.astype(np.float64), wide, rtol=2.0**-8 if kind is not np.float16 else 2.0**-11, atol=1e-3)
        ones = dist.shard(np.ones((2, 4096), kind), dist.spec(None, "tp"), mesh)
        assert xp.sum(ones, 1).numpy().tolist() == [4096, 4096]


# What a program says of itself.


def layer(x, up, down):
    h = xp.tanh(x @ up)
    return h @ down


def test_explain_says_why_and_what_it_costs():
    mesh = dist.mesh(8, ("dp", "tp"), (4, 2))
    given = [dist.shard(np.ones(s, np.float32), p, mesh) for s, p in (((16, 8), dist.spec("dp")), ((8, 32), dist.spec(None, "tp")), ((32, 8), dist.spec("tp")))]
    made = ts.jit(layer).compiled(*given)
    text = made.explain()
    assert re.search(r"%x \[\{dp\}, \{\}\]", text) and "is pinned" in text and "goes with" in text
    (only,) = made.collectives
    # A rank has 4 rows of 8 floats; of two ranks each sends each half once to add and once to give it back.
    assert (only.kind, only.axis, only.size, only.nbytes, only.sent) == ("all_reduce", "tp", 2, 128, 128)
    assert only.place == (__file__, layer.__code__.co_firstlineno + 2)
    assert "1 collective, a rank sends 128 bytes" in text and "for `return h @ down`" in text
    assert "a rank sends 128 bytes" in ts.jit(layer).explain(*given)
    assert ts.jit(layer).compiled(*[v.numpy() for v in given]).explain() == "no array is on a mesh\n"
    f = ts.jit(lambda x: ts.fori_loop(0, 3, lambda i, c: dist.constrain(c + xp.sum(c), dist.spec("dp")), x))
    looped = f.compiled(dist.shard(np.ones(16, np.float32), dist.spec("dp"), mesh))
    assert any(c.times == 3 for c in looped.collectives) and "each time" in looped.explain()


# What is refused.

MESH, OTHER = dist.mesh(4, ("a", "b"), (2, 2)), dist.mesh(4, ("a", "b"), (4, 1))
X = np.ones((4, 6), np.float32)
ON, ELSEWHERE = dist.shard(X, dist.spec("a"), MESH), dist.shard(X, dist.spec("a"), OTHER)


def jitted(spec=None, out=None, fn=lambda v: v + 1):
    return lambda: ts.jit(fn, mesh=MESH, in_specs=spec, out_specs=out)(X)


def pinned(spec, fn=lambda v: v):
    return lambda: ts.jit(lambda v: dist.constrain(fn(v), spec))(ON)


def changes():
    def f(v):
        placed = dist.constrain(v, dist.spec("a"))
        with OTHER:
            return placed + 1

    with MESH:
        ts.jit(f)(X)


def enters():
    def f(v):
        with OTHER:
            return v + 1

    ts.jit(f)(ON)


even = dist.ShardSpec(partition=(0,), mesh_axes=("a",), require_even=True)


@ts.kernel
def copy(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], y: ts.Region[ts.write, ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    if i < n:  # noqa: F821
        y[i] = x[i]


REFUSED = {
    "an axis that is not there": (jitted(dist.spec("zz")), "E_PLACEMENT", "expected an axis of the mesh (a, b), got `zz`"),
    "an axis twice": (jitted(dist.spec("a", "a")), "E_PLACEMENT", "the mesh axis `a` is used twice in [{a}, {a}]"),
    "more dims": (jitted(dist.spec(None, None, "a")), "E_PLACEMENT", "expected a dim of an array with 2 dims"),
    "a result on an axis that is not there": (jitted(out=dist.spec("zz")), "E_PLACEMENT", "got `zz`"),
    "a result of fewer dims": (jitted(out=dist.spec("a"), fn=lambda v: xp.sum(v)), "E_PLACEMENT", "an array with 0 dims"),
    "a pin on an axis that is not there": (pinned(dist.spec("zz")), "E_PLACEMENT", "got `zz`"),
    "a pin on an axis twice": (pinned(dist.spec(("a", "a"))), "E_PLACEMENT", "used twice"),
    "a pin of more dims": (pinned(dist.spec(None, "a"), lambda v: xp.sum(v, 0)), "E_PLACEMENT", "an array with 1 dim"),
    "uneven where it must be even": (pinned(even, lambda v: v[:3]), "E_UNEVEN", "got 3 elements of dim 0 over a=2: 2 + 1"),
    "arrays of two meshes": (lambda: ON + ELSEWHERE, "E_PLACEMENT", "got arrays on Mesh(a=2, b=2) and on Mesh(a=4, b=1)"),
    "arrays of two meshes in a program": (lambda: ts.jit(lambda a, b: a @ b.T)(ON, ELSEWHERE), "E_PLACEMENT", "on Mesh(a=2, b=2) and on Mesh(a=4, b=1)"),
    "an array of another mesh from outside": (lambda: ts.jit(lambda a: a + ELSEWHERE)(ON), "E_PLACEMENT", "on Mesh(a=2, b=2) and on Mesh(a=4, b=1)"),
    "an argument on another mesh": (lambda: ts.jit(lambda a: a, mesh=OTHER, in_specs=dist.spec("a"))(ON), "E_PLACEMENT", "expected arrays on one mesh"),
    "arrays of two meshes of a function of the host": (lambda: xp.union1d(ON, ELSEWHERE), "E_PLACEMENT", "expected arrays on one mesh"),
    "a mesh that changes": (changes, "E_PLACEMENT", "got Mesh(a=4, b=1) where it is on Mesh(a=2, b=2)"),
    "a mesh that is entered": (enters, "E_PLACEMENT", "got Mesh(a=4, b=1) where it is on Mesh(a=2, b=2)"),
    "specs for more arguments": (lambda: ts.jit(lambda a: a, mesh=MESH, in_specs=(None, None))(X), "E_ARGUMENT", "or a tree of them like the arguments"),
    "specs with another key": (lambda: ts.jit(lambda p: p["w"], mesh=MESH, in_specs=({"v": None},))({"w": X}), "E_ARGUMENT", "a tree of them like the arguments, got {'v': None}"),
    "specs for more results": (jitted(out=(None, dist.spec("a"))), "E_ARGUMENT", "or a tree of them like the results"),
    "a spec that is none": (jitted("a"), "E_ARGUMENT", "expected `in_specs` to be one spec"),
    "a mesh that is none": (lambda: ts.jit(lambda a: a, mesh=3, in_specs=dist.spec("a"))(X), "E_TYPE", "expected a mesh, got int"),
    "a launch in a program": (lambda: ts.jit(lambda v: dist.index_launch("a")(copy)(v, v))(ON), "E_UNSUPPORTED", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, code, text = REFUSED[name]
    with pytest.raises(ts.TesseraError) as found:
        call()
    assert found.value.code == code and text in found.value.message, found.value
    assert found.value.help and found.value.file == __file__ and found.value.line


def test_pins_that_differ_move_the_value():
    """Placements cannot contradict each other: where two are requested, the value is moved."""
    f = ts.jit(lambda v: dist.constrain(dist.constrain(v, dist.spec("b")), dist.spec(None, "b")) + dist.constrain(v, dist.spec("b")))
    x = RNG.standard_normal((4, 6)).astype(np.float32)
    assert (f(dist.shard(x, dist.spec("a"), MESH)).numpy() == x + x).all()
    assert [c.kind for c in f.compiled(dist.shard(x, dist.spec("a"), MESH)).collectives]


def test_a_mesh_around_the_call_is_a_part_of_the_key():
    f = ts.jit(lambda v: dist.constrain(v * 2, dist.spec("a")))
    for mesh in (MESH, OTHER, MESH):
        with mesh:
            assert f(X).mesh == mesh
    assert len(f.retraces) == 1
