"""Attention of f64 arrays: as `attention.forward`, with accumulators and the scale in f64."""

from __future__ import annotations

import tessera as ts

from .attention import any_score, attended, padded


@ts.kernel
def forward(
    Q: ts.Tensor["B", "H", "Sq", "D", ts.f64],
    K: ts.Tensor["B", "HK", "Sk", "D", ts.f64],
    V: ts.Tensor["B", "HK", "Sk", "DV", ts.f64],
    O: ts.Tensor["B", "H", "Sq", "DV", ts.f64],
    LSE: ts.Tensor["B", "H", "Sq", ts.f64],
    X,
    Y,
    Z,
    W,
    scale: ts.f64,
    lowest: ts.i64,
    highest: ts.i64,
    scores: ts.Fn = any_score,
    mask: ts.Fn = any_score,
    changes: int = 0,
    masks: int = -1,
    low: bool = False,
    high: bool = False,
    keep: bool = False,
    positive: bool = False,
    BM: int = 64,
    BN: int = 32,
    by: int = 0,
    checked: bool = False,
):
    attended(
        Q, K, V, O, LSE, X, Y, Z, W, scale, lowest, highest, scores, mask, changes, masks, low, high, keep, positive, BM, BN,
        (padded(D, by), padded(DV, by), Q.shape[2] if checked else None), ts.f64,
    )  # fmt: skip
