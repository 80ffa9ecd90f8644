"""Tessera: tile kernels, models and distribution in one language.

    import tessera as ts

    @ts.kernel
    def saxpy(x: ts.Tensor["n", ts.f32], y: ts.Tensor["n", ts.f32], alpha: ts.f32):
        i = ts.tile.linear_id()
        if i < n:
            y[i] = alpha * x[i] + y[i]
        return y
"""

import os as _os

from . import _core, dist, ir, numerics, op, runtime, target, tile, tuning
from .base import constraint
from .dist import (
    Mapper,
    ShardSpec,
    _collective as collective,
    _domain as domain,
    all_gather,
    all_reduce,
    all_to_all,
    allreduce,
    barrier,
    broadcast,
    index_launch,
    permute,
    reduce_scatter,
)
from .base import crash_report as _crash_report, former_names as _former_names  # `_core` asks for reports
from .kernel import builtins as _builtins
from .base.annotations import (
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
from .arrays.create import array, empty, full, ones, zeros
from .tools.bench import bench
from ._core import DType, __version__
from .kernel.cost import Cost
from .kernel.line_trace import Frame, Traced
from .kernel.decorators import kernel
from .arrays.host import Array
from .kernel.schedule import Schedule
from .base.dtypes import (
    accum,
    bf16,
    bfloat16,
    compute,
    dtype,
    e8m0,
    f16,
    f32,
    f64,
    f8_e4m3,
    f8_e5m2,
    float16,
    float32,
    float4_e2m1fn,
    float64,
    float6_e2m3fn,
    float6_e3m2fn,
    float8_e4m3,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    fp16,
    fp32,
    fp4,
    fp4_e2m1,
    fp6,
    fp64,
    fp6_e2m3,
    fp6_e3m2,
    fp8_e4m3,
    fp8_e5m2,
    i1,
    i16,
    i32,
    i4,
    i64,
    i8,
    int16,
    int32,
    int4,
    int64,
    int8,
    loss_scale,
    packed,
    round,
    saturate,
    scale,
    stochastic_round,
    tf32,
    u16,
    u32,
    u64,
    u8,
    uint16,
    uint32,
    uint64,
    uint8,
)
from .base.dtypes import bool_ as bool
from .base.errors import (
    CheckError,
    CheckpointError,
    CommError,
    DeviceError,
    Diagnostic,
    InternalError,
    KernelSyntaxError,
    KernelTypeError,
    LaunchError,
    MissingFileError,
    PlacementError,
    PrivilegeError,
    ResourceError,
    ShapeError,
    TesseraError,
    TesseraWarning,
    ToolError,
    UnsupportedError,
)
from .kernel.func import bind, func
from .kernel.struct import struct
from .tools.inspect_ir import inspect_ir
from .kernel.check_report import CheckReport
from .kernel.require import require
from .kernel.autotune import TuningReport
from .op import (
    cross_entropy,
    gelu_safe,
    gemm,
    grouped_gemm,
    layernorm,
    layernorm_safe,
    log_softmax,
    logsumexp_safe,
    matmul,
    rmsnorm,
    rmsnorm_safe,
    softmax,
    softmax_safe,
)

from . import data, nn, optim, random, xp
from . import tree
from .trace.control import (
    cond,
    dynamic_slice,
    dynamic_slice_in_dim,
    dynamic_update_slice,
    dynamic_update_slice_in_dim,
    fori_loop,
    scan,
    switch,
    while_loop,
)
from .trace.associative_scan import associative_scan
from .trace.eval_shape import ShapeDtypeStruct, eval_shape
from .transforms.linearize import linearize
from .transforms.sequential_map import map
from .xp._windows import reduce_window
from .checkpoint.files import load, save
from .transforms.composites import composite
from .transforms.custom_rules import custom_jvp, custom_vjp
from .transforms.gradcheck import gradcheck
from .trace.jit import jit
from .tools.profiler import profile
from .transforms.remat import checkpoint, checkpoint_name
from .trace.tracer import Tracer
from .transforms.batching import vmap
from .transforms.derivatives import (
    grad,
    hessian,
    hvp,
    jacfwd,
    jacrev,
    jvp,
    stop_gradient,
    value_and_grad,
    vjp,
)
from .xp import where

from . import autodiff, debug
from .op import _names as _op_names

_op_names.install()
fori = fori_loop
ops = op
remat = checkpoint
mse = mse_loss = nn.mse_loss
einsum = xp.einsum

cdiv = _builtins.FUNCTIONS["cdiv"]
static_range = _builtins.FUNCTIONS["static_range"]
static_assert = _builtins.FUNCTIONS["static_assert"]
static_print = _builtins.FUNCTIONS["static_print"]
identity = _builtins.FUNCTIONS["identity"]

# A lock that another thread holds at a fork would stay locked in the child for ever, and what LLVM is changing would stay half done.
if hasattr(_os, "register_at_fork"):
    _os.register_at_fork(before=_core.before_fork, after_in_parent=_core.after_fork, after_in_child=_core.forked)

_former_names.install()

# Internal packages are no attributes of `tessera`, so that `ts.trace(x)` says what to write. `ts.kernel` and `ts.checkpoint` are functions.
del arrays, base, tools, trace, transforms  # noqa: F821

# `from tessera import *` must not hide Python's own `bool`, `map` and `round`.
__all__ = sorted(n for n in globals() if not n.startswith("_") and n not in ("bool", "map", "round")) + ["__version__"]


def __getattr__(name: str):
    from .base.foreign_names import missing

    raise missing(__name__, name, __all__)
