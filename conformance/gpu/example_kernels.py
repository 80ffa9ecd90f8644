"""Loads the kernels of examples/kernels, and makes their arguments."""

import importlib
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "kernels"

#: Files whose `run` makes NumPy arrays in between: their calls are redirected to the device one by one. The others get
#: arrays of the device.
ON_HOST = {
    "complex_multiply", "fft", "group_scan", "hash_table", "histogram", "int4_matmul", "layernorm", "lookback_scan", "nvfp4_matmul",
    "radix_sort", "reduce_sum", "rotary", "rotary_tiles", "spmv_csr", "stochastic_rounding", "stream_k", "topk",
}  # fmt: skip
#: Files whose groups depend on the order in which groups run: `strict` may refuse them on a GPU.
BY_ORDER = {"hash_table", "lookback_scan", "stream_k"}
#: Files that view complex numbers as pairs, which must be contiguous.
PAIRS = {"complex_multiply", "fft"}


def names():
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "gallery")


def load(name):
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return importlib.import_module(name)


def large(rng):
    """By file: arguments for many groups that synchronise through memory, more than the largest GPU runs concurrently."""
    normal = lambda *shape: rng.standard_normal(shape, dtype=np.float32)  # noqa: E731
    keys = rng.integers(0, 2**32, 300_000, dtype=np.uint32)
    hashed = rng.integers(0, 50_000, 300_000, dtype=np.uint32)
    paged = load("paged_decode").case(rng, 8, 4, 128, rng.integers(0, 2000, 48, dtype=np.int32))
    return {
        "hash_table": (hashed, rng.integers(0, 9, hashed.size, dtype=np.int32), hashed[:1000], 70_001),
        "lookback_scan": (rng.integers(-1000, 1000, 2_000_001, dtype=np.int32),),
        "lu_pivot": (normal(200, 24, 24),),
        "paged_decode": paged,
        "radix_sort": (keys, np.arange(keys.size, dtype=np.int32)),
        "stream_k": (normal(300, 700), normal(700, 500)),
    }


def some(cases):
    """Three of the cases: the first is often an empty one."""
    return [cases[i] for i in sorted({min(1, len(cases) - 1), len(cases) // 2, len(cases) - 1})]


def copied(args):
    """Copies of the arguments, with the same strides: some kernels update theirs."""
    return tuple(_copy(a) if isinstance(a, np.ndarray) else a for a in args)


def _copy(x):
    if x.flags.c_contiguous or not x.size:
        return x.copy()
    made = apart(x)
    made[...] = x
    return made


def apart(x):
    """A strided view of a larger array with the elements of `x`: no two are contiguous."""
    large = np.zeros([2 * n + 3 for n in x.shape], x.dtype)
    view = large[tuple(slice(1, 1 + 2 * n, 2) for n in x.shape)]
    view[...] = x
    return view


def outputs(value):
    return list(value) if isinstance(value, tuple) else [value]
