"""Arrays for the contenders: aligned to cache lines as XLA's are, and in memory before anything is timed."""

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
LINE = 64


def zeros(shape, dtype=np.float32):
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    memory = np.empty(size + LINE, np.uint8)
    memory[:] = 0
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def random(shape, dtype=np.float32, seed=0):
    """Normal deviates, repeated where there are many: times do not depend on the values."""
    array = zeros(shape, dtype)
    flat = array.reshape(-1)
    block = np.random.default_rng(seed).standard_normal(min(flat.size, 1_000_003), np.float32).astype(dtype)
    for start in range(0, flat.size, max(block.size, 1)):
        part = flat[start : start + block.size]
        part[:] = block[: part.size]
    return array


def copy(array):
    result = zeros(array.shape, array.dtype)
    result[...] = array
    return result
