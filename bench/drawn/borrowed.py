"""All that comes from the GPU benchmarks: paired timing and its statistics."""

from gpu.device import Cuda
from gpu.stats import median, ratio

__all__ = ["Cuda", "median", "ratio"]
