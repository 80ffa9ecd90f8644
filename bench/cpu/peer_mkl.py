"""MKL's GEMM, through ctypes."""

import ctypes
import functools
import sys
from pathlib import Path

import numpy as np

from . import arrays
from .case import Contender

ROW_MAJOR, NOT_TRANSPOSED, TRANSPOSED = 101, 111, 112


@functools.cache
def library():
    found = sorted((Path(sys.prefix) / "lib").glob("libmkl_rt.so*"))
    if not found:
        raise FileNotFoundError("libmkl_rt is not in the environment; bench/packages.sh installs it")
    return ctypes.CDLL(str(found[0]))


def version():
    text = ctypes.create_string_buffer(198)
    library().MKL_Get_Version_String(text, len(text))
    return text.value.decode().strip()


def gemm(a, b, work):
    """`a @ b` with an f32 result; each matrix contiguous, or the transpose of one that is."""
    (m, k), n = a.shape, b.shape[1]
    (turned_a, pitch_a), (turned_b, pitch_b) = _layout(a), _layout(b)
    c = arrays.zeros((m, n))
    function = library().cblas_sgemm if a.dtype == np.float32 else library().cblas_gemm_bf16bf16f32
    number, size = ctypes.c_float, ctypes.c_int
    pointers = [ctypes.c_void_p(x.ctypes.data) for x in (a, b, c)]
    args = [ROW_MAJOR, turned_a, turned_b, size(m), size(n), size(k)]
    args += [number(1), pointers[0], size(pitch_a), pointers[1], size(pitch_b), number(0), pointers[2], size(n)]
    # The arrays stay alive as long as the function that has their addresses.
    return Contender(lambda keep=(a, b): function(*args), lambda: c, work)


def _layout(x):
    """How BLAS describes a matrix: whether it is transposed, and the elements between the starts of rows."""
    return (NOT_TRANSPOSED, x.shape[1]) if x.flags.c_contiguous else (TRANSPOSED, x.shape[0])
