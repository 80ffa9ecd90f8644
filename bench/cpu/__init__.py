"""`make bench-cpu`: the CPU backend beside MKL, NumPy and XLA. `python -m bench.cpu --help` tells the options."""
