"""Programs over meshes that a user would write, each beside the same in plain NumPy."""

import threading

import numpy as np
import pytest

import tessera as ts
from tessera import array, dist, domain, index_launch

pytestmark = pytest.mark.filterwarnings("ignore:W_UNEVEN", "ignore:W_VIRTUAL_DEVICE")


@ts.kernel
def heat_step(
    left: ts.Region[ts.read, ts.Tensor[1, ts.f32]],
    x: ts.Region[ts.read, ts.Tensor["n", ts.f32]],
    right: ts.Region[ts.read, ts.Tensor[1, ts.f32]],
    y: ts.Region[ts.write, ts.Tensor["n", ts.f32]],
):
    i = ts.tile.linear_id()
    if i < n:
        a = left[0]
        b = right[0]
        if i > 0:
            a = x[i - 1]
        if i < n - 1:
            b = x[i + 1]
        y[i] = x[i] + 0.25 * (a - 2.0 * x[i] + b)
    return y


@ts.kernel
def edges(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], low: ts.Region[ts.write, ts.Tensor[1, ts.f32]], high: ts.Region[ts.write, ts.Tensor[1, ts.f32]]):
    i = ts.tile.linear_id()
    if i < 1:
        low[0] = x[0]
        high[0] = x[n - 1]


def test_a_halo_exchange_by_edges():
    """Each part gives its edges; neighbours read them as parts in another order."""
    ranks, n, steps = 5, 37, 8
    mesh = dist.mesh(ranks, ("x",), (ranks,))
    start = np.sin(np.arange(n)).astype(np.float32)
    x, y = dist.shard(start, dist.spec("x"), mesh), dist.tensor((n,), dist.spec("x"), mesh)
    low, high = (dist.tensor((ranks,), dist.spec("x"), mesh) for _ in range(2))
    border = dist.tensor((1,), None, mesh)
    launch = index_launch("x")
    for _ in range(steps):
        launch(edges)(x, low, high)
        zero = border.parts("x")[0]
        launch(heat_step)([zero, *high.parts("x")[:-1]], x, [*low.parts("x")[1:], zero], y)
        x, y = y, x
    expected = start.copy()
    for _ in range(steps):
        padded = np.pad(expected, 1)
        expected = expected + np.float32(0.25) * (padded[:-2] - 2 * expected + padded[2:])
    assert np.allclose(x.numpy(), expected, atol=1e-5)


@ts.kernel
def block_product(A: ts.Region[ts.read, ts.Tensor["m", "k", ts.f32]], B: ts.Region[ts.read, ts.Tensor["k", "n", ts.f32]], C: ts.Region[ts.read_write, ts.Tensor["m", "n", ts.f32]]):
    i = ts.tile.program_id(0) * 8
    j = ts.tile.program_id(1) * 8
    acc = C[i : i + 8, j : j + 8]
    for p in range(0, k, 8):
        acc = ts.tile.mma(A[i : i + 8, p : p + 8], B[p : p + 8, j : j + 8], acc)
    C[i : i + 8, j : j + 8] = acc


@pytest.mark.parametrize("shape", [(12, 20, 9), (7, 5, 3), (33, 2, 40)])
def test_a_blocked_matmul_over_parts(shape):
    """The blocks of A move along the rows of the mesh by resharding, those of B along its columns."""
    m, k, n = shape
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)
    mesh = dist.mesh(6, ("r", "c"), (2, 3))
    A, B = dist.shard(a, dist.spec("r"), mesh), dist.shard(b, dist.spec(None, "c"), mesh)
    C = dist.tensor((m, n), dist.spec("r", "c"), mesh)
    launch = index_launch(("r", "c"))
    launch(block_product)(A.parts(("r", "c")), B.parts(("r", "c")), C)
    assert np.allclose(C.numpy(), a @ b, atol=1e-4)


@ts.kernel
def histogram(x: ts.Region[ts.read, ts.Tensor["n", ts.i32]], counts: ts.Region[ts.reduce_sum, ts.Tensor["bins", ts.i32]]):
    b = ts.tile.linear_id()
    if b < bins:
        found = ts.tile.cast(0, ts.i32)
        for i in range(n):
            if x[i] == b:
                found += 1
        counts[b] += found


@pytest.mark.parametrize("how", [dist.Block, dist.Cyclic, lambda a: dist.BlockCyclic(a, 3)])
def test_a_histogram_into_one_array(how):
    rng = np.random.default_rng(2)
    x = rng.integers(0, 11, 101).astype(np.int32)
    mesh = dist.mesh(7, ("d",), (7,))
    placed = dist.shard(x, how(("d",)), mesh)
    for spec in (None, dist.spec("d"), dist.spec(sum=("d",))):
        counts = dist.tensor((11,), spec, mesh, "i32", init=5)
        index_launch("d")(histogram)(placed, counts)
        index_launch("d")(histogram)(placed, counts)
        assert np.array_equal(counts.numpy(), 5 + 2 * np.bincount(x, minlength=11)), spec


@ts.kernel
def into_bins(at: ts.Region[ts.read, ts.Tensor["n", ts.f32]], mass: ts.Region[ts.read, ts.Tensor["n", ts.f32]], bins: ts.Region[ts.reduce_sum, ts.Tensor["m", ts.f64]]):
    b = ts.tile.linear_id()
    if b < m:
        s = ts.tile.cast(0.0, ts.f64)
        for i in range(n):
            if at[i] >= ts.tile.cast(b, ts.f32) and at[i] < ts.tile.cast(b + 1, ts.f32):
                s += ts.tile.cast(mass[i], ts.f64)
        bins[b] += s


def test_particles_in_bins():
    rng = np.random.default_rng(3)
    at, mass = rng.uniform(0, 10, 50).astype(np.float32), rng.integers(1, 9, 50).astype(np.float32)
    mesh = dist.mesh(4, ("d",), (4,))
    bins = dist.tensor((10,), dist.spec("d"), mesh, "f64")
    index_launch("d")(into_bins)(dist.shard(at, dist.spec("d"), mesh), dist.shard(mass, dist.spec("d"), mesh), bins)
    expected = np.bincount(at.astype(int), weights=mass, minlength=10)
    assert np.array_equal(bins.numpy(), expected)


@ts.kernel(lanes=(8, 8))
def jacobi(x: ts.Region[ts.read, ts.Tensor["N", "N", ts.f32]], f: ts.Region[ts.read, ts.Tensor["m", "N", ts.f32]], y: ts.Region[ts.write, ts.Tensor["m", "N", ts.f32]], first: ts.i32):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    if i < m and j < N:
        row = i + first
        s = f[i, j]
        if row > 0:
            s += x[row - 1, j]
        if row < N - 1:
            s += x[row + 1, j]
        if j > 0:
            s += x[row, j - 1]
        if j < N - 1:
            s += x[row, j + 1]
        y[i, j] = 0.25 * s


def test_jacobi_with_copies_of_the_grid():
    """Each task has a number of its own: one launch a part."""
    n, mesh = 13, dist.mesh(4, ("d",), (4,))
    f = np.random.default_rng(4).standard_normal((n, n)).astype(np.float32)
    F, x, y = dist.shard(f, dist.spec("d"), mesh), dist.tensor((n, n), None, mesh), dist.tensor((n, n), dist.spec("d"), mesh)
    expected = np.zeros((n, n), np.float32)
    for _ in range(6):
        for p, q in zip(F.parts("d"), y.parts("d")):
            jacobi(x.parts("d")[0], p, q, p.index[0].start)
        x = y.reshard(None)
        z = np.pad(expected, 1)
        expected = np.float32(0.25) * (f + z[:-2, 1:-1] + z[2:, 1:-1] + z[1:-1, :-2] + z[1:-1, 2:])
    assert np.allclose(x.numpy(), expected, atol=1e-5)


@ts.kernel
def gradient(X: ts.Region[ts.read, ts.Tensor["b", "n", ts.f32]], t: ts.Region[ts.read, ts.Tensor["b", ts.f32]], w: ts.Region[ts.read, ts.Tensor["n", ts.f32]], g: ts.Region[ts.reduce_sum, ts.Tensor["n", ts.f32]]):
    j = ts.tile.linear_id()
    if j < n:
        s = 0.0
        for r in range(b):
            d = 0.0 - t[r]
            for c in range(n):
                d += X[r, c] * w[c]
            s += d * X[r, j]
        g[j] += s


@ts.kernel
def step(w: ts.Region[ts.read_write, ts.Tensor["n", ts.f32]], g: ts.Region[ts.read_write, ts.Tensor["n", ts.f32]], rate: ts.f32):
    j = ts.tile.linear_id()
    if j < n:
        w[j] = w[j] - rate * g[j]
        g[j] = 0.0


def test_data_parallel_steps_of_least_squares():
    rng = np.random.default_rng(5)
    X, t = rng.standard_normal((30, 4)).astype(np.float32), rng.standard_normal(30).astype(np.float32)
    mesh = dist.mesh(4, ("dp",), (4,))
    xs, ts_ = dist.shard(X, dist.spec("dp"), mesh), dist.shard(t, dist.spec("dp"), mesh)
    w, g = dist.tensor((4,), None, mesh), dist.tensor((4,), None, mesh)
    expected = np.zeros(4, np.float64)
    with dist.count() as c, mesh:
        for _ in range(15):
            index_launch("dp")(gradient)(xs, ts_, w, g)
            # Every copy is one block: the step runs once.
            step(w.parts("dp")[0], g.parts("dp")[0], 0.01)
            expected -= 0.01 * X.T.astype(np.float64) @ (X @ expected - t)
    assert np.allclose(w.numpy(), expected, atol=1e-4) and c["all_reduce"] == 15


@ts.kernel
def add_one(x: ts.Region[ts.read_write, ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    if i < n:
        x[i] = x[i] + 1.0


def test_uneven_and_empty_blocks_and_meshes_larger_than_arrays():
    for ranks, n in ((9, 4), (4, 4), (5, 1), (3, 0), (8, 17)):
        mesh = dist.mesh(ranks, ("d",), (ranks,))
        for how in (dist.Block, dist.Cyclic, lambda a: dist.BlockCyclic(a, 2)):
            if n:
                x = array.from_domain(domain.Rect((n,)), "f32", how(("d",)), mesh, fill="ones")
            else:
                x = dist.tensor((n,), how(("d",)), mesh, init=1)
            for _ in range(3):
                index_launch("d")(add_one)(x)
            assert np.array_equal(x.numpy(), np.full(n, 4)), (ranks, n, how)


def test_parts_of_two_axes_and_of_one():
    mesh = dist.mesh(6, ("a", "b"), (2, 3))
    x = dist.tensor((10,), dist.spec(("a", "b")), mesh)
    index_launch(("a", "b"))(add_one)(x)
    index_launch(("b", "a"))(add_one)(x)
    for p in x.parts("a"):
        p[...] = p.numpy() * 10
    assert np.array_equal(x.numpy(), np.full(10, 20))


def test_reshards_in_a_loop():
    mesh = dist.mesh(6, ("a", "b"), (2, 3))
    given = np.arange(35, dtype=np.float32).reshape(5, 7)
    specs = [dist.spec("a"), dist.spec(None, "b"), dist.spec("b", "a"), dist.spec(dist.Cyclic(("a",))), dist.spec(sum=("a",)), None]
    x = dist.shard(given, specs[0], mesh)
    for i in range(30):
        x = x.reshard(specs[i * 5 % 6])
        if x.spec != dist.spec(sum=("a",)):
            for p in x.parts(("a", "b")) if i % 2 and x.spec == dist.spec("b", "a") else ():
                assert p.numpy().size <= 35
    assert np.array_equal(x.numpy(), given)


def test_a_mapper_that_shuffles_devices_and_limits_threads():
    class Mine(ts.Mapper):
        def place(self, region, mesh):
            return "spread" if region.axis == "a" else None

        def tunable(self, name, default):
            return 1 if name == "launch_threads" else default

    with ts.runtime.set_mapper(Mine()):
        mesh = dist.mesh(6, ("a", "b"), (2, 3))
        x = dist.tensor((12,), dist.spec(("a", "b")), mesh)
        for _ in range(5):
            index_launch(("a", "b"))(add_one)(x)
        assert (x.numpy() == 5).all()


def test_threads_of_the_user_share_an_array_by_parts():
    mesh = dist.mesh(4, ("d",), (4,))
    x = dist.tensor((40,), dist.spec("d"), mesh)
    failures = []

    def work(part):
        try:
            for _ in range(25):
                add_one(part)
                index_launch("d")(add_one)(x)
        except BaseException as error:  # noqa: BLE001 - it is raised below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(p,)) for p in x.parts("d")]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures and (x.numpy() >= 100).all()


@ts.kernel
def checked(x: ts.Region[ts.read, ts.Tensor["n", ts.f32]], y: ts.Region[ts.write, ts.Tensor["n", ts.f32]]):
    i = ts.tile.linear_id()
    if i < n:
        assert x[i] >= 0.0, "expected no debt"
        y[i] = x[i]


def test_an_exception_in_a_loop_leaves_later_launches_whole():
    mesh = dist.mesh(3, ("d",), (3,))
    good, bad = dist.tensor((6,), dist.spec("d"), mesh, init=1), dist.tensor((6,), dist.spec("d"), mesh, init=-1)
    y, caught = dist.tensor((6,), dist.spec("d"), mesh), 0
    for i in range(9):
        try:
            index_launch("d")(checked)(bad if i % 3 == 0 else good, y)
            index_launch("d")(add_one)(y)
            y.numpy()
        except ts.TesseraError as error:
            caught += 1
            assert "expected no debt" in str(error) and "rank 0" in str(error) and "`checked`" in str(error)
            dist.wait()
    assert caught == 3 and (y.numpy() == 2).all()


def test_a_mesh_of_many_ranks():
    mesh = dist.mesh(512, ("a", "b", "c"), (8, 8, 8))
    x = dist.tensor((600, 8), dist.spec(("a", "b"), "c"), mesh, init=1)
    total = dist.tensor((8,), None, mesh)
    rows = x.reshard(dist.spec(("a", "b", "c")))
    index_launch(("a", "b", "c"))(column_sums)(rows, total)
    assert np.array_equal(total.numpy(), np.full(8, 600))


@ts.kernel
def column_sums(x: ts.Region[ts.read, ts.Tensor["m", "n", ts.f32]], total: ts.Region[ts.reduce_sum, ts.Tensor["n", ts.f32]]):
    j = ts.tile.linear_id()
    if j < n:
        s = 0.0
        for r in range(m):
            s = s + x[r, j]
        total[j] += s
