"""Tracing: tracers, the primitives of Graph IR, open extents, control flow, `ts.jit` and execution."""
