"""Lanes of two and three axes: ids, launches, shared memory, group operations, errors."""

import pickle

import numpy as np
import pytest
import tessera as ts


@ts.kernel(lanes=(4, 8))
def ids(y: ts.Out[7, "M", "N", ts.i64]):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    y[0, i, j] = i
    y[1, i, j] = j
    y[2, i, j] = ts.tile.local_id(0)
    y[3, i, j] = ts.tile.thread_id(1)
    y[4, i, j] = ts.tile.group.rank
    y[5, i, j] = ts.tile.group_id(0) * 100 + ts.tile.block_id(1)
    y[6, i, j] = ts.tile.num_groups(1) * 10000 + ts.tile.group_size(0) * 100 + ts.tile.group_size(1)
    return y


@pytest.mark.parametrize("shape", [(1, 1), (4, 8), (5, 17), (13, 3), (0, 4)])
def test_ids_along_each_axis(backend, shape):
    m, n = shape
    y = ids(np.zeros((7, m, n), np.int64))
    i, j = np.indices(shape)
    groups = -(-n // 8)
    want = [i, j, i % 4, j % 8, i % 4 * 8 + j % 8, i // 4 * 100 + j // 8, np.full(shape, groups * 10000 + 408)]
    for got, wanted in zip(y, want):
        assert (got == wanted).all()


@ts.kernel(lanes=(2, 3, 4))
def add_one(x: ts.Tensor["A", "B", "C", ts.f32], y: ts.Out["A", "B", "C", ts.f32]):
    i, j, k = ts.tile.linear_id(0), ts.tile.linear_id(1), ts.tile.linear_id(2)
    if i < A and j < B and k < C:
        y[i, j, k] = x[i, j, k] + 1.0
    return y


def test_three_axes_are_inferred(backend):
    x = np.random.default_rng(0).standard_normal((5, 7, 9), np.float32)
    assert (add_one(x) == x + 1).all()
    assert add_one.explain().lanes == ((5, 7, 9), (2, 3, 4))
    assert "lanes: 5x7x9 in groups of 2x3x4" in str(add_one.explain())


@ts.kernel(lanes=(16, 16))
def transpose(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["N", "M", ts.f32]):
    tile = ts.tile.alloc_shared((16, 17), ts.f32)
    r, c = ts.tile.local_id(0), ts.tile.local_id(1)
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    tile[r, c] = x[i, j]
    ts.tile.barrier()
    y[ts.tile.group_id(1) * 16 + r, ts.tile.group_id(0) * 16 + c] = tile[c, r]
    return y


def test_shared_memory_by_axes(backend):
    x = np.random.default_rng(0).standard_normal((48, 32), np.float32)
    assert (transpose(x) == x.T).all()


@ts.kernel(lanes=(4, 8))
def group_sums(x: ts.Tensor["M", "N", ts.f32], sums: ts.Out["M", "N", ts.f32], before: ts.Out["M", "N", ts.f32], left: ts.Out["M", "N", ts.f32]):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    sums[i, j] = ts.tile.group.reduce(x[i, j], "sum")
    before[i, j] = ts.tile.group.scan(x[i, j], "sum")
    left[i, j] = ts.tile.group.shuffle(x[i, j], ts.tile.group.rank - 1)
    return sums, before, left


def test_group_operations_leave_out_lanes_beyond_the_array(backend):
    x = np.random.default_rng(0).integers(-9, 9, (6, 13)).astype(np.float32)
    with ts.numerics.profile("strict"):
        sums, before, left = group_sums(x)
    for p in range(0, 6, 4):
        for q in range(0, 13, 8):
            block = x[p : p + 4, q : q + 8]
            assert (sums[p : p + 4, q : q + 8] == block.sum()).all()
            assert (before[p : p + 4, q : q + 8] == block.ravel().cumsum().reshape(block.shape)).all()
            # The lane before the first of a row is the last of a full row, which may not exist.
            padded = np.zeros((4, 8), np.float32)
            padded[: block.shape[0], : block.shape[1]] = block
            shifted = np.concatenate([[0], padded.ravel()[:-1]]).reshape(4, 8)
            assert (left[p : p + 4, q : q + 8] == shifted[: block.shape[0], : block.shape[1]]).all()


@ts.kernel(lanes=(2, 16))
def votes(x: ts.Tensor["M", "N", ts.i32], bits: ts.Out["M", "N", ts.u32], same: ts.Out["M", "N", ts.u32], largest: ts.Out["M", "N", ts.i32]):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    mine = ts.tile.alloc_local((2,), ts.i32)
    mine[0] = x[i, j]
    mine[1] = 3
    bits[i, j] = ts.tile.group.ballot(x[i, j] > 0)
    same[i, j] = ts.tile.group.match(x[i, j])
    largest[i, j] = max(mine[0], mine[1])
    return bits, same, largest


def test_votes_and_private_arrays_by_number(backend):
    x = np.random.default_rng(0).integers(-2, 3, (2, 20)).astype(np.int32)
    bits, same, largest = votes(x)
    for q in (0, 16):
        block = x[:, q : q + 16]
        number = np.arange(2)[:, None] * 16 + np.arange(block.shape[1])
        want = sum(1 << int(n) for n in number[block > 0])
        assert (bits[:, q : q + 16] == want).all()
        for value in np.unique(block):
            want = sum(1 << int(n) for n in number[block == value])
            assert (same[:, q : q + 16][block == value] == want).all()
    assert (largest == np.maximum(x, 3)).all()


def test_grid_of_the_caller(backend):
    @ts.kernel(lanes=(2, 8))
    def fill(x: ts.Tensor["M", "N", ts.f32]):
        x[ts.tile.linear_id(0), ts.tile.linear_id(1)] = 1.0

    x = np.zeros((6, 20), np.float32)
    fill[3, 11](x)
    assert x.sum() == 33 and (x[:3, :11] == 1).all()
    for grid in ((33,), (3, 11, 1)):
        with pytest.raises(ts.LaunchError, match="E_LAUNCH_GEOMETRY.*expected a grid of 2 axes"):
            fill[grid](x)


def test_geometry_names_the_axis():
    @ts.kernel(lanes=(2, 8))
    def shifted(x: ts.Tensor["M", "N", ts.f32]):
        x[ts.tile.linear_id(0), ts.tile.linear_id(1) + 1] = 1.0

    with pytest.raises(ts.LaunchError, match="expected the number of lanes along axis 1") as caught:
        shifted(np.zeros((6, 20), np.float32))
    assert "shifted[M, m]" in caught.value.help


@pytest.mark.parametrize(
    "lanes, message",
    [
        ((2, 2, 2, 2), "expected lanes along 1 to 3 axes, got 4"),
        ((), "expected lanes along 1 to 3 axes, got 0"),
        ((16, 0), "expected lanes in a group from 1 to 1024"),
        ((64, 17), "expected lanes in a group from 1 to 1024"),
        ((4, True), "expected lanes in a group from 1 to 1024"),
        ((4, 2.0), "expected lanes in a group from 1 to 1024"),
        (0, "expected lanes in a group from 1 to 1024"),
        ("16", "expected lanes in a group from 1 to 1024"),
    ],
)
@pytest.mark.parametrize("decorate", [ts.kernel, lambda **options: ts.kernel.autotune(dict(B=[1, 2]), **options)])
def test_lanes_that_are_refused(lanes, message, decorate):
    with pytest.raises(ts.TesseraError, match=message) as caught:
        decorate(lanes=lanes)
    assert caught.value.code == "E_ARGUMENT" and "lanes=(16, 16)" in caught.value.help
    assert caught.value.file == __file__


def test_axes_that_are_refused():
    def refused(code, message):
        return pytest.raises(ts.TesseraError, match=f"{code}.*{message}")

    with refused("E_ARGUMENT", "expected the axis of ts.tile.linear_id: the kernel's lanes have 2 axes"):

        @ts.kernel(lanes=(2, 8))
        def no_axis(x: ts.Tensor["M", "N", ts.f32]):
            x[ts.tile.linear_id(), 0] = 1.0

    with refused("E_ARGUMENT", "expected the axis of ts.tile.local_id"):

        @ts.kernel(lanes=(2, 8))
        def no_local_axis(x: ts.Tensor["M", "N", ts.f32]):
            x[ts.tile.local_id(), 0] = 1.0

    with refused("E_ARGUMENT", "expected an axis of the lanes from 0 to 1, got"):

        @ts.kernel(lanes=(2, 8))
        def third(x: ts.Tensor["M", "N", ts.f32]):
            x[ts.tile.linear_id(2), 0] = 1.0

    with refused("E_ARGUMENT", "expected axis 0, for the lanes have one"):

        @ts.kernel(lanes=16)
        def second(x: ts.Tensor["M", "N", ts.f32]):
            x[ts.tile.linear_id(1), 0] = 1.0

    with refused("E_STYLE_MIX", "expected lanes of one axis in a group kernel"):

        @ts.kernel(lanes=(2, 8))
        def group(x: ts.Tensor["M", "N", ts.f32]):
            x[0:8, 0:8] = 1.0


def test_axis_zero_of_lanes_of_one_axis():
    @ts.kernel(lanes=[16])
    def double(x: ts.Tensor["n", ts.f32], y: ts.Out["n", ts.f32]):
        i = ts.tile.linear_id(0)
        y[i] = x[i] * ts.tile.group_size(0)
        return y

    assert (double(np.ones(20, np.float32)) == 16).all()


@ts.kernel(lanes=(4, 16))
def scaled(x: ts.Tensor["M", "N", ts.f32], s: ts.Tensor["M", ts.f32], y: ts.Out["M", "N", ts.f32]):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    y[i, j] = x[i, j] * s[i]
    return y


def test_derivatives_add_over_the_axis_that_is_not_there():
    rng = np.random.default_rng(0)
    x, s = rng.standard_normal((6, 20), np.float32), rng.standard_normal(6, np.float32)
    dx, ds = ts.grad(lambda x, s: ts.xp.sum(scaled(x, s) * 2.0), argnums=(0, 1))(x, s)
    assert np.allclose(dx, np.broadcast_to(2 * s[:, None], x.shape))
    assert np.allclose(ds, 2 * x.sum(1), atol=1e-4)


def test_a_store_that_lanes_share_has_no_derivative():
    @ts.kernel(lanes=(4, 16))
    def first(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
        i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
        if i < M and j < N:
            y[i] = x[i, 0]
        return y

    with pytest.raises(ts.TesseraError, match="lets every lane along axis 1 write the same element"):
        ts.grad(lambda x: ts.xp.sum(first(x, ts.xp.zeros(6))))(np.ones((6, 20), np.float32))


def test_jit_vmap_and_pickle():
    x, s = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(3, dtype=np.float32)
    assert (np.asarray(ts.jit(lambda x, s: scaled(x, s) + 1.0)(x, s)) == x * s[:, None] + 1).all()
    stacked = ts.vmap(lambda x: scaled(x, s))(np.stack([x, x + 1]))
    assert (np.asarray(stacked) == np.stack([x, x + 1]) * s[:, None]).all()
    assert (pickle.loads(pickle.dumps(scaled))(x, s) == x * s[:, None]).all()


def test_races_between_rows_are_found():
    def rows(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["N", ts.f32]):
        i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
        y[j] = x[i, j]

    with pytest.raises(ts.PrivilegeError, match="does not depend on linear_id\\(0\\)"):
        ts.kernel(lanes=(4, 4))(rows)

    # Which rows share an element is not in the source.
    @ts.kernel(lanes=(4, 4))
    def scattered(x: ts.Tensor["M", "N", ts.f32], at: ts.Tensor["M", ts.i32], y: ts.Tensor["M", "N", ts.f32]):
        i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
        y[at[i], j] = x[i, j]

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    report = scattered.check(x, np.zeros(8, np.int32), np.zeros((8, 8), np.float32))
    assert not report and report.findings[0].code == "E_RACE"
    assert scattered.check(x, np.arange(8, dtype=np.int32), np.zeros((8, 8), np.float32))
    assert transpose.check(np.ones((32, 16), np.float32))


def test_code_for_a_gpu_is_made_without_one():
    made = transpose.jit(target="sm90")
    assert "%ctaid.x" in made.inspect_ir("target") and "bar" in made.inspect_ir("target")
    for level in ("tile", "schedule"):
        assert "lanes = [16, 16]" in made.inspect_ir(level) and "domain = [M, N]" in made.inspect_ir(level)


def test_cost_counts_every_lane():
    add_one(np.ones((5, 7, 9), np.float32))
    work = add_one.explain()
    assert work.flops == 5 * 7 * 9
