"""Attention of whole arrays: checks arguments, chooses tiles and launches a kernel. Rarely used kernels are imported on demand."""

from __future__ import annotations

import math
from typing import Any

import tessera as ts

from .. import _core
from . import arrays, checks
from .attention import SMALLEST, BlockMask, any_score, bound, exact, forward, scaled, shaped, sight


def attend(
    q: Any, k: Any, v: Any, causal: Any, scale: Any, window: Any, score_mod: Any, mask_mod: Any, return_lse: bool, layout: str,
    tile: Any, free: bool | None,
) -> Any:  # fmt: skip
    given = shaped(q, k, v, layout)
    exact(free)
    return_lse = checks.flag(return_lse, "return_lse")
    B, H, Sq, Sk, D, DV = given.extents
    blocks = mask_mod if isinstance(mask_mod, BlockMask) else None
    measured = isinstance(tile, str) and tile == "tune"
    wanted = scaled(scale, D)
    if blocks is None:
        seen = sight(causal, window, Sq, Sk)
        mask, more = bound(mask_mod, "mask_mod") if mask_mod is not None else (any_score, [])
        plain = score_mod is None and mask_mod is None and not return_lse
        BM, BN = given.tiles(None if measured else tile, seen, plain)
    else:
        blocks.check(given, causal, window, tile)
        seen, mask, more, (BM, BN) = blocks.seen, blocks.function, blocks.arrays, blocks.tile
    scores, extra = bound(score_mod, "score_mod") if score_mod is not None else (any_score, [])
    q, k, v, turned = given.q, given.k, given.v, given.turned
    of = arrays.dtype_of(q)
    kept_in = checks.accumulator(of)
    if kept_in == ts.f64 and (measured or blocks is not None):
        what = 'tile="tune"' if measured else "a block mask"
        help = "leave out `tile`" if measured else "hand over the mask's function itself"
        raise _core.error("E_UNSUPPORTED", f"expected {what} with arrays of f32 or narrower floats, got f64", help)
    shape = (B, Sq, H, DV) if turned else (B, H, Sq, DV)
    # Without keys the result is zeros, and nothing is launched.
    out = arrays.empty(shape, of, q) if Sk else arrays.full(shape, 0.0, of, q)
    o = arrays.permuted(out, (0, 2, 1, 3)) if turned else out
    if not return_lse:
        lse = arrays.unused((B, H, Sq), kept_in, q)
    else:
        lse = arrays.empty((B, H, Sq), kept_in, q) if Sk else arrays.full((B, H, Sq), -math.inf, kept_in, q)
    if arrays.size(out) and Sk:
        filled = (extra + [q, q])[:2] + (more + [q, q])[:2]
        rest = (
            *filled, wanted, seen.lowest or 0, seen.highest or 0, scores, mask, len(extra),
            len(more) if mask_mod is not None else -1, seen.lowest is not None, seen.highest is not None, return_lse,
            wanted >= SMALLEST,
        )  # fmt: skip
        if blocks is not None:
            _over_blocks(blocks, q, k, v, o, lse, *rest, Sk % BN != 0, BM, BN, 0, 0, free is not False, *given.widths)
        elif measured and not checks.checked():  # checked mode does not tune
            from . import tuned

            tuned.attention_of(free)(q, k, v, o, lse, *rest, *given.widths[:1])
        elif kept_in == ts.f64:
            from . import attention_f64

            attention_f64.forward(q, k, v, o, lse, *rest, BM, BN, *given.widths)
        else:
            forward(q, k, v, o, lse, *rest, BM, BN, 0, 0, free is not False, *given.widths)
    if given.rank == 3:
        out, lse = out.reshape(out.shape[1:]), lse.reshape(lse.shape[1:]) if return_lse else lse
    return (out, lse) if return_lse else out


def _over_blocks(mask: BlockMask, q: Any, k: Any, v: Any, o: Any, lse: Any, *rest: Any) -> None:
    from . import block_mask

    runs, others = mask.spread
    if tuple(runs.shape[:2]) != tuple(q.shape[:2]):
        runs, others = (arrays.expand(x, (*q.shape[:2], *x.shape[2:])) for x in (mask.runs, mask.others))
    block_mask.forward(q, k, v, o, lse, runs, others, *rest)
