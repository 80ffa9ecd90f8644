"""Compile time is about 23 LLVM instructions a millisecond, and instructions can be counted exactly."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from bench import kernels_cpu  # noqa: E402

BUDGETS = [
    ("saxpy", lambda: kernels_cpu.saxpy.jit(), 150),
    # The form for few rows or columns comes with a call that has so few.
    ("gemm in f32", lambda: kernels_cpu.gemm_f32.jit(), 1000),
    ("gemm in bf16", lambda: kernels_cpu.gemm_bf16.jit(), 1000),
    ("attention", lambda: kernels_cpu.attention.jit(D=64, is_causal=False), 2800),
    ("causal attention", lambda: kernels_cpu.attention.jit(D=64, is_causal=True), 2800),
]


@pytest.mark.parametrize("name, compiled, most", BUDGETS, ids=[b[0] for b in BUDGETS])
def test_code_is_short_enough_to_compile_in_time(name, compiled, most):
    assert int(compiled().resources["llvm_instructions"]) <= most
