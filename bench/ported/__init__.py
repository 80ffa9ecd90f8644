"""Thirty programs as a user of JAX writes them, and their ports to Tessera: `bench/ported_cpu.py` runs them."""

from bench.ported import inference, nets, science, sequences  # noqa: F401
from bench.ported.program import PROGRAMS, Program

__all__ = ["PROGRAMS", "Program"]
