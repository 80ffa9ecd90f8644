"""Wrong kernels, each with a fixed version. The comment `finds: CODE` marks the line that checked mode
must report. Names pair up: `x_broken`, `x_fixed`; `ARGS[x]` makes the arguments."""

import numpy as np

import tessera as ts

F = lambda *shape: np.ones(shape, np.float32)
I = lambda *values: np.array(values, np.int32)
ARGS = {}


# Races between lanes ----------------------------------------------------------------------------------


@ts.kernel
def shift_broken(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i + 1 < n:
        x[i] = x[i + 1]  # finds: E_RACE


@ts.kernel
def shift_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i + 1 < n:
        y[i] = x[i + 1]


ARGS["shift"] = lambda fixed: (F(40), F(40)) if fixed else (F(40),)


@ts.kernel(lanes=8)
def reverse_broken(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    j = ts.tile.local_id()
    buf = ts.tile.alloc_shared((8,), ts.f32)
    buf[j] = x[i]
    x[i] = buf[7 - j]  # finds: E_RACE


@ts.kernel(lanes=8)
def reverse_fixed(x: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    j = ts.tile.local_id()
    buf = ts.tile.alloc_shared((8,), ts.f32)
    buf[j] = x[i]
    ts.tile.barrier()
    x[i] = buf[7 - j]


ARGS["reverse"] = lambda fixed: (F(16),)


@ts.kernel(lanes=8)
def halves_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.f32]):
    j = ts.tile.local_id()
    i = ts.tile.linear_id()
    buf = ts.tile.alloc_shared((8,), ts.f32)
    buf[j] = x[i]
    ts.tile.barrier()
    if j < 4:
        buf[j] = buf[j] + buf[j + 4]
    if j < 2:
        buf[j] = buf[j] + buf[j + 2]  # finds: E_RACE
    ts.tile.barrier()
    y[j] = buf[j]


@ts.kernel(lanes=8)
def halves_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.f32]):
    j = ts.tile.local_id()
    i = ts.tile.linear_id()
    buf = ts.tile.alloc_shared((8,), ts.f32)
    buf[j] = x[i]
    ts.tile.barrier()
    if j < 4:
        buf[j] = buf[j] + buf[j + 4]
    ts.tile.barrier()
    if j < 2:
        buf[j] = buf[j] + buf[j + 2]
    ts.tile.barrier()
    y[j] = buf[j]


ARGS["halves"] = lambda fixed: (F(8), F(8))


@ts.kernel
def histogram_broken(x: ts.Tensor["n", ts.i32], h: ts.Tensor["k", ts.i32]):
    i = ts.tile.linear_id()
    if i < n:
        h[x[i]] = h[x[i]] + 1  # finds: E_RACE


@ts.kernel
def histogram_fixed(x: ts.Tensor["n", ts.i32], h: ts.Tensor["k", ts.i32]):
    i = ts.tile.linear_id()
    if i < n:
        ts.tile.atomic_add(h[x[i]], 1)


ARGS["histogram"] = lambda fixed: (I(0, 1, 1, 2, 0), I(0, 0, 0))


@ts.kernel
def same_place_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i // 16] = x[i]  # finds: E_RACE


@ts.kernel
def same_place_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        if i == 0:
            y[0] = x[i]


ARGS["same_place"] = lambda fixed: (np.arange(9, dtype=np.float32), F(1))


# Conflicts between groups -----------------------------------------------------------------------------


@ts.kernel
def overlap_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    p = ts.tile.grid(ts.cdiv(n, 4))
    y[p * 4 : p * 4 + 8] = x[p * 4 : p * 4 + 8]  # finds: E_RACE


@ts.kernel
def overlap_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    p = ts.tile.grid(ts.cdiv(n, 4))
    y[p * 4 : p * 4 + 4] = x[p * 4 : p * 4 + 4]


ARGS["overlap"] = lambda fixed: (F(16), F(16))


@ts.kernel
def halo_broken(x: ts.Tensor["n", ts.f32]):
    p = ts.tile.grid(ts.cdiv(n, 4))
    t = x[p * 4 + 1 : p * 4 + 5]
    x[p * 4 : p * 4 + 4] = t  # finds: E_RACE


@ts.kernel
def halo_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    p = ts.tile.grid(ts.cdiv(n, 4))
    t = x[p * 4 + 1 : p * 4 + 5]
    y[p * 4 : p * 4 + 4] = t


ARGS["halo"] = lambda fixed: (F(16), F(16)) if fixed else (F(16),)


@ts.kernel
def total_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["k", ts.f32], at: ts.Tensor["g", ts.i32]):
    p = ts.tile.grid(ts.cdiv(n, 4))
    y[at[p]] += ts.tile.sum(x[p * 4 : p * 4 + 4])  # finds: E_RACE


@ts.kernel
def total_fixed(
    x: ts.Tensor["n", ts.f32],
    y: ts.Region[ts.reduce_sum, ts.Tensor["k", ts.f32]],
    at: ts.Tensor["g", ts.i32],
):
    p = ts.tile.grid(ts.cdiv(n, 4))
    y[at[p]] += ts.tile.sum(x[p * 4 : p * 4 + 4])


ARGS["total"] = lambda fixed: (F(16), F(2), I(0, 1, 0, 1))


@ts.kernel
def permute_broken(x: ts.Tensor["n", ts.f32], at: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.f32]):
    p = ts.tile.grid(n)
    y[at[p]] = x[p]  # finds: E_RACE


ARGS["permute"] = lambda fixed: (F(4), I(3, 2, 1, 0), F(4)) if fixed else (F(4), I(3, 2, 2, 0), F(4))
permute_fixed = permute_broken


# Places outside ---------------------------------------------------------------------------------------


@ts.kernel
def next_one_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i + 1]  # finds: E_OOB


@ts.kernel
def next_one_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = ts.tile.load(x, i + 1, other=0.0)


ARGS["next_one"] = lambda fixed: (F(10), F(10))


@ts.kernel
def lookup_broken(table: ts.Tensor["V", ts.f32], ids: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.f32]):
    p = ts.tile.grid(ts.cdiv(n, 4)) * 4
    y[p : p + 4] = table[ids[p : p + 4]]  # finds: E_OOB


ARGS["lookup"] = lambda fixed: (F(5), I(0, 4, 1, 2) if fixed else I(0, 5, 1, 2), F(4))
lookup_fixed = lookup_broken


@ts.kernel
def column_broken(A: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    r = ts.tile.program_id(0)
    y[r] = A[r, N]  # finds: E_OOB


@ts.kernel
def column_fixed(A: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", ts.f32]):
    r = ts.tile.program_id(0)
    y[r] = A[r, N - 1]


ARGS["column"] = lambda fixed: (F(3, 4), F(3))


@ts.kernel
def backwards_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[n - i] = x[i]  # finds: E_OOB


@ts.kernel
def backwards_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[n - 1 - i] = x[i]


ARGS["backwards"] = lambda fixed: (F(10), F(10))


# Memory never written ---------------------------------------------------------------------------------


@ts.kernel(lanes=8)
def uninitialised_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    j = ts.tile.local_id()
    buf = ts.tile.alloc_shared((8,), ts.f32)
    if j < 4:
        buf[j] = x[i]
    ts.tile.barrier()
    y[i] = buf[j]  # finds: E_UNINIT


@ts.kernel(lanes=8)
def uninitialised_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    j = ts.tile.local_id()
    buf = ts.tile.alloc_shared((8,), ts.f32)
    if j < 4:
        buf[j] = x[i]
    else:
        buf[j] = 0.0
    ts.tile.barrier()
    y[i] = buf[j]


ARGS["uninitialised"] = lambda fixed: (F(8), F(8))


@ts.kernel(lanes=4)
def neighbour_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    j = ts.tile.local_id()
    buf = ts.tile.alloc_shared((5,), ts.f32)
    buf[j] = x[i]
    ts.tile.barrier()
    y[i] = buf[j] + buf[j + 1]  # finds: E_UNINIT


@ts.kernel(lanes=4)
def neighbour_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    j = ts.tile.local_id()
    buf = ts.tile.alloc_shared((5,), ts.f32)
    buf[j] = x[i]
    if j == 0:
        buf[4] = 0.0
    ts.tile.barrier()
    y[i] = buf[j] + buf[j + 1]


ARGS["neighbour"] = lambda fixed: (F(8), F(8))


# Integers ---------------------------------------------------------------------------------------------


@ts.kernel
def bucket_broken(x: ts.Tensor["n", ts.i32], size: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] // size[i]  # finds: E_DIV_ZERO


@ts.kernel
def bucket_fixed(x: ts.Tensor["n", ts.i32], size: ts.Tensor["n", ts.i32], y: ts.Tensor["n", ts.i32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] // max(size[i], 1)


ARGS["bucket"] = lambda fixed: (I(4, 5, 6), I(2, 0, 3), I(0, 0, 0))


@ts.kernel
def wheel_broken(x: ts.Tensor["n", ts.i32], m: ts.i32, y: ts.Tensor["n", ts.i32]):
    p = ts.tile.grid(ts.cdiv(n, 4)) * 4
    y[p : p + 4] = x[p : p + 4] % m  # finds: E_DIV_ZERO


ARGS["wheel"] = lambda fixed: (I(4, 5, 6, 7), 3 if fixed else 0, I(0, 0, 0, 0))
wheel_fixed = wheel_broken


@ts.kernel
def stride_broken(x: ts.Tensor["n", ts.f32], step: ts.i32, y: ts.Tensor["n", ts.f32]):
    p = ts.tile.grid(ts.cdiv(n, 4)) * 4
    at = (ts.tile.arange(4) + 1) * step  # finds: E_OVERFLOW
    y[p : p + 4] = ts.tile.load(x, at, other=0.0)


ARGS["stride"] = lambda fixed: (F(4), 2 if fixed else 2**30, F(4))
stride_fixed = stride_broken


# Numbers that are none --------------------------------------------------------------------------------


@ts.kernel
def normalise_broken(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    r = ts.tile.program_id(0)
    t = x[r, :]
    y[r, :] = t / ts.tile.sum(t)  # finds: E_NAN_INF


@ts.kernel
def normalise_fixed(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    r = ts.tile.program_id(0)
    t = x[r, :]
    y[r, :] = t / ts.tile.maximum(ts.tile.sum(t), 1e-20)


ARGS["normalise"] = lambda fixed: (np.zeros((2, 3), np.float32), F(2, 3))


@ts.kernel
def softmax_broken(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    r = ts.tile.program_id(0)
    e = ts.tile.exp(x[r, :])  # finds: E_NAN_INF
    y[r, :] = e / ts.tile.sum(e)


@ts.kernel
def softmax_fixed(x: ts.Tensor["M", "N", ts.f32], y: ts.Tensor["M", "N", ts.f32]):
    r = ts.tile.program_id(0)
    t = x[r, :]
    e = ts.tile.exp(t - ts.tile.max(t))
    y[r, :] = e / ts.tile.sum(e)


ARGS["softmax"] = lambda fixed: (100 * F(2, 3), F(2, 3))


@ts.kernel
def deviation_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = ts.tile.sqrt(x[i] - 2.0)  # finds: E_NAN_INF


@ts.kernel
def deviation_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = ts.tile.sqrt(ts.tile.maximum(x[i] - 2.0, 0.0))


ARGS["deviation"] = lambda fixed: (F(5), F(5))


@ts.kernel
def half_broken(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f16]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = x[i] * 70000.0  # finds: E_NAN_INF


@ts.kernel
def half_fixed(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f16]):
    i = ts.tile.linear_id()
    if i < n:
        y[i] = ts.tile.minimum(x[i] * 70000.0, 65504.0)


ARGS["half"] = lambda fixed: (F(5), np.zeros(5, np.float16))


# Copies -----------------------------------------------------------------------------------------------


@ts.kernel
def unwaited_broken(A: ts.Tensor["M", 4, ts.f32], y: ts.Tensor["M", ts.f32]):
    r = ts.tile.grid(ts.cdiv(M, 2)) * 2
    buf = ts.tile.alloc_shared((2, 4), ts.f32)
    ts.tile.cp_async(buf, A[r : r + 2, 0:4])
    ts.tile.cp_commit_group()
    y[r : r + 2] = ts.tile.row_sum(buf)  # finds: E_UNWAITED
    ts.tile.cp_wait_group(0)


@ts.kernel
def unwaited_fixed(A: ts.Tensor["M", 4, ts.f32], y: ts.Tensor["M", ts.f32]):
    r = ts.tile.grid(ts.cdiv(M, 2)) * 2
    buf = ts.tile.alloc_shared((2, 4), ts.f32)
    ts.tile.cp_async(buf, A[r : r + 2, 0:4])
    ts.tile.cp_commit_group()
    ts.tile.cp_wait_group(0)
    y[r : r + 2] = ts.tile.row_sum(buf)


ARGS["unwaited"] = lambda fixed: (F(4, 4), F(4))
