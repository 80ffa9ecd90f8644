"""Kernels of the ops on parts of tiles, with the expected results from NumPy: sort, top-k, histogram, scans and reductions by own
combiners. `check` runs them on a device, and in `strict` compares their bits with the interpreter's."""

import functools
import itertools

import ml_dtypes
import numpy as np

import tessera as ts

DTYPES = {
    "f32": (ts.f32, np.float32), "f64": (ts.f64, np.float64), "f16": (ts.f16, np.float16), "bf16": (ts.bf16, ml_dtypes.bfloat16),
    "i8": (ts.i8, np.int8), "u8": (ts.u8, np.uint8), "i16": (ts.i16, np.int16), "i32": (ts.i32, np.int32), "u32": (ts.u32, np.uint32),
    "i64": (ts.i64, np.int64), "u64": (ts.u64, np.uint64),
}  # fmt: skip
#: Extents of the sorted axis: powers of two, others, less than a warp has lanes, more than a thread holds.
LENGTHS = (1, 2, 5, 16, 33, 100, 128, 256, 500, 1024, 2048)


@ts.func
def affine(a, b, c, d):
    return a * c, c * b + d


@ts.func
def matrix(a, b, c, d, e, f, g, h):
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@ts.func
def later(a, b):
    return b


@functools.lru_cache(maxsize=None)
def sort_kernel(kind, axis):
    dtype = DTYPES[kind][0]

    @ts.kernel
    def kernel(x: ts.Tensor["G", "M", "N", dtype], y: ts.Out["G", "M", "N", dtype], at: ts.Out["G", "M", "N", ts.i32],
               down: ts.Out["G", "M", "N", dtype]):  # fmt: skip
        g = ts.tile.program_id(0)
        t = x[g, :, :]
        y[g, :, :] = ts.tile.sort(t, axis=axis)
        at[g, :, :] = ts.tile.argsort(t, axis=axis)
        down[g, :, :] = ts.tile.sort(t, axis=axis, descending=True)
        return y, at, down

    return kernel


@functools.lru_cache(maxsize=None)
def topk_kernel(kind, k):
    dtype = DTYPES[kind][0]

    @ts.kernel
    def kernel(x: ts.Tensor["G", "N", dtype], y: ts.Out["G", k, dtype], at: ts.Out["G", k, ts.i32]):
        g = ts.tile.program_id(0)
        y[g, :], at[g, :] = ts.tile.topk(x[g, :], k)
        return y, at

    return kernel


@functools.lru_cache(maxsize=None)
def histogram_kernel(bins, block):
    @ts.kernel
    def kernel(x: ts.Tensor["G", "N", ts.i32], y: ts.Out["G", bins, ts.i32]):
        g = ts.tile.program_id(0)
        total = ts.tile.zeros((bins,), ts.i32)
        for i in ts.tile.range(0, N, block):  # noqa: F821
            there = i + ts.tile.arange(block) < N  # noqa: F821
            total += ts.tile.histogram(x[g, i : i + block], bins, mask=there)
        y[g, :] = total
        return y

    return kernel


@functools.lru_cache(maxsize=None)
def scan_kernel(axis, reverse):
    @ts.kernel
    def kernel(a: ts.Tensor["G", "M", "N", ts.f32], b: ts.Tensor["G", "M", "N", ts.f32], x: ts.Out["G", "M", "N", ts.f32],
               y: ts.Out["G", "M", "N", ts.f32]):  # fmt: skip
        g = ts.tile.program_id(0)
        x[g, :, :], y[g, :, :] = ts.tile.scan((a[g, :, :], b[g, :, :]), affine, axis=axis, reverse=reverse)
        return x, y

    return kernel


@functools.lru_cache(maxsize=None)
def reduce_kernel(axis):
    kept = "MN"[1 - axis]

    @ts.kernel
    def kernel(p: ts.Tensor["G", "M", "N", ts.i32], q: ts.Tensor["G", "M", "N", ts.i32], r: ts.Tensor["G", "M", "N", ts.i32],
               s: ts.Tensor["G", "M", "N", ts.i32], y: ts.Out["G", 4, kept, ts.i32], z: ts.Out["G", kept, ts.i32]):  # fmt: skip
        g = ts.tile.program_id(0)
        y[g, 0, :], y[g, 1, :], y[g, 2, :], y[g, 3, :] = ts.tile.reduce(
            (p[g, :, :], q[g, :, :], r[g, :, :], s[g, :, :]), matrix, axis=axis
        )
        z[g, :] = ts.tile.reduce(p[g, :, :], later, axis=axis)
        return y, z

    return kernel


def drawn(rng, kind, shape):
    """Numbers of a dtype with many ties; floats also with zeros of both signs, infinities and NaN."""
    dtype = DTYPES[kind][1]
    if kind[0] in "iu":
        info = np.iinfo(dtype)
        wide = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        few = rng.integers(0, 4, shape).astype(dtype)
        return np.where(rng.random(shape) < 0.5, wide, few)
    x = rng.standard_normal(shape).astype(np.float32)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32)
    pick = special[rng.integers(0, special.size, shape)]
    return np.where(rng.random(shape) < 0.4, pick, x).astype(dtype)


def keys(x):
    """Floats as numbers that NumPy orders as we do: NaN above all."""
    return x if x.dtype.kind in "iu" else x.astype(np.float64)


def ordered(x, axis, descending=False):
    """Stable, NaN above every number."""
    k = keys(x)
    if not descending:
        return np.argsort(k, axis=axis, kind="stable")
    # The reverse of the stable order of the reverse.
    back = np.argsort(np.flip(k, axis), axis=axis, kind="stable")
    return k.shape[axis] - 1 - np.flip(back, axis)


def sort_case(kind, shape, axis):
    rng = np.random.default_rng([len(kind), *shape, axis])
    x = drawn(rng, kind, shape)

    def expected():
        at = ordered(x, axis + 1)
        down = ordered(x, axis + 1, True)
        return [np.take_along_axis(x, at, axis + 1), at.astype(np.int32), np.take_along_axis(x, down, axis + 1)]

    return sort_kernel(kind, axis), (x,), expected


def topk_case(kind, n, k):
    x = drawn(np.random.default_rng([n, k]), kind, (3, n))

    def expected():
        at = ordered(x, 1, True)[:, :k]
        return [np.take_along_axis(x, at, 1), at.astype(np.int32)]

    return topk_kernel(kind, k), (x,), expected


def histogram_case(bins, block, n):
    rng = np.random.default_rng([bins, n])
    x = rng.integers(-2, bins + 2, (5, n)).astype(np.int32)
    x[1] = 0

    def expected():
        return [np.stack([[(row == b).sum() for b in range(bins)] for row in x]).astype(np.int32)]

    return histogram_kernel(bins, block), (x,), expected


def scan_case(shape, axis, reverse):
    """Powers of two and few of them, so that sums are exact in any order."""
    rng = np.random.default_rng([*shape, axis])
    a = rng.choice([1.0, 1.0, 1.0, -1.0, 0.0], shape).astype(np.float32)
    b = rng.integers(-3, 4, shape).astype(np.float32)

    def expected():
        along = np.flip((a, b), axis + 2) if reverse else np.stack((a, b))
        first, second = (np.moveaxis(v.copy(), axis + 1, 0) for v in along)
        for i in range(1, len(first)):
            second[i] = first[i] * second[i - 1] + second[i]
            first[i] = first[i - 1] * first[i]
        out = [np.moveaxis(v, 0, axis + 1) for v in (first, second)]
        return [np.flip(v, axis + 1) if reverse else v for v in out]

    return scan_kernel(axis, reverse), (a, b), expected


def reduce_case(shape, axis):
    rng = np.random.default_rng([*shape, axis])
    tiles = rng.integers(-2, 3, (4, *shape)).astype(np.int32)

    def expected():
        along = np.moveaxis(tiles, axis + 2, 0)
        a = along[0]
        for b in along[1:]:
            a = np.stack((a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3]))
        return [np.moveaxis(a, 0, 1), along[-1][0]]

    return reduce_kernel(axis), tuple(tiles), expected


def cases():
    """By name: cases, each a function that makes a kernel, its arguments, and the expected results."""
    groups = {}

    def add(name, make, *args):
        groups.setdefault(name, []).append((" ".join(map(str, args)), lambda: make(*args)))

    shapes = (((2, 3, 37), 1), ((2, 64, 8), 0), ((1, 8, 64), 1), ((2, 20, 12), 0), ((1, 16, 256), 1))
    for kind in DTYPES:
        # Narrow dtypes are sorted as wider ones.
        narrow = np.dtype(DTYPES[kind][1]).itemsize < 4
        for n in LENGTHS if kind in ("f32", "i32") else LENGTHS[4:8:3] if narrow else LENGTHS[1::3]:
            add(f"sort {kind}", sort_case, kind, (2, 1, n), 1)
        for shape, axis in shapes[:1] if narrow else shapes:
            add(f"sort {kind}", sort_case, kind, shape, axis)
        for n, k in ((100, 7),) if narrow else ((8, 3), (100, 7), (1024, 8)):
            add(f"topk {kind}", topk_case, kind, n, k)
    for bins, block in itertools.product((1, 7, 256, 1000, 2048), (32, 1024, 8192)):
        add("histogram", histogram_case, bins, block, 5000 if block > 32 else 100)
    for shape in ((2, 1, 1), (2, 1, 7), (1, 1, 64), (1, 1, 1000), (2, 32, 128), (1, 33, 5), (1, 128, 16), (1, 5, 300), (1, 64, 64)):
        for axis, reverse in itertools.product((0, 1), (False, True)):
            add("scan by a combiner", scan_case, shape, axis, reverse)
        for axis in (0, 1):
            add("reduce by a combiner", reduce_case, shape, axis)
    return groups
