"""Races between the lanes of a kernel that its source shows: what is refused when it is compiled, and what is not."""

import numpy as np
import pytest
import tessera as ts

X = np.arange(50, dtype=np.float32)
A = np.arange(40 * 50, dtype=np.float32).reshape(40, 50) % 7


def later(**options):
    """A kernel that is made when it is called: what is refused may be so immediately."""
    return lambda body: lambda *args: ts.kernel(**options)(body)(*args)


def refused(kernel, *args, profile="default", **launch):
    with ts.numerics.profile(profile), pytest.raises(ts.PrivilegeError, match="E_RACE") as caught:
        (kernel.launch if launch else kernel)(*args, **launch)
    return caught.value


@later(lanes=64)
def read_add_store(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
    i = ts.tile.linear_id()
    y[0] = y[0] + x[i]


@later(lanes=64)
def one_place(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
    i = ts.tile.linear_id()
    y[0] = x[i]


@later(lanes=64)
def plain_sum(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
    i = ts.tile.linear_id()
    y[0] += x[i]


@later(lanes=64)
def usual_guard(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
    i = ts.tile.linear_id()
    if i >= N:
        return
    y[0] = x[i]


@later(lanes=64)
def in_a_loop(x: ts.Tensor["N", ts.f32], y: ts.Tensor[3, ts.f32]):
    i = ts.tile.linear_id()
    for k in range(3):
        y[k] = x[i]


@later(lanes=64)
def one_for_a_group(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
    i = ts.tile.linear_id()
    y[ts.tile.group_id()] = x[i]


@later(lanes=64)
def counts_itself(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
    i = ts.tile.linear_id()
    if i < N:
        y[0] = y[0] + 1.0


@later(lanes=64)
def shared(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
    i = ts.tile.linear_id()
    s = ts.tile.alloc_shared((1,), ts.f32)
    s[0] = x[i]
    ts.tile.barrier()
    if i == 0:
        y[0] = s[0]


@later(lanes=64)
def cancels(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
    i = ts.tile.linear_id()
    y[i - i] = x[i]


@later(lanes=64)
def cancels_in_a_loop(x: ts.Tensor["N", ts.f32], y: ts.Tensor[3, ts.f32]):
    i = ts.tile.linear_id()
    for k in range(3):
        y[2 * (i + k) - k - 2 * i] = x[i]


@pytest.mark.parametrize("profile", ["default", "strict"])
@pytest.mark.parametrize(
    "kernel", [read_add_store, one_place, plain_sum, usual_guard, in_a_loop, one_for_a_group, counts_itself, shared, cancels, cancels_in_a_loop]
)
def test_lanes_that_share_an_element_are_refused(kernel, profile, backend):
    y = np.zeros(3 if kernel in (in_a_loop, cancels_in_a_loop) else 1, np.float32)
    error = refused(kernel, X, y, profile=profile)
    line = error.file and open(error.file).read().splitlines()[error.line - 1]
    assert "] = " in line or "+=" in line
    assert "does not depend on linear_id()" in error.message
    assert (y == 0).all()


def test_the_help_says_what_to_write():
    y = np.zeros(1, np.float32)
    folds = refused(read_add_store, X, y).help
    assert "y: ts.Region[ts.reduce_sum, ts.Tensor[1, ts.f32]]" in folds and "atomic_add(y[" in folds
    assert "if ts.tile.linear_id() == 0:" in refused(one_place, X, y).help
    assert "if ts.tile.local_id() == 0:" in refused(shared, X, y).help


@later(lanes=(8, 8))
def rows(x: ts.Tensor["H", "W", ts.f32], y: ts.Tensor["H", ts.f32]):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    y[i] = y[i] + x[i, j]


@later(lanes=(8, 8))
def rows_in_place(x: ts.Tensor["H", "W", ts.f32], y: ts.Tensor["H", ts.f32]):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    if i < H and j < W:
        y[i] += x[i, j]


@later(lanes=(8, 8))
def wrong_axis(x: ts.Tensor["H", "W", ts.f32], y: ts.Tensor["H", ts.f32]):
    i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
    if i == 0:
        y[0] = x[i, j]


@pytest.mark.parametrize("kernel", [rows, rows_in_place, wrong_axis])
def test_each_axis_counts(kernel, backend):
    assert "does not depend on linear_id(1)" in refused(kernel, A, np.zeros(40, np.float32), profile="strict").message


def test_a_position_that_cancels_is_one_element_for_all_lanes(backend):
    @ts.kernel(lanes=64)
    def first(x: ts.Tensor["N", ts.f32], y: ts.Tensor[2, ts.f32]):
        i = ts.tile.linear_id()
        y[0] = x[i - i + 3]
        if i - i == 0:
            y[1] = 2.0

    y = np.zeros(2, np.float32)
    first.launch(X, y, grid=3)
    assert y.tolist() == [3, 2]


def test_the_callers_lanes_count(backend):
    @ts.kernel(lanes=64)
    def first(x: ts.Tensor["N", ts.f32], y: ts.Tensor[1, ts.f32]):
        y[0] = x[2 * ts.tile.linear_id()]

    y = np.zeros(1, np.float32)
    refused(first, X, y, grid=2)
    first[1](X + 3, y)
    assert y[0] == 3


def test_groups_of_one_lane_are_lanes(backend):
    @ts.kernel(lanes=(1, 8))
    def by_group(x: ts.Tensor["H", "W", ts.f32], y: ts.Tensor["H", ts.f32]):
        i, j = ts.tile.linear_id(0), ts.tile.linear_id(1)
        total = ts.tile.group.reduce(x[i, j], "max")
        y[ts.tile.group_id(0)] = total

    y = np.zeros(40, np.float32)
    by_group(A[:, :8].copy(), y)
    assert (y == A[:, :8].max(axis=1)).all()


@ts.kernel(lanes=64)
def legal(x: ts.Tensor["N", ts.f32], at: ts.Tensor["N", ts.i32], y: ts.Tensor[16, ts.f32], h: ts.Region[ts.reduce_sum, ts.Tensor[1, ts.f32]]):
    i = ts.tile.linear_id()
    s = ts.tile.alloc_shared((2,), ts.f32)
    total = ts.tile.group.reduce(x[i], "sum")
    s[0] = total
    if ts.tile.local_id() == 0:
        s[1] = x[i]
    ts.tile.barrier()
    if i == 0:
        y[0] = x[i]
    y[1] = total
    y[2] = 7.0
    y[3] = ts.tile.group.shuffle(x[i], 0)
    y[4] = ts.tile.group.broadcast(x[i], 0)
    y[5] = s[0] + s[1]
    if x[i] == 3.0:
        y[6] = x[i]
    for k in range(i, N, N):
        y[7 + k // N] = 1.0
    ts.tile.store(y, 8, x[i], mask=i == 2)
    y[9] = x[0] + x[5]
    if at[i] == 9:
        y[10] = x[i]
    y[11 + ts.tile.minimum(i, 0)] = 5.0
    ts.tile.barrier()
    old = y[12]
    ts.tile.barrier()
    y[12] = old + 1.0
    h[0] += x[i]


def test_programs_that_are_right_are_accepted(backend):
    y, h = np.zeros(16, np.float32), np.zeros(1, np.float32)
    at = np.arange(50, dtype=np.int32)
    legal(X, at, y, h)
    total = X.sum()
    assert h[0] == total
    assert y.tolist() == [0, total, 7, 0, 0, total, 3, 1, 2, 5, 9, 5, 1, 0, 0, 0]
    assert legal.check(X, at, np.zeros(16, np.float32), np.zeros(1, np.float32))


@pytest.mark.parametrize("shape", [(50, 70), (32, 32), (1, 33), (33, 1), (31, 97)])
def test_a_transpose_by_lanes_is_right_when_ragged(shape, backend):
    @ts.kernel(lanes=(32, 32))
    def transpose(A: ts.Tensor["M", "N", ts.f32], B: ts.Out["N", "M", ts.f32]):
        s = ts.tile.alloc_shared((32, 33), ts.f32)
        m, n = ts.tile.linear_id(0), ts.tile.linear_id(1)
        r, c = ts.tile.local_id(0), ts.tile.local_id(1)
        m0, n0 = ts.tile.group_id(0) * 32, ts.tile.group_id(1) * 32
        s[r, c] = A[m, n]
        ts.tile.barrier()
        rows, cols = ts.tile.minimum(32, M - m0), ts.tile.minimum(32, N - n0)
        for a in range(r, cols, rows):
            for b in range(c, rows, cols):
                B[n0 + a, m0 + b] = s[b, a]
        return B

    A = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    assert (transpose(A) == A.T).all()
    assert transpose.check(A)


def test_shared_memory_that_no_lane_wrote_is_found_on_every_backend(backend):
    @ts.kernel(lanes=(32, 32))
    def transpose(A: ts.Tensor["M", "N", ts.f32], B: ts.Out["N", "M", ts.f32]):
        s = ts.tile.alloc_shared((32, 33), ts.f32)
        m, n = ts.tile.linear_id(0), ts.tile.linear_id(1)
        r, c = ts.tile.local_id(0), ts.tile.local_id(1)
        s[r, c] = A[m, n]
        ts.tile.barrier()
        B[ts.tile.group_id(1) * 32 + r, ts.tile.group_id(0) * 32 + c] = s[c, r]
        return B

    assert "E_UNINIT" in {f.code for f in transpose.check(np.ones((50, 70), np.float32)).findings}


def test_positions_by_a_run_time_division_are_those_of_each_vector(backend):
    @ts.kernel(lanes=(32, 32))
    def transpose(A: ts.Tensor["M", "N", ts.f32], B: ts.Out["N", "M", ts.f32]):
        s = ts.tile.alloc_shared((32, 33), ts.f32)
        m, n = ts.tile.linear_id(0), ts.tile.linear_id(1)
        r, c = ts.tile.local_id(0), ts.tile.local_id(1)
        m0, n0 = ts.tile.group_id(0) * 32, ts.tile.group_id(1) * 32
        s[r, c] = A[m, n]
        ts.tile.barrier()
        rows, cols = ts.tile.minimum(32, M - m0), ts.tile.minimum(32, N - n0)
        e = r * cols + c
        B[n0 + e // rows, m0 + e % rows] = s[e % rows, e // rows]
        return B

    for shape in ((32, 32), (50, 70), (1, 33)):
        A = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
        assert (transpose(A) == A.T).all()
