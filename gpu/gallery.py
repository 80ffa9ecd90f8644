"""The kernels of examples/kernels, as the files there have them."""

import importlib
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "kernels"

#: Files whose `run` makes NumPy arrays on the way: their calls are moved to the device one by one. The others get arrays
#: of the device.
ON_HOST = {
    "complex_multiply", "fft", "group_scan", "histogram", "int4_matmul", "layernorm", "reduce_sum", "rotary", "spmv_csr",
    "topk",
}  # fmt: skip
#: Files that look at complex numbers as pairs, which must be side by side.
PAIRS = {"complex_multiply", "fft"}


def names():
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "gallery")


def load(name):
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    return importlib.import_module(name)


def some(cases):
    """Three of the cases: the first is often an empty one."""
    return [cases[i] for i in sorted({min(1, len(cases) - 1), len(cases) // 2, len(cases) - 1})]


def copied(args):
    """Arguments of their own: some kernels update theirs. Strides stay."""
    return tuple(_copy(a) if isinstance(a, np.ndarray) else a for a in args)


def _copy(x):
    if x.flags.c_contiguous or not x.size:
        return x.copy()
    made = apart(x)
    made[...] = x
    return made


def apart(x):
    """An array with the elements of `x`, none beside another, in a larger one."""
    large = np.zeros([2 * n + 3 for n in x.shape], x.dtype)
    view = large[tuple(slice(1, 1 + 2 * n, 2) for n in x.shape)]
    view[...] = x
    return view


def outputs(value):
    return list(value) if isinstance(value, tuple) else [value]
