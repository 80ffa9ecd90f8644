"""Tessera: tile kernels, models and distribution in one language.

    import tessera as ts

    @ts.kernel
    def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = alpha * x[i] + y[i]
        return y
"""

from . import _annotations, _api, _core, _dtypes, _errors, constraint, ir, runtime, tile
from ._annotations import (
    Fn,
    Out,
    Region,
    Tensor,
    read,
    read_write,
    reduce,
    reduce_max,
    reduce_min,
    reduce_prod,
    reduce_sum,
    update,
    write,
)
from ._arrays import array, empty, ones, zeros
from ._bench import bench
from ._core import DType, __version__
from ._decorators import kernel
from ._dtypes import accum, compute, dtype, loss_scale, packed, round, saturate, scale, stochastic_round
from ._errors import (
    CheckError,
    DeviceError,
    InternalError,
    KernelSyntaxError,
    KernelTypeError,
    LaunchError,
    PrivilegeError,
    ResourceError,
    ShapeError,
    TesseraError,
    TesseraWarning,
    ToolError,
    UnsupportedError,
)
from ._func import func, identity
from ._inspect import inspect_ir

globals().update({name: getattr(_dtypes, name) for name in _dtypes.DTYPE_NAMES if name != "bool"})
globals().update({"bool": _dtypes.bool_, **_api.members("")})

# `from tessera import *` must not hide Python's own `bool` and `round`.
__all__ = sorted(n for n in globals() if not n.startswith("_") and n not in ("bool", "round")) + ["__version__"]


def __getattr__(name: str):
    if name.startswith("_"):
        raise AttributeError(name)
    import difflib

    near = difflib.get_close_matches(name, __all__, n=3)
    hint = f"; did you mean {' or '.join(f'`{n}`' for n in near)}?" if near else ""
    raise AttributeError(f"module 'tessera' has no attribute '{name}'{hint}")
