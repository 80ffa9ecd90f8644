"""The command line and measuring tools: doctor, profiler, benchmarks, tuning, stubs."""
