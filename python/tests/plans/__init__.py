"""Fuzzing of plans with random functions on arrays.

`generate` draws a program as Python source; `run` evaluates one op by op by the interpreter of Graph IR, compiled on a
backend, or under JAX; `fuzz` draws many, compares the results, and shrinks programs that differ.
"""
