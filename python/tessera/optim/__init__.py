"""Optimisers as pure functions: ``state = opt.init(params)``; ``params, state = opt.update(params, grads, state)``. States are
trees of arrays: they go through `ts.jit` and into checkpoints like parameters. Parameters narrower than f32 get an f32 master
copy, which is what is updated; arithmetic and state are f32, f64 for f64 parameters."""

import typing as _typing

from ._clip import clip_by_global_norm, clip_by_value, global_norm
from ._compose import (
    EMA,
    Accumulate,
    Chain,
    Groups,
    Keep,
    Transform,
    accumulate,
    add_weight_decay,
    chain,
    clip_norm,
    clip_value,
    groups,
    masked,
    momentum,
    scale,
    stateless,
)
from ._more import Adafactor, Muon, RMSProp
from ._optimisers import SGD, Adam, AdamW, Lion
from ._scaler import LossScaler
from ._schedules import constant, cosine, exponential, linear, warmup_cosine

if not _typing.TYPE_CHECKING:  # a checker would take every name for one that is there

    def __getattr__(name: str) -> object:
        from ..base.foreign_names import missing

        raise missing(__name__, name, list(globals()))
