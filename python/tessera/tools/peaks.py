"""The measured roofline of a device: peak bandwidth and peak flops, by our own kernels."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy

from .. import op
from ..arrays.create import array
from .bench import bench


@dataclass(frozen=True)
class Peaks:
    """The best of several runs; both are measured, none is from a data sheet."""

    #: Of ``a * x + y`` over arrays that no cache holds: bytes read and written in a second.
    bytes_per_s: float
    #: Of a large matmul in ``dtype``.
    flops_per_s: float
    dtype: str

    def floor(self, flops: int, moved: int) -> float:
        """The least seconds that this work can take."""
        return max(flops / self.flops_per_s, moved / self.bytes_per_s)

    def __str__(self) -> str:
        return f"{self.bytes_per_s / 1e9:.3g} GB/s streamed, {self.flops_per_s / 1e9:.4g} Gflop/s in {self.dtype} matmuls (measured)"


@functools.lru_cache(maxsize=None)
def peaks(device: str | None = None) -> Peaks:
    """Of the host (None), or of a device such as ``cuda:0``. Measured once in a process, in about half a second."""
    # Larger than caches, and a matmul that fills the machine.
    count, side, dtype = (1 << 26, 4096, "bf16") if device is not None else (1 << 24, 768, "f32")
    x, y, a, b = (_normal(s, t, device) for s, t in (((count,), "f32"),) * 2 + (((side, side), dtype),) * 2)
    streamed = bench(op.saxpy, 1.5, x, y, repeat=7, flush=True).best
    multiplied = bench(op.matmul, a, b, repeat=7, flush=True).best
    return Peaks(12 * count / streamed, 2 * side**3 / multiplied, dtype)


def _normal(shape: tuple[int, ...], dtype: str, device: str | None) -> Any:
    values = numpy.random.default_rng(0).standard_normal(shape, numpy.float32)
    return array(values, dtype, device)
