"""``ts.inspect_ir``."""

from __future__ import annotations

from ..kernel.kernel_fn import Compiled, KernelFn


def inspect_ir(fn: KernelFn | Compiled, level: str = "tile", locs: bool = False) -> str:
    """The text of one IR level of a kernel or a compiled kernel."""
    return fn.inspect_ir(level, locs)
