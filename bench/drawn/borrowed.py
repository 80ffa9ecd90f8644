"""All that comes from the GPU benchmarks: paired timing and its statistics."""

from gpurun.device import Cuda
from gpurun.stats import median, ratio

__all__ = ["Cuda", "median", "ratio"]
