"""Runs on a machine with an NVIDIA GPU, and the ledger of what they gave: see docs/perf/nvidia.md."""
