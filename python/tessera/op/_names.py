"""The operations of `ts.op` that are compositions: functions of `ts.xp` and `ts.nn` under the names of the specification's section 8.
Their results follow their inputs, as those of all operations do: NumPy in, NumPy out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy

from .. import _core, nn, op, xp
from ..arrays.host import Array
from ..base.error_location import placed
from ..trace import on_mesh
from ..trace.jit import eager
from ..trace.tracer import as_tracer, current, fail
from ..tree import pytree

#: Names that are those of `ts.xp`.
_XP = (
    "einsum dot trace kron outer tensordot "
    "abs add subtract multiply divide floor_divide remainder power negative square sqrt rsqrt reciprocal exp exp2 expm1 log log1p log2 "
    "log10 sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh atan2 erf erfinv lgamma digamma sigmoid floor ceil round trunc "
    "sign maximum minimum clip where fma hypot logaddexp isnan isinf isfinite isclose equal not_equal less less_equal greater "
    "greater_equal logical_and logical_or logical_not logical_xor "
    "var std all any logsumexp cumsum cumprod sort argsort top_k median quantile count_nonzero searchsorted "
    "take take_along_axis segment_sum segment_max segment_min segment_prod "
    "reshape permute_dims concat stack split squeeze expand_dims broadcast_to flip roll tile repeat pad moveaxis swapaxes tril triu"
).split()
#: Other names of functions of `ts.nn`; those without a colon have the same name.
_NN = (
    "relu silu swish:silu softplus leaky_relu elu swiglu dropout attention embedding one_hot "
    "conv1d conv2d conv3d max_pool avg_pool "
    "batch_norm:batchnorm group_norm:groupnorm instance_norm:instancenorm weight_norm:weightnorm "
    "mse:mse_loss mse_loss mae:l1_loss l1_loss huber:huber_loss huber_loss smooth_l1:smooth_l1_loss smooth_l1_loss "
    "bce:binary_cross_entropy binary_cross_entropy kl:kl_div kl_div nll_loss focal:focal_loss focal_loss "
    "contrastive:contrastive_loss contrastive_loss info_nce:info_nce_loss info_nce_loss triplet:triplet_loss triplet_loss "
    "ctc:ctc_loss ctc_loss"
).split()
#: Other names of operations that are there.
_SAME = {"layer_norm": "layernorm", "rms_norm": "rmsnorm", "layer_norm_safe": "layernorm_safe", "batched_gemm": "gemm"}


@eager
def gemv(a: Any, x: Any) -> Any:
    """A matrix by a vector, the axes before stretched to each other."""
    return xp.matvec(a, x)


@eager
def factorized_matmul(x: Any, u: Any, v: Any) -> Any:
    """``(x @ u) @ v``: by a matrix of low rank."""
    return xp.matmul(xp.matmul(x, u), v)


@eager
def silu_mul(x: Any, y: Any) -> Any:
    """``silu(x) * y``."""
    return xp.multiply(nn.silu(x), y)


@eager
def gather(x: Any, indices: Any, axis: int = 0) -> Any:
    """The parts at positions along an axis."""
    return xp.take(x, indices, axis)


def _scattered(x: Any, indices: Any, updates: Any, axis: int, how: str) -> Any:
    x, updates = as_tracer(x), as_tracer(updates)
    rows, parts = xp.moveaxis(x, axis, 0), xp.moveaxis(updates, axis, 0) if updates.ndim == x.ndim else updates
    return xp.moveaxis(getattr(rows.at[indices], how)(parts), 0, axis)


@eager
def scatter(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
    """A new array with the parts at positions along an axis replaced."""
    return _scattered(x, indices, updates, axis, "set")


@eager
def scatter_add(x: Any, indices: Any, updates: Any, axis: int = 0) -> Any:
    """A new array with updates added to the parts at positions along an axis; those at one position all count."""
    return _scattered(x, indices, updates, axis, "add")


def segment_reduce(data: Any, segment_ids: Any, num_segments: int | None = None, op: str = "sum") -> Any:
    """The reduction of each segment: ``op`` is ``"sum"``, ``"prod"``, ``"max"``, ``"min"`` or ``"mean"``."""
    if op == "mean":
        total = xp.segment_sum(data, segment_ids, num_segments)
        return _over_counts(total, segment_ids)
    if op not in ("sum", "prod", "max", "min"):
        raise fail("E_ARGUMENT", f'expected `op` to be "sum", "prod", "max", "min" or "mean", got {op!r}', 'leave it out for "sum"')
    return getattr(xp, f"segment_{op}")(data, segment_ids, num_segments)


@eager
def _over_counts(total: Any, segment_ids: Any) -> Any:
    total, ids = as_tracer(total), as_tracer(segment_ids)
    count = xp.segment_sum(xp.ones(ids.shape, dtype=total.dtype), ids, total.shape[0])
    return total / xp.maximum(count, 1).reshape([total.shape[0], *[1] * (total.ndim - 1)])


def following(fn: Callable) -> Callable:
    """A function of arrays whose results are NumPy's where its arrays are."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = fn(*args, **kwargs)
        if current() is not None or on_mesh.is_given(args, kwargs):
            return made
        given = [v for v in pytree.leaves((args, kwargs)) if isinstance(v, (numpy.ndarray, _core.Array))]
        if any(isinstance(v, Array) for v in given) or not given:
            return made
        return pytree.map(lambda v: v.numpy() if isinstance(v, Array) else v, made)

    return call


def _all() -> dict[str, Callable]:
    found = {name: getattr(xp, name) for name in _XP}
    for entry in _NN:
        name, _, source = entry.partition(":")
        found[name] = getattr(nn, source or name)
    for fn in (gemv, factorized_matmul, silu_mul, gather, scatter, scatter_add, segment_reduce):
        found[fn.__name__] = fn
    return found


def install() -> None:
    """Puts the names into `ts.op`, beside those that are kernels."""
    for name, fn in _all().items():
        if name not in op.__all__:
            call = placed(following(fn))
            # Pickled by name.
            call.__module__, call.__name__, call.__qualname__ = op.__name__, name, name
            setattr(op, name, call)
            op.__all__.append(name)
    for name, source in _SAME.items():
        setattr(op, name, getattr(op, source))
        op.__all__.append(name)
