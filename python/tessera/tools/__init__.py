"""The command line and what measures: doctor, profiler, benchmarks, tuning, stubs."""
