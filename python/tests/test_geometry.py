"""Launch geometry (LANGUAGE 3), starts that are not negative, and extents of zero, compared with NumPy."""

import numpy as np
import pytest
import tessera as ts

BACKENDS = ("cpu", "interp")


@pytest.fixture(autouse=True, params=BACKENDS)
def backend(request, monkeypatch):
    monkeypatch.setenv("TESSERA_BACKEND", request.param)


def test_program_id_beside_an_index_tile():
    @ts.kernel
    def flip(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
        r = ts.tile.program_id(0)
        rank = N - 1 - ts.tile.arange(N)
        y[r, rank] = x[r, :]
        return y

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(flip(x), x[:, ::-1])
    assert flip.explain().grid == (3, 1, 1)


def test_folds_and_scatters_at_index_tiles_beside_a_slice():
    @ts.kernel
    def both(
        x: ts.Tensor["n", ts.i32],
        h: ts.Region[ts.reduce_sum, ts.Tensor["m", ts.i32]],
        z: ts.Tensor["m", ts.i32],
        y: ts.Out["n", ts.i32],
    ):
        s = ts.tile.program_id(0) * 8
        t = x[s : s + 8]
        y[s : s + 8] = t * 2
        at = ts.tile.bounds_mask(t, cols=n - s, value=-1)
        h[at] += 1
        z[at] = 1
        return h, z, y

    x = np.array([0, 1, 1, 2, 1, 0, 0, 0, 1, 2], np.int32)
    h, z, y = both(x, np.zeros(4, np.int32), np.zeros(4, np.int32))
    np.testing.assert_array_equal(h, np.bincount(x, minlength=4))
    np.testing.assert_array_equal(z, [1, 1, 1, 0])
    np.testing.assert_array_equal(y, 2 * x)


def test_a_reduce_parameter_takes_no_part():
    @ts.kernel
    def spread(x: ts.Tensor["n", ts.i32], h: ts.Region[ts.reduce_sum, ts.Tensor[3, ts.i32]], y: ts.Out["n", ts.i32]):
        p = ts.tile.program_id(0)
        y[p] = x[p]
        h[p % 3] += x[p]
        return h, y

    x = np.arange(10, dtype=np.int32)
    h, y = spread(x, np.zeros(3, np.int32))
    np.testing.assert_array_equal(h, [x[i::3].sum() for i in range(3)])
    np.testing.assert_array_equal(y, x)


def test_a_position_from_memory_takes_no_part():
    @ts.kernel
    def put(at: ts.Tensor["M", ts.int64], y: ts.Tensor["M", "N", ts.f32]):
        r = ts.tile.program_id(0)
        y[r, at[r]] = 1.0
        return y

    at = np.array([2, 0, 1])
    np.testing.assert_array_equal(put(at, np.zeros((3, 4), np.float32)), np.eye(4, dtype=np.float32)[at])


def test_other_uses_are_refused():
    @ts.kernel
    def twist(y: ts.Tensor["M", "N", ts.f32]):
        p = ts.tile.program_id(0)
        y[p, p % 3] = 1.0

    with pytest.raises(ts.TesseraError, match="E_LAUNCH_GEOMETRY"):
        twist(np.zeros((3, 4), np.float32))

    @ts.kernel
    def only_reduced(h: ts.Region[ts.reduce_sum, ts.Tensor["n", ts.f32]]):
        p = ts.tile.program_id(0)
        h[p] += 1.0

    with pytest.raises(ts.TesseraError, match="E_LAUNCH_GEOMETRY"):
        only_reduced(np.zeros(4, np.float32))


def test_lanes_of_a_short_circuit():
    @ts.kernel
    def positive(x: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.f32], m: ts.i64):
        i = ts.tile.linear_id()
        if i < m and x[i] > 2.0:
            y[i] = x[i]

    @ts.kernel
    def small(x: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.f32], m: ts.i64):
        i = ts.tile.linear_id()
        if i >= m or x[i] > 2.0:
            return
        y[i] = x[i]

    x = np.arange(1, 21, dtype=np.float32)
    for kernel, chosen in ((positive, x > 2), (small, x <= 2)):
        y = np.zeros(30, np.float32)
        kernel(x, y, 7)
        expected = np.zeros_like(y)
        expected[:7] = np.where(chosen, x, 0)[:7]
        np.testing.assert_array_equal(y, expected)
        assert kernel.explain().grid == (1, 1, 1)


def starts():
    """Kernels whose slices begin where the text says, and Python's number for it."""

    @ts.kernel
    def square(x: ts.Tensor["n", ts.f32], y: ts.Out["m", ts.f32]):
        p = ts.tile.program_id(0)
        s = (p - 2) * (p - 2)
        y[p] = ts.tile.max(ts.tile.bounds_mask(x[s : s + 4], cols=n - s))

    @ts.kernel
    def before(x: ts.Tensor["n", ts.f32], y: ts.Out["m", ts.f32]):
        p = ts.tile.program_id(0)
        best = 0.0
        for i in range(1, 4):
            s = i - 1
            best = max(best, ts.tile.max(ts.tile.bounds_mask(x[s : s + 4], cols=n - s)))
        y[p] = best

    @ts.kernel
    def ceiling(x: ts.Tensor["n", ts.f32], y: ts.Out["m", ts.f32]):
        p = ts.tile.program_id(0)
        s = ts.cdiv(p, 2) * 4
        y[p] = ts.tile.max(ts.tile.bounds_mask(x[s : s + 4], cols=n - s))

    @ts.kernel
    def rounded(x: ts.Tensor["n", ts.f32], y: ts.Out["m", ts.f32]):
        p = ts.tile.program_id(0)
        s = p - p % 4
        y[p] = ts.tile.max(ts.tile.bounds_mask(x[s : s + 4], cols=n - s))

    @ts.kernel
    def guarded(x: ts.Tensor["n", ts.f32], y: ts.Out["m", ts.f32]):
        p = ts.tile.program_id(0)
        best = -1.0
        if p >= 2:
            s = p - 2
            best = ts.tile.max(ts.tile.bounds_mask(x[s : s + 4], cols=n - s))
        y[p] = best

    @ts.kernel
    def backwards(x: ts.Tensor["n", ts.f32], y: ts.Out["m", ts.f32]):
        p = ts.tile.program_id(0)
        best = 0.0
        for i in range(n):
            s = n - 1 - i
            best += ts.tile.max(ts.tile.bounds_mask(x[s : s + 4], cols=n - s))
        y[p] = best

    return {
        square: lambda x, p: x[(p - 2) ** 2 :][:4].max(),
        before: lambda x, p: max(x[i - 1 :][:4].max() for i in range(1, 4)),
        ceiling: lambda x, p: x[-(-p // 2) * 4 :][:4].max(),
        rounded: lambda x, p: x[p - p % 4 :][:4].max(),
        guarded: lambda x, p: x[p - 2 :][:4].max() if p >= 2 else -1,
        backwards: lambda x, p: sum(x[i:][:4].max() for i in range(len(x))),
    }


def test_starts_that_are_not_negative():
    x = np.random.default_rng(0).integers(0, 100, 21).astype(np.float32)
    for kernel, expected in starts().items():
        y = np.zeros(6, np.float32)
        kernel(x, y)
        np.testing.assert_array_equal(y, [expected(x, p) for p in range(6)], err_msg=kernel.name)


def test_starts_that_may_be_negative_are_refused():
    with pytest.raises(ts.TesseraError, match="may begin before the tensor"):

        @ts.kernel
        def carried(x: ts.Tensor["n", ts.f32], y: ts.Out["m", ts.f32]):
            p = ts.tile.program_id(0)
            best = 0.0
            s = 3
            for _ in range(5):
                best = max(best, ts.tile.max(ts.tile.bounds_mask(x[s : s + 4], cols=n - s)))
                s -= 1
            y[p] = best


def test_rows_without_elements():
    @ts.kernel
    def rows(
        x: ts.Tensor["M", "N", ts.f32],
        y: ts.Out["M", "N", ts.f32],
        total: ts.Out["M", ts.f32],
        product: ts.Out["M", ts.f32],
        every: ts.Out["M", ts.int32],
    ):
        r = ts.tile.program_id(0)
        t = x[r, :]
        y[r, :] = ts.tile.cumsum(t * 2.0) + ts.tile.arange(N)
        total[r] = ts.tile.sum(t) + ts.tile.sum(ts.tile.ones((N,)))
        product[r] = ts.tile.prod(t)
        every[r] = 0
        if ts.tile.all(t > 0.0):
            every[r] = 1
        return y, total, product, every

    for shape in ((3, 0), (0, 0), (0, 3), (2, 3)):
        x = np.ones(shape, np.float32)
        y, total, product, every = rows(x)
        np.testing.assert_array_equal(y, np.cumsum(2 * x, axis=1) + np.arange(shape[1]))
        np.testing.assert_array_equal(total, x.sum(1) + shape[1])
        np.testing.assert_array_equal(product, x.prod(1))
        np.testing.assert_array_equal(every, (x > 0).all(1))


def test_softmax_of_rows_without_elements():
    @ts.kernel
    def softmax(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", "N", ts.f32]):
        r = ts.tile.program_id(0)
        t = x[r, :]
        e = ts.tile.exp(t - ts.tile.max(t))
        y[r, :] = e / ts.tile.sum(e)
        return y

    assert softmax(np.zeros((3, 0), np.float32)).shape == (3, 0)


def test_a_maximum_of_no_elements_is_refused():
    @ts.kernel
    def largest(x: ts.Tensor["M", "N", ts.f32], y: ts.Out["M", ts.f32]):
        r = ts.tile.program_id(0)
        y[r] = ts.tile.max(x[r, :])
        return y

    with pytest.raises(ts.TesseraError, match="expected at least one element for the `max`") as caught:
        largest(np.zeros((3, 0), np.float32))
    assert caught.value.code == "E_SHAPE_MISMATCH" and caught.value.help


def test_products_over_no_elements():
    @ts.kernel
    def product(A: ts.Tensor["M", "K", ts.f32], B: ts.Tensor["K", "N", ts.f32], C: ts.Out["M", "N", ts.f32]):
        C[:, :] = ts.tile.mma(A[:, :], B[:, :])
        return C

    for m, k, n in ((3, 0, 2), (0, 2, 2), (2, 2, 0), (2, 3, 2)):
        A, B = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
        np.testing.assert_array_equal(product(A, B), A @ B)
