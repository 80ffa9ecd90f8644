"""Conformance on NVIDIA GPUs: `python -m conformance.gpu.check` is the whole of it, the other checks are of one subject each."""
