"""Attention of f64 arrays: as `attention.forward`, with the accumulators and the scale in f64."""

from __future__ import annotations

import tessera as ts

from . import attention
from .attention import Options, Span, attended
from .functions import Function


@ts.struct
class Heads(attention.Heads):
    Q: ts.Tensor["B", "H", "Sq", "D", ts.f64]
    K: ts.Tensor["B", "HK", "Sk", "D", ts.f64]
    V: ts.Tensor["B", "HK", "Sk", "DV", ts.f64]
    O: ts.Tensor["B", "H", "Sq", "DV", ts.f64]
    LSE: ts.Tensor["B", "H", "Sq", ts.f64]


@ts.kernel
def forward(x: Heads, score: Function, mask: Function, scale: ts.f64, seen: Span, how: Options):
    attended(x, score, mask, scale, seen, how, how.BM, how.BN)
