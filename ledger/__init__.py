"""The ledger of GPU runs: see docs/perf/nvidia.md. `python -m ledger --help` lists the options."""
