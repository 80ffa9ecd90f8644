"""Benchmarks on NVIDIA GPUs, each a program: see docs/perf/nvidia.md."""
