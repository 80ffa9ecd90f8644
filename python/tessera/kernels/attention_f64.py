"""Attention of f64 arrays: as `attention.forward`, with the scale in f64."""

from __future__ import annotations

import tessera as ts

from .attention import Heads, Options, Span, attended
from .functions import Function


@ts.kernel
def forward(x: Heads, score: Function, mask: Function, scale: ts.f64, seen: Span, how: Options):
    attended(x, score, mask, scale, seen, how, how.BM, how.BN)
