"""Random functions on arrays, and what their plans are held against.

`generate` draws a program as Python source; `run` evaluates one op by op by the interpreter of Graph IR, compiled on a
backend, or under JAX; `fuzz` draws many, compares, and makes what differs small.
"""
