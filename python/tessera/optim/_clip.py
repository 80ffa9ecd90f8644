"""Limits on gradients."""

from __future__ import annotations

import functools
from typing import Any

from .. import xp
from ..trace import prim as p
from ..trace.jit import eager
from ..trace.tracer import aval
from ..tree import pytree


def _wide(x: Any) -> Any:
    return p.cast(x, "f64" if aval(x)[1] == "f64" else "f32")


@eager
def global_norm(tree: Any) -> Any:
    """Root of the sum of the squares of all elements."""
    parts = [xp.sum(xp.square(_wide(v))) for v in pytree.leaves(tree)]
    return xp.sqrt(functools.reduce(lambda a, b: a + b, parts)) if parts else xp.zeros(())


@eager
def clip_by_global_norm(grads: Any, limit: float) -> Any:
    """Scaled down together so that their norm is at most ``limit``."""
    norm = global_norm(grads)
    scale = xp.minimum(1.0, limit / xp.maximum(norm, 1e-12))
    return pytree.map(lambda g: p.cast(_wide(g) * scale, aval(g)[1]), grads)


@eager
def clip_by_value(grads: Any, limit: float) -> Any:
    """Every element kept between -limit and limit."""
    return pytree.map(lambda g: xp.clip(g, -limit, limit), grads)
