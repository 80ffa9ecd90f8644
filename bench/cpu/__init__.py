"""`make bench-cpu`: the CPU backend compared with MKL, NumPy and XLA. `python -m bench.cpu --help` lists the options."""
